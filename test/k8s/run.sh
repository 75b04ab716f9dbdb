#!/bin/bash
# The end-to-end case on any cluster: set-up of a node, shares that the scheduler counts, limits on unmodified programs,
# kubectl annotate while they run, pods that are killed. The GPU is simulated, so that any cluster will do.
#
#   make && make deb && docker build -t gpuarb-k8s:test -f test/k8s/Dockerfile build
#   (bring the image to the node: kind load docker-image, minikube image load, k3s ctr images import, a registry)
#   KUBECONFIG=... IMAGE=gpuarb-k8s:test test/k8s/run.sh [NODE]
#
# It uses /dev/shm/gpuarb of the node and a namespace of its own, and removes what it made.
set -u
cd "$(dirname "$0")/../.." || exit 1
: "${IMAGE:=gpuarb-k8s:test}"
namespace=gpuarb-test
bad=0
say() {
	echo "k8s: $*" >&2
	bad=$((bad + 1))
}
for program in kubectl jq; do
	command -v $program >/dev/null || { echo "k8s: not tried, there is no $program here"; exit 0; }
done
if ! kubectl version --request-timeout=10s >/dev/null 2>&1; then
	echo "k8s: not tried, no cluster answers (KUBECONFIG=${KUBECONFIG:-})"
	exit 0
fi
node=${1:-$(kubectl get nodes -o 'jsonpath={.items[0].metadata.name}')}
host=$(kubectl get node "$node" -o 'jsonpath={.metadata.labels.kubernetes\.io/hostname}')
k() { kubectl -n "$namespace" "$@"; }
until_true() { # SECONDS COMMAND...
	local tries=$1
	shift
	while ! "$@"; do
		[ $((tries -= 1)) -gt 0 ] || return 1
		sleep 1
	done
}
work=$(mktemp -d) || exit 1
# shellcheck disable=SC2317,SC2329
finish() {
	kubectl delete namespace "$namespace" --ignore-not-found --wait=false >/dev/null
	kubectl patch node "$node" --subresource=status --type=json \
		-p '[{"op": "remove", "path": "/status/capacity/gpuarb.dev~1share"}]' >/dev/null 2>&1
	rm -rf "$work"
}
trap finish EXIT

# The UUID that the simulated GPU has in every process.
uuid=${GPU:-GPU-465b16bc-8011-4bdb-bc32-03c13ba643a0}
IMAGE=$IMAGE RUNTIME_CLASS='' GPUS=$uuid tools/deploy/kubernetes/setup-nodes "$node" || exit 1
shares() { [ "$(kubectl get node "$node" -o 'jsonpath={.status.allocatable.gpuarb\.dev/share}')" = 100 ]; }
until_true 60 shares || say "the node does not show 100 shares"

kubectl create namespace "$namespace" --dry-run=client -o yaml | kubectl apply -f - >/dev/null
kubectl label namespace "$namespace" pod-security.kubernetes.io/enforce=privileged --overwrite >/dev/null
cp -r tools/deploy/kubernetes/component "$work/component"
mkdir "$work/pods"
pod() { # NAME KEY LIMIT SHARES
	sed -e "s|NAME|$1|; s|KEY|$2|; s|LIMIT|$3|; s|SHARES|$4|; s|HOST|$host|; s|IMAGE|$IMAGE|" test/k8s/client.yaml >"$work/pods/$1.yaml"
	printf 'apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s.yaml]\ncomponents: [../component]\n' "$1" >"$work/pods/kustomization.yaml"
	kubectl kustomize "$work/pods" | k apply -f - >/dev/null || say "pod $1 is refused"
}
pod one gpuarb.dev/core-limit 30 30
pod two gpuarb.dev/core-limit 20 20
pod three nvshare.com/gpu-core-limit 40 40
k wait --for=condition=Ready --timeout=180s pod/one pod/two pod/three >/dev/null || say "the pods do not start: $(k get pods -o wide)"
# 90 of 100 are taken: 20 more have to wait, 10 would not.
pod waits gpuarb.dev/core-limit 20 20
sleep 3
[ "$(k get pod waits -o 'jsonpath={.status.phase}')" = Pending ] || say "the scheduler gave 110 shares away"

books() { k exec one -- env -u LD_PRELOAD gpusim-report --json; }
# Inside, each process is pid 1: the report's serial numbers say who is who, by what each got.
attained() { # SECONDS: hundredths of a percent of each living process, sorted
	books >"$work/before"
	sleep "$1"
	books >"$work/after"
	jq -n -c --slurpfile a "$work/before" --slurpfile b "$work/after" '
		($b[0].devices[0].now_ns - $a[0].devices[0].now_ns) as $time |
		[$b[0].devices[0].processes[] | select(.alive) | . as $p |
			(.device_ns - ([$a[0].devices[0].processes[] | select(.serial == $p.serial) | .device_ns] | add // 0)) * 10000 / $time | round] | sort'
}
near() { # JSON LIMIT...: each within 3 points below and 2 above
	jq -e -n --argjson got "$1" --argjson want "[$(shift; IFS=,; echo "$*")]" '
		($got | length) == ($want | length) and ([range($want | length)] | all($got[.] <= $want[.] * 100 + 200 and $got[.] >= $want[.] * 100 - 300))' >/dev/null
}
got=$(attained 10)
echo "k8s: limits 20, 30 and 40: $got hundredths of a percent"
near "$got" 20 30 40 || say "limits 20, 30 and 40 gave $got"

k annotate --overwrite pod one gpuarb.dev/core-limit=10 >/dev/null
k annotate --overwrite pod three nvshare.com/gpu-core-limit=50 >/dev/null
# The kubelet brings it to the pod when it next syncs it; the client follows at once.
changed() { [ "$(k exec one -- env -u LD_PRELOAD sed -n 's|^gpuarb.dev/core-limit="\(.*\)"|\1|p' /etc/gpuarb-pod/annotations)" = 10 ]; }
until_true 120 changed || say "the annotation does not reach the pod"
sleep 1
got=$(attained 10)
echo "k8s: annotated to 20, 10 and 50: $got hundredths of a percent"
near "$got" 10 20 50 || say "limits 10, 20 and 50 gave $got"

# Pods may not set what others go by.
said=$(k exec two -- env -u LD_PRELOAD gpuarb-set --gpu "$uuid" policy=exclusive 2>&1) && say "a pod has changed the policy"
grep -q 'Read-only file system' <<<"$said" || say "a pod that sets is told: $said"

k delete pod three --grace-period=0 --force >/dev/null 2>&1
k wait --for=condition=Ready --timeout=120s pod/waits >/dev/null || say "the pod that waited does not start when there is room"
alive() { [ "$(books | jq '[.devices[0].processes[] | select(.alive)] | length')" = 3 ]; }
until_true 30 alive || say "the killed pod is still on the GPU"
k exec one -- env -u LD_PRELOAD gpuarb-top --once || say "gpuarb-top fails in a pod"

[ "$bad" = 0 ] || exit 1
echo "k8s: shares are counted, limits hold, annotations change them, killed pods leave nothing"
