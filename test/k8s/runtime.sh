#!/bin/bash
# Pods with gpuarb-runtime on the node of test/k8s/cluster.sh. The DaemonSet sets the node up; a pod needs one line
# and mounts nothing of the node; what a pod was granted is asked of the API server in the kubelet's name. The node is
# empty at first, and the page's own commands are run, with a stopwatch.
# Usage: runtime.sh BUILD IMAGES
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1") images=$(readlink -f "$2")
what=k8s-runtime
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
# shellcheck source=test/k8s/pods.sh
. test/k8s/pods.sh
[ -n "${CLUSTER_WORK:-}" ] || skip "this is not the node of test/k8s/cluster.sh"
begin=$SECONDS
files=tools/deploy/kubernetes
node=$(kubectl get nodes -o 'jsonpath={.items[0].metadata.name}')
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUSIM_DIR=/dev/shm/gpusim GPUARB_CONF=/dev/null
unset GPUARB_DIR LD_PRELOAD
books() { GPUSIM_DEVICES=$(cat "$CLUSTER_WORK/gpus") LD_LIBRARY_PATH="$build/sim" "$build/sim/gpusim-report" --json; }
resource() { kubectl get node "$node" -o "jsonpath={.status.allocatable.gpuarb\\.dev/$1}"; }
runtime=/var/lib/gpuarb/gpuarb-runtime

# Does what NVIDIA's own set-up does: a label, and a class for its runtime.
kubectl label node "$node" nvidia.com/gpu.present=true --overwrite >/dev/null
kubectl apply -f - >/dev/null <<'END'
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: nvidia
handler: nvidia
END
# The page's commands are run word for word; only the path of containerd's configuration is replaced. The last one
# makes a pod, which is done below. images.sh has built the image; the time that this took is added.
kubelet_of() { KUBECONFIG=$CLUSTER_WORK/pki/kubelet.conf PATH="$CLUSTER_WORK/bin:$PATH" "$@"; }
docker() {
	[ "${*:1:5}" = "build -t gpuarb:0.1 -f kubernetes/Dockerfile" ] && [ -f "$5" ] && [ "$(readlink -f "$6")" = "$build/deb" ] || say "the page builds an image by: $*"
	image=$(cat "$images/seconds")
}
systemctl() {
	[ "$*" = "restart containerd" ] || say "the page says systemctl $*"
	start_anew containerd
	until_true 30 ctr version >/dev/null 2>&1 || say "containerd does not start with the lines of the page: $(tail -n 3 "$CLUSTER_WORK/daemons/containerd")"
}
set_up() {
	kubectl -n gpuarb rollout status --timeout=120s daemonset/gpuarb-setup >"$work/said" 2>&1 ||
		say "the DaemonSet does not come up: $(kubectl -n gpuarb get pods) $(kubectl -n gpuarb logs daemonset/gpuarb-setup -c setup)"
}
mapfile -t commands < <(sed -n '/^\*\*Ten minutes\*\*/,/^[^ *]/s/^    //p' tools/deploy/README.md | sed "s|/etc/containerd/config.toml|$CLUSTER_WORK/containerd.toml|")
[ "${#commands[@]}" -ge 5 ] || say "the page has ${#commands[@]} commands"
cd tools/deploy || exit 1
for command in "${commands[@]::${#commands[@]}-1}"; do
	echo "k8s-runtime: $((SECONDS - begin + ${image:-0})) s: ${command%%  *}"
	eval "$command" >"$work/said" 2>&1 || say "$command: $(cat "$work/said")"
done
cd ../.. || exit 1
set_up
has() { [ "$(resource share)" = "$1" ] && [ "$(resource memory-gib)" = "$2" ]; }
until_true 60 has 100 16 || say "the node shows $(resource share) shares and $(resource memory-gib) GiB"
kubelet_of $runtime --check >"$work/said" 2>&1 || say "gpuarb-runtime --check: $(cat "$work/said")"
echo "k8s-runtime: set up by the DaemonSet: $(resource share) shares, $(resource memory-gib) GiB; $(cat "$work/said")"

# The pod of a tenant who is not root, with variables of its own, in a namespace with a quota.
kubectl create namespace team >/dev/null
kubectl label namespace team pod-security.kubernetes.io/enforce=restricted gpuarb.dev/tenant= >/dev/null
kubectl -n team apply -f $files/quota.yaml >/dev/null || say "the quota is refused"
has_account() { kubectl -n team get serviceaccount default >/dev/null 2>&1; }
until_true 30 has_account || say "the namespace gets no service account"
chmod -R a+rwX /dev/shm/gpusim 2>/dev/null
pod() { # NAME SHARE [LINE-OF-THE-METADATA]
	local line='labels: {a: b}'
	cat <<END
apiVersion: v1
kind: Pod
metadata:
  name: $1
  ${3:-$line}
spec:
  runtimeClassName: gpuarb
  terminationGracePeriodSeconds: 0
  restartPolicy: Never
  securityContext: {runAsNonRoot: true, runAsUser: 1000, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: anything
      image: gpuarb-k8s:test
      imagePullPolicy: IfNotPresent
      command: ["simload", "--kernel-us=50", "--duration=3600"]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: ["ALL"]}}
      env: [{name: GPUARB_CORE_LIMIT, value: "100"}, {name: LD_PRELOAD, value: ""}, {name: GPUARB_ACCOUNT, value: mine}]
      resources: {limits: {$2}}
END
}
wait_for() { kubectl -n team wait --for=condition=Ready --timeout=60s "$@" >/dev/null || say "pods do not start: $(kubectl -n team describe "$@" | tail -n 5)"; }
pod greedy 'gpuarb.dev/share: 35' 'annotations: {gpuarb.dev/share: "90"}' | kubectl -n team apply -f - >/dev/null || { say "the pod is refused"; exit 1; }
wait_for pod/greedy
chmod 666 /dev/shm/gpusim/* 2>/dev/null
until_true 30 on_gpu 1 || say "the pod is not on the GPU: $(kubectl -n team logs greedy)"
echo "k8s-runtime: $((SECONDS - begin + ${image:-0})) s: the first pod is on the GPU (${image:-0} s of that: the image; before it, make deb)"
expect "35 granted, 90 annotated, 100 in its environment" 35
uid=$(kubectl -n team get pod greedy -o 'jsonpath={.metadata.uid}')
[ "$($runtime --list | cut -f2,3,5)" = "35	35	pod-$uid" ] || say "it was granted: $($runtime --list)"
# On a node without kubectl, curl asks, with the file that kubeadm writes for the kubelet.
cat >"$work/kubelet.conf" <<END
apiVersion: v1
clusters:
- cluster:
    certificate-authority-data: $(base64 -w 0 "$CLUSTER_WORK/pki/ca.crt")
    server: $(kubectl config view -o 'jsonpath={.clusters[0].cluster.server}')
  name: default-cluster
contexts: []
users:
- name: default-auth
  user:
    client-certificate: $CLUSTER_WORK/pki/kubelet.crt
    client-key: $CLUSTER_WORK/pki/kubelet.key
END
# shellcheck disable=SC2016
without_kubectl() {
	KUBECONFIG="$work/kubelet.conf" unshare --mount sh -c 'for program in /usr/local/bin/kubectl /usr/bin/kubectl; do
		[ ! -e $program ] || mount --bind /dev/null $program; done; exec "$@"' sh "${runtime%/*}/pod-of" team greedy "$uid"
}
[ "$(without_kubectl | jq -r '.metadata.uid + " " + .spec.containers[0].resources.limits["gpuarb.dev/share"]')" = "$uid 35" ] ||
	say "without kubectl the pod is: $(without_kubectl 2>&1 | head -n 3)"
# A process that kubectl exec starts, with an environment that was emptied.
kubectl -n team exec greedy -- env -i LD_LIBRARY_PATH=/usr/lib/gpusim GPUSIM_DIR=/run/gpusim GPUSIM_MODE=share GPUARB_DISABLE=1 simload --kernel-us=50 --duration=40 >"$work/exec" 2>&1 &
exec_pid=$!
until_true 30 on_gpu 2 || say "what kubectl exec has started is not on the GPU: $(cat "$work/exec")"
together() { # WHAT LIMIT: of all that are on the GPU
	books >"$work/before"
	sleep 8
	books >"$work/after"
	attained=$(share "$work/before" "$work/after" true)
	echo "k8s-runtime: $1: limit $2, attained $(percent "$attained")"
	near "$attained" "$2" || say "$1: limit $2, got $(percent "$attained")"
}
together "with one more by kubectl exec" 35
# A plain `wait` would wait for containerd too: it is a child of this shell since it was started anew.
wait $exec_pid

# Any kind of object works: the CronJob of the page, with another image and command.
sed -e 's|training:latest|gpuarb-k8s:test|' -e 's|^\( *\)image: .*|&\n\1imagePullPolicy: IfNotPresent\n\1command: ["simload", "--kernel-us=50", "--duration=3600"]|' $files/share/cronjob.yaml |
	sed 's|batch/v1$|batch/v1beta1|' | kubectl -n team apply -f - >"$work/said" 2>&1 || say "the CronJob is refused: $(cat "$work/said")"
kubectl -n team create job now --from=cronjob/nightly >/dev/null 2>&1 || kubectl -n team get cronjob.v1beta1.batch nightly -o json |
	jq '{apiVersion: "batch/v1", kind: "Job", metadata: {name: "now"}, spec: .spec.jobTemplate.spec}' | kubectl -n team apply -f - >/dev/null || say "no job can be made of the CronJob"
until_true 60 on_gpu 2 || say "the CronJob's pod is not on the GPU: $(kubectl -n team describe pods | tail -n 5)"
expect "a pod and a CronJob's" 30 35

# The namespace's quota and the scheduler refuse too many shares.
pod much 'gpuarb.dev/share: 90' | kubectl -n team apply -f - >"$work/said" 2>&1 && say "the quota lets 155 pass"
grep -q 'exceeded quota' "$work/said" || say "of 155 it says: $(cat "$work/said")"
pod waits 'gpuarb.dev/share: 40' | kubectl -n team apply -f - >/dev/null
unschedulable() { [ "$(kubectl -n team get pod waits -o 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}')" = Unschedulable ]; }
until_true 30 unschedulable || say "the scheduler gave 105 shares away"
kubectl -n team delete pod waits >/dev/null

# No container starts without a share or with an unknown annotation; the pod's events say why.
refused() { # NAME SENTENCE
	told() { kubectl -n team get events --field-selector "involvedObject.name=$1" -o json | grep -q "$2"; }
	until_true 40 told "$1" "$2" || say "$1: $(kubectl -n team get events --field-selector "involvedObject.name=$1" -o 'jsonpath={.items[*].message}')"
	case "$(kubectl -n team get pod "$1" -o 'jsonpath={.status.phase}')" in
	Pending | Failed) ;;
	*) say "$1 runs" ;;
	esac
	kubectl -n team delete pod "$1" >/dev/null
}
pod none 'cpu: 1' 'annotations: {gpuarb.dev/share: "50"}' | kubectl -n team apply -f - >/dev/null
refused none 'pod team/none asks for no share of a GPU'
pod misspelt 'gpuarb.dev/share: 5' 'annotations: {gpuarb.dev/core-limits: "3"}' | kubectl -n team apply -f - >/dev/null
refused misspelt 'did you mean gpuarb.dev/core-limit?'

# A killed pod leaves nothing, nor does a deleted job.
kubectl -n team delete job now --wait >/dev/null 2>&1
kubectl -n team delete pod greedy --grace-period=0 --force >/dev/null 2>&1
until_true 60 on_gpu 0 || say "deleted pods are still on the GPU"
free() { [ -z "$($runtime --list)" ]; }
until_true 60 free || say "what deleted pods were granted is not free: $($runtime --list)"

# Two containers of one pod run as two users. The pod is the account, and they share what they asked for together.
{
	pod both 'gpuarb.dev/share: 15'
	pod both 'gpuarb.dev/share: 25' | sed -n '/name: anything/,$p' | sed -e 's|anything|other|' -e 's|securityContext: {|&runAsUser: 2000, |'
} | kubectl -n team apply -f - >/dev/null || say "a pod of two containers is refused"
wait_for pod/both
until_true 30 on_gpu 2 || say "not both containers are on the GPU: $(kubectl -n team logs both anything) $(kubectl -n team logs both other)"
together "two containers of a pod, of two users" 40
kubectl -n team delete pod both --grace-period=0 --force >/dev/null 2>&1
until_true 60 on_gpu 0 || say "deleted pods are still on the GPU"

# With gpuarb-runtime as the node's default runtime a pod needs one line and nothing else. Pods that ask for nothing
# run, and see no GPU.
printf '[plugins."io.containerd.grpc.v1.cri".containerd]\n  default_runtime_name = "gpuarb"\n' >>"$CLUSTER_WORK/containerd.toml"
echo 'without_share = hide' >>/var/lib/gpuarb/runtime.conf
systemctl restart containerd
pod line 'gpuarb.dev/share: 25' | sed '/runtimeClassName/d' | kubectl -n team apply -f - >/dev/null || say "a pod of one line is refused"
pod nothing 'cpu: 1' | sed -e '/runtimeClassName/d' -e 's|command:.*|command: ["sleep", "3600"]|' | kubectl -n team apply -f - >/dev/null
wait_for pod/line pod/nothing
until_true 30 on_gpu 1 || say "the pod of one line is not on the GPU: $(kubectl -n team logs line)"
expect "one line in the pod, the default runtime of the node" 25
has_driver() { kubectl -n team exec "$1" -- test -e /usr/lib/libcuda.so.1 2>/dev/null; }
has_driver line || say "NVIDIA's runtime does not give the pod of one line the driver"
has_driver nothing && say "a pod that asks for nothing gets the driver"
kubectl -n team delete pod line nothing --grace-period=0 --force >/dev/null 2>&1
until_true 60 on_gpu 0 || say "deleted pods are still on the GPU"

# A second GPU appears, as after a reboot with another card: the set-up finds it, and four pods of 50 use both.
echo 2 >"$CLUSTER_WORK/gpus"
kubectl -n gpuarb delete pod --all --grace-period=0 --force >/dev/null 2>&1
rm -rf /dev/shm/gpuarb /dev/shm/gpusim/*
set_up
until_true 90 has 200 32 || say "with two GPUs the node shows $(resource share) shares and $(resource memory-gib) GiB"
kubectl -n team delete resourcequota --all >/dev/null
chmod -R a+rwX /dev/shm/gpusim
in_use() { [ "$(books 2>/dev/null | jq '[.devices[].processes[] | select(.alive and .memory_bytes > 0)] | length')" = "$1" ]; }
for i in 1 2 3 4; do
	pod "half$i" 'gpuarb.dev/share: 50, gpuarb.dev/memory-gib: 8' | kubectl -n team apply -f - >/dev/null
	wait_for "pod/half$i"
	chmod 666 /dev/shm/gpusim/* 2>/dev/null
	until_true 30 in_use "$i" || say "half$i is not on a GPU: $(kubectl -n team logs "half$i")"
done
[ "$($runtime --list | cut -f1 | sort | uniq -c | awk '{print $1}' | xargs)" = "2 2" ] || say "four pods of 50 are not two on each GPU: $($runtime --list)"
# Less may be the machine's fault, if the load gets no processor: then it is measured again.
for _ in 1 2 3 4 5 6; do
	books >"$work/before"
	sleep 10
	books >"$work/after"
	busy=$(jq -n -c --slurpfile a "$work/before" --slurpfile b "$work/after" '[range(2) as $i |
		([$b[0], $a[0]] | map([.devices[$i].processes[].device_ns] | add) | .[0] - .[1]) * 100 / ($b[0].devices[$i].now_ns - $a[0].devices[$i].now_ns) | round]')
	echo "k8s-runtime: two GPUs, four pods of 50: percent of each that was used: $busy"
	jq -e 'all(. > 50)' <<<"$busy" >/dev/null && break
done
jq -e 'all(. > 50)' <<<"$busy" >/dev/null || say "four pods of 50 used $busy of two GPUs"
pod waits 'gpuarb.dev/share: 10' | kubectl -n team apply -f - >/dev/null
until_true 30 unschedulable || say "the scheduler gave 210 shares of two GPUs away"
kubectl -n team delete pod --all --grace-period=0 --force >/dev/null 2>&1
until_true 60 in_use 0 || say "deleted pods are still on the GPUs"
until_true 60 free || say "what deleted pods were granted is not free: $($runtime --list)"

said=$("$build/gpuarb-watchdog" --once 2>&1) || say "the segment is not in order: $said"
[ "$bad" = 0 ] || exit 1
echo "k8s-runtime: shares hold in a namespace of a tenant, kubectl exec included, in one line, on two GPUs ($((SECONDS - begin)) s)"
