#!/usr/bin/env python3
"""Writes the dashboards beside this file from the tables below: deploy/grafana/make_dashboards.py [--check]

A panel is a title, a unit, and queries with their legends; $job, $instance, $model and $__rate_interval are filled in by Grafana.
"""
import json
import sys
from pathlib import Path

FOLDER = Path(__file__).parent / "dashboards"
ALL = '{job="$job", instance=~"$instance"}'


def of(name, **labels):
    """The series `thermocline_<name>` of the chosen daemons and models; series of the process have no model."""
    more = "".join(f', {key}="{value}"' if not value.startswith("~") else f', {key}=~"{value[1:]}"' for key, value in labels.items())
    return f'thermocline_{name}{{job="$job", instance=~"$instance", model=~"$model|"{more}}}'


def rate(name, **labels):
    return f"rate({of(name, **labels)}[$__rate_interval])"


def total(name, by="", **labels):
    return f"sum{f' by ({by})' if by else ''} ({rate(name, **labels)})"


def quantile(q, name):
    return f"histogram_quantile({q}, {total(name + '_bucket', 'le')})"


def quantiles(name):
    return [(quantile(q, name), f"p{round(q * 100)}") for q in (0.5, 0.95, 0.99)]


def heat(name):
    return [(total(name + "_bucket", "le"), "{{le}}")]


# Row: (title, [panel, ...]); panel: (title, kind, unit, queries, what it says).
DASHBOARDS = {
    "overview": ("Thermocline: overview", [
        ("Now", [
            ("State", "stat", "", [(f"max by (state) ({of('state')}) == 1", "{{state}}")], "What the daemon is doing: loading, ready, draining or failed."),
            ("Model", "stat", "", [(f"max by (model, n_params, cpu_isa) ({of('model_info')})", "{{model}} ({{cpu_isa}})")], "The model served, and the kernels that compute it."),
            ("Tokens per second", "stat", "short", [(total("generation_tokens_total"), "generated")], ""),
            ("Running", "stat", "short", [(f"sum ({of('num_requests_running')})", "requests")], "Requests that are begun."),
            ("Waiting", "stat", "short", [(f"sum ({of('num_requests_waiting')})", "requests")], "Requests in the queue."),
            ("Goodput", "stat", "reqps", [(f"clamp_min({total('time_to_first_token_seconds_bucket', le='1')} + {total('request_time_per_output_token_seconds_bucket', le='0.1')} - {total('time_to_first_token_seconds_count')}, 0)", "good")],
             "Requests per second with a first token within 1 s and 100 ms a token, at least this many."),
        ]),
        ("Traffic", [
            ("Requests by route and status", "timeseries", "reqps", [(total("requests_total", "api, code"), "{{api}} {{code}}")], ""),
            ("Tokens per second", "timeseries", "short", [(total("generation_tokens_total"), "generated"), (total("prompt_tokens_total", "source"), "prompt, {{source}}")], "Prompt tokens from the cache cost nothing."),
            ("Answers by how they ended", "timeseries", "reqps", [(total("request_success_total", "finished_reason"), "{{finished_reason}}")], ""),
            ("Tokens of a request", "timeseries", "short", [(quantile(0.95, "request_prompt_tokens"), "prompt p95"), (quantile(0.95, "request_generation_tokens"), "answer p95")], ""),
        ]),
        ("Latency", [
            ("Time to first token", "timeseries", "s", quantiles("time_to_first_token_seconds"), "From a request's arrival to its first token."),
            ("Time between tokens", "timeseries", "s", quantiles("inter_token_latency_seconds"), "Between two tokens of a stream."),
            ("Whole request", "timeseries", "s", quantiles("e2e_request_latency_seconds"), ""),
            ("Where a request's time goes", "timeseries", "s",
             [(f"{total(f'request_{part}_time_seconds_sum')} / {total(f'request_{part}_time_seconds_count')}", part) for part in ("queue", "prefill", "decode")], "Means."),
            ("Time to first token", "heatmap", "s", heat("time_to_first_token_seconds"), ""),
            ("Time between tokens", "heatmap", "s", heat("inter_token_latency_seconds"), ""),
        ]),
        ("Queue and cache", [
            ("Queue", "timeseries", "short", [(of("num_requests_running"), "running {{instance}}"), (of("num_requests_waiting"), "waiting {{instance}}"), (of("queue_capacity"), "capacity {{instance}}")], ""),
            ("Prompt tokens that wait", "timeseries", "short", [(of("queue_prefill_tokens"), "{{instance}}")], ""),
            ("Prefix cache: share of prompt tokens found", "timeseries", "percentunit", [(f"{total('prefix_cache_hits_total')} / {total('prefix_cache_queries_total')}", "found")], ""),
            ("Conversations that differ from a cached prompt", "timeseries", "reqps", [(f"{total('prefix_breaks_total', 'where')} or vector(0)", "{{where}}")], "By the part where they do: computed again from there on. At the tail new conversations begin."),
            ("Tokens of earlier answers from memory", "timeseries", "short", [(total("replayed_tokens_total"), "tokens")], "Per second: answers that clients sent back changed."),
            ("KV cache in use", "timeseries", "percentunit", [(of("kv_cache_usage_ratio"), "{{instance}}")], ""),
            ("Tokens of a shared step", "timeseries", "short", [(f"{total('shared_step_tokens_total', 'kind')} / on () group_left () {total('shared_steps_total')}", "{{kind}}")],
             "Steps that requests share: tokens of answers, and of prompts."),
            ("Gain of sharing", "timeseries", "short", [(of("sharing_gain"), "{{instance}}")], "Over the same requests one after the other."),
        ]),
        ("Errors", [
            ("Refused before the queue", "timeseries", "reqps", [(total("requests_rejected_total", "reason"), "{{reason}}")], ""),
            ("Cancelled", "timeseries", "reqps", [(total("requests_cancelled_total", "phase, cause"), "{{phase}}, {{cause}}")], ""),
            ("Failed", "timeseries", "reqps", [(f"{total('requests_failed_total', 'reason')} or vector(0)", "{{reason}}")], "Answers that an error of a device or of data ended."),
            ("Server errors", "timeseries", "percentunit", [(f"({total('requests_total', code='~5..')} or vector(0)) / {total('requests_total')}", "5xx")], ""),
            ("Reloads that let more in, lines of the log that nobody read", "timeseries", "short", [(of("access_loosened_total"), "reloads {{instance}}"), (of("log_lines_dropped_total"), "lines {{instance}}")],
             "Since the daemon started. The log says what a reload lets in."),
        ]),
        ("Structured output", [
            ("Grammars compiled", "timeseries", "reqps", [(total("grammar_compiled_total", "result"), "{{result}}"), (total("grammar_cache_hits_total"), "from the cache")],
             "Schemas, grammars and patterns of requests."),
            ("Time spent on them", "timeseries", "percentunit", [(total("grammar_compile_seconds_total"), "compiling"), (total("grammar_mask_seconds_total"), "masks")], "Of a core."),
            ("Tokens under a grammar", "timeseries", "short", [(total("grammar_masks_total"), "sampled"), (total("grammar_forced_tokens_total"), "forced"), (total("grammar_forced_accepted_tokens_total"), "forced and accepted")], ""),
            ("Compiled grammars", "timeseries", "bytes", [(of("grammar_memory_bytes"), "{{instance}} all"), (of("grammar_cache_bytes"), "{{instance}} kept")], ""),
        ]),
    ]),
    "sparsity": ("Thermocline: sparsity", [
        ("All layers", [
            ("Share of feed-forward bytes read", "timeseries", "percentunit", [(f"{total('ffn_bytes_read_total')} / {total('ffn_dense_bytes_total')}", "read")], "Of the bytes that decoding densely would have read."),
            ("Weight bytes of a token", "timeseries", "bytes", [(of("bytes_per_token"), "{{instance}}")], "All weights, on average."),
            ("Feed-forward bytes of a token by tier", "timeseries", "bytes", [(f"{total('ffn_tier_bytes_total', 'tier')} / on () group_left () {total('ffn_tokens_total', layer='0')}", "{{tier}}")], ""),
            ("Time spent on audits", "timeseries", "percentunit", [(f"{total('predictor_audit_seconds_total')}", "of a core")], ""),
        ]),
        ("By layer", [
            ("Active neurons", "heatmap-layers", "percentunit", [(f"{total('ffn_rows_read_total', 'layer', part='down')} / {total('ffn_steps_total', 'layer')} / max by (layer) ({of('ffn_neurons')})", "{{layer}}")], "Share of a layer's neurons that a step needs for some token of it: those whose output is not zero, where a mode skips the others."),
            ("Recall", "heatmap-layers", "percentunit", [(f"min by (layer) ({of('predictor_recall')})", "{{layer}}")], "Share of the active neurons that the predictor (or its shadow) selects."),
            ("Precision", "heatmap-layers", "percentunit", [(f"min by (layer) ({of('predictor_precision')})", "{{layer}}")], "Share of the selected neurons that are active."),
            ("Missed mass", "heatmap-layers", "percentunit", [(f"max by (layer) ({of('predictor_missed_mass_ratio')})", "{{layer}}")], "Share of the contribution of active neurons that was missed: 0 without loss."),
            ("Bytes not read", "heatmap-layers", "percentunit", [(f"1 - {total('ffn_bytes_read_total', 'layer')} / {total('ffn_dense_bytes_total', 'layer')}", "{{layer}}")], ""),
            ("Mode", "table", "", [(f"max by (layer, mode) ({of('ffn_mode')}) == 1", "{{layer}} {{mode}}")], "Of a layer's last decoded token."),
        ]),
        ("Mode inputs", [
            ("Inputs cut", "timeseries", "percentunit", [(f"{total('inputs_total', 'matrix', outcome='cut')} / {total('inputs_total', 'matrix')}", "{{matrix}}")], "Share of the inputs of each kind of matrix whose weights were not read."),
            ("What the matrices did not see", "timeseries", "percentunit", [(f"{total('inputs_missed_mass_total', 'matrix')} / {total('inputs_tokens_total', 'matrix')}", "{{matrix}}")], "Mean share of the squares of the inputs' sizes that was cut."),
        ]),
        ("Controller", [
            ("Recall it sees", "timeseries", "percentunit", [(of("controller_recall"), "layer {{layer}}")], "engine.controller_recall holds this; without it there is no controller."),
            ("Shift of the thresholds", "timeseries", "short", [(of("controller_shift"), "layer {{layer}}")], "Higher reads less and misses more."),
            ("Moves", "timeseries", "short", [(total("controller_moves_total", "layer"), "layer {{layer}}")], ""),
            ("Frozen", "stat", "bool", [(f"max ({of('controller_frozen')})", "frozen")], "Held by /admin/predictors."),
        ]),
    ]),
    "speculation": ("Thermocline: speculation", [
        ("Drafts", [
            ("How drafts are made", "table", "", [(f"max by (mode, source, mode_now, fallback, not_ahead) ({of('spec_info')})", "{{mode}}")], ""),
            ("Acceptance rate", "timeseries", "percentunit", [(f"{total('spec_decode_num_accepted_tokens_total')} / {total('spec_decode_num_draft_tokens_total')}", "accepted")], "Of the drafted tokens that were verified."),
            ("Tokens of a verification", "timeseries", "short", [(f"1 + {total('spec_decode_num_accepted_tokens_total')} / {total('spec_decode_num_drafts_total')}", "accepted, and the target's own"), (of("spec_draft_length"), "last draft {{instance}}")], ""),
            ("Accepted by position", "timeseries", "short", [(total("spec_decode_num_accepted_tokens_per_pos_total", "position"), "{{position}}")], "Per second."),
        ]),
        ("Work", [
            ("Drafted tokens", "timeseries", "short", [(total("spec_drafted_tokens_total"), "drafted"), (total("spec_wasted_tokens_total"), "wasted")], "Wasted: refused, or of a branch that did not come true."),
            ("Time", "timeseries", "percentunit", [(total(f"spec_{part}_seconds_total"), part) for part in ("verify", "draft", "draft_wait")], "Seconds per second: of a thread."),
            ("Branches that came true", "timeseries", "percentunit",
             [(f"({total('spec_branch_hits_total')} / ({total('spec_branch_hits_total')} + {total('spec_branch_misses_total')} > 0)) or vector(0)", "hits")], "Of the verifications with branches; in mode branch or exhaustive."),
            ("Steps without a draft", "timeseries", "short", [(total("spec_plain_steps_total"), "steps")], ""),
            ("Time of the model's steps", "timeseries", "s", [(f"{total('engine_step_seconds_sum', 'phase')} / {total('engine_step_seconds_count', 'phase')}", "{{phase}}")], "Means."),
            ("Time of a drafted token", "timeseries", "s", [(of("spec_draft_token_seconds"), "{{instance}}")], ""),
        ]),
    ]),
    "flash": ("Thermocline: flash and placement", [
        ("Neurons on flash", [
            ("Found in memory", "timeseries", "percentunit", [(f"{total('flash_hit_neurons_total')} / {total('flash_needed_neurons_total')}", "hits")], "Of the neurons that decoded tokens needed."),
            ("Read from flash", "timeseries", "Bps", [(total("flash_read_bytes_total"), "read"), (total("flash_wanted_bytes_total"), "of wanted neurons")], ""),
            ("Bytes of a read", "timeseries", "bytes", [(f"{total('flash_read_bytes_total')} / {total('flash_reads_total')}", "mean")], "Larger reads are faster: see docs/flash.md."),
            ("Read ahead", "timeseries", "Bps", [(total("flash_ahead_useful_bytes_total"), "then needed"), (total("flash_ahead_wasted_bytes_total"), "given up")], ""),
            ("Waiting for flash", "timeseries", "percentunit", [(total(f"flash_{part}_seconds_total"), part) for part in ("wait", "manage", "arrive")], "Seconds per second of decoding."),
            ("Cache", "timeseries", "short", [(total(f"flash_{what}_total"), what) for what in ("evictions", "overflows", "passed")], "Neurons per second."),
            ("Trouble", "timeseries", "short", [(total(f"flash_{what}_total"), what) for what in ("retries", "io_errors", "crc_errors")], "Should be 0."),
        ]),
        ("Hot tier", [
            ("Device", "table", "", [(f"max by (device, fallback) ({of('device_info')})", "{{device}}")], ""),
            ("Memory of hot neurons", "timeseries", "bytes", [(of("hot_bytes"), "{{instance}}")], ""),
            ("Active neurons by side", "timeseries", "short", [(total("hot_active_neurons_total", "side"), "{{side}}")], "Per second."),
            ("Share of active neurons that are hot", "timeseries", "percentunit", [(f"{total('hot_active_neurons_total', side='hot')} / {total('hot_active_neurons_total')}", "hot")], ""),
            ("Both sides at work", "timeseries", "percentunit", [(total("hot_busy_seconds_total", "side"), "{{side}} busy"), (total("hot_wait_seconds_total"), "cold waits")], "Seconds per second."),
            ("Planned speed", "timeseries", "short", [(of("hot_planned_tokens_per_second"), "planned"), (total("generation_tokens_total"), "generated")], "Tokens per second."),
        ]),
        ("Experts", [
            ("Uses by range of experts", "timeseries", "short", [(total("expert_uses_total", "experts"), "{{experts}}")], "Of all layers, per second; one layer's: add layer."),
            ("Where they were", "timeseries", "short", [(total("expert_tier_uses_total", "tier"), "{{tier}}")], "Uses per second."),
            ("Uses that the hottest make", "timeseries", "percentunit", [(f"avg by (hottest) ({of('expert_hottest_share')})", "hottest {{hottest}}")], "Mean of the layers; a tenth and three tenths of a layer's experts."),
            ("Load of the most used", "timeseries", "short", [(f"max by (layer) ({of('router_load_max')})", "layer {{layer}}")], "Over the mean: 1 is even."),
            ("Guesses that were right", "timeseries", "percentunit", [(f"{total('expert_guesses_total', outcome='right')} / {total('expert_guesses_total')}", "right")], "Of the experts that were read ahead."),
        ]),
    ]),
    "machine": ("Thermocline: machine", [
        ("Memory", [
            ("By kind", "timeseries", "bytes", [(of("memory_bytes"), "{{kind}} on {{device}}")], ""),
            ("Of the process", "timeseries", "bytes", [(f"process_resident_memory_bytes{ALL}", "resident {{instance}}"), (of("memory_planned_bytes"), "planned {{instance}}"), (of("memory_budget_bytes"), "budget {{instance}}")], ""),
        ]),
        ("Power and temperature", [
            ("Power", "timeseries", "watt", [(of("power_watts"), "{{rail}}")], "Rails overlap: one may be a part of another. Empty where the machine shows no sensors."),
            ("Energy of a token", "timeseries", "joule", [(f"{total('energy_joules_total', 'rail')} / on () group_left () {total('generation_tokens_total')}", "{{rail}}")], ""),
            ("Temperature", "timeseries", "celsius", [(of("temperature_celsius"), "{{zone}}")], ""),
            ("Clock", "timeseries", "hertz", [(of("clock_hertz"), "{{unit}}")], ""),
        ]),
        ("Process", [
            ("Processors in use", "timeseries", "short", [(f"rate(process_cpu_seconds_total{ALL}[$__rate_interval])", "{{instance}}")], ""),
            ("Open files", "timeseries", "short", [(f"process_open_fds{ALL}", "{{instance}}")], ""),
            ("Threads", "timeseries", "short", [(f"process_threads{ALL}", "{{instance}}")], ""),
            ("Up since", "stat", "dateTimeFromNow", [(f"process_start_time_seconds{ALL} * 1000", "{{instance}}")], ""),
        ]),
    ]),
}

SOURCE = {"type": "prometheus", "uid": "${datasource}"}
WIDTHS = {"stat": 4, "table": 8, "heatmap-layers": 8}


def options(kind):
    if kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name", "colorMode": "none"}
    if kind == "heatmap":
        return {"calculate": False, "yAxis": {"unit": "s"}, "color": {"scheme": "Oranges"}}
    if kind == "heatmap-layers":
        # A layer is a row of the picture, its value the colour.
        return {"showValue": "never", "rowHeight": 0.9}
    if kind == "table":
        return {"showHeader": True}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}


def defaults(kind, unit):
    out = {"unit": unit} if unit else {}
    if kind == "heatmap-layers":
        out |= {"min": 0, "max": 1, "color": {"mode": "continuous-BlPu"}, "custom": {"fillOpacity": 90, "lineWidth": 0}}
    if unit == "percentunit":
        out |= {"min": 0}
    return out


def legend_of(expr, legend):
    """A daemon's series of several models are told apart."""
    return legend.replace("{{instance}}", "{{instance}} {{model}}") if "$model" in expr else legend


def panel(number, kind, place, title, unit, queries, text):
    target = {"heatmap": {"format": "heatmap"}, "table": {"format": "table", "instant": True}, "stat": {"instant": True}}.get(kind, {})
    return {
        "id": number, "type": {"heatmap-layers": "status-history"}.get(kind, kind), "title": title, "description": text, "gridPos": place,
        "datasource": SOURCE, "fieldConfig": {"defaults": defaults(kind, unit), "overrides": []}, "options": options(kind),
        "targets": [{"refId": chr(ord("A") + i), "expr": expr, "legendFormat": legend_of(expr, legend), "datasource": SOURCE, **target} for i, (expr, legend) in enumerate(queries)],
    }


def panels(rows):
    out, y = [], 0
    for title, cells in rows:
        out.append({"id": len(out) + 1, "type": "row", "title": title, "collapsed": False, "gridPos": {"x": 0, "y": y, "w": 24, "h": 1}, "panels": []})
        x, y, height = 0, y + 1, 8
        for name, kind, unit, queries, text in cells:
            width, height = WIDTHS.get(kind, 6 if len(cells) % 3 else 8), 4 if kind == "stat" else 8
            if x + width > 24:
                x, y = 0, y + height
            out.append(panel(len(out) + 1, kind, {"x": x, "y": y, "w": width, "h": height}, name, unit, queries, text))
            x += width
        y += height
    return out


def variable(name, label, query, **more):
    return {"name": name, "label": label, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}, "definition": query, "refresh": 2, "sort": 1, **more}


def dashboard(uid, title, rows):
    return {
        "uid": f"thermocline-{uid}", "title": title, "tags": ["thermocline"], "schemaVersion": 39, "editable": True, "refresh": "10s",
        "time": {"from": "now-1h", "to": "now"}, "timezone": "browser",
        "links": [{"type": "dashboards", "tags": ["thermocline"], "title": "Thermocline", "asDropdown": True, "keepTime": True, "includeVars": True}],
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            variable("job", "Job", "label_values(thermocline_build_info, job)"),
            variable("instance", "Daemon", 'label_values(thermocline_build_info{job="$job"}, instance)', multi=True, includeAll=True, allValue=".*"),
            variable("model", "Model", 'label_values(thermocline_state{job="$job", instance=~"$instance"}, model)', multi=True, includeAll=True, allValue=".*"),
        ]},
        "panels": panels(rows),
    }


def main():
    stale = []
    for uid, (title, rows) in DASHBOARDS.items():
        text, path = json.dumps(dashboard(uid, title, rows), indent=1) + "\n", FOLDER / f"{uid}.json"
        if sys.argv[1:] == ["--check"]:
            stale += [] if path.exists() and path.read_text() == text else [path.name]
        else:
            path.write_text(text)
    if stale:
        sys.exit(f"out of date, run deploy/grafana/make_dashboards.py: {', '.join(stale)}")


if __name__ == "__main__":
    main()
