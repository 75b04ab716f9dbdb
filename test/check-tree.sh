#!/bin/sh
# Checks the tree itself: headers compile alone, files include only what test/layers.txt allows, each third-party
# header is included by one file, no file that is written by hand is too long, and the deliberate mistakes that show what the
# tests find can still be planted.
set -u
cd "$(dirname "$0")/.." || exit 1
CC=${CC:-cc}
bad=0
say() {
	echo "tree: $*" >&2
	bad=$((bad + 1))
}

for h in include/*.h include/gpuarb/*.h $(find shm preload tools test bench -name '*.h' | sort); do
	case $h in
	# The world's own headers stand for headers of the product.
	test/world/*) continue ;;
	esac
	echo "#include \"$h\"" | $CC -std=gnu11 -D_GNU_SOURCE -Iinclude -I. -fsyntax-only -x c - 2>/dev/null ||
		say "$h does not compile alone"
done
if command -v g++ >/dev/null; then
	for h in include/gpuarb.h include/nvml_abi.h include/gpuarb/*.h; do
		echo "#include \"$h\"" | g++ -Iinclude -I. -fsyntax-only -x c++ - 2>/dev/null ||
			say "$h does not compile as C++"
	done
fi

# layers.txt says which folder may include which. A quoted include names a path from the top, or a public header.
found=$(git ls-files 'shm/*.[ch]' 'preload/*.[ch]' 'tools/*.[ch]' | xargs grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]+"[^"]+"' |
	awk -v layers=test/layers.txt '
	function folder(path, n, part) {
		n = split(path, part, "/")
		return n > 2 ? part[1] "/" part[2] : part[1]
	}
	BEGIN {
		while ((getline line < layers) > 0) {
			if (line ~ /^#/ || line !~ /:/) continue
			n = split(line, word, /[: ]+/)
			known[word[1]] = 1
			for (i = 2; i <= n; i++) may[word[1], word[i]] = 1
		}
	}
	{
		from = $0; sub(/:.*/, "", from)
		what = $0; sub(/^[^"]*"/, "", what); sub(/"$/, "", what)
		a = folder(from)
		b = what ~ /^(shm|preload|tools|test)\// ? folder(what) : "include"
		if (!(a in known)) print from " is in a folder that test/layers.txt does not know"
		else if (b == "include" && system("test -e include/" what) != 0) print from " includes \"" what "\", which is no path from the top"
		else if (a != b && !((a, b) in may)) print from " includes " what ": " a " may not use " b
	}')
[ -z "$found" ] || say "$found"

# The name of a source is used once, so that it says which file is meant without its folder.
twice=$(git ls-files include shm preload tools test bench | grep -E '\.(c|h|def|sh)$' | sed 's|.*/||' | sort | uniq -d)
[ -z "$twice" ] || say "these names stand in two folders: $twice"

only() {
	for f in $(grep -rlE "#include <$1>" --include='*.[ch]' shm preload tools); do
		[ "$f" = "$2" ] || say "$f includes <$1>, whose home is $2"
	done
}
only 'atomic_ops\.h' shm/base/atomic.h
only 'ini\.h' shm/base/config.c
only 'urcu[-/][a-z/-]*\.h' preload/process/known.h
only 'ncurses\.h' tools/top/top_screen.c

# Memory orders are spelled in two files: words that several processes see, and words of one process.
found=$(grep -rlE '__atomic_|__sync_|\bAO_[a-z]' --include='*.[ch]' shm preload tools | grep -vE '^shm/base/(atomic|word)\.h$')
[ -z "$found" ] || say "these name a memory order by themselves (shm/base/atomic.h, shm/base/word.h): $found"

grep -rnE '\.timeout = [0-9]' --include='*.c' test &&
	say "Criterion waits for ever after its own timeout: test/alarm.h is the deadline of each test"

n=$(grep -c '^THRESHOLD(' preload/book/thresholds.def)
[ "$n" -le 30 ] || say "the tracking core has $n thresholds, more than 30: derive one from another"

for f in $(git ls-files '*.c' '*.h' 2>/dev/null); do
	n=$(wc -l <"$f")
	[ "$n" -le 600 ] || say "$f has $n lines: divide it"
done

for f in test/world/mutations/*.patch; do
	patch -p1 -F 1 -s -f --dry-run <"$f" >/dev/null || say "$f no longer applies"
done
stale=$(python3 test/mistakes.py --lines) || say "$stale"

[ "$bad" = 0 ] || exit 1
echo "tree: headers compile alone, includes go downwards"
