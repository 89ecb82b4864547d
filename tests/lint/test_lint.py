"""The house rules that a machine can check."""
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = [p for folder in ("kernels", "engine", "server", "tests") for p in (ROOT / folder).rglob("*") if p.suffix in (".h", ".cc", ".cu")]

# Folder -> folders whose headers it may include (its own always). CONTRIBUTING.md explains.
ARROWS = {
    "kernels": [],
    "engine/base": [],
    "engine/device": ["engine/base", "kernels"],
    "engine/model": ["engine/base", "kernels"],
    "engine/text": ["engine/model", "engine/base"],
    "engine/predictor": ["engine/model", "engine/base", "kernels"],
    "engine/placement": ["engine/model", "engine/base"],
    "engine/store": ["engine", "engine/model", "engine/base", "kernels"],
    "engine/exec": ["engine/device", "engine/placement", "engine/store", "engine/predictor", "engine/text", "engine/model", "engine/base", "kernels", "engine"],
    "engine/spec": ["engine/exec", "engine/base", "engine"],
    "engine/sched": ["engine/spec", "engine/exec", "engine/text", "engine/base", "engine"],
    "engine": ["engine/spec", "engine/exec", "engine/store", "engine/sched", "engine/text", "engine/model", "engine/base"],
    "engine/tools": ["engine", "engine/spec", "engine/device", "engine/placement", "engine/exec", "engine/store", "engine/predictor", "engine/text", "engine/model", "engine/base", "kernels"],
    "server/openai": ["engine", "engine/base", "engine/text"],
    "server/metrics": ["engine", "engine/base"],
    "server/http": ["server", "server/openai", "server/web", "engine", "engine/base", "engine/text"],
    "server/grpc": ["server", "server/http", "server/metrics", "engine", "engine/base", "engine/text"],
    "server/web": [],
    "server": ["server/grpc", "server/http", "server/metrics", "server/openai", "engine", "engine/base", "engine/text"],
}
# Of `engine` itself, the folders below may include these plain data headers only.
SHARED_WITHIN_ENGINE = {"engine/sampling_params.h", "engine/request.h", "engine/token_channel.h", "engine/ffn_mode.h", "engine/ffn_stats.h", "engine/flash_stats.h", "engine/hot_tier.h", "engine/speculation.h", "engine/step_stats.h"}
# A third-party header -> the folders that may include it.
THIRD_PARTY = {
    "nlohmann/": ["engine/base"], "spdlog/": ["engine/base"], "unicode/": ["engine/text"], "yaml-cpp/": ["server"], "prometheus/": ["server/metrics"],
    "boost/": ["server/grpc", "server/http", "server"], "grpc/": ["server/grpc"], "grpcpp/": ["server/grpc"], "google/": ["server/grpc"], "CLI/": ["engine/tools", "server"], "immintrin": ["kernels/cpu", "engine/base"],
    "xxhash.h": ["engine/base"], "openssl/": ["server", "server/http"], "systemd/": ["server"], "cuda_runtime.h": ["kernels/cuda"], "Eigen/": ["engine/predictor"], "liburing.h": ["engine/store"],
}


def folder_of(path):
    parts = path.relative_to(ROOT).parts[:-1]
    return "kernels" if parts[0] == "kernels" else "/".join(parts[:2])


def includes(path, pattern):
    return re.findall(pattern, path.read_text(), re.MULTILINE)


def test_include_arrows():
    wrong = []
    for path in SOURCES:
        folder = folder_of(path)
        if folder.startswith("tests"):
            continue
        for header in includes(path, r'^#include "([^"]+)"'):
            target = folder_of(ROOT / header)
            if ".pb." in header:  # made from proto/
                target = "server/grpc"
            allowed = target == folder or target in ARROWS[folder]
            if target == "engine" and folder in ("engine/exec", "engine/sched", "engine/spec", "engine/store"):
                allowed = header in SHARED_WITHIN_ENGINE
            if header == "server/request_limits.h" and folder.startswith("server"):
                allowed = True  # plain numbers, for every protocol
            if not allowed:
                wrong.append(f"{path.relative_to(ROOT)} includes {header}")
    assert not wrong


def test_third_party_headers_stay_in_their_folders():
    wrong = []
    for path in SOURCES:
        where = "/".join(path.relative_to(ROOT).parts[:-1])
        for header in includes(path, r"^#include <([^>]+)>"):
            for prefix, folders in THIRD_PARTY.items():
                if header.startswith(prefix) and not where.startswith("tests") and where not in folders:
                    wrong.append(f"{path.relative_to(ROOT)} includes <{header}>")
    assert not wrong


def test_files_are_short():
    lengths = {p.relative_to(ROOT): len(p.read_text().splitlines()) for p in SOURCES}
    assert not {str(p): n for p, n in lengths.items() if n > 600}


def test_format():
    formatter = next((f for f in ("clang-format-14", "clang-format") if subprocess.run(["which", f], capture_output=True).returncode == 0), None)
    assert formatter, "install clang-format-14 (deploy/install-deps.sh --tests)"
    result = subprocess.run([formatter, "--dry-run", "-Werror", *map(str, SOURCES)], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[:2000]


@pytest.mark.parametrize("word", ["using namespace std", "TODO", "FIXME"])
def test_words_that_do_not_belong(word):
    assert not [str(p) for p in SOURCES if word in p.read_text()]
