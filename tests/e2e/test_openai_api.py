"""OpenAI's API as real clients use it: completions, choices, log probabilities, streams, and the edge cases that broke clients of other servers."""
import json
import math
import shutil
import signal
import socket
import subprocess
import time

import httpx
import openai
import pytest
from conftest import TIDEPOOL_FOLDER, Daemon, wait_until

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]


@pytest.fixture(scope="module")
def client(daemon):
    return openai.OpenAI(base_url=daemon.url + "/v1", api_key="none", max_retries=0)


def post(daemon, path, body, **kwargs):
    content = body if isinstance(body, (bytes, str)) else json.dumps(body)
    return httpx.post(daemon.url + path, content=content, timeout=60, **kwargs)


def chat(daemon, **fields):
    return post(daemon, "/v1/chat/completions", {"messages": STORY, "temperature": 0, "max_tokens": 8, **fields})


def complete(daemon, **fields):
    return post(daemon, "/v1/completions", {"prompt": "Once upon", "temperature": 0, "max_tokens": 8, **fields})


def events(response):
    """The JSON of each event; the last must be [DONE]."""
    lines = [e for e in response.text.split("\n\n") if e and not e.startswith(":")]
    assert all(e.startswith("data: ") and "\n" not in e for e in lines) and lines[-1] == "data: [DONE]"
    return [json.loads(e[6:]) for e in lines[:-1]]


def test_every_choice_streams_its_role_text_and_one_finish(daemon):
    whole = chat(daemon, n=3, seed=7, temperature=1).json()
    assert [c["index"] for c in whole["choices"]] == [0, 1, 2]
    chunks = events(chat(daemon, n=3, seed=7, temperature=1, stream=True, stream_options={"include_usage": True}))
    assert len({(c["id"], c["created"], c["model"]) for c in chunks}) == 1 and isinstance(chunks[0]["created"], int)
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == whole["usage"]["completion_tokens"]
    assert all(len(c["choices"]) == 1 and c["usage"] is None for c in chunks[:-1])
    for index in range(3):
        mine = [c["choices"][0] for c in chunks[:-1] if c["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert [c["finish_reason"] for c in mine[:-1]] == [None] * (len(mine) - 1) and mine[-1]["finish_reason"] == whole["choices"][index]["finish_reason"]
        assert "".join(c["delta"].get("content", "") for c in mine) == whole["choices"][index]["message"]["content"]


def test_choices_differ_and_their_prompt_counts_once(daemon):
    one = chat(daemon, seed=3, temperature=1).json()
    many = chat(daemon, seed=3, temperature=1, n=8).json()
    texts = [c["message"]["content"] for c in many["choices"]]
    assert texts[0] == one["choices"][0]["message"]["content"] and len(set(texts)) > 1
    assert many["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]
    assert many["usage"]["total_tokens"] == many["usage"]["prompt_tokens"] + many["usage"]["completion_tokens"]


def test_logprobs_of_a_chat(client):
    answer = client.chat.completions.create(model="tidepool", messages=STORY, temperature=0, max_tokens=6, logprobs=True, top_logprobs=20)
    content = answer.choices[0].logprobs.content
    assert len(content) == answer.usage.completion_tokens == 6
    assert "".join(t.token for t in content) == answer.choices[0].message.content
    for token in content:
        assert bytes(token.bytes).decode() == token.token and len(token.top_logprobs) == 20
        assert token.logprob == max(t.logprob for t in token.top_logprobs)  # greedy
        assert sum(math.exp(t.logprob) for t in token.top_logprobs) <= 1 + 1e-4
    assert all(t.top_logprobs == [] for t in client.chat.completions.create(model="tidepool", messages=STORY, max_tokens=2, logprobs=True).choices[0].logprobs.content)
    streamed = client.chat.completions.create(model="tidepool", messages=STORY, temperature=0, max_tokens=6, logprobs=True, top_logprobs=2, stream=True)
    parts = [t.logprob for c in streamed for choice in c.choices if choice.logprobs for t in choice.logprobs.content]
    assert parts == pytest.approx([t.logprob for t in content], abs=1e-4)


def test_completions_by_the_openai_client(client):
    answer = client.completions.create(model="tidepool", prompt="Once upon", temperature=0, max_tokens=6)
    assert answer.object == "text_completion" and answer.id.startswith("cmpl-") and answer.choices[0].text.startswith(" a time")
    assert answer.choices[0].finish_reason == "length"
    chunks = list(client.completions.create(model="tidepool", prompt="Once upon", temperature=0, max_tokens=6, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks[:-1]) == answer.choices[0].text and chunks[-1].usage.total_tokens == answer.usage.total_tokens
    assert {c.object for c in chunks} == {"text_completion"}


def test_prompts_are_texts_tokens_or_lists(daemon):
    ids = post(daemon, "/tokenize", {"content": "Once upon", "add_special": True}).json()["tokens"]
    text = complete(daemon).json()["choices"][0]["text"]
    assert complete(daemon, prompt=ids).json()["choices"][0]["text"] == text
    answer = complete(daemon, prompt=["Once upon", "The owl", "Once upon"], n=2, max_tokens=4).json()
    assert [c["index"] for c in answer["choices"]] == list(range(6))
    texts = [c["text"] for c in answer["choices"]]
    assert texts[0] == texts[1] == texts[4] and texts[2] == texts[3] != texts[0]
    alone = [complete(daemon, prompt=p).json()["usage"]["prompt_tokens"] for p in ("Once upon", "The owl")]
    assert answer["usage"]["prompt_tokens"] == 2 * alone[0] + alone[1]
    assert complete(daemon, prompt=[ids, ids]).json()["choices"][1]["text"] == text
    assert complete(daemon, prompt="").status_code == 200


def test_echo_scores_the_prompt(daemon):
    answer = complete(daemon, echo=True, logprobs=2, max_tokens=3).json()["choices"][0]
    lp = answer["logprobs"]
    assert answer["text"].startswith("Once upon a time") and lp["token_logprobs"][0] is None and lp["top_logprobs"][0] is None
    assert len({len(lp[k]) for k in lp}) == 1 and all(v <= 0 for v in lp["token_logprobs"][1:])
    shown = [i for i, t in enumerate(lp["tokens"]) if t != "<s>"]
    for i in shown:
        assert answer["text"][lp["text_offset"][i]:].startswith(lp["tokens"][i])
        assert lp["top_logprobs"][i] is None or lp["top_logprobs"][i][lp["tokens"][i]] == lp["token_logprobs"][i]
    only = complete(daemon, echo=True, logprobs=2, max_tokens=0).json()
    assert only["choices"][0]["text"] == "Once upon" and only["usage"]["completion_tokens"] == 0
    n = len(only["choices"][0]["logprobs"]["tokens"])
    assert only["choices"][0]["logprobs"]["token_logprobs"][1:] == pytest.approx(lp["token_logprobs"][1:n], abs=1e-4)
    streamed = events(complete(daemon, echo=True, logprobs=2, max_tokens=3, stream=True))
    assert "".join(c["choices"][0]["text"] for c in streamed) == answer["text"]
    parts = [c["choices"][0]["logprobs"] for c in streamed if c["choices"][0]["logprobs"]]
    assert [t for p in parts for t in p["tokens"]] == lp["tokens"] and [o for p in parts for o in p["text_offset"]] == lp["text_offset"]
    # What the prompt's tokens get is what they would get as answers.
    assert complete(daemon, prompt="Once", max_tokens=1, logprobs=0).json()["choices"][0]["logprobs"]["token_logprobs"][0] == pytest.approx(lp["token_logprobs"][2], abs=1e-3)


def test_scores_of_a_prompt_may_be_there_before_the_first_token(smollm):
    """A large vocabulary, sorted for the first token, leaves time for a report of prefill's end."""
    with Daemon(f"model.path={smollm}", "engine.context_length=256") as d:
        for seed in range(10):
            asked = dict(prompt="Once upon a time there was an owl", echo=True, logprobs=1, max_tokens=1, temperature=1, typical_p=0.5, seed=seed)
            streamed = events(httpx.post(d.url + "/v1/completions", json={**asked, "stream": True, "return_progress": True}))
            parts = [c["choices"][0]["logprobs"] for c in streamed if c["choices"] and c["choices"][0]["logprobs"]]
            assert sum(len(part["tokens"]) for part in parts) == 9


def test_streams_carry_no_id_and_no_retry(daemon):
    for response in (chat(daemon, stream=True), complete(daemon, stream=True, n=2)):
        assert response.headers["content-type"] == "text/event-stream" and response.headers["cache-control"] == "no-cache" and response.headers["x-accel-buffering"] == "no"
        assert "content-encoding" not in response.headers and response.headers["x-request-id"]
        assert all(line == "" or line.startswith("data: ") for line in response.text.split("\n"))
        assert all("error" not in e for e in events(response))


def test_timings_and_figures(daemon):
    whole = chat(daemon, n=2).json()
    assert whole["timings"]["predicted_n"] == whole["usage"]["completion_tokens"] == 16 and whole["thermocline"]["queue_ms"] >= 0 and "preemptions" in whole["thermocline"]
    last = events(chat(daemon, n=2, stream=True))
    assert [("timings" in c, "thermocline" in c) for c in last] == [(False, False)] * (len(last) - 1) + [(True, True)]


def test_progress_only_when_asked_for(smollm):
    long = [{"role": "user", "content": "The owl sat in the tree. " * 60}]
    with Daemon(f"model.path={smollm}", "model.name=s", "engine.prefill_chunk=64") as d:
        chunks = events(chat(d, messages=long, stream=True, return_progress=True, max_tokens=2))
        progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
        assert len(progress) >= 3 and all(c["choices"] == [] for c in chunks if "prompt_progress" in c)
        assert [p["processed"] for p in progress] == sorted(p["processed"] for p in progress) and progress[-1]["processed"] == progress[-1]["total"]
        assert all({"total", "cache", "processed", "time_ms"} <= p.keys() for p in progress)
        assert all(c["choices"] for c in events(chat(d, messages=long, stream=True, max_tokens=2)))


def test_a_silent_stream_is_kept_alive(smollm):
    """While one long answer runs to its end, the next waits."""
    with Daemon(f"model.path={smollm}", "model.name=s", "server.sse_keepalive_s=1", "engine.quantum_tokens=0") as d:
        ask = lambda **fields: httpx.stream("POST", d.url + "/v1/completions", json={"prompt": "x", "stream": True, **fields}, timeout=60)
        with ask(max_tokens=2000, ignore_eos=True) as first:
            said = first.iter_bytes()
            assert next(said).startswith(b"data: ")
            with ask(max_tokens=2) as second:
                assert next(second.iter_bytes()) == b": keep-alive\n\n"
        wait_until(lambda: httpx.get(d.url + "/v1/status").json()["running"] == 0)
        client = openai.OpenAI(base_url=d.url + "/v1", api_key="none", max_retries=0)
        assert list(client.completions.create(model="s", prompt="x", max_tokens=2, stream=True))


def test_a_deadline_is_504_before_and_an_error_event_after_the_first_token(smollm):
    with Daemon(f"model.path={smollm}", "model.name=s") as d:
        fields = {"max_tokens": 4000, "ignore_eos": True, "x_thermocline": {"timeout_s": 1.5}}
        response = chat(d, **fields)
        assert response.status_code == 504 and response.json()["error"]["code"] == "timeout"
        # The first token comes within the time also on a loaded machine.
        fields["x_thermocline"] = {"timeout_s": 6}
        text = chat(d, stream=True, **fields).text
        last = [e for e in text.split("\n\n") if e][-1]
        assert "[DONE]" not in text and json.loads(last[6:])["error"]["code"] == "timeout" and text.count('"error"') == 1
        client = openai.OpenAI(base_url=d.url + "/v1", api_key="none", max_retries=0)
        with pytest.raises(openai.APIError, match="did not end within"):
            list(client.chat.completions.create(model="s", messages=STORY, stream=True, max_tokens=4000, extra_body={"ignore_eos": True, "x_thermocline": {"timeout_s": 6}}))
        wait_until(lambda: httpx.get(d.url + "/v1/status").json()["running"] == 0)


def test_the_time_of_a_request_counts_from_its_first_byte(daemon):
    body = json.dumps({"messages": STORY, "max_tokens": 1, "x_thermocline": {"timeout_s": 0.5}}).encode()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body))
        time.sleep(1)
        s.sendall(body)
        assert s.recv(4096).startswith(b"HTTP/1.1 504")


def test_openai_clients_do_not_repeat_what_took_too_long(smollm):
    sent = []
    with Daemon(f"model.path={smollm}", "model.name=s") as d, httpx.Client(event_hooks={"request": [sent.append]}) as http:
        client = openai.OpenAI(base_url=d.url + "/v1", api_key="none", max_retries=2, http_client=http)
        with pytest.raises(openai.APIStatusError) as late:
            client.chat.completions.create(model="s", messages=STORY, max_tokens=4000, extra_body={"ignore_eos": True, "x_thermocline": {"timeout_s": 0.5}})
        assert late.value.status_code == 504 and len(sent) == 1


def test_more_choices_than_the_queue_takes_are_refused_for_good():
    with Daemon("engine.queue_capacity=3") as d:
        response = chat(d, n=4, max_tokens=1)
        assert response.status_code == 400 and "retry-after" not in response.headers and "queue_capacity" in response.json()["error"]["message"]
        assert httpx.post(d.url + "/v1/completions", json={"prompt": ["a", "b"], "n": 2, "max_tokens": 1}).status_code == 400
        assert chat(d, n=3, max_tokens=1).status_code == 200


def test_a_template_that_makes_nothing_is_refused(tmp_path):
    shutil.copytree(TIDEPOOL_FOLDER, tmp_path / "m")
    path = tmp_path / "m/tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "chat_template": "{% for m in messages %}{% endfor %}", "add_bos_token": False}))
    with Daemon(f"model.path={tmp_path / 'm'}") as d:
        response = chat(d)
        assert response.status_code == 400 and response.json()["error"]["param"] == "messages"
        assert complete(d).status_code == 200


def test_a_long_name_of_a_model_is_not_repeated(daemon):
    response = chat(daemon, model="\u00e9" * 20_000)
    assert response.status_code == 404 and len(response.content) < 2000 and "tidepool" in response.json()["error"]["message"]


def test_the_status_shows_reloaded_limits(tmp_path):
    config = tmp_path / "c.yaml"
    config.write_text("server: {request_timeout_s: 100}\n")
    with Daemon(config=config) as d:
        seconds = lambda: httpx.get(d.url + "/v1/status").json()["limits"]["request_s"]
        assert seconds() == 100
        config.write_text("server: {request_timeout_s: 200}\n")
        d.process.send_signal(signal.SIGHUP)
        wait_until(lambda: seconds() == 200)


def test_models(daemon, client):
    assert client.models.retrieve("tidepool").id == "tidepool"
    model = httpx.get(daemon.url + "/v1/models/%74idepool")
    assert model.status_code == 200
    # The built-in model's own, where the configuration is silent.
    assert model.json()["sampling"] == {"temperature": 0.7, "top_k": 0, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.0}
    assert httpx.head(daemon.url + "/v1/models/tidepool").status_code == 200
    response = httpx.get(daemon.url + "/v1/models/a%2Fb%ff%zz")
    assert response.status_code == 404 and response.json()["error"]["code"] == "model_not_found" and "a/b" in response.json()["error"]["message"]
    shown = model.json()
    assert shown["context_length"] == shown["max_model_len"] == shown["meta"]["n_ctx"] == 512 and shown["meta"]["n_embd"] == 256
    ours = httpx.get(daemon.url + "/v1/models", headers={"anthropic-version": "2023-06-01"}).json()
    assert [m["type"] for m in ours["data"]] == ["model"] and ours["first_id"] == "tidepool" and ours["has_more"] is False
    response = httpx.delete(daemon.url + "/v1/models/tidepool")
    assert response.status_code == 405 and response.headers["allow"] == "GET, HEAD, OPTIONS" and response.json()["error"]["code"] == "method_not_allowed"
    # Any case, Ollama's tag, a base URL without /v1, a slash at the end.
    for name in ("Tidepool", "TIDEPOOL:latest"):
        assert chat(daemon, model=name).status_code == 200
    for path in ("/v1/models/", "/models", "/v1/health", "/health/"):
        assert httpx.get(daemon.url + path).status_code == 200, path


def test_pieces_are_bounded(daemon):
    """Each takes a hundred times its byte of the body, in memory."""
    most = "a1" * 40_000
    for prefix in ("", "/v1"):
        refused = post(daemon, prefix + "/tokenize", {"content": most, "with_pieces": True})
        error = refused.json()["error"]
        assert refused.status_code == 400 and error["param"] == "with_pieces" and "at most 65536 tokens" in error["message"]
    tokens = post(daemon, "/tokenize", {"content": most}).json()["tokens"]
    assert len(tokens) > 65_536
    # One more and one less than so many.
    per_a1 = (len(tokens) - len(post(daemon, "/tokenize", {"content": "a1" * 20_000}).json()["tokens"])) // 20_000
    within = post(daemon, "/tokenize", {"content": "a1" * (65_536 // per_a1 - 1), "with_pieces": True})
    assert within.status_code == 200 and 65_000 < within.json()["count"] <= 65_536


def test_what_follows_a_nul_byte_is_not_ignored(daemon):
    for path, body in (("/v1/completions", {"prompt": "a", "max_tokens": 1}), ("/v1/chat/completions", {"messages": STORY, "max_tokens": 1}), ("/tokenize", {"content": "a"})):
        good = json.dumps(body).encode()
        assert post(daemon, path, good).status_code == 200
        for tail in (b"\0", b"\0garbage", b' \0{"n": 9}'):
            refused = post(daemon, path, good + tail)
            assert refused.status_code == 400 and "NUL" in refused.json()["error"]["message"], path


def test_seeds_of_64_bits(daemon):
    ask = lambda seed: complete(daemon, seed=seed, temperature=1, max_tokens=20).json()["choices"][0]["text"]
    assert ask(2**64 - 1) == ask(-1) and ask(2**63) == ask(-2**63)
    assert len({ask(2**64 - 1 - i) for i in range(4)}) > 1  # none is rounded
    for seed in (2**64, -2**63 - 1, 0.5):
        message = complete(daemon, seed=seed).json()["error"]["message"]
        assert "a whole number in [-9223372036854775808, 18446744073709551615]" in message
    assert "'top_k' must be a whole number in [0, 1000000000], not 9223372036854775808" in complete(daemon, top_k=2**63).json()["error"]["message"]
    assert "'max_tokens' must be a whole number in [0, 2147483647], not 1e+30" in complete(daemon, max_tokens=10**30).json()["error"]["message"]


def test_tokens_and_text(daemon):
    content = "Once upon a time, caf\u00e9 <|end|>"
    for prefix in ("", "/v1"):
        tokens = post(daemon, prefix + "/tokenize", {"content": content}).json()["tokens"]
        assert post(daemon, prefix + "/detokenize", {"tokens": tokens}).json() == {"content": content, "prompt": content}
    plain = post(daemon, "/tokenize", {"content": content, "parse_special": False}).json()["tokens"]
    assert len(plain) > len(tokens) and post(daemon, "/tokenize", {"prompt": content}).json()["tokens"] == tokens
    special = post(daemon, "/tokenize", {"text": content, "add_special": True, "with_pieces": True}).json()["tokens"]
    assert [t["id"] for t in special[1:]] == tokens
    assert b"".join(t["piece"].encode() if isinstance(t["piece"], str) else bytes(t["piece"]) for t in special[1:]).decode() == content
    assert post(daemon, "/detokenize", {"tokens": []}).json() == {"content": "", "prompt": ""}
    for path, body in [("/tokenize", {}), ("/tokenize", {"content": 5}), ("/tokenize", []), ("/detokenize", {}), ("/detokenize", {"tokens": [10**6]}), ("/detokenize", {"tokens": [-1]}), ("/detokenize", {"tokens": "a"}),
                       ("/apply-template", {}), ("/v1/tokens/count", {}), ("/v1/tokens/count", {"prompt": [[]]}), ("/v1/tokens/count", {"messages": []}), ("/tokenize", b"{")]:
        assert post(daemon, path, body).status_code == 400, (path, body)


def test_counting_tokens_agrees_with_usage(daemon):
    count = lambda body: post(daemon, "/v1/tokens/count", body).json()
    assert count({"messages": STORY, "max_tokens": 5}) == {"object": "token_count", "prompt_tokens": chat(daemon).json()["usage"]["prompt_tokens"]}
    assert count({"prompt": "Once upon"})["prompt_tokens"] == complete(daemon).json()["usage"]["prompt_tokens"]
    assert count({"prompt": "owl " * 2000})["prompt_tokens"] > 512
    prompt = post(daemon, "/apply-template", {"messages": STORY}).json()["prompt"]
    assert STORY[0]["content"] in prompt and len(post(daemon, "/tokenize", {"content": prompt}).json()["tokens"]) == count({"messages": STORY})["prompt_tokens"]


def test_stop_tokens_and_minimum(daemon):
    answer = complete(daemon, logprobs=0).json()["choices"][0]
    ids = post(daemon, "/tokenize", {"content": "Once upon" + answer["text"]}).json()["tokens"]
    stopped = complete(daemon, stop_token_ids=[ids[3]]).json()["choices"][0]
    assert stopped["finish_reason"] == "stop" and answer["text"].startswith(stopped["text"]) and len(stopped["text"]) < len(answer["text"])
    assert chat(daemon, min_tokens=300, max_tokens=300).json()["usage"]["completion_tokens"] == 300
    assert chat(daemon, max_tokens=300, ignore_eos=True).json()["usage"]["completion_tokens"] == 300


def test_status_tells_queue_and_limits(daemon):
    status = httpx.get(daemon.url + "/v1/status").json()
    assert status["queue"]["capacity"] == 64 and status["queue"]["wait_s"] >= 0 and status["limits"]["choices"] == 8
    assert [status[k] for k in ("running", "paused", "waiting")] == [0, 0, 0]


def test_curl(daemon):
    body = json.dumps({"prompt": "Once upon " * 100, "max_tokens": 3, "temperature": 0, "stream": True})  # above 1 KiB: curl asks with Expect
    run = lambda *args: subprocess.run(["curl", "-sSN", *args], capture_output=True, timeout=60).stdout.decode()
    out = run(daemon.url + "/v1/completions", "-H", "Expect: 100-continue", "-d", body)  # its Content-Type is that of forms
    assert out.startswith("data: {") and out.endswith("data: [DONE]\n\n")
    assert json.loads(run(daemon.url + "/v1/models/tidepool"))["id"] == "tidepool"


def test_langchain(daemon):
    from langchain_openai import ChatOpenAI
    model = ChatOpenAI(base_url=daemon.url + "/v1", api_key="none", model="tidepool", temperature=0, max_tokens=8, max_retries=0, stream_usage=True)
    answer = model.invoke("Tell me a story about an owl.")
    assert answer.content == chat(daemon).json()["choices"][0]["message"]["content"] and answer.usage_metadata["output_tokens"] == 8
    chunks = list(model.stream("Tell me a story about an owl."))
    assert "".join(c.content for c in chunks) == answer.content
    assert model.bind(logprobs=True, top_logprobs=2).invoke("Hi").response_metadata["logprobs"]["content"]
