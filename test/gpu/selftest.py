#!/usr/bin/env python3
"""Shows that check-gpu can fail: each part runs on a simulated driver that misbehaves as the part has to notice."""
import concurrent.futures
import os
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))

# The part, how the driver misbehaves, the seconds for the part, and the words that the page must then have.
CASES = [("machine", "drift", 60, "longer or shorter from one second to the next"),
         ("facts", "thunks", 60, "are not the exported ones"),
         ("facts", "", 60, "functions that look like work are in no table: cuLaunchUnheardOf"),
         ("accuracy", "early", 90, "attained"),
         ("conservation", "hidden", 60, "NVML saw"),
         ("switches", "early", 60, "programs with limits of 70 and 30 had the GPU for"),
         ("overhead", "slow", 60, "a second with the preload"),
         ("memory", "double", 60, "plain: gpuarb counts 256 MiB, NVML says 512 MiB"),
         ("safety", "hang", 6, "cuStreamSynchronize")]


def check(build, part, how, limit, out, **env):
    command = [sys.executable, os.path.join(HERE, "check_gpu.py"), build, "--short", "--parts", part, "--limit", str(limit), "--tries", "1",
               "--out", out, "--driver", os.path.join(build, "test", "gpu", "bad")]
    env = dict(os.environ, MISBEHAVE=how, MISBEHAVE_SINCE=str(time.monotonic_ns()),
               MISBEHAVE_DRIVER=os.path.join(build, "sim", "libcuda.so.1"), **env)
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=200, check=False)


def verdict(name, ran, says):
    if ran.returncode == 1 and "FAIL" in ran.stdout and says in ran.stdout:
        print("check-gpu: %s: seen" % name)
        return True
    print("check-gpu: %s was not seen (exit %d):\n%s%s" % (name, ran.returncode, ran.stdout, ran.stderr))
    return False


def one(build, case):
    part, how, limit, says = case
    with tempfile.TemporaryDirectory() as out:
        return verdict("%s, a driver that misbehaves by '%s'" % (part, how or "a new name"),
                       check(build, part, how, limit, out), says)


def other_program(build):
    """Runs a program whose output is different with the preload."""
    with tempfile.TemporaryDirectory() as out:
        fake = os.path.join(out, "ffmpeg")
        with open(fake, "w", encoding="utf-8") as f:
            f.write('#!/bin/sh\necho "MD5=${LD_PRELOAD:+not the same}"\n')
        os.chmod(fake, 0o755)
        ran = check(build, "programs", "", 60, out, PATH=out + ":" + os.environ["PATH"])
        return verdict("programs, one that is disturbed", ran, "ffmpeg: another result with the preload")


def others(build):
    """Runs on a GPU that another program already uses."""
    with tempfile.TemporaryDirectory() as out:
        check_gpu = os.path.join(HERE, "check_gpu.py")
        code = ("import sys, subprocess, time; sys.path.insert(0, %r); sys.argv = [%r, %r, '--short', '--out', %r]\n"
                "import check_gpu, lab, parts\n"
                "make = lab.Lab.__init__\n"
                "def begin(self, *a):\n"
                "    make(self, *a)\n"
                "    self.guest = self.start(['safety', 'case=forever', 'count=100000'])\n"
                "    self.line(self.guest)\n"
                "lab.Lab.__init__ = begin\n"
                "close = lab.Lab.close\n"
                "def end(self):\n"
                "    self.kill(self.guest)\n"
                "    close(self)\n"
                "lab.Lab.close = end\n"
                "sys.exit(check_gpu.main())\n" % (HERE, check_gpu, build, out))
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=False)
        return verdict("machine, a GPU that others use", ran, "others use this GPU")


def old_cupti():
    """Runs with a CUPTI that has no such records, as that of CUDA 13.0: the part says so and is skipped."""
    with tempfile.TemporaryDirectory() as home:
        for name in ("lib64/libcupti.so", "include/cupti_activity.h"):
            path = os.path.join(home, "extras", "CUPTI", name)
            os.makedirs(os.path.dirname(path))
            with open(path, "w", encoding="utf-8") as f:
                f.write("CUPTI_ACTIVITY_KIND_KERNEL = 3,\n")
        code = ("import sys; sys.path.insert(0, %r); import parts\n"
                "class Lab: sim = False\n"
                "library, why = parts.find_cupti(Lab)\n"
                "print(why); sys.exit(bool(library) and %r in library)" % (HERE, home))
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False,
                             env=dict(os.environ, CUDA_HOME=home))
    good = ran.returncode == 0 and ran.stdout.strip()
    print("check-gpu: switches, a CUPTI that has no such records: %s" % ("skipped" if good else ran.stdout + ran.stderr))
    return bool(good)


def main():
    build = os.path.abspath(sys.argv[1])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        work = [pool.submit(one, build, case) for case in CASES]
        work += [pool.submit(other_program, build), pool.submit(others, build), pool.submit(old_cupti)]
        good = [w.result() for w in work]
    print("check-gpu: %d of %d ways to fail were seen" % (sum(good), len(good)))
    return not all(good)


if __name__ == "__main__":
    sys.exit(main())
