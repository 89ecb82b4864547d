"""The packages that deploy/install-deps.sh chooses by /etc/os-release."""
import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("system, package", [
    ('ID=linuxmint\nVERSION_ID="22"\nID_LIKE="ubuntu debian"\nVERSION_CODENAME=wilma\nUBUNTU_CODENAME=noble\n', "libboost-dev"),
    ("ID=linuxmint\nVERSION_ID=6\nID_LIKE=debian\nVERSION_CODENAME=faye\nDEBIAN_CODENAME=bookworm\n", "libboost1.81-dev"),
    ('ID=nobara\nVERSION_ID=41\nID_LIKE="rhel centos fedora"\nPLATFORM_ID="platform:f41"\n', "boost-devel"),
    ('ID=linuxmint\nVERSION_ID="21"\nID_LIKE="ubuntu debian"\nUBUNTU_CODENAME=jammy\n', None),
    ('ID=rocky\nVERSION_ID=9.4\nID_LIKE="rhel centos fedora"\nPLATFORM_ID="platform:el9"\n', None),
])
def test_packages_of_systems_made_of_another(tmp_path, system, package):
    (tmp_path / "os-release").write_text(system)
    listed = subprocess.run([ROOT / "deploy/install-deps.sh", "--list"], capture_output=True, text=True, env={**os.environ, "THERMOCLINE_OS_RELEASE": str(tmp_path / "os-release")})
    if package:
        assert package in listed.stdout.split(), listed.stderr
    else:
        assert listed.returncode == 1 and re.match(r"ID=(\w+)", system)[1] in listed.stderr
