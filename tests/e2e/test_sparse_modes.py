"""Sparse feed-forward networks through the real program: exact modes, measurements, rejections."""
import resource
import signal
import subprocess
import xml.etree.ElementTree

import numpy as np
import pytest
from conftest import ROOT, STORIES, THERMOCLINE, TIDEPOOL_FOLDER, run, run_json

OZ = ROOT / "tests/data/wizard_of_oz.txt"
LAYERS, F = 6, 1024


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Tidepool with neuron-major down projections, by type."""
    folder = tmp_path_factory.mktemp("converted")
    for kind in ("q4_0", "q8_0"):
        run("convert", TIDEPOOL_FOLDER, folder / f"{kind}.gguf", "--quantize", kind, "--down", "rows")
    return folder


@pytest.fixture(scope="module")
def calibrated(converted, tmp_path_factory):
    """A side-car with row thresholds for the q4_0 file, and the report of its calibration."""
    side_car = tmp_path_factory.mktemp("calibrated") / "rows.tcp"
    out = run_json("calibrate", converted / "q4_0.gguf", "--text", OZ, "--tokens", 6000, "--recall", 0.95, "--side-car", side_car)
    return side_car, out


def text_of(model, *args):
    return run("run", model, "-p", "Once upon a time", "-n", 60, "--temperature", 0, *args).stdout


def logits_of(model, path, *args):
    run("eval", model, "--text", OZ, "--max-tokens", 100, "--logits", path, *args)
    return np.load(path)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["q4_0", "q8_0"])
def test_exact_is_dense(converted, tmp_path, kind, threads):
    model = converted / f"{kind}.gguf"
    dense_text = text_of(model, "--ffn-mode", "dense", "-t", 1)
    dense = logits_of(model, tmp_path / "dense.npy", "--ffn-mode", "dense", "--decode", "-t", 1)
    assert len(dense_text) > 100 and np.isfinite(dense).all() and dense.std() > 0.1
    for modes in ("exact", "auto", "0-1:dense,2-:exact"):
        assert text_of(model, "--ffn-mode", modes, "-t", threads) == dense_text
        assert np.array_equal(logits_of(model, tmp_path / "x.npy", "--ffn-mode", modes, "--decode", "-t", threads), dense)


def test_calibrated_rows_keep_the_recall(converted, calibrated, tmp_path):
    side_car, said = calibrated
    assert said["side_car"] == str(side_car) and said["held_out_tokens"] > 500 and said["train_tokens"] > 2000
    assert [layer["layer"] for layer in said["layers"]] == list(range(LAYERS))
    for layer in said["layers"]:
        assert abs(layer["recall"] - 0.95) < 0.02
        assert layer["active_share"] <= layer["predicted_share"] < 1
        # Thresholds by row predict no more than one for all rows, at the same recall.
        assert layer["predicted_share"] <= layer["common"]["predicted_share"] * 1.02
    plot = tmp_path / "p.svg"
    out = run_json("eval", converted / "q4_0.gguf", "--text", OZ, "--max-tokens", 400, "--predictor", "--ffn-mode", "sign", "--side-car", side_car, "--plot", plot)
    assert out["path"] == "decode" and out["perplexity"] > 1 and out["tokens"] > 350
    audited = None
    for index, (layer, calibration) in enumerate(zip(out["layers"], said["layers"])):
        assert layer["layer"] == index and layer["mode"] == "sign"
        total = sum(layer[key] for key in ("tp", "fp", "fn", "tn"))
        audited = audited or total
        assert total == audited == F * (out["tokens"] + out["windows"]), "every token is audited"
        assert layer["recall"] == pytest.approx(layer["tp"] / (layer["tp"] + layer["fn"]))
        assert layer["precision"] == pytest.approx(layer["tp"] / (layer["tp"] + layer["fp"]))
        assert layer["active_share"] == pytest.approx((layer["tp"] + layer["fn"]) / total)
        assert layer["predicted_share"] == pytest.approx((layer["tp"] + layer["fp"]) / total)
        assert abs(layer["recall"] - 0.95) < 0.06
        assert 0 < layer["missed_mass"] < 0.1 and 0 < layer["bytes_saved_share"] < 1
    svg = xml.etree.ElementTree.parse(plot).getroot()
    words = {t.text for t in svg.iter("{http://www.w3.org/2000/svg}text")}
    assert svg.tag.endswith("svg") and {"recall", "precision"} <= words
    table = run("eval", converted / "q4_0.gguf", "--text", OZ, "--max-tokens", 60, "--predictor", "--ffn-mode", "sign,0:dense", "--side-car", side_car).stdout
    assert b"missed mass" in table and b"predicts nothing" in table and b"active is the positive class" in table


def test_sign_costs_little_perplexity(converted, calibrated):
    side_car, _ = calibrated
    out = run_json("eval", converted / "q4_0.gguf", "--text", OZ, "--max-tokens", 400, "--decode", "--ffn-mode", "sign", "--side-car", side_car, "--against", "ffn-mode=dense")
    assert out["against_perplexity"] * 0.9 < out["perplexity"] < out["against_perplexity"] * 1.2
    assert out["top1_agreement"] > 0.7 and out["kl_mean"] > 0, "it skips something"


def test_calibrate_alpha(converted, tmp_path):
    side_car = tmp_path / "alpha.tcp"
    plot = tmp_path / "alpha.svg"
    out = run_json("calibrate", converted / "q8_0.gguf", "--text", OZ, "--tokens", 3000, "--kind", "alpha", "--recall", 0.97, "--side-car", side_car, "--plot", plot)
    for layer in out["layers"]:
        assert 0 < layer["alpha"] < 4 and layer["recall"] > 0.94
    xml.etree.ElementTree.parse(plot)
    audits = run_json("eval", converted / "q8_0.gguf", "--text", OZ, "--max-tokens", 200, "--predictor", "--ffn-mode", "sign", "--side-car", side_car)
    for layer in audits["layers"]:
        assert layer["recall"] > 0.9, "alpha of the side-car is used"


def test_calibrate_threshold_serves_models_without_zeros(tmp_path):
    side_car = tmp_path / "t.tcp"
    out = run_json("calibrate", STORIES, "--text", OZ, "--tokens", 2000, "--kind", "threshold", "--kept-mass", 0.9, "--side-car", side_car)
    assert len(out["layers"]) == 5
    for layer in out["layers"]:
        assert layer["threshold"] > 0 and 0.85 < layer["kept_mass"] <= 1 and 0 < layer["kept_share"] < 1
    result = run_json("eval", STORIES, "--text", OZ, "--max-tokens", 200, "--decode", "--ffn-mode", "threshold", "--side-car", side_car, "--against", "ffn-mode=dense")
    assert 0 < result["kl_mean"] < 1


def test_compare_has_alpha_one_beside_the_rows(converted, tmp_path):
    out = run_json("calibrate", converted / "q8_0.gguf", "--text", OZ, "--tokens", 3000, "--compare", "--side-car", tmp_path / "c.tcp")
    for layer in out["layers"]:
        assert layer["equal_bytes"]["predicted_share"] <= layer["alpha_one"]["predicted_share"] + 0.02
        assert layer["equal_bytes"]["missed_mass"] <= layer["alpha_one"]["missed_mass"]


def test_bench_of_modes(converted, calibrated):
    side_car, _ = calibrated
    out = run_json("bench", converted / "q4_0.gguf", "--ffn-modes", "dense,exact,sign", "--side-car", side_car, "--prefill", 16, "--decode", 8, "--repetitions", 2)
    phases = {phase["phase"]: phase for phase in out["runs"]}
    of_modes = {f"{what} {mode}" for what in ("decode", "layers", "ffn") for mode in ("dense", "exact", "sign")}
    # The head is a difference of two measurements: absent where it drowns in noise.
    assert set(phases) - {"head"} == {"prefill", "decode", "predict sign"} | of_modes
    for phase in phases.values():
        assert phase["tokens_per_s"]["median"] > 0 and phase["bytes_per_token"] > 0 and phase["ceiling_tokens_per_s"] > 0
    assert phases["decode exact"]["bytes_per_token"] < phases["decode dense"]["bytes_per_token"]


def test_bench_loads_what_its_modes_need(converted):
    out = run_json("bench", converted / "q4_0.gguf", "--also-modes", "exact", "--ffn-modes", "dense,sign", "--prefill", 4, "--decode", 4, "--repetitions", 1)
    assert "decode sign" in {phase["phase"] for phase in out["runs"]}


@pytest.mark.parametrize("args,words", [
    (["tidepool", "--ffn-mode", "sparse"], b"'sparse' is unknown; the modes are"),
    (["tidepool", "--ffn-mode", "0-6:dense"], b"'0-6' names no layers; there are 0 to 5"),
    (["tidepool", "--ffn-mode", "3-1:dense"], b"'3-1' names no layers"),
    (["tidepool", "--ffn-mode", "lowrank"], b"train-predictor"),
    (["tidepool", "--ffn-mode", "threshold"], b"calibrate"),
    (["tidepool", "--ffn-mode", "sign", "--side-car", "/nowhere/x.tcp"], b"/nowhere/x.tcp"),
    ([STORIES, "--ffn-mode", "sign"], b"silu has no such zeros"),
    ([STORIES, "--ffn-mode", "exact"], b"silu has no such zeros"),
    (["tidepool", "--also-modes", "all"], b"'all' is unknown"),
])
def test_failures_say_what_is_wrong(args, words):
    result = run("eval", "--text", OZ, "--max-tokens", 8, *args, check=False)
    assert result.returncode == 1 and words in result.stderr, result.stderr


@pytest.mark.parametrize("args", [
    ["run", "tidepool", "--sign-slices", "6"],
    ["run", "tidepool", "--sign-planes", "3"],
    ["run", "tidepool", "--sign-alpha", "-1"],
    ["eval", "tidepool", "--ffn-recall", "1.5"],
    ["calibrate", "tidepool", "--text", OZ, "--kind", "magic"],
    ["calibrate", "tidepool", "--text", OZ, "--recall", "0"],
    ["calibrate", "tidepool"],
])
def test_bad_usage(args):
    result = run(*args, check=False, usage=True)
    assert result.returncode == 2 and result.stderr


def test_audits_need_a_mode_that_predicts(tmp_path):
    result = run("eval", "tidepool", "--text", OZ, "--predictor", "--ffn-mode", "exact", check=False)
    assert result.returncode == 1 and b"--ffn-mode sign or lowrank" in result.stderr
    result = run("eval", "tidepool", "--text", OZ, "--plot", tmp_path / "x.svg", check=False)
    assert result.returncode == 1 and b"--predictor" in result.stderr


def test_side_cars_that_do_not_fit_are_refused_and_stay(converted, calibrated, tmp_path):
    side_car, _ = calibrated
    result = run("eval", converted / "q8_0.gguf", "--text", OZ, "--ffn-mode", "sign", "--side-car", side_car, check=False)
    assert result.returncode == 1 and b"made for another model" in result.stderr
    whole = side_car.read_bytes()
    damaged = tmp_path / "damaged.tcp"
    for content in (whole[:len(whole) // 2], whole[:1000] + b"?" + whole[1001:], b""):
        damaged.write_bytes(content)
        for command in (["eval", "--ffn-mode", "sign"], ["calibrate", "--tokens", 500], ["profile", "--tokens", 500], ["train-predictor", "--tokens", 500]):
            result = run(command[0], converted / "q4_0.gguf", "--text", OZ, "--side-car", damaged, *command[1:], check=False)
            assert result.returncode == 1 and b"damaged.tcp" in result.stderr, (command, result.stderr)
            assert damaged.read_bytes() == content, command
    assert list(tmp_path.iterdir()) == [damaged], "nothing else is left behind"


def test_a_default_side_car_lies_beside_the_model(converted, tmp_path):
    model = tmp_path / "mine.gguf"
    model.write_bytes((converted / "q8_0.gguf").read_bytes())
    out = run_json("profile", model, "--text", OZ, "--tokens", 600)
    assert out["side_car"] == f"{model}.tcp"
    out = run_json("calibrate", model, "--text", OZ, "--tokens", 2000, "--recall", 0.99)
    assert out["side_car"] == f"{model}.tcp"
    audits = run_json("eval", model, "--text", OZ, "--max-tokens", 100, "--predictor", "--ffn-mode", "sign")
    assert all(layer["recall"] > 0.95 for layer in audits["layers"]), "found without being named"


def test_a_write_that_fails_leaves_the_old_side_car(converted, calibrated, tmp_path):
    side_car = tmp_path / "mine.tcp"
    side_car.write_bytes(calibrated[0].read_bytes())

    def small_files():  # as on a full disk: writes beyond 8 KiB fail
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))

    args = [THERMOCLINE, "profile", converted / "q4_0.gguf", "--text", OZ, "--tokens", "500", "--side-car", side_car]
    result = subprocess.run(args, capture_output=True, timeout=100, preexec_fn=small_files)
    assert result.returncode == 1 and b"mine.tcp" in result.stderr, result.stderr
    assert side_car.read_bytes() == calibrated[0].read_bytes()
    assert list(tmp_path.iterdir()) == [side_car], "no temporary file is left behind"
