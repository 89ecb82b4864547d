"""The chat page in a real browser: it asks the model and shows the answer."""
import shutil
import subprocess



def test_a_browser_chats(daemon, tmp_path):
    browser = shutil.which("chromium")
    assert browser, "install chromium (deploy/install-deps.sh --tests)"
    page = subprocess.run([browser, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={tmp_path}",
                           "--virtual-time-budget=15000", "--dump-dom", daemon.url + "/?q=Tell%20me%20a%20story%20about%20an%20owl."],
                          capture_output=True, timeout=120).stdout.decode()
    assert '<span id="model">tidepool</span>' in page
    assert '<div class="message user">Tell me a story about an owl.</div>' in page
    answer = page.split('<div class="message user">')[1].split('<div class="message">')[1].split("</div>")[0]
    assert "owl" in answer and len(answer) > 200
    assert "tokens/s" in page
