"""Answers by gRPC that take seconds: progress, clients that leave, cancelling, deadlines, a full queue, the end of the daemon."""
import contextlib
import time

import grpc
import pytest
from conftest import Daemon, wait_until
from grpc_client import begun, channel, chat, idle, metric, pb, read, refusal, stubs


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


def begin(stub, timeout=None, **fields):
    """A generation that has said something and goes on for long."""
    return begun(stub.Generate(chat("Write a very long essay about the sea.", **ENDLESS, **fields), timeout=timeout))


def test_progress(slow_stub):
    text = "The sea is wide and deep. " * 60
    quiet = read(slow_stub.Generate(chat("Quiet. " + text, stop=pb.Stop(max_tokens=1))))
    assert not any(e.HasField("progress") for e in quiet.events)
    told = read(slow_stub.Generate(chat("Told. " + text, stop=pb.Stop(max_tokens=1), response=pb.ResponseOptions(progress=True))))
    steps = [e.progress.prompt_tokens_read for e in told.events if e.HasField("progress")]
    assert len(steps) > 2 and steps == sorted(steps) and steps[-1] == told.started.prompt_tokens


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
    for timeout in (1.5, 2.001, 2.003):
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
        call = begun(stub.Generate(chat("Count.", sampling=pb.Sampling(temperature=1), stop=pb.Stop(ignore_eos=True, max_tokens=200))))
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
    """The daemon must stop at once; the last call ends by its deadline, while the engine still generates its tokens."""
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
