"""F01, llama.cpp #27783: nothing goes on being tokenized for a client that has left, or behind SIGTERM."""
import json
import signal
import socket
import time

import httpx
import pytest
from conftest import Daemon, wait_until

# Elsewhere texts that cannot fit the context are refused by their length.
BODIES = {
    "/tokenize": lambda text: {"content": text},
    "/api/embed": lambda text: {"model": "", "input": text},  # which cuts it to the context
}


def send(daemon, path, body):
    """On a connection that stays open."""
    client = socket.create_connection(("127.0.0.1", daemon.port))
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    client.sendall(head.encode() + body)
    return client


def seconds(call):
    begin = time.monotonic()
    call()
    return time.monotonic() - begin


@pytest.mark.parametrize("path", BODIES)
def test_F01_the_work_stops_when_nobody_waits_for_it(smollm, path):
    body = json.dumps(BODIES[path](" " * 6_000_000 + "1")).encode()
    with Daemon(f"model.path={smollm}", "server.body_bytes_max=9000000", "server.request_memory_mib=4096", "server.drain_timeout_s=1", "engine.context_length=256") as d:
        whole_s = seconds(lambda: httpx.post(d.url + path, content=body, headers={"content-type": "application/json"}, timeout=300))

        def leave():
            clients = [send(d, path, body) for _ in range(4)]  # more than there are workers for long ones
            for client in clients:
                client.close()
            wait_until(lambda: d.text().count("status=499") == 4, 300)

        assert seconds(leave) < whole_s, whole_s  # to their end they would take twice that
        with send(d, path, body):
            d.process.send_signal(signal.SIGTERM)
            assert seconds(lambda: d.process.wait(300)) < 1 + whole_s / 2 and d.process.returncode == 0
