"""A fleet behind HAProxy and Envoy when queues are full, keys are needed, or a request is unusual."""
import contextlib
import json
import socket
import subprocess

import httpx
from conftest import BIN, wait_until
from daemon_client import STORY, value
from fleet import both, fleet, Front, needs_envoy, needs_haproxy, who


# Full queues

@contextlib.contextmanager
def slow_fleet(model, count, kind):
    """Servers with a slower model, so that requests keep running: one request runs, one may wait."""
    settings = ("engine.ffn_mode=dense", "spec.mode=off", "engine.sequences_max=1", "engine.queue_capacity=1")
    with fleet(f"model.path={model}", *settings, count=count, kind=kind) as (front, daemons), contextlib.ExitStack() as stack:
        yield front, daemons, stack


def ask(stack, port):
    """A long answer, of which nothing is read."""
    s = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
    body = json.dumps({"messages": STORY, "stream": True, "max_tokens": 4000, "ignore_eos": True}).encode()
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def occupy(daemon, stack):
    ask(stack, daemon.port)
    wait_until(lambda: value(daemon, "num_requests_running") == 1)


def fill(daemon, stack):
    occupy(daemon, stack)
    ask(stack, daemon.port)
    wait_until(lambda: value(daemon, "num_requests_waiting") == 1)


@both
def test_a_full_queue_is_tried_elsewhere(smollm, kind):
    with slow_fleet(smollm, 3, kind) as (front, daemons, stack):
        for d in daemons[:2]:
            fill(d, stack)
        seen = []
        for i in range(9):
            answer = front.chat(STORY, {"x-session-id": f"session {i}", "x-request-id": f"full-{i}"}, max_tokens=2)
            assert answer.status_code == 200, (i, who(daemons, f"full-{i}"), answer.text)
            wait_until(lambda: (2, "200") in who(daemons, f"full-{i}"))
            seen.append(who(daemons, f"full-{i}"))
        assert any(status == "429" for places in seen for _, status in places), seen

        # None has room: the client is told, and when to come again.
        fill(daemons[2], stack)
        answer = front.chat(STORY, {"x-request-id": "too-much"}, max_tokens=2)
        assert answer.status_code == 429 and int(answer.headers["retry-after"]) > 0
        assert answer.json()["error"]["code"] == "queue_full"
        wait_until(lambda: {place for place, _ in who(daemons, "too-much")} == {0, 1, 2})


@both
def test_a_client_that_leaves_the_queue_takes_its_request_along(smollm, kind):
    with slow_fleet(smollm, 1, kind) as (front, daemons, stack):
        occupy(daemons[0], stack)
        with contextlib.ExitStack() as leaving:
            ask(leaving, front.port)
            wait_until(lambda: value(daemons[0], "num_requests_waiting") == 1)
        wait_until(lambda: value(daemons[0], "num_requests_waiting") == 0)


# The front itself

@both
def test_operators_routes_stay_behind_the_front(kind):
    with fleet(count=1, kind=kind) as (front, _):
        for path in ("/metrics", "/admin/requests", "/admin/drain", "//metrics", "/v1/../metrics", "/%6detrics", "/health/ready/../../metrics", "/v1/%2e%2e/admin/requests"):
            answer = raw_get(front, path)
            assert answer.startswith(b"HTTP/1.1 404 "), (path, answer)
        assert front.get("/v1/models").status_code == front.get("/").status_code == front.get("/openapi.json").status_code == 200
        assert httpx.post(front.url + "/tokenize", json={"content": "owl"}).status_code == 200


def raw_get(front, path):
    with socket.create_connection(("127.0.0.1", front.port), timeout=20) as s:
        s.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return s.recv(4096)


@needs_envoy
def test_a_header_names_the_conversation_for_envoy():
    with fleet(kind="envoy") as (front, daemons):
        homes = []
        for i in range(20):
            name = f"header-{i}"
            assert front.chat(STORY, {"x-session-id": f"session {i % 10}", "x-request-id": name}, max_tokens=1).status_code == 200
            wait_until(lambda: who(daemons, name))
            homes.append(who(daemons, name)[0][0])
        assert homes[:10] == homes[10:] and len(set(homes)) > 1, homes


@needs_haproxy
def test_daemons_with_keys(tmp_path):
    keys = tmp_path / "keys"
    line = subprocess.run([str(BIN / "thermoclined"), "--hash-key", "front"], input=b"secret-of-the-front\n", capture_output=True, check=True).stdout
    keys.write_bytes(line)
    client = {"authorization": "Bearer secret-of-the-front"}
    with fleet(f"server.api_keys_file={keys}", count=1, THERMOCLINE_HEALTH_KEY="secret-of-the-front") as (front, daemons):
        assert front.get("/health/ready").status_code == 200
        assert front.chat(STORY, max_tokens=1).status_code == 401
        assert front.chat(STORY, client, max_tokens=1).status_code == 200
        front.close()
        front = Front(daemons)  # its checks have no key: it takes the daemon for one that is not ready, and says so
        try:
            wait_until(lambda: front.get("/health/ready").status_code == 503)
            assert front.chat(STORY, client, max_tokens=1).status_code == 503
        finally:
            front.close()


@needs_haproxy
def test_a_body_larger_than_the_buffer_is_passed_on():
    with fleet(count=1) as (front, daemons):
        answer = front.chat([{"role": "user", "content": "x" * 400_000}], {"x-request-id": "large"})
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "context_length_exceeded"
        wait_until(lambda: who(daemons, "large") == [(0, "400")])
