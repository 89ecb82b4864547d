"""Three models in a memory that holds two and a half, and faults: no wrong answer, no refusal but those that docs/several-models.md names.

    build/venv/bin/python tests/chaos/several.py [--minutes 60] [--chat PATH] [--small PATH]

`--chat` and `--small` are what tests/real_models.py fetches (Qwen2.5-Coder 1.5B, Gemma 3 270M); tidepool is the third, and a copy of it is
damaged and mended all the time. Clients ask over OpenAI's API, with streams and without, over Ollama's and over gRPC, for one model after
the other. Meanwhile the daemon is killed and started again, its list changes (SIGHUP), and the disk of its prefix cache fills up. Every text
is compared with that of a daemon that has the model alone. Prints the answers by kind, the memory beside the plans, and how long waking
took beside reading the file; fails for a wrong text, another refusal, and memory beyond the budget.
"""
import argparse
import collections
import json
import os
import random
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "e2e")]
import grpc  # noqa: E402
import httpx  # noqa: E402
from conftest import ROOT, Daemon  # noqa: E402
from grpc_client import chat as grpc_chat, pb, read, stubs  # noqa: E402

PROMPTS = ("Who lives in the sea?", "Tell me a story about an owl.", "What is two and two?", "Name three colours.")
TOKENS = 16
CONTEXT = {"chat": 4096, "small": 2048, "tide": 512, "copy": 512, "extra": 512}
SHARED = ("engine.sequences_max=4",)
# Answers that the rules name: no room beside models that answer, a model that cannot be loaded, and a file that is damaged while it answers.
ALLOWED = ("more than the", "cannot be loaded", "does not exist", "is sleeping", "sleeps", "shutting down", "truncated", "queue")


class Kinds:
    """How often each kind of answer came, and the faults."""

    def __init__(self):
        self.lock, self.counts, self.faults = threading.Lock(), collections.Counter(), []

    def add(self, *kind):
        with self.lock:
            self.counts[kind] += 1

    def fault(self, text):
        with self.lock:
            self.faults.append(text)
        print("FAULT", text, flush=True)


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def openai(d, model, prompt, stream, plain=False):
    ask = {"prompt": prompt} if plain or model == "small" else {"messages": [{"role": "user", "content": prompt}]}
    body = {"model": model, **ask, "max_tokens": TOKENS, "temperature": 0, "stream": stream}
    answer = httpx.post(d.url + ("/v1/completions" if "prompt" in ask else "/v1/chat/completions"), json=body, timeout=180)
    if answer.status_code != 200:
        return answer.status_code, answer.text
    if not stream:
        choice = answer.json()["choices"][0]
        return 200, choice["text"] if "prompt" in ask else choice["message"]["content"]
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    failed = [event["error"]["message"] for event in events if "error" in event]
    if failed:
        return 503, failed[0]
    return 200, "".join(c.get("text") or c.get("delta", {}).get("content") or "" for e in events for c in e["choices"])


def ollama(d, model, prompt):
    ask = {"prompt": prompt, "raw": True} if model == "small" else {"messages": [{"role": "user", "content": prompt}]}
    body = {"model": model, **ask, "stream": False, "options": {"num_predict": TOKENS, "temperature": 0}}
    answer = httpx.post(d.url + ("/api/generate" if "prompt" in ask else "/api/chat"), json=body, timeout=180)
    if answer.status_code != 200:
        return answer.status_code, answer.text
    return 200, answer.json()["response"] if "prompt" in ask else answer.json()["message"]["content"]


def by_grpc(d, model, prompt):
    with grpc.insecure_channel(f"127.0.0.1:{d.grpc_port}") as channel:
        try:
            fields = {"model": model, "stop": pb.Stop(max_tokens=TOKENS), "sampling": pb.Sampling(temperature=0)}
            request = pb.GenerateRequest(text=prompt, **fields) if model == "small" else grpc_chat(prompt, **fields)
            return 200, read(stubs.InferenceStub(channel).Generate(request, timeout=180)).text
        except grpc.RpcError as error:
            return error.code().name, error.details()


WAYS = {"openai": lambda d, m, p: openai(d, m, p, False), "stream": lambda d, m, p: openai(d, m, p, True), "ollama": ollama, "grpc": by_grpc}


class World:
    """The daemon that is killed and started again, its files, and the truths."""

    def __init__(self, a, folder):
        self.folder, self.kinds = Path(folder), Kinds()
        self.copy = self.folder / "copy.gguf"
        self.whole = (ROOT / "config/models/tidepool.gguf").read_bytes()
        self.copy.write_bytes(self.whole)
        self.paths = {"chat": a.chat, "small": a.small, "tide": "tidepool", "copy": str(self.copy), "extra": "tidepool-draft"}
        self.port, self.grpc_port = free_port(), free_port()
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", self.disk], check=True)
        self.truth, self.planned = {}, {}
        for name in self.paths:
            with Daemon(f"model.path={self.paths[name]}", f"engine.context_length={CONTEXT[name]}", *SHARED) as alone:
                self.truth[name] = {prompt: openai(alone, "", prompt, False, plain=name == "small")[1] for prompt in PROMPTS}
                self.planned[name] = alone.admin.get("/v1/status").json()["memory"]["planned_bytes"]
        self.budget = self.planned["chat"] + self.planned["small"] + self.planned["tide"] // 2
        self.config = self.folder / "several.yaml"
        self.write_list(("chat", "small", "tide", "copy"))
        self.daemon, self.down, self.wakes, self.rss = None, threading.Event(), collections.defaultdict(list), []
        self.start()

    def write_list(self, names):
        lines = ["models:"]
        for name in names:
            lines += [f"  - path: {self.paths[name]}", f"    name: {name}", f"    engine: {{context_length: {CONTEXT[name]}}}"]
        fresh = self.config.with_suffix(".new")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.rename(self.config)

    def start(self):
        self.daemon = Daemon(*SHARED, f"server.port={self.port}", f"grpc.address=127.0.0.1:{self.grpc_port}", f"memory.budget_bytes={self.budget}", "log.access=false",
                             f"prefix_cache.path={self.disk}/prefixes", "prefix_cache.bytes=32MiB", config=self.config)
        self.down.clear()

    def take_wakes(self):
        for name, ms in re.findall(r"the model (\S+) is awake after (\d+) ms", self.daemon.text()):
            self.wakes[name].append(int(ms))

    def kill(self):
        self.down.set()
        self.daemon.process.kill()
        self.daemon.process.wait()
        self.take_wakes()
        self.start()


def ask_for(world, way, end):
    rng = random.Random(way)
    while time.monotonic() < end:
        model, prompt = rng.choice(("chat", "small", "small", "tide", "tide", "copy")), rng.choice(PROMPTS)
        daemon = world.daemon
        try:
            status, text = WAYS[way](daemon, model, prompt)
        except (httpx.HTTPError, OSError) as error:
            status, text = "lost", repr(error)
        dead = world.down.is_set() or daemon is not world.daemon
        if status == 200 and text == world.truth[model][prompt]:
            world.kinds.add(way, model, "right")
        elif status == 200:
            world.kinds.fault(f"{way} {model}: {text!r} instead of {world.truth[model][prompt]!r}")
        elif dead or daemon.process.poll() is not None:
            world.kinds.add(way, model, "lost with the daemon")
        elif status != "lost" and any(words in text for words in ALLOWED):
            world.kinds.add(way, model, f"refused: {status}")
            time.sleep(0.5)
        else:
            world.kinds.fault(f"{way} {model}: {status} {text[:300]}")
        time.sleep(rng.uniform(0, 0.4))


def harm(world, end):
    """One fault after the other."""
    rng = random.Random(7)
    while time.monotonic() < end - 20:
        time.sleep(rng.uniform(3, 9))
        what = rng.choice(("kill", "list", "damage", "disk", "disk"))
        if what == "kill":
            world.kill()
        elif what == "list":
            world.write_list(rng.choice((("chat", "small", "tide", "copy"), ("chat", "small", "tide", "copy", "extra"), ("chat", "tide", "small", "copy"))))
            world.daemon.process.send_signal(signal.SIGHUP)
        elif what == "damage":
            fresh = world.copy.with_suffix(".new")
            fresh.write_bytes(world.whole[: len(world.whole) // 2])
            fresh.rename(world.copy)
            world.daemon.admin.post("/models/unload", json={"model": "copy"})
            time.sleep(4)
            fresh.write_bytes(world.whole)
            fresh.rename(world.copy)
        else:
            filler = world.disk / "filler"
            try:
                with open(filler, "wb", buffering=0) as file:
                    while file.write(b"x" * 65536):
                        pass
            except OSError:
                pass
            time.sleep(3)
            filler.unlink(missing_ok=True)
        world.kinds.add("harm", what, "done")


def watch(world, end):
    """Memory each second."""
    while time.monotonic() < end:
        time.sleep(1)
        try:
            status = open(f"/proc/{world.daemon.process.pid}/status").read()
            world.rss.append(int(re.search(r"VmRSS:\s+(\d+)", status)[1]) << 10)
        except (OSError, TypeError):
            pass


def read_ms(path):
    """The time to read a file that lies in the page cache, the least of five."""
    times = []
    for _ in range(5):
        began = time.monotonic()
        with open(path, "rb", buffering=0) as file:
            while file.read(4 << 20):
                pass
        times.append(1e3 * (time.monotonic() - began))
    return min(times)


def report(world):
    for kind, count in sorted(world.kinds.counts.items()):
        print(f"  {' '.join(kind)}: {count}")
    print(f"memory: budget {world.budget >> 20} MiB, resident at most {max(world.rss) >> 20} MiB; plans alone: "
          + ", ".join(f"{name} {bytes_ >> 20}" for name, bytes_ in world.planned.items()))
    for name, times in world.wakes.items():
        ordered = sorted(times)
        path = {"copy": ROOT / "config/models/tidepool.gguf"}.get(name, world.paths[name])
        path = path if os.path.exists(path) else ROOT / f"config/models/{path}.gguf"
        print(f"waking {name}: {len(times)} times, p50 {statistics.median(ordered):.0f} ms, p95 {ordered[len(ordered) * 95 // 100]} ms; its file is read in {read_ms(path):.0f} ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--chat", default=str(ROOT / "build/models/qwen2.5-coder-1.5b.gguf"))
    parser.add_argument("--small", default=str(ROOT / "build/models/gemma3-270m.gguf"))
    a = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="thermocline-several-")
    try:
        world = World(a, folder)
        print(f"budget {world.budget >> 20} MiB", flush=True)
        end = time.monotonic() + 60 * a.minutes
        threads = [threading.Thread(target=ask_for, args=(world, way, end)) for way in WAYS]
        threads += [threading.Thread(target=f, args=(world, end)) for f in (harm, watch)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        world.take_wakes()
        began = time.monotonic()
        world.daemon.terminate()
        code = world.daemon.wait(60)
        print(f"SIGTERM ended it after {time.monotonic() - began:.1f} s with {code}")
    finally:
        subprocess.run(["umount", "-l", f"{folder}/disk"], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    report(world)
    faults = world.kinds.faults + ["the memory is beyond the budget"] * (max(world.rss) > world.budget) + ["it did not end well"] * (code != 0)
    sys.exit("; ".join(faults[:5]) or 0)


if __name__ == "__main__":
    main()
