/* The name that a process is shown by: its program, or the script that an interpreter runs; never an argument. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "shm/base/command.h"

/* Gives the name for a command line whose words are separated by '|'. */
static const char *name_of(const char *line)
{
	static char name[128];
	char text[1024];
	size_t n = strlen(line);

	for (size_t i = 0; i <= n; i++)
		text[i] = (char)(line[i] == '|' ? '\0' : line[i]);
	arb_command_name(text, n + 1, name, sizeof(name));
	return name;
}

static void expect(const char *line, const char *name)
{
	cr_assert_str_eq(name_of(line), name, "%s: %s", line, name_of(line));
}

Test(command, an_interpreter_is_named_after_the_script_that_it_runs)
{
	expect("python|train.py", "python train.py");
	expect("/usr/bin/python3.11|-u|/home/me/project/train.py|--lr|0.1", "python3.11 train.py");
	expect("python3|-X|dev|-Wignore|train.py", "python3 train.py");
	expect("python3|-m|torch.distributed.run|train.py", "python3 -m torch.distributed.run");
	expect("python3|-um|pytest", "python3 -m pytest");
	expect("/usr/bin/python3|/usr/local/bin/torchrun|--nproc|4|train.py", "python3 torchrun");
	expect("bash|-e|./run.sh|x", "bash run.sh");
	expect("bash|-o|pipefail|run.sh", "bash run.sh");
	expect("perl|-I|lib|-w|work.pl", "perl work.pl");
	expect("node|--require|hook.js|server.js", "node server.js");
	expect("java|-Xmx4g|-cp|a.jar:b.jar|com.example.Main", "java com.example.Main");
	expect("java|-jar|/opt/app.jar", "java app.jar");
	expect("julia|--project=.|-t|4|sim.jl", "julia sim.jl");
	expect("python3", "python3");
	expect("python3|-", "python3 -");
}

Test(command, what_may_be_a_secret_is_not_shown)
{
	expect("/opt/bin/serve|--token=s3cret|s3cret", "serve");
	expect("python3|-c|key = \"s3cret\"", "python3");
	expect("python3|-uc|key = \"s3cret\"|s3cret", "python3");
	expect("sh|-c|TOKEN=s3cret run", "sh");
	expect("bash|-lc|TOKEN=s3cret run", "bash");
	expect("perl|-we|s3cret", "perl");
	expect("node|--eval|s3cret", "node");
	expect("train.py|--key|s3cret", "train.py");
	expect("pythonista|s3cret", "pythonista");
}

Test(command, any_command_line_gives_a_name_that_can_be_shown)
{
	char name[16], longest[64];

	expect("", "");
	expect("|x", "");
	expect("python||train.py", "python train.py");
	expect("evil\033[31m|x", "evil?[31m");
	expect("worker: 1/4 of job", "worker: 1/4 of job");
	expect("/opt/my app/run it", "run it");
	expect("dir/", "dir/");
	arb_command_name("", 0, name, sizeof(name));
	cr_assert_str_eq(name, "");
	/* A long name is cut at its end, never in the middle of a character. */
	arb_command_name("0123456789abcdefgh", 19, name, sizeof(name));
	cr_assert_str_eq(name, "0123456789abcde");
	arb_command_name("0123456789abcd\xc3\xa4", 17, name, sizeof(name));
	cr_assert_str_eq(name, "0123456789abcd");
	arb_command_name("0123456789abc\xc3\xa4", 16, name, sizeof(name));
	cr_assert_str_eq(name, "0123456789abc\xc3\xa4");
	memcpy(longest,
		"python3\0"
		"0123456789.py",
		22);
	arb_command_name(longest, 22, name, sizeof(name));
	cr_assert_str_eq(name, "python3 0123456");
}
