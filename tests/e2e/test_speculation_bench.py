"""`bench --spec`: modes compared with plain decoding, measurements of the pair, and rejections."""
import xml.etree.ElementTree

import pytest
from conftest import STORIES, run, run_json
from test_hot import cache  # noqa: F401 (a fixture)
from test_speculation import MODES, PAIR, TWO_SIDES, two_sides  # noqa: F401 (a fixture)


def check_bench(out, modes):
    assert [mode["mode"] for mode in out["modes"]] == modes
    assert set(out) == {"machine", "model", "draft", "source", "decode", "repetitions", "temperature", "prompts", "modes", "histogram_n", "accepted_histogram",
                        "phi_histogram", "pair", "rounds"}
    for mode in out["modes"]:
        for spread in (mode["tokens_per_s"], mode["ratio"]):
            assert 0 < spread["min"] <= spread["median"] <= spread["max"]
        assert mode["text_equal"] is True
    assert out["modes"][0]["ratio"] == {"median": 1, "min": 1, "max": 1} and out["modes"][0]["accepted_mean"] is None


def test_bench_compares_the_modes(tmp_path):
    plot = tmp_path / "a plot.svg"
    out = run_json("bench", "tidepool", "--spec", *PAIR, "--spec-modes", "sync,branch,exhaustive,auto", "--draft-fixed", "--decode", 60, "--repetitions", 2, "--record-rounds", "--plot", plot)
    check_bench(out, ["off", *MODES])
    assert out["source"] == "model" and out["draft"].endswith("tidepool-draft.gguf") and out["prompts"] == 8
    for mode in out["modes"][1:4]:
        assert 0 < mode["acceptance"] <= 1 and mode["accepted_mean"] > 0
        assert 0 <= mode["wait_share"] <= 1 and 0 <= mode["wasted_share"] < 1
    assert 0 < out["modes"][2]["hit_rate"] <= 1
    n = out["histogram_n"]
    assert 1 <= n <= 8
    for histogram in (out["accepted_histogram"], out["phi_histogram"]):
        assert len(histogram) == n + 1 and min(histogram) >= 0 and sum(histogram) == pytest.approx(1)
    picture = xml.etree.ElementTree.parse(plot).getroot()
    assert picture.tag.endswith("svg") and {"phi, fitted", "measured", *MODES} <= {t.text for t in picture.iter() if t.text}


def test_bench_says_what_the_pair_is_like():
    out = run_json("bench", "tidepool", "--spec", *PAIR, "--spec-modes", "sync,branch", "--decode", 60, "--repetitions", 1, "--draft-fixed", "--draft-tokens", 5, "--record-rounds")
    pair = out["pair"]
    assert set(pair) == {"draft_token_s", "verify_s", "phi", "correction_hits", "bonus_hit", "draft_slowdown", "verify_slowdown", "round_overhead_s"}
    assert pair["draft_token_s"] > 0 and len(pair["verify_s"]) == 21 and min(pair["verify_s"]) > 0
    assert 0 <= pair["phi"]["p"] <= 1 and pair["phi"]["a"] >= 0 and pair["phi"]["c"] >= 0
    assert len(pair["correction_hits"]) == 4 and 0 < sum(pair["correction_hits"]) <= 1 and 0 < pair["bonus_hit"] <= 1
    assert pair["draft_slowdown"] > 0 and pair["verify_slowdown"] > 0 and pair["round_overhead_s"] >= 0
    assert out["histogram_n"] == 5 and out["rounds"]
    for one in out["rounds"]:
        assert 0 <= one["k"] <= one["n"] == len(one["confidence"]) and -1 <= one["rank"] <= 4
        assert all(0 <= c < 12 for c in one["confidence"])
    assert sum(one["k"] for one in out["rounds"] if one["n"]) > 0


@pytest.mark.parametrize("args", [["--spec"], ["--spec", "--temperature", "0.8", "--seed", "3"]])
def test_bench_without_a_draft(tmp_path, args):
    prompts = tmp_path / "my prompts.jsonl"
    prompts.write_text('Once upon a time\n\n{"prompt": "The owl and the owl and the"}\n{"messages": [{"role": "user", "content": "Hello"}]}\n')
    out = run_json("bench", "tidepool", *args, "--prompts", prompts, "--decode", 40, "--repetitions", 2)
    check_bench(out, ["off", "sync", "auto"])
    assert out["prompts"] == 3 and out["source"] == "ngram" and out["draft"] is None and out["rounds"] == []


def test_bench_of_a_model_that_drafts_for_itself(two_sides):  # noqa: F811
    out = run_json("bench", "tidepool", "--spec", "--spec-source", "self", "--decode", 40, "--repetitions", 1, "--draft-fixed", "--draft-tokens", 3)
    check_bench(out, ["off", "sync", "branch", "auto"])
    assert out["source"] == "self" and out["draft"] is None and 0 <= out["modes"][2]["hit_rate"] <= 1
    out = run_json("bench", "tidepool", "--spec", "--spec-source", "self", *TWO_SIDES, "--decode", 20, "--repetitions", 1)
    check_bench(out, ["off", "sync", "auto"])


def test_bench_prints_a_table_for_people():
    text = run("bench", "tidepool", "--spec", *PAIR, "--spec-modes", "sync", "--draft-fixed", "--decode", 40, "--repetitions", 1).stdout.decode()
    rows = {line.split()[0]: line.split() for line in text.splitlines() if line}
    assert rows["off"][-1] == rows["sync"][-1] == "same" and rows["sync"][7] != "-"
    assert "fitted (phi)" in text and "a drafted token" in text


def test_where_sampling_may_differ_texts_are_not_compared():
    out = run_json("bench", "tidepool", "--spec", *PAIR, "--spec-modes", "sync", "--decode", 30, "--repetitions", 1, "--temperature", 1, "--spec-acceptance", "rejection")
    assert [mode["text_equal"] for mode in out["modes"]] == [None, None]


@pytest.mark.parametrize("args,code,words", [
    (["--spec", "--spec-modes", "sync,fast"], 1, "'fast' is none of off, sync, branch, exhaustive, auto"),
    (["--spec", "--plot", "/tmp/x.gguf"], 1, ".svg"),
    (["--spec", "--prompts", "/nowhere"], 1, "/nowhere"),
    (["--spec", "--flash"], 2, "excludes"),
    (["--spec", "--prefill", "5"], 2, "excludes"),
    (["--draft", "tidepool-draft"], 2, "--spec"),
    (["--record-rounds"], 2, "--spec"),
    (["--plot", "/tmp/x.svg"], 1, "--flash and --spec"),
])
def test_what_bench_refuses(args, code, words):
    done = run("bench", "tidepool", *args, check=False, usage=code == 2)
    assert done.returncode == code and words in done.stderr.decode(), done.stderr


@pytest.mark.parametrize("content,words", [('{"promt": "x"}\n', ":1: an object needs"), ("x\n{\n", ":2"), ("\n", "no prompts"), ("", "no prompts"), ("word " * 3000, "prompt 1")])
def test_prompt_files_that_are_none(tmp_path, content, words):
    path = tmp_path / "prompts"
    path.write_text(content)
    done = run("bench", "tidepool", "--spec", "--prompts", path, check=False)
    assert done.returncode == 1 and words in done.stderr.decode(), done.stderr


def test_bench_needs_prompts_where_there_is_no_chat_template():
    done = run("bench", STORIES, "--spec", check=False)
    assert done.returncode == 1 and b"--prompts" in done.stderr
