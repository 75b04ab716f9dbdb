#!/usr/bin/env python3
"""gpuarb-runtime against bundles of odd shapes, starts that are killed, races for the last share and settings that are
broken while containers run. Usage: runtime_attacks.py BUILD"""
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time

from bundles import GPUS, RUNTIME, UID, WORK, Bundle, bad, conf, count, environment, expect, refused, set_up, starts, write

SHARE = {"gpuarb.dev/share": "5"}
UNLIMITED = 18446744073709551615


def granted():
    listed = subprocess.run([RUNTIME, "--list"], env={"GPUARB_RUNTIME_CONF": conf()}, capture_output=True, text=True, timeout=60)
    return sorted(int(line.split("\t")[1]) for line in listed.stdout.splitlines())


def numbers_stay_as_they_are():
    """An unlimited ulimit (--ulimit memlock=-1) is a number without a sign of 64 bits."""
    b = Bundle(SHARE, env=["A=gpuarb-integer-0:7"])
    b.spec["process"]["rlimits"] = [{"type": "RLIMIT_MEMLOCK", "hard": UNLIMITED, "soft": 9223372036854775808}]
    b.spec["linux"]["resources"] = {"memory": {"limit": -9223372036854775808, "swap": 9223372036854775807}}
    b.spec["process"]["args"] = ["say", "\"18446744073709551615\" \\", "gpuarb-integer-1:5", "\u20ac"]
    b.write()
    starts("unlimited", b)
    for part in (["process", "rlimits"], ["process", "args"], ["linux", "resources"]):
        expect(part[1], b.new[part[0]][part[1]], b.spec[part[0]][part[1]])
    expect("a variable that looks like ours", b.env["A"], "gpuarb-integer-0:7")
    path = write(b.dir + "/process.json", json.dumps({"user": {"uid": 0}, "args": [], "rlimits": [{"hard": UNLIMITED}]}))
    expect("exec", b.call("exec", "--process", path, b.id), 0)
    expect("exec: unlimited", json.load(open(path))["rlimits"], [{"hard": UNLIMITED}])
    b.delete()


def odd_shapes():
    def odd(what, sentence, change):
        b = Bundle(SHARE)
        change(b.spec)
        b.write()
        expect(what + ": it is refused", b.call("create", "--bundle", b.dir, b.id), 1)
        expect("%s: %s" % (what, b.said), sentence in b.said and not b.started() and b.said.count("\n") == 0, True)
        expect(what + ": the bundle is as it was", json.load(open(b.dir + "/config.json")), b.spec)
        expect(what + ": nothing is granted", granted(), [])
    odd("no process", "has no process", lambda s: s.pop("process"))
    odd("no root", "no root", lambda s: s.pop("root"))
    odd("mounts", "\"mounts\" is not a list", lambda s: s.update(mounts={}))
    odd("env", "\"env\" is not a list", lambda s: s["process"].update(env="A=b"))
    odd("gids", "is not a list", lambda s: s["process"]["user"].update(additionalGids=7))
    odd("annotations", "not an object", lambda s: s.update(annotations=[]))
    odd("a number as an annotation", "gpuarb.dev/share is not text", lambda s: s.update(annotations={"gpuarb.dev/share": 5}))
    odd("linux", "not an object", lambda s: s.update(linux="x"))
    for place in ("/usr/lib", "/usr/lib/gpuarb/granted", "/etc//ld.so.preload", "/", "/dev/shm/./gpuarb"):
        odd("masked " + place, "the container masks", lambda s, place=place: s["linux"].update(maskedPaths=["/proc/acpi", place]))

    def fine(what, change):
        b = Bundle(SHARE)
        change(b)
        starts(what, b)
        expect(what + ": the library", "/usr/lib/gpuarb/libgpuarb-preload.so" in b.mounts, True)
        return b
    fine("masks of engines", lambda b: (b.spec["linux"].update(maskedPaths=["/proc/kcore", "/usr/lib2"]), b.write())).delete()
    fine("no mounts", lambda b: (b.spec.pop("mounts"), b.write())).delete()
    fine("mounts null", lambda b: (b.spec.update(mounts=None), b.write())).delete()
    fine("no env", lambda b: (b.spec["process"].pop("env"), b.write())).delete()
    fine("no linux", lambda b: (b.spec.pop("linux"), b.write())).delete()
    fine("a read-only root", lambda b: (b.spec["root"].update(readonly=True), b.write())).delete()
    b = fine("50000 variables", lambda b: (b.spec["process"]["env"].extend("V%d=%s" % (i, "x" * 100) for i in range(50000)), b.write()))
    expect("all of them are there", len([v for v in b.env if v.startswith("V")]), 50000)
    b.delete()

    def others_mount(b):
        b.spec["mounts"] += [{"destination": d, "type": "bind", "source": "/tmp"} for d in (
            "/etc/ld.so.preload", "//usr/lib/./gpuarb/", "usr/lib/gpuarb/granted", "/etc/../usr/lib/gpuarb", "/dev/shm/gpuarb/state/", "/usr/lib/gpuarb2")]
        b.write()
    b = fine("mounts in our places, by other spellings", others_mount)
    expect("they are gone", [m["destination"] for m in b.new["mounts"] if m["source"] == "/tmp"], ["/usr/lib/gpuarb2"])
    b.delete()


def labels():
    b = Bundle(SHARE)
    b.spec["process"]["selinuxLabel"] = "system_u:system_r:container_t:s0:c1,c2"
    b.write()
    refused("confined by SELinux", b, "confined by SELinux (system_u:system_r:container_t:s0:c1,c2)")
    starts("the same where somebody has seen to it", b, selinux="pass")
    b.delete()
    refused("another value", Bundle(SHARE), "allowed: refuse or pass", selinux="maybe")


def files_that_are_none():
    b = Bundle(SHARE)
    os.rename(b.dir + "/config.json", b.dir + "/real.json")
    os.symlink("real.json", b.dir + "/config.json")
    starts("a config.json that is a link", b)
    expect("what it led to is as it was", json.load(open(b.dir + "/real.json")), b.spec)
    b.delete()
    b = Bundle(SHARE)
    os.symlink(b.dir, WORK + "/link")
    expect("a bundle that is a link", b.call("create", "--bundle", WORK + "/link", b.id), 0)
    expect("it is granted something", granted(), [5])
    b.delete()
    b = Bundle(SHARE)
    os.unlink(b.dir + "/config.json")
    os.mkfifo(b.dir + "/config.json")
    expect("a pipe", (b.call("create", "--bundle", b.dir, b.id), "is not a file" in b.said), (1, True))
    os.unlink(b.dir + "/config.json")
    with open(b.dir + "/config.json", "w") as file:
        file.truncate(100 << 20)
    expect("100 MiB", (b.call("create", "--bundle", b.dir, b.id), "are the most that is read" in b.said), (1, True))
    write(b.dir + "/config.json", "[" * 100000)
    expect("very deep", (b.call("create", "--bundle", b.dir, b.id), b.started()), (1, False))
    write(b.dir + "/config.json", '{"process": {"args": ["\\u0000"]}, "root": {}}')
    expect("a NUL", (b.call("create", "--bundle", b.dir, b.id), b.started()), (1, False))
    # The bundle has a relative path, as seen from its parent.
    b = Bundle(SHARE)
    done = subprocess.run([RUNTIME, "create", "-b", "./" + b.id, b.id], env=environment(b, conf()), cwd=WORK + "/bundles", capture_output=True, text=True, timeout=60)
    expect("a relative path: " + done.stderr, (done.returncode, granted()), (0, [5]))
    expect("delete without --root", subprocess.run([RUNTIME, "delete", b.id], env=environment(b, conf()), timeout=60).returncode, 0)
    expect("it is free", granted(), [])


def what_images_preload():
    def image(what, make, wanted=None):
        b = Bundle(SHARE)
        make(b.dir + "/rootfs/etc/ld.so.preload")
        if wanted is None:
            refused(what, b, "the image's /etc/ld.so.preload")
            return
        starts(what, b)
        expect(what, b.text("/etc/ld.so.preload"), "/usr/lib/gpuarb/libgpuarb-preload.so\n" + wanted)
        b.delete()
    image("none", lambda p: None, "")
    image("an empty one", lambda p: write(p, ""), "")
    image("one that names ours", lambda p: write(p, "/usr/lib/gpuarb/libgpuarb-preload.so\n"), "")
    image("a directory", os.mkdir, "")
    image("a pipe", os.mkfifo, "")
    secret = write(WORK + "/secret", "of the machine\n")
    image("a link out of it", lambda p: os.symlink(secret, p), "")
    image("a link by ..", lambda p: os.symlink("../../../../secret", p), "")
    image("a link within", lambda p: (write(os.path.dirname(p) + "/other", "/theirs.so\n"), os.symlink("other", p)), "/theirs.so\n")
    image("one that is too long", lambda p: write(p, "/x.so\n" * 1000))


def gpus_by_other_ways():
    volumes = "/var/run/nvidia-container-devices/"

    def mounted(*names):
        b = Bundle(SHARE, env=["NVIDIA_VISIBLE_DEVICES=" + volumes[:-1]])
        b.spec["mounts"] += [{"destination": volumes + n, "type": "bind", "source": "/dev/null"} for n in names]
        b.write()
        return b
    b = starts("a device plugin that uses volumes", mounted(GPUS[1]))
    expect("its choice counts", (b.env["CUDA_VISIBLE_DEVICES"], b.env["NVIDIA_VISIBLE_DEVICES"], volumes + GPUS[1] in b.mounts), (GPUS[1], volumes[:-1], True))
    b.delete()
    b = starts("two of them", mounted(*GPUS))
    expect("one was granted", [m for m in b.mounts if m.startswith(volumes)], [volumes + b.env["CUDA_VISIBLE_DEVICES"]])
    b.delete()
    b = starts("a volume 'all' of its author's", mounted("all"))
    expect("NVIDIA's runtime is told", (b.env["NVIDIA_VISIBLE_DEVICES"], [m for m in b.mounts if m.startswith(volumes)]), (GPUS[0], []))
    b.delete()
    b = starts("void, and no GPU by another way", Bundle(SHARE, env=["NVIDIA_VISIBLE_DEVICES=void"]))
    expect("it is told as well", b.env["NVIDIA_VISIBLE_DEVICES"], GPUS[0])
    b.delete()
    b = Bundle()
    node = {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}
    b.spec["linux"].update(devices=[node, {"path": "/dev/fuse", "type": "c", "major": 10, "minor": 229}, {"path": "/dev/nvidiactl", "type": "c", "major": 195, "minor": 255}],
                           resources={"devices": [{"allow": False, "access": "rwm"}, {"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"},
                                                  {"allow": True, "type": "c", "major": 10, "minor": 229, "access": "rw"}]})
    b.spec["mounts"].append({"destination": "/dev/nvidia-uvm", "type": "bind", "source": "/dev/null"})
    b.write()
    starts("without a share, hidden", b, without_share="hide")
    expect("no node is left", [d["path"] for d in b.new["linux"]["devices"]], ["/dev/fuse"])
    expect("nor the right to make one", len(b.new["linux"]["resources"]["devices"]), 2)
    expect("nor a mount", "/dev/nvidia-uvm" in b.mounts, False)
    b.delete()


def names_of_accounts():
    first = starts("a name", Bundle(SHARE, id="training-job-1"))
    second = starts("a name that begins as the first", Bundle(SHARE, id="training-job-2"))
    expect("they are two accounts", (first.env["GPUARB_ACCOUNT"], second.env["GPUARB_ACCOUNT"]), ("training-job-1", "training-job-2"))
    expect("and counted twice", granted(), [5, 5])
    first.delete()
    second.delete()
    names = set()
    for tail in "ab":
        b = starts("a long name", Bundle(SHARE, id="x" * 150 + tail))
        names.add(b.env["GPUARB_ACCOUNT"])
        b.delete()
    expect("long names differ, too", len(names), 2)


def what_does_not_begin_is_given_back():
    b = Bundle({"gpuarb.dev/share": "60"}, pod="p")
    write(b.dir + "/breaks", "")
    expect("the real runtime fails: its status", b.create(), 3)
    expect("nothing is granted", granted(), [])
    os.unlink(b.dir + "/breaks")
    # It is killed while the real runtime makes the container: that is killed as well, and what was granted is free.
    write(b.dir + "/hangs", "")
    starter = subprocess.Popen([RUNTIME, "--root", WORK + "/root", "create", "--bundle", b.dir, b.id], env=environment(b, conf()))
    until(lambda: os.path.getsize(b.dir + "/hangs") > 0)
    expect("while it begins it is counted", granted(), [60])
    starter.kill()
    starter.wait()
    expect("a start that was killed is given back", granted(), [])
    pid = int(open(b.dir + "/hangs").read())
    expect("and the real runtime does not go on", until(lambda: not os.path.exists("/proc/%d" % pid) or "Z" in open("/proc/%d/stat" % pid).read().split(")")[1][:3]), True)
    # A signal is handed on to the real runtime.
    write(b.dir + "/hangs", "")
    starter = subprocess.Popen([RUNTIME, "--root", WORK + "/root", "create", "--bundle", b.dir, b.id], env=environment(b, conf()))
    until(lambda: os.path.getsize(b.dir + "/hangs") > 0)
    starter.send_signal(signal.SIGTERM)
    expect("its end by a signal", starter.wait(timeout=30), 128 + signal.SIGTERM)
    expect("nothing is granted any more", granted(), [])
    os.unlink(b.dir + "/hangs")
    # The bundle cannot be written: nothing of the container stays.
    if os.getuid() == 0 and subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@"', "sh", b.dir,
                               RUNTIME, "--root", WORK + "/root", "create", "--bundle", b.dir, b.id],
                              env=dict(environment(b, conf()), PATH=os.environ["PATH"]), capture_output=True, text=True, timeout=60)
        expect("a bundle that is read-only: " + done.stderr, (done.returncode, "cannot write" in done.stderr), (1, True))
        expect("nothing is granted to it", granted(), [])
    # The container is deleted without --force when the real runtime does not know it any more.
    starts("once more", b)
    os.unlink(WORK + "/containers/" + b.id)
    expect("delete of one that is gone: the real runtime's status", b.call("delete", b.id), 1)
    expect("it is free all the same", granted(), [])


def who_looks_while_one_begins_takes_nothing_away():
    """A look at a start opens its file, and may try the lock only after the start has ended well: that is no death."""
    if not shutil.which("strace") or subprocess.run(["strace", "-o", "/dev/null", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        print("runtime: no strace here; a look at a start that ends meanwhile was not tried")
        return
    b = Bundle({"gpuarb.dev/share": "60"}, pod="p")
    write(b.dir + "/waits", "")
    starter = subprocess.Popen([RUNTIME, "--root", WORK + "/root", "create", "--bundle", b.dir, b.id], env=environment(b, conf()))
    until(b.started)
    place = WORK + "/run/containers/"
    starts_file = place + [name for name in os.listdir(place) if name.startswith(b.id)][0] + "/starts"
    seen = WORK + "/seen"
    look = subprocess.Popen(["strace", "-o", seen, "-P", starts_file, "-e", "trace=openat,flock", "-e", "inject=flock:delay_enter=3000000", RUNTIME, "--list"],
                            env={"GPUARB_RUNTIME_CONF": conf(), "PATH": os.environ["PATH"]}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    expect("it is looked at", until(lambda: os.path.exists(seen) and "openat(" in open(seen).read()), True)
    os.unlink(b.dir + "/waits")
    expect("it begins", starter.wait(timeout=30), 0)
    expect("the look ends", look.wait(timeout=30), 0)
    expect("what it was granted stays", granted(), [60])
    b.delete()


def until(true, seconds=20):
    end = time.monotonic() + seconds
    while not true():
        if time.monotonic() > end:
            return False
        time.sleep(0.01)
    return True


def the_last_share():
    """Two containers ask at once for what is left, again and again: one of them gets it."""
    rest = [starts("what is taken", Bundle({"gpuarb.dev/share": "100"}, pod="a", uid=UID[:-1] + "a")),
            starts("and more", Bundle({"gpuarb.dev/share": "70"}, pod="b", uid=UID[:-1] + "b"))]
    path, lost = conf(), []
    for i in range(10):
        pair = [Bundle({"gpuarb.dev/share": "30"}, pod="p%d" % k, uid=UID[:-1] + str(k)) for k in range(2)]
        status = [None, None]

        def run(k):
            status[k] = subprocess.run([RUNTIME, "--root", WORK + "/root", "create", "--bundle", pair[k].dir, pair[k].id],
                                       env=environment(pair[k], path), stderr=subprocess.DEVNULL, timeout=60).returncode
        threads = [threading.Thread(target=run, args=(k,)) for k in range(2)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        if sorted(status) != [0, 1]:
            lost.append(status)
        for b in pair:
            b.delete()
    expect("of two at once one gets the last 30", lost, [])
    for b in rest:
        b.delete()


def settings_that_break_while_it_runs():
    """A container that exists can be killed and deleted, whatever has become of the settings."""
    b = starts("a container", Bundle(SHARE))
    for what, settings in (("a misspelt setting", {"colour": "red"}), ("a bad value", {"memory": "much"}), ("the library is gone", {"library": WORK + "/nowhere.so"})):
        for words in (["kill", b.id, "9"], ["start", b.id], ["state", b.id], ["exec", b.id, "sh"]):
            expect("%s: %s (%s)" % (what, words[0], b.said), b.call(*words, **settings), 0)
        refused(what + ": another one", Bundle(SHARE), "", **settings)
    expect("no real runtime", (b.call("kill", b.id, "9", runtime=WORK + "/nowhere"), "the real runtime is not there" in b.said), (1, True))
    expect("delete", b.call("delete", b.id, colour="red"), 0)
    expect("it is free", granted(), [])
    # Names that no container can have: the real runtime says so.
    for words in (["delete", "--force", "a:b"], ["exec", "../x", "sh"]):
        expect(" ".join(words), b.call(*words), 0)
    # A directory among the grants that is no grant.
    os.makedirs(WORK + "/run/containers/garbage")
    write(WORK + "/run/containers/garbage/grant.json", "{")
    expect("garbage among the grants", granted(), [])
    expect("it is taken away", os.path.exists(WORK + "/run/containers/garbage"), False)


def main():
    set_up()
    numbers_stay_as_they_are()
    odd_shapes()
    labels()
    files_that_are_none()
    what_images_preload()
    gpus_by_other_ways()
    names_of_accounts()
    what_does_not_begin_is_given_back()
    who_looks_while_one_begins_takes_nothing_away()
    the_last_share()
    settings_that_break_while_it_runs()


try:
    main()
finally:
    shutil.rmtree(WORK)
if bad:
    sys.exit(1)
print("runtime: odd bundles, killed starts, races and broken settings: nothing starts without a limit (%d cases)" % count())
