"""Parts that can be left out for measurements: the text stays the same, and the work is as expected."""
import json
import subprocess

import pytest
from conftest import BIN, ROOT
from test_hot import cache, make_eager  # noqa: F401 (a fixture)

OZ = ROOT / "tests/data/wizard_of_oz.txt"
NEURONS, LAYERS = 1024, 6


def run(*args, check=True):
    return subprocess.run([BIN / "thermocline", *map(str, args)], check=check, capture_output=True)


def generate(model, *args):
    return json.loads(run("run", model, "-p", "Once upon a time", "-n", 40, "--ignore-eos", "--device", "cpu", "--json", *args).stdout)


@pytest.fixture(scope="module")
def tidepool(tmp_path_factory):
    """With its predictors, counts of its neurons, and a bundle file."""
    model = tmp_path_factory.mktemp("ablation") / "tidepool.gguf"
    for suffix in ("", ".tcp"):
        model.with_name(model.name + suffix).write_bytes((ROOT / f"config/models/tidepool.gguf{suffix}").read_bytes())
    run("profile", model, "--text", OZ, "--tokens", 2000)
    run("pack", model)
    return model


@pytest.mark.parametrize("mode", ["sign", "exact"])
def test_passes_instead_of_fusion_change_nothing(tidepool, mode):
    fused, passes = (generate(tidepool, "--ffn-mode", mode, *args) for args in ([], ["--no-fusion"]))
    assert fused["text"] == passes["text"] and fused["work"] == passes["work"]


def test_without_actual_sparsity_what_is_predicted_is_computed(tidepool):
    usual, whole = (generate(tidepool, "--ffn-mode", "sign", *args) for args in ([], ["--no-actual-sparsity"]))
    assert usual["text"] == whole["text"]
    work = whole["work"]
    assert work["up_rows"] == work["down_rows"] == work["gate_rows"] == usual["work"]["gate_rows"] > usual["work"]["up_rows"]
    assert work["operations"] == 3 * 256 * work["gate_rows"]


def test_drafts_of_what_is_in_memory_keep_no_zeros(tidepool):
    args = ["--ffn-mode", "sign", "--ffn-memory", 0.7]
    drafted = generate(tidepool, *args, "--no-actual-sparsity", "--spec-source", "self", "--spec", "sync", "--draft-tokens", 4, "--draft-fixed")
    assert drafted["text"] == generate(tidepool, *args)["text"]


def test_random_neurons_are_as_many_but_the_wrong_ones(tidepool):
    audits = {}
    for args in ((), ("--random-predictor",)):
        out = json.loads(run("eval", tidepool, "--text", OZ, "--max-tokens", 200, "--predictor", "--ffn-mode", "sign", "--json", *args).stdout)
        audits[bool(args)] = out
    share = lambda layer: (layer["tp"] + layer["fp"]) / (layer["tp"] + layer["fp"] + layer["fn"] + layer["tn"])
    for learned, drawn in zip(audits[False]["layers"], audits[True]["layers"], strict=True):
        recall = drawn["tp"] / (drawn["tp"] + drawn["fn"])
        assert recall == pytest.approx(share(drawn), abs=0.1) and recall < learned["tp"] / (learned["tp"] + learned["fn"])
    texts = [generate(tidepool, *args)["text"] for args in (["--ffn-mode", "exact"], ["--ffn-mode", "sign", "--random-predictor"])]
    assert texts[0] != texts[1]


def test_rows_instead_of_bundles_are_more_reads_of_the_same(tidepool):
    args = ["--ffn-mode", "sign", "--ffn-memory", 0.7, "--no-read-ahead"]
    bundles, rows = (generate(tidepool, *args, *more) for more in ([], ["--no-bundling"]))
    assert bundles["text"] == rows["text"] == generate(tidepool, "--ffn-mode", "sign")["text"]
    assert rows["flash"]["needed"] == pytest.approx(bundles["flash"]["needed"], rel=0.1)  # counted before the last token's is
    assert rows["flash"]["reads"] > 1.5 * bundles["flash"]["reads"]


def test_baselines_of_placement(tidepool, cache):  # noqa: F811
    args = ["--ffn-mode", "exact", "--hot-memory", "1MiB", "--hot-threads", 1, "-t", 2]
    generate(tidepool, *args)
    make_eager(cache)  # a plan goes by measured speeds: these put neurons on both sides
    plans = {word: generate(tidepool, *args, *(["--placement", word] if word else [])) for word in ("", "random", "naive")}
    assert len({p["text"] for p in plans.values()}) == 1
    assert all(p["hot"]["used"] for p in plans.values())
    shares = {word: p["hot"]["active_share"] for word, p in plans.items()}
    assert len({p["hot"]["neurons"] for p in plans.values()}) == 1 and shares["random"] < shares[""]


@pytest.mark.parametrize("args, words", [
    (["--no-actual-sparsity", "--ffn-mode", "exact"], "no layer is in a mode that predicts"),
    (["--random-predictor", "--ffn-mode", "dense"], "no layer is in a mode that predicts"),
    (["--no-fusion", "--ffn-mode", "dense"], "nothing is fused in mode dense"),
    (["--no-bundling"], "no neurons come from flash"),
])
def test_leaving_out_what_is_not_there_is_refused(args, words):
    refused = run("run", "tidepool", "-p", "x", "-n", 1, "--device", "cpu", *args, check=False)
    assert refused.returncode == 1 and words in refused.stderr.decode()
