"""HTTP as it seldom is and as it should not be: odd requests, bodies, connections, prompts beyond the context."""
import json
import shutil
import socket
import subprocess
import time

import httpx
import pytest
from conftest import BIN, TIDEPOOL_FOLDER, Daemon, wait_until
from daemon_client import STORY, post, value


def test_every_answer_of_one_connection(daemon):
    with httpx.Client(base_url=daemon.url) as http:
        for _ in range(3):
            assert http.get("/v1/models").status_code == 200
            assert http.post("/v1/chat/completions", json={"messages": STORY, "max_tokens": 3}).status_code == 200
            with http.stream("POST", "/v1/chat/completions", json={"messages": STORY, "max_tokens": 3, "stream": True}) as response:
                assert response.read().endswith(b"data: [DONE]\n\n")
            assert http.head("/health/live").status_code == 200


@pytest.mark.parametrize("method,path,code", [("GET", "/nowhere", 404), ("POST", "/v1/models", 405), ("GET", "/v1/chat/completions", 405), ("DELETE", "/", 405), ("PUT", "/metrics", 405)])
def test_routes_there_are_not(daemon, method, path, code):
    response = httpx.request(method, daemon.url + path)
    assert response.status_code == code and response.json()["error"]["message"]
    if code == 405:
        assert response.headers["allow"]


def test_options_and_head(daemon):
    response = httpx.options(daemon.url + "/v1/chat/completions")
    assert response.status_code == 204 and "POST" in response.headers["allow"]
    assert httpx.head(daemon.url + "/v1/models").headers["content-type"] == "application/json"


@pytest.mark.parametrize("body,code,param", [
    (b"{", 400, None), (b"", 400, None), (b"[]", 400, None), (b'{"messages":[{"role":"user","content":"\xff"}]}', 400, None),
    ({"messages": []}, 400, "messages"), ({"messages": STORY, "temperature": "hot"}, 400, "temperature"), ({"messages": STORY, "max_tokens": -2}, 400, "max_tokens"),
    ({"messages": STORY, "max_tokens": 10**30}, 400, "max_tokens"), ({"messages": STORY, "model": "gpt-9"}, 404, None), ({"messages": STORY, "n": 9}, 400, "n"),
    ({"messages": STORY, "logit_bias": {"99999": 1}}, 400, None), (b"[" * 100000, 400, None),
])
def test_bad_bodies(daemon, body, code, param):
    response = post(daemon, body)
    assert response.status_code == code
    error = response.json()["error"]
    assert error["message"] and error["type"] == "invalid_request_error"
    assert param is None or error["param"] == param
    assert post(daemon, {"messages": STORY, "max_tokens": 1}).status_code == 200


def test_a_prompt_beyond_the_context_gives_both_numbers(daemon):
    response = post(daemon, {"messages": [{"role": "user", "content": "owl " * 2000}]})
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded" and error["param"] == "messages"
    assert error["n_ctx"] == 512 and error["n_prompt_tokens"] > 512
    assert "512" in error["message"] and str(error["n_prompt_tokens"]) in error["message"]


def test_what_the_template_refuses(daemon, tmp_path):
    assert post(daemon, {"messages": [{"role": "tool", "content": "x"}], "max_tokens": 1}).status_code == 200  # a role it has not is told in words
    folder = shutil.copytree(TIDEPOOL_FOLDER, tmp_path / "model")
    (folder / "chat_template.jinja").write_text("{% if messages[0].content == 'x' %}{{ raise_exception('Nothing of one letter') }}{% endif %}hi")
    with Daemon(f"model.path={folder}") as d:
        response = post(d, {"messages": [{"role": "user", "content": "x"}]})
        assert response.status_code == 400 and "Nothing of one letter" in response.json()["error"]["message"] and response.json()["error"]["param"] == "messages"
        assert post(d, {"messages": STORY, "max_tokens": 1}).status_code == 200


def test_a_large_body_is_refused(daemon):
    assert post(daemon, b" " * (5 << 20)).status_code == 413


def test_malformed_http_is_refused_and_the_daemon_goes_on(daemon):
    for raw, code in [(b"NONSENSE\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nX: " + b"a" * 50000 + b"\r\n\r\n", b"431"),
                      (b"POST /v1/chat/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n", b"400"),
                      (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"400"),
                      (b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"4")]:
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=10) as s:
            s.sendall(raw)
            assert s.recv(65536).split(b" ")[1].startswith(code), raw[:40]
    assert httpx.get(daemon.url + "/health/ready").status_code == 200


def test_expect_100_continue(daemon):
    body = json.dumps({"messages": STORY, "max_tokens": 1}).encode()
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=20) as s:
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        assert s.recv(100).startswith(b"HTTP/1.1 100")
        s.sendall(body)
        assert s.recv(65536).startswith(b"HTTP/1.1 200")


def test_request_ids(daemon):
    assert httpx.get(daemon.url + "/v1/models", headers={"x-request-id": "mine-1"}).headers["x-request-id"] == "mine-1"
    assert httpx.get(daemon.url + "/v1/models", headers={"x-request-id": "x" * 200}).headers["x-request-id"].startswith("req_")


def raw_request(daemon, data, before_then=None, then=b""):
    """Sends `data`, and `then` once `before_then()` returns; all that comes until the peer closes or falls silent."""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=5) as s:
        s.sendall(data)
        if then:
            before_then()
            s.sendall(then)
        out = b""
        try:
            while piece := s.recv(65536):
                out += piece
        except TimeoutError:
            pass
        return out


def chat_bytes(version=b"1.1", headers=b"", **extra):
    body = json.dumps({"messages": STORY, "temperature": 0, **extra}).encode()
    return b"POST /v1/chat/completions HTTP/%s\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n" % (version, headers, len(body)) + body


def test_bytes_sent_early_do_not_end_the_answer(smollm):
    next_request = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    with Daemon(f"model.path={smollm}") as d:
        for stream in (False, True):
            running = lambda: wait_until(lambda: value(d, "num_requests_running") == 1)
            request = chat_bytes(stream=stream, max_tokens=150, logit_bias={"2": -100})
            out = raw_request(d, request, before_then=running, then=next_request)
            assert out.count(b"HTTP/1.1 200 OK") == 2 and b'"live"' in out
            assert (b"data: [DONE]" in out) == stream and b'"finish_reason":"length"' in out


def test_http_1_0_gets_no_chunks(daemon):
    out = raw_request(daemon, chat_bytes(version=b"1.0", stream=True))
    head, _, body = out.partition(b"\r\n\r\n")
    assert b"chunked" not in head and b"Connection: close" in head
    assert body.startswith(b"data: {") and body.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("coding", [b"gzip", b"identity", b"chunked, identity", b"xchunked"])
def test_other_transfer_codings_are_refused(daemon, coding):
    hidden = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    out = raw_request(daemon, b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: %s\r\n\r\n" % coding + hidden)
    assert out.count(b"HTTP/1.1") == 1 and b" 400 " in out


@pytest.mark.parametrize("second", [b"gzip", b"chunked"])
def test_a_second_transfer_coding_is_refused(daemon, second):
    """An empty one before it hid it, and the bytes behind the header were answered as another request."""
    hidden = b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"
    for first in (b"", b"chunked"):
        head = b"POST /v1/models HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: %s\r\nTransfer-Encoding: %s\r\n\r\n"
        out = raw_request(daemon, head % (first, second) + hidden)
        assert out.count(b"HTTP/1.1") == 1 and b" 400 " in out


def test_extensions_of_chunks_are_bounded_in_all(daemon):
    """Chunks of one byte with 4 KB of an extension came as fast as they were sent, until the request's time was over."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunk = b"1;a=" + b"x" * 4000 + b"\r\n \r\n"
    assert b" 431 " in raw_request(daemon, head + 200 * chunk + b"0\r\n\r\n")
    assert b" 400 " in raw_request(daemon, head + 20 * chunk + b"0\r\n\r\n")  # a body of spaces is no JSON
    assert b" 400 " in raw_request(daemon, head + 100_000 * b"1\r\n \r\n" + b"0\r\n\r\n")


def test_absolute_targets(daemon):
    assert b'"live"' in raw_request(daemon, b"GET http://localhost/health/live HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")


def test_slow_requests_time_out():
    with Daemon("server.read_timeout_s=1", "server.idle_timeout_s=30") as d:
        began = time.monotonic()
        assert b" 408 " in raw_request(d, b"GET /health/live HTTP/1.1\r\nHos")
        assert b" 408 " in raw_request(d, b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 50\r\n\r\n{")
        assert time.monotonic() - began < 10
        assert httpx.get(d.url + "/health/ready").status_code == 200


def test_a_prompt_of_megabytes_is_refused_without_tokenizing_it(daemon):
    response = post(daemon, {"messages": [{"role": "user", "content": "owl " * 1_000_000}]})
    error = response.json()["error"]
    assert response.status_code == 400 and error["code"] == "context_length_exceeded" and "at least" in error["message"]


def test_pipelined_requests_are_paced(tmp_path):
    """Three connections of requests without a key kept both processors: a neighbour's tokens came six times as late."""
    count = 150
    request = b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"
    keys = tmp_path / "keys"
    hashed = subprocess.run([BIN / "thermoclined", "--hash-key", "alice"], input=b"a-key-of-some-length\n", capture_output=True, check=True)
    keys.write_bytes(hashed.stdout)
    with Daemon(f"server.api_keys_file={keys}", "log.access=false") as d, socket.create_connection(("127.0.0.1", d.port)) as s:
        s.settimeout(60)
        begin = time.monotonic()
        s.sendall(request * count)
        answers = b""
        while answers.count(b"HTTP/1.1 401") < count:
            answers += s.recv(1 << 16)
        assert time.monotonic() - begin >= count / 1000  # one a millisecond, at most
