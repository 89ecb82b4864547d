"""OpenAI's Responses API with OpenAI's client: complete answers, events in order, tools, schemas, rejections."""
import json

import httpx
import openai
import pydantic
import pytest

TOOL = {"type": "function", "name": "get_weather", "description": "The weather", "strict": True,
        "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 10}}, "required": ["city"], "additionalProperties": False}}


@pytest.fixture(scope="module")
def client(daemon):
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", max_retries=0)


def create(client, **fields):
    return client.responses.create(**{"model": "tidepool", "input": "Tell me a story about an owl.", "temperature": 0, "max_output_tokens": 24, **fields})


def test_an_answer_is_that_of_a_chat(client):
    response = create(client, instructions="Be kind.")
    chat = client.chat.completions.create(model="tidepool", temperature=0, max_tokens=24, messages=[{"role": "system", "content": "Be kind."}, {"role": "user", "content": "Tell me a story about an owl."}])
    assert response.output_text == chat.choices[0].message.content and response.usage.input_tokens == chat.usage.prompt_tokens
    assert response.status == "incomplete" and response.incomplete_details.reason == "max_output_tokens" and response.instructions == "Be kind."
    items = [{"role": "developer", "content": "Be kind."}, {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Tell me a story about an owl."}]}]
    assert create(client, input=items).output_text == response.output_text
    assert client.responses.input_tokens.count(model="tidepool", input=items).input_tokens == response.usage.input_tokens


def test_events_come_in_order(client):
    events = list(create(client, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    types = [e.type for e in events if not e.type.endswith(".delta")]
    assert types == ["response.created", "response.in_progress", "response.output_item.added", "response.content_part.added", "response.output_text.done",
                     "response.content_part.done", "response.output_item.done", "response.incomplete"]
    text = "".join(e.delta for e in events if e.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == create(client).output_text and events[0].response.id == events[-1].response.id
    with client.responses.stream(model="tidepool", input="Tell me a story about an owl.", max_output_tokens=400, temperature=0) as stream:
        assert [e for e in stream][-1].type == "response.completed"
        assert stream.get_final_response().output_text


def test_calls_and_their_outputs(client):
    first = create(client, tools=[TOOL, {"type": "web_search"}], tool_choice="required", parallel_tool_calls=False, max_output_tokens=80)
    call = first.output[0]
    assert first.status == "completed" and call.type == "function_call" and list(json.loads(call.arguments)) == ["city"]
    events = list(create(client, tools=[TOOL], tool_choice={"type": "function", "name": "get_weather"}, max_output_tokens=80, stream=True))
    assert "".join(e.delta for e in events if e.type == "response.function_call_arguments.delta") == call.arguments
    turn = [{"role": "user", "content": "Tell me a story about an owl."}, call, {"type": "function_call_output", "call_id": call.call_id, "output": "Sunny."}]
    second = create(client, input=turn, tools=[TOOL], tool_choice="none")
    assert second.output_text
    third = create(client, input=[*turn, *second.output, {"role": "user", "content": "And?"}], max_output_tokens=8)
    assert third.output_text


def test_a_schema_is_kept(client):
    class Owl(pydantic.BaseModel):
        age: int
        wise: bool
    parsed = client.responses.parse(model="tidepool", input="An owl", text_format=Owl, max_output_tokens=60)
    assert isinstance(parsed.output_parsed, Owl)


def test_log_probabilities(client):
    part = create(client, include=["message.output_text.logprobs"], top_logprobs=2).output[0].content[0]
    assert len(part.logprobs) == 24 and len(part.logprobs[0].top_logprobs) == 2


def test_what_would_have_to_be_stored_is_refused(daemon, client):
    for fields in ({"previous_response_id": "resp_1"}, {"background": True}, {"conversation": "c"}, {"truncation": "auto"}, {"prompt": {"id": "p"}},
                   {"input": [{"type": "item_reference", "id": "x"}]}, {"extra_body": {"instruction": "x"}}):
        with pytest.raises(openai.BadRequestError) as refused:
            create(client, **fields)
        assert refused.value.param == next(iter(fields)).replace("extra_body", "instruction")
    assert httpx.get(daemon.url + "/v1/responses/resp_1").status_code == 404
    assert httpx.delete(daemon.url + "/v1/responses/resp_1").status_code == 404 and httpx.post(daemon.url + "/v1/responses/resp_1/cancel").status_code == 404


def test_an_effort_is_a_string(daemon):
    for effort, status in ((5, 400), ("much", 400), ({}, 400), (None, 200), ("low", 200)):
        response = httpx.post(daemon.url + "/v1/responses", json={"input": "7", "max_output_tokens": 16, "reasoning": {"effort": effort}}, timeout=60)
        assert response.status_code == status and (status == 200 or response.json()["error"]["param"] == "reasoning.effort"), (effort, response.text)


def test_members_that_nothing_reads_are_ignored_visibly(daemon):
    text = {"verbosity": "low", "tone": "kind", "format": {"type": "json_schema", "name": "n", "schema": {"type": "integer"}, "strict": True, "depth": 3}}
    response = httpx.post(daemon.url + "/v1/responses", json={"input": "7", "max_output_tokens": 16, "text": text, "reasoning": {"effort": "low", "context": "all"}}, timeout=60)
    assert response.status_code == 200, response.text
    assert set(response.headers["x-thermocline-ignored"].split(", ")) == {"text.tone", "text.format.depth", "reasoning.context"}
