"""The commands on the pages work: each is run by a shell, page by page in order, with real files of the names that the page uses.

Words in capitals (MODEL, FILE, ...) are files or links of these names in a folder of the test. Sizes, lengths and durations are
made small, addresses are those of a daemon of the test. What else differs from the page stands in the tables below.
"""
import re
import shutil
import subprocess
import sys

import gguf
import numpy
import pytest
from conftest import BIN, ROOT, Daemon
from test_docs import PAGES, commands, path_of

# Commands that are to fail here, with a part of the message that says why.
REFUSED = {"--device cuda": "CUDA", "HF_HUB_OFFLINE=1 thermocline pull": "HF_HUB_OFFLINE"}
# Not run: the reason.
NOT_RUN = {"thermocline synth OUT.gguf --format powerinfer": "needs the options that `...` stands for: test_powerinfer_file.py",
           "thermocline train-predictor ...": "needs the options that `...` stands for",
           "thermoclined hf:": "serves what `thermocline pull` has fetched, and there is no hub in tests: test_pull.py"}
SMALLER = [
    (r"^thermocline pull ", "HF_HUB_OFFLINE=1 thermocline pull "),
    (r"^thermocline launch (?!.*--print)", "thermocline launch --print "),  # the agents are not installed here
    (r"--layers \d+", "--layers 2"), (r"--hidden-size (\d+|\.\.\.)", "--hidden-size 128"), (r"--intermediate-size \d+", "--intermediate-size 256"),
    (r"--heads \d+", "--heads 4"), (r"--kv-heads \d+", "--kv-heads 4"), (r"--vocab 32000", "--vocab 512"), (r"-n (100|1200|160)\b", "-n 24"),
    (r"--context 1300", "--context 256"), (r"--tokens \d+", "--tokens 300"), (r"--decode D\b", "--decode 8"), (r"--draft-tokens N\b", "--draft-tokens 2"),
    (r"--spec-modes MODE", "--spec-modes sync"), (r"--ffn-mode MODE", "--ffn-mode exact"), (r"--hot-memory SIZE", "--hot-memory 1MiB"),
    (r"-d \d+s", "-d 1s"), (r"--shots 8", "--shots 1"), (r"\[(--[^\]]*)\]", r"\1"), (r"(?<= )\.\.\.(?= |$)", ""),
    (r"/etc/thermocline/keys", "keys"), (r"unix:/run/thermocline/", "unix:"),
]
# Lengths that a page leaves to the defaults, for one kind of command.
APPENDED = {r"^thermocline bench (?!--flash|.*--spec)": "--prefill 8 --decode 4 --repetitions 1",
            r"^thermocline bench (?!.*--decode).*--spec": "--decode 16 --repetitions 1",
            r"^thermocline (profile|pack) (?!.*(--tokens|--from-trace))": "--tokens 150",
            r"^thermocline (calibrate|train-predictor) (?!.*--window)": "--window 64 --tokens 300",
            r"^thermocline-load (?!.*(-d|-n) )": "-d 1s"}
SPEC_REPORT = "thermocline bench MODEL -t 1 --spec --draft SMALL --draft-threads 1 --draft-fixed --draft-tokens 2 --decode 16 --repetitions 1 --json"
STORY = "Once upon a time there was a little owl who lived in a tall tree by the river. Every night it looked at the moon. " * 12


def fill(folder):
    """Files of the names that the pages use."""
    tidepool = ROOT / "config/models/tidepool.gguf"
    for name in ("MODEL", "OTHER", "sparse.gguf", "tidepool.gguf"):
        shutil.copy(tidepool, folder / name)
    write_adapter(tidepool, folder / "ADAPTER")
    (folder / "SMALL").symlink_to(ROOT / "config/models/tidepool-draft.gguf")
    (folder / "HF_FOLDER").symlink_to(ROOT / "tests/golden/models/tidepool/target")
    (folder / "config").symlink_to(ROOT / "config")
    shutil.copy(ROOT / "examples/batch.jsonl", folder)
    for name in ("FILE", "TEXT", "WORDS", "WORDS.txt"):
        (folder / name).write_text(STORY)
    (folder / "prompts.txt").write_text("Once upon a time\nThe owl\n")
    (folder / "CHAT.json").write_text('{"messages": [{"role": "user", "content": "Hello"}]}')
    (folder / "gsm8k.jsonl").write_text("".join('{"question": "What is %d and 1?", "answer": "It is #### %d"}\n' % (i, i + 1) for i in range(3)))
    (folder / "FILE.jsonl").write_text('{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 4}}\n')
    (folder / "blocks.bin").write_bytes(bytes(1 << 20))


def write_adapter(model, path):
    """A LoRA adapter that changes one matrix of the model."""
    matrix = next(t for t in gguf.GGUFReader(model).tensors if t.name == "blk.0.attn_q.weight")
    cols, rows = (int(n) for n in matrix.shape)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_type("adapter")
    writer.add_string("adapter.type", "lora")
    writer.add_tensor(matrix.name + ".lora_a", numpy.ones((2, cols), numpy.float32))
    writer.add_tensor(matrix.name + ".lora_b", numpy.ones((rows, 2), numpy.float32) / cols)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def smaller(line):
    for pattern, text in SMALLER:
        line = re.sub(pattern, text, line)
    for pattern, more in APPENDED.items():
        if re.search(pattern, line):
            body, redirect, rest = line.partition(" > ")
            line = f"{body} {more}{redirect}{rest}"
    return line


def shell(line, folder):
    path = f"export PATH={BIN}:$PATH THERMOCLINE_MODELS={ROOT}/config/models OPENAI_API_KEY=none; set -o pipefail; cd {folder}; "
    return subprocess.run(["bash", "-c", path + line], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)


def run_daemon(line, folder):
    """Runs a daemon until it is ready, then ends it; `--set A=B` are its arguments."""
    if "--hash-key" in line or "--config-schema" in line or "--check" in line:
        result = shell(f"echo a-secret-that-is-long-enough | {line}", folder)
        assert result.returncode == 0, result.stderr
        return
    settings = [s.replace("=MODEL", f"={folder}/MODEL").replace("=SMALL", f"={folder}/SMALL").replace("=ADAPTER", f"={folder}/ADAPTER").replace("=keys", f"={folder}/keys").replace("unix:", f"unix:{folder}/")
                for s in re.findall(r"--set (\S+)", line)]
    config = re.search(r"--config (\S+)", line)
    address = [] if any(s.startswith("grpc.address") for s in settings) else ["grpc.address="]
    settings = [re.sub(r"^(grpc.address=127.0.0.1:|server.port=)\d+", r"\g<1>0", s) for s in settings] + address
    with Daemon(*settings, config=folder / config[1] if config else None) as d:
        assert d.process.poll() is None, d.text()


def run_load(line, folder, daemon):
    line = line.replace("https://example.com/v1", f"{daemon.url}/v1").replace("http://127.0.0.1:8080", daemon.url)
    line = line.replace("127.0.0.1:50051", f"127.0.0.1:{daemon.grpc_port}").replace("--model NAME", "--model tidepool")
    line = re.sub(r"--slo '[^']*'", "--slo 'errors<100%'", line)  # whether this machine is fast enough is not asked
    return shell(line, folder)


def prepare(line, folder):
    """Makes the files that a page assumes: reports, traces, a machine."""
    if "REPORT.json" in line and not (folder / "REPORT.json").exists():
        assert shell(f"{SPEC_REPORT} > REPORT.json", folder).returncode == 0
    if "--rounds ROUNDS" in line:
        assert shell(f"{SPEC_REPORT} --spec-modes branch --record-rounds > ROUNDS", folder).returncode == 0
    if match := re.match(r"thermocline synth (\S+)", line):  # of another shape than a section before had
        for old in folder.glob(match[1] + "*"):
            old.unlink()
    if match := re.match(r"thermocline convert \S+ (\S+)", line):  # not over another model of that name
        (folder / match[1]).unlink(missing_ok=True)
    if "--out MODEL.placement.json" in line:
        assert shell("thermocline profile MODEL --text FILE --tokens 150", folder).returncode == 0
    if "my-machine.json" in line:
        shutil.copy(ROOT / "config/machines/desktop-8gb.json", folder / "my-machine.json")
    if "--placement MODEL.placement.json" in line and not (folder / "MODEL.placement.json").exists():
        assert shell("thermocline profile MODEL --text FILE --tokens 150 && thermocline plan MODEL --hot-memory 1MiB --out MODEL.placement.json", folder).returncode == 0


@pytest.fixture(scope="module")
def server():
    with Daemon("grpc.address=127.0.0.1:0", "engine.ffn_also=exact,sign") as d:
        yield d


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p, ("curl",)))], ids=path_of)
def test_curl_lines_are_answered(page, tmp_path, server):
    for number, words in commands(page, ("curl",)):
        line = re.sub(r"http://127.0.0.1:\d+", server.url, " ".join(words))
        if "ADDRESS/install.sh" in line:  # there is no release to fetch; tests/packages/test_install_sh.py runs the script
            continue
        result = shell(line.replace("curl ", "curl -sS --fail-with-body --max-time 100 ", 1), tmp_path)
        assert result.returncode == 0 and result.stdout, f"{page.name}:{number}: {line}\n{result.stderr}"


@pytest.mark.parametrize("page", [p for p in PAGES if "```python\n" in p.read_text()], ids=path_of)
def test_python_blocks_run(page, tmp_path, server):
    """One program of a page's blocks; `client` is the README's."""
    if "inference_pb2" in page.read_text():
        protoc = [sys.executable, "-m", "grpc_tools.protoc", "-Iproto", f"--python_out={tmp_path}", f"--grpc_python_out={tmp_path}", "thermocline/v1/inference.proto"]
        subprocess.run(protoc, cwd=ROOT, check=True, timeout=100)
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    client = re.search(r"from openai.*?\nclient = .*?\n", (ROOT / "README.md").read_text(), re.DOTALL)[0]
    program = client + "\n".join(blocks) + "\nprint('ran')\n"
    program = program.replace("127.0.0.1:8080", f"127.0.0.1:{server.port}").replace("127.0.0.1:50051", f"127.0.0.1:{server.grpc_port}")
    result = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0 and result.stdout.endswith("ran\n"), f"{page.name}:\n{program}\n{result.stderr}"


@pytest.mark.parametrize("page", [p for p in PAGES if any(commands(p))], ids=path_of)
def test_commands_run(page, tmp_path, server):
    fill(tmp_path)
    ran = 0
    for number, words in commands(page):
        line = " ".join(words)
        if any(line.startswith(n) for n in NOT_RUN):
            continue
        line = smaller(line)
        prepare(line, tmp_path)
        if words[0] == "thermoclined":
            run_daemon(line, tmp_path)
        else:
            result = run_load(line, tmp_path, server) if words[0] == "thermocline-load" else shell(line, tmp_path)
            refusal = next((text for part, text in REFUSED.items() if part in line), None)
            if refusal:
                assert result.returncode != 0 and refusal in result.stderr, f"{page.name}:{number}: {line}\n{result.stderr}"
            else:
                assert result.returncode == 0, f"{page.name}:{number}: {line}\n{result.stderr}\n{result.stdout[-500:]}"
        ran += 1
    assert ran
