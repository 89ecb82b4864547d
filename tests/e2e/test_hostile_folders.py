"""Folders and files that would break the program that opens them: by their sizes, by what they lack, by the length of their lists."""
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import threading
import time

import gguf
import httpx
import pytest
from conftest import ROOT, THERMOCLINE, Daemon, memory_mib, wait_until
from gguf_copy import copy

TINY = ROOT / "tests/golden/architectures"
HEAD_DIM = 2147483646


def tensors(family):
    """The header and the data of a family's tiny model."""
    raw = (TINY / family / "model.safetensors").read_bytes()
    size = struct.unpack("<Q", raw[:8])[0]
    return json.loads(raw[8:8 + size]), raw[8 + size:]


def write(folder, config, header=None, data=b""):
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    if header is not None:
        text = json.dumps(header).encode()
        (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    return folder


def config_of(family, **changes):
    return json.loads((TINY / family / "config.json").read_text()) | changes


def overflowing(folder):
    """Three dimensions whose product has 2^64 as a factor: the size was 0, and what was read lay behind it."""
    header, data = tensors("lfm2")
    header["model.layers.0.conv.conv.weight"] = {"dtype": "F32", "shape": [1 << 24, 1 << 24, 1 << 16], "data_offsets": [0, 0]}
    return write(folder, config_of("lfm2"), header, data)


def without_attention(folder):
    """No layer keeps keys and values: their bytes were a divisor."""
    header, data = tensors("nemotron_h")
    kept = {name: entry for name, entry in header.items() if "layers.3." not in name}
    kept |= {name.replace("layers.1.", "layers.3."): entry for name, entry in header.items() if "layers.1." in name}
    body = b""
    kept.pop("__metadata__", None)
    for name, entry in kept.items():
        begin, end = entry["data_offsets"]
        kept[name] = entry | {"data_offsets": [len(body), len(body) + end - begin]}
        body += data[begin:end]
    return write(folder, config_of("nemotron_h", layers_block_type=["linear_attention", "mlp", "linear_attention", "mlp", "mlp"]), kept, body)


def wide_heads(folder):
    """A rotation had a number for each dimension before the sizes were checked: 4 GiB."""
    return write(folder, config_of("gemma4", global_head_dim=HEAD_DIM))


def long_pattern(folder):
    """A JSON value for each of 16 million letters."""
    config = config_of("nemotron_h", hybrid_override_pattern="M" * (16 << 20))
    config.pop("layers_block_type", None)
    return write(folder, config)


@pytest.mark.parametrize("make", [overflowing, without_attention, wide_heads, long_pattern])
def test_a_folder_is_refused_by_name_in_little_memory(tmp_path, make):
    folder = make(tmp_path / "evil")
    limited = ["prlimit", f"--as={2 << 30}", THERMOCLINE, "run", folder, "-p", "x", "-n", "1"]
    done = subprocess.run(list(map(str, limited)), capture_output=True, text=True, timeout=120)
    assert done.returncode == 1 and str(folder) in done.stderr and "out of memory" not in done.stderr, (done.returncode, done.stderr[-500:])


def refusal(folder):
    """What `run` says of a folder that it does not open."""
    done = subprocess.run([str(THERMOCLINE), "run", str(folder), "-p", "x"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done
    return done.stderr


def test_a_size_is_refused_before_another_is_computed_from_it(tmp_path):
    """Networks of double width had -2 columns."""
    size = (1 << 31) - 1
    evil = write(tmp_path / "evil", config_of("gemma4", intermediate_size=size, use_double_wide_mlp=True))
    assert f"'intermediate_size' is {size}" in refusal(evil)


def test_a_header_of_millions_of_entries_is_refused_by_its_count(tmp_path):
    """A file of 81 MB with five million keys took 965 MiB, and one of tensors 1.7 GiB and 15 s, before any request."""
    for tensors_count, keys in ((0, 5_000_000), (5_000_000, 0)):
        evil = tmp_path / "evil.gguf"
        evil.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, tensors_count, keys) + bytes(64))
        assert "5000000 " in refusal(evil)


def test_one_file_under_many_names_is_not_read_again_and_again(tmp_path):
    """A folder of 21 MiB took 3.7 GiB: its index named one file, of many tensors, forty times."""
    header = {f"t{i}": {"dtype": "U8", "shape": [0], "data_offsets": [0, 0]} for i in range(100_000)}
    for names in (40, 2000):
        evil = write(tmp_path / f"evil{names}", config_of("lfm2"), header)
        shards = [f"{i}.safetensors" for i in range(names)]
        for shard in shards:
            (evil / shard).symlink_to("model.safetensors")
        (evil / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {shard: shard for shard in shards}}))
        assert ("more than 262144 tensors" if names == 40 else "2000 files of weights") in refusal(evil)


def test_a_long_template_is_refused(tmp_path):
    """It became a hundred times its bytes: 20 MiB took 2.4 GiB of a budget of one, for ten seconds that no signal ended."""
    evil = copy(ROOT / "config/models/tidepool.gguf", tmp_path / "evil.gguf", fields={"tokenizer.chat_template": "{{a}}" * 60_000})
    with Daemon(f"model.path={evil}", wait=False) as d:
        assert d.process.wait(60) == 78 and d.ended.wait(60) and "the chat template has 300000 bytes" in d.text()


def test_a_file_of_the_folder_takes_no_name_and_no_start(tmp_path):
    """A file named as an alias, or one that is no model and comes first, kept the daemon from starting and every later reload from happening."""
    models = tmp_path / "models"
    models.mkdir()
    (models / "gpt-4o.gguf").symlink_to(ROOT / "config/models/tidepool-draft.gguf")
    (models / "0.gguf").write_bytes(b"no model")
    ask = lambda d, model: httpx.post(d.url + "/v1/completions", json={"model": model, "prompt": "x", "max_tokens": 1}, timeout=60)  # noqa: E731
    with Daemon("model.path=tidepool", "model.aliases=gpt-4o", f"server.models_dir={models}") as d:
        assert ask(d, "gpt-4o").json()["model"] == "tidepool" and "is left out" in d.text()
    with Daemon(f"server.models_dir={models}") as d:
        assert ask(d, "gpt-4o").status_code == 200
        assert ask(d, "0").status_code == 503 and "no model" in ask(d, "0").json()["error"]["message"]


def test_many_models_that_nobody_uses_have_no_series(tmp_path):
    """A scrape of two thousand models had 40 MB; twelve of them held /health back for seconds."""
    models = tmp_path / "models"
    models.mkdir()
    for i in range(70):
        (models / f"m{i}.gguf").symlink_to(ROOT / "config/models/tidepool-draft.gguf")
    with Daemon("model.path=tidepool", f"server.models_dir={models}") as d:
        assert len(httpx.get(d.url + "/v1/models").json()["data"]) == 71
        body = {"model": "m7", "prompt": "x", "max_tokens": 1}
        assert httpx.post(d.url + "/v1/completions", json=body, timeout=60).status_code == 200
        text = httpx.get(d.url + "/metrics").text
        assert set(re.findall(r'model="([^"]+)"', text)) == {"tidepool", "m7"}


def test_a_long_list_of_stop_tokens_takes_no_time(tmp_path):
    """Each id was sought among all before it: a million of them held other models' requests back for ten seconds."""
    source = ROOT / "tests/golden/models/tidepool"
    folder = next(path.parent for path in source.rglob("config.json"))
    evil = tmp_path / "evil"
    shutil.copytree(folder, evil)
    config = json.loads((evil / "config.json").read_text())
    (evil / "config.json").write_text(json.dumps(config | {"eos_token_id": [i % 2000 for i in range(900_000)]}))
    done = subprocess.run([str(THERMOCLINE), "inspect", str(evil)], capture_output=True, text=True, timeout=10)
    assert done.returncode == 0, done.stderr


def test_a_vocabulary_of_long_tokens_is_refused(tmp_path):
    """The tries of a grammar took 3.2 GiB for 62,741 tokens of a thousand bytes."""
    tokens = [f"{i:04x}" + "x" * 900 for i in range(5000)]
    evil = tmp_path / "evil.gguf"
    writer = gguf.GGUFWriter(evil, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types([1] * len(tokens))
    writer.add_token_merges([])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert "the vocabulary's tokens have 4520000 bytes" in refusal(evil)


def test_a_damaged_list_of_added_models_keeps_nothing_from_being_served(tmp_path):
    models = tmp_path / "models"
    models.mkdir()
    for text in ("{", '{"models": [{"name": "a\\u001bb", "path": "/dev/zero", "fetched": true}], "aliases": []}'):
        (models / "added-models.json").write_text(text)
        with Daemon("model.path=tidepool", f"server.models_dir={models}") as d:
            assert [m["id"] for m in httpx.get(d.url + "/v1/models").json()["data"]] == ["tidepool"]
            assert "what clients have added is left out" in d.text()


def sparse_weights(folder, family, name, gib):
    """A folder of 4 KiB whose file claims a matrix of so many GiB, all of it a hole."""
    header = {name: {"dtype": "F32", "shape": [gib << 10, 1 << 18], "data_offsets": [0, gib << 30]}}
    write(folder, config_of(family), header)
    with open(folder / "model.safetensors", "r+b") as file:
        file.truncate(file.seek(0, 2) + (gib << 30))
    return folder


def test_what_lies_in_the_folder_is_read_in_a_process_of_its_own(tmp_path):
    """Without a request: a hole of 1 GiB took twice its bytes, one of 64 GiB held other models back for minutes, and SIGTERM 30 s."""
    models = tmp_path / "models"
    models.mkdir()
    sparse_weights(models / "wide", "lfm2", "model.layers.0.conv.conv.weight", 1)
    layers = {f"model.layers.{i}.mlp.experts.0.up_proj.weight": {"dtype": "BF16", "shape": [1, 1], "data_offsets": [0, 2]} for i in range(20_000)}
    write(models / "pieces", config_of("qwen3moe", num_experts=4096), layers, b"xx")
    (models / "good.gguf").symlink_to(ROOT / "config/models/tidepool-draft.gguf")
    ask = lambda d, model: httpx.post(d.url + "/v1/completions", json={"model": model, "prompt": "x", "max_tokens": 1}, timeout=60)  # noqa: E731
    with Daemon("model.path=tidepool", f"server.models_dir={models}", "memory.budget_bytes=512MiB") as d:
        assert ask(d, "good").status_code == 200
        for evil in ("wide", "pieces"):
            refused = ask(d, evil)
            assert refused.status_code == 503 and "cannot be loaded" in refused.json()["error"]["message"], refused.text
        assert memory_mib(d, "VmHWM") < 300
        facts = {m["name"]: m["details"]["family"] for m in httpx.get(d.url + "/api/tags").json()["models"]}
        assert facts["good:latest"] == "llama"
        d.terminate()
        assert d.process.wait(20) == 0


def test_a_search_in_a_template_takes_linear_time(tmp_path):
    """One `b in a` of a template, with megabytes of equal letters, held the workers for hours."""
    template = "{% set a = 'a' * 500000 %}{% set b = 'a' * 250000 ~ 'b' %}{% if b in a or a.find(b) > 0 or a.split(b)|length > 1 or a.replace(b, '') != a or a.count(b) %}x{% endif %}" \
               "{{ a.strip('xyz' ~ a)|length }}{{ messages[0]['content'] }}"
    slow = copy(ROOT / "config/models/tidepool.gguf", tmp_path / "slow.gguf", fields={"tokenizer.chat_template": template})
    with Daemon(f"model.path={slow}") as d:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        assert httpx.post(d.url + "/v1/chat/completions", json=body, timeout=30).status_code in (200, 400)


def test_a_damaged_list_deletes_nothing_elsewhere(tmp_path):
    """An operator's deletion of a name removed the folder of any path that the list gave it."""
    models, victim = tmp_path / "models", tmp_path / "victim"
    models.mkdir()
    victim.mkdir()
    (victim / "precious.txt").write_text("x")
    (victim / "x.gguf").symlink_to(ROOT / "config/models/tidepool-draft.gguf")
    listed = [{"name": "http://h/x.gguf", "path": str(victim / "x.gguf"), "fetched": True}]
    (models / "added-models.json").write_text(json.dumps({"models": listed, "aliases": []}))
    with Daemon("model.path=tidepool", f"server.models_dir={models}", "server.pull=true") as d:
        done = d.admin.request("DELETE", "/api/delete", json={"model": "http://h/x.gguf"})
        assert done.status_code == 400 and "was not fetched from" in done.text, done.text
    assert {path.name for path in victim.iterdir()} == {"precious.txt", "x.gguf"}


def test_two_spellings_of_a_tensor_are_refused(tmp_path):
    header, data = tensors("lfm2")
    twin = "model.language_model.layers.0.conv.conv.weight"
    evil = write(tmp_path / "evil", config_of("lfm2"), header | {twin: header["model.layers.0.conv.conv.weight"]}, data)
    assert "'blk.0.shortconv.conv.weight' appears twice" in refusal(evil)


def test_a_folder_that_lies_in_models_dir_ends_no_daemon(tmp_path):
    """The facts of what lies there are read without a request."""
    models = tmp_path / "models"
    models.mkdir()
    for make in (overflowing, wide_heads, long_pattern):
        make(models / make.__name__)
    config = tmp_path / "dir.yaml"
    config.write_text(f"models:\n  - path: tidepool\n    name: tide\nserver: {{models_dir: {models}}}\n")
    with Daemon(config=config) as d:
        wait_until(lambda: len(httpx.get(d.url + "/v1/models").json()["data"]) == 4)
        body = {"model": "tide", "prompt": "x", "max_tokens": 1}
        assert httpx.post(d.url + "/v1/completions", json=body, timeout=60).status_code == 200
        assert d.process.poll() is None and memory_mib(d, "VmHWM") < 500


def test_windows_in_every_layer_leave_nothing_for_flash(tmp_path):
    """No block of a whole prefix exists: its bytes were a divisor."""
    windowed = tmp_path / "windows.gguf"
    copy(str(ROOT / "config/models/tidepool.gguf"), str(windowed), fields={"llama.context_length": 32768, "llama.attention.sliding_window": 32})
    with Daemon(f"model.path={windowed}", f"prefix_cache.path={tmp_path}/prefixes") as d:
        assert d.logged("prefix_cache.path is not used: every layer of this model sees a window alone")
        assert httpx.post(d.url + "/v1/completions", json={"prompt": "x", "max_tokens": 4}, timeout=60).status_code == 200


def test_a_link_shows_no_file_from_elsewhere(tmp_path):
    """A chat template that was a link to the daemon's TLS key was shown to every key. A hub's snapshots link to their repository's blobs."""
    secret = tmp_path / "tls.key"
    secret.write_text("-----BEGIN PRIVATE KEY-----")
    models = tmp_path / "models"
    models.mkdir()
    template = "{% for message in messages %}{{ message.content }}{% endfor %}"
    for name in ("theirs", "inside", "repo/snapshots/abc"):
        shutil.copytree(ROOT / "tests/golden/models/tidepool/target", models / name)
    (models / "theirs/chat_template.jinja").symlink_to(secret)
    (models / "inside/texts").mkdir()
    (models / "inside/texts/template").write_text(template)
    (models / "inside/chat_template.jinja").symlink_to("texts/template")
    (models / "repo/blobs").mkdir()
    (models / "repo/blobs/0123").write_text(template)
    (models / "repo/snapshots/abc/chat_template.jinja").symlink_to("../../blobs/0123")

    def ask(d, name):
        return httpx.post(d.url + "/v1/completions", json={"model": name, "prompt": "a", "max_tokens": 1}, timeout=60)

    with Daemon("model.path=tidepool", f"server.models_dir={models}") as d:
        refused = ask(d, "theirs")
        assert refused.status_code == 503 and "outside of the model" in refused.text, refused.text
        assert all("PRIVATE" not in httpx.get(f"{d.url}{route}?model=theirs").text for route in ("/props", "/tokenizer_info"))
        assert ask(d, "inside").status_code == 200
        assert httpx.get(d.url + "/props?model=inside").json()["chat_template"] == template
    with Daemon("model.path=tidepool", f"server.models_dir={models}/repo/snapshots") as d:
        assert ask(d, "abc").status_code == 200


def processor_seconds(d):
    """Of the daemon and the processes that it has waited for."""
    fields = pathlib.Path(f"/proc/{d.process.pid}/stat").read_text().rsplit(") ", 1)[1].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def test_a_file_that_changes_at_every_look_is_examined_seldom(tmp_path):
    """A link to a file of /proc, or a log: it was examined again and again, without a request, and a request for it had no answer."""
    models = tmp_path / "models"
    models.mkdir()
    growing = models / "log.gguf"
    growing.write_bytes(b"GGUF")
    ends = threading.Event()

    def grow():
        while not ends.wait(0.002):
            with growing.open("ab") as file:
                file.write(b"x")

    with Daemon("model.path=tidepool", f"server.models_dir={models}") as d:
        thread = threading.Thread(target=grow)
        thread.start()
        try:
            time.sleep(2)
            before = processor_seconds(d)
            begin = time.monotonic()
            for _ in range(3):
                answer = httpx.post(d.url + "/v1/completions", json={"model": "log", "prompt": "a", "max_tokens": 1}, timeout=30)
                assert answer.status_code == 503, answer.text
            time.sleep(4)
            assert processor_seconds(d) - before < 0.3 * (time.monotonic() - begin)
        finally:
            ends.set()
            thread.join()
