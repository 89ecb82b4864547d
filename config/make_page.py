"""docs/configuration.md: the daemon's own schema of its keys, with the explanations of config/thermocline.yaml.

    python3 config/make_page.py build/release/bin > docs/configuration.md
"""
import json
import re
import subprocess
import sys
from pathlib import Path

HEAD = """# Configuration

`thermoclined --config FILE` reads YAML; `--set server.port=9000` overrides one key. Its value is taken as it is; in quotes
(`'model.aliases="*"'`) or, for a key that takes a list, in brackets (`'model.aliases=["a", "b"]'`) it is read as in the file.
Types, ranges and defaults on this page are the daemon's own (`thermoclined --config-schema`), the explanations are those of [config/thermocline.yaml](../config/thermocline.yaml),
and `config/make_page.py` joins them. `thermoclined --config FILE --check` says what is wrong with a file; an unknown key is
refused, with the nearest known one. SIGHUP takes new values of the keys marked *reload* ([operations.md](operations.md)).

An editor with a YAML language server checks the file while you type it:

    thermoclined --config-schema > thermocline.schema.json
    # first line of the configuration: # yaml-language-server: $schema=thermocline.schema.json

A size is a number of bytes or one with a unit (`512MiB`, `8GiB`).
"""


def comments(path):
    """{section: text}, {section.key: text}: what stands behind `#`, with the lines that go on below it."""
    sections, keys, section, last = {}, {}, None, None
    for line in path.read_text().splitlines():
        if match := re.match(r"(\w+):(?:\s*#\s*(.*))?$", line):
            section = match[1]
            last = (sections, section)
            sections[section] = match[2] or ""
        elif match := re.match(r"  (\w+):.*?(?:\s#\s(.*))?$", line):
            last = (keys, f"{section}.{match[1]}")
            keys[last[1]] = match[2] or ""
        elif (match := re.match(r"\s+#\s*(.*)$", line)) and last:
            last[0][last[1]] += " " + match[1]
    return sections, keys


def span(schema):
    low, high = schema.get("minimum"), schema.get("maximum")
    if low is None and high is None:
        return ""
    number = lambda v: f"{v:,}" if v == int(v) else f"{v:g}"
    if high is None:
        return f", at least {number(low)}"
    return f", {number(low)} to {number(high)}" if low is not None else f", at most {number(high)}"


def kind(schema):
    if "enum" in schema:
        return ", ".join(f"`{v}`" if v else '`""`' for v in schema["enum"])
    if "anyOf" in schema:
        return "size" if schema["anyOf"][1].get("type") == "string" else f"`model`, or {schema['anyOf'][0]['type']}{span(schema['anyOf'][0])}"
    return {"string": "text"}.get(schema["type"], schema["type"]) + span(schema)


def page(schema, path):
    sections, keys = comments(path)
    out = [HEAD]
    for name, section in schema["properties"].items():
        if name == "models":  # a list, with a page of its own
            out.append("## models\n\nSeveral models in place of `model`: [several-models.md](several-models.md).\n")
            continue
        out.append(f"## {name}\n")
        if about := re.sub(r"\(r\): ", "", sections[name]).strip():
            out.append(about[0].upper() + about[1:] + ".\n")
        out.append("| key | type | default | |\n|---|---|---|---|")
        for key, value in section["properties"].items():
            text = keys[f"{name}.{key}"].replace("|", "\\|")
            text = re.sub(r"\s*\(r\)", "", text) + ("; *reload*" if value.get("x-reloadable") else "")
            default = json.dumps(value["default"])
            out.append(f"| `{key}` | {kind(value)} | `{default}` | {text.replace('*', '&#42;') if '* =' in text else text} |")
        out.append("")
    return "\n".join(out)


if __name__ == "__main__":
    found = subprocess.run([Path(sys.argv[1]) / "thermoclined", "--config-schema"], capture_output=True, text=True, check=True).stdout
    sys.stdout.write(page(json.loads(found), Path(__file__).parent / "thermocline.yaml"))
