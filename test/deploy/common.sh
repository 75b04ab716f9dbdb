# For the tests of this directory, which source it after they have set their name: what=slurm.
# shellcheck shell=bash
bad=0

say() {
	echo "${what:?}: $*" >&2
	bad=$((bad + 1))
}

# Where something cannot be tested, that is no failure, but it is reported.
skip() {
	echo "${what:?}: not tried, $*"
	"$(dirname "${BASH_SOURCE[0]}")/../skipped.sh" 77
	exit
}

needs() { # PROGRAM...
	local program
	for program; do
		command -v "$program" >/dev/null || skip "there is no $program here"
	done
}

# The kustomize of kubectl before 1.21 knows no components.
has_kustomize() {
	kubectl kustomize --help >/dev/null 2>&1 && ! kubectl kustomize tools/deploy/kubernetes/example 2>&1 | grep -q 'unknown field "components"'
}

until_true() { # SECONDS COMMAND...: whether it came true in that time
	local tries=$(($1 * 10))
	shift
	while ! "$@"; do
		[ $((tries -= 1)) -gt 0 ] || return 1
		sleep 0.1
	done
}

free_port() { # one that nobody listens on
	local port=$((20000 + RANDOM % 20000))
	while (exec 3<>/dev/tcp/127.0.0.1/$port) 2>/dev/null; do port=$((port + 1)); done
	echo $port
}

# share BEFORE AFTER CONDITION [JQ-ARGUMENT...]: prints what the processes for which the condition holds got of the
# simulated GPU between two reports, in hundredths of a percent of its time
share() {
	local before=$1 after=$2 condition=$3
	shift 3
	jq -n --slurpfile a "$before" --slurpfile b "$after" "$@" "
		def sum(r): [r.devices[0].processes[] | select($condition) | .device_ns] | add // 0;
		(sum(\$b[0]) - sum(\$a[0])) * 10000 / (\$b[0].devices[0].now_ns - \$a[0].devices[0].now_ns) | round"
}

# The lower bound is wide, because the machine may be busy: at a load of 25 on two cores half of a limit was measured.
# Without a limit the share would be far above the upper bound.
near() { # HUNDREDTHS LIMIT-IN-PERCENT
	[ "$1" -le $(($2 * 100 + 300)) ] && [ "$1" -ge $(($2 * 35)) ]
}

within() { # HUNDREDTHS LIMIT-IN-PERCENT: within one point
	[ "$1" -le $(($2 * 100 + 100)) ] && [ "$1" -ge $(($2 * 100 - 100)) ]
}

# holds NAME LIMIT COMMAND...: the command prints after a while what was attained, in hundredths of a percent. More
# than a point above the limit is never the machine's fault. Less may be, if the load gets no processor: then it is
# measured again.
holds() {
	local name=$1 limit=$2 attained tries=6
	shift 2
	while attained=$("$@") && echo "${what:?}: $name: limit $limit, attained $(percent "$attained")" && ! within "$attained" "$limit"; do
		if [ "$attained" -gt $((limit * 100)) ] || [ "$attained" = 0 ] || [ $((tries -= 1)) = 0 ]; then
			say "$name: limit $limit, got $(percent "$attained"), which is not within one point"
			return 1
		fi
	done
}

percent() { # HUNDREDTHS
	printf '%d.%02d %%' $(($1 / 100)) $(($1 % 100))
}
