"""Short runs of tests/chaos: they start, and their checks hold."""
import subprocess
import sys

from conftest import ROOT


def test_chaos():
    result = subprocess.run([sys.executable, ROOT / "tests/chaos/chaos.py", "--minutes", "0.7"], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert " equal" in result.stdout and "normal again" in result.stdout


def test_a_crowd():
    result = subprocess.run([sys.executable, ROOT / "tests/chaos/crowd.py", "--minutes", "0.2", "--quiet-minutes", "0.1"], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stdout + result.stderr[-3000:]
    assert " left" in result.stdout and "malformed, refused" in result.stdout
