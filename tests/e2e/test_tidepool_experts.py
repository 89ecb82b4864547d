"""The built-in mixture: its next tokens against PyTorch's, and the same text for every placement of experts and skipping."""
import json

import numpy
import pytest
from conftest import ROOT, run, run_json

GOLDEN = json.loads((ROOT / "tests/golden/tidepool_experts.json").read_text())["texts"]


def logits(tmp_path, *options):
    (tmp_path / "tokens.json").write_text(json.dumps([text["ids"] for text in GOLDEN]))
    run("eval", "tidepool-experts", "--tokens", tmp_path / "tokens.json", "--logits", tmp_path / "l.npy", *options)
    return numpy.load(tmp_path / "l.npy")


@pytest.mark.parametrize("options", [[], ["--decode"], ["--cpu-isa", "reference"], ["--down-layout", "rows", "--ffn-mode", "exact"]],
                         ids=["prefill", "decode", "reference", "neurons skipped"])
def test_it_says_what_pytorch_says(options, tmp_path):
    got, at, sure = logits(tmp_path, *options), 0, 0
    for text in GOLDEN:
        rows = got[at:at + len(text["ids"])].astype(numpy.float64)
        at += len(text["ids"])
        scores = rows - numpy.log(numpy.exp(rows - rows.max(1, keepdims=True)).sum(1, keepdims=True)) - rows.max(1, keepdims=True)
        for i, (best, margin) in enumerate(zip(text["argmax"], text["margin"])):
            if margin >= 0.25:
                sure += 1
                assert rows[i].argmax() == best
        found = numpy.array([scores[i, token] for i, token in enumerate(text["ids"][1:])])
        # Activations are rounded to 8 bits; a router whose choice is close may then choose another expert.
        assert numpy.abs(found - text["logprob_next"]).mean() < 0.02
        assert abs(found.mean() - numpy.mean(text["logprob_next"])) < 0.01
    assert at == len(got) and sure > 0.7 * at


def test_the_text_is_the_same_everywhere(tmp_path):
    story = ["--chat", "-p", "Tell me a story about a fox.", "-n", 120, "--temperature", 0, "--device", "cpu"]
    bundle = tmp_path / "t.tcb"
    run("pack", "tidepool-experts", "--out", bundle)
    expected = run_json("run", "tidepool-experts", *story)
    assert "fox" in expected["text"] and expected["hot"]["used"] is False
    for options in [["--bundle", bundle, "--ffn-memory", 0.5], ["--spec", "sync"], ["--threads", 1]]:
        got = run_json("run", "tidepool-experts", *story, *options)
        assert got["tokens"] == expected["tokens"], options


def test_neurons_are_skipped_inside_its_experts():
    story = ["-p", "Once upon a time", "-n", 100, "--temperature", 0, "--device", "cpu", "--down-layout", "rows"]
    dense, exact, sign = (run_json("run", "tidepool-experts", *story, "--ffn-mode", mode) for mode in ("dense", "exact", "sign"))
    assert exact["tokens"] == dense["tokens"]
    read = [r["timings"]["bytes_per_token"] for r in (dense, exact, sign)]
    assert read[2] < read[1] < read[0]
