"""64 clients, some of whom misbehave, beside those who behave: the answers, the memory, and the time between tokens.

    build/venv/bin/python tests/chaos/crowd.py [--minutes 30] [--quiet-minutes 3]

30% leave early, 5% send what is malformed, 5% read slowly. In between, six times, the others are alone, for the time between tokens
that is compared: what else the machine does meets both. Prints what became of all requests; fails for a wrong or a lost answer, for memory that grows, and if the others'
99th percentile is more than twice the quiet one.
"""
import argparse
import asyncio
import sys
import time
from collections import Counter
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "e2e")]
from client import Clients, percentile  # noqa: E402
from conftest import Daemon  # noqa: E402

ROUNDS = 6
HABITS = ["leaves"] * 19 + ["malformed"] * 3 + ["slow"] * 3 + ["good"] * 39


def resident(d):
    return next(int(line.split()[1]) for line in open(f"/proc/{d.process.pid}/status") if line.startswith("RssAnon"))


async def crowd(clients, habits, seconds):
    end = time.monotonic() + seconds
    await asyncio.gather(*(clients.until(end, habit) for habit in habits))


async def main(args):
    with Daemon("engine.queue_capacity=128", "server.connections_per_address_max=0") as d:
        clients = Clients(d.port)
        await clients.learn()
        await crowd(clients, HABITS, 20)  # what is allocated on first use is there
        memory, became, gaps, seconds = resident(d), Counter(), {"quiet": [], "busy": []}, 0
        for _ in range(ROUNDS):
            clients.gaps = gaps["quiet"]
            await crowd(clients, ["good"] * 39, 60 * args.quiet_minutes / ROUNDS)
            clients.gaps, before, began = gaps["busy"], Counter(clients.became), time.monotonic()
            await crowd(clients, HABITS, 60 * args.minutes / ROUNDS)
            became += clients.became - before
            seconds += time.monotonic() - began
        grown = resident(d) - memory
        quiet, middle, busy = percentile(gaps["quiet"], 0.99), percentile(gaps["busy"], 0.5), percentile(gaps["busy"], 0.99)
        running = [line for line in d.admin.get("/metrics").text.splitlines() if line.startswith(("thermocline_num_requests_running ", "thermocline_num_requests_waiting "))]
    print(f"{seconds:.0f} s: " + ", ".join(f"{count} {what}" for what, count in became.most_common()))
    print(f"between tokens, of those who behave: p50 {1e3 * middle:.1f} ms, p99 {1e3 * busy:.1f} ms; alone p99 {1e3 * quiet:.1f} ms: {busy / quiet:.2f} times")
    print(f"memory: {memory / 1024:.1f} MiB, grown by {grown / 1024:.1f} MiB; at the end {running}")
    bad = [what for what in ("wrong", "lost", "garbled", "cut", "500") if clients.became[what]] + clients.complaints
    assert not bad, bad[:5]
    assert grown < 32 << 10, "memory grows"
    assert all(line.endswith(" 0") for line in running)
    assert busy <= 2 * quiet or args.minutes < 1, "tokens come late"


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--quiet-minutes", type=float, default=3)
    asyncio.run(main(parser.parse_args()))
