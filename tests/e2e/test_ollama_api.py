"""Ollama's API with its own client: chats and completions, streams, tools, schemas, embeddings, queries about the server."""
import json

import httpx
import numpy as np
import ollama
import pytest

ASK = [{"role": "user", "content": "Tell me a story about an owl."}]
OPTIONS = {"temperature": 0, "num_predict": 24, "num_ctx": 256, "num_gpu": 0}
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": {"type": "object", "properties": {"city": {"type": "string", "maxLength": 10}}, "required": ["city"]}}}
SCHEMA = {"type": "object", "properties": {"age": {"type": "integer", "maximum": 99}}, "required": ["age"], "additionalProperties": False}


@pytest.fixture(scope="module")
def client(daemon):
    return ollama.Client(host=daemon.url)


def test_a_chat_is_that_of_the_other_api(daemon, client):
    answer = client.chat(model="tidepool:latest", messages=ASK, options=OPTIONS)
    other = httpx.post(daemon.url + "/v1/chat/completions", json={"messages": ASK, "temperature": 0, "max_tokens": 24}).json()
    assert answer.message.content == other["choices"][0]["message"]["content"] and answer.message.role == "assistant"
    assert answer.done and answer.done_reason == "length" and answer.eval_count == 24 and answer.prompt_eval_count == other["usage"]["prompt_tokens"] and answer.eval_duration > 0
    parts = list(client.chat(model="tidepool", messages=ASK, options=OPTIONS, stream=True))
    assert "".join(p.message.content for p in parts) == answer.message.content and [p.done for p in parts] == [False] * (len(parts) - 1) + [True]
    response = httpx.post(daemon.url + "/api/chat", json={"model": "tidepool", "messages": ASK, "options": OPTIONS})
    assert response.headers["content-type"] == "application/x-ndjson" and all(json.loads(line)["message"]["role"] == "assistant" for line in response.text.splitlines())


def test_completions(daemon, client):
    raw = client.generate(model="tidepool", prompt="Once upon a time", raw=True, options=OPTIONS)
    other = httpx.post(daemon.url + "/v1/completions", json={"prompt": "Once upon a time", "temperature": 0, "max_tokens": 24}).json()
    assert raw.response == other["choices"][0]["text"]
    templated = client.generate(model="tidepool", prompt=ASK[0]["content"], options=OPTIONS)
    assert templated.response == client.chat(model="tidepool", messages=ASK, options=OPTIONS).message.content
    system = client.generate(model="tidepool", prompt=ASK[0]["content"], system="Be kind.", options=OPTIONS)
    assert system.prompt_eval_count > templated.prompt_eval_count
    assert "".join(p.response for p in client.generate(model="tidepool", prompt="Once upon a time", raw=True, options=OPTIONS, stream=True)) == raw.response


def test_schemas_and_json(client):
    assert list(json.loads(client.chat(model="tidepool", messages=ASK, format=SCHEMA, options=OPTIONS).message.content)) == ["age"]
    assert isinstance(json.loads(client.generate(model="tidepool", prompt="Owls.", format="json", options={**OPTIONS, "num_predict": 200, "temperature": 1, "seed": 4}).response), dict)


def test_calls_in_a_history(daemon, client):
    history = [*ASK, {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]},
               {"role": "tool", "tool_name": "get_weather", "content": "Sunny."}]
    assert client.chat(model="tidepool", messages=history, tools=[TOOL], options=OPTIONS).message.content
    # The client has no way to ask for a call; the server has.
    body = {"model": "tidepool", "messages": ASK, "tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False, "options": {**OPTIONS, "num_predict": 100}}
    lines = [json.loads(line) for line in httpx.post(daemon.url + "/api/chat", json=body).text.splitlines()]
    calls = [c for line in lines for c in line["message"].get("tool_calls", [])]
    assert len(calls) == 1 and list(calls[0]["function"]["arguments"]) == ["city"] and lines[-1]["done_reason"] == "stop"
    assert httpx.post(daemon.url + "/api/chat", json={**body, "stream": False}).json()["message"]["tool_calls"][0]["function"]["arguments"] == calls[0]["function"]["arguments"]


def test_what_the_server_has(daemon, client):
    assert [m.model for m in client.list().models] == ["tidepool:latest"] and client.ps().models[0].context_length == 512
    shown = client.show("tidepool")
    assert shown.modelinfo["general.architecture"] == "llama" and shown.modelinfo["llama.context_length"] == 512 and "tools" in shown.capabilities
    assert httpx.get(daemon.url + "/api/version").json()["version"].count(".") == 2
    assert client.chat(model="tidepool", messages=[]).done_reason == "load" and client.generate(model="tidepool", keep_alive=0).done_reason == "unload"
    assert httpx.head(daemon.url + "/").status_code == 200


def test_vectors(daemon, client):
    got = np.array(client.embed(model="tidepool", input=["An owl.", "A bird."]).embeddings)
    other = httpx.post(daemon.url + "/v1/embeddings", json={"input": ["An owl.", "A bird."]}).json()["data"]
    assert np.abs(got - np.array([d["embedding"] for d in other])).max() < 1e-7
    assert np.allclose(client.embeddings(model="tidepool", prompt="An owl.").embedding, got[0])


def test_errors_are_texts(daemon, client):
    for call, words, status in ((lambda: client.chat(model="llama3", messages=ASK), "does not exist", 404), (lambda: client.chat(model="tidepool", messages=ASK, options={"mirostat": 2}), "mirostat", 400),
                                (lambda: client.generate(model="tidepool", prompt="a", suffix="b"), "suffix", 400),
                                (lambda: client.chat(model="tidepool", messages=[{"role": "user", "content": "x", "images": ["aGk="]}]), "images", 400), (lambda: client.pull("llama3"), "thermocline pull", 400)):
        with pytest.raises(ollama.ResponseError) as refused:
            call()
        assert words in refused.value.error and refused.value.status_code == status
    assert httpx.post(daemon.url + "/api/chat", json={"messages": 3}).json()["error"].startswith("messages")
    for body in ({"model": 5}, {"model": "tidepool", "verbos": True}, [1]):
        assert httpx.post(daemon.url + "/api/show", json=body).status_code == 400, body


def test_what_clients_always_send_is_taken_as_ollama_takes_it(daemon, client):
    """Open WebUI sends `truncate`, aider and LlamaIndex a context above ours, others options that nobody knows."""
    answer = httpx.post(daemon.url + "/api/chat", json={"model": "Tidepool:latest", "messages": ASK, "stream": False, "options": {
        "num_ctx": 131072, "temperature": 5, "num_predict": 3, "an_option": 1, "temperatur": 1, "logit_bias": {"5": 1}, "reasoning_effort": "low", "top_k": -1, "repeat_last_n": 64, "mirostat": 0}})
    assert answer.status_code == 200 and answer.headers["x-thermocline-ignored"] == "options.an_option, options.num_ctx, options.temperatur"
    long = "The owl sat in the tree. " * 200
    for body in ({"truncate": True}, {}):
        vectors = httpx.post(daemon.url + "/api/embed", json={"model": "tidepool", "input": [long, "short"], **body}).json()["embeddings"]
        assert len(vectors) == 2 and len(vectors[0]) == 256
    assert httpx.post(daemon.url + "/api/embed", json={"model": "tidepool", "input": long, "truncate": False}).status_code == 400
    for empty in ([], ""):
        assert httpx.post(daemon.url + "/api/embed", json={"model": "tidepool", "input": empty}).json()["embeddings"] == []
    assert client.pull("tidepool").status == "success"
    assert httpx.post(daemon.url + "/api/embed", json={"model": "tidepool", "input": "a", "dimensions": 1536}).status_code == 400
    assert client.show("tidepool").details.quantization_level == "Q8_0"
