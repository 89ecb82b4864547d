"""bitnet.cpp's I2_S: the ternary weights of TQ2_0 in another order, with one scale behind each tensor."""
import re

import gguf
import numpy
import pytest
from conftest import run
from gguf_copy import copy
from test_ternary import SHAPE, logits

I2S, SCALE = 36, 0.0371


def levels_of(tensor):
    """Ternary levels of a tensor of floats."""
    return numpy.clip(numpy.round(tensor.data / numpy.abs(tensor.data).mean()), -1, 1)


def packed(levels):
    """As bitnet.cpp packs them on x86: value j of 128 in the bits from 6 - 2 (j / 32) on of byte j % 32."""
    codes = (levels.reshape(-1, 4, 32) + 1).astype(numpy.uint8)
    return (codes[:, 0] << 6 | codes[:, 1] << 4 | codes[:, 2] << 2 | codes[:, 3]).reshape(-1)


def write(source, out, corrupt=False):
    """`source` with its layers' matrices in I2_S, which the gguf package does not know."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    for field in reader.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind = field.types[0]
            writer.add_key_value(field.name, field.contents(), kind,
                                 sub_type=field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    data = []
    for tensor in reader.tensors:
        if tensor.name.startswith("blk.") and len(tensor.shape) == 2:
            scale = numpy.zeros(8, numpy.float32)
            scale[0] = SCALE
            blob = numpy.concatenate([packed(levels_of(tensor)), scale.view(numpy.uint8)])
            if corrupt:
                blob[0] = 0xFF
            writer.add_tensor_info(tensor.name, tensor.data.shape, numpy.dtype(numpy.float32), blob.nbytes, raw_dtype=I2S)
        else:
            blob = tensor.data
            writer.add_tensor_info(tensor.name, blob.shape, blob.dtype, blob.nbytes)
        data.append(blob)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for blob in data:
        writer.write_tensor_data(blob)
    writer.close()
    return out


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("i2s") / "f32.gguf"
    run("synth", path, *SHAPE, "--type", "f32")
    return path


def test_the_weights_are_those_of_tq2_0(source, tmp_path):
    def ternary(tensor):
        if not tensor.name.startswith("blk.") or len(tensor.shape) < 2:
            return tensor.data, tensor.tensor_type
        floats = (levels_of(tensor) * numpy.float32(SCALE)).astype(numpy.float32)
        kind = gguf.GGMLQuantizationType.TQ2_0
        return gguf.quants.quantize(floats, kind), kind

    expected = logits(copy(source, tmp_path / "tq2.gguf", ternary), tmp_path)
    assert numpy.array_equal(logits(write(source, tmp_path / "i2s.gguf"), tmp_path), expected)
    result = run("convert", tmp_path / "i2s.gguf", tmp_path / "again.gguf")
    assert re.search(rb"14 tensors of type i2_s .* x86", result.stderr)
    assert numpy.array_equal(logits(tmp_path / "again.gguf", tmp_path), expected)


def test_a_level_that_no_ternary_weight_has_is_named(source, tmp_path):
    result = run("run", write(source, tmp_path / "bad.gguf", corrupt=True), "-p", "w1", "-n", 1, check=False)
    assert result.returncode == 1 and b"level of 3" in result.stderr


def test_a_file_that_ends_before_the_last_scale_is_named(source, tmp_path):
    path = write(source, tmp_path / "short.gguf")
    path.write_bytes(path.read_bytes()[:-40])
    result = run("run", path, "-p", "w1", "-n", 1, check=False)
    assert result.returncode == 1 and b"short.gguf" in result.stderr
