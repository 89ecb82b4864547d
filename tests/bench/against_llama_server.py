"""The daemon beside llama-server under the same load: interleaved rounds, medians, ratios.

    python3 tests/bench/against_llama_server.py BIN LLAMA_SERVER MODEL [--users 1 2 4 8 64] [--rounds 3] [--seconds 15]
    python3 tests/bench/against_llama_server.py BIN LLAMA_SERVER MODEL --long 3000 [--users 4]

BIN is the build's folder of programs. MODEL is a GGUF file that both read; `--theirs FILE` names another file for llama-server (a
network whose down projection is stored by neurons is read by Thermocline alone: `thermocline convert --down columns`).
llama-server is built from its source and gets `-np` as many slots as there are users. Both servers are up at the same time, one is
asked at a time, by `thermocline-load` with the same requests: closed loop, random prompts, answers of `--max-tokens` tokens.
The user of an idle server costs nothing, so what else the machine does meets both alike. Before a number of users is measured,
both servers are started anew.

Printed are medians over rounds: of TTFT and of the gaps between chunks (ITL) the median and the 99th percentile, output tokens per
second, and the share of good requests (`--goodput`). `--long N` asks a quarter of long prompts of N tokens, and prints the short
ones' figures.
"""
import argparse
import json
import re
import socket
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path


def ours(a):
    settings = [f"model.path={a.model}", "server.port=0", f"engine.threads={a.threads}", "log.access=false", *a.set]
    daemon = subprocess.Popen([Path(a.bin) / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    url = None
    for line in daemon.stderr:
        if match := re.search(r"listening on (http://[^ ]+:\d+)/", line):
            url = match[1]
        if " ready: " in line:
            return daemon, url
    raise SystemExit("the daemon ended")


def theirs(a, users):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    context = max(1024, (a.long if a.long else a.prompt_tokens) + a.max_tokens + 128)  # the first request, whose tokens are counted, is longer
    server = subprocess.Popen([a.llama_server, "-m", a.theirs or a.model, "--port", str(port), "-np", str(users), "-c", str(context * users),
                               "-t", str(a.threads), "-tb", str(a.threads)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            return server, f"http://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.2)
    server.kill()
    raise SystemExit("llama-server does not answer")


def measure(a, url, users, seed):
    command = [Path(a.bin) / "thermocline-load", url, "-c", str(users), "-d", f"{a.seconds}s", "--prompt-tokens", str(a.prompt_tokens), "--max-tokens",
               str(a.max_tokens), "--ignore-eos", "--goodput", a.goodput, "--warmup", "2", "--seed", str(seed), "--timeout", "600s", "--json"]
    if a.route:
        command += ["--route", a.route]
    if a.long:
        command += ["-w", "long-beside-short", "--share", "0.25", "--long-prompt-tokens", str(a.long)]
    run = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    requests = run["requests"]
    assert requests["ok"] == requests["total"], (requests, run["errors"])
    latency = (run["kinds"]["short"] if a.long else run)["latency"]
    ms = lambda name, p: latency[name][p] * 1e3
    return {"TTFT p50": ms("ttft_s", "p50"), "TTFT p99": ms("ttft_s", "p99"), "ITL p50": ms("itl_s", "p50"), "ITL p99": ms("itl_s", "p99"),
            "tokens/s": run["throughput"]["output_tokens_per_s"], "good": 100 * run["goodput"]["good_fraction"], "requests": requests["ok"]}


def end(process):
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()


def compare(a, users):
    daemon, our_url = ours(a)
    peer, their_url = theirs(a, users)
    try:
        rounds = [(measure(a, our_url, users, seed), measure(a, their_url, users, seed)) for seed in range(1, a.rounds + 1)]
    finally:
        end(daemon)
        end(peer)
    for side, name in enumerate(("thermoclined", "llama-server")):
        row = {key: statistics.median(r[side][key] for r in rounds) for key in rounds[0][side]}
        print(f"| {users} | {name} | {row['TTFT p50']:.1f} / {row['TTFT p99']:.1f} | {row['ITL p50']:.2f} / {row['ITL p99']:.2f} | "
              f"{row['tokens/s']:.1f} | {row['good']:.0f}% |", flush=True)
    ratios = {key: statistics.median(r[0][key] / r[1][key] for r in rounds) for key in rounds[0][0] if key not in ("good", "requests", "ITL p50")}
    print("    ratios of the rounds, medians: " + ", ".join(f"{key} {value:.2f}" for key, value in ratios.items()), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin")
    parser.add_argument("llama_server")
    parser.add_argument("model")
    parser.add_argument("--theirs", help="the file that llama-server reads [MODEL]")
    parser.add_argument("--users", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--long", type=int, default=0, help="tokens of a quarter of the prompts")
    parser.add_argument("--route", help="completions: of models without a chat template, as synth writes them")
    parser.add_argument("--goodput", default="ttft<1s,tpot<50ms")
    parser.add_argument("--set", action="append", default=[], help="a key of the daemon's configuration")
    a = parser.parse_args()
    print("| users | server | TTFT p50 / p99, ms | ITL p50 / p99, ms | tokens/s | good |")
    for users in a.users:
        compare(a, users)


if __name__ == "__main__":
    main()
