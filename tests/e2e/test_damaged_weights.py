"""Models whose weights are not numbers: an error instead of an answer of the same token again and again."""
import gguf
import gguf_copy
import httpx
import numpy
import pytest
from conftest import ROOT, Daemon

MODEL = ROOT / "config/models/tidepool-draft.gguf"
TOKEN = 1001  # whose embedding is damaged
PROMPT = [5, TOKEN, 7]


def copy(folder, name, rows):
    def damaged(tensor):
        if tensor.name != name:
            return tensor.data, tensor.tensor_type
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type).copy()
        data[rows] = numpy.nan
        return data, gguf.GGMLQuantizationType.F32
    return gguf_copy.copy(MODEL, folder / "damaged.gguf", damaged)


def test_a_model_that_computes_no_numbers_is_not_served(tmp_path):
    daemon = Daemon(f"model.path={copy(tmp_path, 'output_norm.weight', slice(None))}", wait=False)
    assert daemon.wait() != 0
    assert "the model cannot be served: the first token: the model computes logits that are not numbers" in daemon.text()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    with Daemon(f"model.path={copy(tmp_path_factory.mktemp('damaged'), 'token_embd.weight', TOKEN)}") as server:
        yield server


COMPLETION = {"prompt": PROMPT, "max_tokens": 8}


@pytest.mark.parametrize("route, body", [
    ("/v1/completions", COMPLETION),
    ("/v1/completions", {**COMPLETION, "temperature": 0}),
    ("/v1/completions", {**COMPLETION, "n": 4}),
    ("/v1/completions", {**COMPLETION, "guided_regex": "[a-z ]+"}),
    ("/v1/embeddings", {"input": [[3], PROMPT]}),
], ids=["sampled", "greedy", "four", "grammar", "embeddings"])
def test_answers_that_are_not_numbers_are_errors(daemon, route, body):
    response = httpx.post(daemon.url + route, json=body, timeout=60)
    assert response.status_code == 500 and "not numbers" in response.json()["error"]["message"], response.text
    assert response.json()["error"]["code"] == "data_loss"
    # Other requests go on.
    assert httpx.post(daemon.url + "/v1/embeddings", json={"input": [[5, 7]]}, timeout=60).status_code == 200


def test_a_stream_ends_with_the_error(daemon):
    with httpx.stream("POST", daemon.url + "/v1/completions", json={**COMPLETION, "stream": True}, timeout=60) as response:
        assert "not numbers" in response.read().decode()
