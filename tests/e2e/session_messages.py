"""Requests of Anthropic's messages and of OpenAI's responses as OpenAI's chat messages, and what an answer says about its prompt. This
is the tests' own reading of the APIs, beside server/anthropic and server/openai."""
import json


def text_of(content, between):
    return content if isinstance(content, str) else between.join(part["text"] for part in content if part["text"] or not between)


def function(tool, parameters):
    return {"type": "function", "function": {"name": tool["name"], "description": tool.get("description", ""),
                                             "parameters": tool.get(parameters, {})}}


def call(identity, name, arguments):
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def of_anthropic(message):
    role, content = message["role"], message["content"]
    if isinstance(content, str) or role == "system":
        return [{"role": role, "content": text_of(content, "\n")}]
    texts = [block for block in content if block["type"] == "text"]
    if role == "user":
        results = [{"role": "tool", "tool_call_id": block["tool_use_id"],
                    "content": ("Error: " if block.get("is_error") else "") + text_of(block["content"], "\n")}
                   for block in content if block["type"] == "tool_result"]
        return results + ([{"role": role, "content": "\n".join(block["text"] for block in texts)}] if texts else [])
    calls = [call(block["id"], block["name"], json.dumps(block["input"], separators=(",", ":"))) for block in content if block["type"] == "tool_use"]
    answer = {"role": role, "content": "".join(block["text"] for block in texts)}
    return [{**answer, "tool_calls": calls} if calls else answer]


def messages_of_responses(items):
    messages = []
    for item in items:
        if item["type"] == "function_call":
            if not messages or messages[-1]["role"] != "assistant":
                messages.append({"role": "assistant", "content": ""})
            messages[-1].setdefault("tool_calls", []).append(call(item["call_id"], item["name"], item["arguments"]))
        elif item["type"] == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": text_of(item["output"], "")})
        else:
            messages.append({"role": item["role"], "content": text_of(item["content"], "")})
    return messages


def chat_of(route, body):
    """{"messages", "tools"} of a request."""
    tools = body.get("tools", [])
    if route == "/v1/messages":
        system = [{"role": "system", "content": text_of(body["system"], "\n")}] if body.get("system") else []
        messages = system + [each for message in body["messages"] for each in of_anthropic(message)]
        tools = [function(tool, "input_schema") for tool in tools if not tool.get("defer_loading")]  # No recording refers to such a tool.
    elif route == "/v1/responses":
        instructions = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
        messages = instructions + messages_of_responses(body["input"])
        tools = [function(tool, "parameters") for tool in tools if tool["type"] == "function"]
    else:
        messages = body["messages"]
    return {"messages": messages, **({"tools": tools} if tools else {})}


def usage_of(route, answer):
    """Tokens of the prompt, and those of them that were cached."""
    usage = answer["usage"]
    if route == "/v1/messages":
        return usage["input_tokens"] + usage["cache_read_input_tokens"] + usage.get("cache_creation_input_tokens", 0), usage["cache_read_input_tokens"]
    if route == "/v1/responses":
        return usage["input_tokens"], usage["input_tokens_details"]["cached_tokens"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"]
