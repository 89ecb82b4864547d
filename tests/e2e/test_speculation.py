"""Speculative decoding as users and operators meet it: the same text in every mode, refusals, figures that agree with each other."""
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor

import httpx
import openai
import pytest
from conftest import BIN, STORIES, Daemon, refusal, run, run_json
from prometheus_client.parser import text_string_to_metric_families
from test_hot import cache, make_eager  # noqa: F401 (a fixture)

STORY = [{"role": "user", "content": "Tell me a story about an owl."}]
MODES = ["sync", "branch", "exhaustive", "auto"]
PAIR = ("--draft", "tidepool-draft")
TWO_SIDES = ("--device", "cpu", "--hot-memory", "2MiB")


@pytest.fixture(scope="module")
def two_sides(cache):  # noqa: F811
    """A machine whose plans put neurons on both sides."""
    run("run", "tidepool", "-p", "x", "-n", 1, *TWO_SIDES)
    make_eager(cache)


def story(*args, tokens=120):
    return run_json("run", "tidepool", "--chat", "-p", STORY[0]["content"], "-n", tokens, *args)


def ask(daemon, **extra):
    answer = httpx.post(daemon.url + "/v1/chat/completions", json={"messages": STORY, "temperature": 0, "max_tokens": 100, **extra}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()


def text_of(answer):
    return answer["choices"][0]["message"]["content"]


def samples(daemon):
    text = httpx.get(daemon.url + "/metrics").text
    return {(s.name.removeprefix("thermocline_"), tuple(sorted(s.labels.items()))): s.value for f in text_string_to_metric_families(text) for s in f.samples}


def total(values, name):
    """Over all labels."""
    found = [value for (key, _), value in values.items() if key == name]
    assert found, name
    return sum(found)


@pytest.fixture(scope="module")
def plain():
    return story("--spec", "off")


@pytest.fixture(scope="module")
def pair():
    # Drafts always: a controller would soon find that models as small as these do not gain by drafts.
    with Daemon("spec.draft=tidepool-draft", "spec.fixed=true") as daemon:
        yield daemon


# The command line.


@pytest.mark.parametrize("mode", MODES)
def test_the_text_is_that_of_plain_decoding(plain, mode):
    out = story(*PAIR, "--spec", mode)
    assert out["tokens"] == plain["tokens"] and out["text"] == plain["text"]
    assert out["spec"]["mode"] == mode and out["spec"]["source"] == "model" and out["spec"]["fallback"] == ""


@pytest.mark.parametrize("head", [0, 1024])
def test_branches_that_are_drafted_together_are_those_of_drafts_alone(head):
    """A draft that was made ahead, in steps of many branches, has the tokens that it would have had."""
    counts = [story(*PAIR, "--spec", mode, "--draft-tokens", 3, "--draft-fixed", "--draft-width", 4, "--draft-head", head)["spec"] for mode in ("sync", "exhaustive")]
    assert [c["accepted_tokens"] for c in counts] == [counts[0]["accepted_tokens"]] * 2 and counts[0]["drafts"] == counts[1]["drafts"]


@pytest.mark.parametrize("mode", ["sync", "branch", "exhaustive"])
def test_what_was_drafted_is_counted(mode):
    out = story(*PAIR, "--spec", mode, "--draft-tokens", 4, "--draft-fixed")
    spec, timings = out["spec"], out["timings"]
    assert spec["drafted_tokens"] - spec["wasted_tokens"] == spec["accepted_tokens"]
    assert spec["drafts"] > 0 and spec["drafts"] <= spec["draft_tokens"] <= 4 * spec["drafts"]
    assert 0 < spec["accepted_tokens"] <= spec["draft_tokens"]
    assert sum(spec["accepted_at"]) == spec["accepted_tokens"] and spec["accepted_at"] == sorted(spec["accepted_at"], reverse=True)
    assert spec["accepted_at"][4:] == [0] * 16
    # Each step gives what was accepted and one token more; the first token comes from the prompt.
    assert out["completion_tokens"] <= 1 + spec["accepted_tokens"] + spec["drafts"] + spec["plain_steps"]
    assert (timings["draft_n"], timings["draft_n_accepted"], timings["drafts"]) == (spec["draft_tokens"], spec["accepted_tokens"], spec["drafts"])
    assert timings["branch_hits"] == sum(spec["branch_hits"]) and timings["branch_misses"] == sum(spec["branch_misses"])
    assert timings["draft_wait_s"] == pytest.approx(spec["wait_s"])
    assert spec["draft_s"] > 0 and spec["verify_s"] > 0
    if mode == "branch":
        assert timings["branch_hits"] > 0


@pytest.mark.parametrize("mode", MODES)
def test_the_model_drafts_for_itself_and_the_text_is_that_of_plain_decoding(plain, mode):
    out = story("--spec-source", "self", "--spec", mode, "--draft-fixed", "--self-shift", 20)
    assert out["tokens"] == plain["tokens"] and out["text"] == plain["text"]
    spec, timings = out["spec"], out["timings"]
    assert spec["source"] == "self" and spec["draft"] == "" and spec["fallback"] == ""
    assert (spec["not_ahead"] == "") == (mode != "sync")
    if mode != "auto":
        assert 0 < spec["accepted_tokens"] < spec["draft_tokens"]
        assert (timings["branch_hits"] + timings["branch_misses"] > 0) == (mode != "sync")
    if mode == "exhaustive":
        assert timings["branch_hits"] > timings["branch_misses"]


def test_the_same_seed_gives_the_same_text_with_drafts():
    sampled = ("--temperature", 0.8, "--top-p", 0.95, "--seed", 7)
    plain = story(*sampled)["tokens"]
    for mode in ("sync", "branch"):
        assert story(*sampled, *PAIR, "--spec", mode)["tokens"] == plain, mode


def test_rejection_sampling_has_one_text_for_a_seed():
    args = (*PAIR, "--temperature", 0.8, "--seed", 7, "--spec-acceptance", "rejection", "--draft-tokens", 4, "--draft-fixed")
    assert story(*args, "--spec", "sync")["tokens"] == story(*args, "--spec", "sync")["tokens"]


def test_a_draft_or_a_source_means_auto():
    assert story(tokens=5)["spec"] is None
    assert story("--spec", "off", tokens=5)["spec"] is None
    assert story(*PAIR, tokens=5)["spec"]["mode"] == "auto"
    assert story("--spec-source", "ngram", tokens=5)["spec"]["mode"] == "auto"
    assert story(*PAIR, "--spec", "sync", tokens=5)["spec"]["mode"] == "sync"


def test_without_a_draft_model_the_text_itself_is_looked_up():
    args = ("run", "tidepool", "-p", " ".join(["Once upon a time there was an owl."] * 7), "-n", 60, "--ignore-eos")
    plain, drafted = run_json(*args), run_json(*args, "--spec", "sync", "--draft-fixed")
    assert drafted["spec"]["source"] == "ngram" and drafted["spec"]["draft"] == ""
    assert drafted["tokens"] == plain["tokens"]
    assert drafted["timings"]["draft_n_accepted"] > 0


def test_no_draft_tokens_is_plain_decoding(plain):
    out = story(*PAIR, "--spec", "sync", "--draft-tokens", 0)
    assert out["tokens"] == plain["tokens"] and out["timings"]["draft_n"] == 0


def test_the_line_for_people_says_what_was_accepted():
    done = run("run", "tidepool", "--chat", "-p", STORY[0]["content"], "-n", 60, *PAIR, "--spec", "sync", "--draft-fixed")
    accepted, drafted = map(int, re.search(rb", (\d+) of (\d+) drafted tokens accepted\n", done.stderr).groups())
    assert 0 < accepted <= drafted
    assert b"drafted" not in run("run", "tidepool", "-p", "x", "-n", 5).stderr


@pytest.mark.parametrize("command", ["run", "bench"])
@pytest.mark.parametrize("option,value", [("--draft-tokens", "21"), ("--draft-tokens", "-1"), ("--draft-width", "0"), ("--draft-width", "5"), ("--draft-threads", "-1"),
                                          ("--draft-head", "-1"), ("--spec-source", "magic"), ("--spec-acceptance", "maybe")])
def test_values_there_are_not_are_bad_usage(command, option, value):
    prompt = ["-p", "x"] if command == "run" else ["--spec"]
    done = run(command, "tidepool", *prompt, option, value, check=False, usage=True)
    assert done.returncode == 2 and option.encode() in done.stderr


def test_modes_there_are_not_are_bad_usage():
    assert "--spec: on not in {off,sync,branch,exhaustive,auto}" in refusal("run", "tidepool", "-p", "x", "--spec", "on", status=2)


@pytest.mark.parametrize("args,words", [
    (["--draft", "nowhere.gguf"], [b"nowhere.gguf"]),
    (["--draft", STORIES], [b"vocabulary"]),
    (["--spec", "sync", "--spec-source", "model"], [b"draft"]),
    (["--spec", "branch", "--spec-source", "self", *TWO_SIDES], [b"spec.mode branch", b"spec.source self", b"hot tier", b"sync or auto"]),
])
def test_drafts_that_cannot_be_are_refused(args, words, two_sides):
    done = run("run", "tidepool", "-p", "x", "-n", 5, *args, check=False)
    assert done.returncode == 1
    for word in words:
        assert word in done.stderr, done.stderr


# The daemon.


def test_answers_say_what_became_of_drafts(pair):
    answer = ask(pair, x_thermocline={"speculation": "sync"})
    timings = answer["timings"]
    assert timings["prompt_n"] + timings["cache_n"] == answer["usage"]["prompt_tokens"]
    assert timings["predicted_n"] == answer["usage"]["completion_tokens"]
    assert timings["predicted_per_second"] == pytest.approx((timings["predicted_n"] - 1) / timings["predicted_ms"] * 1000)
    assert 0 < timings["draft_n_accepted"] <= timings["draft_n"] and timings["drafts"] > 0
    assert timings["draft_wait_ms"] >= 0


def test_a_request_chooses_the_mode_and_not_the_text(pair):
    plain = ask(pair, x_thermocline={"speculation": "off"})
    assert plain["timings"]["draft_n"] == 0
    for mode in MODES:
        assert text_of(ask(pair, x_thermocline={"speculation": mode})) == text_of(plain), mode
    assert ask(pair, x_thermocline={"speculation": "sync", "draft_tokens": 0})["timings"]["draft_n"] == 0
    short = ask(pair, x_thermocline={"speculation": "sync", "draft_tokens": 2})["timings"]
    assert 0 < short["draft_n"] <= 2 * short["drafts"]


def test_the_last_chunk_of_a_stream_has_the_timings(pair):
    client = openai.OpenAI(base_url=pair.url + "/v1", api_key="none", max_retries=0)
    create = lambda **more: list(client.chat.completions.create(model="tidepool", messages=STORY, temperature=0, max_tokens=60, stream=True,
                                                               extra_body={"x_thermocline": {"speculation": "sync"}}, **more))
    for chunks in (create(), create(stream_options={"include_usage": True})):
        assert [c for c in chunks if hasattr(c, "timings")] == [chunks[-1]]
        assert chunks[-1].timings["draft_n"] > 0 and chunks[-1].timings["predicted_n"] > 0


@pytest.mark.parametrize("extension,param", [
    ({"speculation": "on"}, "x_thermocline.speculation"), ({"speculation": 1}, "x_thermocline.speculation"), ({"draft_tokens": 21}, "x_thermocline.draft_tokens"),
    ({"draft_tokens": -1}, "x_thermocline.draft_tokens"), ({"draft_token": 1}, "x_thermocline.draft_token"),
])
def test_what_is_refused(pair, extension, param):
    answer = httpx.post(pair.url + "/v1/chat/completions", json={"messages": STORY, "x_thermocline": extension})
    assert answer.status_code == 400 and answer.json()["error"]["param"] == param


def test_counters_grow_by_what_answers_say(pair):
    before = samples(pair)
    timings = ask(pair, x_thermocline={"speculation": "branch"})["timings"]
    after = samples(pair)
    grown = lambda name: total(after, name) - total(before, name)
    assert grown("spec_decode_num_drafts_total") == timings["drafts"] > 0
    assert grown("spec_decode_num_draft_tokens_total") == timings["draft_n"]
    assert grown("spec_decode_num_accepted_tokens_total") == timings["draft_n_accepted"]
    assert grown("spec_decode_num_accepted_tokens_per_pos_total") == timings["draft_n_accepted"]
    assert grown("spec_branch_hits_total") == timings["branch_hits"] and grown("spec_branch_misses_total") == timings["branch_misses"]
    assert grown("spec_draft_wait_seconds_total") * 1000 == pytest.approx(timings["draft_wait_ms"], abs=0.01)
    assert grown("spec_draft_seconds_total") > 0 and grown("spec_verify_seconds_total") > 0
    assert grown("spec_drafted_tokens_total") - grown("spec_wasted_tokens_total") == timings["draft_n_accepted"]


def test_metrics_are_well_formed(pair):
    ask(pair)
    text = httpx.get(pair.url + "/metrics").text
    families = {f.name: f for f in text_string_to_metric_families(text) if f.name.startswith("thermocline_spec_")}
    for name, family in families.items():
        assert family.documentation and family.type in ("counter", "gauge"), name
        assert len({tuple(sorted(s.labels.items())) for s in family.samples}) == len(family.samples), name
    counters = {name for name, f in families.items() if f.type == "counter"}
    expected = {"decode_num_drafts", "decode_num_draft_tokens", "decode_num_accepted_tokens", "decode_num_accepted_tokens_per_pos", "branch_hits", "branch_misses",
                "draft_wait_seconds", "draft_seconds", "verify_seconds", "drafted_tokens", "wasted_tokens", "plain_steps"}
    assert counters == {"thermocline_spec_" + name for name in expected}
    positions = families["thermocline_spec_decode_num_accepted_tokens_per_pos"].samples
    assert {s.labels["position"] for s in positions} == {str(i) for i in range(20)}
    assert {s.labels["k"] for s in families["thermocline_spec_branch_hits"].samples} == {str(k) for k in range(21)}
    [info] = families["thermocline_spec_info"].samples
    assert info.value == 1 and info.labels["mode"] == "auto" and info.labels["source"] == "model" and info.labels["fallback"] == ""
    assert info.labels["mode_now"] in ("off", "sync", "branch", "exhaustive")
    assert 0 <= families["thermocline_spec_acceptance"].samples[0].value <= 1


def test_status_says_how_drafts_are_made(pair):
    ask(pair)
    speculation = httpx.get(pair.url + "/v1/status").json()["speculation"]
    assert speculation["mode"] == "auto" and speculation["source"] == "model" and speculation["fallback"] is None
    assert speculation["draft"].endswith("tidepool-draft.gguf")


def test_by_default_drafts_are_looked_up_and_off_means_off():
    with Daemon() as daemon:
        assert httpx.get(daemon.url + "/v1/status").json()["speculation"]["source"] == "ngram"
        plain = ask(daemon, x_thermocline={"speculation": "off"})
        assert text_of(ask(daemon)) == text_of(plain)
    with Daemon("spec.mode=off") as daemon:
        assert httpx.get(daemon.url + "/v1/status").json()["speculation"] is None
        assert ask(daemon)["timings"]["draft_n"] == 0
        refused = httpx.post(daemon.url + "/v1/chat/completions", json={"messages": STORY, "x_thermocline": {"speculation": "sync"}})
        assert refused.status_code == 400 and refused.json()["error"]["param"] == "x_thermocline.speculation"
        assert not any(name.startswith("spec_") for name, _ in samples(daemon))


@pytest.fixture(scope="module")
def alone():
    """A daemon whose model drafts for itself while it verifies, and skips neurons by a controlled predictor that is audited."""
    with Daemon("spec.source=self", "spec.mode=branch", "spec.fixed=true", "spec.self_shift=20", "engine.audit_interval=2", "engine.audit_shadow=sign",
                "engine.quantum_tokens=4", "log.level=info") as daemon:
        yield daemon


LONG = [{"role": "user", "content": "Tell me a story about an owl. " + "The owl sat in a tree and looked at the moon and at the stars. " * 8}]


def test_a_model_that_drafts_for_itself_ahead_changes_no_text(alone):
    for messages in (STORY, LONG):
        plain = ask(alone, messages=messages, x_thermocline={"speculation": "off"})
        for mode in MODES:
            answer = ask(alone, messages=messages, x_thermocline={"speculation": mode})
            assert text_of(answer) == text_of(plain), mode
            # On a prompt from the prefix cache, too: of STORY that is a part of a block, of LONG more than two.
            assert answer["timings"]["cache_n"] > (128 if messages is LONG else 8)
    assert "can draft while the model verifies" in alone.text()
    status = httpx.get(alone.url + "/v1/status").json()["speculation"]
    assert status["source"] == "self" and status["not_ahead"] is None
    values = samples(alone)
    assert total(values, "spec_branch_hits_total") > 0 and total(values, "spec_branch_misses_total") > 0


def test_several_choices_and_requests_in_turns_change_no_text(alone):
    def choices(mode, seed):
        answer = ask(alone, n=3, temperature=0.8, seed=seed, max_tokens=60, x_thermocline={"speculation": mode})
        return [choice["message"]["content"] for choice in answer["choices"]]
    plain = {seed: choices("off", seed) for seed in range(3)}
    assert len(set(plain[0])) == 3
    with ThreadPoolExecutor(3) as pool:
        drafted = {seed: pool.submit(choices, "branch", seed) for seed in range(3)}
        # One of them leaves in the middle of it, and the configuration is loaded again.
        with httpx.stream("POST", alone.url + "/v1/chat/completions", json={"messages": LONG, "stream": True, "x_thermocline": {"speculation": "exhaustive"}}) as stream:
            next(stream.iter_lines())
        assert alone.admin.post("/admin/reload", headers={"content-type": "application/json"}).json() == {"status": "reloaded"}
        assert {seed: future.result() for seed, future in drafted.items()} == plain


def test_a_model_that_was_loaded_to_draft_in_turn_says_so():
    with Daemon("spec.source=self", "spec.mode=sync") as daemon:
        refused = httpx.post(daemon.url + "/v1/chat/completions", json={"messages": STORY, "x_thermocline": {"speculation": "branch"}})
        error = refused.json()["error"]
        assert refused.status_code == 400 and error["param"] == "x_thermocline.speculation" and "spec.mode sync takes no threads" in error["message"]
        assert "spec.mode sync" in httpx.get(daemon.url + "/v1/status").json()["speculation"]["not_ahead"]
        [labels] = [dict(labels) for name, labels in samples(daemon) if name == "spec_info"]
        assert "spec.mode sync" in labels["not_ahead"]


def test_a_draft_that_cannot_be_loaded_ends_the_daemon_unless_it_is_not_required(tmp_path):
    settings = ["server.port=0", f"spec.draft={tmp_path}/none.gguf"]
    done = subprocess.run([str(BIN / "thermoclined"), *[a for s in settings for a in ("--set", s)]], capture_output=True, timeout=30)
    assert done.returncode != 0 and b"none.gguf" in done.stderr
    with Daemon(settings[1], "spec.required=false") as daemon:
        assert "none.gguf" in daemon.text()
        speculation = httpx.get(daemon.url + "/v1/status").json()["speculation"]
        assert "none.gguf" in speculation["fallback"] and speculation["source"] == "ngram"
        [labels] = [dict(labels) for name, labels in samples(daemon) if name == "spec_info"]
        assert "none.gguf" in labels["fallback"]
        assert text_of(ask(daemon))
