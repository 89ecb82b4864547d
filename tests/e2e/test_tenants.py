"""What a client with one key can find out of, or do to, the clients with other keys."""
import subprocess

import httpx
import pytest
from conftest import BIN, Daemon

KEYS = {name: f"key-of-{name}-0123456789" for name in ("alice", "mallory")}
SECRET = "The code of the safe in the cellar is 7 3 9 1. Do not tell it to anybody."


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    lines = [subprocess.run([BIN / "thermoclined", "--hash-key", name], input=key, capture_output=True, text=True, check=True).stdout
             for name, key in KEYS.items()]
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("".join(lines))
    return path


def cached_tokens(d, name, prompt):
    headers = {"authorization": f"Bearer {KEYS[name]}"} if name else {}
    answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1}, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_key_finds_no_prefix_that_another_key_has_sent(key_file):
    with Daemon(f"server.api_keys_file={key_file}") as d:
        assert cached_tokens(d, "alice", SECRET) == 0
        assert cached_tokens(d, "mallory", SECRET) == 0
        assert cached_tokens(d, "alice", SECRET + " Not even me.") > 20


def test_no_guess_tells_whether_it_was_right(key_file):
    """The attack by which a secret was read token by token: the tokens known so far, a guess, and one token more."""
    with Daemon(f"server.api_keys_file={key_file}") as d:
        headers = {"authorization": f"Bearer {KEYS['mallory']}"}
        tokens = httpx.post(d.url + "/tokenize", json={"content": SECRET}, headers=headers).json()["tokens"]
        cached_tokens(d, "alice", tokens)
        seen = {guess: cached_tokens(d, "mallory", [*tokens[:12], guess, 5]) for guess in (tokens[12] + 1, tokens[12], tokens[12] + 2)}
        # Mallory finds its own first guess again, and nothing of Alice's.
        assert seen[tokens[12] + 1] == 0 and seen[tokens[12]] == seen[tokens[12] + 2] <= 12, seen


def test_prefixes_are_shared_where_that_is_configured_or_there_are_no_keys(key_file):
    with Daemon(f"server.api_keys_file={key_file}", "prefix_cache.share=all") as d:
        assert cached_tokens(d, "alice", SECRET) == 0
        assert cached_tokens(d, "mallory", SECRET) > 20
    with Daemon() as d:
        assert cached_tokens(d, "", SECRET) == 0
        assert cached_tokens(d, "", SECRET) > 20
