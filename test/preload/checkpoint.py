#!/usr/bin/env python3
"""A program that a checkpoint has frozen is out of the set, holds no other up, and goes on when it is thawed.

usage: checkpoint.py BUILD
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time

# Nothing is judged by how long it takes. After this time it is taken for certain that something does not happen at
# all.
DEADLINE_S = 60
PROGRESS_NS = 200000000


def start(build, account):
    env = dict(os.environ, LD_PRELOAD=build + "/libgpuarb-preload.so", GPUARB_ACCOUNT=account)
    return subprocess.Popen([build + "/test/gpu/gpu_work", "run", "count=200000", "batch=10", "warm=0", "seconds=600"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env, text=True)


def start_pausing(build, account):
    """A program whose pauses are so long that our threads in it sleep until there is work again."""
    env = dict(os.environ, LD_PRELOAD=build + "/libgpuarb-preload.so", GPUARB_ACCOUNT=account)
    return subprocess.Popen([build + "/simload", "-k", "1000", "-p", "burst", "-b", "2000:5000", "-d", "600"],
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True)


def accounts(build):
    out = subprocess.run([build + "/gpuarb-top", "--json", "--once"], capture_output=True, text=True, check=False).stdout
    gpus = json.loads(out)["gpus"] if out.strip() else []
    return {a["name"]: a for a in gpus[0]["accounts"]} if gpus else {}


def until(build, what, true):
    """Waits until `true` holds of what gpuarb-top says, and returns that."""
    end = time.monotonic() + DEADLINE_S
    while True:
        said = accounts(build)
        if true(said):
            return said
        assert time.monotonic() < end, "%s: not within %d s; last seen: %s" % (
            what, DEADLINE_S, {n: (a["state"], a["used_ns"]) for n, a in said.items()})
        time.sleep(0.02)


def used(said, name):
    return said[name]["used_ns"] if name in said else 0


def alone(build, policy):
    """Waits until the other program has got on while the frozen one was billed for nothing."""
    since = accounts(build)

    def got_on(said):
        nonlocal since
        if used(said, "frozen") != used(since, "frozen"):
            since = said
        return used(said, "other") > used(since, "other") + PROGRESS_NS
    return until(build, policy + ": the other goes on beside a frozen one", got_on)


def evictions(said, name):
    return sum(p["evictions"] for p in said[name]["processes"])


def new_directory(build, policy):
    directory = tempfile.mkdtemp(prefix="gpuarb-checkpoint-", dir="/dev/shm")
    # Nobody is evicted here: who is frozen takes itself out.
    os.environ.update(GPUARB_DIR=directory, GPUSIM_DIR=directory + "/sim", LD_LIBRARY_PATH=build + "/sim",
                      GPUARB_POLICY=policy, GPUARB_GRACE_MS="600000")
    return directory


def call(build, pid, *names):
    code = ("import ctypes, sys; cu = ctypes.CDLL(%r)\n"
            "calls = [cu.cuInit(0)] + [getattr(cu, 'cuCheckpointProcess' + c)(%d, None) for c in sys.argv[1:]]\n"
            "sys.exit(any(calls))" % (build + "/sim/libcuda.so.1", pid))
    subprocess.run([sys.executable, "-c", code] + list(names), check=True, timeout=DEADLINE_S)


def after_a_pause(build):
    """Nobody asks, and the program is frozen when it works again after a long pause."""
    directory = new_directory(build, "concurrent")
    program = start_pausing(build, "pausing")
    try:
        until(build, "it works", lambda s: used(s, "pausing") > PROGRESS_NS)
        said = until(build, "it pauses", lambda s: s["pausing"]["state"] == "idle")
        pid = said["pausing"]["processes"][0]["pid"]
        # In the pause the thread that asks the driver begins to sleep without a time limit.
        until(build, "it works again", lambda s: used(s, "pausing") > used(said, "pausing") + PROGRESS_NS)
        call(build, pid, "Lock")
        locked = until(build, "shown as frozen", lambda s: s["pausing"]["state"] == "frozen")
        time.sleep(0.2)
        after = accounts(build)
        assert after["pausing"]["state"] == "frozen", "the frozen one is %s" % after["pausing"]["state"]
        assert used(after, "pausing") == used(locked, "pausing"), "billed while it was frozen"
        call(build, pid, "Unlock")
        until(build, "it works when it is let go", lambda s: used(s, "pausing") > used(after, "pausing") + PROGRESS_NS)
        assert program.poll() is None, "it ended with %d: %s" % (program.returncode, program.stderr.read())
    finally:
        program.kill()
        program.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def seen_at_its_end(build):
    """Whether a program that is frozen as soon as its work has ended, and submits no more, is shown as frozen."""
    directory = new_directory(build, "concurrent")
    env = dict(os.environ, LD_PRELOAD=build + "/libgpuarb-preload.so", GPUARB_ACCOUNT="ended")
    program = subprocess.Popen([build + "/simload", "-k", "1000", "-p", "burst", "-b", "300:600000", "-d", "600"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=env, text=True)
    try:
        said = until(build, "its work has ended",
                     lambda s: used(s, "ended") > PROGRESS_NS and s["ended"]["state"] == "idle")
        call(build, said["ended"]["processes"][0]["pid"], "Lock")
        end = time.monotonic() + 4
        while time.monotonic() < end:
            if accounts(build)["ended"]["state"] == "frozen":
                return True
            time.sleep(0.05)
        return False
    finally:
        program.kill()
        program.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def at_its_end(build):
    # A program that was frozen only seconds after its work is not asked, which happens here if the machine is slow.
    assert any(seen_at_its_end(build) for _ in range(8)), "no program that was frozen after its work is shown as frozen"


def frozen(build, policy, names):
    directory = new_directory(build, policy)
    programs = {name: start(build, name) for name in names}
    pid = programs["frozen"].pid

    try:
        until(build, policy + ": they work", lambda s: all(used(s, n) > PROGRESS_NS for n in programs))
        call(build, pid, "Lock")
        locked = until(build, policy + ": shown as frozen", lambda s: s["frozen"]["state"] == "frozen")
        call(build, pid, "Checkpoint")
        after = alone(build, policy) if "other" in programs else accounts(build)
        assert after["frozen"]["state"] == "frozen", "%s: the frozen one is %s" % (policy, after["frozen"]["state"])
        assert used(after, "frozen") == used(locked, "frozen"), "%s: billed while it was frozen" % policy
        call(build, pid, "Restore", "Unlock")
        after = until(build, policy + ": they work when it is let go",
                      lambda s: all(used(s, n) > used(after, n) + PROGRESS_NS for n in programs))
        assert evictions(after, "frozen") == 0, "%s: the frozen one was evicted" % policy
        for name, p in programs.items():
            assert p.poll() is None, "%s: %s ended with %d: %s" % (policy, name, p.returncode, p.stderr.read())
    finally:
        for p in programs.values():
            p.kill()
            p.communicate()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    build = os.path.abspath(sys.argv[1])
    for policy in ("concurrent", "exclusive"):
        frozen(build, policy, ("frozen", "other"))
    # Nobody is there to ask it.
    frozen(build, "concurrent", ("frozen",))
    after_a_pause(build)
    at_its_end(build)
    print("checkpoint: a frozen program is out of the set, holds nobody up, and comes back")


if __name__ == "__main__":
    main()
