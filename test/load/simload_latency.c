/* How long requests took: a histogram on a logarithmic scale. */
#include "test/load/simload.h"

#include <math.h>

#define STEP  1.0025
#define LEAST 10e-6

unsigned simload_bucket(double seconds)
{
	double at = seconds > LEAST ? log(seconds / LEAST) / log(STEP) : 0;

	return at < SIMLOAD_BUCKETS - 1 ? (unsigned)at : SIMLOAD_BUCKETS - 1;
}

uint64_t simload_requests(const uint32_t *latency)
{
	uint64_t sum = 0;

	for (unsigned i = 0; latency && i < SIMLOAD_BUCKETS; i++)
		sum += latency[i];
	return sum;
}

double simload_latency_us(const uint32_t *latency, double part)
{
	uint64_t all = simload_requests(latency), seen = 0, wanted = (uint64_t)ceil((double)all * part);

	for (unsigned i = 0; all && i < SIMLOAD_BUCKETS; i++) {
		seen += latency[i];
		if (seen >= wanted)
			return LEAST * 1e6 * pow(STEP, i + 0.5);
	}
	return 0;
}
