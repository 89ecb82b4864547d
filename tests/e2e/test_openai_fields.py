"""Fields of requests: refused by name, ignored visibly, taken where they change nothing."""
import json
import re

import httpx
import pytest
from conftest import ROOT, Daemon
from test_openai_api import STORY, chat, complete, events, post


@pytest.mark.parametrize("fields,param", [
    ({"prompt": None}, "prompt"), ({"prompt": []}, "prompt"), ({"prompt": [1, "a"]}, "prompt"), ({"prompt": [10**6]}, "prompt"), ({"prompt": [-1]}, "prompt"), ({"prompt": {"a": 1}}, "prompt"),
    ({"suffix": "end"}, "suffix"), ({"best_of": 2}, "best_of"), ({"logprobs": 6}, "logprobs"), ({"max_tokens": 0}, "max_tokens"), ({"n": 9}, "n"), ({"prompt": ["a"] * 10, "n": 8}, "n"),
    ({"stop_token_ids": [10**6]}, "stop_token_ids"), ({"typical_p": 2}, "typical_p"), ({"dry_base": 0}, "dry_base"), ({"min_tokens": 9, "max_tokens": 8}, "min_tokens"), ({"priority": 99}, "priority"),
    ({"temperature": float("nan")}, None), ({"seed": 2**64}, "seed"), ({"echo": "yes"}, "echo"),
])
def test_bad_fields_are_400(daemon, fields, param):
    response = complete(daemon, **fields)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error" and error["message"]
    assert param is None or error["param"] == param


def test_a_prompt_beyond_the_context(daemon):
    for body in ({"prompt": "owl " * 2000}, {"prompt": [5] * 600}, {"prompt": ["a", "owl " * 600]}):
        error = complete(daemon, **body).json()["error"]
        assert error["code"] == "context_length_exceeded" and error["param"] == "prompt" and "exceeds the available context size" in error["message"]
        assert error["n_ctx"] == 512 and error["n_prompt_tokens"] > 512


def test_null_means_absent(daemon):
    names = ["model", "n", "stream", "stream_options", "return_progress", "max_tokens", "max_completion_tokens", "min_tokens", "temperature", "top_k", "top_p", "min_p", "typical_p",
             "repetition_penalty", "presence_penalty", "frequency_penalty", "dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers", "seed",
             "logit_bias", "stop", "stop_token_ids", "ignore_eos", "priority", "x_thermocline", "logprobs", "user", "metadata"]
    assert post(daemon, "/v1/chat/completions", {"messages": STORY, **dict.fromkeys(names), "max_tokens": 1, "tools": None, "response_format": None, "top_logprobs": None, "what": None}).status_code == 200
    assert post(daemon, "/v1/completions", {"prompt": "a", **dict.fromkeys(names), "max_tokens": 1.0, "suffix": None, "best_of": None, "echo": None}).status_code == 200


def test_history_of_clients(daemon):
    history = [{"role": "developer", "content": "Be kind."}, {"role": "user", "content": [{"type": "text", "text": "Hi \u00e9"}, {"type": "text", "text": "!"}]},
               {"role": "assistant", "content": None, "tool_calls": None, "refusal": None}, {"role": "assistant", "content": [{"type": "text", "text": "Yes"}]}, {"role": "assistant"},
               {"role": "user", "content": "And?", "name": None, "tool_call_id": None}]
    assert chat(daemon, messages=history).status_code == 200


def test_unicode_escapes(daemon):
    body = '{"messages":[{"role":"user","content":"%s"}],"max_tokens":1}'
    assert post(daemon, "/v1/chat/completions", body % r"\ud83d\ude00 \u00e9").status_code == 200
    assert post(daemon, "/v1/chat/completions", (body % "\U0001F600").encode()).status_code == 200
    for lone in (r"\ud83d", r"\ude00", r"\ud83dx", r"\ude00\ud83d"):
        assert post(daemon, "/v1/chat/completions", body % lone).status_code == 400


def test_known_fields_that_cannot_be_obeyed_and_near_misses_are_refused_by_name(daemon):
    for fields in ({"response_format": {"type": "structural_tag"}}, {"functions": [{"name": "f"}]}, {"chat_template": "x"}, {"mirostat": 2}, {"modalities": ["audio"]}, {"presense_penalty": 1}):
        name = next(iter(fields))
        for response in (chat(daemon, **fields), complete(daemon, **fields)):
            assert response.status_code == 400 and response.json()["error"]["code"] == "unsupported_value" and response.json()["error"]["param"] == name, response.text
    assert "did you mean 'presence_penalty'?" in chat(daemon, presense_penalty=1).json()["error"]["message"]
    response = post(daemon, "/tokenize", {"content": "a", "with_piece": True})
    assert response.status_code == 400 and response.json()["error"]["param"] == "with_piece"


def test_unknown_fields_are_ignored_visibly():
    with Daemon() as d:
        # A near miss of a field that the request has is another field.
        response = chat(d, client_thing={"a": 1}, temprature=1, top_z=5)
        assert response.status_code == 200 and response.headers["x-thermocline-ignored"] == "client_thing, temprature, top_z"
        streamed = chat(d, client_thing=1, stream=True, stream_options={"include_usage": True, "what": 2})
        assert streamed.status_code == 200 and streamed.headers["x-thermocline-ignored"] == "stream_options.what, client_thing"
        assert "x-thermocline-ignored" not in chat(d, user="u", metadata={"a": "b"}).headers
        assert post(d, "/tokenize", {"content": "a", "unheard": True}).headers["x-thermocline-ignored"] == "unheard"
        assert len(d.logged("'client_thing' is not known here")) == 1
        metrics = httpx.get(d.url + "/metrics").text
        assert 'request_fields_ignored_total{api="/v1/chat/completions",field="client_thing"} 2' in metrics
        odd = chat(d, **{f"a{i}_{chr(10)}": 1 for i in range(200)})
        assert odd.status_code == 200 and len(odd.headers["x-thermocline-ignored"]) < 4096
    with Daemon("server.strict_fields=true") as d:
        refused = chat(d, client_thing=1).json()["error"]
        assert refused["param"] == "client_thing" and "server.strict_fields" in refused["message"]
        assert chat(d, user="u").status_code == 200


def test_values_that_change_nothing_are_taken_on_every_route(daemon):
    """Each was refused on one route and taken on another."""
    neutral = {"repeat_penalty": 1.0, "repeat_last_n": 64, "xtc_probability": 0, "mirostat": 0, "tfs_z": 1, "dynatemp_range": 0, "n_keep": 0, "modalities": ["text"], "echo": False, "skip_special_tokens": True,
               "top_k": -1, "stop": "", "length_penalty": 1.0, "include_stop_str_in_output": False, "reasoning_format": "auto",
               "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"], "penalize_newline": True}
    for response in (chat(daemon, **neutral), complete(daemon, **neutral), post(daemon, "/completion", {"prompt": "a", "n_predict": 2, **neutral})):
        assert response.status_code == 200 and "x-thermocline-ignored" not in response.headers, response.text
    for limit in ({"max_tokens": -1}, {"max_tokens": None, "n_predict": 5}):
        assert chat(daemon, **limit).status_code == 200
    assert chat(daemon, max_tokens=None, n_predict=5).json()["usage"]["completion_tokens"] == 5


CHAT = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 5, "temperature": 0}
# A request with a stop text, and the text of its answer.
STOPPED = {
    "/v1/chat/completions": (lambda stop: {**CHAT, "stop": stop}, lambda answer: answer["choices"][0]["message"]["content"]),
    "/v1/completions": (lambda stop: {"prompt": "Once", "max_tokens": 5, "temperature": 0, "stop": stop}, lambda answer: answer["choices"][0]["text"]),
    "/v1/messages": (lambda stop: {**CHAT, "stop_sequences": stop}, lambda answer: answer["content"][0]["text"]),
    "/completion": (lambda stop: {"prompt": "Once", "n_predict": 5, "temperature": 0, "stop": stop}, lambda answer: answer["content"]),
    "/api/generate": (lambda stop: {"model": "tidepool", "prompt": "Once", "stream": False, "options": {"num_predict": 5, "temperature": 0, "stop": stop}}, lambda answer: answer["response"]),
}


@pytest.mark.parametrize("route", STOPPED)
def test_an_empty_stop_text_stops_nothing_alone_or_in_a_list(daemon, route):
    """`stop: ""` was taken and `stop: [""]` was refused."""
    body, text = STOPPED[route]
    answers = [httpx.post(daemon.url + route, json=body(stop), timeout=60) for stop in (None, "", [""], ["", "@@@", ""])]
    assert all(answer.status_code == 200 for answer in answers), [answer.text for answer in answers]
    texts = {text(answer.json()) for answer in answers}
    assert len(texts) == 1 and texts.pop()


def test_other_names_of_the_model_and_a_bound_that_is_said():
    with Daemon("model.aliases=gpt-4o, default", "sampling.max_tokens=5") as d:
        assert [m["id"] for m in httpx.get(d.url + "/v1/models").json()["data"]] == ["tidepool", "gpt-4o", "default"]
        assert chat(d, model="gpt-4o").json()["model"] == "tidepool" and chat(d, model="gpt-4").status_code == 404
        assert httpx.get(d.url + "/v1/models/gpt-4o").json()["id"] == "gpt-4o"
        ended = chat(d, max_tokens=None).json()
        assert ended["choices"][0]["finish_reason"] == "length" and ended["usage"]["completion_tokens"] == 5 and ended["thermocline"]["ended_by"] == "sampling.max_tokens: 5"
        assert events(chat(d, max_tokens=None, stream=True))[-1]["thermocline"]["ended_by"] == "sampling.max_tokens: 5"
        assert "ended_by" not in chat(d, max_tokens=3).json()["thermocline"]
    with Daemon("model.aliases=*") as d:
        assert chat(d, model="whatever").status_code == 200 and [m["id"] for m in httpx.get(d.url + "/v1/models").json()["data"]] == ["tidepool"]


def test_fields_that_change_nothing_are_those_of_the_docs(daemon):
    source = (ROOT / "server/protocol/client_fields.h").read_text()
    table = re.findall(r'\{"(\w+)", +kAnyValue,', source)
    others = re.findall(r'\{"(\w+)",\s+"\[', source)
    assert len(table) > 5 and len(others) > 5
    docs = (ROOT / "docs/http-api.md").read_text()
    documented = re.search(r"Ignored, because they change no answer here: (.+?)\.\n", docs, re.DOTALL)[1]
    assert re.findall(r"`(\w+)`", documented) == table
    limited = re.search(r"Taken at the value that changes nothing, refused by name at others: (.+?)\.\n", docs, re.DOTALL)[1]
    assert re.findall(r"`(\w+)`", limited) == others
    response = chat(daemon, **{name: "x" for name in table})
    assert response.status_code == 200 and "x-thermocline-ignored" not in response.headers


USER = {"role": "user", "content": "Hi"}
PARTS = {"role": "user", "content": [{"type": "text", "text": "Hi", "client_thing": 1}]}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
BELOW = [  # a route, what it gets, and what of it is named as ignored
    ("/v1/chat/completions", {"messages": [{**USER, "client_thing": 1}]}, "messages.client_thing"),
    ("/v1/chat/completions", {"messages": [PARTS]}, "messages.content.client_thing"),
    ("/v1/chat/completions", {"messages": [USER], "tools": [{"type": "function", "client_thing": 1, "function": FUNCTION}]}, "tools.client_thing"),
    ("/v1/chat/completions", {"messages": [USER], "tools": [{"type": "function", "function": {**FUNCTION, "client_thing": 1}}]}, "tools.function.client_thing"),
    ("/v1/chat/completions", {"messages": [USER, {"role": "assistant", "content": "", "tool_calls": [{"id": "c", "type": "function", "client_thing": 1, "function": {"name": "f", "arguments": "{}"}}]}, {"role": "tool", "tool_call_id": "c", "content": "x"}]}, "messages.tool_calls.client_thing"),
    ("/v1/chat/completions", {"messages": [USER], "response_format": {"type": "text", "schema": {"const": 7}}}, "response_format.schema"),
    ("/v1/chat/completions", {"messages": [USER], "response_format": {"type": "json_object", "strict": True}}, "response_format.strict"),
    ("/v1/messages", {"messages": [{**USER, "client_thing": 1}]}, "messages.client_thing"),
    ("/v1/messages", {"messages": [PARTS]}, "messages.content.client_thing"),
    ("/v1/messages", {"messages": [USER], "tools": [{"name": "f", "input_schema": {"type": "object"}, "client_thing": 1}]}, "tools.client_thing"),
    ("/v1/messages", {"messages": [USER], "output_config": {"client_thing": "low"}}, "output_config.client_thing"),
    ("/v1/responses", {"input": [{**USER, "client_thing": 1}]}, "input.client_thing"),
    ("/v1/responses", {"input": [USER], "tools": [{"type": "function", **FUNCTION, "client_thing": 1}]}, "tools.client_thing"),
]
LIMITS = {"/v1/chat/completions": "max_tokens", "/v1/messages": "max_tokens", "/v1/responses": "max_output_tokens"}


@pytest.mark.parametrize("route,body,name", BELOW, ids=[f"{r} {n}" for r, _, n in BELOW])
def test_unknown_members_below_the_top_are_ignored_visibly(daemon, route, body, name):
    response = httpx.post(daemon.url + route, json={**body, LIMITS[route]: 1}, timeout=60)
    assert response.status_code == 200 and response.headers.get("x-thermocline-ignored") == name, response.text


@pytest.mark.parametrize("route,body,meant", [
    ("/v1/chat/completions", {"messages": [USER], "tools": [{"type": "function", "function": {"name": "f", "strict": True, "parametres": {"type": "object"}}}]}, "tools.function.parameters"),
    ("/v1/messages", {"messages": [USER], "tools": [{"name": "f", "input_shema": {"type": "object"}}]}, "tools.input_schema"),
    ("/v1/messages", {"messages": [USER], "output_config": {"efort": "low"}}, "effort"),
    ("/v1/responses", {"input": [USER], "tools": [{"type": "function", "name": "f", "paramters": {"type": "object"}}]}, "parameters"),
])
def test_near_misses_below_the_top_are_refused(daemon, route, body, meant):
    response = httpx.post(daemon.url + route, json={**body, LIMITS[route]: 1}, timeout=60)
    assert response.status_code == 400 and f"did you mean '{meant.split('.')[-1]}'" in response.text, response.text


@pytest.mark.parametrize("members", [{"images": ["a"]}, {"audio": {"id": "x"}}, {"function_call": {"name": "f"}}])
@pytest.mark.parametrize("route", ["/v1/messages", "/v1/responses", "/v1/chat/completions"])
def test_members_of_messages_that_would_change_the_answer_are_refused(daemon, route, members):
    field = "input" if route == "/v1/responses" else "messages"
    response = httpx.post(daemon.url + route, json={field: [{**USER, **members}], LIMITS[route]: 1}, timeout=60)
    assert response.status_code == 400 and f"{next(iter(members))} is not supported" in response.text, response.text


def test_a_schema_beside_json_object_is_obeyed_and_two_are_refused(daemon):
    schema = {"type": "object", "properties": {"a": {"const": 7}}, "required": ["a"], "additionalProperties": False}
    for form in ({"json_schema": {"name": "x", "schema": schema}}, {"schema": schema}, {"value": schema}):
        for route, field in (("/v1/chat/completions", {"messages": [USER]}), ("/v1/completions", {"prompt": "Hi"})):
            answer = httpx.post(daemon.url + route, json={**field, "response_format": {"type": "json_object", **form}, "max_tokens": 60, "temperature": 0}, timeout=60).json()["choices"][0]
            assert json.loads(answer["text"] if "text" in answer else answer["message"]["content"]) == {"a": 7}
        answer = httpx.post(daemon.url + "/v1/responses", json={"input": "Hi", "text": {"format": {"type": "json_object", **form}}, "max_output_tokens": 60, "temperature": 0}, timeout=60).json()
        assert json.loads(answer["output"][0]["content"][0]["text"]) == {"a": 7}
    both = httpx.post(daemon.url + "/v1/chat/completions", json={"messages": [USER], "response_format": {"type": "json_object", "schema": schema, "value": schema}})
    assert both.status_code == 400 and "give one" in both.text
