"""Folders of packed weights, equal to the bit to what transformers and others unpack (tests/golden/make_packed.py)."""
import json
import shutil
from pathlib import Path

import gguf
import numpy
import pytest
from conftest import refusal, run

ROOT = Path(__file__).parent.parent / "golden" / "packed"
HALVES = gguf.GGMLQuantizationType.BF16, gguf.GGMLQuantizationType.F16
NAMES = sorted(path.name for path in ROOT.iterdir() if path.is_dir())


def unpacked(name, folder):
    """The folder in bf16 that libraries make of it."""
    config = json.loads((ROOT / name / "config.json").read_text())
    del config["quantization_config"]
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    shutil.copy(ROOT / name / "bf16.safetensors", folder / "model.safetensors")
    return folder


def tensors_of(path):
    return {tensor.name: (tensor.tensor_type, tensor.data.tobytes()) for tensor in gguf.GGUFReader(path).tensors}


@pytest.mark.parametrize("name", NAMES)
def test_weights_are_those_of_the_libraries_to_the_bit(name, tmp_path):
    run("convert", ROOT / name, tmp_path / "packed.gguf")
    run("convert", unpacked(name, tmp_path / "bf16"), tmp_path / "bf16.gguf")
    got, expected = tensors_of(tmp_path / "packed.gguf"), tensors_of(tmp_path / "bf16.gguf")
    assert got == expected and got["blk.0.attn_q.weight"][0] in HALVES


@pytest.mark.parametrize("name", NAMES)
def test_a_packed_folder_answers_as_the_unpacked_one(name, tmp_path):
    (tmp_path / "tokens.json").write_text(json.dumps([[5, 6, 7, 8, 9, 10]]))
    logits = []
    for folder in (ROOT / name, unpacked(name, tmp_path / "bf16")):
        run("eval", folder, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy")
        logits.append(numpy.load(tmp_path / "l.npy"))
    assert numpy.array_equal(*logits) and numpy.isfinite(logits[0]).all()


def test_the_packing_may_be_told_in_the_text_part_of_a_config(tmp_path):
    shutil.copytree(ROOT / "fp8_blocks", tmp_path / "folder")
    config = tmp_path / "folder/config.json"
    config.write_text(json.dumps({"model_type": "gemma3", "text_config": json.loads(config.read_text())}))
    run("convert", tmp_path / "folder", tmp_path / "text.gguf")
    run("convert", ROOT / "fp8_blocks", tmp_path / "packed.gguf")
    assert tensors_of(tmp_path / "text.gguf") == tensors_of(tmp_path / "packed.gguf")


def changed(name, folder, change):
    """A copy of a packed folder whose safetensors header is another. `change`: called with the header."""
    shutil.copytree(ROOT / name, folder)
    path = folder / "model.safetensors"
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + size:])
    return folder


Q = "model.layers.0.self_attn.q_proj."


@pytest.mark.parametrize("shape", [[], [1]])
def test_packed_weights_without_rows_are_refused(shape, tmp_path):
    """The program read behind a shape's end."""
    config = json.loads((ROOT / "fp8_blocks/config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config))
    header = json.dumps({"x.weight": {"dtype": "F8_E4M3", "shape": shape, "data_offsets": [0, 1]},
                         "x.weight_scale": {"dtype": "F32", "shape": [], "data_offsets": [4, 8]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + bytes([0x38, 0, 0, 0, 0, 0, 0x80, 0x3F]))
    assert "packed weights have rows and columns" in refusal("inspect", tmp_path)


@pytest.mark.parametrize("name, change, words", [
    ("fp8_blocks", lambda h: h.pop(Q + "weight_scale_inv"), ["F8_E4M3", Q + "weight"]),
    ("nvfp4", lambda h: h.pop(Q + "weight_scale"), [Q + "weight_scale", "missing"]),
    ("fp8_blocks", lambda h: h[Q + "weight_scale_inv"].update(shape=[4, 1]), ["[64, 64]", "[4, 1]", "no blocks"]),
    ("fp8_blocks", lambda h: h[Q + "weight_scale_inv"].update(shape=[2, 3]), ["weight_scale_inv", "bytes"]),
    ("fp8_blocks", lambda h: h[Q + "weight"].update(shape=[1 << 40, 64]), ["dimension"]),
    ("fp8_blocks", lambda h: h[Q + "weight"].update(data_offsets=[0, 1 << 60]), ["data_offsets"]),
    ("nvfp4", lambda h: h[Q + "weight_global_scale"].update(dtype="U8", shape=[4]), ["weight_global_scale"]),
    ("int4_words", lambda h: h.pop(Q + "weight_shape"), ["weight_shape"]),
    ("int4_words", lambda h: h[Q + "weight_packed"].update(shape=[32, 16]), ["[32, 16] words", "[64, 64]"]),
    ("gptq", lambda h: h.pop(Q + "qzeros"), [Q + "qzeros", "missing"]),
    ("gptq", lambda h: h[Q + "scales"].update(shape=[8, 32]), ["scales [8, 32]"]),
    ("gptq", lambda h: h[Q + "g_idx"].update(dtype="F32"), ["g_idx"]),
    ("awq", lambda h: h[Q + "qweight"].update(dtype="F32"), ["type F32"]),
    ("int4_words", lambda h: h.update({Q + "weight_g_idx": h[Q + "weight_shape"]}), ["weight_g_idx", "not read"]),
    ("int4_words_zeros", lambda h: h[Q + "weight_zero_point"].update(shape=[4, 8]), ["scales [64, 4]", "zero points [4, 8]"]),
    ("int8_zeros", lambda h: h[Q + "weight_zero_point"].update(dtype="F32", shape=[16, 1]), ["zero points of type F32"]),
])
def test_damaged_folders_are_refused_with_the_tensor(name, change, words, tmp_path):
    result = run("inspect", changed(name, tmp_path / "model", change), check=False)
    told = result.stderr.decode()
    assert result.returncode == 1 and all(word in told for word in words), told


def test_an_input_of_no_group_is_refused(tmp_path):
    def change(header):
        begin = header[Q + "qweight"]["data_offsets"][0]
        header[Q + "g_idx"]["data_offsets"] = [begin, begin + 4 * 64]
    folder = changed("gptq", tmp_path / "model", change)
    result = run("convert", folder, tmp_path / "out.gguf", check=False)
    assert result.returncode == 1 and b"of a group beyond 4" in result.stderr, result.stderr


def test_other_layouts_are_refused_with_what_is_read(tmp_path):
    for name, change, words in (("awq", {"version": "gemv"}, "'gemv' is not read; 'gemm' is"), ("gptq", {"bits": 3}, "3 bits"),
                                ("gptq", {"checkpoint_format": "marlin"}, "'marlin'"),
                                ("fp8_blocks", {"weight_block_size": [1 << 62, 1]}, "is [4611686018427387904,1]"), ("fp8_blocks", {"weight_block_size": 7}, "weight_block_size")):
        folder = tmp_path / f"{name}-{len(words)}"
        shutil.copytree(ROOT / name, folder)
        config = json.loads((folder / "config.json").read_text())
        config["quantization_config"] |= change
        (folder / "config.json").write_text(json.dumps(config))
        result = run("inspect", folder, check=False)
        assert result.returncode == 1 and words in result.stderr.decode(), result.stderr


def test_modelopts_own_file_says_that_weights_are_packed(tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(ROOT / "nvfp4_modelopt", folder)
    config = json.loads((folder / "config.json").read_text())
    quantization = config.pop("quantization_config")
    (folder / "config.json").write_text(json.dumps(config))
    assert run("inspect", folder, check=False).returncode == 1
    (folder / "hf_quant_config.json").write_text(json.dumps({"producer": {"name": "modelopt"}, "quantization": quantization}))
    run("convert", folder, tmp_path / "out.gguf")
    run("convert", ROOT / "nvfp4_modelopt", tmp_path / "same.gguf")
    assert tensors_of(tmp_path / "out.gguf") == tensors_of(tmp_path / "same.gguf")


def test_scales_may_lie_in_another_shard(tmp_path):
    """A large folder's weight and scale may be the last of one file and the first of the next."""
    folder = tmp_path / "model"
    folder.mkdir()
    shutil.copy(ROOT / "int8/config.json", folder)
    data = (ROOT / "int8/model.safetensors").read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + size])
    index = {}
    for part in (0, 1):
        names = [name for name in header if name != "__metadata__" and name.endswith("weight_scale") == bool(part)]
        own, body = {}, b""
        for name in names:
            begin, end = header[name]["data_offsets"]
            own[name] = header[name] | {"data_offsets": [len(body), len(body) + end - begin]}
            body += data[8 + size + begin:8 + size + end]
            index[name] = f"part-{part}.safetensors"
        text = json.dumps(own).encode()
        (folder / f"part-{part}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    run("convert", folder, tmp_path / "shards.gguf")
    run("convert", ROOT / "int8", tmp_path / "one.gguf")
    assert tensors_of(tmp_path / "shards.gguf") == tensors_of(tmp_path / "one.gguf")
