"""Prefixes on flash: a real model's prompts are read back after a restart, with the bits of what was computed, or not at all."""
import concurrent.futures
import contextlib
import os
import pathlib
import random
import shutil
import subprocess
import time

import gguf
import httpx
import pytest
from conftest import BIN, Daemon, wait_until
from daemon_client import value

WORDS = "the river ran below old stones where nobody had walked since morning and a grey heron waited for fish".split()
MODELS = pathlib.Path(__file__).parent.parent / "golden" / "architectures"
KILLS = int(os.environ.get("THERMOCLINE_PREFIX_KILLS", 4))
BLOCK = 64  # tokens


def text(seed, words):
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def settings(model, folder, *more):
    return (f"model.path={model}", "engine.context_length=2048", f"prefix_cache.path={folder}", "log.access=false", "spec.mode=off", *more)


def complete(d, prompt, tokens=8, **more):
    headers = more.pop("headers", None)
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "logprobs": 1, "ignore_eos": True, **more}
    answer = httpx.post(d.url + "/v1/completions", json=body, timeout=300, headers=headers)
    assert answer.status_code == 200, answer.text
    return answer.json()


def bits(answer):
    logprobs = answer["choices"][0]["logprobs"]
    return logprobs["tokens"], logprobs["token_logprobs"]


def cached(answer):
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt_tokens(answer):
    return answer["usage"]["prompt_tokens"]


def all_written(d):
    """The blocks are written behind the answers."""
    wait_until(lambda: value(d, "prefix_flash_queued_blocks") == 0, 60)


def test_a_restart_reads_what_was_computed(smollm, tmp_path):
    prompt = text(1, 900)
    with Daemon(*settings(smollm, tmp_path / "kv", "prefix_cache.bytes=1GiB")) as d:
        cold = complete(d, prompt)
        assert cached(cold) == 0 and "cache_flash_n" not in cold["timings"]
        more = complete(d, prompt + text(2, 100))
    assert (tmp_path / "kv").stat().st_mode & 0o777 == 0o700
    assert all(file.stat().st_mode & 0o777 == 0o600 for file in (tmp_path / "kv").iterdir())
    with Daemon(*settings(smollm, tmp_path / "kv", "prefix_cache.bytes=1GiB")) as d:
        warm = complete(d, prompt)
        assert bits(warm) == bits(cold)
        whole = (prompt_tokens(cold) - 1) // BLOCK * BLOCK
        assert cached(warm) == warm["timings"]["cache_flash_n"] == whole and warm["timings"]["restore_ms"] > 0
        assert value(d, "prefix_flash_hit_tokens_total") == whole and value(d, "prefix_flash_lookups_total", result="hit") == 1
        again = complete(d, prompt + text(2, 100))  # memory has the beginning, flash the rest
        assert bits(again) == bits(more)
        assert cached(again) == (prompt_tokens(more) - 1) // BLOCK * BLOCK
        other = complete(d, text(3, 900))
        assert cached(other) == 0
        # Memory comes first.
        assert complete(d, prompt)["timings"].get("cache_flash_n", 0) == 0


def test_requests_side_by_side_have_their_own_bits(smollm, tmp_path):
    """Four conversations at once, cold and after a restart: restoring goes on between the steps of others."""
    prompts = [text(seed, 500 + 20 * seed) for seed in range(10, 14)]
    with Daemon(*settings(smollm, tmp_path)) as d:
        expected = [bits(complete(d, prompt, 16)) for prompt in prompts]
    with Daemon(*settings(smollm, tmp_path)) as d, concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda prompt: complete(d, prompt, 16), prompts))
    assert [bits(answer) for answer in answers] == expected
    assert all(cached(answer) > 400 for answer in answers)


def test_no_tenant_finds_what_another_sent(smollm, tmp_path):
    keys = tmp_path / "keys"
    hashed = lambda name: subprocess.run([BIN / "thermoclined", "--hash-key", name], input=f"key-of-{name}-0123456789\n", capture_output=True, text=True, check=True)
    keys.write_text("".join(hashed(name).stdout for name in ("anna", "bert")))
    keys.chmod(0o600)
    header = lambda name: {"Authorization": f"Bearer key-of-{name}-0123456789"}
    prompt = text(20, 600)
    asked = settings(smollm, tmp_path / "kv", f"server.api_keys_file={keys}")
    with Daemon(*asked) as d:
        expected = bits(complete(d, prompt, headers=header("anna")))
    with Daemon(*asked) as d:
        stranger = complete(d, prompt, headers=header("bert"))
        assert cached(stranger) == 0 and bits(stranger) == expected
    with Daemon(*asked) as d:
        assert cached(complete(d, prompt, headers=header("anna"))) > 500
        assert cached(complete(d, prompt, headers=header("bert"))) > 500  # its own, by now


def test_another_model_or_setting_finds_nothing(smollm, tmp_path):
    prompt = text(30, 500)
    model = tmp_path / "model.gguf"
    shutil.copy(smollm, model)
    with Daemon(*settings(model, tmp_path / "kv")) as d:
        complete(d, prompt)
    with Daemon(*settings(model, tmp_path / "kv", "engine.kv_type=q8_0")) as d:
        assert cached(complete(d, prompt)) == 0
    with open(model, "r+b") as file:  # a byte in the middle of a tensor, far from what fingerprints sample
        file.seek(model.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, 1)
        file.write(bytes([byte[0] ^ 1]))
    with Daemon(*settings(model, tmp_path / "kv")) as d:
        assert cached(complete(d, prompt)) == 0


def test_a_damaged_file_gives_no_wrong_answer(smollm, tmp_path):
    prompt = text(40, 700)
    with Daemon(*settings(smollm, tmp_path)) as d:
        expected = bits(complete(d, prompt))
    rng = random.Random(4)
    for path in tmp_path.glob("*.slots"):
        with open(path, "r+b") as file:
            for _ in range(20):
                file.seek(rng.randrange(path.stat().st_size))
                file.write(rng.randbytes(64))
    with Daemon(*settings(smollm, tmp_path)) as d:
        answer = complete(d, prompt)
        assert bits(answer) == expected
        assert value(d, "prefix_flash_damaged_blocks_total") >= 1
        all_written(d)
    with Daemon(*settings(smollm, tmp_path)) as d:  # what was damaged was computed and written again
        answer = complete(d, prompt)
        assert bits(answer) == expected and cached(answer) > 600
        assert value(d, "prefix_flash_damaged_blocks_total") == 0


def test_kills_while_it_writes(smollm, tmp_path):
    """Kills at random moments: no wrong answer, and no file beyond its limit. THERMOCLINE_PREFIX_KILLS: how many, 200 in tests/long.sh."""
    rng = random.Random(5)
    prompts = [text(50 + i, 300 + 30 * i) for i in range(6)]
    limit = 64 << 20
    asked = settings(smollm, tmp_path / "kv", f"prefix_cache.bytes={limit}")
    with Daemon(*settings(smollm, tmp_path / "none")) as d:
        expected = [bits(complete(d, prompt)) for prompt in prompts]
    for _ in range(KILLS):
        with Daemon(*asked) as d, concurrent.futures.ThreadPoolExecutor(3) as pool:
            ask = lambda i: bits(complete(d, prompts[i])) == expected[i]
            running = [pool.submit(ask, rng.randrange(len(prompts))) for _ in range(4)]
            time.sleep(rng.random() * 3)
            d.process.kill()
            for answer in running:
                try:
                    assert answer.result()
                except httpx.HTTPError:
                    pass
            d.process.wait()
        assert sum(file.stat().st_size for file in (tmp_path / "kv").iterdir()) <= limit + (1 << 20)
    with Daemon(*asked) as d:
        assert [bits(complete(d, prompt)) for prompt in prompts] == expected


def test_a_request_whose_memory_is_wanted_sleeps_on_flash(smollm, tmp_path):
    """The memory holds both prompts and not both answers. The younger request was computed again from its beginning."""
    asked = dict(tokens=220)
    with Daemon(*settings(smollm, tmp_path / "none")) as d:
        vocabulary = [t for word in WORDS for t in httpx.post(d.url + "/tokenize", json={"content": " " + word}).json()["tokens"]]
        prompts = [random.Random(seed).choices(vocabulary, k=960) for seed in (80, 81)]
        expected = [bits(complete(d, prompt, **asked)) for prompt in prompts]
    with Daemon(*settings(smollm, tmp_path / "kv", "prefix_cache.memory=0")) as d:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            answers = list(pool.map(lambda prompt: complete(d, prompt, **asked), prompts))
        assert [bits(answer) for answer in answers] == expected
        assert value(d, "preemptions_total") >= 1
        restored, again = value(d, "prefix_flash_hit_tokens_total"), value(d, "recomputed_tokens_total")
        assert restored >= 500 and again <= 600, (restored, again)


def test_two_daemons_in_one_folder(smollm, tmp_path):
    prompt, other = text(60, 500), text(61, 500)
    with Daemon(*settings(smollm, tmp_path)) as first:
        expected = bits(complete(first, prompt))
    with Daemon(*settings(smollm, tmp_path)) as first, Daemon(*settings(smollm, tmp_path)) as second:
        assert "it is only read" in second.text()
        for d in (first, second):
            answer = complete(d, prompt)
            assert bits(answer) == expected and cached(answer) > 400
        assert bits(complete(first, other)) == bits(complete(second, other))
        assert value(second, "prefix_flash_written_bytes_total") == 0


def test_a_full_disk_costs_only_the_cache(smollm, tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        with Daemon(*settings(smollm, disk / "kv")) as d:
            (disk / "ballast").write_bytes(bytes((6 << 20)))
            answers = [complete(d, text(70 + i, 700)) for i in range(2)]
            wait_until(lambda: value(d, "prefix_flash_dropped_blocks_total", reason="error") > 0 or value(d, "prefix_flash_evicted_blocks_total") > 0
                       or value(d, "prefix_flash_blocks") <= 2)
        with Daemon(*settings(smollm, tmp_path / "none")) as d:
            assert [bits(answer) for answer in answers] == [bits(complete(d, text(70 + i, 700))) for i in range(2)]
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("state", ["full", "read-only"])
def test_a_full_or_read_only_disk_does_not_keep_the_daemon_from_starting(smollm, tmp_path, state):
    """It ended with 78, and the unit never started it again."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("a small file system cannot be mounted here")
    try:
        if state == "full":
            with contextlib.suppress(OSError):
                (disk / "ballast").write_bytes(bytes(1 << 20))
        else:
            subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with Daemon(*settings(smollm, disk / "kv")) as d:
            complete(d, text(1, 100))
            assert "prefix_cache.path is not used" in d.text()
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_folder_in_which_others_may_write_is_named(tmp_path):
    folder = tmp_path / "kv"
    folder.mkdir()
    for mode, warned in ((0o777, True), (0o700, False)):
        folder.chmod(mode)
        with Daemon(f"prefix_cache.path={folder}") as d:
            assert ("others may write here" in d.text()) == warned


def test_a_folder_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    d = Daemon("prefix_cache.path=" + str(tmp_path / "file"), wait=False)
    assert d.wait() == 78
    assert "prefix_cache.path" in d.text() and "not a folder" in d.text()
    d.admin.close()


def with_context(model, out, tokens):
    """A copy of a GGUF file that says it was made for so many tokens."""
    shutil.copy(model, out)
    field = next(field for name, field in gguf.GGUFReader(out, "r+").fields.items() if name.endswith(".context_length"))
    field.parts[field.data[0]][0] = tokens
    return out


@pytest.mark.parametrize("name", ["lfm2", "qwen35", "granitehybrid", "nemotron_h", "gemma3"])
def test_states_and_windows_go_on_where_they_were(name, tmp_path):
    rng = random.Random(6)
    prompt = [rng.randrange(4, 96) for _ in range(700)]
    more = prompt + [rng.randrange(4, 96) for _ in range(50)]
    model = with_context(MODELS / name / "model.gguf", tmp_path / "model.gguf", 2048)
    asked = settings(model, tmp_path / "kv", "prefix_cache.memory=16MiB")
    with Daemon(*asked) as d:
        complete(d, prompt, 1)
        expected = bits(complete(d, more))
    with Daemon(*asked) as d:
        answer = complete(d, more)
        assert bits(answer) == expected
        assert cached(answer) >= 640
