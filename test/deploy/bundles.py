"""For the tests of gpuarb-runtime: bundles as engines make them, and a runtime behind it that writes down what it is told
and remembers which containers there are. No container, no network. The first argument is the build directory."""
import json
import os
import shutil
import subprocess
import sys
import tempfile

BUILD = os.path.realpath(sys.argv[1])
RUNTIME = BUILD + "/gpuarb-runtime"
WORK = tempfile.mkdtemp(prefix="gpuarb-runtime-", dir="/dev/shm")
GPUS = ["GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000000"]
UID = "11111111-2222-3333-4444-555555555555"
bad = []
cases = 0


def say(sentence):
    print("runtime: " + sentence, file=sys.stderr)
    bad.append(sentence)


def expect(what, got, wanted):
    global cases
    cases += 1
    if got != wanted:
        say("%s: %r, not %r" % (what, got, wanted))


def write(path, text, mode=0o644):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)
    os.chmod(path, mode)
    return path


def conf(**settings):
    lines = {"runtime": WORK + "/real", "dir": WORK + "/arb", "run": WORK + "/run"}
    lines.update(settings)
    return write(WORK + "/runtime.conf", "# a comment\n\n" + "".join("%s = %s\n" % line for line in lines.items()))


def tool(name, *words):
    env = dict(os.environ, GPUARB_DIR=WORK + "/arb", GPUARB_CONF="/dev/null")
    subprocess.run([BUILD + "/" + name, *words], env=env, check=True, stdout=subprocess.DEVNULL, timeout=60)


class Bundle:
    """A bundle as engines make it: a root, a process, the mounts that every container has."""
    count = 0

    def __init__(self, annotations=None, env=(), pod=None, **more):
        Bundle.count += 1
        self.id = more.pop("id", "%064x" % (0xabc000 + Bundle.count))
        self.dir = "%s/bundles/%s" % (WORK, self.id)
        os.makedirs(self.dir + "/rootfs/etc")
        self.spec = {
            "ociVersion": "1.0.2",
            "process": {"user": {"uid": 1000, "gid": 1000}, "args": ["train"], "env": ["PATH=/bin", *env], "cwd": "/"},
            "root": {"path": "rootfs"},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"},
                       {"destination": "/dev/shm", "type": "tmpfs", "source": "shm"}],
            "annotations": dict(annotations or {}),
            "linux": {"namespaces": [{"type": "pid"}, {"type": "mount"}]}}
        if pod:
            self.spec["annotations"].update({
                "io.kubernetes.cri.container-type": "container", "io.kubernetes.cri.sandbox-name": pod,
                "io.kubernetes.cri.sandbox-namespace": "team", "io.kubernetes.cri.sandbox-uid": more.pop("uid", UID)})
        self.spec.update(more)
        self.write()

    def write(self):
        write(self.dir + "/config.json", json.dumps(self.spec))

    def call(self, *words, **settings):
        path = conf(**settings)
        log = self.dir + "/log"
        done = subprocess.run([RUNTIME, "--root", WORK + "/root", "--log", log, "--log-format=json", *words],
                              env=environment(self, path),
                              capture_output=True, text=True, timeout=60)
        self.said = done.stderr.strip()
        self.logged = [json.loads(line)["msg"] for line in open(log)] if os.path.exists(log) else []
        return done.returncode

    def create(self, **settings):
        status = self.call("create", "--bundle", self.dir, "--pid-file", self.dir + "/pid", self.id, **settings)
        self.new = json.load(open(self.dir + "/config.json"))
        self.env = dict(entry.split("=", 1) for entry in self.new["process"]["env"])
        self.mounts = {m["destination"]: m for m in self.new["mounts"]}
        return status

    def started(self):
        return os.path.exists(self.dir + "/made")

    def delete(self):
        expect("delete", self.call("delete", "--force", self.id), 0)
        shutil.rmtree(self.dir)

    def text(self, destination):
        return open(self.mounts[destination]["source"]).read()


def starts(what, bundle, **settings):
    expect(what + ": it starts (%s)" % "", bundle.create(**settings), 0)
    if bundle.said:
        say("%s: %s" % (what, bundle.said))
    expect(what + ": the real runtime was called", bundle.started(), True)
    return bundle


def refused(what, bundle, sentence, **settings):
    expect(what + ": it is refused", bundle.create(**settings), 1)
    expect(what + ": the real runtime was not called", bundle.started(), False)
    if sentence not in bundle.said:
        say("%s: it says '%s', not '...%s...'" % (what, bundle.said, sentence))
    if not bundle.logged or sentence not in bundle.logged[-1]:
        say("%s: the engine's log has %r" % (what, bundle.logged))
    expect(what + ": the bundle is as it was", bundle.new, bundle.spec)


# It writes its arguments to SAID. A container exists from create to delete. Files named "breaks", "waits" and "hangs"
# beside the bundle decide what happens at create.
REAL = r"""#!/bin/sh
place=${SAID%/said} command= last=
for word; do
    case "$word" in create | run | delete | state) [ -n "$command" ] || command=$word ;; esac
    last=$word
done
printf '%s\n' "$0" "$@" >"$SAID"
[ "$1" != --version ] || echo "real 1.0"
[ "$last" != fail ] || exit 7
case "$command" in
create | run)
    : >"$place/made"
    [ ! -e "$place/breaks" ] || exit 3
    while [ -e "$place/waits" ]; do sleep 0.02; done
    [ ! -e "$place/hangs" ] || { echo $$ >"$place/hangs"; exec sleep 60; }
    [ "$command" = run ] || : >"$STATE/$last" ;;
state) [ -e "$STATE/$last" ] ;;
delete)
    case " $* " in *" --force "*) rm -f "$STATE/$last" ;; *) rm "$STATE/$last" 2>/dev/null ;; esac ;;
esac
"""


def environment(bundle, path):
    """Runs a command as engines do, with nearly no environment."""
    return {"GPUARB_RUNTIME_CONF": path, "PATH": "/usr/bin:/bin", "SAID": bundle.dir + "/said", "STATE": WORK + "/containers"}


def count():
    return cases


def set_up():
    for key in [k for k in os.environ if k.startswith("GPUARB_")]:
        del os.environ[key]
    write(WORK + "/real", REAL, 0o755)
    for part in ("arb/state", "arb/control", "empty/state", "empty/control", "containers"):
        os.makedirs(WORK + "/" + part)
    tool("gpuarb-node", "--gpu", GPUS[0], "--gpu", GPUS[1])
    for gpu in GPUS:
        tool("gpuarb-set", "--gpu", gpu, "physical_memory_mb=16384")
        if os.getuid() == 0:
            os.chown(WORK + "/arb/state/" + gpu, 0, 4242)
