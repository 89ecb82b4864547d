"""Speed against memory for a model whose feed-forward weights come from flash, and llama.cpp's mmap beside it.

    python tests/bench/flash_curve.py THERMOCLINE MODEL.gguf [--mode sign] [--llama LLAMA_BENCH] [--svg OUT.svg] [--rounds 2]

MODEL needs its bundle file (thermocline pack). The shares of memory take turns, so that a noisy neighbour hits all alike. llama.cpp runs in a
memory control group with --llama-limit-mb, for instance the file less the share of the feed-forward weights that is left out, and 200 MB; without
repacking, whose copies do not fit; it needs root. Where MODEL is neuron-major, --llama-model names the same shape as llama.cpp reads it.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import tempfile
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")


@contextlib.contextmanager
def memory_group(limit):
    """A control group of version 1 or 2 with this limit; yields the file that takes process ids."""
    first = (GROUPS / "memory").is_dir()
    path = (GROUPS / "memory" if first else GROUPS) / f"thermocline-bench-{os.getpid()}"
    path.mkdir()
    try:
        (path / ("memory.limit_in_bytes" if first else "memory.max")).write_text(str(limit))
        yield path / "cgroup.procs"
    finally:
        path.rmdir()


def bench(binary, model, mode, share, decode):
    out = subprocess.run([binary, "bench", model, "--json", "--prefill", "64", "--decode", str(decode), "--repetitions", "1", "--ffn-mode", mode,
                          "--ffn-memory", str(share)], capture_output=True, text=True)
    if out.returncode != 0:
        return None
    report = json.loads(out.stdout)
    decoded = next(r for r in report["runs"] if r["phase"] == "decode")
    return {"speed": decoded["tokens_per_s"]["median"], "read": report["read_bandwidth_gb_s"], "flash": report.get("flash")}


def llama(binary, model, limit, tokens):
    # Pages that are in the page cache already belong to nobody's limit.
    with open(model, "rb") as file:
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    with memory_group(limit) as procs:
        out = subprocess.run(["sh", "-c", f'echo $$ > {procs} && exec "$0" "$@"', binary, "-m", model, "-t", "2", "-p", "0", "-n", str(tokens), "-r", "1",
                              "--repack", "0", "-o", "json"], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)[0]["avg_ts"]


def draw(path, points, peer, title):
    width, height, left, top = 640, 360, 60, 40
    most = max(speed for _, speed in points) * 1.1
    at = lambda share, speed: (left + share * (width - left - 20), height - 40 - speed / most * (height - 40 - top))
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*p) for p in points))
    marks = "".join(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#1f6fb2"/><text x="{x:.1f}" y="{y - 9:.1f}" text-anchor="middle">{speed:.1f}</text>'
                    for (share, speed) in points for x, y in [at(share, speed)])
    ticks = "".join(f'<text x="{at(s / 10, 0)[0]:.1f}" y="{height - 22}" text-anchor="middle">{10 * s}%</text>' for s in range(2, 11, 2))
    other = ""
    if peer:
        x, y = at(*peer)
        other = (f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#c2571a"/><text x="{x + 8:.1f}" y="{y - 6:.1f}" fill="#c2571a">llama.cpp, mmap: '
                 f'{peer[1]:.2f}</text>')
    Path(path).write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif" font-size="12">'
        f'<rect width="100%" height="100%" fill="white"/><text x="{left}" y="20" font-size="14">{title}</text>'
        f'<path d="M{left},{top} V{height - 40} H{width - 20}" stroke="black" fill="none"/>{ticks}'
        f'<text x="{width / 2}" y="{height - 5}" text-anchor="middle">feed-forward weights in memory</text>'
        f'<text x="14" y="{height / 2}" transform="rotate(-90 14 {height / 2})" text-anchor="middle">tokens a second</text>'
        f'<polyline points="{line}" fill="none" stroke="#1f6fb2" stroke-width="2"/>{marks}{other}</svg>\n')


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("thermocline")
    parser.add_argument("model")
    parser.add_argument("--mode", default="sign")
    parser.add_argument("--shares", default="1,0.8,0.6,0.5,0.4,0.3,0.2")
    parser.add_argument("--decode", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--llama")
    parser.add_argument("--llama-model")
    parser.add_argument("--llama-share", type=float, default=0.5)
    parser.add_argument("--llama-limit-mb", type=float, help="of the control group; required with --llama")
    parser.add_argument("--svg")
    a = parser.parse_args()
    shares = [float(s) for s in a.shares.split(",")]
    samples, peers = {s: [] for s in shares}, []
    for _ in range(a.rounds):
        for share in shares:
            result = bench(a.thermocline, a.model, a.mode, share, a.decode)
            if result:
                samples[share].append(result)
        if a.llama:
            peers.append(llama(a.llama, a.llama_model or a.model, int(a.llama_limit_mb * 1e6), 4))
    print(f"{'memory':>6} {'tokens/s':>9} {'hits':>6} {'MB/token':>9} {'waiting':>8} {'managing':>9} {'placing':>8} {'GB/s read':>10}")
    points = []
    for share in shares:
        if not samples[share]:
            print(f"{share:6.0%}  less than reading from flash itself takes")
            continue
        speed = statistics.median(s["speed"] for s in samples[share])
        points.append((share, speed))
        flash = [s["flash"] for s in samples[share] if s["flash"]]
        figure = lambda key: statistics.median(f[key] for f in flash)
        rest = (f"{figure('hit_rate'):6.1%} {figure('bytes_per_token') / 1e6:9.2f} {figure('wait_share'):8.1%} {figure('manage_share'):9.1%} "
                f"{figure('arrive_share'):8.1%}") if flash else f"{'':43}"
        print(f"{share:6.0%} {speed:9.1f} {rest} {statistics.median(s['read'] for s in samples[share]):10.1f}")
    peer = None
    if peers:
        peer = (a.llama_share, statistics.median(peers))
        ours = dict(points)[a.llama_share]
        print(f"llama.cpp in {a.llama_limit_mb:.0f} MB: {peer[1]:.2f} tokens/s; ours at {a.llama_share:.0%}: {ours / peer[1]:.1f} times that")
    if a.svg:
        with tempfile.NamedTemporaryFile("w", dir=Path(a.svg).parent or ".", delete=False) as f:
            temporary = f.name
        draw(temporary, points, peer, f"{Path(a.model).name}, mode {a.mode}")
        os.replace(temporary, a.svg)


if __name__ == "__main__":
    main()
