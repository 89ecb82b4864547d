"""Text and tokens: /tokenize and /apply-template compared with a generation's prompt."""
import httpx
import pytest
from conftest import Daemon

MESSAGES = [{"role": "user", "content": "Weather in Rome?"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather", "parameters": {
    "type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}


@pytest.fixture(scope="module")
def served(smollm):
    with Daemon(f"model.path={smollm}") as d:
        yield d


def ask(daemon, path, **body):
    return httpx.post(daemon.url + path, json=body, timeout=60)


@pytest.mark.parametrize("path", ["/tokenize", "/v1/tokenize"])
@pytest.mark.parametrize("more", [{}, {"tools": [TOOL]}, {"add_generation_prompt": False}, {"add_special_tokens": False}])
def test_a_chat_is_tokenized_as_it_is_generated_from(served, path, more):
    """As vLLM's TokenizeChatRequest; a chat was refused for want of 'content'."""
    answer = ask(served, path, messages=MESSAGES, **more)
    assert answer.status_code == 200 and "x-thermocline-ignored" not in answer.headers, answer.text
    prompt = ask(served, "/apply-template", messages=MESSAGES, **more).json()["prompt"]
    assert answer.json()["tokens"] == ask(served, "/tokenize", content=prompt).json()["tokens"]
    assert answer.json()["count"] == ask(served, "/v1/tokens/count", messages=MESSAGES, **more).json()["prompt_tokens"] == len(answer.json()["tokens"])


def test_pieces_of_a_chat(served):
    answer = ask(served, "/tokenize", messages=MESSAGES, with_pieces=True, return_token_strs=True).json()
    text = ask(served, "/apply-template", messages=MESSAGES).json()["prompt"]
    assert "".join(token["piece"] for token in answer["tokens"]) == "".join(answer["token_strs"]) == text


@pytest.mark.parametrize("body, param", [
    ({"messages": MESSAGES, "prompt": "x"}, "prompt"), ({"messages": "x"}, "messages"), ({}, "content"),
    ({"messages": MESSAGES, "tools": [{}]}, "tools"), ({"messages": MESSAGES, "add_generation_prompt": 1}, "add_generation_prompt"),
    ({"messages": MESSAGES, "add_special_tokens": True}, "add_special_tokens")])
def test_what_no_chat_can_be_is_refused_by_name(served, body, param):
    answer = ask(served, "/tokenize", **body)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param, answer.text
