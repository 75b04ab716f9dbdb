#!/bin/bash
# The end-to-end case on any cluster: set-up of a node, shares that the scheduler counts, limits on unmodified programs,
# kubectl annotate while they run, pods that are killed. The GPU is simulated, so that any cluster will do.
#
#   make && make deb && docker build -t gpuarb-k8s:test -f test/k8s/Dockerfile build
#   (bring the image to the node: kind load docker-image, minikube image load, k3s ctr images import, a registry)
#   KUBECONFIG=... IMAGE=gpuarb-k8s:test test/k8s/end-to-end.sh [NODE]
#
# It uses /dev/shm/gpuarb and /var/lib/gpuarb of a node that is not set up for gpuarb, and two namespaces, and removes
# what it made.
set -u
cd "$(dirname "$0")/../.." || exit 1
: "${IMAGE:=gpuarb-k8s:test}"
what=k8s
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
# shellcheck source=test/k8s/pods.sh
. test/k8s/pods.sh
needs kubectl jq
kubectl version --request-timeout=10s >/dev/null 2>&1 || skip "no cluster answers (KUBECONFIG=${KUBECONFIG:-})"
has_kustomize || skip "this kubectl knows no components; 1.21 does"
node=${1:-$(kubectl get nodes -o 'jsonpath={.items[0].metadata.name}')}
host=$(kubectl get node "$node" -o 'jsonpath={.metadata.labels.kubernetes\.io/hostname}')
shares() { kubectl get node "$node" -o 'jsonpath={.status.allocatable.gpuarb\.dev/share}'; }
[ -z "$(shares)" ] || skip "$node has $(shares) shares already: name a node that has none"
namespace=gpuarb-test
group=4242
# The UUID that the simulated GPU has in every process.
uuid=${GPU:-GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0}
k() { kubectl -n "$namespace" "$@"; }
work=$(mktemp -d) || exit 1
trap finish EXIT

# A pod that removes from the node what the other pods left there.
# shellcheck disable=SC2317,SC2329
clean_node() {
	k delete pod --all --timeout=60s >/dev/null
	sed -e "s|HOST|$host|; s|IMAGE|$IMAGE|" test/k8s/clean.yaml | k apply -f - >/dev/null
	done_cleaning() { [ "$(k get pod clean -o 'jsonpath={.status.phase}')" = Succeeded ]; }
	until_true 60 done_cleaning || say "the node could not be cleaned: $(k logs clean 2>&1)"
}
# shellcheck disable=SC2317,SC2329
finish() {
	local status=$?
	[ ! -e "$work/pods" ] || clean_node
	kubectl delete namespace gpuarb "$namespace" --ignore-not-found >/dev/null
	kubectl delete clusterrole,clusterrolebinding gpuarb-setup --ignore-not-found >/dev/null
	kubectl get --raw "/api/v1/nodes/$node/status" | jq 'del(.metadata.resourceVersion, .status.capacity["gpuarb.dev/share", "gpuarb.dev/memory-gib"], .status.allocatable["gpuarb.dev/share", "gpuarb.dev/memory-gib"])' |
		kubectl replace --raw "/api/v1/nodes/$node/status" -f - >/dev/null || say "$node still has shares"
	rm -rf "$work"
	[ "$bad" = 0 ] || status=1
	exit "$status"
}

IMAGE=$IMAGE RUNTIME_CLASS='' GPUS=$uuid GID=$group tools/deploy/kubernetes/setup-nodes "$node" || exit 1
has_shares() { [ "$(shares)" = 100 ]; }
until_true 60 has_shares || say "the node does not show 100 shares"

kubectl create namespace "$namespace" >/dev/null
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=privileged --overwrite >/dev/null
has_account() { k get serviceaccount default >/dev/null 2>&1; }
until_true 30 has_account || say "the namespace gets no service account"
cp -r tools/deploy/kubernetes/component "$work/component"
sed -i "s|gpuarb:0.1|$IMAGE|" "$work/component"/*.yaml
mkdir "$work/pods"
# The first container runs as root; others may run as the group that the node was set up for.
pod() { # NAME KEY LIMIT SHARES [USER]
	sed -e "s|NAME|$1|; s|KEY|$2|; s|LIMIT|$3|; s|SHARES|$4|; s|USER|${5:-0}|; s|GROUP|$group|; s|HOST|$host|; s|IMAGE|$IMAGE|" \
		test/k8s/client.yaml >"$work/pods/$1.yaml"
	printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s.yaml]\ncomponents: [../component]\n' "$1" >"$work/pods/kustomization.yaml"
	kubectl kustomize "$work/pods" | k apply -f - >/dev/null || say "pod $1 is refused"
}
in_pod() { # NAME COMMAND...
	local name=$1
	shift
	k exec "$name" -c main -- env -u LD_PRELOAD "$@"
}
books() { in_pod one gpusim-report --json; }
wait_for() { k wait --for=condition=Ready --timeout=180s "$@" >/dev/null || say "pods do not start: $(k get pods -o wide)"; }
pod one gpuarb.dev/core-limit 30 30
wait_for pod/one
until_true 30 on_gpu 1 || say "the first pod is not on the GPU: $(k logs one)"
in_pod one sh -c 'chmod 777 /run/gpusim && chmod 666 /run/gpusim/*'
pod two gpuarb.dev/core-limit 20 20 1000
pod three nvshare.com/gpu-core-limit 40 40
wait_for pod/two pod/three
until_true 30 on_gpu 3 || say "not all are on the GPU: $(k logs two) $(k logs three)"
# 90 of 100 shares are taken: a pod with 20 more has to wait.
pod waits gpuarb.dev/core-limit 20 20
unschedulable() { [ "$(k get pod waits -o 'jsonpath={.status.conditions[?(@.type=="PodScheduled")].reason}')" = Unschedulable ]; }
until_true 30 unschedulable || say "the scheduler gave 110 shares away: $(k get pods)"

expect "as created" 20 30 40

# Both families of annotations are changed on running pods. A loop in another pod sees the limit in the segment.
account() { echo "pod-$(k get pod "$1" -o 'jsonpath={.metadata.uid}')"; }
annotate() { # POD KEY=VALUE SHOWN
	local account begin said seen
	account=$(account "$1")
	exec {seen}< <(in_pod two sh -c "echo looking; until gpuarb-set --show --gpu $uuid | grep -q 'in force for $account: .*$3'; do sleep 0.01; done; echo seen" 2>&1)
	read -r -t 30 -u "$seen" said
	begin=$(date +%s%N)
	k annotate --overwrite pod "$1" "$2" >/dev/null || say "pod $1 cannot be annotated"
	if read -r -t 120 -u "$seen" said && [ "$said" = seen ]; then
		echo "k8s: $2 was in force $((($(date +%s%N) - begin) / 1000000)) ms after kubectl was called"
	else
		say "$2 is not in force: $said $(in_pod two gpuarb-set --show | grep 'in force')"
	fi
	exec {seen}<&-
}
annotate one gpuarb.dev/core-limit=10 'core=10'
annotate one gpuarb.dev/memory-limit=2Gi 'mem=2Gi'
annotate three nvshare.com/gpu-core-limit=50 'core=50'
annotate three nvshare.com/gpu-memory-limit=3Gi 'mem=3Gi'
sleep 1
expect "annotated" 10 20 50

# A pod may not change settings that all use.
said=$(in_pod one gpuarb-set --gpu "$uuid" policy=exclusive 2>&1) && say "a pod has changed the policy"
grep -q 'Read-only file system' <<<"$said" || say "a pod that sets is told: $said"

# A pod is killed: the pod that waits gets its shares, and nothing of the killed one is left.
gone=$(account three)
k delete pod three --grace-period=0 --force >/dev/null 2>&1
wait_for pod/waits
until_true 30 on_gpu 3 || say "the killed pod is still on the GPU"
left() { in_pod one gpuarb-top --json --once | jq -c --arg gone "$gone" '[.gpus[].accounts[] | select(.name == $gone) | .processes[]]'; }
nothing_left() { [ "$(left)" = "[]" ]; }
until_true 10 nothing_left || say "the killed pod left $(left)"
said=$(in_pod one gpuarb-watchdog --once 2>&1) || say "the segment is not in order: $said"
in_pod one gpuarb-top --once || say "gpuarb-top fails in a pod"

[ "$bad" = 0 ] || exit 1
echo "k8s: shares are counted, limits hold, annotations change them, killed pods leave nothing"
