"""The first token after a restart: a prompt computed, found in memory, and read from flash (prefix_cache.path).

    python3 tests/bench/restart.py BIN MODEL [--tokens 1024,8192,32000] [--folder FOLDER] [--set KEY=VALUE ...]

Each length: a daemon computes the prompt (cold), is asked again (memory), is restarted with the files out of the page cache (flash), and
asked again. Answers are compared by their log probabilities. The folder's disk is what is measured.
"""
import argparse
import os
import pathlib
import random
import sys
import tempfile
import time

import httpx

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "e2e"))

WORDS = "the river ran below old stones where nobody had walked since morning and a grey heron waited for fish".split()


def ask(d, prompt):
    begin = time.monotonic()
    answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0, "logprobs": 1}, timeout=3600).json()
    seconds = time.monotonic() - begin
    return seconds, answer["choices"][0]["logprobs"]["token_logprobs"], answer["timings"]


def settle(folder):
    """Waits until nothing more is written, and drops the files from the page cache."""
    size = lambda: sum(file.stat().st_size for file in folder.iterdir())  # noqa: E731
    last = -1
    while size() != last:
        last = size()
        time.sleep(2)
    for file in folder.iterdir():
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)
    return last


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("bin")
    options.add_argument("model")
    options.add_argument("--tokens", default="1024,8192")
    options.add_argument("--folder", default=None)
    options.add_argument("--set", action="append", default=[])
    o = options.parse_args()
    os.environ["THERMOCLINE_BIN"] = o.bin
    from conftest import Daemon
    print("| tokens | cold s | memory s | flash s | of cold | read MB/s | equal |\n|---|---|---|---|---|---|---|")
    for tokens in map(int, o.tokens.split(",")):
        with tempfile.TemporaryDirectory(dir=o.folder) as folder:
            rng = random.Random(tokens)
            asked = (f"model.path={o.model}", f"engine.context_length={tokens + 64}", f"prefix_cache.path={folder}/kv", "log.access=false", "server.request_timeout_s=0", *o.set)
            with Daemon(*asked) as d:
                vocabulary = [t for word in WORDS for t in httpx.post(d.url + "/tokenize", json={"content": " " + word}).json()["tokens"]]
                prompt = [rng.choice(vocabulary) for _ in range(tokens)]
                cold, bits, _ = ask(d, prompt)
                memory, again, _ = ask(d, prompt)
            size = settle(pathlib.Path(folder) / "kv")
            with Daemon(*asked) as d:
                flash, restored, timings = ask(d, prompt)
            rate = size / 1e6 / (timings.get("restore_ms", 0) / 1000 or float("nan"))
            equal = bits == again == restored
            print(f"| {tokens:,} | {cold:.2f} | {memory:.3f} | {flash:.3f} | {100 * flash / cold:.1f}% | {rate:,.0f} | {'yes' if equal else 'NO'} |", flush=True)


if __name__ == "__main__":
    main()
