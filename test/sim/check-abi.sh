#!/bin/sh
# Compares include/cuda_abi.h and driver.def with NVIDIA's headers: every value, size and offset by a program
# that is built with each and run, every prototype by the compiler. Without a toolkit it says so and passes:
# the build needs only the project's own header.
set -eu
out=$1
cc=${CC:-cc}
here=$(dirname "$0")
top=$here/../..

real=
for d in "${CUDA_HOME:-/nonexistent}/include" /usr/local/cuda/include /usr/include; do
	if [ -z "$real" ] && grep -qs 'define CUDA_VERSION 13000$' "$d/cuda.h"; then
		real=$d
	fi
done
if [ -z "$real" ]; then
	echo "abi: no cuda.h of CUDA 13.0 here, the project's header is used as it is"
	exit 0
fi

# The interop headers include OpenGL, EGL and VDPAU, of which only the sizes of a few types matter here.
stub() {
	mkdir -p "$(dirname "$out/$1")"
	printf '#pragma once\n%s\n' "$2" >"$out/$1"
}
stub GL/gl.h 'typedef unsigned int GLuint; typedef unsigned int GLenum;'
stub EGL/egl.h 'typedef int EGLint;'
stub EGL/eglext.h 'typedef void *EGLImageKHR; typedef void *EGLStreamKHR; typedef void *EGLSyncKHR;'
stub vdpau/vdpau.h 'typedef unsigned int VdpDevice, VdpVideoSurface, VdpOutputSurface; typedef void VdpGetProcAddress;'
cat >"$out/real.h" <<'EOF'
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaProfiler.h>
#include <vdpau/vdpau.h>
#include <cudaTypedefs.h>
#include <cudaProfilerTypedefs.h>
#include <cudaGL.h>
#include <cudaGLTypedefs.h>
#include <cudaEGL.h>
#include <cudaEGLTypedefs.h>
#include <cudaVDPAU.h>
#include <cudaVDPAUTypedefs.h>
EOF

# Calls that are newer than the installed header are left out.
older() {
	find "$top/include/cuda_abi" -name "*.$1" ! -name 'newer.*' | sort
}
awk '!/^DRIVER_CALL/ || $3 + 0 <= 13000' "$here/driver/driver.def" >"$out/driver.def"
# shellcheck disable=SC2046
perl "$here/abi-tables.pl" '#include ABI_HEADER' $(older h) >"$out/tables.c"
$cc -std=gnu11 -w -DABI_HEADER='"cuda_abi.h"' -I"$top/include" -o "$out/ours" "$out/tables.c"
$cc -std=gnu11 -w -DABI_HEADER='"real.h"' -I"$out" -I"$real" -o "$out/theirs" "$out/tables.c"
"$out/ours" >"$out/ours.txt"
"$out/theirs" >"$out/theirs.txt"
if ! diff -u "$out/theirs.txt" "$out/ours.txt" >"$out/diff"; then
	echo "abi: include/cuda_abi differs from $real/cuda.h:" >&2
	head -n 40 "$out/diff" >&2
	exit 1
fi

cat >"$out/calls.c" <<'EOF'
#include "real.h"
#define SAME(a, b, text) _Static_assert(__builtin_types_compatible_p(a, b), text);
#define CU_CALL(name, params, args) SAME(__typeof__(name), CUresult params, #name)
#include "cuda_abi/calls.def"
#include "cuda_abi/interop.def"
#define DRIVER_CALL(symbol, base, version) SAME(__typeof__(&symbol), PFN_##base##_v##version, #symbol)
#define DRIVER_CALL_PT(symbol, base, version, kind) \
	SAME(__typeof__(&symbol), PFN_##base##_v##version##_##kind, #symbol)
#include "driver.def"
#include "sim_interop.def"
EOF
$cc -std=gnu11 -fsyntax-only -I"$out" -I"$top/include" -I"$here/driver" -I"$here/runtime" -I"$top" -I"$real" "$out/calls.c"

# Nothing may be missing: each call that the real header declares is in the project's lists.
$cc -E -P -I"$out" -I"$real" "$out/real.h" |
	perl -0777 -ne 'print "$_\n" for /\bCUresult\s+(cu[A-Z]\w*)\s*\(/g' | sort -u >"$out/declared"
# shellcheck disable=SC2046
perl -ne 'print "$1\n" if /^CU_CALL\((\w+)/' $(older def) | sort -u >"$out/listed"
if ! diff "$out/declared" "$out/listed" >"$out/diff"; then
	echo "abi: names that only one of the two declares:" >&2
	cat "$out/diff" >&2
	exit 1
fi

# Compares the runtime's calls, too, where its header is installed.
runtime=
if [ -f "$real/cuda_runtime_api.h" ]; then
	cat >"$out/real_rt.h" <<'EOF'
#define __CUDA_API_VERSION_INTERNAL
#include <cuda_runtime_api.h>
#include <cuda_profiler_api.h>
EOF
	perl "$here/abi-tables.pl" '#include ABI_HEADER' "$here/runtime/cudart_abi.h" >"$out/tables_rt.c"
	sed -n 's/^CUDART_ERROR(\(.*\),.*/printf("\1 %d\\n", (int)\1);/p' "$here/runtime/cudart_errors.def" >"$out/errors.h"
	printf 'static void errors(void)\n{\n#include "errors.h"\n}\nint main(void) { errors(); return tables(); }\n' >"$out/main_rt.h"
	sed -i 's/^int main(void)/static int tables(void)/' "$out/tables_rt.c"
	echo '#include "main_rt.h"' >>"$out/tables_rt.c"
	$cc -std=gnu11 -w -DABI_HEADER='"cudart_abi.h"' -I"$out" -I"$here/driver" -I"$here/runtime" -I"$top" -I"$top/include" -o "$out/ours_rt" "$out/tables_rt.c"
	$cc -std=gnu11 -w -DABI_HEADER='"real_rt.h"' -I"$out" -I"$real" -o "$out/theirs_rt" "$out/tables_rt.c"
	"$out/ours_rt" >"$out/ours_rt.txt"
	"$out/theirs_rt" >"$out/theirs_rt.txt"
	if ! diff -u "$out/theirs_rt.txt" "$out/ours_rt.txt" >"$out/diff"; then
		echo "abi: test/sim/runtime/cudart_abi.h differs from $real/cuda_runtime_api.h:" >&2
		head -n 40 "$out/diff" >&2
		exit 1
	fi
	cat >"$out/calls_rt.c" <<'EOF'
#include "real_rt.h"
#define CUDART_CALL(name, params) \
	_Static_assert(__builtin_types_compatible_p(__typeof__(name), cudaError_t params), #name);
#include "cudart.def"
EOF
	$cc -std=gnu11 -fsyntax-only -Wno-deprecated-declarations -I"$out" -I"$here/driver" -I"$here/runtime" -I"$top" -I"$real" "$out/calls_rt.c"
	runtime=", and $(grep -c '^CUDART_CALL' "$here/runtime/cudart.def") of the runtime"
fi
echo "abi: $(wc -l <"$out/ours.txt") values and layouts, $(wc -l <"$out/listed") prototypes agree with $real/cuda.h$runtime"
