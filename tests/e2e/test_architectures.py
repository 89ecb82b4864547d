"""Every architecture against transformers: tiny random models in float32, logits of every position.

The data are made by tests/golden/make_architectures.py: Hugging Face folders, the GGUF files that
llama.cpp's own converter makes of them (Bamboo and OPT, which it does not know, in PowerInfer's
layout), and the logits of transformers in float64.
"""
import json
import pathlib

import numpy
import pytest
from conftest import run

ROOT = pathlib.Path(__file__).parent.parent / "golden" / "architectures"
NAMES = sorted(p.name for p in ROOT.iterdir() if p.is_dir())
TOLERANCE = 1e-4  # of the largest logit

# What a GGUF file of llama.cpp's converter cannot say: the option that says it, or why it must
# differ.
GGUF_OPTIONS = {"llama_relu": ["--activation", "relu"], "falcon40": ["--activation", "relu"]}
GGUF_SILENT = {"mistral": "the converter writes no window", "llama_ntk": "the converter writes no scaling",
               "mistral4": "the converter does not write that queries grow with the position",
               "llama4": "the converter writes neither the size of a chunk nor the heat of queries: llama.cpp knows those of the real ones",
               "glm4_moe_lite": "the converter does not write that the router is a sigmoid: sizes of the real one say it"}


def logits(model, tmp_path, *options):
    tokens = json.loads((ROOT / (model.parent if model.is_file() else model).name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    out = tmp_path / "logits.npy"
    run("eval", model, "--tokens", tmp_path / "tokens.json", "--logits", out, "--kv-type", "f32", *options)
    return numpy.load(out)


def check(got, name):
    expected = numpy.load(ROOT / name / "logits.npy")
    assert got.shape == expected.shape
    assert numpy.abs(got - expected).max() < TOLERANCE * numpy.abs(expected).max()


@pytest.mark.parametrize("path", [[], ["--decode"], ["--cpu-isa", "reference"]], ids=["prefill", "decode", "reference"])
@pytest.mark.parametrize("name", NAMES)
def test_folder_gives_the_logits_of_transformers(name, path, tmp_path):
    check(logits(ROOT / name, tmp_path, *path), name)


@pytest.mark.parametrize("name", [n for n in NAMES if n not in GGUF_SILENT])
def test_gguf_of_llama_cpp_gives_the_logits_of_transformers(name, tmp_path):
    check(logits(ROOT / name / "model.gguf", tmp_path, *GGUF_OPTIONS.get(name, [])), name)


@pytest.mark.parametrize("name", NAMES)
def test_converted_file_gives_the_logits_of_transformers(name, tmp_path):
    run("convert", ROOT / name, tmp_path / "out.gguf")
    tokens = json.loads((ROOT / name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    run("eval", tmp_path / "out.gguf", "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy",
        "--kv-type", "f32")
    check(numpy.load(tmp_path / "l.npy"), name)


def test_what_gguf_cannot_say_matters(tmp_path):
    """The exceptions above are real: without the window and the scaling the logits are others."""
    got = logits(ROOT / "mistral" / "model.gguf", tmp_path)
    expected = numpy.load(ROOT / "mistral" / "logits.npy")
    assert numpy.abs(got[:8] - expected[:8]).max() < 1e-3
    assert numpy.abs(got - expected).max() > 1


@pytest.mark.parametrize("name", ["llama3", "qwen3", "mistral", "llama_yarn"])
def test_caches_of_fewer_bits_are_near(name, tmp_path):
    expected = numpy.load(ROOT / name / "logits.npy")
    out = tmp_path / "f16.npy"
    tokens = json.loads((ROOT / name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    run("eval", ROOT / name, "--tokens", tmp_path / "tokens.json", "--logits", out)
    # f16 keeps 11 bits of keys and values.
    assert numpy.abs(numpy.load(out) - expected).max() < 0.01 * numpy.abs(expected).max()


@pytest.mark.parametrize("name", ["llama3_bands", "qwen3"])
def test_four_bits_give_the_same_by_prefill_by_decoding_and_near_f32(name, tmp_path):
    """For heads of whole blocks: the loss is less than half of that without rotating heads first."""
    tokens = json.loads((ROOT / name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    got = []
    for path in [[], ["--decode"]]:
        run("eval", ROOT / name, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", "--kv-type", "q4_0", *path)
        got.append(numpy.load(tmp_path / "l.npy"))
    expected = numpy.load(ROOT / name / "logits.npy")
    assert numpy.array_equal(*got)
    assert 0 < numpy.abs(got[0] - expected).mean() < 0.05 * numpy.abs(expected).max()


def test_old_rope_fields_mean_the_same(tmp_path):
    """rope_scaling and rope_theta, as files had them before rope_parameters."""
    for name in ["llama3", "llama_linear", "llama_yarn_explicit", "nemotron"]:
        folder = tmp_path / name
        folder.mkdir()
        config = json.loads((ROOT / name / "config.json").read_text())
        rope = config.pop("rope_parameters")
        config["rope_theta"] = rope.pop("rope_theta")
        if "partial_rotary_factor" in rope:
            config["partial_rotary_factor"] = rope.pop("partial_rotary_factor")
        kind = rope.pop("rope_type")
        if kind != "default":
            config["rope_scaling"] = {"type" if kind == "linear" else "rope_type": kind, **rope}
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes((ROOT / name / "model.safetensors").read_bytes())
        check(logits(folder, tmp_path), name)


def test_a_file_of_one_architecture_with_the_tensors_of_another_is_refused(tmp_path):
    for config_of, tensors_of, words in [("llama2", "qwen3", "_norm"), ("qwen3", "llama2", "missing"),
                                         ("opt", "llama2", "missing"), ("llama2", "falcon7", "")]:
        folder = tmp_path / f"{config_of}_{tensors_of}"
        folder.mkdir()
        config = json.loads((ROOT / config_of / "config.json").read_text())
        other = json.loads((ROOT / tensors_of / "config.json").read_text())
        for key in ["hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads", "head_dim",
                    "vocab_size"]:
            if key in other:
                config[key] = other[key]
        config["ffn_dim"] = config.get("intermediate_size")
        config["word_embed_proj_dim"] = config["hidden_size"]
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "model.safetensors").write_bytes((ROOT / tensors_of / "model.safetensors").read_bytes())
        error = run("run", folder, "-p", "x", check=False).stderr.decode()
        assert "tensor" in error and words in error, error


def test_a_relabelled_family_is_refused(tmp_path):
    """qwen2 and llama differ in rotation alone: their biases tell them apart."""
    def relabel(name, old, new):
        blob = (ROOT / name / "model.gguf").read_bytes()
        path = tmp_path / f"{name}.gguf"
        model = b"tokenizer.ggml.model" + (8).to_bytes(4, "little") + (5).to_bytes(8, "little")
        blob = blob.replace(old.encode(), new.encode()).replace(model + new.encode(), model + b"llama")
        path.write_bytes(blob)
        return run("run", path, "-p", "x", "-n", 1, check=False)

    assert b"attn_q.bias' without" in relabel("qwen2", "qwen2", "llama").stderr
    assert b"attn_q.bias' is missing" in relabel("llama2", "llama", "qwen2").stderr


def copy_of(tmp_path, name, edit=lambda config: None, tensors=None):
    """A copy of a folder with another config.json, and other safetensors if given."""
    folder = tmp_path / "edited"
    folder.mkdir(exist_ok=True)
    config = json.loads((ROOT / name / "config.json").read_text())
    edit(config)
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(tensors or (ROOT / name / "model.safetensors").read_bytes())
    return folder


def edited(tmp_path, name, edit, tensors=None):
    return run("run", copy_of(tmp_path, name, edit, tensors), "-p", "x", "-n", 1, check=False)


@pytest.mark.parametrize("name,edit,words", [
    ("llama3", lambda c: c.update(head_dim=2147483646), "head_dim"),
    ("llama3", lambda c: c["rope_parameters"].update(rope_type=7), "rope_type"),
    ("llama3", lambda c: c.update(hidden_act=5), "hidden_act"),
    ("llama_ntk", lambda c: c["rope_parameters"].update(factor=1e300), "factor"),
    ("llama_yarn", lambda c: c["rope_parameters"].update(rope_theta=1), "rope_theta"),
    ("falcon7", lambda c: c.update(alibi=1), "alibi"),
    ("opt", lambda c: c.update(max_position_embeddings=1 << 30), "max_position_embeddings"),
    ("mistral", lambda c: c.update(sliding_window=-4), "sliding_window"),
    ("phi2", lambda c: c["rope_parameters"].update(partial_rotary_factor=0.35), "partial_rotary_factor"),
    ("nemotron", lambda c: c.update(model_type="kimi_linear"), "kimi_linear"),
    ("persimmon", lambda c: c.update(qk_layernorm=False), "qk_layernorm"),
    ("stablelm", lambda c: c.update(use_parallel_residual=True), "use_parallel_residual"),
    ("gemma2", lambda c: c.update(layer_types=["full_attention", "sliding_attention"]), "layer_types"),
    ("gemma3", lambda c: c.update(layer_types=["chunked_attention"] * 6), "layer_types"),
    ("gemma2", lambda c: c.update(use_bidirectional_attention=True), "use_bidirectional_attention"),
    ("gemma2", lambda c: c.update(attn_logit_softcapping=-1.0), "attn_logit_softcapping"),
    ("smollm3", lambda c: c.update(no_rope_layers=[0, 1, 1, 1]), "no_rope_layers"),
    ("smollm3", lambda c: (c.pop("no_rope_layers"), c.update(no_rope_layer_interval=2)), "no_rope_layer_interval"),
    ("smollm3", lambda c: c.update(use_sliding_window=True, sliding_window=8), "use_sliding_window"),
    ("gemma3", lambda c: c["rope_parameters"]["sliding_attention"].update(rope_type="linear", factor=2.0), "sliding_attention"),
    ("gemma3", lambda c: c.update(layer_types=["full_attention"]), "layer_types"),
    ("phi3", lambda c: c["rope_parameters"].update(long_factor=[1.0]), "long rope factors"),
    ("phi3", lambda c: c["rope_parameters"].update(short_factor="1"), "short_factor"),
])
def test_configs_that_cannot_be_are_refused_by_name(name, edit, words, tmp_path):
    result = edited(tmp_path, name, edit)
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr


def logits_of_copy(folder, name, tmp_path):
    tokens = tmp_path / "copied.json"
    tokens.write_text(f"[{(ROOT / name / 'tokens.json').read_text()}]")
    run("eval", folder, "--tokens", tokens, "--logits", tmp_path / "l.npy", "--kv-type", "f32")
    return numpy.load(tmp_path / "l.npy")


def test_null_is_none_and_not_the_familys_default(tmp_path):
    """Gemma 2's caps and window can be switched off, and a file of ours keeps that."""
    off = dict(final_logit_softcapping=None, attn_logit_softcapping=None, sliding_window=None, layer_types=None)
    plain = logits_of_copy(copy_of(tmp_path, "gemma2", lambda c: c.update(off)), "gemma2", tmp_path)
    assert numpy.abs(plain).max() > 2.5  # the cap is 2
    run("convert", tmp_path / "edited", tmp_path / "out.gguf")
    assert (logits_of_copy(tmp_path / "out.gguf", "gemma2", tmp_path) == plain).all()


def test_hot_queries_without_yarn_survive_conversion(tmp_path):
    def edit(config):
        config["rope_parameters"] = dict(rope_type="default", rope_theta=10000.0, llama_4_scaling_beta=0.3, original_max_position_embeddings=16)
    hot = logits_of_copy(copy_of(tmp_path, "ministral3", edit), "ministral3", tmp_path)
    run("convert", tmp_path / "edited", tmp_path / "out.gguf")
    assert (logits_of_copy(tmp_path / "out.gguf", "ministral3", tmp_path) == hot).all()
    cold = logits_of_copy(copy_of(tmp_path, "ministral3", lambda c: (edit(c), c["rope_parameters"].pop("llama_4_scaling_beta"))), "ministral3", tmp_path)
    assert (cold[:16] == hot[:16]).all() and numpy.abs(cold - hot).max() > 0.1


def test_a_window_means_nothing_to_families_without_one(tmp_path):
    folder = copy_of(tmp_path, "llama3", lambda c: c.update(sliding_window=4))
    check(logits_of_copy(folder, "llama3", tmp_path), "llama3")


def test_folders_that_lack_tensors_or_name_them_oddly_are_refused(tmp_path):
    blob = (ROOT / "llama2" / "model.safetensors").read_bytes()
    for name, new, words in [("lm_head.weight", "xx_head.weight", "xx_head"), ("lm_head.weight", "lm_head_weigh_", "lm_head_weigh_"),
                             ("model.norm.weight", "model.norm.weighs", "weighs")]:
        result = edited(tmp_path, "llama2", lambda c: None, blob.replace(name.encode(), new.encode()))
        assert result.returncode == 1 and words in result.stderr.decode(), result.stderr
    # Without its head, an untied model is not complete.
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + size])
    del header["lm_head.weight"]
    text = json.dumps(header).encode()
    result = edited(tmp_path, "llama2", lambda c: None, len(text).to_bytes(8, "little") + text + blob[8 + size:])
    assert result.returncode == 1 and b"lm_head.weight" in result.stderr
