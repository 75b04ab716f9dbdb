#!/usr/bin/env python3
"""gpuarb-runtime on bundles, with a runtime behind it that only writes down what it is told: what becomes of a
bundle, where a container goes, and everything for which it must not start. No container, no network.
Usage: runtime.py BUILD"""
import json
import os
import shutil
import subprocess
import sys
import threading
import time

from bundles import BUILD, GPUS, RUNTIME, UID, WORK, Bundle, bad, conf, count, environment, expect, refused, say, set_up, starts, write


def group_of_segments():
    """The group of the segments: 4242 if root made them, otherwise the user's own, which its containers get as well."""
    group = os.stat(WORK + "/arb/state/" + GPUS[0]).st_gid
    return [group] if group else None


def a_pod_becomes_a_client():
    b = Bundle({"gpuarb.dev/share": "35", "other.example/share": "x"}, pod="train", env=[
        "GPUARB_CORE_LIMIT=100", "GPUARB_ACCOUNT=mine", "LD_PRELOAD=", "GPUARB_DISABLE=1", "GPUARB_LOG=debug",
        "NVSHARE_GPU_CORE_LIMIT=100"])
    b.spec["mounts"] += [{"destination": "/etc/ld.so.preload", "type": "bind", "source": "/dev/null"},
                         {"destination": "/usr/lib/gpuarb/granted", "type": "bind", "source": "/dev/null"}]
    write(b.dir + "/rootfs/etc/ld.so.preload", "/usr/lib/theirs.so\n")
    b.write()
    starts("a pod", b)
    expect("its account", b.env.get("GPUARB_ACCOUNT"), "pod-" + UID)
    expect("its limit", b.env.get("GPUARB_CORE_LIMIT"), "35")
    expect("what it said of itself is gone", [k for k in b.env if k in ("GPUARB_DISABLE", "NVSHARE_GPU_CORE_LIMIT")], [])
    expect("what it logs is its own business", b.env.get("GPUARB_LOG"), "debug")
    expect("one GPU is seen", b.env["CUDA_VISIBLE_DEVICES"], GPUS[0])
    expect("by NVIDIA's runtime, too", b.env["NVIDIA_VISIBLE_DEVICES"], GPUS[0])
    granted = b.text("/usr/lib/gpuarb/granted").splitlines()
    for line in ("GPUARB_ACCOUNT=pod-" + UID, "GPUARB_CORE_LIMIT=35", "GPUARB_CONF=/dev/null", "GPUARB_DIR=/dev/shm/gpuarb", "GPUARB_ON_ERROR=closed"):
        expect("granted: " + line, line in granted, True)
    expect("memory as much as of the time: 35 of 100 of 16 GiB", [g for g in granted if "MEM" in g],
           ["GPUARB_MEM_LIMIT=%d" % (16 * 2**30 // 100 * 35)])
    expect("ours is preloaded first", b.text("/etc/ld.so.preload"),
           "/usr/lib/gpuarb/libgpuarb-preload.so\n/usr/lib/theirs.so\n")
    expect("once each", sorted(m["destination"] for m in b.new["mounts"]), sorted(
        ["/proc", "/dev/shm", "/usr/lib/gpuarb/libgpuarb-preload.so", "/usr/lib/gpuarb/granted", "/etc/ld.so.preload",
         "/dev/shm/gpuarb/state", "/dev/shm/gpuarb/control"]))
    expect("behind what the engine mounts", b.new["mounts"][1]["destination"], "/dev/shm")
    for place, mode in (("/dev/shm/gpuarb/state", "rw"), ("/dev/shm/gpuarb/control", "ro"), ("/etc/ld.so.preload", "ro"),
                        ("/usr/lib/gpuarb/granted", "ro"), ("/usr/lib/gpuarb/libgpuarb-preload.so", "ro")):
        expect("%s is %s" % (place, mode), mode in b.mounts[place]["options"], True)
    expect("the library may be executed", "noexec" in b.mounts["/usr/lib/gpuarb/libgpuarb-preload.so"]["options"], False)
    expect("the group of the segments", b.new["process"]["user"].get("additionalGids"), group_of_segments())
    said = open(b.dir + "/said").read().split("\n")
    expect("the real runtime gets the same words", said[1:7], ["--root", WORK + "/root", "--log", b.dir + "/log",
                                                              "--log-format=json", "create"])
    # It is edited once more, as podman does when a container is started again.
    b.spec = b.new
    mounts = len(b.new["mounts"])
    os.unlink(b.dir + "/made")
    refused("one that is there", b, "there is a container " + b.id + " already")
    os.unlink(WORK + "/containers/" + b.id)
    starts("the same bundle again", b)
    expect("nothing is mounted twice", len(b.new["mounts"]), mounts)
    return b


def exec_is_covered(b):
    process = {"user": {"uid": 1000, "gid": 1000}, "args": ["sh"], "env": ["PATH=/bin", "GPUARB_CORE_LIMIT=100"], "cwd": "/"}
    path = write(b.dir + "/process.json", json.dumps(process))
    for words in (["--process", path], ["-p", path], ["--process=" + path]):
        write(path, json.dumps(process))
        expect("exec", b.call("exec", *words, "--detach", "--pid-file", "/nowhere", b.id), 0)
        env = dict(entry.split("=", 1) for entry in json.load(open(path))["env"])
        expect("exec: the limit", env.get("GPUARB_CORE_LIMIT"), "35")
        expect("exec: the GPU", env.get("CUDA_VISIBLE_DEVICES"), GPUS[0])
        expect("exec: the group", json.load(open(path))["user"].get("additionalGids"), group_of_segments())
    write(path, "{")
    expect("exec of something that is not JSON", b.call("exec", "--process", path, b.id), 1)
    expect("exec: which", "the process of the exec" in b.said, True)
    expect("exec without a file goes by the bundle", b.call("exec", b.id, "sh"), 0)
    write(path, json.dumps(process))
    expect("exec in a container that was granted nothing", b.call("exec", "--process", path, "other"), 0)
    expect("exec: it stays as it is", json.load(open(path)), process)
    b.delete()


def what_is_no_pods_business():
    b = starts("a sandbox", Bundle({"io.kubernetes.cri.container-type": "sandbox"}))
    expect("it sees no GPU", (b.env["NVIDIA_VISIBLE_DEVICES"], b.env["CUDA_VISIBLE_DEVICES"]), ("void", ""))
    expect("nothing is mounted", b.new["mounts"], b.spec["mounts"])
    b.delete()
    b = starts("of CRI-O", Bundle({"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.pod.name": "p",
                                   "io.kubernetes.pod.namespace": "n", "io.kubernetes.pod.uid": UID, "gpuarb.dev/share": "5"}))
    expect("CRI-O's pod", b.env["GPUARB_ACCOUNT"], "pod-" + UID)
    b.delete()
    b = Bundle({"gpuarb.dev/share": "5"}, pod="p")
    del b.spec["annotations"]["io.kubernetes.cri.sandbox-uid"]
    b.spec["linux"]["cgroupsPath"] = "kubepods-burstable-pod%s.slice:cri-containerd:%s" % (UID.replace("-", "_"), b.id)
    b.write()
    starts("an engine that does not say the uid", b)
    expect("its control group does", b.env["GPUARB_ACCOUNT"], "pod-" + UID)
    b.delete()
    b = starts("podman", Bundle({"gpuarb.dev/share": "40", "gpuarb.dev/memory-gib": "4"}))
    expect("the container is the account", b.env["GPUARB_ACCOUNT"], b.id[:12])
    expect("4 GiB", b.env["GPUARB_MEM_LIMIT"], str(4 << 30))
    b.delete()
    b = starts("docker, by variables", Bundle(env=["GPUARB_CORE_LIMIT=25", "GPUARB_MEM_LIMIT=2Gi"]))
    expect("25 percent", b.env["GPUARB_CORE_LIMIT"], "25")
    expect("2 GiB", b.env["GPUARB_MEM_LIMIT"], str(2 << 30))
    b.delete()


def annotations_lower_and_do_not_raise():
    for annotation, share, limit in (("20", "30", "20"), ("90", "30", "30")):
        b = starts("annotated", Bundle({"gpuarb.dev/share": share, "gpuarb.dev/core-limit": annotation}, pod="p"))
        expect("share %s, annotated %s" % (share, annotation), b.env["GPUARB_CORE_LIMIT"], limit)
        b.delete()
    b = starts("memory annotated", Bundle({"gpuarb.dev/share": "30", "gpuarb.dev/memory-gib": "4", "gpuarb.dev/memory-limit": "1Gi"}, pod="p"))
    expect("memory", b.env["GPUARB_MEM_LIMIT"], str(1 << 30))
    b.delete()
    # No memory was granted. An annotation can then ask at most for the share of it, 25 of 100 of 16 GiB.
    part = 16 * 2**30 // 100 * 25
    for annotation, setting, limit in (("1Gi", "share", 1 << 30), ("12Gi", "share", part), ("12Gi", "free", 12 << 30)):
        b = starts("memory annotated, none granted", Bundle({"gpuarb.dev/share": "25", "gpuarb.dev/memory-limit": annotation}, pod="p"), memory=setting)
        expect("memory = %s, annotated %s" % (setting, annotation), b.env["GPUARB_MEM_LIMIT"], str(limit))
        b.delete()
    b = starts("a guarantee", Bundle({"gpuarb.dev/share": "30", "gpuarb.dev/core-request": "20", "gpuarb.dev/core-weight": "200"}, pod="p"))
    expect("it is granted", [line for line in ("GPUARB_REQUEST=20", "GPUARB_WEIGHT=200") if line in b.text("/usr/lib/gpuarb/granted").split("\n")],
           ["GPUARB_REQUEST=20", "GPUARB_WEIGHT=200"])
    b.delete()


def shares_are_counted_for_each_gpu():
    pods = [starts("pod %d of 50" % i, Bundle({"gpuarb.dev/share": "50", "gpuarb.dev/memory-gib": "8"}, pod="p%d" % i,
                                             uid="%s%d" % (UID[:-1], i))) for i in range(4)]
    expect("four of 50 use both GPUs", sorted(p.env["CUDA_VISIBLE_DEVICES"] for p in pods), sorted(GPUS * 2))
    refused("the fifth", Bundle({"gpuarb.dev/share": "1"}, pod="p9", uid=UID), "no GPU has room for 1 shares: " + GPUS[0] + " has 100 of 100 shares")
    b = starts("a second container of a pod", Bundle({"gpuarb.dev/share": "50", "gpuarb.dev/memory-gib": "8"}, pod="p0",
                                                    uid=UID[:-1] + "0"))
    expect("it is where the first one is", b.env["CUDA_VISIBLE_DEVICES"], pods[0].env["CUDA_VISIBLE_DEVICES"])
    listed = subprocess.run([RUNTIME, "--list"], env={"GPUARB_RUNTIME_CONF": conf()}, capture_output=True, text=True)
    expect("--list", sorted(line.split("\t")[1] for line in listed.stdout.splitlines()), ["50"] * 5)
    for p in pods[1:] + [b]:
        p.delete()
    # A bundle is gone and its container was not deleted: the engine was killed.
    shutil.rmtree(pods[0].dir)
    b = starts("two whole GPUs", Bundle({"gpuarb.dev/share": "200"}, pod="two"))
    expect("both", b.env["NVIDIA_VISIBLE_DEVICES"], ",".join(GPUS))
    expect("the limit of each", b.env["GPUARB_CORE_LIMIT"], "100")
    b.delete()
    b = starts("one and a half", Bundle({"gpuarb.dev/share": "150"}, pod="two"))
    expect("75 of each", b.env["GPUARB_CORE_LIMIT"], "75")
    b.delete()
    refused("what cannot be divided", Bundle({"gpuarb.dev/share": "151"}, pod="two"), "cannot be divided equally")
    refused("three GPUs", Bundle({"gpuarb.dev/share": "300"}, pod="two"), "there are not 3 GPUs that have room")
    b = starts("the GPU that a device plugin has chosen", Bundle({"gpuarb.dev/share": "10"}, pod="p", env=["NVIDIA_VISIBLE_DEVICES=" + GPUS[1]]))
    expect("that one", b.env["CUDA_VISIBLE_DEVICES"], GPUS[1])
    b.delete()
    # By memory: each GPU has 16 GiB.
    first = starts("12 GiB", Bundle({"gpuarb.dev/share": "10", "gpuarb.dev/memory-gib": "12"}, pod="p", uid=UID[:-1] + "1"))
    second = starts("12 GiB more", Bundle({"gpuarb.dev/share": "10", "gpuarb.dev/memory-gib": "12"}, pod="p", uid=UID[:-1] + "2"))
    expect("on the other GPU", first.env["CUDA_VISIBLE_DEVICES"] != second.env["CUDA_VISIBLE_DEVICES"], True)
    refused("a third time", Bundle({"gpuarb.dev/share": "10", "gpuarb.dev/memory-gib": "12"}, pod="p", uid=UID[:-1] + "3"),
            "and 12 GiB of 16 GiB of memory granted")
    first.delete()
    second.delete()


def of_many_at_once_none_is_given_too_much():
    bundles = [Bundle({"gpuarb.dev/share": "20"}, pod="p%d" % i, uid="%s%02d" % (UID[:-2], i)) for i in range(14)]
    path = conf()
    done = [None] * len(bundles)

    def run(i):
        done[i] = subprocess.run([RUNTIME, "--root", WORK + "/root", "create", "--bundle", bundles[i].dir, bundles[i].id],
                                 env=environment(bundles[i], path), stderr=subprocess.DEVNULL, timeout=60).returncode
    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(bundles))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    expect("ten of 20 fit onto two GPUs", done.count(0), 10)
    chosen = []
    for b in bundles:
        if b.started():
            chosen += [e.split("=")[1] for e in json.load(open(b.dir + "/config.json"))["process"]["env"] if e.startswith("CUDA_V")]
        b.delete()
    expect("five on each", sorted(chosen), sorted(GPUS * 5))


def the_api_server_knows_best():
    pod = {"metadata": {"uid": UID}, "spec": {
        "initContainers": [{"resources": {"limits": {"gpuarb.dev/share": "10"}}}],
        "containers": [{"resources": {"limits": {"gpuarb.dev/share": "30", "gpuarb.dev/memory-gib": 4}}},
                       {"resources": {"limits": {"cpu": "1"}}}, {"resources": {"limits": {"gpuarb.dev/share": "5"}}}]}}
    asks = write(WORK + "/pod-of", '#!/bin/sh\n[ "$1/$2" = team/p ] && cat %s/pod.json\n' % WORK, 0o755)
    write(WORK + "/pod.json", json.dumps(pod))
    b = starts("a pod that annotates itself more", Bundle({"gpuarb.dev/share": "90"}, pod="p"), pod_command=asks)
    expect("what its containers were granted counts", b.env["GPUARB_CORE_LIMIT"], "35")
    expect("and their memory", b.env["GPUARB_MEM_LIMIT"], str(4 << 30))
    b.delete()
    refused("another pod of this name", Bundle(pod="p", uid="99"), "it has the uid " + UID, pod_command=asks)
    refused("one that nobody knows", Bundle(pod="q"), "has not said what the pod was granted", pod_command=asks)
    refused("no such command", Bundle(pod="p"), "has not said what the pod was granted", pod_command=WORK + "/nowhere")
    write(WORK + "/pod.json", "[]")
    refused("no pod", Bundle(pod="p"), "is not a pod", pod_command=asks)
    pod["spec"]["containers"] = [{}]
    del pod["spec"]["initContainers"]
    write(WORK + "/pod.json", json.dumps(pod))
    refused("no share, whatever it annotates", Bundle({"gpuarb.dev/share": "90"}, pod="p"), "asks for no share of a GPU", pod_command=asks)
    pod["spec"]["containers"] = [{"resources": {"limits": {"gpuarb.dev/share": "1k"}}}]
    write(WORK + "/pod.json", json.dumps(pod))
    refused("a thousand, as Kubernetes writes it", Bundle(pod="p"), "10 GPUs", pod_command=asks)


def any_kind_of_object_and_any_name():
    """The pods of workloads.yaml as the API server has them, whatever made them and whatever their containers are called."""
    try:
        from policy import workloads
    except ImportError:
        print("runtime: skipped: kinds of objects, which need python3-yaml")
        return
    asks = write(WORK + "/pod-of", "#!/bin/sh\ncat %s/pod.json\n" % WORK, 0o755)
    for what, pod, wanted in workloads():
        pod["metadata"]["uid"] = UID
        write(WORK + "/pod.json", json.dumps(pod))
        for container in pod["spec"]["containers"] + pod["spec"].get("initContainers", []):
            made = Bundle({"io.kubernetes.cri.container-name": container["name"]}, pod=pod["metadata"]["name"])
            if not wanted:
                refused(what, made, "asks for no share of a GPU", pod_command=asks)
                continue
            b = starts("%s, %s" % (what, container["name"]), made, pod_command=asks)
            expect(what + ": its limit", b.env["GPUARB_CORE_LIMIT"], wanted["gpuarb.dev/share"])
            if "gpuarb.dev/memory-gib" in wanted:
                expect(what + ": its memory", b.env["GPUARB_MEM_LIMIT"], str(int(wanted["gpuarb.dev/memory-gib"]) << 30))
            expect(what + ": ours is preloaded first", b.text("/etc/ld.so.preload").split("\n")[0], "/usr/lib/gpuarb/libgpuarb-preload.so")
            b.delete()


def nothing_starts_without_a_limit():
    refused("no share", Bundle(pod="p"), "pod team/p asks for no share of a GPU")
    refused("a request beyond the limit in a variable", Bundle({"gpuarb.dev/core-request": "10"}, env=["GPUARB_CORE_LIMIT=2"]),
        "gpuarb.dev/core-request: '10' is no number from 1 to 2")
    # What is quoted is one line on any terminal, whoever wrote it.
    refused("a share with control characters", Bundle({"gpuarb.dev/share": "1\x1b[2J\nx"}), "'1?[2J?x' is no number")
    refused("a limit alone is not counted", Bundle({"gpuarb.dev/core-limit": "30"}, pod="p"), "asks for no share of a GPU")
    refused("no annotation, podman", Bundle(), "asks for no share of a GPU")
    refused("a pod's environment is no share", Bundle(pod="p", env=["GPUARB_CORE_LIMIT=5"]), "asks for no share of a GPU")
    b = starts("no share, hidden", Bundle(pod="p", env=["NVIDIA_VISIBLE_DEVICES=all"]), without_share="hide")
    expect("it sees no GPU", (b.env["NVIDIA_VISIBLE_DEVICES"], b.env["CUDA_VISIBLE_DEVICES"]), ("void", ""))
    b.delete()
    b = starts("no share, passed", Bundle(pod="p"), without_share="pass")
    expect("it stays as it is", b.new, b.spec)
    b.delete()
    for value in ("", "0", "-5", "abc", "30%", "1e9", "99999999999999999999", " 30"):
        refused("share '%s'" % value, Bundle({"gpuarb.dev/share": value}, pod="p"), "is no number from 1 to")
    refused("limit 0", Bundle({"gpuarb.dev/share": "30", "gpuarb.dev/core-limit": "0"}, pod="p"), "is no number from 1 to 100")
    refused("memory", Bundle({"gpuarb.dev/share": "30", "gpuarb.dev/memory-limit": "much"}, pod="p"), "gpuarb.dev/memory-limit: mem cannot be 'much'")
    refused("a request above the share", Bundle({"gpuarb.dev/share": "30", "gpuarb.dev/core-request": "40"}, pod="p"), "is no number from 1 to 30")
    refused("misspelt", Bundle({"gpuarb.dev/shares": "30"}, pod="p"), "did you mean gpuarb.dev/share?")
    refused("unknown", Bundle({"gpuarb.dev/xyzzyxyzzy": "30"}, pod="p"), "there is no annotation gpuarb.dev/xyzzyxyzzy")
    refused("two engines", Bundle({"io.kubernetes.cri-o.ContainerType": "container", "io.kubernetes.cri.container-type": "sandbox"}), "one of them is forged")
    refused("neither", Bundle({"io.kubernetes.cri.container-type": "thing"}), "neither a sandbox nor a container")
    refused("no name", Bundle({"io.kubernetes.cri.container-type": "container", "gpuarb.dev/share": "5"}), "does not say which pod")
    refused("by index", Bundle({"gpuarb.dev/share": "5"}, env=["NVIDIA_VISIBLE_DEVICES=0"]), "name the GPU by its UUID")
    refused("a GPU without a segment", Bundle({"gpuarb.dev/share": "5"}, env=["NVIDIA_VISIBLE_DEVICES=GPU-c"]), "has a segment")
    refused("a name that is a path", Bundle({"gpuarb.dev/share": "5"}, id="..x"), "cannot be the name of a container")
    if os.getuid() == 0:
        os.chown(WORK + "/arb/state/" + GPUS[1], 0, 0)
        refused("a group that nobody is given", Bundle({"gpuarb.dev/share": "5"}, pod="p"), "belongs to the group root")
        os.chown(WORK + "/arb/state/" + GPUS[1], 0, 4242)
    user = Bundle({"gpuarb.dev/share": "5"}, pod="p", linux={"namespaces": [{"type": "user"}]})
    refused("a user namespace", user, "segment_mode = 0666")


def nor_with_a_bad_bundle_or_machine():
    share = {"gpuarb.dev/share": "5"}
    b = Bundle(share)
    for text, sentence in (("", "config.json:"), ("[]", "is not an object"), ("{}", "has no process or no root"), ('{"process": 1}', "has no process")):
        write(b.dir + "/config.json", text)
        expect("bundle '%s'" % text, b.call("create", "--bundle", b.dir, b.id), 1)
        expect("bundle '%s': %s" % (text, b.said), sentence in b.said and not b.started(), True)
    os.unlink(b.dir + "/config.json")
    expect("no config.json", b.call("create", "--bundle", b.dir, b.id), 1)
    expect("no config.json: " + b.said, "No such file" in b.said and not b.started(), True)
    expect("no bundle", b.call("create", "--bundle", WORK + "/nowhere", b.id), 1)
    expect("no bundle: " + b.said, "the bundle" in b.said and "No such file" in b.said, True)
    for words, sentence in ((["create"], "names no container"), (["--strange", "create", "x"], "--strange is not known"),
                            (["create", "--strange", "x", "y"], "--strange is not known"), (["explode", "x"], "is no command"),
                            ([], "has no command"), (["--root"], "has no value")):
        expect("words %s" % words, b.call(*words), 2)
        expect("words %s: %s" % (words, b.said), sentence in b.said and not b.started(), True)
    refused("no library", Bundle(share), "is not there", library=WORK + "/nowhere.so")
    refused("no directories", Bundle(share), "gpuarb-node makes the directories", dir=WORK + "/nowhere")
    refused("no segments", Bundle(share), "there is no segment", dir=WORK + "/empty")
    refused("no runtime", Bundle(share), "there is no such program", runtime=WORK + "/nowhere")
    refused("itself", Bundle(share), "or it is this one", runtime=RUNTIME)
    refused("a setting", Bundle(share), "there is no setting 'colour'", colour="red")
    refused("its value", Bundle(share), "allowed: refuse, hide or pass", without_share="maybe")
    if os.getuid() == 0 and subprocess.run(["unshare", "--mount", "true"], stderr=subprocess.DEVNULL).returncode == 0:
        for what, sentence in (("noexec", "is mounted noexec"), ("ro", "is mounted read-only")):
            b = Bundle(share)
            place, option = (WORK + "/mnt", "noexec") if what == "noexec" else (WORK + "/arb/state", "ro")
            os.makedirs(WORK + "/mnt", exist_ok=True)
            shutil.copy(BUILD + "/libgpuarb-preload.so", WORK + "/mnt/lib.so")
            path = conf(library=WORK + "/mnt/lib.so")
            done = subprocess.run(["unshare", "--mount", "sh", "-c", 'mount --bind "$1" "$1" && mount -o remount,bind,$2 "$1" && shift 2 && exec "$@"',
                                   "sh", place, option, RUNTIME, "create", "--bundle", b.dir, b.id],
                                  env=dict(environment(b, path), PATH=os.environ["PATH"]), capture_output=True, text=True, timeout=60)
            expect("%s: %s" % (what, done.stderr.strip()), (done.returncode, sentence in done.stderr, b.started()), (1, True, False))
    else:
        print("runtime: skipped: noexec and read-only mounts, which need root")


def the_rest_is_the_real_runtimes():
    b = Bundle()
    open(WORK + "/containers/x", "w").close()
    for words in (["state", "x"], ["kill", b.id, "9"], ["features"], ["list"]):
        expect(words[0], b.call(*words), 0)
        expect(words[0] + ": its words", open(b.dir + "/said").read().split("\n")[6:-1], words)
    said = subprocess.run([RUNTIME, "--version"], env={"GPUARB_RUNTIME_CONF": conf(), "SAID": "/dev/null"}, capture_output=True, text=True)
    expect("--version", said.stdout.split("\n")[:2], ["gpuarb-runtime " + version(), "real 1.0"])
    expect("its exit status is the real one's", b.call("state", "fail"), 7)
    b = Bundle({"gpuarb.dev/share": "5"})
    expect("run", b.call("run", "--bundle", b.dir, b.id), 0)
    expect("what a container had that has ended is free", os.listdir(WORK + "/run/containers"), [".lock"])


def version():
    return subprocess.run([BUILD + "/gpuarb-set", "--version"], capture_output=True, text=True).stdout.split()[1]


def who_was_killed_has_nothing_anymore():
    """A program with a quota is killed with its container, and no other program is on the GPU to clean up."""
    arb, gpu = WORK + "/killed", "GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0"
    env = dict(os.environ, GPUARB_DIR=arb, GPUARB_CONF="/dev/null", GPUSIM_DIR=WORK + "/gpusim", LD_LIBRARY_PATH=BUILD + "/sim",
               GPUARB_SEGMENT_MODE="0666")
    os.makedirs(WORK + "/gpusim")
    subprocess.run([BUILD + "/gpuarb-node"], env=env, check=True, stdout=subprocess.DEVNULL, timeout=60)
    client = subprocess.Popen([BUILD + "/simload", "--kernel-us=1000", "--duration=60"], stdout=subprocess.DEVNULL,
                              env=dict(env, LD_PRELOAD=BUILD + "/libgpuarb-preload.so", GPUARB_ACCOUNT="killed", GPUARB_CORE_LIMIT="50", GPUARB_MEM_LIMIT="12Gi"))
    for _ in range(600):
        shown = subprocess.run([BUILD + "/gpuarb-set", "--show"], env=env, capture_output=True, text=True, timeout=60).stdout
        if "in force for killed: core=50" in shown:
            break
        time.sleep(0.1)
    else:
        say("the program has not joined: " + shown)
    wish = ["GPUARB_CORE_LIMIT=50", "GPUARB_MEM_LIMIT=8Gi"]
    refused("beside one with 12 GiB", Bundle(env=wish), "12 GiB of 16 GiB of memory granted", dir=arb)
    client.kill()
    client.wait()
    starts("after it was killed", Bundle(env=wish), dir=arb).delete()


def main():
    set_up()
    who_was_killed_has_nothing_anymore()
    exec_is_covered(a_pod_becomes_a_client())
    what_is_no_pods_business()
    annotations_lower_and_do_not_raise()
    shares_are_counted_for_each_gpu()
    of_many_at_once_none_is_given_too_much()
    the_api_server_knows_best()
    any_kind_of_object_and_any_name()
    nothing_starts_without_a_limit()
    nor_with_a_bad_bundle_or_machine()
    the_rest_is_the_real_runtimes()
    check = subprocess.run([RUNTIME, "--check"], env={"GPUARB_RUNTIME_CONF": conf()}, capture_output=True, text=True)
    expect("--check: " + check.stdout, (check.returncode, "segments of 2 GPU(s)" in check.stdout), (0, True))


try:
    main()
finally:
    shutil.rmtree(WORK)
if bad:
    sys.exit(1)
print("runtime: bundles are edited, GPUs chosen, and nothing starts without a limit (%d cases)" % count())
