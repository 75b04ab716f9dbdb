#!/bin/sh
# Has every stored trace decided again. A change of the core that is meant to decide otherwise comes with `make traces`.
# Usage: corpus.sh BUILD CORPUS
set -u
build=$1 corpus=$2
n=0 bad=0
for file in "$corpus"/*.trace.xz; do
	n=$((n + 1))
	verdict=$(xz -dc "$file" | "$build/gpuarb-replay" --quiet - 2>&1) || {
		echo "traces: $(basename "$file" .trace.xz): $verdict" >&2
		bad=$((bad + 1))
	}
done
[ "$n" -ge 100 ] || {
	echo "traces: only $n in $corpus" >&2
	exit 1
}
[ "$bad" = 0 ] || {
	echo "traces: $bad of $n are decided otherwise; if that is what the change is for: make traces" >&2
	exit 1
}
echo "traces: $n recorded cases of the world, each decided the same again"
