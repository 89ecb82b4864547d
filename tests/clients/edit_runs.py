"""A real model edits a file through real agents, unmodified and not prompted by anything but the task:

    build/clients-launch/bin/python tests/clients/edit_runs.py BIN MODEL [claude] [codex] [aider] [gptme] [--tries 3] [--keep FOLDER]

after `tests/clients.sh launch` has installed the agents. Each agent is started by `thermocline launch` in an empty environment, with
greedy sampling, and asked to correct calc.py, where the model is weak by naming the tool. The file is then run: the task is done if add(2, 3) is 5. Tries differ in the words of
the task, since a greedy model repeats itself. --set KEY=VALUE is passed to the daemon, --keep writes what was sent and answered.
"""
import argparse
import json
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from record_sessions import WRITERS, AIDER, program, start
from recording_proxy import RecordingProxy

AFTERWARDS = 60  # seconds for the agent to end once the file is right
CALC = "def add(a, b):\n    return a - b\n"
COMMAND = "sed -i 's/return a - b/return a + b/' calc.py"
TASKS = {
    "claude": [f"Call the tool Bash with the command: {COMMAND}",
               "Call the tool Edit with file_path WORK/calc.py, old_string `return a - b` and new_string `return a + b`."],
    "codex": [f"Call exec_command with this cmd: {COMMAND}",
              f"Run this shell command: {COMMAND}"],
    "aider": ["The function add in calc.py is wrong: it subtracts. Correct it, so that add(2, 3) is 5.",
              "In calc.py, replace `return a - b` by `return a + b`."],
    "gptme": [f"Run this shell command: {COMMAND}"],
}
ARGUMENTS = {
    "claude": lambda task: ["-p", task, "--tools", "Read,Edit,Bash", "--allowedTools", "Read,Edit,Bash"],
    "codex": lambda task: ["exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", task],
    "aider": lambda task: [*AIDER[:AIDER.index("--test-cmd")], "calc.py", "--message", task],
    "gptme": lambda task: ["--non-interactive", task],
}


@dataclass
class Outcome:
    agent: str
    task: int
    edited: float | None  # seconds until the file was right
    seconds: float
    turns: int
    first: float  # seconds of the first turn
    calls: int    # that the daemon understood in the model's text
    refused: list
    said: str

    def row(self):
        refused = f"{len(self.refused)} refused: {self.refused[:2]}" if self.refused else "none refused"
        return f"| {self.agent} | {self.task} | {'no' if self.edited is None else f'after {self.edited:.0f} s'} | {self.turns} | {self.calls} | {self.first:.0f} | {self.seconds:.0f} | {refused} |"


def calls_in(exchange):
    """The calls in an answer of each protocol, streamed or not."""
    text = exchange.answer.decode(errors="replace")
    if exchange.path.startswith("/v1/messages"):
        return text.count('"type":"tool_use"')
    if exchange.path.startswith("/v1/responses"):
        return sum(e.get("type") == "response.output_item.done" and e["item"]["type"] == "function_call" for e in exchange.events)
    return text.count('"function":{"name"') or text.count('"tool_calls":[{')


def works(folder):
    script = "import calc; raise SystemExit(0 if (calc.add(2, 3), calc.add(-1, 1), calc.add(7, 0)) == (5, 0, 7) else 1)"
    return subprocess.run(["python3", "-I", "-c", f"import sys; sys.path.insert(0, '.'); {script}"], cwd=folder, capture_output=True, timeout=20).returncode == 0


def edit(agent, task, bin_folder, port, folder, limit):
    for each in ("bin", "home", "work"):
        (folder / each).mkdir()
    (folder / "bin" / agent).symlink_to(program(agent))
    (folder / "work/calc.py").write_text(CALC)
    env = {"PATH": f"{folder}/bin:/usr/bin:/bin", "HOME": str(folder / "home"), "TMPDIR": str(folder), "IS_SANDBOX": "1"}
    proxy, begin = RecordingProxy(port), time.monotonic()
    command = [bin_folder / "thermocline", "launch", agent, "--url", proxy.url, "--", *ARGUMENTS[agent](TASKS[agent][task].replace("WORK", str(folder / "work")))]
    process = subprocess.Popen(command, cwd=folder / "work", env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    text = []
    reader = threading.Thread(target=lambda: text.extend(process.stdout), daemon=True)
    reader.start()
    edited, ends = None, begin + limit
    while process.poll() is None and time.monotonic() < ends:
        time.sleep(1)
        if edited is None and works(folder / "work"):
            edited = time.monotonic() - begin
            ends = min(ends, time.monotonic() + AFTERWARDS)  # a weak model may go on for ever
    if process.poll() is None:
        process.terminate()
        text.append("(ended by the script)")
    process.wait(60)
    reader.join(10)
    said = "".join(text)
    seconds = time.monotonic() - begin
    proxy.close()
    turns = [e for e in proxy.exchanges if e.method == "POST" and e.path.split("?")[0] in WRITERS]
    refused = [(e.path, e.status, e.answer[:200].decode(errors="replace")) for e in proxy.exchanges if e.status >= 400]
    outcome = Outcome(agent, task, edited if works(folder / "work") else None, seconds, len(turns), turns[0].seconds if turns else 0, sum(map(calls_in, turns)), refused, said)
    return outcome, turns


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("agents", nargs="*", default=list(ARGUMENTS))
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--limit", type=int, default=600, help="seconds of a try")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--keep", type=Path)
    o = parser.parse_args()
    daemon, port = start(o.bin.resolve(), o.model, "sampling.temperature=0", *o.set)
    print("| agent | task | edited | turns | calls | first turn s | all s | requests |\n|---|---|---|---|---|---|---|---|", flush=True)
    try:
        for agent in o.agents:
            for task in range(min(o.tries, len(TASKS[agent]))):
                with tempfile.TemporaryDirectory(prefix="edit-") as folder:
                    outcome, turns = edit(agent, task, o.bin.resolve(), port, Path(folder), o.limit)
                print(outcome.row(), flush=True)
                if o.keep:
                    o.keep.mkdir(parents=True, exist_ok=True)
                    (o.keep / f"{agent}-{task}.json").write_text(json.dumps([(e.path, e.body, e.answer.decode(errors="replace")) for e in turns], indent=1))
                    (o.keep / f"{agent}-{task}.txt").write_text(outcome.said)
                if outcome.edited is not None:
                    break
    finally:
        daemon.terminate()
        daemon.wait(60)


if __name__ == "__main__":
    main()
