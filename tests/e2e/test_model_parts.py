"""Models in several GGUF files, and the part of a multimodal folder that reads text."""
import json

import numpy
import pytest
from conftest import run
from gguf_copy import copy
from test_architectures import ROOT, check, logits


def split(source, folder, most=9):
    """`source` as llama.cpp's gguf-split writes it, by the gguf package."""
    copy(source, folder / "part.gguf", split_max_tensors=most)
    return sorted(folder.glob("part-*.gguf"))


def test_a_model_in_several_files_has_the_same_logits(tmp_path):
    parts = split(ROOT / "qwen3" / "model.gguf", tmp_path)
    assert len(parts) == 3
    tokens = json.loads((ROOT / "qwen3" / "tokens.json").read_text())
    (tmp_path / "tokens.json").write_text(json.dumps([tokens]))
    run("eval", parts[0], "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", "--kv-type", "f32")
    check(numpy.load(tmp_path / "l.npy"), "qwen3")
    run("convert", parts[0], tmp_path / "one.gguf")
    run("eval", tmp_path / "one.gguf", "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", "--kv-type", "f32")
    check(numpy.load(tmp_path / "l.npy"), "qwen3")


def test_parts_that_are_missing_or_not_the_first_are_named(tmp_path):
    parts = split(ROOT / "qwen3" / "model.gguf", tmp_path)

    def error(path):
        result = run("inspect", path, check=False)
        assert result.returncode == 1
        return result.stderr.decode()

    assert "part 2 of 3" in error(parts[1]) and parts[0].name in error(parts[1])
    other = tmp_path / "elsewhere.gguf"
    other.write_bytes(parts[0].read_bytes())
    assert "-00001-of-00003.gguf" in error(other)
    parts[2].write_bytes(parts[1].read_bytes())
    assert "part 2 of 3, not part 3" in error(parts[0])
    parts[2].unlink()
    assert parts[2].name in error(parts[0])


def renamed(blob, prefix, more):
    """Safetensors whose tensors have another prefix than "model.", with four bytes of f32 for each name of `more`."""
    size = int.from_bytes(blob[:8], "little")
    header, data = json.loads(blob[8:8 + size]), blob[8 + size:]
    header = {name.replace("model.", prefix, 1): entry for name, entry in header.items()}
    for name in more:
        header[name] = {"dtype": "F32", "shape": [1], "data_offsets": [len(data), len(data) + 4]}
        data += bytes(4)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_the_text_part_of_a_multimodal_folder_is_read(prefix, tmp_path):
    folder = tmp_path / "gemma3"
    folder.mkdir()
    config = json.loads((ROOT / "gemma3" / "config.json").read_text())
    whole = {"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "text_config": config,
             "vision_config": {"hidden_size": 8}}
    (folder / "config.json").write_text(json.dumps(whole))
    (folder / "tokens.json").write_text((ROOT / "gemma3" / "tokens.json").read_text())
    blob = (ROOT / "gemma3" / "model.safetensors").read_bytes()
    seeing = ["vision_tower.vision_model.embeddings.weight", "multi_modal_projector.mm_input_projection_weight"]
    (folder / "model.safetensors").write_bytes(renamed(blob, prefix, seeing))
    check(logits(folder, tmp_path), "gemma3")
    assert b"vision_tower" in run("inspect", folder).stderr + run("convert", folder, tmp_path / "out.gguf").stderr
