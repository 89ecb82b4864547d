"""Work that ends early or never begins: clients that leave, a full queue, signals."""
import json
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
from conftest import Daemon, wait_until
from daemon_client import STORY, metrics, post, value


def open_stream(daemon, **extra):
    """A raw socket on which an answer has begun to stream; it does not end by itself."""
    body = json.dumps({"messages": STORY, "stream": True, "temperature": 1.5, "ignore_eos": True, **extra}).encode()
    s = socket.create_connection(("127.0.0.1", daemon.port), timeout=20)
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return s


def begun(s):
    """Reads until the answer has content: before that it may wait in the queue, though its header has arrived."""
    data = b""
    while not re.search(rb'"content":"[^"]', data):
        piece = s.recv(4096)
        assert piece, data
        data += piece
    return data


def test_a_client_that_leaves_stops_its_work(smollm):
    # A slower model, so that there is work left to stop.
    with Daemon(f"model.path={smollm}", "model.name=s") as d:
        for leave_after in (0, 1, 3):
            cancelled = sum(v for (name, _), v in metrics(d).items() if name.endswith("requests_cancelled_total"))
            s = open_stream(d)
            for _ in range(leave_after):
                assert s.recv(4096)
            s.close()
            wait_until(lambda: value(d, "num_requests_running") == 0)
            now = sum(v for (name, _), v in metrics(d).items() if name.endswith("requests_cancelled_total"))
            assert now == cancelled + 1
        assert post(d, {"messages": STORY, "max_tokens": 2}).status_code == 200


def test_a_full_queue_is_429_with_retry_after(smollm):
    with Daemon(f"model.path={smollm}", "engine.queue_capacity=1", "engine.sequences_max=1") as d:
        streams = [open_stream(d)]
        streams[0].recv(4096)
        streams.append(open_stream(d))
        wait_until(lambda: value(d, "num_requests_waiting") == 1)
        response = post(d, {"messages": STORY})
        assert response.status_code == 429
        assert 0 < int(response.headers["retry-after"]) <= 120 and int(response.headers["retry-after-ms"]) > 0
        assert response.json()["error"]["code"] == "queue_full"
        assert value(d, "requests_rejected_total", reason="queue_full") == 1
        for s in streams:
            s.close()
        wait_until(lambda: value(d, "num_requests_running") == 0 and value(d, "num_requests_waiting") == 0)
        assert post(d, {"messages": STORY, "max_tokens": 1}).status_code == 200


def read_all(s):
    data = b""
    while piece := s.recv(65536):
        data += piece
    return data


def test_sigterm_lets_streams_end_and_refuses_new_work(smollm):
    with Daemon(f"model.path={smollm}") as d:
        s = open_stream(d, max_tokens=200)
        data = begun(s)
        d.terminate()
        wait_until(lambda: "draining" in d.text())
        refused = post(d, {"messages": STORY})
        assert refused.status_code == 503 and "retry-after" in refused.headers
        for path, body in [("/tokenize", {"content": "a"}), ("/detokenize", {"tokens": [5]}), ("/apply-template", {"messages": STORY}), ("/v1/tokens/count", {"prompt": "a"})]:
            assert httpx.post(d.url + path, json=body).status_code == 503, path
        assert httpx.get(d.url + "/health/ready").status_code == 503
        assert httpx.get(d.url + "/health/live").status_code == 200
        while b"[DONE]" not in data:
            piece = s.recv(65536)
            assert piece, data[-300:]
            data += piece
        assert d.wait() == 0


def test_sigterm_cuts_off_at_the_drain_timeout(smollm):
    with Daemon(f"model.path={smollm}", "server.drain_timeout_s=1") as d:
        s = open_stream(d)
        begun(s)
        began = time.monotonic()
        d.terminate()
        data = read_all(s)
        assert b'"error"' in data and b"[DONE]" not in data  # not to be mistaken for success
        assert d.wait() == 0
        assert time.monotonic() - began < 10


def test_what_waits_in_the_queue_is_sent_elsewhere_by_a_drain(smollm):
    with Daemon(f"model.path={smollm}", "engine.sequences_max=1", "server.drain_timeout_s=60") as d, ThreadPoolExecutor(2) as pool:
        s = open_stream(d)
        begun(s)
        waiting = [pool.submit(post, d, {"messages": STORY, "max_tokens": 5, "n": n}) for n in (1, 2)]
        wait_until(lambda: metrics(d).get(("thermocline_num_requests_waiting", ()), 0) == 3)
        d.terminate()
        for answer in waiting:
            assert answer.result(20).status_code == 503 and float(answer.result().headers["retry-after"]) > 0
        assert d.process.poll() is None and b"error" not in s.recv(4096)  # what runs goes on
        d.terminate()
        assert d.wait(20) == 0
        s.close()


def test_a_second_signal_ends_whoever_sent_too_much_early(smollm):
    """Only the answer keeps that connection: no read is pending, and no data is written."""
    with Daemon(f"model.path={smollm}", "server.drain_timeout_s=60") as d, socket.create_connection(("127.0.0.1", d.port)) as s:
        body = json.dumps({"messages": STORY, "max_tokens": 4000, "ignore_eos": True}).encode()
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: value(d, "num_requests_running") == 1)
        s.setblocking(False)
        # Until it takes no more.
        wait_until(lambda: not select.select([], [s], [], 0.2)[1] or s.send(b"x" * 65536) == 0)
        d.terminate()
        wait_until(lambda: "draining" in d.text())
        d.terminate()
        assert d.wait(20) == 0


def test_a_second_signal_ends_at_once(smollm):
    with Daemon(f"model.path={smollm}", "server.drain_timeout_s=60") as d:
        s = open_stream(d)
        begun(s)
        d.terminate()
        wait_until(lambda: "draining" in d.text())
        d.terminate()
        assert d.wait(20) == 0
        s.close()
