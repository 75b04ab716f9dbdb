# For the tests of this directory, which source it after test/deploy/common.sh. They have a directory `work`, and a
# function books() that prints the GPU's books.
# shellcheck shell=bash
on_gpu() { [ "$(books 2>/dev/null | jq '[.devices[0].processes[] | select(.alive)] | length')" = "$1" ]; }

# In its pod each process is pid 1, so the serial numbers of the report tell the processes apart.
attained() { # SECONDS: hundredths of a percent of each living process, sorted
	books >"${work:?}/before"
	sleep "$1"
	books >"${work:?}/after"
	jq -n -c --slurpfile a "${work:?}/before" --slurpfile b "${work:?}/after" '
		($b[0].devices[0].now_ns - $a[0].devices[0].now_ns) as $time |
		[$b[0].devices[0].processes[] | select(.alive) | . as $p |
			(.device_ns - ([$a[0].devices[0].processes[] | select(.serial == $p.serial) | .device_ns] | add // 0)) * 10000 / $time | round] | sort | .[]'
}
expect() { # WHAT LIMIT...: what each gets
	local got limits text=$1 i
	limits=("${@:2}")
	mapfile -t got < <(attained 10)
	echo "${what:?}: $text: limits ${limits[*]}, attained $(for i in "${got[@]}"; do percent "$i"; echo; done | paste -sd, | sed 's/,/, /g')"
	[ "${#got[@]}" = "${#limits[@]}" ] || say "$text: ${#got[@]} are on the GPU, not ${#limits[@]}"
	for i in "${!limits[@]}"; do
		near "${got[i]:-0}" "${limits[i]}" || say "$text: limit ${limits[i]} got $(percent "${got[i]:-0}")"
	done
}

# start_anew NAME: ends a program of the node and starts it again with the same arguments and environment.
start_anew() {
	local pid command environment
	pid=$(pgrep -x "$1")
	mapfile -d '' -t command <"/proc/$pid/cmdline"
	mapfile -d '' -t environment <"/proc/$pid/environ"
	kill "$pid"
	until_true 10 sh -c "! kill -0 $pid 2>/dev/null" || say "$1 does not end"
	env -i "${environment[@]}" "${command[@]}" >>"${CLUSTER_WORK:?}/daemons/$1" 2>&1 &
}
