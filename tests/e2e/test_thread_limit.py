"""A daemon that reaches its limit of threads (pids.max, ulimit -u) while it serves."""
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import grpc
import httpx
import pytest
from conftest import BIN, ROOT, Daemon
from grpc_client import channel, chat, read, stubs

sys.path.insert(0, str(ROOT / "tests/faults"))
from faults import Faults  # noqa: E402

CALLS = 32  # at once: fewer may not make gRPC's library ask for a thread
DRAIN_S = 1


def call_at_once(d):
    """Makes CALLS calls, each of a connection of its own. One that lacks a thread hangs until its client gives up."""
    def call(_):
        with channel(d, **{"grpc.use_local_subchannel_pool": 1}) as c, suppress(grpc.RpcError):
            read(stubs.InferenceStub(c).Generate(chat("Hi"), timeout=5))
    with ThreadPoolExecutor(CALLS) as pool:
        list(pool.map(call, range(CALLS)))


@pytest.mark.parametrize("signals", [1, 2])
def test_a_daemon_whose_grpc_library_got_no_thread_ends(signals):
    """The library waits for ever for threads that it could not start, when the process has left main already."""
    faults = Faults(BIN.parent / "tests/libfaults.so")
    with Daemon("grpc.address=127.0.0.1:0", f"server.drain_timeout_s={DRAIN_S}", env=faults.env) as d:
        faults.threads_left = 0
        call_at_once(d)
        assert httpx.get(d.url + "/health").status_code == 200
        for _ in range(signals):
            d.process.send_signal(signal.SIGTERM)
        assert d.wait(DRAIN_S + 5 + 30) in (0, 1), d.text()  # without a bound: never
