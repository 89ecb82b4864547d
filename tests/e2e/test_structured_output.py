"""Answers under a schema or a grammar: real answers of the real daemon, validated by others."""
import json
import os
import re
from concurrent.futures import ThreadPoolExecutor

import grpc
import grpc_client
import httpx
import jsonschema
import openai
import pydantic
import pytest
from conftest import Daemon, run, run_json
from daemon_client import STORY, post, value
from schemas import SCHEMAS

ROUNDS = int(os.environ.get("THERMOCLINE_SCHEMA_ROUNDS", "1"))  # seeds of each schema
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}}, "required": ["name", "age"], "additionalProperties": False}


def ask(daemon, expect=200, **fields):
    response = post(daemon, {"messages": STORY, "max_tokens": 400, "temperature": 1, "seed": 1, **fields})
    assert response.status_code == expect, response.text
    return response.json()


def text_of(answer, choice=0):
    return answer["choices"][choice]["message"]["content"]


def of_schema(schema):
    return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}


@pytest.mark.parametrize("part", range(4))
def test_answers_satisfy_200_schemas(daemon, part):
    def check(case):
        name, schema = case
        for seed in range(ROUNDS):
            answer = ask(daemon, response_format=of_schema(schema), seed=seed)
            assert answer["choices"][0]["finish_reason"] == "stop", (name, text_of(answer))
            cls = jsonschema.Draft7Validator if isinstance(schema.get("items"), list) else jsonschema.Draft202012Validator
            errors = list(cls(schema, format_checker=cls.FORMAT_CHECKER).iter_errors(json.loads(text_of(answer))))
            assert not errors, (name, text_of(answer), errors[0].message)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(check, SCHEMAS[part::4]))


def test_json_object_is_an_object_as_far_as_it_comes(daemon):
    for seed in range(5):
        answer = ask(daemon, response_format={"type": "json_object"}, seed=seed)
        text, reason = text_of(answer), answer["choices"][0]["finish_reason"]
        assert text.startswith("{")
        if reason == "stop":
            assert isinstance(json.loads(text), dict)
        else:
            assert reason == "length"


def test_every_field_of_every_server(daemon):
    schema = {"type": "integer", "minimum": 1, "maximum": 3}
    for fields in ({"json_schema": schema}, {"guided_json": schema}, {"guided_json": json.dumps(schema)}, {"structured_outputs": {"json": schema}}, {"response_format": of_schema(schema)},
                   {"response_format": {"type": "json_object", "schema": schema}}, {"response_format": {"type": "json_schema", "schema": schema}}):
        assert text_of(ask(daemon, **fields)) in ("1", "2", "3"), fields
    for fields in ({"grammar": 'root ::= "yes" | "no"'}, {"structured_outputs": {"grammar": 'root ::= "yes" | "no"'}}, {"guided_grammar": 'root ::= "yes" | "no"'}, {"structured_outputs": {"choice": ["yes", "no"]}}, {"guided_choice": ["yes", "no"]}):
        assert text_of(ask(daemon, **fields)) in ("yes", "no"), fields
    for fields in ({"structured_outputs": {"regex": "[a-f]{4}-\\d+;"}}, {"guided_regex": "[a-f]{4}-\\d+;"}):
        assert re.fullmatch("[a-f]{4}-[0-9]+;", text_of(ask(daemon, **fields))), fields
    completion = httpx.post(daemon.url + "/v1/completions", json={"prompt": "Once", "max_tokens": 50, "seed": 2, "response_format": of_schema(PERSON)}).json()
    jsonschema.validate(json.loads(completion["choices"][0]["text"]), PERSON)


def test_what_cannot_be_followed_is_refused_before_anything_is_generated(daemon):
    before = value(daemon, "generation_tokens_total")
    for fields, param, words in [
        ({"grammar": "root ::= x"}, "grammar", "no rule 'x'"),
        ({"json_schema": {"not": {}}}, "json_schema", "'not'"),
        ({"guided_regex": "(?=a)b"}, "guided_regex", "(?="),
        ({"guided_regex": "(a)\\1"}, "guided_regex", "\\1"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag", "structural_tag"),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs.regex", "structured_outputs.json"),
        ({"grammar": "root ::= \"a\"", "guided_choice": ["a"]}, "guided_choice", "'grammar' and 'guided_choice'"),
        ({"response_format": {"type": "xml"}}, "response_format", "json_schema"),
        ({"response_format": {"type": "json_schema"}}, "response_format", "json_schema.schema"),
        ({"response_format": of_schema({"$ref": "#/$defs/a", "$defs": {"a": {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "required": ["a"]}}})}, "response_format.json_schema.schema", "no text"),
        ({"guided_json": "{"}, "guided_json", "schema"),
    ]:
        error = ask(daemon, expect=400, **fields)["error"]
        assert error["param"] == param and words in error["message"], error
    assert value(daemon, "generation_tokens_total") == before


def test_limits_are_the_configurations(daemon):
    with Daemon("grammar.bytes_max=100", "grammar.states_max=300") as d:
        assert "grammar.bytes_max" in ask(d, expect=400, grammar='root ::= "' + "a" * 200 + '"')["error"]["message"]
        assert "states" in ask(d, expect=400, guided_regex="[a-z]{500}")["error"]["message"]
        assert text_of(ask(d, guided_regex="[a-c]{5}")).strip("abc") == ""


def test_a_grammar_is_compiled_once(daemon):
    name = "grammar_compiled_total"
    before, hits = value(daemon, name, result="ok"), value(daemon, "grammar_cache_hits_total")
    for seed in range(3):
        ask(daemon, guided_choice=["one of a kind", "another"], seed=seed)
    assert value(daemon, name, result="ok") == before + 1 and value(daemon, "grammar_cache_hits_total") == hits + 2
    assert value(daemon, "grammar_masks_total") > 0 and value(daemon, "grammar_mask_seconds_total") > 0


def test_choices_and_streams(daemon):
    answer = ask(daemon, response_format=of_schema(PERSON), n=4)
    texts = [text_of(answer, i) for i in range(4)]
    for text in texts:
        jsonschema.validate(json.loads(text), PERSON)
    assert len(set(texts)) > 1
    streamed = ["" for _ in range(4)]
    client = openai.OpenAI(base_url=daemon.url + "/v1", api_key="none")
    for chunk in client.chat.completions.create(model="tidepool", messages=STORY, max_tokens=400, temperature=1, seed=1, n=4, stream=True, response_format=of_schema(PERSON)):
        for choice in chunk.choices:
            streamed[choice.index] += choice.delta.content or ""
    assert streamed == texts


def test_openai_parse_with_pydantic(daemon):
    class Step(pydantic.BaseModel):
        explanation: str = pydantic.Field(max_length=30)
        output: int

    class Answer(pydantic.BaseModel):
        steps: list[Step] = pydantic.Field(max_length=2)
        sure: bool

    client = openai.OpenAI(base_url=daemon.url + "/v1", api_key="none")
    parsed = client.chat.completions.parse(model="tidepool", messages=STORY, max_tokens=400, temperature=1, seed=3, response_format=Answer).choices[0].message.parsed
    assert isinstance(parsed, Answer) and len(parsed.steps) <= 2


def test_other_fields_hold_beside_a_schema(daemon):
    grammar = 'root ::= "a"{3,200}'
    plain = ask(daemon, grammar=grammar, max_tokens=20, min_tokens=12, logprobs=True, top_logprobs=2)
    assert plain["usage"]["completion_tokens"] >= 12
    assert all(len(t["top_logprobs"]) == 2 and t["logprob"] <= 0 for t in plain["choices"][0]["logprobs"]["content"])
    cut = ask(daemon, response_format=of_schema(PERSON), max_tokens=3)
    assert cut["choices"][0]["finish_reason"] == "length"
    stopped = ask(daemon, response_format=of_schema(PERSON), stop=["age"])
    assert stopped["choices"][0]["finish_reason"] == "stop" and "age" not in text_of(stopped)
    # The grammar's end is the answer's, though the model's end token is ignored and more tokens were wanted.
    assert text_of(ask(daemon, guided_choice=["yes"], ignore_eos=True, min_tokens=30)) == "yes"


def test_speculation_does_not_change_the_text(daemon):
    schemas = [PERSON, {"type": "array", "items": PERSON, "maxItems": 3}, dict(SCHEMAS)["call0-0"], dict(SCHEMAS)["choice-3"]]
    fields = [{"response_format": of_schema(s), "seed": i, "temperature": t} for s in schemas for i, t in ((1, 1), (2, 0))]
    plain = [text_of(ask(daemon, **f)) for f in fields]
    for settings in (["spec.mode=sync", "spec.draft=tidepool-draft"], ["spec.mode=branch", "spec.draft=tidepool-draft"], ["spec.mode=sync", "spec.source=ngram"]):
        with Daemon(*settings) as d:
            assert [text_of(ask(d, **f)) for f in fields] == plain, settings


def test_command_line(tmp_path):
    (tmp_path / "schema.json").write_text(json.dumps(PERSON))
    out = run_json("run", "tidepool", "-p", "Once", "-n", "100", "--temperature", "1", "--seed", "5", "--json-schema", tmp_path / "schema.json")
    jsonschema.validate(json.loads(out["text"]), PERSON)
    assert out["finish_reason"] == "stop"
    (tmp_path / "g.gbnf").write_text('root ::= "left" | "right"')
    assert run_json("run", "tidepool", "-p", "Once", "--grammar", tmp_path / "g.gbnf")["text"] in ("left", "right")
    (tmp_path / "g.gbnf").write_text("root ::= x")
    failed = run("run", "tidepool", "-p", "Once", "--grammar", tmp_path / "g.gbnf", check=False)
    assert failed.returncode == 1 and b"no rule 'x'" in failed.stderr


def test_grpc():
    pb = grpc_client.pb
    with Daemon("grpc.address=127.0.0.1:0") as d, grpc_client.channel(d) as channel:
        stub = grpc_client.stubs.InferenceStub(channel)

        def generate(**kind):
            request = pb.GenerateRequest(text="Once", structured_output=pb.StructuredOutput(**kind), stop=pb.Stop(max_tokens=200), sampling=pb.Sampling(temperature=1, seed=4))
            return "".join(e.delta.text for e in stub.Generate(request, timeout=60) if e.HasField("delta"))

        jsonschema.validate(json.loads(generate(json_schema=json.dumps(PERSON))), PERSON)
        assert generate(choice=pb.StructuredOutput.Choices(texts=["yes", "no"])) in ("yes", "no")
        assert re.fullmatch("[ab]{3}", generate(regex="[ab]{3}"))
        assert generate(grammar='root ::= "x"') == "x"
        for kind, code in (({"grammar": "root ::= y"}, grpc.StatusCode.INVALID_ARGUMENT), ({"json_schema": '{"not":{}}'}, grpc.StatusCode.UNIMPLEMENTED)):
            with pytest.raises(grpc.RpcError) as error:
                generate(**kind)
            assert error.value.code() == code
        with pytest.raises(grpc.RpcError) as error:
            generate()
        assert error.value.code() == grpc.StatusCode.INVALID_ARGUMENT and "structured_output" in error.value.details()
