"""The pages keep their word: commands have the options that they name, links lead somewhere, messages are in the sources."""
import json
import re
import shlex
import subprocess
import sys
from functools import cache

import jsonschema
import pytest
import yaml
from conftest import BIN, ROOT

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "deploy/jetson/README.md", ROOT / "examples/README.md", *sorted((ROOT / "docs").glob("*.md"))]
PROGRAMS = ("thermocline", "thermoclined", "thermocline-load")


def path_of(page):
    return str(page.relative_to(ROOT))


@cache
def options_of(*command):
    """The options in the command's --help."""
    text = subprocess.run([BIN / command[0], *command[1:], "--help"], capture_output=True, text=True, timeout=60)
    assert text.returncode == 0, command
    return set(re.findall(r"(?<![\w-])(--?[a-zA-Z][\w-]*)", text.stdout))


def commands(page, programs=PROGRAMS):
    """(line number, words) of the programs' commands on a page; lines that go on are joined."""
    code = False
    lines = page.read_text().splitlines()
    i = 0
    while i < len(lines):
        line, number = lines[i], i + 1
        if line.startswith("```"):
            code = not code
        if code or line.startswith("    "):
            while line.endswith("\\") and i + 1 < len(lines):
                i += 1
                line = line[:-1] + " " + lines[i].strip()
            line = re.sub(r"\s#.*$", "", line.strip()).removeprefix("$ ")
            for part in re.split(r"\s*(?:\||&&|;)\s*", line):
                words = part.split()
                if words and words[0].rsplit("/", 1)[-1] in programs and not words[0].startswith(("-", "'")):
                    yield number, [words[0].rsplit("/", 1)[-1], *words[1:]]
        i += 1


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_commands_have_their_options(page):
    for number, words in commands(page):
        program = [words[0]]
        if words[0] == "thermocline":
            if len(words) < 2 or words[1].startswith("-"):
                continue
            program.append(words[1])
            assert f"\n  {words[1]} " in subprocess.run([BIN / "thermocline", "--help"], capture_output=True, text=True, timeout=60).stdout, f"{page.name}:{number}: {words}"
        own = words[:words.index("--")] if "--" in words else words  # what stands behind it is another program's
        for word in own[len(program):]:
            option = re.match(r"(--[a-z][\w-]*|-[a-zA-Z])(?:=|$)", word.strip("[]"))
            if option:
                assert option[1] in options_of(*program), f"{page.name}:{number}: {' '.join(program)} has no {option[1]}"


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_scripts_are_there_and_have_their_options(page):
    for number, words in commands(page, ("python3",)):
        if len(words) < 2 or not words[1].endswith(".py"):
            continue
        script = ROOT / words[1]
        assert script.exists(), f"{page.name}:{number}: {words[1]}"
        # The script's own, or those of a module of its folder.
        modules = re.findall(r"^(?:from|import) (\w+)", script.read_text(), re.M)
        text = "".join(f.read_text() for f in (script, *(script.with_name(f"{m}.py") for m in modules)) if f.exists())
        for option in re.findall(r"(?<=\s)--[a-z][\w-]*", " ".join(words)):
            assert f'"{option}"' in text, f"{page.name}:{number}: {words[1]} has no {option}"


def test_there_are_commands():
    assert sum(len(list(commands(page))) for page in PAGES) > 60


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_settings_exist(page):
    """Every `--set section.key=` is a key of config/thermocline.yaml."""
    sections, keys = None, set()
    for line in (ROOT / "config/thermocline.yaml").read_text().splitlines():
        if m := re.match(r"(\w+):", line):
            sections = m[1]
        elif m := re.match(r"  (\w+):", line):
            keys.add(f"{sections}.{m[1]}")
    for key in re.findall(r"--set '?(\w+\.\w+)=", page.read_text()):
        assert key in keys, f"{page.name}: {key}"


def anchor(heading):
    return re.sub(r"[^\w -]", "", heading.lower()).strip().replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=path_of)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith(("http:", "https:")):
            continue
        path, _, part = target.partition("#")
        other = (page.parent / path).resolve() if path else page
        assert other.exists(), f"{page.name}: {target}"
        if part:
            assert part in {anchor(h) for h in re.findall(r"^#+ (.*)$", other.read_text(), re.M)}, f"{page.name}: {target}"


def test_messages_of_the_troubleshooting_page_are_in_the_sources():
    sources = "\n".join(p.read_text() for folder in ("engine", "server", "tools") for p in (ROOT / folder).rglob("*.[ch]*") if p.suffix in (".cc", ".h"))
    joined = re.sub(r'"\s*\n\s*"', "", sources)  # literals that go on in the next line
    messages = re.findall(r"^\| (`+) ?(.+?) ?\1 \|", (ROOT / "docs/troubleshooting.md").read_text(), re.M)
    assert len(messages) > 15
    for _, message in messages:
        assert message in joined, message


def test_shell_lines_can_be_read():
    for page in PAGES:
        for number, words in commands(page):
            shlex.split(" ".join(words).replace("...", ""), comments=True), (page.name, number)


def test_the_configuration_page_is_that_of_the_schema():
    made = subprocess.run([sys.executable, ROOT / "config/make_page.py", BIN], capture_output=True, text=True, check=True, timeout=60).stdout
    assert made == (ROOT / "docs/configuration.md").read_text(), "python3 config/make_page.py build/release/bin > docs/configuration.md"


def test_the_schema_accepts_the_shipped_configuration_and_refuses_what_the_daemon_refuses():
    schema = json.loads(subprocess.run([BIN / "thermoclined", "--config-schema"], capture_output=True, text=True, check=True, timeout=60).stdout)
    validator = jsonschema.Draft202012Validator(schema)
    shipped = yaml.safe_load((ROOT / "config/thermocline.yaml").read_text())
    assert not list(validator.iter_errors(shipped))
    # Every shipped value is the schema's default, and every key of the schema is shipped.
    assert schema["properties"].pop("models")["type"] == "array"  # in place of `model`
    assert {s: set(v["properties"]) for s, v in schema["properties"].items()} == {s: set(v) for s, v in shipped.items()}
    for section, keys in shipped.items():
        for key, value in keys.items():
            assert schema["properties"][section]["properties"][key]["default"] == value, f"{section}.{key}"
    for section, key, value in (("server", "port", 70000), ("server", "prot", 1), ("engine", "kv_type", "q9"), ("sampling", "top_p", 2), ("log", "access", "perhaps")):
        wrong = {section: {key: value}}
        assert list(validator.iter_errors(wrong)), wrong
        daemon = subprocess.run([BIN / "thermoclined", "--check", "--set", f"{section}.{key}={value}"], capture_output=True, timeout=60)
        assert daemon.returncode == 78, wrong
