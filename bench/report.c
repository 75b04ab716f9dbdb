#include "bench/report.h"

#include <dirent.h>
#include <fnmatch.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#ifndef BENCH_COMMIT
#define BENCH_COMMIT "unknown"
#endif

uint64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000u + (uint64_t)ts.tv_nsec;
}

static void cpu_name(char *name, size_t size)
{
	char line[256];
	FILE *file = fopen("/proc/cpuinfo", "re");

	snprintf(name, size, "unknown CPU");
	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, "model name", 10) == 0 && strchr(line, ':')) {
			snprintf(name, size, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"),
				strchr(line, ':') + 2);
			break;
		}
	if (file)
		fclose(file);
}

const char *bench_option(int *argc, char **argv, const char *word)
{
	for (int i = 1; i + 1 < *argc; i++)
		if (!strcmp(argv[i], word)) {
			const char *value = argv[i + 1];

			memmove(&argv[i], &argv[i + 2], sizeof(*argv) * (size_t)(*argc - i - 1));
			*argc -= 2;
			return value;
		}
	return NULL;
}

void bench_begin(struct bench *b, const char *name, const char *about, int argc, char **argv)
{
	char cpu[128];
	struct utsname os;

	*b = (struct bench){.name = name};
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--json") == 0) {
			b->json = true;
		} else if (strcmp(argv[i], "--case") == 0 && i + 1 < argc) {
			b->only = argv[++i];
		} else {
			fprintf(strcmp(argv[i], "--help") ? stderr : stdout,
				"Usage: bench_%s [--json] [--case NAME|PATTERN]\n%s\n", name, about);
			exit(strcmp(argv[i], "--help") ? 2 : 0);
		}
	}
	if (b->json)
		return;
	cpu_name(cpu, sizeof(cpu));
	uname(&os);
	printf("# bench_%s on %s, %s %s, %s, commit %s\n", name, cpu, os.sysname, os.release,
		"compiler " __VERSION__, BENCH_COMMIT);
}

bool bench_wants(const struct bench *b, const char *name)
{
	return !b->only || fnmatch(b->only, name, 0) == 0;
}

static void print(struct bench *b, const char *name, double value, const char *unit, double baseline,
	bool limited, double allowed)
{
	double ratio = baseline > 0 ? value / baseline : 0;
	bool ok = !limited || ratio <= allowed;

	b->failed += !ok;
	if (b->json) {
		json_t *o = json_pack("{s:s, s:s, s:f, s:s, s:f, s:f, s:o, s:b}", "bench", b->name, "case",
			name, "value", value, "unit", unit, "baseline", baseline, "ratio", ratio, "allowed",
			limited ? json_real(allowed) : json_null(), "ok", ok);

		json_dumpf(o, stdout, JSON_REAL_PRECISION(6) | JSON_PRESERVE_ORDER);
		printf("\n");
		json_decref(o);
		return;
	}
	if (!b->headed)
		printf("%-24s %12s %12s %-6s %8s %8s\n", "case", "value", "baseline", "unit", "ratio",
			"allowed");
	b->headed = true;
	if (limited) {
		printf("%-24s %12.1f %12.1f %-6s %8.2f %8.2f  %s\n", name, value, baseline, unit, ratio,
			allowed, ok ? "ok" : "NOT OK");
	} else {
		printf("%-24s %12.1f %12.1f %-6s %8.2f %8s\n", name, value, baseline, unit, ratio, "-");
	}
	fflush(stdout);
}

void bench_ratio(
	struct bench *b, const char *name, double value, const char *unit, double baseline, double allowed)
{
	print(b, name, value, unit, baseline, true, allowed);
}

void bench_show(struct bench *b, const char *name, double value, const char *unit, double baseline)
{
	print(b, name, value, unit, baseline, false, 0);
}

int bench_end(const struct bench *b)
{
	return b->failed ? 1 : 0;
}

static double best_of(bench_loop *loop, void *argument, unsigned iterations, double best)
{
	uint64_t began = bench_now_ns();
	double ns;

	loop(argument, iterations);
	ns = (double)(bench_now_ns() - began) / iterations;
	return best == 0 || ns < best ? ns : best;
}

void bench_duel(bench_loop *thing, void *thing_argument, bench_loop *baseline, void *baseline_argument,
	unsigned iterations, unsigned turns, double *thing_ns, double *baseline_ns)
{
	*thing_ns = *baseline_ns = 0;
	for (unsigned i = 0; i < turns; i++) {
		*baseline_ns = best_of(baseline, baseline_argument, iterations, *baseline_ns);
		*thing_ns = best_of(thing, thing_argument, iterations, *thing_ns);
	}
}

double bench_thread_s(pid_t pid, const char *called)
{
	char path[64], name[32], *end;
	double seconds_used = 0;
	struct dirent *entry;
	FILE *file;
	DIR *dir;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)pid);
	dir = opendir(path);
	while (dir && (entry = readdir(dir))) {
		long tid = strtol(entry->d_name, &end, 10);
		unsigned long long ns = 0;

		snprintf(path, sizeof(path), "/proc/%d/task/%ld/comm", (int)pid, tid);
		file = *end ? NULL : fopen(path, "re");
		if (!file)
			continue;
		if (!fgets(name, sizeof(name), file))
			*name = 0;
		name[strcspn(name, "\n")] = 0;
		fclose(file);
		snprintf(path, sizeof(path), "/proc/%d/task/%ld/schedstat", (int)pid, tid);
		file = strcmp(name, called) ? NULL : fopen(path, "re");
		if (file && fscanf(file, "%llu", &ns) == 1)
			seconds_used += (double)ns / 1e9;
		if (file)
			fclose(file);
	}
	if (dir)
		closedir(dir);
	return seconds_used;
}

double bench_tracker_s(pid_t pid)
{
	return bench_thread_s(pid, "gpuarb");
}
