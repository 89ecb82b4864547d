"""Ternary weights: BitNet's family and the types TQ1_0 and TQ2_0, which the gguf package writes."""
import json

import gguf
import numpy
import pytest
from conftest import run, run_json
from gguf_copy import copy
from test_architectures import ROOT

TQ1, TQ2, F32 = (gguf.GGMLQuantizationType[name] for name in ["TQ1_0", "TQ2_0", "F32"])
SHAPE = ["--layers", 2, "--hidden-size", 256, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 2, "--vocab", 400]


def ternary(kind, dequantised=False):
    """What copy() makes of matrices inside layers: ternary ones."""
    def change(tensor):
        if not tensor.name.startswith("blk.") or len(tensor.shape) < 2:
            return tensor.data, tensor.tensor_type
        data = gguf.quants.quantize(tensor.data, kind)
        return (gguf.quants.dequantize(data, kind).astype(numpy.float32), F32) if dequantised else (data, kind)
    return change


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ternary")
    run("synth", folder / "f32.gguf", *SHAPE, "--type", "f32")
    copies = {"tq1_0": ternary(TQ1), "tq2_0": ternary(TQ2), "floats": ternary(TQ2, dequantised=True)}
    return {name: copy(folder / "f32.gguf", folder / f"{name}.gguf", change) for name, change in copies.items()}


def logits(model, folder, *options):
    (folder / "tokens.json").write_text(json.dumps([list(range(40, 72))]))
    run("eval", model, "--tokens", folder / "tokens.json", "--logits", folder / "l.npy", "--kv-type", "f32", *options)
    return numpy.load(folder / "l.npy")


def test_both_types_are_the_same_weights(files, tmp_path):
    got = logits(files["tq2_0"], tmp_path)
    assert (logits(files["tq1_0"], tmp_path) == got).all()
    assert (logits(files["tq2_0"], tmp_path, "--decode") == got).all()
    expected = logits(files["floats"], tmp_path)
    # Activations have 8 bits: what Q8_0's test allows of a network of two layers.
    assert numpy.abs(got - expected).max() < 0.03 * numpy.abs(expected).max()


def test_ternary_weights_stay_when_they_are_written(files, tmp_path):
    expected = logits(files["tq2_0"], tmp_path)
    run("convert", files["tq1_0"], tmp_path / "same.gguf")
    assert (logits(tmp_path / "same.gguf", tmp_path) == expected).all()
    # From floats that are ternary: blocks without a weight may have another scale.
    run("convert", files["floats"], tmp_path / "again.gguf", "--quantize", "tq2_0")
    kinds = run_json("inspect", tmp_path / "again.gguf")["config"]
    assert kinds and numpy.abs(logits(tmp_path / "again.gguf", tmp_path) - expected).max() < 0.05 * numpy.abs(expected).max()


def test_exact_skips_what_squared_relu_leaves_at_zero(tmp_path):
    """BitNet's inner norm sees the live neurons alone, and the bits are dense's."""
    run("convert", ROOT / "bitnet", tmp_path / "rows.gguf", "--down", "rows")
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps([json.loads((ROOT / "bitnet" / "tokens.json").read_text())]))

    def of(*options):
        run("eval", tmp_path / "rows.gguf", "--tokens", tokens, "--logits", tmp_path / "l.npy", "--kv-type", "f32", *options)
        return numpy.load(tmp_path / "l.npy")

    dense = of("--ffn-mode", "dense")
    for options in [("--ffn-mode", "exact"), ("--ffn-mode", "exact", "--decode"), ("--ffn-mode", "dense", "--decode"), ("--threads", 1)]:
        assert (of(*options) == dense).all()
