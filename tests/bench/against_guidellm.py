"""thermocline-load beside GuideLLM in the same closed loop against one daemon: what each measures, and the ratios.

    python3 -m venv guidellm && guidellm/bin/pip install guidellm     # or, without torch, as below
    python tests/bench/against_guidellm.py BIN MODEL guidellm/bin/guidellm [--users 2] [--requests 200]

Both tools ask at the same time, each with as many users, so that what else the machine does meets both alike; of ours the
requests count that ran wholly while GuideLLM measured. Prompts are of one kind (random words, none twice, so that the prefix
cache helps nobody). Answers have a random number of tokens: of equal ones the tools' requests would fall into step, and one
tool's would always begin in the other's prefill. The daemon has one thread and does not speculate. Compared are

    TTFT        mean of the first content token's time since sending
    ITL         sum of (last chunk - first chunk) / sum of (tokens - 1): GuideLLM's definition, from our raw log
    TPOT        sum of (last chunk - sending) / sum of tokens: likewise, it includes the first token
    E2E         mean of the end's time since sending
    requests/s  requests that ended in the time / the time

GuideLLM is a Python program: below some milliseconds a token it measures itself. Choose a model that takes longer.

GuideLLM reads its prompts by torch's DataLoader, of which it needs no more than iteration. Where torch is not installed
(`pip install --no-deps guidellm`, then its other requirements and jinja2 by hand), a stand-in of a few lines serves.
"""
import argparse
import json
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

WORDS = "the a and river stone house bird owl fox tree wind rain sun moon star night day road field garden door key lamp book".split()
STAND_IN = {
    "__init__.py": "from . import nn, utils\nclass Tensor: pass\nclass Generator:\n    def manual_seed(self, seed): return self\n",
    "nn/__init__.py": "class Module: pass\n",
    "utils/__init__.py": "from . import data\n",
    "utils/data/__init__.py": "from .dataloader import DataLoader\nfrom .dataset import IterableDataset\ndef get_worker_info(): return None\n",
    "utils/data/dataset.py": "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass IterableDataset(Generic[T]): pass\n",
    "utils/data/dataloader.py": "from typing import Generic, TypeVar\nT = TypeVar('T')\nclass DataLoader(Generic[T]):\n"
                                "    def __init__(self, dataset, collate_fn, **unused): self.dataset, self.collate = dataset, collate_fn\n"
                                "    def __iter__(self): return (self.collate([item]) for item in self.dataset)\n"}


def start(binary, model):
    settings = (f"model.path={model}", "server.port=0", "spec.mode=off", "engine.threads=1", "log.access=false")
    daemon = subprocess.Popen([f"{binary}/thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    port = None
    for line in daemon.stderr:
        if match := re.search(r"listening on http://[^ ]+:(\d+)/", line):
            port = int(match[1])
        if " ready: " in line:
            return daemon, f"http://127.0.0.1:{port}"
    raise SystemExit("the daemon ended")


def write_prompts(path, count, words, tokens, seed):
    r, lengths = random.Random(seed), random.Random(7)  # other words, the same lengths
    with open(path, "w") as f:
        for _ in range(count):
            n = lengths.randint(tokens // 2, 3 * tokens // 2)
            f.write(json.dumps({"prompt": " ".join(r.choice(WORDS) for _ in range(words)), "max_tokens": n, "output_tokens_count": n}) + "\n")


def summary(requests, window):
    """Of (begin, first chunk, last chunk, end, tokens), in ms and requests/s."""
    mean = statistics.mean
    return {"TTFT": mean((f - b) * 1e3 for b, f, _, _, _ in requests),
            "ITL": sum(r[2] - r[1] for r in requests) * 1e3 / sum(r[4] - 1 for r in requests),
            "TPOT": sum(r[2] - r[0] for r in requests) * 1e3 / sum(r[4] for r in requests),
            "E2E": mean((end - b) * 1e3 for b, _, _, end, _ in requests),
            "requests/s": len([r for r in requests if r[3] <= window[1]]) / (window[1] - window[0]),
            "requests": len(requests)}


def begin_ours(a, url, folder):
    return subprocess.Popen([f"{a.bin}/thermocline-load", url, "-c", str(a.users), "-d", "1h", "--dataset", folder / "ours.jsonl", "--ignore-eos",
                             "--raw", folder / "raw.jsonl", "--json"], stdout=subprocess.PIPE)


def end_ours(process, folder):
    process.send_signal(signal.SIGINT)
    zero = json.loads(process.communicate(timeout=60)[0])["began_unix_s"]
    rows = [json.loads(line) for line in (folder / "raw.jsonl").read_text().splitlines()]
    return [(zero + r["t_sent"], zero + r["t_first_content"], zero + r["t_chunks"][-1], zero + r["t_last"], r["output_tokens"])
            for r in rows if r["outcome"] == "ok"]


def theirs(a, url, model, folder, env):
    out = folder / "guidellm.json"
    subprocess.run([a.guidellm, "run", "--backend", f"kind=openai_http,target={url},model={model},validate_backend=false", "--profile",
                    f"kind=concurrent,streams={a.users}", "--constraint", f"kind=max_requests,count={a.requests}", "--data",
                    f"kind=json_file,path={folder / 'theirs.jsonl'}", "--output", f"kind=json,path={out}", "--disable-console"],
                   check=True, env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    benchmark = json.loads(out.read_text())["benchmarks"][0]
    rows = []
    for r in benchmark["requests"]["successful"]:
        t = r["info"]["timings"]
        rows.append((t["request_start"], t["first_token_iteration"], t["last_token_iteration"], t["request_end"], r["output_tokens"]))
    # Its own summary says the same.
    window = min(r[0] for r in rows), max(r[3] for r in rows)
    result = summary(rows, window)
    for name, key in (("TTFT", "time_to_first_token_ms"), ("ITL", "inter_token_latency_ms"), ("TPOT", "time_per_output_token_ms")):
        mean = benchmark["metrics"][key]["successful"]["mean"]
        if abs(mean / result[name] - 1) > 0.02:
            print(f"GuideLLM's own summary has {name} {mean:.3f}, its requests {result[name]:.3f}", file=sys.stderr)
    return result, window


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin")
    parser.add_argument("model")
    parser.add_argument("guidellm")
    parser.add_argument("--users", type=int, default=2)
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--words", type=int, default=40)
    parser.add_argument("--tokens", type=int, default=32)
    a = parser.parse_args()
    a.guidellm = str(Path(a.guidellm).absolute())
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = {**os.environ, "HF_HUB_OFFLINE": "1"}
        if subprocess.run([str(Path(a.guidellm).with_name("python")), "-c", "import torch"], capture_output=True).returncode != 0:
            for path, text in STAND_IN.items():
                (folder / "stand-in/torch" / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / "stand-in/torch" / path).write_text(text)
            env["PYTHONPATH"] = str(folder / "stand-in")
        daemon, url = start(a.bin, a.model)
        try:
            model = json.loads(subprocess.run(["curl", "-s", url + "/v1/models"], capture_output=True, check=True).stdout)["data"][0]["id"]
            write_prompts(folder / "theirs.jsonl", a.requests + 2 * a.users, a.words, a.tokens, 1)
            write_prompts(folder / "ours.jsonl", 20 * a.requests, a.words, a.tokens, 2)
            process = begin_ours(a, url, folder)
            try:
                their, window = theirs(a, url, model, folder, env)
            finally:
                rows = end_ours(process, folder)
        finally:
            daemon.terminate()
            daemon.wait(30)
    our = summary([r for r in rows if r[0] >= window[0] and r[3] <= window[1]], window)
    our["requests/s"] = len([r for r in rows if window[0] < r[3] <= window[1]]) / (window[1] - window[0])
    print(f"{a.users} users each, prompts of {a.words} words, answers of about {a.tokens} tokens, {window[1] - window[0]:.0f} s; ms, means")
    print(f"{'':12} {'thermocline-load':>16} {'GuideLLM':>10} {'ratio':>7}")
    for key in our:
        print(f"{key:12} {our[key]:16.3f} {their[key]:10.3f} {our[key] / their[key]:7.3f}")


if __name__ == "__main__":
    main()
