"""The command line: exit codes, --json, streams, messages, paths with spaces."""
import json
import os
import pathlib
import shutil
import struct
import subprocess
import tempfile

import pytest
from conftest import BIN, ROOT, STORIES, THERMOCLINE, refusal, run, run_json

COMMANDS = ["run", "inspect", "convert", "tokenize", "template", "bench", "eval", "synth", "profile", "train-predictor"]
NEEDED = {"convert": ["y"], "train-predictor": ["--text", "y"]}  # besides a model


@pytest.mark.parametrize("command", COMMANDS)
def test_help_and_usage(command):
    assert b"--help" in run(command, "--help").stdout
    assert "there is no option '--nonsense'" in refusal(command, "x", *NEEDED.get(command, ()), "--nonsense", status=2)
    assert "is required" in refusal(command, status=2)


def test_no_command_is_bad_usage():
    assert "A subcommand is required" in refusal(status=2)
    assert b"thermocline 0." in run("--version").stdout


@pytest.mark.parametrize("words,hint", [
    (["serve", "tidepool"], "`thermoclined MODEL` serves a model"), (["get", "x"], "`thermocline pull NAME` fetches a model"), (["inspct", "tidepool"], "did you mean inspect?"),
    (["run", "tidepool", "-c", 100], "did you mean --context?"), (["run", "tidepool", "--temp", 0.5], "there is no option '--temp'; did you mean --temperature?"),
    (["run", "tidepool", "--temprature", 0.5], "did you mean --temperature?"), (["run", "-m", "tidepool"], "the model is named without an option"),
    (["run", "tidepool", "--xyzzy"], "there is no option '--xyzzy'\n")])
def test_names_of_other_programs_and_typing_errors_get_a_hint(words, hint):
    assert hint in refusal(*words, status=2)


def test_the_daemon_takes_a_model_and_a_port():
    """As people type it: the shortcuts of model.path, server.host and server.port."""
    checked = lambda *words: subprocess.run([BIN / "thermoclined", "--check", *words], capture_output=True, text=True, timeout=60)  # noqa: E731
    assert checked("tidepool", "--port", "0", "--host", "localhost").returncode == 0
    assert checked("-m", "tidepool").returncode == 0
    assert "server.port" in checked("--port", "70000").stderr
    with tempfile.TemporaryDirectory() as folder:
        link = pathlib.Path(folder) / "mine.gguf"
        link.symlink_to(ROOT / "config/models/tidepool.gguf")
        process = subprocess.Popen([BIN / "thermoclined", link, "--port", "0"], stderr=subprocess.PIPE, text=True)
        try:
            line = next(line for line in process.stderr if " ready: " in line)
            assert "mine" in line
        finally:
            process.terminate()
            process.wait(60)


def test_run_json_has_the_promised_fields():
    out = run_json("run", "tidepool", "-p", "Once upon a time", "-n", 20)
    assert set(out) == {"text", "tokens", "prompt_tokens", "completion_tokens", "finish_reason", "ffn_mode", "memory_budget", "memory_planned", "weights_read",
                        "work", "flash", "hot", "spec", "timings"}
    assert out["flash"] is None  # everything is in memory
    assert out["spec"] is None  # nothing is drafted
    assert set(out["timings"]) == {"load_s", "prefill_s", "decode_s", "prefill_tokens_per_s", "decode_tokens_per_s", "bytes_per_token",
                                   "draft_n", "draft_n_accepted", "drafts", "branch_hits", "branch_misses", "draft_wait_s"}
    assert out["completion_tokens"] == 20 == len(out["tokens"]) and out["finish_reason"] == "length"


def test_run_streams_text_to_stdout_and_speed_to_stderr():
    result = run("run", "tidepool", "-p", "Once upon a time", "-n", 10)
    assert result.stdout.decode().strip() == run_json("run", "tidepool", "-p", "Once upon a time", "-n", 10)["text"].strip()
    assert b"tokens/s" in result.stderr and b"MB/token" in result.stderr
    assert b"loading" not in result.stderr  # no progress bar where there is no terminal


def test_the_same_seed_at_any_thread_count():
    texts = {run_json("run", "tidepool", "-p", "", "-n", 60, "--temperature", 1, "--top-k", 50, "--top-p", 0.95, "--min-p", 0.01, "--seed", 7, "-t", t)["text"] for t in (1, 2, 4)}
    assert len(texts) == 1


def test_a_chat_of_one_message():
    assert "Hello" in run_json("run", "tidepool", "--chat", "-p", "Hello")["text"]


def test_help_begins_with_what_is_used_every_day():
    lines = run("run", "--help").stdout.decode().split("\n")
    assert all(len(line) <= 80 for line in lines) and not any("{" in line or "UINT" in line for line in lines)
    headings = [line for line in lines if line and line[0] != " " and line.endswith(":")]
    assert headings[:2] == ["Positionals:", "Options:"] and headings[-1] == "For measurements:"
    first = "\n".join(lines[lines.index("Options:"):lines.index(headings[2])])
    assert all(option in first for option in ("--prompt", "--chat", "--max-tokens", "--temperature", "--threads", "--draft", "--json"))
    assert not any(option in first for option in ("--no-fusion", "--sign-alpha", "--draft-width", "--dry-base"))


def test_bench_reports_bandwidth():
    out = run_json("bench", "tidepool", "--prefill", 16, "--decode", 8, "--repetitions", 2)
    assert out["read_bandwidth_gb_s"] > 0 and out["machine"]["threads"] >= 1
    phases = [r["phase"] for r in out["runs"]]
    assert phases[:2] == ["prefill", "decode"] and phases[2:] in (["head"], [])  # a difference of two runs: noise may hide it
    for r in out["runs"]:
        assert r["tokens_per_s"]["min"] <= r["tokens_per_s"]["median"] <= r["tokens_per_s"]["max"]
        assert r["bytes_per_token"] > 0 and r["bandwidth_share"] > 0


def test_bench_says_which_limit_is_nearer():
    out = run_json("bench", "tidepool", "--prefill", 200, "--decode", 8, "--repetitions", 2)
    assert out["instruction_ceiling_gop_s"] > 0
    runs = {r["phase"]: r for r in out["runs"]}
    # A token's multiply-adds: once each weight of the layers, and the head's twice, for its input is quantised twice.
    layers = 6 * (2 * 256 * 256 + 2 * 128 * 256 + 3 * 256 * 1024)
    for r in runs.values():
        shares = {"bytes": r["bandwidth_share"], "instructions": r["instruction_share"]}
        assert r["bound_by"] == max(shares, key=shares.get)
        limits = [out["read_bandwidth_gb_s"] * 1e9 / r["bytes_per_token"], out["instruction_ceiling_gop_s"] * 1e9 / r["operations_per_token"]]
        assert abs(r["ceiling_tokens_per_s"] / min(limits) - 1) < 1e-6
    # The prompt has the head once. Of its first step of 128 tokens the last layer only stores keys and values.
    unneeded = 128 * (2 * 256 * 256 + 3 * 256 * 1024)
    assert runs["prefill"]["operations_per_token"] == layers + (2 * 2048 * 256 - unneeded) / 200
    assert runs["decode"]["operations_per_token"] <= layers + 2 * 2048 * 256  # neurons that are zero are not multiplied


def test_eval_decode_and_prefill_give_the_same_perplexity(tmp_path):
    text = tmp_path / "a text.txt"
    text.write_text("Once upon a time there was a brave dragon named Ruby. " * 20)
    prefill = run_json("eval", "tidepool", "--text", text, "--window", 128)
    decode = run_json("eval", "tidepool", "--text", text, "--window", 128, "--decode")
    assert prefill.pop("work", None) is None and decode.pop("work")["tokens"] > 0
    assert (prefill.pop("path"), decode.pop("path")) == ("prefill", "decode")
    assert prefill == decode and prefill["perplexity"] > 1 and prefill["windows"] == 3


@pytest.mark.parametrize("option,value", [("--cpu-isa", "sse"), ("--kv-type", "q4_1"), ("--activation", "tanh")])
def test_names_there_are_not_are_bad_usage(option, value):
    result = run("run", "tidepool", "-p", "x", option, value, check=False, usage=True)
    assert result.returncode == 2 and value.encode() in result.stderr


@pytest.mark.parametrize("args,words", [
    (["run", "nowhere.gguf", "-p", "x"], b"nowhere.gguf: no such file"),
    (["run", "tidepool", "-p", "x", "--cpu-isa", "neon"], b"cpu_isa 'neon' cannot be used; this processor can use "),
    (["run", "tidepool", "-p", "x", "--temperature", "-1"], b"temperature is -1"),
    (["run", "tidepool", "-p", "x", "--context", "4096"], b"made for 512"),
    (["run", "tidepool", "-p", "word " * 3000], b"context of 512"),
    (["run", "tidepool", "--json"], b"--json needs a prompt"),
    (["eval", "tidepool"], b"--text or --tokens"),
    (["bench", "tidepool", "--depth", "64"], b"--depth 64 must not be below --prefill"),
    (["synth", "/tmp/x.gguf", "--heads", "7"], b"--heads 7"),
    (["synth", "/tmp/x.gguf", "--rank", "64"], b"--rank 64 needs --format powerinfer"),
    (["synth", "/tmp/x.gguf", "--format", "powerinfer", "--down", "columns"], b"--down columns"),
    (["template", "stories"], b"no such file"),
    (["inspect", str(ROOT)], b"config.json"),
])
def test_failures_say_what_is_wrong(args, words):
    result = run(*args, check=False)
    assert result.returncode == 1 and words in result.stderr, result.stderr


@pytest.mark.parametrize("content", [b"", b"short", b"GGUF", b"GGUF\x03\0\0\0" + b"\xff" * 16, b"\0" * 4096])
def test_files_that_are_no_models(content, tmp_path):
    for name in ("model.gguf", "model.bin"):
        path = tmp_path / name
        path.write_bytes(content)
        result = run("inspect", path, check=False)
        assert result.returncode == 1 and str(path).encode() in result.stderr, result.stderr


def test_metadata_of_any_length_is_not_read_into_memory(tmp_path):
    """A file of some kilobytes with a hole took as much memory as it liked."""
    text = lambda s: struct.pack("<Q", len(s)) + s  # noqa: E731
    head = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
    for name, rest, said in (("text", text(b"general.architecture") + struct.pack("<IQ", 8, 2 << 30), "a text of 2147483648 bytes"),
                             ("key", struct.pack("<Q", 2 << 30), "a text of 2147483648 bytes"),
                             ("array", text(b"x") + struct.pack("<IIQ", 9, 0, 1 << 28), "an array of 268435456 elements")):
        path = tmp_path / f"{name}.gguf"
        path.write_bytes(head + rest)
        os.truncate(path, 3 << 30)
        assert said in refusal("inspect", path)


def test_no_text_of_a_file_controls_the_terminal(tmp_path):
    """The name of a tensor came onto the terminal as the file had it."""
    hidden = "a\x1b[2J\u009b\u202e"
    fields = lambda *parts: b"".join(parts)
    text = lambda s: struct.pack("<Q", len(s.encode())) + s.encode()
    path = tmp_path / "m.gguf"
    path.write_bytes(fields(b"GGUF", struct.pack("<IQQ", 3, 1, 2), text("general.architecture"), struct.pack("<I", 8), text(hidden),
                            text(hidden), struct.pack("<I", 8), text(hidden), text(hidden), struct.pack("<IQIQ", 1, 32, 0, 0), bytes(4096)))
    for args in (["inspect", path], ["inspect", path, "--tensors"], ["run", path, "-p", "a"], ["inspect", f"/{hidden}.gguf"]):
        result = run(*args, check=False)
        shown = (result.stdout + result.stderr).decode()
        assert "a\\u001b" in shown and not any(c in shown for c in "\x1b\u009b\u202e"), shown


def test_models_in_a_path_with_spaces(tmp_path):
    folder = tmp_path / "my models é"
    shutil.copytree(os.path.dirname(STORIES), folder)
    assert run_json("run", folder / "stories260K.bin", "-p", "", "-n", 5)["completion_tokens"] == 5


def test_tokenize_json_input_prints_what_its_help_says():
    """The help promised an array of arrays."""
    help_text = " ".join(run("tokenize", "--help").stdout.decode().split())
    assert "prints one object whose member tokens has an array of ids for each text" in help_text
    out = json.loads(run("tokenize", "tidepool", "--json-input", stdin=b'["An owl.", ""]').stdout)
    assert list(out) == ["tokens"] and [len(ids) > 0 for ids in out["tokens"]] == [True, False]


def test_detokenize_refuses_ids_beyond_the_vocabulary():
    for ids in (b"[5000]", b"99999999999999999999"):
        assert "is no token id of this vocabulary: 0 to 2047" in refusal("tokenize", "tidepool", "--detokenize", stdin=ids)


def test_a_progress_bar_on_a_terminal(smollm):
    import pty
    parent, child = pty.openpty()
    process = subprocess.Popen([THERMOCLINE, "run", smollm, "-p", "x", "-n", "1"], stdout=subprocess.DEVNULL, stderr=child)
    os.close(child)
    seen = b""
    try:
        while piece := os.read(parent, 4096):
            seen += piece
    except OSError:
        pass
    assert process.wait() == 0 and b"loading [" in seen and b"%" in seen


def test_messages_that_newcomers_meet(tmp_path):
    """A tab in YAML was an "illegal map value", an AQLM folder's "max_position_embeddings is 0", and a cut file had an array that did not fit."""
    config = tmp_path / "tab.yaml"
    config.write_text("server:\n\tport: 0\n")
    told = subprocess.run([BIN / "thermoclined", "--config", config, "--check"], capture_output=True, text=True)
    assert told.returncode != 0 and f"{config}:2: " in told.stderr and "a tab begins the line" in told.stderr
    cut = tmp_path / "cut.gguf"
    cut.write_bytes((ROOT / "config/models/tidepool.gguf").read_bytes()[:3000])
    assert "the download may be incomplete" in refusal("inspect", cut)
    for method in ("aqlm", "bitsandbytes", "quanto", "hqq"):
        (tmp_path / "config.json").write_text(json.dumps({"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                                                          "vocab_size": 100, "quantization_config": {"quant_method": method, "bits": 4}}))
        assert f"weights quantised by '{method}'" in refusal("inspect", tmp_path)
