"""`thermocline run` without a prompt: the real program on a pseudo-terminal, read from the screen of a terminal emulator (pyte), and the
same chat through a pipe."""
import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import termios
import threading

import pyte
import pytest
from conftest import THERMOCLINE, run, run_json, wait_until

STORY = "Tell me a story about an owl."
UP, CTRL_C, CTRL_D, CTRL_R = "\x1b[A", "\x03", "\x04", "\x12"


class Terminal:
    """A program on a terminal of its own."""

    def __init__(self, home, *args, columns=64, lines=1000, model="tidepool"):
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen, self.raw = pyte.Screen(columns, lines), b""
        self.stream = pyte.ByteStream(self.screen)
        env = {**os.environ, "HOME": str(home), "TERM": "xterm", "LC_ALL": "C.UTF-8"}
        env.pop("XDG_STATE_HOME", None)

        def own_terminal():
            os.setsid()
            fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

        self.process = subprocess.Popen([THERMOCLINE, "run", model, "-t", "1", *args], stdin=slave, stdout=slave, stderr=slave, env=env, preexec_fn=own_terminal)
        os.close(slave)
        self.master, self.lock = master, threading.Lock()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        while True:
            try:
                data = os.read(self.master, 65536)
            except OSError:  # the program has ended
                return
            if not data:
                return
            with self.lock:
                self.raw += data
                self.stream.feed(data)

    def lines(self):
        with self.lock:
            return [line.rstrip() for line in self.screen.display]

    def text(self):
        return "\n".join(self.lines()).rstrip()

    def key(self, text):
        os.write(self.master, text.encode())

    def prompts(self):
        return sum(line.startswith(">>>") for line in self.lines())

    def at_prompt(self):
        return self.text().endswith("\n>>>") or self.text() == ">>>"

    def say(self, line):
        """Writes a line at the prompt; returns the lines below it, up to the next prompt."""
        wait_until(self.at_prompt)
        before = self.prompts()
        self.key(line + "\n")
        wait_until(lambda: self.prompts() == before + 1 and self.at_prompt())
        lines = self.lines()
        last = [i for i, at in enumerate(lines) if at.startswith(">>>")]
        typed = (4 + len(line)) // self.screen.columns + 1  # rows
        return "\n".join(lines[last[-2] + typed:last[-1]])

    def __enter__(self):
        wait_until(lambda: self.at_prompt() or self.process.poll() is not None)
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.reader.join(10)
        os.close(self.master)


def joined(shown):
    """The text of shown lines, whichever way they were broken."""
    return " ".join(shown.split())


@pytest.fixture(scope="module")
def story():
    return run_json("run", "tidepool", "--chat", "-p", STORY)["text"]


def test_a_greeting_an_answer_with_whole_words_and_an_end(tmp_path, story):
    for columns in (30, 64):
        with Terminal(tmp_path, "--seed", "0", columns=columns) as t:
            assert "tidepool.gguf: 512 tokens of context" in joined(t.text()) and "/help lists the commands" in joined(t.text())
            assert joined(t.text()).count("no GPU") <= 1
            shown = t.say(STORY)
            words = set(story.split())
            assert joined(shown) == joined(story)
            assert all(set(line.split()) <= words and len(line) < columns for line in shown.split("\n"))
            assert "tokens/s" not in t.text()
            t.key(CTRL_D)
            assert t.process.wait(30) == 0


def test_an_empty_line_does_not_end_and_commands_do(tmp_path):
    with Terminal(tmp_path) as t:
        assert t.say("") == "" and t.say("   ") == ""
        assert all(c in t.say("/help") for c in ("/help", "/set", "/clear", "/system", "/save", "/load", "/stats", "/bye", '"""'))
        assert "no such command" in t.say("/nonsense") and "takes no argument" in t.say("/clear it")
        t.key("/bye\n")
        assert t.process.wait(30) == 0


def test_several_lines_are_one_message_and_conversations_are_saved(tmp_path, story):
    file = tmp_path / "a chat.json"
    with Terminal(tmp_path) as t:
        wait_until(t.at_prompt)
        t.key('"""Tell me\n')
        wait_until(lambda: t.text().endswith("..."))
        t.key('a story."""\n')
        wait_until(lambda: t.prompts() == 2 and t.at_prompt())
        assert "Saved 2 messages" in t.say(f"/save {file}")
        messages = json.loads(file.read_text())["messages"]
        assert [m["role"] for m in messages] == ["user", "assistant"] and messages[0]["content"] == "Tell me\na story." and messages[1]["content"]
        assert t.say("/system You are brief.") == "System message: You are brief."
        t.say("/clear")
        assert joined(t.say(STORY))
        assert "Saved 2 messages" in t.say(f"/save {file}")  # its own file is replaced
        assert json.loads(file.read_text())["messages"][0] == {"role": "system", "content": "You are brief."}
        other = tmp_path / "notes.txt"
        for text in ("mine", json.dumps({"model": "m", "messages": [{"role": "user", "content": "x"}]})):
            other.write_text(text)
            assert "stays as it is" in joined(t.say(f"/save {other}")) and other.read_text() == text
        other.write_text("mine")
        link = tmp_path / "link.json"
        link.symlink_to(file)
        assert "Saved 2 messages" in t.say(f"/save {link}") and link.is_symlink()  # what the link leads to is this chat's
        assert "name of a file" in t.say("/save") and "notes.txt" in t.say(f"/load {other}").replace("\n", "")
        file.write_text(json.dumps({"messages": [{"role": "user", "content": STORY}, {"role": "assistant", "content": story}]}))
        assert "Loaded 2 messages" in t.say("/load ~/a chat.json")
        assert "no system message" in t.say("/system") and "no answer yet" in t.say("/stats")
        t.say("/clear")
        assert "nothing to save" in t.say(f"/save {file}")
        file.write_text(json.dumps({"messages": [{"role": "user", "content": "x"}, {"role": "tool", "content": "y"}]}))
        assert "messages[1]" in t.say(f"/load {file}")


def test_settings_are_obeyed_or_refused(tmp_path, story):
    with Terminal(tmp_path, "--seed", "0") as t:
        shown = t.say("/set")
        assert all(name in shown for name in ("temperature", "max-tokens", "top-p", "seed", "mode", "stats"))
        t.say("/set max-tokens 5")
        cut = t.say(STORY)
        assert "(ended at max-tokens 5)" in cut and joined(story).startswith(joined(cut.split("(ended")[0]))
        assert "there is no setting colour" in t.say("/set colour red")
        assert "'warm' is no number" in t.say("/set temperature warm") and "temperature" in t.say("/set temperature -1")
        assert re.search("temperature +0.7 ", t.say("/set"))  # what was refused changed nothing
        t.say("/set stats on")
        assert "tokens/s" in t.say("Hello") and "exact" in joined(t.say("/stats"))
        t.say("/set mode dense")
        assert joined(t.say("/stats"))
        assert "'sideways' is unknown" in joined(t.say("/set mode sideways")) and "tokens/s" in t.say("Hello")
        assert "is no number" in t.say("/set temperature nan") and t.say('/set mode ""') == ""


def test_what_is_pasted_is_one_message(tmp_path):
    with Terminal(tmp_path, "-n", "12") as t:
        wait_until(t.at_prompt)
        t.key("\x1b[200~Once upon a time\r/quit\rthere was an owl.\r\x1b[201~")
        wait_until(lambda: "there was an owl." in t.text())
        assert t.process.poll() is None and t.prompts() == 1 and "/quit" in t.text()  # nothing was sent
        t.key(" And then?\r")
        wait_until(lambda: t.prompts() == 2 and t.at_prompt())
        assert "Saved 2 messages" in t.say(f"/save {tmp_path}/pasted.json")
        assert json.loads((tmp_path / "pasted.json").read_text())["messages"][0]["content"] == "Once upon a time\n/quit\nthere was an owl. And then?"
        t.key(CTRL_D)
        assert t.process.wait(30) == 0


def test_keys_during_an_answer_come_at_the_next_prompt(tmp_path, smollm):
    with Terminal(tmp_path, "--ignore-eos", "-n", "150", model=smollm) as t:
        wait_until(t.at_prompt)
        t.key(STORY + "\n")
        wait_until(lambda: STORY in t.text() and len(t.text().split(STORY)[-1]) > 100)
        t.key("qqzzqq")
        wait_until(lambda: t.prompts() == 2 and t.text().endswith("qqzzqq"))
        assert t.text().count("qqzzqq") == 1


def test_a_mode_that_would_fail_is_refused_at_once(tmp_path):
    with Terminal(tmp_path) as t:
        assert "there are: dense, exact" in joined(t.say("/set mode sign"))
        t.say("/set max-tokens 5")
        assert "ended at max-tokens" in t.say(STORY)


def test_ctrl_c_stops_an_answer_and_takes_a_line_away(tmp_path, smollm):
    with Terminal(tmp_path, "--ignore-eos", model=smollm) as t:
        wait_until(t.at_prompt)
        t.key("A line that is not sent" + CTRL_C)
        wait_until(lambda: t.prompts() == 2 and t.at_prompt())
        t.key(STORY + "\n")
        wait_until(lambda: STORY in t.text() and len(t.text().split(STORY)[-1]) > 200)
        t.key(CTRL_C)
        wait_until(lambda: "(stopped)" in t.text() and t.at_prompt())
        assert "Saved 2 messages" in t.say(f"/save {tmp_path}/partial.json")  # the part that came is kept
        assert len(json.loads((tmp_path / "partial.json").read_text())["messages"][1]["content"]) > 150
        t.key(CTRL_D)
        assert t.process.wait(30) == 0


def test_lines_are_remembered_for_the_user_alone(tmp_path):
    history = tmp_path / ".local/state/thermocline/history"
    with Terminal(tmp_path) as t:
        t.say("Hello ümläut")
        t.say("/set max-tokens 3")
    assert history.read_text() == "Hello ümläut\n/set max-tokens 3\n" and history.stat().st_mode & 0o777 == 0o600
    with Terminal(tmp_path) as t:
        wait_until(t.at_prompt)
        t.key(UP + UP)
        wait_until(lambda: t.text().endswith(">>> Hello ümläut"))
        t.key(CTRL_C)
        wait_until(t.at_prompt)
        t.key(CTRL_R + "max")
        wait_until(lambda: "/set max-tokens 3" in t.text().split(">>>")[-1])
    with history.open("w") as file:
        file.writelines(f"line {i}\n" for i in range(1500))
    with Terminal(tmp_path):
        pass
    assert history.read_text().split("\n")[:-1] == [f"line {i}" for i in range(500, 1500)]


def test_what_a_model_writes_cannot_move_the_cursor(tmp_path):
    wild = ("--temperature", "100", "--seed", "5", "--ignore-eos", "-n", "400", "--chat", "-p", "Hello")
    plain = run("run", "tidepool", *wild).stdout
    assert any(byte < 32 and byte != 10 for byte in plain), "choose another seed: this text has no control characters"
    with Terminal(tmp_path, *wild) as t:
        assert t.process.wait(60) == 0
        t.reader.join(10)
        rest = t.raw.split(b"\r\x1b[K")[-1].replace(b"\r\n", b"")  # behind the bar of the loading
        for n in range(64):
            rest = rest.replace(b"\x1b[%dD\x1b[K" % n, b"")
        assert not [byte for byte in rest if byte < 32 or byte == 127]


def test_a_message_too_long_costs_nothing_but_itself():
    result = run("run", "tidepool", "-n", "30", stdin=f"{STORY}\n{'owl ' * 600}\nAnd then?\n/save /dev/null\n".encode(), check=False)
    assert b"context of 512" in result.stderr and b"was not sent" in result.stderr
    assert result.returncode == 1  # of a pipe, the first error is the program's
    assert len([line for line in result.stdout.split(b"\n") if line]) >= 2


def test_a_pipe_gets_answers_only(story):
    result = run("run", "tidepool", "--seed", 0, stdin=f"{STORY}\n\n/stats\n".encode())
    assert result.stdout.decode() == story + "\n" and b"tokens/s" in result.stderr and b">>>" not in result.stdout + result.stderr
    block = run("run", "tidepool", stdin=b'"""\nHello\n', check=False)
    assert block.returncode == 1 and block.stdout == b"" and b"not sent" in block.stderr
