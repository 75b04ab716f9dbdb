/*
 * The kernels, as text that the driver compiles, so that no CUDA compiler is needed. On a simulated GPU only the
 * names count: `spin_ns` takes as many nanoseconds as its argument says, `gpusim_fault` fails.
 *
 * spin_ns does 16 dependent multiplications and additions for each count, in every thread. It stores their result
 * only if that has a value that it cannot have. The compiler does not know this, so it must compute the result.
 */
#ifndef TEST_GPU_KERNELS_H
#define TEST_GPU_KERNELS_H

#define STEP "	fma.rn.f32 %f1, %f1, 0f3F7FFFEF, 0f37800000;\n"
#define FOUR STEP STEP STEP STEP

static const char kernels_ptx[] = ".version 6.0\n.target sm_50\n.address_size 64\n"
				  ".visible .entry spin_ns(.param .u64 count)\n{\n"
				  "	.reg .pred %p<3>;\n	.reg .f32 %f<2>;\n	.reg .u64 %n<3>;\n"
				  "	ld.param.u64 %n1, [count];\n"
				  "	mov.f32 %f1, 0f3F800000;\n"
				  "	mov.u64 %n2, 0;\n"
				  "	setp.eq.u64 %p1, %n1, 0;\n	@%p1 bra END;\n"
				  "LOOP:\n" FOUR FOUR FOUR FOUR "	sub.u64 %n1, %n1, 1;\n"
				  "	setp.ne.u64 %p1, %n1, 0;\n"
				  "	@%p1 bra LOOP;\n"
				  "	setp.eq.f32 %p2, %f1, 0fC2C80000;\n"
				  "	@%p2 st.global.f32 [%n2], %f1;\n"
				  "END:\n	ret;\n}\n"
				  ".visible .entry nothing()\n{\n	ret;\n}\n"
				  ".visible .entry gpusim_fault()\n{\n"
				  "	.reg .u64 %n<2>;\n	.reg .u32 %r<2>;\n"
				  "	mov.u64 %n1, 16;\n	mov.u32 %r1, 1;\n"
				  "	st.global.u32 [%n1], %r1;\n	ret;\n}\n";

#endif
