"""The default context length: the model's own, as far as memory allows."""
import json
import pathlib
import urllib.request

import pytest
from conftest import Daemon, run

SHAPE = ["--layers", 2, "--hidden-size", 256, "--intermediate-size", 512, "--heads", 4, "--kv-heads", 4, "--vocab", 400, "--type", "q4_0"]
LONG = 100_000
KV_BYTES = 2 * 2 * 256 * 2  # of a token: keys and values of two layers in f16


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("context") / "long.gguf"
    run("synth", path, *SHAPE, "--context", LONG)
    return path


def context_and_log(model, *settings):
    with Daemon(f"model.path={model}", "hot.device=cpu", "prefix_cache.memory=0MiB", "spec.mode=off", *settings) as d:
        return json.load(urllib.request.urlopen(f"{d.url}/props"))["default_generation_settings"]["n_ctx"], d.text(), resident(d)


def resident(daemon):
    status = pathlib.Path(f"/proc/{daemon.process.pid}/status").read_text()
    return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))) << 10


def test_the_models_own_context_where_it_fits_and_no_memory_before_it_is_used(model):
    context, _, memory = context_and_log(model)
    assert context == LONG
    assert memory < LONG * KV_BYTES  # 205 MB of keys and values alone


def test_as_much_as_the_budget_allows(model):
    context, log, _ = context_and_log(model, f"memory.budget_bytes={190 << 20}")
    assert 8192 < context < LONG and context % 1024 == 0
    assert f"context: {context} of the model's {LONG} tokens fit into memory" in log
    more, _, _ = context_and_log(model, f"memory.budget_bytes={350 << 20}")
    # Rotations and states of attention take some bytes of a token, too. A context is a multiple of 1024 tokens, 4 MiB here.
    assert (144 << 20) / (2 * KV_BYTES) < more - context < (176 << 20) / KV_BYTES
    quarter, _, _ = context_and_log(model, f"memory.budget_bytes={190 << 20}", "engine.kv_type=q4_0")
    assert quarter > 1.5 * context


def test_a_context_that_was_chosen_is_served_whatever_the_budget(model):
    for mib in range(200, 212, 2):
        context, _, _ = context_and_log(model, f"memory.budget_bytes={mib << 20}")
        assert 8192 < context < LONG


def test_what_is_asked_for_stays(model):
    assert context_and_log(model, "engine.context_length=3000")[0] == 3000
