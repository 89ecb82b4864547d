"""Comments and commit subjects are plain English, as far as a machine can tell."""
import re
import subprocess

import prose
import pytest

ADDED = "tests/lint/test_words.py"  # subjects are held to the rule from the commit on that adds this file
# Verbs in the imperative may end like others: "Embed", "Feed", "Pass", "Address", "String" are no past, gerund or third person.
ENDS = re.compile(r"(?:[^aeiou]ed|ing|[^su]s)$")
FINE = {"Bring", "Feed", "Embed", "Need", "Seed", "Speed", "Shed", "Bus", "Focus", "String", "Ring", "Sing", "Wing", "Sling", "Swing"}


def faults(subject):
    """What is wrong with a commit's subject: it is one change, in the imperative, of at most 72 characters."""
    first = subject.split(" ", 1)[0]
    return [fault for fault, holds in {
        f"has {len(subject)} characters, more than 72": len(subject) > 72,
        "is a list: one commit is one change": ";" in subject,
        "begins with no capital letter": not re.match(r"[A-Z]", subject),
        "ends with a full stop": subject.endswith("."),
        f"begins with {first}, which is no imperative": bool(ENDS.search(first)) and first not in FINE,
    }.items() if holds]


def git(*words):
    return subprocess.run(["git", *words], cwd=prose.ROOT, capture_output=True, text=True)


def test_comments_are_sentences():
    found = list(prose.comments())
    assert len(found) > 8000
    openers = prose.openers(found)
    assert len(openers) <= 0.007 * len(found), "\n".join(map(str, openers))
    assert prose.whats(found) <= 4
    assert not prose.banned(found), "\n".join(map(str, prose.banned(found)))


@pytest.mark.parametrize("text,wrong", [
    ("// What a choice says that says nothing.", True), ("int a;  // Of the line of grammars.", True), ("// The delta of a choice.", False),
    ("// NOLINT(readability)", False), ("int b = 1;  // bytes", False)])
def test_the_check_of_comments_finds_what_it_looks_for(tmp_path, text, wrong):
    (tmp_path / "a.cc").write_text(text + "\n")
    assert bool(prose.openers(prose.blocks(tmp_path / "a.cc"))) == wrong


@pytest.mark.parametrize("subject,wrong", [
    ("Refuse a draft model with recurrent layers", 0), ("Pass the stop strings on", 0), ("Address the peer by name", 0),
    ("Added a route", 1), ("Adds a route", 1), ("Adding a route", 1), ("a route", 1), ("Add a route.", 1),
    ("Add a route; mend a test; say so", 1), ("Say " + "very " * 14 + "much", 1)])
def test_the_check_of_subjects_finds_what_it_looks_for(subject, wrong):
    assert len(faults(subject)) == wrong, faults(subject)


def test_the_readme_can_be_read_at_once():
    text = (prose.ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150 and len(text.split()) <= 1500


def test_places_that_contributing_names_exist():
    """Paths in backquotes from the root of the tree, without those that stand for several ("<op>", "{a,b}")."""
    text = (prose.ROOT / "CONTRIBUTING.md").read_text()
    named = re.findall(r"`((?:config|deploy|docs|engine|kernels|loadtest|proto|server|tests|tools)/[\w./*-]*)`", text)
    assert len(named) > 80
    assert not [path for path in named if not list(prose.ROOT.glob(path.rstrip("/")))]


def test_subjects_of_commits_name_one_change():
    if git("rev-parse", "--is-shallow-repository").stdout.strip() != "false":
        pytest.skip("no whole history of git: which commits are newer than the check is unknown")
    added = git("log", "--diff-filter=A", "--format=%H", "--", ADDED).stdout.split()
    if not added:
        pytest.skip(f"{ADDED} is not committed yet: no commit is newer")
    subjects = git("log", "--no-merges", "--format=%h %s", f"{added[-1]}..HEAD").stdout.splitlines()
    wrong = {line: found for line in subjects if (found := faults(line.split(" ", 1)[1]))}
    assert not wrong, wrong
