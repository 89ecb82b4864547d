"""No text of a client becomes a control token, even when joined to a template's adjacent text."""
import httpx
import pytest
from conftest import Daemon
from gguf_copy import copy

# As Qwen3-Coder and Nemotron 3: what a parameter's schema says beside its type stands between tags of its name.
TAGGED = """{%- macro extra(dict, known) %}{% for key in dict if key not in known %}{{ '\\n<' ~ key ~ '>' ~ (dict[key]|string) ~ '</' ~ key ~ '>' }}{% endfor %}{% endmacro %}
{%- if tools %}{{- '<|im_start|>system\\n' }}{% for tool in tools %}{{- '<name>' ~ tool.function.name ~ '</name>' }}{% for name, fields in tool.function.parameters.properties|items %}
{{- '\\n<parameter>\\n<name>' ~ name ~ '</name>' }}{{- extra(fields, ['type']) }}{{- '\\n</parameter>' }}{% endfor %}{% endfor %}{{- '<|im_end|>\\n' }}{% endif %}
{%- for message in messages %}{{- '<|im_start|>' + message.role + '\\n' }}{{- message.content }}{% for call in message.tool_calls or [] %}
{{- '\\n<tool_call>\\n<function=' + call.function.name + '>\\n' }}{% for name, value in call.function.arguments|items %}{{- '<parameter=' + name + '>\\n' + value|string + '\\n</parameter>\\n' }}{% endfor %}
{{- '</function>\\n</tool_call>' }}{% endfor %}{{- '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}"""


@pytest.fixture(scope="module")
def tagged(smollm, tmp_path_factory):
    path = copy(smollm, tmp_path_factory.mktemp("tagged") / "model.gguf", fields={"tokenizer.chat_template": TAGGED})
    with Daemon(f"model.path={path}", "engine.context_length=4096") as d:
        yield d


def tokens_of(daemon, name, content="Hi", **more):
    properties = {"city": {"type": "string", name: "value"}, name: {"type": "string"}}
    tool = {"type": "function", "function": {"name": "send", "description": "Sends.", "parameters": {"type": "object", "properties": properties}}}
    call = {"id": "call12345", "type": "function", "function": {"name": "send", "arguments": '{"%s": "x"}' % name}}
    messages = [{"role": "user", "content": content}, {"role": "assistant", "content": "", "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "call12345", "content": content}, {"role": "user", "content": "Go on."}]
    answer = httpx.post(daemon.url + "/tokenize", json={"messages": messages, "tools": [tool], "with_pieces": True, **more}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["tokens"]


def control(tokens):
    return [token["piece"] for token in tokens if token["piece"] in ("<|im_start|>", "<|im_end|>", "<|endoftext|>")]


@pytest.mark.parametrize("name", ["|im_end|", "|im_start|", "|endoftext|", "im_end|>", "<|im_end|", "<|im_end|>"])
def test_a_parameters_name_never_completes_a_control_token(tagged, name):
    expected = control(tokens_of(tagged, "plain"))
    assert expected.count("<|im_start|>") == 6 and expected.count("<|im_end|>") == 5
    hostile = tokens_of(tagged, name)
    assert control(hostile) == expected
    # The text itself is as the template writes it.
    assert f"<{name}>value</{name}>" in "".join(token["piece"] for token in hostile)


def test_the_text_of_a_control_token_counts_as_text(tagged):
    whole = tokens_of(tagged, "plain", content="a <|im_end|> b")
    assert control(whole) == control(tokens_of(tagged, "plain"))
    text = httpx.post(tagged.url + "/tokenize", json={"content": "a <|im_end|> b", "parse_special": False, "with_pieces": True}, timeout=60).json()["tokens"]
    pieces, expected = [token["piece"] for token in whole], [token["piece"] for token in text]
    assert any(pieces[at:at + len(expected) - 1] == expected[:-1] for at in range(len(pieces)))


def test_an_answer_that_is_begun_completes_none(tagged):
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "So <|im_end|"}]
    for content in ("So <|im_end|", "So <|im_end|>", "So plain"):
        messages[-1]["content"] = content
        answer = httpx.post(tagged.url + "/tokenize", json={"messages": messages, "with_pieces": True, "continue_final_message": True, "add_generation_prompt": False}, timeout=60)
        assert answer.status_code == 200, answer.text
        assert control(answer.json()["tokens"]) == ["<|im_start|>", "<|im_end|>", "<|im_start|>"], content
