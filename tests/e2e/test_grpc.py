"""The gRPC interface from its clients' view: every method, and the options of a request."""
import math
import struct
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import wait_until
from grpc_client import SERVICE, chat, daemon, idle, metric, pb, read, stub  # daemon, stub: fixtures

OWL = "Tell me a story about an owl."


def test_the_text_is_that_of_http(daemon, stub):
    body = {"messages": [{"role": "user", "content": OWL}], "seed": 11, "temperature": 0.9, "min_p": 0.02, "max_tokens": 60}
    http = httpx.post(daemon.url + "/v1/chat/completions", json=body).json()
    answer = read(stub.Generate(chat(OWL, sampling=pb.Sampling(seed=11, temperature=0.9, min_p=0.02), stop=pb.Stop(max_tokens=60))))
    assert answer.text == http["choices"][0]["message"]["content"] != ""
    assert [e.sequence for e in answer.events] == list(range(len(answer.events)))
    assert len({e.request_id for e in answer.events}) == 1
    assert answer.started.model == "tidepool" and answer.started.choices == 1 and answer.started.created > 1e9
    usage = answer.finished[0].usage
    assert answer.started.prompt_tokens == usage.prompt_tokens == http["usage"]["prompt_tokens"]
    assert usage.completion_tokens == http["usage"]["completion_tokens"]
    assert answer.finished[0].timings.decode_s > 0


def test_prompts_as_text_and_as_tokens(stub):
    tokens = stub.Tokenize(pb.TokenizeRequest(text="Once upon a time")).token_ids
    ask = dict(sampling=pb.Sampling(seed=3), stop=pb.Stop(max_tokens=20), response=pb.ResponseOptions(token_ids=True))
    as_text = read(stub.Generate(pb.GenerateRequest(text="Once upon a time", **ask)))
    as_tokens = read(stub.Generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=tokens), **ask)))
    assert as_text.text == as_tokens.text != ""
    assert as_text.started.prompt_tokens == len(tokens)
    ids = [t for e in as_text.events for t in e.delta.token_ids]
    assert len(ids) == as_text.finished[0].usage.completion_tokens == 20
    assert as_text.text == stub.Detokenize(pb.DetokenizeRequest(token_ids=list(tokens) + ids)).text.removeprefix("Once upon a time")
    other = read(stub.Generate(pb.GenerateRequest(text="Once upon a time", sampling=pb.Sampling(seed=4), stop=pb.Stop(max_tokens=20))))
    assert other.text != as_text.text


def test_an_empty_stop_text_stops_nothing(stub):
    ask = lambda *stop: read(stub.Generate(chat(OWL, sampling=pb.Sampling(seed=5), stop=pb.Stop(max_tokens=10, stop=stop)))).text
    assert ask("") == ask("", "@@@") == ask() != ""


def test_several_choices(stub):
    ask = lambda n: read(stub.Generate(chat(OWL, n=n, sampling=pb.Sampling(seed=5), stop=pb.Stop(max_tokens=25))))
    one, three = ask(1), ask(3)
    assert three.started.choices == 3 and sorted(f.choice_index for f in three.finished) == [0, 1, 2]
    assert three.texts[0] == one.text and len(set(three.texts.values())) == 3


def test_logprobs(stub):
    ask = dict(sampling=pb.Sampling(temperature=0), stop=pb.Stop(max_tokens=12))
    answer = read(stub.Generate(chat(OWL, response=pb.ResponseOptions(logprobs=True, top_logprobs=3, token_ids=True), **ask)))
    ids = [t for e in answer.events for t in e.delta.token_ids]
    scores = [s for e in answer.events for s in e.delta.logprobs]
    assert [s.token.token_id for s in scores] == ids and len(ids) == 12
    assert b"".join(s.token.token for s in scores).decode().lstrip() == answer.text
    for s in scores:
        assert [t.token_id for t in s.top][0] == s.token.token_id  # greedy: the most probable one
        assert len(s.top) == 3 and sorted((t.logprob for t in s.top), reverse=True) == [t.logprob for t in s.top]
        assert 0 < sum(math.exp(t.logprob) for t in s.top) <= 1.001
    plain = read(stub.Generate(chat(OWL, response=pb.ResponseOptions(logprobs=True), **ask)))
    assert [s.token for e in plain.events for s in e.delta.logprobs] == [s.token for s in scores]
    assert plain.text == answer.text and not any(s.top for e in plain.events for s in e.delta.logprobs)


def test_limits_and_stops(stub):
    limited = read(stub.Generate(chat(OWL, sampling=pb.Sampling(temperature=0), stop=pb.Stop(max_tokens=10))))
    assert limited.finished[0].finish_reason == pb.FINISH_REASON_LENGTH
    whole = read(stub.Generate(chat(OWL, sampling=pb.Sampling(temperature=0))))
    assert whole.finished[0].finish_reason == pb.FINISH_REASON_STOP
    stopped = read(stub.Generate(chat(OWL, sampling=pb.Sampling(temperature=0), stop=pb.Stop(stop=["owl", "never"]))))
    assert stopped.text == whole.text[:whole.text.index("owl")]
    assert stopped.finished[0].finish_reason == pb.FINISH_REASON_STOP


def test_tokenize_detokenize_count(stub):
    text = "Ünïcode 🐙, a\nstory. <s>"
    answer = stub.Tokenize(pb.TokenizeRequest(text=text, with_pieces=True, add_special=False, parse_special=False))
    assert b"".join(answer.pieces).decode().lstrip() == text and len(answer.pieces) == len(answer.token_ids)
    assert stub.Detokenize(pb.DetokenizeRequest(token_ids=answer.token_ids)).text == text
    assert len(stub.Tokenize(pb.TokenizeRequest(text=text)).token_ids) < len(answer.token_ids) + 1  # <s> is one token
    conversation = chat(OWL).chat
    assert len(stub.Tokenize(pb.TokenizeRequest(chat=conversation)).token_ids) == stub.CountTokens(pb.CountTokensRequest(chat=conversation)).prompt_tokens
    count = stub.CountTokens(pb.CountTokensRequest(text="owl " * 2000))
    assert count.prompt_tokens > count.context_length == 512 and not count.fits
    assert stub.CountTokens(pb.CountTokensRequest(text="owl")).fits


def test_model_and_stats(stub, daemon):
    model = stub.GetModel(pb.GetModelRequest())
    assert (model.name, model.architecture, model.context_length, model.has_chat_template) == ("tidepool", "llama", 512, True)
    assert model.vocabulary_size == 2048 and model.stop_token_ids and model.num_parameters > 6e6
    stats = stub.GetStats(pb.GetStatsRequest())
    assert stats.state == pb.STATE_READY and stats.load_progress == 1 and stats.queue.capacity == 64
    assert stats.HasField("cache") and stats.cache.kv_bytes > 0
    before = metric(daemon, "requests_total", api=f"/{SERVICE}/GetStats")
    stub.GetStats(pb.GetStatsRequest())
    assert metric(daemon, "requests_total", api=f"/{SERVICE}/GetStats") == before + 1


def test_request_ids(stub):
    call = stub.Generate(chat(OWL, request_id="mine-1", stop=pb.Stop(max_tokens=2)), metadata=[("x-request-id", "other")])
    assert {e.request_id for e in call} == {"mine-1"} and dict(call.initial_metadata())["x-request-id"] == "mine-1"
    call = stub.Generate(chat(OWL, stop=pb.Stop(max_tokens=2)), metadata=[("x-request-id", "given")])
    assert {e.request_id for e in call} == {"given"}
    call = stub.Generate(chat(OWL, stop=pb.Stop(max_tokens=2)), metadata=[("x-request-id", "no good id")])
    made = {e.request_id for e in call}
    assert len(made) == 1 and dict(call.initial_metadata())["x-request-id"] in made and made.pop().startswith("req_")


def test_many_streams_at_once(daemon, stub):
    def ask(seed):
        return read(stub.Generate(chat(OWL, sampling=pb.Sampling(seed=seed), stop=pb.Stop(max_tokens=15)))).text

    with ThreadPoolExecutor(48) as pool:
        texts = list(pool.map(ask, [i % 8 for i in range(48)]))
    assert all(texts[i] == texts[i % 8] != "" for i in range(48)) and len(set(texts)) == 8
    wait_until(lambda: idle(daemon))


@pytest.mark.parametrize("timeout", ["10S", "99999999M", "99999999H", "18446744073709551615n"])
def test_a_deadline_however_far_is_none_that_has_passed(daemon, timeout):
    """Clients of gRPC's own library send at most 27000H; others may send any value that fits the header, or more."""
    message = pb.GenerateRequest(text="Once upon a time", stop=pb.Stop(max_tokens=3)).SerializeToString()
    headers = ("content-type: application/grpc", "te: trailers", "grpc-timeout: " + timeout)
    curl = ["curl", "-sS", "-i", "--http2-prior-knowledge", *(w for h in headers for w in ("-H", h)), "--data-binary", "@-"]
    out = subprocess.run([*curl, f"http://127.0.0.1:{daemon.grpc_port}/{SERVICE}/Generate"], input=struct.pack(">BI", 0, len(message)) + message, capture_output=True, timeout=60).stdout
    assert b"grpc-status: 0" in out, out
