"""Grafana's dashboards and Prometheus' rules: every query of every panel returns data of a daemon under load."""
import json
import math
import re
import subprocess
import sys
import time

import httpx
import pytest
import yaml
from conftest import ROOT, Daemon, run, wait_until
from test_experts import wide  # noqa: F401 (a fixture)
from test_flash import daemon_exit, number_of_bytes, tidepool, tight  # noqa: F401 (a fixture)
from test_hot import make_eager
from test_metrics import DOCUMENTED, NAMES, Prometheus, ask, in_parallel, seeing

RULES = ROOT / "deploy/prometheus/rules.yml"
DASHBOARDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "deploy/grafana/dashboards").glob("*.json"))}
SENSORS = {"class/hwmon/hwmon0/name": "ina3221", "class/hwmon/hwmon0/in1_label": "VDD_IN", "class/hwmon/hwmon0/in1_input": "5000", "class/hwmon/hwmon0/curr1_input": "1500",
           "class/thermal/thermal_zone0/type": "cpu-thermal", "class/thermal/thermal_zone0/temp": "45250", "class/devfreq/17000000.gpu/cur_freq": "624750000"}


def queries(row=None, model=".*"):
    """(dashboard, panel, query) with Grafana's variables filled in; of one row of panels."""
    for name, dashboard in DASHBOARDS.items():
        at = None
        for panel in dashboard["panels"]:
            at = panel["title"] if panel["type"] == "row" else at
            for target in panel.get("targets", ()) if row in (None, at) else ():
                yield name, panel["title"], target["expr"].replace("$__rate_interval", "1m").replace("$instance", ".*").replace("$model", model).replace("$job", "thermocline")


def metrics_of(promql):
    return set(re.findall(r"\b(?:thermocline|process)_\w+", re.sub(r'"[^"]*"', "", promql)))


def test_dashboards_are_what_the_script_writes():
    subprocess.run([sys.executable, ROOT / "deploy/grafana/make_dashboards.py", "--check"], check=True, timeout=60)
    assert set(DASHBOARDS) == {"overview", "sparsity", "speculation", "flash", "machine"}


@pytest.mark.parametrize("name", DASHBOARDS)
def test_a_dashboard_is_well_formed(name):
    dashboard = DASHBOARDS[name]
    panels = dashboard["panels"]
    assert dashboard["uid"] == f"thermocline-{name}" and [v["name"] for v in dashboard["templating"]["list"]] == ["datasource", "job", "instance", "model"]
    assert len({p["id"] for p in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken and place["x"] + place["w"] <= 24, panel["title"]
        taken |= cells
        assert panel["type"] == "row" or panel["targets"]


def test_every_metric_of_panels_and_rules_exists():
    expressions = [expr for _, _, expr in queries()]
    for group in yaml.safe_load(RULES.read_text())["groups"]:
        expressions += [rule["expr"] for rule in group["rules"]]
    for expr in expressions:
        for metric in metrics_of(re.sub(r"thermocline:\w+(:\w+)*", "", expr)):
            assert re.sub("_(bucket|count|sum)$", "", metric) in DOCUMENTED or metric in DOCUMENTED, (metric, expr)


def test_metrics_that_no_panel_shows_are_known():
    shown = {re.sub("_(bucket|count|sum)$", "", metric) for _, _, expr in queries() for metric in metrics_of(expr)} | {metric for _, _, expr in queries() for metric in metrics_of(expr)}
    # Details for a query of one's own; what another panel shows in another form.
    assert set(DOCUMENTED) - shown <= {f"thermocline_{name}" for name in (
        "build_info", "model_load_seconds", "num_requests_paused", "queue_prefill_tokens_max", "tokenize_seconds", "cancel_latency_seconds", "engine_batch_size",
        "engine_heartbeats_total", "engine_last_step_timestamp_seconds", "preemptions_total", "recomputed_tokens_total", "kv_cache_tokens",
        "kv_cache_capacity_tokens", "prefix_cache_lookups_total", "prefix_cache_missed_tokens_total", "kv_cache_evictions_total", "prefix_cache_limit_bytes", "prefix_cache_states",
        "ffn_rows_read_total", "ffn_bytes_saved_total", "ffn_predictor_bytes_read_total", "predictor_audited_tokens_total", "predictor_missed_mass_total",
        "predictor_mass_total", "predictor_window_tokens", "flash_info", "hot_neurons", "hot_layer_seconds_total", "hot_layers_total", "spec_acceptance",
        "predictor_neurons_total", "tool_calls_total", "tool_call_rejected_total", "request_fields_ignored_total",
        "grammar_cache_entries", "experts_unused", "request_reasoning_tokens", "reasoning_cut_total")} | {
        "process_virtual_memory_bytes", "process_max_fds"}


def test_rules():
    for args in (["check", "rules", RULES], ["test", "rules", ROOT / "tests/deploy/rules_test.yml"]):
        result = subprocess.run(["promtool", *map(str, args)], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr


def test_the_configurations_are_read_by_prometheus(tmp_path):
    for name in ("prometheus.yml", "prometheus-keys.yml"):
        result = subprocess.run(["promtool", "check", "config", "--syntax-only", ROOT / "deploy/prometheus" / name], capture_output=True, text=True, timeout=60)
        assert result.returncode == 0, result.stdout + result.stderr
    for path in (ROOT / "deploy/grafana/provisioning").rglob("*.yaml"):
        assert yaml.safe_load(path.read_text())["apiVersion"] == 1


def test_the_runbook_has_a_section_for_each_alert():
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbook.md").read_text(), re.M)
    alerts = [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "alert" in rule]
    assert [rule["alert"] for rule in alerts] == headings
    for rule in alerts:
        assert rule["annotations"]["runbook"] == f"docs/runbook.md#{rule['alert'].lower()}"
        assert rule["annotations"]["summary"] and rule["annotations"]["description"] and rule["labels"]["severity"] in ("critical", "warning")


def shows_data(server, wanted, load):
    missing, end = dict.fromkeys(wanted), time.monotonic() + 240
    while missing and time.monotonic() < end:
        load()
        for key in list(missing):
            values = server.query(key[2])
            if values and all(math.isfinite(v) for v in values.values()):
                del missing[key]
    assert not missing, list(missing)


def test_the_panels_of_experts_show_data(wide, tmp_path):  # noqa: F811
    model = [f"model.path={wide}", "hot.device=cpu", "engine.context_length=512", "prefix_cache.memory=0MiB", "spec.mode=off"]
    least = int(number_of_bytes(daemon_exit(*model, "memory.budget_bytes=1").stderr.decode()))
    with Daemon(*model, f"memory.budget_bytes={least + (12 << 20)}") as d, Prometheus(d, tmp_path, ("thermocline",), RULES) as server:
        wait_until(server.is_up, 60)
        body = {"prompt": "w1 w2 w3", "max_tokens": 60, "ignore_eos": True}
        shows_data(server, queries("Experts"), lambda: httpx.post(d.url + "/v1/completions", json=body, timeout=60).raise_for_status())


def test_the_panels_of_mode_inputs_show_data(tmp_path):
    model = tmp_path / "columns.gguf"
    run("convert", "tidepool", model, "--down", "columns", "--quantize", "q8_0")
    run("calibrate", model, "--kind", "inputs", "--share", 0.2, "--rule", "size", "--text", ROOT / "tests/data/wizard_of_oz.txt", "--tokens", 300, "--window", 64)
    with Daemon(f"model.path={model}", "engine.ffn_mode=inputs", "engine.kl_max=100") as d, Prometheus(d, tmp_path, ("thermocline",), RULES) as server:
        wait_until(server.is_up, 60)
        body = {"prompt": "Once", "max_tokens": 60, "ignore_eos": True}
        shows_data(server, queries("Mode inputs"), lambda: httpx.post(d.url + "/v1/completions", json=body, timeout=60).raise_for_status())


def test_a_model_of_several_is_chosen(tmp_path):
    """The selector takes a model's series and those of the process, and rules hold with several models in one daemon."""
    path = tmp_path / "two.yaml"
    path.write_text("models:\n  - path: tidepool\n    name: tide\n  - path: tidepool-experts\n    name: experts\n")
    with Daemon(config=path) as d, Prometheus(d, tmp_path, ("thermocline",), RULES) as server:
        wait_until(server.is_up, 60)
        asked = lambda: [httpx.post(d.url + "/v1/completions", json={"model": m, "prompt": "Once", "max_tokens": 20}, timeout=60).raise_for_status() for m in ("tide", "experts")]  # noqa: E731
        for model in ("tide", "experts"):
            chosen = {key for key in queries(model=model) if key[1] in ("State", "Model", "Running", "Tokens per second", "KV cache in use", "Of the process")}
            assert len(chosen) > 6
            shows_data(server, chosen, asked)
            assert server.query(f'count by (model) (thermocline_kv_cache_usage_ratio{{model=~"{model}|"}})').keys() == {(("model", model),)}
        assert not [rule for rule in server.rules() if rule["health"] != "ok"] and not server.query('ALERTS{alertstate="firing"}')


def test_every_panel_shows_data(tidepool, tmp_path, monkeypatch):  # noqa: F811
    """A daemon with everything: sensors, neurons on flash, a hot tier, a predictor with its controller, drafts, refusals."""
    for path, text in SENSORS.items():
        (tmp_path / "sys" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "sys" / path).write_text(text + "\n")
    settings = tight(tidepool, "engine.ffn_mode=sign", "engine.audit_interval=1", "engine.controller_recall=0.9", "hot.device=cpu", "hot.bytes=1MiB",
                     "spec.mode=sync", "spec.source=ngram", "spec.fixed=true", "spec.tokens_max=4", "engine.queue_capacity=4", "prefix_cache.memory=1MiB",
                     before=seeing(tmp_path / "sys"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    with Daemon(*settings, before=seeing(tmp_path / "sys")):
        make_eager(tmp_path / "cache")  # the plan goes by speeds that are measured once: these put neurons on both sides
    with Daemon(*settings, before=seeing(tmp_path / "sys")) as d, Prometheus(d, tmp_path, ("thermocline",), RULES) as server:
        wait_until(server.is_up, 60)

        def load():
            in_parallel(*[lambda name=name: ask(d, name, max_tokens=60) for name in NAMES[:3]])
            ask(d, NAMES[3], max_tokens=60)  # alone: with drafts
            httpx.post(d.url + "/v1/chat/completions", json={"messages": []}, timeout=30)  # refused
            with httpx.stream("POST", d.url + "/v1/completions", json={"prompt": "Once", "stream": True, "max_tokens": 400, "ignore_eos": True}, timeout=30) as stream:
                next(stream.iter_lines())  # and gone: cancelled

        shows_data(server, set(queries()) - set(queries("Experts")) - set(queries("Mode inputs")), load)
        recorded = {rule["record"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"] if "record" in rule}
        wait_until(lambda: all(server.query(name) for name in recorded), 60)
        assert not server.query('ALERTS{alertstate="firing"}')
