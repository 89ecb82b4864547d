"""Recurrent hybrids under the daemon: tiny random models of each kind of mixer (tests/golden/architectures).

An answer's bits depend on nothing but its request: neither on company, nor on drafts that are refused, nor on what is
found of earlier requests. A state is behind one token and cannot be cut, so each of these has its own way to go wrong
(vLLM#26807: answers from a cached prefix differed; llama.cpp#21681: digits dropped in later turns).
"""
import concurrent.futures
import pathlib
import random

import httpx
import pytest
from conftest import Daemon, run, refusal

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "architectures"
NAMES = ["lfm2", "lfm2moe", "qwen3next", "qwen35", "qwen35moe", "granitehybrid", "granitehybrid_dense", "nemotron_h", "nemotron_h_moe"]
KINDS = ["lfm2", "qwen35moe", "granitehybrid", "nemotron_h"]  # one of each mixer, with experts and without
VOCABULARY = range(4, 96)
CONTEXT = 127
KEPT = "engine.prefix_cache_mib=16"


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
    with Daemon(*settings(request.param, "engine.prefix_cache_mib=0", "spec.mode=off")) as d:
        return request.param, asked, [bits(complete(d, prompt)) for prompt in asked]


def test_company_does_not_change_an_answer(alone):
    name, asked, expected = alone
    with Daemon(*settings(name, "engine.prefix_cache_mib=0", "spec.mode=off")) as d:
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [bits(a) for a in pool.map(lambda p: complete(d, p), asked)] == expected


def test_refused_drafts_do_not_change_an_answer(alone):
    """Random models repeat themselves seldom: most drafts are refused, and the state goes back."""
    name, asked, expected = alone
    repeated = [prompt + prompt[-12:] for prompt in asked]
    with Daemon(*settings(name, "engine.prefix_cache_mib=0", "spec.mode=off")) as d:
        plain = [bits(complete(d, prompt)) for prompt in repeated]
    with Daemon(*settings(name, "engine.prefix_cache_mib=0", "spec.mode=sync", "spec.source=ngram")) as d:
        answers = [complete(d, prompt) for prompt in repeated]
        assert [bits(a) for a in answers] == plain
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            assert [bits(a) for a in pool.map(lambda p: complete(d, p), repeated)] == plain


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
            Daemon(*settings(name, "spec.mode=off", "engine.prefix_cache_mib=0")) as cold:
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
            Daemon(*settings(name, "spec.mode=off", "engine.prefix_cache_mib=0")) as cold:
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
        with Daemon(*settings(name, "spec.mode=off", f"engine.prefill_chunk={chunk}", "engine.prefix_cache_mib=0")) as d:
            assert [bits(complete(d, p)) for p in asked] == expected, chunk


def test_cancelled_requests_leave_no_state_behind():
    asked = prompts(6, seed=5, least=40)
    with Daemon(*settings("qwen35", "spec.mode=off", "engine.prefix_cache_mib=0")) as d:
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


@pytest.mark.parametrize("mode", ["exact", "sign"])
def test_true_zeros_are_skipped_without_a_gate(mode, tmp_path):
    """Nemotron's networks: squared ReLU and no gate, in layers that have nothing else."""
    model = tmp_path / "rows.gguf"
    run("convert", "--down", "rows", GOLDEN / "nemotron_h" / "model.gguf", model)
    dense = run("run", model, "-p", "abc", "-n", 12, "--temperature", 0, "--ignore-eos", "--ffn-mode", "dense").stdout
    sparse = run("run", model, "-p", "abc", "-n", 12, "--temperature", 0, "--ignore-eos", "--ffn-mode", mode).stdout
    assert sparse == dense if mode == "exact" else sparse


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
