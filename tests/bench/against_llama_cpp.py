#!/usr/bin/env python3
"""Compares a GGUF file's greedy text and perplexity with those of llama.cpp.

    python against_llama_cpp.py BIN MODEL [--tokens 200] [--text FILE] [--windows 48]

The interpreter needs llama-cpp-python and numpy.  llama.cpp writes greedily after each prompt; we compute the logits of the same tokens, and
at each position our choice is compared where llama.cpp's two best logits differ by more than --margin.  The perplexity is that of windows of 512 tokens.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import llama_cpp
import numpy

PROMPTS = ("The three largest cities of Italy are", "def fibonacci(n):\n    ", "Once upon a time, in a village by the sea,", "Wasser besteht aus")
WINDOW = 512


def logits_of_llama(llm: llama_cpp.Llama, tokens: list[int]) -> numpy.ndarray:
    llm.reset()
    llm.eval(tokens)
    return llm.scores[:len(tokens)].astype(numpy.float64)


def our_logits(a, tokens: list[int]) -> numpy.ndarray:
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "tokens.json").write_text(json.dumps([tokens]))
        subprocess.run([a.bin / "thermocline", "eval", a.model, "--tokens", f"{folder}/tokens.json", "--logits", f"{folder}/logits.npy", *a.options],
                       check=True, capture_output=True)
        return numpy.load(f"{folder}/logits.npy").astype(numpy.float64)


def greedy(llm: llama_cpp.Llama, prompt: list[int], count: int) -> list[int]:
    llm.reset()
    tokens = list(prompt)
    llm.eval(tokens)
    while len(tokens) < len(prompt) + count:
        tokens.append(int(numpy.argmax(llm.scores[llm.n_tokens - 1])))
        llm.eval(tokens[-1:])
    return tokens


def loss(logits: numpy.ndarray, tokens: list[int]) -> float:
    """The mean negative log-likelihood of the second half of a window, in nats."""
    half = len(tokens) // 2
    rows, following = logits[half - 1:-1], tokens[half:]
    top = rows.max(1, keepdims=True)
    norm = numpy.log(numpy.exp(rows - top).sum(1)) + top[:, 0]
    return float((norm - rows[numpy.arange(len(following)), following]).mean())


def compare_text(a, llm: llama_cpp.Llama) -> int:
    wrong = 0
    for prompt in PROMPTS:
        begin = llm.tokenize(prompt.encode())
        tokens = greedy(llm, begin, a.tokens)
        theirs, ours = (f[len(begin) - 1:-1] for f in (logits_of_llama(llm, tokens), our_logits(a, tokens)))
        best = numpy.sort(theirs, 1)[:, -2:]
        sure = best[:, 1] - best[:, 0] > a.margin
        other = ours.argmax(1) != numpy.array(tokens[len(begin):])
        wrong += int((other & sure).sum())
        print(f"{prompt!r}: {len(other)} tokens, {int(other.sum())} chosen otherwise, {int((other & sure).sum())} of {int(sure.sum())} sure ones; "
              f"logits differ by {numpy.abs(ours - theirs).max():.3f}, in the mean {numpy.abs(ours - theirs).mean():.4f}", flush=True)
    return wrong


def compare_perplexity(a, llm: llama_cpp.Llama) -> float:
    tokens = llm.tokenize(a.text.read_bytes()[:a.windows * WINDOW * 8], add_bos=False)
    windows = [[llm.token_bos(), *tokens[i * (WINDOW - 1):(i + 1) * (WINDOW - 1)]] for i in range(a.windows)]
    theirs, ours = (numpy.exp(numpy.mean([loss(f(window), window) for window in windows]))
                    for f in (lambda w: logits_of_llama(llm, w), lambda w: our_logits(a, w)))
    print(f"perplexity of {a.windows} windows: {ours:.4f}, llama.cpp {theirs:.4f}: {100 * (ours / theirs - 1):+.2f}%")
    return ours / theirs - 1


def main() -> None:
    parser = argparse.ArgumentParser(description="Compares a file's greedy text and perplexity with llama.cpp's.")
    parser.add_argument("bin", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--margin", type=float, default=0.5, help="between the two best logits of a sure choice")
    parser.add_argument("--text", type=Path, default=Path(__file__).parent.parent / "data" / "wikitext2_test.txt")
    parser.add_argument("--windows", type=int, default=48)
    parser.add_argument("--option", dest="options", action="append", default=[], help="for `thermocline eval`, as --option=--kv-type=f32")
    a = parser.parse_args()
    llm = llama_cpp.Llama(str(a.model), n_ctx=1024, n_batch=512, logits_all=True, verbose=False, n_threads=2)
    wrong, difference = compare_text(a, llm), compare_perplexity(a, llm)
    raise SystemExit(f"{wrong} sure tokens and {100 * difference:+.2f}% of perplexity differ" if wrong or abs(difference) > 0.003 else 0)


if __name__ == "__main__":
    main()
