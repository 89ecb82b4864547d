"""Neurons inside ReLU experts: skipped where the down projections lie along rows, with the same text, and refused by name elsewhere."""
import json

import numpy
import pytest
from conftest import run, run_json
from test_architectures import ROOT
from test_experts import HEADS, SHAPE, mixture  # noqa: F401 (a fixture)


def test_neurons_inside_experts_are_skipped_without_a_trace(tmp_path):
    """SmallThinker's folder with its down projections turned: the logits of its definition in every mode, fewer rows read."""
    name = "smallthinker"
    tokens = json.loads((ROOT / name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    run("convert", ROOT / name, tmp_path / "rows.gguf", "--down", "rows")
    run("convert", tmp_path / "rows.gguf", tmp_path / "columns.gguf", "--down", "columns")
    expected = numpy.load(ROOT / name / "logits.npy")

    def logits(model, *options):
        run("eval", model, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", "--kv-type", "f32", *options)
        return numpy.load(tmp_path / "l.npy")

    found = [logits(tmp_path / "rows.gguf", *options) for options in [
        (), ("--decode",), ("--ffn-mode", "dense"), ("--ffn-mode", "dense", "--decode"), ("--threads", 1)]]
    for got in found:
        assert numpy.abs(got - expected).max() < 1e-4 * numpy.abs(expected).max()
        assert (got == found[0]).all()  # alone and together, skipped and not
    turned = logits(tmp_path / "columns.gguf")
    assert numpy.abs(turned - expected).max() < 1e-4 * numpy.abs(expected).max()
    assert (turned == logits(ROOT / name)).all()


def test_exact_reads_fewer_rows_of_its_experts(tmp_path):
    shape = ["--layers", 2, "--hidden-size", 256, "--intermediate-size", 256, *HEADS, "--routing", "zipf:1"]
    run("synth", tmp_path / "m", *shape, "--type", "q8_0", "--down", "rows")
    read = {}
    for mode in ["dense", "exact", "sign"]:
        report = run_json("run", tmp_path / "m", "-p", "w1 w2", "-n", 30, "--temperature", 0, "--device", "cpu", "--activation", "relu", "--ffn-mode", mode)
        read[mode] = report["timings"]["bytes_per_token"], report["tokens"]
    assert read["exact"][1] == read["dense"][1]
    assert read["exact"][0] < 0.9 * read["dense"][0]


@pytest.mark.parametrize("options,words", [
    (["--activation", "relu", "--device", "cpu", "--hot-memory", "1MiB"], "lie along rows"),
    (["--activation", "relu", "--ffn-mode", "lowrank"], "lowrank"), (["--ffn-mode", "exact"], "silu"),
])
def test_what_rows_of_experts_cannot_do_is_refused(options, words, tmp_path):
    shape = ["--layers", 2, "--hidden-size", 256, "--intermediate-size", 256, *HEADS, "--type", "q8_0"]
    run("synth", tmp_path / "m", *shape, "--down", "rows")
    error = run("run", tmp_path / "m", "-p", "w1", "-n", 1, *options, check=False)
    assert error.returncode == 1 and words in error.stderr.decode(), error.stderr
    assert b"--down columns" in run("pack", tmp_path / "m", check=False).stderr
    run("synth", tmp_path / "c", *shape)
    assert b"rounded once more" in run("convert", tmp_path / "c", tmp_path / "r", "--down", "rows").stderr
    assert b"rounded once more" in run("run", tmp_path / "c", "-p", "w1", "-n", 1, "--down-layout", "rows").stderr


def test_rows_of_experts_and_flash_are_refused_with_the_way_out(mixture, tmp_path):  # noqa: F811
    run("pack", mixture, "--out", tmp_path / "m.tcb")
    result = run("run", mixture, "-p", "w1", "--down-layout", "rows", "--bundle", tmp_path / "m.tcb", "--ffn-memory", 0.5, check=False)
    assert result.returncode == 1 and b"leave out --down-layout rows" in result.stderr, result.stderr
    run("synth", tmp_path / "rows", *SHAPE, "--type", "q8_0", "--down", "rows")
    assert run_json("inspect", tmp_path / "rows")["config"]["ffn_down"].startswith("rows")
    assert "0.0%" in run("plan", tmp_path / "rows", "--hot-memory", "1MiB").stdout.decode()
