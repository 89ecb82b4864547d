"""Counters of sparsity against the tokens that were served: alone, shared, as drafts, on two sides, on a device."""
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import Daemon, wait_until
from prometheus_client.parser import text_string_to_metric_families
from test_hot import make_eager

LAYERS, NEURONS = 6, 1024  # of tidepool
WAYS = {
    "alone": (("spec.mode=off",), 1),
    "dense": (("engine.ffn_mode=dense",), 4),
    "shared": ((), 4),
    "signs": (("engine.ffn_mode=sign",), 4),
    "looked up": (("spec.source=ngram", "spec.mode=sync", "spec.fixed=true", "spec.tokens_max=4"), 1),
    "shared drafts": (("spec.source=ngram", "spec.mode=sync", "spec.tokens_max=4"), 4),
    "self": (("spec.source=self", "spec.mode=branch", "spec.fixed=true", "engine.ffn_mode=sign"), 1),
    "two sides": (("hot.bytes=1MiB", "hot.device=cpu", "engine.ffn_mode=exact", "spec.mode=off"), 1),
    "two sides, shared": (("hot.bytes=1MiB", "hot.device=cpu", "engine.ffn_mode=exact"), 4),
    "two sides, shared drafts": (("hot.bytes=1MiB", "hot.device=cpu", "engine.ffn_mode=exact", "spec.source=ngram", "spec.mode=sync", "spec.tokens_max=4"), 4),
    "two sides, drafts": (("hot.bytes=1MiB", "hot.device=cpu", "engine.ffn_mode=exact", "spec.source=ngram", "spec.mode=sync", "spec.fixed=true", "spec.tokens_max=4"), 1),
}


def totals(daemon):
    """Sums by name, and by name and each label's value."""
    found = {}
    for family in text_string_to_metric_families(httpx.get(daemon.url + "/metrics").text):
        for s in family.samples:
            for key in (s.name, *((s.name, value) for value in s.labels.values())):
                found[key] = found.get(key, 0) + s.value
    return {(k.removeprefix("thermocline_") if isinstance(k, str) else (k[0].removeprefix("thermocline_"), k[1])): v for k, v in found.items()}


@pytest.mark.parametrize("way", WAYS)
def test_every_token_that_is_served_is_counted(way, tmp_path, monkeypatch):
    settings, clients = WAYS[way]
    if "two sides" in way:  # the plan goes by speeds that are measured once: these put neurons on both
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        with Daemon(*settings):
            make_eager(tmp_path)
    with Daemon(*settings) as d:
        def ask(n):
            body = {"prompt": f"{n} " + 4 * "Once upon a time there was an owl. She said: I am an owl. ", "max_tokens": 200, "temperature": 0, "ignore_eos": True}
            answer = httpx.post(d.url + "/v1/completions", json=body, timeout=120).json()
            return answer["usage"]["completion_tokens"]
        before = totals(d)
        with ThreadPoolExecutor(clients) as pool:
            served = list(pool.map(ask, range(2 * clients)))
        wait_until(lambda: totals(d)["num_requests_running"] == 0)
        after = totals(d)
        grown = lambda key: after[key] - before.get(key, 0)
        assert sum(served) == 200 * 2 * clients
        # The first token of an answer comes of its prompt's last step.
        tokens, steps = grown(("ffn_tokens_total", "0")), grown(("ffn_steps_total", "0"))
        assert grown("ffn_tokens_total") == LAYERS * (sum(served) - len(served)) == LAYERS * tokens
        assert 0 < steps <= tokens and grown("ffn_steps_total") == LAYERS * steps
        assert steps == tokens or "spec.mode=off" not in settings, (steps, tokens)
        read = grown(("ffn_rows_read_total", "down")) / steps / LAYERS / NEURONS
        assert read == 1 if way == "dense" else 0.02 < read < 0.9, read
        assert 0 < grown("ffn_bytes_read_total") <= 1.2 * grown("ffn_dense_bytes_total")
        if "two sides" in way:
            assert grown("hot_layers_total") > 0 and grown("hot_layers_total") % steps == 0
            assert grown(("hot_active_neurons_total", "hot")) > 0 and grown(("hot_active_neurons_total", "cold")) > 0
        if clients > 1:
            assert grown("shared_steps_total") > 0
        if {"spec.source=ngram", "spec.fixed=true"} <= set(settings):  # else it drafts where that pays
            assert grown("spec_decode_num_accepted_tokens_total") > 0
