"""The flash tier as users and operators meet it: the same text with less memory, budgets that hold, devices that fail."""
import json
import math
import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
from conftest import BIN, ROOT, THERMOCLINE, Daemon, run, wait_until
from prometheus_client.parser import text_string_to_metric_families
from test_hot import make_eager

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
OZ = (ROOT / "tests/data/wizard_of_oz.txt").read_text()
UNITS = {"B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9}
MIB = 2**20


@pytest.fixture(scope="module")
def synthetic(tmp_path_factory):
    """14 MB of neurons, a tenth active, and its bundle file."""
    path = tmp_path_factory.mktemp("synthetic") / "m.gguf"
    run("synth", path, "--layers", 4, "--hidden-size", 512, "--intermediate-size", 4096, "--heads", 8, "--kv-heads", 8,
        "--vocab", 2048, "--type", "q4_0", "--active", 0.1, "--down", "rows")
    run("pack", path, "--order", "none")
    return path


@pytest.fixture(scope="module")
def tidepool(tmp_path_factory):
    path = tmp_path_factory.mktemp("tidepool") / "tidepool.gguf"
    shutil.copy(ROOT / "config/models/tidepool.gguf", path)
    run("pack", path, "--order", "none")
    return path


def generate(model, *args, env=None, prompt="Once upon a time", tokens=40, command=()):
    """The tokens, and the statistics of flash."""
    done = subprocess.run([*command, THERMOCLINE, "run", str(model), "-p", prompt, "-n", str(tokens), "--temperature", "0", "--ignore-eos", "--json", *map(str, args)],
                          capture_output=True, timeout=300, env={**os.environ, **(env or {})})
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads(done.stdout)
    return report["tokens"], report["flash"]


def number_of_bytes(words):
    number, unit = re.search(r"needs ([\d.]+) (\w+), more than the", words).groups()
    return float(number) * UNITS[unit]


def daemon_exit(*settings, before=()):
    """Runs a daemon that is to end by itself."""
    args = [*before, str(BIN / "thermoclined"), "--set", "server.port=0"]
    for setting in settings:
        args += ["--set", setting]
    return subprocess.run(args, capture_output=True, timeout=60)


def tight(model, *settings, room=2.2 * MIB, before=()):
    """Settings of a daemon that holds Tidepool and `room` bytes of its 5 MiB of neurons."""
    settings = (f"model.path={model}", "engine.context_length=256", "prefix_cache.memory=0MiB", "server.threads=1", *settings)
    # A process that starts just after its file was written has megabytes more of it in memory.
    needed = min(number_of_bytes(daemon_exit(*settings, "memory.budget_bytes=1", before=before).stderr.decode()) for _ in range(3))
    return (*settings, f"memory.budget_bytes={int(needed + room)}")


def ask(daemon, **more):
    return httpx.post(daemon.url + "/v1/chat/completions", json={"messages": STORY, "temperature": 0, "max_tokens": 30, **more}, timeout=60)


def content(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def value(daemon, name, **labels):
    families = text_string_to_metric_families(httpx.get(daemon.url + "/metrics").text)
    samples = {(s.name, tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}
    return samples.get(("thermocline_" + name, tuple(sorted(labels.items()))), 0)


LONG = " ".join(OZ.split()[:200])


@pytest.mark.parametrize("mode", ["exact", "sign", "dense"])
def test_streamed_text_is_that_of_memory(synthetic, mode):
    """Also with a prompt of several steps, with threads instead of io_uring, without reading ahead."""
    for prompt in ("Once upon a time", LONG):
        want, flash = generate(synthetic, "--ffn-mode", mode, prompt=prompt)
        assert flash is None and len(set(want)) > 10
        for args, env in (((), {}), (("--no-read-ahead",), {}), ((), {"THERMOCLINE_FLASH_IO": "pread"})):
            got, flash = generate(synthetic, "--ffn-mode", mode, "--ffn-memory", 0.5, *args, prompt=prompt, env=env)
            assert got == want
            assert flash["kind"] == "neurons" and flash["reads"] > 0
            assert flash["method"] == "pread" or not env


def test_models_without_zeros_stream_whole_layers(smollm, tmp_path):
    model = tmp_path / "smollm.gguf"
    model.symlink_to(smollm)
    assert json.loads(run("pack", model, "--json").stdout)["kind"] == "layers"
    want, _ = generate(model, prompt=LONG, tokens=12)
    for share, env in ((0.5, {}), (0.2, {"THERMOCLINE_FLASH_IO": "pread"})):
        got, flash = generate(model, "--ffn-memory", share, prompt=LONG, tokens=12, env=env)
        assert got == want and flash["kind"] == "layers"
        assert flash["bytes"] > (1 - share) * 0.8 * 12 * 60e6  # again for every token


def test_the_daemon_streams_the_same_text_and_says_what_it_reads(tidepool):
    with Daemon(f"model.path={tidepool}", "engine.context_length=256") as d:
        want = content(ask(d))
        assert value(d, "flash_reads_total") == 0 and value(d, "memory_planned_bytes") < value(d, "memory_budget_bytes")
    for room, more in ((2.2, ()), (2.2, ("memory.read_ahead=false",)), (2.2, ("engine.ffn_mode=sign", "engine.ffn_also=exact")), (0.6, ())):
        with Daemon(*tight(tidepool, *more, room=room * MIB)) as d:
            assert ("gate rows" in d.text()) == (room > 2)
            mode = {"x_thermocline": {"ffn_mode": "exact"}} if len(more) == 2 else {}
            before = value(d, "engine_heartbeats_total")
            assert content(ask(d, **mode)) == want
            assert "neuron cache" in d.text()
            assert value(d, "engine_heartbeats_total") - before >= 30
            assert value(d, "flash_info", kind="neurons", bundle=f"{tidepool}.tcb", method="io_uring") + value(d, "flash_info", kind="neurons", bundle=f"{tidepool}.tcb", method="pread") == 1
            wait_until(lambda: value(d, "flash_needed_neurons_total") > 0)  # published when the engine rests
            assert 0 < value(d, "flash_hit_neurons_total") < value(d, "flash_needed_neurons_total")
            for name in ("reads", "read_bytes", "wanted_bytes", "manage_seconds", "arrive_seconds"):
                assert value(d, f"flash_{name}_total") > 0, name
            assert (value(d, "flash_evictions_total") > 0) == (room > 2)  # whole layers make none hotter than another
            for name in ("retries", "io_errors", "crc_errors"):
                assert value(d, f"flash_{name}_total") == 0, name
            assert 0 < value(d, "memory_bytes", kind="flash_cache", device="cpu") < value(d, "memory_planned_bytes") <= value(d, "memory_budget_bytes")


def test_audits_on_two_sides_with_drafts_and_flash_are_evals(tidepool, tmp_path, monkeypatch):
    """Precision and recall by layer, of a sample of the tokens that `eval --predictor` counts all of."""
    settings = tight(tidepool, "engine.ffn_mode=sign", "engine.audit_interval=1", "engine.controller_recall=0", "hot.device=cpu", "hot.bytes=1MiB",
                     "spec.mode=sync", "spec.source=ngram", "spec.fixed=true", "spec.tokens_max=3", room=2.2 * MIB)
    texts, prompts = [], []
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Daemon(*settings):
        make_eager(tmp_path / "cache")  # a plan goes by measured speeds: these put neurons on both sides
    with Daemon(*settings) as d:
        for name in ("owl", "fox", "boat", "storm", "lamp", "bear"):
            prompt = json.loads(run("tokenize", tidepool, "--json", stdin=f"The {name} and".encode()).stdout)["tokens"]
            answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "temperature": 0, "max_tokens": 120,
                                                                 "ignore_eos": True}, timeout=60).json()
            generated = json.loads(run("tokenize", tidepool, "--json", stdin=answer["choices"][0]["text"].encode()).stdout)["tokens"]
            prompts.append(prompt)
            texts.append(prompt + generated)
        layers = [str(layer) for layer in range(6)]
        wait_until(lambda: value(d, "predictor_audited_tokens_total", layer="5") > 60)
        assert value(d, "flash_reads_total") > 0 and value(d, "spec_decode_num_drafts_total") > 20
        assert value(d, "hot_active_neurons_total", side="hot") > 0 and value(d, "flash_passed_total") > 0
        audited = [value(d, "predictor_audited_tokens_total", layer=layer) for layer in layers]
        counts = [{o: value(d, "predictor_neurons_total", layer=layer, outcome=o) for o in ("tp", "fp", "fn", "tn")} for layer in layers]
        for layer in layers:
            assert 0 < value(d, "predictor_recall", layer=layer, mode="sign") <= 1 and 0 < value(d, "predictor_precision", layer=layer, mode="sign") <= 1
            assert value(d, "predictor_window_tokens", layer=layer, mode="sign") == min(64, audited[int(layer)])
            assert value(d, "predictor_audit_seconds_total", layer=layer) > 0
    expected = []
    for windows in (texts, prompts):
        (tmp_path / "windows.json").write_text(json.dumps(windows))
        expected.append(json.loads(run("eval", tidepool, "--tokens", tmp_path / "windows.json", "--ffn-mode", "sign", "--predictor", "--json").stdout)["layers"])
    for got, n, whole, part in zip(counts, audited, *expected):
        tp, fp, fn = (whole[key] - part[key] for key in ("tp", "fp", "fn"))
        assert sum(got.values()) == 1024 * n
        for a, b in ((got["tp"] / (got["tp"] + got["fp"]), tp / (tp + fp)), (got["tp"] / (got["tp"] + got["fn"]), tp / (tp + fn))):
            assert abs(a - b) < 4 * math.sqrt(b * (1 - b) / n) < 0.25, (a, b, n)


def test_what_cannot_fit_is_refused_with_a_table(tidepool):
    refused = daemon_exit(f"model.path={tidepool}", "memory.budget_bytes=20MiB")
    assert refused.returncode == 78
    words = refused.stderr.decode()
    for line in ("more than the 20.00 MiB of the memory budget", "KV cache", "program and vocabulary", "flash: what is on its way", "together"):
        assert line in words, words
    refused = daemon_exit("model.path=tidepool", "memory.budget_bytes=20MiB")
    assert refused.returncode == 78 and "thermocline pack" in refused.stderr.decode()
    assert daemon_exit("memory.budget_bytes=many").returncode == 78


@contextmanager
def limited(limit):
    """A control group for memory, and its folder."""
    old = Path("/sys/fs/cgroup/memory")
    version1 = old.is_dir()
    group = (old if version1 else Path("/sys/fs/cgroup")) / f"thermocline-test-{os.getpid()}"
    try:
        group.mkdir()
        if version1:
            (group / "memory.limit_in_bytes").write_text(str(limit))
        else:
            (group / "memory.max").write_text(str(limit))
            (group / "memory.swap.max").write_text("0")
    except OSError as error:
        if group.is_dir():
            group.rmdir()
        pytest.skip(f"no control group for memory can be made: {error}")
    try:
        yield group
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()


def most_used(group):
    for name in ("memory.max_usage_in_bytes", "memory.peak"):
        if (group / name).exists():
            return int((group / name).read_text())
    pytest.skip("the kernel does not say what a control group used at most (memory.peak: Linux 5.19)")


def inside(group):
    return ["sh", "-c", f'echo $$ > "{group}/cgroup.procs" && exec "$@"', "sh"]


def test_the_budget_holds_below_a_limit_of_the_control_group(synthetic):
    """The kernel kills a process above the limit; page cache of read files counts, too, but is reclaimed."""
    args = ("--ffn-mode", "exact", "--context", "512")
    want, _ = generate(synthetic, *args, tokens=60)
    refused = run("run", synthetic, "-p", "x", "--memory-budget", "1", *args, check=False)
    assert refused.returncode == 1 and b"more than the 1 B of the memory budget" in refused.stderr
    budget = int(number_of_bytes(refused.stderr.decode()) + 5 * MIB)
    with limited(budget + 4 * MIB) as group:
        got, flash = generate(synthetic, *args, "--memory-budget", budget, tokens=60, command=inside(group))
        assert got == want and flash["reads"] > 0
        assert most_used(group) <= budget + 4 * MIB
    # Without a budget, nine tenths of the group's limit are the budget, and the tier is used for that alone.
    with limited(budget * 10 // 9) as group:
        got, flash = generate(synthetic, *args, tokens=60, command=inside(group))
        assert got == want and flash["reads"] > 0


@pytest.fixture
def device(tmp_path):
    """A file system on a loop device whose backing file in memory can be taken away: then its reads fail with EIO."""
    backing, copy, mount = Path(f"/dev/shm/thermocline-test-{os.getpid()}.img"), tmp_path / "copy.img", tmp_path / "mount"
    mount.mkdir()
    with open(backing, "wb") as file:
        file.truncate(32 * MIB)
    commands = [["mkfs.ext4", "-q", "-b", "4096", backing], ["mount", "-o", "loop", backing, mount]]
    try:
        for command in commands:
            done = subprocess.run(list(map(str, command)), capture_output=True)
            if done.returncode != 0:
                pytest.skip(f"{command[0]}: {done.stderr.decode().strip()}")

        class Device:
            folder = mount

            def fail(self):
                os.sync()
                shutil.copy(backing, copy)
                os.truncate(backing, 0)

            def recover(self):
                with open(copy, "rb") as source, open(backing, "r+b") as target:
                    shutil.copyfileobj(source, target)

        yield Device()
    finally:
        subprocess.run(["umount", str(mount)], capture_output=True)
        backing.unlink()


def test_a_device_that_fails_ends_requests_and_not_the_daemon(tidepool, device):
    bundle = device.folder / "b.tcb"
    shutil.copy(f"{tidepool}.tcb", bundle)
    with Daemon(*tight(tidepool, "engine.ffn_mode=exact", f"memory.bundle={bundle}")) as d:
        want = content(ask(d))
        device.fail()
        try:
            for _ in range(2):
                answer = ask(d, messages=[{"role": "user", "content": "What does a fox eat?"}])
                assert answer.status_code == 503, answer.text
                error = answer.json()["error"]
                assert (error["type"], error["code"]) == ("server_error", "unavailable")
                assert re.search(r"^b\.tcb: layer \d+, bytes .* Input/output error", error["message"]), error
                assert int(answer.headers["retry-after"]) >= 1
            assert httpx.get(d.url + "/health/live").status_code == 200
            assert all(str(bundle) in line for line in d.logged("Input/output error", times=2))  # folders are the operator's alone
            assert value(d, "requests_failed_total", reason="device") == 2
            assert value(d, "flash_io_errors_total") >= 6 and value(d, "flash_retries_total") >= 4
        finally:
            device.recover()
        assert content(ask(d)) == want
        assert d.process.poll() is None


def test_a_stream_that_meets_a_failing_device_ends_with_an_error_event(tidepool, device):
    bundle = device.folder / "b.tcb"
    shutil.copy(f"{tidepool}.tcb", bundle)
    with Daemon(*tight(tidepool, "engine.ffn_mode=exact", f"memory.bundle={bundle}")) as d:
        events = []
        with httpx.stream("POST", d.url + "/v1/chat/completions", timeout=60,
                          json={"messages": STORY, "temperature": 1, "seed": 1, "max_tokens": 230, "stream": True, "logit_bias": {"2": -100}}) as answer:
            assert answer.status_code == 200
            for line in answer.iter_lines():
                if not line.startswith("data: "):
                    continue
                if not events:
                    device.fail()
                events.append(line.removeprefix("data: "))
        device.recover()
        if events[-1] != "[DONE]":  # it had not ended before the device failed
            assert "Input/output error" in json.loads(events[-1])["error"]["message"]
        assert ask(d).status_code == 200


def test_a_bundle_file_truncated_while_open(tidepool, tmp_path):
    bundle = tmp_path / "b.tcb"
    shutil.copy(f"{tidepool}.tcb", bundle)
    with Daemon(*tight(tidepool, "engine.ffn_mode=exact", f"memory.bundle={bundle}")) as d:
        want, whole = content(ask(d)), bundle.read_bytes()
        os.truncate(bundle, 100_000)
        answer = ask(d, messages=[{"role": "user", "content": "What does a fox eat?"}])
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "data_loss"
        assert "truncated while open" in answer.json()["error"]["message"]
        assert value(d, "requests_failed_total", reason="data") == 1
        with open(bundle, "r+b") as file:
            file.write(whole)
        assert content(ask(d)) == want


def test_a_bundle_file_replaced_while_open(tidepool, tmp_path):
    """The one that was opened goes on."""
    bundle, other = tmp_path / "b.tcb", tmp_path / "other"
    shutil.copy(f"{tidepool}.tcb", bundle)
    with Daemon(*tight(tidepool, "engine.ffn_mode=exact", f"memory.bundle={bundle}")) as d:
        want = content(ask(d))
        other.write_bytes(bytes(bundle.stat().st_size))
        other.rename(bundle)
        assert content(ask(d)) == want and content(ask(d, messages=STORY * 1, max_tokens=60))
        assert value(d, "flash_crc_errors_total") == 0


def test_bytes_that_changed_on_the_device(tidepool, tmp_path):
    bundle = tmp_path / "b.tcb"
    whole = bytearray(Path(f"{tidepool}.tcb").read_bytes())
    shutil.copy(f"{tidepool}.tcb", bundle)
    with Daemon(*tight(tidepool, "engine.ffn_mode=exact", f"memory.bundle={bundle}")) as d:
        want = content(ask(d))
        changed = bytearray(whole)
        begin = len(whole) // 6 * 2  # a layer and more of them
        for at in range(begin, begin * 2, 700):
            changed[at] ^= 16
        with open(bundle, "r+b") as file:
            file.write(changed)
        answer = ask(d, messages=[{"role": "user", "content": "What does a fox eat?"}])
        assert answer.status_code == 500, answer.text
        assert re.search(r"layer \d, neuron \d+: the bundle's CRC32C", answer.json()["error"]["message"])
        assert value(d, "flash_crc_errors_total") >= 2
        with open(bundle, "r+b") as file:
            file.write(whole)
        assert content(ask(d)) == want


def test_bench_prints_no_speed_of_a_step_that_failed(tidepool, tmp_path):
    """A neuron that only the first of two prefill steps reads is damaged: the others succeed."""
    bundle = tmp_path / "b.tcb"
    data = bytearray(Path(f"{tidepool}.tcb").read_bytes())
    data[len(data) * 31 // 100 + 5] ^= 16
    bundle.write_bytes(data)
    sizes = ("--ffn-mode", "exact", "--ffn-memory", 0.7, "--bundle", bundle, "--decode", 1, "--repetitions", 1)
    assert run("bench", tidepool, *sizes, "--prefill", 1).returncode == 0
    done = run("bench", tidepool, *sizes, "--prefill", 129, check=False)
    assert done.returncode == 1 and done.stdout == b""
    assert re.search(rb"layer \d, neuron \d+: the bundle's CRC32C", done.stderr)


def test_a_request_that_takes_too_long_ends_with_504(tidepool):
    with Daemon(f"model.path={tidepool}") as d:
        answer = ask(d, max_tokens=500, x_thermocline={"timeout_s": 0.000001})  # is over before it has a place
        assert answer.status_code == 504 and answer.json()["error"]["code"] == "timeout"
        assert "deadline" in answer.json()["error"]["message"]
        assert value(d, "requests_rejected_total", reason="deadline") == 1
        late = ask(d, max_tokens=500, logit_bias={"2": -100, "6": -100}, x_thermocline={"timeout_s": 0.03})
        assert late.status_code == 504
        cancelled = sum(value(d, "requests_cancelled_total", phase=phase, cause="deadline") for phase in ("queued", "prefill", "decode"))
        assert value(d, "requests_rejected_total", reason="deadline") + cancelled == 2 and value(d, "requests_failed_total", reason="other") == 0
        assert ask(d, x_thermocline={"timeout_s": -1}).status_code == 400
        assert ask(d).status_code == 200
