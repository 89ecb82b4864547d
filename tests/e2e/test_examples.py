"""The programs of examples/ as a user runs them, the compose file's parts, and the page for users of other servers.

The daemon takes the most probable token where a request says nothing, so that the text of each program is known.
"""
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import numpy as np
import pytest
import yaml
from conftest import BIN, ROOT, THERMOCLINE, Daemon
from test_docs import options_of

FOLDER = ROOT / "examples"
README = (FOLDER / "README.md").read_text()
PAGE = (ROOT / "docs/coming-from.md").read_text()
COMPOSE = yaml.safe_load((FOLDER / "compose.yaml").read_text())
# (file, how to run it): the rows of the README's table.
ROWS = re.findall(r"^\| \[(\S+)\]\(\1\) \| .* \| `(.*)` \|$", README, re.M)
COMMANDS = dict(ROWS)
OWL = [{"role": "user", "content": "Tell me a story about an owl."}]
BOAT = [{"role": "user", "content": "Tell me a story about a boat."}]
KEY = "a-key-that-is-long-enough"


@pytest.fixture(scope="module")
def server():
    with Daemon("grpc.address=127.0.0.1:0", "sampling.temperature=0") as d:
        yield d


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A user's copy of the examples, with proto/ beside it."""
    home = tmp_path_factory.mktemp("user")
    shutil.copytree(FOLDER, home / "examples", ignore=shutil.ignore_patterns("__pycache__", "thermocline", "*.answers.jsonl"))
    (home / "proto").symlink_to(ROOT / "proto")
    return home / "examples"


def shell(line, folder, server=None, **environment):
    """A line of the README in the user's copy; the finished process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("THERMOCLINE_", "OPENAI_"))}
    env |= {"PATH": f"{Path(sys.executable).parent}:{BIN}:{env['PATH']}", "THERMOCLINE_MODELS": str(ROOT / "config/models")} | environment
    if server:
        env |= {"THERMOCLINE_URL": server.url, "THERMOCLINE_GRPC": f"127.0.0.1:{server.grpc_port}"}
    command = ["bash", "-c", f"set -o pipefail; {line}"]
    return subprocess.run(command, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)


def output(file, folder, server, **environment):
    result = shell(COMMANDS[file], folder, server, **environment)
    assert result.returncode == 0, result.stderr
    return result.stdout


def post(server, path, **body):
    response = httpx.post(server.url + path, json=body, timeout=60)
    assert response.status_code == 200, response.text
    return response.json()


def story(server, messages, max_tokens=300):
    """The text of an answer and its numbers of tokens."""
    answer = post(server, "/v1/chat/completions", messages=messages, max_tokens=max_tokens)
    return answer["choices"][0]["message"]["content"], answer["usage"]["prompt_tokens"], answer["usage"]["completion_tokens"]


def test_every_file_has_a_row():
    assert len(ROWS) == len(COMMANDS) == 8
    beside_compose = {"prometheus.yml", "grafana-datasource.yaml"}
    files = {path.name for path in FOLDER.iterdir() if path.is_file() and not path.name.endswith(".answers.jsonl")}
    assert files == {"README.md", *COMMANDS, *beside_compose} and all(f"`{name}`" in README for name in beside_compose)


def test_chat(server, folder):
    text, prompt, completion = story(server, BOAT)
    assert output("chat.py", folder, server) == f"{text}\n\ntidepool: {prompt} tokens in the prompt, {completion} in the answer\n" and completion > 50
    assert shell("python chat.py", folder, server).stdout.startswith(story(server, OWL)[0] + "\n") and story(server, OWL)[0] != text


def test_chat_with_curl(server, folder):
    printed = output("chat.sh", folder, server)
    events = [line.removeprefix("data: ") for line in printed.splitlines() if line]
    assert events[-1] == "[DONE]" and len(events) > 20
    text = story(server, OWL)[0]
    assert "".join(json.loads(e)["choices"][0]["delta"].get("content", "") for e in events[:-1]) == text
    [with_jq] = re.findall(r"^#   (\./chat\.sh \|.*)$", (folder / "chat.sh").read_text(), re.M)
    if shutil.which("jq"):
        assert shell(with_jq, folder, server).stdout == text


def test_structured_output(server, folder):
    name, kind, age = re.fullmatch(r"name: ([A-Z][a-z]{2,9}), kind: (\w+), age: (\d+)\n", output("structured_output.py", folder, server)).groups()
    assert kind in ("owl", "fox", "frog", "whale") and 1 <= int(age) <= 30


def test_tools(server, folder):
    printed = re.fullmatch(r"call: get_weather\(\{'city': '(\w+)'\}\) -> (\{.*\})\nanswer: (.+)\n", output("tools.py", folder, server), re.S)
    city, result, answer = printed.groups()
    assert city in ("Rome", "Oslo", "Lima") and result == str({"city": city, "celsius": 21, "sky": "clear"})
    # The answer is the one to the conversation with the call and its result.
    tools = [{"type": "function", "function": {"name": "get_weather", "description": "The weather in a city", "parameters": {
        "type": "object", "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo", "Lima"]}}, "required": ["city"]}}}]
    asked = {"role": "user", "content": "What is the weather in Rome?"}

    def message(*messages, **fields):
        body = {"messages": messages, "tools": tools, "parallel_tool_calls": False, "max_tokens": 100, **fields}
        return post(server, "/v1/chat/completions", **body)["choices"][0]["message"]

    called = message(asked, tool_choice="required")
    told = {"role": "tool", "tool_call_id": called["tool_calls"][0]["id"], "content": json.dumps({"city": city, "celsius": 21, "sky": "clear"})}
    assert answer == message(asked, called, told)["content"] != message(asked)["content"]


def test_embeddings(server, folder):
    lines = output("embeddings.py", folder, server).splitlines()
    sentences = ["The owl sat in a tall tree.", "A bird was sitting on a branch.", "The boat sailed across the sea."]
    vectors = [np.array(v["embedding"]) for v in post(server, "/v1/embeddings", input=sentences)["data"]]
    pairs = [(0, 1), (0, 2), (1, 2)]
    assert [line.split("  ") for line in lines] == [[f"{vectors[i] @ vectors[j]:.3f}", sentences[i], sentences[j]] for i, j in pairs]
    assert len({line[:5] for line in lines}) == 3 and all(-1 < float(line[:5]) < 1 for line in lines)


def test_chat_over_grpc(server, folder):
    """The stubs are made as the file says."""
    docstring = re.search(r'"""(.*?)"""', (FOLDER / "grpc_chat.py").read_text(), re.S)[1]
    install, make, chat = [line.strip() for line in docstring.splitlines() if line.startswith("    ")]
    assert install == "pip install grpcio grpcio-tools" and "grpc_tools.protoc" in make
    made = shell(make, folder)
    assert made.returncode == 0, made.stderr
    for line, messages in ((COMMANDS["grpc_chat.py"], OWL), (chat, BOAT)):
        text, prompt, completion = story(server, messages)
        assert shell(line, folder, server).stdout == f"{text}\n\n{prompt} tokens in the prompt, {completion} in the answer\n"


def test_a_file_of_requests(server, folder):
    printed = shell(COMMANDS["batch.jsonl"], folder)
    assert printed.returncode == 0 and "4 answers in batch.answers.jsonl" in printed.stderr, printed.stderr
    answers = {a["custom_id"]: a["response"] for a in map(json.loads, (folder / "batch.answers.jsonl").read_text().splitlines())}
    assert set(answers) == {"owl", "boat", "animal", "beginning"} and all(a["status_code"] == 200 for a in answers.values())
    content = {name: answers[name]["body"]["choices"][0]["message"]["content"] for name in ("owl", "boat", "animal")}
    assert content["owl"] == story(server, OWL, 100)[0] and content["boat"] == story(server, BOAT, 100)[0]
    animal = json.loads(content["animal"])
    assert animal["kind"] in ("owl", "fox", "frog") and 1 <= animal["age"] <= 30 and len(animal) == 2
    assert answers["beginning"]["body"]["usage"]["completion_tokens"] == 40


def test_the_key_is_sent(folder, tmp_path):
    hashed = subprocess.run([BIN / "thermoclined", "--hash-key", "user"], input=KEY + "\n", capture_output=True, text=True, check=True, timeout=60)
    (tmp_path / "keys").write_text(hashed.stdout)
    with Daemon("grpc.address=127.0.0.1:0", f"server.api_keys_file={tmp_path}/keys") as d:
        shell("python -m grpc_tools.protoc -I../proto --python_out=. --grpc_python_out=. thermocline/v1/inference.proto", folder)
        for file in ("chat.py", "chat.sh", "structured_output.py", "tools.py", "embeddings.py", "grpc_chat.py"):
            assert output(file, folder, d, THERMOCLINE_KEY=KEY)
            refused = shell(COMMANDS[file], folder, d)
            assert refused.returncode != 0 and re.search("401|UNAUTHENTICATED", refused.stdout + refused.stderr), file


def test_addresses_of_the_readme_are_those_of_the_programs():
    defaults = dict(re.findall(r"^\| `(THERMOCLINE_\w+)` \| `(.*?)` \|", README, re.M))
    assert set(defaults) == {"THERMOCLINE_URL", "THERMOCLINE_GRPC", "THERMOCLINE_KEY"}
    for path in [*FOLDER.glob("*.py"), *FOLDER.glob("*.sh")]:
        text = path.read_text()
        used = dict(re.findall(r"""environ\.get\(["'](\w+)["'], ["'](.*?)["']\)""", text) + re.findall(r"\$\{(\w+):-(.*?)\}", text))
        assert used and used.items() <= defaults.items(), path.name
    settings = yaml.safe_load((ROOT / "config/thermocline.yaml").read_text())["server"]
    assert defaults["THERMOCLINE_URL"] == f"http://{settings['host']}:{settings['port']}"
    assert f"grpc.address={defaults['THERMOCLINE_GRPC']}\n" in README


# The compose file.

def volumes(service):
    """(source, target) of what a service mounts, with the defaults of variables."""
    for volume in COMPOSE["services"][service].get("volumes", ()):
        source, target, *mode = re.sub(r"\$\{\w+:-(.*?)\}", r"\1", volume).split(":")
        assert mode in ([], ["ro"])
        yield source, target


def mounted(service, path):
    """The file or folder of the repository that a container sees as `path`; None in the image."""
    for source, target in volumes(service):
        if source.startswith(".") and (path == target or path.startswith(target + "/")):
            return (FOLDER / source).resolve() / path[len(target):].lstrip("/")
    return None


def daemon_arguments():
    """The image's entry point and the compose file's command, with the defaults of variables."""
    final = (FOLDER / COMPOSE["services"]["thermocline"]["build"]["context"] / COMPOSE["services"]["thermocline"]["build"]["dockerfile"]).read_text()
    words = json.loads(re.findall(r"^ENTRYPOINT (.*)$", final, re.M)[-1])
    return words + [re.sub(r"\$\{\w+:-(.*?)\}", r"\1", word) for word in COMPOSE["services"]["thermocline"]["command"]]


def test_the_compose_file_is_sane():
    assert set(COMPOSE) == {"name", "services", "volumes"} and set(COMPOSE["services"]) == {"thermocline", "prometheus", "grafana"}
    ports = []
    for name, service in COMPOSE["services"].items():
        assert set(service) <= {"build", "image", "command", "environment", "ports", "volumes", "stop_grace_period", "restart"}, name
        assert re.fullmatch(r"thermocline|[\w/]+:v?\d+\.\d+\.\d+", service["image"]), name  # ours, or one version
        ports += [re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)[1] for port in service["ports"]]
        for source, _ in volumes(name):
            assert (FOLDER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"], source
    assert ports == ["8080", "9090", "3000"] and all(f"http://127.0.0.1:{port}/" in (FOLDER / "compose.yaml").read_text() for port in ports)
    assert {s for name in COMPOSE["services"] for s, _ in volumes(name) if not s.startswith(".")} == set(COMPOSE["volumes"])
    build = COMPOSE["services"]["thermocline"]["build"]
    assert (FOLDER / build["context"]).resolve() == ROOT and (ROOT / build["dockerfile"]).is_file()
    grace = int(COMPOSE["services"]["thermocline"]["stop_grace_period"].removesuffix("s"))
    assert grace > yaml.safe_load((ROOT / "config/thermocline.yaml").read_text())["server"]["drain_timeout_s"]


def test_prometheus_of_the_compose_file_reads_its_configuration(tmp_path):
    path = "/etc/prometheus/prometheus.yml"  # where the image looks
    config = yaml.safe_load(mounted("prometheus", path).read_text())
    shutil.copy(mounted("prometheus", path), tmp_path)
    for name in config["rule_files"]:
        shutil.copy(mounted("prometheus", f"/etc/prometheus/{name}"), tmp_path)
    checked = subprocess.run(["promtool", "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, timeout=60)
    assert checked.returncode == 0 and "1 rule files found" in checked.stdout, checked.stdout + checked.stderr
    [job] = config["scrape_configs"]
    assert job["job_name"] == "thermocline"  # alerts and dashboards name the job
    assert job["static_configs"] == [{"targets": ["thermocline:8080"]}]  # a service and its port


def test_the_daemon_of_the_compose_file_answers_prometheus(server):
    arguments = daemon_arguments()
    assert arguments[:3] == ["/usr/bin/thermoclined", "--config", "/etc/thermocline/thermocline.yaml"] and set(arguments[3::2]) == {"--set"}
    [target] = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"][0]["static_configs"][0]["targets"]
    scrape = lambda daemon, host: httpx.get(daemon.url + "/metrics", headers={"host": host}, timeout=30).status_code
    with Daemon(*[s.replace("server.host=0.0.0.0", "server.host=127.0.0.1") for s in arguments[4::2]], config=ROOT / "config/thermocline.yaml") as d:
        assert scrape(d, target) == scrape(d, "localhost:8080") == 200 and scrape(d, "elsewhere:8080") == 403
        assert httpx.get(d.url + "/v1/models", timeout=30).json()["data"][0]["id"] == "tidepool"
    assert scrape(server, target) == 403  # so the setting is needed


def test_grafana_of_the_compose_file_finds_source_and_dashboards():
    [source] = yaml.safe_load(mounted("grafana", "/etc/grafana/provisioning/datasources/thermocline.yaml").read_text())["datasources"]
    of_deploy = yaml.safe_load((ROOT / "deploy/grafana/provisioning/datasources/thermocline.yaml").read_text())["datasources"][0]
    assert source == {**of_deploy, "url": "http://prometheus:9090"}  # a service and its port
    provider = mounted("grafana", "/etc/grafana/provisioning/dashboards/thermocline.yaml")
    [dashboards] = yaml.safe_load(provider.read_text())["providers"]
    assert mounted("grafana", dashboards["options"]["path"]) == ROOT / "deploy/grafana/dashboards"
    home = COMPOSE["services"]["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert json.loads(mounted("grafana", home).read_text())["uid"] == "thermocline-overview"


# The page for users of other servers.

def ours():
    """(line, last cell) of its tables' rows."""
    for line in PAGE.splitlines():
        if line.startswith("| ") and not line.endswith("Thermocline |"):
            yield line, line.strip("| ").rsplit(" | ", 1)[-1]


def test_settings_options_and_routes_of_the_page_exist():
    config = yaml.safe_load((ROOT / "config/thermocline.yaml").read_text())
    routes = json.loads((ROOT / "server/web/openapi.json").read_text())["paths"]
    found = {"keys": 0, "options": 0, "routes": 0, "commands": 0}
    for line, cell in ours():
        for code in re.findall(r"`([^`]*)`", cell):
            if m := re.fullmatch(r"(\w+)\.(\w+)", code):
                assert m[1] in config and m[2] in config[m[1]], line
                found["keys"] += 1
            elif re.fullmatch(r"--[\w-]+", code):
                assert code in options_of("thermocline", "run"), line
                found["options"] += 1
            elif m := re.fullmatch(r"(?:GET )?(/[\w/]+)", code):
                missing = "is missing" in cell and m[1] in ("/api/v0", "/api/v1")
                assert missing or m[1] in routes, line
                found["routes"] += not missing
            elif m := re.match(r"(thermocline) ([a-z-]+) (.*)", code):
                assert set(re.findall(r"(?<!\S)--?[a-z][\w-]*", m[3])) <= options_of(m[1], m[2]), line
                found["commands"] += 1
    assert found["keys"] >= 20 and found["options"] >= 12 and found["routes"] >= 17 and found["commands"] >= 7, found


def test_commands_of_the_pages_tables_run(tmp_path, server):
    for name in ("MODEL", "OTHER"):
        shutil.copy(ROOT / "config/models/tidepool.gguf", tmp_path / name)
    (tmp_path / "FILE").write_text("Once upon a time there was an owl. " * 100)
    lines = [code for _, cell in ours() for code in re.findall(r"`(thermocline [^`]*)`", cell)]
    assert len(lines) == 12
    for line in lines:
        if " pull " in line:  # there is no network in tests; test_pull.py fetches
            result = shell(f"HF_HUB_OFFLINE=1 {line}", tmp_path)
            assert result.returncode != 0 and "HF_HUB_OFFLINE" in result.stderr, result.stderr
            continue
        if " rm " in line:  # test_added_models.py deletes
            result = shell(f"HF_HUB_CACHE=/nowhere {line}", tmp_path)
            assert result.returncode != 0 and "is not on this machine" in result.stderr, result.stderr
            continue
        line += f" --url {server.url}" if line.endswith(" ps") else ""
        line += " --print" if " launch " in line else ""  # what it would run: no agent is installed
        (tmp_path / "OUT").unlink(missing_ok=True)
        result = shell(line, tmp_path)
        assert result.returncode == 0, f"{line}\n{result.stderr}"


def test_routes_that_the_page_calls_missing_are(server):
    assert all(httpx.get(server.url + path, timeout=30).status_code == 404 for path in ("/api/v0/models", "/api/v1/models"))
    assert all(httpx.post(server.url + f"/api/{name}", json={"model": "x"}, timeout=30).status_code == 404 for name in ("create", "push"))


def test_a_file_of_ollama_is_found_and_served(tmp_path):
    """Ollama's folder, made by hand: a manifest as its registry sends it, and files by their digests."""
    models = tmp_path / ".ollama/models"
    (models / "blobs").mkdir(parents=True)
    layers = [("model", "1" * 64), ("template", "2" * 64), ("params", "3" * 64)]
    for name, digest in layers:
        (models / f"blobs/sha256-{digest}").write_bytes((ROOT / "config/models/tidepool.gguf").read_bytes() if name == "model" else b"{}")
    manifest = models / "manifests/registry.ollama.ai/library/llama3.2/latest"
    manifest.parent.mkdir(parents=True)
    listed = [{"mediaType": f"application/vnd.ollama.image.{name}", "digest": f"sha256:{digest}", "size": 2} for name, digest in layers]
    config = {"mediaType": "application/vnd.docker.container.image.v1+json", "digest": "sha256:" + "4" * 64}
    manifest.write_text(json.dumps({"schemaVersion": 2, "config": config, "layers": listed}))
    [command] = re.findall(r"^    (cd ~/\.ollama/models\n    python3 -c .*\n.*)$", PAGE, re.M)
    printed = shell(command, tmp_path, HOME=str(tmp_path))
    assert printed.returncode == 0 and printed.stdout == f"blobs/sha256-{'1' * 64}\n", printed.stderr
    blob = models / printed.stdout.strip()
    assert subprocess.run([THERMOCLINE, "inspect", blob], capture_output=True, timeout=60).returncode == 0
    with Daemon(f"model.path={blob}", "model.name=llama3.2") as d:
        answer = post(d, "/api/chat", model="llama3.2:latest", messages=OWL, stream=False, keep_alive="5m", options={"num_gpu": 99, "num_predict": 8})
        assert answer["eval_count"] == 8
    assert sorted(path.name for path in (models / "blobs").iterdir()) == [f"sha256-{digest}" for _, digest in layers]  # nothing was added


def test_a_snapshot_of_hugging_faces_cache_is_served(tmp_path):
    """Its files are links into blobs/."""
    hub = tmp_path / "models--org--tidepool"
    snapshot = hub / "snapshots" / ("a" * 40)
    (hub / "blobs").mkdir(parents=True)
    snapshot.mkdir(parents=True)
    for i, path in enumerate(sorted((ROOT / "tests/golden/models/tidepool/target").iterdir())):
        shutil.copy(path, hub / f"blobs/{i}")
        (snapshot / path.name).symlink_to(f"../../blobs/{i}")
    with Daemon(f"model.path={snapshot}", "model.name=tidepool", "sampling.temperature=0") as d:
        assert story(d, OWL, 8)[2] == 8
