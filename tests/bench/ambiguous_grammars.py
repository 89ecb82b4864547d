"""How long masks of ambiguous grammars hold the steps of another answer:

    python tests/bench/ambiguous_grammars.py [MODEL.gguf ...] [--rounds N] [--tokens N] [--set key=value ...]

A plain answer streams alone, beside 20 other plain answers, and beside 20 answers that each have an ambiguous grammar of their own.
Prints for each the median and the largest time between two of its pieces of text, in ms, of the round where it is least, because
whatever else the machine does makes it larger. `beyond_quiet_ms` is the largest beside grammars less the median alone: masks, the
others' tokens and their prompts together; `masks_ms_per_step` is the time of their masks alone, of all threads, in a step beside them. The others' share is seen beside plain answers, though grammars change which sequences
share a step, so a difference of the two largest is no bound of a mask's time. Without a MODEL: the built-in one."""
import argparse
import json
import statistics
import sys
import threading
import time
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from conftest import Daemon  # noqa: E402
from daemon_client import value  # noqa: E402

BESIDE = 20
SHAPES = (  # % is a class of characters; some are refused where the ways to read a text grow too fast, and then not counted
    "root ::= s\ns ::= % | s s",
    "root ::= s\ns ::= % | s s | s s s",
    "root ::= s\ns ::= % s? | % % s? | % % % s?",
    "root ::= s\ns ::= % | % s %",
    "root ::= x x x x\nx ::= %*",
    "root ::= (a | b)*\na ::= %+\nb ::= % %*",
    "root ::= s\ns ::= t | t s\nt ::= % | % t %",
    "root ::= s+\ns ::= % | % s",
)


def accepted(url):
    """BESIDE grammars that the daemon takes, no two of one text, and how many shapes it refuses."""
    found, refused = [], set()
    for extra in "0123456789;:!?()*/+=&$#@":
        for shape in SHAPES:
            grammar = shape.replace("%", f"[a-zA-Z ,.{extra}]")
            if shape in refused or len(found) == BESIDE:
                continue
            answer = httpx.post(url + "/completion", json={"prompt": "Once", "n_predict": 1, "grammar": grammar}, timeout=120)
            if answer.status_code == 200:
                found.append(grammar)
            else:
                refused.add(shape)
    assert len(found) == BESIDE, (len(found), refused)
    return found, len(refused)


def gaps(url, tokens):
    """Milliseconds between the pieces of a streamed answer."""
    times = []
    body = {"prompt": "Once upon a time", "n_predict": tokens, "ignore_eos": True, "stream": True, "temperature": 0}
    with httpx.stream("POST", url + "/completion", json=body, timeout=600) as answer:
        assert answer.status_code == 200, answer.read()
        for line in answer.iter_lines():
            if line.startswith("data: "):
                times.append(time.perf_counter() * 1000)
    return [b - a for a, b in zip(times, times[1:])]


def beside(url, tokens, grammars):
    """The same while others answer; None is an answer without a grammar."""
    stop, begun = threading.Event(), threading.Barrier(len(grammars) + 1)

    def other(index):
        begun.wait()
        while not stop.is_set():
            httpx.post(url + "/completion", json={"prompt": "Once upon a time", "n_predict": 40, "ignore_eos": True, "temperature": 0.7, "seed": index,
                                                  **({"grammar": grammars[index]} if grammars[index] else {})}, timeout=600)
    threads = [threading.Thread(target=other, args=(i,)) for i in range(len(grammars))]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        return gaps(url, tokens)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def measure(model, args):
    with Daemon(*([f"model.path={model}"] if model else []), "spec.mode=off", f"engine.sequences_max={BESIDE + 4}", *args.set) as d:
        grammars, refused = accepted(d.url)
        cases = {"quiet": [], "beside_plain": [None] * BESIDE, "beside_grammars": grammars}
        found = {name: [] for name in cases}
        counters = ("grammar_masks_total", "grammar_mask_seconds_total", "shared_steps_total")
        counted = dict.fromkeys(counters, 0)
        for _ in range(args.rounds):
            for name, others in cases.items():
                before = {c: value(d, c) for c in counters}
                found[name].append(beside(d.url, args.tokens, others))
                for c in counters if name == "beside_grammars" else ():
                    counted[c] += value(d, c) - before[c]
        masks, mask_s, steps = counted.values()
        p50 = {name: min(map(statistics.median, rounds)) for name, rounds in found.items()}
        largest = {name: min(map(max, rounds)) for name, rounds in found.items()}
        print(json.dumps({"model": Path(model).name if model else "built-in", "refused_shapes": refused, "p50_ms": {n: round(v, 1) for n, v in p50.items()},
                          "largest_ms": {n: round(v, 1) for n, v in largest.items()}, "beyond_quiet_ms": round(largest["beside_grammars"] - p50["quiet"], 1),
                          "masks": masks, "mask_us": round(mask_s / max(1, masks) * 1e6), "masks_ms_per_step": round(mask_s / max(1, steps) * 1e3, 2)}), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=100)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    for model in args.models or [None]:
        measure(model, args)


if __name__ == "__main__":
    main()
