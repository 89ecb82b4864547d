"""How long a sleeping model takes to wake, beside reading its file: the file in the page cache, and read from the disk.

    build/venv/bin/python tests/bench/wake.py BIN MODEL [--times 10]

BIN is a folder with thermoclined. The model is the second of a daemon with tidepool; it is put to sleep and asked for one token, again and
again. For the disk the page cache is emptied first, which needs root. Prints medians and the 95th percentile in milliseconds.
"""
import argparse
import mmap
import os
import re
import sys
import tempfile
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[1] / "e2e")]
import httpx  # noqa: E402
from conftest import Daemon, wait_until  # noqa: E402

BLOCK = 4 << 20


def read_ms(path, direct):
    """The time to read the file once; `direct`: past the page cache."""
    file = os.open(path, os.O_RDONLY | (os.O_DIRECT if direct else 0))
    buffer = mmap.mmap(-1, BLOCK)
    began = time.monotonic()
    while os.readv(file, [buffer]) > 0:
        pass
    os.close(file)
    return 1e3 * (time.monotonic() - began)


def drop_cache():
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("1")


def wakes(d, times, cold):
    """Milliseconds of each wake, and from the request to its answer."""
    begun = len(re.findall(r"chat is awake", d.text()))
    answers = []
    for _ in range(times):
        d.admin.post("/models/unload", json={"model": "chat"})
        wait_until(lambda: d.admin.get("/health/ready").json()["models"]["chat"] == "sleeping", 30)
        if cold:
            drop_cache()
        began = time.monotonic()
        answer = httpx.post(d.url + "/v1/completions", json={"model": "chat", "prompt": "x", "max_tokens": 1}, timeout=300)
        assert answer.status_code == 200, answer.text
        answers.append(1e3 * (time.monotonic() - began))
    wait_until(lambda: len(re.findall(r"chat is awake", d.text())) >= begun + times, 30)
    return [int(ms) for ms in re.findall(r"chat is awake after (\d+) ms", d.text())][begun:], answers


def line(label, values):
    ordered = sorted(values)
    print(f"{label}: median {ordered[len(ordered) // 2]:.0f} ms, p95 {ordered[min(len(ordered) * 95 // 100, len(ordered) - 1)]:.0f} ms", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--times", type=int, default=10)
    a = parser.parse_args()
    model = a.model.resolve()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "wake.yaml"
        path.write_text(f"models:\n  - path: tidepool\n    name: tide\n  - path: {model}\n    name: chat\n    engine: {{context_length: 4096}}\n")
        with Daemon(config=path, program=a.bin / "thermoclined") as d:
            httpx.post(d.url + "/v1/completions", json={"model": "chat", "prompt": "x", "max_tokens": 1}, timeout=300)
            for label, cold in (("page cache", False), ("disk", True)):
                reads = []
                for _ in range(3):
                    read_ms(model, False)
                    reads.append(read_ms(model, direct=cold))
                line(f"{label}: reading {model.stat().st_size >> 20} MiB", reads)
                awake, answers = wakes(d, a.times, cold)
                line(f"{label}: awake", awake)
                line(f"{label}: answered", answers)


if __name__ == "__main__":
    main()
