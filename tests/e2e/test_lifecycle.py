"""From the start to the end: systemd's notifications, the watchdog, reloads, drains, restarts, logs."""
import ctypes
import errno
import json
import os
import re
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import httpx
import pytest
from conftest import BIN, ROOT, Daemon, wait_until

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
JSON = {"content-type": "application/json"}


class Systemd:
    """The socket of sd_notify: its messages, in order. Read at once, as systemd does, since the kernel keeps only a few."""

    def __init__(self, folder, **variables):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "notify"))
        self.env = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), **variables}
        self.heard = []
        self.waited = 0  # messages that an earlier wait has gone past
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            self.heard.append(dict(line.split("=", 1) for line in self.socket.recv(65536).decode().splitlines()))

    def listen(self, seconds=0.05):
        """All messages so far, and those of the next `seconds`."""
        time.sleep(seconds)
        return list(self.heard)

    def wait(self, seconds=30, **lines):
        """The next message that has all `lines`."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for message in self.listen(0.05)[self.waited:]:
                self.waited += 1
                if lines.items() <= message.items():
                    return message
        raise AssertionError(f"{lines} did not come; heard {self.heard}")


@pytest.fixture
def systemd(tmp_path):
    return Systemd(tmp_path)


def test_systemd_hears_everything_in_order(systemd, smollm):
    with Daemon(f"model.path={smollm}", env=systemd.env) as d:
        heard = systemd.listen(0.5)
        ready = next(i for i, m in enumerate(heard) if m.get("READY") == "1")
        loading = heard[:ready]
        assert loading and all(re.fullmatch(r"loading \d+%", m["STATUS"]) for m in loading)
        assert int(loading[0]["EXTEND_TIMEOUT_USEC"]) > 1_000_000
        assert "serving" in heard[ready]["STATUS"] and not any("WATCHDOG" in m for m in heard)
        systemd.wait(READY="1")
        d.process.send_signal(signal.SIGHUP)
        reloading = systemd.wait(RELOADING="1")
        assert abs(int(reloading["MONOTONIC_USEC"]) - time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000) < 30_000_000
        systemd.wait(READY="1")
        d.terminate()
        systemd.wait(STOPPING="1")
        assert d.wait() == 0
    said = [key for m in systemd.listen() for key in m if key in ("READY", "RELOADING", "STOPPING")]
    assert said == ["READY", "RELOADING", "READY", "STOPPING"]


def test_ready_means_that_a_token_was_made(systemd):
    with Daemon(env=systemd.env) as d:
        systemd.wait(READY="1")
        assert httpx.get(d.url + "/health/ready").status_code == 200
        counted = dict(line.rsplit(" ", 1) for line in httpx.get(d.url + "/metrics").text.splitlines() if not line.startswith("#"))
        assert float(counted["thermocline_engine_heartbeats_total"]) > 0
        assert counted["thermocline_generation_tokens_total"] == "0"  # the daemon's own token is nobody's


def test_systemd_hears_of_failures(systemd, tmp_path):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\xff" * 100)
    for settings in ([f"model.path={broken}"], ["server.api_keys_file=/nowhere/keys"], ["log.level=loud"]):
        args = [x for s in ["server.port=0", *settings] for x in ("--set", s)]
        result = subprocess.run([str(BIN / "thermoclined"), *args], env=systemd.env, capture_output=True, timeout=60)
        assert result.returncode == 78
        failed = [m for m in systemd.listen(0.1) if "ERRNO" in m]
        assert failed and failed[-1]["ERRNO"] == "22" and settings[0].split("=")[1] in failed[-1]["STATUS"]
        assert not any("READY" in m for m in systemd.listen())


def test_the_watchdog_is_fed_while_idle_and_under_load(tmp_path, smollm):
    systemd = Systemd(tmp_path, WATCHDOG_USEC="600000")
    with Daemon(f"model.path={smollm}", env=systemd.env) as d:
        pings = lambda seconds: len([m for m in systemd.listen(seconds) if "WATCHDOG" in m])
        first = pings(1.5)
        assert first >= 3
        with httpx.stream("POST", d.url + "/v1/chat/completions", json={"messages": STORY, "stream": True, "max_tokens": 150, "logit_bias": {"2": -100}}, timeout=60) as response:
            assert response.status_code == 200
            assert pings(1.5) >= first + 3
            response.read()
    (tmp_path / "other").mkdir()
    other = Systemd(tmp_path / "other", WATCHDOG_USEC="200000", WATCHDOG_PID="1")
    with Daemon(env=other.env):
        assert not any("WATCHDOG" in m for m in other.listen(0.7))  # meant for another process


def test_a_process_that_stands_still_is_not_alive(tmp_path):
    """Stopped whole, as by a debugger: no sign of life until it goes on."""
    systemd = Systemd(tmp_path, WATCHDOG_USEC="300000")
    with Daemon(env=systemd.env) as d:
        systemd.wait(WATCHDOG="1")
        d.process.send_signal(signal.SIGSTOP)
        count = len(systemd.listen(0.3))
        assert len(systemd.listen(1)) == count
        systemd.waited = count
        d.process.send_signal(signal.SIGCONT)
        systemd.wait(WATCHDOG="1")


class StoppedThread:
    """Holds one thread of a process, by default its main thread, as a debugger does, while its others go on. Source: ptrace(2)."""
    SEIZE, INTERRUPT, DETACH, CONT, ALL = 0x4206, 0x4207, 17, 7, 0x40000000

    def __init__(self, pid, name=None):
        tasks = Path(f"/proc/{pid}/task")
        [self.id] = [int(task.name) for task in tasks.iterdir() if (task / "comm").read_text().strip() == name] if name else [pid]
        self.ptrace = ctypes.CDLL(None, use_errno=True).ptrace
        self.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        self.ptrace.restype = ctypes.c_long

    def __enter__(self):
        if self.ptrace(self.SEIZE, self.id, None, None) != 0:
            pytest.skip(f"ptrace: {os.strerror(ctypes.get_errno())}")
        self._stop()
        return self

    def _stop(self):
        assert self.ptrace(self.INTERRUPT, self.id, None, None) == 0
        assert os.waitpid(self.id, self.ALL)[0] == self.id

    def step(self):
        """Lets it go on for a moment: a lock that it held where it was stopped, the log's say, is given back."""
        assert self.ptrace(self.CONT, self.id, None, None) == 0
        time.sleep(0.001)
        self._stop()

    def __exit__(self, *unused):
        assert self.ptrace(self.DETACH, self.id, None, None) == 0 or ctypes.get_errno() == errno.ESRCH  # it has ended


def test_an_engine_that_hangs_is_not_alive_though_the_daemon_answers(tmp_path, smollm):
    systemd = Systemd(tmp_path, WATCHDOG_USEC="1000000")
    body = {"messages": STORY, "stream": True, "max_tokens": 100, "logit_bias": {"2": -100}}
    with Daemon(f"model.path={smollm}", env=systemd.env) as d:
        with httpx.stream("POST", d.url + "/v1/chat/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            with StoppedThread(d.process.pid, "decode"):
                wait_until(lambda: "has made no step" in d.text())
                count = len(systemd.listen(0.1))
                assert httpx.get(d.url + "/health/live").status_code == 200
                assert not any("WATCHDOG" in m for m in systemd.listen(1.5)[count:])
            systemd.waited = count
            systemd.wait(WATCHDOG="1")
            assert [line for line in lines if line][-1] == "data: [DONE]"


def test_a_drain_while_loading_is_never_taken_back(systemd, smollm):
    with Daemon(f"model.path={smollm}", "model.verify=true", env=systemd.env, wait=False) as d:
        wait_until(lambda: d.port is not None)
        with socket.create_connection(("127.0.0.1", d.port)) as s:  # keeps the drain until the model is there
            s.sendall(b"GET /")
            assert d.admin.post("/admin/drain", headers=JSON).status_code == 202
            systemd.wait(STOPPING="1")
            assert d.ready.wait(60)
            after = systemd.listen(0.6)[systemd.waited:]
            assert not any("READY" in m or m.get("STATUS", "").startswith("loading") for m in after), after
            assert httpx.get(d.url + "/health/ready").status_code == 503
        assert d.wait() == 0, d.text()


@pytest.mark.parametrize("end", ["drained", "SIGTERM"])
def test_a_drain_while_loading_ends_the_daemon(systemd, smollm, end):
    """Not once the model is there: by then nobody would hear a signal. Loading lasts here until the end."""
    with Daemon(f"model.path={smollm}", "model.verify=true", env=systemd.env, wait=False) as d:
        wait_until(lambda: d.port is not None)
        wait_until(lambda: systemd.listen(0.05))  # the thread that minds signals is there: the main one may be stopped
        with StoppedThread(d.process.pid) as main, socket.create_connection(("127.0.0.1", d.port)) as s:
            if end == "SIGTERM":
                s.sendall(b"GET /")  # a request in progress
                wait_until(lambda: d.admin.get("/health/ready").json()["error"]["message"].startswith("the model is loading"))
            assert d.admin.post("/admin/drain", headers=JSON).status_code == 202
            wait_until(lambda: any("STOPPING" in m for m in systemd.listen(0.5)) or main.step())
            if end == "SIGTERM":
                time.sleep(0.3)  # a drain of nothing would be over
                assert d.process.poll() is None
                d.terminate()
            assert d.wait(10) == 0
            assert "stopped while loading" in d.text() and "ready: " not in d.text()


KEY = "a-key-of-some-length-01"


def write_keys(path, *keys):
    lines = [subprocess.run([str(BIN / "thermoclined"), "--hash-key", f"k{i}"], input=key.encode(), capture_output=True, check=True).stdout.decode() for i, key in enumerate(keys)]
    path.write_text("".join(lines))


def code(d, key=None, path="/v1/models"):
    return httpx.get(d.url + path, headers={"authorization": f"Bearer {key}"} if key else {}).status_code


def test_a_reload_takes_keys_limits_and_the_log(tmp_path):
    keys, config = tmp_path / "keys", tmp_path / "config.yaml"
    write_keys(keys, KEY, "another-key-that-goes-away")
    text = f"server:\n  api_keys_file: {keys}\n  body_bytes_max: 2000\nlog:\n  level: info\n"
    config.write_text(text)
    body = json.dumps({"messages": STORY, "max_tokens": 1, "user": "x" * 3000})
    post = lambda d: httpx.post(d.url + "/v1/chat/completions", content=body, headers={"authorization": f"Bearer {KEY}"}, timeout=30).status_code
    with Daemon(config=config) as d:
        assert (code(d), code(d, KEY), code(d, "another-key-that-goes-away"), post(d)) == (401, 200, 200, 413)
        write_keys(keys, KEY, "another-key-that-is-new")
        config.write_text(text.replace("2000", "5000").replace("level: info", "level: info\n  format: json") + "model:\n  path: other.gguf\n")
        d.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "is reloaded" in d.text())
        assert "only a restart" in d.text() and "model.path" in d.text().split("only a restart")[1]
        assert (code(d, KEY), code(d, "another-key-that-goes-away"), code(d, "another-key-that-is-new"), post(d)) == (200, 401, 200, 200)
        wait_until(lambda: d.log[-1].startswith("{"))
        assert json.loads(d.log[-1])["message"]


@pytest.mark.parametrize("bad,words", [
    ("server:\n  prot: 1\n", "did you mean 'server.port'"), ("server:\n  body_bytes_max: 1\n", "server.body_bytes_max"), ("server: [\n", "config.yaml"),
    ("server:\n  api_keys_file: /nowhere\n", "/nowhere"), ("server:\n  allowed_origins: example.org\n", "server.allowed_origins"), (None, "config.yaml"),
])
def test_a_bad_reload_keeps_the_old_configuration(tmp_path, bad, words):
    keys, config, systemd = tmp_path / "keys", tmp_path / "config.yaml", Systemd(tmp_path)
    write_keys(keys, KEY)
    config.write_text(f"server:\n  api_keys_file: {keys}\n")
    with Daemon(config=config, env=systemd.env) as d:
        systemd.listen(0.2)
        config.write_text(bad) if bad else config.unlink()
        d.process.send_signal(signal.SIGHUP)
        systemd.wait(RELOADING="1")
        assert "the old configuration stays" in [m for m in systemd.listen(0.5) if "READY" in m][-1]["STATUS"]
        assert words in d.logged("is not reloaded")[0].split("is not reloaded")[1]
        refused = d.admin.post("/admin/reload", headers=JSON)
        assert refused.status_code == 400 and words in refused.json()["error"]["message"]
        assert (code(d), code(d, KEY)) == (401, 200)


def test_a_reload_cannot_open_the_door(tmp_path):
    """The address stays, so keys that are needed for it stay, too."""
    keys, config = tmp_path / "keys", tmp_path / "config.yaml"
    write_keys(keys, KEY)
    config.write_text(f"server:\n  host: 0.0.0.0\n  api_keys_file: {keys}\n")
    with Daemon(config=config) as d:
        config.write_text("server:\n  host: 127.0.0.1\n")
        assert d.admin.post("/admin/reload", headers=JSON).status_code == 400
        assert (code(d), code(d, KEY)) == (401, 200)


def test_operators_by_http(smollm):
    with Daemon(f"model.path={smollm}") as d:
        for path in ("/admin/reload", "/admin/drain"):
            assert d.admin.post(path).status_code == 415  # no page's form may do it
            assert d.admin.post(path, content=b'{"x":1}', headers=JSON).status_code == 400
        assert d.admin.post("/admin/reload", content=b"{}", headers=JSON).json() == {"status": "reloaded"}
        assert d.admin.post("/admin/log-level", json={"level": "loud"}).status_code == 400
        assert d.admin.post("/admin/log-level", json={"level": "warning"}).json() == {"level": "warning"}
        count = len(d.log)
        assert httpx.get(d.url + "/v1/models").status_code == 200
        assert d.admin.post("/admin/log-level", json={"level": "info"}).status_code == 200
        wait_until(lambda: len(d.log) > count)
        assert not any("/v1/models" in line for line in d.log[count:])
        body = {"messages": STORY, "stream": True, "logit_bias": {"2": -100}}
        with httpx.stream("POST", d.url + "/v1/chat/completions", json=body, headers={"x-request-id": "long-1"}, timeout=60) as response:
            lines = response.iter_lines()
            next(lines)
            shown = d.admin.get("/admin/requests").json()["requests"]
            assert [r["id"] for r in shown] == ["long-1"] and shown[0]["tenant"] == "127.0.0.1" and shown[0]["age_s"] > 0
            wait_until(lambda: d.admin.get("/admin/requests").json()["requests"][0]["phase"] == "decode")
            assert d.admin.post("/admin/cancel", json={"id": "other"}).status_code == 404
            assert d.admin.post("/admin/cancel", json={"id": 1}).status_code == 400
            assert d.admin.post("/admin/cancel", json={"id": "long-1"}).json() == {"id": "long-1", "cancelled": True}
            rest = "\n".join(lines)
            assert "[DONE]" not in rest
        wait_until(lambda: d.admin.get("/admin/requests").json() == {"requests": []})
        assert 'requests_cancelled_total{cause="api",phase="decode"} 1' in httpx.get(d.url + "/metrics").text
        assert d.admin.post("/admin/drain", headers=JSON).json() == {"status": "draining"}
        assert d.wait() == 0


def test_a_killed_daemon_starts_again(systemd, smollm):
    port = None
    for _ in range(3):
        with Daemon(f"model.path={smollm}", *([f"server.port={port}"] if port else []), env=systemd.env) as d:
            systemd.wait(READY="1")
            port = d.port
            s = socket.create_connection(("127.0.0.1", port), timeout=20)
            body = json.dumps({"messages": STORY, "stream": True}).encode()
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            assert s.recv(4096)
            d.process.kill()
            assert d.wait() == -signal.SIGKILL
            s.close()
            assert not any("STOPPING" in m for m in systemd.listen())  # it could say nothing


def access(d, request_id):
    """The members of the access log's line for a request."""
    found = []
    wait_until(lambda: found.extend(json.loads(line) for line in d.log if f'"id":"{request_id}"' in line) or found)
    return found[0]


def test_the_access_log():
    trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    secret = "an unusual hippopotamus"
    with Daemon("log.format=json") as d:
        for stream in (False, True):
            headers = {"x-request-id": f"log-{stream}", "traceparent": f"00-{trace}-{span}-01"}
            body = {"messages": [{"role": "user", "content": f"Tell me about {secret}."}], "max_tokens": 5, "temperature": 0, "stream": stream, "logit_bias": {"2": -100}}
            response = httpx.post(d.url + "/v1/chat/completions", json=body, headers=headers, timeout=30)
            back = re.fullmatch(rf"00-{trace}-([0-9a-f]{{16}})-01", response.headers["traceparent"])
            assert back and back[1] != span
            line = access(d, f"log-{stream}")
            assert (line["message"], line["method"], line["route"], line["status"]) == ("access", "POST", "/v1/chat/completions", 200)
            assert line["tenant"] == "127.0.0.1" and line["trace"] == trace and line["ms"] >= 0
            assert line["completion_tokens"] == 5 and line["prompt_tokens"] > 5
            assert line["bytes"] == len(response.content)
        assert secret not in d.text() and "hippopotamus" not in d.text()
        for bad in (f"00-{trace}-{span}", f"00-{'0' * 32}-{span}-01", f"00-{trace}-{'0' * 16}-01", f"ff-{trace}-{span}-01", f"00-{trace.upper()}-{span}-01", f"00-{trace}-{span}-01-x", "x"):
            response = httpx.get(d.url + "/v1/models", headers={"traceparent": bad})
            assert response.status_code == 200 and "traceparent" not in response.headers, bad
        assert "traceparent" in httpx.get(d.url + "/v1/models", headers={"traceparent": f"01-{trace}-{span}-01-later"}).headers
        httpx.get(d.url + "/v1/models/unknown", headers={"x-request-id": "log-404"})
        line = access(d, "log-404")
        assert line["status"] == 404 and line["route"] == "/v1/models/{id}" and "trace" not in line
        assert all(json.loads(line) for line in d.log)


def test_the_access_log_can_be_off():
    with Daemon("log.access=false") as d:
        httpx.get(d.url + "/v1/models")
        d.terminate()
        d.wait()
        assert "access" not in d.text()


def verify(*units):
    return subprocess.run(["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", *map(str, units)], capture_output=True, text=True, timeout=60)


@pytest.mark.skipif(subprocess.run(["which", "systemd-analyze"], capture_output=True).returncode != 0, reason="systemd-analyze is not installed (deploy/install-deps.sh --tests)")
def test_the_units_are_valid(tmp_path):
    source = ROOT / "deploy/systemd"
    for drop_in in (None, "cuda.conf", "jetson.conf"):
        folder = tmp_path / str(drop_in)
        folder.mkdir()
        for unit in ("thermocline.service", "thermocline.socket"):
            text = (source / unit).read_text().replace("/usr/local/bin/thermoclined", str(BIN / "thermoclined"))
            (folder / unit).write_text(text)
        if drop_in:
            (folder / "thermocline.service.d").mkdir()
            (folder / "thermocline.service.d" / drop_in).write_text((source / drop_in).read_text())
        result = verify(folder / "thermocline.service", folder / "thermocline.socket")
        assert result.returncode == 0 and "thermocline" not in result.stderr, result.stderr
    (folder / "thermocline.service").write_text(text.replace("[Socket]", "[Sockets]"))
    assert "thermocline" in verify(folder / "thermocline.service").stderr  # it would have told
