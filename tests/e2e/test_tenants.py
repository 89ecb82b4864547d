"""The isolation of keys: information about, and effects on, clients with other keys."""
import os
import re
import signal
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from conftest import BIN, Daemon, wait_until
from test_security import KEYS as OPS_KEYS
from test_security import key_line

KEYS = {name: f"key-of-{name}-0123456789" for name in ("alice", "mallory")}
SECRET = "The code of the safe in the cellar is 7 3 9 1. Do not tell it to anybody."


@pytest.fixture(scope="module")
def key_file(tmp_path_factory):
    lines = [subprocess.run([BIN / "thermoclined", "--hash-key", name], input=key, capture_output=True, text=True, check=True).stdout
             for name, key in KEYS.items()]
    path = tmp_path_factory.mktemp("keys") / "keys"
    path.write_text("".join(lines))
    return path


def cached_tokens(d, name, prompt):
    headers = {"authorization": f"Bearer {KEYS[name]}"} if name else {}
    answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1}, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_a_key_finds_no_prefix_that_another_key_has_sent(key_file):
    with Daemon(f"server.api_keys_file={key_file}") as d:
        assert cached_tokens(d, "alice", SECRET) == 0
        assert cached_tokens(d, "mallory", SECRET) == 0
        assert cached_tokens(d, "alice", SECRET + " Not even me.") > 20


def test_no_guess_tells_whether_it_was_right(key_file):
    """The attack by which a secret was read token by token: the tokens known so far, a guess, and one token more."""
    with Daemon(f"server.api_keys_file={key_file}") as d:
        headers = {"authorization": f"Bearer {KEYS['mallory']}"}
        tokens = httpx.post(d.url + "/tokenize", json={"content": SECRET}, headers=headers).json()["tokens"]
        cached_tokens(d, "alice", tokens)
        seen = {guess: cached_tokens(d, "mallory", [*tokens[:12], guess, 5]) for guess in (tokens[12] + 1, tokens[12], tokens[12] + 2)}
        # Mallory finds its own first guess again, and nothing of Alice's.
        assert seen[tokens[12] + 1] == 0 and seen[tokens[12]] == seen[tokens[12] + 2] <= 12, seen


def test_prefixes_are_shared_where_that_is_configured_or_there_are_no_keys(key_file):
    with Daemon(f"server.api_keys_file={key_file}", "prefix_cache.share=all") as d:
        assert cached_tokens(d, "alice", SECRET) == 0
        assert cached_tokens(d, "mallory", SECRET) > 20
    with Daemon() as d:
        assert cached_tokens(d, "", SECRET) == 0
        assert cached_tokens(d, "", SECRET) > 20


def test_drafts_of_one_key_do_not_slow_the_steps_of_another(key_file, smollm):
    """Steps of two answers were filled with the drafts of one: a neighbour's tokens took four to five times as long as alone."""
    with Daemon(f"model.path={smollm}", "engine.context_length=4096", f"server.api_keys_file={key_file}") as d, ThreadPoolExecutor(2) as pool:
        def pace(name, prompt, most, **more):
            body = {"prompt": prompt, "max_tokens": most, "temperature": 0, "ignore_eos": True, **more}
            answer = httpx.post(d.url + "/v1/completions", json=body, headers={"authorization": f"Bearer {KEYS[name]}"}, timeout=120)
            return answer.json()["timings"]["predicted_per_second"]

        def slower():
            plain = {"x_thermocline": {"speculation": "off"}}
            alone = pace("alice", "Once upon a time", 100, **plain)
            drafting = pool.submit(pace, "mallory", "1 2 3 4 " * 60, 1200)
            wait_until(lambda: httpx.get(d.url + "/v1/status", headers={"authorization": f"Bearer {KEYS['alice']}"}).json()["running"] > 0)
            beside = pace("alice", "Once upon a time", 100, **plain)
            drafting.result()
            return alone / beside

        assert min(slower() for _ in range(4)) < 2.7


def test_a_log_that_nobody_reads_holds_nothing_up():
    reader, writer = os.pipe()
    process = subprocess.Popen([BIN / "thermoclined", "--set", "server.port=0", "--set", "log.level=debug", "--set", f"server.unix_socket={(socket := os.path.join(tempfile.mkdtemp(), 's'))}"],
                               stderr=writer, stdout=subprocess.DEVNULL)
    os.close(writer)
    try:
        with httpx.Client(transport=httpx.HTTPTransport(uds=socket), base_url="http://local", timeout=20) as client:
            wait_until(lambda: os.path.exists(socket), 20)
            wait_until(lambda: client.get("/health").status_code == 200, 60)
            for _ in range(4000):  # 64 KiB of a pipe and 1 MiB of ours are full
                assert client.get("/health", headers={"x-request-id": "x" * 120}).status_code == 200
                if value_of(client, "log_lines_dropped_total") > 100:
                    break
            else:
                for _ in range(8000):
                    client.get("/" + "y" * 200)
            assert value_of(client, "log_lines_dropped_total") > 100
            chat = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2})
            assert chat.status_code == 200
        process.terminate()
        assert process.wait(timeout=20) == 0
    finally:
        process.kill()
        process.wait()
        os.close(reader)


def value_of(client, name):
    found = re.search(rf"^thermocline_{name} (\S+)$", client.get("/metrics").text, re.M)
    return float(found.group(1)) if found else 0


def test_no_metric_tells_a_key_what_another_has_sent(tmp_path):
    """Clients choose the names of unknown fields; only the operator reads them, and only plain ones become labels."""
    keys = tmp_path / "keys"
    keys.write_text("".join(map(key_line, OPS_KEYS)))
    with Daemon(f"server.api_keys_file={keys}", f"server.admin_socket={tmp_path}/admin") as d:
        def scrape(name):
            return httpx.get(d.url + "/metrics", headers={"authorization": f"Bearer {OPS_KEYS[name]}"}).text

        def ignored(text):
            return {line.split("{")[1] for line in text.splitlines() if line.startswith("thermocline_request_fields_ignored_total{")}

        fields = {"the_merger_of_june": 1, "red \x1b[31m": 1, 'quo"te\\n': 1, "x" * 64: 1, "x" * 65: 1}
        answer = httpx.post(d.url + "/v1/completions", json={"prompt": "owl", "max_tokens": 1, **fields}, headers={"authorization": f"Bearer {OPS_KEYS['alice']}"}, timeout=60)
        assert answer.status_code == 200, answer.text
        api = 'api="/v1/completions",field='
        assert ignored(scrape("batch")) == ignored(scrape("alice")) == {api + '"other"} 5'}
        names = {api + '"the_merger_of_june"} 1', api + f'"{"x" * 64}"}} 1', api + '"other"} 3'}
        assert ignored(scrape("ops")) == names
        with httpx.Client(transport=httpx.HTTPTransport(uds=f"{tmp_path}/admin"), base_url="http://local") as admin:
            assert ignored(admin.get("/metrics").text) == names
        for name in OPS_KEYS:
            text = scrape(name)
            assert not re.search(r"[^\n\x20-\x7e]", text) and not any(f'"{key}"' in text for key in OPS_KEYS)
    with Daemon(f"server.api_keys_file={keys}", "metrics.require_key=false") as d:
        httpx.post(d.url + "/v1/completions", json={"prompt": "owl", "max_tokens": 1, **fields}, headers={"authorization": f"Bearer {OPS_KEYS['alice']}"}, timeout=60)
        assert ignored(httpx.get(d.url + "/metrics").text) == {api + '"other"} 5'}


def test_a_reload_takes_no_keys_away_and_says_what_it_lets_in(key_file, tmp_path):
    config = tmp_path / "c.yaml"
    text = f"server:\n  api_keys_file: {key_file}\n"
    config.write_text(text)
    with Daemon(config=config) as d:
        def status():
            return httpx.get(d.url + "/v1/models").status_code

        def reload(content, expected):
            config.write_text(content)
            said = d.text().count(expected)
            d.process.send_signal(signal.SIGHUP)
            wait_until(lambda: d.text().count(expected) > said, 20)
            assert status() == 401

        reload("", "could come in")
        reload("log:\n  level: debug\n", "could come in")
        reload(text + "---\nserver:\n  insecure: true\n", "second YAML document")
        reload(text + "  allowed_origins: https://a.example\n", "lets more in: origin https://a.example")
        reload(text + "  allowed_origins: https://a.example\nmetrics:\n  require_key: false\n", "lets more in: metrics.require_key")
        assert "access_loosened_total 2" in httpx.get(d.url + "/metrics").text
    two = subprocess.run([BIN / "thermoclined", "--config", config, "--check"], capture_output=True, text=True)
    assert two.returncode == 0
    config.write_text("server:\n  port: 0\n---\nserver:\n  insecure: true\n")
    two = subprocess.run([BIN / "thermoclined", "--config", config, "--check"], capture_output=True, text=True)
    assert two.returncode == 78 and "c.yaml:3: a second YAML document" in two.stderr


def test_a_comma_outside_of_lists_is_an_error_and_no_endless_list_of_documents(tmp_path):
    """yaml-cpp's LoadAll makes empty documents of it for ever, and takes all memory."""
    config = tmp_path / "c.yaml"
    for text in (", b\n", "server:\n  port: 0\n, b\n", "a: [b]]\n", "]\n"):
        config.write_text(text)
        run = subprocess.run([BIN / "thermoclined", "--config", config, "--check"], capture_output=True, text=True, timeout=60)
        assert run.returncode == 78 and "c.yaml:" in run.stderr, (text, run.stderr)
