"""`thermocline doctor` on this machine, and on files of Jetsons."""
import json
import os
import pwd
import re
import shutil
import subprocess
import time

import httpx
import pytest
from conftest import ROOT, THERMOCLINE, Daemon, refusal, run, wait_until
from machine_trees import MACHINES, plant
from test_metrics import samples, scrape, seeing


def examine(*args, check=True):
    result = run("doctor", "--json", "--no-disk", *args, check=False)
    report = json.loads(result.stdout)
    assert not check or result.returncode == (1 if report["verdict"] == "error" else 0)
    return report["verdict"], {finding["check"]: finding for finding in report["checks"]}


def test_this_machine():
    verdict, found = examine("--config", ROOT / "config/thermocline.yaml")
    assert verdict in ("ok", "note", "warning")
    assert {"processor", "memory", "huge pages", "locked memory", "io_uring", "GPU", "GPU's device nodes", "power mode", "temperature", "model", "configuration"} == set(found)
    for finding in found.values():
        assert finding["seen"] and finding["verdict"] in ("ok", "note", "warning") and (finding["advice"] or finding["verdict"] in ("ok", "note"))
    text = run("doctor", "--no-disk").stdout.decode()
    assert all(re.search(rf"^{f['verdict']} +{re.escape(name)} ", text, re.M) for name, f in found.items() if name != "configuration")


def test_the_disk_is_measured():
    found = {f["check"]: f for f in json.loads(run("doctor", "--json").stdout)["checks"]}
    assert re.search(r"[\d.]+ GB/s in reads of 64 KiB", found["disk"]["seen"])


def test_what_is_wrong_is_named(tmp_path):
    (tmp_path / "bad.yaml").write_text("server:\n  prot: 1\n")
    verdict, found = examine("no-such-model", "--config", tmp_path / "bad.yaml")
    assert verdict == "error" and found["model"]["verdict"] == "error" and "no-such-model" in found["model"]["seen"]
    assert found["configuration"]["verdict"] == "error" and "prot" in found["configuration"]["seen"]
    (tmp_path / "cut.gguf").write_bytes((ROOT / "config/models/tidepool.gguf").read_bytes()[:5000])
    assert examine(tmp_path / "cut.gguf")[1]["model"]["verdict"] == "error"
    assert "there is no option '--no-such-option'" in refusal("doctor", "--no-such-option", status=2)


@pytest.mark.parametrize("machine", MACHINES)
def test_a_jetson(machine, tmp_path):
    files = plant(machine, tmp_path)
    verdict, found = examine("--root", tmp_path)
    assert files["proc/device-tree/model"] in found["GPU's device nodes"]["seen"] and found["GPU's device nodes"]["verdict"] == "ok"
    assert found["GPU"]["verdict"] == "warning"  # this program cannot open it, and says what computes
    assert files["var/lib/nvpmodel/status"] in found["power mode"]["seen"] and "schedutil" in found["power mode"]["seen"]
    assert "below where clocks are lowered" in found["temperature"]["seen"] and found["temperature"]["verdict"] == "ok"
    assert "[madvise]" in found["huge pages"]["seen"]

    zone = tmp_path / "sys/class/thermal/thermal_zone0/temp"
    zone.write_text("99500\n")
    assert examine("--root", tmp_path)[1]["temperature"]["verdict"] == "warning"
    (tmp_path / "sys/kernel/mm/transparent_hugepage/enabled").write_text("always madvise [never]\n")
    assert "madvise" in examine("--root", tmp_path)[1]["huge pages"]["advice"]
    (tmp_path / "proc/sys/kernel/io_uring_disabled").write_text("2\n")
    assert examine("--root", tmp_path)[1]["io_uring"]["verdict"] == "warning"
    (tmp_path / "dev/nvmap").unlink()
    verdict, found = examine("--root", tmp_path)
    assert verdict == "error" and "/dev/nvmap" in found["GPU's device nodes"]["seen"]


def test_nodes_that_may_not_be_used(tmp_path):
    """As a user without the groups: root may use everything."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    plant("orin-nano", tmp_path)
    tmp_path.chmod(0o755)
    for node in (tmp_path / "dev").rglob("*"):
        node.chmod(0o777 if node.is_dir() else 0o666)
    (tmp_path / "dev/nvhost-gpu").chmod(0o600)
    nobody = pwd.getpwnam("nobody")
    shutil.copy(THERMOCLINE, tmp_path / "thermocline")
    for parent in list(tmp_path.parents)[:3]:
        if parent.stat().st_mode & 0o001 == 0 and str(parent).startswith("/tmp/pytest"):
            parent.chmod(parent.stat().st_mode | 0o011)
    result = subprocess.run([tmp_path / "thermocline", "doctor", ROOT / "config/models/tidepool.gguf", "--json", "--no-disk", "--root", tmp_path], capture_output=True, user=nobody.pw_uid, group=nobody.pw_gid, timeout=60)
    found = {f["check"]: f for f in json.loads(result.stdout)["checks"]}
    assert "no permission for /dev/nvhost-gpu" in found["GPU's device nodes"]["seen"] and "video" in found["GPU's device nodes"]["advice"]
    assert result.returncode == 1


@pytest.mark.parametrize("machine", MACHINES)
def test_the_daemon_shows_a_jetsons_sensors(machine, tmp_path):
    files = plant(machine, tmp_path)
    rails = {}
    for path, label in files.items():
        if re.search(r"/in\d_label$", path) and label != "NC":
            channel = path.removesuffix("_label")
            rails[label] = int(files[channel + "_input"]) * int(files[channel.replace("/in", "/curr") + "_input"]) / 1e6
    with Daemon("spec.mode=off", before=seeing(tmp_path / "sys")) as d:
        shown = lambda name: {dict(labels).get("rail") or dict(labels).get("zone"): v for (n, labels), v in samples(scrape(d)).items() if n == "thermocline_" + name}  # noqa: E731
        wait_until(lambda: shown("power_watts"))
        assert {rail: pytest.approx(w) for rail, w in rails.items()}.items() <= shown("power_watts").items()
        assert shown("temperature_celsius")["tj-thermal"] == float(files["sys/class/thermal/thermal_zone3/temp"]) / 1000
        begin = time.monotonic()
        wait_until(lambda: all(shown("energy_joules_total").get(rail, 0) > 0 for rail in rails))
        answer = httpx.post(d.url + "/v1/completions", json={"prompt": "Once", "max_tokens": 200, "ignore_eos": True, "temperature": 0}, timeout=60).json()
        timings = answer["timings"]
        watts = rails["VDD_IN"] if "VDD_IN" in rails else sum(rails.values())
        computed_s = (timings["prompt_ms"] + timings["predicted_ms"]) / 1000
        assert timings["energy_j"] == pytest.approx(watts * computed_s, rel=0.02)
        assert timings["joules_per_token"] == pytest.approx(timings["energy_j"] / 200)
        assert shown("energy_joules_total")[next(iter(rails))] <= rails[next(iter(rails))] * (time.monotonic() - begin + 5)
