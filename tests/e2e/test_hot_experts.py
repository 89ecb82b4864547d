"""Experts shared out between two sides, by use: the same text wherever they lie, and the share that was planned."""
import json
import os
import xml.etree.ElementTree

import httpx
import pytest
from conftest import Daemon, run, run_json
from daemon_client import value
from test_one_memory import emulated  # noqa: F401 (a fixture)

SHAPE = ["--layers", 4, "--hidden-size", 256, "--intermediate-size", 128, "--heads", 4, "--kv-heads", 2, "--vocab", 512,
         "--experts", 32, "--experts-used", 4, "--routing", "zipf:1", "--type", "q4_0"]
ALL = 4 * 32  # experts


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """A mixture, the trace of a text that it wrote, and its use counted."""
    path = tmp_path_factory.mktemp("hot_experts") / "m.gguf"
    run("synth", path, *SHAPE)
    run("run", path, *WRITING, "-n", 200, "--device", "cpu", "--record-trace", path.with_suffix(".trace"))
    run("profile", path, "--from-trace", path.with_suffix(".trace"))
    run("pack", path)
    return path


@pytest.fixture
def eager(tmp_path, monkeypatch):
    """By their measured speeds two threads of one CPU are no faster than one: remembered as if they were."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))

    def of(model):
        run("run", model, "-p", "w1", "-n", 1, "--device", "cpu", "--hot-memory", "1MiB")
        for path in (tmp_path / "cache/thermocline/machine").iterdir():
            machine = json.loads(path.read_text())
            machine["hot"] |= {"dense_bytes_per_s": 1e15, "whole_bytes_per_s": 1e15, "layer_s": 0}
            machine |= {"sync_s": 0, "link_bytes_per_s": 1e15}
            path.write_text(json.dumps(machine))
        return model

    return of


WRITING = ["-p", "w1 w2 w3", "--temperature", 0]


def write(model, *options, tokens=60):
    return run_json("run", model, *WRITING, "-n", tokens, "--device", "cpu", *options)


def test_two_sides_write_what_one_writes(mixture, eager):
    one = write(eager(mixture))
    shares = []
    for memory in ["1MiB", "3MiB", "100MiB"]:
        two = write(mixture, "--hot-memory", memory)
        assert two["hot"]["used"] and two["tokens"] == one["tokens"]
        assert 0 < two["hot"]["neurons"] <= two["hot"]["neurons_all"] == ALL
        shares.append(two["hot"]["active_share"])
    assert shares == sorted(shares) and shares[0] < shares[-1] == 1


def test_the_hot_share_of_the_uses_is_the_planned_one(mixture, eager):
    eager(mixture)
    for memory in ["1MiB", "2MiB", "4MiB"]:
        hot = write(mixture, "--hot-memory", memory, tokens=200)["hot"]
        assert abs(hot["active_share"] - hot["planned_share"]) < 0.05, (memory, hot)
        # The most used experts, not just any.
        assert hot["active_share"] > 1.3 * hot["neurons"] / ALL


def test_hot_experts_are_not_read_from_flash(mixture, eager):
    one = write(eager(mixture))
    cold = write(mixture, "--ffn-memory", 0.4)
    both = write(mixture, "--ffn-memory", 0.4, "--hot-memory", "3MiB")
    assert cold["tokens"] == both["tokens"] == one["tokens"]
    assert both["hot"]["used"] and both["hot"]["neurons"] > 0
    assert both["flash"]["bytes"] < cold["flash"]["bytes"]


def test_a_placement_of_experts_is_written_and_used(mixture, eager, tmp_path):
    eager(mixture)
    out = tmp_path / "m.placement.json"
    run("plan", mixture, "--device", "cpu", "--hot-memory", "2MiB", "--out", out)
    placed = write(mixture, "--hot-memory", "2MiB", "--placement", out)
    planned = write(mixture, "--hot-memory", "2MiB")
    assert placed["hot"]["neurons"] == planned["hot"]["neurons"] > 0
    assert placed["tokens"] == planned["tokens"]


@pytest.mark.parametrize("machine", ["desktop-8gb", "orin-nano-8gb"])
def test_plans_for_other_machines(mixture, machine):
    plan = run_json("plan", mixture, "--machine", machine)
    assert plan["tokens_per_s"] > 0
    # Less memory than the experts take: some lie on flash, and a token takes longer.
    small = run_json("plan", mixture, "--machine", machine, "--vram", 0, "--ram", "205MiB")
    assert small["tokens_per_s"] < plan["tokens_per_s"]


def test_what_experts_cannot_do_is_refused_by_name(mixture):
    error = run("plan", mixture, "--machine", "desktop-8gb", "--ffn-mode", "exact", check=False)
    assert error.returncode != 0 and b"--ffn-mode exact" in error.stderr


def test_profile_counts_a_text_as_its_trace_and_draws_the_experts(mixture, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text(" ".join(f"w{i * 7 % 90}" for i in range(600)))
    trace, car, other = tmp_path / "t.trace", tmp_path / "a.tcp", tmp_path / "b.tcp"
    counted = run_json("profile", mixture, "--text", text, "--side-car", car, "--record-trace", trace, "--plot", tmp_path / "map.svg")
    again = run_json("profile", mixture, "--from-trace", trace, "--side-car", other)
    assert counted["tokens"] == again["tokens"] > 0
    for a, b in zip(counted["layers"], again["layers"]):
        assert a["active_share"] == pytest.approx(4 / 32) and a["histogram"] == b["histogram"]
    svg = xml.etree.ElementTree.parse(tmp_path / "map.svg").getroot()
    cells = [r for r in svg.iter("{http://www.w3.org/2000/svg}rect") if r.get("fill", "").startswith("#")]
    assert len(cells) >= ALL
    assert any("Experts by use" in (t.text or "") for t in svg.iter("{http://www.w3.org/2000/svg}text"))


def test_an_emulated_gpu_has_the_planned_share_of_the_uses(mixture, emulated, tmp_path):  # noqa: F811
    """The daemon with a GPU, emulated and remembered as fast: the CPU's text, and as many uses there as the profile promised."""
    settings = [f"model.path={mixture}", "engine.context_length=512", "prefix_cache.memory=0MiB", "spec.mode=off"]
    body = {"prompt": "w1 w2 w3", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}

    def answer(*more):
        with Daemon(*settings, *more, program=emulated, env=env) as d:
            text = httpx.post(d.url + "/v1/completions", json=body, timeout=600).json()["choices"][0]["text"]
            device = httpx.get(d.url + "/v1/status").json()["device"]
            sides = [value(d, "hot_active_neurons_total", side=side) for side in ("hot", "cold")] if device["hot_tier"] else None
            return text, device, sides

    expected, device, _ = answer("hot.device=auto", "hot.bytes=4MiB")
    assert not device["hot_tier"] and "no expert is faster" in device["fallback"]
    for path in (tmp_path / "thermocline/machine").iterdir():
        machine = json.loads(path.read_text())
        machine["hot"] |= {"dense_bytes_per_s": 1e15, "whole_bytes_per_s": 1e15, "layer_s": 0}
        path.write_text(json.dumps(machine | {"sync_s": 0, "link_bytes_per_s": 1e15}))
    for memory in ["3MiB", "5MiB"]:
        text, device, (hot, cold) = answer("hot.device=cuda", f"hot.bytes={memory}")
        assert text == expected and device["name"].startswith("Emulated device")
        assert 0 < device["hot_neurons"] < ALL
        assert abs(hot / (hot + cold) - device["planned_share"]) < 0.05, (hot, cold, device)
