"""Files that merely lie in a folder are examined beside loads, and again once they are others; a long step of an encoder ends with its client."""
import os
import pathlib
import shutil
import signal
import time

import gguf
import httpx
import numpy
import pytest
from conftest import ROOT, Daemon, wait_until
from gguf_copy import copy

DRAFT = ROOT / "config/models/tidepool-draft.gguf"


def ask(d, name, timeout=60):
    return httpx.post(d.url + "/v1/completions", json={"model": name, "prompt": "Once", "max_tokens": 2}, timeout=timeout)


def examination(d):
    """The process id of the daemon's examination, if one runs."""
    for task in pathlib.Path(f"/proc/{d.process.pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            try:
                if b"--examine-model" in pathlib.Path(f"/proc/{child}/cmdline").read_bytes():
                    return int(child)
            except OSError:
                continue
    return None


def state(child):
    """One letter, as ps shows it: T stopped, Z ended; X: there is no such process any more."""
    try:
        return pathlib.Path(f"/proc/{child}/stat").read_text().rsplit(") ", 1)[1][0]
    except OSError:
        return "X"


def stopped_examination(d, path):
    """Changes the file until its examination is caught, and stops that process."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        os.utime(path)
        until = time.monotonic() + 3
        while time.monotonic() < until:
            if (child := examination(d)) is not None:
                try:
                    os.kill(child, signal.SIGSTOP)
                    wait_until(lambda: state(child) in "TZX", 10)
                except OSError:
                    continue
                if state(child) == "T":
                    return child
    raise AssertionError("no examination was seen")


def test_an_examination_keeps_no_other_model_waiting(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(DRAFT, folder / "slow.gguf")
    config = tmp_path / "c.yaml"
    config.write_text(f"models:\n  - path: tidepool\n    name: first\n  - path: {DRAFT}\n    name: named\nserver:\n  models_dir: {folder}\n")
    with Daemon(config=config) as d:
        assert ask(d, "slow").status_code == 200
        child = stopped_examination(d, folder / "slow.gguf")
        begin = time.monotonic()
        assert ask(d, "named").status_code == 200
        assert time.monotonic() - begin < 30 and examination(d) == child
        os.kill(child, signal.SIGCONT)
        assert ask(d, "slow").status_code == 200


def test_another_file_of_the_same_name_is_examined_again(tmp_path):
    folder = tmp_path / "models"
    folder.mkdir()
    shutil.copy(DRAFT, folder / "m.gguf")

    def parameters(d):
        model = next(m for m in httpx.get(d.url + "/v1/models").json()["data"] if m["id"] == "m")
        return model.get("meta", {}).get("n_params")
    with Daemon("model.path=tidepool", f"server.models_dir={folder}") as d:
        wait_until(lambda: parameters(d), 30)
        before = parameters(d)
        copy(DRAFT, tmp_path / "one.gguf", layers=1)
        (tmp_path / "one.gguf").rename(folder / "m.gguf")
        wait_until(lambda: parameters(d) not in (None, before), 30)
        assert ask(d, "m").status_code == 200


@pytest.fixture(scope="module")
def long_encoder(tmp_path_factory):
    """An encoder whose context of 8,192 tokens is mostly attention: a minute of a step on two processors."""
    source = gguf.GGUFReader(ROOT / "tests/golden/encoders/nomic_bert/model.gguf")
    tokens, layers, heads, dim = source.fields["tokenizer.ggml.tokens"].contents(), 16, 64, 8
    width, network = heads * dim, 64
    path = tmp_path_factory.mktemp("encoder") / "long.gguf"
    w = gguf.GGUFWriter(path, "nomic-bert")
    w.add_context_length(8192)
    w.add_embedding_length(width)
    w.add_block_count(layers)
    w.add_feed_forward_length(network)
    w.add_head_count(heads)
    w.add_layer_norm_eps(0.01)
    w.add_causal_attention(False)
    w.add_rope_freq_base(1000.0)
    w.add_token_type_count(2)
    w.add_tokenizer_model("bert")
    w.add_tokenizer_pre("default")
    w.add_token_list(tokens)
    w.add_token_types(source.fields["tokenizer.ggml.token_type"].contents())
    for name, token in [("bos", 2), ("unk", 1), ("sep", 3), ("pad", 0), ("mask", 4)]:
        getattr(w, f"add_{name}_token_id")(token)
    rng = numpy.random.default_rng(0)

    def matrix(*shape):
        return (0.05 * rng.standard_normal(shape)).astype(numpy.float16)
    one, zero = numpy.ones(width, numpy.float32), numpy.zeros(width, numpy.float32)
    w.add_tensor("token_embd.weight", matrix(len(tokens), width))
    w.add_tensor("token_types.weight", matrix(2, width).astype(numpy.float32))
    w.add_tensor("token_embd_norm.weight", one)
    w.add_tensor("token_embd_norm.bias", zero)
    for i in range(layers):
        for norm in ("attn_output_norm", "layer_output_norm"):
            w.add_tensor(f"blk.{i}.{norm}.weight", one)
            w.add_tensor(f"blk.{i}.{norm}.bias", zero)
        for name, shape in [("attn_qkv", (3 * width, width)), ("attn_output", (width, width)), ("ffn_gate", (network, width)),
                            ("ffn_up", (network, width)), ("ffn_down", (width, network))]:
            w.add_tensor(f"blk.{i}.{name}.weight", matrix(*shape))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()
    return path


def test_the_step_of_a_long_text_ends_when_its_client_leaves(long_encoder):
    """It went on for 85 seconds: SIGTERM had to wait for it, and other models did not wake."""
    with Daemon(f"model.path={long_encoder}", "server.drain_timeout_s=1") as d:
        text = " ".join("abcdef"[i % 6] for i in range(8000))
        with pytest.raises(httpx.TimeoutException):
            httpx.post(d.url + "/v1/embeddings", json={"input": text}, timeout=3)
        begin = time.monotonic()
        assert httpx.post(d.url + "/v1/embeddings", json={"input": "a"}, timeout=60).status_code == 200
        assert time.monotonic() - begin < 20
        with pytest.raises(httpx.TimeoutException):
            httpx.post(d.url + "/v1/embeddings", json={"input": text}, timeout=3)
        d.terminate()
        assert d.wait(20) == 0
