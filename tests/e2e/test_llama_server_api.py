"""llama-server's own routes, and text in the middle: a real model whose file names three of its tokens as those of a gap."""
import json
import re

import gguf
import httpx
import pytest
from conftest import ROOT, Daemon, wait_until

ASK = {"prompt": "Once upon a time", "n_predict": 24, "temperature": 0}


def post(daemon, path, body):
    return httpx.post(daemon.url + path, json=body, timeout=60)


def events(daemon, path, body):
    answer = post(daemon, path, {**body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream") and "[DONE]" not in answer.text
    return [json.loads(line.removeprefix("data: ")) for line in answer.text.split("\n") if line.startswith("data: ")]


def test_a_completion_is_that_of_the_other_api(daemon):
    answer = post(daemon, "/completion", {**ASK, "return_tokens": True, "n_probs": 3}).json()
    other = post(daemon, "/v1/completions", {"prompt": ASK["prompt"], "temperature": 0, "max_tokens": 24, "logprobs": 3}).json()
    assert answer["content"] == other["choices"][0]["text"] and answer["stop"] and answer["stop_type"] == "limit" and answer["prompt"] == ASK["prompt"]
    assert answer["tokens_predicted"] == 24 == len(answer["tokens"]) == len(answer["completion_probabilities"]) and answer["tokens_evaluated"] == other["usage"]["prompt_tokens"]
    assert [p["id"] for p in answer["completion_probabilities"]] == answer["tokens"]
    assert [p["logprob"] for p in answer["completion_probabilities"]] == pytest.approx(other["choices"][0]["logprobs"]["token_logprobs"])
    assert all(len(p["top_logprobs"]) == 3 and bytes(p["bytes"]).decode() == p["token"] for p in answer["completion_probabilities"])
    assert answer["generation_settings"]["temperature"] == 0 and answer["generation_settings"]["n_predict"] == 24 and answer["timings"]["predicted_n"] == 24
    ids = post(daemon, "/tokenize", {"content": ASK["prompt"], "add_special": True}).json()["tokens"]
    assert post(daemon, "/completion", {**ASK, "prompt": ids}).json()["content"] == answer["content"]


def test_a_stream_ends_with_the_figures(daemon):
    whole = post(daemon, "/completion", ASK).json()
    *parts, last = events(daemon, "/completion", ASK)
    assert "".join(p["content"] for p in parts) == whole["content"] and not any(p["stop"] for p in parts)
    assert sum((p["tokens"] for p in parts), []) == post(daemon, "/completion", {**ASK, "return_tokens": True}).json()["tokens"]
    assert events(daemon, "/completion", {**ASK, "return_tokens": True})[-1]["tokens"] == []  # they were told before
    assert last["stop"] and last["content"] == "" and last["tokens_predicted"] == 24 == parts[-1]["tokens_predicted"] and last["timings"]["predicted_n"] == 24
    assert events(daemon, "/completion", {**ASK, "return_progress": True})[0]["prompt_progress"]["total"] == whole["tokens_evaluated"]


def test_how_an_answer_ended(daemon):
    stopped = post(daemon, "/completion", {**ASK, "stop": ["nothing", "owl"]}).json()
    assert stopped["stop_type"] == "word" and stopped["stopping_word"] == "owl" and stopped["content"].endswith(" quiet ")
    assert post(daemon, "/completion", {**ASK, "n_predict": -1}).json()["stop_type"] == "eos"
    assert post(daemon, "/completion", {**ASK, "n_predict": 0}).json()["tokens_predicted"] == 0
    schema = {"type": "object", "properties": {"n": {"enum": [1, 2]}}, "required": ["n"], "additionalProperties": False}
    assert json.loads(post(daemon, "/completion", {**ASK, "json_schema": schema}).json()["content"])["n"] in (1, 2)
    assert post(daemon, "/completion", {**ASK, "grammar": 'root ::= "yes"'}).json()["content"] == "yes"
    assert json.loads(post(daemon, "/completion", {**ASK, "json_schema": schema, "grammar": ""}).json()["content"])["n"] in (1, 2)
    assert post(daemon, "/completion", {"prompt": "Hi", "temperature": 0}).json()["generation_settings"]["n_predict"] == 4096
    never = post(daemon, "/completion", {**ASK, "return_tokens": True, "logit_bias": [[post(daemon, "/completion", {**ASK, "return_tokens": True}).json()["tokens"][0], False]]}).json()
    assert never["content"] != post(daemon, "/completion", ASK).json()["content"]


@pytest.mark.parametrize("field,value", [("mirostat", 2), ("dynatemp_range", 0.5), ("xtc_probability", 0.5), ("samplers", ["top_k"]), ("lora", [{"id": 0, "scale": 1}]), ("n", 2), ("grammer", 1),
                                         ("response_fields", 5), ("post_sampling_probs", True), ("temperature", "warm"), ("logit_bias", [["text", 1]]), ("prompt", ["a", "b"]), ("prompt", None)])
def test_what_is_not_obeyed_is_refused_by_name(daemon, field, value):
    answer = post(daemon, "/completion", {**ASK, field: value})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == field, answer.text


def test_values_that_do_nothing_are_taken(daemon):
    body = {**ASK, "mirostat": 0, "mirostat_tau": 5, "dynatemp_range": 0, "xtc_probability": 0, "top_n_sigma": -1, "cache_prompt": True, "id_slot": -1, "samplers": [], "repeat_last_n": 64,
            "repeat_penalty": 1.0, "n_keep": 0, "min_keep": 0, "t_max_predict_ms": 0, "seed": -1, "timings_per_token": True, "grammar": "", "image_data": [], "top_k": -1}
    assert post(daemon, "/completion", body).json()["content"] == post(daemon, "/completion", ASK).json()["content"]
    assert post(daemon, "/completion", {**body, "repeat_penalty": 1.1}).json()["error"]["param"] == "repeat_last_n"


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
@pytest.mark.parametrize("content", ["hi", ["An owl.", "A bird."], [5, 6], [[5, 6], "An owl."]])
def test_vectors_of_content_have_llama_servers_shape(daemon, path, content):
    expected = [one["embedding"] for one in post(daemon, "/v1/embeddings", {"input": content}).json()["data"]]
    answer = post(daemon, path, {"content": content, "embd_normalize": 2}).json()
    assert answer == [{"index": i, "embedding": [vector]} for i, vector in enumerate(expected)]


def test_vectors_of_input_have_the_shape_of_their_route(daemon):
    expected = post(daemon, "/v1/embeddings", {"input": "hi"}).json()["data"][0]["embedding"]
    assert post(daemon, "/embedding", {"input": "hi"}).json() == [{"index": 0, "embedding": [expected]}]
    assert post(daemon, "/embeddings", {"input": "hi"}).json()["data"][0]["embedding"] == expected
    for path, body, param in (("/v1/embeddings", {"content": "hi"}, "input"), ("/embedding", {"content": "hi", "input": "hi"}, "content"), ("/embedding", {"content": []}, "content"),
                              ("/embedding", {"content": "hi", "embd_normalize": 0}, "embd_normalize"), ("/embeddings", {"content": "hi", "encoding_format": "base64"}, "encoding_format")):
        refused = post(daemon, path, body)
        assert refused.status_code == 400 and refused.json()["error"]["param"] == param, refused.text


def test_what_the_server_tells_of_itself(daemon):
    props = httpx.get(daemon.url + "/props").json()
    assert props["default_generation_settings"]["n_ctx"] == 512 and props["total_slots"] == 16 and props["model_alias"] == "tidepool"
    assert props["chat_template"] and props["eos_token"] and props["model_path"].endswith("tidepool.gguf") and props["modalities"] == {"vision": False, "audio": False}
    slots = httpx.get(daemon.url + "/slots").json()
    assert len(slots) == 16 and all(s["n_ctx"] == 512 and not s["is_processing"] for s in slots)
    assert httpx.get(daemon.url + "/slots?fail_on_no_slot=1").status_code == 200
    assert httpx.get(daemon.url + "/health").json() == {"status": "ok"}
    assert httpx.post(daemon.url + "/props", json={}).status_code == 405


def test_health_while_the_model_is_loaded(smollm):
    with Daemon(f"model.path={smollm}", "model.verify=true", wait=False) as d:
        wait_until(lambda: d.port is not None)
        seen = set()
        while "ok" not in seen:
            answer = httpx.get(d.url + "/health")
            seen.add(answer.json().get("status", answer.status_code))
        assert seen <= {503, "ok"}


# Text in the middle

PREFIX, SUFFIX = "def add(a, b):\n    return ", "\n\nprint(add(1, 2))\n"


@pytest.fixture(scope="module")
def filler(smollm, tmp_path_factory):
    """SmolLM2, whose <jupyter_...> tokens stand for a gap's: by the file's keys."""
    path = tmp_path_factory.mktemp("infill") / "filler.gguf"
    reader = gguf.GGUFReader(smollm)
    names = reader.fields["tokenizer.ggml.tokens"].contents()
    writer = gguf.GGUFWriter(path, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    for key, name in (("pre", "<jupyter_start>"), ("suf", "<jupyter_text>"), ("mid", "<jupyter_code>"), ("sep", "<file_sep>")):
        writer.add_uint32(f"tokenizer.ggml.fim_{key}_token_id", names.index(name))
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with Daemon(f"model.path={path}", "engine.context_length=512") as d:
        yield d


def test_a_gap_is_laid_out_as_the_model_knows_it(filler):
    raw = f"<jupyter_start>{PREFIX}<jupyter_text>{SUFFIX}<jupyter_code>"
    expected = post(filler, "/completion", {"prompt": raw, "n_predict": 16, "temperature": 0}).json()
    answer = post(filler, "/infill", {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": 16, "temperature": 0}).json()
    assert answer["prompt"] == raw and answer["content"] == expected["content"] and answer["tokens_evaluated"] == expected["tokens_evaluated"]
    halves = post(filler, "/infill", {"input_prefix": PREFIX[:9], "prompt": PREFIX[9:], "input_suffix": SUFFIX, "n_predict": 16, "temperature": 0}).json()
    assert halves["content"] == expected["content"]
    completion = post(filler, "/v1/completions", {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 16, "temperature": 0}).json()
    assert completion["choices"][0]["text"] == expected["content"]
    generated = post(filler, "/api/generate", {"model": "filler", "prompt": PREFIX, "suffix": SUFFIX, "stream": False, "options": {"num_predict": 16, "temperature": 0}})
    assert generated.json()["response"] == expected["content"], generated.text
    assert "insert" in post(filler, "/api/show", {"model": "filler"}).json()["capabilities"]


def test_control_tokens_in_a_gaps_texts_stay_text(filler):
    answer = post(filler, "/infill", {"input_prefix": "<jupyter_code>", "input_suffix": "", "n_predict": 4}).json()
    assert answer["tokens_evaluated"] > 4 and answer["prompt"].startswith("<jupyter_start><jupyter_code>")


def test_other_files_come_first_and_make_way(filler):
    extra = [{"filename": "old.py", "text": "# " + "old " * 600}, {"filename": "near.py", "text": "def near(): pass"}]
    prompt = post(filler, "/infill", {"input_prefix": PREFIX, "input_suffix": SUFFIX, "input_extra": extra, "n_predict": 4}).json()["prompt"]
    assert prompt.index("<file_sep>near.py\ndef near(): pass<file_sep>filename\n<jupyter_start>") > 0 and "old.py" not in prompt and prompt.startswith(" old old")


def test_gaps_that_cannot_be_filled(filler, daemon):
    long = post(filler, "/infill", {"input_prefix": "word " * 600, "input_suffix": ""})
    assert long.status_code == 400 and long.json()["error"]["code"] == "context_length_exceeded"
    assert post(filler, "/infill", {"input_prefix": "a"}).json()["error"]["param"] == "input_suffix"
    assert post(filler, "/infill", {"input_prefix": "a", "input_suffix": "b", "input_extra": ["c"]}).json()["error"]["param"] == "input_extra"
    assert post(filler, "/v1/completions", {"prompt": [1, 2], "suffix": "b"}).json()["error"]["param"] == "suffix"
    assert post(filler, "/v1/completions", {"prompt": "a", "suffix": "b", "echo": True}).json()["error"]["param"] == "suffix"
    for path, body, field in (("/infill", {"input_prefix": "a", "input_suffix": "b"}, "input_prefix"), ("/v1/completions", {"prompt": "a", "suffix": "b"}, "suffix")):
        answer = post(daemon, path, body)
        assert answer.status_code == 400 and answer.json()["error"]["param"] == field and "fill-in-the-middle" in answer.json()["error"]["message"]


def test_what_editors_always_send_is_obeyed(daemon):
    """llama.vim and llama.vscode."""
    body = {**ASK, "samplers": ["top_k", "top_p", "infill"], "t_max_prompt_ms": 60000, "t_max_predict_ms": 60000, "n_indent": 4, "response_fields": ["content", "timings/prompt_n", "no/such"]}
    answer = post(daemon, "/completion", body)
    assert answer.status_code == 200 and set(answer.json()) == {"content", "timings/prompt_n"} and answer.headers["x-thermocline-ignored"] == "n_indent"
    late = post(daemon, "/completion", {**ASK, "n_predict": 400, "temperature": 1, "ignore_eos": True, "t_max_predict_ms": 1, "logit_bias": [["x", 1]][:0]}).json()
    assert late["stop_type"] == "limit" and late["tokens_predicted"] < 400 and "\n" in late["content"]
