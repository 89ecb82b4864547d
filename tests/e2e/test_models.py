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
    sure = ordered[:, -1] - ordered[:, -2] >= 0.2
    assert sure.sum() > 100
    assert (expected.argmax(-1) == got.argmax(-1))[sure].all()
    difference = np.abs(expected - got)
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
