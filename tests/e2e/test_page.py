"""The chat page in a real browser: a person types, the model answers."""
import shutil

import pytest
from conftest import Daemon
from selenium import webdriver
from selenium.webdriver.common.by import By
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
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    yield driver
    driver.quit()


def messages(browser):
    return [m.text for m in browser.find_elements(By.CLASS_NAME, "message")]


def wait_for_answers(browser, count):
    WebDriverWait(browser, 60).until(lambda b: len(b.find_elements(By.CLASS_NAME, "speed")) == count)


def test_a_browser_chats(daemon, browser):
    browser.get(daemon.url)
    WebDriverWait(browser, 30).until(lambda b: b.find_element(By.ID, "model").text == "tidepool")
    browser.find_element(By.ID, "input").send_keys("Tell me a story about an owl.")
    browser.find_element(By.ID, "send").click()
    wait_for_answers(browser, 1)
    question, answer = messages(browser)
    assert question == "Tell me a story about an owl." and "owl" in answer and len(answer) > 200
    assert "tokens/s" in browser.find_element(By.CLASS_NAME, "speed").text
    browser.find_element(By.ID, "new").click()
    assert messages(browser) == []


def test_a_link_can_carry_the_question_and_markup_stays_text(daemon, browser):
    browser.get(daemon.url + "/?q=Hello%20%3Cb%3Eyou%3C/b%3E")
    wait_for_answers(browser, 1)
    assert messages(browser)[0] == "Hello <b>you</b>"
    assert not [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE" and "favicon" not in entry["message"]]
