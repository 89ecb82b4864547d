"""Faults that were published of other servers, and that this one had, too: each with its smallest input and the right value of the
independent reference that its report names."""
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import gguf
import httpx
import jinja2
import jsonschema
import pytest
from conftest import BIN, ROOT, THERMOCLINE, TIDEPOOL_FOLDER, Daemon, run, run_json, wait_until
from gguf_copy import copy
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers

TIDEPOOL = ROOT / "config/models/tidepool.gguf"


def ask(daemon, path, **body):
    return httpx.post(daemon.url + path, json=body, timeout=120)


def types_of(path):
    return gguf.GGUFReader(path).fields["tokenizer.ggml.token_type"].contents()


@pytest.fixture(scope="module")
def odd_smollm(smollm, tmp_path_factory):
    """SmolLM2 whose <|im_end|> is user-defined and whose padding token is beyond the vocabulary."""
    types = types_of(smollm)
    tokens = gguf.GGUFReader(smollm).fields["tokenizer.ggml.tokens"].contents()
    types[tokens.index("<|im_end|>")] = 4
    return copy(smollm, tmp_path_factory.mktemp("odd") / "odd.gguf", fields={"tokenizer.ggml.token_type": types, "tokenizer.ggml.padding_token_id": 1 << 31})


@pytest.fixture(scope="module")
def served(smollm):
    with Daemon(f"model.path={smollm}", "model.name=s") as d:
        yield d


# F01, llama.cpp #27783

@pytest.mark.parametrize("name", ["deepseek-llm", "llama-bpe", "qwen35", "falcon", "gpt-2"])
def test_F01_a_run_of_spaces_takes_a_time_that_grows_with_its_length(peer, name):
    def seconds(count):
        text = (" " * count + "1").encode()
        begin = time.process_time(), time.monotonic()
        run("tokenize", peer / f"models/ggml-vocab-{name}.gguf", stdin=text)
        return time.monotonic() - begin[1]
    least = min(seconds(1000) for _ in range(2))
    # A quadratic time would be thousands of times the short text's.
    assert seconds(240_000) < least + 20


# F02, F13, F14, F15: talon #204, outlines-core #154, outlines #1165, vllm #17894. Behind six repetitions of a value the model copies
# it, so that a difference is the constraint's doing: a validator never sees valid values that a grammar cannot write.

COPIES = [
    ('{"id": 123456789012345678}', {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]}),
    *(('{"v": %s}' % v, {"type": "object", "properties": {"v": s}, "required": ["v"]}) for v, s in [
        ("12345678901234567890", {"type": "integer"}), ("-98765432109876543210", {"type": "integer", "maximum": 0}), ("0.30000000000000004", {"type": "number"}), ("6.02e+23", {"type": "number", "minimum": 0}),
        ("1.5e-300", {"type": "number"}), ("1700000000000001", {"type": "integer", "minimum": 1700000000000000}), ("9007199254740993", {"type": "integer", "exclusiveMinimum": 9007199254740992})]),
    *((json.dumps(v), {"type": "string", "format": f}) for f, v in [
        ("date", "2024-02-29"), ("date", "0476-09-04"), ("date-time", "2024-02-29T23:59:59.123456789Z"), ("time", "08:30:00.1234567+02:00"),
        ("uri", "file:///srv/a.txt"), ("uri", "mailto:bob@example.com"), ("uri", "http://[::1]:8080/x"), ("uri", "urn:isbn:0451450523"), ("uri", "https://user:pw@host.example.org:8443/a/b/c/d/e/f/g/h/i/j?x=1&y=a/b#top"),
        ("uri-reference", "../a/b.html#c"), ("uri-reference", "//host/x"), ("email", "bob@localhost"), ("email", "o'hara+news@mail.example.co.uk"), ("hostname", "a.b.c.d.example.org"),
        ("ipv6", "fe80::192.168.0.1"), ("ipv6", "2001:db8::8a2e:370:7334"), ("duration", "P1000D"), ("json-pointer", "/a~1b/c/d/e/f/g/h/i/j/k")])]


@pytest.mark.parametrize("value,schema", COPIES, ids=[v[:40] for v, _ in COPIES])
def test_F02_F13_F14_F15_valid_values_are_copied_unchanged(served, value, schema):
    jsonschema.Draft202012Validator(schema).validate(json.loads(value))
    body = {"prompt": (value + "\n") * 6, "temperature": 0, "max_tokens": 120, "stop": ["\n"]}
    free = ask(served, "/v1/completions", **body).json()["choices"][0]["text"]
    held = ask(served, "/v1/completions", **body, json_schema=schema)
    assert held.status_code == 200, held.text
    assert free == value, "the model does not copy this value by itself"
    assert held.json()["choices"][0]["text"] == value


def test_F02_in_a_call_of_a_tool(served):
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"], "additionalProperties": False}
    tool = {"type": "function", "function": {"name": "open", "parameters": schema}}
    messages = [{"role": "user", "content": "Repeat: " + '{"id": 123456789012345678}\n' * 8}]
    answer = ask(served, "/v1/chat/completions", messages=messages, tools=[tool], tool_choice="required", temperature=0, max_tokens=60).json()["choices"][0]
    assert json.loads(answer["message"]["tool_calls"][0]["function"]["arguments"])["id"] == 123456789012345678, answer


@pytest.mark.parametrize("schema,low", [({"type": "number", "minimum": 1e20}, 10**20), ({"type": "integer", "minimum": 1700000000000000}, 1700000000000000), ({"type": "integer", "exclusiveMinimum": 2**63 - 1}, 2**63)])
def test_F15_large_bounds_hold(served, schema, low):
    for seed in range(3):
        text = ask(served, "/v1/completions", prompt="A number:", json_schema=schema, max_tokens=80, seed=seed).json()["choices"][0]["text"]
        assert json.loads(text) >= low, text


def test_F16_a_long_string_may_have_a_least_length(served):
    for low, high in ((1, 65536), (300, 70000), (5000, None)):
        schema = {"type": "string", "minLength": low, **({"maxLength": high} if high else {})}
        answer = ask(served, "/v1/completions", prompt="Say:", json_schema=schema, max_tokens=30)
        assert answer.status_code == 200, answer.text
    text = ask(served, "/v1/completions", prompt="Say:", json_schema={"type": "string", "minLength": 600, "maxLength": 650}, max_tokens=900, temperature=0).json()["choices"][0]["text"]
    assert 600 <= len(json.loads(text)) <= 650


# F05, unsloth #6229; F09, llama.cpp #11613

def test_F05_F09_a_user_defined_end_of_turn_ends_turns_and_is_no_text_of_clients(odd_smollm, smollm):
    with Daemon(f"model.path={odd_smollm}", "model.name=s") as d, Daemon(f"model.path={smollm}", "model.name=s") as plain:
        assert "padding_token_id" in d.text() and "ignored" in d.text()
        body = {"messages": [{"role": "user", "content": "Say hello."}], "temperature": 0, "max_tokens": 60}
        odd, right = (ask(each, "/v1/chat/completions", **body).json()["choices"][0] for each in (d, plain))
        assert odd["message"]["content"] == right["message"]["content"] and "<|im_end|>" not in odd["message"]["content"]
        forged = [{"role": "user", "content": "a<|im_end|>b"}]
        assert [ask(each, "/v1/tokens/count", messages=forged).json()["prompt_tokens"] for each in (d, plain)][0] == ask(plain, "/v1/tokens/count", messages=forged).json()["prompt_tokens"]


@pytest.mark.parametrize("key", ["padding", "unknown", "bos", "eos", "eot", "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep", "prefix", "suffix", "middle"])
def test_F09_special_tokens_beyond_the_vocabulary_are_ignored(tmp_path, key):
    for number, warns in ((4294967295, False), (2048, True), (1 << 31, True)):  # the first is -1: none
        path = copy(TIDEPOOL, tmp_path / "m.gguf", fields={f"tokenizer.ggml.{key}_token_id": number})
        result = run("run", path, "-p", "Once", "-n", 1)
        assert (f"{key}_token_id" in result.stderr.decode()) == warns, result.stderr


# F06, llama.cpp #7938

def test_F06_phi3s_special_tokens_take_the_white_space_behind_them(peer):
    text = b"<|user|>\nHello<|end|>\n<|assistant|>\n"
    assert run_json("tokenize", peer / "models/ggml-vocab-phi-3.gguf", "--special", stdin=text)["tokens"] == [32010, 15043, 32007, 32001]


# F07, llama.cpp #23089

@pytest.mark.parametrize("name,before", [("Qwen-Qwen3-0.6B", "</think>\n\n"), ("Qwen3.5-4B", "</think>\n\n"), ("GLM-4.6", "</think>\n"), ("openai-gpt-oss-120b", "<|channel|>final<|message|>"), ("Qwen-Qwen2.5-7B-Instruct", "assistant\n")])
def test_F07_an_answer_that_is_begun_stands_where_its_template_writes_it(smollm, peer, tmp_path, name, before):
    template = (peer / f"models/templates/{name}.jinja").read_text()
    path = copy(smollm, tmp_path / "model.gguf", fields={"tokenizer.chat_template": template}, layers=3)
    messages = [{"role": "user", "content": "What is 6 * 7?"}, {"role": "assistant", "content": "The answer is"}]
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"])
    environment.globals.update(raise_exception=lambda m: (_ for _ in ()).throw(ValueError(m)), strftime_now=lambda f: time.strftime(f))
    environment.filters["tojson"] = lambda v, **k: json.dumps(v, ensure_ascii=False)
    whole = environment.from_string(template).render(messages=messages, tools=None, add_generation_prompt=False, bos_token="<|im_start|>", eos_token="<|im_end|>")
    expected = whole[: whole.rindex("The answer is") + len("The answer is")]
    with Daemon(f"model.path={path}", "model.name=s") as d:
        prompt = ask(d, "/apply-template", messages=messages).json()["prompt"]
        assert prompt == expected and prompt.endswith(before + "The answer is")
        answer = ask(d, "/v1/chat/completions", messages=messages, max_tokens=5, temperature=0).json()["choices"][0]["message"]
        assert answer["content"] and "reasoning_content" not in answer


# F10, tokenizers #2116, llama.cpp #6980

@pytest.fixture(scope="module")
def folder(smollm, tmp_path_factory):
    """Makes a folder with a tokenizer.json of Tidepool's size, and the same tokenizer of the tokenizers library."""
    reader = gguf.GGUFReader(smollm)
    tokens = reader.fields["tokenizer.ggml.tokens"].contents()[:2048]
    vocab = {t: i for i, t in enumerate(tokens)}
    merges = [tuple(m.split(" ")) for m in reader.fields["tokenizer.ggml.merges"].contents()]
    merges = [m for m in merges if all(p in vocab for p in m) and "".join(m) in vocab]
    made = iter(range(1000))

    def make(normalizer=None, pre=None, added=(), **model):
        oracle = Tokenizer(models.BPE(vocab=vocab, merges=merges, **model))
        oracle.pre_tokenizer = pre or pre_tokenizers.ByteLevel(add_prefix_space=False)
        if normalizer is not None:
            oracle.normalizer = normalizer
        oracle.add_special_tokens([AddedToken(tokens[i], normalized=False, special=True) for i in range(3)])
        oracle.add_tokens(list(added))
        path = tmp_path_factory.mktemp("hf") / str(next(made))
        shutil.copytree(ROOT / "tests/golden/models/tidepool/target", path)
        (path / "tokenizer.model").unlink()
        oracle.save(str(path / "tokenizer.json"))
        return path, oracle
    return make


TEXTS = ["Plain text", "CAFÉ e\u0301a\u0300 ﬁne ½ Ⅷ", "  two  spaces ", "xAx x A A\n A", "the quick brown", " lead", "İstanbul ΣΑΣ", "tab\tA\u2003A end"]


@pytest.mark.parametrize("name", ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "Sequence", "prefix", "lstrip", "rstrip", "both", "single_word", "ignore_merges"])
def test_F10_tokenizer_json_is_read_as_tokenizers_reads_it(folder, name):
    forms = {"NFC": normalizers.NFC(), "NFD": normalizers.NFD(), "NFKC": normalizers.NFKC(), "NFKD": normalizers.NFKD(), "Lowercase": normalizers.Lowercase(), "Sequence": normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()])}
    edges = {"lstrip": {"lstrip": True}, "rstrip": {"rstrip": True}, "both": {"lstrip": True, "rstrip": True}, "single_word": {"single_word": True}}
    if name in forms:
        path, oracle = folder(normalizer=forms[name])
    elif name in edges:
        path, oracle = folder(added=[AddedToken("A", normalized=False, special=False, **edges[name])])
    elif name == "prefix":
        path, oracle = folder(pre=pre_tokenizers.ByteLevel(add_prefix_space=True))
    else:
        path, oracle = folder(pre=pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"), "isolated"),
                                                           pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), ignore_merges=False)
    for text in TEXTS:
        assert run_json("tokenize", path, stdin=text.encode())["tokens"] == oracle.encode(text).ids, (name, text)


@pytest.mark.parametrize("normalizer", [normalizers.Strip(), normalizers.Replace("a", "b"), normalizers.StripAccents()])
def test_F10_other_normalizers_are_refused_by_name(folder, normalizer):
    path, _ = folder(normalizer=normalizer)
    result = run("tokenize", path, stdin=b"a", check=False)
    assert result.returncode == 1 and f"normalizer '{{\"type\":\"{type(normalizer).__name__}\"" in result.stderr.decode()


def test_F10_what_a_folder_says_survives_its_conversion(folder, tmp_path):
    path, oracle = folder(normalizer=normalizers.Lowercase(), added=[AddedToken("a", normalized=False, special=False, rstrip=True)])
    run("convert", path, tmp_path / "m.gguf")
    for text in TEXTS:
        assert run_json("tokenize", tmp_path / "m.gguf", stdin=text.encode())["tokens"] == run_json("tokenize", path, stdin=text.encode())["tokens"] == oracle.encode(text).ids


# F17, lmstudio #2298; F18, llama.cpp #14151

def systems(peer, smollm, tmp_path, name):
    template = (peer / f"models/templates/{name}.jinja").read_text()
    return copy(smollm, tmp_path / "model.gguf", fields={"tokenizer.chat_template": template}, layers=3)


LATE = [{"role": "system", "content": "First rule."}, {"role": "system", "content": "Second rule."}, {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hi."},
        {"role": "user", "content": "Go on."}, {"role": "system", "content": "A late rule."}]


@pytest.mark.parametrize("name,kept", [("Qwen3.5-4B", False), ("Qwen-Qwen2.5-7B-Instruct", True), ("google-gemma-2-2b-it", False), ("microsoft-Phi-3.5-mini-instruct", None)])
def test_F17_F18_system_messages_keep_their_place_on_every_route(smollm, peer, tmp_path, name, kept):
    with Daemon(f"model.path={systems(peer, smollm, tmp_path, name)}", "model.name=s") as d:
        prompt = ask(d, "/apply-template", messages=LATE).json()["prompt"]
        places = [prompt.index(text) for text in ("First rule.", "Second rule.", "Hello.", "Hi.", "Go on.", "A late rule.")]
        assert places == sorted(places), prompt
        if kept is not None:
            assert ("<system-reminder>\nA late rule.\n</system-reminder>" in prompt) is not kept
        short = {"max_tokens": 2, "model": "s"}
        assert ask(d, "/v1/chat/completions", messages=LATE, **short).status_code == 200
        assert ask(d, "/api/chat", messages=LATE, model="s", stream=False, options={"num_predict": 2}).status_code == 200
        assert ask(d, "/v1/responses", input=LATE, model="s", max_output_tokens=2).status_code == 200
        assert ask(d, "/v1/messages", messages=LATE, **short).status_code == 200


def test_F18_phi3s_first_template_has_no_system_message(smollm, tmp_path):
    first = "{{ bos_token }}{% for message in messages %}{% if message['role'] == 'user' %}{{ '<|user|>\n' + message['content'] + '<|end|>\n<|assistant|>\n' }}{% elif message['role'] == 'assistant' %}{{ message['content'] + '<|end|>\n' }}{% endif %}{% endfor %}"
    path = copy(smollm, tmp_path / "m.gguf", fields={"tokenizer.chat_template": first}, layers=3)
    with Daemon(f"model.path={path}", "model.name=s") as d:
        prompt = ask(d, "/apply-template", messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello."}]).json()["prompt"]
        assert "<|user|>\nBe brief.\n\nHello.<|end|>" in prompt


# F19, transformers #31429

def test_F19_the_template_for_tools_is_used_when_tools_are_given(peer, tmp_path):
    plain, tools = "PLAIN{% for m in messages %}{{ m.content }}{% endfor %}", (peer / "models/templates/NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use.jinja").read_text()
    path = copy(TIDEPOOL, tmp_path / "m.gguf", fields={"tokenizer.chat_template": plain, "tokenizer.chat_template.tool_use": tools})
    tool = {"type": "function", "function": {"name": "now", "parameters": {"type": "object", "properties": {}}}}
    messages = [{"role": "user", "content": "Hi"}]

    def check(d):
        assert ask(d, "/apply-template", messages=messages).json()["prompt"] == "PLAINHi"
        prompt = ask(d, "/apply-template", messages=messages, tools=[tool]).json()["prompt"]
        assert "You are a function calling AI model" in prompt and '"name": "now"' in prompt and "PLAIN" not in prompt
    with Daemon(f"model.path={path}") as d:
        check(d)
    folder = tmp_path / "hf"
    shutil.copytree(TIDEPOOL_FOLDER, folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "default", "template": plain}, {"name": "tool_use", "template": tools}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    with Daemon(f"model.path={folder}") as d:
        check(d)
    run("convert", folder, tmp_path / "c.gguf")
    with Daemon(f"model.path={tmp_path / 'c.gguf'}") as d:
        check(d)


# F22, F23

def test_F22_add_special_adds_what_the_model_wants(served):
    assert ask(served, "/tokenize", content="Hello", add_special=True).json()["tokens"] == [19556]


def test_F23_more_dimensions_than_a_vector_has_are_refused(served):
    refused = ask(served, "/v1/embeddings", input="a", dimensions=1536)
    assert refused.status_code == 400 and refused.json()["error"]["param"] == "dimensions"


# F25

def logits(path, tmp_path):
    import numpy as np
    (tmp_path / "t.txt").write_text("Once upon a time there was an owl. " * 12)
    run("eval", path, "--text", tmp_path / "t.txt", "--logits", tmp_path / "l.npy")
    return np.load(tmp_path / "l.npy")


def test_F25_a_factor_without_a_type_is_linear_and_a_scale_is_obeyed(tmp_path):
    def of(**fields):
        return logits(copy(TIDEPOOL, tmp_path / "m.gguf", fields={k.replace("__", "."): v for k, v in fields.items()}), tmp_path)
    plain = of()
    linear = of(**{"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0})
    assert (of(**{"llama.rope.scaling.factor": 4.0}) == linear).all() and (linear != plain).any()
    heads, hidden = 4, 256
    reader = gguf.GGUFReader(TIDEPOOL)
    heads, hidden = (reader.fields[f"llama.{k}"].contents() for k in ("attention.head_count", "embedding_length"))
    own = float((hidden / heads) ** -0.5)
    assert abs(of(**{"llama.attention.scale": own}) - plain).max() < 1e-3 and abs(of(**{"llama.attention.scale": own / 4}) - plain).max() > 0.1


# F26

COMMANDS = [("run", "-p", "a", "-n", "1"), ("bench",), ("eval", "--text", "T"), ("calibrate", "--text", "T"), ("profile", "--text", "T"), ("plan",), ("pack", "--text", "T"), ("imatrix", "--text", "T", "-o", "O"), ("train-predictor", "--text", "T"), ("convert", "O")]


def odd_files(tmp_path, peer):
    """Files that are no model, though they look like one."""
    vocabulary = peer / "models/ggml-vocab-llama-bpe.gguf"
    whole = TIDEPOOL.read_bytes()
    made = {"cut": whole[: len(whole) // 2], "header": whole[:4096], "empty": b"", "zeros": bytes(1 << 16), "text": b"GGUF is a format. " * 100, "version": whole[:4] + b"\xff\xff\xff\xff" + whole[8:]}
    for name, data in made.items():
        (tmp_path / f"{name}.gguf").write_bytes(data)
    return [vocabulary, *(tmp_path / f"{name}.gguf" for name in made), tmp_path]


@pytest.mark.parametrize("command", COMMANDS, ids=[c[0] for c in COMMANDS])
def test_F26_odd_files_are_refused_by_every_command(peer, tmp_path, command):
    (tmp_path / "T").write_text("Once upon a time. " * 50)
    for path in odd_files(tmp_path, peer):
        words = [command[0], path, *(str(tmp_path / w) if w in ("T", "O") else w for w in command[1:])]
        result = run(*words, check=False)
        message = result.stderr.decode()
        assert result.returncode == 1 and message.strip().startswith("thermocline") and str(path) in message, (words, result)
        if "vocab" in path.name:
            assert "holds a vocabulary only" in message


def test_F26_the_daemon_says_why_it_cannot_load(peer, tmp_path):
    for path in odd_files(tmp_path, peer):
        result = subprocess.run([BIN / "thermoclined", "--set", f"model.path={path}", "--set", "server.port=0"], capture_output=True, timeout=60)
        assert result.returncode in (1, 78) and str(path) in result.stderr.decode(), (path, result)


# F08, ollama #17916: tests/engine/base/system_memory_test.cc has the files of both versions; here it is the kernel's own group.

def test_F08_threads_follow_a_quota():
    name = f"thermocline-test-{os.getpid()}"
    versions = [(Path("/sys/fs/cgroup") / name, {"cpu.max": "100000 100000"}), (Path("/sys/fs/cgroup/cpu") / name, {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "100000"})]
    group = None
    for folder, files in versions:
        try:
            folder.mkdir()
            if not (folder / "cgroup.procs").exists():
                raise OSError(f"{folder.parent} holds no control groups")
            for file, text in files.items():
                (folder / file).write_text(text)
            group = folder
            break
        except OSError as error:
            why = error
            if folder.exists():
                folder.rmdir()
    if group is None:
        pytest.skip(f"no control group can be made here: {why}")
    try:
        command = f"echo $$ > {group}/cgroup.procs && exec {THERMOCLINE} bench {TIDEPOOL} --prefill 8 --decode 2 --repetitions 1 --json"
        result = json.loads(subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=300).stdout)
        assert result["machine"]["threads"] == 1, result["machine"]
    finally:
        wait_until(lambda: not (group / "cgroup.procs").read_text().strip())
        group.rmdir()
