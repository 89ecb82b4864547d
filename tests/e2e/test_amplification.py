"""A small request does not become a large one: a repeated reference is stored once, and texts are not joined repeatedly."""
import contextlib
import json
import socket
import subprocess
import time

import httpx
import pytest
from conftest import BIN, Daemon, wait_until
from test_request_memory import BUDGET, resident

TEXT = "d " * 50_000
TOOL = {"name": "a", "description": TEXT}
NAMED = {
    "allowed_tools": ("/v1/chat/completions", {"messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "function", "function": TOOL}],
                      "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [{"name": "a"}] * 2000}}}),
    "tool_references": ("/v1/messages/count_tokens", {"tools": [{**TOOL, "input_schema": {"type": "object"}, "defer_loading": True}],
                        "messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "tool_reference", "tool_name": "a"}] * 2000}]}]}),
    "rank_fields": ("/v1/rerank", {"query": "a", "rank_fields": ["a"] * 32, "documents": [{"a": TEXT}] * 8}),
    "arguments": ("/v1/chat/completions", {"messages": [{"role": "assistant", "content": "", "tool_calls": [
        {"id": "c", "type": "function", "function": {"name": "a", "arguments": "[" + "[]," * 300_000 + "[]]"}}]}]}),
}


@pytest.mark.parametrize("kind", NAMED)
def test_what_is_named_often_is_there_once(kind):
    """1.9 GiB, 1.0 GiB and 190 MiB were taken by the first three."""
    path, body = NAMED[kind]
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        before = resident(d, "VmHWM")
        answer = httpx.post(d.url + path, json=body, timeout=120)
        assert answer.status_code in (200, 400, 413), answer.text[:200]
        assert resident(d, "VmHWM") - before < 50 << 20


def test_a_tool_that_is_found_twice_is_told_by_its_name():
    tool = {"name": "weather", "description": "Tells the weather", "input_schema": {"type": "object"}, "defer_loading": True}
    found = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x", "content": [{"type": "tool_reference", "tool_name": "weather"}]}]}]
    with Daemon() as d:
        count = lambda messages: httpx.post(d.url + "/v1/messages/count_tokens", json={"tools": [tool], "messages": messages}, timeout=60).json()["input_tokens"]
        once, twice = count(found), count(found * 2)
        assert once < twice < 2 * once


MANY = {
    "results": lambda n: [{"role": "tool", "tool_call_id": "c", "content": "d " * 400}] * n,
    "users": lambda n: [{"role": "user", "content": "d " * 400}] * n,
    "systems": lambda n: [{"role": "system", "content": "d " * 400}] * n + [{"role": "user", "content": "hi"}],
}


@pytest.mark.parametrize("kind", MANY)
def test_messages_are_joined_in_time_that_grows_with_them(kind):
    """4,090 results of tools took 28 s, because each was added to a copy of those before it."""
    with Daemon("memory.budget_bytes=4GiB", "server.request_memory_mib=1024") as d:
        def seconds(n):
            body = json.dumps({"messages": MANY[kind](n), "max_tokens": 1})
            begin = time.monotonic()
            assert httpx.post(d.url + "/v1/chat/completions", content=body, timeout=300).status_code == 400  # longer than the context
            return time.monotonic() - begin
        few = min(seconds(400) for _ in range(3))
        assert min(seconds(4000) for _ in range(2)) < 30 * few


def test_unknown_members_of_many_blocks_hold_nobody_up():
    """Each was compared with every known name: 1.7 s without a turn for others."""
    blocks = [{"type": "text", "text": "x", **{f"unknownmember{i}x{k:05d}": 1 for k in range(900)}} for i in range(80)]
    body = json.dumps({"max_tokens": 1, "messages": [{"role": "user", "content": blocks}]})
    with Daemon("memory.budget_bytes=4GiB", "server.request_memory_mib=1024") as d:
        known = json.dumps({"max_tokens": 1, "messages": [{"role": "user", "content": [{"type": "text", "text": "x" * 900 * 24}] * 80}]})

        def seconds(content):
            begin = time.monotonic()
            assert httpx.post(d.url + "/v1/messages", content=content, timeout=300).status_code in (200, 400)
            return time.monotonic() - begin
        assert min(seconds(body) for _ in range(3)) < 10 * max(0.05, min(seconds(known) for _ in range(3)))


def test_silent_connections_make_way():
    """As many as there may be kept everybody out, probes too, until they had been idle for two minutes."""
    with Daemon("server.connections_max=32") as d:
        silent = [socket.create_connection(("127.0.0.1", d.port)) for _ in range(40)]
        for path in ("/health/live", "/v1/models"):
            assert httpx.get(d.url + path, timeout=20).status_code == 200
        # An answer in progress is not idle.
        body = {"messages": [{"role": "user", "content": "owl"}], "max_tokens": 400, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", d.url + "/v1/chat/completions", json=body, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            silent += [socket.create_connection(("127.0.0.1", d.port)) for _ in range(40)]
            assert "data: [DONE]" in list(lines)
        for client in silent:
            client.close()
        wait_until(lambda: httpx.get(d.url + "/health/live", timeout=20).status_code == 200)


CHAT_HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
STRANGERS = {
    "one byte": b"P",
    "a header": CHAT_HEAD,
    "half a body with a key": CHAT_HEAD + b"Authorization: Bearer alices-key-0123456789\r\nContent-Length: 9000\r\n\r\n{",
    "pages that nobody reads": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 200,
}


# Without keys nobody is a stranger: server.write_timeout_s bounds who does not read. A key does not help who never ends a body.
@pytest.mark.parametrize("keys, sent", [(False, "one byte"), (False, "a header"), (True, "one byte"), (True, "a header"), (True, "pages that nobody reads"), (True, "half a body with a key")])
def test_unfinished_connections_of_strangers_make_way(tmp_path, keys, sent):
    """One byte on each kept all others out for thirty seconds."""
    if keys:
        made = subprocess.run([BIN / "thermoclined", "--hash-key", "alice"], input=b"alices-key-0123456789\n", capture_output=True, check=True)
        (tmp_path / "keys").write_bytes(made.stdout)
    settings = [f"server.api_keys_file={tmp_path / 'keys'}"] if keys else []
    with Daemon("server.connections_max=32", *settings) as d, contextlib.ExitStack() as strangers:
        def flood():
            for _ in range(40):
                client = strangers.enter_context(socket.create_connection(("127.0.0.1", d.port)))
                client.setblocking(False)
                with contextlib.suppress(OSError):
                    client.send(STRANGERS[sent])
        flood()
        headers = {"authorization": "Bearer alices-key-0123456789"}
        for path in ("/health/live", "/v1/models"):
            assert httpx.get(d.url + path, headers=headers, timeout=20).status_code == 200
        body = {"messages": [{"role": "user", "content": "owl"}], "max_tokens": 400, "ignore_eos": True, "stream": True}
        with httpx.stream("POST", d.url + "/v1/chat/completions", json=body, headers=headers, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            flood()
            assert "data: [DONE]" in list(lines)


def test_slow_readers_of_one_key_leave_places_for_others(tmp_path):
    """Forty streams that were hardly read had all places: probes and other keys got 503."""
    from test_security import KEYS, key_line
    keys = tmp_path / "keys"
    keys.write_text("".join(map(key_line, KEYS)))
    keys.chmod(0o600)
    ada, bob = list(KEYS)[:2]
    body = json.dumps({"messages": [{"role": "user", "content": "owl"}], "max_tokens": 4000, "ignore_eos": True, "stream": True})
    request = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEYS[ada]}\r\nContent-Length: {len(body)}\r\n\r\n{body}"
    with Daemon("server.connections_max=16", f"server.api_keys_file={keys}") as d, contextlib.ExitStack() as stack:
        lines = []
        for _ in range(24):  # one after the other: more than 16 at a time would be turned away with 503
            client = stack.enter_context(socket.create_connection(("127.0.0.1", d.port), timeout=60))
            client.sendall(request.encode())
            lines.append(client.recv(64).split(b"\r\n")[0])
        assert sum(b" 200 " in line for line in lines) == 12 and sum(b" 429 " in line for line in lines) == 12, lines
        for path in ("/health/live", "/v1/models") * 5:
            assert httpx.get(d.url + path, headers={"authorization": f"Bearer {KEYS[bob]}"}, timeout=20).status_code == 200
