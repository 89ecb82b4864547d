"""`thermocline plan MODEL`: the placement of neurons, the predicted time of a token, and rejections."""
import json
import shutil
import xml.etree.ElementTree

import pytest
from conftest import ROOT, run, run_json

MACHINES = sorted(path.stem for path in (ROOT / "config/machines").glob("*.json"))
OZ = ROOT / "tests/data/wizard_of_oz.txt"


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A model whose neurons are large beside everything else."""
    path = tmp_path_factory.mktemp("plan") / "model.gguf"
    run("synth", path, "--layers", 6, "--hidden-size", 1024, "--intermediate-size", 4096, "--heads", 8, "--kv-heads", 2,
        "--vocab", 512, "--type", "q4_0", "--down", "rows")
    return path


def plan(model, *args):
    return run_json("plan", model, "--machine", "desktop-8gb", "--context", 256, *args)


def refused(*args):
    result = run("plan", *args, check=False, usage=True)
    assert result.returncode in (1, 2) and not result.stdout
    return result.stderr.decode()


@pytest.mark.parametrize("machine", MACHINES)
def test_every_machine_is_one(model, machine):
    report = run_json("plan", model, "--machine", machine)
    assert report["tokens_per_s"] > 1 and report["gap"] == 0
    assert report["machine"]["name"] and len(report["layers"]) == 6


def test_the_time_is_the_sum_of_its_parts(model):
    report = plan(model, "--vram", "540M")
    parts = [layer["home_s"] + max(layer["hot_s"], layer["cold_s"]) + layer["sync_s"] + layer["flash_s"] for layer in report["layers"]]
    assert report["token_s"] == pytest.approx(sum(parts) + report["head_s"] + report["switch_s"])
    assert report["tokens_per_s"] == pytest.approx(1 / report["token_s"])
    assert 0 < report["hot_bytes"] <= 540 << 20
    assert all(layer["hot"] + layer["memory"] + layer["flash"] == 4096 for layer in report["layers"])


def test_more_memory_is_never_slower(model):
    speeds = [plan(model, "--vram", f"{vram}M", "--ram", "230M")["tokens_per_s"] for vram in (0, 520, 530, 540, 560, 600)]
    assert speeds == sorted(speeds) and speeds[-1] > 2 * speeds[0]


def test_flash_takes_the_rarest_and_its_speed_counts(model):
    slow, fast = (plan(model, "--vram", 0, "--ram", "230M", "--flash-mbps", mbps) for mbps in (500, 5000))
    assert slow["flash_bytes"] > 0 and slow["limit"] in ("RAM", "flash reads", "hot memory")
    assert fast["tokens_per_s"] > 1.5 * slow["tokens_per_s"]
    assert "no flash" in refused(model, "--machine", "desktop-8gb", "--context", 256, "--vram", 0, "--ram", "230M", "--flash-mbps", 0)


def test_sync_that_costs_too_much_leaves_layers_whole(model):
    assert any(0 < layer["hot"] < 4096 for layer in plan(model, "--vram", "536M", "--sync-us", 0)["layers"])
    assert plan(model, "--vram", "536M", "--sync-us", 1e5)["load_share"] in (0, 1)


def test_one_memory_computes_everything_hot(model):
    report = run_json("plan", model, "--machine", "orin-nano-8gb", "--context", 256, "--ram", "230M")
    assert report["load_share"] == 1 and report["memory_bytes"] == 0 and report["flash_bytes"] > 0


def test_the_file_holds_the_neurons_that_profile_counted(tmp_path):
    model, out, plot = tmp_path / "tidepool.gguf", tmp_path / "plan.json", tmp_path / "plan.svg"
    shutil.copy(ROOT / "config/models/tidepool.gguf", model)
    args = ("--machine", "desktop-8gb", "--context", 64, "--vram", "522M", "--out", out)
    assert "profile" in refused(model, *args) and not out.exists()
    run("profile", model, "--text", OZ, "--window", 64, "--tokens", 256)
    report = run_json("plan", model, *args, "--plot", plot)
    assert "profiled" in report["frequencies"]
    written = json.loads(out.read_text())
    hot = [sum(int(digit, 16).bit_count() for digit in layer["hot"]) for layer in written["layers"]]
    assert hot == [layer["hot"] for layer in report["layers"]]
    picture = xml.etree.ElementTree.parse(plot).getroot()
    assert len(picture.findall(".//{http://www.w3.org/2000/svg}rect")) > 8 * len(hot)
    first = out.read_bytes()
    run("plan", model, *args)
    assert out.read_bytes() == first


def test_refusals_say_what_to_do(model, tmp_path):
    assert "desktop-24gb" in refused(model, "--machine", "desktop-25gb")
    assert "MODEL" in refused("--machine", "desktop-8gb")
    assert "MODEL" in refused(model, "--replay", "x")
    assert "What is needed" in refused(model, "--machine", "desktop-8gb", "--ram", "1M")
    assert "size" in refused(model, "--machine", "desktop-8gb", "--ram", "much")
    broken = tmp_path / "machine.json"
    broken.write_text('{"cold": {"dense_bytes_per_s": 0}}')
    message = refused(model, "--machine", broken)
    assert str(broken) in message and "cold.dense_bytes_per_s" in message


def test_the_text_says_what_the_json_says(model):
    text = run("plan", model, "--machine", "desktop-8gb", "--context", 256, "--vram", "540M").stdout.decode()
    report = plan(model, "--vram", "540M")
    assert f"predicted: {report['tokens_per_s']:.2f} tokens/s" in text
    assert f"limited by: {report['limit']}" in text
    assert "frequencies assumed: 10% active, Zipf exponent 0.8" in text
