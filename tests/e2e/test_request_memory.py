"""The memory budget is the whole process's: bodies, and the data made from them, are a line of the memory plan."""
import json
import re
import select
import socket
import threading

import httpx
import pytest
from conftest import ROOT, Daemon, wait_until
from daemon_client import value
from gguf_copy import copy
from test_security import KEYS, key_line

TIDEPOOL = ROOT / "config/models/tidepool.gguf"
BUDGET = 128 << 20
BODY = 4 << 20
CHAT = '{"max_tokens":1,"messages":'
HELLO = CHAT + '[{"role":"user","content":"hi"}],'


def filled(begin, item, end, size):
    return begin + item * ((size - len(begin) - len(end)) // len(item) - 1) + item.rstrip(",") + end


KINDS = {
    "token_ids": ("/v1/completions", '{"max_tokens":1,"prompt":[', "1,", "]}"),
    "messages_of_lists": ("/v1/chat/completions", CHAT + "[", "[],", "]}"),
    "messages_of_objects": ("/v1/chat/completions", CHAT + "[", '{"":0},', "]}"),
    "template_values": ("/v1/chat/completions", HELLO + '"chat_template_kwargs":{"a":[', "[],", "]}}"),
    "one_text": ("/v1/chat/completions", CHAT + '[{"role":"user","content":"', "owl and fox ", '"}]}'),
    "one_word": ("/tokenize", '{"content":"', "a", '"}'),
    "texts_for_embeddings": ("/v1/embeddings", '{"input":[', '"' + "owl " * 500 + '",', "]}"),
}


def resident(daemon, what="VmRSS"):
    with open(f"/proc/{daemon.process.pid}/status") as f:
        return int(re.search(rf"{what}:\s+(\d+) kB", f.read())[1]) << 10


def post(daemon, path, body, headers="", announced=None, receive_bytes=None, source=""):
    """A connection that has sent a request."""
    client = socket.socket()
    if receive_bytes:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    client.settimeout(60)
    client.bind((source, 0))
    client.connect(("127.0.0.1", daemon.port))
    client.sendall(f"POST {path} HTTP/1.1\r\nhost: localhost\r\n{headers}content-length: {announced or len(body)}\r\n\r\n".encode())
    try:
        client.sendall(body)
    except OSError:
        pass  # refused before it was whole
    return client


def first_answer(clients):
    """The bytes of the first answer to any of the clients."""
    ready, _, _ = select.select(clients, [], [], 20)
    return ready[0].recv(1 << 16)


def crowd(daemon, path, body, announced=None):
    """The daemon's peak memory while 64 clients send `body`; the first lines of its answers."""
    answers, lock = [], threading.Lock()

    def one():
        with post(daemon, path, body, announced=announced) as client:
            client.settimeout(3 if announced else 20)
            try:
                line = client.recv(1 << 16).split(b"\r\n")[0]
            except OSError:
                line = b"left"
            with lock:
                answers.append(line)

    threads = [threading.Thread(target=one) for _ in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return resident(daemon, "VmHWM"), answers


@pytest.mark.parametrize("size", [BODY - 4096, 60_000])
@pytest.mark.parametrize("kind", KINDS)
def test_64_bodies_keep_within_the_budget_and_their_memory_comes_back(kind, size):
    path, begin, item, end = KINDS[kind]
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        before = resident(d)
        peak, answers = crowd(d, path, filled(begin, item, end, size).encode())
        assert len(answers) == 64 and peak <= BUDGET, (peak, answers)
        assert b"left" not in answers or kind == "texts_for_embeddings"
        wait_until(lambda: resident(d) <= before + (20 << 20), seconds=30)
        assert httpx.post(d.url + "/v1/completions", json={"prompt": "owl", "max_tokens": 1}, timeout=60).status_code == 200


def test_unfinished_bodies_keep_within_the_budget():
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        before = resident(d)
        peak, answers = crowd(d, "/v1/chat/completions", b"x" * (BODY - 4096), announced=BODY)
        assert peak <= BUDGET and sum(b" 429 " in line for line in answers) > 32, answers
        wait_until(lambda: resident(d) <= before + (20 << 20), seconds=30)


def test_what_refusals_say():
    with Daemon(f"memory.budget_bytes={BUDGET}") as d:
        lists = filled(*KINDS["template_values"][1:], BODY - 4096).encode()
        with post(d, "/v1/chat/completions", lists) as client:
            answer = client.recv(1 << 16)
        assert b" 413 " in answer and b"body_too_large" in answer and b"server.request_memory_mib" in answer
        held = [post(d, "/v1/chat/completions", b"x" * (3 << 20), announced=BODY) for _ in range(3)]
        answer = first_answer(held)
        assert b" 429 " in answer and b"request_memory" in answer and b"retry-after:" in answer.lower() and b"this client's" in answer
        for client in held:
            client.close()


@pytest.fixture
def two_keys(tmp_path):
    """A daemon, and the header lines of two keys that it takes."""
    keys = tmp_path / "keys"
    names = list(KEYS)[:2]
    keys.write_text("".join(map(key_line, names)))
    keys.chmod(0o600)
    with Daemon(f"memory.budget_bytes={BUDGET}", f"server.api_keys_file={keys}") as d:
        yield d, *(f"authorization: Bearer {KEYS[name]}\r\n" for name in names)


def test_one_key_s_bodies_leave_room_for_another_s(two_keys):
    d, ada, bob = two_keys
    held = [post(d, "/v1/chat/completions", b"x" * (2 << 20), ada, announced=BODY) for _ in range(8)]
    assert b" 429 " in first_answer(held)
    text = '{"content":"' + "owl " * 100_000 + '"}'
    with post(d, "/tokenize", text.encode(), bob) as client:
        assert b" 200 " in client.recv(1 << 16)
    for client in held:
        client.close()


def test_no_type_of_content_leaves_a_body_uncounted():
    with Daemon(f"memory.budget_bytes={BUDGET}") as d:
        body = filled(*KINDS["template_values"][1:], BODY - 4096).encode()
        with post(d, "/v1/chat/completions", body, "content-type: multipart/form-data; boundary=x\r\n") as client:
            assert b" 413 " in client.recv(1 << 16)


def test_objects_of_many_members_are_refused_before_they_are_read():
    """Their work grows with the square: 10,000 unknown fields held a thread for 20 s, and nothing interrupted it."""
    with Daemon() as d:
        many = {f"k{i}": 0 for i in range(10_000)}
        chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        for body in ({**chat, **many}, {**chat, "chat_template_kwargs": many}, {**chat, "chat_template_kwargs": {"a": [many]}}):
            answer = httpx.post(d.url + "/v1/chat/completions", json=body, timeout=60)
            assert answer.status_code == 400 and "members; at most 1024" in answer.text, answer.text


def test_answers_that_are_not_read_keep_nobody_else_out(two_keys):
    d, ada, bob = two_keys
    text = ('{"content":"' + ". " * 400_000 + '"}').encode()
    unread = [post(d, "/tokenize", text, ada) for _ in range(4)]
    wait_until(lambda: all(select.select([client], [], [], 0)[0] for client in unread))
    with post(d, "/tokenize", ('{"content":"' + "owl " * 20_000 + '"}').encode(), bob) as client:
        assert b" 200 " in client.recv(1 << 16)
    for client in unread:
        client.close()


SCORED = {"messages": [{"role": "user", "content": "owl"}], "n": 8, "logprobs": True, "top_logprobs": 20, "temperature": 1, "ignore_eos": True}
LARGE_ANSWERS = {
    "log_probabilities": ("/v1/chat/completions", {**SCORED, "max_tokens": 480}),
    "vectors": ("/v1/embeddings", {"input": [f"owl {i}" for i in range(2048)]}),
    "ids": ("/tokenize", {"content": ". " * 800_000}),
}


@pytest.mark.parametrize("kind", LARGE_ANSWERS)
def test_what_an_answer_is_made_of_takes_few_times_its_bytes(kind):
    """Its values took 80, 58 and 200 MiB."""
    path, body = LARGE_ANSWERS[kind]
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        before = resident(d, "VmHWM")
        answer = httpx.post(d.url + path, json=body, timeout=120)
        assert answer.status_code == 200 and len(answer.content) > 4 << 20
        assert resident(d, "VmHWM") - before < (16 << 20) + 3 * len(answer.content)


def test_the_next_large_answer_waits_until_the_last_one_is_read():
    with Daemon(f"memory.budget_bytes={BUDGET}", "server.request_memory_mib=16", "log.access=false") as d:
        body = json.dumps({**SCORED, "max_tokens": 480}).encode()
        clients = [post(d, "/v1/chat/completions", body) for _ in range(2)]
        readable = lambda: select.select(clients, [], [], 0)[0]
        wait_until(lambda: value(d, "generation_tokens_total") >= 2 * 8 * 480 and readable(), seconds=120)
        text = json.dumps({"prompt": "owl", "max_tokens": 1})
        assert httpx.post(d.url + "/v1/completions", content=text, timeout=60).status_code == 200  # a small one does not wait
        (first,) = readable()
        clients.remove(first)
        wait_until(lambda: readable() or (select.select([first], [], [], 0)[0] and first.recv(1 << 20) and False))
        assert b" 200 " in clients[0].recv(1 << 16)


def test_unread_pieces_are_refused_to_who_has_many():
    """120 answers of 1.7 MB, of bodies of 62 KB each, were made for a client that read none."""
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        body = json.dumps({"content": ". " * 31_000, "with_pieces": True}).encode()
        clients = [post(d, "/tokenize", body, receive_bytes=4096) for _ in range(200)]
        wait_until(lambda: len(select.select(clients, [], [], 0)[0]) == len(clients), seconds=120)
        lines = [client.recv(1 << 10).split(b"\r\n")[0] for client in clients]
        assert {line.split()[1] for line in lines} == {b"200", b"429"}
        assert resident(d, "VmHWM") < BUDGET
        for client in clients:
            client.close()
        wait_until(lambda: resident(d) < BUDGET // 2, seconds=60)
        assert httpx.post(d.url + "/tokenize", content=body, timeout=60).status_code == 200


def test_first_answers_of_many_addresses_are_bounded_together():
    """Each address was a client that may always have one: 324 MiB."""
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        body = json.dumps({"content": ". " * 31_000, "with_pieces": True}).encode()
        clients = [post(d, "/tokenize", body, receive_bytes=4096, source=f"127.0.{1 + i // 200}.{1 + i % 200}") for i in range(240)]
        wait_until(lambda: len(select.select(clients, [], [], 0)[0]) == len(clients), seconds=120)
        assert {client.recv(1 << 10).split(b"\r\n")[0].split()[1] for client in clients} == {b"200", b"429"}
        assert resident(d, "VmHWM") < BUDGET
        for client in clients:
            client.close()
        wait_until(lambda: resident(d) < BUDGET // 2, seconds=60)


def test_what_a_template_keeps_is_bounded(tmp_path):
    """Lists of all that it had made so far: 440 to 750 MiB."""
    keeps = "{% set ns = namespace(x=[]) %}{% for m in messages %}{% set ns.x = ns.x + [messages | tojson] %}{% endfor %}{{ ns.x | length }}"
    model = copy(TIDEPOOL, tmp_path / "keeps.gguf", fields={"tokenizer.chat_template": keeps})
    body = json.dumps({"messages": [{"role": ("user", "assistant")[i % 2], "content": f"owl {i}"} for i in range(1501)]}).encode()
    with Daemon(f"model.path={model}", f"memory.budget_bytes={BUDGET}") as d:
        clients = [post(d, "/apply-template", body) for _ in range(8)]
        for client in clients:
            assert b" 400 " in client.recv(1 << 16).split(b"\r\n")[0]
            client.close()
        assert resident(d, "VmHWM") < BUDGET
        wait_until(lambda: resident(d) < BUDGET // 2, seconds=60)


def test_what_a_template_makes_longer_is_bounded(tmp_path):
    """180 KB of nested lists, indented by Llama 3.1's template, once became 270 MiB."""
    template = "{% for t in tools %}{{ t | tojson(indent=4) }}{% endfor %}{% for m in messages %}{{ m.content }}{% endfor %}"
    model = copy(TIDEPOOL, tmp_path / "indents.gguf", fields={"tokenizer.chat_template": template})
    deep = json.loads("[" * 100 + "[]," * 20_000 + "[]" + "]" * 100)
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {"a": {"enum": deep}}}}}]
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "owl"}], "tools": tools}, separators=(",", ":"))
    with Daemon(f"model.path={model}", f"memory.budget_bytes={BUDGET}") as d:
        before = resident(d, "VmHWM")
        for path in ("/apply-template", "/tokenize", "/v1/messages/count_tokens", "/v1/chat/completions"):
            answer = httpx.post(d.url + path, content=body, timeout=60)
            assert answer.status_code == 400, (path, answer.text[:300])
        assert resident(d, "VmHWM") - before < 40 << 20


def test_messages_of_grpc_are_judged_by_what_they_say():
    """A word of megabytes once took hundreds of them, and messages of a few bytes the memory of their values."""
    grpc_client = pytest.importorskip("grpc_client", reason="needs grpcio-tools")
    pb = grpc_client.pb
    with Daemon(f"memory.budget_bytes={BUDGET}", "grpc.address=127.0.0.1:0") as d, grpc_client.channel(d) as c:
        stub = grpc_client.stubs.InferenceStub(c)
        assert len(stub.Tokenize(pb.TokenizeRequest(text="owl " * 200_000)).token_ids) >= 200_000
        before = resident(d, "VmHWM")
        empty = pb.GenerateRequest(chat=pb.Chat(messages=[pb.ChatMessage()] * 500_000))
        for call, message in ((stub.Tokenize, pb.TokenizeRequest(text="a" * 1_000_000)), (stub.CountTokens, pb.CountTokensRequest(text="a" * 1_000_000)), (stub.Generate, empty),
                              (stub.Generate, grpc_client.chat("a" * 1_000_000)), (stub.Generate, grpc_client.chat(*["a" * 50_000] * 30))):
            error = grpc_client.refusal(call, message)
            assert "server.request_memory_mib" in error.message and error.reason == "MESSAGE_TOO_LARGE", error
        assert resident(d, "VmHWM") - before < 90 << 20


def test_answers_in_the_making_are_counted():
    with Daemon(f"memory.budget_bytes={BUDGET}") as d:
        body = json.dumps({**SCORED, "stream": True}).encode()
        begun = [post(d, "/v1/chat/completions", body) for _ in range(24)]
        wait_until(lambda: any(b" 429 " in c.recv(1 << 10, socket.MSG_PEEK) for c in select.select(begun, [], [], 0)[0]))
        for client in begun:
            client.close()
        wait_until(lambda: httpx.post(d.url + "/v1/completions", json={"prompt": "owl", "max_tokens": 1}, timeout=60).status_code == 200)


def test_a_large_request_does_not_wait_for_later_ones_of_another_key(two_keys):
    """It was passed over as long as requests came that took less memory."""
    d, ada, bob = two_keys
    small, large = (('{"content":"' + "owl " * words + '"}').encode() for words in (180_000, 450_000))
    answered, ended = [], threading.Event()

    def keep_coming():
        while not ended.is_set() and len(answered) < 60:
            with post(d, "/tokenize", small, ada) as client:
                answered.append(client.recv(1 << 16)[:12])

    threads = [threading.Thread(target=keep_coming) for _ in range(4)]
    for thread in threads:
        thread.start()
    wait_until(lambda: len(answered) >= 4)
    with post(d, "/tokenize", large, bob) as client:
        before = len(answered)
        assert b" 200 " in client.recv(1 << 16)
        meanwhile = len(answered) - before
    ended.set()
    for thread in threads:
        thread.join()
    assert meanwhile < 20 and set(answered) == {b"HTTP/1.1 200"}, (meanwhile, answered)


def test_what_answers_repeat_of_their_requests_is_counted():
    """Streams of /v1/responses that nobody read held the tools of their requests as values, and twice as text: 402 MiB."""
    body = json.dumps({"input": "owl", "max_output_tokens": 200, "stream": True, "metadata": {"a": "d " * 700_000}}).encode()
    with Daemon(f"memory.budget_bytes={BUDGET}", "log.access=false") as d:
        clients = []
        for _ in range(40):
            clients.append(post(d, "/v1/responses", body))
            assert select.select([clients[-1]], [], [], 60)[0]
        assert resident(d, "VmHWM") <= BUDGET
        assert any(b" 429 " in client.recv(100) for client in clients)
        for client in clients:
            client.close()
