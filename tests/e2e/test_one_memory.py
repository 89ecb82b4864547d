"""A GPU that shares the host's memory, emulated, and files read around the page cache: the same text, and no second copy of the weights."""
import ctypes
import json
import mmap
import os
import shutil
import subprocess

import httpx
import pytest
from conftest import BIN, ROOT, THERMOCLINE, Daemon, run
from daemon_client import STORY, post, value

EMULATED = BIN.parent / "tests/emulated/thermoclined"
UNIFIED = {**os.environ, "THERMOCLINE_EMULATED": "unified"}
# The memory of requests is the same with every budget, so that each cut is one of the model.
SETTINGS = ("server.request_memory_mib=24", "engine.context_length=96", "engine.prefill_chunk=16", "engine.ffn_mode=exact", "spec.mode=off", "engine.audit_interval=0", "grammar.memory_mib=4")


def text_of(daemon, tokens=12):
    answer = post(daemon, {"messages": STORY, "max_tokens": tokens, "temperature": 0})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


@pytest.fixture(scope="module")
def emulated():
    if not EMULATED.exists():
        pytest.skip(f"{EMULATED} is not built")
    return EMULATED


@pytest.fixture(scope="module")
def plain():
    with Daemon("hot.device=cpu", *SETTINGS) as d:
        return text_of(d), value(d, "memory_planned_bytes")


def test_a_model_goes_to_the_gpu_layer_by_layer(emulated, plain):
    with Daemon("hot.device=cuda", *SETTINGS, program=emulated, env=UNIFIED) as d:
        assert text_of(d) == plain[0]
        assert "GPU: weights, KV cache, buffers" in d.text() and "a layer on its way there" in d.text()
        assert "read around the page cache" in d.text() or "it is dropped from there" in d.text()
        assert "6 of 6 layers and the head" in d.text()
        device = httpx.get(d.url + "/v1/status").json()["device"]
        assert device["hot_tier"] and device["name"].startswith("Emulated device")
        # What both sides take of the one memory, the host's part without the layers.
        assert value(d, "memory_planned_bytes") > device["hot_bytes"]


def test_neurons_come_from_flash_where_the_one_memory_is_too_small(emulated, plain, tmp_path):
    bundle = tmp_path / "tidepool.tcb"
    run("pack", "tidepool", "--out", bundle)
    with Daemon("hot.device=cuda", *SETTINGS, program=emulated, env=UNIFIED) as d:
        planned = int(value(d, "memory_planned_bytes"))
    # With less and less memory: fewer layers on the GPU; shared neurons and flash; the CPU alone with flash.
    seen = []
    for cut in range(0, 20, 2):
        budget = planned - (cut << 18)
        with Daemon("hot.device=auto", f"memory.budget_bytes={budget}", f"memory.bundle={bundle}", *SETTINGS, program=emulated, env=UNIFIED) as d:
            assert text_of(d) == plain[0]
            assert value(d, "memory_planned_bytes") <= budget
            status = httpx.get(d.url + "/v1/status").json()
            seen.append((status["device"]["hot_tier"], status["flash"] is not None))
            if seen[-1] != (True, True):
                continue
            assert "GPU: weights, KV cache, buffers" in d.text() and "neuron cache" in d.text()
            assert status["flash"]["bundle"] == str(bundle) and 0 < status["device"]["hot_neurons"] < status["device"]["neurons"]
            assert value(d, "flash_read_bytes_total") > 0
            break
    assert seen[-1] == (True, True), seen


def test_a_budget_that_does_not_hold_both_is_refused_before_the_model_is_read(emulated):
    with Daemon("hot.device=cuda", "memory.budget_bytes=40MiB", *SETTINGS, program=emulated, env=UNIFIED, wait=False) as d:
        assert d.wait() == 78, d.text()
        assert "GPU: weights, KV cache, buffers" in d.text() and "weights: " not in d.text().replace("GPU: weights", "")


def cold(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def cached_share(path):
    """The share of the file's pages in the page cache."""
    with open(path, "rb") as file:
        size = os.fstat(file.fileno()).st_size
        with mmap.mmap(file.fileno(), size, mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_WRITE) as memory:
            pages = (size + 4095) // 4096
            flags = (ctypes.c_ubyte * pages)()
            at = ctypes.c_char.from_buffer(memory)
            assert ctypes.CDLL(None, use_errno=True).mincore(ctypes.c_void_p(ctypes.addressof(at)), ctypes.c_size_t(size), flags) == 0
            del at
            return sum(flag & 1 for flag in flags) / pages


def test_a_model_read_directly_is_not_in_the_page_cache(tmp_path):
    model = tmp_path / "tidepool.gguf"
    shutil.copy(ROOT / "config/models/tidepool.gguf", model)
    kind = subprocess.run(["stat", "-f", "-c", "%T", tmp_path], capture_output=True, text=True).stdout.strip()
    if kind in ("tmpfs", "ramfs"):
        pytest.skip(f"{tmp_path} is a {kind}, which is the page cache")
    texts = {}
    for how in ("cached", "direct"):
        cold(model)
        assert cached_share(model) == 0
        done = run("run", model, "-p", "Once upon a time", "-n", 20, "--temperature", 0, "--device", "cpu", "--read", how, "--json")
        answer = json.loads(done.stdout)
        texts[how] = answer["text"]
        assert answer["weights_read"] in ({"cached"} if how == "cached" else {"direct", "dropped"})
        share = cached_share(model)
        assert share > 0.9 if how == "cached" else share < 0.05, share
    assert texts["cached"] == texts["direct"]


def test_an_unknown_way_of_reading_is_refused():
    done = subprocess.run([THERMOCLINE, "run", "tidepool", "-p", "x", "--read", "mmap"], capture_output=True, text=True)
    assert done.returncode == 2 and "--read" in done.stderr
