#!/bin/bash
# Checks the manifests without a cluster: they are YAML, the component turns every kind of workload into a client and
# leaves others alone, and the set-up job's script does in a directory what it would do on a node. test/k8s checks
# them with a cluster. Usage: kubernetes.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=kubernetes
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
files=$PWD/tools/deploy/kubernetes
work=$(mktemp -d /tmp/gpuarb-kubernetes-XXXXXX) || exit 1
trap 'rm -rf "$work"' EXIT
python3 -c 'import yaml' 2>/dev/null || skip "there is no python3-yaml here"
find "$files" test/k8s -name '*.yaml' >"$work/list"
python3 - "$work/list" <<'END' || say "there is a file that is not YAML"
import sys, yaml
for path in open(sys.argv[1]).read().split():
    documents = [d for d in yaml.safe_load_all(open(path)) if d]
    for d in documents:
        if not all(k in d for k in ("apiVersion", "kind")):
            sys.exit("%s: a document without apiVersion and kind" % path)
END

python3 test/deploy/policy.py "$files" || say "the policies are not right"
python3 test/deploy/adapters.py tools/deploy/adapters || say "the adapters are not right"

# Runs the set-up's own script, with a node in a directory and an API server that writes down what it is told.
mkdir -p "$work/bin" "$work/host/lib" "$work/host/shm" "$work/var/run/secrets/kubernetes.io/serviceaccount" "$work/usr/lib/gpuarb"
echo secret >"$work/var/run/secrets/kubernetes.io/serviceaccount/token"
# shellcheck disable=SC2016
printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"$CURL_SAID"\n' >"$work/bin/curl"
chmod 755 "$work/bin/curl"
cp "$build/libgpuarb-preload.so" "$files/pod-of" "$work/usr/lib/gpuarb/"
mkdir -p "$work/usr/share/gpuarb"
cp -r tools/deploy/runtime "$work/usr/share/gpuarb/"
gpus="GPU-aaaaaaaa-0000-0000-0000-000000000000 GPU-bbbbbbbb-0000-0000-0000-000000000000"
set_up() {
	env PATH="$work/bin:$build:$PATH" ROOT="$work" CURL_SAID="$work/curl" GPUARB_CONF=/dev/null GPUARB_GPUS="$gpus" GPUARB_GID="$(id -g)" NODE_NAME=n1 \
		GPUARB_PHYSICAL_MEMORY_MB=16384 KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443 "$files/setup/set-up" 2>&1
}
said=$(set_up) || say "the set-up fails: $said"
grep -q '^n1: 200 shares, 32 GiB$' <<<"$said" || say "the set-up says: $said"
cmp -s "$build/libgpuarb-preload.so" "$work/host/lib/libgpuarb-preload.so" || say "the set-up does not bring the library"
for gpu in $gpus; do
	for part in state control; do
		[ -s "$work/host/shm/$part/$gpu" ] || say "the set-up does not make the $part segment of $gpu"
	done
done
[ "$(stat -c %a "$work/host/shm/state")$(stat -c %a "$work/host/shm/control")" = 3775755 ] || say "the set-up gives other rights"
for program in gpuarb-runtime pod-of; do
	[ -x "$work/host/lib/$program" ] || say "the set-up does not bring $program"
done
grep -q '^pod_command = /var/lib/gpuarb/pod-of$' "$work/host/lib/runtime.conf" || say "the set-up writes another runtime.conf: $(cat "$work/host/lib/runtime.conf")"
python3 - "$work/host/lib/containerd.toml" <<'END' || say "the set-up writes another containerd.toml: $(cat "$work/host/lib/containerd.toml")"
import sys, tomllib
# It is appended to the node's configuration, as the page says.
has = 'version = 2\n[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]\nruntime_type = "io.containerd.runc.v2"\n'
made = tomllib.loads(has + open(sys.argv[1]).read())["plugins"]["io.containerd.grpc.v1.cri"]["containerd"]["runtimes"]
assert made["gpuarb"]["options"]["BinaryName"] == "/var/lib/gpuarb/gpuarb-runtime" and "runc" in made, made
END
# Debian has no CRI-O that could read this file: the options are those of crio.conf(5), "crio.runtime.runtimes table".
python3 - "$work/host/lib/crio.conf" <<'END' || say "the set-up writes another crio.conf: $(cat "$work/host/lib/crio.conf")"
import sys, tomllib
made = tomllib.load(open(sys.argv[1], "rb"))
handler = made["crio"]["runtime"]["runtimes"].pop("gpuarb")
assert made == {"crio": {"runtime": {"runtimes": {}}}}, made
known = {"runtime_path": str, "runtime_type": str, "runtime_root": str, "privileged_without_host_devices": bool, "monitor_path": str,
         "monitor_cgroup": str, "monitor_env": list, "runtime_config_path": str}
assert all(isinstance(value, known[name]) for name, value in handler.items()), handler
assert handler["runtime_path"] == "/var/lib/gpuarb/gpuarb-runtime" and handler["runtime_type"] == "oci", handler
END
grep -q '^handler: gpuarb$' "$files/runtimeclass.yaml" || say "the RuntimeClass has another handler than the engines"
python3 - "$work/curl" <<'END' || say "the set-up tells the API: $(cat "$work/curl")"
import json, sys
lines = open(sys.argv[1]).read().split("\n")
assert any(l.endswith("/api/v1/nodes/n1/status") for l in lines)
patch = json.loads(lines[lines.index("-d") + 1])
assert patch == [{"op": "add", "path": "/status/capacity/gpuarb.dev~1share", "value": "200"},
                 {"op": "add", "path": "/status/capacity/gpuarb.dev~1memory-gib", "value": "32"}], patch
END
# It runs again, as after an upgrade: what an administrator has written stays. Where segments of another layout are in
# use, the old library stays as well, and no shares are reported.
echo '# mine' >>"$work/host/lib/runtime.conf"
inode=$(stat -c %i "$work/host/lib/libgpuarb-preload.so")
set_up >/dev/null || say "the set-up fails a second time"
grep -q '# mine' "$work/host/lib/runtime.conf" || say "the set-up writes over runtime.conf"
[ "$(stat -c %i "$work/host/lib/libgpuarb-preload.so")" != "$inode" ] || say "the library was written into, and not replaced"
printf '#!/bin/sh\necho "another layout, in use" >&2\nexit 1\n' >"$work/bin/gpuarb-node"
chmod 755 "$work/bin/gpuarb-node"
echo old >"$work/host/lib/libgpuarb-preload.so"
rm "$work/curl"
said=$(set_up) && say "the set-up is content while old clients run: $said"
grep -q 'n1 is not set up: another layout, in use' <<<"$said" || say "the set-up says: $said"
[ "$(cat "$work/host/lib/libgpuarb-preload.so")" = old ] || say "the library was replaced under clients of another layout"
[ ! -e "$work/curl" ] || say "shares were told of a node that is not set up"
rm "$work/bin/gpuarb-node"
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
	for case in lib:noexec:'mounted noexec' lib:ro:'read-only or full' shm:ro:'read-only or full'; do
		IFS=: read -r place option sentence <<<"$case"
		rm -rf "${work:?}/host/shm/state"
		# shellcheck disable=SC2016
		said=$(export -f set_up && export work build files gpus && unshare --mount bash -c 'mount --bind "$1" "$1" && mount -o "remount,bind,$2" "$1" && set_up' sh "$work/host/$place" "$option") &&
			say "the set-up is content with a directory that is $option"
		grep -q "n1 is not set up: .*$sentence" <<<"$said" || say "of a directory that is $option it says: $said"
	done
fi
# The component puts a check before the workload: if a directory of the node is mounted noexec or read-only, the pod
# does not start. The script of that check runs here, with such a node.
python3 - "$files/component" "$work" >"$work/check.sh" <<'END' || say "the component's files differ, or do not look at the node"
import sys, yaml
pod = yaml.safe_load(open(sys.argv[1] + "/pod.yaml"))["spec"]
workload = yaml.safe_load(open(sys.argv[1] + "/workload.yaml"))["spec"]["template"]["spec"]
cronjob = yaml.safe_load(open(sys.argv[1] + "/cronjob.yaml"))["spec"]["jobTemplate"]["spec"]["template"]["spec"]
assert pod == workload == cronjob
check, = pod["initContainers"]
assert {m["name"] for m in check["volumeMounts"]} <= {v["name"] for v in pod["volumes"]}
print(check["args"][0].replace("/usr/lib/gpuarb/", sys.argv[2] + "/host/lib/").replace("[ -w /dev/shm/gpuarb/", "[ -w " + sys.argv[2] + "/host/shm/"))
END
set_up >/dev/null || say "the set-up fails a third time"
said=$(sh "$work/check.sh" 2>&1) || say "a node that is set up is refused: $said"
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
	for case in lib:noexec:'/var/lib/gpuarb of the node is mounted noexec' shm:ro:'/dev/shm/gpuarb/state of the node cannot be written to'; do
		IFS=: read -r place option sentence <<<"$case"
		# shellcheck disable=SC2016
		said=$(unshare --mount sh -c 'mount --bind "$1" "$1" && mount -o "remount,bind,$2" "$1" && sh "$3"' sh "$work/host/$place" "$option" "$work/check.sh" 2>&1) &&
			say "a pod of the component starts on a directory that is $option"
		grep -q "gpuarb: $sentence" <<<"$said" || say "of a directory that is $option a pod says: $said"
	done
fi
# job.yaml and daemonset.yaml run the same containers.
python3 - "$files/setup" <<'END' || say "the job and the DaemonSet differ"
import sys, yaml
job = yaml.safe_load(open(sys.argv[1] + "/job.yaml"))["spec"]["template"]["spec"]
daemon = yaml.safe_load(open(sys.argv[1] + "/daemonset.yaml"))["spec"]["template"]["spec"]
assert job["containers"][0] == daemon["initContainers"][0]
assert job["volumes"] == daemon["volumes"] and job["serviceAccountName"] == daemon["serviceAccountName"]
END

# kustomize, as part of kubectl.
if ! has_kustomize; then
	[ "$bad" = 0 ] || exit 1
	echo "kubernetes: YAML and set-up are right; the component was not tried, there is no kubectl from 1.21 here"
	exit 0
fi
kubectl kustomize "$files/setup" >/dev/null || say "kustomize does not build setup"
cp -r "$files" "$work/copy"
cat >"$work/copy/example/more.yaml" <<'END'
apiVersion: v1
kind: Pod
metadata: {name: alone, labels: {gpuarb.dev/client: "true"}}
spec: {containers: [{name: main, image: a}, {name: side, image: b}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once, labels: {gpuarb.dev/client: "true"}}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a, env: [{name: MINE, value: kept}]}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: stays, labels: {gpuarb.dev/client: "true"}}
spec: {serviceName: s, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: a}]}}}
---
apiVersion: batch/v1
kind: CronJob
metadata: {name: nightly, labels: {gpuarb.dev/client: "true"}}
spec: {schedule: "0 3 * * *", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, containers: [{name: main, image: a}]}}}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: other}
spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: main, image: a}]}}}
END
sed -i 's/^resources:/resources:\n  - more.yaml/' "$work/copy/example/kustomization.yaml"
kubectl kustomize "$work/copy/example" >"$work/built" || say "kustomize does not build the example"
python3 - "$work/built" <<'END' || say "the component does not do what it should"
import sys, yaml
clients = 0
for d in yaml.safe_load_all(open(sys.argv[1])):
    name = d["metadata"]["name"]
    spec = d["spec"]["jobTemplate"]["spec"] if d["kind"] == "CronJob" else d["spec"]
    pod = spec if d["kind"] == "Pod" else spec["template"]["spec"]
    volumes = {v["name"]: v for v in pod.get("volumes", [])}
    main = [c for c in pod["containers"] if c["name"] == "main"][0]
    if name == "other":
        assert not volumes and "env" not in main, "a workload without the label was changed"
        continue
    clients += 1
    env = {e["name"]: e for e in main["env"]}
    mounts = {m["mountPath"]: m for m in main["volumeMounts"]}
    assert env["LD_PRELOAD"]["value"] == "/usr/lib/gpuarb/libgpuarb-preload.so", name
    # A variable can refer only to variables before it.
    order = [e["name"] for e in main["env"]]
    assert order.index("POD_UID") < order.index("GPUARB_ACCOUNT"), name
    assert mounts["/dev/shm/gpuarb/control"]["readOnly"] and not mounts["/dev/shm/gpuarb/state"].get("readOnly"), name
    follows = env["GPUARB_LIMITS_FILE"]["value"].rsplit("/", 1)
    downward = volumes[mounts[follows[0]]["name"]]["downwardAPI"]["items"][0]
    assert downward["path"] == follows[1] and downward["fieldRef"]["fieldPath"] == "metadata.annotations", name
    assert not any("subPath" in m for m in main["volumeMounts"]), name
    assert all(m["name"] in volumes for m in main["volumeMounts"]), name
    for other in pod["containers"]:
        assert other["name"] == "main" or "env" not in other, "another container was changed"
    if name == "once":
        assert env["MINE"]["value"] == "kept", "what the workload had of its own is gone"
assert clients == 6, clients
END

[ "$bad" = 0 ] || exit 1
echo "kubernetes: manifests, component and the set-up job's script are right (no cluster was asked)"
