"""How many prompt tokens a turn of a long conversation computes: with attention alone, and with recurrent layers.

    build/venv/bin/python tests/bench/conversation.py [--turns 20] [--new 300] [--before 8000] [--answer 64]

A random model of each kind of mixer (`thermocline synth`) continues a conversation of token ids: 8,000 tokens, then turns of 300 new
ones behind each answer. A turn should compute its new tokens and at most one block of 64. Prints a row for each model; fails if a turn
computes more. Recorded results: docs/benchmarks.md.
"""
import argparse
import random
import sys
import tempfile
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from conftest import Daemon, run  # noqa: E402

BLOCK = 64
SHAPE = ["--layers", 4, "--hidden-size", 256, "--heads", 4, "--kv-heads", 2, "--intermediate-size", 512, "--vocab", 2000, "--type", "q8_0"]
STATES = ["--state-heads", 8, "--state-key-heads", 2, "--state-key-dim", 32, "--state-value-dim", 32]
MIXERS = {"attention": [], "delta-net": STATES, "mamba2": STATES, "conv": STATES}


def turns(daemon, a):
    """(computed, new) prompt tokens of each turn, and the seconds until the first and the later answers' first tokens."""
    draw = random.Random(1)
    new = lambda count: [draw.randrange(100, 1900) for _ in range(count)]  # noqa: E731
    history, added, counts, seconds = [], new(a.before), [], []
    for _ in range(a.turns + 1):
        history += added
        body = {"prompt": history, "n_predict": a.answer, "temperature": 0, "ignore_eos": True, "return_tokens": True}
        answer = httpx.post(daemon.url + "/completion", json=body, timeout=600).raise_for_status().json()
        seconds.append(answer["timings"]["prompt_ms"] / 1e3)
        counts.append((answer["timings"]["prompt_n"], len(added)))
        history += answer["tokens"]
        added = new(a.new)
    return counts, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("turns", 20), ("new", 300), ("before", 8000), ("answer", 64)):
        parser.add_argument(f"--{name}", type=int, default=default)
    a = parser.parse_args()
    context = a.before + a.turns * (a.new + a.answer) + 2 * BLOCK + a.answer
    faults = []
    print("| mixer | prompt tokens computed, first turn | later turns, at most | of a turn's new tokens | prompt, first turn, s | later, at most, s |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for mixer, more in MIXERS.items():
            model = Path(folder) / f"{mixer}.gguf"
            run("synth", model, *SHAPE, *(["--mixer", mixer] if more else []), *more, "--context", context)
            with Daemon(f"model.path={model}", f"engine.context_length={context}", "log.access=false") as d:
                counts, seconds = turns(d, a)
            most = max(computed for computed, _ in counts[1:])
            print(f"| {mixer} | {counts[0][0]} | {most} | {a.new} | {seconds[0]:.2f} | {max(seconds[1:]):.2f} |", flush=True)
            faults += [f"{mixer}: a turn computed {most} tokens for {a.new} new ones"] * (most > a.new + BLOCK)
    sys.exit("\n".join(faults) or 0)


if __name__ == "__main__":
    main()
