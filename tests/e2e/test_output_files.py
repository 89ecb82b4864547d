"""An output file replaces an earlier result of its own kind, and nothing else: least of all the model that is read."""
import os
import shutil
import subprocess

import pytest
from conftest import BIN, TIDEPOOL_FOLDER, refusal, run

TEXT = "Once upon a time there was a tide. " * 40


@pytest.fixture
def files(tmp_path):
    """A model, a text, and a note that no command has written."""
    run("convert", "tidepool", tmp_path / "a.gguf", "--quantize", "q8_0", "--down", "rows")
    (tmp_path / "t.txt").write_text(TEXT)
    (tmp_path / "note.svg").write_text("mine")
    return tmp_path


# {a}: the model; {out}: the file that is in the way.
COMMANDS = {
    "eval --logits": "eval {a} --text {t} --logits {out}",
    "imatrix": "imatrix {a} --text {t} -o {out}",
    "pack": "pack {a} --out {out}",
    "synth": "synth {out} --hidden-size 256",
    "convert": "convert {a} {out} --name other",
    "profile --record-trace": "profile {a} --text {t} --side-car {a}.tcp --record-trace {out}",
    "run --record-trace": "run {a} -p x -n 2 --ffn-mode exact --record-trace {out}",
    "bench --record-trace": "bench {a} --prefill 8 --decode 4 --repetitions 1 --ffn-mode exact --record-trace {out}",
    "profile --side-car": "profile {a} --text {t} --side-car {out}",
}
PLOTS = {
    "profile": "profile {a} --text {t} --side-car {a}.tcp --plot {out}",
    "bench --flash": "bench --flash {a} --plot {out}",
}


def words(command, files, out):
    return command.format(a=files / "a.gguf", t=files / "t.txt", out=out).split(" ")


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("victim", ["a.gguf", "note.svg", "t.txt"])
def test_the_model_and_foreign_files_stay(files, name, victim):
    path = files / victim
    kept = path.read_bytes()
    message = refusal(*words(COMMANDS[name], files, path))
    assert str(path) in message and path.read_bytes() == kept, message


@pytest.mark.parametrize("name", PLOTS)
def test_a_picture_replaces_pictures_alone(files, name):
    assert "is not an SVG picture" in refusal(*words(PLOTS[name], files, files / "note.svg"))
    assert (files / "note.svg").read_text() == "mine"


def test_what_a_command_wrote_it_may_write_again(files):
    for name in ("eval --logits", "imatrix", "pack", "synth", "convert", "profile --record-trace", "profile --side-car"):
        for _ in range(2):
            run(*words(COMMANDS[name], files, files / name.replace(" ", "")))
    empty = files / "empty"  # as mktemp leaves it
    empty.touch()
    run(*words(COMMANDS["eval --logits"], files, empty))


def test_an_input_is_not_replaced_even_when_asked_to(files):
    matrix = files / "importance.gguf"
    run("imatrix", files / "a.gguf", "--text", files / "t.txt", "-o", matrix)
    link = files / "link.gguf"
    link.hardlink_to(files / "a.gguf")
    for out, more in ((files / "a.gguf", ()), (link, ()), (matrix, ("--quantize", "q4_0", "--imatrix", matrix))):
        kept = out.read_bytes()
        assert "is the input" in refusal("convert", files / "a.gguf", out, "--overwrite", *more)
        assert out.read_bytes() == kept
    run("synth", link, "--hidden-size", 256, "--overwrite")  # a name; the model has another
    assert link.read_bytes() != (files / "a.gguf").read_bytes()


def test_a_file_of_the_input_is_not_replaced(files):
    folder = files / "folder"
    shutil.copytree(TIDEPOOL_FOLDER, folder)
    weights = next(folder.glob("*.safetensors"))
    kept = weights.read_bytes()
    assert "is the input" in refusal("convert", folder, weights, "--overwrite") and weights.read_bytes() == kept


def test_a_pipe_is_no_output_file(files):
    """A fifo stands for a device: a test that fails must not replace /dev/null."""
    pipe = files / "pipe"
    os.mkfifo(pipe)
    assert "not a regular file" in refusal(*words(COMMANDS["eval --logits"], files, pipe)) and pipe.is_fifo()


def test_the_load_tester_keeps_foreign_files(files):
    for option in ("--report", "--raw"):
        done = subprocess.run([BIN / "thermocline-load", "http://127.0.0.1:1", option, files / "t.txt"], capture_output=True, timeout=60)
        assert done.returncode != 0 and option.encode() in done.stderr and b"is not a" in done.stderr, done.stderr
        assert (files / "t.txt").read_text() == TEXT
