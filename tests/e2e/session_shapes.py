"""Recorded sessions of agents as shapes, and the synthetic requests made from them. A file of tests/data/agents has

    lines     the length in bytes of each distinct line of the session's texts; a line's number is its place here
    texts     each distinct text as the numbers of its lines
    requests  for each request its route and its body. {"shape": N} is text N, {"json": V} is V as a text of JSON, and a member named in
              `as_before` is that of the request before. Tools, parameters, values and ids have neutral names.

Equal lines have equal numbers, so texts that begin alike in the session begin alike in its synthetic copy, up to the first line that
differs: of such a line no part stays equal on purpose."""
import json
import random
import re
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "data/agents"
AGENTS = ("claude", "codex", "aider", "gptme")
ROUTES = ("/v1/messages", "/v1/responses", "/v1/chat/completions")

# Members of the public APIs that a recording keeps; others are left out.
BODY = """model messages input instructions system tools tool_choice temperature top_p max_tokens max_completion_tokens max_output_tokens
    stream stream_options include_usage thinking reasoning text output_config parallel_tool_calls store include stop stop_sequences n
    response_format seed""".split()
PARTS = """type role content text input output arguments name id call_id tool_use_id tool_call_id tool_calls function description
    parameters input_schema strict cache_control ttl is_error status effort summary verbosity budget_tokens format thinking signature
    reasoning_content disable_parallel_tool_use tool_name defer_loading source data title schema json_schema display""".split()
SCHEMA = """type properties required items enum const description title default format pattern additionalProperties propertyNames anyOf
    oneOf allOf minimum maximum exclusiveMinimum exclusiveMaximum minLength maxLength minItems maxItems uniqueItems $ref $defs
    definitions $schema""".split()
# Values that are kept as they are.
WORDS = """user assistant system developer tool text input_text output_text tool_use tool_result thinking function function_call
    function_call_output message reasoning ephemeral 5m 1h auto any none required enabled disabled adaptive low medium high xhigh max
    minimal completed incomplete in_progress object array string number integer boolean null json_schema json_object
    reasoning.encrypted_content concise detailed custom uri date date-time email uuid namespace tool_reference omitted
    summarized web_search""".split()
SCHEMAS = ["http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema"]
FILE = "agent version lines texts requests route body as_before shape json".split()
KEPT = {*BODY, *PARTS, *SCHEMA, *WORDS, *SCHEMAS, *FILE, *AGENTS, *ROUTES}
NEUTRAL = re.compile(r"(model|(tool|param|value|id)_\d+|#/(\$defs|definitions)/param_\d+|\d+(\.\d+)*)")

VOCABULARY = """time year people way day man thing woman life child world school state family student group country problem hand part
    place case week company system program question work number night point home water room mother area money story fact month lot
    right study book eye job word business issue side kind head house service friend father power hour game line end member law car
    city name team minute idea body back face door health person art war history party result change morning reason girl guy moment
    air teacher force foot boy age policy music market sense product effect paper space ground form event matter center river""".split()


def strange_strings(value):
    """Strings of a recording that are neither of a public API nor neutral: they could be an agent's words."""
    if isinstance(value, dict):
        return [s for pair in value.items() for each in pair for s in strange_strings(each)]
    if isinstance(value, list):
        return [s for each in value for s in strange_strings(each)]
    return [value] if isinstance(value, str) and value not in KEPT and not NEUTRAL.fullmatch(value) else []


def load(agent):
    return json.loads((FOLDER / f"{agent}.json").read_text())


def line(number, length):
    """ASCII words of this length in bytes, the same for the same number."""
    words, source = "", random.Random(number)
    while len(words) < length:
        words += source.choice(VOCABULARY) + " "
    return words[:length].rstrip(" ").ljust(length, ".")


def requests(recording):
    """(route, body) of each request of a recording."""
    texts = ["\n".join(line(n, recording["lines"][n]) for n in numbers) for numbers in recording["texts"]]

    def rebuild(value):
        if isinstance(value, list):
            return [rebuild(each) for each in value]
        if not isinstance(value, dict):
            return value
        if set(value) == {"shape"}:
            return texts[value["shape"]]
        if set(value) == {"json"}:
            return json.dumps(rebuild(value["json"]))
        return {name: rebuild(each) for name, each in value.items()}

    out, body = [], {}
    for request in recording["requests"]:
        now = {name: rebuild(value) for name, value in request["body"].items()}
        body = {**{name: body[name] for name in request["as_before"]}, **now}
        out.append((request["route"], body))
    return out
