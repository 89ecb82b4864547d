"""The list of models: in the configuration, in a folder, and when it changes."""
import datetime
import os
import shutil
import signal

import httpx
import pytest

from conftest import TIDEPOOL_FOLDER, Daemon, refusal, run, run_json, wait_until
from several_models import ask, configuration, states, text_of, truths


@pytest.fixture(scope="module")
def truth(smollm):
    return truths(smollm)


def test_another_list_is_taken_up_by_sighup(tmp_path, smollm, truth):
    path = configuration(tmp_path, smollm)
    first = path.read_text()
    ids = lambda: [m["id"] for m in httpx.get(d.url + "/v1/models").json()["data"]]  # noqa: E731
    with Daemon(config=path) as d:
        def reload(text, times=[0]):
            path.write_text(text)
            d.process.send_signal(signal.SIGHUP)
            times[0] += 1
            d.logged("the configuration is reloaded", times[0])

        assert text_of(ask(d, "smol")) == truth["smol"]
        body = {"model": "smol", "stream": True, "max_tokens": 1200, "ignore_eos": True, "messages": [{"role": "user", "content": "Hi"}]}
        with httpx.stream("POST", d.url + "/v1/chat/completions", json=body, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            # smol is gone, and "again" is the same file under another name; what smol has begun, it ends.
            reload(first.replace("name: smol", "name: again").replace("name: experts", "name: experts\n    aliases: [mix]"))
            assert ids() == ["tide", "gpt-4o", "again", "experts", "mix"]
            assert ask(d, "smol").status_code == 404
            assert text_of(ask(d, "again")) == truth["smol"] and text_of(ask(d, "mix")) == truth["experts"]
            assert any('"finish_reason":"length"' in line for line in lines)
        d.logged("the model smol sleeps: it is not in the list any more")
        wait_until(lambda: 'model="smol"' not in httpx.get(d.url + "/metrics").text, 30)
        # Reloadable keys are taken up by a model that stays awake, other keys by loading it again.
        reload(path.read_text().replace("{context_length: 2048}", "{context_length: 2048, queue_capacity: 7}"))
        assert text_of(ask(d, "again")) == truth["smol"] and len(d.logged("the model again is awake")) == 1
        assert d.admin.get("/v1/status?model=again").json()["queue"]["capacity"] == 7
        reload(path.read_text().replace("context_length: 2048", "context_length: 1024"))
        assert text_of(ask(d, "again")) == truth["smol"] and len(d.logged("the model again is awake", 2)) == 2
        assert next(m for m in httpx.get(d.url + "/v1/models").json()["data"] if m["id"] == "again")["context_length"] == 1024
        # A wrong list changes nothing, and the first model stays.
        path.write_text(first.replace("name: smol", "name: tide"))
        d.process.send_signal(signal.SIGHUP)
        d.logged("two have the name or alias 'tide'")
        reload("models:\n  - path: tidepool-experts\n    name: other\n")
        assert ids() == ["tide", "gpt-4o", "other"] and d.logged("stays until a restart")
        assert text_of(ask(d, "")) == truth["tide"] and text_of(ask(d, "other")) == truth["experts"]


def test_models_that_sleep_are_described(tmp_path, smollm):
    with Daemon(config=configuration(tmp_path, smollm)) as d:
        listed = lambda: {m["id"]: m for m in httpx.get(d.url + "/v1/models").json()["data"]}  # noqa: E731
        wait_until(lambda: all("meta" in m for m in listed().values()), 30)
        assert states(d)["smol"] == "sleeping"
        meta = listed()["smol"]["meta"]
        assert meta["n_params"] > 100e6 and meta["size"] == os.path.getsize(smollm) and meta["n_ctx_train"] == 8192
        tags = {m["name"]: m for m in httpx.get(d.url + "/api/tags").json()["models"]}
        smol = tags["smol:latest"]
        assert smol["size"] == os.path.getsize(smollm) and smol["details"]["family"] == "llama" and smol["details"]["parameter_size"] == "135M"
        assert abs(datetime.datetime.fromisoformat(smol["modified_at"].replace("Z", "+00:00")).timestamp() - os.path.getmtime(smollm)) < 1.5
        assert len({m["digest"] for m in tags.values()}) == 3 and len(smol["digest"]) == 64  # tide has an alias
        shown = run_json("ps", "--url", d.url)["models"]
        assert {m["name"]: m["status"] for m in shown} == {"tide": "loaded", "gpt-4o": "loaded", "smol": "sleeping", "experts": "sleeping"}
        assert shown[0]["until"] == "memory is wanted" and shown[0]["context_length"] > 0
        lines = run("ps", "--url", d.url).stdout.decode().splitlines()
        assert lines[0].startswith("NAME") and any(line.startswith("smol ") and "sleeping" in line for line in lines)
    assert "thermocline ps" in refusal("ps", "--url", d.url) and "--url" in refusal("ps", "--url", d.url.replace("http", "gopher"))


def test_a_folder_of_models_is_served(tmp_path, smollm, truth):
    folder = tmp_path / "models"
    (folder / "deep").mkdir(parents=True)
    (folder / "small.gguf").symlink_to(smollm)
    shutil.copytree(TIDEPOOL_FOLDER, folder / "deep/tide-1.5B")
    (folder / "mmproj-x.gguf").write_bytes(b"GGUF")
    (folder / "notes.txt").write_text("no model")
    ids = lambda: [m["id"] for m in httpx.get(d.url + "/v1/models").json()["data"]]  # noqa: E731
    with Daemon(f"server.models_dir={folder}", "engine.context_length=512") as d:
        assert ids() == ["small", "tide-1.5B"]
        assert text_of(ask(d, "small")) == truth["smol"] and text_of(ask(d, "tide-1.5B"))
        (folder / "another.gguf").symlink_to(smollm)
        (folder / "small.gguf").unlink()
        d.process.send_signal(signal.SIGHUP)
        wait_until(lambda: "another" in ids(), 30)
        assert text_of(ask(d, "another")) == truth["smol"]
        assert ids() == ["small", "another", "tide-1.5B"]  # the first one stays
    path = tmp_path / "named.yaml"
    path.write_text(f"models:\n  - path: {folder}/another.gguf\n    name: chat\nserver:\n  models_dir: {folder}\n")
    with Daemon(config=path) as d:
        assert ids() == ["chat", "tide-1.5B"]
    (tmp_path / "empty").mkdir()
    for wrong, said in ((tmp_path / "empty", "has no model"), (tmp_path / "none", "is not a folder")):
        d = Daemon(f"server.models_dir={wrong}", wait=False)
        assert d.process.wait(20) == 78 and d.ended.wait(20) and said in d.text()


@pytest.mark.parametrize("text, said", [
    ("models: {}", "expected a list"), ("models:\n  - name: x", "- path: FILE"), ("models:\n  - path: tidepool\n    server: {port: 1}", "for the whole daemon"),
    ("models:\n  - path: tidepool\n    colour: red", "colour"), ("models:\n  - path: tidepool\n    keep_alive: soon", "keep_alive"),
    ("models:\n  - path: tidepool\n    engine: {threads: x}", "engine.threads"), ("models:\n  - path: tidepool\n  - path: tidepool", "two have the name"),
    ("models:\n  - path: tidepool\nmodel:\n  path: other.gguf", "leave one out")])
def test_lists_that_are_wrong_are_refused_by_name(tmp_path, text, said):
    path = tmp_path / "wrong.yaml"
    path.write_text(text + "\n")
    d = Daemon(config=path, wait=False)
    assert d.process.wait(20) == 78
    assert d.ended.wait(20) and said in d.text(), d.text()
