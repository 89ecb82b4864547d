"""The modes of the feed-forward network side by side, in interleaved rounds.

    python tests/bench/sparse_modes.py THERMOCLINE COLUMNS.gguf ROWS.gguf [--llama LLAMA_BENCH] [--rounds 5]

COLUMNS and ROWS are one model, with the down projection along columns (the fastest dense layout, and what other
programs read) and neuron-major (what sparse modes read). Memory is not all alike on shared machines, so every
process measures the read bandwidth of its own weights: speeds are also given as the share of it, and as what they would be
at the median of all.
"""
import argparse
import json
import statistics
import subprocess


def bench(binary, model, modes, threads, decode):
    out = json.loads(subprocess.run(
        [binary, "bench", model, "--json", "-t", str(threads), "--prefill", "16", "--decode", str(decode), "--repetitions", "3",
         "--ffn-mode", modes[-1], "--ffn-modes", ",".join(modes)], capture_output=True, check=True).stdout)
    return out["read_bandwidth_gb_s"], {r["phase"]: r for r in out["runs"]}


def llama(binary, model, threads, decode):
    rows = json.loads(subprocess.run([binary, "-m", model, "-t", str(threads), "-p", "0", "-n", str(decode), "-r", "3", "-o", "json"],
                                     capture_output=True, check=True).stdout)
    return max(row["avg_ts"] for row in rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("thermocline")
    parser.add_argument("columns")
    parser.add_argument("rows")
    parser.add_argument("--llama")
    parser.add_argument("--modes", default="dense,exact,sign")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--decode", type=int, default=24)
    a = parser.parse_args()
    samples, reads, peers = {}, [], []
    for _ in range(a.rounds):
        for file, modes in ((a.columns, ["dense"]), (a.rows, a.modes.split(","))):
            read, runs = bench(a.thermocline, file, modes, a.threads, a.decode)
            reads.append(read)
            for name, run in runs.items():
                key = ("columns " if file == a.columns else "rows ") + name
                samples.setdefault(key, []).append((run["tokens_per_s"]["median"], run["bytes_per_token"],
                                                    run["tokens_per_s"]["median"] * run["bytes_per_token"] / 1e9 / read))
        if a.llama:
            peers.append(llama(a.llama, a.columns, a.threads, a.decode))
    read = statistics.median(reads)
    print(f"read bandwidth {min(reads):.1f} to {max(reads):.1f} GB/s, median {read:.1f}")
    print(f"{'':24} {'per second':>10} {'MB':>8} {'share':>6} {'at the median bandwidth':>24} {'to dense':>9}")
    for key, values in samples.items():
        speed, size, share = (statistics.median(v[i] for v in values) for i in range(3))
        phase = key.split(" ", 1)[1]
        even = share * read * 1e9 / size
        base = samples.get("columns " + phase.split(" ")[0] + " dense")
        ratio = ""
        if base:
            ratio = f"{even / (statistics.median(v[2] for v in base) * read * 1e9 / statistics.median(v[1] for v in base)):.2f}"
        print(f"{key:24} {speed:10.1f} {size / 1e6:8.1f} {share:6.0%} {even:24.1f} {ratio:>9}")
    if peers:
        print(f"{'llama.cpp':24} {statistics.median(peers):10.1f}   (min {min(peers):.1f}, max {max(peers):.1f})")


if __name__ == "__main__":
    main()
