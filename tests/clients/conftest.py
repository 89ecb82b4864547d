"""A daemon with a real chat model for programs that speak OpenAI's API. Small models say odd things: the tests ask for shapes."""
import os
import re
import subprocess
from pathlib import Path

import pytest

BIN, MODEL = Path(os.environ["THERMOCLINE_BIN"]), Path(os.environ["THERMOCLINE_MODEL"])
NAME = MODEL.stem
os.environ["OPENAI_API_KEY"] = "none"


@pytest.fixture(scope="session")
def root():
    settings = (f"model.path={MODEL}", "server.port=0", "log.access=false")
    daemon = subprocess.Popen([BIN / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    url = None
    for line in daemon.stderr:
        if match := re.search(r"listening on (http://[^ /]+:\d+)/", line):
            url = match[1]
        if " ready: " in line:
            break
    assert url, "the daemon ended"
    yield url
    daemon.terminate()
    daemon.communicate(timeout=60)
    assert daemon.returncode == 0


@pytest.fixture(scope="session")
def url(root):
    os.environ["OPENAI_BASE_URL"] = root + "/v1"
    return root + "/v1"
