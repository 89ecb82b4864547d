"""Recurrent hybrids under the daemon: tiny random models of each kind of mixer (tests/golden/architectures).

An answer's bits depend on nothing but its request: neither on company, nor on drafts that are refused, nor on what is
found of earlier requests. A state is behind one token and cannot be cut, so each of these has its own way to go wrong
(vLLM#26807: answers from a cached prefix differed; llama.cpp#21681: digits dropped in later turns).
"""
import concurrent.futures
import json
import pathlib
import random
import shutil

import gguf
import httpx
import numpy as np
import pytest
from conftest import Daemon, refusal, run, run_json
from daemon_client import value

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "architectures"
LONG = GOLDEN.parent / "long_states"
NAMES = ["lfm2", "lfm2moe", "qwen3next", "qwen35", "qwen35moe", "granitehybrid", "granitehybrid_dense", "nemotron_h", "nemotron_h_moe"]
KINDS = ["lfm2", "qwen35moe", "granitehybrid", "nemotron_h"]  # one of each mixer, with experts and without
VOCABULARY = range(4, 96)
CONTEXT = 127
KEPT = "prefix_cache.memory=16MiB"


def settings(name, *more):
    return (f"model.path={GOLDEN / name / 'model.gguf'}", f"engine.context_length={CONTEXT}", "log.access=false", *more)


def complete(d, prompt, tokens=24, **more):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "logprobs": 1, **more}
    answer = httpx.post(d.url + "/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    return answer.json()


def bits(answer):
    logprobs = answer["choices"][0]["logprobs"]
    return logprobs["tokens"], logprobs["token_logprobs"]


def cached(answer):
    return (answer["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0)


def prompts(count, seed, least=3, most=80):
    rng = random.Random(seed)
    return [[rng.choice(VOCABULARY) for _ in range(rng.randint(least, most))] for _ in range(count)]


@pytest.fixture(scope="module", params=NAMES)
def alone(request):
    """Answers of each model to some prompts, one after the other, with nothing found and nothing drafted."""
    asked = prompts(8, seed=1)
    with Daemon(*settings(request.param, "prefix_cache.memory=0MiB", "spec.mode=off")) as d:
        return request.param, asked, [bits(complete(d, prompt)) for prompt in asked]


def check_in_company(d, asked, expected, **more):
    """Rounds of eight clients until some of their steps were shared: an answer takes a millisecond, and on a busy
    machine each may be over before the next request comes."""
    def shared():
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [bits(a) for a in pool.map(lambda p: complete(d, p, **more), 2 * asked)] == 2 * expected
        return value(d, "shared_steps_total") > 0
    assert any(shared() for _ in range(50))


def test_company_does_not_change_an_answer(alone):
    """Without a prefix cache there is memory for one context of so few tokens, and nobody has company."""
    name, asked, expected = alone
    with Daemon(*settings(name, "spec.mode=off", KEPT)) as d:
        check_in_company(d, asked, expected)


def test_refused_drafts_do_not_change_an_answer(alone):
    """Tokens are drawn from six, so that drafts are found at every place and most are refused: the state goes back."""
    name, asked, _ = alone
    repeated = [[4 + token % 6 for token in prompt] for prompt in asked]
    drawn = dict(temperature=2, seed=5, logit_bias={str(token): 50 for token in range(4, 10)})
    with Daemon(*settings(name, "prefix_cache.memory=0MiB", "spec.mode=off")) as d:
        plain = [bits(complete(d, prompt, **drawn)) for prompt in repeated]
    with Daemon(*settings(name, "spec.mode=sync", "spec.source=ngram", "spec.fixed=true", KEPT)) as d:
        assert [bits(complete(d, prompt, **drawn)) for prompt in repeated] == plain
        drafted, accepted = (value(d, f"spec_decode_num_{kind}_tokens_total") for kind in ("draft", "accepted"))
        assert 0 <= accepted < drafted
        check_in_company(d, repeated, plain, **drawn)


def test_a_cached_prefix_does_not_change_an_answer(alone):
    name, asked, expected = alone
    with Daemon(*settings(name, "spec.mode=off", KEPT)) as d:
        assert [bits(complete(d, p)) for p in asked] == expected
        again = [complete(d, p) for p in asked]
        assert [bits(a) for a in again] == expected
        assert all(cached(a) == len(p) - 1 for a, p in zip(again, asked) if len(p) > 1), [cached(a) for a in again]


@pytest.mark.parametrize("name", KINDS)
def test_a_conversation_computes_its_new_tokens_alone(name):
    rng = random.Random(7)
    with Daemon(*settings(name, "spec.mode=off", KEPT)) as d, \
            Daemon(*settings(name, "spec.mode=off", "prefix_cache.memory=0MiB")) as cold:
        history = [rng.choice(VOCABULARY) for _ in range(30)]
        for turn in range(6):
            body = {"prompt": history, "n_predict": 6, "temperature": 0, "ignore_eos": True, "return_tokens": True}
            answer = httpx.post(d.url + "/completion", json=body, timeout=60).json()
            said = answer["tokens"]
            assert said == httpx.post(cold.url + "/completion", json=body, timeout=60).json()["tokens"]
            if turn > 0:
                assert answer["timings"]["prompt_n"] <= new, (turn, len(history), answer["timings"])
            added = [rng.choice(VOCABULARY) for _ in range(4)]
            new = len(added) + 1  # the answer's last token was not computed
            history = history + said + added


@pytest.mark.parametrize("name", KINDS)
def test_prompts_that_part_share_what_they_have_in_common(name):
    """Where two prompts part is known once the second has come: the third finds the state there."""
    rng = random.Random(3)
    common = [rng.choice(VOCABULARY) for _ in range(70)]
    asked = [common + [5 + i] + [rng.choice(VOCABULARY) for _ in range(6)] for i in range(3)]
    with Daemon(*settings(name, "spec.mode=off", KEPT)) as d, \
            Daemon(*settings(name, "spec.mode=off", "prefix_cache.memory=0MiB")) as cold:
        answers = [complete(d, p, tokens=5) for p in asked]
        assert [bits(a) for a in answers] == [bits(complete(cold, p, tokens=5)) for p in asked]
        assert cached(answers[2]) == len(common), [cached(a) for a in answers]


@pytest.mark.parametrize("name", KINDS)
def test_random_cuts_of_a_prompt_give_the_same_bits(name):
    """Chunks of a prompt: also shorter than the convolution."""
    asked = prompts(4, seed=11, least=20)
    with Daemon(*settings(name, "spec.mode=off")) as d:
        expected = [bits(complete(d, p)) for p in asked]
    for chunk in (1, 2, 3, 7):
        with Daemon(*settings(name, "spec.mode=off", f"engine.prefill_chunk={chunk}", "prefix_cache.memory=0MiB")) as d:
            assert [bits(complete(d, p)) for p in asked] == expected, chunk


def test_cancelled_requests_leave_no_state_behind():
    asked = prompts(6, seed=5, least=40)
    with Daemon(*settings("qwen35", "spec.mode=off", "prefix_cache.memory=0MiB")) as d:
        expected = [bits(complete(d, p)) for p in asked]
    with Daemon(*settings("qwen35")) as d:
        for prompt in asked:
            body = {"prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": True, "stream": True}
            with httpx.stream("POST", d.url + "/v1/completions", json=body, timeout=60) as stream:
                next(stream.iter_lines())  # and leaves
        assert [bits(complete(d, p)) for p in asked] == expected


def test_a_mode_that_has_no_place_for_a_state_is_refused_by_name():
    model = GOLDEN / "nemotron_h" / "model.gguf"
    words = refusal("run", model, "-p", "x", "-n", 1, "--spec", "sync", "--spec-source", "self")
    assert "spec.source self" in words and "recurrent" in words
    words = refusal("run", GOLDEN / "qwen35" / "model.gguf", "-p", "x", "-n", 1, "--ffn-mode", "inputs")
    assert "mode 'inputs'" in words and "recurrent" in words


def test_true_zeros_are_skipped_without_a_gate(tmp_path):
    """Nemotron's networks: squared ReLU and no gate, in two of five layers, which have nothing else."""
    model, text = tmp_path / "rows.gguf", tmp_path / "text"
    run("convert", "--down", "rows", GOLDEN / "nemotron_h" / "model.gguf", model)
    text.write_text("abcdefghijklmnopqrstuvwxyz" * 4)
    dense, exact, sign = (run_json("eval", model, "--text", text, "--decode", "--ffn-mode", mode) for mode in ("dense", "exact", "sign"))
    assert exact["perplexity"] == dense["perplexity"]
    work = exact["work"]
    assert work["gate_rows"] == work["tokens"] * 2 * 96 and 0 < work["down_rows"] < 0.8 * work["gate_rows"]
    assert 0 < sign["work"]["down_rows"] <= sign["work"]["gate_rows"] < work["gate_rows"]


def test_the_choices_of_a_task_do_not_depend_on_their_order(tmp_path):
    """Behind each choice the sequence goes back to the end of the prompt, and its state with it."""
    likelihoods = []
    for name, choices in (("there", ["abc", "defgh", "xyz"]), ("back", ["xyz", "defgh", "abc"])):
        task = tmp_path / name
        task.write_text(json.dumps({"prompt": "opqrst", "choices": choices, "gold": 0}) + "\n")
        likelihoods.append(run_json("eval", GOLDEN / "qwen35" / "model.gguf", "--task", task)["samples"][0]["log_likelihood"])
    assert likelihoods[0] == likelihoods[1][::-1] and len(set(likelihoods[0])) == 3


@pytest.mark.parametrize("edit,words", [
    (dict(layer_types="x"), "layer_types"),
    (dict(num_hidden_layers=1 << 30), "num_hidden_layers"),
    (dict(layer_types=["linear_attention", "sliding_attention", "linear_attention", "full_attention"]), "sliding_attention"),
    (dict(linear_num_key_heads=4), "no multiple"),
    (dict(linear_value_head_dim=24), "multiple of 16"),
    (dict(linear_conv_kernel_dim=40), "convolution"),
    (dict(linear_num_value_heads=8), "ssm_"),
])
def test_states_that_cannot_be_are_refused_by_name(edit, words, tmp_path):
    for name in ("model.safetensors", "config.json"):
        shutil.copy(GOLDEN / "qwen35" / name, tmp_path / name)
    config = json.loads((tmp_path / "config.json").read_text()) | edit
    (tmp_path / "config.json").write_text(json.dumps(config))
    tokens = tmp_path / "tokens.json"
    tokens.write_text("[[5, 6]]")
    assert words in refusal("eval", tmp_path, "--tokens", tokens, "--logits", tmp_path / "logits.npy")


def test_modes_that_cannot_have_states_are_refused_by_name():
    """A draft model is rolled back token by token, and the model itself as a draft has one state alone."""
    model = GOLDEN / "nemotron_h" / "model.gguf"
    asked = ["run", model, "-p", "a", "-n", 4]
    for more in (["--draft", model], ["--spec", "sync", "--spec-source", "self"], ["--ffn-mode", "inputs"]):
        assert "recurrent" in refusal(*asked, *more), more


@pytest.mark.parametrize("key,change", [("recurrent_layers", b"recurrent_layerx"), ("block_count", b"block_counx")])
def test_a_file_that_lacks_what_says_its_layers_is_read_or_refused(key, change, tmp_path):
    """Without the list a file has the family's period of four, as this one does."""
    run("convert", GOLDEN / "qwen35", tmp_path / "whole.gguf")
    data = (tmp_path / "whole.gguf").read_bytes()
    assert data.count(key.encode()) == 1
    (tmp_path / "model.gguf").write_bytes(data.replace(key.encode(), change))
    result = run("inspect", tmp_path / "model.gguf", check=False)
    assert result.returncode == (0 if key == "recurrent_layers" else 1), result.stderr
    assert key == "recurrent_layers" or "block_count" in result.stderr.decode()


SYNTH = ["--layers", 4, "--hidden-size", 256, "--heads", 4, "--kv-heads", 2, "--state-heads", 8, "--state-key-heads", 2, "--state-key-dim", 32,
         "--state-value-dim", 32, "--vocab", 2000, "--type", "q8_0"]


@pytest.mark.parametrize("mixer,more,share", [
    ("delta-net", ["--experts", 16, "--experts-used", 4, "--intermediate-size", 128], 0.5),
    ("mamba2", ["--intermediate-size", 512], 0.7),
    ("conv", ["--intermediate-size", 512], 0.7),
])
def test_layers_and_experts_from_flash_give_the_same_text(mixer, more, share, tmp_path):
    model = tmp_path / "model.gguf"
    run("synth", model, "--mixer", mixer, *SYNTH, *more)
    run("pack", model)
    asked = ["run", model, "-p", "w1 w2 w3", "-n", 24, "--ignore-eos", "--temperature", 0]
    assert run(*asked, "--ffn-memory", share).stdout == run(*asked).stdout


@pytest.mark.parametrize("mixer,matrices", [
    ("delta-net", {"attn_qkv", "attn_gate", "ssm_alpha", "ssm_beta", "ssm_out"}), ("mamba2", {"ssm_in", "ssm_out"}),
    ("conv", {"shortconv.in_proj", "shortconv.out_proj"})])
def test_an_importance_matrix_knows_the_matrices_of_recurrent_layers(mixer, matrices, tmp_path):
    model, importance, text = tmp_path / "model.gguf", tmp_path / "importance.gguf", tmp_path / "text"
    text.write_text(" ".join(f"w{i % 40}" for i in range(100)))
    run("synth", model, "--mixer", mixer, *SYNTH[:-1], "f16", "--intermediate-size", 512)
    run("imatrix", model, "--text", text, "-o", importance)
    sums = {t.name.removesuffix(".weight.in_sum2"): t for t in gguf.GGUFReader(importance).tensors if t.name.endswith(".in_sum2")}
    assert matrices == {name.split(".", 2)[2] for name in sums if name.startswith("blk.0.")} - {"ffn_gate", "ffn_up", "ffn_down"}
    assert all((sums[f"blk.0.{name}"].data > 0).all() for name in matrices)
    result = run("convert", model, tmp_path / "q3.gguf", "--quantize", "q3_k", "--imatrix", importance)
    assert b"the importance matrix knows" not in result.stderr
    assert run("run", tmp_path / "q3.gguf", "-p", "w1 w2", "-n", 4, "--ignore-eos").stdout


@pytest.mark.parametrize("name", KINDS)
def test_vectors_of_texts_do_not_depend_on_company(name):
    asked = prompts(6, seed=5)
    with Daemon(*settings(name, KEPT)) as d:
        vector = lambda prompt: httpx.post(d.url + "/v1/embeddings", json={"input": prompt}, timeout=60).json()["data"][0]["embedding"]  # noqa: E731
        alone = [vector(p) for p in asked]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            assert list(pool.map(vector, asked)) == alone
        assert httpx.post(d.url + "/v1/embeddings", json={"input": asked}, timeout=60).json()["data"][3]["embedding"] == alone[3]


@pytest.mark.parametrize("golden", sorted(LONG.glob("*.npy")), ids=lambda path: path.stem)
@pytest.mark.parametrize("way", [[], ["--decode"]], ids=["chunks", "one by one"])
def test_states_behind_2000_tokens_are_those_of_transformers(golden, way, tmp_path):
    shutil.copy(GOLDEN / golden.stem / "model.safetensors", tmp_path)
    config = json.loads((GOLDEN / golden.stem / "config.json").read_text()) | {"max_position_embeddings": 4096}
    (tmp_path / "config.json").write_text(json.dumps(config))
    logits = tmp_path / "logits.npy"
    run("eval", tmp_path, "--tokens", LONG / "tokens.json", "--logits", logits, "--kv-type", "f32", *way)
    expected = np.load(golden)
    got = np.load(logits).reshape(-1, expected.shape[1])[-len(expected):]
    assert np.abs(got - expected).max() < 1e-4 * np.abs(expected).max()
