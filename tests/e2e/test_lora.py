"""LoRA adapters, of PEFT and of llama.cpp's converter, against PEFT's merged weights; chosen by name and by request."""
import hashlib
import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy
import pytest
from conftest import ROOT, Daemon, refusal, run

MODELS, ADAPTERS = ROOT / "tests/golden/architectures", ROOT / "tests/golden/lora"
NAMES = sorted(path.name for path in ADAPTERS.iterdir())
TOLERANCE = 1e-4  # of the largest logit


def logits(name, adapter, tmp_path, *options, model=None):
    tokens = json.loads((MODELS / name / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    run("eval", model or MODELS / name, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", "--kv-type", "f32",
        *(("--lora", adapter) if adapter else ()), *options)
    return numpy.load(tmp_path / "l.npy")


def check(got, name):
    expected = numpy.load(ADAPTERS / name / "logits.npy")
    assert numpy.abs(got - expected).max() < TOLERANCE * numpy.abs(expected).max()


@pytest.mark.parametrize("path", [[], ["--decode"], ["--cpu-isa", "reference"], ["--ffn-mode", "dense"]], ids=["prefill", "decode", "reference", "dense"])
@pytest.mark.parametrize("name", NAMES)
def test_an_adapter_of_peft_gives_the_logits_of_merged_weights(name, path, tmp_path):
    check(logits(name, ADAPTERS / name, tmp_path, *path), name)
    base = numpy.load(MODELS / name / "logits.npy")
    assert numpy.abs(base - numpy.load(ADAPTERS / name / "logits.npy")).max() > 0.1 * numpy.abs(base).max()


@pytest.mark.parametrize("name", [n for n in NAMES if (ADAPTERS / n / "adapter.gguf").exists()])
def test_files_of_both_kinds_fit_models_of_both_kinds(name, tmp_path):
    # llama.cpp's converter writes alpha alone, so that its file of an adapter with rslora lacks a factor of sqrt(r).
    config = json.loads((ADAPTERS / name / "adapter_config.json").read_text())
    scale = config["r"] ** 0.5 if config["use_rslora"] else 1
    for model in (MODELS / name, MODELS / name / "model.gguf"):
        check(logits(name, f"{ADAPTERS / name / 'adapter.gguf'}:{scale}", tmp_path, model=model), name)
        check(logits(name, ADAPTERS / name, tmp_path, model=model), name)


def test_neuron_major_networks_and_scales(tmp_path):
    run("convert", MODELS / "llama3", tmp_path / "rows.gguf", "--down", "rows")
    check(logits("llama3", ADAPTERS / "llama3", tmp_path, model=tmp_path / "rows.gguf"), "llama3")
    # Half the adapter, twice; and none of it.
    half = f"a={ADAPTERS}/llama3:0.5,b={ADAPTERS}/llama3/adapter.gguf:0.5"
    check(logits("llama3", half, tmp_path), "llama3")
    none = logits("llama3", f"{ADAPTERS}/llama3:0", tmp_path)
    assert numpy.array_equal(none, logits("llama3", None, tmp_path))


def test_what_does_not_fit_is_refused_by_name(tmp_path):
    def said(adapter):
        return refusal("run", MODELS / "llama3/model.gguf", "-p", "x", "--lora", adapter)

    assert "does not exist" in said(tmp_path / "none")
    assert "is made for a model of the architecture 'qwen3'" in said(ADAPTERS / "qwen3/adapter.gguf")
    assert "made for another model" in said(ADAPTERS / "qwen3")
    assert "this is no adapter" in said(MODELS / "llama3/model.gguf")
    assert "two adapters are named 'llama3'" in said(f"{ADAPTERS}/llama3,{ADAPTERS}/llama3")
    dora = tmp_path / "dora"
    shutil.copytree(ADAPTERS / "llama3", dora)
    config = json.loads((dora / "adapter_config.json").read_text())
    for change, name in (({"use_dora": True}, "use_dora"), ({"peft_type": "IA3"}, "'IA3'"), ({"alpha_pattern": {"q_proj": 2}}, "alpha_pattern")):
        (dora / "adapter_config.json").write_text(json.dumps(config | change))
        assert name in said(dora)
    (dora / "adapter_config.json").write_text(json.dumps(config))
    (dora / "adapter_model.safetensors").write_bytes((ADAPTERS / "llama3/adapter_model.safetensors").read_bytes()[:-64])
    assert "LoRA adapter" in said(dora)


TEXT = {"prompt": [5, 9, 33, 12], "max_tokens": 12, "temperature": 0, "logprobs": 1}


@pytest.fixture(scope="module")
def served():
    """The tiny llama with two adapters, of which one is applied only to requests that name it."""
    with Daemon(f"model.path={MODELS}/llama3/model.gguf", "model.name=base", "spec.mode=off",
                f"model.lora=always={ADAPTERS}/llama3:0.5,asked={ADAPTERS}/llama3/adapter.gguf:0") as d:
        yield d


def answer(d, **fields):
    done = httpx.post(d.url + "/v1/completions", json=TEXT | fields, timeout=60)
    assert done.status_code == 200, done.text
    logprobs = done.json()["choices"][0]["logprobs"]
    return logprobs["tokens"], [round(x, 4) for x in logprobs["token_logprobs"]]


def test_adapters_are_chosen_by_name_and_by_request(served):
    d = served
    models = {m["id"]: m for m in httpx.get(d.url + "/v1/models").json()["data"]}
    assert set(models) == {"base", "always", "asked"} and models["asked"]["parent"] == "base" and "parent" not in models["base"]
    listed = httpx.get(d.url + "/lora-adapters").json()
    assert [(a["id"], a["name"], a["scale"]) for a in listed] == [(0, "always", 0.5), (1, "asked", 0)] and "/" not in listed[0]["path"]
    none = answer(d, lora=[])
    half, whole = answer(d, lora=[{"id": 1, "scale": 0.5}]), answer(d, lora=[{"id": 0, "scale": 1}])
    assert len({str(x) for x in (none, half, whole)}) == 3
    assert answer(d) == answer(d, model="base") == answer(d, model="always") == half
    assert answer(d, model="asked") == whole == answer(d, lora=[{"id": 0, "scale": 0.25}, {"id": 1, "scale": 0.75}])
    for bad in ([{"id": 2}], [{"id": 0}, {"id": 0}], [{"scale": 1}], [1], "x", [{"id": 0, "scale": 1e9}]):
        done = httpx.post(d.url + "/v1/completions", json=TEXT | {"lora": bad})
        assert done.status_code == 400 and done.json()["error"]["param"].startswith("lora"), done.text
    done = httpx.post(d.url + "/v1/completions", json=TEXT | {"model": "asked", "x_thermocline": {"ffn_mode": "exact"}})
    assert done.status_code == 400 and "mode 'dense'" in done.text


def test_company_and_prefixes_of_other_adapters_change_no_bit(served):
    """Prefixes are shared only with the same adapters, and steps only between requests with the same ones."""
    d = served
    prompt = [5 + i % 80 for i in range(70)]
    ways = [{"lora": []}, {}, {"model": "asked"}, {"lora": [{"id": 0, "scale": 1.5}]}]
    alone = [answer(d, prompt=prompt, **way) for way in ways]
    assert len({str(x) for x in alone}) == 4
    with ThreadPoolExecutor(12) as pool:
        asked = [pool.submit(answer, d, prompt=prompt, **ways[i % 4]) for i in range(24)]
        assert [each.result() for each in asked] == [alone[i % 4] for i in range(24)]
    usages = [httpx.post(d.url + "/v1/completions", json=TEXT | {"prompt": prompt, "model": "asked"}).json()["usage"] for _ in range(2)]
    assert usages[1]["prompt_tokens_details"]["cached_tokens"] == len(prompt) - 1


def test_a_key_uses_the_adapters_that_it_may_name(tmp_path):
    rights = {"all": "", "base": ":models=base", "one": ":models=one"}
    (tmp_path / "keys").write_text("".join(f"{name}:{hashlib.sha256(f'KEY-{name}'.encode()).hexdigest()}{more}\n" for name, more in rights.items()))
    with Daemon(f"model.path={MODELS}/llama3/model.gguf", "model.name=base", f"server.api_keys_file={tmp_path / 'keys'}",
                f"model.lora=one={ADAPTERS}/llama3:0,two={ADAPTERS}/llama3/adapter.gguf:0") as d:
        def ask(key, **more):
            return httpx.post(d.url + "/v1/completions", json={"prompt": "!", "max_tokens": 1, **more}, headers={"Authorization": f"Bearer KEY-{key}"}).status_code

        def names(key, path, field):
            listed = httpx.get(d.url + path, headers={"Authorization": f"Bearer KEY-{key}"}).json()
            return [each[field] for each in (listed["data"] if "data" in listed else listed)]
        for key, model, status in [("all", "two", 200), ("all", "base", 200), ("base", "base", 200), ("base", "one", 404), ("one", "one", 200), ("one", "two", 404), ("one", "base", 404)]:
            assert ask(key, model=model) == status, (key, model)
        for key, model, chosen, status in [("all", "base", 1, 200), ("base", "base", 1, 400), ("one", "one", 1, 400), ("one", "one", 0, 400)]:
            assert ask(key, model=model, lora=[{"id": chosen, "scale": 0.5}]) == status, (key, chosen)
        assert ask("base") == 200 and ask("one") == 404
        assert names("one", "/v1/models", "id") == ["one"] and names("base", "/v1/models", "id") == ["base"]
        assert names("one", "/lora-adapters", "id") == [0] and names("base", "/lora-adapters", "id") == []
