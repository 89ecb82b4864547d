"""Vectors of texts, with OpenAI's client: against NumPy's, in every form, whatever stands beside them; and the order of documents."""
import json
import shutil

import gguf
import httpx
import numpy as np
import openai
import pytest
from conftest import TIDEPOOL_FOLDER, Daemon, run
from numpy_llama import NumpyLlama

TEXTS = ["An owl lived in a tree.", "A bird sat on a branch.", "Once upon a time there was a king who had three sons, and each of them was braver than the other. " * 4]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("embed") / "f32.gguf"
    run("convert", TIDEPOOL_FOLDER, path, "--quantize", "f32")
    return path


@pytest.fixture(scope="module")
def served(model):
    with Daemon(f"model.path={model}", "model.aliases=*") as d:
        yield d


@pytest.fixture(scope="module")
def client(served):
    return openai.OpenAI(base_url=served.url + "/v1", api_key="none", max_retries=0)


def vectors(client, texts, **fields):
    response = client.embeddings.create(model="f32", input=texts, **fields)
    assert [d.index for d in response.data] == list(range(len(response.data)))
    return np.array([d.embedding for d in response.data])


def test_vectors_are_numpys(served, client, model):
    numpy = NumpyLlama(model)
    ids = [httpx.post(served.url + "/tokenize", json={"content": text, "add_special": True, "parse_special": False}).json()["tokens"] for text in TEXTS]
    eos = int(gguf.GGUFReader(model).fields["tokenizer.ggml.eos_token_id"].contents())
    for pooling, pool in (("mean", lambda h: h.mean(0)), ("cls", lambda h: h[0]), ("last", lambda h: h[-1])):
        got = vectors(client, TEXTS, extra_body={"pooling": pooling})
        for row, tokens in zip(got, ids):
            expected = pool(numpy.hidden(tokens + [eos] * (pooling == "last")))
            assert np.abs(row - expected / np.linalg.norm(expected)).max() < 0.002, pooling


def test_a_vector_does_not_depend_on_what_stands_beside_it(served, client):
    together = vectors(client, TEXTS)
    for text, row in zip(TEXTS, together):
        assert (vectors(client, text)[0] == row).all() and (vectors(client, [text, *TEXTS])[0] == row).all()
    ids = httpx.post(served.url + "/tokenize", json={"content": TEXTS[0], "add_special": True}).json()["tokens"]
    assert (vectors(client, ids)[0] == together[0]).all() and (vectors(client, [ids, ids])[1] == together[0]).all()


def test_forms(served, client):
    whole = vectors(client, TEXTS[0])[0]
    assert np.allclose(vectors(client, TEXTS[0], encoding_format="float")[0], whole, atol=1e-7) and abs(np.linalg.norm(whole) - 1) < 1e-6
    short = vectors(client, TEXTS[0], dimensions=32)[0]
    assert short.shape == (32,) and np.allclose(short, whole[:32] / np.linalg.norm(whole[:32]), atol=1e-6)
    many = client.embeddings.create(model="f32", input=[f"Number {i}" for i in range(300)])
    assert len(many.data) == 300 and many.usage.total_tokens == many.usage.prompt_tokens > 600


def test_a_folder_of_sentence_transformers_says_how_to_pool(client, tmp_path):
    folder = tmp_path / "folder"
    shutil.copytree(TIDEPOOL_FOLDER, folder)
    (folder / "1_Pooling").mkdir()
    modes = {"word_embedding_dimension": 192, "pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False, "pooling_mode_max_tokens": False, "include_prompt": True}
    for mode, name, number in (("pooling_mode_lasttoken", "last", 3), ("pooling_mode_cls_token", "cls", 2), ("pooling_mode_mean_tokens", "mean", 1)):
        (folder / "1_Pooling/config.json").write_text(json.dumps({**modes, mode: True}))
        run("convert", folder, tmp_path / f"{name}.gguf", "--quantize", "f32")
        assert int(gguf.GGUFReader(tmp_path / f"{name}.gguf").fields["llama.pooling_type"].contents()) == number
    with Daemon(f"model.path={tmp_path}/last.gguf", "model.aliases=*") as d:
        last = openai.OpenAI(base_url=d.url + "/v1", api_key="none", max_retries=0)
        assert (vectors(last, TEXTS[0]) == vectors(client, TEXTS[0], extra_body={"pooling": "last"})).all()
    (folder / "1_Pooling/config.json").write_text(json.dumps({**modes, "pooling_mode_max_tokens": True}))
    refused = run("inspect", folder, check=False)
    assert refused.returncode == 1 and b"1_Pooling/config.json" in refused.stderr


def test_what_is_refused(client):
    for texts, words in (("", "empty"), ([], "list of 1 to"), (["a", ""], "input[1]"), ("owl " * 600, "context"), ([[]], "list of 1 to"), ([[10**6]], "outside the vocabulary")):
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="f32", input=texts)
        assert refused.value.param == "input" and words in refused.value.message, refused.value.message
    for fields in ({"pooling": "rank"}, {"dimensions": 1536}):
        with pytest.raises(openai.BadRequestError) as refused:
            client.embeddings.create(model="f32", input="a", extra_body=fields)
        assert refused.value.param == next(iter(fields))


def test_documents_in_order(served, client):
    query, *documents = vectors(client, ["An owl.", *TEXTS])
    expected = (1 + np.array(documents) @ query) / 2
    body = {"model": "f32", "query": "An owl.", "documents": TEXTS}
    results = httpx.post(served.url + "/v1/rerank", json={**body, "return_documents": True}).json()["results"]
    assert [r["index"] for r in results] == list(np.argsort(-expected)) and all(abs(r["relevance_score"] - expected[r["index"]]) < 1e-5 and r["document"]["text"] == TEXTS[r["index"]] for r in results)
    assert len(httpx.post(served.url + "/v1/rerank", json={**body, "top_n": 1}).json()["results"]) == 1
    tei = httpx.post(served.url + "/rerank", json={"query": "An owl.", "texts": TEXTS}).json()
    assert [t["index"] for t in tei] == [r["index"] for r in results] and tei[0]["score"] == results[0]["relevance_score"]


@pytest.mark.parametrize("fields, param, words", [
    ({"rank_fields": ["nope"], "documents": [{"text": "a"}]}, "rank_fields", "'nope', which is a member of no document"),
    ({"rank_fields": ["title", "nope"], "documents": [{"title": "a"}]}, "rank_fields", "'nope'"),
    ({"rank_fields": ["title"], "documents": [{"title": "a"}, {"text": "b"}]}, "rank_fields", "documents[1] has none of the members"),
    ({"documents": ["a", {"title": "b"}]}, "documents", "documents[1] must be a text, or an object whose 'text' is one; 'rank_fields' names"),
    ({"texts": ["a", 5]}, "texts", "texts[1] must be a text"), ({"documents": []}, "documents", "list of 1 to 2047"), ({}, "documents", "list of 1 to 2047")])
def test_a_document_that_cannot_be_ranked_is_named(served, fields, param, words):
    """The error once said for all of these that 'documents' must be a list of 1 to 2047 texts."""
    answer = httpx.post(served.url + "/v1/rerank", json={"query": "An owl.", **fields})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param and words in answer.json()["error"]["message"], answer.text


def test_members_that_rank_fields_names_count(served):
    documents = [{"title": "An owl.", "text": "x"}, "An owl.", {"title": "A car."}]
    results = httpx.post(served.url + "/v1/rerank", json={"query": "title: An owl.\n", "documents": documents, "rank_fields": ["title"]}).json()["results"]
    assert results[0]["index"] == 0 and results[0]["relevance_score"] > 0.999999


def test_vectors_while_others_talk(served, client):
    alone = vectors(client, TEXTS[:1])[0]
    with client.chat.completions.create(model="f32", messages=[{"role": "user", "content": "Tell me a story."}], stream=True, max_tokens=200) as stream:
        next(iter(stream))
        assert (vectors(client, [TEXTS[0]] * 40) == alone).all()
