"""Models against independent implementations: published texts, golden data, a float64 forward in NumPy."""
import json

import gguf
import numpy as np
import pytest
from conftest import ROOT, STORIES, TIDEPOOL_FOLDER, run, run_json
from numpy_llama import NumpyLlama

GOLDEN = json.loads((ROOT / "tests/golden/tidepool.json").read_text())


def logits(model, sequences, tmp_path, *options):
    """Logits of every position of every sequence, one array each."""
    (tmp_path / "tokens.json").write_text(json.dumps(sequences))
    run("eval", model, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "logits.npy", *options)
    rows = np.load(tmp_path / "logits.npy").astype(np.float64)
    return np.split(rows, np.cumsum([len(s) for s in sequences])[:-1])


def test_stories260k_gives_the_published_text():
    text = run_json("run", STORIES, "-p", "", "-n", "200")["text"]
    assert text.startswith("Once upon a time, there was a little girl named Lily. She loved to play outside in the park.")


@pytest.mark.parametrize("model,data,tolerance", [(TIDEPOOL_FOLDER, "bf16", 0.02), ("tidepool", "q8_0", 0.05)])
def test_tidepool_golden(model, data, tolerance, tmp_path):
    forced = GOLDEN[data]["forced"]
    positions = 0
    for case, rows in zip(forced, logits(model, [c["ids"] for c in forced], tmp_path)):
        shifted = rows - rows.max(-1, keepdims=True)
        log_probability = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        for i, (best, lead) in enumerate(zip(case["argmax"], case["margin"], strict=True)):
            positions += 1
            if lead >= 0.25:
                assert rows[i].argmax() == best, (i, lead)
        following = log_probability[np.arange(len(rows) - 1), case["ids"][1:]]
        assert np.abs(following - case["logprob_next"]).max() < tolerance
    assert positions >= 1172


@pytest.mark.parametrize("model,data", [(TIDEPOOL_FOLDER, "bf16"), ("tidepool", "q8_0")])
def test_tidepool_greedy_continuations(model, data):
    for case in GOLDEN[data]["greedy"]:
        got = run_json("run", model, "-p", case["prompt"], "-n", len(case["tokens"]))["tokens"]
        expected = [t for t in case["tokens"][:case["certain"]] if t not in (2, 6)]  # the stop token is not part of the answer
        assert got[:len(expected)] == expected, case["prompt"]


def test_smollm2_agrees_with_numpy(smollm, tmp_path, record_property, capsys):
    text = (ROOT / "tests/data/wizard_of_oz.txt").read_text()[3000:6000]
    tokens = run_json("tokenize", smollm, stdin=text.encode())["tokens"][:200]
    expected = NumpyLlama(smollm).logits(tokens)
    (got,) = logits(smollm, [tokens], tmp_path)
    ordered = np.sort(expected, -1)
    lead = ordered[:, -1] - ordered[:, -2]
    same = expected.argmax(-1) == got.argmax(-1)
    difference = np.abs(expected - got)
    # Activations of 8 bits move a logit by 0.18 on average, so a difference of two by some 0.3: a lead of
    # 1 is beyond three deviations, one of 0.2 within one.
    assert difference.mean() < 0.25
    assert (lead >= 1).sum() > 80 and same[lead >= 1].all()
    assert (lead >= 0.2).sum() > 100 and same[lead >= 0.2].mean() > 0.97
    with capsys.disabled():
        print(f"\nSmolLM2 Q4_1, {len(tokens)} positions: largest logit difference {difference.max():.3f}, mean {difference.mean():.3f}")
    # With the same weights as floats nothing is quantised but the f16 cache: the forward itself is right.
    run("convert", smollm, tmp_path / "f32.gguf", "--quantize", "f32")
    (exact,) = logits(tmp_path / "f32.gguf", [tokens], tmp_path)
    assert np.abs(expected - exact).max() < 0.05


@pytest.mark.parametrize("options", [["--cpu-isa", "reference"], ["--cpu-isa", "avx2"], ["-t", "1"], ["-t", "4"], ["--decode"]])
def test_every_setting_gives_the_same_greedy_path(options, tmp_path):
    case = GOLDEN["q8_0"]["forced"][0]
    (rows,) = logits("tidepool", [case["ids"]], tmp_path, *options)
    for i, (best, lead) in enumerate(zip(case["argmax"], case["margin"])):
        if lead >= 0.25:
            assert rows[i].argmax() == best


@pytest.mark.parametrize("kind", ["f32", "f16", "q8_0", "q4_0"])
def test_converted_files_are_read_by_the_gguf_package(kind, tmp_path):
    out = tmp_path / f"a model {kind}.gguf"
    run("convert", TIDEPOOL_FOLDER, out, "--quantize", kind)
    reader = gguf.GGUFReader(out)
    assert reader.fields["general.architecture"].contents() == "llama"
    assert len(reader.fields["tokenizer.ggml.tokens"].contents()) == 2048
    assert reader.fields["llama.attention.head_count_kv"].contents() == 4
    tensors = {t.name: t for t in reader.tensors}
    assert len(tensors) == 56
    assert tensors["blk.0.ffn_up.weight"].tensor_type.name == kind.upper()
    stored = run_json("inspect", TIDEPOOL_FOLDER)
    assert [t["name"] for t in stored["tensors"]] == [t.name for t in reader.tensors]
    # Values: the quantised matrix is the original within the type's step.
    original = tmp_path / "f32.gguf"
    run("convert", TIDEPOOL_FOLDER, original, "--quantize", "f32")
    exact = {t.name: t for t in gguf.GGUFReader(original).tensors}
    for name in ("blk.0.ffn_up.weight", "blk.3.attn_q.weight", "token_embd.weight"):
        a = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
        b = gguf.quants.dequantize(exact[name].data, exact[name].tensor_type)
        expected = gguf.quants.dequantize(gguf.quants.quantize(b, tensors[name].tensor_type), tensors[name].tensor_type)
        assert np.array_equal(a, expected), name


def test_quantised_reading_agrees_with_numpy_for_every_type(tmp_path):
    tokens = GOLDEN["bf16"]["forced"][0]["ids"][:60]
    for kind, tolerance in [("f32", 0.02), ("f16", 0.02), ("q8_0", 0.3), ("q4_0", 0.5)]:
        path = tmp_path / f"{kind}.gguf"
        run("convert", TIDEPOOL_FOLDER, path, "--quantize", kind)
        (got,) = logits(path, [tokens], tmp_path)
        assert np.abs(got - NumpyLlama(path).logits(tokens)).max() < tolerance, kind


def make_folder(tmp_path, shards):
    """The Tidepool folder with its tensors spread over several files and an index."""
    import shutil
    folder = tmp_path / "sharded"
    shutil.copytree(TIDEPOOL_FOLDER, folder)
    blob = (folder / "model.safetensors").read_bytes()
    size = int.from_bytes(blob[:8], "little")
    header, data = json.loads(blob[8:8 + size]), blob[8 + size:]
    header.pop("__metadata__", None)
    names, weight_map = sorted(header), {}
    for s in range(shards):
        mine, offset, body = {}, 0, b""
        for name in names[s::shards]:
            begin, end = header[name]["data_offsets"]
            mine[name] = {**header[name], "data_offsets": [offset, offset + end - begin]}
            body += data[begin:end]
            offset += end - begin
            weight_map[name] = f"model-{s + 1:05}-of-{shards:05}.safetensors"
        text = json.dumps(mine).encode()
        (folder / f"model-{s + 1:05}-of-{shards:05}.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + body)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def test_sharded_folders_convert_to_the_same_file(tmp_path):
    folder = make_folder(tmp_path, 3)
    run("convert", folder, tmp_path / "a.gguf", "--quantize", "q8_0", "--name", "x")
    run("convert", TIDEPOOL_FOLDER, tmp_path / "b.gguf", "--quantize", "q8_0", "--name", "x")
    one, other = gguf.GGUFReader(tmp_path / "a.gguf"), gguf.GGUFReader(tmp_path / "b.gguf")
    mine = {t.name: t.data.tobytes() for t in one.tensors}
    assert mine == {t.name: t.data.tobytes() for t in other.tensors}
    (folder / "model-00002-of-00003.safetensors").unlink()
    result = run("convert", folder, tmp_path / "c.gguf", check=False)
    assert result.returncode == 1 and b"model-00002-of-00003.safetensors" in result.stderr
    assert not (tmp_path / "c.gguf").exists()


def test_a_failed_conversion_leaves_the_old_file(tmp_path):
    out = tmp_path / "out.gguf"
    out.write_bytes(b"old")
    assert run("convert", tmp_path, out, check=False).returncode == 1
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


def write_random_model(path, kind):
    """A tiny llama whose matrices are random blocks of `kind`, written by the gguf package."""
    rng = np.random.default_rng(3)
    d, f, heads, vocab = 256, 512, 4, 300
    block, size = gguf.GGML_QUANT_SIZES[kind]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(d)
    writer.add_block_count(2)
    writer.add_feed_forward_length(f)
    writer.add_head_count(heads)
    writer.add_head_count_kv(heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(d // heads)

    def matrix(name, rows, cols):
        if kind == gguf.GGMLQuantizationType.Q6_K:  # the package reads this type but does not write it
            blocks = rng.integers(0, 256, (rows, cols // block, size), dtype=np.uint8)
            scale = (rng.random((rows, cols // block)) * 2e-5 + 1e-5).astype(np.float16)
            blocks[..., 208:210] = scale[..., None].view(np.uint8)
            data = blocks.reshape(rows, -1)
        else:
            data = gguf.quants.quantize((rng.standard_normal((rows, cols)) / np.sqrt(cols)).astype(np.float32), kind)
        writer.add_tensor(name + ".weight", data, raw_dtype=kind)

    matrix("token_embd", vocab, d)
    for i in range(2):
        writer.add_tensor(f"blk.{i}.attn_norm.weight", np.ones(d, dtype=np.float32))
        writer.add_tensor(f"blk.{i}.ffn_norm.weight", rng.random(d).astype(np.float32))
        for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
            matrix(f"blk.{i}.{name}", d, d)
        matrix(f"blk.{i}.ffn_gate", f, d)
        matrix(f"blk.{i}.ffn_up", f, d)
        matrix(f"blk.{i}.ffn_down", d, f)
    writer.add_tensor("output_norm.weight", np.ones(d, dtype=np.float32))
    matrix("output", vocab, d)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q6_K"])
def test_every_type_is_read_as_the_gguf_package_reads_it(kind, tmp_path):
    path = tmp_path / "random.gguf"
    write_random_model(path, gguf.GGMLQuantizationType[kind])
    tokens = [int(t) for t in np.random.default_rng(4).integers(0, 300, 24)]
    expected = NumpyLlama(path).logits(tokens)
    (got,) = logits(path, [tokens], tmp_path)
    # Rounding activations to 8 bits in blocks of 32 adds about 0.7% (3 sigma / 127 / sqrt(12)) to each of the
    # products one behind the other; a misread weight would be off by its own size.
    error = np.sqrt(((got - expected) ** 2).mean()) / expected.std()
    assert error < (0.02 if kind in ("Q8_0", "Q4_0", "Q4_1", "Q6_K") else 0.0005), error
    if kind in ("F32", "F16", "BF16"):
        assert (got.argmax(-1) == expected.argmax(-1)).all()


def test_gguf_version_2(tmp_path):
    blob = bytearray((ROOT / "config/models/tidepool.gguf").read_bytes())
    blob[4] = 2
    (tmp_path / "v2.gguf").write_bytes(blob)
    assert run_json("inspect", tmp_path / "v2.gguf")["format"] == "GGUF v2"
    assert run_json("run", tmp_path / "v2.gguf", "-p", "Once", "-n", 5)["tokens"] == run_json("run", "tidepool", "-p", "Once", "-n", 5)["tokens"]
