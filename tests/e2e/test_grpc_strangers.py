"""gRPC connections that send much and make no call, without a key: gRPC's library would buffer it without a bound."""
import contextlib
import hashlib
import socket
import struct

import grpc
import httpx
import pytest
from conftest import Daemon, memory_mib, wait_until
from grpc_client import channel, chat, metric, pb, read, stubs
from grpc_health.v1 import health_pb2, health_pb2_grpc

KEY = "ada-key-0123456789abcdef"
BEARER = [("authorization", "Bearer " + KEY)]
BUDGET_MIB = 128
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, RESET, SETTINGS, CONTINUATION, END_STREAM, END_HEADERS = 0, 1, 3, 4, 9, 1, 4
TOKENIZE = "/thermocline.v1.Inference/Tokenize"
WATCH, REFLECTION = "/grpc.health.v1.Health/Watch", "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def frame(kind, flags, stream, payload=b""):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name, value):
    """A header that is not indexed."""
    def text(data):
        rest, out = len(data) - 127, bytes([min(len(data), 127)])
        while rest >= 128:
            rest, out = rest >> 7, out + bytes([rest & 127 | 128])
        return out + (bytes([rest]) if len(data) >= 127 else b"") + data
    return b"\0" + text(name) + text(value)


def call_headers(path, *more):
    names = [(b":path", path.encode()), (b":authority", b"x"), (b"te", b"trailers"), (b"content-type", b"application/grpc"), *more]
    return b"\x83\x86" + b"".join(literal(*each) for each in names)


def connect(d, receive_bytes=None):
    s = socket.socket()
    if receive_bytes:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    s.settimeout(60)
    s.connect(("127.0.0.1", d.grpc_port))
    s.sendall(PREFACE + frame(SETTINGS, 0, 0))
    return s


def half_open(s):
    s.sendall(b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, call_headers(WATCH)) for i in range(128)))


def much_metadata(s):
    block = call_headers(WATCH, (b"x-a", b"y" * 15_000))
    for i in range(128):
        s.sendall(frame(HEADERS, END_HEADERS, 2 * i + 1, block))


def rapid_reset(s):
    block = call_headers("/thermocline.v1.Inference/Generate")
    for stream in range(1, 200_000, 2000):
        s.sendall(b"".join(frame(HEADERS, END_HEADERS, i, block) + frame(RESET, 0, i, b"\0\0\0\x08") for i in range(stream, stream + 2000, 2)))


def endless_headers(s):
    s.sendall(frame(HEADERS, 0, 1, call_headers(WATCH)))
    block = frame(CONTINUATION, 0, 1, literal(b"a" * 100, b"b" * 100) * 78) * 8
    for _ in range((64 << 20) // len(block)):
        s.sendall(block)


def answer_of(s):
    """Bytes up to the end of the one call of a connection."""
    answer = b""
    while b"grpc-status" not in answer:
        piece = s.recv(65536)
        assert piece, answer
        answer += piece
    return answer


@pytest.fixture
def guarded(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text(f"ada:{hashlib.sha256(KEY.encode()).hexdigest()}\n")
    keys.chmod(0o600)
    with Daemon("grpc.address=127.0.0.1:0", f"server.api_keys_file={keys}", f"memory.budget_bytes={BUDGET_MIB << 20}", "metrics.require_key=false") as d:
        yield d


@pytest.mark.parametrize("attack, connections, most_mib", [(half_open, 150, BUDGET_MIB), (much_metadata, 150, BUDGET_MIB), (rapid_reset, 6, BUDGET_MIB),
                                                           # headers without an end come at the speed of memory, between two looks: that they are cut off is tested
                                                           (endless_headers, 6, 4 * BUDGET_MIB)])
def test_strangers_stay_within_the_budget_and_others_go_on(guarded, attack, connections, most_mib):
    d = guarded
    with channel(d) as c, contextlib.ExitStack() as stack:
        stub = stubs.InferenceStub(c)
        stream = stub.Generate(chat("Write an essay.", stop=pb.Stop(ignore_eos=True, max_tokens=100_000)), metadata=BEARER)
        next(stream)
        for _ in range(connections):
            with contextlib.suppress(OSError):  # it is shut
                attack(stack.enter_context(connect(d)))
        for _ in range(5):
            next(stream)
        stream.cancel()
        assert stub.CountTokens(pb.CountTokensRequest(text="owl"), metadata=BEARER, timeout=60).prompt_tokens > 0
        assert health_pb2_grpc.HealthStub(c).Check(health_pb2.HealthCheckRequest(), timeout=60).status == health_pb2.HealthCheckResponse.SERVING
        assert httpx.get(d.url + "/health/live", timeout=60).status_code == 200
        assert metric(d, "requests_rejected_total", reason="connections") > 0
        assert memory_mib(d, "VmHWM") < most_mib
        assert "docs/grpc.md#safety" in d.text() or wait_until(lambda: "docs/grpc.md#safety" in d.text(), 20) is None
    wait_until(lambda: memory_mib(d, "VmRSS") < BUDGET_MIB // 2, 60)  # it is given back


PING = 6


def zero_window(s):
    message = pb.GetModelRequest().SerializeToString()
    s.sendall(frame(SETTINGS, 0, 0, b"\0\4\0\0\0\0"))
    for i in range(120):
        s.sendall(frame(HEADERS, END_HEADERS, 2 * i + 1, with_key("GetModel")) + frame(DATA, END_STREAM, 2 * i + 1, b"\0" + struct.pack(">I", len(message)) + message))


def metadata_alone(s):
    block = with_key("Generate", (b"x-a", b"y" * 15_000))
    for i in range(120):
        s.sendall(frame(HEADERS, END_HEADERS, 2 * i + 1, block))


def pings_unread(s):
    message = pb.GetStatsRequest().SerializeToString()
    s.sendall(frame(HEADERS, END_HEADERS, 1, with_key("GetStats")) + frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(message)) + message))
    s.setblocking(False)
    for _ in range(50):
        with contextlib.suppress(BlockingIOError):
            s.send(frame(PING, 0, 0, b"12345678") * 4000)


def with_key(method, *more):
    return call_headers(f"/thermocline.v1.Inference/{method}", (b"authorization", f"Bearer {KEY}".encode()), *more)


@pytest.mark.parametrize("attack", [zero_window, metadata_alone, pings_unread])
def test_a_key_s_connections_stay_within_the_budget_and_leave_nothing(guarded, attack):
    """Calls whose answers could not be written held 255 MiB, calls without a message 331, pings 293; the heap was kept."""
    d = guarded
    with channel(d) as c, contextlib.ExitStack() as stack:
        stream = stubs.InferenceStub(c).Generate(chat("Write an essay.", stop=pb.Stop(ignore_eos=True, max_tokens=100_000)), metadata=BEARER)
        next(stream)
        for _ in range(100):
            with contextlib.suppress(OSError):  # it is shut
                attack(stack.enter_context(connect(d, receive_bytes=4096)))
        for _ in range(5):
            next(stream)
        stream.cancel()
        wait_until(lambda: metric(d, "requests_rejected_total", reason="connections") > 0, 20)
        assert memory_mib(d, "VmHWM") < BUDGET_MIB
    wait_until(lambda: memory_mib(d, "VmRSS") < BUDGET_MIB // 2, 60)


def test_a_call_without_a_key_is_refused_before_its_message_comes(guarded):
    with connect(guarded) as s:
        s.sendall(frame(HEADERS, END_HEADERS, 1, call_headers(TOKENIZE)))  # no message, no end
        assert b"authorization" in answer_of(s)


def test_a_connection_of_calls_is_never_shut(guarded):
    """Uploads above the limit of an unproven client, at once and one after the other, beside a long answer."""
    text = "Once upon a time there was an owl. " * 20_000  # 700 KB
    with channel(guarded, **{"grpc.max_receive_message_length": -1}) as c:
        stub = stubs.InferenceStub(c)
        first = stub.CountTokens(pb.CountTokensRequest(text=text), metadata=BEARER).prompt_tokens  # the first call of all
        stream = stub.Generate(chat("Write an essay.", stop=pb.Stop(ignore_eos=True, max_tokens=100_000)), metadata=BEARER)
        next(stream)
        for _ in range(10):
            calls = [stub.CountTokens.future(pb.CountTokensRequest(text=text), metadata=BEARER) for _ in range(4)]
            assert {call.result().prompt_tokens for call in calls} == {first}
        for _ in range(3000):
            stub.CountTokens(pb.CountTokensRequest(text="owl"), metadata=BEARER)
        next(stream)
        stream.cancel()
        assert read(stub.Generate(chat("Hello", stop=pb.Stop(max_tokens=3)), metadata=BEARER)).finished
    assert metric(guarded, "requests_rejected_total", reason="connections") == 0


def test_answers_that_nobody_reads_are_counted_and_end(tmp_path):
    """192 calls once took 748 MiB: neither the bytes of unread answers nor their time was limited."""
    message = pb.TokenizeRequest(text=". " * 5_000, with_pieces=True).SerializeToString()
    data = b"\0" + struct.pack(">I", len(message)) + message
    with Daemon("grpc.address=127.0.0.1:0", f"memory.budget_bytes={BUDGET_MIB << 20}", "server.write_timeout_s=4", "log.access=false") as d:
        with contextlib.ExitStack() as stack:
            for _ in range(80):
                s = stack.enter_context(connect(d, receive_bytes=4096))
                for i in range(6):
                    s.sendall(frame(HEADERS, END_HEADERS, 2 * i + 1, call_headers(TOKENIZE)) + frame(DATA, END_STREAM, 2 * i + 1, data))
            # connections that come faster than their calls make way
            wait_until(lambda: sum(metric(d, "requests_total", api=TOKENIZE, code=code) for code in ("200", "429")) > 240)
            assert metric(d, "requests_rejected_total", reason="request_memory") > 0
            assert memory_mib(d, "VmHWM") < BUDGET_MIB
            with channel(d) as c:  # the calls of those that read nothing have ended meanwhile
                wait_until(lambda: answers(c, ". " * 20_000), seconds=60)
        wait_until(lambda: memory_mib(d, "VmRSS") < BUDGET_MIB // 2, 60)


def answers(c, text):
    try:
        return len(stubs.InferenceStub(c).Tokenize(pb.TokenizeRequest(text=text, with_pieces=True), timeout=60).pieces) > 0
    except grpc.RpcError as error:
        assert error.code() == grpc.StatusCode.RESOURCE_EXHAUSTED
        return False


def test_connections_that_fall_silent_behind_a_call_make_way():
    """As many as there may be kept all others out until they had been idle for two minutes."""
    with Daemon("grpc.address=127.0.0.1:0", "server.connections_max=8") as d, contextlib.ExitStack() as stack:
        busy = stubs.InferenceStub(stack.enter_context(channel(d)))
        stream = busy.Generate(chat("Write an essay.", stop=pb.Stop(ignore_eos=True, max_tokens=100_000)))
        next(stream)
        for i in range(24):
            c = stack.enter_context(channel(d, **{"grpc.use_local_subchannel_pool": 1}))
            assert stubs.InferenceStub(c).CountTokens(pb.CountTokensRequest(text="owl"), timeout=60, wait_for_ready=True).prompt_tokens > 0
        for _ in range(5):
            next(stream)  # who is served keeps its place
        stream.cancel()


def test_one_key_s_calls_leave_places_for_another_s(tmp_path):
    """Connections of one key that made tiny calls all the time once displaced clients that called less often."""
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n" for name, key in (("ada", KEY), ("bob", KEY[::-1]))))
    keys.chmod(0o600)
    bob = [("authorization", "Bearer " + KEY[::-1])]
    call = lambda c, key: stubs.InferenceStub(c).CountTokens(pb.CountTokensRequest(text="owl"), metadata=key, timeout=60)
    with Daemon("grpc.address=127.0.0.1:0", f"server.api_keys_file={keys}", "server.connections_max=16") as d, contextlib.ExitStack() as stack:
        of_bob = [stack.enter_context(channel(d, **{"grpc.use_local_subchannel_pool": 1})) for _ in range(3)]
        for c in of_bob:
            assert call(c, bob).prompt_tokens > 0
        of_ada, refused = [stack.enter_context(channel(d, **{"grpc.use_local_subchannel_pool": 1})) for _ in range(16)], 0
        for _ in range(3):
            for c in of_ada:
                try:
                    call(c, BEARER)
                except grpc.RpcError as error:
                    refused += 1
                    assert error.code() in (grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.UNAVAILABLE), error
            for c in of_bob:
                assert call(c, bob).prompt_tokens > 0
        assert refused > 0


def test_streams_of_reflection_take_no_threads_and_end_in_silence():
    """gRPC's own service of v1alpha took one for each: 7,725."""
    with Daemon("grpc.address=127.0.0.1:0", "server.read_timeout_s=5") as d:
        threads = lambda: memory_count(d)
        before = threads()
        with contextlib.ExitStack() as stack:
            most = before
            for _ in range(60):
                s = stack.enter_context(connect(d))
                with contextlib.suppress(OSError):
                    s.sendall(b"".join(frame(HEADERS, END_HEADERS, 2 * i + 1, call_headers(REFLECTION)) for i in range(24)))
                most = max(most, threads())
            assert most - before < 24
        with connect(d) as s:  # asks nothing
            s.sendall(frame(HEADERS, END_HEADERS, 1, call_headers(REFLECTION)))
            assert b"silent" in answer_of(s)
        with channel(d) as c:
            assert stubs.InferenceStub(c).CountTokens(pb.CountTokensRequest(text="owl"), timeout=60).prompt_tokens > 0


def memory_count(d):
    return next(int(line.split()[1]) for line in open(f"/proc/{d.process.pid}/status") if line.startswith("Threads:"))
