"""What an agent sent, without its words: texts become shapes, names become neutral ones. The format is in tests/e2e/session_shapes.py."""
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "e2e"))
from session_shapes import BODY, PARTS, SCHEMA, SCHEMAS, WORDS  # noqa: E402

IDS = {"id", "call_id", "tool_use_id", "tool_call_id"}
# Members whose values are words of the API.
WORD_MEMBERS = {"type", "role", "status", "effort", "ttl", "verbosity", "format", "summary", "display"}


class Shaper:
    """Shapes the requests of one session, in order."""

    def __init__(self):
        self.lines, self.texts, self.names, self.left_out = {}, {}, {}, set()
        self.requests, self.before = [], {}

    def add(self, route, body):
        shaped = {name: self.member(name, value) for name, value in body.items() if self.is_kept(name, BODY)}
        same = [name for name in shaped if self.before.get(name) == shaped[name]]
        self.requests.append({"route": route, "as_before": same, "body": {k: v for k, v in shaped.items() if k not in same}})
        self.before = shaped

    def recording(self, agent, version):
        return {"agent": agent, "version": version, "lines": [len(text.encode()) for text in self.lines],
                "texts": list(self.texts.values()), "requests": self.requests}

    def is_kept(self, name, members):
        if name not in members:
            self.left_out.add(name)
        return name in members

    def text(self, text):
        numbers = [self.lines.setdefault(each, len(self.lines)) for each in text.split("\n")]
        self.texts.setdefault(text, numbers)
        return {"shape": list(self.texts).index(text)}

    def name(self, kind, name):
        return self.names.setdefault((kind, name), f"{kind}_{sum(k == kind for k, _ in self.names) + 1}")

    def member(self, name, value):
        """A member of a body, a message, a block or a tool."""
        if name == "model":
            return "model"
        if name in ("parameters", "input_schema", "schema"):
            return self.schema(value)
        if name in ("arguments", "input") and not isinstance(value, list):
            return self.arguments(value)
        if name == "include":
            return [each for each in value if each in WORDS]
        if isinstance(value, list):
            return [self.member("", each) for each in value]
        if isinstance(value, dict):
            return {k: self.member(k, v) for k, v in value.items() if self.is_kept(k, {*BODY, *PARTS})}
        if not isinstance(value, str):
            return value
        return self.string(name, value)

    def string(self, name, value):
        if name in IDS:
            return self.name("id", value)
        if name in ("name", "tool_name"):
            return self.name("tool", value)
        if name in WORD_MEMBERS or name == "tool_choice":
            assert value in WORDS, f"{name}: {value} is a new word of an API: add it to WORDS if it is public"
            return value
        return self.text(value)

    def arguments(self, value):
        if isinstance(value, str):
            try:
                return {"json": self.values(json.loads(value))}
            except ValueError:
                return self.text(value)
        return self.values(value)

    def values(self, value):
        """Arguments of a call."""
        if isinstance(value, dict):
            return {self.name("param", k): self.values(v) for k, v in value.items()}
        if isinstance(value, list):
            return [self.values(each) for each in value]
        return self.text(value) if isinstance(value, str) else value

    def schema(self, value):
        if isinstance(value, list):
            return [self.schema(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: self.keyword(name, each) for name, each in value.items() if self.is_kept(name, SCHEMA)}

    def keyword(self, name, value):
        if name in ("properties", "$defs", "definitions"):
            return {self.name("param", k): self.schema(v) for k, v in value.items()}
        if name == "required":
            return [self.name("param", each) for each in value]
        if name in ("enum", "const", "default"):
            return self.choices(value)
        if name == "$ref":
            place, _, last = value.rpartition("/")
            return f"{place}/{self.name('param', last)}"
        if isinstance(value, str):
            return value if value in (*WORDS, *SCHEMAS) else self.text(value)
        if name == "type":
            return value
        return self.schema(value)

    def choices(self, value):
        if isinstance(value, list):
            return [self.choices(each) for each in value]
        if isinstance(value, dict):
            return {self.name("param", k): self.choices(v) for k, v in value.items()}
        return self.name("value", value) if isinstance(value, str) else value
