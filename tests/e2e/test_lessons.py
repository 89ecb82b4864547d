"""What has broken servers like this one, each by the name under which it was published. docs/reliability.md lists where the others are."""
import json
import struct
import zipfile
import zlib

import gguf
import httpx
import pytest
from conftest import ROOT, run, wait_until
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
def test_CVE_2025_53630_CVE_2026_27940_CVE_2024_23496_sizes_are_summed_with_care(tmp_path, name):
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


def test_llama_cpp_25283_patterns_do_not_recurse(daemon):
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


def test_CVE_2024_12886_compressed_bodies_are_not_unpacked(daemon):
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
    (tmp_path / "template.jinja").write_text(template)
    result = run("template", MODEL, "--template", tmp_path / "template.jinja", stdin=json.dumps(STORY).encode(), check=False)
    out = (result.stdout + result.stderr).decode()
    assert "uid=" not in out and "root:" not in out and "object at" not in out and "<class" not in out
    assert result.returncode == 1 or not result.stdout.strip() or result.stdout.strip() == b"undefined", out


def test_CVE_2025_23310_many_chunks_take_no_stack(daemon):
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
