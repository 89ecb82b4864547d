"""Ternary weights: BitNet's family and the types TQ1_0 and TQ2_0, which the gguf package writes."""
import json

import gguf
import numpy
import pytest
import safetensors_file
from conftest import run, run_json
from gguf_copy import copy
from test_architectures import ROOT

TQ1, TQ2, F32 = (gguf.GGMLQuantizationType[name] for name in ["TQ1_0", "TQ2_0", "F32"])
SHAPE = ["--layers", 2, "--hidden-size", 256, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 2, "--vocab", 400]


def ternary(kind, dequantised=False):
    """For copy(): makes the matrices inside layers ternary."""
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


def bitnet_folder(folder, quantization, matrix):
    """The golden BitNet with other matrices: `matrix(name, floats)` gives tensors by name."""
    folder.mkdir()
    config = json.loads((ROOT / "bitnet" / "config.json").read_text())
    if quantization is not None:
        config["quantization_config"] = {"quant_method": "bitnet", **quantization}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = {}
    for name, floats in safetensors_file.load(ROOT / "bitnet" / "model.safetensors").items():
        tensors |= matrix(name, floats) if name.endswith("_proj.weight") else {name: floats}
    safetensors_file.save(folder / "model.safetensors", tensors)
    return folder


def rounded(floats):
    """By the mean, as transformers' bitnet integration rounds: levels and scale."""
    scale = max(float(numpy.abs(floats.astype(numpy.float64)).mean()), 1e-5)
    return numpy.clip(numpy.round(floats / numpy.float32(scale)), -1, 1), numpy.float32(numpy.float16(scale))


def packed(name, floats, divides):
    levels, scale = rounded(floats)
    quarters = (levels.astype(numpy.int8) + 1).astype(numpy.uint8).reshape(4, -1, floats.shape[1])
    data = quarters[0] | quarters[1] << 2 | quarters[2] << 4 | quarters[3] << 6
    return {name: data, name + "_scale": numpy.array([1 / scale if divides else scale], numpy.float32)}


@pytest.mark.parametrize("quantization,divides", [
    ({"linear_class": "autobitlinear", "quantization_mode": "offline"}, False), ({"linear_class": "bitlinear"}, True), (None, None)])
def test_packed_and_rounded_checkpoints_are_ternary(quantization, divides, tmp_path):
    def ternary_floats(name, floats):
        levels, scale = rounded(floats)
        return {name: (levels * scale).astype(numpy.float32)}

    floats = bitnet_folder(tmp_path / "floats", None, ternary_floats)
    if quantization is None:
        quantization = {"linear_class": "autobitlinear", "quantization_mode": "online"}
        other = bitnet_folder(tmp_path / "other", quantization, lambda name, x: {name: x})
    else:
        other = bitnet_folder(tmp_path / "other", quantization, lambda name, x: packed(name, x, divides))
    weights = {}
    for name, folder in [("floats", floats), ("other", other)]:
        run("convert", folder, tmp_path / f"{name}.gguf", "--quantize", "f32")
        weights[name] = {t.name: t.data for t in gguf.GGUFReader(tmp_path / f"{name}.gguf").tensors}
    assert weights["floats"].keys() == weights["other"].keys()
    for name, expected in weights["floats"].items():
        # Two scales are f16, each within 2^-11.
        assert numpy.abs(weights["other"][name] - expected).max() <= 1e-3 * numpy.abs(expected).max(), name
        assert "norm" in name or "embd" in name or len(numpy.unique(weights["other"][name])) == 3, name
    assert (logits(other, tmp_path) == logits(other, tmp_path, "--decode")).all()


def test_other_quantisations_are_refused_by_name(tmp_path):
    folder = bitnet_folder(tmp_path / "f", {"linear_class": "autobitlinear", "use_rms_norm": True}, lambda name, x: {name: x})
    result = run("inspect", folder, check=False)
    assert result.returncode == 1 and b"use_rms_norm" in result.stderr
    folder = bitnet_folder(tmp_path / "g", {"linear_class": "autobitlinear"}, lambda name, x: {name: packed(name, x, False)[name]})
    assert b"weight_scale' of one number" in run("inspect", folder, check=False).stderr


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
