"""Calls of tools as OpenAI's client makes them, on a model whose template knows none: the form is ours, a grammar keeps to it."""
import json

import httpx
import jsonschema
import openai
import pytest

PARAMETERS = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 12}, "days": {"type": "integer", "minimum": 1, "maximum": 9}}, "required": ["city", "days"]}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": PARAMETERS, "strict": True}},
         {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}, "additionalProperties": False}}}]
NAMED = {"type": "function", "function": {"name": "get_weather"}}
ASK = [{"role": "user", "content": "How is the weather in Rome?"}]


@pytest.fixture(scope="module")
def client(daemon):
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", max_retries=0)


def create(client, **fields):
    return client.chat.completions.create(**{"model": "tidepool", "messages": ASK, "tools": TOOLS, "max_tokens": 300, "temperature": 1, **fields})


def check(calls):
    assert calls and len({c.id for c in calls}) == len(calls)
    for call in calls:
        assert call.type == "function" and call.function.name in ("get_weather", "now")
        jsonschema.validate(json.loads(call.function.arguments), PARAMETERS if call.function.name == "get_weather" else {"type": "object", "maxProperties": 0})


@pytest.mark.parametrize("seed", range(10))
def test_required_calls_parse(client, seed):
    choice = create(client, tool_choice="required", seed=seed, parallel_tool_calls=seed % 2 == 0).choices[0]
    assert choice.finish_reason == "tool_calls" and not choice.message.content
    check(choice.message.tool_calls)
    assert seed % 2 == 0 or len(choice.message.tool_calls) == 1


def test_a_named_function_is_called_once(client):
    choice = create(client, tool_choice=NAMED, seed=3).choices[0]
    assert choice.finish_reason == "stop" and [c.function.name for c in choice.message.tool_calls] == ["get_weather"]
    check(choice.message.tool_calls)


def test_no_calls_where_none_are_wanted(client):
    for fields in ({"tool_choice": "none"}, {}):
        choice = create(client, seed=1, max_tokens=40, **fields).choices[0]
        assert choice.message.content and (fields == {} or not choice.message.tool_calls)


@pytest.mark.parametrize("seed", range(3))
def test_streams_say_what_whole_answers_say(client, seed):
    whole = create(client, tool_choice="required", seed=seed, n=2)
    calls, ends = [{}, {}], [None, None]
    for chunk in create(client, tool_choice="required", seed=seed, n=2, stream=True):
        for choice in chunk.choices:
            ends[choice.index] = choice.finish_reason or ends[choice.index]
            for delta in choice.delta.tool_calls or []:
                if delta.id:
                    assert delta.index not in calls[choice.index] and delta.type == "function"
                    calls[choice.index][delta.index] = [delta.function.name, ""]
                calls[choice.index][delta.index][1] += delta.function.arguments
    for choice in whole.choices:
        assert ends[choice.index] == choice.finish_reason
        assert list(calls[choice.index].values()) == [[c.function.name, c.function.arguments] for c in choice.message.tool_calls]


def test_a_conversation_with_results(client):
    first = create(client, tool_choice="required", parallel_tool_calls=False, seed=5).choices[0].message
    results = [{"role": "tool", "tool_call_id": c.id, "content": '{"sky": "blue"}'} for c in first.tool_calls]
    second = create(client, messages=[*ASK, first, *results], tool_choice="none", max_tokens=20)
    assert second.choices[0].message.content
    again = [*ASK, first, *results, {"role": "user", "content": "And tomorrow?"}]
    assert create(client, messages=again, tools=TOOLS[:1], tool_choice=NAMED).choices[0].message.tool_calls


def test_the_template_is_told_of_tools_and_calls(daemon):
    call = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "type": "function", "function": {"name": "now", "arguments": "{}"}}]}
    messages = [*ASK, call, {"role": "tool", "tool_call_id": "x", "content": "noon"}, {"role": "tool", "tool_call_id": "y", "content": "soon"}]
    text = httpx.post(daemon.url + "/apply-template", json={"messages": messages, "tools": TOOLS}).json()["prompt"]
    assert "get_weather" in text and '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>' in text
    assert "<tool_response>\nnoon\n</tool_response>\n<tool_response>\nsoon\n</tool_response>" in text
    assert "get_weather" not in httpx.post(daemon.url + "/apply-template", json={"messages": ASK, "tools": TOOLS, "tool_choice": "none"}).json()["prompt"]


def test_what_cannot_be_kept_to_is_refused_if_the_tool_is_strict(client):
    odd = {"name": "odd", "parameters": {"type": "object", "not": {"required": ["a"]}}}
    fields = {"tools": [{"type": "function", "function": odd}], "tool_choice": "required"}
    with pytest.raises(openai.BadRequestError) as refused:
        create(client, **{**fields, "tools": [{"type": "function", "function": {**odd, "strict": True}}]})
    assert refused.value.param == "tools" and "not" in refused.value.message
    lenient = create(client, **fields, max_tokens=60).choices[0]
    assert lenient.message.tool_calls[0].function.arguments.startswith("{")


def test_an_answer_goes_on_where_it_was_begun(daemon, client):
    begun = {"role": "assistant", "content": "Once there was an owl"}
    def prompt(**fields):
        return httpx.post(daemon.url + "/apply-template", json={"messages": [*ASK, begun], **fields}).json()["prompt"]
    assert prompt().endswith("Once there was an owl") and prompt(continue_final_message=True) == prompt()
    assert not prompt(continue_final_message=False).endswith("Once there was an owl")
    answer = create(client, messages=[*ASK, begun], tools=openai.omit, temperature=0, max_tokens=5).choices[0].message.content
    assert answer and not answer.startswith("Once")
