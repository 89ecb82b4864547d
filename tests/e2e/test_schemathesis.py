"""What /openapi.json promises, against requests made from it: none ends in a fault, none leaves work behind.

THERMOCLINE_SCHEMATHESIS_CASES sets how many requests are made, about; 300 if it is not."""
import json
import os

import httpx
import hypothesis
import pytest
import schemathesis
from conftest import Daemon, wait_until
from schemathesis import checks
from schemathesis.config import SchemathesisConfig

CASES = int(os.environ.get("THERMOCLINE_SCHEMATHESIS_CASES", "300"))
CHECKS = [checks.not_a_server_error, checks.status_code_conformance, checks.content_type_conformance, checks.response_schema_conformance]
# These two get most of the cases; requests to the others are alike after a few.
GENERATING = ("/v1/chat/completions", "/v1/completions")
# Reached on the admin socket or with an operator's key only.
ADMIN = "/admin/"


@pytest.fixture(scope="module")
def served():
    # A short context, so that requests without a limit end soon.
    with Daemon("engine.context_length=96", "sampling.max_tokens=4") as d:
        yield d


def asks_for_a_deadline(case):
    """The one way to be answered with a 5xx: a time that is too short for any answer."""
    extension = case.body.get("x_thermocline") if isinstance(case.body, dict) else None
    return isinstance(extension, dict) and isinstance(extension.get("timeout_s"), (int, float))


def kept_small(schema):
    """The description's limits allow bodies of megabytes; generated requests need no more than this to try everything."""
    if isinstance(schema, dict):
        types = schema.get("type", [])
        if "string" in types and not {"const", "enum", "pattern"} & schema.keys():
            schema["maxLength"] = min(schema.get("maxLength", 400), 400)
        if "array" in types:
            schema["maxItems"] = min(schema.get("maxItems", 64), 64)
    for part in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        kept_small(part)


def description(daemon):
    """/openapi.json with limits for small requests, and token ids that most models have."""
    document = httpx.get(daemon.url + "/openapi.json").json()
    components = document["components"]["schemas"]
    components["TokenIds"]["items"]["maximum"] = 255
    bodies = [operation["requestBody"] for item in document["paths"].values() for operation in item.values() if "requestBody" in operation]
    kept_small([components[name] for name in ("Message", "TokenIds", "Prompt", "Extension", "ChatRequest", "CompletionRequest")] + bodies)
    return document


def run_cases(daemon, operation, cases):
    statuses = {}

    @hypothesis.settings(max_examples=cases, deadline=None, database=None, derandomize=True, suppress_health_check=list(hypothesis.HealthCheck), phases=[hypothesis.Phase.generate])
    @hypothesis.given(case=operation.as_strategy(generation_mode=schemathesis.GenerationMode.POSITIVE) | operation.as_strategy(generation_mode=schemathesis.GenerationMode.NEGATIVE))
    def ask(case):
        response = case.call(base_url=daemon.url, timeout=30)
        statuses[response.status_code] = statuses.get(response.status_code, 0) + 1
        expected = response.status_code == 504 and asks_for_a_deadline(case)
        case.validate_response(response, checks=CHECKS[1:] if expected else CHECKS)

    ask()
    return statuses


def test_the_description_holds(served):
    schema = schemathesis.openapi.from_dict(description(served), config=SchemathesisConfig.from_dict({}))
    operations = [r.ok() for r in schema.get_all_operations()]
    operations = [o for o in operations if not o.path.startswith(ADMIN)]
    weights = {o.label: 10 if o.path in GENERATING else 3 if o.method == "post" else 0 for o in operations}
    total = {}
    for operation in operations:
        cases = max(1, CASES * weights[operation.label] // sum(weights.values()))
        statuses = run_cases(served, operation, cases)
        for status, count in statuses.items():
            total[status] = total.get(status, 0) + count
    print(json.dumps(total))
    assert total[200] > CASES // 20 and total[400] > CASES // 20  # both sides were tried
    assert not any(status >= 500 and status != 504 for status in total)
    state = lambda: httpx.get(served.url + "/v1/status").json()
    wait_until(lambda: state()["running"] == 0 and state()["waiting"] == 0)
    assert state()["queue"]["prefill_tokens"] == 0 and served.process.poll() is None
    answer = httpx.post(served.url + "/v1/completions", json={"prompt": "Once upon", "max_tokens": 2}, timeout=30)
    assert answer.status_code == 200 and answer.json()["usage"]["completion_tokens"] == 2


def test_routes_answer_the_methods_that_are_described_and_no_other(served):
    for path, item in httpx.get(served.url + "/openapi.json").json()["paths"].items():
        if path.startswith(ADMIN):
            continue
        concrete = path.replace("{id}", "tidepool")
        described = {m.upper() for m in item if m != "parameters"}
        allowed = set(httpx.options(served.url + concrete).headers["allow"].split(", "))
        assert allowed - {"HEAD", "OPTIONS"} == described, path
        for method in {"GET", "POST", "PUT", "DELETE", "PATCH"} - described:
            response = httpx.request(method, served.url + concrete)
            assert response.status_code == 405 and set(response.headers["allow"].split(", ")) == allowed
