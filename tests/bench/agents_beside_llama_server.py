"""Recorded sessions of agents, replayed against the daemon and llama-server: the tokens of each prompt, and those that were computed.

    python3 tests/bench/agents_beside_llama_server.py BIN LLAMA_SERVER MODEL [claude] [codex] [aider] [gptme] [--native]

BIN is the build's folder of programs, MODEL a GGUF file with a chat template that both read. The sessions are those of
tests/e2e/test_recorded_sessions.py. Both servers are sent the same chat messages and tools on /v1/chat/completions, to which the
requests of the other APIs are converted (tests/e2e/session_messages.py); --native sends each to its own route, which llama-server must
know. Answers have two tokens. llama-server runs with its own defaults, one slot and --jinja; its prompts have other numbers of tokens,
since it has its own text for tools. No time is measured. With - for LLAMA_SERVER the daemon is asked alone.
"""
import argparse
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))
import session_shapes  # noqa: E402
from session_messages import chat_of, usage_of  # noqa: E402

CONTEXT = 32768


def ours(a):
    settings = (f"model.path={a.model}", "model.aliases=*", "server.port=0", "log.access=false")
    daemon = subprocess.Popen([a.bin / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
    url = None
    for line in daemon.stderr:
        if match := re.search(r"listening on (http://[^ /]+:\d+)", line):
            url = match[1]
        if " ready: " in line:
            return daemon, url
    raise SystemExit("the daemon ended")


def theirs(a):
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port = s.getsockname()[1]
    server = subprocess.Popen([a.llama_server, "-m", a.model, "--port", str(port), "-np", "1", "-c", str(CONTEXT), "--jinja"],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(600):
        if server.poll() is not None:
            break
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5)
            return server, f"http://127.0.0.1:{port}"
        except OSError:
            time.sleep(0.2)
    server.kill()
    raise SystemExit("llama-server does not answer")


def end(process):
    process.terminate()
    try:
        process.wait(60)
    except subprocess.TimeoutExpired:
        process.kill()


def ask(url, route, body, native):
    """Tokens of the prompt, and those that were computed."""
    sent = body if native else chat_of(route, body)
    route = route if native else "/v1/chat/completions"
    limit = "max_output_tokens" if route == "/v1/responses" else "max_tokens"
    sent = {**sent, "model": "model", "stream": False, limit: 2}
    sent.pop("stream_options", None)
    request = urllib.request.Request(url + route, json.dumps(sent).encode(), {"content-type": "application/json"})
    try:
        answer = json.loads(urllib.request.urlopen(request, timeout=1800).read())
    except urllib.error.HTTPError as error:
        raise SystemExit(f"{url}{route} answers {error.code}: {error.read()[:500].decode(errors='replace')}")
    total, cached = usage_of(route, answer)
    return total, total - cached


def replay(url, agent, native):
    return [ask(url, route, body, native) for route, body in session_shapes.requests(session_shapes.load(agent))]


def print_table(agent, names, rows):
    """`rows`: for each server its (prompt, computed) of each turn."""
    print(f"\n{agent:8}{'turn':>6}" + "".join(f"{name + ' prompt':>24}{'computed':>10}" for name in names))
    for turn, numbers in enumerate(zip(*rows), 1):
        print(f"{'':8}{turn:6}" + "".join(f"{prompt:24}{computed:10}" for prompt, computed in numbers))
    print(f"{'':8}{'all':>6}" + "".join(f"{sum(p for p, _ in row):24}{sum(c for _, c in row):10}" for row in rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bin", type=Path)
    parser.add_argument("llama_server")
    parser.add_argument("model")
    parser.add_argument("agents", nargs="*", default=list(session_shapes.AGENTS))
    parser.add_argument("--native", action="store_true")
    a = parser.parse_args()
    starts = {"thermocline": ours} if a.llama_server == "-" else {"thermocline": ours, "llama-server": theirs}
    for agent in a.agents:
        rows = []
        for start in starts.values():
            process, url = start(a)
            try:
                rows.append(replay(url, agent, a.native))
            finally:
                end(process)
        print_table(agent, list(starts), rows)


if __name__ == "__main__":
    main()
