"""Faults around the program: memory, files, the disk, the clock, descriptors, signals, delayed threads. Injected by tests/faults."""
import errno
import itertools
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from conftest import BIN, ROOT, STORIES, THERMOCLINE, Daemon, run, wait_until
from daemon_client import STORY, value

sys.path.insert(0, str(ROOT / "tests/faults"))
from faults import Faults  # noqa: E402

LIBRARY = BIN.parent / "tests/libfaults.so"
TEXT = ROOT / "tests/data/wizard_of_oz.txt"
CHAT = {"messages": STORY, "max_tokens": 3, "temperature": 0}


def with_schema(n):
    """Another one each time, so that it is compiled; the same answer."""
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "description": str(n)}
    return {**CHAT, "max_tokens": 12, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}


REQUESTS = {
    "chat": ("/v1/chat/completions", CHAT),
    "schema": ("/v1/chat/completions", with_schema),
    "completion": ("/v1/completions", {"prompt": ["An owl", "A fox"], "max_tokens": 2, "temperature": 0, "logprobs": 2, "n": 2}),
    "messages": ("/v1/messages", {"messages": STORY, "max_tokens": 3, "temperature": 0, "system": "Be kind."}),
    "responses": ("/v1/responses", {"input": "An owl", "max_output_tokens": 3, "temperature": 0}),
    "ollama": ("/api/chat", {"messages": STORY, "stream": False, "options": {"num_predict": 3, "temperature": 0}}),
    "tokenize": ("/tokenize", {"content": "An owl lives here."}),
}
ASK = ["-p", "Once upon a time", "-n", 12, "--temperature", 0]


@pytest.fixture
def faults():
    return Faults(LIBRARY)


def started(**kwargs):
    """A daemon that has logged all of its start."""
    d = Daemon(**kwargs)
    wait_until(lambda: "predictors: " in d.text())
    return d


def texts(body):
    """The answer without the parts that differ from one to the next."""
    if isinstance(body, dict):
        return {k: texts(v) for k, v in body.items() if k not in ("id", "created", "created_at", "completed_at", "timings", "usage", "thermocline", "metrics") and not k.endswith("duration")}
    return [texts(v) for v in body] if isinstance(body, list) else body


@pytest.mark.parametrize("name", REQUESTS)
def test_each_allocation_of_a_request_fails_once(faults, name):
    """The client gets an error or a closed connection; the next one gets the right answer, and no resources stay held."""
    path, asked = REQUESTS[name]
    answered = failed = n = 0
    stride = 3 if callable(asked) else 1  # to compile takes many
    with started(env=faults.env) as d:
        http = httpx.Client(transport=httpx.HTTPTransport(uds=d.admin_socket), base_url="http://admin", timeout=60)
        body = asked("first") if callable(asked) else asked
        good = [texts(http.post(path, json=body).json()) for _ in range(2)][-1]
        for n in itertools.count(0, stride):
            faults.allocation_fails_in = n
            try:
                response = http.post(path, json=asked(n) if callable(asked) else asked)
                assert response.status_code in (200, 500, 503), (n, response.text)
                failed += response.status_code != 200
                answered += response.status_code == 200
                assert response.status_code != 200 or texts(response.json()) == good, n
            except (httpx.RemoteProtocolError, httpx.ReadError):
                failed += 1
            met = faults.allocation_fails_in < 0
            faults.none()
            assert d.process.poll() is None, f"ended by the failure of allocation {n}"
            if not met:
                assert response.status_code == 200, (n, response.text, d.text()[-1500:])
                break
        print(f"{name}: {failed} failed, {answered} answered, of {n} allocations, one in {stride}")
        assert failed > 20, (failed, answered)
        assert texts(http.post(path, json=body).json()) == good
        wait_until(lambda: b"thermocline_num_requests_running 0" in http.get("/metrics").content)
        http.close()


def test_each_allocation_of_a_connection_fails_once(faults):
    with started(env=faults.env) as d:
        failed = 0
        for n in range(400):
            faults.allocation_fails_in = n
            try:
                failed += httpx.get(d.url + "/health/live").status_code != 200
            except httpx.HTTPError:
                failed += 1
            met = faults.allocation_fails_in < 0
            faults.none()
            assert d.process.poll() is None, f"ended by the failure of allocation {n}: {d.text()}"
            wait_until(lambda: d.admin.get("/health/live").status_code == 200, 20)
            if not met:
                break
        print(f"connection: {failed} failed, of {n} allocations")
        assert failed > 5 and d.process.poll() is None


def test_each_read_of_a_file_fails_once(faults, tmp_path):
    """During loading: an error that names the file, never a crash or a wrong answer."""
    model = shutil.copy(ROOT / "config/models/tidepool.gguf", tmp_path / "model.gguf")
    good = run("run", model, *ASK).stdout
    reads = set()
    faults.read_errno = errno.EIO
    for n in range(2000):
        faults.read_fails_in = n
        result = subprocess.run([THERMOCLINE, "run", str(model), *map(str, ASK)], env=faults.env, capture_output=True, timeout=60)
        assert result.returncode in (0, 1), (n, result.stderr)
        assert result.returncode == 1 or result.stdout == good
        reads.add(result.returncode)
        if faults.read_fails_in >= 0:
            break
        if result.returncode == 1:
            assert b"Input/output error" in result.stderr, result.stderr
    print(f"reads: {n}")
    assert reads == {0, 1}


@pytest.mark.parametrize("faulty", [{"read_bytes_max": 1000}, {"interrupt_every": 2}, {"read_bytes_max": 4096, "interrupt_every": 3}, {"wake_delay_us": 3000}])
def test_short_and_interrupted_reads_and_late_threads_change_nothing(faults, tmp_path, faulty):
    good = run("run", STORIES, *ASK).stdout
    for name, setting in faulty.items():
        setattr(faults, name, setting)
    result = subprocess.run([THERMOCLINE, "run", STORIES, *map(str, ASK), "--threads", "4"], env=faults.env, capture_output=True, timeout=120)
    assert result.returncode == 0 and result.stdout == good
    out = tmp_path / "copy.gguf"
    subprocess.run([THERMOCLINE, "convert", STORIES, str(out)], env=faults.env, check=True, capture_output=True, timeout=120)
    assert run("run", out, *ASK).stdout == good


WRITERS = {
    "convert": lambda model, out: (["convert", model, out], out),
    "pack": lambda model, out: (["pack", model, "--out", out], out),
    "calibrate": lambda model, out: (["calibrate", model, "--kind", "rows", "--text", TEXT, "--tokens", 300, "--window", 64, "--side-car", out], out),
    "profile": lambda model, out: (["profile", model, "--text", TEXT, "--tokens", 300, "--window", 64, "--side-car", out], out),
}


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.parametrize("fault", [errno.ENOSPC, errno.EIO])
def test_a_full_or_broken_disk_leaves_the_old_file(faults, tmp_path, name, fault):
    folder = tmp_path / "out"
    folder.mkdir()
    command, out = WRITERS[name](ROOT / "config/models/tidepool.gguf", folder / "file")
    run(*command)
    old, names = Path(out).read_bytes(), sorted(os.listdir(folder))
    for share in (0, 0.001, 0.5, 0.999):
        faults.write_bytes_left, faults.write_errno = int(share * len(old)), fault
        result = subprocess.run([THERMOCLINE, *map(str, command)], env=faults.env, capture_output=True, timeout=120)
        assert result.returncode == 1, (share, result.stdout)
        assert os.strerror(fault).encode() in result.stderr and b"file" in result.stderr, result.stderr
        assert Path(out).read_bytes() == old
        for part in folder.glob("*.part*"):  # the next one would go on with it
            part.unlink()
    faults.none()
    assert sorted(os.listdir(folder)) == names


@pytest.mark.parametrize("name", WRITERS)
def test_killed_while_writing(tmp_path, name):
    """SIGKILL at any moment: the old file, whole, or the new one. THERMOCLINE_KILLS: rounds, 200 in tests/long.sh."""
    rounds = int(os.environ.get("THERMOCLINE_KILLS", 12))
    folder = tmp_path / "out"
    folder.mkdir()
    command, out = WRITERS[name](ROOT / "config/models/tidepool.gguf", folder / "file")
    run(*command)
    whole = Path(out).read_bytes()
    began = time.monotonic()
    run(*command)
    takes = time.monotonic() - began
    chance = random.Random(7)
    for _ in range(rounds):
        process = subprocess.Popen([THERMOCLINE, *map(str, command)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(chance.uniform(0, 1.1 * takes))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        assert Path(out).read_bytes() == whole  # the work is the same each time
    run(*command)
    assert Path(out).read_bytes() == whole


def test_a_model_that_is_cut_short_while_it_is_served(tmp_path):
    model = Path(shutil.copy(ROOT / "config/models/tidepool.gguf", tmp_path / "model.gguf"))
    with Daemon(f"model.path={model}") as d:
        ask = lambda: httpx.post(d.url + "/v1/chat/completions", json={**CHAT, "max_tokens": 20}, timeout=60).json()["choices"][0]["message"]["content"]
        good = ask()
        os.truncate(model, 4096)
        assert ask() == good


def test_a_clock_that_jumps(faults):
    """Deadlines and durations are of a clock that does not."""
    with Daemon(env=faults.env) as d:
        ask = lambda: httpx.post(d.url + "/v1/chat/completions", json={**CHAT, "max_tokens": 40}, timeout=60)
        good = ask().json()["choices"][0]["message"]["content"]
        for hours in (24, -24, 24 * 365 * 20, -24 * 365 * 20):
            with httpx.stream("POST", d.url + "/v1/chat/completions", json={**CHAT, "max_tokens": 40, "stream": True}, timeout=60) as stream:
                lines = stream.iter_lines()
                next(lines)
                faults.clock_offset_ns = hours * 3600 * 10**9
                assert "[DONE]" in "".join(lines)
            assert ask().json()["choices"][0]["message"]["content"] == good
            assert httpx.get(d.url + "/health/ready").status_code == 200
        assert 0 <= value(d, "e2e_request_latency_seconds_sum") < 60


def test_a_signal_in_the_first_moments_ends_it():
    for ms in range(0, 42, 2):
        process = subprocess.Popen([str(BIN / "thermoclined"), "--set", "server.port=0"], stderr=subprocess.DEVNULL)
        time.sleep(ms / 1000)
        process.terminate()
        assert process.wait(30) in (0, -signal.SIGTERM), ms


def test_without_descriptors():
    """Connected clients are served; later ones wait until descriptors are free."""
    with Daemon(before=["prlimit", "--nofile=64"]) as d:
        with httpx.Client(base_url=d.url, timeout=60) as inside:
            assert inside.post("/v1/chat/completions", json=CHAT).status_code == 200
            crowd = []
            for _ in range(100):
                crowd.append(socket.create_connection(("127.0.0.1", d.port), timeout=10))
            for _ in range(3):
                assert inside.post("/v1/chat/completions", json=CHAT).status_code == 200
            for s in crowd:
                s.close()
        wait_until(lambda: httpx.post(d.url + "/v1/chat/completions", json=CHAT, timeout=60).status_code == 200)
        assert d.process.poll() is None


def test_without_names():
    """On a host without DNS and without a network."""
    script = "mount --bind /dev/null /etc/resolv.conf && mount --bind /dev/null /etc/hosts; ip link set lo up 2>/dev/null; exec \"$@\""
    if subprocess.run(["unshare", "--net", "--mount", "true"], capture_output=True).returncode != 0:
        pytest.skip("namespaces are not allowed here")
    with Daemon("server.host=localhost", before=["unshare", "--net", "--mount", "sh", "-c", script, "sh"]) as d:
        assert d.admin.post("/v1/chat/completions", json=CHAT).status_code == 200


def test_a_slow_disk_changes_no_answer(faults, tmp_path):
    model = shutil.copy(ROOT / "config/models/tidepool.gguf", tmp_path / "model.gguf")
    run("pack", model)
    good = run("run", model, *ASK).stdout
    faults.read_delay_us = 3000
    env = {**faults.env, "THERMOCLINE_FLASH_IO": "pread"}
    slow = subprocess.run([THERMOCLINE, "run", str(model), *map(str, ASK), "--ffn-memory", "0.5"], env=env, capture_output=True, timeout=280)
    assert slow.returncode == 0 and slow.stdout == good, slow.stderr
