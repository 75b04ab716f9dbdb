/* A segment that is removed or replaced while clients run, or that never was there: how each client goes on. */
#include "test/unit/unit_clients.h"

#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

TestSuite(open, .init = u_begin_default, .fini = u_end);

static struct gpuarb_client *alone(unsigned core_pct, uint64_t mem_bytes)
{
	struct gpuarb_options o = t_options(&u_dir, "hermit");
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.core_pct = core_pct;
	o.mem_bytes = mem_bytes;
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), 0, "%s", err.text);
	cr_assert(gpuarb_client_is_alone(c));
	return c;
}

static void remove_state(void)
{
	char path[PATH_MAX];

	t_path(&u_dir, "state", path);
	cr_assert_eq(unlink(path), 0);
}

static const struct gpuarb_picture *picture(void)
{
	static struct gpuarb_picture p;
	struct gpuarb_view *view;
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &p), 0);
	gpuarb_view_close(view);
	return &p;
}

static void conf(const char *text)
{
	FILE *f = fopen(u_dir.conf, "w");

	cr_assert(f && fputs(text, f) >= 0 && fclose(f) == 0);
}

/* The share of the time, in percent, that it gets if it always wants the GPU. */
static unsigned attained(struct gpuarb_client *c, unsigned ms)
{
	uint64_t used = 0, began = u_clock_ns;

	while (u_clock_ns - began < ms * 1000000ull) {
		cr_assert_eq(gpuarb_client_wait(c, NULL, 10000000000ull), 0);
		u_clock_ns += 500000;
		used += 500000;
		gpuarb_client_tick(c);
		cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	}
	return (unsigned)(100 * used / (u_clock_ns - began));
}

Test(open, a_client_goes_on_in_the_new_segment_with_its_memory)
{
	struct gpuarb_client *c = u_client("web", 30), *other;
	struct gpuarb_client_status status;
	struct gpuarb_error err = {0};
	uint64_t used, limit;

	cr_assert_eq(gpuarb_client_set_limits(c, 0, 1000, 0), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 700), 0);
	cr_assert_eq(gpuarb_client_mem_release(c, 100), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	remove_state();
	other = u_client("web", 0);
	cr_assert_eq(gpuarb_client_rejoin(c, false, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_rejoin(c, false, &err), 0, "nothing is left to do the second time");
	cr_assert_eq(picture()->nclients, 2);
	cr_assert_eq(picture()->naccounts, 1);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert(!status.running);
	cr_assert_eq(status.core_pct, 30);
	cr_assert_eq(gpuarb_client_mem_read(other, &used, &limit), 0);
	cr_assert_eq(used, 600);
	cr_assert_eq(limit, 1000);
	cr_assert_eq(gpuarb_client_mem_reserve(other, 401), -ENOMEM);
	cr_assert_eq(gpuarb_client_mem_release(c, 600), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(other, 401), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(arb_check(&c->seg, t_say, NULL), 0);
	gpuarb_client_close(c);
	gpuarb_client_close(other);
	cr_assert_eq(picture()->nclients, 0);
}

Test(open, a_client_that_cannot_move_stays_in_the_old_segment)
{
	struct gpuarb_client *c = u_client("web", 30), *other = u_client("web", 0);
	struct gpuarb_error err = {0};
	uint64_t used, limit;

	cr_assert_eq(gpuarb_client_mem_reserve(other, 100), 0);
	remove_state();
	cr_assert_eq(gpuarb_client_remain(c, &err), 0, "%s", err.text);
	u_clock_ns += 5000000000ull;
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(gpuarb_client_tick(c), 0);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(gpuarb_client_mem_read(c, &used, &limit), 0);
	cr_assert_eq(used, 100, "the others are still there");
	conf("on_error = closed\n");
	cr_assert_eq(gpuarb_client_remain(c, &err), -ECONNREFUSED);
	gpuarb_client_close(c);
	gpuarb_client_close(other);
}

Test(open, without_a_segment_a_limit_holds_as_if_alone)
{
	struct gpuarb_client *c = alone(25, 1000);
	unsigned got;

	cr_assert_eq(gpuarb_client_mem_reserve(c, 1001), -ENOMEM);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 1000), 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 1), -ENOMEM);
	got = attained(c, 2000);
	cr_assert(got >= 24 && got <= 26, "%u", got);
	cr_assert_eq(arb_check(&c->seg, t_say, NULL), 0);
	gpuarb_client_close(c);
	/* No directory and no segment was made. */
	cr_assert(access(u_dir.path, F_OK) == 0);
	cr_assert_eq(gpuarb_control_list(u_dir.path, NULL, 0, NULL), 0);
}

Test(open, a_forked_child_is_alone_by_itself)
{
	struct gpuarb_client *c = alone(25, 1000);
	int status;
	pid_t pid;

	cr_assert_eq(gpuarb_client_mem_reserve(c, 1000), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	pid = fork();
	if (!pid)
		_exit(gpuarb_client_mem_reserve(c, 1000) || gpuarb_client_enter(c, NULL) ||
			arb_check(&c->seg, t_say, NULL));
	cr_assert_eq(waitpid(pid, &status, 0), pid);
	cr_assert_eq(status, 0);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 1), -ENOMEM);
	gpuarb_client_close(c);
}

Test(open, limits_that_were_in_force_stay_when_the_segment_is_lost_for_good)
{
	struct gpuarb_client *c = u_client("web", 90);
	struct gpuarb_change changes[2] = {{"web", "core", "20"}, {"web", "mem", "1000"}};
	struct gpuarb_client_status status;
	struct gpuarb_error err = {0};
	unsigned got;

	cr_assert_eq(gpuarb_control_change(u_dir.path, T_GPU, changes, 2, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 900), 0);
	cr_assert_eq(gpuarb_client_rejoin(c, true, &err), 0, "%s", err.text);
	cr_assert(gpuarb_client_is_alone(c));
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 20);
	cr_assert_eq(status.mem_used, 900);
	cr_assert_eq(gpuarb_client_mem_reserve(c, 101), -ENOMEM);
	got = attained(c, 2000);
	cr_assert(got >= 19 && got <= 21, "%u", got);
	gpuarb_client_close(c);
	cr_assert_eq(picture()->nclients, 1, "its slot is that of a dead client");
}

Test(open, a_client_without_a_limit_runs_freely)
{
	struct gpuarb_options o = t_options(&u_dir, "web");
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), -ENOENT);
	cr_assert_null(c);
	o.core_pct = 100;
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), -ENOENT);
}

/* It has nothing to keep, but is one who can come back. */
Test(open, a_client_without_a_limit_that_loses_its_segment_goes_on_alone_without_one)
{
	struct gpuarb_client *c = u_client("web", 0);
	struct gpuarb_client_status status;
	struct gpuarb_error err = {0};

	cr_assert_eq(gpuarb_client_rejoin(c, true, &err), 0, "%s", err.text);
	cr_assert(gpuarb_client_is_alone(c));
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 100);
	gpuarb_client_close(c);
}

Test(open, who_went_on_alone_comes_back_with_what_it_asked_for_itself)
{
	struct gpuarb_client *c = u_client("web", 90);
	struct gpuarb_client_status status;
	struct gpuarb_error err = {0};
	char path[PATH_MAX];

	u_limit("web", "core", "20");
	cr_assert_not(gpuarb_client_may_return(c), "it is not alone");
	cr_assert_eq(gpuarb_client_mem_reserve(c, 900), 0);
	t_path(&u_dir, "state", path);
	cr_assert_eq(truncate(path, 0), 0);
	cr_assert_eq(gpuarb_client_rejoin(c, false, &err), -EBADMSG);
	cr_assert_eq(gpuarb_client_rejoin(c, true, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 20);
	cr_assert_not(gpuarb_client_may_return(c), "not within a second");
	u_clock_ns += 1000 * MS;
	cr_assert_not(gpuarb_client_may_return(c), "it is cut short");
	remove_state();
	gpuarb_client_close(u_client("other", 10));
	cr_assert_not(gpuarb_client_may_return(c), "not within a second of the last look");
	u_clock_ns += 1000 * MS;
	cr_assert(gpuarb_client_may_return(c));
	cr_assert_eq(gpuarb_client_rejoin(c, false, &err), 0, "%s", err.text);
	cr_assert_not(gpuarb_client_is_alone(c));
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 20);
	cr_assert_eq(status.mem_used, 900);
	u_limit("web", "core", "70");
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 70, "what was in force binds it only as long as it is alone");
	gpuarb_client_close(c);
}

Test(open, closed_refuses_whatever_else_is_wrong)
{
	struct gpuarb_options o = t_options(&u_dir, "web");
	struct gpuarb_client *c, *live = u_client("web", 10);
	struct gpuarb_error err = {0};

	o.core_pct = 25;
	conf("on_error = closed\n");
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), -ECONNREFUSED);
	cr_assert_not_null(strstr(err.text, "on_error = closed"));
	cr_assert_eq(gpuarb_client_rejoin(live, true, &err), -ECONNREFUSED);
	/* The same holds if what went wrong is a bad setting. */
	conf("window_ms = 7\non_error = closed\n");
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), -EINVAL);
	cr_assert_not_null(strstr(err.text, "window_ms"));
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), -ECONNREFUSED);
	conf("window_ms = 7\n");
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), 0, "%s", err.text);
	gpuarb_client_close(c);
	o.ignore_env = false;
	cr_assert_eq(setenv("GPUARB_ON_ERROR", "closed", 1), 0);
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), -ECONNREFUSED);
	gpuarb_client_close(live);
}

Test(open, a_limit_holds_although_the_account_s_name_is_bad)
{
	struct gpuarb_options o =
		t_options(&u_dir, "n23456789012345678901234567890123456789012345678901234567890123x4");
	struct gpuarb_client_status status;
	struct gpuarb_client *c;
	struct gpuarb_error err = {0};

	o.core_pct = 25;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), -EINVAL);
	cr_assert(strstr(err.text, "bytes) cannot be an account's name"), "%s", err.text);
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 25);
	gpuarb_client_close(c);
}

Test(open, limits_of_arbiter_conf_hold_alone_too)
{
	struct gpuarb_options o = t_options(&u_dir, "web");
	struct gpuarb_client *c;
	struct gpuarb_client_status status;
	struct gpuarb_error err = {0};

	conf("window_ms = 200\n[account web]\ncore = 40\n");
	cr_assert_eq(gpuarb_client_open_alone(&o, &c, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	cr_assert_eq(status.core_pct, 40);
	cr_assert_eq(gpuarb_client_wait(c, NULL, 1000000000), 0);
	gpuarb_client_close(c);
}
