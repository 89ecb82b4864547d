"""The parts that the programs are built from, and that they can be built again."""
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BIN = Path(os.environ.get("THERMOCLINE_BIN", ROOT / "build/release/bin"))


@pytest.fixture(scope="module")
def text():
    return subprocess.run([sys.executable, ROOT / "deploy/sbom.py", str(BIN)], capture_output=True, text=True, check=True).stdout


def test_the_bill_of_materials_is_valid(text):
    from cyclonedx.schema import SchemaVersion
    from cyclonedx.validation.json import JsonStrictValidator
    assert JsonStrictValidator(SchemaVersion.V1_5).validate_str(text) is None


def test_every_library_is_in_it(text):
    document = json.loads(text)
    names = {component["name"] for component in document["components"]}
    for line in subprocess.run(["ldd", BIN / "thermoclined"], capture_output=True, text=True, check=True).stdout.splitlines():
        if match := re.search(r"=> (/\S+)", line):
            owner = subprocess.run(f"dpkg -S {Path(match[1]).resolve()} || dpkg -S {match[1]} || dpkg -S {match[1].removeprefix('/usr')}", shell=True, capture_output=True, text=True).stdout.split(":")[0]
            assert owner in names, match[1]
    assert {"libboost1.81-dev", "nlohmann-json3-dev", "g++"} <= names
    for component in document["components"]:
        assert component["version"] and component["licenses"] and component["purl"].startswith("pkg:deb/")


def test_licences_are_listed(text):
    table = subprocess.run([sys.executable, ROOT / "deploy/sbom.py", str(BIN), "--licences"], capture_output=True, text=True, check=True).stdout
    assert len(table.splitlines()) == len(json.loads(text)["components"]) and "Apache-2.0" in table


def test_no_path_of_the_checkout_is_in_a_program():
    """deploy/reproducible.sh, which takes two builds, compares the bytes."""
    for program in ("thermocline", "thermoclined", "thermocline-load"):
        assert str(ROOT).encode() not in (BIN / program).read_bytes(), program
