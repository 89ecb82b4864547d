"""GGUF's IQ2 and IQ3 types, which have no kernels: they are held as q4_k, and the log gives the cost."""
import gguf
import numpy
import pytest
from conftest import run
from gguf_copy import copy
from test_ternary import SHAPE

# Relative error of holding random blocks: measured, and a tenth more. XS and S have a scale for 16 columns, q4_k one for 32.
ERRORS = {"IQ2_XXS": 0.029, "IQ2_XS": 0.060, "IQ2_S": 0.060, "IQ3_XXS": 0.034, "IQ3_S": 0.032}
SCALE = numpy.frombuffer(numpy.float16(2e-4).tobytes(), numpy.uint8)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("held") / "f32.gguf"
    run("synth", path, *SHAPE, "--type", "f32")
    return path


@pytest.mark.parametrize("name", ERRORS)
def test_a_file_of_grid_points_runs(name, source, tmp_path):
    kind = gguf.GGMLQuantizationType[name]
    random, blocks = numpy.random.default_rng(5), {}

    def change(tensor):
        if not tensor.name.startswith("blk.") or len(tensor.shape) < 2:
            return tensor.data, tensor.tensor_type
        rows, cols = tensor.data.shape
        size = gguf.GGML_QUANT_SIZES[kind][1]
        data = random.integers(0, 256, (rows, cols // 256, size), numpy.uint8)
        data[..., :2] = SCALE
        blocks[tensor.name] = data.reshape(rows, -1)
        return blocks[tensor.name], kind

    copy(source, tmp_path / "iq.gguf", change)
    result = run("convert", tmp_path / "iq.gguf", tmp_path / "f32.gguf", "--quantize", "f32", "--down", "columns")
    assert f"type {name.lower()} are held as q4_k".encode() in result.stderr and b"rounded once more" in result.stderr
    held = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "f32.gguf").tensors}
    for tensor, data in blocks.items():
        exact = gguf.quants.dequantize(data, kind)
        error = numpy.sqrt(((held[tensor] - exact) ** 2).mean() / (exact ** 2).mean())
        assert error < ERRORS[name], (tensor, error)
    report = run("run", tmp_path / "iq.gguf", "-p", "w1 w2", "-n", 4, "--temperature", 0)
    assert report.stdout.strip()
