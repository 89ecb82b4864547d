"""Mode inputs: calibrated, run, asked for by requests, as the draft of the whole model."""
import concurrent.futures
import re

import httpx
import pytest
from conftest import ROOT, TIDEPOOL_FOLDER, Daemon, run, run_json
from daemon_client import value

TEXT = ROOT / "tests/data/wizard_of_oz.txt"
ASK = ["-p", "Once upon a time", "-n", 40, "--temperature", 0]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("inputs") / "tidepool.gguf"
    run("convert", TIDEPOOL_FOLDER, path, "--down", "columns", "--quantize", "q8_0")
    return path


@pytest.fixture(scope="module")
def calibrated(model):
    plot = model.with_suffix(".svg")
    result = run_json("calibrate", model, "--kind", "inputs", "--share", 0.4, "--text", TEXT, "--tokens", 1500, "--window", 64, "--compare", "--plot", plot)
    assert plot.read_text().startswith("<svg")
    return result


def test_more_is_lost_where_more_is_left_out(calibrated):
    rules = {r["rule"]: r["points"] for r in calibrated["rules"]}
    measured = {"norm, by model", "size, by model", "norm, by layer", "size, by layer"}
    assert set(rules) == measured | {"norm, equal shares", "size, equal shares", "random"}
    assert calibrated["rule"] == min(measured, key=lambda name: rules[name][-1]["kl"])
    for points in rules.values():
        assert [round(p["share"], 2) for p in points] == [0.1, 0.2, 0.3, 0.4]
    best = [p["kl"] for p in rules[calibrated["rule"]]]
    assert best == sorted(best) and best[0] >= 0
    # Inputs by their size lose less than any inputs; shares by what a matrix costs, less than equal ones.
    assert best[-1] < rules["random"][-1]["kl"] / 5
    assert best[-1] < min(rules["norm, equal shares"][-1]["kl"], rules["size, equal shares"][-1]["kl"])


def test_the_loss_that_was_calibrated_is_the_loss_that_is_had(model, calibrated):
    kls = []
    for kl_max in (0.005, 100):
        got = run_json("eval", model, "--ffn-mode", "inputs", "--kl-max", kl_max, "--text", TEXT, "--max-tokens", 600, "--against", "ffn-mode=dense")
        kls.append(got["kl_mean"])
    assert 0 < kls[0] < 0.1 and kls[0] < kls[1]


def test_what_the_copies_round_is_in_the_loss(tmp_path):
    """Copies of a four-bit model are rounded once more: the bound holds for them, too."""
    path = tmp_path / "q4_k.gguf"
    run("convert", "tidepool", path, "--quantize", "q4_k", "--down", "columns")
    points = run_json("calibrate", path, "--kind", "inputs", "--share", 0.2, "--rule", "size", "--budget", "model", "--text", TEXT, "--tokens", 2000, "--window", 64)["rules"][0]["points"]
    assert points[0]["kl"] > 0.005
    none = run("eval", path, "--ffn-mode", "inputs", "--kl-max", 1e-6, "--text", TEXT, "--max-tokens", 200, check=False)
    assert none.returncode != 0 and b"allow more" in none.stderr
    got = run_json("eval", path, "--ffn-mode", "inputs", "--kl-max", points[0]["kl"], "--text", TEXT, "--max-tokens", 1000, "--against", "ffn-mode=dense")
    assert 0.3 < got["kl_mean"] / points[0]["kl"] < 3, (got, points)


def test_a_request_asks_for_it_and_for_how_much(model, calibrated):
    """Requests with different allowed losses are decoded by different points, and share no step; metrics count the skipped inputs."""
    whole = run("run", model, *ASK, "--ffn-mode", "dense").stdout.decode()
    points = {r["rule"]: r["points"] for r in calibrated["rules"]}[calibrated["rule"]]
    with Daemon(f"model.path={model}", "engine.ffn_mode=dense", "engine.ffn_also=inputs", "engine.kl_max=100", "spec.mode=off") as d:
        def ask(check=200, **extension):
            body = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "logprobs": 1, "x_thermocline": extension}
            answer = httpx.post(f"{d.url}/v1/completions", json=body, timeout=60)
            assert answer.status_code == check, answer.text
            return answer.json()["choices"][0] if check == 200 else answer.json()["error"]

        def kept():
            return {outcome: sum(value(d, "inputs_total", layer=str(layer), matrix="down", outcome=outcome) for layer in range(6)) for outcome in ("kept", "cut")}

        assert ask(ffn_mode="dense")["text"] in whole
        assert value(d, "inputs_total") == 0
        shares, answers = [], []
        for point in points:
            before = kept()
            answers.append(ask(ffn_mode="inputs", kl_max=point["kl"]))
            now = kept()
            cut = now["cut"] - before["cut"]
            shares.append(cut / (cut + now["kept"] - before["kept"]))
        assert shares == sorted(shares) and shares[0] < shares[-1], shares
        assert answers[-1] == ask(ffn_mode="inputs") and answers[0]["logprobs"] != answers[-1]["logprobs"]
        missed = value(d, "inputs_missed_mass_total", layer="3", matrix="gate_up") / value(d, "inputs_tokens_total", layer="3", matrix="gate_up")
        assert 0 < missed < 0.5
        # At the same time they have what they have alone.
        kls = [point["kl"] for point in points] * 2
        with concurrent.futures.ThreadPoolExecutor(len(kls)) as pool:
            assert list(pool.map(lambda kl: ask(ffn_mode="inputs", kl_max=kl), kls)) == answers * 2
        wrong = ask(400, ffn_mode="dense", kl_max=0.1)
        assert wrong["param"] == "x_thermocline.kl_max" and "inputs" in wrong["message"]
        assert ask(400, ffn_mode="inputs", kl_max=-1)["param"] == "x_thermocline.kl_max"


def test_auto_takes_it_only_where_it_may_lose_and_is_faster(tmp_path):
    """A model without zeros. The choice of auto is reported with the times, and is not offered if it was not allowed."""
    path = tmp_path / "silu.gguf"
    run("synth", path, "--layers", 2, "--hidden-size", 512, "--intermediate-size", 1536, "--heads", 8, "--kv-heads", 8, "--vocab", 512, "--type", "q8_0")
    silu = ["--activation", "silu"]
    run("calibrate", path, *silu, "--kind", "inputs", "--share", 0.9, "--rule", "size", "--text", TEXT, "--tokens", 300, "--window", 64)
    for kl_max, allowed, also in (0, False, ""), (100, True, ""), (100, True, "inputs"):
        with Daemon(f"model.path={path}", "model.activation=silu", f"engine.kl_max={kl_max}", f"engine.ffn_also={also}", "spec.mode=off") as d:
            body = {"prompt": [5, 6, 7], "max_tokens": 4, "ignore_eos": True}
            httpx.post(f"{d.url}/v1/completions", json=body, timeout=60).raise_for_status()
            used = value(d, "ffn_mode", layer="0", mode="inputs") == 1
        found = re.search(r"mode inputs: ([0-9.]+) ms a token, the whole model ([0-9.]+) ms .measured.; it is (taken|left)", "".join(d.log))
        assert bool(found) == allowed
        assert used == (allowed and found[3] == "taken")
        assert not used or float(found[1]) < float(found[2])
    # What cannot be computed so is served as it is.
    with Daemon(f"model.path={path}", "model.activation=silu", "engine.kl_max=100", "engine.down_layout=rows", "spec.mode=off") as d:
        assert any("mode inputs is allowed" in line and "neuron-major" in line for line in d.log)


def test_it_drafts_for_the_whole_model(model, calibrated):
    whole = run("run", model, *ASK, "--ffn-mode", "dense", "--spec", "off").stdout
    text = run("run", model, *ASK, "--ffn-mode", "dense", "--also-modes", "inputs", "--kl-max", 100, "--spec", "sync", "--spec-source", "self").stdout
    assert text == whole


def test_a_file_may_hold_the_copies(model, calibrated, tmp_path):
    """The file's copies equal those made on loading; other commands read it as any file, and unsuitable models are rejected."""
    copies, calibrate = tmp_path / "copies.gguf", ["--kind", "inputs", "--share", 0.4, "--rule", "size", "--text", TEXT, "--tokens", 600, "--window", 64]
    plain = tmp_path / "plain.gguf"
    plain.symlink_to(model)
    run("convert", model, copies, "--layout", "inputs")
    assert 1.4 < copies.stat().st_size / model.stat().st_size < 2
    got = []
    for path in (plain, copies):
        points = run_json("calibrate", path, *calibrate)["rules"][0]["points"]
        perplexity = run_json("eval", path, "--ffn-mode", "inputs", "--kl-max", 100, "--text", TEXT, "--max-tokens", 300)["perplexity"]
        got.append((points, perplexity, run("run", path, *ASK, "--ffn-mode", "inputs", "--kl-max", 100).stdout, run("run", path, *ASK, "--ffn-mode", "dense").stdout))
    assert got[0] == got[1]
    back = tmp_path / "back.gguf"
    run("convert", copies, back)
    assert back.stat().st_size == model.stat().st_size
    run("convert", TIDEPOOL_FOLDER, tmp_path / "zeros.gguf", "--layout", "inputs")  # columns, though it has true zeros
    for source, options, named in (TIDEPOOL_FOLDER, ["--down", "rows"], b"--down columns"), ("tidepool-experts", [], b"mixture of experts"):
        refused = run("convert", source, tmp_path / "no.gguf", "--layout", "inputs", *options, check=False)
        assert refused.returncode != 0 and named in refused.stderr, refused.stderr


def test_what_has_no_such_mode_says_so(tmp_path):
    experts = run("run", "tidepool-experts", *ASK, "--ffn-mode", "inputs", check=False)
    assert experts.returncode != 0 and b"inputs" in experts.stderr
    bare = run("run", "tidepool", *ASK, "--ffn-mode", "inputs", "--side-car", tmp_path / "none.tcp", check=False)
    assert bare.returncode != 0 and b"none.tcp" in bare.stderr
    rows = run("calibrate", "tidepool", "--kind", "inputs", "--text", TEXT, "--tokens", 300, "--side-car", tmp_path / "rows.tcp", check=False)
    assert rows.returncode != 0 and b"neuron-major" in rows.stderr
