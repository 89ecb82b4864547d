"""Mixed load while things break: every greedy answer that is completed must be the golden one, and none may be lost without an error.

    build/venv/bin/python tests/chaos/chaos.py [--minutes 60] [--seed 1]

Breaks by turns: allocations, files, descriptors, the clock, threads that wake late, the processors (others take them), reloads, a
drain with a restart, a kill, a stop, strangers that flood it. After each it waits for the throughput to be what it was: the time
until a second with 70% of the median before. Prints what became of all requests, and each kind of fault with its slowest recovery;
fails for a wrong, a lost or a doubled answer, and for a recovery of more than ten seconds.
"""
import argparse
import asyncio
import bisect
import os
import random
import resource
import signal
import socket
import sys
import time
from collections import defaultdict
from pathlib import Path

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "e2e"), str(Path(__file__).parents[1] / "faults")]
from client import Clients  # noqa: E402
from conftest import BIN, Daemon  # noqa: E402
from faults import Faults  # noqa: E402

HABITS = ["good"] * 8 + ["leaves"] * 2 + ["malformed", "slow"]
QUIET_S = 4       # before each fault: what is normal
RECOVERED = 0.7   # of it
RECOVERY_S = 10


class Chaos:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.faults = Faults(BIN.parent / "tests/libfaults.so")
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            self.port = s.getsockname()[1]
        self.recoveries, self.slow = defaultdict(list), []
        self.start()
        self.clients = Clients(self.port, seed=seed)

    def start(self):
        """A daemon on the same port as the one before."""
        self.faults.none()
        self.daemon = Daemon(f"server.port={self.port}", "server.connections_per_address_max=0", "server.drain_timeout_s=5", env=self.faults.env)

    def rate(self, begin, seconds):
        """Answers a second."""
        at = bisect.bisect_left(self.clients.ended_at, begin)
        return (bisect.bisect_left(self.clients.ended_at, begin + seconds) - at) / seconds

    async def one(self, name, fault):
        await asyncio.sleep(QUIET_S)
        normal = self.rate(time.monotonic() - QUIET_S, QUIET_S)
        await fault()
        self.faults.none()
        ended = time.monotonic()
        while time.monotonic() - ended < 3 * RECOVERY_S:
            await asyncio.sleep(0.1)
            now = time.monotonic()
            if now - ended >= 1 and self.rate(now - 1, 1) >= RECOVERED * normal:
                break
        took = time.monotonic() - ended - 1
        self.recoveries[name].append(took)
        if took > RECOVERY_S:
            self.slow.append((name, took, normal))
        assert self.daemon.process.poll() is None, f"{name} ended the daemon: {self.daemon.text()[-2000:]}"

    # What breaks.

    async def allocations(self):
        for _ in range(60):
            self.faults.allocation_fails_in = self.random.randint(0, 600)
            await asyncio.sleep(0.03)

    async def files(self):
        self.faults.read_errno, self.faults.interrupt_every = 5, 3
        for _ in range(20):
            self.faults.read_fails_in = self.random.randint(0, 3)
            await asyncio.sleep(0.1)

    async def clock(self):
        for hours in (1, -1, 24 * 400, -24 * 400, 0):
            self.faults.clock_offset_ns = hours * 3600 * 10**9
            await asyncio.sleep(0.4)

    async def late_threads(self):
        self.faults.wake_delay_us = 5000
        await asyncio.sleep(3)

    async def busy_processors(self):
        hogs = [await asyncio.create_subprocess_exec(sys.executable, "-c", "while True: pass") for _ in range(3)]
        await asyncio.sleep(3)
        for hog in hogs:
            hog.kill()
            await hog.wait()

    async def descriptors(self):
        pid = self.daemon.process.pid
        soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (len(os.listdir(f"/proc/{pid}/fd")) + 2, hard))
        await asyncio.sleep(2)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (soft, hard))

    async def reloads(self):
        for _ in range(10):
            self.daemon.process.send_signal(signal.SIGHUP)
            await asyncio.sleep(0.1)

    async def stopped(self):
        self.daemon.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(2)
        self.daemon.process.send_signal(signal.SIGCONT)

    async def restart(self, stop):
        stop()
        code = await asyncio.to_thread(self.daemon.wait, 30)
        self.daemon.admin.close()
        await asyncio.to_thread(self.start)
        return code

    async def drain(self):
        assert await self.restart(self.daemon.terminate) == 0, self.daemon.text()[-2000:]

    async def kill(self):
        await self.restart(self.daemon.process.kill)

    async def flood(self):
        async def stranger():
            while time.monotonic() < end:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                    writer.write(os.urandom(self.random.randint(0, 300)))
                    writer.close()
                except OSError:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)

        end = time.monotonic() + 2
        await asyncio.gather(*(stranger() for _ in range(8)))

    async def run(self, seconds):
        await self.clients.learn()
        end = time.monotonic() + seconds
        load = asyncio.gather(*(self.clients.until(end, habit) for habit in HABITS))
        faults = [self.allocations, self.files, self.clock, self.late_threads, self.busy_processors, self.descriptors, self.reloads, self.stopped, self.drain, self.kill, self.flood]
        turn = []
        while time.monotonic() < end - 15:
            turn = turn or self.random.sample(faults, len(faults))
            fault = turn.pop()
            await self.one(fault.__name__, fault)
        await load
        metrics = self.daemon.admin.get("/metrics").text.splitlines()
        held = [line for line in metrics if line.startswith(("thermocline_num_requests_running ", "thermocline_num_requests_waiting ")) and not line.endswith(" 0")]
        self.report(held, seconds)

    def report(self, held, seconds):
        clients = self.clients
        print(f"{sum(clients.became.values())} requests: " + ", ".join(f"{count} {what}" for what, count in clients.became.most_common()))
        for name, times in sorted(self.recoveries.items()):
            print(f"{name:16} {len(times):4} times, normal again after {sorted(times)[len(times) // 2]:.1f} s, at worst {max(times):.1f} s")
        bad = [what for what in ("wrong", "lost", "garbled") if clients.became[what]] + clients.complaints + held
        assert not bad, bad[:5]
        assert not self.slow or seconds < 300, self.slow  # a few seconds of a busy machine say nothing
        assert clients.became["equal"] > 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    chaos = Chaos(args.seed)
    try:
        asyncio.run(chaos.run(60 * args.minutes))
    finally:
        with chaos.daemon:
            pass
