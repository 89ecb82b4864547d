"""GGUF's types that have no kernels: IQ2 and IQ3 are held as q4_k, NVFP4 as bf16, and the log gives the cost."""
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


@pytest.mark.parametrize("experts", [[], ["--experts", 4, "--experts-used", 2]], ids=["dense", "experts"])
def test_nvfp4_is_held_as_it_is_with_its_factors(experts, tmp_path):
    """The factors of experts are one for each; activations' are left out."""
    kind, random, expected, more = gguf.GGMLQuantizationType.NVFP4, numpy.random.default_rng(6), {}, {}
    run("synth", tmp_path / "f32.gguf", *SHAPE, *experts, "--type", "f32")

    def change(tensor):
        if not tensor.name.startswith("blk.") or len(tensor.shape) < 2 or "gate_inp" in tensor.name:
            return tensor.data, tensor.tensor_type
        shape = tensor.data.shape
        blocks = random.integers(0, 256, (*shape[:-1], shape[-1] // 64, 36), numpy.uint8)
        blocks[..., :4] = random.integers(20, 60, blocks[..., :4].shape)
        factors = random.uniform(0.5, 2, shape[0] if len(shape) == 3 else 1).astype(numpy.float32)
        values = gguf.quants.dequantize(blocks.reshape(*shape[:-1], -1), kind)
        expected[tensor.name] = gguf.quants.quantize(values * (factors[:, None, None] if len(shape) == 3 else factors), gguf.GGMLQuantizationType.BF16)
        module = tensor.name.removesuffix(".weight")
        more.update({f"{module}.scale": factors, f"{module}.input_scale": factors})
        return blocks.reshape(*shape[:-1], -1), kind

    copy(tmp_path / "f32.gguf", tmp_path / "nvfp4.gguf", change, more=more)
    result = run("convert", tmp_path / "nvfp4.gguf", tmp_path / "bf16.gguf", "--down", "columns")
    assert b"of type nvfp4 are held as bf16" in result.stderr
    held = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "bf16.gguf").tensors}
    floats = lambda data: (data.reshape(-1, 2).view(numpy.uint16).astype(numpy.uint32) << 16).view(numpy.float32)  # -0 is 0
    assert expected and all(numpy.array_equal(floats(held[name]), floats(data)) for name, data in expected.items())
    assert run("run", tmp_path / "nvfp4.gguf", "-p", "w1 w2", "-n", 4, "--temperature", 0).stdout.strip()
    wrong = {name: numpy.ones(7, numpy.float32) if name.endswith(".scale") else data for name, data in more.items()}
    copy(tmp_path / "f32.gguf", tmp_path / "wrong.gguf", change, more=wrong)
    refused = run("inspect", tmp_path / "wrong.gguf", check=False)
    assert refused.returncode == 1 and b".scale' is f32 [1, 7]" in refused.stderr
