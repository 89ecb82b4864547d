"""timings.cache_miss_at and prefix_cache.log_differences: where a prompt leaves the way of one that is cached."""
import httpx
from conftest import Daemon

PROMPT = [5 + i % 90 for i in range(120)]


def timings(d, prompt):
    answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0}, timeout=60)
    assert answer.status_code == 200, answer.text
    return answer.json()["timings"]


def test_the_first_token_that_differs_is_told_and_none_where_a_prompt_goes_on():
    with Daemon("spec.mode=off") as d:
        assert "cache_miss_at" not in timings(d, PROMPT)
        for at in (1, 63, 64, 100):
            changed = [*PROMPT[:at], 3, *PROMPT[at + 1:]]
            assert timings(d, changed)["cache_miss_at"] == at
        assert "cache_miss_at" not in timings(d, [*PROMPT, 7, 8, 9])
        assert "cache_miss_at" not in timings(d, [4, *PROMPT])  # nothing before it is cached


def test_the_log_has_the_text_on_both_sides_of_a_difference_only_if_asked_for():
    story = "Once upon a time there was a little owl who lived in an old tree by the river and liked to sing at night. "
    prompts = (story + "The fox came by and said hello to the owl.", story + "The bear came by\nand said hello to the owl.")

    def ask(d):
        for prompt in prompts:
            answer = httpx.post(d.url + "/v1/completions", json={"prompt": prompt, "max_tokens": 1, "temperature": 0}, timeout=60)
            assert answer.status_code == 200, answer.text
        return answer.json()["timings"]["cache_miss_at"]

    with Daemon("spec.mode=off", "prefix_cache.log_differences=true") as d:
        assert d.logged("prefix_cache.log_differences: parts of prompts are written to the log")
        at = ask(d)
        line, = d.logged("differs from a cached one")
    assert f"at token {at}: after '" in line
    before, own, cached = (part.split("'")[0] for part in (line.split("after '")[1], line.split("it has '")[1], line.split("instead of '")[1]))
    assert (story + "The").endswith(before) and 20 < len(before) < len(story)
    assert own.startswith(" bear came by\\nand") and cached.startswith(" fox came by and")
    with Daemon("spec.mode=off") as d:
        ask(d)
        d.terminate()
        d.wait()
        assert "owl" not in d.text() and "differs from" not in d.text()
