"""What serving costs: a stream's tokens and its first one beside the engine's own times, in interleaved rounds.

    python tests/bench/serving.py BIN MODEL [--tokens 400] [--rounds 7] [--threads 1]

Each round asks the daemon for one answer, over HTTP with server-sent events, and runs `thermocline run`
on the same prompt with the same settings. Per token: (time from the first to the last byte of tokens at
the client) / (tokens - 1), less the bare engine's; medians over rounds. First token: from sending the
request to its first token's bytes, less the engine's own prefill (`timings.prompt_ms`).
"""
import argparse
import json
import re
import socket
import statistics
import subprocess
import time


def start(binary, model, threads):
    daemon = subprocess.Popen(
        [f"{binary}/thermoclined", *sum((["--set", s] for s in (f"model.path={model}", "server.port=0", "spec.mode=off", f"engine.threads={threads}",
                                                                "prefix_cache.memory=0MiB", "log.access=false")), [])],
        stderr=subprocess.PIPE, text=True)
    port = None
    for line in daemon.stderr:
        if match := re.search(r"listening on http://[^ ]+:(\d+)/", line):
            port = int(match[1])
        if " ready: " in line:
            return daemon, port
    raise SystemExit("the daemon ended")


def ask(s, prompt, tokens):
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
                       "stream_options": {"include_usage": True}}).encode()
    sent = time.perf_counter()
    s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    pieces = []
    while not pieces or not pieces[-1][1].endswith(b"\r\n0\r\n\r\n"):
        piece = s.recv(1 << 20)
        assert piece, b"".join(p for _, p in pieces)[-500:]
        pieces.append((time.perf_counter(), piece))
    text = b"".join(p for _, p in pieces)
    assert text.startswith(b"HTTP/1.1 200"), text.decode()
    with_tokens = [at for at, p in pieces if re.search(rb'"text":"[^"]', p)]
    timings = json.loads(re.search(rb'"timings":(\{[^}]*\})', text)[1])
    assert timings["predicted_n"] == tokens
    return {"first_ms": (with_tokens[0] - sent) * 1e3, "token_ms": (with_tokens[-1] - with_tokens[0]) * 1e3 / (tokens - 1),
            "prompt_ms": timings["prompt_ms"], "engine_token_ms": timings["predicted_ms"] / (tokens - 1)}


def bare(binary, model, prompt, tokens, threads):
    out = json.loads(subprocess.run([f"{binary}/thermocline", "run", model, "-p", prompt, "-n", str(tokens), "--temperature", "0", "--ignore-eos",
                                     "--threads", str(threads), "--json"], capture_output=True, check=True).stdout)
    assert out["completion_tokens"] == tokens
    return out["timings"]["decode_s"] * 1e3 / (tokens - 1)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("bin")
    parser.add_argument("model")
    parser.add_argument("--prompt", default="Once upon a time")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    a = parser.parse_args()
    daemon, port = start(a.bin, a.model, a.threads)
    try:
        s = socket.create_connection(("127.0.0.1", port), timeout=120)
        ask(s, a.prompt, 8)
        served, alone = [], []
        for _ in range(a.rounds):
            served.append(ask(s, a.prompt, a.tokens))
            alone.append(bare(a.bin, a.model, a.prompt, a.tokens, a.threads))
    finally:
        daemon.terminate()
        daemon.wait(30)
    median = lambda key: statistics.median(r[key] for r in served)
    engine = statistics.median(alone)
    over = [r["token_ms"] - b for r, b in zip(served, alone)]
    first = [r["first_ms"] - r["prompt_ms"] for r in served]
    print(f"token: served {median('token_ms'):.4f} ms, engine in the daemon {median('engine_token_ms'):.4f} ms, bare {engine:.4f} ms")
    print(f"overhead per token: {statistics.median(over):+.4f} ms over the bare engine (rounds {min(over):+.4f} to {max(over):+.4f})")
    print(f"overhead of the first token: {statistics.median(first):.3f} ms beyond the prefill (rounds {min(first):.3f} to {max(first):.3f})")


if __name__ == "__main__":
    main()
