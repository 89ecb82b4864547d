"""Models against independent implementations: published texts, golden data, a float64 forward in NumPy."""
import json
import re
from pathlib import Path

import gguf
import numpy as np
import pytest
from conftest import ROOT, STORIES, TIDEPOOL_FOLDER, refusal, run, run_json
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
    assert [t["name"].replace("ffn_down", "ffn_down_t") for t in stored["tensors"]] == [t.name for t in reader.tensors]
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
    assert "without config.json" in refusal("convert", tmp_path, out, "--overwrite")
    assert out.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [out]


# Where random blocks need a sane f16 scale, and one that gives weights near 1 / sqrt(256).
SCALES = {"Q2_K": {80: 5e-3, 82: 7e-3}, "Q3_K": {108: 1.5e-3}, "Q4_K": {0: 3e-4, 2: 2e-3}, "Q5_K": {0: 1.5e-4, 2: 2e-3},
          "Q6_K": {208: 2e-5}, "IQ4_NL": {0: 1e-3}, "IQ4_XS": {0: 5e-5}}


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
        if kind.name in SCALES:  # the package reads these types but does not write them
            blocks = rng.integers(0, 256, (rows, cols // block, size), dtype=np.uint8)
            for at, scale in SCALES[kind.name].items():
                scales = ((rng.random((rows, cols // block)) + 0.5) * scale).astype(np.float16)
                blocks[..., at:at + 2] = scales[..., None].view(np.uint8)
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


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K",
                                  "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4"])
def test_every_type_is_read_as_the_gguf_package_reads_it(kind, tmp_path):
    path = tmp_path / "random.gguf"
    write_random_model(path, gguf.GGMLQuantizationType[kind])
    tokens = [int(t) for t in np.random.default_rng(4).integers(0, 300, 24)]
    expected = NumpyLlama(path).logits(tokens)
    (got,) = logits(path, [tokens], tmp_path)
    # Rounding activations to 8 bits in blocks of 32 adds about 0.7% (3 sigma / 127 / sqrt(12)) to each of the
    # products one behind the other; a misread weight would be off by its own size.
    error = np.sqrt(((got - expected) ** 2).mean()) / expected.std()
    assert error < (0.0005 if kind in ("F32", "F16", "BF16") else 0.02), error
    if kind in ("F32", "F16", "BF16"):
        assert (got.argmax(-1) == expected.argmax(-1)).all()


def test_gguf_version_2(tmp_path):
    blob = bytearray((ROOT / "config/models/tidepool.gguf").read_bytes())
    blob[4] = 2
    (tmp_path / "v2.gguf").write_bytes(blob)
    assert run_json("inspect", tmp_path / "v2.gguf")["format"] == "GGUF v2"
    assert run_json("run", tmp_path / "v2.gguf", "-p", "Once", "-n", 5)["tokens"] == run_json("run", "tidepool", "-p", "Once", "-n", 5)["tokens"]


def synth(path, *options):
    run("synth", path, "--layers", 2, "--hidden-size", 512, "--intermediate-size", 1024, "--heads", 8, "--kv-heads", 4,
        "--vocab", 2048, *options)
    return json.loads(Path(str(path) + ".truth.json").read_text())


@pytest.mark.parametrize("kind", ["q4_1", "q5_0", "q5_1", "q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4"])
def test_quantised_files_are_read_by_the_gguf_package(kind, tmp_path):
    """The package's values are near the floats, and our results are near those of the package's weights."""
    synth(tmp_path / "f32.gguf", "--type", "f32")
    run("convert", tmp_path / "f32.gguf", tmp_path / "q.gguf", "--quantize", kind)
    exact = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "f32.gguf").tensors}
    tensors = {t.name: t for t in gguf.GGUFReader(tmp_path / "q.gguf").tensors}
    assert tensors["blk.0.ffn_up.weight"].tensor_type.name.lower() == kind
    assert tensors["output.weight"].tensor_type.name == ("Q6_K" if kind.endswith(("_k", "_xs")) else "Q8_0")
    # Half a step of 2^bits levels over some six deviations of a sub-block, and of its rounded scales.
    bound = {"q2_k": 0.4, "q3_k": 0.2, "q4_1": 0.09, "q4_k": 0.09, "q5_0": 0.05, "q5_1": 0.05, "q5_k": 0.05, "q6_k": 0.03,
             "iq4_nl": 0.09, "iq4_xs": 0.09, "mxfp4": 0.15}
    for name in ("blk.0.ffn_up.weight", "blk.1.attn_q.weight"):
        got = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
        error = np.sqrt(((got - exact[name]) ** 2).mean()) / exact[name].std()
        assert 0 < error < bound[kind], (name, error)
    tokens = list(range(300, 324))
    expected = NumpyLlama(tmp_path / "q.gguf").logits(tokens)
    (got,) = logits(tmp_path / "q.gguf", [tokens], tmp_path)
    assert np.sqrt(((got - expected) ** 2).mean()) / expected.std() < 0.02


def test_synth_tells_the_truth(tmp_path):
    """Frequencies, active share and reuse of layer 0, counted with NumPy, compared with the options and the truth file."""
    truth = synth(tmp_path / "s.gguf", "--type", "f32", "--active", 0.1, "--zipf", 0.7, "--reuse", 0.5)
    tensors = {t.name: t.data for t in gguf.GGUFReader(tmp_path / "s.gguf").tensors}
    x = tensors["token_embd.weight"].astype(np.float64)
    x /= np.sqrt((x ** 2).mean(-1, keepdims=True))
    active = x @ tensors["blk.0.ffn_gate.weight"].astype(np.float64).T > 0
    assert abs(active.mean() - 0.1) < 0.01
    frequency = np.array(truth["layers"][0]["frequency"])
    assert abs(frequency.mean() - 0.1) < 0.001
    assert np.corrcoef(frequency, active.mean(0))[0, 1] > 0.95
    ranked = np.sort(frequency)[::-1]
    slope = np.polyfit(np.log(np.arange(20, 1000)), np.log(ranked[20:1000]), 1)[0]
    assert abs(slope + 0.7) < 0.05
    same_topic = np.arange(1, len(x)) % truth["topic_tokens"] != 0
    kept = (active[:-1] & active[1:])[same_topic].sum() / active[:-1][same_topic].sum()
    assert abs(kept - 0.5) < 0.05
    walk = run_json("run", tmp_path / "s.gguf", "-p", "<0x41>", "-n", 12, "--ignore-eos")["tokens"]
    assert all(b == a + 1 for a, b in zip(walk, walk[1:]))
    assert synth(tmp_path / "again.gguf", "--type", "f32", "--active", 0.1, "--zipf", 0.7, "--reuse", 0.5) == truth
    assert (tmp_path / "again.gguf").read_bytes() == (tmp_path / "s.gguf").read_bytes()
    result = run("synth", tmp_path / "x.gguf", "--reuse", 0.001, check=False)
    assert result.returncode == 1 and b"--reuse" in result.stderr and not (tmp_path / "x.gguf").exists()


def test_synth_tells_the_truth_of_networks_of_two_matrices(tmp_path):
    """OPT's: the first matrix decides; its frequencies are counted by the engine."""
    truth = synth(tmp_path / "s.gguf", "--family", "opt", "--type", "f32", "--active", 0.1)
    names = {t.name for t in gguf.GGUFReader(tmp_path / "s.gguf").tensors}
    assert "blk.0.ffn_up.weight" in names and not any("gate" in name for name in names)
    (tmp_path / "text").write_text("".join(chr(33 + i) for i in range(90)) * 6)
    layers = run_json("profile", tmp_path / "s.gguf", "--text", tmp_path / "text", "--tokens", 500, "--window", 100)["layers"]
    asked = np.mean(truth["layers"][0]["frequency"])
    assert abs(asked - 0.1) < 0.001 and all(abs(layer["active_share"] - 0.1) < 0.03 for layer in layers), layers
    refused = run("synth", tmp_path / "x.gguf", "--family", "opt", "--experts", 2, "--experts-used", 1, check=False)
    assert refused.returncode == 1 and b"--family opt" in refused.stderr


def test_smollm2_perplexity_is_that_of_llama_cpp(smollm):
    """llama-perplexity -c 512 --chunks 24 on the same text gives 21.4139 (llama-cpp-python 0.3.36)."""
    out = run_json("eval", smollm, "--text", ROOT / "tests/data/wikitext2_test.txt", "--window", 512, "--score-from", 256,
                   "--max-tokens", 24 * 512)
    assert out["tokens"] == 24 * 255 and abs(out["perplexity"] / 21.4139 - 1) < 0.005, out


def test_eval_compares_settings_and_files(tmp_path):
    text = tmp_path / "text.txt"
    text.write_text((ROOT / "tests/data/wizard_of_oz.txt").read_text()[:4000])
    same = run_json("eval", "tidepool", "--text", text, "--against", "path=decode")
    assert same["kl_mean"] < 1e-9 and same["top1_agreement"] == 1 and same["perplexity"] == same["against_perplexity"]
    near = run_json("eval", "tidepool", "--text", text, "--against", "kv-type=q8_0")
    assert 0 < near["kl_mean"] < 0.01 and 0.95 < near["top1_agreement"] <= 1
    rough = run_json("eval", "tidepool", "--text", text, "--against", "kv-type=q4_0")
    assert near["kl_mean"] < rough["kl_mean"] < 0.1 and 0.85 < rough["top1_agreement"] < 1
    other = run_json("eval", "tidepool", "--text", text, "--against", "tidepool-draft")
    assert other["kl_mean"] > 0.02 and other["against_perplexity"] != other["perplexity"]
    assert "--against kv=1: expected a model, or" in refusal("eval", "tidepool", "--text", text, "--against", "kv=1")
    assert b"vocabularies" in run("eval", "tidepool", "--text", text, "--against", STORIES, check=False).stderr


def test_verify_names_the_damaged_row(tmp_path):
    path = tmp_path / "m.gguf"
    synth(path, "--type", "q4_0")
    tensor = {t.name: t for t in gguf.GGUFReader(path).tensors}["blk.1.ffn_up.weight"]
    blob = bytearray(path.read_bytes())
    row_bytes = 512 // 32 * 18
    at = int(tensor.data_offset) + 7 * row_bytes + 3 * 18
    blob[at:at + 2] = b"\x00\x7e"  # NaN
    path.write_bytes(blob)
    assert run("run", path, "-p", "x", "-n", 1).returncode == 0
    error = run("run", path, "-p", "x", "-n", 1, "--verify", check=False).stderr.decode()
    assert "tensor 'blk.1.ffn_up.weight', row 7, column 96" in error and "NaN or infinite" in error, error


def test_a_float_head_can_be_held_as_q8_0(tmp_path):
    synth(tmp_path / "m.gguf", "--type", "f16")
    text = tmp_path / "tokens.json"
    text.write_text(json.dumps([list(range(300, 364))]))
    out = run_json("eval", tmp_path / "m.gguf", "--tokens", text, "--against", "quantize-head=true")
    assert 0 < out["kl_mean"] < 1e-3

    def bytes_of(*options):
        for _ in range(20):  # the head's time is a difference of two runs: where noise hides it, the phase is left out
            runs = run_json("bench", tmp_path / "m.gguf", "--prefill", 8, "--decode", 4, "--repetitions", 1, *options)["runs"]
            found = [r["bytes_per_token"] for r in runs if r["phase"] == "head"]
            if found:
                return found[0]
        raise AssertionError("no run of 20 had a phase `head`")

    assert bytes_of("--quantize-head") == bytes_of() * 34 / 64


def test_bench_compares_with_an_earlier_report(tmp_path):
    first = run("bench", "tidepool", "--prefill", 16, "--decode", 8, "--depth", 64, "--repetitions", 2, "--json")
    (tmp_path / "first.json").write_bytes(first.stdout)
    out = run_json("bench", "tidepool", "--prefill", 16, "--decode", 8, "--repetitions", 2, "--compare", tmp_path / "first.json")
    assert set(out["ratios"]) - {"head"} == {"read_bandwidth", "prefill", "decode"}  # head: a difference of two runs, noise may hide it
    assert out["ratios"]["decode"]["ratio"] == pytest.approx(
        out["runs"][1]["tokens_per_s"]["median"] / json.loads(first.stdout)["runs"][1]["tokens_per_s"]["median"])
    assert b"ratio to" in run("bench", "tidepool", "--prefill", 8, "--decode", 4, "--repetitions", 1, "--compare", tmp_path / "first.json").stdout
    (tmp_path / "bad.json").write_text("{}")
    assert "no report of" in refusal("bench", "tidepool", "--compare", tmp_path / "bad.json", "--decode", 1, "--prefill", 1, "--repetitions", 1)


def test_convert_keeps_other_models_and_takes_names_as_they_are_written(tmp_path, smollm):
    out = tmp_path / "out.gguf"
    run("convert", TIDEPOOL_FOLDER, out, "--quantize", "Q4_0", "--down", "columns")
    kept = out.read_bytes()
    refused = run("convert", smollm, out, "--quantize", "q4_k_m", check=False)
    assert refused.returncode == 1 and b"is not a model named" in refused.stderr and b"--overwrite" in refused.stderr and out.read_bytes() == kept
    (tmp_path / "notes.txt").write_text("mine")
    assert "is not a model named" in refusal("convert", "tidepool", tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "mine"
    run("convert", TIDEPOOL_FOLDER, out, "--quantize", "q8_0", "--down", "columns")  # of the same name
    told = run("convert", smollm, out, "--quantize", "q4_k_m", "--overwrite").stderr.decode()
    # 576 columns are no multiple of 256.
    assert re.search(r"\d+ matrices become q8_0: a row has 576 numbers", told), told
