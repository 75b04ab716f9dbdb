#!/usr/bin/env python3
"""Checks in ten minutes whether gpuarb works on a GPU. See README.md beside this file."""
import argparse
import json
import os
import pickle
import select
import signal
import sys
import time
import traceback

import parts
from lab import Lab

TOTAL_S = 600
# What a driver does it does every time, but a busy machine disturbs some measurements. So a part that measures time
# fails only after this many tries, and the page says how many it took. All other parts are tried once.
TRIES = 3


def of_session(session):
    """All processes of a session."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8", errors="replace") as f:
                if int(f.read().rpartition(")")[2].split()[3]) == session:
                    found.append(int(pid))
        except (OSError, ValueError, IndexError):
            pass
    return found


def stacks(pid):
    """Tells where a process hangs: by gdb, if it is installed; otherwise where each thread is in the kernel."""
    command = " ".join(open("/proc/%d/cmdline" % pid, "rb").read().decode(errors="replace").split("\0"))
    text = parts.read(["gdb", "-p", str(pid), "-batch", "-ex", "thread apply all bt 12"])
    lines = [line for line in text.splitlines() if line.startswith(("Thread ", "#"))]
    if not lines:
        for thread in os.listdir("/proc/%d/task" % pid):
            try:
                with open("/proc/%d/task/%s/wchan" % (pid, thread), encoding="utf-8") as f:
                    lines.append("thread %s in %s" % (thread, f.read() or "user mode"))
            except OSError:
                pass
    return ["pid %d: %s" % (pid, command[:120])] + lines


def run(lab, name, function, limit):
    """Runs a part in a process of its own; it and all that it starts have a session of their own."""
    near, far = os.pipe()
    child = os.fork()
    if not child:
        os.setsid()
        os.close(near)
        try:
            said = function(lab)
        except Exception:  # whatever was raised, it is the result of this part
            said = {"status": "FAIL", "figure": "did not get through", "data": {},
                    "notes": [traceback.format_exc().strip().splitlines()[-1]]}
        with os.fdopen(far, "wb") as to:
            pickle.dump((said, lab.trace, lab.counts), to)
        os._exit(0)
    os.close(far)
    data, end = b"", time.monotonic() + limit
    while True:
        ready = select.select([near], [], [], max(0, end - time.monotonic()))[0]
        more = os.read(near, 1 << 16) if ready else None
        if not more:
            break
        data += more
    os.close(near)
    try:
        if more is None:
            raise EOFError
        said, lab.trace, lab.counts = pickle.loads(data)
    except (EOFError, pickle.UnpicklingError):
        where = []
        for pid in set(of_session(child)) - {child}:
            try:
                where += stacks(pid)
            except OSError:
                pass
        lab.note(part=name, hangs=where)
        said = {"status": "FAIL", "figure": "hangs: not done after %d s" % limit, "notes": where[:40], "data": {"stacks": where}}
    for pid in of_session(child):
        try:
            os.kill(pid, signal.SIGKILL)
        except OSError:
            pass
    os.waitpid(child, 0)
    return said


def tried(lab, name, function, limit, tries):
    """Runs a part, again while it fails and may be tried again."""
    end, failed = time.monotonic() + limit, []
    while True:
        said = run(lab, name, function, max(5, end - time.monotonic()))
        if said["status"] != "FAIL" or name not in parts.TIMED or len(failed) + 1 >= tries or said.get("refuse") \
                or "stacks" in said["data"] or time.monotonic() > end - 5:
            break
        failed.append(said)
        lab.note(part=name, failed=said)
        lab.counts = {}
    for number, first in enumerate(failed, 1):
        said["notes"].append("try %d failed: %s" % (number, "; ".join(first["notes"]) or first["figure"]))
    said["tries"] = len(failed) + 1
    return said


def page(lab, results, seconds):
    gpu = "%s, %s" % (lab.nvml.name(), lab.uuid)
    lines = ["check-gpu: %s%s" % (gpu, " (simulated: what is measured here is the check, not a GPU)" if lab.sim else ""), ""]
    for name, said in results.items():
        lines.append("%-4s  %-13s %s" % (said["status"], name, said["figure"]))
        lines += ["                    %s" % note for note in said["notes"][:12]]
    count = {s: sum(r["status"] == s for r in results.values()) for s in ("PASS", "FAIL", "SKIP")}
    lines += ["", "%d passed, %d failed, %d skipped, in %.0f s" % (count["PASS"], count["FAIL"], count["SKIP"], seconds)]
    return "\n".join(lines) + "\n"


def main():
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("build", help="the directory with what was built")
    options.add_argument("--gpu", type=int, help="number of the GPU, as nvidia-smi counts; without it the simulated one")
    options.add_argument("--short", action="store_true", help="half a minute: a few cases of each part")
    options.add_argument("--parts", help="only these, with commas between them")
    options.add_argument("--driver", help="a directory whose libcuda.so.1 is used instead (for the test of this test)")
    options.add_argument("--limit", type=int, help="seconds for each part, instead of its own")
    options.add_argument("--tries", type=int, default=TRIES, help="how often a part that measures time is tried")
    options.add_argument("--out", help="where the results go; build/check-gpu if it is not said")
    given = options.parse_args()

    out = given.out or os.path.join(given.build, "check-gpu")
    os.makedirs(out, exist_ok=True)
    wanted = given.parts.split(",") if given.parts else [p[0] for p in parts.ALL]
    begin = time.monotonic()
    lab = Lab(given.build, given.gpu, given.driver, given.short)
    results = {}
    try:
        for name, function, limit in parts.ALL:
            if name not in wanted:
                continue
            left = TOTAL_S - (time.monotonic() - begin)
            if left < 5:
                results[name] = parts.skip("the ten minutes are over")
                continue
            lab.note(part=name)
            began = time.monotonic()
            results[name] = tried(lab, name, function, min(given.limit or limit, left), given.tries)
            results[name]["seconds"] = round(time.monotonic() - began, 1)
            print("%-4s  %-13s %s" % (results[name]["status"], name, results[name]["figure"]), flush=True)
            if results[name].get("refuse"):
                break
        text = page(lab, results, time.monotonic() - begin)
        with open(os.path.join(out, "report.txt"), "w", encoding="utf-8") as f:
            f.write(text)
        with open(os.path.join(out, "report.json"), "w", encoding="utf-8") as f:
            json.dump({"schema": "gpuarb-check-gpu", "simulated": lab.sim, "gpu": lab.nvml.name(), "uuid": lab.uuid,
                       "parts": results}, f, indent=1)
        with open(os.path.join(out, "trace.jsonl"), "w", encoding="utf-8") as f:
            f.writelines(json.dumps(line) + "\n" for line in lab.trace)
    finally:
        lab.close()
    print("\n" + text + "\nto attach: report.txt, report.json and trace.jsonl in %s" % out)
    return any(r["status"] == "FAIL" for r in results.values())


if __name__ == "__main__":
    sys.exit(main())
