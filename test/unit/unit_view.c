/* What an observer sees, with a clock that the test moves: numbers of this moment, not of the last transition. */
#include "test/unit/unit_clients.h"

static struct gpuarb_view *view;
static struct gpuarb_picture picture;

static void close_dir(void)
{
	gpuarb_view_close(view);
	u_end();
}

TestSuite(view, .init = u_begin_default, .fini = close_dir);

static const struct gpuarb_view_account *look(const char *account)
{
	struct gpuarb_error err = {0};

	if (!view)
		cr_assert_eq(gpuarb_view_open(u_dir.path, T_GPU, &view, &err), 0, "%s", err.text);
	cr_assert_eq(gpuarb_view_read(view, &picture), 0);
	cr_assert(picture.consistent);
	cr_assert_eq(picture.busy_ns, picture.billed_ns, "bills add up to the busy time");
	for (unsigned i = 0; i < picture.naccounts; i++)
		if (strcmp(picture.accounts[i].name, account) == 0)
			return &picture.accounts[i];
	cr_assert(false, "%s is not there", account);
	return NULL;
}

Test(view, time_goes_on_between_transitions)
{
	struct gpuarb_client *c = u_client("web", 100);
	uint64_t before;

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	before = look("web")->used_ns;
	u_clock_ns += 1234 * MS;
	cr_assert_eq(look("web")->used_ns, before, "as published");
	cr_assert_eq(look("web")->used_now_ns - before, 1234 * MS);
	cr_assert_eq(picture.busy_now_ns - picture.busy_ns, 1234 * MS);
	cr_assert(picture.now_ns - picture.window_start_ns < picture.window_ns, "the window that now is");
	cr_assert_eq(picture.window_busy_ns, picture.now_ns - picture.window_start_ns);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(look("web")->used_ns, picture.accounts[0].used_now_ns);
	gpuarb_client_close(c);
}

/* Beside another client it is billed for half of its time in the set. Of that time a part was estimated. */
Test(view, what_was_estimated_is_shown_beside_the_time_in_the_set)
{
	struct gpuarb_client *c = u_client("web", 100), *other = u_client("other", 100);

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	cr_assert_eq(gpuarb_client_enter(other, NULL), 0);
	u_clock_ns += 50 * MS;
	cr_assert_eq(gpuarb_client_leave(other, 0), 0);
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	gpuarb_client_estimated(c, 3 * MS);
	gpuarb_client_estimated(c, 4 * MS);
	look("web");
	cr_assert_eq(picture.clients[0].estimated_ns, 7 * MS);
	cr_assert_eq(picture.clients[0].in_set_ns, 50 * MS);
	cr_assert_eq(picture.clients[0].used_ns, 25 * MS);
	cr_assert_eq(picture.clients[1].estimated_ns, 0);
	gpuarb_client_close(c);
	/* The next client in its slot begins with zero. */
	c = u_client("web", 100);
	look("web");
	cr_assert_eq(picture.nclients, 2);
	cr_assert_eq(picture.clients[0].estimated_ns, 0);
	cr_assert_eq(picture.clients[0].in_set_ns, 0);
	gpuarb_client_close(other);
	gpuarb_client_close(c);
}

Test(view, an_account_that_did_not_roll_is_shown_as_if_it_had)
{
	struct gpuarb_client *c = u_client("web", 20), *other = u_client("other", 100);
	uint64_t debt;

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	u_clock_ns += 50 * MS;
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(look("web")->left_ns, 0);
	debt = picture.accounts[0].debt_ns;
	cr_assert(debt > 25 * MS && debt < 35 * MS, "%llu", (unsigned long long)debt);
	/* Other clients roll the window; the account itself does nothing. */
	for (int i = 0; i < 3; i++) {
		u_clock_ns += 100 * MS;
		gpuarb_client_tick(other);
	}
	cr_assert_eq(look("web")->debt_ns, 0, "three windows have paid for it");
	cr_assert_eq(picture.accounts[0].left_ns, 20 * MS);
	cr_assert_eq(picture.accounts[0].window_ns, 0);
	gpuarb_client_close(other);
	gpuarb_client_close(c);
}

/* An idle client does not read its limits. An observer sees those that it will find when it does. */
Test(view, limits_that_an_idle_account_was_given_are_shown)
{
	struct gpuarb_client *c = u_client("web", 20);

	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	u_clock_ns += 30 * MS;
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	u_clock_ns += 500 * MS;
	u_limit("web", "core", "50");
	u_limit("web", "mem", "1Gi");
	u_limit("web", "request", "10");
	cr_assert_eq(look("web")->limit_ppm, 50 * (ARB_PPM / 100));
	cr_assert_eq(picture.accounts[0].quota_ppm, 50 * (ARB_PPM / 100));
	cr_assert_eq(picture.accounts[0].left_ns, 50 * MS);
	cr_assert_eq(picture.accounts[0].debt_ns, 0);
	cr_assert_eq(picture.accounts[0].mem_limit, 1ull << 30);
	cr_assert_eq(picture.accounts[0].request_ppm, 10 * (ARB_PPM / 100));
	/* When the administrator has taken that back, what the program asked for is shown. */
	u_limit("web", "core", NULL);
	u_limit("web", "request", NULL);
	cr_assert_eq(look("web")->limit_ppm, 20 * (ARB_PPM / 100));
	cr_assert_eq(picture.accounts[0].request_ppm, 0);
	/* From no limit to a limit: what was used without a limit is no debt. */
	cr_assert_eq(gpuarb_client_set_limits(c, 100, 0, 50), 0);
	cr_assert_eq(gpuarb_client_enter(c, NULL), 0);
	u_clock_ns += 500 * MS;
	cr_assert_eq(gpuarb_client_leave(c, 0), 0);
	cr_assert_eq(look("web")->limit_ppm, ARB_PPM);
	u_clock_ns += 500 * MS;
	u_limit("web", "core", "40");
	cr_assert_eq(look("web")->limit_ppm, 40 * (ARB_PPM / 100));
	cr_assert_eq(picture.accounts[0].debt_ns, 0);
	cr_assert_eq(picture.accounts[0].left_ns, 40 * MS);
	gpuarb_client_close(c);
}

static struct gpuarb_client *queue[4];
static int asleep;
static bool looked;

/* While a client sleeps the next one comes; when all sleep, an observer looks. Then their waits end. */
static void queue_grows(void)
{
	static const unsigned places[4] = {0, 3, 1, 2};

	if (!looked && asleep < 3) {
		asleep++;
		u_clock_ns += MS;
		cr_assert_eq(gpuarb_client_wait(queue[asleep], NULL, 10 * MS), -ETIMEDOUT);
	} else if (!looked) {
		looked = true;
		look("a");
		cr_assert_eq(picture.nwaiting, 3);
		for (unsigned i = 0; i < picture.nclients; i++)
			cr_assert_eq(picture.clients[i].queue_place, places[picture.clients[i].slot],
				"slot %u is at %u", picture.clients[i].slot, picture.clients[i].queue_place);
	}
}

Test(view, places_in_the_queue)
{
	static const unsigned priorities[4] = {50, 10, 90, 50};
	static const char *const names[4] = {"a", "b", "c", "d"};

	u_futex.while_asleep = queue_grows;
	for (int i = 0; i < 4; i++) {
		queue[i] = u_client(names[i], 100);
		cr_assert_eq(gpuarb_client_set_limits(queue[i], 0, 0, priorities[i]), 0);
	}
	u_set("policy", "exclusive");
	cr_assert_eq(gpuarb_client_enter(queue[0], NULL), 0);
	asleep = 1;
	cr_assert_eq(gpuarb_client_wait(queue[1], NULL, 10 * MS), -ETIMEDOUT);
	cr_assert(looked);
	/* A client that gave up is in no queue. */
	look("a");
	for (unsigned i = 0; i < picture.nclients; i++)
		cr_assert_eq(picture.clients[i].queue_place, 0);
	for (int i = 0; i < 4; i++)
		gpuarb_client_close(queue[i]);
}

Test(view, events_find_the_names_of_those_who_left)
{
	struct gpuarb_client *c = u_client("web", 20), *stays = u_client("stays", 20);
	char name[ARB_NAME_BYTES];
	struct gpuarb_event events[8];
	uint64_t position = 0;
	int n;

	look("web");
	gpuarb_client_close(c);
	n = gpuarb_view_events(view, &position, events, 8);
	cr_assert_eq(n, 4, "%d", n);
	cr_assert_eq(events[2].kind, ARB_EVENT_EMPTIED);
	cr_assert_eq(events[2].account, events[3].account);
	cr_assert_eq(events[3].kind, ARB_EVENT_LEFT);
	cr_assert(gpuarb_view_account_name(view, events[3].account, name));
	cr_assert_str_eq(name, "web");
	cr_assert(!gpuarb_view_account_name(view, 5, name), "never used");
	cr_assert(!gpuarb_view_account_name(view, ARB_NONE, name));
	cr_assert(!gpuarb_view_account_name(view, 1u << 31, name));
	gpuarb_client_close(stays);
}

Test(view, how_slowly_a_quota_is_used_up_is_told_by_who_runs)
{
	struct gpuarb_client *a = u_client("web", 50), *b = u_client("web", 0), *others[4];
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_enter(a, NULL), 0);
	cr_assert_eq(gpuarb_client_status(a, &status), 0);
	cr_assert_eq(status.slower, 1);
	for (int i = 0; i < 4; i++) {
		others[i] = u_client("other", 0);
		cr_assert_eq(gpuarb_client_enter(others[i], NULL), 0);
	}
	cr_assert_eq(gpuarb_client_status(a, &status), 0);
	cr_assert_eq(status.slower, 5);
	cr_assert_eq(gpuarb_client_enter(b, NULL), 0);
	cr_assert_eq(gpuarb_client_status(a, &status), 0);
	cr_assert_eq(status.slower, 3, "two of six belong to the account");
	for (int i = 0; i < 4; i++)
		gpuarb_client_close(others[i]);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}
