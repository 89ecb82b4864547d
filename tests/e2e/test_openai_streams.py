"""Streams whose clients are slow, leave, or are cut off: nothing is lost that was not given up, and nobody else waits for them."""
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import Daemon, wait_until
from prometheus_client.parser import text_string_to_metric_families

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
# Some 2 KiB an event, so that few tokens fill the buffers of a socket.
WORDY = {"messages": STORY, "stream": True, "temperature": 0, "logprobs": True, "top_logprobs": 20, "ignore_eos": True, "max_tokens": 450}


def state(daemon):
    return httpx.get(daemon.url + "/v1/status").json()


def cancelled(daemon):
    counts = {}
    for family in text_string_to_metric_families(httpx.get(daemon.url + "/metrics").text):
        for s in family.samples:
            if s.name == "thermocline_requests_cancelled_total":  # of each phase, too
                counts[s.labels["cause"]] = counts.get(s.labels["cause"], 0) + s.value
    return counts


def open_stream(path, headers=b"", **fields):
    """A Unix socket, whose buffers do not grow, on which nothing is read yet."""
    body = json.dumps({**WORDY, **fields}).encode()
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(30)
    s.connect(str(path))
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%sContent-Length: %d\r\n\r\n" % (headers, len(body)) + body)
    return s


def read_all(s):
    data = b""
    while piece := s.recv(1 << 16):
        data += piece
    return data.decode()


def test_a_slow_reader_is_waited_for_and_holds_nobody_up(tmp_path):
    path = tmp_path / "s"
    with Daemon(f"server.unix_socket={path}", "engine.reader_buffer_tokens=16") as d:
        s = open_stream(path)
        wait_until(lambda: state(d)["paused"] == 1)
        for _ in range(3):
            assert httpx.post(d.url + "/v1/chat/completions", json={"messages": STORY, "max_tokens": 5}, timeout=20).status_code == 200
        assert state(d)["paused"] == 1
        text = read_all(s)
        assert text.count('"token":') > 450 and '"finish_reason":"length"' in text and "data: [DONE]" in text and '"error"' not in text
        wait_until(lambda: state(d)["running"] == state(d)["paused"] == 0)


def test_a_reader_that_does_not_come_back_is_given_up(tmp_path):
    path = tmp_path / "s"
    with Daemon(f"server.unix_socket={path}", "engine.reader_buffer_tokens=16", "engine.reader_timeout_s=1") as d:
        s = open_stream(path)
        wait_until(lambda: state(d)["paused"] == 1)
        wait_until(lambda: state(d)["running"] == 0)
        text = read_all(s)
        # Its buffers are full: closing is what tells it.
        assert "[DONE]" not in text and '"finish_reason":"' not in text
        wait_until(lambda: cancelled(d) == {"slow_reader": 1})


@pytest.mark.parametrize("read_first", [False, True])
def test_all_choices_of_a_client_that_leaves_end(smollm, tmp_path, read_first):
    path = tmp_path / "s"
    with Daemon(f"model.path={smollm}", "model.name=s", f"server.unix_socket={path}") as d:
        s = open_stream(path, n=4, max_tokens=1000)
        wait_until(lambda: state(d)["running"] + state(d)["waiting"] > 0)
        if read_first:
            assert s.recv(4096)
        s.close()
        wait_until(lambda: state(d)["running"] == 0 and state(d)["waiting"] == 0)
        wait_until(lambda: cancelled(d) == {"disconnect": 4})


def test_a_request_cancelled_by_its_id_says_so(smollm, tmp_path):
    admin = tmp_path / "a"
    with Daemon(f"model.path={smollm}", "model.name=s", f"server.admin_socket={admin}") as d:
        operator = httpx.Client(transport=httpx.HTTPTransport(uds=str(admin)), base_url="http://localhost")

        def cancel(name):
            wait_until(lambda: operator.post("/admin/cancel", json={"id": name}).status_code == 200)

        s = open_stream(admin, headers=b"x-request-id: mine\r\n", logprobs=False, top_logprobs=None, max_tokens=2000, n=2)
        assert s.recv(4096)
        cancel("mine")
        text = read_all(s)
        assert "[DONE]" not in text and '"code":"cancelled"' in text and '"cause":"api"' in text and text.count('"error"') == 1
        s = open_stream(admin, headers=b"x-request-id: whole\r\n", stream=False, logprobs=False, top_logprobs=None, max_tokens=2000)
        cancel("whole")
        text = read_all(s)
        assert text.startswith("HTTP/1.1 400 ") and '"cause":"api"' in text
        wait_until(lambda: state(d)["running"] == 0)


def test_an_error_of_one_prompt_refuses_them_all(daemon):
    response = httpx.post(daemon.url + "/v1/completions", json={"prompt": ["a", [5] * 600], "stream": True}, timeout=20)
    assert response.status_code == 400 and response.json()["error"]["code"] == "context_length_exceeded"
    wait_until(lambda: state(daemon)["running"] == 0 and state(daemon)["waiting"] == 0)
    assert state(daemon)["queue"]["prefill_tokens"] == 0


def test_a_stalled_write_counts_as_a_slow_reader(tmp_path):
    """Also where the connection's time is over when, or before, the engine's is."""
    path = tmp_path / "s"
    with Daemon(f"server.unix_socket={path}", "engine.reader_buffer_tokens=16", "engine.reader_timeout_s=3", "server.write_timeout_s=2") as d:
        s = open_stream(path)
        wait_until(lambda: state(d)["paused"] == 1)
        wait_until(lambda: state(d)["running"] == 0)
        wait_until(lambda: cancelled(d) == {"slow_reader": 1})
        s.close()


def test_a_reader_that_gets_on_is_not_cut_off():
    """Slower than a whole buffer in write_timeout_s; by TCP, which counts single bytes."""
    with Daemon("server.write_timeout_s=1", "server.write_bytes_per_s_min=1024") as d:
        body = json.dumps({**WORDY, "max_tokens": 400}).encode()
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(30)
        s.connect(("127.0.0.1", d.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        data, end = b"", time.monotonic() + 12
        while time.monotonic() < end:
            data += s.recv(4096)
            time.sleep(0.2)
        text = data.decode() + read_all(s)
        assert "data: [DONE]" in text and '"finish_reason":"length"' in text and cancelled(d) == {}


def test_a_reader_of_a_unix_socket_that_gets_on_is_not_cut_off(tmp_path):
    """Slower than any one write in write_timeout_s, for several times that; one that stops is cut off."""
    path = tmp_path / "s"
    with Daemon(f"server.unix_socket={path}", "server.write_timeout_s=1") as d:
        body = json.dumps({"content": "Once upon a time there was an owl. " * 3000, "with_pieces": True}).encode()

        def ask():
            s = socket.socket(socket.AF_UNIX)
            s.settimeout(30)
            s.connect(str(path))
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            return s

        with ask() as s:
            data, end = b"", time.monotonic() + 6
            while time.monotonic() < end:
                data += s.recv(512)
                time.sleep(0.1)
            head, _, answer = (data + read_all(s).encode()).partition(b"\r\n\r\n")
            assert b"Content-Length: %d\r\n" % len(answer) in head + b"\r\n" and len(answer) > 1 << 19 and json.loads(answer)["count"] > 20_000
        with ask() as s:
            s.recv(512)
            time.sleep(5)
            assert len(read_all(s)) < 1 << 19


def test_long_bodies_hold_up_neither_probes_nor_short_requests():
    """More of them than there are threads."""
    with Daemon() as d:
        content = "Once upon a time there was an owl. " * 60_000
        ask = lambda: httpx.post(d.url + "/tokenize", json={"content": content}, timeout=120)
        with ThreadPoolExecutor(6) as pool:
            long = [pool.submit(ask) for _ in range(6)]
            time.sleep(0.3)
            served, slowest = 0, 0.0
            while not all(f.done() for f in long):
                began = time.monotonic()
                assert httpx.get(d.url + "/health/live", timeout=30).status_code == 200
                assert httpx.post(d.url + "/v1/chat/completions", json={"messages": STORY, "max_tokens": 1}, timeout=30).status_code == 200
                slowest = max(slowest, time.monotonic() - began)
                served += 1
            assert served > 3 and slowest < 2, (served, slowest)
            assert {f.result().status_code for f in long} == {200} and len({f.result().json()["count"] for f in long}) == 1


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_is_heard_while_long_bodies_are_read(signals):
    """Running requests end, waiting ones are rejected: every request gets an answer and a line in the log."""
    with Daemon("server.drain_timeout_s=0") as d, ThreadPoolExecutor(8) as pool:
        prompt = "Once upon a time there was an owl. " * 60_000
        long = [pool.submit(httpx.post, d.url + "/v1/tokens/count", json={"prompt": prompt}, timeout=120) for _ in range(8)]
        wait_until(lambda: any(f.done() for f in long))  # others are begun, most wait
        for _ in range(signals):
            d.terminate()
            wait_until(lambda: "draining" in d.text(), 2)
        answers = [f.result() for f in long]
        assert d.wait(60) == 0
        refused = [a for a in answers if a.status_code != 200]
        assert len(refused) >= 3 and all(a.status_code == 503 and "retry-after" in a.headers for a in refused)
        lines = [line for line in d.log if "route=/v1/tokens/count" in line]
        assert sum("status=200" in line for line in lines) == 8 - len(refused) and sum("status=503" in line for line in lines) == len(refused)
