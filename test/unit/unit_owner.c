/* Which user or container an account belongs to: its owner, its guests, and those that are turned away. */
#include "test/unit/unit_clients.h"

#include <unistd.h>

#include "units.h"

#include "shm/base/granted.h"
#include "shm/base/members.h"
#include "shm/base/groups.h"
#include "shm/base/os_proc.h"
#include "shm/client/owner.h"
#include "shm/segment/events.h"

#define ID_A "1111111111111111"
#define ID_B "2222222222222222"

/* The user and container of the next client. */
static struct arb_os_identity person;

static void identify(struct arb_os_identity *id)
{
	*id = person;
	id->pid = 7;
	id->pid_ns = 1;
}

static void begin(void)
{
	static struct arb_os_hooks hooks;

	u_begin(NULL);
	hooks = *arb_os_hooks;
	hooks.identify = identify;
	arb_os_hooks = &hooks;
	memset(&person, 0, sizeof(person));
}

static struct gpuarb_client *client(uint32_t user, const char *account, unsigned core_pct)
{
	person.uid = person.user = user;
	return u_client(account, core_pct);
}

static unsigned core_of(struct gpuarb_client *c)
{
	struct gpuarb_client_status status;

	cr_assert_eq(gpuarb_client_status(c, &status), 0);
	return status.core_pct;
}

TestSuite(owner, .init = begin, .fini = u_end);

Test(owner, programs_of_the_owner_share_the_strictest_limit)
{
	struct gpuarb_client *a = client(1, "shared", 30), *b = client(1, "shared", 20);
	char name[ARB_NAME_BYTES];

	cr_assert_eq(core_of(a), 20);
	cr_assert_eq(core_of(b), 20);
	cr_assert_null(gpuarb_client_turned_away(b, name, sizeof(name)));
	gpuarb_client_close(b);
	cr_assert_eq(core_of(a), 30);
	gpuarb_client_close(a);
}

Test(owner, a_stranger_has_an_account_of_its_own_with_the_limits_of_the_one_it_wanted)
{
	struct gpuarb_client *a = client(1, "mine", 30), *strict = client(2, "mine", 1),
			     *lenient = client(3, "mine", 0);
	char name[ARB_NAME_BYTES];
	const char *why = gpuarb_client_turned_away(strict, name, sizeof(name));

	cr_assert(why && strstr(why, "'mine' belongs to user 1"), "%s", why ? why : "nothing was said");
	cr_assert_str_eq(name, "mine.user2");
	cr_assert_eq(core_of(a), 30, "the owner has %u", core_of(a));
	cr_assert_eq(core_of(strict), 1);
	cr_assert_eq(core_of(lenient), 30, "to be turned away must not be an advantage");
	gpuarb_client_close(lenient);
	gpuarb_client_close(strict);
	gpuarb_client_close(a);
}

Test(owner, a_name_that_somebody_else_took_before_is_passed_over)
{
	struct gpuarb_client *a = client(1, "mine", 30), *squatter = client(3, "mine.user2", 0),
			     *stranger = client(2, "mine", 0);
	char name[ARB_NAME_BYTES];

	cr_assert(gpuarb_client_turned_away(stranger, name, sizeof(name)));
	cr_assert(strcmp(name, "mine.user2"), "it is in %s", name);
	cr_assert_eq(core_of(stranger), 30);
	gpuarb_client_close(stranger);
	gpuarb_client_close(squatter);
	gpuarb_client_close(a);
}

Test(owner, on_error_closed_refuses_a_stranger)
{
	struct gpuarb_client *a = client(1, "mine", 30), *b;
	struct gpuarb_options o = t_options(&u_dir, "mine");
	struct gpuarb_error err = {0};

	o.ignore_env = false;
	setenv("GPUARB_ON_ERROR", "closed", 1);
	person.user = 2;
	cr_assert_eq(gpuarb_client_open(&o, &b, &err), -EPERM);
	cr_assert(strstr(err.text, "belongs to user 1"), "%s", err.text);
	unsetenv("GPUARB_ON_ERROR");
	gpuarb_client_close(a);
}

Test(owner, an_account_that_nobody_uses_and_that_owes_nothing_may_change_hands)
{
	struct gpuarb_client *a = client(1, "mine", 0), *b;
	char name[ARB_NAME_BYTES];

	gpuarb_client_close(a);
	b = client(2, "mine", 0);
	cr_assert_null(gpuarb_client_turned_away(b, name, sizeof(name)));
	gpuarb_client_close(b);
}

Test(owner, what_a_guest_asks_for_binds_the_guest_alone)
{
	struct gpuarb_client *a = client(1, "mine", 30), *guest;
	struct gpuarb_client_memory memory;
	char name[ARB_NAME_BYTES];

	u_limit("mine", "members", "2");
	guest = client(2, "mine", 10);
	cr_assert_null(gpuarb_client_turned_away(guest, name, sizeof(name)));
	cr_assert_eq(guest->account, a->account);
	cr_assert_eq(core_of(a), 30);
	u_clock_ns += 100 * MS - u_clock_ns % (100 * MS);
	cr_assert_eq(gpuarb_client_enter(guest, NULL), 0);
	u_clock_ns += 5 * MS;
	cr_assert_eq(gpuarb_client_tick(guest), 0);
	u_clock_ns += 5 * MS;
	cr_assert_eq(gpuarb_client_tick(guest), -EDQUOT, "10 of 100 ms are its own limit");
	cr_assert_eq(gpuarb_client_leave(guest, 0), 0);
	cr_assert_eq(gpuarb_client_enter(a, NULL), 0, "the account has 20 ms left");
	cr_assert_eq(gpuarb_client_leave(a, 0), 0);
	cr_assert_eq(gpuarb_client_enter(guest, NULL), -EAGAIN);
	u_clock_ns += 100 * MS;
	cr_assert_eq(gpuarb_client_enter(guest, NULL), 0, "the next window is another");
	cr_assert_eq(gpuarb_client_leave(guest, 0), 0);
	/* The guest's memory is limited as well. */
	cr_assert_eq(gpuarb_client_set_limits(guest, 0, 4096, 0), 0);
	cr_assert_eq(gpuarb_client_mem_try(a, 8192, false), 0);
	cr_assert_eq(gpuarb_client_mem_try(guest, 8192, false), -ENOMEM);
	cr_assert_eq(gpuarb_client_mem_try(guest, 4096, false), 0);
	cr_assert_eq(gpuarb_client_memory(guest, &memory), 0);
	cr_assert_eq(memory.limit, 4096);
	gpuarb_client_close(guest);
	gpuarb_client_close(a);
}

Test(owner, a_container_owns_its_account_whatever_its_users_are)
{
	struct gpuarb_client *a, *b, *c, *d;
	char name[ARB_NAME_BYTES];

	snprintf(person.container, sizeof(person.container), ID_A);
	a = client(0, "mine", 30);
	b = client(1000, "mine", 0);
	cr_assert_null(gpuarb_client_turned_away(b, name, sizeof(name)));
	snprintf(person.container, sizeof(person.container), ID_B);
	c = client(0, "mine", 0);
	cr_assert(strstr(gpuarb_client_turned_away(c, name, sizeof(name)), "another container"));
	cr_assert_str_eq(name, "mine.222222222222");
	person.container[0] = '\0';
	d = client(0, "mine", 0);
	cr_assert(gpuarb_client_turned_away(d, name, sizeof(name)), "root of the machine is not root of it");
	gpuarb_client_close(d);
	gpuarb_client_close(c);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

Test(owner, containers_of_a_pod_have_one_owner)
{
	struct arb_os_identity first = {.container = ID_A, .pod = "8a7f"},
			       second = {.container = ID_B, .pod = "8a7f"},
			       other = {.container = ID_B, .pod = "9b80"};

	cr_assert_eq(arb_owner_of(&first), arb_owner_of(&second));
	cr_assert_neq(arb_owner_of(&first), arb_owner_of(&other));
	cr_assert_neq(arb_owner_of(&(struct arb_os_identity){.user = 0}), 0);
}

/* A client to which an account was granted, in a container of which nothing can be seen unless `person` says so. */
static struct gpuarb_client *granted_client(const char *account, uint32_t user)
{
	char path[] = "/tmp/gpuarb-owner-XXXXXX", text[128];
	struct gpuarb_options o = t_options(&u_dir, NULL);
	struct gpuarb_error err = {0};
	struct gpuarb_client *c;
	int fd = mkstemp(path),
	    n = snprintf(text, sizeof(text), "GPUARB_ACCOUNT=%s\nGPUARB_ON_ERROR=closed\n", account);

	cr_assert(fd >= 0 && write(fd, text, (size_t)n) == n && close(fd) == 0);
	arb_granted_set_file(path);
	person.uid = person.user = user;
	o.ignore_env = false;
	cr_assert_eq(gpuarb_client_open(&o, &c, &err), 0, "user %u: %s", user, err.text);
	unlink(path);
	return c;
}

Test(owner, users_of_a_container_have_the_account_that_it_was_granted)
{
	struct gpuarb_client *a = granted_client("mine", 0), *b = granted_client("mine", 1000);

	cr_assert_eq(a->account, b->account);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

Test(owner, a_pod_owns_its_account_by_its_files_or_by_its_grant)
{
	struct gpuarb_client *a, *b;

	snprintf(person.pod, sizeof(person.pod), "8a7f");
	a = client(0, "pod-8a7f", 0);
	person.pod[0] = '\0';
	b = granted_client("pod-8a7f", 1000);
	cr_assert_eq(a->account, b->account);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

Test(owner, a_pod_is_found_where_the_kubelet_mounted_its_files)
{
	char id[40];

	cr_assert(arb_os_pod_id(
		"1 2 8:1 /var/lib/kubelet/pods/0f3c2d1e-1111-2222-3333-444455556666/etc-hosts /etc/hosts rw",
		id, sizeof(id)));
	cr_assert_str_eq(id, "0f3c2d1e-1111-2222-3333-444455556666");
	cr_assert_not(
		arb_os_pod_id(
			"1 2 8:1 /var/lib/kubelet/pods/0f3c2d1e-1111-2222-3333-444455556666/volumes/x /data rw",
			id, sizeof(id)),
		"a node sees the volumes of all of its pods");
	cr_assert_not(arb_os_pod_id("1 2 8:1 /containers/1234/hosts /etc/hosts rw", id, sizeof(id)));
}

Test(owner, a_user_is_known_outside_of_its_namespace)
{
	cr_assert_eq(arb_os_user("         0          0 4294967295\n", 1000), 1000);
	cr_assert_eq(arb_os_user("         0       1000          1\n", 0), 1000,
		"root of a namespace that it made itself");
	cr_assert_eq(arb_os_user("0 1000 1\n1 100000 65536\n", 5), 100004);
	cr_assert_eq(arb_os_user("", 5), 5);
}

Test(owner, members_are_a_user_or_a_group_or_a_container)
{
	static const char *const good[] = {"1001", "@44", "0123456789ab", ""}, *const bad[] = {"@", "alice",
										       "@no-such-group",
										       "4294967295",
										       "0123456789a"};
	struct arb_os_identity user = {.user = 1001, .uid = 1001},
			       inside = {.uid = 1001, .container = "0123456789abcdef"};
	char text[64];
	int64_t value, list[ARB_MEMBERS];

	for (unsigned i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		cr_assert(arb_members_parse(good[i], &value), "%s", good[i]);
		arb_members_format(value, text, sizeof(text));
		cr_assert_str_eq(text, good[i]);
	}
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		cr_assert_not(arb_members_parse(bad[i], &value), "%s", bad[i]);
	gpuarb_config_members("1001", list);
	cr_assert(arb_members_has(list, &user));
	cr_assert_not(arb_members_has(list, &inside), "a user's number means nothing inside a container");
	gpuarb_config_members("0123456789ab", list);
	cr_assert(arb_members_has(list, &inside));
	cr_assert_not(arb_members_has(list, &user));
	snprintf(text, sizeof(text), "@%u", (unsigned)getegid());
	gpuarb_config_members(text, list);
	cr_assert(arb_members_has(list, &user));
	gpuarb_config_members("", list);
	cr_assert_not(arb_members_has(list, &user));
}

Test(owner, members_are_a_list)
{
	struct arb_os_identity user = {.user = 1001, .uid = 1001}, root = {.user = 0},
			       inside = {.uid = 1001, .container = "0123456789abcdef"};
	struct gpuarb_error err = {0};
	char text[ARB_MEMBERS_BYTES];
	int64_t list[ARB_MEMBERS], value;

	cr_assert(gpuarb_config_members(" 1002,1001 , @44\t0123456789ab,", list));
	cr_assert(arb_members_has(list, &user));
	cr_assert(arb_members_has(list, &inside));
	cr_assert_not(arb_members_has(list, &root), "what is not used of the list is nobody");
	gpuarb_config_members_format(list, text);
	cr_assert_str_eq(text, "1002,1001,@44,0123456789ab");
	cr_assert(gpuarb_config_members("1,2,3,4,5,6,7,8", list));
	cr_assert_not(gpuarb_config_members("1,2,3,4,5,6,7,8,9", list));
	cr_assert_not(gpuarb_config_members("1001, alice", list));
	cr_assert_eq(gpuarb_config_parse(ARB_KEY_MEMBERS, "1001, alice", "here", &value, &err), -EINVAL);
	cr_assert(strstr(err.text, "a list of at most 8"), "%s", err.text);
	/* The longest possible members fit, and come out as they went in. */
	cr_assert(gpuarb_config_members("4294967294 @4294967294 0123456789ab 1123456789ab 2123456789ab "
					"3123456789ab 4123456789ab 5123456789ab",
		list));
	gpuarb_config_members_format(list, text);
	cr_assert_eq(gpuarb_config_members(text, list), true);
	cr_assert(strstr(text, ",5123456789ab"), "%s", text);
}

Test(owner, each_member_of_the_list_is_a_guest)
{
	struct gpuarb_client *a = client(1, "mine", 30), *b, *c, *d;
	char name[ARB_NAME_BYTES], text[ARB_MEMBERS_BYTES];
	struct gpuarb_error err = {0};

	u_limit("mine", "members", "2, 3");
	cr_assert_eq(gpuarb_control_get(u_dir.path, T_GPU, "mine", "members", text, sizeof(text), &err), 0);
	cr_assert_str_eq(text, "2,3");
	b = client(2, "mine", 0);
	c = client(3, "mine", 0);
	d = client(4, "mine", 0);
	cr_assert_null(gpuarb_client_turned_away(b, name, sizeof(name)));
	cr_assert_null(gpuarb_client_turned_away(c, name, sizeof(name)));
	cr_assert(gpuarb_client_turned_away(d, name, sizeof(name)));
	gpuarb_client_close(d);
	gpuarb_client_close(c);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

static int try_open(uint32_t user, struct gpuarb_client **c, struct gpuarb_error *err)
{
	struct gpuarb_options o = t_options(&u_dir, "crowd");

	person.uid = person.user = user;
	*err = (struct gpuarb_error){0};
	return gpuarb_client_open(&o, c, err);
}

static unsigned crowded(const struct arb_segment *seg)
{
	struct arb_event_copy e;
	uint64_t first, end;
	unsigned n = 0;

	for (arb_events_range(seg, &first, &end); first < end; first++)
		n += arb_events_read(seg, first, &e) == 0 && e.kind == ARB_EVENT_CROWDED;
	return n;
}

Test(owner, a_user_has_a_quarter_of_the_slots_and_others_find_room)
{
	struct gpuarb_client *crowd[ARB_SLOTS_DEFAULT / 4], *other, *refused;
	const unsigned most = ARB_SLOTS_DEFAULT / 4;
	struct gpuarb_error err;

	for (unsigned i = 0; i < most; i++)
		cr_assert_eq(try_open(61001, &crowd[i], &err), 0, "%s", err.text);
	cr_assert_eq(try_open(61001, &refused, &err), -EUSERS);
	cr_assert(strstr(err.text, "user 61001 has 64 of the 256 slots") && strstr(err.text, "may have 64") &&
			  strstr(err.text, "slots_per_user"),
		"%s", err.text);
	cr_assert_eq(crowded(&crowd[0]->seg), 1);
	cr_assert_eq(try_open(61002, &other, &err), 0, "%s", err.text);
	cr_assert_eq(arb_load64(&other->seg.slots[other->me.slot + 1].owner), 0,
		"a refused client leaves nothing");
	/* The slot of a dead client counts as free before anybody has cleaned up. */
	u_die(crowd[0]);
	cr_assert_eq(try_open(61001, &crowd[0], &err), 0, "%s", err.text);
	/* A slot that claims to be this user's counts only while a process holds its lock byte. */
	gpuarb_client_close(crowd[1]);
	arb_store64(&other->seg.slots[200].owner, 61002);
	arb_store32(&other->seg.slots[200].state, ARB_SLOT_LIVE);
	cr_assert_eq(try_open(61001, &crowd[1], &err), 0, "%s", err.text);
	arb_store32(&other->seg.slots[200].state, ARB_SLOT_FREE);
	for (unsigned i = 0; i < most; i++)
		gpuarb_client_close(crowd[i]);
	gpuarb_client_close(other);
}

Test(owner, how_many_slots_a_user_may_have)
{
	struct arb_segment seg = {.nslots = 8, .file = {.uid = 500}};
	struct arb_os_identity root = {.user = 0}, user = {.user = 1001, .uid = 1001}, makes = {.uid = 500},
			       inside = {.container = ID_A};

	makes.user = 500;
	cr_assert_eq(arb_owner_bound(&seg, &user, -1), 2, "a quarter");
	cr_assert_eq(arb_owner_bound(&seg, &inside, -1), 2, "root of a container is not root");
	cr_assert_eq(arb_owner_bound(&seg, &user, 5), 5);
	cr_assert_eq(arb_owner_bound(&seg, &user, 0), UINT32_MAX);
	cr_assert_eq(arb_owner_bound(&seg, &root, 1), UINT32_MAX);
	cr_assert_eq(arb_owner_bound(&seg, &makes, 1), UINT32_MAX, "the owner of the segment has no bound");
	seg.nslots = 2;
	cr_assert_eq(arb_owner_bound(&seg, &user, -1), 1, "never fewer than one");
}

/* The entries were written over a moment ago, and their members have not looked since. */
static void comes_after(int byte, uint32_t high)
{
	struct gpuarb_client *a = client(1, "a", 30), *b = client(1, "b", 20), *c;
	struct gpuarb_client *clients[2] = {a, b};

	memset((void *)a->seg.accounts, byte, a->seg.naccounts * sizeof(struct arb_account));
	arb_store32(&a->seg.header->accounts_high, high);
	c = client(1, "c", 10);
	cr_assert_neq(c->account, a->account);
	cr_assert_neq(c->account, b->account);
	for (int i = 0; i < 2; i++) {
		u_clock_ns += 200 * MS;
		cr_assert_eq(gpuarb_client_enter(clients[i], NULL), 0);
		cr_assert_eq(gpuarb_client_leave(clients[i], 0), 0);
	}
	cr_assert_eq(core_of(a), 30);
	cr_assert_eq(core_of(b), 20);
	cr_assert_eq(core_of(c), 10);
	gpuarb_client_close(c);
	gpuarb_client_close(b);
	gpuarb_client_close(a);
}

Test(owner, one_that_comes_after_all_entries_were_emptied_gets_none_of_others)
{
	comes_after(0, 0);
}

Test(owner, one_that_comes_after_all_entries_were_filled_gets_none_of_others)
{
	comes_after(0x5a, 0x5a5a5a5a);
}
