#!/bin/bash
# Does what tools/deploy/README.md says, word for word, on the node of test/k8s/cluster.sh: the set-up job with what
# NVML finds, the example, annotations, a reboot. The GPU's books and gpuarb's tools are asked on the node itself.
# Usage: node.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=node
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
# shellcheck source=test/k8s/pods.sh
. test/k8s/pods.sh
# It ends the kubelet and removes what is in /dev/shm, so it does not run on any other machine.
[ -n "${CLUSTER_WORK:-}" ] || skip "this is not the node of test/k8s/cluster.sh"
node=$(kubectl get nodes -o 'jsonpath={.items[0].metadata.name}')
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
export GPUSIM_DIR=/dev/shm/gpusim
unset GPUARB_DIR LD_PRELOAD
export GPUARB_CONF=/dev/null
kubectl apply -f - >/dev/null <<'END'
apiVersion: node.k8s.io/v1
kind: RuntimeClass
metadata:
  name: nvidia
handler: nvidia
END
shares() { kubectl get node "$node" -o 'jsonpath={.status.allocatable.gpuarb\.dev/share}'; }
books() { LD_LIBRARY_PATH="$build/sim" "$build/sim/gpusim-report" --json; }

# Nodes are found by their label, GPUs by NVML. Without NVML the set-up says so, and the node gets no shares.
tools/deploy/kubernetes/setup-nodes >"$work/said" 2>&1 && say "setup-nodes is content without a node: $(cat "$work/said")"
grep -q 'name the nodes' "$work/said" || say "setup-nodes says: $(cat "$work/said")"
kubectl label node "$node" nvidia.com/gpu.present=true >/dev/null
RUNTIME_CLASS='' tools/deploy/kubernetes/setup-nodes >"$work/said" 2>&1 && say "a node without NVIDIA's runtime is set up: $(cat "$work/said")"
grep -q 'there is no libnvidia-ml.so.1' "$work/said" || say "setup-nodes says: $(cat "$work/said")"
[ -z "$(shares)" ] || say "a node that could not be set up has $(shares) shares"
tools/deploy/kubernetes/setup-nodes >"$work/said" 2>&1 || say "setup-nodes fails: $(cat "$work/said")"
grep -q "^$node: 100 shares" "$work/said" || say "setup-nodes says: $(cat "$work/said")"
has_shares() { [ "$(shares)" = 100 ]; }
until_true 30 has_shares || say "the node shows $(shares) shares"
echo "node: set up by its label, the GPU found by NVML: $(shares) shares"

# Applies the example; only the names of the images are replaced.
cp -r tools/deploy/kubernetes "$work/copy"
mkdir "$work/copy/mine"
cat >"$work/copy/mine/kustomization.yaml" <<'END'
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../example]
images:
  - {name: training, newName: gpuarb-k8s, newTag: test}
  - {name: inference, newName: gpuarb-k8s, newTag: test}
END
kubectl apply -k "$work/copy/mine" >/dev/null || say "the example is refused"
up() {
	local app
	for app in training inference; do
		kubectl rollout status --timeout=120s deployment/$app >/dev/null || say "$app does not start: $(kubectl get pods)"
	done
	until_true 30 on_gpu 2 || say "the example is not on the GPU: $(kubectl logs -l app=training)"
}
pod_of() { kubectl get pod -l app="$1" --field-selector=status.phase=Running -o 'jsonpath={.items[0].metadata.name}'; }
uid_of() { kubectl get pod "$1" -o 'jsonpath={.metadata.uid}'; }
in_force() { # POD
	"$build/gpuarb-set" --show 2>/dev/null | sed -n "s/ *in force for pod-$(uid_of "$1"): \(.*\) #.*/\1/p"
}
up
training=$(pod_of training)
[ "$(in_force "$training")" = "core=30 mem=8Gi" ] || say "training has $(in_force "$training")"
expect "the example" 30 50

# Prints two times in ms: from the call of kubectl to the kubelet's swap of the volume, and from there to the limit in
# the segment.
annotate() { # POD CORE
	local begin end swap tries=4000 account
	account=pod-$(uid_of "$1")
	begin=$(date +%s%N)
	kubectl annotate --overwrite pod "$1" gpuarb.dev/core-limit="$2" >/dev/null &
	until "$build/gpuarb-set" --show 2>/dev/null | grep -q "in force for $account: core=$2 " || [ $((tries -= 1)) = 0 ]; do sleep 0.005; done
	end=$(date +%s%N)
	wait $!
	[ "$tries" -gt 0 ] || say "gpuarb.dev/core-limit=$2 is not in force"
	swap=$(stat -c %.9Z "/var/lib/kubelet/pods/${account#pod-}/volumes/kubernetes.io~downward-api/gpuarb-pod/..data" | tr -d .)
	times="${times:-} $(((swap - begin) / 1000000))+$(((end - swap) / 1000000))"
}
for core in 10 40 15 35 20; do annotate "$training" $core; done
echo "node: ms from kubectl annotate to the kubelet's swap, and from there to the limit in the segment:$times"
expect "annotated" 20 50

# The kubelet starts anew: the shares stay, the pods run on, and annotations still reach them.
start_anew kubelet
sleep 15
annotate "$training" 25
echo "node: after the kubelet has started anew: $(shares) shares, an annotation in ms: ${times##* }"
has_shares || say "the kubelet has started anew, and the node has $(shares) shares"
[ "$(kubectl get pod "$training" -o 'jsonpath={.status.containerStatuses[0].restartCount}')" = 0 ] || say "the pod was started again with the kubelet"

# After a reboot the directories are missing; the first pod makes them.
none() {
	kubectl scale --replicas=0 deployment/training deployment/inference >/dev/null
	kubectl wait --for=delete --timeout=120s pod -l 'app in (training, inference)' >/dev/null 2>&1
	until_true 30 on_gpu 0 || say "pods that were deleted are still on the GPU"
}
none
said=$("$build/gpuarb-watchdog" --once 2>&1) || say "the segment is not in order: $said"
[ "$("$build/gpuarb-top" --json --once | jq '[.gpus[].accounts[].processes[]] | length')" = 0 ] || say "deleted pods have left processes"
[ "$(books | jq '.devices[0].memory_used_bytes')" = 0 ] || say "deleted pods have left memory taken"
rm -rf /dev/shm/gpuarb
kubectl scale --replicas=1 deployment/training deployment/inference >/dev/null
up
expect "after a reboot" 30 50
# A user who may set limits on the node sets that of a pod by the pod's account.
training=$(pod_of training)
"$build/gpuarb-set" --account "pod-$(uid_of "$training")" core=15 || say "the limit of a pod cannot be set on the node"
set_there() { [ "$(in_force "$training")" = "core=15 mem=8Gi" ]; }
until_true 10 set_there || say "set to 15 on the node, training has $(in_force "$training")"
none

[ "$bad" = 0 ] || exit 1
echo "node: the page's words are true on a cluster"
