"""Long texts by gRPC: they become tokens on threads of their own, whatever comes meanwhile: short calls, cancels, the end."""
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from conftest import ROOT, Daemon, wait_until
from grpc_client import channel, chat, idle, metric, pb, read, refusal, stubs
from grpc_health.v1 import health_pb2, health_pb2_grpc

ANY_PORT = "grpc.address=127.0.0.1:0"
TEXT = (ROOT / "tests/data/wikitext2_test.txt").read_text()
LONG = TEXT * 2  # takes seconds
# Of as many bytes as might fit the context: it is made into tokens, only then it is known to be too long.
PROMPT = TEXT[:400_000]
ENDLESS = dict(stop=pb.Stop(ignore_eos=True), sampling=pb.Sampling(temperature=1))


def long_prompt(**fields):
    return pb.GenerateRequest(text=PROMPT, **fields)


@pytest.fixture
def smol(smollm):
    """A queue that long prompts neither fill nor make too slow for others."""
    def start(*settings):
        return Daemon(ANY_PORT, f"model.path={smollm}", "engine.queue_prefill_tokens=0", "server.request_timeout_s=0", *settings)
    return start


def outcome(future):
    error = future.exception()
    return error.code() if error else grpc.StatusCode.OK


@pytest.mark.parametrize("method, calls", [("Generate", 48), ("Tokenize", 8), ("CountTokens", 8)])
def test_short_calls_do_not_wait_for_long_texts(smol, method, calls):
    requests = {"Generate": long_prompt(), "Tokenize": pb.TokenizeRequest(text=LONG), "CountTokens": pb.CountTokensRequest(text=LONG)}
    with smol() as d, channel(d, **{"grpc.max_receive_message_length": -1}) as c:
        stub, health = stubs.InferenceStub(c), health_pb2_grpc.HealthStub(c)
        stream = stub.Generate(chat("Write a very long essay about the sea.", **ENDLESS))
        next(stream)
        long = [getattr(stub, method).future(requests[method]) if method != "Generate" else stub.Generate(requests[method]) for _ in range(calls)]
        assert health.Check(health_pb2.HealthCheckRequest()).status == health_pb2.HealthCheckResponse.SERVING
        assert stub.CountTokens(pb.CountTokensRequest(text="owl")).prompt_tokens > 0
        assert stub.Tokenize(pb.TokenizeRequest(text="owl")).token_ids
        assert read(stub.Generate(chat("Hello", stop=pb.Stop(max_tokens=1)))).finished
        for _ in range(5):
            next(stream)
        assert sum(call.done() for call in long) < calls / 2
        stream.cancel()
        if method == "Generate":
            for call in long:
                error = refusal(lambda: call)
                assert (error.code, error.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "CONTEXT_LENGTH_EXCEEDED") and "at least" not in error.message
        else:
            answers = [call.result() for call in long]
            assert all(answer == answers[0] for answer in answers)
        wait_until(lambda: idle(d))


def test_a_long_prompt_gets_the_answer_of_its_tokens(smol):
    with smol("engine.context_length=4096") as d, channel(d) as c:
        stub, text = stubs.InferenceStub(c), TEXT[:4500]
        options = dict(sampling=pb.Sampling(temperature=0), stop=pb.Stop(max_tokens=8))
        tokens = stub.Tokenize(pb.TokenizeRequest(text=text)).token_ids
        answers = [read(stub.Generate(pb.GenerateRequest(text=text, **options))), read(stub.Generate(pb.GenerateRequest(token_ids=pb.TokenIds(ids=tokens), **options)))]
        assert answers[0].text == answers[1].text != "" and answers[0].started.prompt_tokens == len(tokens)
        assert read(stub.Generate(chat(text, **options))).started.prompt_tokens > len(tokens)


def test_leaving_while_a_prompt_is_made_into_tokens(smol):
    """Its place in the queue is free at once, and work that no thread has begun is skipped."""
    with smol() as d, channel(d) as c:
        stub = stubs.InferenceStub(c)
        waiting, tokenized = lambda: metric(d, "num_requests_waiting"), lambda: metric(d, "tokenize_seconds_count")
        calls = [stub.Generate(long_prompt()) for _ in range(24)]
        wait_until(lambda: waiting() >= 12)
        for call in calls:
            call.cancel()
        wait_until(lambda: waiting() == 0)
        begun = tokenized()
        assert refusal(stub.Generate, long_prompt(), timeout=0.01).code == grpc.StatusCode.DEADLINE_EXCEEDED
        assert not stub.CountTokens(pb.CountTokensRequest(text=TEXT)).fits  # behind them all
        assert begun < 12 and tokenized() <= begun + 3, "two were at work, and perhaps the late one"
        assert read(stub.Generate(chat("Hello", stop=pb.Stop(max_tokens=3)))).text
        wait_until(lambda: idle(d))


@pytest.mark.parametrize("signals", [1, 2])
def test_the_daemon_ends_while_texts_are_made_into_tokens(smol, signals):
    """Running calls end, waiting ones are rejected: every call gets an answer, and none delays the end."""
    with smol("server.drain_timeout_s=0") as d, channel(d, **{"grpc.enable_retries": 0}) as c:
        stub = stubs.InferenceStub(c)
        with ThreadPoolExecutor(12) as pool:
            counts = [stub.CountTokens.future(pb.CountTokensRequest(text=LONG), timeout=60) for _ in range(24)]
            wait_until(lambda: any(count.done() for count in counts))  # others are begun, most wait
            prompts = [pool.submit(refusal, stub.Generate, long_prompt()) for _ in range(4)]
            wait_until(lambda: metric(d, "num_requests_waiting") == 4)
            for _ in range(signals):
                d.terminate()
                wait_until(lambda: "draining" in d.text())
            ends = [outcome(count) for count in counts]
            assert set(ends) <= {grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE} and ends.count(grpc.StatusCode.UNAVAILABLE) >= 8, ends
            for prompt in prompts:
                assert (prompt.result().code, prompt.result().reason) == (grpc.StatusCode.UNAVAILABLE, "DRAINING")
            assert d.wait(30) == 0, d.text()
