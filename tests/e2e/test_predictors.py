"""Profiles and predictors: the statistics a synthetic model was made with are found, a real ReLU model is predicted."""
import json
import os
import random
import statistics
import struct
import xml.etree.ElementTree

import pytest
from conftest import ROOT, STORIES, refusal, run, run_json

OZ = ROOT / "tests/data/wizard_of_oz.txt"


def header(path):
    """The JSON header of a side-car, and a function that reads an array of it."""
    data = path.read_bytes()
    magic, version, header_bytes, file_bytes, zero = struct.unpack_from("<8sIIQQ", data)
    assert (magic, version, file_bytes, zero) == (b"TCSIDCAR", 1, len(data), 0)
    begin = (32 + header_bytes + 63) // 64 * 64
    return json.loads(data[32:32 + header_bytes]), lambda a, code: struct.unpack_from(f"<{a['count']}{code}", data, begin + a["at"])


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    """A small model with known activations, and a text of its words."""
    folder = tmp_path_factory.mktemp("synthetic")
    model = folder / "small.gguf"
    run("synth", model, "--layers", 2, "--hidden-size", 256, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 4,
        "--vocab", 3000, "--active", 0.1, "--zipf", 0.8, "--reuse", 0.4, "--type", "f16")
    dice = random.Random(1)
    text = folder / "words.txt"
    # The words of a topic of 64, then of another: what the model's `reuse` is about.
    words = []
    for _ in range(250):
        topic = dice.randrange(5, 46) * 64
        words += [f"w{topic + dice.randrange(64) - 259}" for _ in range(16)]
    text.write_text(" ".join(words))
    return model, text, json.loads((folder / "small.gguf.truth.json").read_text())


def test_profile_finds_what_a_synthetic_model_was_made_with(synthetic, tmp_path):
    model, text, truth = synthetic
    side_car = tmp_path / "a side-car.tcp"
    out = run_json("profile", model, "--text", text, "--tokens", 4000, "--side-car", side_car)
    assert out["side_car"] == str(side_car) and out["tokens"] > 4000 and out["windows"] == 16
    written, array = header(side_car)
    assert written["profiled_tokens"] == out["tokens"] and written["num_hidden_layers"] == 2
    for layer, known, stored in zip(out["layers"], truth["layers"], written["layers"]):
        assert abs(layer["active_share"] - 0.1) < 0.015
        assert abs(layer["overlap"] - 0.4) < 0.08
        assert abs(layer["zipf_exponent"] - 0.8) < 0.2 and layer["zipf_r_squared"] > 0.8
        assert layer["active_share"] < layer["union_share"]["2"] < layer["union_share"]["16"] < 1
        assert sum(b["neurons"] for b in layer["histogram"]) == 512
        counts = array(stored["activations"], "I")
        assert statistics.correlation(counts, known["frequency"]) > 0.8
        norms = array(stored["down_norms"], "f")
        assert len(norms) == 512 and min(norms) > 0


def test_profile_prints_a_table_and_plots(synthetic, tmp_path):
    model, text, _ = synthetic
    plot = tmp_path / "curves.svg"
    result = run("profile", model, "--text", text, "--tokens", 600, "--side-car", tmp_path / "p.tcp", "--plot", plot)
    assert b"hot 80%" in result.stdout and result.stdout.count(b"%") > 16 and result.stderr == b""
    svg = xml.etree.ElementTree.parse(plot).getroot()
    assert svg.tag.endswith("svg") and len(svg.findall(".//{*}polyline")) == 4
    assert {"layer 0", "layer 1", "share of tokens"} <= {t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Predictors of the built-in model, and the report of their training."""
    folder = tmp_path_factory.mktemp("trained")
    run("profile", "tidepool", "--text", OZ, "--tokens", 2000, "--side-car", folder / "t.tcp")
    out = run_json("train-predictor", "tidepool", "--text", OZ, "--tokens", 8000, "--side-car", folder / "t.tcp", "--plot", folder / "t.svg")
    return folder, out


def test_a_real_model_is_predicted(trained):
    folder, out = trained
    assert out["kept_layers"] == 0 and out["train_tokens"] + out["held_out_tokens"] > 8000
    assert out["held_out_tokens"] > 1000
    for layer in out["layers"]:
        assert layer["recall"] >= 0.95
        assert layer["predicted_share"] <= 2 * layer["active_share"]
        assert layer["rank"] % 16 == 0 and layer["bytes"] == 2 * layer["rank"] * (256 + 1024)
    assert len(out["layers"]) == 6
    written, array = header(folder / "t.tcp")
    assert all({"activations", "down_norms", "low_rank"} <= set(layer) for layer in written["layers"]), "the profile stays"
    assert len(xml.etree.ElementTree.parse(folder / "t.svg").getroot().findall(".//{*}rect")) >= 18


def test_layers_that_are_trained_are_kept(trained):
    folder, out = trained
    again = run_json("train-predictor", "tidepool", "--text", OZ, "--tokens", 8000, "--side-car", folder / "t.tcp")
    assert again["kept_layers"] == 6 and again["layers"] == out["layers"]


def test_training_goes_on_where_it_was_stopped(tmp_path):
    args = ["train-predictor", "tidepool", "--text", OZ, "--tokens", 1500, "--rank", 16, "--memory", 1]
    first = run_json(*args, "--side-car", tmp_path / "a.tcp", "--layers", "0-2")
    assert [layer["layer"] for layer in first["layers"]] == [0, 1, 2] and first["layers"][0]["rank"] == 16
    rest = run_json(*args, "--side-car", tmp_path / "a.tcp")
    assert rest["kept_layers"] == 3 and rest["layers"][:3] == first["layers"]
    assert run_json(*args, "--side-car", tmp_path / "a.tcp", "--layers", 1, "--restart")["kept_layers"] == 0
    other = run_json(*args, "--side-car", tmp_path / "a.tcp", "--layers", 1, "--recall", 0.9)
    assert other["kept_layers"] == 0 and 0.9 <= other["layers"][0]["recall"] < 0.95
    # In one go, on any number of threads: the same file.
    whole = [*args, "--side-car", tmp_path / "b.tcp", "-t", 1]
    run(*whole)
    run_json(*args, "--side-car", tmp_path / "a.tcp", "--restart")
    assert (tmp_path / "a.tcp").read_bytes() == (tmp_path / "b.tcp").read_bytes()


def test_perplexity_decides_how_much_is_to_be_found(tmp_path):
    """A recall that is far too low is raised, layer by layer, until the text is as probable as without predictors."""
    model, text = tmp_path / "tidepool.gguf", tmp_path / "stories.txt"
    model.write_bytes((ROOT / "config/models/tidepool.gguf").read_bytes())
    animals = "whale goat lion owl mouse duck bee seal fox dragon rabbit turtle".split()
    text.write_text("\n".join(run_json("run", "tidepool", "--chat", "-p", f"Tell me a story about a {a}.", "-n", 250)["text"] for a in animals))
    args = ["train-predictor", model, "--text", text, "--recall", 0.5, "--rank", 32, "--window", 128]
    low = run_json(*args)
    assert "perplexity" not in low
    out = run_json(*args, "--perplexity-limit", 0.02)
    found = out["perplexity"]
    assert found["rounds"] > 0 and found["increase"] == pytest.approx(found["predicted"] / found["dense"] - 1)
    assert found["increase"] <= 0.02 or all(layer["recall"] >= 0.9995 for layer in out["layers"])
    assert sum(b["recall"] for b in out["layers"]) > sum(a["recall"] for a in low["layers"])
    again = run_json(*args, "--perplexity-limit", 0.02)
    assert again["kept_layers"] == 6 and again["perplexity"]["rounds"] == 0
    assert "--perplexity-limit excludes --layers" in refusal(*args, "--perplexity-limit", 0.02, "--layers", 1, status=2)


def test_the_residual_predicts_too(tmp_path):
    out = run_json("train-predictor", "tidepool", "--text", OZ, "--tokens", 3000, "--layers", 2, "--before-norm", "--side-car", tmp_path / "r.tcp")
    assert out["layers"][0]["recall"] >= 0.95 and out["layers"][0]["predicted_share"] < 5 * out["layers"][0]["active_share"]
    assert header(tmp_path / "r.tcp")[0]["layers"][2]["low_rank"]["before_norm"] is True


@pytest.mark.parametrize("command", ["profile", "train-predictor"])
@pytest.mark.parametrize("args,words", [
    (["tidepool", "--text", "nowhere.txt"], b"nowhere.txt"),
    (["tidepool", "--text", os.devnull], b"not a regular file"),
    (["tidepool", "--text", OZ, "--window", "513"], b"context of 512"),
    ([STORIES, "--text", OZ], b"silu is never exactly zero"),
    (["tidepool", "--text", OZ, "--activation", "gelu"], b"relu, fatrelu, drelu or relu2"),
    (["tidepool", "--text", OZ, "--side-car", "/nowhere/x.tcp"], b"/nowhere/x.tcp"),
])
def test_failures_say_what_is_wrong(command, args, words):
    result = run(command, *args, check=False)
    assert result.returncode == 1 and words in result.stderr, result.stderr


def test_texts_that_are_too_short(tmp_path):
    text = tmp_path / "short.txt"
    for content, command, words in [("", "profile", b"the text is empty"), ("Hello there", "train-predictor", b"at least 2 are needed")]:
        text.write_text(content)
        result = run(command, "tidepool", "--text", text, "--side-car", tmp_path / "x.tcp", check=False)
        assert result.returncode == 1 and words in result.stderr, result.stderr
    assert not (tmp_path / "x.tcp").exists()


def test_layers_there_are_not(tmp_path):
    for layers in ("6", "2-1", "-1", "a", "0-9"):
        result = run("train-predictor", "tidepool", "--text", OZ, "--layers=" + layers, "--side-car", tmp_path / "x.tcp", check=False)
        assert result.returncode == 1 and b"0 to 5" in result.stderr, result.stderr


def test_another_models_and_damaged_side_cars_are_refused_before_the_work(trained, tmp_path):
    folder, _ = trained
    result = run("profile", "tidepool-draft", "--text", OZ, "--side-car", folder / "t.tcp", check=False)
    assert result.returncode == 1 and b"made for another model" in result.stderr
    damaged = bytearray((folder / "t.tcp").read_bytes())
    damaged[len(damaged) // 2] ^= 4
    (tmp_path / "d.tcp").write_bytes(damaged)
    result = run("train-predictor", "tidepool", "--text", OZ, "--side-car", tmp_path / "d.tcp", check=False)
    assert result.returncode == 1 and b"d.tcp: checksum is" in result.stderr and b"make it anew" in result.stderr
    (tmp_path / "d.tcp").write_bytes(damaged[:1000])
    result = run("profile", "tidepool", "--text", OZ, "--side-car", tmp_path / "d.tcp", check=False)
    assert result.returncode == 1 and b"cut off" in result.stderr
