"""The hot tier as users and operators meet it: the same text from two sides, plans that are kept or refused, devices that are not there."""
import json
import os
import shutil
import subprocess

import httpx
import pytest
from conftest import BIN, ROOT, Daemon, refusal, run
from prometheus_client.parser import text_string_to_metric_families

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """The folder for the machine's cached measurements."""
    folder = tmp_path_factory.mktemp("cache")
    before = os.environ.get("XDG_CACHE_HOME")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    os.environ.pop("XDG_CACHE_HOME")
    if before is not None:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture(scope="module")
def tidepool(tmp_path_factory):
    """With counts of its neurons and a bundle file."""
    path = tmp_path_factory.mktemp("tidepool") / "tidepool.gguf"
    shutil.copy(ROOT / "config/models/tidepool.gguf", path)
    run("profile", path, "--text", ROOT / "tests/data/wizard_of_oz.txt", "--tokens", 2000)
    run("pack", path, "--order", "none")
    return path


@pytest.fixture(scope="module")
def eager(tidepool, cache):
    generate(tidepool, "--device", "cpu", "--hot-memory", "500KiB")
    make_eager(cache)


def make_eager(cache):
    """Machines whose sides wait for nothing and are alike: their plans use both for however small a model."""
    for path in (cache / "thermocline/machine").iterdir():
        machine = json.loads(path.read_text())
        machine["sync_s"] = 0
        machine["cold"]["layer_s"] = 0
        machine["hot"] = dict(machine["cold"])
        machine["link_bytes_per_s"] = 1e15
        path.write_text(json.dumps(machine))


def generate(model, *args, tokens=40, threads=2, check=True):
    done = run("run", model, "-p", "Once upon a time", "-n", tokens, "--temperature", 0, "--ignore-eos", "-t", threads, "--json", *args, check=check)
    return json.loads(done.stdout) if check else done


def metric(text, name, **labels):
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


@pytest.mark.parametrize("mode", ["dense", "exact", "sign"])
@pytest.mark.parametrize("memory", ["300KiB", "1MiB", "100MiB"])
def test_two_sides_write_what_one_writes(tidepool, eager, mode, memory):
    one = generate(tidepool, "--device", "cpu", "--ffn-mode", mode)
    two = generate(tidepool, "--device", "cpu", "--ffn-mode", mode, "--hot-memory", memory)
    assert one["hot"]["used"] is False and two["hot"]["used"] is True
    assert two["tokens"] == one["tokens"]
    hot = two["hot"]
    assert 0 < hot["neurons"] < hot["neurons_all"]
    assert hot["bytes"] <= {"300KiB": 300 << 10, "1MiB": 1 << 20, "100MiB": 100 << 20}[memory]
    assert hot["predicted_tokens_per_s"] > 0
    assert 0 < hot["active_share"] <= 1 and 0 < hot["hot_s"] <= hot["total_s"]


def test_the_most_used_neurons_are_hot(tidepool, eager):
    hot = generate(tidepool, "--device", "cpu", "--ffn-mode", "exact", "--hot-memory", "1MiB", tokens=100)["hot"]
    assert hot["active_share"] > 1.5 * hot["neurons"] / hot["neurons_all"]


def test_hot_cold_and_flash_together(tidepool, eager):
    one = generate(tidepool, "--device", "cpu", "--ffn-mode", "exact")
    three = generate(tidepool, "--device", "cpu", "--ffn-mode", "exact", "--hot-memory", "500KiB", "--ffn-memory", 0.6)
    assert three["flash"]["kind"] == "neurons" and three["hot"]["used"]
    assert three["tokens"] == one["tokens"]


def test_the_machine_is_measured_once(tidepool, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    args = ("--device", "cpu", "--hot-memory", "500KiB")
    generate(tidepool, *args)
    [file] = (tmp_path / "thermocline/machine").iterdir()
    measured, when = json.loads(file.read_text()), file.stat().st_mtime_ns
    assert measured["cold"]["rows_bytes_per_s"] > 0 and measured["hot"]["rows_bytes_per_s"] > 0
    generate(tidepool, *args)
    assert file.stat().st_mtime_ns == when
    generate(tidepool, *args, "--calibrate")
    assert file.stat().st_mtime_ns > when
    file.write_text("{")
    done = run("run", tidepool, "-p", "", "-n", 2, "-t", 2, *args)
    assert b"measured anew" in done.stderr
    assert json.loads(file.read_text())["key"] == measured["key"]


def test_a_placement_file_is_used_and_those_of_others_are_planned_anew(tidepool, eager, tmp_path):
    file = tmp_path / "tidepool.placement.json"
    run("plan", tidepool, "--device", "cpu", "--hot-memory", "600KiB", "-t", 2, "--ffn-mode", "exact", "--out", file)
    one = generate(tidepool, "--device", "cpu", "--ffn-mode", "exact")
    two = generate(tidepool, "--device", "cpu", "--ffn-mode", "exact", "--placement", file)
    assert two["hot"]["used"] and two["tokens"] == one["tokens"]
    assert 0 < two["hot"]["bytes"] <= 600 << 10

    def warning(path, *args, threads=2):
        done = run("run", tidepool, "-p", "Once upon a time", "-n", 40, "--temperature", 0, "--ignore-eos", "-t", threads, "--json",
                   "--device", "cpu", "--ffn-mode", "exact", "--placement", path, "--hot-memory", "300KiB", *args)
        report = json.loads(done.stdout)
        assert report["tokens"] == one["tokens"] and report["hot"]["bytes"] <= 300 << 10
        assert "planned anew" in done.stderr.decode(), done.stderr.decode()
        return done.stderr.decode()

    assert "more than" in warning(file) or "300" in warning(file)  # planned for more memory than is given
    other = tmp_path / "other.gguf"
    run("synth", other, "--layers", 2, "--hidden-size", 128, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 4, "--vocab", 512, "--type", "q8_0", "--down", "rows")
    run("profile", other, "--text", ROOT / "tests/data/wizard_of_oz.txt", "--tokens", 300)
    of_other = tmp_path / "other.placement.json"
    run("plan", other, "--device", "cpu", "--hot-memory", "600KiB", "-t", 2, "--ffn-mode", "exact", "--out", of_other)
    assert "model" in warning(of_other)
    assert "machine" in warning(file, "--hot-threads", 2, threads=3)
    damaged = tmp_path / "damaged.json"
    damaged.write_text(file.read_text().replace('"hot_bytes":6', '"hot_bytes":7', 1).replace('"hot_bytes": 6', '"hot_bytes": 7', 1))
    assert damaged.read_text() != file.read_text()
    assert "checksum" in warning(damaged)
    assert "No such file" in refusal("run", tidepool, "-p", "", "-t", 2, "--placement", tmp_path / "none", "--device", "cpu")


def test_a_placement_replaces_placements_alone(tidepool, eager, tmp_path):
    args = ("plan", tidepool, "--device", "cpu", "--hot-memory", "600KiB", "-t", 2, "--ffn-mode", "exact")
    model, side_car = tidepool.read_bytes(), tidepool.with_name(tidepool.name + ".tcp").read_bytes()
    for path in (tidepool, tidepool.with_name(tidepool.name + ".tcp"), tmp_path):
        said = refusal(*args, "--out", path)
        assert "is not a placement" in said or "not a regular file" in said
    assert tidepool.read_bytes() == model and tidepool.with_name(tidepool.name + ".tcp").read_bytes() == side_car
    assert "name the same file" in refusal(*args, "--out", tmp_path / "x.svg", "--plot", tmp_path / "x.svg")
    run(*args, "--out", tmp_path / "p.json")
    run(*args, "--out", tmp_path / "p.json")


def test_layers_of_several_types_are_refused(cache, tmp_path):
    import gguf
    import numpy

    path = tmp_path / "mixed.gguf"
    whole = tmp_path / "whole.gguf"
    run("synth", whole, "--layers", 2, "--hidden-size", 128, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 4, "--vocab", 512, "--type", "f32", "--down", "rows")
    reader = gguf.GGUFReader(whole)
    writer = gguf.GGUFWriter(path, "llama")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        writer.add_key_value(key, field.contents(), field.types[0], field.types[1] if len(field.types) > 1 else None)
    for tensor in reader.tensors:
        data = tensor.data
        if tensor.name.startswith("blk.1.ffn_down"):
            data = numpy.asarray(data, numpy.float16)
        writer.add_tensor(tensor.name, data)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    run("run", path, "-p", "", "-n", 2, "-t", 2, "--device", "cpu")
    args = ("run", path, "-p", "", "-n", 2, "-t", 2, "--device", "cpu", "--hot-memory", "100MiB")
    run(*args, check=False)
    make_eager(cache)
    done = run(*args, check=False)
    assert done.returncode == 1 and "several types" in done.stderr.decode()


def test_a_trace_needs_all_neurons_on_one_side(tidepool, eager, tmp_path):
    done = run("run", tidepool, "-p", "", "-n", 2, "-t", 2, "--device", "cpu", "--ffn-mode", "exact", "--hot-memory", "1MiB", "--record-trace", tmp_path / "t", check=False)
    assert done.returncode == 1 and "trace" in done.stderr.decode()


@pytest.mark.parametrize("args, words", [
    (["--hot-memory", "1MiB", "-t", 1], "threads"),
    (["--hot-memory", "1MiB", "--hot-threads", 2, "-t", 2], "threads"),
])
def test_what_cannot_be_is_refused(tidepool, args, words):
    done = run("run", tidepool, "-p", "", "--device", "cpu", *args, check=False)
    assert done.returncode == 1 and words in done.stderr.decode()


@pytest.mark.parametrize("args", [["--hot-memory", "much"], ["--device", "tpu"], ["--hot-threads", "-1"]])
def test_nonsense_is_bad_usage(tidepool, args):
    assert f"{args[0]}: " in refusal("run", tidepool, "-p", "", *args, status=2)


def test_a_down_projection_along_columns_is_refused_with_advice(smollm):
    done = run("run", smollm, "-p", "", "--device", "cpu", "--hot-memory", "1MiB", "-t", 2, check=False)
    assert done.returncode == 1 and "--down rows" in done.stderr.decode()


def gpu_is_usable():
    return run("run", "tidepool", "-p", "", "-n", 1, "--device", "cuda", check=False).returncode == 0


def test_a_gpu_that_is_not_there_is_refused_with_the_reason(tidepool):
    if gpu_is_usable():
        pytest.skip("this machine has a usable GPU")
    done = run("run", tidepool, "-p", "", "--device", "cuda", check=False)
    message = done.stderr.decode()
    assert done.returncode == 1 and done.stdout == b""
    assert any(reason in message for reason in ("built without CUDA", "driver", "no device", "/dev/nvidia")), message
    daemon = subprocess.run([BIN / "thermoclined", "--set", "server.port=0", "--set", "hot.device=cuda"], capture_output=True, timeout=60)
    assert daemon.returncode != 0 and any(r in daemon.stderr.decode() for r in ("built without CUDA", "driver", "no device", "/dev/nvidia"))


def test_auto_falls_back_and_says_so(tidepool):
    if gpu_is_usable():
        pytest.skip("this machine has a usable GPU")
    hot = generate(tidepool)["hot"]
    assert hot["device"] == "cpu" and hot["fallback"]
    with Daemon("hot.device=auto") as d:
        assert "without a GPU" in d.text() and hot["fallback"] in d.text()
        device = httpx.get(d.url + "/v1/status").json()["device"]
        assert device["name"] == "cpu" and device["fallback"] == hot["fallback"] and device["hot_tier"] is False
        text = httpx.get(d.url + "/metrics").text
        assert metric(text, "thermocline_device_info", device="cpu", fallback=hot["fallback"]) == 1
        assert metric(text, "thermocline_hot_bytes") is None


def test_the_daemon_with_two_sides(tidepool, eager):
    def ask(d):
        answer = httpx.post(d.url + "/v1/chat/completions", json={"messages": STORY, "temperature": 0, "max_tokens": 60}, timeout=120)
        return answer.json()["choices"][0]["message"]["content"]

    settings = [f"model.path={tidepool}", "engine.threads=2", "engine.ffn_mode=exact", "hot.device=cpu"]
    with Daemon(*settings) as d:
        one = ask(d)
        status = httpx.get(d.url + "/v1/status").json()
        assert status["state"] == "ready" and status["device"]["hot_tier"] is False and status["device"]["fallback"] is None
    with Daemon(*settings, "hot.bytes=1MiB") as d:
        assert "hot tier:" in d.text()
        assert ask(d) == one
        assert ask(d) == one
        device = httpx.get(d.url + "/v1/status").json()["device"]
        assert device["hot_tier"] is True and 0 < device["hot_bytes"] <= 1 << 20
        text = httpx.get(d.url + "/metrics").text
        assert metric(text, "thermocline_hot_bytes") == device["hot_bytes"]
        assert metric(text, "thermocline_hot_active_neurons_total", side="hot") > 0
        assert metric(text, "thermocline_hot_active_neurons_total", side="cold") > 0
        assert metric(text, "thermocline_hot_busy_seconds_total", side="hot") > 0
