"""Sampling without settings: one table for the terminal's chats and the daemon, with defaults that are replaced one by one."""
import json

import httpx
import pytest
from conftest import STORIES, Daemon, run, run_json

COMMON = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "repetition_penalty": 1.0}
PROMPT = "Once upon a time"


def write(daemon, **more):
    answer = httpx.post(daemon.url + "/v1/completions", json={"prompt": PROMPT, "max_tokens": 60, "seed": 3, **more}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]["text"]


def shown(daemon):
    [model] = httpx.get(daemon.url + "/v1/models").json()["data"]
    return model["sampling"]


def test_models_that_recommend_nothing_are_sampled_by_the_common_table():
    with Daemon(f"model.path={STORIES}") as d:
        assert shown(d) == COMMON and "the model recommends nothing" in d.text()
        assert write(d) == write(d, **COMMON)
        for name, value in (("temperature", 1.7), ("top_k", 3), ("top_p", 0.3), ("min_p", 0.6)):  # one gives way, the others stay
            assert write(d, **{name: value}) == write(d, **{**COMMON, name: value}) != write(d), name
        assert write(d, temperature=0) == write(d, temperature=0, seed=4)


def test_the_configuration_replaces_values_of_it_one_by_one():
    with Daemon(f"model.path={STORIES}", "sampling.top_k=5", "sampling.min_p=0") as d:
        assert shown(d) == {**COMMON, "top_k": 5, "min_p": 0}
        assert write(d) == write(d, **{**COMMON, "top_k": 5, "min_p": 0})


def test_what_makers_recommend_is_not_mixed_with_the_common_table():
    with Daemon() as d:
        assert shown(d) == {"temperature": 0.7, "top_k": 0, "top_p": 0.95, "min_p": 0.0, "repetition_penalty": 1.0}


def test_a_chat_on_the_terminal_takes_what_the_daemon_takes(smollm):
    question = "Name three birds."
    ask = ("run", smollm, "--chat", "-p", question, "-n", 30)
    with Daemon(f"model.path={smollm}", "engine.context_length=256") as d:
        messages = [{"role": "user", "content": question}]
        for seed, more in ((3, {}), (4, {"temperature": 1.5}), (5, {"top_k": 2})):
            answer = httpx.post(d.url + "/v1/chat/completions", json={"messages": messages, "max_tokens": 30, "seed": seed, **more}, timeout=100).json()
            options = [word for name, value in more.items() for word in (f"--{name.replace('_', '-')}", value)]
            assert run_json(*ask, "--context", 256, "--seed", seed, *options)["text"] == answer["choices"][0]["message"]["content"]


def test_raw_prompts_are_greedy():
    greedy = run_json("run", STORIES, "-p", PROMPT, "-n", 40)["text"]
    assert greedy == run_json("run", STORIES, "-p", PROMPT, "-n", 40, "--temperature", 0, "--seed", 7)["text"]


@pytest.mark.parametrize("options, expected", [((), COMMON), (("--temperature", 0.3, "--top-k", 7), {**COMMON, "temperature": 0.3, "top_k": 7})])
def test_set_shows_what_a_chat_samples_with(smollm, options, expected):
    text = run("run", smollm, *options, stdin=b"/set\n").stderr.decode()
    values = {words[0].replace("-", "_"): words[1] for line in text.splitlines() if len(words := line.split()) > 1}
    assert {name: json.loads(values[name]) for name in expected} == expected


def test_each_chat_draws_a_seed_unless_one_is_given():
    seeds = []
    for options in ((), (), ("--seed", 5)):
        text = run("run", "tidepool", *options, stdin=b"/set\n").stderr.decode()
        seeds.append(next(line.split()[1] for line in text.splitlines() if line.split()[:1] == ["seed"]))
    assert seeds[0] != seeds[1] and seeds[2] == "5"
