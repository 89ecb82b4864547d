"""Layers with a window keep only what they need: less memory for a context, and the same answers."""
import concurrent.futures

import httpx
import pytest
from conftest import ROOT, Daemon
from daemon_client import value
from gguf_copy import copy

TIDEPOOL = ROOT / "config/models/tidepool.gguf"
CONTEXT, WINDOW = 32768, 32


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Tidepool with a long context: as it is, and with a window in all layers."""
    folder = tmp_path_factory.mktemp("windows")
    context = {"llama.context_length": CONTEXT}
    return (copy(TIDEPOOL, folder / "whole.gguf", fields=context),
            copy(TIDEPOOL, folder / "window.gguf", fields=context | {"llama.attention.sliding_window": WINDOW}))


def serve(model, *settings):
    return Daemon(f"model.path={model}", "hot.device=cpu", *settings)


def ask(daemon, prompt, tokens=24):
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0}
    reply = httpx.post(f"{daemon.url}/v1/completions", json=body, timeout=60).raise_for_status().json()
    return reply["choices"][0]["text"], reply["usage"]["prompt_tokens_details"]["cached_tokens"], reply["usage"]["prompt_tokens"]


def story(who, words):
    return f"Once upon a time {who} " + " ".join(f"saw {i} birds and a boat," for i in range(words))


def test_a_context_takes_less_memory(models):
    whole, window = models
    def bytes_of(model):
        with serve(model) as daemon:
            assert value(daemon, "kv_cache_capacity_tokens") >= CONTEXT
            return value(daemon, "memory_bytes", kind="kv", device="cpu")
    assert bytes_of(window) < bytes_of(whole) / 5


@pytest.mark.parametrize("drafts", ["off", "auto"])
def test_answers_are_those_given_alone_and_prefixes_are_found(models, drafts):
    prompts = [story(who, words) for who, words in (("Lily", 300), ("Tom", 30), ("a cat", 120), ("Ben", 700), ("Mia", 3), ("the king", 250))]
    with serve(models[1], "prefix_cache.memory=0MiB") as daemon:
        alone = [ask(daemon, prompt)[0] for prompt in prompts]
    with serve(models[1], "engine.sequences_max=4", "engine.quantum_tokens=8", f"spec.mode={drafts}") as daemon:
        for _ in range(3):
            with concurrent.futures.ThreadPoolExecutor(len(prompts)) as pool:
                assert [text for text, *_ in pool.map(lambda prompt: ask(daemon, prompt), prompts)] == alone
        ask(daemon, prompts[0])  # the last one is kept for sure
        text, cached, count = ask(daemon, prompts[0])
        assert text == alone[0] and cached == count - 1
        # A conversation goes on at its end.
        more = prompts[0] + alone[0] + " And then"
        assert ask(daemon, more)[1] >= count
