"""`thermocline launch` with the real daemon. The agent is a program that stands in for a real one, only to record its environment and
arguments or to fail; tests/clients/test_launch.py runs the real agents."""
import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import termios
import threading
import time

import httpx
import pytest
from conftest import ROOT, THERMOCLINE, Daemon, wait_until

TIDEPOOL = str(ROOT / "config/models/tidepool.gguf")
AGENTS = ["claude", "codex", "opencode", "aider", "gptme"]
# Records what it was given, and what the server that it was led to says.
STAND_IN = """#!{python}
import json, os, pathlib, signal, sys, time, urllib.request
record = dict(arguments=sys.argv[1:], variables=dict(os.environ), pid=os.getpid())
url = os.environ.get("ANTHROPIC_BASE_URL")
if url:
    with urllib.request.urlopen(url + "/v1/models") as answer:
        record["models"] = json.load(answer)["data"]
if "unmoved" in sys.argv:
    signal.signal(signal.SIGINT, lambda *unused: open("{folder}/interrupts", "a").write("x"))
pathlib.Path("{folder}/record.new").write_text(json.dumps(record))
os.rename("{folder}/record.new", "{folder}/record")
while "wait" in sys.argv:
    time.sleep(0.05)
sys.exit(3 if "fail" in sys.argv else 0)
"""


class Launched:
    """A folder with programs of the agents' names, and an environment without anything else."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "home").mkdir()
        (folder / "tmp").mkdir()
        for name in AGENTS:
            path = folder / "bin" / name
            path.write_text(STAND_IN.format(python=sys.executable, folder=folder))
            path.chmod(0o755)

    def env(self, **more):
        kept = {k: v for k, v in os.environ.items() if k.startswith(("ASAN_", "TSAN_", "UBSAN_"))}
        return {"PATH": f"{self.folder}/bin", "HOME": f"{self.folder}/home", "TMPDIR": f"{self.folder}/tmp", **kept, **more}

    def start(self, *args, **env):
        return subprocess.Popen([THERMOCLINE, "launch", *map(str, args)], env=self.env(**env), cwd=self.folder, stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)

    def run(self, *args, status=0, **env):
        process = self.start(*args, **env)
        out, err = process.communicate(timeout=120)
        assert process.returncode == status, (process.returncode, out, err)
        return out, err

    def record(self):
        return json.loads((self.folder / "record").read_text())

    def await_record(self):
        wait_until((self.folder / "record").exists)
        return self.record()


@pytest.fixture
def launched(tmp_path):
    return Launched(tmp_path)


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def default_address_is_taken():
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", 8080)) == 0


def test_each_agent_of_the_table_has_a_set_up(launched, daemon):
    text = " ".join(subprocess.run([THERMOCLINE, "launch", "--help"], capture_output=True, text=True, check=True).stdout.split())
    assert f"The program to run: {', '.join(AGENTS)} " in text
    shown = {name: json.loads(launched.run(name, "--url", daemon.url, "--print", "--json", "--", "-x", "y z")[0]) for name in AGENTS}
    for name, plan in shown.items():
        assert plan["server"] == {"url": daemon.url, "model": "tidepool", "context_length": 512} and plan["daemon"] is None
        assert plan["command"][0] == name and plan["command"][-2:] == ["-x", "y z"]
        assert daemon.url in json.dumps(plan["variables"]) + json.dumps(plan["command"]), name
    v = {name: plan["variables"] for name, plan in shown.items()}
    assert v["claude"]["ANTHROPIC_BASE_URL"] == daemon.url and v["claude"]["ANTHROPIC_API_KEY"] == ""
    assert {v["claude"][f"ANTHROPIC_DEFAULT_{size}_MODEL"] for size in ("OPUS", "SONNET", "HAIKU")} == {"tidepool"} == {v["claude"]["ANTHROPIC_MODEL"]}
    settings = dict(c.split("=", 1) for c in shown["codex"]["command"][2:-2:2])
    assert json.loads(settings["model_providers.thermocline.base_url"]) == daemon.url + "/v1" and settings["model_context_window"] == "512"
    assert settings["model_providers.thermocline.wire_api"] == '"responses"' and settings["model"] == '"tidepool"'
    config = json.loads(v["opencode"]["OPENCODE_CONFIG_CONTENT"])
    assert config["model"] == "thermocline/tidepool" and config["provider"]["thermocline"]["options"]["baseURL"] == daemon.url + "/v1"
    assert config["provider"]["thermocline"]["models"]["tidepool"]["limit"] == {"context": 512, "output": 128}
    assert v["aider"]["AIDER_OPENAI_API_BASE"] == daemon.url + "/v1" and v["aider"]["AIDER_MODEL"] == "openai/tidepool"
    assert v["gptme"]["OPENAI_BASE_URL"] == daemon.url + "/v1" and shown["gptme"]["command"][1:3] == ["-m", "local/tidepool"]


@pytest.mark.parametrize("agent", AGENTS)
def test_the_program_gets_what_is_printed(launched, daemon, agent):
    plan = json.loads(launched.run(agent, "--url", daemon.url, "--print", "--json", "--", "go", "it's", "[a,b]", "--", "-m")[0])
    _, err = launched.run(agent, "--url", daemon.url, "--", "go", "it's", "[a,b]", "--", "-m", OPENAI_BASE_URL="http://elsewhere", ANTHROPIC_API_KEY="theirs")
    record = launched.record()
    assert record["arguments"] == plan["command"][1:] and record["arguments"][-5:] == ["go", "it's", "[a,b]", "--", "-m"]
    assert {name: record["variables"][name] for name in plan["variables"]} == plan["variables"]
    assert f"{daemon.url} serves tidepool, context 512" in err and "it'\\''s" in err


def test_the_printed_lines_do_the_same_in_a_shell(launched, daemon):
    lines, _ = launched.run("claude", "--url", daemon.url, "--print", "--", "-p", "say 'hi' $HOME")
    subprocess.run(["/bin/sh", "-e", "-c", lines], env=launched.env(), check=True, timeout=60)
    record = launched.record()
    assert record["arguments"] == ["-p", "say 'hi' $HOME"] and record["variables"]["ANTHROPIC_BASE_URL"] == daemon.url
    assert record["models"][0]["id"] == "tidepool"


def test_nothing_is_written_but_the_log(launched):
    launched.run("claude", "--model", TIDEPOOL, "--set", "server.threads=1")
    assert not list((launched.folder / "home").rglob("*"))
    assert [f.suffix for f in (launched.folder / "tmp").iterdir()] == [".log"]


def test_a_daemon_of_its_own_serves_until_the_agent_ends(launched):
    """It takes any name, since Claude Code asks for models by several."""
    process = launched.start("claude", "-m", TIDEPOOL, "--cache", launched.folder / "cache", "--", "wait")
    record = launched.await_record()
    url = record["variables"]["ANTHROPIC_BASE_URL"]
    assert record["models"][0]["id"] == "tidepool" and not url.endswith(":8080")
    body = {"model": "claude-haiku-4-5", "max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}
    assert httpx.post(f"{url}/v1/messages", json=body, timeout=60).status_code == 200
    assert httpx.get(f"{url}/v1/status").json()["prefix_cache"]["flash"] is not None
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, err
    assert not is_running(record["pid"])
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")
    log = re.search(r"log: (\S+)", err)[1]
    assert "stopped" in open(log).read()


def test_ctrl_c_belongs_to_the_agent(launched):
    """On a terminal it reaches the agent once. The agent may go on, and then the daemon does, too."""
    master, terminal = os.openpty()
    process = subprocess.Popen([THERMOCLINE, "launch", "claude", "-m", TIDEPOOL, "--", "wait", "unmoved"], env=launched.env(), stdin=terminal,
                               stdout=terminal, stderr=terminal, start_new_session=True,
                               preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    threading.Thread(target=lambda: [None for _ in iter(lambda: os.read(master, 4096), b"")], daemon=True).start()
    record = launched.await_record()
    os.write(master, b"\x03")
    wait_until((launched.folder / "interrupts").exists)
    time.sleep(0.5)  # a second one would come by now
    assert (launched.folder / "interrupts").read_text() == "x"
    assert process.poll() is None and httpx.get(record["variables"]["ANTHROPIC_BASE_URL"] + "/health").status_code == 200
    process.send_signal(signal.SIGINT)  # from another program: that one is passed on
    wait_until(lambda: (launched.folder / "interrupts").read_text() == "xx")
    os.kill(record["pid"], signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM


def test_a_signal_while_the_model_loads_ends_all(launched):
    process = launched.start("claude", "-m", TIDEPOOL, "--", "wait")
    line = process.stderr.readline()
    url = re.search(r"http://\S+(?=;)", line)[0]
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGINT, err
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"{url}/health")


def test_a_daemon_dies_with_a_launch_that_is_killed(launched):
    process = launched.start("claude", "-m", TIDEPOOL, "--", "wait")
    record = launched.await_record()
    process.kill()
    process.wait(60)
    port = int(record["variables"]["ANTHROPIC_BASE_URL"].rsplit(":", 1)[1])

    def closed():
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) != 0

    try:
        wait_until(closed)
    finally:
        os.kill(record["pid"], signal.SIGKILL)


def test_the_agents_exit_status_is_passed_on(launched, daemon):
    launched.run("codex", "--url", daemon.url, "--", "fail", status=3)
    process = launched.start("codex", "--url", daemon.url, "--", "wait")
    os.kill(launched_pid(launched), signal.SIGKILL)
    process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGKILL


def launched_pid(launched):
    wait_until(lambda: (launched.folder / "record").exists() and "wait" in launched.record()["arguments"])
    return launched.record()["pid"]


def test_an_agent_that_is_not_installed_names_its_installation(launched):
    shutil.rmtree(launched.folder / "bin")
    _, err = launched.run("claude", "-m", TIDEPOOL, status=127)
    assert "claude is not in PATH" in err and "npm install -g @anthropic-ai/claude-code" in err
    assert not list((launched.folder / "tmp").iterdir())  # no daemon was started for it


def test_a_program_that_cannot_run_is_named(launched, daemon):
    (launched.folder / "bin/codex").write_text("#!/nonexistent/interpreter\n")
    _, err = launched.run("codex", "--url", daemon.url, status=1)
    assert f"{launched.folder}/bin/codex: start" in err


def test_a_model_that_cannot_be_loaded_shows_the_end_of_the_log(launched):
    (launched.folder / "broken.gguf").write_text("no model")
    _, err = launched.run("claude", "-m", "broken.gguf", status=1)
    assert "the daemon has ended with status 78" in err and "cannot be served" in err


@pytest.mark.skipif(default_address_is_taken(), reason="a server listens on port 8080")
def test_without_a_server_and_a_model_it_says_what_to_give(launched):
    _, err = launched.run("claude", status=1)
    assert "no server answers at http://127.0.0.1:8080" in err and "--model MODEL" in err and "--url" in err
    assert "/nowhere/x.gguf" in launched.run("claude", "-m", "/nowhere/x.gguf", status=1)[1]


@pytest.mark.skipif(default_address_is_taken(), reason="a server listens on port 8080")
def test_a_dry_run_starts_nothing(launched):
    lines, _ = launched.run("claude", "-m", TIDEPOOL, "--print")
    first, *rest = lines.splitlines()
    assert first.endswith(" &") and f"--set model.path={TIDEPOOL}" in first and "'model.aliases=*'" in first
    assert "export ANTHROPIC_BASE_URL=http://127.0.0.1:8080" in rest and rest[-1] == "claude"
    assert not (launched.folder / "record").exists() and not list((launched.folder / "tmp").iterdir())


def test_a_server_that_is_gone_is_named(launched):
    with Daemon() as d:
        url = d.url
    assert url.removeprefix("http://") in launched.run("claude", "--url", url, status=1)[1]


def test_names_of_models(launched, daemon):
    _, err = launched.run("claude", "--url", daemon.url, "-m", "other", status=1)
    assert "has no model 'other'" in err and "tidepool" in err
    with Daemon("model.aliases=*") as d:
        launched.run("claude", "--url", d.url + "/v1/", "-m", "qwen/other")
        assert launched.record()["variables"]["ANTHROPIC_MODEL"] == "qwen/other"
        assert launched.record()["variables"]["ANTHROPIC_BASE_URL"] == d.url


def test_a_short_context_is_warned_of(launched, daemon):
    _, err = launched.run("claude", "--url", daemon.url)
    assert "warning: a context of 512 tokens is short for Claude Code, which wants 32768" in err and "take a model with a longer context" in err


def test_keys(launched):
    """The key reaches the agent, and no text that is shown."""
    key = "a-secret-that-is-long-enough"
    line = subprocess.run([THERMOCLINE + "d", "--hash-key", "me"], input=key, capture_output=True, text=True, check=True).stdout
    (launched.folder / "keys").write_text(line)
    (launched.folder / "my key").write_text(key + "\n")
    with Daemon(f"server.api_keys_file={launched.folder}/keys") as d:
        assert "wants a key" in launched.run("codex", "--url", d.url, status=1)[1]
        assert "does not know this key" in launched.run("codex", "--url", d.url, status=1, THERMOCLINE_API_KEY="wrong")[1]
        for agent, variable in (("codex", "THERMOCLINE_API_KEY"), ("aider", "AIDER_OPENAI_API_KEY"), ("gptme", "OPENAI_API_KEY")):
            out, err = launched.run(agent, "--url", d.url, THERMOCLINE_API_KEY=key)
            assert launched.record()["variables"][variable] == key and key not in out + err
        lines, err = launched.run("aider", "--url", d.url, "--api-key-file", "my key", "--print")
        assert key not in lines + err
        env = launched.env(PATH=f"{launched.folder}/bin:/usr/bin:/bin")
        subprocess.run(["/bin/sh", "-e", "-c", lines], env=env, cwd=launched.folder, check=True, timeout=60)
        assert launched.record()["variables"]["AIDER_OPENAI_API_KEY"] == key


@pytest.mark.parametrize("words,hint", [
    (["claude", "-p", "hello"], "there is no option '-p'; options of the program stand behind --"),
    (["claude", "--modle", "x"], "did you mean --model?"), (["emacs"], "claude"), (["claude", "hello"], "hello"), ([], "agent is required"),
    (["claude", "--json"], "--print"), (["claude", "--url", "x", "--cache", "y"], "--cache")])
def test_bad_usage(launched, words, hint):
    assert hint in launched.run(*words, status=2)[1]
