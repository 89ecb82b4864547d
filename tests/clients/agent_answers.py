"""Answers that stand in for a model's, in the streams of the three APIs: a text, calls of tools, or both."""
import json
from dataclasses import dataclass, field


@dataclass
class Answer:
    text: str = ""
    calls: list = field(default_factory=list)  # of (name of the tool, arguments)


def sse(events, named):
    lines = [(f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event)}\n\n" for event in events]
    return "".join(lines).encode()


def anthropic(answer, ids, stream):
    blocks = [{"type": "text", "text": answer.text}] if answer.text else []
    blocks += [{"type": "tool_use", "id": f"toolu_{next(ids)}", "name": name, "input": arguments} for name, arguments in answer.calls]
    stop = "tool_use" if answer.calls else "end_turn"
    message = {"id": f"msg_{next(ids)}", "type": "message", "role": "assistant", "model": "m", "content": blocks, "stop_reason": stop,
               "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}
    if not stream:
        return json.dumps(message).encode()
    events = [{"type": "message_start", "message": {**message, "content": [], "stop_reason": None}}]
    for index, block in enumerate(blocks):
        is_text = block["type"] == "text"
        delta = {"type": "text_delta", "text": block["text"]} if is_text else {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        events += [{"type": "content_block_start", "index": index, "content_block": {**block, **({"text": ""} if is_text else {"input": {}})}},
                   {"type": "content_block_delta", "index": index, "delta": delta}, {"type": "content_block_stop", "index": index}]
    events += [{"type": "message_delta", "delta": {"stop_reason": stop, "stop_sequence": None}, "usage": {"output_tokens": 1}},
               {"type": "message_stop"}]
    return sse(events, named=True)


def responses(answer, ids, stream):
    assert stream
    items = []
    if answer.text:
        items.append({"type": "message", "id": f"msg_{next(ids)}", "role": "assistant", "status": "completed",
                      "content": [{"type": "output_text", "text": answer.text, "annotations": []}]})
    for name, arguments in answer.calls:
        items.append({"type": "function_call", "id": f"fc_{next(ids)}", "call_id": f"call_{next(ids)}", "name": name,
                      "arguments": json.dumps(arguments), "status": "completed"})
    usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
             "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
    response = {"id": f"resp_{next(ids)}", "object": "response", "output": []}
    events = [{"type": "response.created", "response": {**response, "status": "in_progress"}}]
    for index, item in enumerate(items):
        events += [{"type": "response.output_item.added", "output_index": index, "item": item},
                   {"type": "response.output_item.done", "output_index": index, "item": item}]
    events.append({"type": "response.completed", "response": {**response, "status": "completed", "usage": usage}})
    return sse(events, named=True)


def chat(answer, ids, stream):
    assert not answer.calls
    head = {"id": f"chatcmpl-{next(ids)}", "created": 1, "model": "m"}
    if not stream:
        choice = {"index": 0, "message": {"role": "assistant", "content": answer.text}, "finish_reason": "stop"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        return json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
    choices = [{"index": 0, "delta": {"role": "assistant", "content": answer.text}, "finish_reason": None},
               {"index": 0, "delta": {}, "finish_reason": "stop"}]
    return sse([{**head, "object": "chat.completion.chunk", "choices": [choice]} for choice in choices], named=False) + b"data: [DONE]\n\n"


WRITERS = {"/v1/messages": anthropic, "/v1/responses": responses, "/v1/chat/completions": chat}


class Script:
    """Gives the answers in order to the requests of an agent's own work, and `aside` to others: those for titles and summaries.
    `ids` counts through all runs of a session."""

    def __init__(self, answers, ids, is_work, aside="calc"):
        self.answers, self.ids, self.is_work, self.aside = list(answers), ids, is_work, aside

    def __call__(self, exchange):
        route = exchange.path.split("?")[0]
        if exchange.method != "POST" or route not in WRITERS:
            return None
        work = self.is_work(exchange.body)
        answer = Answer(self.aside) if not work else self.answers.pop(0) if self.answers else Answer("There is no more to do.")
        stream = bool(exchange.body.get("stream"))
        kind = "text/event-stream" if stream else "application/json"
        return kind, WRITERS[route](answer, self.ids, stream)
