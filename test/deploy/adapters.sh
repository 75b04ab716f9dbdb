#!/bin/bash
# Runs the adapters with JupyterHub, Dask, Celery, podman-compose and docker-compose, each with a real server of its
# own and the simulated GPU, whose books tell what the work got. Adapters for other programs are only read. Usage:
# adapters.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$(readlink -f "$1")
what=adapters
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
[ "$(id -u)" = 0 ] || skip "it needs root, for containers and users"
needs jq unshare
if [ -z "${T_INSIDE:-}" ]; then
	unshare --mount --pid --fork true 2>/dev/null || skip "namespaces are forbidden here"
	T_INSIDE=1 exec unshare --mount --pid --fork --kill-child --mount-proc --propagation private test/deploy/adapters.sh "$build"
fi
work=$(mktemp -d /tmp/gpuarb-adapters-XXXXXX) && chmod 755 "$work" || exit 1
shm=$(mktemp -d /dev/shm/gpuarb-test-XXXXXX) && chmod 755 "$shm" || exit 1
# All that this script starts is in a PID namespace that ends with it.
trap 'umount /run 2>/dev/null; rm -rf "$work" "$shm"' EXIT
mkdir -p "$work/run" "$shm/gpu" "$work/image" "$work/log"
mount --bind "$work/run" /run || exit 1
make --no-print-directory -s BUILD="$build" DESTDIR="$work/host" PREFIX=/usr install || exit 1
# The adapters as they are installed, with this directory filled in.
adapters=$work/host/usr/share/gpuarb/adapters
grep -rl '/usr/' "$adapters" | xargs sed -i "s|/usr/bin/gpuarb|$work/host/usr/bin/gpuarb|g; s|/usr/lib/gpuarb|$work/host/usr/lib/gpuarb|g"
export GPUARB_DIR="$shm/arb" GPUSIM_DIR="$shm/gpu" GPUARB_CONF=/dev/null GPUSIM_MODE=share LD_LIBRARY_PATH="$build/sim" PYTHONPATH="$work"
unset LD_PRELOAD GPUARB_ACCOUNT GPUARB_CORE_LIMIT
PATH=/usr/sbin:/usr/bin:/sbin:/bin
# If the machine has another Node.js than Debian's, that one does not find Debian's modules by itself.
export NODE_PATH=/usr/share/nodejs
books() { "$build/sim/gpusim-report" --json; }
on_gpu() { [ "$(books 2>/dev/null | jq '[.devices[0].processes[] | select(.alive)] | length')" = "$1" ]; }
tried=
here() { # PROGRAM...
	local program
	for program; do
		command -v "$program" >/dev/null || { echo "adapters: not tried, there is no $program here"; return 1; }
	done
}
attained() { # [CONDITION]: what all processes for which it holds got together, by the GPU's books
	books >"$work/before"
	sleep "${ADAPTER_SECONDS:-20}"
	books >"$work/after"
	share "$work/before" "$work/after" "${1:-true}"
}
measured() { # NAME LIMIT [CONDITION]: within one point
	holds "$1" "$2" attained "${3:-true}"
	case " $tried " in *" $1 "*) ;; *) tried="$tried $1" ;; esac
}
ended() { # PID...: ended, and nothing of it on the GPU. Only what this script has started is to be seen here.
	local loads
	kill "$@" 2>/dev/null
	mapfile -t loads < <(pgrep -x simload)
	kill -KILL "${loads[@]}" 2>/dev/null
	wait "$@" 2>/dev/null
	until_true 20 on_gpu 0 || say "something is still on the GPU: $(books | jq -c '.devices[0].processes[] | select(.alive) | .command')"
}
# Kernels of a millisecond keep the GPU busy even if the load gets little of the processor.
load="$build/simload --kernel-us=1000 --duration=600"

dask() {
	here dask-worker dask-scheduler || return
	local port scheduler worker client
	port=$(free_port)
	dask-scheduler --host 127.0.0.1 --port "$port" --no-dashboard >"$work/log/scheduler" 2>&1 &
	scheduler=$!
	"$adapters/dask/gpuarb-dask-worker" 30 "tcp://127.0.0.1:$port" --nthreads 2 --no-dashboard --local-directory "$work" >"$work/log/worker" 2>&1 &
	worker=$!
	/usr/bin/python3 - "tcp://127.0.0.1:$port" "$load" >"$work/log/client" 2>&1 <<-'END' &
		import subprocess, sys
		from distributed import Client
		client = Client(sys.argv[1], timeout=60)
		# The worker has room for two tasks of 15, which Dask itself counts.
		tasks = [client.submit(subprocess.call, sys.argv[2].split(), resources={"GPUSHARE": 15}, pure=False) for _ in range(3)]
		client.gather(tasks, errors="skip")
	END
	client=$!
	until_true 60 on_gpu 2 || say "dask: not two tasks are on the GPU: $(tail -n 3 "$work/log/worker" "$work/log/client")"
	measured dask 30
	ended $client $worker $scheduler
}

celery() {
	/usr/bin/python3 -c 'import celery' 2>/dev/null || { echo "adapters: celery was not tried, it is not here"; return; }
	local worker
	mkdir -p "$work/broker/in" "$work/broker/control"
	cat >"$work/proj.py" <<-END
		import subprocess
		from celery import Celery
		app = Celery("proj", broker="filesystem://")
		app.conf.broker_transport_options = {"data_folder_in": "$work/broker/in", "data_folder_out": "$work/broker/in", "control_folder": "$work/broker/control"}
		app.conf.task_ignore_result = True
		app.conf.task_default_queue = "gpu"
		@app.task
		def train():
		    subprocess.call("$load".split())
	END
	(cd "$work" && /usr/bin/python3 -c 'import proj; proj.train.delay(); proj.train.delay()') >"$work/log/celery-send" 2>&1 || say "celery takes no task: $(tail -n 3 "$work/log/celery-send")"
	(cd "$work" && CELERY_BIN="/usr/bin/python3 -m celery" exec "$adapters/celery/gpuarb-celery" 40 -A proj worker -Q gpu --concurrency 2 --without-mingle --without-gossip --pool prefork) >"$work/log/celery" 2>&1 &
	worker=$!
	until_true 60 on_gpu 2 || say "celery: not two tasks are on the GPU: $(tail -n 3 "$work/log/celery")"
	measured celery 40
	ended $worker
}

jupyterhub() {
	here jupyterhub jupyterhub-singleuser configurable-http-proxy curl || return
	local port api proxy hub
	port=$(free_port)
	api=$((port + 1)) proxy=$((port + 2))
	# The server begins with work on the GPU, as a notebook would.
	printf '#!/bin/sh\n%s >/dev/null 2>&1 &\nexec jupyterhub-singleuser --allow-root "$@"\n' "$load" >"$work/singleuser"
	chmod 755 "$work/singleuser"
	cat >"$work/jupyterhub_config.py" <<-END
		load_subconfig("$adapters/jupyterhub/gpuarb_profiles.py")
		c.JupyterHub.authenticator_class = "dummy"
		c.JupyterHub.spawner_class = "simple"
		c.JupyterHub.bind_url = "http://127.0.0.1:$port"
		c.JupyterHub.hub_port = $api
		c.JupyterHub.db_url = "sqlite:///$work/hub.sqlite"
		c.JupyterHub.cookie_secret_file = "$work/cookie"
		c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:$proxy"
		c.ConfigurableHTTPProxy.pid_file = "$work/proxy.pid"
		c.SimpleLocalProcessSpawner.home_dir_template = "$work/home-{username}"
		c.Spawner.cmd = ["$work/singleuser"]
		c.Spawner.environment = {"GPUARB_DIR": "$GPUARB_DIR", "GPUSIM_DIR": "$GPUSIM_DIR", "GPUSIM_MODE": "share", "GPUARB_CONF": "/dev/null", "LD_LIBRARY_PATH": "$LD_LIBRARY_PATH"}
		c.JupyterHub.services = [{"name": "test", "api_token": "secret-of-this-test-0123456789abcdef"}]
		c.JupyterHub.load_roles = [{"name": "test", "scopes": ["admin:users", "admin:servers"], "services": ["test"]}]
	END
	(cd "$work" && exec jupyterhub --config "$work/jupyterhub_config.py") >"$work/log/hub" 2>&1 &
	hub=$!
	ask() { # METHOD PATH [JSON]
		curl -sS -o "$work/answer" -w '%{http_code}' -X "$1" -H "Authorization: token secret-of-this-test-0123456789abcdef" "http://127.0.0.1:$api/hub/api$2" ${3:+-d "$3"} 2>/dev/null
	}
	hub_up() { [ "$(ask GET /users)" = 200 ]; }
	until_true 60 hub_up || { say "jupyterhub does not start: $(tail -n 5 "$work/log/hub")"; kill $hub; return; }
	ask POST /users/alice >/dev/null
	case "$(ask POST /users/alice/server '{"profile": "quarter"}')" in
	20[12]) ;;
	*) say "jupyterhub does not start a server: $(cat "$work/answer")" ;;
	esac
	until_true 60 on_gpu 1 || say "jupyterhub: the server's work is not on the GPU: $(tail -n 5 "$work/log/hub")"
	measured jupyterhub 25
	[ "$("$build/gpuarb-top" --json --once | jq -r '[.gpus[].accounts[] | select(.processes != []) | .name] | first')" = jupyter-alice ] || say "the account is not jupyter-alice"
	[ "$(ask POST /users/bob)" = 201 ] && ask POST /users/bob/server '{"profile": "everything"}' >/dev/null
	until_true 10 grep -q 'there is no profile everything' "$work/log/hub" || say "a profile that there is not was taken"
	ended $hub
}

# The adapter's file, with the test's image and GPU. The services have different amounts of memory, by which the books
# tell their processes apart.
compose_file() { # MORE: fields that both services get, in JSON
	local library
	printf 'runtime = runc\ndir = %s/arb\n' "$shm" >"$work/runtime.conf"
	printf '#!/bin/sh\nGPUARB_RUNTIME_CONF=%s/runtime.conf exec %s/host/usr/bin/gpuarb-runtime "$@"\n' "$work" "$work" >"$work/gpuarb-runtime"
	chmod 755 "$work/gpuarb-runtime"
	install -D "$build/simload" "$work/image/bin/simload"
	for library in $(ldd "$build/simload" "$build/sim/libcuda.so.1" | grep -oE '/[^ ]+\.so[^ ]*' | grep -v "^$build" | sort -u); do install -D "$library" "$work/image$library"; done
	install -D "$build/sim/libcuda.so.1" "$work/image/usr/lib/libcuda.so.1"
	mkdir -p "$work/image/tmp" "$work/image/proc" "$work/image/sys" "$work/image/dev" "$work/image/etc" "$work/image/run" "$work/compose"
	/usr/bin/python3 - "$adapters/compose/compose.yaml" "$shm/gpu" "$1" >"$work/compose/compose.yaml" <<-'END'
		import json, sys, yaml
		spec = yaml.safe_load(open(sys.argv[1]))
		for name, service in spec["services"].items():
		    memory = {"train": 1024, "serve": 16}[name]
		    service.update(image="training:latest", command=["simload", "--kernel-us=1000", "--duration=600", "--memory=%d" % memory],
		                   volumes=[sys.argv[2] + ":/run/gpusim"], **json.loads(sys.argv[3]))
		    service["environment"].update(GPUSIM_DIR="/run/gpusim", GPUSIM_MODE="share", PATH="/bin")
		yaml.safe_dump(spec, sys.stdout)
	END
}
# Checks two services, 50 and 30, each within a point.
services_hold() { # NAME
	until_true 60 on_gpu 2 || { say "$1: not both services are on the GPU: $(tail -n 5 "$work/log/$1")"; return; }
	measured "$1" 50 '.alive and .memory_bytes > 1e9'
	measured "$1" 30 '.alive and .memory_bytes < 1e9'
	[ "$("$build/gpuarb-set" --show | grep -cE 'in force for [0-9a-f]{12}: core=(50|30) ')" = 2 ] || say "$1: the limits are $("$build/gpuarb-set" --show | grep 'in force')"
}

podman_compose() {
	here podman-compose podman runc || return
	compose_file '{}'
	# podman-compose puts options of podman behind its commands, so the runtime is named in the configuration.
	printf '[containers]\ndefault_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]\n[engine]\nruntime = "gpuarb"\ncgroup_manager = "cgroupfs"\n' >"$work/containers.conf"
	printf 'runtime_supports_json = ["gpuarb"]\n[engine.runtimes]\ngpuarb = ["%s"]\n' "$work/gpuarb-runtime" >>"$work/containers.conf"
	printf '[storage]\ndriver = "vfs"\ngraphroot = "%s/storage"\nrunroot = "%s/runroot"\n' "$work" "$work" >"$work/storage.conf"
	export CONTAINERS_CONF="$work/containers.conf" CONTAINERS_STORAGE_CONF="$work/storage.conf"
	tar -C "$work/image" -c . | env -u LD_LIBRARY_PATH podman import - training:latest >/dev/null 2>&1 || say "podman cannot import an image"
	# podman-compose wants a bridge, which some machines do not allow; networks are not what is tested.
	mkdir -p "$work/bin"
	cat >"$work/bin/podman" <<-'END'
		#!/bin/bash
		[ "$1" != network ] || exit 0
		words=()
		while [ $# -gt 0 ]; do
			case "$1" in
			--net) words+=(--network none) && shift ;;
			--network-alias) shift ;;
			*) words+=("$1") ;;
			esac
			shift
		done
		exec /usr/bin/podman "${words[@]}"
	END
	chmod 755 "$work/bin/podman"
	(cd "$work/compose" && PATH="$work/bin:$PATH" env -u LD_LIBRARY_PATH podman-compose up -d) >"$work/log/podman_compose" 2>&1 || say "podman-compose: $(tail -n 5 "$work/log/podman_compose")"
	services_hold podman_compose
	env -u LD_LIBRARY_PATH podman rm --force --all --time 0 >/dev/null 2>&1
	ended
}

docker_compose() {
	here docker dockerd docker-compose runc || return
	local daemon
	# A network would need rights that some machines do not give; it is not what is tested.
	compose_file '{"network_mode": "none"}'
	# The page's configuration of the engine; the additions keep it away from the machine's own Docker.
	jq --arg work "$work" '.runtimes.gpuarb.path = $work + "/gpuarb-runtime" | . + {"data-root": ($work + "/docker"), "exec-root": "/run/docker",
		"pidfile": "/run/docker.pid", "hosts": ["unix:///run/docker.sock"], "storage-driver": "vfs", "iptables": false, "bridge": "none"}' \
		"$work/host/usr/share/gpuarb/runtime/docker.json" >"$work/daemon.json"
	env -u LD_LIBRARY_PATH dockerd --config-file "$work/daemon.json" >"$work/log/dockerd" 2>&1 &
	daemon=$!
	docker() { env -u LD_LIBRARY_PATH docker --host unix:///run/docker.sock "$@"; }
	docker_up() { docker info >/dev/null 2>&1; }
	until_true 60 docker_up || { say "dockerd does not start: $(tail -n 5 "$work/log/dockerd")"; kill $daemon; return; }
	tar -C "$work/image" -c . | docker import - training:latest >/dev/null || say "docker cannot import an image"
	(cd "$work/compose" && env -u LD_LIBRARY_PATH -u PYTHONPATH DOCKER_HOST=unix:///run/docker.sock docker-compose up -d) >"$work/log/docker_compose" 2>&1 ||
		say "docker-compose: $(tail -n 5 "$work/log/docker_compose")"
	services_hold docker_compose
	docker ps --quiet | xargs -r env -u LD_LIBRARY_PATH docker --host unix:///run/docker.sock rm --force >/dev/null
	ended $daemon
}

gpus=$("$work/host/usr/bin/gpuarb-node" 2>&1) || say "gpuarb-node: $gpus"
for adapter in ${ADAPTERS:-dask celery jupyterhub podman_compose docker_compose}; do $adapter; done
[ -n "$tried" ] || skip "none of them is here"
[ "$bad" = 0 ] || exit 1
echo "adapters:$tried hold their shares within one point (not run: Ray, Nomad, KServe, GitLab runner, Ollama; systemd is check-boot's)"
