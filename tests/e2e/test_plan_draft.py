"""`thermocline plan --draft`: the predicted gain of a draft, with closed forms as oracle, and rejections."""
import json
import random
import re
import xml.etree.ElementTree

import pytest
from conftest import run, run_json

VERIFY_MS = [10 + 0.5 * i for i in range(21)]
GIVEN = ("--draft", "--draft-token-ms", 1.5, "--verify-ms", ",".join(map(str, VERIFY_MS)), "--acceptance", 0.8)
SINGLY = ("--draft-path-share", 1)  # one branch after the other
PAIR = {"draft_token_s": 1.5e-3, "verify_s": [ms * 1e-3 for ms in VERIFY_MS], "phi": {"p": 0.8, "a": 1.0, "c": 0.0},
        "correction_hits": [0.4, 0.15], "bonus_hit": 0.8, "draft_slowdown": 1.0, "verify_slowdown": 1.0, "round_overhead_s": 0.0}


def refused(*args):
    result = run("plan", "--draft", *args, check=False, usage=True)
    assert result.returncode in (1, 2) and not result.stdout
    return result.stderr.decode()


def speeds(report, mode):
    [found] = [m for m in report["modes"] if m["mode"] == mode]
    return [point["tokens_per_s"] for point in found["by_n"]]


def test_sync_is_the_formula():
    report = run_json("plan", *GIVEN, *SINGLY)
    assert speeds(report, "off") == pytest.approx([100] * 21)
    expected = [sum(0.8 ** k for k in range(n + 1)) / (1.5 * n + VERIFY_MS[n]) * 1e3 for n in range(21)]
    assert speeds(report, "sync") == pytest.approx(expected, rel=0.02)
    best = report["best"]
    assert best["mode"] == "branch" and best["tokens_per_s"] == max(speeds(report, "branch"))
    assert best["over_sync"] == pytest.approx(best["tokens_per_s"] / max(speeds(report, "sync")))


def test_a_report_says_what_the_options_say(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"machine": "any", "pair": PAIR}))
    assert run_json("plan", "--draft", "--draft-times", path, *SINGLY) == run_json("plan", *GIVEN, *SINGLY)
    # Steps that were not measured lie between those that were.
    holes = [s if i in (0, 3, 8, 20) else [0, None][i % 2] for i, s in enumerate(PAIR["verify_s"])]
    path.write_text(json.dumps({"pair": PAIR | {"verify_s": holes}}))
    assert run_json("plan", "--draft", "--draft-times", path, *SINGLY)["pair"]["verify_s"] == pytest.approx(PAIR["verify_s"])


def test_branches_in_common_steps():
    assert run_json("plan", *GIVEN)["pair"]["path_share"] == pytest.approx(0.05)  # as the target's steps grow
    singly, common, free = (run_json("plan", *GIVEN, "--draft-path-share", share) for share in (1, 0.05, 0))
    assert common["modes"] == run_json("plan", *GIVEN)["modes"]
    assert speeds(singly, "sync") == speeds(common, "sync")
    for n in range(4, 21):  # shorter ones end before the verification does
        assert speeds(singly, "exhaustive")[n] < speeds(common, "exhaustive")[n] < speeds(free, "exhaustive")[n] * 1.0001
    assert refused("--draft-token-ms", 1, "--verify-ms", "10", "--acceptance", 0.8, "--draft-path-share", 1.5)


def test_what_if(tmp_path):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"pair": PAIR | {"draft_slowdown": 2, "verify_slowdown": 2}}))
    shared = run_json("plan", "--draft", "--draft-times", path, *SINGLY)
    assert shared["best"]["mode"] == "sync"  # one resource for both: nothing to gain
    apart = run_json("plan", "--draft", "--draft-times", path, *SINGLY, "--separate")
    assert apart["best"] == run_json("plan", *GIVEN, *SINGLY)["best"] and apart["best"]["mode"] == "branch"
    # Both six times faster is all six times faster.
    fast = run_json("plan", "--draft", "--draft-times", path, *SINGLY, "--separate", "--target-speedup", 6, "--draft-speedup", 6)
    assert fast["best"]["tokens_per_s"] == pytest.approx(6 * apart["best"]["tokens_per_s"])
    assert run_json("plan", *GIVEN, *SINGLY, "--target-speedup", 20)["best"]["mode"] == "off"  # the draft is slower than the target


def test_the_table_says_what_the_json_says(tmp_path):
    report, plot = run_json("plan", *GIVEN, *SINGLY), tmp_path / "plan.svg"
    text = run("plan", *GIVEN, *SINGLY, "--plot", plot).stdout.decode()
    rows = re.findall(r"^ ?(\d+) +([\d.]+)[* ] +([\d.]+)[* ] +([\d.]+)([* ])", text, re.MULTILINE)
    assert [int(row[0]) for row in rows] == list(range(21))
    assert [float(row[3]) for row in rows] == pytest.approx(speeds(report, "branch"), abs=0.006)
    assert [row[4] for row in rows].index("*") == report["best"]["n"]
    assert f"branch with drafts of {report['best']['n']}: {report['best']['tokens_per_s']:.2f} tokens/s" in text
    lines = xml.etree.ElementTree.parse(plot).getroot().findall(".//{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == (4 + 1) + (2 * 5 + 1)


def make_rounds(count, seed=1):
    """Drafts of 5 tokens, each of a class accepted with 0.3 or 0.95; half of the corrections are the first other token."""
    draw = random.Random(seed)
    for _ in range(count):
        classes = [draw.randrange(2) for _ in range(6)]
        right = [draw.random() < (0.3, 0.95)[c] for c in classes]
        k = next((i for i, r in enumerate(right) if not r), 6)
        rank = 1 if k == 6 else draw.randrange(2) * (2 if k == 5 else 1)
        yield {"n": 5, "k": min(k, 5), "rank": rank, "confidence": classes}


def test_hit_rates_of_recorded_rounds(tmp_path):
    rounds, lines, report = list(make_rounds(2000)), tmp_path / "rounds.jsonl", tmp_path / "bench.json"
    unknown = [{"n": 0, "k": 0, "rank": 0}, {"n": 5, "k": 2, "rank": None, "confidence": [1, 1, 0, 0, 0]}]
    lines.write_text("\n".join(map(json.dumps, rounds + unknown)) + "\n")
    report.write_text(json.dumps({"pair": PAIR, "rounds": rounds}))
    hits = run_json("plan", "--draft", "--rounds", lines)
    assert set(hits) == {"hit_rates"} and hits["hit_rates"]["rounds"] == 2000
    both = run_json("plan", "--draft", "--draft-times", report, "--rounds", report)
    assert both["hit_rates"] == hits["hit_rates"] and both["pair"] == PAIR | {"path_share": pytest.approx(0.05)}
    policies = hits["hit_rates"]["policies"]
    assert all(rates == sorted(rates) and len(rates) == 16 for rates in policies.values())
    # What the oracle knows, counted here.
    shares = sorted((sum((r["k"], r["rank"]) == outcome for r in rounds) / 2000
                     for outcome in {(r["k"], r["rank"]) for r in rounds if r["rank"]}), reverse=True)
    assert policies["oracle"][:4] == pytest.approx([sum(shares[:w + 1]) for w in range(4)])
    whole = sum(r["k"] == 5 and r["rank"] == 1 for r in rounds) / 2000
    assert policies["paper"][15] == pytest.approx(whole)
    assert policies["ours"][1] > policies["oracle"][1] + 0.1 > policies["paper"][1] + 0.1
    assert abs(policies["ours"][1] - policies["hindsight"][1]) < 0.02
    assert "hindsight" in run("plan", "--draft", "--rounds", lines, "--plot", tmp_path / "hits.svg").stdout.decode()


@pytest.mark.parametrize("change, words", [
    ({"draft_token_s": -1}, "pair.draft_token_s"), ({"draft_token_s": None}, "pair.draft_token_s is missing"),
    ({"draft_token_s": "1"}, "string"), ({"verify_s": []}, "pair.verify_s"), ({"verify_s": [0, 1]}, "one token"),
    ({"verify_s": [1, -1]}, "pair.verify_s[1]"), ({"verify_s": [1, "x"]}, "pair.verify_s[1]"), ({"verify_s": 1}, "pair.verify_s"),
    ({"phi": {"p": 1.5}}, "pair.phi.p"), ({"phi": {"p": 0.5, "a": 2}}, "no distribution"), ({"phi": None}, "pair.phi"),
    ({"correction_hits": [0.7, 0.7]}, "pair.correction_hits"), ({"correction_hits": [2]}, "pair.correction_hits"),
    ({"bonus_hit": 2}, "pair.bonus_hit"), ({"draft_slowdown": 0}, "pair.draft_slowdown"), ({"round_overhead_s": -1}, "overhead")])
def test_a_report_that_is_wrong_is_named(tmp_path, change, words):
    path = tmp_path / "bench.json"
    path.write_text(json.dumps({"pair": PAIR | change}))
    message = refused("--draft-times", path, *SINGLY)
    assert str(path) in message and words in message


def test_refusals_say_what_to_do(tmp_path):
    assert "--draft-times" in refused() and "--verify-ms" in refused("--acceptance", 0.5)
    other = tmp_path / "other.json"
    for text, words in (("{}", "bench --spec"), ("[1]", "bench --spec"), ("no json", "JSON"), ("", "JSON")):
        other.write_text(text)
        message = refused("--draft-times", other)
        assert str(other) in message and words in message
    for args, words in ((("--acceptance", "nan"), "--acceptance"), (("--acceptance", 1.1), "--acceptance"), (("--draft-token-ms", -1), "--draft-token-ms"),
                        (("--verify-ms", "1,,2"), "''"), (("--verify-ms", "1,nan"), "'nan'"), (("--verify-ms", "0"), "'0'"),
                        (("--phi-floor", 0.1), "no distribution"), (("--correction-hit", "0.9,0.9"), "--correction-hit"),
                        (("--draft-slowdown", 0), "--draft-slowdown"), (("--target-speedup", 0), "--target-speedup"), (("--draft-width", 9), "--draft-width"),
                        (("--plot", "x.png"), ".svg"), (("--rounds", tmp_path / "none"), "none")):
        given = list(GIVEN[1:])
        if args[0] in given:
            del given[given.index(args[0]):given.index(args[0]) + 2]
        assert words in refused(*given, *args), args
    assert "--draft" in run("plan", "--acceptance", 0.5, check=False, usage=True).stderr.decode()  # for what it is
    assert "--draft" in run("plan", "tidepool", "--draft", check=False, usage=True).stderr.decode()
    rounds = tmp_path / "rounds.jsonl"
    for line, words in (('{"n": 4, "k": 5, "rank": 0}', "round 2.k"), ('{"n": 4, "k": 1, "rank": 6}', "round 2.rank"), ('{"n": 4.5, "k": 1}', "round 2.n"),
                        ('{"n": 2, "k": 1, "rank": 1, "confidence": [1]}', "1 entries for 2"), ('{"n": 1, "k": 1, "rank": 1, "confidence": [99]}', "confidence"),
                        ("[]", "round 2"), ("{", "line 2"), ('{"n": 21, "k": 1, "rank": 1}', "round 2.n")):
        rounds.write_text('{"n": 4, "k": 1, "rank": 1}\n' + line + "\n")
        message = refused("--rounds", rounds)
        assert str(rounds) in message and words in message
    rounds.write_text('{"n": 0, "k": 0, "rank": 0}\n{"n": 2, "k": 1, "rank": null}\n')
    assert "no round" in refused("--rounds", rounds)
