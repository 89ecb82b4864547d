"""Gemma 4 under the daemon: tiny random models of its three kinds (tests/golden/architectures).

Heads of two sizes share a cache, the last layers of E2B read the keys of earlier ones, and 26B-A4B has experts beside a
network: an answer's bits depend on nothing but its request all the same.
"""
import concurrent.futures
import pathlib
import random

import httpx
import pytest
from conftest import Daemon, refusal, run, run_json
from daemon_client import value
from gguf_copy import copy

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "architectures"
NAMES = ["gemma4", "gemma4_e", "gemma4_moe"]


def settings(name, *more):
    return (f"model.path={GOLDEN / name / 'model.gguf'}", "engine.context_length=127", "log.access=false", *more)


def complete(d, prompt, tokens=30):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "logprobs": 1}
    answer = httpx.post(d.url + "/v1/completions", json=body, timeout=120)
    assert answer.status_code == 200, answer.text
    logprobs = answer.json()["choices"][0]["logprobs"]
    return logprobs["tokens"], logprobs["token_logprobs"]


def prompts(count, seed):
    rng = random.Random(seed)
    return [[rng.randrange(4, 96) for _ in range(rng.randint(3, 80))] for _ in range(count)]


@pytest.fixture(scope="module", params=NAMES)
def alone(request):
    asked = prompts(6, seed=1)
    with Daemon(*settings(request.param, "prefix_cache.memory=0MiB", "spec.mode=off")) as d:
        return request.param, asked, [complete(d, prompt) for prompt in asked]


@pytest.mark.parametrize("chunk", [1, 3, 7])
def test_cuts_of_a_prompt_give_the_same_bits(alone, chunk):
    name, asked, expected = alone
    with Daemon(*settings(name, f"engine.prefill_chunk={chunk}", "prefix_cache.memory=0MiB", "spec.mode=off")) as d:
        assert [complete(d, p) for p in asked] == expected


def test_company_drafts_and_cached_prefixes_give_the_same_bits(alone):
    name, asked, expected = alone
    with Daemon(*settings(name, "prefix_cache.memory=16MiB", "spec.mode=sync", "spec.source=ngram", "spec.fixed=true")) as d:
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for _ in range(3):
                assert list(pool.map(lambda p: complete(d, p), asked)) == expected
        assert value(d, "spec_decode_num_draft_tokens_total") > 0


def test_vectors_of_texts_do_not_depend_on_company(alone):
    name, asked, _ = alone
    with Daemon(*settings(name)) as d:
        vector = lambda prompt: httpx.post(d.url + "/v1/embeddings", json={"input": prompt}, timeout=60).json()["data"][0]["embedding"]  # noqa: E731
        expected = [vector(p) for p in asked]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            assert list(pool.map(vector, asked)) == expected


def test_what_differs_by_layer_is_said(alone):
    name, _, _ = alone
    folder, file = run_json("inspect", GOLDEN / name, "--json"), run_json("inspect", GOLDEN / name / "model.gguf", "--json")
    assert folder["num_parameters"] == file["num_parameters"] > 0
    heads = {key: folder["config"][key] for key in ("head_dim", "window_head_dim", "num_key_value_heads", "window_kv_heads")}
    assert heads == {"head_dim": 32, "window_head_dim": 16, "window_kv_heads": 2, "num_key_value_heads": 2 if name == "gemma4_e" else 1}
    assert run("plan", GOLDEN / name / "model.gguf").stdout
    result = run("run", GOLDEN / name / "model.gguf", "-p", "x", "-n", 4, "--ignore-eos", "--ffn-mode", "exact", check=False)
    assert result.returncode != 0 and b"exact" in result.stderr


def test_networks_of_two_sizes_refuse_what_needs_one(tmp_path):
    result = run("run", GOLDEN / "gemma4_e/model.gguf", "-p", "x", "-n", 4, "--ffn-mode", "threshold", check=False)
    assert result.returncode != 0 and b"threshold" in result.stderr


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["q8_0", "q4_0"])
def test_quantised_files_answer(name, kind, tmp_path):
    run("convert", GOLDEN / name / "model.gguf", tmp_path / "q.gguf", "--quantize", kind)
    assert run("run", tmp_path / "q.gguf", "-p", "!!", "-n", 8, "--ignore-eos", "--temperature", 0).stdout


def test_a_file_without_divisors_is_refused(tmp_path):
    """Without rope_freqs the layers without a window would be rotated whole: fluent short answers, broken long ones."""
    import gguf
    reader = gguf.GGUFReader(GOLDEN / "gemma4/model.gguf")
    data = bytearray((GOLDEN / "gemma4/model.gguf").read_bytes())
    at = data.find(b"rope_freqs.weight")
    assert at > 0 and any(t.name == "rope_freqs.weight" for t in reader.tensors)
    data[at:at + 4] = b"dope"
    (tmp_path / "model.gguf").write_bytes(data)
    result = run("inspect", tmp_path / "model.gguf", check=False)
    assert result.returncode != 0 and b"rope_freqs" in result.stderr


def test_the_bytes_of_a_token_are_those_of_its_networks():
    """The first three networks have half of the neurons of the others."""
    with Daemon(*settings("gemma4_e", "spec.mode=off")) as d:
        complete(d, [5, 6, 7], tokens=20)
        rows = {layer: value(d, "ffn_rows_read_total", layer=str(layer), part="up") for layer in (0, 5)}
        steps = value(d, "ffn_steps_total", layer="0")
        assert rows == {0: 48 * steps, 5: 96 * steps}
        assert value(d, "ffn_bytes_read_total", layer="0") == value(d, "ffn_dense_bytes_total", layer="0")


@pytest.mark.parametrize("dimensions", [0, 64])
def test_rotations_wider_than_a_layers_heads_are_refused(dimensions, tmp_path):
    """Layers with a window have smaller heads, and rotated behind them."""
    model = copy(GOLDEN / "gemma4/model.gguf", tmp_path / "m.gguf", fields={"gemma4.rope.dimension_count_swa": dimensions})
    assert "dimensions" in refusal("inspect", model)


def test_networks_of_different_sizes_are_computed_whole(tmp_path):
    """With an activation that has zeros, modes that assume one size read behind the smaller networks."""
    small = run("run", GOLDEN / "gemma4_e/model.gguf", "--activation", "relu", "-p", "1 2 3", "-n", "8", "--json")
    assert small.returncode == 0
    assert "as many neurons in every layer" in refusal("run", GOLDEN / "gemma4_e/model.gguf", "--activation", "relu", "--ffn-mode", "exact", "-p", "1", "-n", "1")
