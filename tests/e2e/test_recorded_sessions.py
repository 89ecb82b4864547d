"""Recorded sessions of real agents (tests/data/agents, made by tests/clients/record_sessions.py), replayed with synthetic text of the
same shape. A turn computes the tokens that no earlier prompt of the session begins with, and at most one block more. Which tokens are
new is found without the server's cache: both prompts are rendered by /apply-template, as messages and tools that this file converts
from each API, and compared token by token. The conversion is right if it has as many tokens as the server counts."""
import httpx
import pytest
import session_shapes
from conftest import Daemon
from gguf_copy import copy
from session_messages import chat_of, usage_of

BLOCK = 64  # tokens of a block of the prefix cache
REUSED = {"claude": 0.8, "codex": 0.8, "aider": 0.4, "gptme": 0.8}  # of all prompts' tokens, at least


@pytest.fixture(scope="module")
def daemon(smollm, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("model") / "quick.gguf")
    copy(smollm, path, layers=1, fields={"llama.context_length": 32768})
    with Daemon(f"model.path={path}", "model.aliases=*") as d:
        yield d


def post(daemon, route, body):
    answer = httpx.post(daemon.url + route, json=body, timeout=300)
    assert answer.status_code == 200, (route, answer.status_code, answer.text[:500])
    return answer.json()


def short(route, body):
    """The request with an answer of two tokens, in one piece."""
    limit = {"/v1/responses": "max_output_tokens"}.get(route, "max_tokens")
    kept = {name: value for name, value in body.items() if name not in ("stream", "stream_options", "max_tokens")}
    return {**kept, limit: 2}


def prompt_tokens(daemon, route, body):
    prompt = post(daemon, "/apply-template", chat_of(route, body))["prompt"]
    return post(daemon, "/tokenize", {"content": prompt, "parse_special": True})["tokens"]


def common(first, second):
    return next((i for i, (a, b) in enumerate(zip(first, second)) if a != b), min(len(first), len(second)))


@pytest.mark.parametrize("agent", session_shapes.AGENTS)
def test_a_turn_computes_what_is_new(agent, daemon):
    before, rows = [], []
    for route, body in session_shapes.requests(session_shapes.load(agent)):
        tokens = prompt_tokens(daemon, route, body)
        total, cached = usage_of(route, post(daemon, route, short(route, body)))
        assert total == len(tokens), f"turn {len(rows) + 1}: the server counts {total} tokens, this test {len(tokens)}"
        new = total - max((common(each, tokens) for each in before), default=0)
        rows.append((total, cached, new))
        before.append(tokens)
    print(f"\n{agent:8}" + "".join(f"{name:>10}" for name in ("turn", "prompt", "cached", "computed", "new")))
    for turn, (total, cached, new) in enumerate(rows, 1):
        print(" " * 8 + "".join(f"{number:10}" for number in (turn, total, cached, total - cached, new)))
    assert len(rows) >= 5
    late = [(turn, row) for turn, row in enumerate(rows, 1) if row[0] - row[1] > row[2] + BLOCK]
    assert not late, f"turns that computed more than the new tokens and a block (prompt, cached, new): {late}"
    assert sum(row[1] for row in rows) >= REUSED[agent] * sum(row[0] for row in rows), "the session is no test of reuse"


@pytest.mark.parametrize("agent", session_shapes.AGENTS)
def test_a_recording_has_no_words_of_the_agent(agent):
    strange = session_shapes.strange_strings(session_shapes.load(agent))
    assert not strange, f"neither a public API's nor neutral: {sorted(set(strange))[:20]}"
    assert (session_shapes.FOLDER / f"{agent}.json").stat().st_size <= 200_000


def test_words_in_a_recording_are_found():
    recording = session_shapes.load("claude")
    recording["requests"][0]["body"]["tools"][0]["description"] = "Reads a file"
    recording["requests"][0]["body"]["Bash"] = {}
    assert session_shapes.strange_strings(recording) == ["Reads a file", "Bash"]
