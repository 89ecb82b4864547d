"""PowerInfer's format: files written by the `gguf` package against NumPy, conversions, bad files."""
import json
import math

import gguf
import numpy as np
import pytest
from conftest import ROOT, STORIES, TIDEPOOL_FOLDER, refusal, run, run_json
from numpy_powerinfer import FAMILIES, LAYERS, VOCABULARY, F, NumpySparse, R, random_tensors, reader, stored, values, write

TOKENS = [int(t) for t in np.random.default_rng(2).integers(3, VOCABULARY, 32)]
ACTIVATIONS = {"llama": "relu", "bamboo": "drelu", "falcon": "relu", "opt": "relu"}


def logits(model, tmp_path, *options, tokens=TOKENS):
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    run("eval", model, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", "--kv-type", "f32", *options)
    return np.load(tmp_path / "l.npy").astype(np.float64)


def error(got, expected):
    return np.sqrt(((got - expected) ** 2).mean()) / expected.std()


def split(tensors, family):
    """The tensors as we name them: the fused tensor in parts, OPT's bias by its dense name."""
    out = {}
    for name, data in tensors.items():
        if "attn_qkv" in name:
            d = data.shape[1]
            kv = (len(data) - d) // 2
            for part, rows in zip("qkv", np.split(data, [d, d + kv])):
                out[name.replace("qkv", part)] = rows
        else:
            out[name.replace("ffn_down_t.bias", "ffn_down.bias")] = data
    return out


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def path(family, tmp_path):
    return write(tmp_path / "model.gguf", family, random_tensors(family), threshold=0.125)


def test_a_file_is_described(family, path):
    out = run_json("inspect", path)
    assert out["format"] == "PowerInfer GGUF v3"
    config = out["config"]
    assert config["architecture"] == family and config["hidden_act"] == ACTIVATIONS[family]
    assert config["ffn_down"].startswith("rows") and config["predictor_ranks"] == [R + 32 * i for i in range(LAYERS)]
    assert config["sparse_threshold"] == 0.125
    assert config["tie_word_embeddings"] == (family == "opt")
    assert b"predictor_ranks" in run("inspect", path).stdout


def test_the_threshold_is_0_where_the_file_does_not_say(tmp_path):
    path = write(tmp_path / "model.gguf", "llama", random_tensors("llama"))
    assert run_json("inspect", path)["config"]["sparse_threshold"] == 0


@pytest.mark.parametrize("kind", ["F16", "Q4_0"])
def test_converted_to_columns_and_back(family, kind, tmp_path):
    path = write(tmp_path / "model.gguf", family, random_tensors(family), kind, threshold=0.125)
    columns, rows = tmp_path / "columns.gguf", tmp_path / "rows.gguf"
    original = split(values(path), family)
    run("convert", path, columns, "--down", "columns")
    turned = values(columns)
    fields = reader(columns).fields
    assert columns.read_bytes()[:4] == b"GGUF"
    assert fields["powerinfer.sparse_threshold"].contents() == 0.125
    assert fields["thermocline.activation"].contents() == ACTIVATIONS[family]
    for name, data in original.items():
        if not name.endswith("ffn_down_t.weight"):
            assert np.array_equal(turned.pop(name), data), name
            continue
        expected = np.ascontiguousarray(data.T)
        if kind == "Q4_0":  # rounded once more, in blocks of the other direction
            q = gguf.GGMLQuantizationType.Q4_0
            expected = gguf.quants.dequantize(gguf.quants.quantize(expected, q), q)
        assert np.array_equal(turned.pop(name.replace("down_t", "down")), expected), name
    assert not turned
    run("convert", columns, rows, "--down", "rows")
    if kind == "F16":
        assert {name: data.tobytes() for name, data in values(rows).items()} == {n: d.tobytes() for n, d in original.items()}


def test_auto_keeps_what_is_neuron_major(family, tmp_path):
    path = write(tmp_path / "model.gguf", family, random_tensors(family), "Q4_0")
    result = run("convert", path, tmp_path / "out.gguf")
    assert result.stderr == b""
    before, after = stored(path), stored(tmp_path / "out.gguf")
    for name in (f"blk.{i}.{tensor}.weight" for i in range(LAYERS) for tensor in ("ffn_down_t", "ffn_up", "fc1", "fc2")):
        assert after[name] == before[name], name
    assert run_json("inspect", tmp_path / "out.gguf")["config"]["sparse_threshold"] == 0


# Products of Q4_0 round activations to 8 bits: some 0.7% each, see test_models.py, times the gains of
# two layers. F16 is exact but for the order of sums.
TOLERANCE = {"F16": 1e-5, "Q4_0": 0.05}
# Neurons near the threshold fall on its other side; another mask altogether is off by 0.7 and more.
LOW_RANK_TOLERANCE = {"F16": 1e-5, "Q4_0": 0.2}


@pytest.mark.parametrize("kind", ["F16", "Q4_0"])
def test_dense_logits_are_those_of_numpy(family, kind, tmp_path):
    path = write(tmp_path / "model.gguf", family, random_tensors(family), kind)
    columns = tmp_path / "columns.gguf"
    run("convert", path, columns, "--down", "columns")
    tensors, turned = values(path), values(columns)
    # Turning a quantised projection rounds it once more: each file is compared with what it holds.
    for model, of_rows in ((path, lambda name: tensors[name]), (columns, lambda name: turned[name.replace("down_t", "down")].T)):
        held = {name: of_rows(name) if name.endswith("ffn_down_t.weight") else data for name, data in tensors.items()}
        expected = NumpySparse(family, held).logits(TOKENS)
        assert error(logits(model, tmp_path, "--ffn-mode", "dense"), expected) < TOLERANCE[kind]


@pytest.mark.parametrize("kind,options", [("F16", []), ("F16", ["--cpu-isa", "reference"]), ("Q4_0", [])])
def test_low_rank_logits_are_those_of_numpy(family, kind, options, tmp_path):
    """Each family's predictor sees its own input; neurons below the threshold add nothing. Decoded: many
    tokens at once are computed exactly."""
    path = write(tmp_path / "model.gguf", family, random_tensors(family), kind, threshold=0.125)
    numpy = NumpySparse(family, values(path))
    expected = numpy.logits(TOKENS, threshold=0.125)
    assert all(0.1 < share < 0.6 for share in numpy.active), numpy.active
    assert error(numpy.logits(TOKENS), expected) > 0.5  # the mask matters
    run("convert", path, tmp_path / "copy.gguf")
    for model in (path, tmp_path / "copy.gguf"):
        got = logits(model, tmp_path, "--ffn-mode", "lowrank", "--decode", *options)
        assert error(got, expected) < LOW_RANK_TOLERANCE[kind]


@pytest.mark.parametrize("kind", ["F16", "Q4_0"])
def test_predictors_that_pick_all_give_the_dense_bits(family, kind, tmp_path):
    path = write(tmp_path / "model.gguf", family, random_tensors(family), kind, threshold=-1e9)
    for options in ([], ["--decode"]):
        dense = logits(path, tmp_path, "--ffn-mode", "dense", *options)
        assert np.array_equal(logits(path, tmp_path, "--ffn-mode", "lowrank", *options), dense)


@pytest.mark.parametrize("name", ["bamboo", "falcon7", "falcon40", "opt", "llama_relu", "nemotron"])
def test_folders_become_neuron_major(name, tmp_path):
    """Every family, sizes that no block divides: floats stay floats, 4 bits become f16."""
    folder = ROOT / "tests/golden/architectures" / name
    for option in ([], ["--quantize", "q4_0"]):
        result = run("convert", folder, tmp_path / "columns.gguf", "--quantize", "f32", "--down", "columns")
        run("convert", folder, tmp_path / "rows.gguf", *option, *(["--down", "rows"] if name == "falcon7" else []))
        columns, rows = values(tmp_path / "columns.gguf"), values(tmp_path / "rows.gguf")
        for tensor, data in columns.items():
            if not tensor.endswith("ffn_down.weight"):
                continue
            turned = rows[tensor.replace("down", "down_t")]
            expected = data.T.astype(np.float16).astype(np.float32) if option else data.T
            assert np.array_equal(turned, expected), tensor


def test_a_llama2c_checkpoint_is_turned_if_asked(tmp_path):
    run("convert", STORIES, tmp_path / "columns.gguf")  # SiLU has no zeros
    run("convert", STORIES, tmp_path / "rows.gguf", "--down", "rows")
    columns, rows = values(tmp_path / "columns.gguf"), values(tmp_path / "rows.gguf")
    for i in range(5):
        assert np.array_equal(rows[f"blk.{i}.ffn_down_t.weight"], columns[f"blk.{i}.ffn_down.weight"].T)


def test_what_is_quantised_stays_unless_asked(tmp_path):
    """auto: a copy is exact; a turned copy is rounded once more, so it must be asked for."""
    q8 = tmp_path / "q8.gguf"
    run("convert", TIDEPOOL_FOLDER, q8, "--quantize", "q8_0", "--down", "columns")
    for options in ([], ["--quantize", "q8_0"]):
        result = run("convert", q8, tmp_path / "copy.gguf", *options)
        assert b"--down rows" in result.stderr and b"rounded once more" in result.stderr, result.stderr
        assert stored(tmp_path / "copy.gguf") == stored(q8)
    run("convert", q8, tmp_path / "rows.gguf", "--down", "rows")
    run("convert", q8, tmp_path / "q4.gguf", "--quantize", "q4_0")
    q = gguf.GGMLQuantizationType
    data = np.ascontiguousarray(values(q8)["blk.3.ffn_down.weight"].T)
    for name, kind in (("rows", q.Q8_0), ("q4", q.Q4_0)):
        expected = kind.name, gguf.quants.quantize(data, kind).tobytes()
        assert stored(tmp_path / f"{name}.gguf")["blk.3.ffn_down_t.weight"] == expected


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k"])
def test_rows_have_types_with_a_kernel(kind, tmp_path):
    has_kernel = kind in ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "q4_k")
    result = run("convert", TIDEPOOL_FOLDER, tmp_path / "out.gguf", "--quantize", kind)
    assert (b"become q8_0" not in result.stderr) == has_kernel
    types = {t["name"]: t["type"] for t in run_json("inspect", tmp_path / "out.gguf")["tensors"]}
    assert types["blk.0.ffn_up.weight"] == kind
    assert types["blk.0.ffn_down_t.weight"] == (kind if has_kernel else "q8_0")


def without(name):
    return lambda tensors: tensors.pop(name)


def replaced(name, change):
    return lambda tensors: tensors.update({name: change(tensors[name])})


@pytest.mark.parametrize("change,words", [
    (without("blk.1.fc1.weight"), "'blk.1.fc1.weight' is missing"),
    (without("blk.0.fc2.weight"), "'blk.0.fc2.weight' is missing"),
    (replaced("blk.1.fc2.weight", lambda t: t[:F - 1]), f"'blk.1.fc2.weight' has the shape [{F - 1}, {R + 32}], expected [{F}, {R + 32}]"),
    (replaced("blk.0.fc1.weight", lambda t: t[:R // 2]), f"'blk.0.fc2.weight' has the shape [{F}, {R}], expected [{F}, {R // 2}]"),
    (replaced("blk.0.fc1.weight", lambda t: t[:, :32]), "'blk.0.fc1.weight' has the shape"),
    (lambda t: t.update({"blk.0.ffn_down.weight": t["blk.0.ffn_up.weight"].T}), "'blk.0.ffn_down.weight' is there as 'blk.0.ffn_down_t.weight' too"),
])
@pytest.mark.parametrize("magic", [b"PWRI", b"GGUF"])
def test_predictors_that_do_not_fit_are_refused_by_name(change, words, magic, tmp_path):
    tensors = random_tensors("llama")
    change(tensors)
    path = write(tmp_path / "model.gguf", "llama", tensors, magic=magic)
    result = run("inspect", path, check=False)
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr


def test_a_file_of_this_magic_without_predictors_is_refused(tmp_path):
    tensors = {name: data for name, data in random_tensors("llama").items() if ".fc" not in name}
    path = write(tmp_path / "model.gguf", "llama", tensors)
    result = run("inspect", path, check=False)
    assert result.returncode == 1 and b"'blk.0.fc1.weight' is missing" in result.stderr
    # The same tensors in a file with GGUF's magic are a model with its neurons in rows.
    assert "sparse_threshold" not in run_json("inspect", write(path, "llama", tensors, magic=b"GGUF"))["config"]


@pytest.mark.parametrize("shape", [(F,), (F // 2, 128), (F, 32)])
def test_a_projection_of_another_shape_is_not_turned(shape, tmp_path):
    tensors = random_tensors("llama")
    tensors["blk.1.ffn_down_t.weight"] = np.zeros(shape, np.float32)
    path = write(tmp_path / "model.gguf", "llama", tensors)
    result = run("convert", path, tmp_path / "out.gguf", "--down", "columns", check=False)
    assert result.returncode == 1 and b"'blk.1.ffn_down_t.weight' has the shape" in result.stderr
    assert not (tmp_path / "out.gguf").exists()


@pytest.mark.parametrize("threshold", [math.nan, math.inf])
def test_a_threshold_that_is_no_number_is_refused(threshold, tmp_path):
    path = write(tmp_path / "model.gguf", "opt", random_tensors("opt"), threshold=threshold)
    result = run("inspect", path, check=False)
    assert result.returncode == 1 and b"powerinfer.sparse_threshold" in result.stderr and b"finite" in result.stderr


@pytest.mark.parametrize("architecture,words", [("qwen2", b"llama, bamboo, falcon and opt"), ("mamba", b"'mamba'"),
                                                ("generic.gpu_index", b"no model")])
def test_other_architectures_are_refused(architecture, words, tmp_path):
    path = write(tmp_path / "model.gguf", "llama", random_tensors("llama"), architecture=architecture)
    if architecture == "qwen2":
        blob = path.read_bytes().replace(b"llama.", b"qwen2.")
        path.write_bytes(blob)
    result = run("inspect", path, check=False)
    assert result.returncode == 1 and words in result.stderr, result.stderr


def test_truncated_files_are_refused(path, tmp_path):
    blob = path.read_bytes()
    for length in [*range(0, 400, 37), len(blob) // 2, len(blob) - 40]:
        (tmp_path / "short.gguf").write_bytes(blob[:length])
        assert f"{tmp_path / 'short.gguf'}: " in refusal("inspect", tmp_path / "short.gguf"), length


@pytest.mark.parametrize("kind,rank", [("f16", None), ("q4_0", 96)])
def test_synth_writes_predictors_that_pick_the_asked_share(kind, rank, tmp_path):
    path = tmp_path / "s.gguf"
    options = ["--rank", rank] if rank else []
    run("synth", path, "--layers", 2, "--hidden-size", 256, "--intermediate-size", 1024, "--heads", 8, "--kv-heads", 4,
        "--vocab", 2048, "--active", 0.1, "--format", "powerinfer", "--type", kind, *options)
    assert path.read_bytes()[:4] == b"PWRI"
    config = run_json("inspect", path)["config"]
    assert config["predictor_ranks"] == [rank or 64] * 2 and config["sparse_threshold"] == 0
    tensors, truth = values(path), json.loads((tmp_path / "s.gguf.truth.json").read_text())
    x = tensors["token_embd.weight"].astype(np.float64)
    for layer in range(2):
        inner = np.maximum(x @ tensors[f"blk.{layer}.fc1.weight"].T, 0)
        active = inner @ tensors[f"blk.{layer}.fc2.weight"].T >= 0
        assert abs(active.mean() - 0.1) < 0.02
        frequency = truth["layers"][layer]["frequency"]
        assert np.corrcoef(frequency, active.mean(0))[0, 1] > 0.95
    # The same weights as the dense file, turned.
    run("synth", tmp_path / "dense.gguf", "--layers", 2, "--hidden-size", 256, "--intermediate-size", 1024, "--heads", 8,
        "--kv-heads", 4, "--vocab", 2048, "--active", 0.1, "--type", kind)
    if kind == "f16":
        assert np.array_equal(values(tmp_path / "dense.gguf")["blk.1.ffn_down.weight"].T, tensors["blk.1.ffn_down_t.weight"])


def test_synth_says_what_powerinfer_itself_cannot_read(tmp_path):
    shape = ["--layers", 1, "--hidden-size", 128, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 4, "--vocab", 300]
    error = run("synth", tmp_path / "s.gguf", "--format", "powerinfer", "--type", "q8_0", *shape).stderr
    assert b"--intermediate-size above 1000" in error and b"f16 or q4_0 alone" in error
    assert run("synth", tmp_path / "s.gguf", "--down", "rows", *shape).stderr == b""
    assert run_json("inspect", tmp_path / "s.gguf")["config"]["ffn_down"].startswith("rows")

