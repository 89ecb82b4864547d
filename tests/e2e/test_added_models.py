"""Models that clients fetch, name and delete while the daemon serves: the real `ollama` client, and a server that answers as the hub does."""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import ollama
import pytest

from conftest import BIN, ROOT, TIDEPOOL_FOLDER, Daemon, wait_until
from hub_server import Hub, sha256

sys.path.insert(0, str(ROOT / "tests/faults"))
from faults import Faults  # noqa: E402

MODEL = (ROOT / "config/models/tidepool.gguf").read_bytes()
REPO, QUANT = "tide/pool-GGUF", "pool-Q4_K_M.gguf"
NAME = f"hf.co/{REPO}:Q4_K_M"


@pytest.fixture
def hub():
    server = Hub()
    server.repos[REPO] = {QUANT: MODEL, "README.md": b"hello"}
    digest = "sha256:" + sha256(MODEL)
    server.manifests["library/tide:1b"] = {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": digest, "size": len(MODEL)}]}
    server.blobs[digest] = MODEL
    yield server
    server.close()


@pytest.fixture
def env(tmp_path, hub):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE", "XDG_", "OLLAMA", "LLAMA"))}
    return kept | {"HOME": str(tmp_path), "HF_ENDPOINT": hub.endpoint, "THERMOCLINE_OLLAMA_REGISTRY": hub.endpoint, "no_proxy": "127.0.0.1,localhost"}


@pytest.fixture
def start(tmp_path, env):
    """Starts a daemon whose folder of models has tidepool-experts alone."""
    folder = tmp_path / "models"
    folder.mkdir()
    (folder / "experts.gguf").symlink_to(ROOT / "config/models/tidepool-experts.gguf")

    def begin(*settings, pull=True, config=None):
        return Daemon(f"server.models_dir={folder}", f"server.pull={str(pull).lower()}", *settings, env=env, config=config)

    begin.folder = folder
    return begin


def blobs(env):
    return sorted(p.name for p in Path(env["HOME"]).rglob("*") if p.is_file() and not p.is_symlink() and p.stat().st_size == len(MODEL) and "models--" in str(p))


def names(client):
    return sorted(m.model for m in client.list().models)


def refused(call, status):
    with pytest.raises(ollama.ResponseError) as caught:
        call()
    assert status is None or caught.value.status_code == status, caught.value
    return str(caught.value)


def chat(client, model):
    answer = client.chat(model=model, messages=[{"role": "user", "content": "Who lives in the sea?"}], options={"temperature": 0, "num_predict": 12})
    return answer.message.content


def test_ollamas_client_pulls_lists_shows_copies_chats_and_deletes(hub, env, start):
    with Daemon() as alone:
        want = chat(ollama.Client(alone.url), "tidepool")
    with start() as d:
        client = ollama.Client(d.url)
        assert names(client) == ["experts:latest"]
        steps = list(client.pull(NAME, stream=True))
        assert steps[0].status == "pulling manifest" and steps[-1].status == "success"
        parts = [s for s in steps if s.digest]
        assert parts[-1].digest == "sha256:" + sha256(MODEL) and parts[-1].completed == parts[-1].total >= len(MODEL)
        assert NAME in names(client)
        assert chat(client, NAME) == want
        assert client.show(NAME).details.family == "llama"
        assert [m.model for m in client.ps().models if "pool" in m.model] == [NAME]
        client.copy(NAME, "gpt-4o")
        assert "gpt-4o:latest" in names(client) and chat(client, "gpt-4o") == want
        assert sum("is awake" in line and NAME in line for line in d.log) == 1, "a new name loaded the model again"
        client.delete("gpt-4o")
        assert "gpt-4o:latest" not in names(client) and chat(client, NAME) == want
        client.copy(NAME, "mine")
        client.delete(NAME)
        assert names(client) == ["experts:latest"] and blobs(env) == []
        assert "does not exist" in refused(lambda: chat(client, NAME), 404)
        assert "does not exist" in refused(lambda: client.delete(NAME), 404)


def test_a_pulled_model_and_its_names_are_there_after_a_restart(hub, env, start):
    with start() as d:
        client = ollama.Client(d.url)
        assert client.pull("tide:1b").status == "success"
        client.copy("tide:1b", "sea")
        want = chat(client, "sea")
    with start() as d:
        client = ollama.Client(d.url)
        assert names(client) == ["experts:latest", "sea:latest", "tide:1b"]
        assert chat(client, "tide:1b") == want
        client.delete("tide:1b")
        assert names(client) == ["experts:latest"] and not list(Path(env["HOME"]).rglob("sha256-*"))
    (start.folder / "added-models.json").write_text(json.dumps({"models": [{"name": "gone", "path": "/nowhere.gguf"}], "aliases": [{"alias": "x", "model": "gone"}]}))
    with start() as d:
        assert names(ollama.Client(d.url)) == ["experts:latest"] and "/nowhere.gguf is gone" in d.text()


def test_what_another_program_fetched_is_served_and_not_deleted(hub, env, start):
    assert subprocess.run([BIN / "thermocline", "pull", f"hf:{REPO}"], env=env, capture_output=True).returncode == 0
    kept = blobs(env)
    with start() as d:
        client = ollama.Client(d.url)
        client.pull(NAME)
        client.delete(NAME)
        assert names(client) == ["experts:latest"] and blobs(env) == kept
    removed = subprocess.run([BIN / "thermocline", "rm", f"hf:{REPO}:Q4_K_M"], env=env, capture_output=True, text=True)
    assert removed.returncode == 0 and "are free" in removed.stdout and blobs(env) == []
    assert "not on this machine" in subprocess.run([BIN / "thermocline", "rm", f"hf:{REPO}"], env=env, capture_output=True, text=True).stderr


def test_rm_keeps_files_that_other_models_share(hub, env):
    other = MODEL[:-1] + b"x"
    hub.repos[REPO]["pool-Q8_0.gguf"] = other
    hub.repos["other/pool-GGUF"] = {QUANT: MODEL}
    for name in (f"hf:{REPO}:Q4_K_M", f"hf:{REPO}:Q8_0", "hf:other/pool-GGUF"):
        assert subprocess.run([BIN / "thermocline", "pull", name], env=env, capture_output=True).returncode == 0
    assert blobs(env) == sorted([sha256(MODEL), sha256(other), sha256(MODEL)] + [])
    assert subprocess.run([BIN / "thermocline", "rm", f"hf:{REPO}:Q4_K_M"], env=env, capture_output=True).returncode == 0
    assert blobs(env) == sorted([sha256(other), sha256(MODEL)])
    listed = json.loads(subprocess.run([BIN / "thermocline", "list", "--json"], env=env, capture_output=True).stdout)["models"]
    assert sorted(m["name"] for m in listed) == ["hf:other/pool-GGUF:Q4_K_M", f"hf:{REPO}:Q8_0"]


def test_a_pull_that_fails_says_why_and_leaves_no_model(hub, env, start):
    with start() as d:
        client = ollama.Client(d.url)
        assert "does not exist" in refused(lambda: list(client.pull("hf.co/no/one", stream=True)), None)
        assert "does not exist" in refused(lambda: client.pull("nothing:7b"), 404)
        hub.blobs[sha256(MODEL)] = MODEL[:-1] + b"!"
        hub.faults[f"/storage/{sha256(MODEL)}"] = ["whatever"]
        hub.repos[REPO][QUANT] = MODEL[:-1] + b"!"
        hub.tree_edits[QUANT] = {"lfs": {"oid": sha256(MODEL), "size": len(MODEL), "pointerSize": 135}}
        assert "SHA-256" in refused(lambda: list(client.pull(NAME, stream=True)), None)
        for name in ("http://127.0.0.1:1/m.gguf", "evil.example:80/a/b:c", "../../etc/passwd", "hf:a/b:..", "x" * 300, "hf:a/b:c,d"):
            assert refused(lambda: client.pull(name), 400)
        assert names(client) == ["experts:latest"] and blobs(env) == []
        assert chat(client, "experts")


def test_a_client_that_leaves_ends_its_pull_and_the_next_one_goes_on(hub, env, start):
    path = f"/storage/{sha256(MODEL)}"
    hub.faults[path] = ["slow", "slow", None]
    with start() as d:
        with httpx.stream("POST", d.url + "/api/pull", json={"model": NAME}, timeout=30) as answer:
            lines = answer.iter_lines()
            assert next(lines) == '{"status":"pulling manifest"}'
            wait_until(lambda: hub.seen("/storage/"))
            wait_until(lambda: any(p.suffix == ".part" and p.stat().st_size > 0 for p in Path(env["HOME"]).rglob("*.part")), 30)
        assert d.logged("it was cancelled")
        assert ollama.Client(d.url).pull(NAME).status == "success"
        assert hub.seen("/storage/")[-1]["range"], "the second pull began anew"
        assert chat(ollama.Client(d.url), NAME)


def test_sigterm_during_a_pull_ends_the_daemon(hub, env, start):
    hub.faults[f"/storage/{sha256(MODEL)}"] = ["slow"]
    with start() as d:
        lines = []

        def read():
            with httpx.stream("POST", d.url + "/api/pull", json={"model": NAME}, timeout=30) as answer:
                lines.extend(answer.iter_lines())

        thread = threading.Thread(target=read)
        thread.start()
        wait_until(lambda: hub.seen("/storage/"))
        d.process.send_signal(signal.SIGTERM)
        assert d.wait(20) == 0
        thread.join(30)
        assert "error" in json.loads(lines[-1]), lines


def test_clients_change_models_only_where_the_configuration_allows_it(hub, env, start, tmp_path):
    with start(pull=False) as d:
        client = ollama.Client(d.url)
        for call in (lambda: client.pull(NAME), lambda: client.copy("experts", "x"), lambda: client.delete("experts")):
            assert "server.pull" in refused(call, 403)
    with Daemon(env=env) as d:
        assert "server.models_dir" in refused(lambda: ollama.Client(d.url).pull(NAME), 400)
    keys = tmp_path / "keys"
    made = [subprocess.run([BIN / "thermoclined", "--hash-key", name], input=f"{name}-key-0123456789\n", capture_output=True, text=True, check=True).stdout
            for name in ("ada", "root")]
    keys.write_text(made[0] + made[1].rstrip() + ":admin\n")
    with start(f"server.api_keys_file={keys}") as d:
        ada, root = (ollama.Client(d.url, headers={"authorization": f"Bearer {name}-key-0123456789"}) for name in ("ada", "root"))
        for call in (lambda: ada.pull(NAME), lambda: ada.copy("experts", "x"), lambda: ada.delete("experts")):
            assert "operator" in refused(call, 403)
        assert root.pull(NAME).status == "success" and NAME in names(ada)


def test_names_that_cannot_be_given_or_taken_are_refused(start):
    with start() as d:
        client = ollama.Client(d.url)
        client.copy("experts", "second")
        client.copy("second", "third")
        assert names(client) == ["experts:latest", "second:latest", "third:latest"]
        assert "already" in refused(lambda: client.copy("second", "experts"), 400)
        for name in ("a,b", "*", "a b", 'a"b', "ä", "x" * 200):
            assert refused(lambda: client.copy("experts", name), 400)
        assert "does not exist" in refused(lambda: client.copy("nobody", "x"), 404)
        assert "was not pulled here" in refused(lambda: client.delete("experts"), 400)
        for path in ("../../etc/passwd", "/etc/passwd", "hf:../..", "models/experts.gguf", "added-models.json"):
            assert refused(lambda: client.delete(path), 404) and refused(lambda: client.copy(path, "x"), 404)
        client.delete("second")
        assert names(client) == ["experts:latest", "third:latest"]
        assert httpx.request("DELETE", d.url + "/api/delete", json={"name": "third"}).status_code == 200


def test_names_in_a_folder_of_safetensors(start):
    shutil.copytree(TIDEPOOL_FOLDER, start.folder / "tide")
    with start() as d:
        client = ollama.Client(d.url)
        client.copy("tide", "sea")
        assert chat(client, "sea") == chat(client, "tide")


def test_files_that_other_names_or_the_configuration_have_stay(hub, env, start):
    short = f"hf.co/{REPO}"
    with start() as d:
        client = ollama.Client(d.url)
        client.pull(NAME), client.pull(short)
        client.delete(NAME)
        assert blobs(env) and chat(client, short)
        client.delete(short)  # the duty is inherited
        assert blobs(env) == [] and names(client) == ["experts:latest"]
        client.pull(NAME)
    for listed in (f"hf:{REPO}:Q4_K_M", next(str(p) for p in Path(env["HOME"]).rglob(QUANT))):
        (start.folder.parent / "list.yaml").write_text(f"models:\n  - path: tidepool-experts\n    name: first\n  - path: {listed}\n    name: prod\n")
        with start(config=start.folder.parent / "list.yaml") as d:
            client = ollama.Client(d.url)
            added = json.loads((start.folder / "added-models.json").read_text())
            refused(lambda: client.delete("prod"), 400)
            client.delete(NAME)
            assert blobs(env) and chat(client, "prod")
        (start.folder / "added-models.json").write_text(json.dumps(added))


def test_the_files_that_were_fetched_are_deleted_and_no_others_of_that_name(hub, env, start):
    newer = MODEL[:-1] + b"y"
    with start() as d:
        client = ollama.Client(d.url)
        client.pull("tide:1b")
        hub.manifests["library/tide:1b"]["layers"][0] |= {"digest": "sha256:" + sha256(newer)}
        hub.blobs["sha256:" + sha256(newer)] = newer
        assert subprocess.run([BIN / "thermocline", "pull", "ollama:tide:1b"], env=env, capture_output=True).returncode == 0
        client.delete("tide:1b")
        assert [p.name for p in Path(env["HOME"]).rglob("sha256-*") if p.suffix != ".lock"] == ["sha256-" + sha256(newer)]


def test_a_pull_goes_on_while_another_quant_is_deleted(hub, env, start):
    other = MODEL[:-1] + b"x"
    hub.repos[REPO]["pool-Q8_0.gguf"] = other
    hub.faults[f"/storage/{sha256(other)}"] = ["slow"]
    with start() as d:
        client = ollama.Client(d.url)
        client.pull(NAME)
        pulled = []
        thread = threading.Thread(target=lambda: pulled.append(client.pull(f"hf.co/{REPO}:Q8_0").status))
        thread.start()
        wait_until(lambda: any(p.stat().st_size > 0 for p in Path(env["HOME"]).rglob("*.part")), 30)
        ollama.Client(d.url).delete(NAME)
        thread.join(30)
        assert pulled == ["success"] and blobs(env) == [sha256(other)]


def test_an_operators_key_that_is_limited_changes_its_models_alone(start, tmp_path):
    made = subprocess.run([BIN / "thermoclined", "--hash-key", "root"], input="root-key-0123456789\n", capture_output=True, text=True, check=True).stdout
    (tmp_path / "keys").write_text(made.rstrip() + ":admin:models=elsewhere\n")
    (start.folder / "tide.gguf").symlink_to(ROOT / "config/models/tidepool.gguf")
    with start(f"server.api_keys_file={tmp_path}/keys") as d:
        client = ollama.Client(d.url, headers={"authorization": "Bearer root-key-0123456789"})
        assert "does not exist" in refused(lambda: client.copy("tide", "x"), 404) and "does not exist" in refused(lambda: client.delete("tide"), 404)


def test_an_operators_key_that_is_limited_takes_no_name_away(start, tmp_path):
    """It could point the name of a model that it does not see to one of its own."""
    lines = ""
    for key, rights in (("root-key-0123456789", "admin"), ("part-key-0123456789", "admin:models=experts")):
        made = subprocess.run([BIN / "thermoclined", "--hash-key", key[:4]], input=key + "\n", capture_output=True, text=True, check=True).stdout
        lines += f"{made.rstrip()}:{rights}\n"
    (tmp_path / "keys").write_text(lines)
    (start.folder / "tide.gguf").symlink_to(ROOT / "config/models/tidepool.gguf")
    with start(f"server.api_keys_file={tmp_path}/keys") as d:
        root, part = (ollama.Client(d.url, headers={"authorization": f"Bearer {key}-key-0123456789"}) for key in ("root", "part"))
        root.copy("tide", "mine")
        part.copy("experts", "own")
        part.copy("experts", "own")
        assert "another model has the name" in refused(lambda: part.copy("experts", "mine"), 400)
        assert chat(root, "mine") == chat(root, "tide")


def test_a_listed_model_costs_no_threads_until_it_is_loaded(start):
    """Each had 22 of its own: with as many as systemd allows, a pull ended the daemon."""
    threads = lambda d: len(os.listdir(f"/proc/{d.process.pid}/task"))  # noqa: E731
    with start() as d:
        before = threads(d)
    for i in range(40):
        (start.folder / f"m{i}.gguf").symlink_to(ROOT / "config/models/tidepool.gguf")
    with start() as d:
        assert len(names(ollama.Client(d.url))) == 41 and threads(d) <= before + 2


def test_a_pull_that_meets_the_limit_of_threads_ends_alone(hub, env, start):
    """An exception on its thread ended the daemon, and the name that was kept let no other start."""
    faults = Faults(BIN.parent / "tests/libfaults.so")
    env.update({key: faults.env[key] for key in ("LD_PRELOAD", "FAULTS_FILE")})
    with start() as d:
        client = ollama.Client(d.url)
        for left in (0, 1, 2):
            faults.threads_left = left
            answers = [httpx.post(d.url + "/api/pull", json={"model": NAME, "stream": False}, timeout=30).status_code for _ in range(2)]
            assert d.process.poll() is None and set(answers) <= {200, 500, 503}, answers
        faults.threads_left = -1
        assert chat(client, "experts") and client.pull(NAME).status == "success"
    with start() as d:
        assert chat(ollama.Client(d.url), "experts")
