"""`thermocline run --batch`: the answers are those of the daemon, and an interrupted run goes on."""
import json
import signal
import subprocess
import time

import httpx
import pytest
from conftest import THERMOCLINE, Daemon, refusal, run


def line(name, i, **body):
    return {"custom_id": name, "method": "POST", "url": "/v1/chat/completions",
            "body": {"messages": [{"role": "user", "content": f"Tell me a story about {i} owls and a king."}], "max_tokens": 24, **body}}


def write(path, lines):
    path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    return path


def answers(path):
    got = {}
    for text in path.read_text().splitlines():
        answer = json.loads(text)
        assert answer["error"] is None and answer["custom_id"] not in got
        got[answer["custom_id"]] = answer["response"]
    return got


def text_of(body):
    return [choice["message"]["content"] for choice in body["choices"]]


def test_answers_are_the_daemons(tmp_path):
    lines = [line(f"greedy {i}", i, temperature=0) for i in range(12)]
    lines += [line(f"drawn {i}", i, temperature=1, seed=i, n=2) for i in range(6)]
    lines.append({"custom_id": "list", "url": "/v1/completions", "body": {"prompt": ["Once", "A cat"], "max_tokens": 9, "temperature": 0}})
    lines.append(line("a field that is wrong", 1, temperature=-3))
    path = write(tmp_path / "asked.jsonl", lines)
    result = run("run", "tidepool", "--batch", path, check=False)
    assert result.returncode == 1 and "1 of 20 answers are errors" in result.stderr.decode()
    got = answers(tmp_path / "asked.answers.jsonl")
    assert len(got) == len(lines) and not (tmp_path / "asked.answers.jsonl.part").exists()
    assert got["a field that is wrong"]["status_code"] == 400 and "temperature" in got["a field that is wrong"]["body"]["error"]["message"]
    with Daemon("model.path=tidepool", "engine.step_tokens=1") as d:
        for each in lines[:-2]:
            body = httpx.post(d.url + each["url"], json=each["body"], timeout=60).raise_for_status().json()
            assert text_of(got[each["custom_id"]]["body"]) == text_of(body), each["custom_id"]
    assert len(got["list"]["body"]["choices"]) == 2


@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL], ids=["interrupted", "killed"])
def test_goes_on_where_it_was_ended(smollm, tmp_path, end):
    lines = [line(f"r{i}", i, temperature=0, max_tokens=40) for i in range(40)]
    path, out = write(tmp_path / "asked.jsonl", lines), tmp_path / "out.jsonl"
    part = tmp_path / "out.jsonl.part"
    command = [THERMOCLINE, "run", smollm, "--batch", str(path), "--output", str(out)]
    first = subprocess.Popen(command, stderr=subprocess.PIPE)
    until = time.monotonic() + 120
    while not (part.exists() and part.read_bytes().count(b"\n") >= 3):
        assert time.monotonic() < until and first.poll() is None
        time.sleep(0.01)
    if end == signal.SIGINT:  # two at a time would write over each other
        second = subprocess.run(command, capture_output=True, timeout=60)
        assert second.returncode == 1 and b"another process" in second.stderr, second.stderr
    first.send_signal(end)
    said = first.communicate(timeout=60)[1].decode()
    kept = part.read_bytes()
    if end == signal.SIGINT:
        assert first.returncode == 1 and "the same command goes on" in said
    else:
        part.write_bytes(kept[:-7])  # as a line that was cut off
    result = subprocess.run(command, capture_output=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert "40 answers" in result.stderr.decode() and "40 of them now" not in result.stderr.decode()
    got = answers(out)
    assert set(got) == {each["custom_id"] for each in lines} and all(r["status_code"] == 200 for r in got.values())
    whole = kept[: kept.rindex(b"\n", 0, -1) + 1] if end == signal.SIGKILL else kept
    assert out.read_bytes().startswith(whole)  # nothing that was there is computed again
    again = subprocess.run(command, capture_output=True, timeout=60)
    assert again.returncode == 1 and b"is there already" in again.stderr


def test_a_longer_line_that_was_cut_off_leaves_nothing(tmp_path):
    path, part = write(tmp_path / "asked.jsonl", [line("a", 1, max_tokens=2)]), tmp_path / "asked.answers.jsonl.part"
    part.write_text('{"id": "batch_req_0", "custom_id": "a", "response": {"body": "' + "x" * 5000)
    run("run", "tidepool", "--batch", path)
    assert set(answers(tmp_path / "asked.answers.jsonl")) == {"a"}


def test_answers_to_other_requests_are_not_taken_for_these(tmp_path):
    path, part = write(tmp_path / "asked.jsonl", [line("a", 1, max_tokens=2)]), tmp_path / "asked.answers.jsonl.part"
    part.write_text('{"id": "batch_req_0", "custom_id": "b", "response": {"status_code": 200, "body": {}}, "error": null}\n')
    result = run("run", "tidepool", "--batch", path, check=False)
    assert result.returncode == 1 and "answers b, which is not asked here" in result.stderr.decode()


@pytest.mark.parametrize("lines, words", [
    ("", "holds no request"),
    ('{"custom_id": "a"', "asked.jsonl:1:"),
    ('\n[1]', "asked.jsonl:2: must be an object"),
    ('{"custom_id": "a", "url": "/v1/files", "body": {}}', "url is /v1/files; it must be one of /v1/chat/completions"),
    ('{"custom_id": "a", "url": "/v1/completions", "body": {}, "priority": 1}', "priority is not known"),
    ('{"custom_id": "a", "url": "/v1/completions", "body": {"stream": true}}', "body.stream is true"),
    ('{"custom_id": "a", "url": "/v1/completions", "method": "GET", "body": {}}', "method is GET"),
    ('{"custom_id": "%s", "url": "/v1/completions", "body": {}}' % ("x" * 70_000), "custom_id has 70000 bytes"),
    ('{"url": "/v1/completions", "body": {}}', "custom_id must be a string"),
    ('{"custom_id": "a", "url": "/v1/completions", "body": {}}\n' * 2, "asked.jsonl:2: custom_id a is an earlier line's"),
])
def test_a_file_that_is_no_batch_is_refused_with_its_line(tmp_path, lines, words):
    path = tmp_path / "asked.jsonl"
    path.write_text(lines)
    result = run("run", "tidepool", "--batch", path, check=False)
    assert result.returncode == 1 and words in result.stderr.decode(), result.stderr
    assert list(tmp_path.iterdir()) == [path]


def test_options_that_requests_have_themselves_are_refused(tmp_path):
    path = write(tmp_path / "asked.jsonl", [line("a", 1)])
    for option in (["--temperature", "1"], ["-p", "x"], ["--json"], ["--max-tokens", "3"]):
        result = run("run", "tidepool", "--batch", path, *option, check=False)
        assert result.returncode == 1 and "with --batch each request says that itself" in result.stderr.decode()
    assert "--output requires --batch" in refusal("run", "tidepool", "--output", path, status=2)
