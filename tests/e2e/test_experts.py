"""Mixtures of experts: supported files, rejections, and the choice of a token's experts."""
import json
import re
import struct

import httpx
import numpy
import pytest
from conftest import Daemon, run, run_json
from test_architectures import ROOT, copy_of
from test_flash import daemon_exit, number_of_bytes
from trace_file import read_trace

HEADS = ["--heads", 4, "--kv-heads", 2, "--vocab", 512, "--experts", 16, "--experts-used", 2]
SIZES = ["--hidden-size", 128, "--intermediate-size", 64, *HEADS]
SHAPE = ["--layers", 2, *SIZES]


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    path = tmp_path_factory.mktemp("experts") / "m.gguf"
    run("synth", path, *SHAPE, "--routing", "zipf:1", "--type", "q8_0")
    return path


def text(model, *options, tokens=40):
    return run("run", model, "-p", "w1 w2 w3", "-n", tokens, "--temperature", 0, "--device", "cpu", *options).stdout


def without(name, part):
    """The safetensors of a folder but for the tensor called `part`."""
    blob = (ROOT / name / "model.safetensors").read_bytes()
    size = int.from_bytes(blob[:8], "little")
    header = json.loads(blob[8:8 + size])
    del header[part]
    head = json.dumps(header).encode()
    return len(head).to_bytes(8, "little") + head + blob[8 + size:]


def test_inspect_names_the_experts(mixture):
    config = run_json("inspect", mixture)["config"]
    assert (config["num_experts"], config["num_experts_per_tok"], config["expert_intermediate_size"]) == (16, 2, 64)


@pytest.mark.parametrize("name", ["mixtral", "qwen2moe", "ernie4_5_moe"])
def test_threads_and_chunks_leave_the_bits(name, tmp_path):
    tokens = json.loads((ROOT / name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    def logits(*options):
        run("eval", ROOT / name, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", *options)
        return numpy.load(tmp_path / "l.npy")
    expected = logits("--threads", 1)
    for options in [("--threads", 3), ("--decode", "--threads", 2)]:
        assert (logits(*options) == expected).all(), options


def test_experts_take_every_type(tmp_path):
    """The router stays in floats. That products of each type are right: tests/engine/ffn/expert_ffn_test.cc."""
    source = tmp_path / "f32.gguf"
    run("synth", source, "--layers", 2, "--hidden-size", 256, "--intermediate-size", 256, *HEADS, "--type", "f32")
    expected = text(source)
    for kind in ["q8_0", "q4_0", "q4_k", "q6_k", "f16"]:
        path = tmp_path / f"{kind}.gguf"
        run("convert", source, path, "--quantize", kind)
        types = {t["name"]: t["type"] for t in run_json("inspect", path)["tensors"]}
        assert types["blk.0.ffn_up_exps.weight"] == kind and types["blk.0.ffn_gate_inp.weight"] == "f32"
        assert text(path) == expected, kind


def test_gguf_py_reads_what_convert_writes(tmp_path):
    """Names, shapes and keys as llama.cpp's own files of the same model have them."""
    from gguf import GGUFReader
    for name in ["mixtral", "qwen2moe", "qwen3moe", "olmoe", "granitemoe_shared", "ernie4_5_moe"]:
        run("convert", ROOT / name, tmp_path / "out.gguf", "--overwrite")
        ours, theirs = GGUFReader(tmp_path / "out.gguf"), GGUFReader(ROOT / name / "model.gguf")
        shapes = lambda reader: {t.name: [d for d in t.shape.tolist() if d > 1] for t in reader.tensors}
        assert shapes(ours) == shapes(theirs)
        for key in ["expert_count", "expert_used_count"]:
            key = f"{theirs.fields['general.architecture'].contents()}.{key}"
            assert ours.fields[key].contents() == theirs.fields[key].contents()
        for ours_tensor in ours.tensors:
            other = next(t for t in theirs.tensors if t.name == ours_tensor.name)
            assert (ours_tensor.data.ravel() == other.data.ravel()).all(), ours_tensor.name


@pytest.fixture(scope="module")
def wide(tmp_path_factory):
    """Eight layers of 16 experts of 204 KiB, packed: large compared with the variation of a process's memory."""
    path = tmp_path_factory.mktemp("wide") / "m.gguf"
    run("synth", path, "--layers", 8, "--hidden-size", 256, "--intermediate-size", 256, *HEADS, "--routing", "zipf:1", "--type", "q8_0")
    assert run_json("pack", path)["kind"] == "experts"
    return path


PROMPT = " ".join(f"w{7 * i % 200}" for i in range(150))


def generated(model, *options, tokens=40):
    """The tokens, and the statistics of flash."""
    report = run_json("run", model, "-p", PROMPT, "-n", tokens, "--temperature", 0, "--device", "cpu", *options)
    flash = report["flash"]
    return report["tokens"], flash and flash | {"hit_rate": flash["hits"] / max(1, flash["needed"])}


@pytest.mark.parametrize("options", [[], ["--no-read-ahead"], ["--spec-source", "ngram", "--spec-acceptance", "same-text"], ["--threads", 1]],
                         ids=["plain", "no-read-ahead", "lookup", "one-thread"])
@pytest.mark.parametrize("share", [0.3, 0.5, 0.9])
def test_experts_from_flash_leave_the_text(wide, share, options):
    expected, none = generated(wide, *options)
    got, flash = generated(wide, "--ffn-memory", share, *options)
    assert none is None and got == expected
    assert flash["bytes"] > 0 and 0 < flash["hit_rate"] < 1


def test_more_memory_misses_less(wide):
    # What is read ahead counts as there if it came in time; without it the rates are the cache's alone.
    rates = [generated(wide, "--no-read-ahead", "--ffn-memory", share, tokens=200)[1]["hit_rate"] for share in (0.3, 0.6, 0.9)]
    assert rates[0] < rates[1] < rates[2]


def test_the_daemon_serves_a_mixture_from_flash(wide):
    model = [f"model.path={wide}", "hot.device=cpu", "engine.context_length=1024", "prefix_cache.memory=0MiB"]
    least = int(number_of_bytes(daemon_exit(*model, "memory.budget_bytes=1").stderr.decode()))
    whole, part = [], []
    for texts, settings in [(whole, []), (part, [f"memory.budget_bytes={least + (12 << 20)}"])]:
        with Daemon(*model, *settings) as daemon:
            for prompt in ["w1 w2 w3", PROMPT]:
                answer = httpx.post(f"http://127.0.0.1:{daemon.port}/v1/completions", timeout=60,
                                    json={"model": "m", "prompt": prompt, "max_tokens": 30, "temperature": 0}).json()
                texts.append(answer["choices"][0]["text"])
            metrics = httpx.get(f"http://127.0.0.1:{daemon.port}/metrics").text
    assert whole == part and all(whole)
    assert re.search(r"thermocline_flash_read_bytes_total\S* [1-9]", metrics), metrics


def test_a_damaged_expert_is_found(wide, tmp_path):
    blob = bytearray((wide.parent / "m.gguf.tcb").read_bytes())
    for at in range(len(blob) // 2, len(blob), 4096):
        blob[at] ^= 1
    (tmp_path / "bad.tcb").write_bytes(blob)
    result = run("run", wide, "-p", PROMPT, "-n", 4, "--device", "cpu", "--ffn-memory", 0.5, "--bundle", tmp_path / "bad.tcb", check=False)
    assert result.returncode == 1 and b"bad.tcb" in result.stderr, result.stderr


def test_a_bundle_of_other_experts_is_refused(wide, mixture, tmp_path):
    run("pack", mixture, "--out", tmp_path / "other.tcb")
    result = run("run", wide, "-p", "w1", "-n", 1, "--device", "cpu", "--ffn-memory", 0.5, "--bundle", tmp_path / "other.tcb", check=False)
    assert result.returncode == 1 and b"belongs to another model" in result.stderr, result.stderr


def write_random(path, architecture, keys, dense, shared, bias):
    """A random mixture of six layers, the first `dense` of them dense: 16 experts of 64 neurons, and a shared one of `shared`."""
    import gguf
    rng, d, f, experts, vocab = numpy.random.default_rng(5), 128, 64, 16, 300
    writer = gguf.GGUFWriter(path, architecture)
    for add, value in [("context_length", 512), ("embedding_length", d), ("block_count", 6), ("feed_forward_length", 192), ("head_count", 4),
                       ("head_count_kv", 2), ("layer_norm_rms_eps", 1e-5), ("expert_count", experts), ("expert_used_count", 2),
                       ("expert_feed_forward_length", f), *keys]:
        getattr(writer, f"add_{add}")(value)

    def tensor(name, *shape):
        ones = len(shape) == 1 and "norm" in name
        data = numpy.ones(shape) if ones else rng.standard_normal(shape) * (0.3 if len(shape) == 1 else shape[-1] ** -0.5)
        writer.add_tensor(name, data.astype(numpy.float32))

    tensor("token_embd.weight", vocab, d)
    tensor("output_norm.weight", d)
    tensor("output.weight", vocab, d)
    for i in range(6):
        for part, *shape in [("attn_norm", d), ("ffn_norm", d), ("attn_q", d, d), ("attn_k", d // 2, d), ("attn_v", d // 2, d), ("attn_output", d, d)]:
            tensor(f"blk.{i}.{part}.weight", *shape)
        for suffix, n in [("", 192)] if i < dense else [("_shexp", shared)] if shared else []:
            for part, *shape in [("gate", n, d), ("up", n, d), ("down", d, n)]:
                tensor(f"blk.{i}.ffn_{part}{suffix}.weight", *shape)
        if i < dense:
            continue
        for part, *shape in [("gate", f, d), ("up", f, d), ("down", d, f)]:
            tensor(f"blk.{i}.ffn_{part}_exps.weight", experts, *shape)
        tensor(f"blk.{i}.ffn_gate_inp.weight", experts, d)
        if bias:
            tensor(f"blk.{i}.exp_probs_b.bias", experts)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


FAMILIES = {
    # Dense layers and shared experts stay in memory.
    "ernie4_5-moe": dict(keys=[("leading_dense_block_count", 2), ("interleave_moe_layer_step", 1)], dense=2, shared=96, bias=True),
    # Its router chooses, and reads begin, before attention.
    "smallthinker": dict(keys=[("sliding_window", 32)], dense=0, shared=0, bias=False),
}


@pytest.mark.parametrize("architecture", FAMILIES)
def test_families_from_flash_have_their_logits(architecture, tmp_path):
    write_random(tmp_path / "m.gguf", architecture, **FAMILIES[architecture])
    run("pack", tmp_path / "m.gguf")
    (tmp_path / "tokens.json").write_text(json.dumps([[i * 7 % 300 for i in range(100)]]))
    found = []
    for options in [[], ["--ffn-memory", 0.8]]:
        for path in [[], ["--decode"], ["--decode", "--threads", 1]]:
            run("eval", tmp_path / "m.gguf", "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", *options, *path)
            found.append(numpy.load(tmp_path / "l.npy"))
    assert all((logits == found[0]).all() for logits in found)


def test_a_trace_holds_the_experts_of_each_token(mixture, tmp_path):
    trace = tmp_path / "t.trace"
    text(mixture, "--record-trace", trace, tokens=60)
    report = run_json("plan", "--replay", trace, "--memory", "50%,100%")
    assert (report["intermediate_size"], report["num_hidden_layers"]) == (16, 2)
    assert report["needed"] == report["tokens"] * 2 * 2  # layers times experts of a token
    half, whole = ({name: p["hit_rate"] for name, p in m["policies"].items()} for m in report["memory"])
    assert 0 < half["ours"] <= half["belady"] <= whole["belady"]


@pytest.mark.parametrize("flash", [False, True], ids=["memory", "flash"])
def test_the_daemon_tells_which_experts_are_used(wide, flash):
    model = [f"model.path={wide}", "hot.device=cpu", "engine.context_length=1024", "prefix_cache.memory=0MiB", "spec.mode=off"]
    if flash:
        least = int(number_of_bytes(daemon_exit(*model, "memory.budget_bytes=1").stderr.decode()))
        model.append(f"memory.budget_bytes={least + (12 << 20)}")
    with Daemon(*model) as d:
        body = {"prompt": "w1 w2 w3", "max_tokens": 30, "temperature": 0, "ignore_eos": True}
        decoded = httpx.post(d.url + "/v1/completions", json=body, timeout=60).json()["usage"]["completion_tokens"]
        experts = httpx.get(d.url + "/v1/status").json()["experts"]
        page = httpx.get(d.url + "/metrics").text
    layers, count, each = len(experts["uses"]), experts["experts"], experts["per_token"] * (decoded - 1)  # the first is the prompt's
    assert [len(layer) for layer in experts["uses"]] == [count] * layers
    assert [sum(layer) for layer in experts["uses"]] == [each] * layers

    def total(name, **labels):
        lines = [line for line in page.splitlines() if line.startswith(f"thermocline_{name}{{")]
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines
                   if all(f'{key}="{value}"' in line for key, value in labels.items()))

    assert total("expert_uses_total") == layers * each == total("expert_tier_uses_total")
    first = [range.split('"')[0] for range in page.split('expert_uses_total{experts="')[1:]][0]
    begin, end = map(int, first.split("-"))
    assert total("expert_uses_total", layer=0, experts=first) == sum(experts["uses"][0][begin:end + 1])
    assert 1 / count < total("expert_hottest_share", layer=0, hottest="0.3") <= 1
    assert total("router_load_max", layer=1) == pytest.approx(max(experts["uses"][1]) * count / each)
    assert total("experts_unused", layer=1) == experts["uses"][1].count(0)
    # A guess for every layer but the first with each token, where experts come from flash.
    guesses = experts["guessed"] / (layers - 1) / experts["per_token"]
    assert guesses in ((decoded - 1, decoded) if flash else (0,))  # one token more: that of the warm-up
    assert total("expert_guesses_total", outcome="right") == experts["guessed_right"] <= experts["guessed"]
    assert (experts["guessed_right"] > 0) == flash == (total("expert_tier_uses_total", tier="flash") > 0)


def test_routing_of_a_trace_is_followed(tmp_path):
    """Experts that a trace chose often are chosen often by a model that is made after it."""
    shape = ["--layers", 2, "--hidden-size", 128, "--intermediate-size", 64, "--heads", 4, "--kv-heads", 2, "--vocab", 4096,
             "--type", "q8_0", "--experts-used", 2, "--experts"]
    first, second = tmp_path / "a", tmp_path / "b"
    run("synth", first, *shape, 16, "--routing", "zipf:1.2", "--reuse", 0.45)
    counts = []
    for path, routing in [(first, None), (second, f"trace:{first}.trace")]:
        if routing:
            run("synth", path, *shape, 16, "--routing", routing, "--seed", 7)
        text(path, "--record-trace", f"{path}.trace", tokens=1500)
        counts.append(uses_of(f"{path}.trace", 2, 16))
    for one, other in zip(*counts):
        assert numpy.corrcoef(one, other)[0, 1] > 0.8, (one, other)
    error = run("synth", second, *shape, 8, "--routing", f"trace:{first}.trace", check=False)
    assert error.returncode == 1 and b"16 experts, and --experts is 8" in error.stderr


def uses_of(path, layers, experts):
    """[layers][experts] of a trace."""
    tokens = read_trace(path)
    return [numpy.bincount(numpy.concatenate([token[layer] for token in tokens]), minlength=experts) for layer in range(layers)]


def test_zipf_routing_prefers_few_experts(tmp_path):
    """The experts used most hold more of the uses: a cache of a quarter by frequency has more hits."""
    used = {}
    for routing in ["uniform", "zipf:1.2"]:
        path, trace = tmp_path / f"{routing[:4]}.gguf", tmp_path / f"{routing[:4]}.trace"
        run("synth", path, "--layers", 2, "--hidden-size", 128, "--intermediate-size", 64, "--heads", 4, "--kv-heads", 2,
            "--vocab", 4096, "--experts", 64, "--experts-used", 4, "--routing", routing, "--reuse", 0.45, "--type", "q8_0")
        text(path, "--record-trace", trace, tokens=2000)
        report = run_json("plan", "--replay", trace, "--memory", "25%")
        used[routing] = report["memory"][0]["policies"]["lfu"]["hit_rate"]
    assert used["zipf:1.2"] > used["uniform"] + 0.05


@pytest.mark.parametrize("options,words", [
    (["--ffn-mode", "exact"], "exact"), (["--ffn-mode", "sign"], "sign"), (["--also-modes", "exact"], "exact"),
])
def test_what_works_with_single_neurons_is_refused(mixture, options, words):
    result = run("run", mixture, "-p", "w1", "-n", 1, *options, check=False)
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr


@pytest.mark.parametrize("command", [["calibrate", "--tokens", 100], ["train-predictor"]])
def test_tools_of_neurons_refuse_a_mixture(mixture, command, tmp_path):
    (tmp_path / "t.txt").write_text("w1 w2 " * 200)
    result = run(command[0], mixture, "--text", tmp_path / "t.txt", "--activation", "relu", *command[1:], check=False)
    assert result.returncode == 1 and b"16 experts" in result.stderr, result.stderr


@pytest.mark.parametrize("options,words", [
    (["--experts", 8], "--experts-used"), (["--experts-used", 2], "--experts"),
    (["--experts", 8, "--experts-used", 9], "--experts-used 9"),
    (["--experts", 8, "--experts-used", 2, "--routing", "zipf"], "zipf:0.8"),
    (["--experts", 8, "--experts-used", 2, "--intermediate-size", 40], "multiple of 16"),
])
def test_synth_refuses_by_name(options, words, tmp_path):
    result = run("synth", tmp_path / "x.gguf", "--layers", 1, *options, check=False)
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr


@pytest.mark.parametrize("name,edit,words", [
    ("mixtral", lambda c: c.update(num_local_experts=3), "3 experts"),
    ("mixtral", lambda c: c.update(num_local_experts=5), "expert 4 is missing"),
    ("mixtral", lambda c: c.update(num_experts_per_tok=5), "per token"),
    ("mixtral", lambda c: c.update(num_local_experts=1 << 20), "number of experts"),
    ("qwen3moe", lambda c: c.update(mlp_only_layers=[1]), "mlp_only_layers"),
    ("qwen3moe", lambda c: c.update(norm_topk_prob=1), "norm_topk_prob"),
    ("qwen3moe", lambda c: c.update(decoder_sparse_step=2), "ffn_gate.weight"),
    ("olmoe", lambda c: c.update(clip_qkv=8.0), "clip_qkv"),
    ("qwen2moe", lambda c: c.update(shared_expert_intermediate_size=64), "shexp"),
    ("granitemoe", lambda c: c.update(logits_scaling=0), "logits_scaling"),
    ("ernie4_5_moe", lambda c: c.update(moe_layer_end_index=1), "moe_layer_end_index"),
    ("ernie4_5_moe", lambda c: c.update(moe_intermediate_size=24), "16"),
])
def test_configs_that_cannot_be_are_refused_by_name(name, edit, words, tmp_path):
    result = run("run", copy_of(tmp_path, name, edit), "-p", "x", "-n", 1, check=False)
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr


def test_normalising_is_obeyed(tmp_path):
    """A field that changes the result does change it."""
    tokens = json.loads((ROOT / "qwen3moe" / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    for name, edit in [("qwen3moe", lambda c: c.update(norm_topk_prob=False)),
                       ("granitemoe", lambda c: c.update(residual_multiplier=0.7))]:
        run("eval", copy_of(tmp_path, name, edit), "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy")
        expected = numpy.load(ROOT / name / "logits.npy")
        assert numpy.abs(numpy.load(tmp_path / "l.npy") - expected).max() > 0.05


def test_a_missing_expert_is_named(tmp_path):
    part = "model.layers.1.block_sparse_moe.experts.2.w3.weight"
    folder = copy_of(tmp_path, "mixtral", tensors=without("mixtral", part))
    error = run("run", folder, "-p", "x", "-n", 1, check=False).stderr.decode()
    assert "blk.1.ffn_up_exps.weight" in error and "expert 2 is missing" in error, error


def test_a_step_of_no_layers_is_refused(mixture, tmp_path):
    key = b"llama.interleave_moe_layer_step" + struct.pack("<I", 4)
    blob = mixture.read_bytes()
    assert key in blob
    (tmp_path / "s.gguf").write_bytes(blob.replace(key + struct.pack("<I", 1), key + struct.pack("<I", 0)))
    result = run("run", tmp_path / "s.gguf", "-p", "x", "-n", 1, check=False)
    assert result.returncode == 1 and b"step of layers with experts is 0" in result.stderr


def test_unknown_gating_is_refused(mixture, tmp_path):
    key = b"llama.expert_gating_func" + struct.pack("<I", 4)
    blob = mixture.read_bytes()
    assert key + struct.pack("<I", 1) in blob
    (tmp_path / "g.gguf").write_bytes(blob.replace(key + struct.pack("<I", 1), key + struct.pack("<I", 4)))
    result = run("run", tmp_path / "g.gguf", "-p", "x", "-n", 1, check=False)
    assert result.returncode == 1 and b"expert_gating_func' is 4" in result.stderr


@pytest.mark.parametrize("name,part,words", [
    ("gpt_oss", "model.layers.0.mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias"), ("gpt_oss", "model.layers.1.mlp.experts.down_proj_bias", "ffn_down_exps.bias"),
    ("gpt_oss", "model.layers.0.mlp.router.bias", "ffn_gate_inp.bias"), ("gpt_oss", "model.layers.0.self_attn.k_proj.bias", "attn_k.bias"),
    ("deepseek_v3", "model.layers.1.mlp.gate.e_score_correction_bias", "exp_probs_b.bias"), ("glm4_moe", "model.layers.1.mlp.gate.e_score_correction_bias", "exp_probs_b.bias"),
    ("qwen2moe", "model.layers.0.self_attn.v_proj.bias", "attn_v.bias"),
])
def test_a_bias_that_the_family_has_must_be_there(name, part, words, tmp_path):
    folder = copy_of(tmp_path, name, tensors=without(name, part))
    (tmp_path / "tokens.json").write_text("[[3, 4, 5]]")
    for command in [("eval", folder, "--tokens", tmp_path / "tokens.json"), ("convert", folder, tmp_path / "x.gguf")]:
        result = run(*command, check=False)
        assert result.returncode == 1 and f"{words}' is missing" in result.stderr.decode(), result.stderr
    assert not (tmp_path / "x.gguf").exists()
