"""Many clients: those that wait, those that leave, those that read slowly, and one that asks beside three that write."""
import concurrent.futures
import contextlib
import hashlib
import json
import os
import random
import socket
import threading
import time

import httpx
import pytest
from conftest import Daemon, wait_until
from test_daemon import metrics, value

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]


def stream(daemon, receive_buffer=None, host="127.0.0.1", **fields):
    """A socket on which an answer streams; nothing of it is read yet."""
    body = json.dumps({"messages": STORY, "stream": True, "temperature": 1, **fields}).encode()
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(60)
    s.connect((host, daemon.port))
    s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return s


def drop(response):
    """Reads an answer to its end, whatever that is."""
    with contextlib.suppress(httpx.HTTPError, httpx.StreamError):
        for _ in response.iter_raw():
            pass


def memory(daemon):
    """Resident bytes of the daemon's own, without weights and KV cache (which the answer being written fills meanwhile):
    these lie in mappings that ask for huge pages."""
    total = anonymous = 0
    for line in open(f"/proc/{daemon.process.pid}/smaps"):
        name, _, rest = line.partition(":")
        if name == "Anonymous":
            anonymous = int(rest.split()[0]) * 1024
        elif name == "VmFlags":
            total += 0 if "hg" in rest.split() else anonymous
    assert total > 0
    return total


def http_seconds(daemon):
    """Processor time of the threads that serve connections: the engine's is its own."""
    total = 0
    for task in os.listdir(f"/proc/{daemon.process.pid}/task"):
        name, fields = open(f"/proc/{daemon.process.pid}/task/{task}/stat").read().split("(", 1)[1].rsplit(")", 1)
        if name.startswith("http"):
            total += (int(fields.split()[11]) + int(fields.split()[12])) / os.sysconf("SC_CLK_TCK")
    return total


def idle_seconds(daemon, seconds):
    """Processor time of the I/O threads while nobody asks for anything."""
    before = http_seconds(daemon)
    time.sleep(seconds)
    return http_seconds(daemon) - before


def seconds_per_request(daemon, requests=2000):
    """The I/O threads' processor time for a minimal request, on this machine under its current load."""
    before = http_seconds(daemon)
    with httpx.Client(base_url=daemon.url) as client:
        for _ in range(requests):
            client.get("/health/live")
    return (http_seconds(daemon) - before) / requests


def nothing_is_left(daemon):
    """No request is queued or running, and only the prefix cache holds KV cache blocks."""
    status = daemon.admin.get("/v1/status").json()
    assert status["running"] == 0 and status["waiting"] == 0
    assert value(daemon, "queue_prefill_tokens") == 0
    used = value(daemon, "kv_cache_usage_ratio") * value(daemon, "memory_bytes", kind="kv", device="cpu")
    assert used == pytest.approx(value(daemon, "memory_bytes", kind="prefix_cache", device="cpu"), rel=1e-6)


def test_a_thousand_idle_streams_are_cheap(smollm):
    """One answer, not streamed, holds the only place; a thousand streams wait behind it."""
    clients = 1000
    with Daemon(f"model.path={smollm}", "engine.sequences_max=1", f"engine.queue_capacity={clients + 10}", f"server.connections_max={clients + 50}",
                "server.connections_per_address_max=0", "engine.queue_prefill_tokens=0", "log.access=false", "spec.mode=off") as d:
        blocker = stream(d, stream=False, n=4, ignore_eos=True)
        wait_until(lambda: value(d, "num_requests_running") == 1)
        request = seconds_per_request(d)
        before = memory(d)
        streams = [stream(d, receive_buffer=4096) for _ in range(clients)]
        wait_until(lambda: value(d, "num_requests_waiting") == clients + 3, 60)
        idle = idle_seconds(d, 20)  # a comment keeps each alive every 15 s
        cost = memory(d) - before
        assert b"keep-alive" in streams[-1].recv(4096)
        print(f"\n{clients} idle streams: {cost / 1e6:.1f} MB, {idle / 20:.2%} of a processor, {idle / clients / request:.2f} requests a stream")
        assert cost <= 32e6
        assert idle <= 10 * clients * request  # a comment or two for each
        for s in [blocker, *streams]:
            s.close()
        wait_until(lambda: value(d, "num_requests_waiting") == 0 and value(d, "num_requests_running") == 0, 60)
        nothing_is_left(d)


def leave_at_random(daemon, generator, failures):
    try:
        phase = generator.choice(["at once", "queued", "reading", "late", "in the middle of the request", "takes all"])
        content = "owl " * generator.choice([1, 50, 1500])
        if phase == "in the middle of the request":
            s = socket.create_connection(("127.0.0.1", daemon.port), timeout=60)
            s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{\"mess")
            time.sleep(generator.random() * 0.1)
            return s.close()
        s = stream(daemon, messages=[{"role": "user", "content": content}], stream=generator.random() < 0.8,
                   max_tokens=generator.choice([1, 20, 200]), n=generator.choice([1, 1, 3]))
        if phase == "queued":
            time.sleep(generator.random() * 0.5)
        elif phase == "reading":
            s.recv(1)
        elif phase == "late":
            s.recv(1)
            time.sleep(generator.random() * 2)
        elif phase == "takes all":
            s.settimeout(1)
            try:
                while s.recv(65536):
                    pass
            except TimeoutError:
                pass
        if generator.random() < 0.3:  # a reset instead of an end
            s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        s.close()
    except OSError as error:
        failures.append(error)


def test_clients_that_leave_at_any_moment_leave_nothing(smollm):
    with Daemon(f"model.path={smollm}", "engine.queue_capacity=200", "server.connections_per_address_max=0", "engine.context_length=2048") as d:
        failures = []
        threads = [threading.Thread(target=leave_at_random, args=(d, random.Random(i), failures)) for i in range(100)]
        for t in threads:
            t.start()
            time.sleep(0.01)
        for t in threads:
            t.join()
        assert not failures
        wait_until(lambda: value(d, "num_requests_running") == 0 and value(d, "num_requests_waiting") == 0, 60)
        nothing_is_left(d)
        counted = metrics(d)
        cancelled = sum(v for (name, _), v in counted.items() if name == "thermocline_requests_cancelled_total")
        assert cancelled == value(d, "cancel_latency_seconds_count") > 20
        phases = {dict(labels)["phase"] for (name, labels), v in counted.items() if name == "thermocline_requests_cancelled_total" and v}
        assert "decode" in phases and len(phases) >= 2
        # A cancelled request ends within the step that computes; with other work on the machine that is seldom long.
        within = value(d, "cancel_latency_seconds_bucket", le="1")
        assert within >= 0.9 * cancelled
        wait_until(lambda: d.admin.get("/v1/status").json()["running"] == 0)
        assert len(os.listdir(f"/proc/{d.process.pid}/fd")) < 60


def test_a_short_chat_beside_three_long_ones(smollm):
    quantum = 16
    with Daemon(f"model.path={smollm}", f"engine.quantum_tokens={quantum}", "spec.mode=off") as d:
        longs = [stream(d, max_tokens=2000, logit_bias={"2": -100}) for _ in range(3)]
        for s in longs:
            s.recv(65536)
        generated = lambda: {r["id"]: r["completion_tokens"] for r in d.admin.get("/admin/requests").json()["requests"]}
        wait_until(lambda: d.admin.get("/v1/status").json()["running"] == 3)
        names = set(generated())
        # Its turn goes on while this client counts what the others had.
        short = stream(d, max_tokens=quantum, messages=[{"role": "user", "content": "Hello"}], logit_bias={"2": -100})
        seen = []
        wait_until(lambda: seen.append(generated()) or len(seen[-1]) == 4)
        before = seen[-1]
        data = b""
        while b'"content":"' not in data.replace(b'"content":""', b""):
            piece = short.recv(65536)
            assert piece
            data += piece
        after = generated()
        others = sum(after[name] - before[name] for name in names)
        print(f"\nthree long answers got {others} tokens before the short one's first")
        for s in longs:
            assert s.recv(65536)
            s.close()
        assert others <= 2 * quantum


def test_a_slow_reader_does_not_hold_others_and_is_given_up(smollm):
    with Daemon(f"model.path={smollm}", "engine.reader_buffer_tokens=16", "engine.reader_timeout_s=3", "spec.mode=off",
                "engine.context_length=8192", "server.write_timeout_s=3600") as d:
        slow = stream(d, receive_buffer=4096, logit_bias={"2": -100})
        wait_until(lambda: value(d, "num_requests_paused") == 1, 120)
        quick = stream(d, max_tokens=5)
        data = b""
        while b"[DONE]" not in data:
            data += quick.recv(65536)
        wait_until(lambda: value(d, "requests_cancelled_total", cause="slow_reader", phase="decode") == 1, 30)
        wait_until(lambda: value(d, "num_requests_running") == 0)
        nothing_is_left(d)
        slow.close()


@pytest.mark.parametrize("key", ["alone", "with two others"])
def test_cancel_by_id_ends_the_stream_with_an_error(smollm, key):
    with Daemon(f"model.path={smollm}") as d:
        others = [stream(d, max_tokens=300) for _ in range(2)] if key != "alone" else []
        s = stream(d, logit_bias={"2": -100})
        wait_until(lambda: len(d.admin.get("/admin/requests").json()["requests"]) == 1 + len(others))
        data = s.recv(65536)
        request = [line for line in data.decode().split("\r\n") if line.lower().startswith("x-request-id")][0].split(": ")[1]
        assert d.admin.post("/admin/cancel", json={"id": request}).status_code == 200
        while piece := s.recv(65536):
            data += piece
        assert b'data: {"error"' in data and b"[DONE]" not in data
        assert d.admin.post("/admin/cancel", json={"id": request}).status_code == 404
        for other in others:
            other.close()


@pytest.mark.parametrize("step_tokens", [1, 16], ids=["turns", "shared"])
def test_keys_share_alike_however_much_each_asks(smollm, tmp_path, step_tokens):
    """One key floods with six long answers. Another that asks once gets as much as all of them together in turns; in shared steps, as
    much as each of them at least."""
    names = {"flood": "the-key-of-the-many-01", "single": "the-key-of-only-one-01"}
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{name}:{hashlib.sha256(key.encode()).hexdigest()}\n" for name, key in names.items()))
    keys.chmod(0o600)
    endless = {"messages": STORY, "stream": True, "temperature": 1, "logit_bias": {"2": -100}, "max_tokens": 1000}
    with Daemon(f"model.path={smollm}", f"server.api_keys_file={keys}", "engine.quantum_tokens=8", "spec.mode=off",
                f"engine.step_tokens={step_tokens}") as d:
        def had():
            tokens = {name: [] for name in names}
            for request in d.admin.get("/admin/requests").json()["requests"]:
                tokens[request["tenant"]].append(request["completion_tokens"])
            return tokens

        with contextlib.ExitStack() as open_streams:
            def ask(name):
                client = open_streams.enter_context(httpx.Client(headers={"authorization": f"Bearer {names[name]}"}, timeout=120))
                response = open_streams.enter_context(client.stream("POST", d.url + "/v1/chat/completions", json=endless))
                assert response.status_code == 200
                threading.Thread(target=drop, args=(response,), daemon=True).start()

            for _ in range(6):
                ask("flood")
            wait_until(lambda: len(had()["flood"]) == 6 and min(had()["flood"]) > 0, 60)
            ask("single")
            wait_until(lambda: sum(had()["single"]) > 0, 60)
            before = had()
            wait_until(lambda: sum(had()["single"]) >= sum(before["single"]) + 80, 120)
            after = had()
            assert len(after["flood"]) == 6, "the flood has ended: its answers were too short"
            got = {name: sum(after[name]) - sum(before[name]) for name in names}
            if step_tokens == 1:
                assert 0.6 < got["single"] / got["flood"] < 1.6, got
            else:
                assert 0.8 * got["flood"] / 6 < got["single"], got
            d.process.kill()  # else the daemon would write all of it
            d.wait()


def test_equal_answers_beside_long_prompts_with_memory_for_few(tidepool_daemon):
    """A request whose memory was evicted finds all of its blocks in those that an identical one left."""
    words = "sea ship old king rain tree dog moon red fish boat sun bird fox wolf stone hill girl boy ball cat hat".split()
    end, texts = time.monotonic() + 10, set()

    def client(i):
        random_ = random.Random(i)
        with httpx.Client(timeout=60) as c:
            while time.monotonic() < end:
                twin = {"prompt": "Once upon a time", "max_tokens": random_.choice([60, 120, 250, 400]), "temperature": 0, "n": random_.choice([1, 4]), "ignore_eos": True}
                long_prompt = {"prompt": " ".join(random_.choice(words) for _ in range(330)), "max_tokens": 1}
                reply = c.post(tidepool_daemon.url + "/v1/completions", json=long_prompt if i % 3 == 2 else twin).raise_for_status().json()
                if i % 3 != 2:
                    texts.update(choice["text"] for choice in reply["choices"])

    with concurrent.futures.ThreadPoolExecutor(20) as pool:
        list(pool.map(client, range(20)))
    longest = max(texts, key=len)
    assert 0 < len(texts) <= 4 and all(longest.startswith(text) for text in texts)


def test_64_clients_get_what_each_gets_alone(tidepool_daemon):
    def body(i):
        return {"prompt": f"Once upon a time there was a {('cat', 'king', 'boat')[i % 3]} and {i} birds", "max_tokens": 20 + i % 50, "seed": i, "temperature": i % 2,
                "logprobs": 2 if i % 4 == 0 else None, "frequency_penalty": 0.3 if i % 5 == 0 else 0}

    def ask(d, i):
        choice = httpx.post(d.url + "/v1/completions", json=body(i), timeout=60).raise_for_status().json()["choices"][0]
        return choice["text"], choice["logprobs"]

    with Daemon("model.path=tidepool", "hot.device=cpu", "engine.step_tokens=1", "prefix_cache.memory=0MiB", "spec.mode=off") as d:
        alone = [ask(d, i) for i in range(64)]
    before = value(tidepool_daemon, "shared_step_tokens_total", kind="answer")
    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        assert list(pool.map(lambda i: ask(tidepool_daemon, i), range(64))) == alone
    assert value(tidepool_daemon, "shared_step_tokens_total", kind="answer") - before > 500


@pytest.mark.parametrize("target_ms, least, most", [(0.001, 1, 8), (60000, 50, 1000)])
def test_a_prompt_beside_an_answer_is_read_in_parts_that_the_target_allows(smollm, target_ms, least, most):
    """If no step is short enough, 8 tokens at a time; if all are, as many as a step takes."""
    def read(d):
        return value(d, "shared_step_tokens_total", kind="prompt"), value(d, "engine_step_seconds_count", phase="prefill")

    def ask(d, prompt):
        httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1}, timeout=120).raise_for_status()

    with Daemon(f"model.path={smollm}", "spec.mode=off", f"engine.itl_target_ms={target_ms}", "prefix_cache.memory=0MiB") as d:
        endless = {"prompt": "Once", "max_tokens": 4000, "stream": True, "ignore_eos": True}
        with httpx.stream("POST", d.url + "/v1/completions", json=endless, timeout=120) as answer:
            threading.Thread(target=drop, args=(answer,), daemon=True).start()
            wait_until(lambda: value(d, "engine_step_seconds_count", phase="decode") > 0, 60)
            ask(d, "warm the steps up " * 20)  # the first steps' times are not known yet
            before = read(d)
            ask(d, "once upon a time " * 110)
            tokens, steps = (b - a for a, b in zip(before, read(d)))
            assert value(d, "num_requests_running") == 1, "the answer has ended: it was too short"
            assert tokens > 400 and least <= tokens / steps <= most, (tokens, steps)
            d.process.kill()  # else the daemon would write all of it
            d.wait()


@pytest.fixture
def tidepool_daemon():
    with Daemon("model.path=tidepool", "hot.device=cpu", "engine.queue_capacity=500") as d:
        yield d
