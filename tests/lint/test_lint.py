"""The house rules that a machine can check."""
import re
import subprocess

import pytest

from house import ARROWS, HOUSE, ONE_HOME, ROOT, SOURCES, THIRD_PARTY, includes, picture, real_arrows, room_of


def test_rooms_include_only_what_the_house_allows():
    real = real_arrows()
    assert not [line for room, targets in real.items() for target, lines in targets.items() if target not in ARROWS[room] for line in lines]
    assert not [f"{room} -> {target}: no file needs it" for room, targets in ARROWS.items() for target in targets if target not in real[room]]


def test_the_house_has_no_circles():
    rooms = list(HOUSE)
    assert not [f"{room} -> {target}" for room in rooms for target in ARROWS[room] if rooms.index(target) >= rooms.index(room)]


def test_the_picture_shows_the_real_includes():
    drawn = (ROOT / "docs/house.svg").read_text()
    arrows = lambda svg: [line for line in svg.splitlines() if line.startswith("<path")]  # noqa: E731
    assert arrows(drawn) == arrows(picture()), "python3 tests/lint/house.py draws it again"


def test_third_party_headers_stay_in_their_rooms():
    wrong = []
    for path in SOURCES:
        for header in includes(path, r"^#include <([^>]+)>"):
            for prefix, rooms in THIRD_PARTY.items():
                if header.startswith(prefix) and room_of(path) not in (None, *rooms):
                    wrong.append(f"{path.relative_to(ROOT)} includes <{header}>")
    assert not wrong


def test_the_oracle_has_a_room_of_its_own():
    """kernels/reference is what fast kernels are compared with. What programs run on every processor is in kernels/layout."""
    users = {str(p.relative_to(ROOT)) for p in SOURCES for header in includes(p, r'^#include "(kernels/reference/[^"]+)"') if room_of(p) is not None and p.parent.name != "reference"}
    assert users <= {"kernels/cpu/cpu_ops.cc"}
    named = {str(p.relative_to(ROOT)) for p in SOURCES if p.parent.name == "reference" and "namespace thermocline::kernels {" in p.read_text()}
    assert named <= {"kernels/reference/elementwise.cc"}, "that has the table of the oracle's operations"


def test_types_are_chosen_by_their_table():
    """A type has a row in kernels/type_table.h and one in the codecs; what is made for each type is chosen by ForDType."""
    choices = {str(p.relative_to(ROOT)) for p in SOURCES if room_of(p) is not None and "case DType::" in p.read_text()}
    assert choices <= {"kernels/cpu/rows.inl.h", "kernels/layout/panel_view.h", "kernels/cuda/gemm_float_rows.cu"}


@pytest.mark.parametrize("spelling", ONE_HOME)
def test_an_idea_has_one_home(spelling):
    homes = [str(p.relative_to(ROOT)) for p in SOURCES if room_of(p) is not None and spelling in p.read_text()]
    assert homes == [ONE_HOME[spelling]] or (not homes and ONE_HOME[spelling].startswith("none"))


# Classes whose members are defined in several files: each is to become smaller classes, and none is to be added.
CUT = {"engine/load LoadedModel", "engine/model/weights WeightPlan", "engine/sched Scheduler", "engine/text Interpreter", "server/grpc GrpcServer", "server/http Session"}
MEMBER = r"^(?:[A-Za-z_][\w:<>,&*\s]*?\s[&*]?)?([A-Z]\w+)::(?:~?[A-Z]\w*|operator\S+)\("
FUNCTION = r"^[A-Za-z_][\w:<>,&*\s]*?[\s&*]([A-Z]\w+)\((?:[^;{}]|\n)*?\)(?: const)?(?: noexcept)?"


def test_a_class_is_defined_in_one_file():
    """A file that grows too long is a class that does too much, not one to be cut in two."""
    files = {}
    for path in SOURCES:
        if path.suffix == ".cc" and room_of(path) is not None:
            for name in includes(path, MEMBER):
                files.setdefault(f"{room_of(path)} {name}", set()).add(path.name)
    assert {name for name, where in files.items() if len(where) > 1} == CUT


def test_what_a_room_declares_it_defines():
    places = {}
    for path in SOURCES:
        if room_of(path) is not None:
            end, kind = (";", "declared") if path.suffix == ".h" else (r" \{", "defined")
            for name in includes(path, FUNCTION + end):
                places.setdefault(name, {"declared": set(), "defined": set()})[kind].add(room_of(path))
    assert not [f"{name}: {where}" for name, where in places.items() if where["declared"] and where["defined"] and not where["declared"] & where["defined"]]


def test_no_logic_reads_a_message():
    """A Status has a reason, a field and numbers for that."""
    reads = r"[^\n]*message\(\)\s*(?:==|!=|\.(?:starts_with|ends_with|contains|find|compare|substr)\b)[^\n]*"
    assert not [f"{p.relative_to(ROOT)}: {line.strip()}" for p in SOURCES if room_of(p) is not None for line in includes(p, reads)]


def test_files_are_short():
    lengths = {p: len(p.read_text().splitlines()) for p in SOURCES}
    assert not [f"{p.relative_to(ROOT)}: {lines} lines" for p, lines in lengths.items() if lines > 400]


def test_format():
    formatter = next((f for f in ("clang-format-14", "clang-format") if subprocess.run(["which", f], capture_output=True).returncode == 0), None)
    assert formatter, "install clang-format-14 (deploy/install-deps.sh --tests)"
    result = subprocess.run([formatter, "--dry-run", "-Werror", *map(str, SOURCES)], capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr[:2000]


@pytest.mark.parametrize("word", ["using namespace std", "TODO", "FIXME"])
def test_words_that_do_not_belong(word):
    assert not [str(p) for p in SOURCES if word in p.read_text()]


def test_an_option_of_the_load_tester_is_named_by_its_row_alone():
    """A new option is a member of LoadOptions and a row of the table: the code that reads, checks and prints options lists none."""
    room = ROOT / "loadtest/options"
    names = set(re.findall(r'"(?:-\w,)?(--[a-z-]+)"', (room / "option_table.cc").read_text()))
    assert len(names) > 40
    readers = [room / name for name in ("command_line.cc", "read_options.cc", "option_value.h", "option_value.cc")]
    named = {(path.name, name) for path in readers for name in names if f'"{name}"' in path.read_text()}
    assert named == {("read_options.cc", "--duration")}  # its default depends on whether others are given


def test_casts_are_few():
    """Types and views that fit need none: 10 in 1,000 lines at most."""
    program = [p for p in SOURCES if "tests" not in p.relative_to(ROOT).parts[:1]]
    text = "".join(p.read_text() for p in program)
    casts = re.findall(r"\b(?:static|reinterpret|const|dynamic)_cast<", text)
    assert 100 < len(casts) <= text.count("\n") / 100, (len(casts), text.count("\n"))
