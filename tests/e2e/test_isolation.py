"""Whatever one client sends, the others go on: a neighbour asks all the while and must get its answer."""
import concurrent.futures
import contextlib
import json
import os
import socket
import ssl
import threading
import time
import uuid

import httpx
import pytest
from conftest import Daemon, wait_until
from daemon_client import STORY, value

CHAT = {"messages": STORY, "max_tokens": 8, "temperature": 0}
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
SECONDS = float(os.environ.get("THERMOCLINE_CHURN_S", 5))  # of connection churn: 60 in tests/long.sh


@pytest.fixture(scope="module")
def open_daemon():
    with Daemon("server.read_timeout_s=3", "server.connections_per_address_max=0", "server.connections_max=2000") as d:
        yield d


class Neighbour:
    """Asks again and again, and knows the answer."""

    def __init__(self, d):
        self.url, self.stop, self.wrong, self.took = d.url + "/v1/chat/completions", threading.Event(), [], []
        self.good = self.ask()
        self.thread = threading.Thread(target=self.run)

    def ask(self):
        response = httpx.post(self.url, json=CHAT, timeout=60)
        assert response.status_code == 200, response.text
        return response.json()["choices"][0]["message"]["content"]

    def run(self):
        while not self.stop.is_set():
            began = time.monotonic()
            try:
                if self.ask() != self.good:
                    self.wrong.append("another answer")
            except Exception as error:  # whatever it is, the neighbour was not served
                self.wrong.append(repr(error))
            self.took.append(time.monotonic() - began)
            self.stop.wait(0.01)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *unused):
        self.stop.set()
        self.thread.join()


@pytest.fixture
def neighbour(open_daemon):
    with Neighbour(open_daemon) as n:
        yield n
    assert not n.wrong, n.wrong[:3]
    assert n.took and max(n.took) < 60
    assert open_daemon.process.poll() is None
    wait_until(lambda: value(open_daemon, "num_requests_running") + value(open_daemon, "num_requests_waiting") == 0)


def post(d, body, path="/v1/chat/completions"):
    content = body if isinstance(body, (bytes, str)) else json.dumps(body)
    return httpx.post(d.url + path, content=content, headers={"content-type": "application/json"}, timeout=120)


def costly():
    """A pattern that takes long to compile, and differs from all others."""
    return {**CHAT, "guided_regex": uuid.uuid4().hex + "((x?y?){30}){30}((x?y?){30}){30}((x?y?){30}){30}z"}


def test_patterns_that_take_long_hold_up_no_one_without(open_daemon):
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        strangers = [pool.submit(post, open_daemon, costly()) for _ in range(24)]
        wait_until(lambda: any(s.done() for s in strangers))
        before = sum(s.done() for s in strangers)
        assert post(open_daemon, CHAT).status_code == 200
        assert sum(s.done() for s in strangers) - before <= 12  # it did not wait for its turn behind them
        assert {s.result().status_code for s in strangers} <= {200, 400}


def test_nothing_is_compiled_for_those_who_left(open_daemon):
    def compiled():
        return sum(value(open_daemon, "grammar_compiled_total", result=r) for r in ("ok", "refused"))

    before = compiled()
    strangers = [socket.create_connection(("127.0.0.1", open_daemon.port)) for _ in range(60)]
    for s in strangers:
        body = json.dumps(costly()).encode()
        s.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    for s in strangers:
        s.close()
    wait_until(lambda: value(open_daemon, "num_requests_waiting") == 0)  # their places are free again
    assert post(open_daemon, {**CHAT, "guided_regex": "[a-z]{3}"}).status_code == 200
    assert compiled() - before <= 30  # those that had begun


def test_grammars_keep_within_the_memory_budget():
    """Patterns that all differ: some are too large for a small budget, some have no room while others' answers run."""
    def large(i):
        items = {"type": "string", "pattern": "[a-f]{1,10}x?[0-9]{1,10}(a|b[c-f]{1,10})"}
        return {**CHAT, "max_tokens": 300, "structured_outputs": {"json": {"title": str(i), "type": "array", "minItems": 50, "items": items}}}

    with Daemon("memory.budget_bytes=124MiB") as d:  # of which bodies of requests have 24
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            too_large = [pool.submit(post, d, costly()) for _ in range(16)]
            asked = [pool.submit(post, d, large(i)) for i in range(48)]
        assert {a.result().status_code for a in too_large} == {400}
        assert {a.result().status_code for a in asked} == {200, 429}
        refused = next(a.result() for a in asked if a.result().status_code == 429)
        assert "grammar.memory_mib" in refused.json()["error"]["message"] and int(refused.headers["retry-after"]) > 0
        assert 0 < value(d, "grammar_memory_bytes") <= (124 << 20) / 16
        status = open(f"/proc/{d.process.pid}/status").read()
        assert int(status.split("VmHWM:")[1].split()[0]) << 10 <= 124 << 20
        assert post(d, large(100)).status_code == 200  # their memory came back
        wait_until(lambda: value(d, "grammar_memory_bytes") == value(d, "grammar_cache_bytes"))  # ended answers hold nothing


def with_schema(schema):
    return {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}


def exploding_schema():
    definitions = {f"d{i}": {"type": "object", "properties": {f"p{j}": {"$ref": f"#/$defs/d{i + 1}"} for j in range(12)}} for i in range(12)}
    return {"$defs": {**definitions, "d12": {"type": "string"}}, "$ref": "#/$defs/d0"}


BODIES = {
    "deep JSON": b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "deep objects": b'{"a":' * 20_000 + b"1" + b"}" * 20_000,
    "10,000 stop strings": {**CHAT, "stop": [f"stop {i}" for i in range(10_000)]},
    "a stop string of a megabyte": {**CHAT, "stop": "x" * 1_000_000},
    "a schema that explodes": with_schema(exploding_schema()),
    "a schema with a long alternative": with_schema({"anyOf": [{"const": f"word {i} " * 20} for i in range(3000)]}),
    "a schema with large bounds": with_schema({"type": "array", "items": {"type": "string", "minLength": 100_000, "maxLength": 10**9}, "minItems": 10**6}),
    "a catastrophic pattern": with_schema({"type": "string", "pattern": "^(([a-z]+)+)+[0-9]+(a|a?)+$" * 20}),
    "a pattern that is too deep": with_schema({"type": "string", "pattern": "(" * 50_000 + "a" + ")" * 50_000}),
    "a pattern of large counts": with_schema({"type": "string", "pattern": "((a{1000}){1000}){1000}"}),
    "a grammar that refers to itself": {**CHAT, "grammar": "root ::= root root | root"},
    "a grammar with many rules": {**CHAT, "grammar": "root ::= r0\n" + "\n".join(f"r{i} ::= r{i + 1} r{i + 1}" for i in range(2000)) + '\nr2000 ::= "a"'},
    "a huge logit_bias": {**CHAT, "logit_bias": {str(i): 1 for i in range(100_000)}},
    "n times max_tokens at the limit": {**CHAT, "n": 8, "max_tokens": 10**6, "temperature": 1},
    "a billion choices": {**CHAT, "n": 10**9},
    "a prompt of the longest body": {**CHAT, "messages": [{"role": "user", "content": "owl " * 900_000}]},
    "many messages": {**CHAT, "messages": STORY * 20_000},
    "many tools": {**CHAT, "tools": [{"type": "function", "function": {"name": f"f{i}", "parameters": {"type": "object"}}} for i in range(5000)]},
    "numbers beyond numbers": b'{"messages":[{"role":"user","content":"a"}],"temperature":' + b"9" * 100_000 + b"}",
    "keys again and again": b'{"messages":[{"role":"user","content":"a"}],' + b'"max_tokens":1,' * 50_000 + b'"stream":false}',
    "a string without an end": b'{"messages":[{"role":"user","content":"' + b"a" * 1_000_000,
    "ill-formed UTF-8": b'{"messages":[{"role":"user","content":"' + b"\xff\xfe\xc0\x80\xed\xa0\x80" * 1000 + b'"}]}',
}


@pytest.mark.parametrize("name", BODIES)
def test_bodies(open_daemon, neighbour, name):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for response in [f.result() for f in [pool.submit(post, open_daemon, BODIES[name]) for _ in range(3)]]:
            assert response.status_code in (200, 400, 413, 429), response.text[:300]
            if response.status_code != 200:
                assert response.json()["error"]["message"]


def test_the_longest_prompt_that_fits(open_daemon, neighbour):
    context = httpx.get(open_daemon.url + "/v1/status").json()["context_length"]
    tokens = post(open_daemon, {"content": "owl " * context}, "/tokenize").json()["tokens"]
    ask = lambda n: post(open_daemon, {"prompt": tokens[:n], "max_tokens": 4, "temperature": 0}, "/v1/completions")
    assert ask(context - 1).status_code == 200
    assert ask(context).status_code == 400


def connect(d):
    return socket.create_connection(("127.0.0.1", d.port), timeout=20)


def talk(d, data):
    """The bytes received until the daemon closes, or a few seconds pass."""
    with connect(d) as s:
        s.settimeout(8)
        out = b""
        try:
            s.sendall(data)
            while piece := s.recv(65536):
                out += piece
        except (ConnectionError, TimeoutError):
            pass
        return out


RAW = {
    "two lengths that differ": HEAD + b"Content-Length: 2\r\nContent-Length: 60\r\n\r\n{}GET /admin/requests HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "two lengths in one": HEAD + b"Content-Length: 2, 60\r\n\r\n{}",
    "length and chunks": HEAD + b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "chunks twice": HEAD + b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    "a coding that is none": HEAD + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a coding behind a tab": HEAD + b"Transfer-Encoding:\tchunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n",
    "a space before the colon": HEAD + b"Content-Length : 2\r\n\r\n{}",
    "a folded header": HEAD + b"X-A: b\r\n Content-Length: 2\r\n\r\n{}",
    "a negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "a length with a sign": HEAD + b"Content-Length: +2\r\n\r\n{}",
    "a length beyond numbers": HEAD + b"Content-Length: 18446744073709551618\r\n\r\n{}",
    "a negative chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
    "a chunk beyond numbers": HEAD + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n{}\r\n0\r\n\r\n",
    "a chunk in hexadecimal": HEAD + b"Transfer-Encoding: chunked\r\n\r\n0x2\r\n{}\r\n0\r\n\r\n",
    "a chunk size without an end": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 1_000_000,
    "a flood of headers": b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 100_000 + b"\r\n",
    "a header without an end": b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 5_000_000,
    "chunks in HTTP/1.0": HEAD.replace(b"HTTP/1.1", b"HTTP/1.0") + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "a bare line feed": b"GET /v1/models HTTP/1.1\nHost: localhost\n\n",
    "a zero byte": b"GET /v1/mod\0els HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + os.urandom(512),
    "noise": os.urandom(4096),
    "nothing": b"",
}


@pytest.mark.parametrize("name", RAW)
def test_framing(open_daemon, neighbour, name):
    """An error, and the connection ends: no request is smuggled. A folded header is a space (RFC 9112), and its rest is no request."""
    for _ in range(3):
        out = talk(open_daemon, RAW[name])
        assert b" 200 " not in out and out.count(b"HTTP/1.1 ") <= 1 + (name == "a folded header"), out
        assert not out or out[9:12] in (b"400", b"408", b"413", b"414", b"431", b"501", b"505"), out[:200]


def test_websockets_and_upgrades(open_daemon, neighbour):
    for protocol in (b"websocket", b"h2c", b"TLS/1.0"):
        out = talk(open_daemon, b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade, close\r\nUpgrade: " + protocol + b"\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n")
        assert out.startswith(b"HTTP/1.1 200") and b"101" not in out[:20]  # an upgrade may be left undone
    with pytest.raises((ssl.SSLError, ConnectionError)):
        ssl.create_default_context().wrap_socket(connect(open_daemon), server_hostname="localhost")


def test_many_small_chunks(open_daemon, neighbour):
    body = json.dumps(CHAT).encode()
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body + b" " * 50_000)
    out = talk(open_daemon, HEAD + b"Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
    assert out.startswith(b"HTTP/1.1 200")


def test_bodies_that_never_end_and_headers_that_never_come(open_daemon, neighbour):
    """300 connections, each of which sends a little: they are ended by their deadline, and hold nobody up."""
    held = [connect(open_daemon) for _ in range(300)]
    for i, s in enumerate(held):
        s.sendall((HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{\"a\"") if i % 2 else HEAD[: 5 + i % 60])
    for s in held:
        s.settimeout(60)
        with s, contextlib.suppress(ConnectionError):
            while s.recv(65536):
                pass


def test_connection_churn(open_daemon, neighbour):
    """Connections that come and go, most without a word: about 2,000 a second where the machine allows it."""
    end, made = time.monotonic() + SECONDS, [0] * 4

    def churn(at):
        while time.monotonic() < end:
            try:
                with connect(open_daemon) as s:
                    if made[at] % 3 == 0:
                        s.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"[: 10 + made[at] % 40])
                made[at] += 1
            except OSError:
                time.sleep(0.001)
            if sum(made) > 2000 * (SECONDS - (end - time.monotonic())) + 100:
                time.sleep(0.005)

    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        list(pool.map(churn, range(4)))
    assert sum(made) > 50 * SECONDS
    print(f"{sum(made) / SECONDS:.0f} connections a second")
