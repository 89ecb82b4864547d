"""Importance matrices: the measurements of `imatrix`, llama.cpp's file formats, and their use in `convert`."""
import pathlib
import struct

import gguf
import numpy
import pytest
from conftest import run, run_json

TEXT = "../data/wizard_of_oz.txt"


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    source = (pathlib.Path(__file__).parent / TEXT).read_text()
    folder = tmp_path_factory.mktemp("text")
    (folder / "learn.txt").write_text(source[2000:14000])
    (folder / "judge.txt").write_text(source[20000:26000])
    return folder


@pytest.fixture(scope="module")
def measured(text, tmp_path_factory):
    path = tmp_path_factory.mktemp("imatrix") / "tidepool.gguf"
    report = run_json("imatrix", "tidepool", "--text", text / "learn.txt", "--window", 256, "--tokens", 2048, "-o", path)
    return path, report


def read(path):
    return {tensor.name: tensor.data.reshape(-1) for tensor in gguf.GGUFReader(path).tensors}


def test_the_file_is_llama_cpps(measured, text):
    path, report = measured
    reader = gguf.GGUFReader(path)
    fields = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    assert fields == {"general.type": "imatrix", "imatrix.datasets": [str(text / "learn.txt")], "imatrix.chunk_count": fields["imatrix.chunk_count"],
                      "imatrix.chunk_size": 256}
    parts = read(path)
    assert report["matrices"] * 2 == len(parts) and report["tokens"] >= 2048 and report["unseen"] == 0
    assert fields["imatrix.chunk_count"] == -(-report["tokens"] // 256)
    for name, values in parts.items():
        assert (values == report["tokens"]).all() if name.endswith(".counts") else (values >= 0).all() and values.max() > 0, name
    # What multiplies the same has the same sums, and a norm's weights show in what it gives.
    first = parts["blk.0.attn_q.weight.in_sum2"]
    assert numpy.array_equal(first, parts["blk.0.attn_k.weight.in_sum2"])
    assert numpy.array_equal(parts["blk.0.ffn_gate.weight.in_sum2"], parts["blk.0.ffn_up.weight.in_sum2"])
    assert not numpy.array_equal(first, parts["blk.0.ffn_gate.weight.in_sum2"])


def test_every_expert_counts_its_own_tokens(text, tmp_path):
    report = run_json("imatrix", "tidepool-experts", "--text", text / "learn.txt", "--tokens", 1024, "-o", tmp_path / "m.gguf")
    parts = read(tmp_path / "m.gguf")
    counts = parts["blk.1.ffn_gate_exps.weight.counts"]
    config = run_json("inspect", "tidepool-experts")["config"]
    used = next(value for key, value in config.items() if "experts_per_tok" in key or "expert_used" in key)
    assert counts.sum() == report["tokens"] * used and len(set(counts)) > 1
    assert numpy.array_equal(counts, parts["blk.1.ffn_down_exps.weight.counts"])


@pytest.mark.parametrize("kind", ["q2_k", "q3_k", "q4_0", "iq4_nl"])
def test_rounding_by_importance_loses_less(kind, measured, text, tmp_path):
    """Measured on another text. The vectors of tidepool are 256 long, so K types have whole blocks."""
    losses = []
    for options in [[], ["--imatrix", measured[0]]]:
        run("convert", "tidepool", tmp_path / "out.gguf", "--quantize", kind, "--down", "columns", *options)
        losses.append(run_json("eval", "tidepool", "--text", text / "judge.txt", "--against", tmp_path / "out.gguf")["kl_mean"])
    assert losses[1] < losses[0], losses


def test_old_files_mean_the_same(measured, tmp_path):
    parts = read(measured[0])
    names = sorted(name.removesuffix(".in_sum2") for name in parts if name.endswith(".in_sum2"))
    blob = struct.pack("<i", len(names))
    for name in names:
        sums, calls = parts[f"{name}.in_sum2"], 8
        means = sums / parts[f"{name}.counts"][0] * calls
        blob += struct.pack("<i", len(name)) + name.encode() + struct.pack("<ii", calls, len(sums)) + means.astype("<f4").tobytes()
    (tmp_path / "old.dat").write_bytes(blob + struct.pack("<ii", 8, 4) + b"text")
    for name, matrix in [("new", measured[0]), ("old", tmp_path / "old.dat")]:
        run("convert", "tidepool", tmp_path / f"{name}.gguf", "--quantize", "q4_0", "--imatrix", matrix)
    new, old = (run_json("eval", "tidepool", "--text", __file__, "--against", tmp_path / f"{n}.gguf")["kl_mean"] for n in ["new", "old"])
    assert abs(new - old) < 0.05 * new


def refusal(*options):
    result = run("convert", "tidepool", "/dev/null/x.gguf", *options, check=False)
    assert result.returncode == 1
    return result.stderr.decode()


def test_what_is_no_importance_matrix_of_this_model_is_refused(measured, tmp_path):
    path = measured[0]
    assert "--quantize" in refusal("--imatrix", path)
    run("synth", tmp_path / "m.gguf", "--layers", 2, "--hidden-size", 64, "--intermediate-size", 96, "--heads", 2, "--kv-heads", 2)
    assert "not imatrix" in refusal("--quantize", "q4_0", "--imatrix", tmp_path / "m.gguf")
    result = run("convert", tmp_path / "m.gguf", tmp_path / "o.gguf", "--quantize", "q4_0", "--imatrix", path, check=False)
    assert result.returncode == 1 and b"another model's" in result.stderr
    blob = path.read_bytes()
    for size in [0, 3, 100, len(blob) // 2]:
        (tmp_path / "short.gguf").write_bytes(blob[:size])
        assert "short.gguf" in refusal("--quantize", "q4_0", "--imatrix", tmp_path / "short.gguf")
    at = next(tensor.data_offset for tensor in gguf.GGUFReader(path).tensors if tensor.name.endswith(".in_sum2"))
    (tmp_path / "nan.gguf").write_bytes(blob[:at] + struct.pack("<f", float("nan")) + blob[at + 4:])
    assert "no sum of squares" in refusal("--quantize", "q4_0", "--imatrix", tmp_path / "nan.gguf")
    (tmp_path / "many.dat").write_bytes(struct.pack("<ii", 2_000_000_000, 1) + b"x" + struct.pack("<ii", 1, 2_000_000_000))
    assert "values" in refusal("--quantize", "q4_0", "--imatrix", tmp_path / "many.dat")


def old_file(path, name, values):
    path.write_bytes(struct.pack("<ii", 1, len(name)) + name.encode() + struct.pack("<ii", 1, len(values)) +
                     numpy.asarray(values, dtype="<f4").tobytes())
    return path


@pytest.mark.parametrize("bad", [numpy.nan, numpy.inf, -1.0])
def test_old_files_with_nonsense_are_refused(bad, tmp_path):
    values = numpy.ones(256)
    values[3] = bad
    message = refusal("--quantize", "q4_0", "--imatrix", old_file(tmp_path / "bad.dat", "blk.0.attn_q.weight", values))
    assert "no sum of squares" in message and "bad.dat" in message


@pytest.mark.parametrize("kind", ["q2_k", "q3_k", "q4_0", "q4_k", "q5_1", "q6_k", "iq4_nl"])
def test_columns_that_multiplied_nothing_are_rounded_all_the_same(kind, tmp_path):
    values = numpy.ones(256)
    values[:64] = 0
    matrix = old_file(tmp_path / "zeros.dat", "blk.0.attn_q.weight", values)
    run("convert", "tidepool", tmp_path / "small.gguf", "--quantize", kind, "--imatrix", matrix)
    run("convert", tmp_path / "small.gguf", tmp_path / "floats.gguf", "--quantize", "f32")
    run("convert", "tidepool", tmp_path / "source.gguf", "--quantize", "f32")
    got, source = ({t.name: t.data for t in gguf.GGUFReader(tmp_path / f"{name}.gguf").tensors}["blk.0.attn_q.weight"]
                   for name in ["floats", "source"])
    error = numpy.sqrt(((got - source)[:, :64] ** 2).mean() / (source[:, :64] ** 2).mean())
    assert error < 0.4, error
