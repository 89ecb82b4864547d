"""Anthropic's Messages API with its own client: whole answers, events in order, tools with a history, schemas, counting, errors."""
import json
import subprocess

import anthropic
import httpx
import pytest
from conftest import BIN, Daemon

TOOL = {"name": "get_weather", "description": "The weather", "input_schema": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 10}}, "required": ["city"], "additionalProperties": False}}
GREEDY = {"temperature": 0}  # the client has no such argument
ASK = [{"role": "user", "content": "Tell me a story about an owl."}]


@pytest.fixture(scope="module")
def client(daemon):
    return anthropic.Anthropic(base_url=daemon.url, api_key="none", max_retries=0)


def create(client, **fields):
    return client.messages.create(**{"model": "tidepool", "messages": ASK, "max_tokens": 24, "extra_body": GREEDY, **fields})


def test_an_answer_is_that_of_a_chat(daemon, client):
    message = create(client, system=[{"type": "text", "text": "Be kind.", "cache_control": {"type": "ephemeral"}}])
    chat = httpx.post(daemon.url + "/v1/chat/completions", json={"messages": [{"role": "system", "content": "Be kind."}, *ASK], "max_tokens": 24, "temperature": 0}).json()
    assert message.content[0].text == chat["choices"][0]["message"]["content"] and message.stop_reason == "max_tokens" and message.role == "assistant"
    usage = message.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == chat["usage"]["prompt_tokens"] and usage.output_tokens == 24
    assert client.messages.count_tokens(model="tidepool", system="Be kind.", messages=ASK).input_tokens == chat["usage"]["prompt_tokens"]
    blocks = [{"role": "user", "content": [{"type": "text", "text": "Tell me a story about an owl."}]}]
    assert create(client, system="Be kind.", messages=blocks).content == message.content


def test_events_come_in_order(client):
    events = list(create(client, stream=True))
    types = [e.type for e in events]
    assert types[:2] == ["message_start", "content_block_start"] and types[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(types[2:-3]) == {"content_block_delta"} and events[-2].usage.output_tokens == 24 and events[0].message.content == []
    assert "".join(e.delta.text for e in events[2:-3]) == create(client).content[0].text
    with client.messages.stream(model="tidepool", messages=ASK, max_tokens=400, extra_body=GREEDY) as stream:
        text = "".join(stream.text_stream)
        assert stream.get_final_message().content[0].text == text and stream.get_final_message().stop_reason == "end_turn"


def test_a_stop_sequence_is_told(client):
    story = create(client, max_tokens=60).content[0].text
    word = story.split()[8]
    stopped = create(client, max_tokens=60, stop_sequences=["@@@", word])
    assert stopped.stop_reason == "stop_sequence" and stopped.stop_sequence == word and stopped.content[0].text == story[:story.index(word)]


def test_calls_and_their_results(client):
    first = create(client, tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}, max_tokens=100)
    call = first.content[0]
    assert first.stop_reason == "tool_use" and call.type == "tool_use" and list(call.input) == ["city"]
    with client.messages.stream(model="tidepool", messages=ASK, tools=[TOOL], tool_choice={"type": "tool", "name": "get_weather"}, max_tokens=100, extra_body=GREEDY) as stream:
        assert stream.get_final_message().content[0].input == call.input
    history = [*ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [
        {"type": "text", "text": "Well?"}, {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "Sunny."}]}]}]
    second = create(client, messages=history, tools=[TOOL], tool_choice={"type": "none"})
    assert second.content[0].type == "text"
    counted = client.messages.count_tokens(model="tidepool", messages=history, tools=[TOOL], tool_choice={"type": "none"}).input_tokens
    assert counted == second.usage.input_tokens + second.usage.cache_read_input_tokens


@pytest.mark.parametrize("kind, name", [("bash_20250124", "bash"), ("memory_20250818", "memory"), ("text_editor_20250728", "str_replace_based_edit_tool"), ("computer_20250124", "computer")])
def test_a_clients_tool_of_a_dated_type_is_a_function_if_it_has_a_schema(client, kind, name):
    tool, choice = {"type": kind, "name": name, "input_schema": TOOL["input_schema"]}, {"type": "tool", "name": name}
    call = create(client, tools=[tool], tool_choice=choice, max_tokens=100).content[0]
    assert call.type == "tool_use" and call.name == name and list(call.input) == ["city"]
    plain = {"name": name, "input_schema": TOOL["input_schema"]}
    assert len({client.messages.count_tokens(model="tidepool", messages=ASK, tools=[each]).input_tokens for each in (tool, plain)}) == 1
    for schema in ({}, {"input_schema": None}):
        with pytest.raises(anthropic.BadRequestError, match="define the tool with 'input_schema'"):
            create(client, tools=[{"type": kind, "name": name, **schema}])


def test_schemas_prefixes_and_thinking(client):
    schema = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"], "additionalProperties": False}
    answer = create(client, output_config={"format": {"type": "json_schema", "schema": schema}}, thinking={"type": "disabled"})
    assert list(json.loads(answer.content[0].text)) == ["age"]
    begun = create(client, messages=[*ASK, {"role": "assistant", "content": "Once there was an owl"}], max_tokens=6)
    assert begun.content[0].text and not begun.content[0].text.startswith("Once")


@pytest.mark.parametrize("role, block, field", [
    ("user", {"type": "document", "source": {"type": "text"}}, "data"), ("user", {"type": "document", "source": {"type": "text", "data": 5}}, "data"),
    ("user", {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "document", "source": {"type": "text", "media_type": "text/plain"}}]}, "data"),
    ("user", {"type": "text"}, "text"), ("assistant", {"type": "text", "text": None}, "text"), ("assistant", {"type": "thinking"}, "thinking"),
    ("assistant", {"type": "tool_use", "name": "x", "input": {}}, "id"), ("assistant", {"type": "tool_use", "id": "x", "input": {}}, "name")])
def test_a_block_without_its_text_is_refused_by_the_fields_name(daemon, role, block, field):
    """A document without data was an empty document."""
    history = [*ASK, {"role": "assistant", "content": "Well."}] if role == "user" else ASK
    for route in ("/v1/messages", "/v1/messages/count_tokens"):
        body = {"model": "tidepool", "max_tokens": 5, "messages": [*history, {"role": role, "content": [block]}]}
        answer = httpx.post(daemon.url + route, json=body)
        assert answer.status_code == 400 and f"needs a text '{field}'" in answer.json()["error"]["message"] and "messages[" in answer.json()["error"]["message"], answer.text
    whole = {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "An owl."}}
    assert httpx.post(daemon.url + "/v1/messages", json={"model": "tidepool", "max_tokens": 5, "messages": [{"role": "user", "content": [whole]}]}).status_code == 200


def test_errors_have_their_types(daemon, client, tmp_path):
    for fields, words in (({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "web_search"), ({"messages": []}, "messages"), ({"stop_sequence": ["a"]}, "did you mean 'stop_sequences'"), ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
                          ({"tools": [{"type": "bash_20250124", "name": "bash"}]}, "input_schema"),
                          ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "image"), ({"max_tokens": None}, "max_tokens")):
        body = {"model": "tidepool", "messages": ASK, "max_tokens": 5, **fields}
        answer = httpx.post(daemon.url + "/v1/messages", json=body)
        assert answer.status_code == 400 and answer.json()["type"] == "error" and answer.json()["error"]["type"] == "invalid_request_error" and words in answer.json()["error"]["message"]
        assert answer.json()["request_id"] == answer.headers["request-id"]
    with pytest.raises(anthropic.NotFoundError) as missing:
        create(client, model="claude")
    assert missing.value.body["error"]["type"] == "not_found_error"
    assert httpx.post(daemon.url + "/v1/messages", json={"model": "tidepool", "messages": ASK, "max_tokens": 5, "metadata": {"user_id": "u"}, "service_tier": "auto"}).status_code == 200


def test_errors_of_shared_routes_have_anthropics_shape_for_its_clients(daemon, client, tmp_path):
    with pytest.raises(anthropic.NotFoundError) as missing:  # it was OpenAI's shape
        client.models.retrieve("nope")
    assert missing.value.body["type"] == "error" and missing.value.body["error"]["type"] == "not_found_error" and missing.value.body["request_id"]
    version = {"anthropic-version": "2023-06-01"}
    for path in ("/v1/models/nope", "/v1/files"):
        answer = httpx.get(daemon.url + path, headers=version)
        assert answer.status_code == 404 and answer.json()["type"] == "error" and answer.headers["request-id"] == answer.json()["request_id"]
        assert set(httpx.get(daemon.url + path).json()) == {"error"}
    assert isinstance(httpx.get(daemon.url + "/api/nope", headers=version).json()["error"], str)
    assert client.models.retrieve("tidepool").type == "model"


def test_the_key_may_come_as_anthropics_clients_send_it(tmp_path):
    keys = tmp_path / "keys"
    keys.write_bytes(subprocess.run([BIN / "thermoclined", "--hash-key", "alice"], input=b"a-key-of-some-length\n", capture_output=True, check=True).stdout)
    with Daemon(f"server.api_keys_file={keys}") as d:
        assert create(anthropic.Anthropic(base_url=d.url, api_key="a-key-of-some-length", max_retries=0), max_tokens=3).content
        with pytest.raises(anthropic.AuthenticationError) as refused:
            create(anthropic.Anthropic(base_url=d.url, api_key="another-key-of-length", max_retries=0))
        assert refused.value.body["error"]["type"] == "authentication_error"
