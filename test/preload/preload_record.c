/* A driver that does nothing but note which of its functions was called, and with which arguments. */
#include "cuda_abi.h"

#include "test/preload/preload_record.h"

#define EXPORT __attribute__((visibility("default")))

static __thread struct record last;

EXPORT struct record *record_get(void);
struct record *record_get(void)
{
	return &last;
}

static CUresult record_call(const char *name, unsigned n, const struct record_arg *args)
{
	last.name = name;
	last.args = n;
	last.hash = record_hash(n, args);
	last.calls++;
	return (CUresult)last.result;
}

#include "preload_record.inc"
