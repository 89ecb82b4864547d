"""Mode inputs: calibrated, run, asked for by requests, as the draft of the whole model."""
import httpx
import pytest
from conftest import ROOT, TIDEPOOL_FOLDER, Daemon, run, run_json

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
    assert set(rules) == {"norm", "size", "norm, equal shares", "size, equal shares", "random"}
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


def test_a_request_asks_for_it(model, calibrated):
    whole = run("run", model, *ASK, "--ffn-mode", "dense").stdout.decode()
    with Daemon(f"model.path={model}", "engine.ffn_mode=dense", "engine.ffn_also=inputs", "engine.kl_max=100", "spec.mode=off") as d:
        def text(mode):
            body = {"prompt": "Once upon a time", "max_tokens": 40, "temperature": 0, "x_thermocline": {"ffn_mode": mode}}
            answer = httpx.post(f"{d.url}/v1/completions", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            return answer.json()["choices"][0]["text"]

        assert text("dense") in whole
        assert text("inputs") == text("inputs")


def test_it_drafts_for_the_whole_model(model, calibrated):
    whole = run("run", model, *ASK, "--ffn-mode", "dense", "--spec", "off").stdout
    text = run("run", model, *ASK, "--ffn-mode", "dense", "--also-modes", "inputs", "--kl-max", 100, "--spec", "sync", "--spec-source", "self").stdout
    assert text == whole


def test_what_has_no_such_mode_says_so(tmp_path):
    experts = run("run", "tidepool-experts", *ASK, "--ffn-mode", "inputs", check=False)
    assert experts.returncode != 0 and b"inputs" in experts.stderr
    bare = run("run", "tidepool", *ASK, "--ffn-mode", "inputs", "--side-car", tmp_path / "none.tcp", check=False)
    assert bare.returncode != 0 and b"none.tcp" in bare.stderr
    rows = run("calibrate", "tidepool", "--kind", "inputs", "--text", TEXT, "--tokens", 300, "--side-car", tmp_path / "rows.tcp", check=False)
    assert rows.returncode != 0 and b"neuron-major" in rows.stderr
