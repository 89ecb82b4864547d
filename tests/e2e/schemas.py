"""200 JSON schemas of the shapes that clients send: records, lists, choices, references, bounds, formats.

`SCHEMAS` is a list of (name, schema). Strings and lists are bounded, so that an answer of a model that knows no JSON ends, too."""
import itertools


def record(required=None, closed=True, **properties):
    schema = {"type": "object", "properties": properties, "required": list(properties) if required is None else required}
    return {**schema, "additionalProperties": False} if closed else schema


def text(**more):
    return {"type": "string", "maxLength": 12, **more}


def whole(lo, hi, **more):
    return {"type": "integer", "minimum": lo, "maximum": hi, **more}


def few(items, most=3, **more):
    return {"type": "array", "items": items, "maxItems": most, **more}


def make():
    out = []

    def add(name, *schemas):
        out.extend((f"{name}-{i}", schema) for i, schema in enumerate(schemas))

    add("scalar", {"type": "null"}, {"type": "boolean"}, text(), {"type": "string", "minLength": 3, "maxLength": 3}, whole(0, 9), {"const": "x"}, {"enum": ["a", 1, None, True, [1, "b"], {"k": 2.5}]},
        {"type": ["boolean", "null"]}, {"type": ["integer", "null"], "maximum": 5, "minimum": -5}, {"const": {"a": [1, {"b": "c\"d"}]}}, {"type": "string", "enum": ["\u00e9t\u00e9", "a\\b", "line\nend"]})
    add("integer", *(whole(lo, hi) for lo, hi in [(-3, 3), (17, 1042), (-1042, -17), (0, 0), (99, 101), (-1, 1000000), (1900, 2100), (7, 70007)]),
        *({"type": "integer", "multipleOf": m, "minimum": lo, "maximum": 5000} for m, lo in [(2, 0), (7, -700), (10, 1), (365, 0)]),
        {"type": "integer", "exclusiveMinimum": 3, "exclusiveMaximum": 6}, {"type": "integer", "minimum": 0.5, "maximum": 2.5})
    add("number", *({"type": "number", "minimum": lo, "maximum": hi} for lo, hi in [(0, 1), (-1, 1), (-2.5, -0.5), (0.25, 0.75), (1.5, 1.75), (100, 200.125), (-90, 90), (-180, 180)]),
        {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}, {"type": "number", "exclusiveMinimum": -0.5, "maximum": 12.75}, {"type": "number", "minimum": 3, "exclusiveMaximum": 4})
    patterns = ["^[A-Z]{3}-[0-9]{4}$", "^(red|green|blue)$", "^[a-z]+@[a-z]+$", "^\\d{3}-\\d{2}$", "^#[0-9a-fA-F]{6}$", "^v[0-9]+\\.[0-9]+$", "^[^\\s]{1,5}$", "^[\\w.-]{2,8}$", "^$|^a", "b$",
                "^\\u00e9[a-c]?$", "^(a|bc)*d?$", "^[+-]?[0-9]{1,3}$", "^\\+49[0-9]{6}$", "x{2,3}y"]
    add("pattern", *(text(pattern=p) for p in patterns))
    add("format", *({"type": "string", "format": f} for f in ["date", "time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri", "json-pointer"]))
    add("length", *({"type": "string", "minLength": a, "maxLength": b} for a, b in [(0, 0), (0, 1), (5, 5), (2, 40), (10, 20)]), {"type": "string", "maxLength": 300}, {"type": "string", "maxLength": 700})
    add("list", few(whole(0, 9)), few(text(), 2, minItems=1), few({"type": "boolean"}, 5, minItems=5), few(few(whole(0, 5), 2), 2), few({"enum": ["a", "b"]}, 4), few({"type": ["null", "boolean"]}),
        {"type": "array", "prefixItems": [whole(1, 2), text()], "items": False}, {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "maxItems": 3, "minItems": 2},
        {"type": "array", "items": [whole(1, 2), {"type": "boolean"}], "additionalItems": False, "minItems": 2}, few(record(a=whole(0, 1)), 2), {"type": "array", "maxItems": 0}, few({}, 1, uniqueItems=True))
    person = record(name=text(), age=whole(0, 120))
    add("record", person, record(), record(a=text(), b=whole(0, 9), c={"type": "boolean"}, d={"type": "null"}), record(["b"], a=text(), b=whole(0, 9), c={"type": "boolean"}), record([], x=whole(0, 9), y=whole(0, 9)),
        record(who=person, where=record(lat={"type": "number", "minimum": -90, "maximum": 90}, lon={"type": "number", "minimum": -180, "maximum": 180})), record(items=few(person, 2, minItems=1)),
        record(closed=False, id=whole(1, 99)), record(**{"with space": text(), "q\"uote": whole(0, 1), "\u00fc": {"type": "null"}, "a/b": {"type": "boolean"}}),
        record(a=record(b=record(c=record(d=record(e=whole(0, 1)))))), record(mode={"enum": ["fast", "slow"]}, level={"enum": [1, 2, 3]}, note={"type": ["string", "null"], "maxLength": 8}))
    add("open", {"type": "object", "additionalProperties": whole(0, 9), "maxProperties": 3}, {"type": "object", "properties": {"a": whole(0, 9)}, "additionalProperties": text(), "maxProperties": 3},
        {"type": "object", "patternProperties": {"^x_[a-z]{1,3}$": whole(0, 9)}, "additionalProperties": False, "maxProperties": 2},
        {"type": "object", "properties": {"id": whole(0, 9)}, "patternProperties": {"^n[0-9]$": {"type": "null"}, "^s[0-9]$": text()}, "additionalProperties": False, "required": ["id"], "maxProperties": 3},
        {"type": "object", "propertyNames": {"pattern": "^[a-z]{1,4}$"}, "additionalProperties": {"type": "boolean"}, "maxProperties": 2},
        {"type": "object", "properties": {"a": {}, "b": {}}, "required": ["a"], "maxProperties": 1, "additionalProperties": False} | {"properties": {"a": whole(0, 9), "b": whole(0, 9)}},
        {"type": "object", "properties": {c: whole(0, 9) for c in "abcd"}, "minProperties": 1, "maxProperties": 2, "additionalProperties": False}, {"type": "object", "minProperties": 1, "maxProperties": 2, "additionalProperties": {"type": "null"}})
    add("choice", {"anyOf": [whole(0, 9), {"type": "boolean"}]}, {"anyOf": [person, {"type": "null"}]}, {"oneOf": [text(), whole(0, 9)]},
        {"oneOf": [record(kind={"const": "circle"}, r=whole(1, 9)), record(kind={"const": "square"}, side=whole(1, 9))]}, record(value={"anyOf": [text(), {"type": "number", "minimum": 0, "maximum": 1}, few(whole(0, 9))]}),
        {"type": "object", "properties": {"k": {"enum": ["a", "b"]}}, "required": ["k"], "anyOf": [{"properties": {"n": whole(0, 9)}, "required": ["n"]}, {"properties": {"s": text()}, "required": ["s"]}]},
        {"anyOf": [{"const": 1}, {"const": "one"}, {"const": None}]}, {"oneOf": [whole(0, 4), whole(5, 9)]}, {"oneOf": [{"enum": ["a"]}, {"enum": ["b", "c"]}]}, few({"anyOf": [whole(0, 9), text()]}))
    add("all", {"allOf": [whole(0, 9), {"minimum": 5}]}, {"allOf": [{"type": "object", "properties": {"a": whole(0, 9)}, "required": ["a"]}, {"type": "object", "properties": {"b": text()}, "required": ["b"]}]},
        {"allOf": [text(), {"pattern": "^a"}, {"minLength": 3}]}, {"allOf": [{"enum": [1, 2, 3]}, {"enum": [2, 3, 4]}]}, {"allOf": [{"type": ["string", "null"]}, {"type": ["null", "boolean"]}]},
        {"allOf": [{"$ref": "#/$defs/base"}, {"properties": {"x": {"maximum": 3}}}], "$defs": {"base": {"type": "object", "properties": {"x": whole(0, 9)}, "required": ["x"]}}},
        {"type": "object", "allOf": [{"properties": {"a": whole(0, 1)}}, {"properties": {"b": whole(0, 1)}}], "required": ["a", "b"], "unevaluatedProperties": False})
    node = {"$defs": {"n": {"type": "object", "properties": {"v": whole(0, 9), "next": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/n"}]}}, "required": ["v", "next"], "additionalProperties": False}}, "$ref": "#/$defs/n"}
    tree = {"$defs": {"t": {"type": "object", "properties": {"v": whole(0, 9), "kids": few({"$ref": "#/$defs/t"}, 1)}, "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/t"}
    add("reference", node, tree, {"type": "array", "items": {"$ref": "#"}, "maxItems": 1}, {"$defs": {"s": text()}, "type": "object", "properties": {"a": {"$ref": "#/$defs/s"}, "b": {"$ref": "#/$defs/s"}}, "required": ["a", "b"]},
        {"definitions": {"p": person}, "type": "array", "items": {"$ref": "#/definitions/p"}, "maxItems": 2}, {"properties": {"a": whole(0, 9), "b": {"$ref": "#/properties/a"}}, "required": ["a", "b"], "type": "object"},
        {"$defs": {"a/b": whole(0, 9), "c~d": {"type": "boolean"}}, "type": "object", "properties": {"x": {"$ref": "#/$defs/a~1b"}, "y": {"$ref": "#/$defs/c~0d"}}, "required": ["x", "y"]})
    # Functions' arguments and records of every day, by their parts.
    parts = {"city": text(minLength=1), "unit": {"enum": ["celsius", "fahrenheit"]}, "days": whole(1, 14), "exact": {"type": "boolean"}, "when": {"type": "string", "format": "date"}, "tags": few({"enum": ["a", "b", "c"]}),
             "price": {"type": "number", "minimum": 0, "maximum": 1000}, "code": {"type": "string", "pattern": "^[A-Z]{2}[0-9]{2}$"}, "note": {"anyOf": [text(), {"type": "null"}]}}
    for i, names in enumerate(itertools.combinations(parts, 3)):
        if len(out) == 200:
            break
        chosen = {n: parts[n] for n in names}
        add(f"call{i}", record(list(names)[: 1 + i % 3], **chosen))
    return out


SCHEMAS = make()
assert len(SCHEMAS) == 200 and len({name for name, _ in SCHEMAS}) == 200
