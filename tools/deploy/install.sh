#!/bin/sh
# Installs what BUILD holds, or takes away what an installation put there: one table for both.
# Usage: install.sh install|uninstall|list   with BUILD VERSION DESTDIR PREFIX LIBDIR SYSCONFDIR UNITDIR ZSHDIR PYTHONDIR in the environment
set -eu
cd "$(dirname "$0")/../.."
what=${1:-}
: "${BUILD:=build}" "${VERSION:?}" "${DESTDIR:=}" "${PREFIX:=/usr/local}" "${LIBDIR:=$PREFIX/lib}" "${SYSCONFDIR:=/etc}"
: "${UNITDIR:=$PREFIX/lib/systemd/system}" "${ZSHDIR:=$PREFIX/share/zsh/site-functions}" "${PYTHONDIR:=}"
case "$PREFIX$LIBDIR$SYSCONFDIR" in
*[!A-Za-z0-9/._+-]*)
	echo "install: PREFIX, LIBDIR and SYSCONFDIR may hold letters, digits and / . _ + - only" >&2
	exit 2
	;;
esac
case "$PREFIX:$LIBDIR:$SYSCONFDIR" in
/*:/*:/*) ;;
*)
	echo "install: PREFIX, LIBDIR and SYSCONFDIR must begin with / (PREFIX=$PREFIX LIBDIR=$LIBDIR)" >&2
	exit 2
	;;
esac

# Our own directory: what is loaded into programs, and what other programs start. Not the multiarch one: the path
# is written into containers and job scripts.
PKGLIB=$PREFIX/lib/gpuarb
SHARE=$PREFIX/share
DOC=$SHARE/doc/gpuarb
# What engines are told, and scripts: files that are used, not read.
DATA=$SHARE/gpuarb

# put MODE SOURCE PLACE: a file as it is. Moved into place: a program that is started meanwhile loads the old library or
# the new one, and never half of it or none.
put() {
	case "$what" in
	install) install -D -m "$1" "$2" "$DESTDIR$3.new" && mv -f "$DESTDIR$3.new" "$DESTDIR$3" ;;
	uninstall) rm -f "$DESTDIR$3" ;;
	list) echo "$3" ;;
	esac
}

# fill MODE SOURCE PLACE: a file in which the places of this installation are written
fill() {
	if [ "$what" = install ]; then
		mkdir -p "$DESTDIR${3%/*}"
		sed -e "s|@PREFIX@|$PREFIX|g" -e "s|@BINDIR@|$PREFIX/bin|g" -e "s|@LIBDIR@|$LIBDIR|g" \
			-e "s|@PKGLIB@|$PKGLIB|g" -e "s|@SYSCONFDIR@|$SYSCONFDIR|g" -e "s|@DOC@|$DOC|g" -e "s|@DATA@|$DATA|g" \
			-e "s|@VERSION@|$VERSION|g" "$2" >"$DESTDIR$3.new"
		chmod "$1" "$DESTDIR$3.new"
		mv -f "$DESTDIR$3.new" "$DESTDIR$3"
	else
		put "$1" "$2" "$3"
	fi
}

# link TARGET PLACE
link() {
	case "$what" in
	install) mkdir -p "$DESTDIR${2%/*}" && ln -sfn "$1" "$DESTDIR$2" ;;
	uninstall) rm -f "$DESTDIR$2" ;;
	list) echo "$2" ;;
	esac
}

# Where the module goes: to the directories below PREFIX in which this machine's Pythons look, that of the system and
# the one that `python3` starts. A Python that looks nowhere below /usr/local gets it in a directory of its own, unless a
# package or an image is made (DESTDIR).
python_places() {
	if [ -n "$PYTHONDIR" ]; then
		echo "$PYTHONDIR"
		return
	fi
	for python in /usr/bin/python3 "$(command -v python3 || :)"; do
		[ -n "$python" ] && [ -x "$python" ] || continue
		looked=$("$python" -c 'import site; print("\n".join(site.getsitepackages() + [site.getusersitepackages()]))' 2>/dev/null) || continue
		place=$(echo "$looked" | grep "^$PREFIX/lib/" | head -n 1) || :
		if [ -z "$place" ] && [ -z "$DESTDIR" ] && [ "$PREFIX" = /usr/local ]; then
			place=$(echo "$looked" | head -n 1)
			[ -w "$place" ] || place=
		fi
		echo "$place"
	done | sort -u | grep . || echo "$PREFIX/lib/python3/dist-packages"
}

everything() {
	for tool in tools/gpuarb-*.c; do
		tool=$(basename "$tool" .c)
		put 755 "$BUILD/$tool" "$PREFIX/bin/$tool"
		# One file for all tools; a shell looks for the name of the command.
		if [ "$tool" = gpuarb-run ]; then
			put 644 tools/completion/gpuarb.bash "$SHARE/bash-completion/completions/$tool"
		else
			link gpuarb-run "$SHARE/bash-completion/completions/$tool"
		fi
		put 644 tools/completion/gpuarb.fish "$SHARE/fish/vendor_completions.d/$tool.fish"
	done
	put 644 tools/completion/_gpuarb "$ZSHDIR/_gpuarb"
	for page in tools/gpuarb-*.1; do
		put 644 "$page" "$SHARE/man/man1/$(basename "$page")"
	done
	fill 644 "$BUILD/arbiter.conf.5" "$SHARE/man/man5/arbiter.conf.5"
	put 644 shm/gpuarb.3 "$SHARE/man/man3/gpuarb.3"
	for place in $(python_places); do
		put 644 tools/python/gpuarb.py "$place/gpuarb.py"
	done
	put 644 tools/python/gpuarb.py "$PKGLIB/python/gpuarb.py"

	# A program that runs has the old one mapped: install replaces the file and never writes into it.
	put 644 "$BUILD/libgpuarb-preload.so" "$PKGLIB/libgpuarb-preload.so"
	# For gpuarb-run --sim. No linker finds it there by itself.
	for library in libcuda.so.1 libnvidia-ml.so.1 libcudart.so.13; do
		put 644 "$BUILD/sim/$library" "$PKGLIB/sim/$library"
	done
	for library in libcuda.so libnvidia-ml.so; do
		link "$library.1" "$PKGLIB/sim/$library"
	done
	put 755 "$BUILD/sim/gpusim-report" "$PKGLIB/sim/gpusim-report"
	# For containers (gpuarb-cdi --ld-so-preload): it names the place inside of them.
	put 644 tools/deploy/ld.so.preload "$PKGLIB/ld.so.preload"
	put 644 "$BUILD/libgpuarb.so" "$LIBDIR/libgpuarb.so.1.0"
	link libgpuarb.so.1.0 "$LIBDIR/libgpuarb.so.1"
	link libgpuarb.so.1 "$LIBDIR/libgpuarb.so"
	put 644 "$BUILD/libgpuarb.a" "$LIBDIR/libgpuarb.a"
	fill 644 tools/deploy/gpuarb.pc.in "$LIBDIR/pkgconfig/gpuarb.pc"
	# Those below include/gpuarb are between the library and the tools, which are of one build.
	put 644 include/gpuarb.h "$PREFIX/include/gpuarb.h"

	for unit in tools/deploy/systemd/*.service tools/deploy/systemd/*.timer; do
		fill 644 "$unit" "$UNITDIR/$(basename "$unit")"
	done
	put 644 tools/deploy/systemd/gpuarb.tmpfiles "$PREFIX/lib/tmpfiles.d/gpuarb.conf"
	put 644 tools/deploy/systemd/gpuarb.sysusers "$PREFIX/lib/sysusers.d/gpuarb.conf"

	for script in task-prolog task-epilog prolog epilog; do
		fill 755 "tools/deploy/slurm/$script" "$PKGLIB/slurm/$script"
	done
	for example in tools/deploy/slurm/*.conf; do
		fill 644 "$example" "$DATA/slurm/$(basename "$example")"
	done
	fill 755 tools/deploy/prometheus/export "$PKGLIB/export"
	fill 755 tools/deploy/kubernetes/pod-of "$PKGLIB/pod-of"
	for file in $(cd tools/deploy && find kubernetes prometheus runtime adapters -type f ! -name export ! -name pod-of | sort); do
		mode=644
		[ -x "tools/deploy/$file" ] && mode=755
		fill "$mode" "tools/deploy/$file" "$DATA/$file"
	done

	put 644 arbiter.conf.example "$DOC/arbiter.conf.example"
	put 644 README.md "$DOC/README.md"
	put 644 tools/deploy/README.md "$DOC/deploy.md"
	put 644 test/sim/README.md "$DOC/simulated-gpu.md"
	put 644 CHANGELOG.md "$DOC/CHANGELOG.md"
	put 644 LICENSE "$DOC/LICENSE"
}

# Directories of our own that are empty now; those that others use as well stay.
sweep() {
	for dir in "$PKGLIB" "$DOC" "$DATA" "$PREFIX/include/gpuarb"; do
		[ -d "$DESTDIR$dir" ] && find "$DESTDIR$dir" -depth -type d -empty -delete
	done
	return 0
}

case "$what" in
install)
	everything
	# The dynamic linker's cache is the machine's: a package or an image makes its own.
	if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ] && command -v ldconfig >/dev/null; then
		ldconfig
	fi
	# The user of the watchdog and the group come with the next start of the machine; where systemd can make them now, it
	# does. gpuarb-node makes the group where it cannot.
	if [ -z "$DESTDIR" ] && [ "$(id -u)" = 0 ]; then
		if command -v systemd-sysusers >/dev/null; then
			systemd-sysusers "$PREFIX/lib/sysusers.d/gpuarb.conf" >/dev/null 2>&1 || :
		fi
		echo "gpuarb $VERSION is installed below $PREFIX. Next: 'sudo gpuarb-node' makes the segments of the GPUs; then"
		echo "'sudo adduser ${SUDO_USER:-NAME} gpuarb' and a new login for everybody who may use them. 'gpuarb-node --check' looks."
	fi
	;;
uninstall)
	everything
	sweep
	;;
list) everything ;;
*)
	echo "Usage: install.sh install|uninstall|list" >&2
	exit 2
	;;
esac
