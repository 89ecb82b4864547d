"""Long texts of one client do not hold up the short ones of another."""
import json
import threading
import time

import httpx
import pytest
from conftest import Daemon
from test_tenants import KEYS, key_file  # noqa: F401

LONG_BYTES, LONGS = 4_000_000, 8
LONG = {
    "words": "Once upon a time there was a fox that had 12 ideas, and none was good.\n" * (LONG_BYTES // 72),
    "no spaces": "abcdefghij" * (LONG_BYTES // 10),  # nowhere can it be cut
}
SHORT = {
    "/v1/tokens/count": {"prompt": "The fox went home. " * 270},  # 5 KiB
    "/tokenize": {"content": "The fox went home. " * 270},
    "/v1/messages/count_tokens": {"messages": [{"role": "user", "content": "The fox went home. " * 270}]},
}


def post(d, name, path, content):
    headers = {"authorization": f"Bearer {KEYS[name]}", "content-type": "application/json"}
    answer = httpx.post(d.url + path, content=content, headers=headers, timeout=300)
    assert answer.status_code == 200, answer.text[:200]
    return answer


@pytest.mark.parametrize("kind", LONG)
def test_a_short_text_ends_before_the_long_ones_of_another_key(key_file, smollm, kind):  # noqa: F811
    """They took their turns whole: a count waited until two of them were done."""
    long = json.dumps({"content": LONG[kind]}).encode()
    with Daemon(f"model.path={smollm}", f"server.api_keys_file={key_file}", "engine.context_length=2048", "server.request_memory_mib=4096") as d:
        begin = time.monotonic()
        alone = post(d, "mallory", "/tokenize", long).json()["count"]
        long_s = time.monotonic() - begin
        ended = []
        threads = [threading.Thread(target=lambda: ended.append(post(d, "mallory", "/tokenize", long).json()["count"])) for _ in range(LONGS)]
        for thread in threads:
            thread.start()
        counts, waits = 0, []
        while not ended and any(thread.is_alive() for thread in threads):
            begin = time.monotonic()
            for path, body in SHORT.items():
                post(d, "alice", path, json.dumps(body).encode())
            waits.append(time.monotonic() - begin)
            counts += len(SHORT)
        for thread in threads:
            thread.join()
        assert ended == [alone] * LONGS
        # While the first two run; each would have waited for one of them.
        assert counts >= 6, (counts, waits, long_s)
