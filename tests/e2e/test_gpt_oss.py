"""gpt-oss's folders as they are published: experts in MXFP4, blocks and scales apart, gate and up row by row.

Their unquantised layout, and GGUF, are among the architectures (test_architectures.py).
"""
import json

import gguf
import numpy
import pytest
from conftest import run
from gguf import quants
from test_architectures import ROOT

EXPERTS, HIDDEN, INNER = 6, 64, 32
MXFP4 = gguf.GGMLQuantizationType.MXFP4


def safetensors(path, tensors):
    """tensors: name -> (dtype, array)."""
    header, data = {}, b""
    for name, (dtype, array) in tensors.items():
        blob = numpy.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(blob)]}
        data += blob
    head = json.dumps(header).encode()
    path.write_bytes(len(head).to_bytes(8, "little") + head + data)


def blocks_and_scales(packed):
    """gguf's MXFP4 [E, R, 17 n] as Hugging Face stores it: [E, R, n, 16] with neighbours in a byte, and [E, R, n]."""
    blocks = packed.reshape(*packed.shape[:-1], -1, 17)
    low, high = blocks[..., 1:] & 15, blocks[..., 1:] >> 4
    elements = numpy.concatenate([low, high], axis=-1)
    return elements[..., 0::2] | elements[..., 1::2] << 4, blocks[..., 0]


def make_folder(folder, change=lambda tensors: None):
    rng = numpy.random.default_rng(3)
    floats = lambda *shape: ("F32", (0.2 * rng.standard_normal(shape)).astype(numpy.float32))
    config = json.loads((ROOT / "gpt_oss" / "config.json").read_text())
    config |= {"hidden_size": HIDDEN, "intermediate_size": INNER, "num_local_experts": EXPERTS}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    q, kv = config["num_attention_heads"] * 16, config["num_key_value_heads"] * 16
    tensors = {"model.embed_tokens.weight": floats(96, HIDDEN), "lm_head.weight": floats(96, HIDDEN),
               "model.norm.weight": floats(HIDDEN)}
    packed = {}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for part, rows, cols in [("q_proj", q, HIDDEN), ("k_proj", kv, HIDDEN), ("v_proj", kv, HIDDEN), ("o_proj", HIDDEN, q)]:
            tensors[p + f"self_attn.{part}.weight"], tensors[p + f"self_attn.{part}.bias"] = floats(rows, cols), floats(rows)
        tensors[p + "self_attn.sinks"] = floats(config["num_attention_heads"])
        for norm in ["input_layernorm", "post_attention_layernorm"]:
            tensors[p + norm + ".weight"] = floats(HIDDEN)
        tensors[p + "mlp.router.weight"], tensors[p + "mlp.router.bias"] = floats(EXPERTS, HIDDEN), floats(EXPERTS)
        for part, rows, cols in [("gate_up_proj", 2 * INNER, HIDDEN), ("down_proj", HIDDEN, INNER)]:
            packed[layer, part] = quants.quantize(floats(EXPERTS, rows, cols)[1], MXFP4)
            blocks, scales = blocks_and_scales(packed[layer, part])
            tensors[p + f"mlp.experts.{part}_blocks"] = ("U8", blocks)
            tensors[p + f"mlp.experts.{part}_scales"] = ("U8", scales)
            tensors[p + f"mlp.experts.{part}_bias"] = floats(EXPERTS, rows)
    change(tensors)
    safetensors(folder / "model.safetensors", tensors)
    return tensors, packed


def test_blocks_become_ggufs_and_gate_and_up_part(tmp_path):
    tensors, packed = make_folder(tmp_path / "folder")
    run("convert", tmp_path / "folder", tmp_path / "out.gguf")
    written = {t.name: t for t in gguf.GGUFReader(tmp_path / "out.gguf").tensors}
    for (layer, part), blocks in packed.items():
        bias = tensors[f"model.layers.{layer}.mlp.experts.{part}_bias"][1]
        parts = {"down": (blocks, bias)} if part == "down_proj" else {
            "gate": (blocks[:, 0::2], bias[:, 0::2]), "up": (blocks[:, 1::2], bias[:, 1::2])}
        for name, (weights, biases) in parts.items():
            tensor = written[f"blk.{layer}.ffn_{name}_exps.weight"]
            assert tensor.tensor_type == MXFP4
            assert (tensor.data.reshape(weights.shape) == weights).all(), name
            assert (written[f"blk.{layer}.ffn_{name}_exps.bias"].data.reshape(biases.shape) == biases).all(), name


def test_a_folder_and_its_gguf_say_the_same(tmp_path):
    make_folder(tmp_path / "folder")
    run("convert", tmp_path / "folder", tmp_path / "out.gguf")
    (tmp_path / "tokens.json").write_text(json.dumps([list(range(3, 40))]))
    logits = []
    for model in ["folder", "out.gguf"]:
        run("eval", tmp_path / model, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy")
        logits.append(numpy.load(tmp_path / "l.npy"))
    assert numpy.isfinite(logits[0]).all() and (logits[0] == logits[1]).all()


SCALES = "model.layers.0.mlp.experts.down_proj_scales"


@pytest.mark.parametrize("change", [
    lambda t: t.pop(SCALES),
    lambda t: t.update({SCALES: ("U8", t[SCALES][1][:, :-1])}),
    lambda t: t.update({SCALES: ("F32", t[SCALES][1].astype(numpy.float32))}),
], ids=["missing", "fewer rows", "floats"])
def test_blocks_without_their_scales_are_refused_by_name(change, tmp_path):
    make_folder(tmp_path / "folder", change)
    error = run("run", tmp_path / "folder", "-p", "x", check=False)
    assert error.returncode != 0 and b"down" in error.stderr and b"scales" in error.stderr, error.stderr
