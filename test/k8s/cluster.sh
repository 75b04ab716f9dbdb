#!/bin/bash
# Runs a real cluster of one node while a command runs: etcd, and the API server, scheduler, controllers and kubelet
# of Kubernetes, with containerd and runc below them. It has processes, mounts and a network of its own, so that
# nothing of the machine is changed and nothing is left. Only kube-proxy is missing: the API server itself listens at
# the address of its service.
# Usage: cluster.sh PROGRAMS IMAGES DRIVER COMMAND...
# PROGRAMS: the directory that build.sh made; IMAGES: a directory of *.tar files for the node; DRIVER: a directory
# with the libraries that containers with a GPU get
set -u
what=cluster
# shellcheck source=test/deploy/common.sh
. "$(dirname "$0")/../deploy/common.sh"
self=$(readlink -f "$0")
programs=$(readlink -f "$1") images=$(readlink -f "$2") driver=$(readlink -f "$3")
shift 3
export PATH="$programs/debs/usr/bin:$PATH"
api=10.96.0.1 address=192.0.2.1 node=node1

outside() {
	needs etcd containerd ctr runc ip openssl unshare kubectl jq
	[ "$(id -u)" = 0 ] || skip "only root can run a kubelet"
	unshare --mount --net --pid --uts --ipc --fork true 2>/dev/null || skip "namespaces are forbidden here"
	work=$(mktemp -d /tmp/gpuarb-k8s-XXXXXX) || exit 1
	trap clean EXIT
	trap 'exit 130' INT TERM
	CLUSTER_INSIDE=$work unshare --mount --net --pid --uts --ipc --fork --kill-child --mount-proc --propagation private \
		"$self" "$programs" "$images" "$driver" "$@"
}

# All processes inside are dead; their control groups are the machine's and have to be removed.
# shellcheck disable=SC2317,SC2329
groups() { find /sys/fs/cgroup -depth -type d -path "*/${work##*/}*" 2>/dev/null; }
# shellcheck disable=SC2317,SC2329
no_groups() {
	groups | xargs -r rmdir 2>/dev/null
	[ -z "$(groups)" ]
}
# shellcheck disable=SC2317,SC2329
clean() {
	until_true 10 no_groups || say "control groups are left: $(groups)"
	rm -rf "$work"
}

# Kubernetes and containerd write into these directories; /dev/shm/gpuarb and /var/lib/gpuarb belong to the node.
separate() {
	mkdir -p "$work"/{run,lib,log,pki,cni,etcd,daemons}
	mount --bind "$work/run" /run && mount --bind "$work/lib" /var/lib && mount --bind "$work/log" /var/log &&
		mount -t tmpfs -o mode=1777 tmpfs /dev/shm && hostname $node &&
		ip link set lo up && ip address add $api/32 dev lo && ip address add $address/32 dev lo
}

sign() { # NAME SUBJECT [EXTENSION]: a key, and a certificate by our own authority
	openssl req -newkey rsa:2048 -nodes -keyout "$work/pki/$1.key" -subj "$2" -out "$work/pki/$1.csr" &&
		openssl x509 -req -in "$work/pki/$1.csr" -CA "$work/pki/ca.crt" -CAkey "$work/pki/ca.key" -CAcreateserial -days 2 \
			-extfile <(echo "${3:-extendedKeyUsage=clientAuth}") -out "$work/pki/$1.crt"
}
login() { # NAME SUBJECT: a kubeconfig in its name
	sign "$1" "$2" &&
		cat >"$work/pki/$1.conf" <<-END
			apiVersion: v1
			kind: Config
			clusters: [{name: c, cluster: {server: "https://$api", certificate-authority: $work/pki/ca.crt}}]
			users: [{name: u, user: {client-certificate: $work/pki/$1.crt, client-key: $work/pki/$1.key}}]
			contexts: [{name: x, context: {cluster: c, user: u}}]
			current-context: x
		END
}
identities() {
	openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=ca -keyout "$work/pki/ca.key" -out "$work/pki/ca.crt" &&
		openssl genrsa -out "$work/pki/accounts.key" 2048 &&
		sign api /CN=kube-apiserver "subjectAltName=IP:$api,DNS:kubernetes.default.svc" &&
		sign to-kubelet /O=system:masters/CN=api-to-kubelet &&
		login admin /O=system:masters/CN=admin && login scheduler /CN=system:kube-scheduler &&
		login controllers /CN=system:kube-controller-manager && login kubelet "/O=system:nodes/CN=system:node:$node"
}

settings() {
	cat >"$work/containerd.toml" <<-END
		version = 2
		root = "$work/containerd"
		state = "/run/containerd"
		[plugins."io.containerd.grpc.v1.cri"]
		  sandbox_image = "docker.io/library/pause:test"
		  # Where this may not be lowered, containers get the value of containerd itself.
		  restrict_oom_score_adj = true
		  [plugins."io.containerd.grpc.v1.cri".cni]
		    bin_dir = "$programs/debs/usr/lib/cni"
		    conf_dir = "$work/cni"
		  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
		    runtime_type = "io.containerd.runc.v2"
		  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia]
		    runtime_type = "io.containerd.runc.v2"
		    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.nvidia.options]
		      BinaryName = "$work/nvidia-runtime"
	END
	cat >"$work/cni/pods.conflist" <<-END
		{"cniVersion": "0.4.0", "name": "pods", "plugins": [{"type": "bridge", "bridge": "pods", "isDefaultGateway": true,
		 "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.97.0.0/24"}]]}}]}
	END
	cat >"$work/kubelet.yaml" <<-END
		apiVersion: kubelet.config.k8s.io/v1beta1
		kind: KubeletConfiguration
		authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: $work/pki/ca.crt}}
		authorization: {mode: Webhook}
		cgroupDriver: cgroupfs
		cgroupRoot: /${work##*/}
		oomScoreAdj: 0
		failSwapOn: false
		resolvConf: ""
		imageGCHighThresholdPercent: 100
		evictionHard: {memory.available: 1Mi, nodefs.available: 1%, imagefs.available: 1%}
	END
	# The kubelet makes the groups below it.
	local controller
	for controller in /sys/fs/cgroup /sys/fs/cgroup/*/; do
		[ -e "$controller/cgroup.procs" ] && mkdir -p "$controller/${work##*/}"
	done
	return 0
}

# Does what NVIDIA's container runtime does: a container that asks by NVIDIA_VISIBLE_DEVICES gets the driver and as
# many GPUs as a file says.
nvidia_runtime() {
	mkdir -p /dev/shm/gpusim
	echo 1 >"$work/gpus"
	cat >"$work/gpu.jq" <<-END
		def bind(from; to): {type: "bind", source: from, destination: to, options: ["rbind", "rw"]};
		if .process.env | any(startswith("NVIDIA_VISIBLE_DEVICES=") and . != "NVIDIA_VISIBLE_DEVICES=void") then
		  .process.env += ["GPUSIM_DIR=/run/gpusim", "GPUSIM_MODE=share", "GPUSIM_DEVICES=" + \$gpus] |
		  .mounts += [bind("/dev/shm/gpusim"; "/run/gpusim")] + ["libcuda.so.1", "libnvidia-ml.so.1" | bind("$driver/" + .; "/usr/lib/" + .)]
		else . end
	END
	cat >"$work/nvidia-runtime" <<-END
		#!/bin/sh
		before= bundle=
		for argument; do
		    [ "\$before" != --bundle ] || bundle=\$argument
		    before=\$argument
		done
		[ -z "\$bundle" ] || { jq --arg gpus "\$(cat "$work/gpus")" -f "$work/gpu.jq" "\$bundle/config.json" >"\$bundle/new" && mv "\$bundle/new" "\$bundle/config.json"; } || exit 1
		exec runc "\$@"
	END
	chmod 755 "$work/nvidia-runtime"
	# gpuarb-runtime finds this runtime by its name.
	mkdir -p "$work/bin"
	ln -s "$work/nvidia-runtime" "$work/bin/nvidia-container-runtime"
}

start() { # NAME COMMAND...
	local name=$1
	shift
	"$@" >"$work/daemons/$name" 2>&1 &
}
start_all() {
	start etcd etcd --data-dir "$work/etcd"
	# Programs that containerd starts ask the API server in the kubelet's name.
	start containerd env PATH="$work/bin:$PATH" KUBECONFIG="$work/pki/kubelet.conf" containerd --config "$work/containerd.toml"
	start api "$programs/kube-apiserver" --etcd-servers=http://127.0.0.1:2379 --secure-port=443 --advertise-address=$api \
		--service-cluster-ip-range=10.96.0.0/24 --authorization-mode=Node,RBAC --enable-admission-plugins=NodeRestriction \
		--client-ca-file="$work/pki/ca.crt" --tls-cert-file="$work/pki/api.crt" --tls-private-key-file="$work/pki/api.key" \
		--kubelet-client-certificate="$work/pki/to-kubelet.crt" --kubelet-client-key="$work/pki/to-kubelet.key" \
		--kubelet-preferred-address-types=InternalIP --service-account-issuer=https://kubernetes.default.svc \
		--service-account-key-file="$work/pki/accounts.key" --service-account-signing-key-file="$work/pki/accounts.key"
	# Controllers that find no server give up after ten seconds, and nothing here would start them again.
	until_true 180 answers || return 1
	start scheduler "$programs/kube-scheduler" --kubeconfig="$work/pki/scheduler.conf" --leader-elect=false
	start controllers "$programs/kube-controller-manager" --kubeconfig="$work/pki/controllers.conf" --leader-elect=false \
		--use-service-account-credentials --root-ca-file="$work/pki/ca.crt" --service-account-private-key-file="$work/pki/accounts.key"
	until_true 60 test -S /run/containerd/containerd.sock && import || return 1
	start kubelet "$programs/kubelet" --config="$work/kubelet.yaml" --kubeconfig="$work/pki/kubelet.conf" --hostname-override=$node \
		--node-ip=$address --cert-dir="$work/pki" --volume-plugin-dir="$work/plugins" --container-runtime=remote \
		--container-runtime-endpoint=unix:///run/containerd/containerd.sock
}
answers() { kubectl get --raw /readyz >/dev/null 2>&1; }
import() {
	local archive
	for archive in "$images"/*.tar; do
		ctr --namespace k8s.io images import "$archive" >/dev/null || return 1
	done
}

ready() { [ "$(kubectl get node $node -o 'jsonpath={.status.conditions[?(@.type=="Ready")].status}' 2>/dev/null)" = True ]; }
inside() {
	work=$CLUSTER_INSIDE
	unset CLUSTER_INSIDE
	export KUBECONFIG=$work/pki/admin.conf HOME=$work
	separate || { say "there are no mounts or no network of our own"; exit 1; }
	if ! { identities >"$work/daemons/openssl" 2>&1 && settings && nvidia_runtime && start_all && until_true 180 ready; }; then
		tail -n 5 "$work"/daemons/* >&2
		say "the node does not become ready"
		exit 1
	fi
	echo "cluster: Kubernetes $(kubectl get node $node -o 'jsonpath={.status.nodeInfo.kubeletVersion}, {.status.nodeInfo.containerRuntimeVersion}'), one node"
	CLUSTER_WORK=$work "$@"
}

if [ -n "${CLUSTER_INSIDE:-}" ]; then inside "$@"; else outside "$@"; fi
