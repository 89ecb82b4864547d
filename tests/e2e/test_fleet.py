"""deploy/haproxy/haproxy.cfg itself, in a real HAProxy before three daemons: conversations stay where their prefix is warm, and a
daemon that is killed, drained or full costs no request whose answer had not begun. The same of deploy/envoy/envoy.yaml in Envoy."""
import copy
import os
import random
import signal
import socket
import subprocess
import threading
import time
import uuid

import httpx
from conftest import ROOT, Daemon, wait_until
from daemon_client import STORY, value
from fleet import both, ENDLESS, fleet, Front, HAPROXY, needs_haproxy, us, who


def converse(front, daemons, word, count=8, turns=5):
    """Conversations in turns, in changing order. The hit share of the prefix caches, and for each conversation where it was and how
    many tokens of its turns were cached."""
    def totals():
        return [sum(value(d, name) for d in daemons) for name in ("prefix_cache_hits_total", "prefix_cache_queries_total")]

    before, order = totals(), random.Random(1)
    told = {i: [{"role": "user", "content": f"{word} number {i}: tell me a story about an animal that gets lost and comes home again."}] for i in range(count)}
    places, cached = {i: [] for i in told}, {i: [] for i in told}
    for turn in range(turns):
        for i in order.sample(list(told), count):
            name = f"{word}-{i}-{turn}"
            answer = front.chat(told[i], {"x-request-id": name}, max_tokens=24, temperature=0).json()
            cached[i].append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
            told[i] += [answer["choices"][0]["message"], {"role": "user", "content": f"And what happened then, in part {turn}?"}]
            wait_until(lambda: who(daemons, name))
            places[i].append(who(daemons, name)[0][0])
    hits, queries = (after - then for after, then in zip(totals(), before))
    return hits / queries, places, cached


@needs_haproxy
def test_a_conversation_stays_where_its_prefix_is_warm():
    with fleet("prefix_cache.memory=64MiB") as (front, daemons):
        share, places, cached = converse(front, daemons, "Affine")
        assert all(len(set(p)) == 1 for p in places.values()), places
        assert len({p[0] for p in places.values()}) > 1, "all conversations at one daemon"
        assert all(a < b for c in cached.values() for a, b in zip(c, c[1:])), cached
        front.close()
        front = Front(daemons, THERMOCLINE_AFFINITY="off")
        try:
            without, places, _ = converse(front, daemons, "Elsewhere")
        finally:
            front.close()
        assert all(len(set(p)) > 1 for p in places.values()), places
        print(f"\nprompt tokens found in the prefix caches: {share:.1%} with affinity, {without:.1%} without")
        assert share > 1.3 * without


@needs_haproxy
def test_what_names_a_conversation():
    def user(text):
        return {"role": "user", "content": text}

    system = {"role": "system", "content": "You are kind."}
    kinds = {
        "header": lambda i, j: ({"messages": [user(f"Turn {j}")]}, {"x-session-id": f"session {i}"}),
        "prompt_cache_key": lambda i, j: ({"messages": [user(f"Turn {j}")], "prompt_cache_key": f"key {i}"}, {}),
        "user": lambda i, j: ({"messages": [user(f"Turn {j}")], "user": f"user {i}"}, {}),
        "first message": lambda i, j: ({"messages": [user(f"Story {i}")] + [user(f"Turn {j}")] * j}, {}),
        "first message in parts": lambda i, j: ({"messages": [user([{"type": "text", "text": f"Story {i}"}])] + [user(f"Turn {j}")] * j}, {}),
        "behind a system message": lambda i, j: ({"messages": [system, user(f"Story {i}")] + [user(f"Turn {j}")] * j}, {}),
        "prompt": lambda i, j: ({"prompt": f"Story {i} " * 40 + f"Turn {j}"}, {}),
    }
    with fleet() as (front, daemons):
        for kind, request in kinds.items():
            homes = []
            for i in range(10):
                for j in range(2):
                    body, headers = request(i, j)
                    name = f"{kind.replace(' ', '-')}-{i}-{j}"
                    path = "/v1/completions" if "prompt" in body else "/v1/chat/completions"
                    answer = httpx.post(front.url + path, json={**body, "max_tokens": 1}, headers={**headers, "x-request-id": name}, timeout=30)
                    assert answer.status_code == 200, answer.text
                    wait_until(lambda: who(daemons, name))
                    homes.append(who(daemons, name)[0][0])
            assert homes[0::2] == homes[1::2], (kind, homes)
            assert len(set(homes)) > 1, (kind, homes)


# A daemon that ends, under load

class Load:
    """Clients that stream one answer after another. `ended` has each request's end: done, broken (begun, and no [DONE]), or lost."""

    def __init__(self, front, clients=12, tokens=300):
        self.front, self.tokens = front, tokens
        self.ended, self.stop = {}, threading.Event()
        self.threads = [threading.Thread(target=self.client, args=(i,), daemon=True) for i in range(clients)]
        for thread in self.threads:
            thread.start()

    def client(self, i):
        with httpx.Client(timeout=60) as client:
            for n in range(1000):
                if self.stop.is_set():
                    return
                name = f"load-{i}-{n}"
                self.ended[name] = self.one(client, name, i)

    def one(self, client, name, i):
        body = {"messages": [{"role": "user", "content": f"Tell client {i} a story."}], "stream": True, "max_tokens": self.tokens, **ENDLESS}
        data = b""
        try:
            with client.stream("POST", self.front.url + "/v1/chat/completions", json=body, headers={"x-request-id": name, "x-session-id": f"client {i}"}) as answer:
                if answer.status_code != 200:
                    return "lost", f"{answer.status_code} {answer.read()[:200]}"
                for piece in answer.iter_raw():
                    data += piece
        except httpx.HTTPError as error:
            return ("broken" if data else "lost"), repr(error)
        return ("done" if b"data: [DONE]" in data else "broken"), data[-200:]

    def count(self, end):
        return sum(e == end for e, _ in list(self.ended.values()))

    def finish(self):
        """Waits for as many more answers as there are clients, so that the load has met the event."""
        goal = self.count("done") + len(self.threads)
        wait_until(lambda: self.count("done") >= goal or self.count("lost"), 60)
        self.stop.set()
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


def busy(daemons):
    """The place of a daemon in which some requests stream and some wait in the queue, and their ids by phase."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        for place, daemon in enumerate(daemons):
            phases = {"waiting": [], "decode": []}
            for request in daemon.admin.get("/admin/requests").json()["requests"]:
                phases[request["phase"]].append(request["id"])
            if len(phases["decode"]) > 1 and len(phases["waiting"]) > 1:
                return place, phases
    raise AssertionError("no daemon was ever busy")


@both
def test_a_killed_daemon_loses_only_what_had_begun(kind):
    with fleet("engine.sequences_max=2", kind=kind) as (front, daemons):
        load = Load(front)
        gone, phases = busy(daemons)
        victim = daemons[gone]
        victim.process.kill()
        load.finish()
        lost = {name: end for name, end in load.ended.items() if end[0] == "lost"}
        broken = [name for name, end in load.ended.items() if end[0] == "broken"]
        print(f"\n{kind}, SIGKILL: {load.count('done')} done, {len(broken)} broken, {len(lost)} lost; it had {len(phases['decode'])} streams and {len(phases['waiting'])} in its queue")
        assert not lost, lost
        assert 1 <= len(broken) <= 2 and set(broken) <= {*phases["decode"], *phases["waiting"]}
        for name in set(phases["waiting"]) - set(broken):
            assert load.ended[name][0] == "done" and {place for place, _ in who(daemons, name)} - {gone}
        assert victim.process.wait() != 0


@both
def test_a_drained_daemon_loses_nothing(kind):
    with fleet("engine.sequences_max=2", "server.drain_timeout_s=60", kind=kind) as (front, daemons):
        load = Load(front)
        gone, phases = busy(daemons)
        drained = daemons[gone]
        drained.terminate()
        load.finish()
        assert drained.wait() == 0
        ends = {end for end, _ in load.ended.values()}
        print(f"\n{kind}, SIGTERM: {load.count('done')} done; the drained daemon had {len(phases['decode'])} streams and {len(phases['waiting'])} in its queue")
        assert ends == {"done"}, {name: end for name, end in load.ended.items() if end[0] != "done"}
        wait_until(lambda: all("200" in dict(who(daemons, name)).values() for name in load.ended))
        seen = {name: dict(who(daemons, name)) for name in load.ended}
        moved = [name for name, places in seen.items() if places.get(gone) == "503"]
        assert moved and all(set(seen[name]) - {gone} for name in moved)
        assert front.chat(STORY, max_tokens=1).status_code == 200


@both
def test_a_daemon_that_comes_back_gets_its_conversations_again(kind):
    with fleet(kind=kind) as (front, daemons):
        asked = iter(range(1000))

        def place():
            """The server that answers the conversation now."""
            name = f"back-{next(asked)}"
            assert front.chat(STORY, {"x-session-id": "one", "x-request-id": name}, max_tokens=1).status_code == 200
            wait_until(lambda: who(daemons, name))
            return who(daemons, name)[-1][0]

        home = place()
        daemons[home].terminate()
        assert daemons[home].wait() == 0
        other = place()
        assert other != home and place() == other
        with Daemon("engine.threads=1", f"server.port={daemons[home].port}") as again:
            assert again.port == daemons[home].port
            daemons[home] = again
            wait_until(lambda: place() == home)


def reload(master, log):
    """A signal that comes while the master still begins, or hears of a worker's end, may be lost: it is sent again."""
    loaded, sent = log.read_text().count("Loading success"), -1e9

    def heard():
        nonlocal sent
        if time.monotonic() > sent + 10:
            master.send_signal(signal.SIGUSR2)
            sent = time.monotonic()
        return log.read_text().count("Loading success") > loaded

    wait_until(heard)


@needs_haproxy
def test_a_reload_loses_nothing_and_two_fronts_agree(tmp_path):
    """As Debian's service runs it: a master that takes the configuration again on SIGUSR2."""
    with fleet() as (front, daemons), socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
        s.close()
        places = {f"THERMOCLINE_{name}": f"127.0.0.1:{d.port}" for name, d in zip("ABC", daemons)}
        env = {**os.environ, **us(), **places, "THERMOCLINE_FRONT": f"127.0.0.1:{port}", "THERMOCLINE_INNER": uuid.uuid4().hex}
        log = tmp_path / "log"
        with log.open("w") as stderr:
            master = subprocess.Popen([HAPROXY, "-W", "-f", str(ROOT / "deploy/haproxy/haproxy.cfg")], env=env, stdout=subprocess.DEVNULL, stderr=stderr)
        try:
            wait_until(lambda: "Loading success" in log.read_text())
            other = copy.copy(front)
            other.url = f"http://127.0.0.1:{port}"
            load = Load(other, clients=4, tokens=100)
            for _ in range(2):
                goal = load.count("done") + 4
                wait_until(lambda: load.count("done") > goal)
                reload(master, log)
            load.finish()
            assert {end for end, _ in load.ended.values()} == {"done"}, load.ended
            for i in range(10):
                homes = []
                for n, f in enumerate((front, other)):
                    name = f"agree-{i}-{n}"
                    assert f.chat(STORY, {"x-session-id": f"session {i}", "x-request-id": name}, max_tokens=1).status_code == 200
                    wait_until(lambda: who(daemons, name))
                    homes.append(who(daemons, name)[0][0])
                assert homes[0] == homes[1]
        finally:
            master.terminate()
            master.wait()
