/*
 * One wrapper for each row of hooks.def, and the exported name in front of it.
 *
 * The short way of a gated call is a few instructions and a jump; everything else is in a function of its
 * own.
 */
#include "preload/hooks/wrappers.h"

#include "preload/process/act.h"
#include "preload/hooks/hooks.h"
#include "shm/base/word.h"

#define unlikely(x) __builtin_expect(!!(x), 0)
#define COLD        __attribute__((noinline, cold))

#define LIST(...) __VA_ARGS__

/* No parameter of the driver has a name that ends in an underscore. */
#define CALL(symbol, args, facts)                                                                            \
	struct act_call act_ = {.id = HOOK_##symbol, LIST facts};                                            \
	__typeof__(symbol) *real_ = arb_real(symbol);                                                        \
	CUresult result_;                                                                                    \
                                                                                                             \
	if (unlikely(!real_))                                                                                \
		return CUDA_ERROR_NOT_FOUND;                                                                 \
	if (unlikely(!act_before(&act_, &result_)))                                                          \
		return result_;                                                                              \
	return act_after(&act_, real_ args);

/* While any graph has memory or copies between GPUs, each graph is looked up. One that has neither still goes the short
 * way. */
#define GRAPH(symbol, args, facts)                                                                           \
	if (arb_word_load(&arb_own.gate.graphs)) {                                                           \
		struct act_call act_ = {.id = HOOK_##symbol, LIST facts};                                    \
                                                                                                             \
		if (arb_real(symbol) && !act_graph_is_seen(act_.handle) && act_open(CAT_GRAPH))              \
			return arb_real(symbol) args;                                                        \
	}

#define SLOW_GRAPH(symbol, params, args, facts)                                                              \
	static COLD __attribute__((used)) CUresult slow_##symbol params                                      \
	{                                                                                                    \
		GRAPH(symbol, args, facts)                                                                   \
		CALL(symbol, args, facts)                                                                    \
	}

#define SLOW(symbol, params, args, facts)                                                                    \
	static COLD __attribute__((used)) CUresult slow_##symbol params                                      \
	{                                                                                                    \
		CALL(symbol, args, facts)                                                                    \
	}

/*
 * The short way reads no argument, so it does not declare them. It takes all registers that may hold arguments and hands
 * them on; further arguments are on the stack, where a jump leaves them. Declared with all its parameters a launch would
 * first save and then restore five of them. The function has to end in a jump: the makefile and this condition
 * ensure that, and the coverage test compares every argument of every call.
 */
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__) &&              \
	(defined(__x86_64__) || defined(__aarch64__))

#ifdef __x86_64__
#define WORDS      long a, long b, long c, long d, long e, long f
#define SAME_WORDS (a, b, c, d, e, f)
#else
#define WORDS      long a, long b, long c, long d, long e, long f, long g, long h
#define SAME_WORDS (a, b, c, d, e, f, g, h)
#endif
typedef long words_fn(WORDS);

#define SHORT(symbol, category, params, args, also)                                                          \
	words_fn short_##symbol __asm__("wrap_" #symbol);                                                    \
	long short_##symbol(WORDS)                                                                           \
	{                                                                                                    \
		words_fn *real_ = (words_fn *)arb_word_load(&arb_real_table[HOOK_##symbol]);                 \
                                                                                                             \
		if (unlikely(!real_) || unlikely(also) || unlikely(!act_open(CAT_##category)))               \
			real_ = (words_fn *)(void *)slow_##symbol;                                           \
		return real_ SAME_WORDS;                                                                     \
	}

#else

#define SHORT(symbol, category, params, args, also)                                                          \
	CUresult wrap_##symbol params                                                                        \
	{                                                                                                    \
		__typeof__(symbol) *real_ =                                                                  \
			(__typeof__(symbol) *)arb_word_load(&arb_real_table[HOOK_##symbol]);                 \
                                                                                                             \
		if (unlikely(!real_) || unlikely(also) || unlikely(!act_open(CAT_##category)))               \
			return slow_##symbol args;                                                           \
		return real_ args;                                                                           \
	}

#endif

#define WRAP_GATED(symbol, category, params, args, facts)                                                    \
	SLOW(symbol, params, args, facts)                                                                    \
	SHORT(symbol, category, params, args, 0)

#define WRAP_GRAPH(symbol, category, params, args, facts)                                                    \
	SLOW_GRAPH(symbol, params, args, facts)                                                              \
	SHORT(symbol, category, params, args, arb_word_load(&arb_own.gate.graphs))

/* With several GPUs in use, the long way looks at which of them have the memory of a copy. */
#define WRAP_COPY(symbol, category, params, args, facts)                                                     \
	SLOW(symbol, params, args, facts)                                                                    \
	SHORT(symbol, category, params, args, arb_word_load(&arb_own.gpus) > 1)

#define WRAP_WAITS(symbol, category, params, args, facts)                                                    \
	SLOW(symbol, params, args, facts)                                                                    \
	SHORT(symbol, category, params, args,                                                                \
		arb_word_load(&arb_own.gate.watched) || arb_word_load(&arb_own.gpus) > 1)

#define WRAP_WATCHED(symbol, category, params, args, facts)                                                  \
	CUresult wrap_##symbol params                                                                        \
	{                                                                                                    \
		CALL(symbol, args, facts)                                                                    \
	}

#define WRAP_OWN(symbol, category, params, args, facts)

/*
 * Which way the calls of a category take. GATED: work for the GPU, with one test and one count while the gate is open.
 * COPY: as GATED while the process uses one GPU. WAITS: as COPY while no GPU is watched. WATCHED: seen before and after
 * the call. OWN: the wrapper is in special.c.
 */
#define WAY_LAUNCH      WRAP_GATED
#define WAY_GRAPH       WRAP_GRAPH
#define WAY_COPY        WRAP_COPY
#define WAY_COPY_SYNC   WRAP_WAITS
#define WAY_MEMSET      WRAP_GATED
#define WAY_PREFETCH    WRAP_GATED
#define WAY_HOSTFN      WRAP_WATCHED
#define WAY_MEMOP       WRAP_GATED
#define WAY_INTEROP     WRAP_GATED
#define WAY_GRAPH_MAKE  WRAP_WATCHED
#define WAY_GRAPH_MEM   WRAP_WATCHED
#define WAY_ALLOC       WRAP_WATCHED
#define WAY_FREE        WRAP_WATCHED
#define WAY_ALLOC_ASYNC WRAP_WATCHED
#define WAY_FREE_ASYNC  WRAP_WATCHED
#define WAY_POOL        WRAP_WATCHED
#define WAY_VMM         WRAP_WATCHED
#define WAY_ARRAY       WRAP_WATCHED
#define WAY_IMPORT      WRAP_WATCHED
#define WAY_HOST_MEM    WRAP_WATCHED
#define WAY_SYNC        WRAP_WATCHED
#define WAY_STREAM      WRAP_WATCHED
#define WAY_EVENT       WRAP_WATCHED
#define WAY_CAPTURE     WRAP_WATCHED
#define WAY_CONTEXT     WRAP_WATCHED
#define WAY_QUERY       WRAP_WATCHED
#define WAY_CODE        WRAP_WATCHED
#define WAY_CHECKPOINT  WRAP_WATCHED
#define WAY_INIT        WRAP_WATCHED
#define WAY_RESOLVER    WRAP_OWN

#define HOOK(symbol, base, version, variant, category, params, args, facts)                                  \
	WAY_##category(symbol, category, params, args, facts)
#include "preload/hooks/hooks.def"
#undef HOOK

/* The exported names, which a linked program binds to. arb_direct_find() finds at the first call where each leads. */
#define DIRECT(type, library, symbol, params, args)                                                          \
	static COLD type inside_##symbol params                                                              \
	{                                                                                                    \
		__typeof__(symbol) *real_ = arb_real(symbol);                                                \
                                                                                                             \
		return real_ ? real_ args : wrap_##symbol args;                                              \
	}                                                                                                    \
	static COLD type first_##symbol params                                                               \
	{                                                                                                    \
		__typeof__(symbol) *target_ =                                                                \
			(__typeof__(symbol) *)arb_direct_find(HOOK_##symbol, __builtin_return_address(0));   \
                                                                                                             \
		return target_ args;                                                                         \
	}                                                                                                    \
	type symbol params                                                                                   \
	{                                                                                                    \
		__typeof__(symbol) *target_ =                                                                \
			(__typeof__(symbol) *)arb_word_load(&arb_direct_table[HOOK_##symbol]);               \
                                                                                                             \
		if (unlikely(!target_))                                                                      \
			target_ = first_##symbol;                                                            \
		if (unlikely(arb_is_inside(library, __builtin_return_address(0))))                           \
			target_ = inside_##symbol;                                                           \
		return target_ args;                                                                         \
	}

#define HOOK(symbol, base, version, variant, category, params, args, facts)                                  \
	DIRECT(CUresult, LIBRARY_CUDA, symbol, params, args)
#include "preload/hooks/hooks.def"
#undef HOOK

#define NVML_HOOK(symbol, params, args) DIRECT(int, LIBRARY_NVML, symbol, params, args)
#include "preload/hooks/nvml.def"
#undef NVML_HOOK
