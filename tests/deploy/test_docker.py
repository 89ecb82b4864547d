"""The Dockerfiles, by hadolint and by their contents; with a container engine, `docker build` is the real test."""
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ["Dockerfile", "Dockerfile.cuda"]


@pytest.mark.parametrize("name", FILES)
def test_hadolint_finds_nothing(name):
    hadolint = Path(sys.executable).parent / "hadolint"
    result = subprocess.run([hadolint, ROOT / "deploy/docker" / name], capture_output=True, text=True, timeout=120)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("name", FILES)
def test_not_root_healthy_and_with_settings_that_exist(name):
    text = (ROOT / "deploy/docker" / name).read_text()
    final = text[text.rindex("FROM "):]
    assert re.search(r"^USER [1-9]\d*:[1-9]\d*$", final, re.M) and re.search(r"^HEALTHCHECK ", final, re.M)
    words = re.findall(r'"([^"]*)"', re.search(r"^ENTRYPOINT (.*)$", final, re.M)[1])
    daemon = ROOT / "build/release/bin/thermoclined"
    args = [str(daemon) if w == "/usr/bin/thermoclined" else str(ROOT / "config/thermocline.yaml") if w == "/etc/thermocline/thermocline.yaml" else w for w in words]
    checked = subprocess.run([*args, "--check"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0, checked.stderr
    for path in re.findall(r"^COPY (?!--from)(\S+) ", text, re.M):
        assert (ROOT / path).exists()
