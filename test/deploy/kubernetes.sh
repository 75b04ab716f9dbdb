#!/bin/bash
# The manifests without a cluster: that they are YAML, that the component turns every kind of workload into a client and
# leaves others alone, and that the set-up job's script does on a directory what it would do on a node. With a cluster:
# test/k8s. Usage: kubernetes.sh BUILD
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

# The set-up job's own script, with a node in a directory and an API server that writes down what it is told.
python3 - "$files/setup/job.yaml" >"$work/script" <<'END'
import sys, yaml
job = yaml.safe_load(open(sys.argv[1]))
print(job["spec"]["template"]["spec"]["containers"][0]["args"][0])
END
mkdir -p "$work/bin" "$work/host/lib" "$work/host/shm" "$work/secrets"
echo secret >"$work/secrets/token"
# shellcheck disable=SC2016
printf '#!/bin/sh\nprintf "%%s\\n" "$@" >"$CURL_SAID"\n' >"$work/bin/curl"
chmod 755 "$work/bin/curl"
sed -i -e "s|/host/|$work/host/|g; s|/usr/lib/gpuarb/|$build/|g; s|/var/run/secrets/kubernetes.io/serviceaccount|$work/secrets|; s|/tmp/ready|$work/ready|g" "$work/script"
gpus="GPU-aaaaaaaa-0000-0000-0000-000000000000 GPU-bbbbbbbb-0000-0000-0000-000000000000"
said=$(PATH="$work/bin:$build:$PATH" CURL_SAID="$work/curl" GPUARB_CONF=/dev/null GPUARB_GPUS="$gpus" GPUARB_GID="$(id -g)" NODE_NAME=n1 \
	KUBERNETES_SERVICE_HOST=10.0.0.1 KUBERNETES_SERVICE_PORT=443 sh -eu -c "$(cat "$work/script")" 2>&1) || say "the set-up fails: $said"
grep -q '^n1: 200 shares$' <<<"$said" || say "the set-up says: $said"
cmp -s "$build/libgpuarb-preload.so" "$work/host/lib/libgpuarb-preload.so" || say "the set-up does not bring the library"
for gpu in $gpus; do
	for part in state control; do
		[ -s "$work/host/shm/$part/$gpu" ] || say "the set-up does not make the $part segment of $gpu"
	done
done
[ "$(stat -c %a "$work/host/shm/state")$(stat -c %a "$work/host/shm/control")" = 3775755 ] || say "the set-up gives other rights"
python3 - "$work/curl" <<'END' || say "the set-up tells the API: $(cat "$work/curl")"
import json, sys
lines = open(sys.argv[1]).read().split("\n")
assert any(l.endswith("/api/v1/nodes/n1/status") for l in lines)
patch = json.loads(lines[lines.index("-d") + 1])
assert patch == [{"op": "add", "path": "/status/capacity/gpuarb.dev~1share", "value": "200"}], patch
END

# kustomize, as kubectl has it.
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
    pod = d["spec"] if d["kind"] == "Pod" else d["spec"]["template"]["spec"]
    volumes = {v["name"]: v for v in pod.get("volumes", [])}
    main = [c for c in pod["containers"] if c["name"] == "main"][0]
    if name == "other":
        assert not volumes and "env" not in main, "a workload without the label was changed"
        continue
    clients += 1
    env = {e["name"]: e for e in main["env"]}
    mounts = {m["mountPath"]: m for m in main["volumeMounts"]}
    assert env["LD_PRELOAD"]["value"] == "/usr/lib/gpuarb/libgpuarb-preload.so", name
    # What a variable refers to must stand before it.
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
assert clients == 5, clients
END

[ "$bad" = 0 ] || exit 1
echo "kubernetes: manifests, component and the set-up job's script are right (no cluster was asked)"
