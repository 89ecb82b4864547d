"""The chat page in a real browser: a person types, the model answers."""
import contextlib
import json
import shutil
import subprocess
import urllib.request

import httpx
import pytest
from axe_selenium_python import Axe
from conftest import BIN, Daemon
from daemon_client import value
from selenium import webdriver
from selenium.common.exceptions import ElementNotInteractableException, StaleElementReferenceException
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait


@pytest.fixture(scope="module")
def daemon():
    # The page leaves the temperature to the daemon. At 1, one story in a hundred is a few words long.
    with Daemon("sampling.temperature=0") as d:
        yield d


@pytest.fixture
def browser(tmp_path):
    assert shutil.which("chromium") and shutil.which("chromedriver"), "install chromium-driver (deploy/install-deps.sh --tests)"
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1200,900", f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def slow(smollm):
    """A model whose long answers last some seconds, for tests during an answer."""
    with Daemon(f"model.path={smollm}", "sampling.temperature=0") as d:
        yield d


def opened(daemon, browser, path="/", name="tidepool"):
    browser.get(daemon.url + path)
    wait(browser, lambda b: b.execute_script("return document.getElementById('hint').textContent !== ''"))
    wait(browser, lambda b: b.find_element(By.ID, "model").text == name if name else "SmolLM2" in b.find_element(By.ID, "model").text)


def wait(browser, condition):
    WebDriverWait(browser, 60).until(condition)


def open_chat(browser, words):
    """Once it is in the list, which is drawn anew while an answer is saved."""
    def opened(b):
        for entry in b.find_elements(By.CSS_SELECTOR, "#chats .open"):
            if words in entry.text:
                entry.click()
                return True
        return False
    WebDriverWait(browser, 60, ignored_exceptions=[StaleElementReferenceException]).until(opened)


def texts(browser, role):
    return [m.text for m in browser.find_elements(By.CSS_SELECTOR, f".message.{role} .{'plain' if role == 'user' else 'text:last-of-type'}")]


def answers(browser):
    """The answers that are complete: a foot is shown with the last event."""
    return browser.find_elements(By.CSS_SELECTOR, ".message.assistant .foot")


def ask(browser, text):
    browser.find_element(By.ID, "input").send_keys(text + Keys.ENTER)


def running(browser):
    return browser.find_element(By.ID, "stop").is_displayed()


def answer_length(browser):
    return browser.execute_script("return [...document.querySelectorAll('.message.assistant')].at(-1)?.textContent.length || 0")


def begin_a_long_answer(browser):
    ask(browser, "Write a very long story about a fox, in twenty chapters.")
    wait(browser, lambda b: answer_length(b) > 40)
    assert running(browser)


def errors(browser):
    return [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]


def test_a_browser_chats(daemon, browser):
    opened(daemon, browser)
    assert len(browser.find_elements(By.CSS_SELECTOR, "#examples button")) == 3
    browser.find_element(By.ID, "input").send_keys("Tell me a story about an owl.")
    browser.find_element(By.ID, "send").click()
    wait(browser, lambda b: len(answers(b)) == 1)
    question, answer = browser.find_elements(By.CLASS_NAME, "message")
    assert "Tell me a story about an owl." in question.text and "owl" in answer.text and len(answer.text) > 200
    assert "tokens/s" in browser.find_element(By.CLASS_NAME, "usage").text
    browser.find_element(By.ID, "new").click()
    assert not browser.find_elements(By.CLASS_NAME, "message") and not errors(browser)


def test_a_link_can_carry_the_question_and_markup_stays_text(daemon, browser):
    opened(daemon, browser, "/?q=Hello%20%3Cb%3Eyou%3C/b%3E")
    wait(browser, lambda b: len(answers(b)) == 1)
    assert browser.find_element(By.CSS_SELECTOR, ".message.user .plain").text == "Hello <b>you</b>"
    assert not browser.find_elements(By.CSS_SELECTOR, "#messages b") and not errors(browser)


def test_an_answer_belongs_to_its_chat_and_chats_outlive_a_reload(slow, browser):
    opened(slow, browser, name=None)
    begin_a_long_answer(browser)
    browser.find_element(By.ID, "new").click()
    ask(browser, "What is two and two?")
    wait(browser, running)
    wait(browser, lambda b: answer_length(b) > 40)  # stopped before it says anything, it leaves nothing
    with contextlib.suppress(ElementNotInteractableException):  # a short answer may have ended by now
        browser.find_element(By.ID, "stop").click()
    wait(browser, lambda b: not running(b))
    assert [m.text for m in browser.find_elements(By.CSS_SELECTOR, ".message.user .plain")] == ["What is two and two?"]
    assert len(browser.find_elements(By.CSS_SELECTOR, ".message.assistant")) == 1
    opened(slow, browser, name=None)
    wait(browser, lambda b: len(b.find_elements(By.CSS_SELECTOR, "#chats li")) == 2)
    open_chat(browser, "very long")
    wait(browser, lambda b: answer_length(b) > 0)  # what was written before the reload
    assert "two and two" not in browser.find_element(By.ID, "messages").text


def test_an_answer_goes_on_while_another_chat_is_open(slow, browser):
    opened(slow, browser, name=None)
    begin_a_long_answer(browser)
    before = answer_length(browser)
    browser.find_element(By.ID, "new").click()
    wait(browser, lambda b: not running(b) and not b.find_elements(By.CLASS_NAME, "message"))
    open_chat(browser, "very long")
    wait(browser, lambda b: running(b) and answer_length(b) > before + 50)
    browser.find_element(By.ID, "stop").click()
    wait(browser, lambda b: b.find_elements(By.CLASS_NAME, "ending"))
    assert "Stopped." in browser.find_element(By.CLASS_NAME, "ending").text and not errors(browser)


def test_enter_during_an_answer_loses_nothing_and_escape_stops_it(slow, browser):
    opened(slow, browser, name=None)
    begin_a_long_answer(browser)
    ask(browser, "A thought meanwhile")
    assert running(browser) and browser.find_element(By.ID, "input").get_attribute("value") == "A thought meanwhile"
    assert "still being written" in browser.find_element(By.ID, "hint").text
    browser.find_element(By.ID, "input").send_keys(Keys.ESCAPE)
    wait(browser, lambda b: not running(b))
    assert browser.find_element(By.ID, "input").get_attribute("value") == "A thought meanwhile"
    assert browser.find_element(By.CLASS_NAME, "ending").text == "Stopped." and len(browser.find_elements(By.CLASS_NAME, "message")) == 2


def test_scrolling_is_the_readers(slow, browser):
    browser.set_window_size(900, 420)
    opened(slow, browser, name=None)
    begin_a_long_answer(browser)
    wait(browser, lambda b: b.execute_script("const l = document.getElementById('log'); return l.scrollHeight > 2 * l.clientHeight"))
    assert running(browser)
    browser.execute_script("document.getElementById('log').scrollTop = 0")
    before = answer_length(browser)
    wait(browser, lambda b: answer_length(b) > before + 100)
    assert browser.execute_script("return document.getElementById('log').scrollTop") == 0
    browser.find_element(By.ID, "to-end").click()
    before = answer_length(browser)
    wait(browser, lambda b: answer_length(b) > before + 100)
    wait(browser, lambda b: b.execute_script("const l = document.getElementById('log'); return l.scrollHeight - l.scrollTop - l.clientHeight < 24"))
    browser.find_element(By.ID, "stop").click()


def test_tool_calls_are_shown_and_take_results(slow, browser):
    opened(slow, browser, name=None)
    browser.find_element(By.ID, "settings-open").click()
    tool = {"name": "get_weather", "parameters": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Lima"]}}, "required": ["city"], "additionalProperties": False}}
    browser.find_element(By.ID, "set-tools").send_keys(json.dumps(tool))
    browser.find_element(By.ID, "set-tool_choice").send_keys("required")
    browser.find_element(By.ID, "set-max_tokens").send_keys("60")
    browser.find_element(By.ID, "settings-save").click()
    ask(browser, "What is the weather in Oslo?")
    wait(browser, lambda b: len(answers(b)) == 1)
    call = browser.find_element(By.CLASS_NAME, "call")
    assert "get_weather" in call.text and json.loads(call.find_element(By.TAG_NAME, "code").text)["city"] in ("Oslo", "Lima")
    for result in browser.find_elements(By.CSS_SELECTOR, "textarea.result"):
        result.send_keys("12 degrees")
    browser.find_element(By.CSS_SELECTOR, "form.results button").click()
    wait(browser, lambda b: len(answers(b)) == 2)
    assert "12 degrees" in browser.find_element(By.CSS_SELECTOR, ".message.tool").text and not errors(browser)


def test_chats_are_exported_and_imported(daemon, browser, tmp_path):
    chat = {"id": "a", "title": "From a file", "messages": [{"role": "user", "content": "**Hi**"}, {"role": "assistant", "content": "**Bold** <img src=x onerror=alert(1)> [x](javascript:alert(1))", "ended": "stop"}]}
    file = tmp_path / "chats.json"
    file.write_text(json.dumps({"format": "thermocline-chats", "version": 1, "chats": [chat]}))
    downloads = tmp_path / "downloads"
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(downloads)})
    opened(daemon, browser)
    browser.find_element(By.ID, "import-file").send_keys(str(file))
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "#chats .open"))
    browser.find_element(By.CSS_SELECTOR, "#chats .open").click()
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".message.assistant strong"))
    assert not browser.find_elements(By.CSS_SELECTOR, "#messages img, #messages a") and "onerror" in browser.find_element(By.ID, "messages").text
    browser.find_element(By.ID, "export").click()
    saved = downloads / "thermocline-chats.json"
    wait(browser, lambda b: saved.exists())
    assert json.loads(saved.read_text())["chats"][0]["messages"] == chat["messages"]
    file.write_text("[]")
    browser.find_element(By.ID, "import-file").send_keys(str(file))
    wait(browser, lambda b: "no exported chats" in b.find_element(By.ID, "notice-text").text)


def test_markdown_without_ends_is_read_at_once(daemon, browser, tmp_path):
    """These would take hours if every mark were searched to the text's end."""
    wild = {"links": "[" * 100000 + "](x)", "images": "![" * 50000 + "](x)", "stars": "*a " * 50000, "ticks": "`" + "``` " * 50000, "tildes": "~~a " * 50000}
    file = tmp_path / "wild.json"
    file.write_text(json.dumps({"format": "thermocline-chats", "version": 1, "chats": [
        {"id": name, "title": name, "messages": [{"role": "user", "content": name}, {"role": "assistant", "content": text, "ended": "stop"}]} for name, text in wild.items()]}))
    opened(daemon, browser)
    browser.find_element(By.ID, "import-file").send_keys(str(file))
    wait(browser, lambda b: len(b.find_elements(By.CSS_SELECTOR, "#chats .open")) >= len(wild))
    for name in wild:
        browser.execute_script("[...document.querySelectorAll('#chats .open')].find(b => b.textContent.includes(arguments[0])).click()", name)
        shown = "return [...document.querySelectorAll('.message')].map(e => e.textContent).join(' ')"
        wait(browser, lambda b: name in b.execute_script(shown) and len(b.execute_script(shown)) > 40000)


MATHEMATICS = [r"\(a^2 + b_1*c_1*d\)", r"\[\int_0^1 x\,dx\]", r"$a_1 \, b_1$", r"$$x \; y$$", r"a \, b \; c"]


def test_mathematics_keeps_its_marks(daemon, browser, tmp_path):
    lines = "\\[\na = b \\\\\n- c + d\n\\]"
    file = tmp_path / "math.json"
    file.write_text(json.dumps({"format": "thermocline-chats", "version": 1, "chats": [{"id": "m", "title": "Math", "messages": [
        {"role": "user", "content": "?"}, {"role": "assistant", "content": "\n\n".join([*MATHEMATICS, lines, "It costs $5, or **$6** and \\*no\\*."]), "ended": "stop"}]}]}))
    opened(daemon, browser)
    browser.find_element(By.ID, "import-file").send_keys(str(file))
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "#chats .open"))
    browser.find_element(By.CSS_SELECTOR, "#chats .open").click()
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, ".message.assistant strong"))
    shown = [p.get_attribute("textContent") for p in browser.find_elements(By.CSS_SELECTOR, ".message.assistant .text p")]
    assert shown == [*MATHEMATICS, lines, "It costs $5, or $6 and *no*."]


def test_the_list_changes_behind_a_rename(daemon, browser, tmp_path):
    chats = [{"id": n, "title": n, "messages": [{"role": "user", "content": n}]} for n in ("one", "two")]
    file = tmp_path / "chats.json"
    file.write_text(json.dumps({"format": "thermocline-chats", "version": 1, "chats": chats}))
    titles = lambda b: b.execute_script("return [...document.querySelectorAll('#chats .title')].map(e => e.textContent).sort()")
    opened(daemon, browser)
    browser.find_element(By.ID, "import-file").send_keys(str(file))
    wait(browser, lambda b: titles(b) == ["one", "two"])
    browser.execute_script("document.querySelector('#chats [aria-label=\"Rename one\"]').click()")
    name = browser.find_element(By.CSS_SELECTOR, "#chats input")
    name.send_keys("three" + Keys.ENTER)
    wait(browser, lambda b: titles(b) == ["three", "two"])
    file.write_text(json.dumps({"format": "thermocline-chats", "version": 1, "chats": [{"id": "four", "title": "four", "messages": chats[0]["messages"]}]}))
    browser.find_element(By.ID, "import-file").send_keys(str(file))
    wait(browser, lambda b: titles(b) == ["four", "three", "two"])
    browser.find_element(By.ID, "delete-all").click()
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "dialog[open]"))
    browser.execute_script("[...document.querySelectorAll('dialog[open] button')].find(b => b.textContent.includes('Delete')).click()")
    wait(browser, lambda b: titles(b) == [])
    assert not errors(browser)


def test_only_what_works_is_offered(daemon, browser):
    opened(daemon, browser)
    browser.find_element(By.ID, "settings-open").click()
    offered = [o.get_attribute("value") for o in browser.find_elements(By.CSS_SELECTOR, "#set-ffn_mode option")]
    assert offered == ["", "dense", "exact"]
    status = httpx.get(daemon.url + "/v1/status").json()["modes"]
    assert status["offered"] == offered[1:] and set(status["layers"]) <= {"dense", "exact"} and len(status["layers"]) == 6
    for mode in ("sign", "lowrank"):
        answer = httpx.post(daemon.url + "/v1/completions", json={"prompt": "Once", "max_tokens": 1, "x_thermocline": {"ffn_mode": mode}})
        assert answer.status_code == 400 and not answer.json()["error"]["message"].lower().startswith("ffn_mode")
    browser.find_element(By.ID, "settings-close").click()
    examples = [b.text for b in browser.find_elements(By.CSS_SELECTOR, "#examples button")]
    assert len(examples) == 3 and all("story" in text for text in examples)


def test_regenerate_and_edit(daemon, browser):
    opened(daemon, browser)
    ask(browser, "Tell me a story about an owl.")
    wait(browser, lambda b: len(answers(b)) == 1)
    first = browser.find_element(By.CSS_SELECTOR, ".message.assistant .text:not(:empty)").text
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Regenerate']").click()
    wait(browser, lambda b: len(answers(b)) == 1 and b.find_element(By.ID, "stop").get_attribute("hidden"))
    assert browser.find_element(By.CSS_SELECTOR, ".message.assistant .text:not(:empty)").text == first  # temperature 0
    browser.find_element(By.CSS_SELECTOR, "[aria-label='Edit and ask again']").click()
    area = browser.find_element(By.CSS_SELECTOR, "form.edit textarea")
    area.clear()
    area.send_keys("Tell me a story about a crab." + Keys.CONTROL + Keys.ENTER)
    wait(browser, lambda b: len(answers(b)) == 1 and "crab" in b.find_element(By.ID, "messages").text)
    assert len(browser.find_elements(By.CLASS_NAME, "message")) == 2 and not errors(browser)


def test_an_error_leaves_no_empty_message(daemon, browser):
    opened(daemon, browser)
    browser.execute_script("document.getElementById('input').value = 'word '.repeat(9000)")
    ask(browser, "end")
    wait(browser, lambda b: b.find_element(By.ID, "failure").is_displayed())
    assert "too long for the model" in browser.find_element(By.ID, "failure-text").text
    assert not browser.find_elements(By.CSS_SELECTOR, ".message.assistant")


def test_settings_become_fields_of_the_request(daemon, browser):
    opened(daemon, browser)
    browser.find_element(By.ID, "settings-open").click()
    browser.find_element(By.ID, "set-max_tokens").send_keys("5")
    browser.find_element(By.ID, "set-ffn_mode").send_keys("exact")
    browser.find_element(By.ID, "settings-save").click()
    ask(browser, "Tell me a story about an owl.")
    wait(browser, lambda b: len(answers(b)) == 1)
    assert "5 written" in browser.find_element(By.CLASS_NAME, "usage").text
    assert "limit of tokens" in browser.find_element(By.CLASS_NAME, "ending").text


def test_the_live_view_shows_the_engine(daemon, browser):
    opened(daemon, browser)
    browser.find_element(By.ID, "live-toggle").click()
    ask(browser, "Tell me a story about an owl.")
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "#live .heat-map td.heat"))
    assert "Layers" in browser.find_element(By.ID, "live").text and not errors(browser)


def test_the_live_views_speed_is_the_answers(slow, browser):
    opened(slow, browser, name=None)
    begin_a_long_answer(browser)
    wait(browser, lambda b: answer_length(b) > 600)
    browser.find_element(By.ID, "stop").click()
    wait(browser, lambda b: not running(b))
    body = {"messages": [{"role": "user", "content": "Count."}], "max_tokens": 100, "ignore_eos": True}
    said = httpx.post(slow.url + "/v1/chat/completions", json=body, timeout=60).json()["timings"]["predicted_per_second"]
    browser.find_element(By.ID, "live-toggle").click()
    scrapes = "return (document.querySelector('#live .spark polyline')?.getAttribute('points') || '').split(' ').length"
    wait(browser, lambda b: b.execute_script(scrapes) >= 3)  # seconds in which nothing is decoded
    shown = browser.execute_script("return [...document.querySelectorAll('#live .figure')].find(f => f.textContent.startsWith('Tokens per second')).querySelector('b').textContent")
    assert 0.4 * said < float(shown.replace(",", "")) < 2.5 * said, (shown, said)


def test_a_key_is_asked_for_where_one_is_needed(browser, tmp_path):
    keys = tmp_path / "keys"
    keys.write_bytes(subprocess.run([BIN / "thermoclined", "--hash-key", "team"], input=b"correct-horse-battery\n", capture_output=True, check=True).stdout)
    with Daemon(f"server.api_keys_file={keys}") as daemon:
        browser.get(daemon.url)
        wait(browser, lambda b: b.find_element(By.ID, "key").is_displayed())
        browser.find_element(By.ID, "key-input").send_keys("correct-horse-battery" + Keys.ENTER)
        wait(browser, lambda b: b.find_element(By.ID, "model").text == "tidepool")
        ask(browser, "Hello")
        wait(browser, lambda b: len(answers(b)) == 1)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1200])
def test_axe_finds_nothing_serious(daemon, browser, theme, width):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {"width": width, "height": 780, "deviceScaleFactor": 1, "mobile": False})
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": theme}]})
    opened(daemon, browser)
    ask(browser, "Tell me a story about an owl.")
    wait(browser, lambda b: len(answers(b)) == 1)
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    axe = Axe(browser)
    axe.inject()

    def check():
        found = [v for v in axe.run()["violations"] if v["impact"] in ("serious", "critical")]
        assert not found, axe.report(found)

    check()
    browser.find_element(By.ID, "live-toggle").click()
    wait(browser, lambda b: b.find_elements(By.CSS_SELECTOR, "#live .heat-map td.heat"))
    # Every shade, whatever the model's layers did.
    browser.execute_script("[...document.querySelectorAll('td.heat')].forEach((cell, i) => { cell.className = `heat heat${i % 10}`; })")
    check()
    browser.find_element(By.ID, "live-close").click()
    browser.find_element(By.ID, "settings-open").click()
    check()
    browser.find_element(By.ID, "settings").send_keys(Keys.ESCAPE)
    for dialog in ("key", "confirm"):
        browser.execute_script("document.getElementById(arguments[0]).showModal()", dialog)
        check()
        browser.execute_script("document.getElementById(arguments[0]).close()", dialog)


def test_the_page_is_one_small_file(daemon):
    page = urllib.request.urlopen(daemon.url).read()
    assert len(page) <= 150_000 and b"http://" not in page.replace(b"http://www.w3.org/", b"") and b"https://" not in page


def test_the_model_is_chosen_on_the_page(browser, smollm, tmp_path):
    path = tmp_path / "several.yaml"
    path.write_text(f"models:\n  - path: tidepool\n    name: tide\n  - path: {smollm}\n    name: smol\n    engine: {{context_length: 1024}}\nsampling: {{temperature: 0}}\n")
    with Daemon(config=path) as d:
        browser.get(d.url)
        choice = lambda: browser.find_element(By.ID, "model-choice")  # noqa: E731
        labels = lambda: [option.text for option in choice().find_elements(By.TAG_NAME, "option")]  # noqa: E731
        wait(browser, lambda b: b.find_elements(By.ID, "model-choice"))
        assert labels() == ["tide", "smol (asleep)"] and choice().get_attribute("value") == "tide"
        choice().find_elements(By.TAG_NAME, "option")[1].click()
        browser.find_element(By.ID, "input").send_keys("Say hello." + Keys.ENTER)
        wait(browser, answers)
        browser.execute_script("document.activeElement.blur()")
        wait(browser, lambda b: labels() == ["tide", "smol"])
        assert value(d, "generation_tokens_total", model="smol") > 0
        browser.find_element(By.ID, "live-toggle").click()
        wait(browser, lambda b: b.find_element(By.ID, "live-body").text)
        browser.get(d.url)  # the choice is kept
        wait(browser, lambda b: b.find_elements(By.ID, "model-choice") and choice().get_attribute("value") == "smol")
        assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"]
