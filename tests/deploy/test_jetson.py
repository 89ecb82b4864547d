"""deploy/jetson/setup.sh on files of boards: its actions and its rejections."""
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from machine_trees import MACHINES, plant  # noqa: E402


def setup(folder, *args):
    return subprocess.run([ROOT / "deploy/jetson/setup.sh", *map(str, args)], capture_output=True, text=True, timeout=60, env={**os.environ, "THERMOCLINE_ROOT": str(folder)})


@pytest.fixture
def package(tmp_path):
    (tmp_path / "t.deb").touch()
    return tmp_path / "t.deb"


@pytest.mark.parametrize("machine", MACHINES)
def test_what_it_does(machine, package, tmp_path):
    plant(machine, tmp_path)
    (tmp_path / "m.gguf").touch()
    done = setup(tmp_path, "--dry-run", "--headless", "--power-mode", 1, package, tmp_path / "m.gguf")
    assert done.returncode == 0, done.stderr
    steps = re.findall(r"^\+ (.*)$", done.stdout, re.M)
    assert steps[0] == f"apt-get install -y {package}" and steps[-1].startswith("thermocline doctor /srv/thermocline/m.gguf")
    assert "nvpmodel -m 1" in steps and "systemctl set-default multi-user.target" in steps
    assert any("jetson.conf" in s and s.endswith("gpu.conf") for s in steps) and "Jetson" in done.stdout
    plain = re.findall(r"^\+ (.*)$", setup(tmp_path, "--dry-run", package).stdout, re.M)
    assert not any("nvpmodel" in s or "set-default" in s or "/srv" in s for s in plain)


def test_what_it_refuses(package, tmp_path):
    assert "no Jetson" in setup(tmp_path, "--dry-run", package).stderr
    plant("orin-nx", tmp_path)
    assert "no such package" in setup(tmp_path, "--dry-run", "none.deb").stderr
    assert "no such model" in setup(tmp_path, "--dry-run", package, "none.gguf").stderr
    (tmp_path / "etc/nv_tegra_release").write_text("# R35 (release), REVISION: 4.1\n")
    assert "r35" in setup(tmp_path, "--dry-run", package).stderr
    for wrong in (["--power-mode", "fast", package], ["--no-such", package], []):
        assert setup(tmp_path, *wrong).returncode == 2


def test_it_changes_the_path_of_the_model_alone(tmp_path):
    """Its own sed on the real file: another section has a path, too."""
    change = re.search(r"run sed -i \"(.*)\" /etc", (ROOT / "deploy/jetson/setup.sh").read_text())[1]
    config = tmp_path / "thermocline.yaml"
    shutil.copy(ROOT / "config/thermocline.yaml", config)
    before = yaml.safe_load(config.read_text())
    subprocess.run(["sed", "-i", change.replace('$(basename "$model")', "m.gguf"), config], check=True)
    assert yaml.safe_load(config.read_text()) == before | {"model": before["model"] | {"path": "/srv/thermocline/m.gguf"}}
