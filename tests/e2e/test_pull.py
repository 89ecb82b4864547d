"""`thermocline pull` and `list` against a server that answers as the hub and the registry do, and what comes after: the real
huggingface_hub finds what was fetched, and the daemon serves it."""
import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest

from conftest import BIN, ROOT, THERMOCLINE, TIDEPOOL_FOLDER, Daemon
from hub_server import COMMIT, Hub, sha256

MODEL = (ROOT / "config/models/tidepool.gguf").read_bytes()
REPO = "tide/pool-GGUF"
QUANT = "pool-Q4_K_M.gguf"


@pytest.fixture
def hub():
    server = Hub()
    server.repos[REPO] = {QUANT: MODEL, "pool-Q8_0.gguf": MODEL[:1000], "README.md": b"hello"}
    yield server
    server.close()


@pytest.fixture
def home(tmp_path, hub):
    """The environment of a machine without models, whose hub is `hub`."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGINGFACE", "XDG_", "OLLAMA", "LLAMA"))}
    return env | {"HOME": str(tmp_path), "HF_ENDPOINT": hub.endpoint, "THERMOCLINE_OLLAMA_REGISTRY": hub.endpoint, "no_proxy": "127.0.0.1,localhost"}


def command(env, *args):
    return subprocess.run([THERMOCLINE, *args], env=env, capture_output=True, text=True, timeout=60)


def pull(env, name):
    result = command(env, "pull", name, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout) | {"stderr": result.stderr}


def refused(env, name):
    result = command(env, "pull", name)
    assert result.returncode == 1, (result.stdout, result.stderr)
    assert not list_names(env), "a half was found as a model"
    return result.stderr


def list_names(env):
    return [m["name"] for m in json.loads(command(env, "list", "--json").stdout)["models"]]


def cache(env):
    return Path(env["HOME"]) / ".cache/huggingface/hub"


def folder(env):
    return cache(env) / "models--tide--pool-GGUF"


def part(env, data=MODEL):
    path = folder(env) / "blobs" / (sha256(data) + ".part")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def test_a_quant_lands_in_the_hubs_cache_and_python_finds_it(hub, home):
    got = pull(home | {"HF_TOKEN": "hf_secret"}, f"hf:{REPO}")
    assert Path(got["path"]).read_bytes() == MODEL and got["fetched_bytes"] == len(MODEL)
    link = folder(home) / "snapshots" / COMMIT / QUANT
    assert str(link) == got["path"] and os.readlink(link) == f"../../blobs/{sha256(MODEL)}"
    assert (folder(home) / "refs/main").read_text() == COMMIT
    code = f"import huggingface_hub as h; print(h.hf_hub_download({REPO!r}, {QUANT!r})); print(len(h.scan_cache_dir().repos), h.scan_cache_dir().warnings)"
    python = subprocess.run([sys.executable, "-c", code], env=home | {"HF_HUB_OFFLINE": "1"}, capture_output=True, text=True)
    assert python.stdout.split("\n")[:2] == [got["path"], "1 []"], python.stderr
    assert pull(home, REPO)["fetched_bytes"] == 0
    # The token went to the hub alone.
    assert {r["token"] for r in hub.requests if r["host"].startswith("127.0.0.1") and "/pool" in r["path"]} >= {"Bearer hf_secret"}
    assert {r["token"] for r in hub.requests if r["host"].startswith("localhost")} == {None}


def test_what_python_fetched_is_found(hub, home):
    snapshot = folder(home) / "snapshots" / COMMIT
    snapshot.mkdir(parents=True)
    (snapshot / QUANT).write_bytes(MODEL)
    (folder(home) / "refs").mkdir()
    (folder(home) / "refs/main").write_text(COMMIT)
    assert list_names(home) == [f"hf:{REPO}:Q4_K_M"]
    described = json.loads(command(home, "inspect", f"{REPO}:q4_k_m", "--json").stdout)
    assert described["path"] == str(snapshot / QUANT) and not hub.requests


def test_the_daemon_serves_a_name(hub, home):
    pull(home, REPO)
    with Daemon(f"model.path=hf:{REPO}", env=home) as daemon:
        assert [m["id"] for m in httpx.get(daemon.url + "/v1/models").json()["data"]] == [REPO]
    run = command(home, "run", f"{REPO}:Q4_K_M", "-p", "Once", "-n", "3", "--json")
    assert json.loads(run.stdout)["completion_tokens"] == 3, run.stderr


def test_a_name_that_is_not_here_says_how_to_fetch_it(home):
    result = command(home, "run", "hf:no/where:Q8_0", "-p", "x")
    assert result.returncode == 1 and "`thermocline pull hf:no/where:Q8_0`" in result.stderr
    daemon = subprocess.run([BIN / "thermoclined", "qwen3:4b", "--port", "0"], env=home, capture_output=True, text=True, timeout=30)
    assert daemon.returncode == 78 and "`thermocline pull qwen3:4b`" in daemon.stderr


def test_all_parts_are_fetched_and_a_missing_one_is_an_error(hub, home):
    names = [f"q/pool-Q4_K_M-0000{i}-of-00002.gguf" for i in (1, 2)]
    hub.repos["tide/parts"] = {names[0]: MODEL, names[1]: b"second" * 9}
    got = pull(home, "tide/parts")
    assert got["path"].endswith(names[0]) and (Path(got["path"]).parent / names[1].split("/")[1]).read_bytes() == b"second" * 9
    assert os.readlink(got["path"]).startswith("../../../blobs/")
    hub.repos["tide/half"] = {names[0]: MODEL}
    result = command(home, "pull", "tide/half")
    assert result.returncode == 1 and f"part {names[1]} is missing" in result.stderr


def test_a_folder_of_safetensors(hub, home):
    files = {p.name: p.read_bytes() for p in Path(TIDEPOOL_FOLDER).iterdir() if p.is_file()}
    hub.repos["tide/folder"] = files | {"extra/other.bin": b"no", "pytorch_model.bin": b"no"}
    got = pull(home, "https://huggingface.co/tide/folder")
    assert {p.name for p in Path(got["path"]).iterdir()} == {n for n in files if n.endswith((".json", ".safetensors", ".model", ".jinja", "merges.txt"))}
    assert command(home, "inspect", "hf:tide/folder").returncode == 0
    assert list_names(home) == ["hf:tide/folder"]


def test_a_break_in_the_middle_is_resumed(hub, home):
    hub.faults[f"/storage/{sha256(MODEL)}"] = ["break", None]
    got = pull(home, REPO)
    assert Path(got["path"]).read_bytes() == MODEL and "next try in 2 s" in got["stderr"]
    assert [r["range"] for r in hub.seen("/storage/")] == [None, f"bytes={len(MODEL) // 2}-"]


@pytest.mark.parametrize("begin, fault", [(MODEL[:5000], None), (b"other" * 1000, None), (MODEL[:5000], "no range"), (MODEL + b"more", None)],
                         ids=["same", "other bytes", "200 instead of 206", "longer than the file"])
def test_an_earlier_part_is_checked(hub, home, begin, fault):
    part(home).write_bytes(begin)
    hub.faults[f"/storage/{sha256(MODEL)}"] = [fault]
    assert Path(pull(home, REPO)["path"]).read_bytes() == MODEL
    assert not list(folder(home).rglob("*.part*"))


def test_an_address_is_resumed_by_its_etag(hub, home):
    """Without a digest the ETag says whether the rest belongs to the same file."""
    hub.blobs["x/pool.gguf"] = MODEL[:5000] + b"old" * 10000
    address = hub.storage + "/storage/x/pool.gguf"
    hub.faults["/storage/x/pool.gguf"] = ["break", 403]
    assert "403" in refused(home, address)
    hub.blobs["x/pool.gguf"] = MODEL
    hub.faults["/storage/x/pool.gguf"] = [None]
    got = pull(home, address)
    assert Path(got["path"]).read_bytes() == MODEL and hub.requests[-1]["range"] is not None
    assert got["path"].startswith(home["HOME"] + "/.local/share/thermocline/files/")
    assert json.loads(command(home, "inspect", address, "--json").stdout)["path"] == got["path"]


@pytest.mark.parametrize("edit, message", [
    ({"path": "../../evil.gguf"}, "leads out of the folder"), ({"path": "/etc/evil.gguf"}, "leads out of the folder"),
    ({"path": "a\r\nb.gguf"}, "leads out of the folder"), ({"lfs": {"oid": "../../x", "size": 5}}, "hexadecimal digits"),
    ({"lfs": {"oid": "0" * 64, "size": len(MODEL)}}, "have the SHA-256"), ({"lfs": {"oid": sha256(MODEL), "size": -1}}, "no hash and size"),
    ({"lfs": {"oid": sha256(MODEL), "size": 10}}, "and not 10"), ({"lfs": {"oid": sha256(MODEL), "size": 1 << 49}}, "are free"),
    ({"lfs": {"oid": sha256(MODEL), "size": (1 << 63) - 1}}, "states a size"),
], ids=["dots", "absolute", "line break", "blob's name", "digest", "negative size", "small size", "no space", "huge size"])
def test_a_tree_that_lies(hub, home, edit, message):
    hub.tree_edits[QUANT] = edit
    assert message in refused(home, REPO)
    assert not Path(home["HOME"], "evil.gguf").exists() and not list(Path(home["HOME"]).rglob("*.part"))


@pytest.mark.parametrize("status, message", [
    (401, "accept its terms at {page} and set HF_TOKEN"), (403, "accept its terms at {page} with the account of HF_TOKEN"), (404, "does not exist (404)")])
def test_a_refusal_says_what_to_do(hub, home, status, message):
    hub.faults[f"/api/models/{REPO}/refs"] = [status]
    assert message.format(page=f"{hub.endpoint}/{REPO}") in refused(home, REPO)


def test_too_many_requests_waits_as_long_as_the_server_says(hub, home):
    hub.faults[f"/api/models/{REPO}/refs"] = [429, None]
    assert "next try in 1 s" in pull(home, REPO)["stderr"]


def test_a_quant_that_is_not_there(hub, home):
    assert "has no file of Q5_K_M; there are Q4_K_M, Q8_0" in refused(home, f"{REPO}:Q5_K_M")


def test_an_endless_body_a_huge_list_and_a_loop_end(hub, home):
    hub.faults[f"/storage/{sha256(MODEL)}"] = ["endless"]
    assert "more than the" in refused(home, REPO)
    hub.faults[f"/{REPO}/resolve/{COMMIT}/{QUANT}"] = ["loop"]
    assert "more than 10 redirects" in refused(home, REPO)
    hub.faults[f"/api/models/{REPO}/tree/{COMMIT}"] = ["huge"]
    assert "16.00 MiB" in refused(home, REPO)
    hub.blobs["x/pool.gguf"] = MODEL
    hub.faults["/storage/x/pool.gguf"] = ["no length"]
    assert "does not say the file's size" in refused(home, hub.storage + "/storage/x/pool.gguf")


@pytest.mark.parametrize("name", ["../../etc/passwd", "hf:../x", "hf:a/b;rm -rf", "hf:a/..", "hf:a/b:../../x", "ollama:../x", "ollama:x:../y", "$(id)/x",
                                  "http://127.0.0.1/..gguf/x", "file:///etc/x.gguf", "a/b\r\nX: y"])
def test_a_name_with_path_or_shell_characters_is_refused(hub, home, name):
    assert "no name of a model to fetch" in refused(home, name) and not hub.requests


def test_links_in_the_cache_are_not_followed(hub, home, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    part(home).symlink_to(victim)
    refused(home, REPO)
    part(home).unlink()
    (folder(home) / "snapshots").symlink_to(tmp_path)
    assert "is a link where a folder is expected" in refused(home, REPO)
    assert victim.read_text() == "precious"


def test_a_token_with_a_line_break_is_refused(hub, home):
    assert "line break" in refused(home | {"HF_TOKEN": "a\r\nX-Evil: 1"}, REPO) and not hub.requests


def test_two_pulls_of_one_file_fetch_it_once(hub, home):
    hub.faults[f"/storage/{sha256(MODEL)}"] = ["slow"]
    results = []
    threads = [threading.Thread(target=lambda: results.append(pull(home, REPO))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r["fetched_bytes"] for r in results) == [0, len(MODEL)] and len(hub.seen("/storage/")) == 1
    assert any("waiting" in r["stderr"] for r in results)


def test_a_full_disk(hub, home, tmp_path):
    """A file system of 1 MiB: the check before, then a disk that fills while the file arrives."""
    disk = tmp_path / "disk"
    disk.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1M", "tmpfs", disk], capture_output=True).returncode != 0:
        pytest.skip("a small file system needs root and mount")
    try:
        hub.repos[REPO] = {QUANT: MODEL * (1 + (2 << 20) // len(MODEL))}
        env = home | {"HF_HUB_CACHE": str(disk)}
        assert "are to be fetched and 1.00 MiB are free" in refused(env, REPO)
        hub.repos[REPO] = {QUANT: os.urandom(900 << 10)}
        data = hub.repos[REPO][QUANT]
        hub.faults[f"/storage/{sha256(data)}"] = ["slow"]
        filler = threading.Timer(0.7, lambda: (disk / "filler").write_bytes(b"x" * (400 << 10)))
        filler.start()
        message = refused(env, REPO)
        filler.join()
        assert "the disk is full after" in message
        (disk / "filler").unlink()
        assert Path(pull(env, REPO)["path"]).read_bytes() == data and hub.requests[-1]["range"] is not None
    finally:
        subprocess.run(["umount", disk], check=True)


def manifest_of(hub, name, data):
    template = b"{{ .Prompt }}"
    layers = [{"mediaType": f"application/vnd.ollama.image.{kind}", "digest": "sha256:" + sha256(body), "size": len(body)} for kind, body in (("model", data), ("template", template))]
    for body in (data, template, b"{}"):
        hub.blobs["sha256:" + sha256(body)] = body
    hub.manifests[name] = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json",
                           "config": {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:" + sha256(b"{}"), "size": 2}, "layers": layers}
    return hub.manifests[name]


def test_a_name_of_ollama_is_fetched_and_served_under_it(hub, home):
    manifest_of(hub, "library/tide:4b", MODEL)
    store = Path(home["HOME"]) / ".local/share/thermocline/ollama"
    got = pull(home, "tide:4b")
    assert got["path"] == str(store / f"blobs/sha256-{sha256(MODEL)}") and Path(got["path"]).read_bytes() == MODEL
    assert json.loads((store / "manifests/registry.ollama.ai/library/tide/4b").read_text()) == hub.manifests["library/tide:4b"]
    assert list_names(home) == ["ollama:tide:4b"]
    for path in ("ollama:tide:4b", got["path"]):
        with Daemon(f"model.path={path}", env=home) as daemon:
            assert httpx.get(daemon.url + "/v1/models").json()["data"][0]["id"] == "tide:4b"
    assert "404" in command(home, "pull", "nothing").stderr


def test_a_manifest_that_lies(hub, home):
    layer = manifest_of(hub, "library/tide:latest", MODEL)["layers"][0]
    for edit, message in (({"digest": "sha256:../../x"}, "no sha256 digest"), ({"mediaType": "application/vnd.ollama.image.tensor"}, "no GGUF layer"),
                          ({"digest": "sha256:" + "0" * 64, "size": len(MODEL)}, "have the SHA-256")):
        before = dict(layer)
        layer.update(edit)
        hub.blobs["sha256:" + "0" * 64] = MODEL
        assert message in refused(home, "tide")
        layer.update(before)


def test_list_finds_the_models_of_other_programs(home):
    base = Path(home["HOME"])
    for path in (".lmstudio/models/a/b/x-Q8_0.gguf", ".cache/lm-studio/models/a/b/y.gguf", ".cache/llama.cpp/z.gguf"):
        (base / path).parent.mkdir(parents=True)
        (base / path).write_bytes(MODEL if path != ".cache/llama.cpp/z.gguf" else MODEL[:500])
    blob = base / f".ollama/models/blobs/sha256-{sha256(MODEL)}"
    manifest = base / ".ollama/models/manifests/registry.ollama.ai/library/tide/1b"
    for path in (blob, manifest):
        path.parent.mkdir(parents=True)
    blob.write_bytes(MODEL)
    manifest.write_text(json.dumps({"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + sha256(MODEL), "size": len(MODEL)}]}))
    before = sorted((str(p), p.stat().st_mtime_ns) for p in base.rglob("*"))
    models = {m["path"].removeprefix(str(base) + "/"): m for m in json.loads(command(home, "list", "--json").stdout)["models"]}
    assert {p: m["readable"] for p, m in models.items()} == {
        ".lmstudio/models/a/b/x-Q8_0.gguf": True, ".cache/lm-studio/models/a/b/y.gguf": True, ".cache/llama.cpp/z.gguf": False,
        f".ollama/models/blobs/sha256-{sha256(MODEL)}": True}
    assert models[".lmstudio/models/a/b/x-Q8_0.gguf"]["quant"] == "Q8_0" and models[".cache/llama.cpp/z.gguf"]["why"]
    assert all(m["family"] and m["bytes"] == len(MODEL) for m in models.values() if m["readable"])
    text = command(home, "import").stdout
    assert "serve it: thermoclined 'ollama:tide:1b'" in text and "cannot be served" in text
    assert sorted((str(p), p.stat().st_mtime_ns) for p in base.rglob("*")) == before


def test_nothing_is_asked_where_the_hub_is_offline(hub, home):
    offline = home | {"HF_HUB_OFFLINE": "1"}
    assert "HF_HUB_OFFLINE is set" in refused(offline, REPO) and not hub.requests
    pull(home, REPO)
    asked = len(hub.requests)
    assert pull(offline, REPO)["fetched_bytes"] == 0 and len(hub.requests) == asked
