"""`thermocline launch` with the real agents, unmodified, in an empty environment. Their first request has to arrive and be answered. The
model has the vocabulary and chat template of a real one, but two layers and a long context, so that a long prompt is computed within
seconds: its text has no meaning, and each agent is ended at its first words."""
import importlib.util
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest
from recording_proxy import RecordingProxy

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
BIN, SOURCE = Path(os.environ["THERMOCLINE_BIN"]), Path(os.environ["THERMOCLINE_MODEL"])
CONTEXT = 65536
PROMPT = "Read calc.py and say what is wrong with add"
# The agent -> (its package and the program in it, "" = a script of the environment; arguments; the route that it asks).
AGENTS = {
    "claude": ("claude_agent_sdk", "_bundled/claude", ["-p", PROMPT], "/v1/messages"),
    "codex": ("codex_cli_bin", "bin/codex", ["exec", "--skip-git-repo-check", PROMPT], "/v1/responses"),
    "aider": ("aider", "", ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--message", PROMPT], "/v1/chat/completions"),
    "gptme": ("gptme", "", ["--non-interactive", PROMPT], "/v1/chat/completions"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from gguf_copy import copy
    path = tmp_path_factory.mktemp("model") / "quick.gguf"
    return copy(str(SOURCE), str(path), layers=2, fields={"llama.context_length": CONTEXT})


@pytest.fixture(scope="module")
def port(model):
    settings = (f"model.path={model}", "model.aliases=*", "server.port=0", "grpc.address=")
    daemon = subprocess.Popen([BIN / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    found = None
    for line in daemon.stderr:
        if match := re.search(r"listening on http://[^ /]+:(\d+)/", line):
            found = int(match[1])
        if " ready: " in line:
            break
    assert found, "the daemon ended"
    yield found
    daemon.terminate()
    daemon.communicate(timeout=60)
    assert daemon.returncode == 0


def launch(agent, folder, *options):
    """Starts the agent as a user does: found in PATH, a HOME of its own, a folder with a file."""
    package, path, arguments, _ = AGENTS[agent]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"PyPI has no {agent} for this machine")
    program = Path(spec.submodule_search_locations[0]) / path if path else Path(sys.executable).parent / agent
    assert program.exists(), program
    for name in ("bin", "home", "work"):
        (folder / name).mkdir()
    (folder / "bin" / agent).symlink_to(program)
    (folder / "work/calc.py").write_text("def add(a, b):\n    return a - b\n")
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "TMPDIR": str(folder)}
    out = open(folder / "output", "wb")
    return subprocess.Popen([BIN / "thermocline", "launch", agent, *options, "--", *arguments], cwd=folder / "work", env=env,
                            stdin=subprocess.DEVNULL, stdout=out, stderr=out)


def end(process, folder):
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
    process.wait(60)
    text = (folder / "output").read_text(errors="replace")
    print(text[-3000:])
    return text


def counter(url, name):
    """The sum of a counter of the daemon over its labels."""
    return sum(float(value) for value in re.findall(rf"^thermocline_{name}(?:\{{[^}}]*\}})? (\S+)$", httpx.get(url + "/metrics").text, re.M))


def wait_for_words(url, before, process, folder, seconds=300):
    limit = time.monotonic() + seconds
    while counter(url, "generation_tokens_total") <= before:
        assert process.poll() is None and time.monotonic() < limit, end(process, folder)
        time.sleep(0.1)


@pytest.mark.parametrize("agent", AGENTS)
def test_the_first_request_arrives_and_is_answered(agent, port, tmp_path):
    url = f"http://127.0.0.1:{port}"
    generated, prompts = counter(url, "generation_tokens_total"), counter(url, "prompt_tokens_total")
    proxy = RecordingProxy(port)
    process = launch(agent, tmp_path, "--url", proxy.url)
    try:
        wait_for_words(url, generated, process, tmp_path)
    finally:
        text = end(process, tmp_path)
    proxy.close()
    assert f"serves quick, context {CONTEXT}" in text and "is short for" not in text
    refused = [(e.method, e.path, e.status, e.answer[:300]) for e in proxy.exchanges if 400 <= e.status != 499]
    assert not refused, refused
    asked = proxy.of(AGENTS[agent][3])
    assert asked and asked[0].status == 200 and "calc.py" in asked[0].request.decode()
    print(f"{agent}: {[(e.method, e.path, e.status) for e in proxy.exchanges]}, {counter(url, 'prompt_tokens_total') - prompts:.0f} tokens of prompts")
    if agent == "claude":
        assert b"x-anthropic-billing-header" not in asked[0].request
        assert {e.body["model"] for e in asked} == {"quick"}


def test_an_agent_with_a_daemon_of_its_own(model, tmp_path):
    process = launch("codex", tmp_path, "--model", model, "--cache", str(tmp_path / "cache"))
    limit = time.monotonic() + 120
    while not (found := re.search(r"(http://\S+) serves quick", (tmp_path / "output").read_text(errors="replace"))):
        assert process.poll() is None and time.monotonic() < limit, end(process, tmp_path)
        time.sleep(0.1)
    wait_for_words(found[1], 0, process, tmp_path)
    text = end(process, tmp_path)
    with pytest.raises(httpx.ConnectError):
        httpx.get(found[1] + "/health")
    log = Path(re.search(r"log: (\S+)", text)[1]).read_text()
    assert "/v1/responses" in log and "stopped" in log
    assert not [line for line in log.splitlines() if re.search(r"access.*\b4\d\d\b", line) and "499" not in line], log
