/*
 * How long kernels take, and the few kernels that compute.
 *
 * Built-in: spin_us(uint32 us), spin_ns(uint64 ns), spin_part_ns(uint64 ns, uint32 permille of the device),
 * fill(float *p, float v, uint32 n), saxpy(float a, const float *x, float *y, uint32 n),
 * reduce(const float *x, float *sum, uint32 n), add_u32(uint32 *p, uint32 v), gpusim_fault();
 * and kernels that wait on the device first: collective_ns(uint64 ns, uint64 group, uint32 rank, uint32 ranks),
 * spin_until_ns(uint64 ns, const uint32 *p, uint32 v).
 *
 * Any other name: GPUSIM_KERNELS="name=us,prefix*=uniform:10:20,other=exp:50@0.5", else GPUSIM_KERNEL_US.
 */
#include "test/sim/driver/driver.h"

#include <math.h>
#include <stdio.h>

static float as_float(uint64_t v)
{
	uint32_t bits = (uint32_t)v;
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static void run_fill(const uint64_t *a)
{
	float *p = (float *)(uintptr_t)a[0], v = as_float(a[1]);

	for (uint32_t i = 0; i < (uint32_t)a[2]; i++)
		p[i] = v;
}

static void run_saxpy(const uint64_t *a)
{
	const float *x = (const float *)(uintptr_t)a[1];
	float *y = (float *)(uintptr_t)a[2], k = as_float(a[0]);

	for (uint32_t i = 0; i < (uint32_t)a[3]; i++)
		y[i] += k * x[i];
}

static void run_reduce(const uint64_t *a)
{
	const float *x = (const float *)(uintptr_t)a[0];
	double sum = 0;

	for (uint32_t i = 0; i < (uint32_t)a[2]; i++)
		sum += x[i];
	*(float *)(uintptr_t)a[1] = (float)sum;
}

static void run_add(const uint64_t *a)
{
	*(uint32_t *)(uintptr_t)a[0] += (uint32_t)a[1];
}

static void time_us(const uint64_t *a, double *ns, unsigned *occupancy)
{
	(void)occupancy;
	*ns = (double)(uint32_t)a[0] * 1000;
}

static void time_ns(const uint64_t *a, double *ns, unsigned *occupancy)
{
	(void)occupancy;
	*ns = (double)a[0];
}

static void time_part(const uint64_t *a, double *ns, unsigned *occupancy)
{
	*ns = (double)a[0];
	*occupancy = a[1] < 1 ? 1 : a[1] > 1000 ? 1000 : (unsigned)a[1];
}

/* Returns the time for a start, and to move this many bytes at the device's memory bandwidth. */
static double streaming(uint64_t bytes)
{
	return 2000 + (double)bytes / drv.set->mem_gbps;
}

static void time_fill(const uint64_t *a, double *ns, unsigned *occupancy)
{
	(void)occupancy;
	*ns = streaming((uint64_t)(uint32_t)a[2] * 4);
}

static void time_saxpy(const uint64_t *a, double *ns, unsigned *occupancy)
{
	(void)occupancy;
	*ns = streaming((uint64_t)(uint32_t)a[3] * 12);
}

static const struct builtin builtins[] = {
	{"spin_us", 1, {4}, NULL, time_us, false, RUNS_AT_ONCE},
	{"gpusim_spin", 1, {4}, NULL, time_us, false, RUNS_AT_ONCE},
	{"spin_ns", 1, {8}, NULL, time_ns, false, RUNS_AT_ONCE},
	{"spin_part_ns", 2, {8, 4}, NULL, time_part, false, RUNS_AT_ONCE},
	{"fill", 3, {8, 4, 4}, run_fill, time_fill, false, RUNS_AT_ONCE},
	{"saxpy", 4, {4, 8, 8, 4}, run_saxpy, time_saxpy, false, RUNS_AT_ONCE},
	{"reduce", 3, {8, 8, 4}, run_reduce, time_fill, false, RUNS_AT_ONCE},
	{"add_u32", 2, {8, 4}, run_add, NULL, false, RUNS_AT_ONCE},
	{"gpusim_fault", 0, {0}, NULL, NULL, true, RUNS_AT_ONCE},
	{"collective_ns", 4, {8, 8, 4, 4}, NULL, time_ns, false, WAITS_FOR_RANKS},
	{"spin_until_ns", 3, {8, 8, 4}, NULL, time_ns, false, WAITS_FOR_VALUE},
};

const struct builtin *drv_builtin(const char *name)
{
	for (unsigned i = 0; i < sizeof(builtins) / sizeof(builtins[0]); i++)
		if (!strcmp(builtins[i].name, name))
			return &builtins[i];
	return NULL;
}

static bool matches(const char *pattern, size_t n, const char *name)
{
	if (n && pattern[n - 1] == '*')
		return !strncmp(pattern, name, n - 1);
	return strlen(name) == n && !strncmp(pattern, name, n);
}

static bool parse_value(const char *text, struct duration *d)
{
	struct duration v = {.kind = DUR_FIXED, .occupancy = d->occupancy};
	double part;
	int used = 0;

	if (sscanf(text, "uniform:%lf:%lf%n", &v.a, &v.b, &used) == 2)
		v.kind = DUR_UNIFORM;
	else if (sscanf(text, "normal:%lf:%lf%n", &v.a, &v.b, &used) == 2)
		v.kind = DUR_NORMAL;
	else if (sscanf(text, "exp:%lf%n", &v.a, &used) == 1)
		v.kind = DUR_EXP;
	else if (sscanf(text, "%lf%n", &v.a, &used) != 1)
		return false;
	if (text[used] == '@' && sscanf(text + used + 1, "%lf", &part) == 1 && part > 0 && part <= 1)
		v.occupancy = (unsigned)(part * 1000 + 0.5);
	v.a *= 1000;
	v.b *= 1000;
	*d = v;
	return true;
}

void drv_duration(const char *name, struct duration *d)
{
	const char *table = getenv("GPUSIM_KERNELS");
	const char *otherwise = getenv("GPUSIM_KERNEL_US");

	*d = (struct duration){.kind = DUR_FIXED, .a = 10000, .occupancy = drv.width};
	if (otherwise)
		parse_value(otherwise, d);
	while (table && *table) {
		const char *equal = strchr(table, '=');

		if (!equal)
			return;
		if (matches(table, (size_t)(equal - table), name) && parse_value(equal + 1, d))
			return;
		table = strchr(equal, ',');
		table += table != NULL;
	}
}

static double draw(const struct duration *d)
{
	switch (d->kind) {
	case DUR_UNIFORM:
		return d->a + (d->b - d->a) * drv_random();
	case DUR_EXP:
		return -d->a * log(drv_random());
	case DUR_NORMAL:
		return d->a + d->b * sqrt(-2 * log(drv_random())) * cos(6.283185307179586 * drv_random());
	default:
		return d->a;
	}
}

/* drv.lock held */
uint64_t drv_kernel_work(const struct CUfunc_st *fn, const uint64_t *args, unsigned *occupancy)
{
	double ns;

	*occupancy = fn->duration.occupancy;
	if (fn->builtin && fn->builtin->timing)
		fn->builtin->timing(args, &ns, occupancy);
	else
		ns = draw(&fn->duration);
	ns /= drv.set->speed;
	return ns < 1 ? SIM_UNIT : (uint64_t)(ns * SIM_UNIT);
}
