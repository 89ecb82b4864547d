"""Our speed beside llama.cpp's, or ik_llama.cpp's, on the same files, in interleaved rounds: medians and their ratios.

    python tests/bench/against_llama_bench.py LLAMA_BENCH THERMOCLINE MODEL.gguf... [--threads 1 2] [--rounds 5]
    python tests/bench/against_llama_bench.py IK_LLAMA_BENCH THERMOCLINE MODEL.gguf... --setting="-rtr 1"

Rounds alternate the two programs, so that a noisy machine is noisy to both; each round is one
process of each, of which llama-bench's fastest setting counts (with and without a mapped file).
For one ISA build the peer for it (GGML_NATIVE=OFF and its flags) and add --option=--cpu-isa=avx2.
"""
import argparse
import json
import shlex
import statistics
import subprocess


def ours(binary, model, threads, prefill, decode, options):
    out = json.loads(subprocess.run(
        [binary, "bench", model, "--json", "-t", str(threads), "--prefill", str(prefill), "--decode", str(decode),
         "--repetitions", "2", *options], capture_output=True, check=True).stdout)
    runs = {r["phase"]: r for r in out["runs"]}
    return (runs["prefill"]["tokens_per_s"]["median"], runs["decode"]["tokens_per_s"]["median"],
            out["read_bandwidth_gb_s"], runs["decode"]["bytes_per_token"])


def theirs(binary, model, threads, prefill, decode, settings):
    best = [0.0, 0.0]
    for setting in settings:
        out = subprocess.run(
            [binary, "-m", model, "-t", str(threads), "-p", str(prefill), "-n", str(decode), "-r", "2", "-o", "json",
             *shlex.split(setting)], capture_output=True, check=True).stdout
        for row in json.loads(out[out.index(b"["):]):  # ik_llama.cpp says other things first
            kind = 0 if row["n_prompt"] else 1
            best[kind] = max(best[kind], row["avg_ts"])
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("llama_bench")
    parser.add_argument("thermocline")
    parser.add_argument("models", nargs="+")
    parser.add_argument("--threads", nargs="+", type=int, default=[2])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=24)
    parser.add_argument("--option", action="append", default=[], help="for thermocline bench, e.g. --option=--cpu-isa=avx2")
    parser.add_argument("--setting", action="append", help='options of llama-bench, default "-lm none" and "-lm mmap"')
    a = parser.parse_args()
    settings = a.setting or ["-lm none", "-lm mmap"]
    print(f"{'model':24} {'t':>2} {'prefill':>9} {'theirs':>8} {'ratio':>6} {'decode':>8} {'theirs':>8} {'ratio':>6} "
          f"{'GB/s':>6} {'read':>6} {'share':>6}")
    for model in a.models:
        for threads in a.threads:
            mine, peer = [], []
            for _ in range(a.rounds):
                mine.append(ours(a.thermocline, model, threads, a.prefill, a.decode, a.option))
                peer.append(theirs(a.llama_bench, model, threads, a.prefill, a.decode, settings))
            prefill, decode, read, bytes_per_token = (statistics.median(m[i] for m in mine) for i in range(4))
            peer_prefill, peer_decode = (statistics.median(p[i] for p in peer) for i in range(2))
            ratios = [statistics.median(m[i] / p[i] for m, p in zip(mine, peer)) for i in range(2)]
            share = statistics.median(m[1] * m[3] / 1e9 / m[2] for m in mine)
            print(f"{model.split('/')[-1]:24} {threads:2} {prefill:9.1f} {peer_prefill:8.1f} {ratios[0]:6.2f} {decode:8.1f} "
                  f"{peer_decode:8.1f} {ratios[1]:6.2f} {decode * bytes_per_token / 1e9:6.1f} {read:6.1f} {share:6.0%}",
                  flush=True)


if __name__ == "__main__":
    main()
