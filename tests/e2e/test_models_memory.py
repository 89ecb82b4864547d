"""Several models in one memory: which of them sleeps, wakes, waits or fails, and what the others see of it."""
import concurrent.futures
import contextlib
import json
import shutil
import socket
import threading
import time

import httpx
import pytest

from conftest import ROOT, Daemon, memory_mib, run, wait_until
from test_security import KEYS, key_line
from several_models import answering, ask, configuration, smollm_bytes, states, text_of, truths, unread


@pytest.fixture(scope="module")
def truth(smollm):
    return truths(smollm)


def test_a_model_that_fails_gives_its_memory_back(tmp_path, smollm, truth):
    """A chat template that could not be read left the engine in memory, for good, and no other model fitted beside it."""
    from gguf_copy import copy
    copy(str(smollm), str(tmp_path / "bad.gguf"), fields={"tokenizer.chat_template": "{% if messages %}{{ messages[0] "})
    path = configuration(tmp_path, smollm, 420, engine={"context_length": 512})
    path.write_text(path.read_text().replace("models:\n", f"models:\n  - path: tidepool\n    name: first\n  - path: {tmp_path}/bad.gguf\n    name: bad\n", 1))
    with Daemon(config=path) as d:
        assert text_of(ask(d, "first"))
        for _ in range(2):
            assert ask(d, "bad").status_code == 503
        assert text_of(ask(d, "smol")) == truth["smol"]
        assert states(d)["bad"] == "failed"


def test_a_slow_request_keeps_no_model_awake(tmp_path, smollm, truth):
    """Half a request held the first model, so that another one that did not fit beside it was refused."""
    with Daemon(config=configuration(tmp_path, smollm, 420, engine={"context_length": 512})) as d, contextlib.ExitStack() as stack:
        for _ in range(2):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", d.port)))
            s.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{")
        begin = time.monotonic()
        assert text_of(ask(d, "smol")) == truth["smol"]
        assert time.monotonic() - begin < 25  # and not the 30 s for which busy models are waited for


def test_operators_act_while_no_model_can_be_had(tmp_path, smollm):
    """Their requests woke the first model, or waited for it."""
    with Daemon(config=configuration(tmp_path, smollm, 420, engine={"context_length": 512})) as d:
        assert text_of(ask(d, "smol"))  # tide sleeps for it
        asleep = states(d)["tide"]
        with answering(d, "smol"):
            began = time.monotonic()
            assert d.admin.post("/admin/log-level", json={"level": "info"}).status_code == 200
            assert d.admin.post("/admin/cancel", json={"id": "nobody"}).status_code == 404
            assert time.monotonic() - began < 10
        assert states(d)["tide"] == asleep != "ready"


def test_a_model_that_waits_for_room_delays_no_other(tmp_path, smollm, truth):
    config = configuration(tmp_path, smollm, 420, engine={"context_length": 512, "reader_buffer_tokens": 16})
    with Daemon(config=config) as d, concurrent.futures.ThreadPoolExecutor(1) as pool, unread(d, "tide"):
        waiting = pool.submit(ask, d, "smol")
        wait_until(lambda: states(d)["smol"] != "sleeping", 20)
        assert text_of(ask(d, "experts")) == truth["experts"]
        assert d.admin.get("/health/ready").status_code == 200
        assert text_of(waiting.result()) == truth["smol"]  # nobody reads the answer of tide, which is given up


def test_a_first_model_that_is_damaged_ends_the_daemon_in_order(tmp_path, smollm):
    """A request that waited for another model was freed behind its connection: the heap was corrupted. The status was 1."""
    (tmp_path / "cut.gguf").write_bytes(smollm_bytes(smollm)[:-(20 << 20)])
    path = tmp_path / "cut.yaml"
    path.write_text(f"models:\n  - path: {tmp_path}/cut.gguf\n    name: cut\n  - path: tidepool\n    name: tide\n")
    for _ in range(4):
        d = Daemon(config=path, wait=False)
        wait_until(lambda: d.port is not None or d.process.poll() is not None, 20)
        with contextlib.suppress(httpx.HTTPError):
            ask(d, "tide")
        assert d.process.wait(60) == 78, d.text()


def test_the_daemon_stays_ready_when_a_model_cannot_wake(tmp_path, smollm, truth):
    (tmp_path / "gone.gguf").write_bytes(smollm_bytes(smollm))
    path = configuration(tmp_path, smollm)
    path.write_text(path.read_text().replace("models:\n", f"models:\n  - path: {tmp_path}/gone.gguf\n    name: gone\n    engine: {{context_length: 512}}\n", 1))
    with Daemon(config=path) as d:
        assert d.admin.post("/models/unload", json={"model": "gone"}).json() == {"success": True}
        wait_until(lambda: states(d)["gone"] == "sleeping", 20)
        (tmp_path / "gone.gguf").unlink()
        refused = ask(d, "gone")
        assert refused.status_code == 503 and str(tmp_path) not in refused.text
        assert d.admin.get("/health/ready").status_code == 200 and states(d)["gone"] == "failed"
        assert text_of(ask(d, "tide")) == truth["tide"]


def test_the_idle_model_sleeps_for_one_that_does_not_fit_beside_it(tmp_path, smollm, truth):
    with Daemon(config=configuration(tmp_path, smollm, 420, engine={"context_length": 512})) as d:
        for name, others in (("smol", {}), ("tide", {}), ("experts", {"tide": "ready"}), ("smol", {}), ("experts", {}), ("smol", {})):
            assert text_of(ask(d, name)), d.text()
            assert states(d) == {"tide": "sleeping", "smol": "sleeping", "experts": "sleeping", **others, name: "ready"}
            assert memory_mib(d, "VmRSS") < (420 if name == "smol" else 110)  # what the others held is given back
        assert memory_mib(d, "VmHWM") < 420
        assert d.logged("the model tide sleeps: its memory is wanted")


def test_nobody_sleeps_for_a_model_that_busy_ones_keep_out(tmp_path, smollm, truth):
    """Each request for it put an idle model to sleep, which was not enough: other clients had to wake theirs again and again."""
    path = configuration(tmp_path, smollm, 660, engine={"context_length": 512})
    path.write_text(path.read_text().replace("  - path: tidepool-experts", f"  - path: {smollm}\n    name: large\n    engine: {{context_length: 2048}}\n  - path: tidepool-experts", 1))
    with Daemon(config=path) as d, concurrent.futures.ThreadPoolExecutor(1) as pool:
        assert text_of(ask(d, "smol")) and text_of(ask(d, "tide"))
        assert states(d)["large"] == "sleeping" and states(d)["smol"] == "ready"
        with answering(d, "smol"):
            kept_out = pool.submit(ask, d, "large")
            for _ in range(6):
                assert text_of(ask(d, "tide")) == truth["tide"]
                time.sleep(0.5)
            assert states(d)["tide"] == "ready" and "the model tide sleeps" not in d.text()
        assert text_of(kept_out.result())  # smol is idle, and sleeps


def test_a_model_that_waits_for_room_stops_nobody_for_long(tmp_path, smollm):
    """While one long answer ran, others' requests for the same model waited 25 seconds of each 30, or for ever beside two models in turns."""
    with Daemon(config=configuration(tmp_path, smollm, 420, engine={"context_length": 512})) as d, concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert text_of(ask(d, "smol"))
        with answering(d, "smol"):
            kept_out = [pool.submit(ask, d, name) for name in ("tide", "experts")]
            begin = time.monotonic()
            waited = []
            while time.monotonic() < begin + 24:
                asked = time.monotonic()
                assert text_of(ask(d, "smol"))
                waited.append(time.monotonic() - asked)
                time.sleep(0.2)
            assert 2 < max(waited) < 15 and sum(1 for each in waited if each > 2) == 1, waited
        assert all(each.result().status_code == 200 for each in kept_out)


def test_a_key_with_overlapping_answers_lets_another_key_s_model_wake(tmp_path, smollm):
    """Its next request began before the last one ended, for ever, so that the model never became idle."""
    names = ("alice", "ops")
    (tmp_path / "keys").write_text("".join(map(key_line, names)))
    config = configuration(tmp_path, smollm, 420, engine={"context_length": 512}, server={"api_keys_file": tmp_path / "keys"})
    alice, ops = ({"authorization": f"Bearer {KEYS[name]}"} for name in names)
    with Daemon(config=config) as d, concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert text_of(ask(d, "smol", headers=alice))
        with answering(d, "smol", alice):
            kept_out = pool.submit(ask, d, "tide", headers=ops)
            time.sleep(7)
            further = pool.submit(ask, d, "smol", headers=alice)
            time.sleep(6)  # longer than all clients are held back
            assert not further.done() and not kept_out.done()
        assert text_of(kept_out.result()) and text_of(further.result())


def test_a_key_that_keeps_a_model_busy_itself_holds_back_no_other(tmp_path, smollm):
    """It asked for another model, too, for which the other key gave way, for ever."""
    (tmp_path / "keys").write_text("".join(map(key_line, ("alice", "ops"))))
    config = configuration(tmp_path, smollm, 420, engine={"context_length": 512}, server={"api_keys_file": tmp_path / "keys"})
    alice, ops = ({"authorization": f"Bearer {KEYS[name]}"} for name in ("alice", "ops"))
    with Daemon(config=config) as d, concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert text_of(ask(d, "smol", headers=alice))
        with answering(d, "smol", alice, n=4), answering(d, "smol", ops, n=4):
            kept_out = pool.submit(ask, d, "tide", headers=alice)
            time.sleep(7)
            for _ in range(3):
                began = time.monotonic()
                assert text_of(ask(d, "smol", headers=ops))
                assert time.monotonic() - began < 12  # all clients are held back for 4 s
        assert kept_out.result().status_code in (200, 503)


def test_a_model_from_flash_is_loaded_again_once_there_is_memory(tmp_path):
    """113 MB of neurons, which fit beside the other model from flash alone."""
    wide = tmp_path / "wide.gguf"
    run("synth", wide, "--layers", 8, "--hidden-size", 512, "--intermediate-size", 16384, "--heads", 8, "--kv-heads", 8, "--vocab", 2048,
        "--type", "q4_0", "--active", 0.1, "--down", "rows")
    run("pack", wide, "--order", "none")
    path = tmp_path / "grow.yaml"
    path.write_text(f"models:\n  - path: tidepool\n    name: tide\n  - path: {wide}\n    name: wide\nengine: {{context_length: 512}}\n"
                    f"grammar: {{memory_mib: 8}}\nmemory: {{budget_bytes: {260 << 20}}}\n")
    with Daemon(config=path) as d:
        def tokens():
            body = {"model": "wide", "prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0, "ignore_eos": True, "return_tokens": True}
            answer = httpx.post(d.url + "/v1/completions", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]

        first = tokens()
        assert d.logged("wide.gguf.tcb: read with") and states(d) == {"tide": "ready", "wide": "ready"}
        d.admin.post("/models/unload", json={"model": "tide"})
        assert d.logged("the model wide sleeps: it is loaded again, with more memory") and len(d.logged("the model wide is awake", 2)) == 2
        assert tokens() == first and memory_mib(d, "VmRSS") > 130
        assert len(d.logged("it is loaded again")) == 1  # once


def test_a_model_that_answers_is_not_put_to_sleep(tmp_path, smollm):
    with Daemon(config=configuration(tmp_path, smollm, 420, engine={"context_length": 512})) as d:
        body = {"model": "tide", "stream": True, "max_tokens": 400, "ignore_eos": True, "messages": [{"role": "user", "content": "Hi"}]}
        with httpx.stream("POST", d.url + "/v1/chat/completions", json=body, timeout=60) as answer, concurrent.futures.ThreadPoolExecutor(1) as pool:
            lines = answer.iter_lines()
            next(lines)
            other = pool.submit(ask, d, "smol")
            assert any('"finish_reason":"length"' in line for line in lines)
            assert other.result().status_code == 200  # it waited


def test_a_model_that_cannot_be_loaded_is_told_and_harms_no_other(tmp_path, smollm):
    path = tmp_path / "bad.yaml"
    (tmp_path / "bad.gguf").write_bytes(b"GGUF" + b"\0" * 100)
    path.write_text(f"models:\n  - path: tidepool\n    name: tide\n  - path: {tmp_path}/bad.gguf\n    name: bad\n")
    with Daemon(config=path) as d:
        first, second = ask(d, "bad"), ask(d, "bad")
        assert first.status_code == second.status_code == 503 and "bad.gguf" in first.json()["error"]["message"], first.text
        assert str(tmp_path) not in first.text
        assert len(d.logged("the model bad cannot be loaded")) == 1  # not tried again at once
        assert text_of(ask(d, "tide"))
        assert {m["id"]: m["status"]["value"] for m in httpx.get(d.url + "/v1/models").json()["data"]} == {"tide": "loaded", "bad": "failed"}


def test_a_list_of_one_sleeps_too(tmp_path):
    path = tmp_path / "one.yaml"
    path.write_text("models:\n  - path: tidepool\n    name: tide\n    keep_alive: 1s\n")
    with Daemon(config=path) as d:
        assert text_of(ask(d, "tide"))
        wait_until(lambda: states(d)["tide"] == "sleeping", 30)
        assert text_of(ask(d, ""))


def test_a_prefix_outlives_the_sleep_of_its_model(tmp_path, smollm):
    long = "Owls live in old trees and hunt at night. " * 40
    config = configuration(tmp_path, smollm, prefix_cache={"path": tmp_path / "prefixes"})
    with Daemon(config=config) as d:
        def turn():
            return httpx.post(d.url + "/v1/chat/completions", json={"model": "smol", "messages": [{"role": "user", "content": long}], "max_tokens": 4,
                                                                    "temperature": 0}, timeout=120).json()
        first = turn()
        httpx.post(d.url + "/models/unload", json={"model": "smol"})
        wait_until(lambda: states(d)["smol"] == "sleeping", 30)
        second = turn()
        assert second["choices"][0]["message"] == first["choices"][0]["message"]
        assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 200, second["usage"]


def test_nobody_sleeps_for_a_model_that_would_not_fit_then_either(tmp_path, smollm):
    with Daemon(config=configuration(tmp_path, smollm, 240, engine={"context_length": 512})) as d:
        assert text_of(ask(d, "tide")) and text_of(ask(d, "experts"))
        refused = ask(d, "smol")
        assert refused.status_code == 503 and "more than the" in refused.text and "KV cache" in refused.text
        assert states(d) == {"tide": "ready", "smol": "failed", "experts": "ready"}


ROUTES = {"/v1/chat/completions": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
          "/v1/completions": {"prompt": "Hi", "max_tokens": 4},
          "/v1/messages": {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4},
          "/v1/responses": {"input": "Hi", "max_output_tokens": 4}}


def test_a_stream_whose_model_is_waited_for_says_so(tmp_path, smollm):
    """Comments begin after server.sse_keepalive_s; the answer follows in the same stream."""
    path = configuration(tmp_path, smollm, 420, server={"sse_keepalive_s": 1, "models_dir": tmp_path})
    with Daemon(config=path) as d, concurrent.futures.ThreadPoolExecutor(4) as pool:
        def ask_for(route, **more):
            return httpx.post(d.url + route, json={"model": "experts", "stream": True, "temperature": 0, **ROUTES[route], **more}, timeout=60).text

        with answering(d, "smol"):
            asked = {route: pool.submit(ask_for, route) for route in ROUTES}
            time.sleep(3.5)
        told = {route: future.result() for route, future in asked.items()}
        assert all(text.startswith(": waiting for the model\n\n") and text.count(": waiting") >= 2 for text in told.values()), told
        plain = {route: ask_for(route) for route in ROUTES}
        assert all(not text.startswith(":") for text in plain.values())
        assert told["/v1/chat/completions"].endswith("data: [DONE]\n\n") and "event: message_stop" in told["/v1/messages"]
        assert texts_of(told["/v1/chat/completions"]) == texts_of(plain["/v1/chat/completions"])
        assert text_of(ask(d, "experts"))  # the connection and the daemon go on


def texts_of(events):  # of the chat's chunks, joined
    lines = [json.loads(line.removeprefix("data: ")) for line in events.splitlines() if line.startswith("data: {")]
    return "".join(choice["delta"].get("content") or "" for line in lines for choice in line["choices"])


def test_a_model_that_fails_after_its_stream_began_is_an_error_event(tmp_path, smollm):
    shutil.copy(ROOT / "config/models/tidepool-experts.gguf", tmp_path / "late.gguf")
    path = configuration(tmp_path, smollm, 420, server={"sse_keepalive_s": 1, "models_dir": tmp_path})
    with Daemon(config=path) as d, concurrent.futures.ThreadPoolExecutor(4) as pool:
        with answering(d, "smol"):
            asked = {route: pool.submit(httpx.post, d.url + route, json={"model": "late", "stream": True, **body}, timeout=60) for route, body in ROUTES.items()}
            time.sleep(2.5)
            (tmp_path / "late.gguf").write_bytes(b"GGUF is gone")
        for route, future in asked.items():
            answer = future.result()
            assert answer.status_code == 200 and answer.text.startswith(": waiting for the model\n\n")
            last = answer.text.strip().split("\n\n")[-1]
            assert ("event: error\n" in last) == (route == "/v1/messages"), last
            assert "cannot be loaded" in json.loads(last.split("data: ")[1])["error"]["message"]
        refused = ask(d, "late", stream=True)
        assert refused.status_code == 503, "before the stream begins the status says it"


def test_a_client_that_never_pauses_does_not_keep_other_models_out(tmp_path, smollm, truth):
    """Two chats that overlapped kept every other model asleep, as long as they went on."""
    path = configuration(tmp_path, smollm, 420, engine={"context_length": 512})
    with Daemon(config=path) as d, concurrent.futures.ThreadPoolExecutor(2) as pool:
        ends = threading.Event()

        def chats(delay):
            time.sleep(delay)
            count = 0
            while not ends.is_set():
                answer = ask(d, "smol", max_tokens=150, ignore_eos=True)
                assert answer.status_code == 200, answer.text
                count += 1
            return count

        loops = [pool.submit(chats, delay) for delay in (0, 0.7)]
        time.sleep(2)
        answers = []
        try:
            for _ in range(2):
                answers.append(ask(d, "tide"))
        finally:
            ends.set()
        assert [text_of(a) for a in answers] == [truth["tide"]] * 2
        assert all(loop.result() > 0 for loop in loops)
