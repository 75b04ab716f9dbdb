/* gpuarb-top on a real terminal (tmux): sizes, keys, limits that are changed there, and messages when they cannot be.
 */
#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpuarb/control.h"
#include "test/multi/multi.h"

static struct t_dir dir;
static struct gpuarb_client *web, *batch;
static char screen[1 << 16], tmux[256];

/* Runs a command of tmux; its output is in `screen`. */
static int ask_tmux(const char *arguments)
{
	return t_shell(screen, sizeof(screen), "%s %s", tmux, arguments);
}

static void make_world(void)
{
	t_dir_make(&dir, NULL);
	chmod(dir.path, 0755);
	if (system("command -v tmux >/dev/null 2>&1") != 0)
		t_skip_test(&dir, "gpuarb-top on a terminal: there is no tmux");
	setenv("LC_ALL", "C.UTF-8", 1);
	setenv("TZ", "UTC", 1);
	web = must_open(&dir, "web");
	batch = must_open(&dir, "batch");
}

static void end_world(void)
{
	ask_tmux("kill-server");
	gpuarb_client_close(web);
	gpuarb_client_close(batch);
	t_dir_remove(&dir);
}

TestSuite(terminal, .init = make_world, .fini = end_world);

/* Starts it in a terminal of that size, after `before`; its exit status is shown when it ends. */
static void start(int width, int height, const char *before, const char *arguments)
{
	char here[PATH_MAX], command[PATH_MAX + 1024];
	static int servers;

	/* Each time there is a new server, because the old one may still be ending. */
	snprintf(tmux, sizeof(tmux), "tmux -u -f /dev/null -S %s/tmux%d", dir.path, servers++);
	cr_assert(realpath(t_build(), here));
	snprintf(command, sizeof(command),
		"new-session -d -x %d -y %d \"%s %s/gpuarb-top --dir %s -i 200 %s; echo status \\$?; sleep "
		"100\"",
		width, height, before, here, dir.path, arguments);
	cr_assert_eq(ask_tmux(command), 0, "%s", screen);
}

static void keys(const char *keys_)
{
	char command[256];

	snprintf(command, sizeof(command), "send-keys %s", keys_);
	cr_assert_eq(ask_tmux(command), 0, "%s", screen);
}

static bool shows(const char *text)
{
	ask_tmux("capture-pane -p");
	return strstr(screen, text) != NULL;
}

/* Waits until the text is on the screen. */
static void wait_for(const char *text)
{
	for (int i = 0; i < 600; i++, t_sleep_us(50000))
		if (shows(text))
			return;
	cr_assert(false, "'%s' does not come:\n%s", text, screen);
}

static void expect_core(const char *account, const char *value)
{
	struct gpuarb_error err = {0};
	char text[64];

	cr_assert_eq(gpuarb_control_get(dir.path, T_GPU, account, "core", text, sizeof(text), &err), 0, "%s",
		err.text);
	cr_assert_str_eq(text, value);
}

/* Checks that each line, without its colours, is at most this wide, in characters. */
static void check_width(int width)
{
	int columns = 0;

	for (const char *c = screen; *c; c++) {
		columns = *c == '\n' ? 0 : columns + ((*c & 0xc0) != 0x80);
		cr_assert_leq(columns, width, "%s", screen);
	}
}

Test(terminal, follows_the_size_of_the_terminal)
{
	start(80, 24, "", "");
	wait_for("web ");
	cr_assert(shows("QUOTA") && !shows("CONTAINER"), "%s", screen);
	check_width(80);
	ask_tmux("resize-window -x 60 -y 20");
	for (int i = 0; i < 600 && shows("QUOTA"); i++)
		t_sleep_us(50000);
	wait_for("batch ");
	cr_assert(!shows("QUOTA"), "%s", screen);
	check_width(60);
	ask_tmux("resize-window -x 250 -y 50");
	wait_for("CONTAINER");
	wait_for("boxfort-worker");
	ask_tmux("resize-window -x 30 -y 5");
	wait_for("too small");
	ask_tmux("resize-window -x 100 -y 30");
	wait_for("THROTTLED");
	keys("q");
	wait_for("status 0");
}

/* The terminal tells each process in it that its size has changed, also the one that asks NVML. */
Test(terminal, the_device_is_shown_after_the_size_has_changed)
{
	char here[PATH_MAX], text[3 * PATH_MAX];

	cr_assert(realpath(t_build(), here));
	snprintf(text, sizeof(text), "env LD_LIBRARY_PATH=%s/sim GPUSIM_DIR=%s", here, dir.path);
	cr_assert_eq(t_shell(screen, sizeof(screen), "%s %s/gpuarb-node --dir %s", text, here, dir.path), 0,
		"%s", screen);
	start(100, 30, text, "--gpu 0");
	wait_for("by NVML, clients or not");
	for (int width = 110; width <= 150; width += 10) {
		snprintf(text, sizeof(text), "resize-window -x %d -y 30", width);
		ask_tmux(text);
		t_sleep_us(300000);
	}
	/* An answer is shown for five seconds. */
	t_sleep_us(6000000);
	cr_assert(shows("by NVML, clients or not"), "%s", screen);
	keys("q");
	wait_for("status 0");
}

Test(terminal, a_limit_is_changed_from_the_keyboard)
{
	struct gpuarb_error err;
	char text[64];

	start(100, 30, "", "--sort name");
	wait_for("q quit");
	keys("l");
	wait_for("select an account first");
	keys("Down Down l");
	wait_for("core of web (1 to 100): _");
	keys("4 5 Enter");
	wait_for("core of web: 45");
	expect_core("web", "45");
	gpuarb_client_tick(web);
	wait_for("web            45    45 ");
	keys("l 0 Enter");
	wait_for("core cannot be '0'; allowed: 1 to 100 percent");
	keys("m 2 G i Enter");
	wait_for("mem of web: 2Gi");
	keys("p 7 Enter");
	wait_for("priority of web: 7");
	keys("l 9 9 Escape");
	wait_for("q quit");
	expect_core("web", "45");
	keys("l Enter");
	wait_for("core of web: no longer set");
	cr_assert_eq(gpuarb_control_get(dir.path, T_GPU, "web", "core", text, sizeof(text), &err), -ENOENT);
}

Test(terminal, keys)
{
	start(100, 40, "", "--sort name");
	wait_for("q quit");
	keys("'?'");
	wait_for("why does it not get more?");
	keys("x Down e");
	wait_for("batch on GPU-test: it has no work on the GPU just now.");
	keys("Down");
	wait_for("web on GPU-test: it has no work");
	keys("x f");
	wait_for("boxfort-worker");
	keys("/ z z z Enter");
	wait_for("no account matches 'zzz'");
	keys("Escape");
	wait_for("\nbatch");
	keys("s");
	wait_for("sorted by limit");
	keys("z");
	wait_for("PAUSED");
	keys("z q");
	wait_for("status 0");
}

/* A terminal reports a click as ESC [ M, the button, the column and the line, each with 32 added. */
Test(terminal, the_mouse_selects)
{
	char click[64];
	int line = 0;

	start(100, 30, "", "--mouse --sort name");
	wait_for("q quit");
	wait_for("\nweb ");
	for (const char *c = screen; c < strstr(screen, "\nweb "); c++)
		line += *c == '\n';
	snprintf(click, sizeof(click), "-l \"$(printf '\\033[M %c%c')\"", 32 + 3, 32 + line + 2);
	keys(click);
	keys("e");
	wait_for("web on GPU-test: ");
	keys("x q");
	wait_for("status 0");
}

Test(terminal, a_user_who_may_not_change_limits_is_told_so)
{
	struct gpuarb_change set = {"web", "core", "30"};
	struct gpuarb_error err;
	char path[PATH_MAX];

	if (geteuid() != 0 || system("command -v setpriv >/dev/null 2>&1") != 0) {
		printf("skipped: who may not change limits is told so: needs root and setpriv\n");
		fflush(stdout);
		return;
	}
	cr_assert_eq(gpuarb_control_change(dir.path, T_GPU, &set, 1, &err), 0);
	t_path(&dir, "state", path);
	chmod(path, 0664);
	*strrchr(path, '/') = '\0';
	chmod(path, 0755);
	start(120, 30, "setpriv --reuid 65534 --regid 65534 --clear-groups", "--sort name");
	wait_for("q quit");
	keys("Down Down l 9 Enter");
	wait_for("only who may write");
	expect_core("web", "30");
	keys("q");
	wait_for("status 0");
}

Test(terminal, ascii_and_no_colours)
{
	start(100, 30, "env LC_ALL=C", "");
	wait_for("web ");
	for (const char *c = screen; *c; c++)
		cr_assert((unsigned char)*c < 0x80, "%s", screen);
	ask_tmux("capture-pane -p -e");
	cr_assert(strstr(screen, "\x1b[2m") || strstr(screen, "\x1b[7m"), "something is emphasised: %s",
		screen);
	keys("q");
	wait_for("status 0");
	ask_tmux("kill-server");
	start(100, 30, "env NO_COLOR=1", "");
	wait_for("web ");
	ask_tmux("capture-pane -p -e");
	for (int colour = 1; colour < 8; colour++) {
		char code[16];

		snprintf(code, sizeof(code), "\x1b[3%dm", colour);
		cr_assert_null(strstr(screen, code), "%s", screen);
	}
	keys("q");
	wait_for("status 0");
}

Test(terminal, colours_where_there_are_some)
{
	cr_assert_eq(gpuarb_client_enter(web, NULL), 0);
	start(100, 30, "", "");
	wait_for("1 running");
	ask_tmux("capture-pane -p -e");
	cr_assert(strstr(screen, "\x1b[32m"), "what runs is green: %s", screen);
	keys("q");
	wait_for("status 0");
}

Test(terminal, a_segment_that_goes_and_comes_back)
{
	char path[PATH_MAX];

	start(80, 24, "", "");
	wait_for("web ");
	gpuarb_client_close(web);
	gpuarb_client_close(batch);
	t_path(&dir, "state", path);
	cr_assert_eq(unlink(path), 0);
	wait_for("nobody uses a GPU through gpuarb yet");
	web = must_open(&dir, "again");
	batch = must_open(&dir, "batch");
	wait_for("again ");
	keys("q");
	wait_for("status 0");
}

static void expect_table(const char *before)
{
	start(120, 24, before, "");
	wait_for("status 0");
	cr_assert(shows("ACCOUNT") && shows("web ") && shows("batch "), "%s", screen);
	cr_assert_not(shows("\033") || shows("quit"), "%s", screen);
	ask_tmux("kill-server");
}

Test(terminal, a_terminal_without_a_screen_gets_the_plain_table)
{
	expect_table("env TERM=dumb");
	expect_table("env -u TERM");
}

Test(terminal, an_unknown_terminal_type_is_reported)
{
	start(120, 24, "env TERM=no-such-terminal", "");
	wait_for("the terminal type 'no-such-terminal' (TERM) is not known; use --once or --batch");
	wait_for("status 1");
}
