"""The gRPC interface as its clients meet it: every method, errors with details, cancelling, deadlines."""
import contextlib
import math
import socket
import struct
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import httpx
import pytest
from conftest import Daemon, wait_until
from grpc_client import SERVICE, channel, chat, idle, metric, pb, read, refusal, stubs

OWL = "Tell me a story about an owl."


@pytest.fixture(scope="module")
def daemon():
    with Daemon("grpc.address=127.0.0.1:0") as d:
        yield d


@pytest.fixture(scope="module")
def stub(daemon):
    with channel(daemon) as c:
        yield stubs.InferenceStub(c)


@pytest.fixture(scope="module")
def slow(smollm):
    """A daemon whose answers take seconds."""
    with Daemon("grpc.address=127.0.0.1:0", f"model.path={smollm}", "engine.queue_capacity=2", "server.write_timeout_s=2") as d:
        yield d


@pytest.fixture(scope="module")
def slow_stub(slow):
    with channel(slow) as c:
        yield stubs.InferenceStub(c)


ENDLESS = dict(stop=pb.Stop(ignore_eos=True), sampling=pb.Sampling(temperature=1))


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


def test_progress(slow_stub):
    text = "The sea is wide and deep. " * 60
    quiet = read(slow_stub.Generate(chat("Quiet. " + text, stop=pb.Stop(max_tokens=1))))
    assert not any(e.HasField("progress") for e in quiet.events)
    told = read(slow_stub.Generate(chat("Told. " + text, stop=pb.Stop(max_tokens=1), response=pb.ResponseOptions(progress=True))))
    steps = [e.progress.prompt_tokens_read for e in told.events if e.HasField("progress")]
    assert len(steps) > 2 and steps == sorted(steps) and steps[-1] == told.started.prompt_tokens


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


def test_the_text_of_tokens_is_bounded_like_a_message():
    with Daemon("grpc.address=127.0.0.1:0", "server.body_bytes_max=2000") as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        answer = stub.Tokenize(pb.TokenizeRequest(text=OWL, with_pieces=True))
        piece, token = max(zip(answer.pieces, answer.token_ids), key=lambda pair: len(pair[0]))
        fit = 2000 // len(piece)
        assert len(stub.Detokenize(pb.DetokenizeRequest(token_ids=[token] * (fit - 1))).text) > 1900
        error = refusal(stub.Detokenize, pb.DetokenizeRequest(token_ids=[token] * (fit + 1)))
        assert (error.code, error.metadata) == (grpc.StatusCode.INVALID_ARGUMENT, {"field": "token_ids"}) and "server.body_bytes_max" in error.message


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


WRONG = [
    (dict(sampling=pb.Sampling(temperature=2.5)), "sampling.temperature"),
    (dict(sampling=pb.Sampling(temperature=float("nan"))), "sampling.temperature"),
    (dict(sampling=pb.Sampling(top_p=-0.1)), "sampling.top_p"),
    (dict(sampling=pb.Sampling(top_k=-1)), "sampling.top_k"),
    (dict(sampling=pb.Sampling(min_p=1.5)), "sampling.min_p"),
    (dict(sampling=pb.Sampling(typical_p=2)), "sampling.typical_p"),
    (dict(sampling=pb.Sampling(repetition_penalty=0)), "sampling.repetition_penalty"),
    (dict(sampling=pb.Sampling(presence_penalty=3)), "sampling.presence_penalty"),
    (dict(sampling=pb.Sampling(frequency_penalty=float("inf"))), "sampling.frequency_penalty"),
    (dict(sampling=pb.Sampling(dry=pb.Dry(base=0.5))), "sampling.dry.base"),
    (dict(sampling=pb.Sampling(dry=pb.Dry(multiplier=1, sequence_breakers=[""]))), "sampling.dry.sequence_breakers"),
    (dict(sampling=pb.Sampling(logit_bias={5: 200})), "sampling.logit_bias[5]"),
    (dict(sampling=pb.Sampling(logit_bias={-1: 1})), "sampling.logit_bias"),
    (dict(sampling=pb.Sampling(logit_bias={2048: 1})), "sampling.logit_bias"),
    (dict(sampling=pb.Sampling(logit_bias={i: 1 for i in range(1025)})), "sampling.logit_bias"),
    (dict(stop=pb.Stop(max_tokens=0)), "stop.max_tokens"),
    (dict(stop=pb.Stop(min_tokens=-1)), "stop.min_tokens"),
    (dict(stop=pb.Stop(min_tokens=5, max_tokens=4)), "stop.min_tokens"),
    (dict(stop=pb.Stop(stop=["x"] * 17)), "stop.stop"),
    (dict(stop=pb.Stop(stop=["x" * 257])), "stop.stop"),
    (dict(stop=pb.Stop(stop_token_ids=range(65))), "stop.stop_token_ids"),
    (dict(response=pb.ResponseOptions(logprobs=True, top_logprobs=21)), "response.top_logprobs"),
    (dict(response=pb.ResponseOptions(top_logprobs=2)), "response.top_logprobs"),
    (dict(n=0), "n"),
    (dict(n=9), "n"),
    (dict(n=2**31 - 1), "n"),
    (dict(priority=11), "priority"),
    (dict(timeout_s=0), "timeout_s"),
    (dict(timeout_s=-1), "timeout_s"),
    (dict(ffn_mode="fast"), "ffn_mode"),
    (dict(ffn_mode="x" * 2000), "ffn_mode"),
    (dict(speculation=pb.Speculation(mode="fast")), "speculation.mode"),
    (dict(speculation=pb.Speculation(draft_tokens=16)), "speculation.draft_tokens"),
    (dict(request_id="no spaces"), "request_id"),
    (dict(request_id="x" * 129), "request_id"),
    (dict(chat=pb.Chat()), "chat.messages"),
    (dict(chat=pb.Chat(messages=[pb.ChatMessage(role="wizard", content="x")])), "chat.messages"),
    (dict(token_ids=pb.TokenIds(ids=[-1])), "token_ids"),
    (dict(token_ids=pb.TokenIds(ids=[2048])), "token_ids"),
    (dict(token_ids=pb.TokenIds()), "token_ids"),
    (dict(input=None), "input"),
]


@pytest.mark.parametrize("fields,field", WRONG, ids=[f"{i}-{field}" for i, (_, field) in enumerate(WRONG)])
def test_every_field_is_checked_by_name(stub, fields, field):
    request = pb.GenerateRequest(**{k: v for k, v in fields.items() if v is not None})
    if not {"chat", "token_ids", "input"} & fields.keys():
        request.text = "x"
    error = refusal(stub.Generate, request)
    assert (error.code, error.reason, error.metadata.get("field")) == (grpc.StatusCode.INVALID_ARGUMENT, "INVALID_FIELD", field), error.message
    assert error.retry_s is None


def test_errors_have_canonical_codes_and_details(stub):
    code = grpc.StatusCode
    too_long = refusal(stub.Generate, pb.GenerateRequest(text="owl " * 600))
    assert (too_long.code, too_long.reason) == (code.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED") and "512" in too_long.message
    unknown = refusal(stub.Generate, chat(OWL, model="gpt-4"))
    assert (unknown.code, unknown.reason) == (code.NOT_FOUND, "MODEL_NOT_FOUND") and "tidepool" in unknown.message
    endless = refusal(stub.Generate, chat(OWL, model="🐙" * 3000))  # comes back in trailers, of which a client takes 8 KiB
    assert (endless.code, endless.reason) == (code.NOT_FOUND, "MODEL_NOT_FOUND") and "tidepool" in endless.message
    assert 20 < endless.message.count("🐙") < 100 and "\ufffd" not in endless.message
    not_loaded = refusal(stub.Generate, chat(OWL, ffn_mode="lowrank"))
    assert (not_loaded.code, not_loaded.reason) == (code.FAILED_PRECONDITION, "FAILED_PRECONDITION")
    nobody = refusal(stub.Cancel, pb.CancelRequest(request_id="nobody's"))
    assert (nobody.code, nobody.reason) == (code.NOT_FOUND, "REQUEST_NOT_FOUND")
    token = refusal(stub.Detokenize, pb.DetokenizeRequest(token_ids=[1, 5000]))
    assert (token.code, token.metadata) == (code.INVALID_ARGUMENT, {"field": "token_ids"})
    for call, request in ((stub.Tokenize, pb.TokenizeRequest()), (stub.CountTokens, pb.CountTokensRequest())):
        assert refusal(call, request).metadata == {"field": "input"}


def test_what_is_refused_is_counted_by_its_reason(daemon, stub):
    rejected = lambda reason: metric(daemon, "requests_rejected_total", reason=reason)
    late, too_long = pb.GenerateRequest(text="x", timeout_s=1e-9), pb.GenerateRequest(text="owl " * 600)
    for reason, call, request in (("bad_request", stub.Tokenize, pb.TokenizeRequest()), ("bad_request", stub.Detokenize, pb.DetokenizeRequest(token_ids=[-1])),
                                  ("bad_request", stub.Generate, pb.GenerateRequest()), ("deadline", stub.Generate, late), ("too_long", stub.Generate, too_long)):
        before = rejected(reason), metric(daemon, "requests_rejected_total")
        refusal(call, request)
        assert (rejected(reason), metric(daemon, "requests_rejected_total")) == (before[0] + 1, before[1] + 1), reason


def test_a_prompt_beyond_the_context_is_told_in_numbers(stub):
    owls = "owl " * 600
    tokens = stub.CountTokens(pb.CountTokensRequest(text=owls)).prompt_tokens
    requests = {"text": pb.GenerateRequest(text=owls), "chat": chat(owls), "token_ids": pb.GenerateRequest(token_ids=pb.TokenIds(ids=[5] * 600))}
    for field, request in requests.items():
        error = refusal(stub.Generate, request)
        assert error.reason == "CONTEXT_LENGTH_EXCEEDED" and error.metadata.pop("n_ctx") == "512", field
        told = int(error.metadata.pop("n_prompt_tokens"))
        assert told == {"text": tokens, "token_ids": 600}.get(field, max(told, tokens)) and error.metadata == {"field": field}
    # What cannot fit is not counted: so many there are at least.
    endless = refusal(stub.Generate, pb.GenerateRequest(text="owl " * 500_000))
    assert "at least " + endless.metadata["n_prompt_tokens"] in endless.message


def test_pieces_are_bounded(stub):
    error = refusal(stub.Tokenize, pb.TokenizeRequest(text="a1" * 40_000, with_pieces=True))
    assert error.code == grpc.StatusCode.INVALID_ARGUMENT and error.metadata == {"field": "with_pieces"} and "65536" in error.message
    assert len(stub.Tokenize(pb.TokenizeRequest(text="a1" * 40_000)).token_ids) > 65_536


def test_a_message_that_is_too_large(stub):
    error = refusal(stub.Tokenize, pb.TokenizeRequest(text="x" * (5 << 20)))
    assert error.code == grpc.StatusCode.RESOURCE_EXHAUSTED and error.retry_s is None
    assert stub.CountTokens(pb.CountTokensRequest(text="owl")).fits


def test_bytes_that_are_no_message(daemon, stub):
    with channel(daemon) as c:
        raw = c.unary_stream(f"/{SERVICE}/Generate", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        for payload in (b"\xff" * 100, b"\x1a\x04\xff\xfe\xfd\xfc", b"\x0a\xff\xff\xff\xff\x7f"):  # noise, ill-formed UTF-8, a length beyond the end
            assert refusal(raw, payload).code in (grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.UNIMPLEMENTED)
        unknown = c.unary_unary(f"/{SERVICE}/Nothing", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        assert refusal(unknown, b"").code == grpc.StatusCode.UNIMPLEMENTED
    with socket.create_connection(("127.0.0.1", daemon.grpc_port)) as raw_socket:
        raw_socket.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        raw_socket.settimeout(5)
        raw_socket.recv(100)
    assert stub.CountTokens(pb.CountTokensRequest(text="owl")).fits


def test_many_streams_at_once(daemon, stub):
    def ask(seed):
        return read(stub.Generate(chat(OWL, sampling=pb.Sampling(seed=seed), stop=pb.Stop(max_tokens=15)))).text

    with ThreadPoolExecutor(48) as pool:
        texts = list(pool.map(ask, [i % 8 for i in range(48)]))
    assert all(texts[i] == texts[i % 8] != "" for i in range(48)) and len(set(texts)) == 8
    wait_until(lambda: idle(daemon))


def begin(stub, timeout=None, **fields):
    """A generation that has said something and goes on for long."""
    call = stub.Generate(chat("Write a very long essay about the sea.", **ENDLESS, **fields), timeout=timeout)
    for event in call:
        if event.HasField("delta"):
            return call
    raise AssertionError("the stream ended")


def test_a_client_that_leaves_stops_the_work(slow, slow_stub):
    before = metric(slow, "requests_cancelled_total", cause="disconnect")
    begin(slow_stub).cancel()
    wait_until(lambda: idle(slow))
    assert metric(slow, "requests_cancelled_total", cause="disconnect") == before + 1
    with channel(slow) as c:  # with its connection
        begin(stubs.InferenceStub(c))
    wait_until(lambda: idle(slow))
    assert metric(slow, "requests_cancelled_total", cause="disconnect") == before + 2


def test_cancel_by_id(slow, slow_stub):
    before = metric(slow, "requests_cancelled_total", cause="api")
    call = begin(slow_stub, request_id="long-one")
    slow_stub.Cancel(pb.CancelRequest(request_id="long-one"))
    error = refusal(lambda: call)
    assert (error.code, error.reason) == (grpc.StatusCode.CANCELLED, "CANCELLED")
    wait_until(lambda: idle(slow))
    assert metric(slow, "requests_cancelled_total", cause="api") == before + 1
    assert refusal(slow_stub.Cancel, pb.CancelRequest(request_id="long-one")).code == grpc.StatusCode.NOT_FOUND


def test_deadlines(slow, slow_stub):
    cancelled = lambda cause: metric(slow, "requests_cancelled_total", cause=cause)
    before = {cause: cancelled(cause) for cause in ("deadline", "disconnect")}
    # Two of them are rounded up on their way: there the client ends the call before the daemon's clock would.
    for timeout in (0.6, 1.001, 1.003):
        late = refusal(slow_stub.Generate, chat("Write an essay.", **ENDLESS), timeout=timeout)
        assert late.code == grpc.StatusCode.DEADLINE_EXCEEDED
        wait_until(lambda: idle(slow))
    assert cancelled("deadline") == before["deadline"] + 3 and cancelled("disconnect") == before["disconnect"]
    begin(slow_stub, timeout=60).cancel()  # long before its deadline
    wait_until(lambda: idle(slow))
    assert cancelled("deadline") == before["deadline"] + 3 and cancelled("disconnect") == before["disconnect"] + 1
    asked = refusal(slow_stub.Generate, chat("Write an essay.", **ENDLESS, timeout_s=0.7))
    assert (asked.code, asked.reason) == (grpc.StatusCode.DEADLINE_EXCEEDED, "DEADLINE_EXCEEDED")
    wait_until(lambda: idle(slow))


@pytest.mark.parametrize("timeout", ["10S", "99999999M", "99999999H", "18446744073709551615n"])
def test_a_deadline_however_far_is_none_that_has_passed(daemon, timeout):
    """Clients of gRPC's own library send at most 27000H; others may send what the header holds, or more."""
    message = pb.GenerateRequest(text="Once upon a time", stop=pb.Stop(max_tokens=3)).SerializeToString()
    headers = ("content-type: application/grpc", "te: trailers", "grpc-timeout: " + timeout)
    curl = ["curl", "-sS", "-i", "--http2-prior-knowledge", *(w for h in headers for w in ("-H", h)), "--data-binary", "@-"]
    out = subprocess.run([*curl, f"http://127.0.0.1:{daemon.grpc_port}/{SERVICE}/Generate"], input=struct.pack(">BI", 0, len(message)) + message, capture_output=True, timeout=60).stdout
    assert b"grpc-status: 0" in out, out


def test_a_full_queue_says_when_to_come_again(slow, slow_stub):
    calls = [slow_stub.Generate(chat("Count.", **ENDLESS)) for _ in range(40)]  # more than run in turns and wait
    try:
        wait_until(lambda: any(call.done() for call in calls))
        error = refusal(lambda: next(call for call in calls if call.done()))
        assert (error.code, error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "QUEUE_FULL") and error.retry_s >= 1
    finally:
        for call in calls:
            call.cancel()
    wait_until(lambda: idle(slow))


def test_a_reader_that_keeps_up_is_never_cut_off(slow, slow_stub):
    call = begin(slow_stub)
    end = time.monotonic() + 3  # beyond write_timeout_s
    for _ in call:
        if time.monotonic() > end:
            break
    assert call.is_active()
    call.cancel()
    wait_until(lambda: idle(slow))


def test_drain_lets_streams_end_and_refuses_new_ones(smollm):
    with Daemon("grpc.address=127.0.0.1:0", f"model.path={smollm}") as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        call = stub.Generate(chat("Count.", sampling=pb.Sampling(temperature=1), stop=pb.Stop(ignore_eos=True, max_tokens=200)))
        next(call)
        d.terminate()
        wait_until(lambda: stub.GetStats(pb.GetStatsRequest()).state == pb.STATE_DRAINING)
        error = refusal(stub.Generate, chat("Count."))
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING") and error.retry_s >= 1
        assert read(call).finished[0].usage.completion_tokens == 200
        assert d.wait() == 0, d.text()


def test_drain_cuts_off_what_does_not_end(smollm):
    with Daemon("grpc.address=127.0.0.1:0", f"model.path={smollm}", "server.drain_timeout_s=1") as d, channel(d) as c:
        call = begin(stubs.InferenceStub(c))
        d.terminate()
        error = refusal(lambda: call)
        assert (error.code, error.reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
        assert d.wait() == 0, d.text()


@pytest.mark.parametrize("attempt", range(3))
def test_the_engine_may_end_behind_a_deadline(smollm, attempt):
    """The daemon is told to end at once; the last call ends by its deadline, while the engine still makes its tokens."""
    tell_all = pb.ResponseOptions(token_ids=True, logprobs=True, top_logprobs=20)
    with Daemon("grpc.address=127.0.0.1:0", f"model.path={smollm}") as d, channel(d) as c:
        call = stubs.InferenceStub(c).Generate(chat("Write an essay.", n=4, response=tell_all, **ENDLESS), timeout=1)
        with contextlib.suppress(grpc.RpcError):  # a slow machine may see that it cannot be in time
            next(call)
        time.sleep(0.6)
        for _ in range(2):
            d.terminate()
            time.sleep(0.05)
        assert d.wait() == 0, d.text()


def test_more_choices_than_the_queue_takes_are_refused_for_good():
    with Daemon("grpc.address=127.0.0.1:0", "engine.queue_capacity=3") as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        error = refusal(stub.Generate, chat("Hello", n=4, stop=pb.Stop(max_tokens=1)))
        assert error.code == grpc.StatusCode.INVALID_ARGUMENT and "queue_capacity" in error.message
        assert len(read(stub.Generate(chat("Hello", n=3, stop=pb.Stop(max_tokens=1)))).finished) == 3
