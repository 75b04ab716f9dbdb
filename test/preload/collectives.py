#!/usr/bin/env python3
"""Two jobs have a rank on each of 2 or 4 GPUs, whose kernels wait for each other. Both get on under every policy, and the
second still does when a rank of the first was killed. This is in real time; `build/world --cases 'jobs-*'` has many more.

usage: collectives.py BUILD
"""
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Nothing is judged by how long it takes. After this time a job is taken to stand still.
DEADLINE_S = 90


def start(build, account, ranks, group, *options):
    command = [build + "/gpuarb-run", "--account", account, "--core", "40", "--",
               build + "/simload", "--kernel-us=500", "--ranks=%d" % ranks, "--group=%d" % group] + list(options)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def gets_on(build, what, ranks):
    """Runs a second job, which ends only if all of its ranks do."""
    job = start(build, "other", ranks, 2, "--duration=0.4")
    try:
        out, err = job.communicate(timeout=DEADLINE_S)
    except subprocess.TimeoutExpired:
        os.killpg(job.pid, signal.SIGKILL)
        job.communicate()
        sys.exit("collectives: %s: the other job stands still for %d s" % (what, DEADLINE_S))
    done = [p["completed"] for p in json.loads(out)["processes"]] if job.returncode == 0 else []
    assert len(done) == ranks and all(n > 0 for n in done), "%s: %s kernels, exit %d: %s" % (what, done, job.returncode, err)


def members(group):
    """Returns the simload processes of a process group."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid, encoding="utf-8") as f:
                name, rest = f.read().split("(", 1)[1].rsplit(")", 1)
        except OSError:
            continue
        if name == "simload" and int(rest.split()[2]) == group:
            yield int(pid)


def ranks_of(job, ranks, what):
    """Returns the processes that simload has started, once all exist."""
    end = time.monotonic() + DEADLINE_S
    while True:
        children = sorted(pid for pid in members(job.pid) if pid != job.pid)
        if len(children) >= ranks:
            return children
        assert job.poll() is None, "%s: the first job ended: %s" % (what, job.stderr.read())
        assert time.monotonic() < end, "%s: the first job has %d processes" % (what, len(children))
        time.sleep(0.02)


def both(build, ranks, policy):
    what = "%d ranks, %s" % (ranks, policy)
    directory = tempfile.mkdtemp(prefix="gpuarb-collectives-", dir="/dev/shm")
    os.environ.update(GPUARB_DIR=directory, GPUSIM_DIR=directory + "/sim", GPUSIM_DEVICES=str(ranks),
                      LD_LIBRARY_PATH=build + "/sim", GPUARB_POLICY=policy)
    first = start(build, "first", ranks, 1, "--duration=3600")
    try:
        children = ranks_of(first, ranks, what)
        gets_on(build, what, ranks)
        assert first.poll() is None, "%s: the first job ended: %s" % (what, first.stderr.read())
        os.kill(children[-1], signal.SIGKILL)
        gets_on(build, what + ", beside one whose rank was killed", ranks)
    finally:
        try:
            os.killpg(first.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        first.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    build = os.path.abspath(sys.argv[1])
    for ranks in (2, 4):
        for policy in ("concurrent", "exclusive", "auto", "fair", "memory"):
            both(build, ranks, policy)
    print("collectives: two jobs of 2 and 4 ranks get on under every policy, and one beside a job whose rank was killed")


if __name__ == "__main__":
    main()
