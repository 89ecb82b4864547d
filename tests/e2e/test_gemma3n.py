"""What Gemma 3n has and no other family: cut gates, keys that layers share, embeddings that stay in the file.

The logits themselves are in test_architectures.py.
"""
import json
import pathlib
import shutil

import numpy
import pytest
import safetensors_file
from conftest import run

FOLDER = pathlib.Path(__file__).parent.parent / "golden" / "architectures" / "gemma3n"
LAYERS = 6


def evaluate(model, tmp_path, *options, check=True):
    (tmp_path / "tokens.json").write_text(json.dumps([json.loads((FOLDER / "tokens.json").read_text())]))
    result = run("eval", model, "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "logits.npy", "--kv-type", "f32",
                 *options, check=check)
    return numpy.load(tmp_path / "logits.npy") if check else result.stderr.decode()


@pytest.fixture
def folder(tmp_path):
    return pathlib.Path(shutil.copytree(FOLDER, tmp_path / "gemma3n"))


def edit(folder, **fields):
    config = json.loads((folder / "config.json").read_text()) | fields
    (folder / "config.json").write_text(json.dumps(config))


def test_exact_skips_the_neurons_that_are_cut_with_the_bits_of_dense(tmp_path):
    dense = evaluate(FOLDER, tmp_path, "--decode", "--ffn-mode", "dense")
    assert numpy.array_equal(evaluate(FOLDER, tmp_path, "--decode", "--ffn-mode", "exact"), dense)
    assert numpy.array_equal(evaluate(FOLDER, tmp_path, "--decode"), dense)  # what is chosen by itself
    run("convert", FOLDER, tmp_path / "rows.gguf", "--quantize", "q8_0", "--down", "auto")
    names = run("inspect", tmp_path / "rows.gguf", "--tensors").stdout.decode()
    # Down lies neuron by neuron where gates are cut, and nowhere else.
    assert [f"blk.{layer}.ffn_down_t.weight" in names for layer in range(LAYERS)] == [True] * 3 + [False] * 3
    dense, exact = (evaluate(tmp_path / "rows.gguf", tmp_path, "--decode", "--ffn-mode", mode) for mode in ["dense", "exact"])
    assert numpy.array_equal(exact, dense)


def bytes_per_token(model, *options):
    report = json.loads(run("bench", model, "--prefill", "4", "--decode", "8", "--json", *options).stdout)
    return next(run["bytes_per_token"] for run in report["runs"] if run["phase"] == "decode")


def test_without_a_cut_nothing_is_skipped(folder, tmp_path):
    skipping = bytes_per_token(folder, "--ffn-mode", "exact")
    edit(folder, activation_sparsity_pattern=[0.0] * LAYERS)
    assert skipping < bytes_per_token(folder)
    assert "no such zeros" in evaluate(folder, tmp_path, "--ffn-mode", "exact", check=False)


@pytest.mark.parametrize("mode", ["sign", "lowrank"])
def test_prediction_is_refused_by_name(mode, tmp_path):
    message = evaluate(FOLDER, tmp_path, "--ffn-mode", mode, check=False)
    assert mode in message and "mean and the deviation" in message


def test_keys_of_layers_that_read_others_are_not_needed(folder, tmp_path):
    expected = numpy.load(FOLDER / "logits.npy")
    tensors = safetensors_file.load(folder / "model.safetensors")
    for layer in range(LAYERS - 3, LAYERS):  # as the published files have them
        for name, shape in [("k_proj", (32, 48)), ("v_proj", (32, 48)), ("k_norm", (16,))]:
            tensors[f"model.layers.{layer}.self_attn.{name}.weight"] = numpy.full(shape, numpy.nan, dtype=numpy.float32)
    safetensors_file.save(folder / "model.safetensors", tensors)
    got = evaluate(folder, tmp_path)
    assert numpy.abs(got - expected).max() < 1e-4 * numpy.abs(expected).max()


def test_the_part_that_reads_text_of_a_model_that_sees(folder, tmp_path):
    text = json.loads((folder / "config.json").read_text())
    whole = {"model_type": "gemma3n", "architectures": ["Gemma3nForConditionalGeneration"], "text_config": text}
    (folder / "config.json").write_text(json.dumps(whole))
    tensors = {name.replace("model.", "model.language_model."): data
               for name, data in safetensors_file.load(folder / "model.safetensors").items()}
    tensors["model.vision_tower.stem.weight"] = numpy.zeros((4, 4), dtype=numpy.float32)
    safetensors_file.save(folder / "model.safetensors", tensors)
    got, expected = evaluate(folder, tmp_path), numpy.load(FOLDER / "logits.npy")
    assert numpy.abs(got - expected).max() < 1e-4 * numpy.abs(expected).max()


@pytest.mark.parametrize("fields, named", [
    (dict(altup_active_idx=1), "altup_active_idx"),
    (dict(altup_correct_scale=False), "altup_correct_scale"),
    (dict(altup_num_inputs=1), "altup_num_inputs"),
    (dict(intermediate_size=[72, 72, 72, 72, 72, 64]), "intermediate_size"),
    (dict(num_kv_shared_layers=6), "num_kv_shared_layers"),
    (dict(num_kv_shared_layers=4), None),
    (dict(num_kv_shared_layers=5), "num_kv_shared_layers"),
    (dict(activation_sparsity_pattern=[0.5]), "activation_sparsity_pattern"),
    (dict(activation_sparsity_pattern=[1.0] * LAYERS), "activation_sparsity_pattern"),
], ids=lambda value: None)
def test_what_cannot_be_is_refused_by_name(folder, tmp_path, fields, named):
    edit(folder, **fields)
    message = evaluate(folder, tmp_path, check=False)
    # With four shared layers the third, which has all positions, would have no keys of its kind.
    assert (named or "num_kv_shared_layers") in message


def test_a_table_that_ends_early_is_an_error_that_names_it(tmp_path):
    run("convert", FOLDER, tmp_path / "m.gguf")
    data = (tmp_path / "m.gguf").read_bytes()
    (tmp_path / "m.gguf").write_bytes(data[: len(data) // 2])
    assert "m.gguf" in evaluate(tmp_path / "m.gguf", tmp_path, check=False)


def test_a_hostile_number_of_layers_is_refused_at_once(folder, tmp_path):
    edit(folder, num_hidden_layers=2_000_000_000, activation_sparsity_pattern=0.95)
    assert "2000000000" in evaluate(folder, tmp_path, check=False)


@pytest.mark.parametrize("rows", [1, 40])
def test_a_table_with_too_few_rows_is_refused(folder, tmp_path, rows):
    tensors = safetensors_file.load(folder / "model.safetensors")
    table = "model.embed_tokens_per_layer.weight"
    tensors[table] = tensors[table][:rows].copy()
    safetensors_file.save(folder / "model.safetensors", tensors)
    assert f"has {rows} rows for 96 tokens" in evaluate(folder, tmp_path, check=False)


def test_verify_reads_the_table_too(folder, tmp_path):
    tensors = safetensors_file.load(folder / "model.safetensors")
    table = tensors["model.embed_tokens_per_layer.weight"].copy()
    table[7, 3] = numpy.nan
    safetensors_file.save(folder / "model.safetensors", tensors | {"model.embed_tokens_per_layer.weight": table})
    assert "per_layer_token_embd.weight', row 7" in evaluate(folder, tmp_path, "--verify", check=False)


def test_a_plan_leaves_the_gpu_out():
    result = run("plan", FOLDER, "--machine", "desktop-8gb")
    assert b"computed by the CPU" in result.stderr and b"hot   100.0%" not in result.stdout
