"""Requests of client programs that were once answered wrongly: the smallest request of each kind."""
import json

import httpx
import pytest
from conftest import Daemon

ANTHROPIC = {"anthropic-version": "2023-06-01"}
MESSAGES = [{"role": "user", "content": "Hi"}]
ORIGINS = ["null", "file://", "http://a.example"]


@pytest.fixture(scope="module")
def served():
    with Daemon('server.allowed_origins=["null","file://","http://a.example"]') as d:
        yield d


def post(d, path, **body):
    return httpx.post(d.url + path, json={"model": "tidepool", **body}, headers=ANTHROPIC, timeout=60)


def test_claude_code_s_context_management_is_no_error(served):
    answer = post(served, "/v1/messages", messages=MESSAGES, max_tokens=2, context_management={"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]})
    assert answer.status_code == 200 and answer.json()["content"], answer.text


def test_codex_s_client_metadata_is_no_error(served):
    answer = post(served, "/v1/responses", input="Hi", max_output_tokens=2, client_metadata={"x-codex-installation-id": "a"})
    assert answer.status_code == 200 and answer.json()["output"], answer.text


def test_a_thread_is_refused_as_anthropic_s_tool_runner_expects_it(served):
    answer = post(served, "/v1/messages", messages=MESSAGES, max_tokens=2, thread={"type": "create"})
    assert answer.status_code == 400
    assert answer.json()["error"]["details"] == {"error_code": "thread_unsupported_request", "unsupported": ["thread"]}


def test_a_reference_to_a_tool_is_a_tool_s_result(served):
    tool = {"name": "read_file", "description": "Reads a file.", "input_schema": {"type": "object", "properties": {}}, "defer_loading": True}
    used = {"type": "tool_use", "id": "toolu_1", "name": "search", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [{"type": "tool_reference", "tool_name": "read_file"}]}
    answer = post(served, "/v1/messages", messages=[*MESSAGES, {"role": "assistant", "content": [used]}, {"role": "user", "content": [result]}], tools=[tool], max_tokens=2)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("path", ["/v2/rerank", "/v1/rerank", "/rerank", "/reranking"])
def test_cohere_s_requests_are_ranked(served, path):
    documents = ["a car", "an owl", "a tree"]
    answer = post(served, path, query="an owl", documents=documents, top_n=2, max_tokens_per_doc=100).json()
    scores = [each["relevance_score"] for each in answer["results"]]
    assert len(scores) == 2 and scores == sorted(scores, reverse=True) and answer["results"][0]["index"] == 1, answer
    fields = post(served, path, query="an owl", documents=[{"text": "x", "body": each} for each in documents], rank_fields=["body"], max_chunks_per_doc=4).json()
    assert [each["index"] for each in fields["results"]][0] == 1 and len(fields["results"]) == 3, fields


def test_lm_eval_reads_the_tokenizer_as_of_vllm(served):
    info = httpx.get(served.url + "/tokenizer_info").json()
    assert info["eos_token"] == "</s>" and info["bos_token"] == "<s>" and "{%" in info["chat_template"], info
    bare, special = (post(served, "/tokenize", prompt="owl", add_special_tokens=each).json() for each in (False, True))
    assert special["tokens"] == [1, *bare["tokens"]] and bare["count"] == len(bare["tokens"]) and bare["max_model_len"] == 512


@pytest.mark.parametrize("origin", ORIGINS)
def test_browsers_may_send_what_openai_s_helpers_add(served, origin):
    answer = httpx.options(served.url + "/v1/chat/completions", headers={"Origin": origin, "Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-stainless-helper"})
    assert answer.status_code == 204 and answer.headers["access-control-allow-origin"] == origin
    assert "x-stainless-helper" in [each.strip().lower() for each in answer.headers["access-control-allow-headers"].split(",")]


def test_an_id_of_embeddings_is_ignored_visibly(served):
    answer = post(served, "/v1/embeddings", input="a", id="x")
    assert answer.status_code == 200 and answer.headers["x-thermocline-ignored"] == "id"


def test_responses_that_are_not_kept_are_not_found(served):
    assert httpx.delete(served.url + "/v1/responses/resp_1").status_code == 404
    assert httpx.post(served.url + "/v1/responses/resp_1/cancel").status_code == 404


def test_a_model_that_is_no_name_is_refused_by_show(served):
    answer = httpx.post(served.url + "/api/show", json={"model": 5})
    assert answer.status_code == 400 and "must be a string" in answer.text


def test_models_have_anthropic_s_shape_for_its_clients(served):
    ours = httpx.get(served.url + "/v1/models", headers=ANTHROPIC).json()
    assert ours["data"][0]["type"] == "model" and ours["data"][0]["max_input_tokens"] == 512 and ours["first_id"] == "tidepool"
    assert httpx.get(served.url + "/v1/models").json()["data"][0]["object"] == "model"


def test_claude_code_s_billing_line_changes_no_prefix(served):
    """Its `cch` is new in every request: the whole prompt was read again."""
    def usage(cch):
        system = [{"type": "text", "text": f"x-anthropic-billing-header: cc_version=2.1; cch={cch};"}, {"type": "text", "text": "You write about owls. " * 12}]
        return post(served, "/v1/messages", messages=MESSAGES, system=system, max_tokens=2).json()["usage"]
    first, second = usage("1a2b3"), usage("4c5d6")
    assert second["cache_read_input_tokens"] > 64 and second["input_tokens"] < 8, (first, second)


@pytest.mark.parametrize("path,bound,begun,repeated", [
    ("/v1/responses", "max_output_tokens", "response.created", "response.in_progress"), ("/v1/messages", "max_tokens", "message_start", "ping")])
def test_events_come_while_the_prompt_is_read(smollm, path, bound, begun, repeated):
    """Codex gave up: its timer counts events, and there were comments alone until the prompt had been read."""
    text = "".join(f"Owl {n} sat in tree {n * 7}. " for n in range(330))
    body = {"model": "s", "stream": True, bound: 2, **({"input": text} if path == "/v1/responses" else {"messages": [{"role": "user", "content": text}]})}
    with Daemon(f"model.path={smollm}", "model.name=s", "server.sse_keepalive_s=1", "engine.threads=1", "engine.prefill_chunk=4", "engine.cpu_isa=reference") as d:
        with httpx.stream("POST", d.url + path, json=body, headers=ANTHROPIC, timeout=60) as answer:
            datas = (json.loads(line.removeprefix("data: ")) for line in answer.iter_lines() if line.startswith("data: "))
            assert next(datas)["type"] == begun
            seen, told = [], []
            while len(seen) < 3 or len(told) < 2:
                seen.append(next(datas))
                assert seen[-1]["type"] == repeated, seen[-1]  # no token yet
                told = sorted({event["prompt_progress"]["processed"] for event in seen if "prompt_progress" in event})
    assert 0 < told[0] < told[1] < seen[-1]["prompt_progress"]["total"]


@pytest.mark.parametrize("lenient", [True, False])
def test_lenient_calls_can_be_turned_off(smollm, lenient):
    written = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
    history = [m for _ in range(4) for m in ({"role": "user", "content": "Go."}, {"role": "assistant", "content": written})] + [{"role": "user", "content": "Go."}]
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    with Daemon(f"model.path={smollm}", "model.name=tidepool", f"chat.lenient_calls={str(lenient).lower()}") as d:
        message = post(d, "/v1/chat/completions", messages=history, tools=[tool], max_tokens=60, temperature=0).json()["choices"][0]["message"]
    assert bool(message.get("tool_calls")) == lenient and (written in (message["content"] or "")) != lenient, message


ROME = '{"name": "get_weather", "arguments": {"city": "Rome"}}'
WRITTEN = {"json": ROME, "fence": f"```json\n{ROME}\n```", "python": '[get_weather(city="Rome")]', "foreign": f"[TOOL_CALLS]{ROME}"}


@pytest.fixture(scope="module")
def caller(smollm):
    # without drafts: the tokens of one step come in one event
    with Daemon(f"model.path={smollm}", "model.name=tidepool", "spec.tokens_max=0") as d:
        yield d


@pytest.mark.parametrize("form", WRITTEN)
def test_calls_in_other_forms_stream_as_they_are_whole(caller, form):
    history = [m for _ in range(4) for m in ({"role": "user", "content": "Go."}, {"role": "assistant", "content": WRITTEN[form]})] + [{"role": "user", "content": "Go."}]
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}}}
    body = {"model": "tidepool", "messages": history, "tools": [tool], "max_tokens": 60, "temperature": 0}
    choice = post(caller, "/v1/chat/completions", **body).json()["choices"][0]
    [call] = choice["message"]["tool_calls"]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
    assert json.loads(call["function"]["arguments"]) == {"city": "Rome"}
    deltas = []
    with httpx.stream("POST", caller.url + "/v1/chat/completions", json={**body, "stream": True}, timeout=60) as answer:
        for line in answer.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line[6:])["choices"][0]["delta"]
                assert not delta.get("content"), delta
                deltas += delta.get("tool_calls", [])
    assert deltas[0]["id"] and deltas[0]["function"]["name"] == "get_weather"
    assert "".join(each["function"].get("arguments", "") for each in deltas) == call["function"]["arguments"]
    assert form not in ("json", "foreign") or len(deltas) > 3, deltas  # the arguments in fragments
    assert f'thermocline_tool_calls_total{{form="{form}"}} 2' in httpx.get(caller.url + "/metrics").text
