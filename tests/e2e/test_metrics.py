"""Metrics as Prometheus sees them: the table, the page and a running daemon agree; a real server scrapes and answers queries."""
import hashlib
import json
import math
import re
import shutil
import socket
import subprocess
import threading
import time

import httpx
import pytest
from conftest import BIN, ROOT, Daemon, run, run_json, wait_until
from prometheus_client.parser import text_string_to_metric_families

PAGE = (ROOT / "docs/metrics.md").read_text()
# name -> (type, labels, when it appears), from the page.
DOCUMENTED = {m[1]: (m[2], {x for x in m[3].split(", ") if x}, m[4]) for m in re.finditer(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*) \| [^|]* \| (\w+) \|", PAGE, re.MULTILINE)}
QUERIES = dict(re.findall(r"\n([^\n]+):\n\n```promql\n(.*?)\n```", PAGE, re.DOTALL))
SIGN = ("engine.ffn_mode=sign", "engine.audit_interval=1")
NAMES = ["owl", "fox", "boat", "storm", "lamp", "bear", "girl", "tree"]


def ask(daemon, name, **extra):
    body = {"messages": [{"role": "user", "content": f"Tell me a story about a {name}."}], "temperature": 0, "max_tokens": 200, **extra}
    answer = httpx.post(daemon.url + "/v1/chat/completions", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.text if extra.get("stream") else answer.json()


def scrape(daemon):
    answer = httpx.get(daemon.url + "/metrics", timeout=10)
    assert answer.status_code == 200 and answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return answer.text


def samples(text):
    return {(s.name, tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def in_parallel(*jobs):
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.fixture(scope="module")
def busy():
    """A daemon whose predictor and draft model work."""
    with Daemon(*SIGN, "spec.mode=sync", "spec.draft=tidepool-draft", "spec.fixed=true", "spec.tokens_max=4", "engine.controller_recall=0.9") as d:
        ask(d, "owl", max_tokens=40)
        ask(d, "owl", max_tokens=40)
        yield d


def test_the_tables_of_the_page_are_printed_by_the_daemon():
    printed = subprocess.run([str(BIN / "thermoclined"), "--metrics-doc"], capture_output=True, check=True, timeout=60)
    assert f"-->\n{printed.stdout.decode()}<!--" in PAGE, "python3 docs/make_metrics.py build/release/bin/thermoclined"
    assert len(DOCUMENTED) > 100 and len(QUERIES) > 10


def test_the_daemon_exposes_what_is_documented(busy):
    text = scrape(busy)
    types = dict(re.findall(r"^# TYPE (\S+) (\w+)$", text, re.MULTILINE))
    assert types.keys() <= DOCUMENTED.keys()
    there = {name for name, (_, _, when) in DOCUMENTED.items() if when in ("always", "loaded", "predicted", "controlled", "drafts")}
    assert there <= types.keys(), there - types.keys()
    for name, type_name in types.items():
        assert type_name == DOCUMENTED[name][0], name
    for (name, labels), _ in samples(text).items():
        family = re.sub("_(bucket|count|sum)$", "", name) if name not in DOCUMENTED else name
        assert {key for key, _ in labels} - {"le"} == DOCUMENTED[family][1], name


def test_prometheus_linter_is_silent(busy):
    assert shutil.which("promtool"), "deploy/install-deps.sh --tests"
    checked = subprocess.run(["promtool", "check", "metrics"], input=scrape(busy).encode(), capture_output=True, timeout=60)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


def test_requests_are_counted_once(busy):
    before = samples(scrape(busy))
    answer = ask(busy, "fox", max_tokens=20)
    after = samples(scrape(busy))
    grown = lambda name, **labels: after[("thermocline_" + name, tuple(sorted(labels.items())))] - before.get(("thermocline_" + name, tuple(sorted(labels.items()))), 0)
    tokens = answer["usage"]["completion_tokens"]
    assert grown("generation_tokens_total") == grown("request_generation_tokens_sum") == tokens
    for name in ("time_to_first_token_seconds", "request_time_per_output_token_seconds", "e2e_request_latency_seconds", "tokenize_seconds", "request_queue_time_seconds"):
        assert grown(name + "_count") == 1, name
    assert grown("inter_token_latency_seconds_count") == tokens - 1
    steps = sum(grown("engine_step_seconds_count", phase=phase) for phase in ("prefill", "decode", "verify"))
    computed = grown("prompt_tokens_total", source="computed") + grown("spec_decode_num_draft_tokens_total")
    assert grown("engine_batch_size_sum") == computed + steps - grown("engine_step_seconds_count", phase="prefill") > tokens
    assert 1 < steps <= tokens + 1 and steps == grown("engine_batch_size_count") and grown("engine_heartbeats_total") > 0
    assert 0 < after[("thermocline_kv_cache_tokens", ())] <= after[("thermocline_kv_cache_capacity_tokens", ())]
    assert abs(after[("thermocline_engine_last_step_timestamp_seconds", ())] - time.time()) < 60
    assert grown("e2e_request_latency_seconds_sum") >= grown("time_to_first_token_seconds_sum") > 0


def test_a_scrape_disturbs_neither_another_nor_a_stream(busy):
    """Counters only grow, whatever other scrapes happen, and a scrape is answered while streams run."""
    seen, done = [[], []], threading.Event()

    def load():
        in_parallel(*[lambda name=name: ask(busy, name, stream=True) for name in NAMES[:4]])
        done.set()

    def read(into):
        while not done.is_set():
            begin = time.monotonic()
            into.append(samples(scrape(busy)))
            assert time.monotonic() - begin < 5
    in_parallel(load, lambda: read(seen[0]), lambda: read(seen[1]))
    last = samples(scrape(busy))
    counters = [key for key in last if key[0].endswith(("_total", "_count", "_bucket"))]
    for one in seen:
        assert len(one) >= 2
        for earlier, later in zip(one, [*one[1:], last]):
            assert not [key for key in counters if earlier.get(key, 0) > later.get(key, 0)]


def test_steps_and_their_tokens_are_counted():
    """Without drafts it is known which steps a request makes: chunks of the prompt, then one for each token but the first."""
    with Daemon("spec.mode=off", "engine.prefill_chunk=4", "prefix_cache.memory=0MiB") as d:
        wait_until(lambda: samples(scrape(d))[("thermocline_num_requests_running", ())] == 0)  # the first token at the start
        before = samples(scrape(d))
        usage = ask(d, "owl", max_tokens=10)["usage"]
        after = samples(scrape(d))
        grown = lambda name, **labels: after[("thermocline_engine_" + name, tuple(sorted(labels.items())))] - before[("thermocline_engine_" + name, tuple(sorted(labels.items())))]
        prompt, tokens = usage["prompt_tokens"], usage["completion_tokens"]
        whole, rest = divmod(prompt, 4)
        assert tokens == 10 and whole > 1
        assert grown("step_seconds_count", phase="prefill") == whole + (rest > 0)
        assert grown("step_seconds_count", phase="decode") == tokens - 1 and grown("step_seconds_count", phase="verify") == 0
        assert grown("batch_size_sum") == prompt + tokens - 1
        assert grown("batch_size_bucket", le="1") == tokens - 1 + (rest == 1)
        assert grown("batch_size_bucket", le="4") == grown("batch_size_bucket", le="+Inf") == grown("batch_size_count")
        for phase in ("prefill", "decode"):
            assert grown("step_seconds_sum", phase=phase) > 0


def test_histograms_are_consistent(busy):
    """Buckets rise to the count, every step has its batch, and an idle daemon's scrape includes the last step."""
    ask(busy, "bear", max_tokens=30)
    wait_until(lambda: samples(scrape(busy))[("thermocline_num_requests_running", ())] == 0)
    first, now = samples(scrape(busy)), samples(scrape(busy))
    buckets = {}
    for (name, labels), value in now.items():
        if name.endswith("_bucket"):
            rest = tuple(pair for pair in labels if pair[0] != "le")
            buckets.setdefault((name.removesuffix("_bucket"), rest), []).append((float(dict(labels)["le"]), value))
    assert {("thermocline_engine_step_seconds", (("phase", "verify"),)), ("thermocline_engine_batch_size", ())} < buckets.keys()
    for (name, labels), values in buckets.items():
        counts = [count for _, count in sorted(values)]
        assert counts == sorted(counts) and counts[-1] == now[name + "_count", labels], name
        assert (now[name + "_sum", labels] > 0) == (counts[-1] > 0), name
    steps = sum(now["thermocline_engine_step_seconds_count", (("phase", phase),)] for phase in ("prefill", "decode", "verify"))
    assert steps == now["thermocline_engine_batch_size_count", ()] > 0
    engine = {key: value for key, value in now.items() if key[0].startswith("thermocline_engine_")}
    assert engine == pytest.approx({key: first[key] for key in engine}, rel=1e-12)


def test_labels_are_bounded(busy):
    with httpx.Client(base_url=busy.url) as client:
        for i in range(30):
            client.get(f"/no/such/{i}")
            client.get(f"/v1/models/none-{i}")
            client.post("/v1/chat/completions", json={"model": f"none-{i}", "messages": []})
    text = scrape(busy)
    routes = {dict(labels)["api"] for (name, labels) in samples(text) if name == "thermocline_requests_total"}
    assert not [route for route in routes if re.search(r"\d{1,}$|no/such|none", route)] and len(routes) < 20
    positions = {dict(labels)["position"] for (name, labels) in samples(text) if name.endswith("per_pos_total")}
    assert positions == {str(i) for i in range(20)}
    assert len(text.splitlines()) < 2000


def test_refusals_are_counted_by_their_reason():
    """The counted reason is the client's: here too many prompt tokens wait, not too many requests."""
    statuses = []
    with Daemon("engine.sequences_max=1", "engine.queue_prefill_tokens=10", "spec.mode=off") as d:
        def client():
            while statuses.count(429) < 5:
                body = {"messages": [{"role": "user", "content": "Tell me a long story about an owl and a fox."}], "max_tokens": 200}
                statuses.append(httpx.post(d.url + "/v1/chat/completions", json=body, timeout=60).status_code)
        in_parallel(*[client] * 6)
        assert set(statuses) == {200, 429}
        rejected = {dict(labels)["reason"]: v for (name, labels), v in samples(scrape(d)).items() if name == "thermocline_requests_rejected_total"}
        assert rejected == {"prefill_budget": statuses.count(429)}


def test_refusals_at_the_gate_and_of_other_models_are_counted_by_their_reason(tmp_path):
    key = "a-key-of-some-length-01"
    (tmp_path / "keys").write_text(f"alice:{hashlib.sha256(key.encode()).hexdigest()}\n")
    (tmp_path / "keys").chmod(0o600)
    chat = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}

    def counted(d, path, headers={}, method="GET", **kwargs):
        """The rejections that a request adds, read by the operator's socket."""
        read = lambda: {dict(labels)["reason"]: v for (name, labels), v in samples(d.admin.get("/metrics").text).items() if name == "thermocline_requests_rejected_total"}
        before = read()
        code = httpx.request(method, d.url + path, headers=headers, timeout=30, **kwargs).status_code
        return code, {reason: v - before.get(reason, 0) for reason, v in read().items() if v != before.get(reason, 0)}

    with Daemon() as d:
        assert counted(d, "/v1/models", [("origin", "http://localhost")] * 2) == (400, {"bad_request": 1})
        assert counted(d, "/v1/models", {"host": "elsewhere.example"}) == (403, {"auth": 1})
        assert counted(d, "/admin/requests") == (404, {})
        assert counted(d, "/v1/chat/completions", method="POST", json={**chat, "model": "other"}) == (404, {"bad_request": 1})
        assert counted(d, "/v1/chat/completions", method="POST", json=chat) == (200, {})
    with Daemon(f"server.api_keys_file={tmp_path / 'keys'}") as d:
        assert counted(d, "/v1/models") == (401, {"auth": 1})
        assert counted(d, "/admin/requests", {"authorization": f"Bearer {key}"}) == (403, {"auth": 1})


def seeing(sysfs):
    """The words before a command that sees the folder as /sys."""
    hide = ["unshare", "--map-root-user", "--mount", "sh", "-c", f'mount --bind "{sysfs}" /sys && exec "$@"', "sh"]
    if subprocess.run([*hide, "true"], capture_output=True, timeout=60).returncode:
        pytest.skip("this machine lets nobody have mounts of their own")
    return hide


def test_sensors_are_shown_while_they_can_be_read(tmp_path):
    """A machine with a rail that tells its power, one that counts energy, a zone and a clock, then one without any."""
    rail, counter = tmp_path / "class/hwmon/hwmon0", tmp_path / "class/powercap/intel-rapl:0"
    zone, clock = tmp_path / "class/thermal/thermal_zone0", tmp_path / "class/devfreq/17000000.gpu"
    files = {rail / "name": "ina3221", rail / "in1_label": "VDD_IN", rail / "in1_input": "5000", rail / "curr1_input": "1500", counter / "name": "package-0", counter / "energy_uj": "262143000000",
             counter / "max_energy_range_uj": "262143328850", zone / "type": "cpu-thermal", zone / "temp": "45250", clock / "cur_freq": "624750000"}
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    with Daemon("spec.mode=off", before=seeing(tmp_path)) as d:
        shown = lambda: {(name.removeprefix("thermocline_"), *dict(labels).values()): v for (name, labels), v in samples(scrape(d)).items() if re.search("watts|joules|celsius|hertz", name)}
        wait_until(lambda: shown().get(("energy_joules_total", "VDD_IN"), 0) > 0)
        first = shown()
        assert first["power_watts", "VDD_IN"] == 7.5 and first["temperature_celsius", "cpu-thermal"] == 45.25 and first["clock_hertz", "gpu"] == 624750000
        assert first["energy_joules_total", "rapl/package-0"] == 0
        checked = subprocess.run(["promtool", "check", "metrics"], input=scrape(d).encode(), capture_output=True, timeout=60)
        assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")
        (zone / "temp").unlink()
        (counter / "energy_uj").write_text("19671150\n")  # 0.32885 J to the end, and 19.67115 J
        wait_until(lambda: shown()["energy_joules_total", "rapl/package-0"] == pytest.approx(20))
        wait_until(lambda: ("temperature_celsius", "cpu-thermal") not in shown())
        assert shown()["energy_joules_total", "VDD_IN"] > first["energy_joules_total", "VDD_IN"]
    (tmp_path / "empty").mkdir()
    with Daemon("spec.mode=off", before=seeing(tmp_path / "empty")) as d:
        time.sleep(1.5)  # a reading would have been made
        assert not re.search("watts{|joules_total{|celsius{|hertz{", scrape(d))


def test_prefix_and_borders_are_configured():
    with Daemon("metrics.prefix=vllm:", "metrics.buckets_inter_token=0.0005, 0.25, 4") as d:
        ask(d, "owl", max_tokens=5)
        text = scrape(d)
        borders = re.findall(r'^vllm:inter_token_latency_seconds_bucket\{le="([^"]+)"\}', text, re.MULTILINE)
        assert borders == ["0.0005", "0.25", "4", "+Inf"]
        assert "vllm:time_to_first_token_seconds_count 1\n" in text and "vllm:num_requests_running 0\n" in text
        assert "thermocline_" not in text and "\nprocess_resident_memory_bytes " in text


class Prometheus:
    """A server that scrapes `daemon` every second, as each of `jobs`; with the rules of a file, if one is given."""

    def __init__(self, daemon, folder, jobs=("one", "two"), rules=None):
        self.jobs = jobs
        assert shutil.which("prometheus"), "deploy/install-deps.sh --tests"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.url = f"http://127.0.0.1:{free.getsockname()[1]}"
        job = {"static_configs": [{"targets": [f"127.0.0.1:{daemon.port}"]}]}
        config = {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"}, "scrape_configs": [{"job_name": name, **job} for name in jobs]}
        if rules:
            config |= {"rule_files": [str(rules)]}
            config["global"]["evaluation_interval"] = "1s"
        (folder / "prometheus.yml").write_text(json.dumps(config))  # JSON is YAML
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data", f"--web.listen-address={self.url[7:]}", "--log.level=error"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(self, promql):
        """Values by labels."""
        answer = httpx.get(self.url + "/api/v1/query", params={"query": promql}, timeout=30)
        assert answer.status_code == 200, answer.text
        return {tuple(sorted(r["metric"].items())): float(r["value"][1]) for r in answer.json()["data"]["result"]}

    def rules(self):
        return [rule for group in httpx.get(self.url + "/api/v1/rules", timeout=30).json()["data"]["groups"] for rule in group["rules"]]

    def is_up(self):
        try:
            ready = httpx.get(self.url + "/-/ready", timeout=30).status_code == 200
        except httpx.HTTPError:
            return False
        return ready and list(self.query("up").values()) == [1] * len(self.jobs)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        self.process.wait(30)


def one(values):
    [value] = values.values()
    return value


def test_prometheus_scrapes_under_load_and_answers_the_queries_of_the_page(busy, tmp_path):
    with Prometheus(busy, tmp_path) as server:
        wait_until(server.is_up, 60)
        begin, tokens = time.monotonic(), []

        def client(name, mode):
            while time.monotonic() - begin < 6:
                tokens.append(ask(busy, name, x_thermocline={"speculation": mode})["usage"]["completion_tokens"])
        # What a verification computes for several tokens is not audited, so one client has no drafts.
        in_parallel(*[lambda name=name, mode=mode: client(name, mode) for name, mode in zip(NAMES, ("sync", "sync", "off"))])
        # Until what the clients have seen is scraped by both.
        in_daemon = samples(scrape(busy))[("thermocline_generation_tokens_total", ())]
        wait_until(lambda: set(server.query("thermocline_generation_tokens_total").values()) == {in_daemon}, 30)
        # A machine that does other things, too, may miss the second that a scrape has.
        assert one(server.query("sum(sum_over_time(up[1m]) / count_over_time(up[1m])) / 2")) >= 0.9

        for title, promql in QUERIES.items():
            values = server.query(promql)
            if "neuron cache" in title or "hangs" in title:
                assert not values, title
            elif "joules" in title:  # a machine may have no sensors
                assert all(math.isfinite(v) for v in values.values()), (title, values)
            else:
                assert values and all(math.isfinite(v) for v in values.values()), (title, values)
        assert 0 < one(server.query(QUERIES["Acceptance rate of drafted tokens"])) <= 1
        accepted_length = next(q for t, q in QUERIES.items() if t.startswith("Mean accepted length"))
        assert 1 < one(server.query(accepted_length)) <= 21
        assert 0 < one(server.query(QUERIES["Time to first token, 95th percentile"])) < 10
        # The two jobs count the same tokens.
        rates = server.query("rate(thermocline_generation_tokens_total[1m])")
        assert len(rates) == 2 and min(rates.values()) > 0
        assert max(rates.values()) == pytest.approx(min(rates.values()), rel=0.5)
        assert one(server.query(QUERIES["Tokens per second"])) > 0 and len(tokens) > 3


def prompt_ids(name):
    messages = [{"role": "user", "content": f"Tell me a story about a {name}."}]
    text = run("template", "tidepool", stdin=json.dumps({"messages": messages, "add_generation_prompt": True}).encode()).stdout
    return json.loads(run("tokenize", "tidepool", "--special", "--json", stdin=text).stdout)["tokens"]


def evaluated(windows, path):
    """[tp, fp, fn] of each layer over every token of the windows."""
    path.write_text(json.dumps(windows))
    layers = run_json("eval", "tidepool", "--tokens", path, "--ffn-mode", "sign", "--predictor")["layers"]
    return [[layer[key] for key in ("tp", "fp", "fn")] for layer in layers]


def test_precision_and_recall_by_promql_are_those_of_eval(tmp_path):
    """docs/metrics.md, "Predictors", explains why these figures are comparable and the error of a sample."""
    whole, prompts = [], []
    with Daemon(*SIGN, "engine.controller_recall=0", "spec.mode=off") as d, Prometheus(d, tmp_path) as server:
        for name in NAMES:
            answer = ask(d, name)
            told = run_json("run", "tidepool", "--chat", "-p", f"Tell me a story about a {name}.", "-n", 200, "--temperature", 0, "--ffn-mode", "sign")
            assert told["text"] == answer["choices"][0]["message"]["content"] and answer["usage"]["prompt_tokens"] == len(prompt_ids(name))
            prompts.append(prompt_ids(name))
            whole.append(prompts[-1] + told["tokens"][:-1])  # the last token is never an input
        wait_until(lambda: samples(scrape(d))[("thermocline_num_requests_running", ())] == 0)
        wait_until(server.is_up, 60)
        since_start = lambda title: re.sub(r"rate\((.*?)\[5m\]\)", r"\1", QUERIES[title]).replace("{outcome", '{job="one",outcome')
        by_layer = lambda promql: {int(dict(labels)["layer"]): value for labels, value in server.query(promql).items()}
        audited = {int(dict(labels)["layer"]): v for (name, labels), v in samples(scrape(d)).items() if name == "thermocline_predictor_audited_tokens_total"}
        wait_until(lambda: by_layer('thermocline_predictor_audited_tokens_total{job="one"}') == audited, 30)
        precision, recall = (by_layer(since_start(f"{what} of a layer's predictor")) for what in ("Precision", "Recall"))

    generated = sum(map(len, whole)) - sum(map(len, prompts))
    everything, of_prompts = evaluated(whole, tmp_path / "whole.json"), evaluated(prompts, tmp_path / "prompts.json")
    assert len(precision) == len(recall) == len(everything) == 6
    for layer, (all_counts, prompt_counts) in enumerate(zip(everything, of_prompts)):
        tp, fp, fn = (a - b for a, b in zip(all_counts, prompt_counts))
        # One of six tokens, spread evenly over the text: see engine/ffn/auditor.h.
        assert generated / 8 < audited[layer] <= generated / 4
        for got, expected in ((precision[layer], tp / (tp + fp)), (recall[layer], tp / (tp + fn))):
            error_max = 4 * math.sqrt(expected * (1 - expected) / audited[layer])
            assert abs(got - expected) < error_max < 0.15, (layer, got, expected, error_max)
