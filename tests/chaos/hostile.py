"""One key that attacks beside three that work: the good ones keep their pace, the memory its budget, and nothing is read across keys.

    build/venv/bin/python tests/chaos/hostile.py [--minutes 10] [--model PATH]

For a quarter of the time an honest fourth client takes the place of the hostile one: that pace is the quiet one. Then the hostile key
does everything of attacks.py at once, from a process with the lowest priority, as the machine has no other for it. Prints the time
between tokens of the good ones in both parts, the memory and what was refused; fails if their p99 is more than twice the quiet one,
for a wrong answer, memory beyond the budget, a prefix of another key that is told, and an end later than the drain and 5 s.
"""
import argparse
import http.client
import json
import multiprocessing
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "e2e")]
import attacks  # noqa: E402
from conftest import BIN, Daemon  # noqa: E402

GOOD = ("ada", "bob", "cleo")
PROMPTS = ("Tell me a story about an owl.", "Who lives in the sea?", "Count the stars, please.", "What does the wind say?")
TOKENS = 120
BUDGET = 256 << 20
DRAIN_S = 5


def key_of(name):
    return f"{name}-key-0123456789abcdef"


def key_file(folder):
    path = Path(folder) / "keys"
    lines = [subprocess.run([BIN / "thermoclined", "--hash-key", name], input=key_of(name) + "\n", capture_output=True, text=True, check=True).stdout
             for name in (*GOOD, "eve")]
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


class Client:
    """Streams greedy answers, one after the other; the same prompt has the same answer."""

    def __init__(self, port, name, prompt):
        self.port, self.name, self.prompt = port, name, prompt
        self.gaps, self.texts, self.errors = [], set(), []

    def ask(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        body = {"messages": [{"role": "user", "content": self.prompt}], "temperature": 0, "max_tokens": TOKENS, "stream": True,
                "ignore_eos": True}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"authorization": f"Bearer {key_of(self.name)}"})
        answer = connection.getresponse()
        if answer.status != 200:
            self.errors.append((answer.status, answer.read()[:200]))
            return
        text, last = "", None
        for line in answer:
            if not line.startswith(b"data: {"):
                continue
            now = time.monotonic()
            choices = json.loads(line[6:]).get("choices") or [{}]
            piece = choices[0].get("delta", {}).get("content")
            if not piece:
                continue
            text += piece
            if last is not None:
                self.gaps.append(now - last)
            last = now
        self.texts.add(text)
        connection.close()

    def run(self, end):
        while time.monotonic() < end:
            try:
                self.ask()
            except OSError as error:
                self.errors.append((0, repr(error)))


def together(port, names, seconds):
    """What `names` saw while all of them asked for `seconds`."""
    end = time.monotonic() + seconds
    clients = [Client(port, name, PROMPTS[i]) for i, name in enumerate(names)]
    threads = [threading.Thread(target=client.run, args=(end,)) for client in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return clients


def pace(clients, label):
    gaps = sorted(gap for client in clients if client.name in GOOD for gap in client.gaps)
    p50, p99 = statistics.median(gaps), gaps[len(gaps) * 99 // 100]
    print(f"{label}: {len(gaps)} tokens of the good ones, {1e3 * p50:.1f} ms between them (p50), {1e3 * p99:.1f} ms (p99), {1e3 * gaps[-1]:.0f} ms at the most", flush=True)
    return p99


def peak_bytes(daemon):
    return int(re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{daemon.process.pid}/status").read_text())[1]) << 10


def end_of(daemon):
    began = time.monotonic()
    daemon.terminate()
    daemon.process.wait(DRAIN_S + 60)
    return time.monotonic() - began


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--model")
    parser.add_argument("--attacks", type=lambda text: text.split(","), default=[], help="only these, with commas between")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        settings = [f"server.api_keys_file={key_file(folder)}", "grpc.address=127.0.0.1:0", f"memory.budget_bytes={BUDGET}", "log.access=false",
                    f"server.drain_timeout_s={DRAIN_S}", *([f"model.path={a.model}"] if a.model else [])]
        with Daemon(*settings) as d:
            quiet = together(d.port, (*GOOD, "eve"), 15 * a.minutes)
            p99 = pace(quiet, "quiet")
            results = multiprocessing.Manager().dict()
            eve = multiprocessing.Process(target=attacks.attack, args=(d.port, d.grpc_port, key_of("eve"), PROMPTS[-1], PROMPTS[:len(GOOD)], 45 * a.minutes, a.attacks, results))
            eve.start()
            beside = together(d.port, GOOD, 45 * a.minutes)
            attacked = pace(beside, "beside the attacks")
            peak, took = peak_bytes(d), end_of(d)
            eve.join(60)
    for name, counts in sorted(results.items()):
        print(f"  {name}: {counts}")
    print(f"p99 {attacked / p99:.2f}x the quiet one; memory at most {peak >> 20} of {BUDGET >> 20} MiB; ended {took:.1f} s after SIGTERM", flush=True)
    errors = [error for client in (*quiet, *beside) for error in client.errors]
    texts = {client.prompt: client.texts for client in quiet if client.name in GOOD}
    faults = [f"{len(errors)} answers were refused or lost, first {errors[0]}"] if errors else []
    faults += [f"{client.name} had another answer" for client in beside if not client.texts <= texts[client.prompt]]
    faults += ["the good ones wait too long"] * (attacked > 2 * p99) + ["the memory is beyond the budget"] * (peak > BUDGET)
    faults += ["it ends too late"] * (took > DRAIN_S + 5) + ["a prefix of another key was told"] * results.get("prefixes told", 0)
    sys.exit("; ".join(faults) or 0)


if __name__ == "__main__":
    main()
