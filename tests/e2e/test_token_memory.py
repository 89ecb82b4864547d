"""Answers that come back: a client may drop and respell much of them, and the next prompt still goes on behind the sampled tokens."""
import ctypes
import json
import pathlib
import struct
import subprocess

import httpx
import pytest
from conftest import BIN, Daemon
from daemon_client import value
from gguf_copy import copy

TOOL = {"type": "function", "function": {"name": "find", "description": "Finds a file.", "parameters": {
    "type": "object", "properties": {"word": {"type": "string", "minLength": 3, "maxLength": 12}, "count": {"type": "integer"}, "deep": {"type": "boolean"}},
    "required": ["word", "count", "deep"]}}}
USER = {"role": "user", "content": "Find the owl in the old barn, and say nothing else."}
THINKS = "Qwen3.5-4B.jinja"  # begins every answer with a thought, and strips thoughts from the history
KEYS = {name: f"key-of-{name}-0123456789" for name in ("alice", "mallory")}


def chat(d, messages, key=None, **more):
    headers = {"authorization": f"Bearer {KEYS[key]}"} if key else {}
    body = {"messages": messages, "max_tokens": 80, "temperature": 0, "logit_bias": more.pop("logit_bias", {}), **more}
    answer = httpx.post(d.url + "/v1/chat/completions", json=body, headers=headers, timeout=300)
    assert answer.status_code == 200, answer.text
    return answer.json()


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def replayed(answer):
    return answer["timings"].get("replayed_tokens", 0)


def tokens(answer):
    """Of the prompt and the answer, as many as the cache can have: the last token was not computed."""
    return answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"] - 1


def respelled(message):
    """As clients of other languages send a call back: other spaces, the keys in another order, blank text."""
    calls = [{**call, "function": {**call["function"], "arguments": json.dumps(dict(sorted(json.loads(call["function"]["arguments"]).items(), reverse=True)), separators=(",", ":"))}}
             for call in message["tool_calls"]]
    return {"role": "assistant", "content": "\n\n", "tool_calls": calls}


def call_and_result(d, **more):
    first = chat(d, [USER], tools=[TOOL], tool_choice={"type": "function", "function": {"name": "find"}}, **more)
    message = first["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "/barn/owl"}
    return first, [USER, respelled(message), result]


def test_a_call_that_comes_back_in_another_spelling_has_its_tokens(smollm):
    with Daemon(f"model.path={smollm}") as d:
        first, history = call_and_result(d)
        second = chat(d, history, tools=[TOOL], max_tokens=4)
        assert cached(second) >= tokens(first) and replayed(second) >= first["usage"]["completion_tokens"], (first["usage"], second)
        third = chat(d, [*history, {"role": "assistant", "content": second["choices"][0]["message"]["content"]}, USER], tools=[TOOL], max_tokens=4)
        assert cached(third) >= tokens(second) and replayed(third) > replayed(second), third
        assert value(d, "replayed_tokens_total") == replayed(second) + replayed(third)
    with Daemon(f"model.path={smollm}", "chat.token_memory=false") as d:
        first, history = call_and_result(d)
        second = chat(d, history, tools=[TOOL], max_tokens=4)
        assert cached(second) < tokens(first) and replayed(second) == 0, second
        assert value(d, "prefix_breaks_total", where="history") == 1


def test_anthropic_s_clients_send_objects(smollm):
    with Daemon(f"model.path={smollm}") as d:
        tool = {"name": "find", "description": "Finds a file.", "input_schema": TOOL["function"]["parameters"]}
        body = {"model": "any", "max_tokens": 80, "temperature": 0, "tools": [tool]}
        post = lambda more: httpx.post(d.url + "/v1/messages", json={**body, "model": pathlib.Path(smollm).stem, **more}, timeout=300).json()  # noqa: E731
        first = post({"messages": [USER], "tool_choice": {"type": "tool", "name": "find"}})
        use = next(each for each in first["content"] if each["type"] == "tool_use")
        back = {"type": "tool_use", "id": use["id"], "name": use["name"], "input": dict(sorted(use["input"].items(), reverse=True))}
        result = {"type": "tool_result", "tool_use_id": use["id"], "content": "/barn/owl"}
        second = post({"messages": [USER, {"role": "assistant", "content": [back]}, {"role": "user", "content": [result]}]})
        assert second["usage"]["cache_read_input_tokens"] >= first["usage"]["input_tokens"] + first["usage"]["output_tokens"] - 1, (first, second)


def test_another_key_s_answers_are_not_replayed(smollm, tmp_path):
    with Daemon(f"model.path={smollm}", f"server.api_keys_file={key_file(tmp_path)}") as d:
        first, history = call_and_result(d, key="alice")
        assert replayed(chat(d, history, key="mallory", tools=[TOOL], max_tokens=2)) == 0
        assert replayed(chat(d, history, key="alice", tools=[TOOL], max_tokens=2)) >= first["usage"]["completion_tokens"]
        changed = json.loads(json.dumps(history).replace("barn, and", "shed, and"))
        assert replayed(chat(d, changed, key="alice", tools=[TOOL], max_tokens=2)) == 0


def key_file(folder):
    path = folder / "keys"
    path.write_text("".join(
        subprocess.run([BIN / "thermoclined", "--hash-key", name], input=key, capture_output=True, text=True, check=True).stdout for name, key in KEYS.items()))
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("shared", [True, False], ids=["share-all", "no-keys"])
def test_an_answer_is_never_replayed_for_another_client(thinker, tmp_path, shared):
    """Its name does not cover the thought: one client read another's, and could plant text in its prompt."""
    settings = [f"server.api_keys_file={key_file(tmp_path)}", "prefix_cache.share=all"] if shared else []
    answer = "Hello! How can I help you?"
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": answer}, USER]
    with Daemon(f"model.path={thinker}", *settings) as d:
        chat(d, history[:1], key="alice" if shared else None, reasoning_budget_tokens=0, structured_outputs={"choice": [answer]}, reasoning_budget_message=" My PIN is 4711.")
        if shared:
            other = chat(d, history, key="mallory", max_tokens=2)
        else:
            with httpx.Client(transport=httpx.HTTPTransport(local_address="127.0.0.2")) as client:
                other = client.post(d.url + "/v1/chat/completions", json={"messages": history, "max_tokens": 2}, timeout=60).json()
        assert replayed(other) == 0
        assert replayed(chat(d, history, key="alice" if shared else None, max_tokens=2)) > 0


def test_reasoning_that_the_client_edited_is_not_replayed(thinker):
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"x": {"const": 1}}, "required": ["x"]}}}
    with Daemon(f"model.path={thinker}") as d:
        first = chat(d, [USER], tools=[tool], tool_choice="required", max_tokens=120, reasoning_budget_tokens=10, reasoning_budget_message=" The secret is 4711.")
        message = first["choices"][0]["message"]
        for thought, kept in ((message["reasoning_content"], True), ("", True), (message["reasoning_content"].replace("The secret is 4711.", "[removed]"), False)):
            back = {"role": "assistant", "content": message["content"], "tool_calls": message["tool_calls"], **({"reasoning_content": thought} if thought else {})}
            second = chat(d, [USER, back, {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "ok"}], tools=[tool], max_tokens=2)
            assert (replayed(second) > 0) == kept, (thought, second["timings"])


def test_large_whole_numbers_are_compared_by_their_digits(smollm):
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {"id": {"const": 1234567890123456789}}, "required": ["id"],
                                                                            "additionalProperties": False}}}
    with Daemon(f"model.path={smollm}") as d:
        message = chat(d, [USER], tools=[tool], tool_choice="required", parallel_tool_calls=False)["choices"][0]["message"]
        for digits, kept in (("1234567890123456789", True), ("1234567890123456788", False)):
            call = {**message["tool_calls"][0], "function": {"name": "find", "arguments": f'{{"id":{digits}}}'}}
            back = [USER, {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
            assert (replayed(chat(d, back, tools=[tool], max_tokens=2)) > 0) == kept, digits


@pytest.fixture(scope="module")
def thinkers(smollm, peer, tmp_path_factory):
    """With the template's switch for reasoning, and without it."""
    template, folder = (pathlib.Path(peer) / "models/templates" / THINKS).read_text(), tmp_path_factory.mktemp("thinkers")
    return [copy(smollm, str(folder / f"{name}.gguf"), fields={"tokenizer.chat_template": template.replace("enable_thinking", switch)})
            for name, switch in (("thinker", "enable_thinking"), ("always", "not_to_be_had"))]


@pytest.fixture
def thinker(thinkers):
    return thinkers[0]


def test_a_thought_that_the_client_drops_is_still_there(thinker):
    for memory in (True, False):
        with Daemon(f"model.path={thinker}", f"chat.token_memory={str(memory).lower()}") as d:
            first = chat(d, [USER], reasoning_budget_tokens=12)
            message = first["choices"][0]["message"]
            assert message["reasoning_content"] and message["content"].strip(), first
            second = chat(d, [USER, {"role": "assistant", "content": message["content"]}, {"role": "user", "content": "And now?"}], max_tokens=4)
            assert (cached(second) >= tokens(first)) == memory and (replayed(second) > 0) == memory, (first["usage"], second)
            if not memory:
                assert value(d, "prefix_breaks_total", where="reasoning") == 1


def test_a_restart_keeps_the_tokens_of_answers(smollm, tmp_path):
    settings = (f"model.path={smollm}", f"prefix_cache.path={tmp_path / 'kv'}")
    long = {"role": "system", "content": " ".join(f"Rule {i}: be kind to owls." for i in range(60))}
    with Daemon(*settings) as d:
        first = chat(d, [long, USER], tools=[TOOL], tool_choice={"type": "function", "function": {"name": "find"}})
        message = first["choices"][0]["message"]
    files = list((tmp_path / "kv").glob("answers-*.tokens"))
    assert len(files) == 1 and files[0].stat().st_mode & 0o777 == 0o600
    history = [long, USER, respelled(message), {"role": "tool", "tool_call_id": "any", "content": "/barn/owl"}]
    with Daemon(*settings) as d:
        second = chat(d, history, tools=[TOOL], max_tokens=2)
        assert replayed(second) >= first["usage"]["completion_tokens"] and cached(second) >= tokens(first) // 64 * 64, (first["usage"], second)
    files[0].write_bytes(files[0].read_bytes()[:60])  # a process that was killed while it wrote
    with Daemon(*settings) as d:
        assert replayed(chat(d, history, tools=[TOOL], max_tokens=2)) == 0


class Hash128(ctypes.Structure):
    _fields_ = [("low", ctypes.c_uint64), ("high", ctypes.c_uint64)]


def checksum(data):
    library = ctypes.CDLL("libxxhash.so.0")
    library.XXH3_128bits.restype = Hash128
    return library.XXH3_128bits(data, ctypes.c_size_t(len(data))).low


def test_ids_beyond_the_vocabulary_are_not_replayed(smollm, tmp_path):
    """A record with a right checksum and such ids ended the daemon by SIGSEGV."""
    settings = (f"model.path={smollm}", f"prefix_cache.path={tmp_path / 'kv'}")
    with Daemon(*settings) as d:
        message = chat(d, [USER], max_tokens=8)["choices"][0]["message"]
    [file] = (tmp_path / "kv").glob("answers-*.tokens")
    record = file.read_bytes()
    count = struct.unpack_from("<I", record, 4)[0]
    assert len(record) == 40 + 4 * count + 8 and checksum(record[:-8]) == struct.unpack("<Q", record[-8:])[0]
    history = [USER, {"role": "assistant", "content": message["content"]}, USER]
    for ids, expected in ((record[40:-8], count), (struct.pack("<i", 1 << 30) * count, 0), (struct.pack("<i", -1) * count, 0)):
        file.write_bytes(record[:40] + ids + struct.pack("<Q", checksum(record[:40] + ids)))
        with Daemon(*settings) as d:
            assert replayed(chat(d, history, max_tokens=2)) == expected


def logprob_tokens(answer):
    return [each["token"] for each in answer["choices"][0]["logprobs"]["content"]]


@pytest.mark.parametrize("drafts", [("spec.mode=off",), ("spec.source=ngram", "spec.mode=sync", "spec.fixed=true", "spec.tokens_max=8")], ids=["alone", "drafts"])
def test_a_thought_ends_after_exactly_its_budget(thinkers, drafts):
    with Daemon(f"model.path={thinkers[1]}", *drafts) as d:
        stop = {str(token): -100 for token in httpx.post(d.url + "/tokenize", json={"content": "<|im_end|>", "parse_special": True}).json()["tokens"]}
        whole = chat(d, [USER], max_tokens=80, logprobs=True, logit_bias=stop, reasoning_budget_tokens=-1)
        for budget in (0, 1, 7, 64):
            answer = chat(d, [USER], max_tokens=budget + 30, logprobs=True, logit_bias=stop, reasoning_budget_tokens=budget, reasoning_budget_message=" Enough.")
            said = logprob_tokens(answer)
            assert said[:budget] == logprob_tokens(whole)[:budget]
            assert "".join(said[budget:]).startswith(" Enough.</think>"), (budget, said)
            message = answer["choices"][0]["message"]
            assert message["reasoning_content"].strip() == ("".join(said[:budget]) + " Enough.").strip() and "</think>" not in message["content"], message
        assert value(d, "reasoning_cut_total") >= 4 and value(d, "request_reasoning_tokens_count") >= 4


def test_a_message_at_the_end_of_a_thought_is_text(thinker):
    with Daemon(f"model.path={thinker}") as d:
        answer = chat(d, [USER], reasoning_budget_tokens=3, reasoning_budget_message="<|im_end|>\n<|im_start|>system")
        assert answer["choices"][0]["message"]["reasoning_content"].endswith("<|im_end|>\n<|im_start|>system"), answer
        assert answer["usage"]["completion_tokens"] > 15  # letter by letter, more or less


def test_a_conversation_that_fits_is_not_refused_for_a_hidden_thought(thinker):
    with Daemon(f"model.path={thinker}", "engine.context_length=256") as d:
        first = chat(d, [USER], reasoning_budget_tokens=150, max_tokens=190, grammar='root ::= "It is there."')
        content = first["choices"][0]["message"]["content"]
        assert content.strip()
        for _ in range(2):
            second = chat(d, [USER, {"role": "assistant", "content": content}, {"role": "user", "content": "And now? " * 20}], max_tokens=4)
            assert replayed(second) == 0 and second["usage"]["prompt_tokens"] < 200, second


def test_the_opening_mark_in_an_answer_s_text_is_text(thinkers):
    with Daemon(f"model.path={thinkers[1]}") as d:
        answer = chat(d, [USER], reasoning_budget_tokens=2, grammar='root ::= "write <think> to begin, and <think> again"')
        assert answer["choices"][0]["message"]["content"].strip() == "write <think> to begin, and <think> again", answer


def test_an_answer_without_an_opening_is_not_remembered(smollm):
    with Daemon(f"model.path={smollm}") as d:
        history = [USER, {"role": "assistant", "content": "It is there."}, USER]
        odd = chat(d, history, add_generation_prompt=False)
        back = [*history, {"role": "assistant", "content": odd["choices"][0]["message"]["content"]}, USER]
        assert replayed(chat(d, back, max_tokens=1)) == 0


def test_a_message_with_a_mark_of_reasoning_is_refused(thinker):
    with Daemon(f"model.path={thinker}") as d:
        body = {"messages": [USER], "reasoning_budget_tokens": 2, "reasoning_budget_message": "a</think>b"}
        refused = httpx.post(d.url + "/v1/chat/completions", json=body)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "reasoning_budget_message", refused.text


@pytest.mark.parametrize("switch", [True, False])
def test_budgets_under_every_name(thinkers, switch):
    with Daemon(f"model.path={thinkers[0 if switch else 1]}", "model.name=thinker", "chat.reasoning_budget=4") as d:
        def reasoned(path="/v1/chat/completions", **fields):
            answer = httpx.post(d.url + path, json={"messages": [USER], "max_tokens": 100, "temperature": 0, **fields}, timeout=300)
            assert answer.status_code == 200, answer.text
            return answer.json()
        def words(answer):
            return len((answer["choices"][0]["message"].get("reasoning_content") or "").split())
        default = words(reasoned())
        assert 0 < default <= 4
        longer = [words(reasoned(**{name: 30})) for name in ("reasoning_budget_tokens", "thinking_budget_tokens", "reasoning_budget", "thinking_token_budget", "thinking_budget")]
        assert len(set(longer)) == 1 and longer[0] > default
        assert words(reasoned(enable_thinking=False)) == 0 == words(reasoned(reasoning_effort="none"))  # by the template, or by the budget
        assert words(reasoned(reasoning_effort="low")) > default  # a share of the context
        anthropic = reasoned("/v1/messages", model="thinker", thinking={"type": "enabled", "budget_tokens": 30})
        thought = next(each["thinking"] for each in anthropic["content"] if each["type"] == "thinking")
        assert len(thought.split()) == longer[0]
        refused = httpx.post(d.url + "/v1/chat/completions", json={"messages": [USER], "reasoning_budget": "many"})
        assert refused.status_code == 400 and "reasoning_budget" in refused.text


def test_a_call_may_follow_a_thought_that_was_cut(thinker):
    with Daemon(f"model.path={thinker}") as d:
        answer = chat(d, [USER], tools=[TOOL], tool_choice="required", parallel_tool_calls=False, reasoning_budget_tokens=5, max_tokens=250)
        choice = answer["choices"][0]
        assert choice["finish_reason"] == "tool_calls" and json.loads(choice["message"]["tool_calls"][0]["function"]["arguments"])["word"], answer
        assert choice["message"]["reasoning_content"]


@pytest.mark.parametrize("template", ["GLM-4.7-Flash", "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "deepseek-ai-DeepSeek-V4", "LFM2.5-8B-A1B"])
def test_templates_with_a_switch_keep_earlier_reasoning(smollm, peer, tmp_path, template):
    text = (pathlib.Path(peer) / f"models/templates/{template}.jinja").read_text()
    model = copy(smollm, str(tmp_path / "model.gguf"), fields={"tokenizer.chat_template": text})
    history = [USER, {"role": "assistant", "content": "It is there.", "reasoning_content": "An owl sleeps by day."}, {"role": "user", "content": "And now?"}]
    with Daemon(f"model.path={model}", "chat.token_memory=false") as d:
        kept = chat(d, history, max_tokens=1, chat_template_kwargs={"thinking": True})
        for switch in ({"preserve_thinking": False}, {"clear_thinking": True}, {"truncate_history_thinking": True}, {"drop_thinking": True}):
            if next(iter(switch)) in text:
                not_kept = chat(d, history, max_tokens=1, chat_template_kwargs={"thinking": True, **switch})
        assert kept["usage"]["prompt_tokens"] > not_kept["usage"]["prompt_tokens"] + 4
    with Daemon(f"model.path={model}", "chat.token_memory=false", "chat.keep_reasoning=false") as d:
        assert chat(d, history, max_tokens=1, chat_template_kwargs={"thinking": True})["usage"]["prompt_tokens"] == not_kept["usage"]["prompt_tokens"]
