"""Claude Code and Codex, unmodified, through whole turns with a call of a tool against the daemon with a real model of 1.5B
parameters. A proxy records what they send. A small model does not always call a tool where it should: then the proxy plays a
call into the first answer, after the daemon has read that prompt, and the test says so."""
import importlib.util
import json
import os
import re
import subprocess
from pathlib import Path

import httpx
import pytest
from recording_proxy import RecordingProxy

BIN = Path(os.environ["THERMOCLINE_BIN"])
MODEL = Path(os.environ["THERMOCLINE_AGENT_MODEL"])
PROMPT = "Read calc.py and say what is wrong with add"
BLOCK = 64  # tokens of a block of the prefix cache


def program(package, path):
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        pytest.skip(f"PyPI has no {package} for this machine")
    found = Path(spec.submodule_search_locations[0]) / path
    assert found.exists(), found
    return str(found)


class Served:
    """The daemon with the model; what it has read outlives it in `folder`, if there is one."""

    def __init__(self, folder=""):
        settings = (f"model.path={MODEL}", "model.aliases=*", "server.port=0", f"prefix_cache.path={folder}")
        self.process = subprocess.Popen([BIN / "thermoclined", *sum((["--set", s] for s in settings), [])], stderr=subprocess.PIPE, text=True)
        self.port, log = None, []
        for line in self.process.stderr:
            log.append(line)
            if match := re.search(r"listening on http://[^ /]+:(\d+)/", line):
                self.port = int(match[1])
            if " ready: " in line:
                break
        assert self.port, "".join(log)

    def end(self):
        self.process.terminate()
        self.process.communicate(timeout=60)
        assert self.process.returncode == 0


@pytest.fixture(scope="module")
def daemon():
    served = Served()
    yield served.port
    served.end()


@pytest.fixture
def home(tmp_path):
    (tmp_path / "work").mkdir()
    (tmp_path / "work/calc.py").write_text("def add(a, b):\n    return a - b\n")
    return tmp_path


def run(command, home, env):
    result = subprocess.run(command, cwd=home / "work", env={"PATH": "/usr/bin:/bin", "HOME": str(home), **env},
                            capture_output=True, text=True, timeout=1500, stdin=subprocess.DEVNULL)
    print(result.stdout[-1500:], result.stderr[-1500:])
    return result


def check(proxy, route, usage):
    """No request was rejected; turn 2 computed at most its new text, the template's end and one block."""
    refused = [(e.method, e.path, e.status, e.answer[:300]) for e in proxy.exchanges if e.status >= 400]
    assert not refused, refused
    # An agent gives up after ten minutes and asks again, which a busy machine makes it do.
    asked, ends = proxy.of(route), ("message_stop", "response.completed", "response.incomplete")
    turns = [turn for turn in asked if turn.daemon_events and turn.daemon_events[-1]["type"] in ends]
    failed = [event for turn in asked for event in turn.daemon_events if event["type"] in ("error", "response.failed")]
    assert not failed, failed
    print(f"{route}: {len(asked) - len(turns)} requests were given up")
    assert len(turns) >= 2, [e.path for e in proxy.exchanges]
    for turn in turns:
        total, cached, written = usage(turn)
        print(f"{route}: {total} tokens of the prompt, {cached} of them cached, {written} written, {turn.seconds:.0f} s, {'played' if turn.played else 'the model'}")
    return turns


def text_tokens(port, text):
    return httpx.post(f"http://127.0.0.1:{port}/tokenize", json={"content": text}).json()["count"]


def new_text(first, second):
    """The messages of the second request that the first did not have, as text."""
    key = "messages" if "messages" in second else "input"
    before, after = first[key], second[key]
    kept = 0
    while kept < len(before) and kept < len(after) and strip(before[kept]) == strip(after[kept]):
        kept += 1
    assert kept == len(before), f"{key}[{kept}] changed between the turns"
    return json.dumps(after[kept:])


def strip(item):
    """A message without the marks that move from turn to turn: of caches, and of the effort. A text with a mark is a list of one."""
    if isinstance(item, list) and len(item) == 1 and isinstance(item[0], dict) and item[0].get("type") == "text":
        return item[0]["text"]
    if isinstance(item, dict):
        return {k: strip(v) for k, v in item.items() if k not in ("cache_control", "output_config")}
    return [strip(each) for each in item] if isinstance(item, list) else item


CALL_OF_CLAUDE = [
    ("message_start", {"message": {"id": "msg_played", "type": "message", "role": "assistant", "model": "m", "content": [],
                                   "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": 1, "output_tokens": 1}}}),
    ("content_block_start", {"index": 0, "content_block": {"type": "tool_use", "id": "toolu_played", "name": "Read", "input": {}}}),
    ("content_block_delta", {"index": 0, "delta": {"type": "input_json_delta", "partial_json": "ARGUMENTS"}}),
    ("content_block_stop", {"index": 0}),
    ("message_delta", {"delta": {"stop_reason": "tool_use", "stop_sequence": None}, "usage": {"output_tokens": 1}}),
    ("message_stop", {}),
]


def stream(events, arguments):
    lines = []
    for kind, body in events:
        data = json.dumps({"type": kind, **body}).replace('"ARGUMENTS"', json.dumps(json.dumps(arguments)))
        lines.append(f"event: {kind}\ndata: {data}\n\n")
    return "".join(lines).encode()


def test_claude_code(daemon, home):
    claude = program("claude_agent_sdk", "_bundled/claude")
    answered = []

    def play(exchange):
        if not exchange.path.startswith("/v1/messages") or "count_tokens" in exchange.path or answered:
            return None
        answered.append(exchange)
        # Whatever else the model calls, a file is to be read.
        if any(e.get("content_block", {}).get("name") == "Read" for e in exchange.events):
            return None
        return stream(CALL_OF_CLAUDE, {"file_path": str(home / "work/calc.py")})

    def usage(turn):
        last = [e["usage"] for e in turn.daemon_events if e["type"] == "message_delta"][-1]
        return last["input_tokens"] + last["cache_read_input_tokens"], last["cache_read_input_tokens"], last["output_tokens"]

    proxy = RecordingProxy(daemon, play)
    result = run([claude, "-p", PROMPT], home,
                 {"ANTHROPIC_BASE_URL": proxy.url, "ANTHROPIC_API_KEY": "x", "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                  "DISABLE_TELEMETRY": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_ERROR_REPORTING": "1"})
    assert result.returncode == 0 and result.stdout.strip(), result
    first, second = check(proxy, "/v1/messages", usage)[:2]
    results = [block for message in second.body["messages"] for block in message["content"] if isinstance(block, dict) and block["type"] == "tool_result"]
    assert results and "return a - b" in json.dumps(results), "the second turn has no result of the call"
    total, cached, _ = usage(second)
    new = text_tokens(daemon, new_text(first.body, second.body))
    assert total - cached <= new + BLOCK + 16, (total, cached, new)
    for path in ("/api/hello", "/api/event_logging/batch"):
        method = httpx.get if path == "/api/hello" else httpx.post
        assert method(f"http://127.0.0.1:{daemon}{path}").status_code == 200
    proxy.close()


CALL_OF_CODEX = [
    ("response.created", {"response": {"id": "resp_played", "object": "response", "status": "in_progress", "output": []}}),
    ("response.output_item.added", {"output_index": 0, "item": {"type": "function_call", "id": "fc_played", "call_id": "call_played",
                                                                "name": "exec_command", "arguments": "", "status": "in_progress"}}),
    ("response.output_item.done", {"output_index": 0, "item": {"type": "function_call", "id": "fc_played", "call_id": "call_played",
                                                               "name": "exec_command", "arguments": "ARGUMENTS", "status": "completed"}}),
    ("response.completed", {"response": {"id": "resp_played", "object": "response", "status": "completed", "output": [],
                                         "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                                                   "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}}}),
]


def usage_of_response(turn):
    last = [e["response"]["usage"] for e in turn.daemon_events if e["type"] in ("response.completed", "response.incomplete")][-1]
    return last["input_tokens"], last["input_tokens_details"]["cached_tokens"], last["output_tokens"]


def codex_session(port, home):
    """Codex answers PROMPT in two turns. Returns the proxy that saw it, and the two."""
    codex = program("codex_cli_bin", "bin/codex")
    answered = []

    def play(exchange):
        if exchange.path != "/v1/responses" or answered:
            return None
        answered.append(exchange)
        if any(e.get("item", {}).get("type") == "function_call" for e in exchange.events):
            return None
        return stream(CALL_OF_CODEX, {"cmd": "cat calc.py"})

    proxy = RecordingProxy(port, play)
    (home / ".codex").mkdir(exist_ok=True)
    (home / ".codex/config.toml").write_text(
        f'model = "{MODEL.stem}"\nmodel_provider = "local"\n[model_providers.local]\nname = "local"\nbase_url = "{proxy.url}/v1"\nwire_api = "responses"\n')
    result = run([codex, "exec", "--skip-git-repo-check", PROMPT], home, {})
    assert result.returncode == 0 and result.stdout.strip(), result
    first, second = check(proxy, "/v1/responses", usage_of_response)[:2]
    proxy.close()
    return first, second


def test_codex(daemon, home):
    first, second = codex_session(daemon, home)
    outputs = [item for item in second.body["input"] if item.get("type") == "function_call_output"]
    assert outputs, "the second turn has no result of the call"
    total, cached, _ = usage_of_response(second)
    new = text_tokens(daemon, new_text(first.body, second.body))
    assert total - cached <= new + BLOCK + 16, (total, cached, new)


def test_codex_after_a_restart(home):
    """A new process reads the first prompt of a second session from flash: all but the part that the session changed, and a block."""
    firsts = []
    for _ in range(2):
        served = Served(home / "prefixes")
        try:
            firsts.append(codex_session(served.port, home)[0])
        finally:
            served.end()
    first, again = firsts
    (cold, _, _), (total, cached, _) = usage_of_response(first), usage_of_response(again)
    print(f"a restart: {cached} of {total} tokens read, {again.seconds:.1f} s; before {first.seconds:.1f} s")
    assert cached > 0.9 * total, (cold, total, cached)
