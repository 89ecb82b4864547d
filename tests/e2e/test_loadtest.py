"""thermocline-load against the daemon, over HTTP and gRPC, and against servers with other habits."""
import hashlib
import json
import os
import re
import shutil
import signal
import ssl
import subprocess

import httpx
import pytest
from conftest import BIN, Daemon, wait_until
from foreign_server import CHUNK, DONE, ROLE, STOP, STREAM, USAGE, ForeignServer, event
from selenium import webdriver
from selenium.webdriver.common.by import By

LOAD = str(BIN / "thermocline-load")
SMALL = ("--prompt-tokens", "24", "--max-tokens", "8")


@pytest.fixture(scope="module")
def daemon():
    with Daemon("grpc.address=127.0.0.1:0", "log.access=false") as d:
        yield d


def load(*args, status=0, **kwargs):
    """Runs thermocline-load with --json; returns its report, if any, and its log."""
    result = subprocess.run([LOAD, *map(str, args), "--json"], capture_output=True, timeout=120, **kwargs)
    assert result.returncode == status, (result.returncode, result.stdout[-2000:], result.stderr[-2000:])
    return json.loads(result.stdout) if result.stdout else None, result.stderr.decode()


def target(daemon, api):
    metrics = ("--metrics-url", daemon.url + "/metrics")
    return (daemon.url,) if api == "http" else (f"127.0.0.1:{daemon.grpc_port}", "--api", "grpc", *metrics)


def answered(daemon):
    text = httpx.get(daemon.url + "/metrics", timeout=30).text
    return float(re.search(r"^thermocline_e2e_request_latency_seconds_count (\S+)", text, re.M)[1])


def lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.parametrize("api", ["http", "grpc"])
def test_a_closed_loop_is_summed_up(daemon, api, tmp_path):
    raw = tmp_path / "raw.jsonl"
    report, _ = load(*target(daemon, api), "-c", 2, "-n", 12, "--prompt-tokens", 24, "--max-tokens", 16, "--ignore-eos", "--raw", raw)
    assert report["requests"]["total"] == report["requests"]["ok"] == 12
    assert report["config"]["model"] == "tidepool" and report["config"]["api"] == api and report["config"]["loop"] == "closed"
    requests = lines(raw)
    assert sorted(r["id"] for r in requests) == list(range(12))
    for r in requests:
        assert r["outcome"] == "ok" and r["finish_reason"] == "length" and r["output_tokens"] == 16
        times = [r["t_sched"], r["t_sent"], r["t_hdr"], r["t_first_byte"], r["t_first_content"], *r["t_chunks"], r["t_last"]]
        assert times == sorted(times) and len(r["t_chunks"]) == r["chunks"] and r["t_first_content"] == r["t_chunks"][0]
        assert abs(r["prompt_tokens"] - 24) <= 8  # of random words
    assert report["tokens"]["output"] == 12 * 16 == report["server"]["generation_tokens_total"]
    assert report["tokens"]["prompt"] == sum(r["prompt_tokens"] for r in requests)
    # The summary follows from the raw log by the formulas that it prints.
    ttft = sorted(r["t_first_content"] - r["t_sent"] for r in requests)
    gaps = [b - a for r in requests for a, b in zip(r["t_chunks"], r["t_chunks"][1:])]
    tpot = [(r["t_last"] - r["t_first_content"]) / 15 for r in requests]
    latency = report["latency"]
    assert latency["ttft_s"]["max"] == pytest.approx(ttft[-1]) and latency["ttft_s"]["p50"] == pytest.approx((ttft[5] + ttft[6]) / 2)
    assert latency["itl_s"]["count"] == len(gaps) and latency["itl_s"]["mean"] == pytest.approx(sum(gaps) / len(gaps))
    assert latency["tpot_s"]["mean"] == pytest.approx(sum(tpot) / 12)
    assert list(latency["e2e_s"]) == ["count", "mean", "std", "min", "p50", "p90", "p95", "p99", "p99.9", "max"]
    elapsed = max(r["t_last"] for r in requests) - min(r["t_sched"] for r in requests)
    assert report["throughput"]["output_tokens_per_s"] == pytest.approx(12 * 16 / elapsed)
    assert report["formulas"]["tpot_s"] == "(e2e - ttft) / (tokens - 1), per request"


@pytest.mark.parametrize("api", ["http", "grpc"])
@pytest.mark.parametrize("workload,kinds", [("multi-turn", {"first turn", "later turn"}), ("long-beside-short", {"long", "short"}),
                                            ("cancel-storm", {"leaving", "staying"}), ("slow-readers", {"slow", "fast"}),
                                            ("malformed", {"malformed", "well-formed"})])
def test_workloads(daemon, api, workload, kinds):
    own = {"multi-turn": ("--turns", 3, "--shared-prefix-tokens", 70), "long-beside-short": ("--long-prompt-tokens", 200),
           "cancel-storm": ("--share", 0.6), "slow-readers": ("--read-pause", "5ms"), "malformed": ("--share", 0.6)}[workload]
    report, _ = load(*target(daemon, api), "-c", 3, "-n", 40, "-w", workload, *own, *SMALL, "--ignore-eos")
    assert set(report["kinds"]) == kinds
    requests = report["requests"]
    assert requests["total"] == 40 and requests["error"] == requests["timeout"] == 0, report["errors"]
    odd = report["kinds"][sorted(kinds)[0] if workload != "slow-readers" else "slow"]
    if workload == "multi-turn":
        assert report["kinds"]["later turn"]["tokens"]["cached"] > 0
    if workload == "long-beside-short":
        assert odd["tokens"]["prompt"] / odd["requests"]["total"] > 100
    if workload == "cancel-storm":
        assert odd["requests"]["cancelled"] > 0 and report["idle_after"]["requests_left"] == 0
    if workload == "malformed":
        assert odd["requests"]["refused"] == odd["requests"]["total"] > 0
    if workload not in ("malformed", "cancel-storm"):
        assert requests["ok"] == 40


def test_an_open_loop_repeats_its_arrivals_and_a_trace_its_times(daemon, tmp_path):
    runs = []
    for i in range(2):
        load(daemon.url, "--rate", 60, "-n", 15, "--arrival", "gamma", "--burstiness", 0.5, *SMALL, "--raw", tmp_path / f"{i}", "--warmup", 2)
        runs.append({r["id"]: r["t_sched"] for r in lines(tmp_path / f"{i}")})
    assert len(runs[0]) == 15 and runs[0] == runs[1]
    trace = tmp_path / "trace.jsonl"
    trace.write_text('{"timestamp": 5000, "input_length": 30, "output_length": 3}\n{"t": 5.2, "max_tokens": 5}\n')
    report, _ = load(daemon.url, "--trace", trace, "--ignore-eos", "--raw", tmp_path / "raw", *SMALL, "--trace-speed", 2)
    first, second = sorted(lines(tmp_path / "raw"), key=lambda r: r["t_sched"])
    assert (first["t_sched"], first["output_tokens"]) == (0, 3) and second["output_tokens"] == 5
    assert second["t_sched"] == pytest.approx(0.1) and report["config"]["loop"] == "open"


def test_a_data_set_is_asked_and_completions_are_a_route(daemon, tmp_path):
    dataset = tmp_path / "prompts.jsonl"
    dataset.write_text('"Tell me a story."\n{"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 2}\n')
    report, _ = load(daemon.url, "--dataset", dataset, "-n", 4, "--max-tokens", 4, "--ignore-eos", "--route", "completions", "--temperature", 0)
    assert report["requests"]["ok"] == 4 and report["tokens"]["output"] == 2 * (4 + 2)


def test_slos_decide_the_exit_status(daemon):
    few = (daemon.url, "-n", 4, *SMALL)
    report, _ = load(*few, "--slo", "ttft:p95<1h,itl:p99<1h,errors<1%,goodput>0.000001")
    assert report["slo"]["met"] and report["goodput"]["good"] == 4 and report["failures"] == []
    report, log = load(*few, "--slo", "ttft:p95<1ns,errors<1%".replace("1ns", "0.001us"), status=1)
    assert not report["slo"]["met"] and [t["met"] for t in report["slo"]["terms"]] == [False, True] and "SLO missed: ttft" in log
    assert report["goodput"] == {"limits_s": {"ttft": pytest.approx(1e-9)}, "good": 0, "good_fraction": 0, "good_requests_per_s": 0}


def test_a_sweep_has_its_steps_and_its_knee(daemon, tmp_path):
    page = tmp_path / "sweep.html"
    report, _ = load(daemon.url, "--sweep", "concurrency", "--sweep-steps", "1,2", "-n", 6, *SMALL, "--report", page)
    assert [s["load"] for s in report["steps"]] == [1, 2] and report["knee"] in (1, 2)
    assert all(s["requests"]["ok"] == 6 for s in report["steps"]) and "concurrency 2" in page.read_text()


def test_the_memory_of_a_server_is_watched(daemon):
    pid = daemon.process.pid
    report, _ = load(daemon.url, "-d", "1.6s", *SMALL, "--soak", "--pid", pid)
    assert report["memory"]["readings"] >= 1 and report["memory"]["rss_bytes_first"] > 1e6
    _, log = load(daemon.url, "-n", 2, *SMALL, "--pid", pid, "--rss-slope-max", "1MiB", status=1)
    assert "too few readings" in log


@pytest.mark.parametrize("api", ["http", "grpc"])
@pytest.mark.parametrize("options", [(), ("-w", "multi-turn", "--think-time", "10m"), ("-w", "slow-readers", "--share", "1", "--read-pause", "10m")])
def test_an_interrupted_run_tells_what_there_is(daemon, api, options):
    """At once, whatever it waits for."""
    before = answered(daemon)
    process = subprocess.Popen([LOAD, *target(daemon, api), "-d", "1h", *SMALL, *options, "--json"], stdout=subprocess.PIPE)
    wait_until(lambda: answered(daemon) >= before + 3)  # two tell how long words are, then the run has begun
    process.send_signal(signal.SIGINT)
    report = json.loads(process.communicate(timeout=60)[0])
    assert process.returncode in (0, 1) and report["interrupted"] and report["requests"]["error"] == 0


@pytest.mark.parametrize("args,said", [
    ((), "URL"), (("ftp://x",), "ftp://x"), (("URL", "--bogus"), "--bogus"), (("URL", "--rate", "2", "--concurrency", "2"), "--rate contradicts --concurrency"),
    (("URL", "--rate", "0"), "--rate"), (("URL", "--rate", "nan"), "--rate"), (("URL", "-c", "0"), "--concurrency"), (("URL", "-c", "2.5"), "--concurrency"),
    (("URL", "--arrival", "gamma"), "--arrival needs --rate"), (("URL", "--rate", "1", "--burstiness", "2"), "--burstiness needs"),
    (("URL", "-w", "chaos"), "--workload"), (("URL", "--turns", "3"), "--turns needs"), (("URL", "--share", "2", "-w", "malformed"), "--share"),
    (("URL", "--slo", "ttft<1s"), "--slo"), (("URL", "--goodput", "ttft:p95<1s"), "--goodput"), (("URL", "-d", "-3"), "--duration"),
    (("URL", "--prompt-tokens", "9-3"), "--prompt-tokens"), (("URL", "--insecure"), "--insecure needs an https"), (("URL", "--soak"), "--soak needs --pid"),
    (("URL", "--api", "grpc", "--extra-body", "{}"), "--extra-body needs"), (("URL", "--extra-body", "[]"), "--extra-body"),
    (("URL", "--sweep", "rate", "--concurrency", "2"), "--concurrency contradicts"), (("URL", "--sweep-steps", "1"), "--sweep-steps needs"),
    (("URL", "--sweep", "concurrency", "--sweep-steps", "1,x"), "--sweep-steps"), (("URL", "--api-key", "a b"), "API key"),
    (("URL", "--api-key-env", "NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"), (("URL", "--seed", "-1"), "--seed"),
    (("URL", "--slo", ""), "--slo"), (("URL", "--sweep", "concurrency", "--sweep-steps", ""), "--sweep-steps"), (("URL", "--trace", "/dev/zero"), "/dev/zero")])
def test_bad_usage_is_named(args, said):
    args = ["http://127.0.0.1:1" if a == "URL" else a for a in args]
    result = subprocess.run([LOAD, *args], capture_output=True, timeout=60)
    assert result.returncode == 2 and said in result.stderr.decode() and not result.stdout


def test_help_and_missing_files():
    out = subprocess.run([LOAD, "--help"], capture_output=True, timeout=60)
    assert out.returncode == 0 and b"--concurrency" in out.stdout
    for option in ("--dataset", "--trace", "--api-key-file"):
        _, log = load("http://127.0.0.1:1", option, "/no/such/file", status=1)
        assert "/no/such/file" in log
    _, log = load("http://127.0.0.1:1", "--raw", "/no/such/folder/raw", status=1)
    assert "/no/such/folder" in log


@pytest.mark.parametrize("args", [("http://127.0.0.1:1",), ("127.0.0.1:1", "--api", "grpc"), ("http://no-such-host.invalid",)])
def test_a_server_that_is_not_there(args):
    report, log = load(*args, status=1)
    assert report is None and ("127.0.0.1:1" in log or "no-such-host" in log)


def test_a_foreign_server(tmp_path):
    """CR LF, a role first, usage, no [DONE], the connection closed; the key is sent and never printed."""
    page, raw = tmp_path / "page.html", tmp_path / "raw.jsonl"
    with ForeignServer(STREAM, ROLE, 0.01, CHUNK, CHUNK + CHUNK, STOP, USAGE, model="<script>document.title='x'</script>") as server:
        report, _ = load(server.url + "/v1", "-c", 2, "-n", 6, "--api-key", "secret-owl", "--report", page, "--raw", raw, "--model", "<b>owl</b>")
        assert report["requests"]["ok"] == 6 and report["tokens"] == {"prompt": 180, "cached": 18, "output": 48, "chunks": 18, "per_chunk": pytest.approx(48 / 18),
                                                                        "answers_without_usage": 0}
        head, body = server.requests[-1]
        assert "Authorization: Bearer secret-owl" in head and json.loads(body)["model"] == "<b>owl</b>"
        assert json.loads(body)["stream_options"] == {"include_usage": True}
    assert "secret-owl" not in json.dumps(report) + page.read_text() + raw.read_text()
    assert report["server"] is None and report["goodput"] is None


def test_a_server_without_usage():
    with ForeignServer(STREAM, ROLE, CHUNK, CHUNK, CHUNK, STOP, DONE) as server:
        report, log = load(server.url, "-n", 3)
        assert report["tokens"]["answers_without_usage"] == 3 and report["tokens"]["output"] == 9 and "no usage" in log


def test_counts_that_no_server_can_mean_are_none():
    huge = event({"choices": [], "usage": {"prompt_tokens": 2**62, "completion_tokens": 2**63 - 1}})
    with ForeignServer(STREAM, ROLE, CHUNK, STOP, huge, DONE) as server:
        report, log = load(server.url, "-n", 3)
        assert report["tokens"]["answers_without_usage"] == 3 and report["tokens"]["output"] == 3 and "no usage" in log


def test_an_interrupt_ends_the_warm_up_too(tmp_path):
    (tmp_path / "one.jsonl").write_text('"Hello"\n')
    with ForeignServer(STREAM, ROLE, 30) as server:  # no answer ends
        process = subprocess.Popen([LOAD, server.url, "--warmup", "5", "-d", "1h", "--dataset", tmp_path / "one.jsonl", "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wait_until(lambda: any("POST" in head for head, _ in server.requests), 60)
        process.send_signal(signal.SIGINT)
        _, log = process.communicate(timeout=60)
        assert process.returncode == 1 and b"warm-up" in log


HTTP = "HTTP/1.1 {}\r\nContent-Type: {}\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize("answer,outcome,said", [
    ((STREAM, ROLE, CHUNK, None), "error", ""),
    ((STREAM, ROLE, CHUNK), "error", "[DONE]"),
    ((None,), "error", ""),
    ((b"\x00\xff\x80 no http\r\n\r\n",), "error", "not an HTTP response"),
    ((STREAM, event("{not json")), "error", "no chunk"),
    ((STREAM, b"data: {\"choices\":[{\"delta\":{\"content\":\"\xff\xfe\"}}]}\n\n", STOP), "ok", ""),
    ((STREAM, CHUNK, event({"error": {"message": "<script>alert(1)</script>"}})), "error", "<script>"),
    ((HTTP.format("200 OK", "application/json"), '{"choices": []}'), "error", "no stream"),
    ((HTTP.format("429 Too Many Requests", "text/plain"), "later"), "rate_limited", "later"),
    ((HTTP.format("503 Service Unavailable", "text/plain"),), "unavailable", "503"),
    ((HTTP.format("500 No", "application/json"), '{"error": {"message": "broken"}}'), "error", "HTTP 500: broken"),
    (("HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",), "error", "HTTP"),
    (("HTTP/1.1 200 OK\r\nX: " + "x" * 200000,), "error", "HTTP"),
    ((STREAM, "data: " + "x" * 5_000_000), "error", "bytes"),
    ((STREAM, ROLE, 30), "timeout", "no answer within")])
def test_faults_of_a_server(answer, outcome, said, tmp_path):
    dataset, page = tmp_path / "one.jsonl", tmp_path / "page.html"
    dataset.write_text('"Hello"\n')
    with ForeignServer(*answer) as server:
        report, log = load(server.url, "-n", 2, "--dataset", dataset, "--timeout", "300ms" if outcome == "timeout" else "60s", "--report", page,
                           status=0 if outcome == "ok" else 1)
    assert report["requests"][outcome] == 2, report["requests"]
    assert said in "".join(e["message"] for e in report["errors"])
    assert "<script" not in page.read_text()
    assert outcome == "ok" or "no request succeeded" in log


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """A certificate of 127.0.0.1 and its key."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "cert.pem"
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", key, "-out", certificate, "-days", "2",
                    "-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"], check=True, capture_output=True)
    return certificate, key


def test_certificates_are_checked(certificate):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    with ForeignServer(STREAM, CHUNK, STOP, USAGE, DONE, tls=tls) as server:
        _, log = load(server.url, "-n", 2, status=1)
        assert "certificate" in log
        for option in (("--insecure",), ("--ca-file", certificate[0])):
            assert load(server.url, "-n", 2, *option)[0]["requests"]["ok"] == 2
        _, log = load(server.url, "-n", 2, "--ca-file", certificate[1], status=2)
        assert "--ca-file" in log


def test_a_daemon_with_keys_and_tls(certificate, tmp_path):
    key, keys = "load-key-0123456789abcdef", tmp_path / "keys"
    keys.write_text(f"ada:{hashlib.sha256(key.encode()).hexdigest()}\n")
    keys.chmod(0o600)
    (tmp_path / "key").write_text(key + "\n")
    settings = (f"server.tls_certificate={certificate[0]}", f"server.tls_key={certificate[1]}", f"server.api_keys_file={keys}")
    with Daemon("grpc.address=127.0.0.1:0", *settings) as d:
        for server in ((f"https://127.0.0.1:{d.port}",), (f"https://127.0.0.1:{d.grpc_port}", "--api", "grpc")):
            options = (*server, "--ca-file", certificate[0], "-n", 3, *SMALL)
            for source in (("--api-key-file", tmp_path / "key"), ("--api-key-env", "LOAD_KEY")):
                report, _ = load(*options, *source, env={**os.environ, "LOAD_KEY": key})
                assert report["requests"]["ok"] == 3 and report["config"]["model"] == "tidepool"
            report, log = load(*options, "--api-key", "wrong", status=1)
            assert report["requests"]["error"] == 3 and "no request succeeded" in log and "wrong" not in json.dumps(report["config"])


def test_the_report_is_a_page_of_its_own(daemon, tmp_path):
    """A browser shows it without a script, without another file, and without a complaint."""
    page = tmp_path / "report.html"
    load(daemon.url, "-c", 2, "-n", 20, "-w", "long-beside-short", "--long-prompt-tokens", 100, *SMALL, "--slo", "ttft:p95<1h", "--model", "tidepool",
         "--report", page)
    text = page.read_text()
    assert not re.search(r"<script|<link|<iframe|src=|href=|url\(|@import", text)
    assert shutil.which("chromium") and shutil.which("chromedriver"), "install chromium-driver (deploy/install-deps.sh --tests)"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path / 'browser'}"):
        options.add_argument(flag)
    browser = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        browser.get(f"file://{page}")
        assert browser.title == "Load test of tidepool"
        body = browser.find_element(By.TAG_NAME, "body").text
        assert "t_first_content - t0" in body and "met" in body and "kind “long”" in body
        charts = browser.find_elements(By.TAG_NAME, "svg")
        assert len(charts) == 4 and all(chart.size["height"] > 100 for chart in charts)
        assert len(browser.find_elements(By.TAG_NAME, "circle")) == 40  # E2E and TTFT of each answer
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
    finally:
        browser.quit()


def test_progress_is_for_terminals_alone(daemon):
    """No output on a pipe; on a terminal a line that is replaced."""
    _, log = load(daemon.url, "-n", 2, *SMALL)
    assert log == ""
    terminal, other = os.openpty()
    result = subprocess.run([LOAD, daemon.url, "-d", "1.2s", *SMALL, "--json"], stdout=subprocess.PIPE, stderr=other, timeout=60)
    os.close(other)
    shown = os.read(terminal, 65536).decode()
    os.close(terminal)
    assert result.returncode == 0 and "in flight" in shown and "TTFT p50" in shown and json.loads(result.stdout)
