"""Answers that their clients do not read, or wait for longer than they may, beside requests for another model."""
import concurrent.futures
import contextlib
import socket
import struct
import time

import pytest

from conftest import Daemon, memory_mib, wait_until
from grpc_client import chat, metric, pb
from several_models import ask, begun, configuration, states, text_of, unread
from test_grpc_strangers import DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, call_headers, connect, frame


@pytest.fixture
def several(tmp_path, smollm):
    """Of tide and smol only one fits, with gRPC or without."""
    def start(budget_mib=460, **more):
        more["engine"] = {"context_length": 512, **more.get("engine", {})}
        return Daemon(config=configuration(tmp_path, smollm, budget_mib, **more))
    return start


def test_a_slow_reader_keeps_no_model_awake(several):
    """Eight pages that nobody read held the first model: no other could wake beside it."""
    with several() as d:
        assert text_of(ask(d, "tide"))
        with socket.socket() as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            slow.connect(("127.0.0.1", d.port))
            slow.sendall(8 * b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            time.sleep(1)
            assert text_of(ask(d, "smol"))


@pytest.mark.parametrize("stream", [False, True])
def test_a_slow_reader_of_an_answer_that_is_made_keeps_no_model_awake(several, stream):
    """The answer held its model until its last byte had been sent, or till it was given up, and another client got 503."""
    with several(server={"write_timeout_s": 120}) as d, unread(d, "smol", max_tokens=100, stream=stream) as slow:
        assert text_of(ask(d, "tide"))
        received = b""
        while not received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n" if stream else b"}\n"):  # nothing of it is lost
            received += slow.recv(1 << 20)
        slow.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")  # the connection goes on
        assert slow.recv(15, socket.MSG_WAITALL) == b"HTTP/1.1 200 OK"


def test_a_stream_that_is_not_read_is_given_up_while_others_wait_for_its_memory(several):
    """It was paused, and held its model for all of engine.reader_timeout_s and server.write_timeout_s."""
    with several(engine={"reader_buffer_tokens": 16}, server={"write_timeout_s": 120}) as d, unread(d, "smol"):
        wait_until(lambda: metric(d, "num_requests_paused", model="smol") == 8)
        assert text_of(ask(d, "tide"))
        assert metric(d, "requests_cancelled_total", cause="slow_reader") == 8


def test_a_stream_that_is_read_steadily_is_not_given_up(several):
    """A batch of several MB took its client longer than the time for which one that does not read is waited for."""
    with several(engine={"reader_buffer_tokens": 16}) as d, concurrent.futures.ThreadPoolExecutor(1) as pool, unread(d, "smol", max_tokens=250) as slow:
        waiting = pool.submit(ask, d, "tide")
        received = b""
        while part := slow.recv(16 << 10):
            received = received[-100:] + part
            if received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"):
                break
            time.sleep(0.05)  # 300 KB/s at most
        assert received.endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n"), received
        assert waiting.result().status_code in (200, 503)  # an answer that is read may last longer than others wait


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_finds_no_room_is_given_up_while_others_wait_for_its_memory(several, stream):
    """Its client's other answers, read slowly, held its half of the memory for answers: the model was held until there was room."""
    with several(350, server={"request_memory_mib": 2, "body_bytes_max": 1 << 20, "write_timeout_s": 120}) as d, unread(d, "tide", max_tokens=480, stream=False):  # of 6 MB
        with unread(d, "smol", max_tokens=100, stream=stream, wait=stream):
            for running in (8, 0):
                wait_until(lambda: metric(d, "num_requests_running", model="smol") == running)  # noqa: B023
            assert text_of(ask(d, "tide"))


def test_what_a_stream_repeats_is_counted_until_it_is_read(tmp_path):
    """Only until the answer was made: 120 streams whose request was repeated in their events took 350 MiB of a budget of 128 MiB."""
    body = {"input": "x", "messages": None, "ignore_eos": None, "max_output_tokens": 1, "metadata": {"note": "x " * 450_000}}
    with Daemon("memory.budget_bytes=134217728") as d, contextlib.ExitStack() as stack:
        for _ in range(120):
            with contextlib.suppress(AssertionError):  # 429: the client is to read the others first
                stack.enter_context(begun(d, body, path="/v1/responses", SO_RCVBUF=4096))
        assert memory_mib(d, "VmHWM") < 128


@pytest.mark.parametrize("method, message", [("GetModel", pb.GetModelRequest(model="smol")), ("Tokenize", pb.TokenizeRequest(model="smol", text="owl")),
                                             ("Generate", chat("owl", model="smol", stop=pb.Stop(max_tokens=40)))])
def test_a_grpc_answer_that_is_not_taken_keeps_no_model_awake(several, method, message):
    """The model was held until the call ended, which a client that takes nothing decides."""
    with several(grpc={"address": "127.0.0.1:0"}) as d:
        assert text_of(ask(d, "smol"))
        with connect(d) as s:
            s.sendall(frame(SETTINGS, 0, 0, struct.pack(">HI", 4, 0)))  # a window of no bytes
            body = message.SerializeToString()
            s.sendall(frame(HEADERS, END_HEADERS, 1, call_headers(f"/thermocline.v1.Inference/{method}")))
            s.sendall(frame(DATA, END_STREAM, 1, b"\0" + struct.pack(">I", len(body)) + body))
            wait_until(lambda: f"/{method}" in d.text())  # the answer is made
            assert text_of(ask(d, "tide"))
            assert states(d)["smol"] == "sleeping"


def test_the_time_of_a_request_counts_while_its_model_waits_for_room(tmp_path, smollm):
    """It waited 30 s for the memory of a busy model, whatever its limit, and was refused then."""
    config = configuration(tmp_path, smollm, 420, engine={"context_length": 512, "reader_buffer_tokens": 16}, server={"request_timeout_s": 100})
    with Daemon(config=config) as d, unread(d, "smol"):
        config.write_text(config.read_text().replace("request_timeout_s: 100", "request_timeout_s: 2"))
        assert d.admin.post("/admin/reload", headers={"content-type": "application/json"}).status_code == 200
        answer = ask(d, "tide")
        assert answer.status_code == 504 and "the time that the request may take is over" in answer.text
