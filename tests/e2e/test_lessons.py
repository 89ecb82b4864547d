"""Published faults of similar servers, each by its name. docs/reliability.md lists further tests of each."""
import contextlib
import json
import os
import re
import socket
import struct
import subprocess
import zipfile
import zlib

import gguf
import httpx
import pytest
from conftest import BIN, ROOT, Daemon, run, wait_until
from daemon_client import STORY, value
from gguf_copy import copy

MODEL = ROOT / "config/models/tidepool.gguf"
CHAT = {"messages": STORY, "max_tokens": 2, "temperature": 0}


def refused(path, *words):
    """Not loaded, with a message and no crash."""
    for command in (["inspect", path], ["run", path, "-p", "a", "-n", 1]):
        result = run(*command, check=False)
        if command[0] == "inspect" and result.returncode == 0:
            continue  # what is wrong is in no header
        assert result.returncode == 1 and result.stderr, result
        assert not words or any(word in result.stderr.decode() for word in words), result.stderr


def header(tensors=0, pairs=0, rest=b""):
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, pairs) + rest


def text(word):
    return struct.pack("<Q", len(word)) + word


NUMBERS = (-1, -2**31, 2**31, 2**32, -2**63, 2**63 - 1, 2**63, 2**64, 1e308, -1e308, 0.5)
KNOBS = ("n_discard", "n_keep", "n_predict", "n_probs", "min_keep", "id_slot", "top_k", "repeat_last_n", "mirostat", "dry_allowed_length", "dry_penalty_last_n", "seed", "n_indent", "t_max_predict_ms")


@pytest.mark.parametrize("knob", KNOBS)
def test_CVE_2026_21869_numbers_are_checked_where_they_come_in(daemon, knob):
    for path, prompt in (("/completion", {"prompt": "a", "n_predict": 1}), ("/v1/completions", {"prompt": "a", "max_tokens": 1})):
        for number in NUMBERS:
            response = httpx.post(daemon.url + path, json={**prompt, knob: number}, timeout=60)
            assert response.status_code in (200, 400), (path, number, response.text)
            assert response.status_code == 200 or response.json()["error"]["message"]
    assert httpx.post(daemon.url + "/v1/chat/completions", json=CHAT, timeout=60).status_code == 200


TENSOR = text(b"a") + struct.pack("<I", 2)
SIZES = {
    "elements overflow": header(1, 0, TENSOR + struct.pack("<QQIQ", 2**33, 2**33, 0, 0)),
    "bytes overflow": header(1, 0, TENSOR + struct.pack("<QQIQ", 2**62, 1, 0, 0)),
    "an offset overflows": header(1, 0, TENSOR + struct.pack("<QQIQ", 32, 32, 0, 2**64 - 32)),
    "a zero dimension": header(1, 0, TENSOR + struct.pack("<QQIQ", 0, 32, 0, 0)),
    "too many tensors": header(2**62),
    "too many pairs": header(0, 2**63),
    "a string beyond the file": header(0, 1, struct.pack("<Q", 2**63) + b"a"),
    "an array beyond the file": header(0, 1, text(b"k") + struct.pack("<IIQ", 9, 0, 2**60)),
    "arrays of arrays": header(0, 1, text(b"k") + struct.pack("<I", 9) + struct.pack("<IQ", 9, 1) * 100_000),
    "dimensions without end": header(1, 0, text(b"a") + struct.pack("<I", 2**31) + b"\x01" * 64),
    "an alignment of none": header(0, 1, text(b"general.alignment") + struct.pack("<II", 4, 0)),
    "nothing": b"",
    "a magic": b"GGUF",
}


@pytest.mark.parametrize("name", SIZES)
def test_CVE_2025_53630_CVE_2026_27940_CVE_2024_32878_CVE_2024_21802_CVE_2024_23496_sizes_are_summed_with_care(tmp_path, name):
    path = tmp_path / "model.gguf"
    path.write_bytes(SIZES[name])
    refused(path)


def test_CVE_2026_7482_extents_lie_within_the_file(tmp_path):
    """No byte behind the file's end is read as a weight."""
    path = tmp_path / "model.gguf"
    whole = MODEL.read_bytes()
    for end in (len(whole) - 1, len(whole) // 2, 5000):
        path.write_bytes(whole[:end])
        refused(path, "ends", "beyond", "missing", "fit")


def test_CVE_2024_12886_hyperparameters_of_zero(tmp_path):
    for key in ("block_count", "embedding_length", "attention.head_count", "feed_forward_length", "context_length"):
        refused(copy(MODEL, tmp_path / "model.gguf", fields={f"llama.{key}": 0}))
        refused(copy(MODEL, tmp_path / "model.gguf", fields={f"llama.{key}": 2**31}))


def test_lm_studio_2289_bytes_of_a_vocabulary_are_digits(tmp_path):
    """plamo's `<0x-1>` became an index below zero."""
    for token in ("<0x-1>", "<0x+1>", "<0xfff>", "<0x>", "<0x 1>", "<0xGG>"):
        reader = gguf.GGUFReader(MODEL)
        tokens = reader.fields["tokenizer.ggml.tokens"].contents()
        data = MODEL.read_bytes()
        byte = next(t for t in tokens if t.startswith("<0x") and len(t) == 6)
        changed = data.replace(text(byte.encode()), text(token.encode().ljust(6)[:6]), 1)
        (tmp_path / "model.gguf").write_bytes(changed)
        result = run("tokenize", tmp_path / "model.gguf", stdin=b"\x01\xff a", check=False)
        assert result.returncode in (0, 1) and result.stderr.decode().count("\n") <= 2


def test_CVE_2025_49847_CVE_2025_52566_long_and_odd_texts_become_tokens_or_errors(daemon):
    for content in ("a" * 3_000_000, "\U0010ffff" * 200_000, "\x00" * 1000, "a\u0300" * 100_000, " " * 1_000_000, "<0x-1>" * 1000, "<|im_start|>" * 10_000):
        response = httpx.post(daemon.url + "/tokenize", json={"content": content}, timeout=120)
        assert response.status_code in (200, 400, 413), response.text[:200]
    assert httpx.post(daemon.url + "/detokenize", json={"tokens": [-1]}).status_code == 400
    assert httpx.post(daemon.url + "/detokenize", json={"tokens": [2**31]}).status_code == 400
    assert httpx.post(daemon.url + "/v1/completions", json={"prompt": [2**40], "max_tokens": 1}).status_code == 400


def test_CVE_2026_43631_reloads_take_nothing_from_those_who_are_served(daemon):
    import concurrent.futures
    import signal
    ask = lambda _: httpx.post(daemon.url + "/v1/chat/completions", json={**CHAT, "max_tokens": 60}, timeout=60).json()["choices"][0]["message"]["content"]
    good = ask(0)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, i) for i in range(40)]
        for _ in range(20):
            daemon.process.send_signal(signal.SIGHUP)
        assert {a.result() for a in answers} == {good}


def test_llama_cpp_25283_25284_patterns_do_not_recurse(daemon):
    for pattern in ("(" * 30_000 + ")" * 30_000, "a{1,999999999}", "((((a*)*)*)*)*b", "[" * 10_000, "(?=a)b", "\\1", "a" * 100_000, "(a|" * 5000 + ")" * 5000, "", None, 3):
        body = {**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string", "pattern": pattern}}}}
        response = httpx.post(daemon.url + "/v1/chat/completions", json=body, timeout=60)
        assert response.status_code in (200, 400), response.text


def test_CVE_2024_45436_an_archive_is_no_model(tmp_path):
    path = tmp_path / "model.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("../../evil.gguf", MODEL.read_bytes()[:1000])
    refused(path)
    assert not (tmp_path.parent.parent / "evil.gguf").exists()


def test_CVE_2024_12886_CVE_2025_0315_compressed_bodies_are_not_unpacked(daemon):
    bomb = zlib.compress(b'{"messages":[' + b" " * 50_000_000)
    for coding in ("gzip", "deflate", "br", "identity, gzip"):
        response = httpx.post(daemon.url + "/v1/chat/completions", content=bomb, headers={"content-encoding": coding, "content-type": "application/json"}, timeout=60)
        assert response.status_code in (400, 415), (coding, response.status_code)


BOUNDS = {"n": 10**6, "best_of": 10**6, "logprobs": 10**6, "top_logprobs": 10**6, "max_tokens": -5, "stop": ["a"] * 100, "logit_bias": {str(i): 1 for i in range(50_000)}}


@pytest.mark.parametrize("field", BOUNDS)
def test_CVE_2026_34756_what_multiplies_is_bounded(daemon, field):
    path, body = ("/v1/completions", {"prompt": "a", "max_tokens": 1}) if field in ("best_of", "logprobs") else ("/v1/chat/completions", CHAT)
    response = httpx.post(daemon.url + path, json={**body, field: BOUNDS[field]}, timeout=60)
    assert response.status_code == 400 and response.json()["error"]["param"] in (field, "logprobs"), response.text


def test_GHSA_389x_67px_mjg3_grammars_that_are_kept_are_bounded(daemon):
    resident = lambda: next(int(line.split()[1]) for line in open(f"/proc/{daemon.process.pid}/status") if line.startswith("RssAnon"))
    ask = lambda i: httpx.post(daemon.url + "/v1/chat/completions", json={**CHAT, "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"enum": [f"{i} {j}" for j in range(60)]}}}}, timeout=60)
    for i in range(60):
        assert ask(i).status_code == 200
    before = resident()
    for i in range(60, 260):
        assert ask(i).status_code == 200
    assert resident() - before < 64 << 10  # KiB


def test_CVE_2025_62426_template_arguments_do_not_replace_what_is_the_daemons(daemon):
    for name, replaced in (("messages", []), ("tools", [{}]), ("bos_token", "x"), ("eos_token", ""), ("raise_exception", 1)):
        response = httpx.post(daemon.url + "/v1/chat/completions", json={**CHAT, "chat_template_kwargs": {name: replaced}}, timeout=60)
        assert response.status_code == 400 and name in response.json()["error"]["message"], (name, response.text)
    assert httpx.post(daemon.url + "/v1/chat/completions", json={**CHAT, "chat_template": "{{ 7 * 7 }}"}, timeout=60).status_code == 400


ESCAPES = ["''.__class__.__mro__[1].__subclasses__()", "self.__init__.__globals__", "cycler.__init__.__globals__.os.popen('id').read()", "lipsum.__globals__", "messages.__class__", "range.__globals__", "''|attr('__class__')",
           "namespace().__class__", "joiner.__init__", "{% import 'os' as os %}{{ os }}", "{% include '/etc/passwd' %}", "{% extends '/etc/passwd' %}"]


@pytest.mark.parametrize("escape", ESCAPES)
def test_CVE_2024_34359_CVE_2026_5760_templates_reach_nothing(tmp_path, escape):
    template = escape if escape.startswith("{%") else "{{ " + escape + " }}"
    (tmp_path / "template.jinja").write_text("BEGIN" + template + "END")
    result = run("template", tmp_path / "template.jinja", stdin=json.dumps({"messages": STORY}).encode(), check=False)
    out = (result.stdout + result.stderr).decode()
    assert "uid=" not in out and "root:" not in out and "object at" not in out and "<class" not in out
    if result.returncode == 0:
        assert result.stdout.strip() in (b"BEGINEND", b"BEGINUndefinedEND"), out
    else:  # refused, and for what it is
        assert any(words in out for words in ("undefined", "unknown", "not supported", "expected", "no method", "has no", "cannot", "neither")), out


def test_F21_a_template_is_rendered_by_that_command(tmp_path):
    """The test above once called an option that there is not, and passed."""
    (tmp_path / "template.jinja").write_text("BEGIN{{ messages[0].role }}END")
    assert run("template", tmp_path / "template.jinja", stdin=json.dumps({"messages": STORY}).encode()).stdout.strip() == b"BEGINuserEND"


def test_CVE_2025_23310_CVE_2025_23311_many_chunks_take_no_stack(daemon):
    body = json.dumps(CHAT).encode()
    response = httpx.post(daemon.url + "/v1/chat/completions", content=iter([body[:1]] + [body[i : i + 1] for i in range(1, len(body))] + [b" "] * 20_000), headers={"content-type": "application/json"}, timeout=120)
    assert response.status_code == 200


def test_llama_cpp_19051_a_grammar_that_cannot_be_read_constrains_nothing_silently(daemon):
    for grammar in ("root ::= [", "root ::= missing", "nothing", "root ::= \"a", "root ::= (", "root := \"a\""):
        response = httpx.post(daemon.url + "/v1/chat/completions", json={**CHAT, "grammar": grammar}, timeout=60)
        assert response.status_code == 400, (grammar, response.text)


def test_llama_cpp_27619_a_tool_is_described_with_any_words(daemon):
    for words in ("\"}]}", "root ::= \"a\"", "{{ 7 * 7 }}", "{% raw %}", "\u0000", "\\", "<tool_call>", "'" * 1000, "\U0001f600" * 100):
        body = {**CHAT, "tools": [{"type": "function", "function": {"name": "f", "description": words, "parameters": {"type": "object", "description": words, "properties": {}}}}], "tool_choice": "required", "max_tokens": 30}
        response = httpx.post(daemon.url + "/v1/chat/completions", json=body, timeout=60)
        assert response.status_code in (200, 400), response.text
    assert value(daemon, "num_requests_running") == 0


def test_llama_cpp_9195_ill_formed_text_ends_no_process(daemon):
    for content in (b'"\xff"', b'"\xed\xa0\x80"', b'"\\ud800"', b'"\\udc00\\ud800"', b'"\xc3"', b'"\xf4\x90\x80\x80"'):
        response = httpx.post(daemon.url + "/v1/chat/completions", content=b'{"max_tokens":2,"messages":[{"role":"user","content":' + content + b"}]}", headers={"content-type": "application/json"}, timeout=60)
        assert response.status_code == 400, (content, response.text)


def test_ollama_4967_a_prompt_is_never_cut_silently(daemon):
    response = httpx.post(daemon.url + "/api/generate", json={"prompt": "owl " * 5000, "stream": False}, timeout=60)
    assert response.status_code == 400 and "context" in response.text


def test_llama_cpp_24013_answers_never_outgrow_their_context(daemon):
    context = httpx.get(daemon.url + "/v1/status").json()["context_length"]
    response = httpx.post(daemon.url + "/v1/completions", json={"prompt": "Once", "max_tokens": 10**6, "ignore_eos": True, "temperature": 0}, timeout=280)
    assert response.status_code in (200, 400)
    if response.status_code == 200:
        usage = response.json()["usage"]
        assert usage["total_tokens"] <= context and response.json()["choices"][0]["finish_reason"] == "length"
    wait_until(lambda: value(daemon, "num_requests_running") == 0)


def test_llama_cpp_27052_files_beside_the_model_are_not_believed(tmp_path):
    model = tmp_path / "m.gguf"
    model.write_bytes(MODEL.read_bytes())
    for ending, magic in ((".tcp", b"TCPRED01"), (".tcb", b"TCBUND01"), (".placement.json", b"{")):
        beside = tmp_path / ("m.gguf" + ending)
        for content in (b"", magic, magic + struct.pack("<QQQ", 2**63, 2**62, 2**64 - 1) * 9, b"\0" * 5000):
            beside.write_bytes(content)
            result = run("run", model, "-p", "a", "-n", 1, "--hot-memory", "1MiB", *(["--placement", beside] if ending.endswith("json") else []), check=False)
            assert result.returncode in (0, 1), (ending, content[:20], result.stderr)
            assert result.returncode == 0 or beside.name.encode() in result.stderr, result.stderr
        beside.unlink()


def test_CVE_2024_37032_CVE_2026_7020_a_name_is_no_path(daemon):
    for name in ("../../../../etc/passwd", "/etc/passwd", "sha256:../../etc/passwd", "%2e%2e/%2e%2e/etc/passwd"):
        for path, body in (("/api/show", {}), ("/api/chat", {"messages": [], "stream": False}), ("/v1/completions", {"prompt": "a", "max_tokens": 1})):
            response = httpx.post(daemon.url + path, json={**body, "model": name}, timeout=60)
            assert response.status_code in (400, 404) and "root:" not in response.text, (path, name)


def test_CVE_2024_28224_a_page_reaches_nothing_by_a_name_of_its_own(daemon):
    for headers in ({"host": "evil.example"}, {"origin": "http://evil.example"}, {"host": "127.0.0.1.evil.example"}):
        for method, path in (("GET", "/v1/models"), ("POST", "/v1/chat/completions"), ("POST", "/api/generate"), ("GET", "/metrics")):
            assert httpx.request(method, daemon.url + path, headers=headers, timeout=60).status_code == 403, (headers, path)


def test_CVE_2024_42477_nobody_calls_procedures_of_memory(daemon):
    """The process listens on its configured ports only."""
    own = {link[8:-1] for link in map(os.readlink, (f"/proc/{daemon.process.pid}/fd/{fd}" for fd in os.listdir(f"/proc/{daemon.process.pid}/fd"))) if link.startswith("socket:[")}
    lines = [line.split() for name in ("tcp", "tcp6") for line in open(f"/proc/{daemon.process.pid}/net/{name}").readlines()[1:]]
    assert {int(line[1].split(":")[1], 16) for line in lines if line[3] == "0A" and line[9] in own} <= {daemon.port, daemon.grpc_port}


def test_GO_2025_4251_management_needs_a_right(daemon):
    for method, path in (("GET", "/admin/requests"), ("POST", "/admin/drain"), ("POST", "/admin/reload"), ("DELETE", "/admin/requests/a")):
        assert httpx.request(method, daemon.url + path, timeout=60).status_code in (401, 403, 404), path


def test_CVE_2025_48956_a_giant_header_is_not_kept(daemon):
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as s, contextlib.suppress(ConnectionError):
        s.sendall(b"GET /v1/models HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 60_000)
        assert b" 431 " in s.recv(65536)


WRONG_SCHEMAS = [{"type": "something"}, {"type": 5}, {"pattern": "["}, {"type": "string", "pattern": "(?<"}, {"type": "string", "pattern": "a{9999999999}"}, {"$ref": "#/nowhere"}, {"enum": []}, {"type": "string", "format": 7}, 5, None, []]


@pytest.mark.parametrize("schema", WRONG_SCHEMAS, ids=range(len(WRONG_SCHEMAS)))
def test_CVE_2025_48944_a_wrong_schema_ends_its_request_alone(daemon, schema):
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    for body in ({"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}}, {"tools": [tool], "tool_choice": "required"}):
        assert httpx.post(daemon.url + "/v1/chat/completions", json={**CHAT, **body}, timeout=60).status_code in (200, 400, 501)
    assert httpx.post(daemon.url + "/v1/chat/completions", json=CHAT, timeout=60).status_code == 200


def test_CVE_2025_23319_CVE_2025_23320_CVE_2025_23334_errors_tell_nothing_of_the_inside(daemon):
    bodies = (b"{", b"\xff", b'{"model": "' + b"a" * 100_000 + b'"}', json.dumps({**CHAT, "n": 10**30}).encode(), json.dumps({"messages": [{"role": "x" * 50_000}]}).encode())
    for path in ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/api/chat", "/completion"):
        for body in bodies:
            response = httpx.post(daemon.url + path, content=body, headers={"content-type": "application/json"}, timeout=60)
            if response.status_code == 200 and "n" in response.headers.get("x-thermocline-ignored", "").split(", "):
                continue  # Ollama has no `n`: its routes leave it out, visibly
            assert 400 <= response.status_code < 500 and len(response.content) < 5_000, (path, body[:40])
            assert not re.search(r"0x[0-9a-f]{6}|/dev/shm|/home/|/root|\.cc:\d|\.h:\d", response.text), response.text


def test_CVE_2025_46728_CVE_2025_53628_CVE_2025_52887_CVE_2026_45352_chunks_and_headers_are_bounded(daemon):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    for request in (head + b"Transfer-Encoding: chunked\r\n\r\n" + b"f" * 17 + b"\r\n", head + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", head + b"X: y\r\n" * 50_000 + b"\r\n",
                    head + b"Transfer-Encoding: chunked\r\n\r\n" + (b"10000\r\n" + b"a" * 65536 + b"\r\n") * 100):
        with socket.create_connection(("127.0.0.1", daemon.port), timeout=60) as s:
            with contextlib.suppress(ConnectionError):
                s.sendall(request)
            with contextlib.suppress(ConnectionError):
                answer = s.recv(65536)
                assert answer[9:12] in (b"400", b"413", b"431"), answer[:100]
    assert httpx.get(daemon.url + "/health/live", timeout=60).status_code == 200


def test_vllm_a_key_covers_more_than_v1(tmp_path):
    out = subprocess.run([str(BIN / "thermoclined"), "--hash-key", "a"], input=b"a-key-0123456789abcdef\n", capture_output=True, check=True)
    (tmp_path / "keys").write_bytes(out.stdout)
    with Daemon(f"server.api_keys_file={tmp_path}/keys") as d:
        for path in ("/tokenize", "/detokenize", "/completion", "/metrics", "/invocations", "/rerank", "/score", "/pause", "/resume", "/api/chat", "/props", "/slots", "/v1/status"):
            assert httpx.post(d.url + path, json={}, timeout=60).status_code == 401, path
