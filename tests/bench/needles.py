#!/usr/bin/env python3
"""Whether keys and values in fewer bits still find single facts in a long prompt: the answers with each KV type beside those with f16.

    python3 tests/bench/needles.py BIN MODEL [--tokens 30000] [--kv-types f16 q8_0]

A fact is a sentence with a number, at a tenth, at half and at nine tenths of a book; the question for it follows the book, so that only the
first question of a type reads the prompt. Greedy. Ends with 1 if a type answers otherwise than the first.
"""
import argparse
import re
import subprocess
import tempfile
import time
from pathlib import Path

import httpx

BOOK = Path(__file__).resolve().parents[1] / "data" / "wizard_of_oz.txt"
FACTS = {0.1: ("Milan", 48213), 0.5: ("Oslo", 71960), 0.9: ("Quito", 35874)}
BYTES_PER_TOKEN = 4.07  # of the book, with Qwen's vocabulary


def prompt(tokens):
    text = BOOK.read_text()[:int(tokens * BYTES_PER_TOKEN)]
    for depth, (city, number) in sorted(FACTS.items(), reverse=True):
        at = text.rindex(".", 0, int(depth * len(text))) + 1
        text = f"{text[:at]} The secret number of {city} is {number}.{text[at:]}"
    return "Here is a book.\n\n" + text + "\n\nThe book ends here. "


def answers(binary, model, kv_type, tokens):
    with tempfile.TemporaryDirectory() as folder:
        log = open(f"{folder}/log", "w+")
        daemon = subprocess.Popen([binary / "thermoclined", "--set", "server.port=0", "--set", f"model.path={model}", "--set", f"engine.kv_type={kv_type}",
                                   "--set", f"engine.context_length={tokens + 2000}", "--set", "spec.mode=off"], stderr=log)
        try:
            url = address(daemon, f"{folder}/log")
            out = []
            for city, _ in FACTS.values():
                began = time.monotonic()
                body = {"messages": [{"role": "user", "content": prompt(tokens) + f"What is the secret number of {city}? Answer with the number alone."}],
                        "temperature": 0, "max_tokens": 12}
                answer = httpx.post(url + "/v1/chat/completions", json=body, timeout=3600).raise_for_status().json()
                usage = answer["usage"]
                out.append(answer["choices"][0]["message"]["content"].strip())
                print(f"{kv_type} {city}: {out[-1]!r}, {usage['prompt_tokens']} tokens, {usage['prompt_tokens_details']['cached_tokens']} cached, "
                      f"{time.monotonic() - began:.0f} s", flush=True)
            return out
        finally:
            daemon.terminate()
            daemon.wait(60)


def address(daemon, log):
    """Waits until the daemon is ready."""
    while daemon.poll() is None:
        text = Path(log).read_text()
        if " ready: " in text:
            return f"http://127.0.0.1:{re.search(r'listening on http://[^ ]+:([0-9]+)/', text)[1]}"
        time.sleep(0.2)
    raise SystemExit("the daemon ended:\n" + Path(log).read_text())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin", type=Path)
    parser.add_argument("model")
    parser.add_argument("--tokens", type=int, default=30000)
    parser.add_argument("--kv-types", nargs="+", default=["f16", "q8_0"])
    a = parser.parse_args()
    got = {kv_type: answers(a.bin, a.model, kv_type, a.tokens) for kv_type in a.kv_types}
    for kv_type, out in got.items():
        right = sum(str(number) in answer for answer, (_, number) in zip(out, FACTS.values(), strict=True))
        print(f"{kv_type}: {right} of {len(FACTS)} right, {'equal to' if out == got[a.kv_types[0]] else 'other than'} {a.kv_types[0]}'s")
    raise SystemExit(any(out != got[a.kv_types[0]] for out in got.values()))


if __name__ == "__main__":
    main()
