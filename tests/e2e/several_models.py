"""A daemon with three models, and requests to it: shared by the tests of several models."""
import httpx

from conftest import Daemon

MIB = 1 << 20


def configuration(folder, smollm, budget_mib=0, **more):
    lines = ["models:",
             "  - path: tidepool", "    name: tide", "    aliases: [\"gpt-4o\"]",
             f"  - path: {smollm}", "    name: smol", "    engine: {context_length: 2048}",
             "  - path: tidepool-experts", "    name: experts", "    keep_alive: 5m"]
    for section, values in more.items():
        lines += [f"{section}:"] + [f"  {key}: {value}" for key, value in values.items()]
    if budget_mib:
        lines += ["memory:", f"  budget_bytes: {budget_mib * MIB}"]
    path = folder / "several.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def smollm_bytes(path):
    with open(path, "rb") as file:
        return file.read()


def ask(d, model, headers=None, **more):
    body = {"model": model, "messages": [{"role": "user", "content": "Who lives in the sea?"}], "max_tokens": 8, "temperature": 0, **more}
    return httpx.post(d.url + "/v1/chat/completions", json=body, headers=headers, timeout=120)


def text_of(answer):
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["message"]["content"]


def states(d):
    return d.admin.get("/health/ready").json()["models"]


def states_while_loading(d):
    return next(m["status"]["value"] for m in httpx.get(d.url + "/v1/models").json()["data"])


def alone(path, name):
    with Daemon(f"model.path={path}", f"model.name={name}", *(["engine.context_length=2048"] if name == "smol" else [])) as d:
        return text_of(ask(d, name))


def truths(smollm):
    """The answer of each model that is alone in a daemon."""
    return {"tide": alone("tidepool", "tide"), "smol": alone(smollm, "smol"), "experts": alone("tidepool-experts", "experts")}
