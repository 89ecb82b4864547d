"""Small attacks on a daemon that unknown clients can reach, and starts on a machine that lacks resources."""
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import threading
import time

import httpx
import pytest
from conftest import BIN, ROOT, Daemon, wait_until
from daemon_client import value

sys.path.insert(0, str(ROOT / "tests/faults"))
from faults import Faults  # noqa: E402


def test_who_sends_much_early_and_leaves_is_seen_to_leave(smollm):
    """64 KiB behind the request were read no further, so that its end was not seen either."""
    with Daemon(f"model.path={smollm}") as d, socket.create_connection(("127.0.0.1", d.port)) as s:
        body = json.dumps({"prompt": "Once", "n_predict": 8000, "ignore_eos": True}).encode()
        s.sendall(b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
        wait_until(lambda: value(d, "num_requests_running") == 1, 20)
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Much: " + b"x" * (70 << 10))
        s.close()
        wait_until(lambda: value(d, "num_requests_running") == 0, 5)
        assert value(d, "requests_cancelled_total", phase="decode", cause="disconnect") == 1


def test_of_two_daemons_on_a_socket_left_behind_one_lives(tmp_path):
    path = tmp_path / "s"
    for _ in range(4):
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
        started = [subprocess.Popen([BIN / "thermoclined", "--set", "server.host=", "--set", f"server.unix_socket={path}"], stderr=subprocess.PIPE) for _ in range(2)]
        try:
            wait_until(lambda: any(p.poll() is not None for p in started), 30)
            ended = next(p for p in started if p.poll() is not None)
            alive = next(p for p in started if p is not ended)
            assert ended.returncode == 1 and b"another process does" in ended.stderr.read()
            with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://local") as client:
                wait_until(lambda: client.get("/health").status_code == 200, 60)
            assert alive.poll() is None
        finally:
            for p in started:
                p.terminate()
                p.wait(timeout=20)
                p.stderr.close()
        assert list(tmp_path.iterdir()) == []


def test_a_busy_socket_of_another_does_not_hold_the_start_up(tmp_path):
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as busy:
        busy.bind(path)
        busy.listen(0)
        waiting = []
        for _ in range(3):  # the backlog is full
            s = socket.socket(socket.AF_UNIX)
            s.setblocking(False)
            s.connect_ex(path)
            waiting.append(s)
        began = time.monotonic()
        out = subprocess.run([BIN / "thermoclined", "--set", "server.host=", "--set", f"server.unix_socket={path}"], capture_output=True, text=True, timeout=30)
        assert out.returncode == 1 and "another process does" in out.stderr and time.monotonic() - began < 20
        for s in waiting:
            s.close()


def told(command, **how):
    """The exit and the log of a daemon that lacks a resource; one that can do without it runs until it is terminated."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how)
    ask = threading.Timer(4, process.terminate)
    ask.start()
    try:
        said = process.communicate(timeout=60)[1]
    finally:
        ask.cancel()
        process.kill()
        process.wait()
    return process.returncode, said


@pytest.mark.parametrize("limit,most", [(resource.RLIMIT_NOFILE, 6), (resource.RLIMIT_NOFILE, 12), (resource.RLIMIT_NOFILE, 20)])
def test_a_machine_without_descriptors_is_told_and_not_aborted(limit, most):
    status, said = told([BIN / "thermoclined", "--set", "server.port=0"], preexec_fn=lambda: resource.setrlimit(limit, (most, most)))
    assert status in (0, 1, 78) and said.strip(), (status, said)


@pytest.mark.parametrize("failing", range(12))
def test_a_machine_without_threads_is_told_and_not_aborted(failing):
    faults = Faults(BIN.parent / "tests/libfaults.so", threads_left=failing)
    status, said = told([BIN / "thermoclined", "--set", "server.port=0", "--set", "engine.threads=2"], env=faults.env)
    assert status in (0, 1, 78) and said.strip(), (status, said)


def test_a_file_whose_name_is_no_utf_8_is_served(tmp_path):
    name = os.fsencode(tmp_path) + b"/caf\xe9.gguf"
    shutil.copy(ROOT / "config/models/tidepool.gguf", name)
    process = subprocess.Popen([BIN / "thermoclined", "--set", "server.host=", "--set", f"server.unix_socket={tmp_path}/s", "--set", b"model.path=" + name], stderr=subprocess.DEVNULL)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=f"{tmp_path}/s"), base_url="http://local", timeout=20) as client:
            wait_until(lambda: os.path.exists(f"{tmp_path}/s"), 20)
            wait_until(lambda: client.get("/health").status_code == 200, 60)
            for path in ("/metrics", "/v1/models", "/v1/status", "/props", "/api/tags"):
                answer = client.get(path)
                assert answer.status_code == 200 and "caf" in answer.content.decode("utf-8", "strict"), path
    finally:
        process.terminate()
        process.wait(timeout=20)


def test_no_route_tells_where_the_model_lies(tmp_path):
    folder = tmp_path / "a-secret-folder"
    folder.mkdir()
    shutil.copy(ROOT / "config/models/tidepool.gguf", folder)
    with Daemon(f"model.path={folder}/tidepool.gguf") as d:
        for path in ("/props", "/v1/models", "/models", "/api/tags", "/api/ps", "/slots", "/metrics", "/v1/status", "/version", "/api/version"):
            assert "a-secret-folder" not in httpx.get(d.url + path).text, path
        assert "a-secret-folder" not in httpx.post(d.url + "/api/show", json={"model": "tidepool"}).text
        assert httpx.get(d.url + "/props").json()["model_path"] == "tidepool.gguf"


@pytest.mark.parametrize("unix", [False, True])
@pytest.mark.parametrize("rate,whole", [(1 << 20, False), (0, True)])
def test_who_reads_a_whole_answer_too_slowly_is_cut_off(tmp_path, unix, rate, whole):
    """A few bytes within each server.write_timeout_s held megabytes for an hour."""
    path = str(tmp_path / "s")
    body = json.dumps({"content": "Once upon a time there was an owl. " * 6000, "with_pieces": True}).encode()
    with Daemon(f"server.unix_socket={path}", "server.write_timeout_s=1", f"server.write_bytes_per_s_min={rate}") as d:
        with socket.socket(socket.AF_UNIX if unix else socket.AF_INET) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            s.settimeout(60)
            s.connect(path if unix else ("127.0.0.1", d.port))
            s.sendall(b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            data, end = b"", time.monotonic() + (4 if whole else 15)
            try:
                while (piece := s.recv(2048)):
                    data += piece
                    if time.monotonic() < end:
                        time.sleep(0.05)  # a slow reader
            except ConnectionResetError:
                pass
        head, _, answer = data.partition(b"\r\n\r\n")
        length = int(head.split(b"Content-Length: ")[1].split(b"\r\n")[0])
        assert length > 1 << 20 and (len(answer) == length) == whole, (len(answer), length)
        assert httpx.get(d.url + "/health").status_code == 200
