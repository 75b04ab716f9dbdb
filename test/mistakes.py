#!/usr/bin/env python3
"""Shows that a test fails without what it tests. Each entry of mistakes.txt undoes one thing in a copy of the tree; the test
that it names has to pass before and to fail afterwards.

    mistakes.py DIRECTORY MAKE [PATTERN]    DIRECTORY gets the copy; PATTERN: only entries whose names match
    mistakes.py --lines                     says which entries name lines that do not stand in their file once

An entry is a paragraph: its name, what a user would see, the file, lines that begin with "-" and stand there once (how
far they are indented does not matter), lines that begin with "+" and take their place, what to build, and the test."""
import filecmp
import os
import re
import shutil
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(HERE)
PATIENCE_S = 600


def entries():
    for paragraph in open(HERE + "/mistakes.txt").read().split("\n\n"):
        lines = [line for line in paragraph.split("\n") if line and not line.startswith("#")]
        if not lines:
            continue
        entry = {"change": []}
        for line in lines:
            if line[0] in "-+":
                if not entry["change"] or (line[0] == "-" and entry["change"][-1][1]):
                    entry["change"].append(([], []))
                entry["change"][-1][line[0] == "+"].append(line[1:])
            else:
                word, _, rest = line.partition(": ")
                entry[word] = rest
        yield entry


def undo(text, change):
    """The text with the lines of one change in place of the others; None if they do not stand there once."""
    old, new = change
    lines = text.split("\n")
    places = [i for i in range(len(lines)) if [line.strip() for line in lines[i:i + len(old)]] == [line.strip() for line in old]]
    if len(places) != 1:
        return None
    return "\n".join(lines[:places[0]] + new + lines[places[0] + len(old):])


def undone(entry, text):
    """The text without what the entry undoes, or None."""
    for change in entry["change"]:
        text = undo(text, change) if text else None
    return text


def check_lines():
    stale = [e["name"] + ": " + e["file"] for e in entries()
             if not os.path.exists(TOP + "/" + e["file"]) or not undone(e, open(TOP + "/" + e["file"]).read())]
    for entry in stale:
        print("mistakes.txt: these lines do not stand there once: " + entry)
    sys.exit(bool(stale))


def call(command, log):
    with open(log, "w") as out:
        try:
            return subprocess.run(["build/test/deadline", "-q", "-l", log, str(PATIENCE_S), "mistakes", "bash", "-c", command],
                                  cwd=TREE, stdout=out, stderr=out, timeout=PATIENCE_S + 60).returncode
        except subprocess.TimeoutExpired:
            return 124


def said(log):
    if not os.path.exists(log):
        return "(as above)"
    lines = [line.strip() for line in open(log, errors="replace") if line.strip()]
    wrong = [line for line in lines if re.search(r"not true:|^\[----\] |Error\b", line)] or lines[-1:]
    return (wrong or ["(nothing)"])[0][:150]


def copy():
    """The tree as it is. A file that is there already stays: it is newer than what was built with a mistake in it."""
    new = not os.path.isdir(TREE)
    os.makedirs(TREE, exist_ok=True)
    files = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=TOP, text=True).split("\n")
    wanted = {name for name in files if name and os.path.lexists(TOP + "/" + name)}
    for where, folders, names in os.walk(TREE):
        if where == TREE and "build" in folders:
            folders.remove("build")
        for name in names:
            if os.path.relpath(where + "/" + name, TREE) not in wanted:
                os.unlink(where + "/" + name)
    for name in wanted:
        old, path = TOP + "/" + name, TREE + "/" + name
        if os.path.exists(path) and filecmp.cmp(old, path, shallow=False):
            continue
        os.makedirs(os.path.dirname(path), exist_ok=True)
        (shutil.copy2 if new else shutil.copy)(old, path, follow_symlinks=False)
    if not os.path.isdir(TREE + "/build") and os.path.isdir(TOP + "/build"):
        shutil.copytree(TOP + "/build", TREE + "/build", symlinks=True,
                        ignore=lambda where, names: {"obj-world", "world", "asan", "tsan", "debug", "deb", "k8s", "mistakes"} & set(names))


def build(make, targets):
    log = WORK + "/make.log"
    with open(log, "w") as out:
        return subprocess.run(make + " " + targets, cwd=TREE, shell=True, stdout=out, stderr=out).returncode == 0


if sys.argv[1:] == ["--lines"]:
    check_lines()
if len(sys.argv) not in (3, 4):
    sys.exit("usage: mistakes.py DIRECTORY MAKE [PATTERN] | --lines")
os.makedirs(sys.argv[1], exist_ok=True)
WORK = os.path.abspath(sys.argv[1])
TREE = WORK + "/tree"
MAKE = sys.argv[2]
wanted = [e for e in entries() if re.search(sys.argv[3] if len(sys.argv) > 3 else "", e["name"])]
copy()
if not build(MAKE, "build/test/deadline " + " ".join(e.get("make", "") for e in wanted)):
    sys.exit("mistakes: the tree as it is cannot be built; see %s/make.log" % WORK)
passes, found = {}, 0
for n, entry in enumerate(wanted, 1):
    path, log = TREE + "/" + entry["file"], "%s/%s.log" % (WORK, entry["name"])
    text = open(path).read()
    changed = undone(entry, text)
    began = time.monotonic()
    verdict = None
    if changed is None:
        verdict = "ERROR: %s has changed; these lines do not stand there once" % entry["file"]
    elif entry["run"] not in passes:
        passes[entry["run"]] = build(MAKE, entry.get("make", "")) and call(entry["run"], log) == 0
    if not verdict and not passes[entry["run"]]:
        verdict = "ERROR: the test fails in the tree as it is: %s" % said(log)
    if not verdict:
        open(path, "w").write(changed)
        if not build(MAKE, entry.get("make", "")):
            verdict = "ERROR: it cannot be built; see %s/make.log" % WORK
        else:
            verdict = "NOT FOUND" if call(entry["run"], log) == 0 else "found: " + said(log)
        # What was built with it is built anew: another entry's test may use it.
        open(path, "w").write(text)
        build(MAKE, entry.get("make", ""))
    found += verdict.startswith("found")
    print("%2d/%d %4.0f s  %-28s %s" % (n, len(wanted), time.monotonic() - began, entry["name"], verdict), flush=True)
print("mistakes: %d of %d found" % (found, len(wanted)))
sys.exit(found != len(wanted))
