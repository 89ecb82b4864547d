"""Records sessions of real agents for tests/e2e/test_recorded_sessions.py. Run by hand, after `tests/clients.sh launch` has installed
the agents, when a new version of an agent is to be tested:

    build/clients-launch/bin/python tests/clients/record_sessions.py build/release/bin MODEL [claude] [codex] [aider] [gptme]

MODEL is any GGUF file with a chat template; it is only loaded, since every answer is played by the proxy from the script below. Each
agent is started by `thermocline launch` in an empty environment. What it sends is written to tests/data/agents as shapes, without
its words: see session_shapes.py. --keep FOLDER also writes the requests as they were, to look at; they are not to be committed."""
import argparse
import importlib.metadata
import importlib.util
import itertools
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

from agent_answers import WRITERS, Answer, Script
from recording_proxy import RecordingProxy
from session_shaper import Shaper
from session_shapes import FOLDER, strange_strings

CALC = "def add(a, b):\n    return a - b\n\n\ndef twice(a):\n    return add(a, a)\n\n\nprint(add(2, 3), twice(4))\n"
FIRST = "Read calc.py, correct what is wrong with add, and run it."
SECOND = "Now add a function mul(a, b) to calc.py, and print mul(2, 3)."
SIZE_MAX = 200_000  # bytes of a file in the repository


@dataclass
class Run:
    """A start of the program: its arguments, lines that it reads, and the model's answers."""
    arguments: list
    answers: list
    stdin: str = ""


@dataclass
class Agent:
    package: str  # on PyPI
    module: str
    program: str  # inside the module's folder; "" = a script of the environment
    runs: list
    is_work: object = field(default=lambda body: True)


def fenced(tool, content):
    return f"```{tool}\n{content}\n```"


def gptme_patch(old, new):
    return fenced("patch calc.py", f"<<<<<<< ORIGINAL\n{old}\n=======\n{new}\n>>>>>>> UPDATED")


BAD, GOOD, PRINT = "    return a - b", "    return a + b", "print(add(2, 3), twice(4))"
MUL = f"def mul(a, b):\n    return a * b\n\n\n{PRINT}\nprint(mul(2, 3))"
CODEX = ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"]
AIDER = ["--no-git", "--yes-always", "--no-check-update", "--analytics-disable", "--no-fancy-input", "--no-pretty", "--test-cmd", "python3 calc.py && false",
         "--auto-test"]


def claude_runs(work):
    path = f"{work}/calc.py"
    tools = ["--allowedTools", "Read,Edit,Bash"]
    return [Run(["-p", FIRST, *tools], [
                Answer("I will read the file.", [("Read", {"file_path": path})]),
                Answer("add subtracts. I will correct it.", [("Edit", {"file_path": path, "old_string": BAD, "new_string": GOOD})]),
                Answer("", [("Bash", {"command": "python3 calc.py", "description": "Run calc.py"})]),
                Answer("add subtracted instead of adding. It is corrected, and the program prints 5 and 8.")]),
            Run(["-p", "--continue", SECOND, *tools], [
                Answer("I will add it.", [("Edit", {"file_path": path, "old_string": PRINT, "new_string": MUL})]),
                Answer("", [("Bash", {"command": "python3 calc.py", "description": "Run calc.py"})]),
                Answer("mul is there, and the program prints 6 for mul(2, 3).")])]


def codex_runs(work):
    command = lambda line: [("exec_command", {"cmd": line})]  # noqa: E731
    return [Run([*CODEX, FIRST], [
                Answer("I will read the file.", command("cat calc.py")),
                Answer("add subtracts. I will correct it.", command("sed -i 's/return a - b/return a + b/' calc.py")),
                Answer("", command("python3 calc.py")),
                Answer("add subtracted instead of adding. It is corrected, and the program prints 5 and 8.")]),
            Run([*CODEX, "resume", "--last", SECOND], [
                Answer("I will add it.", command("printf 'def mul(a, b):\\n    return a * b\\n\\n\\nprint(mul(2, 3))\\n' >> calc.py")),
                Answer("", command("python3 calc.py && cat calc.py")),
                Answer("mul is there, and the program prints 6 for mul(2, 3).")])]


def aider_runs(work):
    # aider asks a model that it does not know for whole files. Its test always fails, so that it
    # shows the output to the model.
    right = CALC.replace(BAD, GOOD)
    whole = lambda content: "calc.py\n" + fenced("", content)  # noqa: E731
    return [Run([*AIDER, "calc.py"], [
                Answer("add subtracts:\n\n" + whole(right)),
                Answer("The output is right: 5 and 8. Nothing else is to be changed."),
                Answer("I will add mul:\n\n" + whole(right.replace(PRINT, MUL))),
                Answer("The output has 6, as it should. Nothing else is to be changed."),
                Answer("twice(4) is add(4, 4), which is 8.")], stdin=f"{FIRST}\n{SECOND}\nWhy is twice(4) 8?\n/exit\n")]


def gptme_runs(work):
    return [Run(["--non-interactive", "--name", "calc", FIRST], [
                Answer("I will read the file.\n\n" + fenced("shell", "cat calc.py")),
                Answer("add subtracts. I will correct it.\n\n" + gptme_patch(BAD, GOOD)),
                Answer(fenced("shell", "python3 calc.py")),
                Answer("add subtracted instead of adding. It is corrected, and the program prints 5 and 8.\n\n" + fenced("complete", ""))]),
            Run(["--non-interactive", "--name", "calc", "--resume", SECOND], [
                Answer("I will add it.\n\n" + gptme_patch(PRINT, MUL)),
                Answer(fenced("shell", "python3 calc.py")),
                Answer("mul is there, and the program prints 6 for mul(2, 3).\n\n" + fenced("complete", ""))])]


AGENTS = {
    "claude": Agent("claude-agent-sdk", "claude_agent_sdk", "_bundled/claude", claude_runs, lambda body: bool(body.get("tools"))),
    "codex": Agent("openai-codex-cli-bin", "codex_cli_bin", "bin/codex", codex_runs, lambda body: bool(body.get("tools"))),
    "aider": Agent("aider-chat", "aider", "", aider_runs),
    "gptme": Agent("gptme", "gptme", "", gptme_runs, lambda body: bool(body.get("tools"))),
}


def program(name):
    agent = AGENTS[name]
    folder = Path(importlib.util.find_spec(agent.module).submodule_search_locations[0])
    return folder / agent.program if agent.program else Path(sys.executable).parent / name


def record(name, bin_folder, port, folder):
    """Runs the agent's session in `folder`; the exchanges with the routes that generate."""
    for each in ("bin", "home", "work"):
        (folder / each).mkdir()
    (folder / "bin" / name).symlink_to(program(name))
    (folder / "work/calc.py").write_text(CALC)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "TMPDIR": str(folder)}
    exchanges, ids = [], itertools.count(1)
    for run in AGENTS[name].runs(folder / "work"):
        script = Script(run.answers, ids, AGENTS[name].is_work)
        proxy = RecordingProxy(port, script=script)
        result = subprocess.run([bin_folder / "thermocline", "launch", name, "--url", proxy.url, "--", *run.arguments], cwd=folder / "work",
                                env=env, input=run.stdin, capture_output=True, text=True, timeout=240)
        proxy.close()
        print(result.stdout[-3000:], result.stderr[-2000:])
        assert result.returncode == 0, f"{name} ended with {result.returncode}"
        assert not script.answers, f"{name} did not ask for {len(script.answers)} of the answers"
        refused = [(e.path, e.status, e.answer[:300]) for e in proxy.exchanges if e.status >= 400]
        assert not refused, refused
        exchanges += [e for e in proxy.exchanges if e.method == "POST" and e.path.split("?")[0] in WRITERS]
    text = (folder / "work/calc.py").read_text()
    print(text)
    edited = "return a + b" in text and "def mul" in text
    return exchanges, edited


def dump(recording):
    """JSON with a request a line."""
    text = lambda value: json.dumps(value, separators=(",", ":"))  # noqa: E731
    head = "".join(f"{text(k)}:{text(v)},\n" for k, v in recording.items() if k != "requests")
    return "{" + head + '"requests":[\n' + ",\n".join(map(text, recording["requests"])) + "]}\n"


def write(name, exchanges):
    shaper = Shaper()
    for exchange in exchanges:
        shaper.add(exchange.path.split("?")[0], exchange.body)
    version = importlib.metadata.version(AGENTS[name].package)
    recording = shaper.recording(name, version)
    assert not (strange := strange_strings(recording)), f"these could be words of the agent: {sorted(set(strange))[:20]}"
    FOLDER.mkdir(parents=True, exist_ok=True)
    data = dump(recording)
    assert len(data) <= SIZE_MAX, len(data)
    (FOLDER / f"{name}.json").write_text(data)
    print(f"{name} {version}: {len(exchanges)} requests, {len(data)} bytes, left out: {', '.join(sorted(shaper.left_out))}")


def start(bin_folder, model, *more):
    settings = (f"model.path={model}", "model.aliases=*", "server.port=0", "grpc.address=", *more)
    daemon = subprocess.Popen([bin_folder / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    port = None
    for line in daemon.stderr:
        if match := re.search(r"listening on http://[^ /]+:(\d+)/", line):
            port = int(match[1])
        if " ready: " in line:
            return daemon, port
    raise SystemExit("the daemon ended")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("agents", nargs="*", default=list(AGENTS))
    parser.add_argument("--keep", type=Path)
    options = parser.parse_args()
    daemon, port = start(options.bin.resolve(), options.model)
    try:
        for name in options.agents:
            with tempfile.TemporaryDirectory(prefix="record-") as folder:
                exchanges, edited = record(name, options.bin.resolve(), port, Path(folder))
            if options.keep:
                options.keep.mkdir(parents=True, exist_ok=True)
                (options.keep / f"{name}.json").write_text(json.dumps([(e.path, e.body) for e in exchanges], indent=1))
            assert edited, f"{name} did not make the edits of its script"
            write(name, exchanges)
    finally:
        daemon.terminate()
        daemon.wait(60)


if __name__ == "__main__":
    main()
