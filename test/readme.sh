#!/bin/bash
# Runs the README's commands as they are printed there: every ```sh block, on the simulated GPU, in a directory of its
# own. Programs that are not ours are replaced: python is a program that uses the GPU, podman and sudo check their
# arguments and print what they would do, and make only checks that it could make the target. Then it checks that
# links lead somewhere, that the picture can be read, and that the README is not too long.
# Usage: readme.sh BUILD
set -u
build=$(readlink -f "$1")
top=$(readlink -f "$(dirname "$0")/..")
work=$(mktemp -d /dev/shm/gpuarb-readme-XXXXXX) || exit 1
bad=0
say() {
	echo "readme: $*" >&2
	bad=$((bad + 1))
}
finish() {
	for p in $(cat "$work/pids" 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
	wait 2>/dev/null
	rm -rf "$work"
}
trap finish EXIT

mkdir "$work/bin" "$work/gpu" "$work/here"
cat >"$work/bin/python" <<END
#!/bin/sh
case "\$1" in *.py) ;; *) echo "python: \$1?" >&2; exit 1 ;; esac
echo \$\$ >>"$work/pids"
exec env LD_LIBRARY_PATH=$build/sim "$build/simload" -k 200 -d 30 >/dev/null
END
cat >"$work/bin/podman" <<END
#!/bin/sh
[ "\$1" = run ] || exit 1
for flag in "\$@"; do
	case "\$flag" in
	/*:/*) [ -e "\${flag%%:*}" ] || { echo "podman: \$flag: there is no such path" >&2; exit 125; } ;;
	gpuarb.dev/gpu=*) grep -q "\"name\": \"\${flag#*=}\"" gpuarb.json || { echo "podman: no device \$flag" >&2; exit 125; } ;;
	esac
done
echo "podman \$*" >>"$work/podman"
END
cat >"$work/bin/sudo" <<END
#!/bin/sh
command -v "\$1" >/dev/null || { echo "sudo: \$1: command not found" >&2; exit 1; }
case "\$1" in
make | gpuarb-*) exec "\$@" ;;
esac
END
cat >"$work/bin/make" <<END
#!/bin/sh
exec /usr/bin/make -n -C "$top" BUILD="$build" "\$@" >/dev/null
END
# A user's own program, which knows nothing of a simulated driver.
cat >"$work/here/my-program" <<END
#!/bin/sh
exec "$build/simload" -k 200 -d 1 >/dev/null
END
chmod +x "$work"/bin/* "$work/here/my-program"
export PATH=$work/bin:$build:$PATH LD_LIBRARY_PATH=$build/sim
export GPUARB_DIR=$work/arb GPUSIM_DIR=$work/gpu GPUARB_CONF=/dev/null GPUSIM_MODE=share
unset GPUARB_ACCOUNT GPUARB_CORE_LIMIT GPUARB_LIMITS_FILE LD_PRELOAD MAKEFLAGS MAKELEVEL MFLAGS

# Writes each block to a file; the first line says where the block is.
awk -v out="$work/block" '
	/^```sh$/ {n++; file = sprintf("%s%02d", out, n); print "# README.md:" NR >file; inside = 1; next}
	/^```/ {inside = 0}
	inside {print >>file}' "$top/README.md"
blocks=0
commands=0
for block in "$work"/block*; do
	blocks=$((blocks + 1))
	# Runs one command a line; what a command starts in the background goes on while the others run.
	(
		cd "$work/here" || exit 1
		where=$(head -n 1 "$block")
		while IFS= read -r line; do
			case "$line" in '#'* | '') continue ;; esac
			case "$line" in
			*' &') eval "$line" >"$work/out" 2>&1 </dev/null; sleep 1; kill -0 $! 2>/dev/null ;;
			*) eval "timeout 60 bash -c $(printf '%q' "${line%%  #*}")" >"$work/out" 2>&1 </dev/null ;;
			esac || { echo "readme: ${where#\# }: '$line' failed: $(tail -n 3 "$work/out")" >&2; exit 1; }
		done <"$block"
	) || bad=$((bad + 1))
	commands=$((commands + $(grep -vcE '^(#|$)' "$block")))
	for p in $(cat "$work/pids" 2>/dev/null); do kill -9 "$p" 2>/dev/null; done
	: >"$work/pids"
done
[ "$commands" -ge 10 ] || say "only $commands commands were found in $blocks blocks"
grep -q -- '-e GPUARB_CORE_LIMIT=40 ' "$work/podman" || say "the container got no limit"

# All targets and programs that the pages name must exist: targets by name, programs by the rule that builds them.
pages=(README.md CONTRIBUTING.md CHANGELOG.md shm/README.md preload/README.md test/*/README.md tools/deploy/README.md)
said() { (cd "$top" && cat "${pages[@]}" 2>/dev/null | grep -oE "$1" | sort -u); }
for target in $(said '(`|^    )make [a-z][a-z0-9-]+' | sed 's/.*make //' | sort -u); do
	(cd "$top" && find . -path ./build -prune -o \( -name '*.mk' -o -name Makefile \) -print0 | xargs -0 grep -qE "^([a-z0-9 -]+ )?$target( [a-z0-9 -]+)?:") || say "there is no 'make $target'"
done
programs=$(said '(`|^    )build/[a-z_]+/?' | grep -v '/$' | sed 's/.*build/build/' | sort -u)
# shellcheck disable=SC2086
missing=$(cd "$top" && /usr/bin/make -n BUILD=build $programs 2>&1 >/dev/null | grep 'No rule to make')
[ -z "$missing" ] || say "the pages name what nothing builds: $missing"

lines=$(wc -l <"$top/README.md")
[ "$lines" -le 220 ] || say "it has $lines lines; 220 are enough"
for link in $(grep -oE '\]\([^)]+\)' "$top/README.md" | sed 's/](\(.*\))/\1/'); do
	case "$link" in http*) continue ;; esac
	[ -e "$top/${link%%#*}" ] || say "$link leads nowhere"
	case "$link" in *.svg) python3 "$top/test/picture.py" "$top/$link" || say "$link cannot be read everywhere" ;; esac
done

[ "$bad" = 0 ] || exit 1
echo "readme: $commands commands in $blocks blocks do what they say; $lines lines"
