"""tests/gpu/measure.sh: a part that fails or hangs ends alone, and completed parts are kept."""
import json
import subprocess
from pathlib import Path

import pytest

MEASURE = Path(__file__).parents[2] / "tests/gpu/measure.sh"

# Instead of thermocline-gpu-test: parts that pass, fault, fail, and never end.
PROGRAM = """#!/bin/bash
case "$*" in
  *--list*) printf '%s\\n' passes faults fails hangs also_passes speeds ;;
  *faults*) echo '{"check": "before the fault", "ok": true}'; kill -SEGV $$ ;;
  *fails*) echo "error: wrong"; exit 1 ;;
  *hangs*) sleep 600 ;;
  *) echo '{"check": "a", "ok": true}' ;;
esac
"""


def measure(folder, *options):
    (folder / "thermocline-gpu-test").write_text(PROGRAM)
    (folder / "thermocline-gpu-test").chmod(0o755)
    # A part's limit is minutes: here it is ten seconds.
    script = MEASURE.read_text().replace('"check_$part" 240', '"check_$part" 10').replace('cd "$(dirname', f'cd "{MEASURE.parents[2]}"; : "$(dirname')
    (folder / "measure.sh").write_text(script)
    return subprocess.run(["bash", folder / "measure.sh", "--brief", "--bin", folder, "--out", folder / "out", *options], capture_output=True, text=True, timeout=120)


def test_a_fault_ends_its_part_alone(tmp_path):
    run = measure(tmp_path)
    assert run.returncode == 1, run.stdout + run.stderr
    lines = {line.split()[0]: line for line in run.stdout.splitlines() if line.strip()}
    assert " ok " in lines["check_passes"] and " ok " in lines["check_also_passes"]
    assert "FAILED   exit code 139" in lines["check_faults"] and "error: wrong" in lines["check_fails"] and "longer than 10 s" in lines["check_hangs"]
    assert "FAILED in" in run.stdout
    results = json.loads((tmp_path / "out/results.json").read_text())
    assert {"check": "before the fault", "ok": True} in results
    assert {r["step"]: r["exit_code"] for r in results if "step" in r} == {
        "probe": 0, "check_passes": 0, "check_faults": 139, "check_fails": 1, "check_hangs": 124, "check_also_passes": 0}


def test_time_that_runs_out_is_said(tmp_path):
    run = measure(tmp_path, "--minutes", "0")
    assert run.returncode == 1 and "INCOMPLETE" in run.stdout and "not run: the 0 minutes are over" in run.stdout


@pytest.mark.parametrize("options", [["--what"], ["--minutes"]])
def test_wrong_options_are_refused(options):
    run = subprocess.run([MEASURE, *options], capture_output=True, text=True, timeout=20)
    assert run.returncode != 0 and run.stderr


@pytest.mark.parametrize("on_gpu, code, said", [
    ("echo same", 0, "the same text"),
    ("echo other", 1, "the texts differ"),
    ("echo 'it would make no token faster' >&2; exit 1", 77, "would make no token faster"),
    ("echo 'a fault' >&2; exit 1", 1, "a fault")])
def test_texts_are_compared(tmp_path, on_gpu, code, said):
    program = tmp_path / "thermocline"
    program.write_text(f'#!/bin/bash\ncase "$*" in *"--device cuda"*) {on_gpu} ;; *) echo same ;; esac\n')
    program.chmod(0o755)
    run = subprocess.run([MEASURE.parent / "text.sh", program, "exact", "0"], capture_output=True, text=True, timeout=20)
    assert run.returncode == code and said in run.stdout
