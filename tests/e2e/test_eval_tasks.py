"""`thermocline eval --task` compared with EleutherAI's harness (tests/golden/make_task.py), and its rejections."""
import json
import subprocess

import pytest
from conftest import BIN, ROOT

GOLDEN = json.loads((ROOT / "tests/golden/task.json").read_text())
CHOICES, GSM8K = ROOT / "tests/golden/task_choices.jsonl", ROOT / "tests/data/gsm8k_test.jsonl"


def evaluate(*args, check=True):
    return subprocess.run([BIN / "thermocline", "eval", "tidepool", *map(str, args)], check=check, capture_output=True)


def report(*args):
    return json.loads(evaluate(*args, "--json").stdout)


@pytest.mark.parametrize("mode", ["dense", "exact"])
def test_choices_are_the_harness(mode):
    out = report("--task", CHOICES, "--kv-type", "f32", "--ffn-mode", mode)
    assert (out["kind"], out["items"], out["truncated"]) == ("choices", 50, 0)
    for sample, expected in zip(out["samples"], GOLDEN["choices"]["log_likelihood"], strict=True):
        assert sample["log_likelihood"] == pytest.approx(expected, abs=1.0, rel=5e-3)  # activations in 8 bits
        assert sample["pick"] == expected.index(max(expected))
    assert (out["acc"], out["acc_norm"]) == (GOLDEN["choices"]["acc"], GOLDEN["choices"]["acc_norm"])
    assert out["acc_stderr"] == pytest.approx((out["acc"] * (1 - out["acc"]) / 49) ** 0.5)


def test_choices_in_a_mode_with_loss_are_decoded():
    exact, sign = (report("--task", CHOICES, "--ffn-mode", mode, "--limit", 10) for mode in ("exact", "sign"))
    assert exact["samples"] != sign["samples"]
    for a, b in zip(exact["samples"], sign["samples"]):
        assert a["log_likelihood"] == pytest.approx(b["log_likelihood"], rel=0.3)


def test_gsm8k_texts_are_the_harness():
    out = report("--task", GSM8K, "--limit", 6, "--max-new-tokens", GOLDEN["gsm8k"]["max_new_tokens"], "--kv-type", "f32")
    assert [s["text"].strip() for s in out["samples"]] == [text.strip() for text in GOLDEN["gsm8k"]["texts"]]
    assert out["exact_match"] == out["exact_match_flexible"] == 0  # a model of stories
    work = out["work"]
    assert work["tokens"] > 0 and 0 < work["operations"] < work["dense_operations"] and 0 < work["bytes"] < work["dense_bytes"]
    assert work["dense_operations"] == work["tokens"] * 6 * 3 * 256 * 1024 and work["predictor_operations"] == 0
    sign = report("--task", GSM8K, "--limit", 2, "--max-new-tokens", 8, "--ffn-mode", "sign")["work"]
    assert sign["predictor_operations"] > 0 and sign["gate_rows"] < work["gate_rows"]


def test_examples_stand_before_the_others(tmp_path):
    lines = GSM8K.read_text().splitlines()[:4]
    (tmp_path / "gsm8k.jsonl").write_text("\n".join(lines))
    out = report("--task", tmp_path / "gsm8k.jsonl", "--shots", 2, "--max-new-tokens", 8)
    assert out["items"] == 2 and out["truncated"] == 0
    first, second, third = (json.loads(line) for line in lines[:3])
    ask = "Question: {question}\nAnswer:".format
    prompt = "".join(f"{ask(**shot)} {shot['answer']}\n\n" for shot in (first, second)) + ask(**third)
    (tmp_path / "plain.jsonl").write_text(json.dumps({"prompt": prompt, "answer": "x", "stop": ["Question:"]}))
    assert report("--task", tmp_path / "plain.jsonl", "--max-new-tokens", 8)["samples"][0]["text"] == out["samples"][0]["text"]
    assert report("--task", GSM8K, "--shots", 8, "--limit", 2, "--max-new-tokens", 8)["truncated"] == 2
    refused = evaluate("--task", tmp_path / "gsm8k.jsonl", "--shots", 4, check=False)
    assert refused.returncode == 1 and b"leaves none behind 4 examples" in refused.stderr


def test_answers_to_prompts(tmp_path):
    text = report("--task", write(tmp_path, {"prompt": "Once upon a time", "answer": "?"}), "--max-new-tokens", 12)["samples"][0]["text"]
    assert text and "\n" not in text
    for answer, right in ((text, 1.0), (f"  {text} ", 1.0), (text + "x", 0.0)):
        out = report("--task", write(tmp_path, {"prompt": "Once upon a time", "answer": answer}), "--max-new-tokens", 12)
        assert (out["kind"], out["exact_match"]) == ("generate", right)
    word = text.split()[2]
    out = report("--task", write(tmp_path, {"prompt": "Once upon a time", "answer": "x", "stop": [word]}), "--max-new-tokens", 12)
    assert out["samples"][0]["text"] == text[:text.index(word)]


def write(folder, *items):
    path = folder / "task.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in items))
    return path


@pytest.mark.parametrize("items, words", [
    ([], "holds no items"),
    ([[1]], ":1: is no JSON object"),
    ([{"prompt": "a", "choices": ["b"], "gold": 0}], "two texts or more"),
    ([{"prompt": "a", "choices": ["b", "c"], "gold": 2}], "index of a choice"),
    ([{"prompt": "a", "choices": ["b", "c"]}], "index of a choice"),
    ([{"prompt": "a", "choices": ["b", ""], "gold": 0}], "array of texts"),
    ([{"prompt": "", "choices": ["b", "c"], "gold": 0}], "'prompt' must be a text"),
    ([{"prompt": " ", "choices": ["b", "c"], "gold": 0}], "'prompt' must be a text"),
    ([{"prompt": "a", "answer": "b", "until": ["c"]}], "'until' is unknown"),
    ([{"question": "a", "answer": "18"}], "#### "),
    ([{"prompt": "a", "answer": "b"}, {"question": "a", "answer": "#### 1"}], ":2: is of kind gsm8k, but those before are generate"),
])
def test_wrong_files_are_refused_by_line(tmp_path, items, words):
    refused = evaluate("--task", write(tmp_path, *items), check=False)
    assert refused.returncode == 1 and words in refused.stderr.decode()


def test_wrong_options_are_refused():
    task = ("--task", CHOICES)
    for args, words in ((["--shots", 2], "--shots requires --task"), ([*task, "--text", CHOICES], "excludes --task"), ([*task, "--decode"], "--decode excludes --task"),
                        ([*task, "--plot", "x.svg"], "--plot excludes --task"), ([*task, "--max-new-tokens", 0], "--max-new-tokens: '0' is not a whole number")):
        refused = evaluate(*args, check=False)
        assert refused.returncode == 2 and words in refused.stderr.decode(), (args, refused.stderr)
    assert b"take no examples" in evaluate("--task", CHOICES, "--shots", 2, check=False).stderr
    assert b"does not fit" in evaluate("--task", GSM8K, "--max-new-tokens", 600, check=False).stderr
