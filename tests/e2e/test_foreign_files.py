"""Files that people give for a model and that are none: each is recognised, and the answer names a remedy."""
import json
import pathlib
import pickle
import shutil
import zipfile

import gguf
import numpy as np
import pytest
from conftest import run

GOLDEN = pathlib.Path(__file__).parent.parent / "golden" / "architectures"


def refused(path):
    result = run("inspect", path, check=False)
    assert result.returncode != 0
    text = result.stderr.decode()
    assert str(path) in text, text
    return text


def gguf_file(path, architecture, kind=None):
    writer = gguf.GGUFWriter(path, architecture)
    if kind:
        writer.add_type(kind)
    writer.add_tensor("some.weight", np.zeros((32, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


TEXTS = [
    ("model.gguf", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n", "git lfs pull"),
    ("page.gguf", b"<!DOCTYPE html><html><body>Sign in to see this model</body></html>", "a web page"),
    ("model.pth", pickle.dumps({"a": list(range(100))}, protocol=2), "a pickle"),
    ("old.bin", b"lmgg" + bytes(64), "before GGUF"),
    ("model.gguf.gz", b"\x1f\x8b" + bytes(64), "unpack it"),
    ("config.json", json.dumps({"model_type": "llama", "hidden_size": 1, "more": 2}).encode(), "give the folder"),
    ("noise.gguf", bytes(range(64)), "not a model"),
]


@pytest.mark.parametrize("name, data, words", TEXTS, ids=[name for name, _, _ in TEXTS])
def test_a_file_that_is_no_model_is_named(name, data, words, tmp_path):
    (tmp_path / name).write_bytes(data)
    assert words in refused(tmp_path / name)


def test_a_checkpoint_of_pytorch_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps({}))
    assert "safetensors folder" in refused(tmp_path / "pytorch_model.bin")


def test_safetensors_by_themselves_name_their_folder(tmp_path):
    shutil.copy(GOLDEN / "llama2/model.safetensors", tmp_path)
    assert f"config.json ({tmp_path})" in refused(tmp_path / "model.safetensors")
    assert "config.json is missing" in refused(tmp_path)


def test_a_folder_of_gguf_files_names_them(tmp_path):
    for name in ["a-Q4_K_M.gguf", "a-Q8_0.gguf"]:
        shutil.copy(GOLDEN / "llama2/model.gguf", tmp_path / name)
    assert "a-Q4_K_M.gguf, a-Q8_0.gguf" in refused(tmp_path)


def test_adapters_are_named(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    assert "LoRA adapter" in refused(tmp_path)
    assert "LoRA adapter" in refused(gguf_file(tmp_path / "adapter.gguf", "llama", gguf.GGUFType.ADAPTER))


OTHERS = [("clip", "reads images"), ("t5", "separate"), ("mamba", "no layer of attention"), ("gemma4-assistant", "drafts for another model"),
          ("qwen9", "qwen35"), ("lama", "llama"), ("zzzzzzzz", "docs/models.md")]


@pytest.mark.parametrize("architecture, words", OTHERS, ids=[name for name, _ in OTHERS])
def test_an_architecture_that_is_not_there_names_what_is_near(architecture, words, tmp_path):
    text = refused(gguf_file(tmp_path / "model.gguf", architecture))
    assert architecture in text and words in text
    assert len(text) < 500, text


def test_the_vocabulary_of_a_real_encoder_is_read(peer):
    described = run("inspect", peer / "models/ggml-vocab-bert-bge.gguf").stdout.decode()
    assert "wordpiece" in described and "30522" in described
