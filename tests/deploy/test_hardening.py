"""The hardening of the programs, checked in their files."""
import os
import re
import subprocess
from pathlib import Path

import pytest

BIN = Path(os.environ.get("THERMOCLINE_BIN", Path(__file__).resolve().parents[2] / "build/release/bin"))


def readelf(program, *options):
    return subprocess.run(["readelf", "-W", *options, str(BIN / program)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("program", ["thermocline", "thermoclined", "thermocline-load"])
def test_programs_are_hardened(program):
    header, segments, dynamic = readelf(program, "-h"), readelf(program, "-l"), readelf(program, "-d")
    assert re.search(r"Type: +DYN \(Position-Independent Executable", header), "no PIE"
    assert "GNU_RELRO" in segments, "relocations stay writable"
    assert re.search(r"FLAGS_1.*NOW", dynamic), "functions are looked up lazily: their table stays writable"
    [stack] = re.findall(r"GNU_STACK +(?:0x\w+ +){5}(\w+)", segments)
    assert "E" not in stack, "the stack can be executed"
    writable = [line for line in segments.splitlines() if re.match(r" +LOAD", line) and re.search(r" RWE ", line)]
    assert not writable, "memory is writable and executable"
    assert "RPATH" not in dynamic and "RUNPATH" not in dynamic
    symbols = readelf(program, "--dyn-syms")
    assert "__stack_chk_fail" in symbols, "no canaries"
    assert re.search(r"__(memcpy|memset|snprintf|vsnprintf|memmove|read|pread)_chk", symbols), "sizes are not checked"
