"""Fifty conversations of eight keys in a prefix cache on flash that holds ten: nothing of one key helps another, and hits are those that a replay predicts."""
import collections
import random
import statistics
import subprocess

import httpx
from conftest import BIN, Daemon, wait_until
from daemon_client import value
from gguf_copy import copy
from test_prefix_flash import BLOCK, text

TENANTS, CONVERSATIONS, HELD, REQUESTS = 8, 50, 10, 120
WORDS = 480
KEYS = [f"key-of-tenant-{i}-0123456789" for i in range(TENANTS)]


def complete(d, tenant, prompt):
    answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0}, headers={"authorization": f"Bearer {KEYS[tenant]}"}, timeout=300)
    assert answer.status_code == 200, answer.text
    wait_until(lambda: value(d, "prefix_flash_queued_blocks") == 0, 60)
    return answer.json()


class Replay:
    """The cache as it is described: whole blocks; where it is full, one goes of the key that has most, of its least recently used conversation, from its end."""

    def __init__(self, blocks):
        self.blocks, self.held = blocks, collections.OrderedDict()  # (key, conversation): blocks, the least recently used first

    def evict(self, tenant, used):
        of = collections.Counter()
        for (owner, _), count in self.held.items():
            of[owner] += count
        most, count = of.most_common(1)[0]
        victim = tenant if of[tenant] == count else most
        oldest = next(each for each in self.held if each[0] == victim)
        if oldest == used:
            return False
        self.held[oldest] -= 1
        if self.held[oldest] == 0:
            del self.held[oldest]
        return True

    def use(self, tenant, conversation, tokens):
        used = (tenant, conversation)
        hit = min(self.held.pop(used, 0), (tokens - 1) // BLOCK)
        self.held[used] = hit
        while self.held[used] < tokens // BLOCK and (sum(self.held.values()) < self.blocks or self.evict(tenant, used)):
            self.held[used] += 1
        if self.held[used] == 0:
            del self.held[used]
        return hit * BLOCK


def serve(smollm, tmp_path, quota):
    (tmp_path / "keys").write_text("".join(
        subprocess.run([BIN / "thermoclined", "--hash-key", f"tenant{i}"], input=key, capture_output=True, text=True, check=True).stdout for i, key in enumerate(KEYS)))
    model = copy(smollm, str(tmp_path / "model.gguf"), layers=2)
    return Daemon(f"model.path={model}", f"server.api_keys_file={tmp_path / 'keys'}", "metrics.require_key=false", "engine.context_length=1024", "prefix_cache.memory=0",
                  f"prefix_cache.path={tmp_path / 'kv'}", f"prefix_cache.bytes={quota}", "spec.mode=off", "log.access=false")


def test_fifty_conversations_of_eight_tenants(smollm, tmp_path):
    prompts = [text(100 + i, WORDS) for i in range(CONVERSATIONS)]
    owners = [i % TENANTS for i in range(CONVERSATIONS)]
    with serve(smollm, tmp_path, "1GiB") as d:
        probe = complete(d, 0, text(1, WORDS))
        slot = value(d, "prefix_flash_bytes") / value(d, "prefix_flash_blocks")
    blocks = HELD * (probe["usage"]["prompt_tokens"] // BLOCK)
    for file in (tmp_path / "kv").iterdir():
        file.unlink()
    rng = random.Random(4)
    with serve(smollm, tmp_path, int(slot * (blocks + 0.5))) as d:
        replay = Replay(int(value(d, "prefix_flash_limit_bytes") // slot))
        hits = predicted = 0
        asked = set()
        ms = collections.defaultdict(list)
        for number in range(REQUESTS):
            # Like people: half of the time they go on with one of the last conversations.
            chosen = rng.choice(recent) if number > 8 and rng.random() < 0.5 else rng.randrange(CONVERSATIONS)
            recent = [chosen, *(recent if number else [])][:8]
            answer = complete(d, owners[chosen], prompts[chosen])
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            hits += cached
            predicted += replay.use(owners[chosen], chosen, answer["usage"]["prompt_tokens"])
            ms["own" if cached else "new"].append(answer["timings"]["prompt_ms"])
            if number % 10 == 0 and chosen not in asked:  # another key asks for the same words: as if nobody had
                asked.add(chosen)
                foreign = complete(d, (owners[chosen] + 1) % TENANTS, prompts[chosen])
                assert foreign["usage"]["prompt_tokens_details"]["cached_tokens"] == 0 and "cache_flash_n" not in foreign["timings"]
                ms["foreign"].append(foreign["timings"]["prompt_ms"])
                replay.use((owners[chosen] + 1) % TENANTS, chosen, foreign["usage"]["prompt_tokens"])
        assert predicted > 0.2 * REQUESTS * BLOCK and abs(hits - predicted) <= 0.05 * predicted, (hits, predicted)
        assert value(d, "prefix_flash_bytes") <= value(d, "prefix_flash_limit_bytes")
        # Time tells as little: what another key has sent takes as long as what nobody has.
        assert statistics.median(ms["foreign"]) > 0.7 * statistics.median(ms["new"]), {key: statistics.median(each) for key, each in ms.items()}
