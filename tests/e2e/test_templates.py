"""Chat templates render as Python's jinja2 renders them, or are refused with the construct's name."""
import datetime
import json

import jinja2
import pytest
from conftest import run
from jinja2.ext import Extension
from jinja2.sandbox import SandboxedEnvironment

TOOL = {"type": "function", "function": {
    "name": "get_weather", "description": "Weather <at> a \"place\" & more",
    "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "The city"}, "unit": {"type": "string", "enum": ["C", "F"]}},
                   "required": ["city"]}}}
SYSTEM = {"role": "system", "content": "Be brief."}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"id": "call1abc5", "type": "function", "function": {"name": "get_weather", "arguments": {"city": "Rome"}}}]}
RESULT = {"role": "tool", "tool_call_id": "call1abc5", "name": "get_weather", "content": "{\"t\": 20}"}


def user(text):
    return {"role": "user", "content": text}


CASES = {
    "plain": {"messages": [user("Hello <b>\"you\"</b> é 😀")]},
    "system": {"messages": [SYSTEM, user("Hi\n")]},
    "turns": {"messages": [SYSTEM, user("Hi"), {"role": "assistant", "content": " Hello! "}, user("More?")]},
    "tools": {"messages": [SYSTEM, user("Weather in Rome?")], "tools": [TOOL]},
    "result": {"messages": [user("Weather in Rome?"), CALL, RESULT], "tools": [TOOL]},
    "no generation": {"messages": [user("Hi"), {"role": "assistant", "content": "Hello!"}], "add_generation_prompt": False},
}
COMMON = {"add_generation_prompt": True, "bos_token": "<s>", "eos_token": "</s>"}


class Generation(Extension):
    """Hugging Face's {% generation %}: marks the assistant's text, renders its body."""
    tags = {"generation"}

    def parse(self, parser):
        next(parser.stream)
        return parser.parse_statements(["name:endgeneration"], drop_needle=True)


def environment():
    """As Hugging Face's transformers sets it up."""
    env = SandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"])

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = lambda x, ensure_ascii=False, indent=None, separators=None, sort_keys=False: json.dumps(
        x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda f: datetime.datetime.now().strftime(f)
    return env


def render_python(source, variables):
    try:
        return environment().from_string(source).render(**variables)
    except Exception:
        return None  # the template refuses this conversation


def test_real_templates(peer, capsys):
    files = sorted((peer / "models/templates").glob("*.jinja"))
    assert len(files) > 50
    rendered, refused, wrong = 0, [], []
    for file in files:
        source = file.read_text(encoding="utf-8")
        fine = True
        for name, case in CASES.items():
            variables = {**COMMON, **case}
            expected = render_python(source, variables)
            result = run("template", file, stdin=json.dumps(variables).encode(), check=False)
            if expected is None:
                continue
            if result.returncode == 1:
                assert b"is not supported" in result.stderr, (file.name, name, result.stderr)
                fine = False
            elif result.stdout.decode() != expected:
                wrong.append((file.name, name))
        rendered += fine
        refused += [] if fine else [file.name]
    with capsys.disabled():
        print(f"\n{rendered} of {len(files)} templates render as in jinja2; refused: {refused}")
    assert not wrong
    assert rendered >= 0.9 * len(files)


SNIPPETS = [
    "{{ '%s has %d' % ('a', 3) }}|{{ '{} {x}'.format(1, x=2) }}",
    "{{ [3,1,2]|sort|join(',') }}|{{ ['b','A']|sort }}|{{ [1,2,2]|unique|list }}|{{ {'b':1,'a':2}|dictsort }}",
    "{{ 'a,b,c'.split(',')[1:] }}|{{ ' x '.strip() ~ '|' }}|{{ 'xxabxx'.strip('x') }}|{{ 'a b'.title() }}|{{ 'ÉA'|lower }}",
    "{{ [{'a':1},{'a':2}]|map(attribute='a')|list }}|{{ [{'a':1},{'b':2}]|selectattr('a','defined')|list }}",
    "{{ {'a':[1,{'b':none}]}|tojson }}|{{ {'a':[1,2]}|tojson(indent=2) }}|{{ 'é\\n\"'|tojson }}|{{ {'z':1,'a':2}|tojson(sort_keys=true, separators=(',',':')) }}",
    "{% for x in [1,2,3] %}{{ loop.index0 }}{{ loop.previtem|default('-') }}{{ loop.nextitem is defined }}{% endfor %}",
    "{{ 1.0 }} {{ 1e3 if false else 0.1 + 0.2 }} {{ 10 / 4 }} {{ 7 // 2 * 1.0 }} {{ true + 1 }}",
    "{{ x is none }} {{ none is none }} {{ 1 is number }} {{ 'a' is string }} {{ [] is iterable }} {{ {} is mapping }} {{ x is undefined }}",
    "{{ 'abc'|replace('b','x')|upper|first }} {{ 'abc'|length }} {{ [1,2]|last }} {{ 'a\nb'|indent(2, first=true) }} {{ '3'|int + 1 }}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}{% set s %}block {{ a }}{% endset %}{{ s|upper }}{% filter upper %}f{{ a }}{% endfilter %}",
    "{{ messages[0].content[:3] }}{{ messages|length }}{{ messages[-1]['role'] }}",
    "{%- if true %}\n  a\n{%- else -%}\nb\n{% endif %}\n\nc  {#- x -#}  d",
    "{{ not true or false and true }} {{ 1 in [1] and 2 not in [1] }} {{ 'a' if none else 'b' }} {{ (1 if true) }}",
    "{{ -1 - -2 }} {{ 2 ** 3 ** 1 }} {{ -7 % 5 }} {{ 3 * 'ab' if false else 'ab' * 3 }}",
]


@pytest.mark.parametrize("source", SNIPPETS)
def test_snippets(source, tmp_path):
    path = tmp_path / "snippet.jinja"
    path.write_text(source, encoding="utf-8")
    variables = {"messages": [user("Hello"), {"role": "assistant", "content": "Hi"}]}
    expected = environment().from_string(source).render(**variables)
    assert run("template", path, stdin=json.dumps(variables).encode()).stdout.decode() == expected


def test_the_models_own_templates(smollm):
    messages = {"messages": [SYSTEM, user("Hi")], "add_generation_prompt": True}
    text = run("template", "tidepool", stdin=json.dumps(messages).encode()).stdout.decode()
    assert text == "<s><|system|>Be brief.<|end|><|user|>Hi<|end|><|assistant|>"
    text = run("template", smollm, stdin=json.dumps(messages).encode()).stdout.decode()
    assert text == "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_template_refuses_what_it_cannot_say():
    result = run("template", "tidepool", stdin=b'{"messages": [{"role": "ghost", "content": "x"}]}', check=False)
    assert result.returncode == 1 and b"Unknown role: ghost" in result.stderr
