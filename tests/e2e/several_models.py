"""A daemon with three models, and requests to it: shared by the tests of several models."""
import collections
import contextlib
import json
import socket
import threading

import httpx

from conftest import Daemon

MIB = 1 << 20


def configuration(folder, smollm, budget_mib=0, **more):
    lines = ["models:",
             "  - path: tidepool", "    name: tide", "    aliases: [\"gpt-4o\"]",
             f"  - path: {smollm}", "    name: smol", "    engine: {context_length: 2048}",
             "  - path: tidepool-experts", "    name: experts", "    keep_alive: 5m"]
    for section, values in more.items():
        lines += [f"{section}:"] + [f"  {key}: {value}" for key, value in values.items()]
    if budget_mib:
        lines += ["memory:", f"  budget_bytes: {budget_mib * MIB}"]
    path = folder / "several.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def smollm_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def ask(d, model, headers=None, **more):
    body = {"model": model, "messages": [{"role": "user", "content": "Who lives in the sea?"}], "max_tokens": 8, "temperature": 0, **more}
    return httpx.post(d.url + "/v1/chat/completions", json=body, headers=headers, timeout=120)


def text_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def states(d):
    return d.admin.get("/health/ready").json()["models"]


def states_while_loading(d):
    return next(m["status"]["value"] for m in httpx.get(d.url + "/v1/models").json()["data"])


def alone(path, name):
    with Daemon(f"model.path={path}", f"model.name={name}", *(["engine.context_length=2048"] if name == "smol" else [])) as d:
        return text_of(ask(d, name))


def truths(smollm):
    """The answer of each model that is alone in a daemon."""
    return {"tide": alone("tidepool", "tide"), "smol": alone(smollm, "smol"), "experts": alone("tidepool-experts", "experts")}


@contextlib.contextmanager
def begun(d, body, headers=None, path="/v1/chat/completions", wait=True, **options):
    """The socket of a request, of a chat if the path is no other, whose answer has begun unless that is not waited for."""
    body = {"messages": [{"role": "user", "content": "x"}], "ignore_eos": True, "stream": True, **body}
    body = json.dumps({key: value for key, value in body.items() if value is not None}).encode()
    lines = {"host": "localhost", "content-type": "application/json", "content-length": len(body), **(headers or {})}
    with socket.socket() as s:
        for option, value in options.items():
            s.setsockopt(socket.SOL_SOCKET, getattr(socket, option), value)
        s.connect(("127.0.0.1", d.port))
        s.sendall((f"POST {path} HTTP/1.1\r\n" + "".join(f"{name}: {value}\r\n" for name, value in lines.items()) + "\r\n").encode() + body)
        assert not wait or s.recv(15, socket.MSG_WAITALL) == b"HTTP/1.1 200 OK"
        yield s


def unread(d, model, wait=True, **more):
    """A long stream of the model that is read no further; its socket. Its scores fill the kernel's buffers soon."""
    return begun(d, {"model": model, "n": 8, "logprobs": True, "top_logprobs": 20, "max_tokens": 300, **more}, wait=wait, SO_RCVBUF=4096)


@contextlib.contextmanager
def answering(d, model, headers=None, n=8):
    """A stream of that model that is read, and does not end by itself within a minute or so."""
    with begun(d, {"model": model, "n": n, "max_tokens": 1900}, headers) as s:
        reader = threading.Thread(target=lambda: collections.deque(iter(lambda: s.recv(1 << 20), b""), maxlen=1))
        reader.start()
        try:
            yield
        finally:
            s.shutdown(socket.SHUT_RDWR)
            reader.join()
