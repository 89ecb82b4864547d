"""Modes of the feed-forward networks, as clients and operators of the daemon meet them."""
import subprocess

import httpx
import openai
import pytest
from conftest import BIN, ROOT, Daemon, run, wait_until
from prometheus_client.parser import text_string_to_metric_families

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
NEURONS = 1024  # of a layer of tidepool
EVERY_MODE = ("engine.ffn_also=dense,exact,sign", "engine.audit_interval=4")


def samples(daemon):
    """Values by name (without prefix) and sorted labels."""
    families = text_string_to_metric_families(httpx.get(daemon.url + "/metrics").text)
    return {(s.name.removeprefix("thermocline_"), tuple(sorted(s.labels.items()))): s.value for f in families for s in f.samples}


def values(daemon, name, **labels):
    """Values of the series of `name` that carry `labels`, by layer."""
    found = {}
    for (sample, pairs), value in samples(daemon).items():
        if sample == name and labels.items() <= dict(pairs).items():
            found[int(dict(pairs)["layer"])] = value
    return found


def ask(daemon, mode=None, messages=STORY, **extra):
    body = {"messages": messages, "temperature": 0, "max_tokens": 60, **extra}
    if mode is not None:
        body["x_thermocline"] = {"ffn_mode": mode}
    return httpx.post(daemon.url + "/v1/chat/completions", json=body, timeout=60)


def text(response):
    assert response.status_code == 200, response.text
    return response.json()["choices"][0]["message"]["content"]


def settle(daemon):
    """Waits for the audits that are made when there is nothing else to do."""
    wait_until(lambda: samples(daemon)[("num_requests_running", ())] == 0)


@pytest.fixture(scope="module")
def every_mode():
    with Daemon(*EVERY_MODE) as d:
        yield d


def test_modes_without_loss_say_the_same(every_mode):
    plain = text(ask(every_mode))
    for mode in ("dense", "exact", "auto", "", "0:dense", "0-1:dense,2-:exact"):
        assert text(ask(every_mode, mode)) == plain, mode


def test_openai_client_asks_for_signs(every_mode):
    client = openai.OpenAI(base_url=every_mode.url + "/v1", api_key="none", max_retries=0)
    create = lambda **more: client.chat.completions.create(model="tidepool", messages=STORY, temperature=0, max_tokens=40, extra_body={"x_thermocline": {"ffn_mode": "sign"}}, **more)
    answer = create()
    assert answer.usage.completion_tokens > 0
    streamed = "".join(c.choices[0].delta.content or "" for c in create(stream=True))
    assert streamed == answer.choices[0].message.content
    settle(every_mode)
    assert set(values(every_mode, "ffn_mode", mode="sign").values()) == {1}
    assert set(values(every_mode, "ffn_mode", mode="dense").values()) == {0}


@pytest.mark.parametrize("extension,param,words", [
    ({"ffn_mode": 5}, "x_thermocline.ffn_mode", "string"),
    ({"ffn_mode": "sgin"}, "x_thermocline.ffn_mode", "auto, dense, exact, sign, lowrank, threshold and inputs"),
    ({"ffn_mode": "99:sign"}, "x_thermocline.ffn_mode", "99"),
    ({"ffn_mode": "x:sign"}, "x_thermocline.ffn_mode", "names no layers"),
    ({"ffn_mode": "lowrank"}, "x_thermocline.ffn_mode", "not loaded"),
    ({"ffnmode": "sign"}, "x_thermocline.ffnmode", "ffnmode"),
    ("sign", "x_thermocline", "object"),
])
def test_what_is_refused(every_mode, extension, param, words):
    response = ask(every_mode, x_thermocline=extension)
    error = response.json()["error"]
    assert response.status_code == 400 and error["type"] == "invalid_request_error"
    assert error["param"] == param and words in error["message"]


def test_a_mode_that_was_not_loaded_is_a_400_that_explains():
    with Daemon("engine.ffn_mode=dense") as d:
        for mode in ("sign", "lowrank", "threshold"):
            response = ask(d, mode)
            error = response.json()["error"]
            assert response.status_code == 400 and error["param"] == "x_thermocline.ffn_mode"
            assert f"mode '{mode}'" in error["message"] and "start with this mode" in error["message"]
        text(ask(d, "dense"))
        assert samples(d)[("controller_frozen", ())] == 0
        assert not values(d, "predictor_neurons_total") and not values(d, "controller_shift")
        assert httpx.get(d.url + "/admin/predictors").status_code == 404
        assert httpx.post(d.url + "/admin/predictors", json={"frozen": True}).status_code == 404


def test_a_model_without_true_zeros_explains():
    with Daemon("model.activation=silu") as d:
        error = ask(d, "exact").json()["error"]
        assert error["param"] == "x_thermocline.ffn_mode" and "no such zeros" in error["message"]


def test_audits_are_counted(every_mode):
    def counts():
        return {name: values(every_mode, name, **labels) for name, labels in [
            ("predictor_audited_tokens_total", {}), ("ffn_tokens_total", {}), ("predictor_mass_total", {}), ("predictor_missed_mass_total", {}),
            ("ffn_bytes_read_total", {}), ("ffn_bytes_saved_total", {}), ("ffn_predictor_bytes_read_total", {})]}

    ask(every_mode, "sign")
    settle(every_mode)
    before = counts()
    decoded = ask(every_mode, "sign").json()["usage"]["completion_tokens"]
    settle(every_mode)
    after = counts()
    outcomes = {o: values(every_mode, "predictor_neurons_total", outcome=o) for o in ("tp", "fp", "fn", "tn")}
    for layer, audited in after["predictor_audited_tokens_total"].items():
        assert 0 < audited - before["predictor_audited_tokens_total"][layer] <= decoded / 4 + 1
        assert sum(outcomes[o][layer] for o in outcomes) == audited * NEURONS
        assert outcomes["tp"][layer] > 0 and outcomes["tn"][layer] > 0
        assert 0 <= after["predictor_missed_mass_total"][layer] < after["predictor_mass_total"][layer]
        # The last token is sampled, not decoded; one that stops the answer is not counted.
        assert decoded - 1 <= after["ffn_tokens_total"][layer] - before["ffn_tokens_total"][layer] <= decoded
        assert after["ffn_bytes_read_total"][layer] > before["ffn_bytes_read_total"][layer]
        assert after["ffn_predictor_bytes_read_total"][layer] > before["ffn_predictor_bytes_read_total"][layer]
    rows = [values(every_mode, "ffn_rows_read_total", part=part) for part in ("gate", "up", "down")]
    assert all(rows[0][layer] > rows[1][layer] > 0 for layer in rows[0])


def test_bytes_per_token_is_what_decoding_reads():
    with Daemon("engine.ffn_mode=dense") as dense, Daemon("engine.ffn_mode=exact") as exact:
        per_token = []
        for d in (dense, exact):
            ask(d)
            settle(d)
            per_token.append(samples(d)[("bytes_per_token", ())])
        saved = sum(values(exact, "ffn_bytes_saved_total").values()) / values(exact, "ffn_tokens_total")[0]
        assert sum(values(dense, "ffn_bytes_saved_total").values()) == 0
        assert saved > 0 and per_token[0] - per_token[1] == pytest.approx(saved, rel=1e-6)


def test_a_lossy_request_leaves_nothing_behind():
    """KV cache entries of lossy decoding are not reused for later prompts: the text is that of a daemon without a cache."""
    first = [{"role": "user", "content": "Tell me about a whale who was lost in the fog."}]
    much_loss = ("engine.ffn_also=exact,sign", "engine.sign_alpha=0.5", "engine.ignore_calibration=true")
    with Daemon(*much_loss) as d:
        lossy = text(ask(d, "sign", first))
        turns = first + [{"role": "assistant", "content": lossy}, {"role": "user", "content": "What then?"}]
        later = [text(ask(d, "exact", messages)) for messages in (turns, first)]
        assert lossy != later[1]
    with Daemon(*much_loss, "prefix_cache.memory=0MiB") as fresh:
        assert later == [text(ask(fresh, "exact", messages)) for messages in (turns, first)]


def test_a_side_car_serves(tmp_path):
    side_car, learn = tmp_path / "learnt.tcp", ["--text", ROOT / "tests/data/wizard_of_oz.txt", "--tokens", 1500]
    run("train-predictor", "tidepool", *learn, "--rank", 32, "--side-car", side_car)
    run("calibrate", "tidepool", *learn, "--kind", "threshold", "--side-car", side_car)
    with Daemon(f"model.side_car={side_car}", "engine.ffn_also=lowrank,threshold", "engine.audit_interval=2", "engine.audit_shadow=off") as d:
        plain = text(ask(d))
        assert text(ask(d, "threshold"))
        settle(d)
        assert not values(d, "predictor_neurons_total")  # thresholds are of the gate itself: nothing is predicted
        assert text(ask(d, "0:dense,1-:lowrank"))
        settle(d)
        shown = d.admin.get("/admin/predictors").json()
        assert shown["side_car"] == str(side_car) and shown["predictor_bytes"] == samples(d)[("memory_bytes", (("device", "cpu"), ("kind", "predictors")))] > 0
        assert shown["layers"][0]["recall"] is None and all(0.3 < layer["recall"] <= 1 for layer in shown["layers"][1:])
        assert set(values(d, "predictor_neurons_total")) == set(range(1, len(shown["layers"])))
        assert not values(d, "controller_shift")
        assert ask(d, "sign").status_code == 400
        assert text(ask(d)) == plain
    with Daemon(f"model.side_car={side_car}", "engine.ffn_recall=0.3") as d:  # may choose lowrank by itself
        assert text(ask(d))
        assert "(measured)" in d.text()


def test_a_shadow_shows_what_a_predictor_would_miss():
    """The quick start's metrics have precision and recall though nothing is predicted; the text stays."""
    with Daemon("engine.audit_shadow=off") as d:
        plain = text(ask(d, max_tokens=100))
        settle(d)
        assert not values(d, "predictor_recall") and not values(d, "predictor_neurons_total")
    for settings in ((), ("engine.audit_interval=3", "engine.ffn_mode=exact"), ("engine.audit_interval=3", "hot.device=cpu", "hot.bytes=1MiB")):
        with Daemon(*settings) as d:
            assert text(ask(d, max_tokens=100)) == plain
            settle(d)
            recall = values(d, "predictor_recall", mode="shadow_sign")
            assert len(recall) == 6 and all(0.8 < v <= 1 for v in recall.values())  # calibrated for 0.97
            assert not values(d, "predictor_neurons_total") and not values(d, "ffn_predictor_bytes_read_total")  # nothing was missed
            assert ask(d, "sign").status_code == 400  # loaded for audits alone
            assert d.admin.get("/admin/predictors").json()["side_car"].endswith("tidepool.gguf.tcp")
    with Daemon("engine.ffn_mode=dense", "engine.audit_shadow=sign") as d:
        assert text(ask(d, max_tokens=100))
        settle(d)
        assert len(values(d, "predictor_recall")) == 6


def test_admin_shows_and_freezes():
    with Daemon("engine.ffn_mode=sign", "engine.audit_interval=1", "engine.controller_recall=0.9") as d:
        url = "/admin/predictors"
        fresh = d.admin.get(url).json()
        assert fresh["frozen"] is False and fresh["controller_recall"] == 0.9 and fresh["side_car"] == str(ROOT / "config/models/tidepool.gguf.tcp")
        assert fresh["layers"][0]["recall"] is None and fresh["layers"][0]["audited_tokens"] == 0  # a warm-up decodes, and audits nothing
        ask(d, max_tokens=100)
        settle(d)
        layers = d.admin.get(url).json()["layers"]
        assert [layer["layer"] for layer in layers] == list(range(len(layers)))
        for layer in layers:
            assert layer["mode"] == "sign" and layer["tokens"] > 0 and layer["moves"] >= 0
            assert all(0 < layer[key] <= 1 for key in ("active_share", "predicted_share", "recall", "precision", "controller_recall"))
            assert 0 <= layer["missed_mass_share"] < 1 and layer["bytes_saved_share"] < 1
        assert values(d, "controller_shift") == {layer["layer"]: layer["shift"] for layer in layers}
        assert d.admin.post(url, json={"frozen": True}).json()["frozen"] is True
        assert d.admin.get(url).json()["frozen"] is True and samples(d)[("controller_frozen", ())] == 1
        moves = values(d, "controller_moves_total")
        ask(d, max_tokens=100)
        settle(d)
        assert values(d, "controller_moves_total") == moves
        assert d.admin.post(url, json={"frozen": False}).json()["frozen"] is False


def test_admin_refuses_strangers_and_bad_bodies(every_mode):
    for headers in ({}, {"origin": every_mode.url}, {"origin": "http://evil.example"}):  # the operator comes by the other socket
        response = httpx.post(every_mode.url + "/admin/predictors", json={"frozen": True}, headers=headers)
        assert response.status_code == (403 if "evil" in str(headers) else 404)
    admin, url = every_mode.admin, "/admin/predictors"
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert admin.post(url, content=b'{"frozen":true}', headers={"content-type": kind}).status_code == 415
    for body in (b"", b"{", b"[]", b"{}", b'{"frozen":1}', b'{"frozen":null}', b'{"frozen":true,"thaw":1}'):
        response = admin.post(url, content=body, headers={"content-type": "application/json"})
        assert response.status_code == 400 and response.json()["error"]["message"], body
    assert admin.get(url).json()["frozen"] is False
    assert admin.put(url).status_code == 405


@pytest.mark.parametrize("setting,words", [
    ("engine.ffn_mode=99:dense", "names no layers"), ("engine.ffn_mode=lowrank", "predictor"),
    ("model.side_car=/nowhere.tcp", "/nowhere.tcp"), ("engine.ffn_also=sgin", "engine.ffn_also"),
])
def test_settings_that_cannot_be(setting, words):
    result = subprocess.run([str(BIN / "thermoclined"), "--set", "server.port=0", "--set", setting], capture_output=True, timeout=60)
    assert result.returncode == 78 and words in result.stderr.decode()
