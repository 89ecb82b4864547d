"""Published faults of tool calls that this server had, too: each with its smallest input (test_published_faults.py has the others)."""
import json
import os

import httpx
import jsonschema
import pytest
from conftest import Daemon
from gguf_copy import copy
from test_published_faults import ask, served  # noqa: F401 (a fixture)


# F03, F04, F11, F12: templates that write arguments one by one.

TAGGED = ["Qwen3-Coder", "GLM-4.6", "deepseek-ai-DeepSeek-V3.2", "google-gemma-4-31B-it", "LFM2-8B-A1B"]


@pytest.fixture(scope="module", params=TAGGED)
def tagged(request, smollm, peer, tmp_path_factory):
    template = (peer / f"models/templates/{request.param}.jinja").read_text()
    layers = None if request.param in ("GLM-4.6", "deepseek-ai-DeepSeek-V3.2") else 3  # these end their reasoning by themselves
    path = copy(smollm, tmp_path_factory.mktemp("tagged") / "model.gguf", fields={"tokenizer.chat_template": template}, layers=layers)
    with Daemon(f"model.path={path}", "model.name=s", "engine.context_length=4096") as d:
        yield d
    os.unlink(path)


def call(daemon, schema, **fields):
    tool = {"type": "function", "function": {"name": "send", "description": "Sends.", "parameters": schema, "strict": fields.pop("strict", True)}}
    return ask(daemon, "/v1/chat/completions", **{"messages": [{"role": "user", "content": "Send something."}], "tools": [tool], "tool_choice": "required", "max_tokens": 150, "seed": 1, **fields})


STRINGS = {"const": {"type": "string", "const": "x-1"}, "pattern": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{2}$"}, "lengths": {"type": "string", "minLength": 2, "maxLength": 4}, "format": {"type": "string", "format": "ipv4"},
           "reference": {"$ref": "#/$defs/E"}, "enumeration": {"enum": ["x", "y"]}}


@pytest.mark.parametrize("kind", STRINGS)
@pytest.mark.parametrize("strict", [True, False])
def test_F03_F04_strings_of_calls_satisfy_their_schema(tagged, kind, strict):
    schema = {"type": "object", "properties": {"v": STRINGS[kind]}, "required": ["v"], "$defs": {"E": {"type": "string", "enum": ["x", "y"]}}, "additionalProperties": False}
    answer = call(tagged, schema, strict=strict)
    assert answer.status_code == 200, answer.text
    arguments = answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker()).validate(json.loads(arguments))


# Parameters that are no plain list of properties.
WHOLES = {
    "reference": {"$ref": "#/$defs/T", "$defs": {"T": {"type": "object", "properties": {"x": {"const": "k"}}, "required": ["x"]}}},
    "allOf": {"type": "object", "allOf": [{"properties": {"x": {"const": "k"}}, "required": ["x"]}, {"properties": {"y": {"type": "integer", "maximum": 99, "minimum": 9}}, "required": ["y"]}]},
    "anyOf": {"type": "object", "anyOf": [{"properties": {"x": {"const": "k"}}, "required": ["x"]}, {"properties": {"y": {"const": 5}}, "required": ["y"]}]},
    "oneOf": {"oneOf": [{"type": "object", "properties": {"kind": {"const": kind}, kind: {"const": 1}}, "required": ["kind", kind], "additionalProperties": False} for kind in ("ab", "cd")]},
    "const": {"const": {"x": "k", "n": 3}},
    "enum": {"enum": [{"x": "k"}, {"x": "l", "z": [1]}]},
    "patternProperties": {"type": "object", "patternProperties": {"^x-[a-c]$": {"const": "k"}}, "additionalProperties": False, "minProperties": 1, "maxProperties": 2},
    "propertyNames": {"type": "object", "propertyNames": {"pattern": "^[ab]{2}$"}, "additionalProperties": {"enum": [1, 2]}, "minProperties": 1, "maxProperties": 2},
    "additionalProperties": {"type": "object", "additionalProperties": {"type": "string", "pattern": "^[a-c]{2}$"}, "minProperties": 1, "maxProperties": 2},
    "required without a property": {"type": "object", "properties": {"x": {"const": "k"}}, "required": ["z"], "additionalProperties": {"const": 7}, "maxProperties": 3},
    "at most one": {"type": "object", "properties": {"x": {"const": "k"}, "y": {"const": "l"}}, "minProperties": 1, "maxProperties": 1},
    "a key with a blank": {"type": "object", "properties": {"an x": {"const": "k"}}, "required": ["an x"], "additionalProperties": False},
}


@pytest.mark.parametrize("kind", WHOLES)
@pytest.mark.parametrize("strict", [True, False])
def test_arguments_satisfy_whatever_the_parameters_say(tagged, kind, strict):
    schema = WHOLES[kind]
    answer = call(tagged, schema, strict=strict, max_tokens=200, parallel_tool_calls=False)
    assert answer.status_code == 200, answer.text
    arguments = answer.json()["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]
    jsonschema.Draft202012Validator(schema).validate(json.loads(arguments))


@pytest.mark.parametrize("schema", [{"type": "object", "properties": {"x": {}}, "required": ["x", "z"], "additionalProperties": False}, {"type": "array"},
                                    {"type": "object", "oneOf": [{"properties": {"x": {}}}, {"properties": {"y": {}}}]}], ids=["no such key", "no object", "not apart"])
def test_parameters_that_cannot_hold_are_refused_where_they_are_strict(tagged, schema):
    answer = call(tagged, schema)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "tools" and "send" in answer.text, answer.text


@pytest.mark.parametrize("schema, words", [
    ({"properties": {"v": {"$ref": "#/$defs/None"}}}, "'#/$defs/None' refers to nothing"), ({"properties": {"v": {"type": "array", "items": {"$ref": "#/nowhere"}}}}, "'#/nowhere' refers to nothing"),
    ({"properties": {"v": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}, '{"$ref":"#/$defs/a"}')])
def test_a_wrong_reference_is_shown_as_the_client_wrote_it(tagged, schema, words):
    """Arguments that are written one by one showed #/$defs/thermocline_root/$defs/None."""
    refused = call(tagged, {"type": "object", "required": ["v"], **schema})
    assert refused.status_code == 400 and words in refused.json()["error"]["message"] and "thermocline" not in refused.text, refused.text


def test_F11_a_conversation_with_a_call_that_was_cut_goes_on(tagged):
    cut = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "send", "arguments": '{"v": "half of a fi'}}]}
    schema = {"type": "object", "properties": {"v": {"type": "string"}}, "required": ["v"]}
    messages = [{"role": "user", "content": "Send."}, cut, {"role": "tool", "tool_call_id": "call_1", "content": "error: no JSON"}, {"role": "user", "content": "Again."}]
    answer = call(tagged, schema, messages=messages, tool_choice="auto", max_tokens=10)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("arguments", ['{"v": "half of a fi', '{"v": 1e400}', "null", None])
def test_F11_arguments_that_are_no_object_are_kept_or_none(tagged, arguments):
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "send", "arguments": arguments}}]}
    answer = ask(tagged, "/apply-template", messages=[{"role": "user", "content": "Send."}, called, {"role": "tool", "tool_call_id": "call_1", "content": "y"}])
    assert answer.status_code == 200 and (arguments in (None, "null") or arguments in answer.json()["prompt"]), answer.text


def test_F12_a_long_string_comes_in_deltas_and_is_kept_if_it_is_cut(tagged):
    schema = {"type": "object", "properties": {"v": {"type": "string", "minLength": 200}}, "required": ["v"]}
    deltas = []
    with httpx.stream("POST", tagged.url + "/v1/chat/completions", timeout=120, json={
            "messages": [{"role": "user", "content": "Send a long text."}], "tools": [{"type": "function", "function": {"name": "send", "parameters": schema}}], "tool_choice": "required",
            "max_tokens": 90, "seed": 3, "stream": True}) as response:
        for line in response.iter_lines():
            if line.startswith("data: {"):
                for choice in json.loads(line[6:])["choices"]:
                    deltas += [c["function"]["arguments"] for c in choice["delta"].get("tool_calls", []) if c["function"].get("arguments")]
                    finish = choice["finish_reason"]
    assert finish == "length" and len(deltas) > 8 and len("".join(deltas)) > 40, deltas


def test_F12_marks_behind_a_value_that_is_cut_are_no_part_of_it(tagged):
    schema = {"type": "object", "properties": {"x": {"const": "yes"}, "n": {"const": 5}}, "required": ["x", "n"], "additionalProperties": False}
    whole, seen = '{"x": "yes", "n": 5}', set()
    for limit in range(4, 160, 3):
        choice = call(tagged, schema, max_tokens=limit, parallel_tool_calls=False).json()["choices"][0]
        arguments = "".join(c["function"]["arguments"] for c in choice["message"].get("tool_calls") or [])
        assert whole.startswith(arguments), (limit, arguments)
        seen.add(arguments)
        if choice["finish_reason"] != "length":
            break
    assert whole in seen and len(seen) > 2, seen


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/messages", "/v1/responses", "/api/chat"])
def test_one_call_at_most_where_calls_have_another_form_too(smollm, route):
    two = '{"name": "get_weather", "arguments": {"city": "Rome"}}\n' * 2
    history = [m for _ in range(4) for m in ({"role": "user", "content": "Go."}, {"role": "assistant", "content": two.strip()})] + [{"role": "user", "content": "Go."}]
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    function = {"name": "get_weather", "parameters": schema}
    body = {"/v1/messages": {"messages": history, "tools": [{"name": "get_weather", "input_schema": schema}], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}, "max_tokens": 80},
            "/v1/responses": {"input": history, "tools": [{"type": "function", **function}], "parallel_tool_calls": False, "max_output_tokens": 80}}.get(
        route, {"messages": history, "tools": [{"type": "function", "function": function}], "parallel_tool_calls": False, "max_tokens": 80, "stream": False})
    with Daemon(f"model.path={smollm}") as d:
        text = httpx.post(d.url + route, json={**body, "temperature": 0}, timeout=120).text
        several = httpx.post(d.url + route, json={**{k: v for k, v in body.items() if k != "parallel_tool_calls"}, "temperature": 0, **({"tool_choice": {"type": "auto"}} if route == "/v1/messages" else {})}, timeout=120).text
    assert text.count("Rome") == 1 and several.count("Rome") > 1, (text, several)


@pytest.mark.parametrize("parameters", [{"type": "object", "properties": {}}, None])
def test_F20_a_tool_without_parameters_gets_none(served, parameters):  # noqa: F811
    function = {"name": "now", **({"parameters": parameters} if parameters else {})}
    answer = ask(served, "/v1/chat/completions", messages=[{"role": "user", "content": "What time is it?"}], tools=[{"type": "function", "function": function}], tool_choice="required", max_tokens=60, parallel_tool_calls=False).json()
    assert json.loads(answer["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"]) == {}


def test_F24_numbers_of_a_call_that_is_sent_back_are_unchanged(served):  # noqa: F811
    arguments = '{"id": 12345678901234567890, "x": 1.0, "e": "\\u00e9"}'
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": arguments}}]}
    prompt = ask(served, "/apply-template", messages=[{"role": "user", "content": "x"}, message, {"role": "tool", "tool_call_id": "call_1", "content": "y"}]).json()["prompt"]
    assert "12345678901234567890" in prompt and "1.0" in prompt
