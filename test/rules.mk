# Tests of the segment and its protocols.

# What `make demo` needs.
DEMO_NEEDS = $(BUILD)/demo $(BUILD)/simload $(TOOLS) $(PRELOAD) $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 $(SIM)/gpusim-report
$(BUILD)/demo: $(BUILD)/obj/test/demo/demo.o $(BUILD)/libgpuarb.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) -l:libinih.a -l:libjansson.a -lpthread -lm -ldl

# Enforces the deadline of each part of the check.
TESTS += $(BUILD)/test/deadline
$(BUILD)/test/deadline: $(BUILD)/obj/test/deadline.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^)

.PHONY: check-runner
CHECK += check-runner
check-runner: $(BUILD)/test/deadline ## what runs the parts: one that hangs, fails, leaves processes, is skipped, is interrupted
	@test/runner.sh $(BUILD)

.PHONY: check-mig
CHECK += check-mig
check-mig: $(ALL) ## instances of a GPU (MIG), by their UUID, on the simulated GPU
	@test/preload/mig.sh $(BUILD)

.PHONY: check-tree
CHECK += check-tree
CHECK_PACKAGES += patch python3
check-tree: ## headers compile alone, includes go downwards, no file has grown too long
	@CC="$(CC)" test/check-tree.sh

# Each part alone, with Criterion: tables, and a clock and a futex that the test moves.
UNIT_TESTS := $(patsubst test/unit/%.c,%,$(wildcard test/unit/unit_*.c))
CHECK      += check-unit
TESTS      += $(UNIT_TESTS:%=$(BUILD)/test/%)
CHECK_PACKAGES += libcriterion-dev

$(BUILD)/test/unit_%: $(BUILD)/obj/test/unit/unit_%.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) $(LDLIBS) -l:libinih.a -lpthread -lcriterion

$(BUILD)/test/unit_log: $(BUILD)/obj/preload/process/log.o
$(BUILD)/test/unit_gputime $(BUILD)/test/unit_book $(BUILD)/test/unit_backlog $(BUILD)/test/unit_peers $(BUILD)/test/unit_partner $(BUILD)/test/unit_codec $(BUILD)/test/unit_pauses $(BUILD)/test/unit_others $(BUILD)/test/unit_observer $(BUILD)/test/unit_credit $(BUILD)/test/unit_late $(BUILD)/test/unit_within $(BUILD)/test/unit_durations: $(BOOK_OBJ)
$(BUILD)/test/unit_known: $(patsubst %,$(BUILD)/obj/preload/process/%.o,known threads own)

.PHONY: check-unit
check-unit: $(UNIT_TESTS:%=$(BUILD)/test/%) ## each part of the segment's library by itself
	@for t in $(UNIT_TESTS); do echo "$$t"; $(BUILD)/test/$$t -j2 || exit 1; done

# Random and hostile processes: many at once, killed, stopped, and a segment full of garbage.
STRESS_SECONDS ?= 12
FUZZ_SECONDS   ?= 8
SECONDS        ?= 300

$(BUILD)/test/stress_%: $(BUILD)/obj/test/stress/stress_%.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) -l:libinih.a -lpthread

$(BUILD)/test/stress_random: $(BUILD)/obj/test/stress/workers.o
$(BUILD)/test/stress_fuzz: $(BUILD)/obj/test/stress/garble.o

.PHONY: check-stress-short check-stress
CHECK += check-stress-short
check-stress-short: $(BUILD)/test/stress_random $(BUILD)/test/stress_fuzz $(BUILD)/gpuarb-watchdog ## random and hostile processes, for a few seconds
	$(BUILD)/test/stress_random --seconds $(STRESS_SECONDS)
	T_BUILD=$(BUILD) $(BUILD)/test/stress_fuzz --seconds $(FUZZ_SECONDS)

check-stress: ## the same for longer: make check-stress SECONDS=300
	@$(MAKE) --no-print-directory check-stress-short STRESS_SECONDS=$(SECONDS) FUZZ_SECONDS=$(SECONDS)

# Several processes, with Criterion.
MULTI_TESTS := multi_process multi_files multi_directory multi_locks
CHECK       += check-multi
CHECK_PACKAGES += libcriterion-dev

$(BUILD)/test/multi_%: $(BUILD)/obj/test/multi/multi_%.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) $(LDLIBS) -l:libinih.a -lpthread -lcriterion

.PHONY: check-multi
check-multi: $(MULTI_TESTS:%=$(BUILD)/test/%) $(BUILD)/test/multi_namespaces ## several processes and one segment
	@for t in $(MULTI_TESTS); do $(BUILD)/test/$$t -j2 || exit 1; done
	@$(BUILD)/test/multi_namespaces || test $$? = 77

# Kills a client at every instruction of every operation, by stepping through x86 code.
ifeq ($(shell uname -m),x86_64)
CRASH := $(BUILD)/test/crash_kill
CHECK += check-crash-sample

$(CRASH): $(patsubst %,$(BUILD)/obj/test/crash/%.o,crash_kill crash_ops crash_above crash_admission crash_memory crash_restore crash_after crash_world crash_check stepper) $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -Wl,-z,now -o $@ $^ -l:libinih.a -lpthread -ldl

.PHONY: check-crash check-crash-sample
check-crash-sample: $(CRASH) ## kill, or hold up, a client at evenly spread instructions of every operation
	@$(CRASH) --jobs $$(nproc) || test/skipped.sh $$?
	@$(CRASH) --jobs $$(nproc) --pause || test/skipped.sh $$?

check-crash: $(CRASH) ## the same at every instruction (a quarter of an hour)
	@$(CRASH) --all --jobs $$(nproc) || test/skipped.sh $$?
	@$(CRASH) --all --jobs $$(nproc) --pause || test/skipped.sh $$?
endif

# Threads, and the other tests again under the sanitizers, in build directories of their own. With the sanitizers the
# compiler cannot tell any more how large a number can become.
ASAN := -O1 -g -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer -Wno-format-truncation
TSAN := -O2 -g -fsanitize=thread

$(BUILD)/test/threads_main: $(BUILD)/obj/test/stress/threads_main.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) -l:libinih.a -lpthread

.PHONY: check-threads check-tsan check-asan
CHECK += check-tsan check-asan
DEADLINES += check-asan=900
check-threads: $(BUILD)/test/threads_main
	$(BUILD)/test/threads_main

# What these and check-debug run; it is built on all cores first.
AGAIN := $(MULTI_TESTS) multi_namespaces multi_admission multi_sampler stress_admission stress_wakes stress_fork stress_random threads_main
TESTS += $(AGAIN:%=$(BUILD)/test/%)

check-tsan: ## threads under the thread sanitizer
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/tsan OPT="$(TSAN)" $(BUILD)/tsan/test/threads_main
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/tsan OPT="$(TSAN)" check-threads

check-asan: ## processes, threads, leases and garbage under the address and undefined-behaviour sanitizers
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/asan OPT="$(ASAN)" $(patsubst %,$(BUILD)/asan/test/%,$(UNIT_TESTS) $(AGAIN) stress_fuzz)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/asan OPT="$(ASAN)" STRESS_SECONDS=5 FUZZ_SECONDS=6 ADMISSION_SECONDS=4 \
		check-unit check-multi check-admission check-threads check-stress-short

# The protocols without the code: every interleaving of a few clients, with spin.
.PHONY: check-model
check-model: ## check the models of the protocols with spin
	@test/install-deps.sh spin gcc libc6-dev
	@CC="$(CC)" test/model/models.sh $(BUILD)/model

.PHONY: check-debug
CHECK += check-debug
check-debug: ## a debug build, whose clients check every invariant when they join, roll a window and leave, and that nobody sleeps with a lock
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/debug OPT="-O1 -g" DEBUG=1 $(AGAIN:%=$(BUILD)/debug/test/%)
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/debug OPT="-O1 -g" DEBUG=1 STRESS_SECONDS=4 check-threads check-random check-multi check-admission

.PHONY: check-random
check-random: $(BUILD)/test/stress_random
	$(BUILD)/test/stress_random --seconds $(STRESS_SECONDS)

# The command-line tools as users run them.
TOOL_TESTS := $(patsubst test/tools/%.c,%,$(wildcard test/tools/tools_*.c))
CHECK      += check-tools
TESTS      += $(TOOL_TESTS:%=$(BUILD)/test/%)

$(BUILD)/test/tools_set: $(BUILD)/obj/tools/common/conf_edit.o
$(BUILD)/test/tools_nonclients: $(BUILD)/obj/tools/common/nonclients.o $(BUILD)/obj/tools/common/proc.o
$(BUILD)/test/tools_nonclients: LDLIBS += -l:libjansson.a

$(BUILD)/test/tools_%: $(BUILD)/obj/test/tools/tools_%.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) $(LDLIBS) -l:libinih.a -lpthread -lcriterion

$(BUILD)/obj/test/tools/failing_nvml.o: CFLAGS += -fvisibility=default
$(BUILD)/test/nvml/libnvidia-ml.so.1: $(BUILD)/obj/test/tools/failing_nvml.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $^

.PHONY: check-tools
check-tools: $(BUILD)/test/nvml/libnvidia-ml.so.1 $(BUILD)/test/preload/hang/libnvidia-ml.so.1
check-tools: $(TOOLS) $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 $(TOOL_TESTS:%=$(BUILD)/test/%) ## the command-line tools from outside
	@for t in $(TOOL_TESTS); do T_BUILD=$(BUILD) $(BUILD)/test/$$t -j2 || exit 1; done

# Programs that follow a limits file.
$(BUILD)/test/follow_programs: $(BUILD)/obj/test/preload/follow_programs.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) -l:libinih.a -lpthread

.PHONY: check-follow
CHECK += check-follow
check-follow: $(BUILD)/test/follow_programs $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 ## programs follow their limits file: swapped, garbage, gone
	@$(BUILD)/test/follow_programs $(BUILD)

# Programs that are killed or end by themselves.
$(BUILD)/test/gone_programs: $(BUILD)/obj/test/preload/gone_programs.o $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) -l:libinih.a -lpthread

.PHONY: check-gone
CHECK += check-gone
check-gone: $(BUILD)/test/gone_programs $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 ## programs that are killed or end: nobody is billed for being dead, nothing is held
	@$(BUILD)/test/gone_programs $(BUILD)

# What a hostile neighbour can do to a program under load.
$(BUILD)/test/hostile: $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard test/hostile/hostile*.c)) $(BUILD)/obj/test/harness.o $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter-out %.o,$^) -l:libinih.a -lpthread

$(BUILD)/test/libown-handler.so: test/hostile/own_handler.c
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) -fPIC -shared -o $@ $<

HOSTILE_NEEDS = $(BUILD)/test/hostile $(BUILD)/test/libown-handler.so $(TOOLS) $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 $(SIM)/gpusim-report
.PHONY: check-hostile check-hostile-short check-neighbours
CHECK += check-neighbours
TESTS += $(BUILD)/test/hostile
check-hostile: $(HOSTILE_NEEDS) ## every attack of a neighbour on a program under load: its share, its memory, its life
	@$(BUILD)/test/hostile $(BUILD) || test/skipped.sh $$?

check-hostile-short: $(HOSTILE_NEEDS) ## some of them
	@$(BUILD)/test/hostile $(BUILD) --quick || test/skipped.sh $$?

# Attacks on locks, files, slots, accounts, turns and leases must not be noticed by others.
check-neighbours: $(HOSTILE_NEEDS) ## attacks on locks, files, slots, accounts, turns and leases
	@$(BUILD)/test/hostile $(BUILD) --jobs 2 join look-lock unlink-locks slots-taken truncate-many silent lease-waits || test/skipped.sh $$?

# Two containers and one GPU: plain namespaces, and podman where it is installed.
.PHONY: check-namespaces
CHECK    += check-namespaces
CHECK_PACKAGES += util-linux mount
check-namespaces: $(TOOLS) $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 ## two containers share a GPU: limits, a kill, the viewer on the host
	@test/containers.sh $(BUILD) || test/skipped.sh $$?
	@if command -v podman >/dev/null; then test/containers.sh $(BUILD) podman || test/skipped.sh $$?; fi

# What shells offer, and whether man pages have every option.
.PHONY: check-completion
CHECK    += check-completion
CHECK_PACKAGES += man-db
check-completion: $(BUILD)/arbiter.conf.5 $(TOOLS) $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 ## completion in bash (fish, zsh), and a man page that knows every option
	@test/tools/completion.sh $(BUILD)

# The README's commands, as they are printed there.
.PHONY: check-readme
CHECK    += check-readme
CHECK_PACKAGES += python3
check-readme: $(TOOLS) $(PRELOAD) $(BUILD)/simload $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 ## run the README's commands on the simulated GPU
	@mkdir -p $(BUILD)/check
	@test/readme.sh $(BUILD)

# The demo on a terminal.
.PHONY: check-demo
CHECK    += check-demo
CHECK_PACKAGES += tmux
check-demo: $(DEMO_NEEDS) ## the demo on a terminal: the live screen, the table, nothing left behind
	@test/demo/demo.sh $(BUILD) || test/skipped.sh $$?

# For each deliberate mistake, in a copy of the tree: whether its test finds it. This takes long; ONLY=pattern chooses
# some.
.PHONY: check-mistakes
check-mistakes: $(ALL) ## deliberate mistakes in a copy of the tree: does the test that is there for each find it?
	@python3 test/mistakes.py $(BUILD)/mistakes '$(MAKE) --no-print-directory CC="$(CC)" BUILD=build' '$(ONLY)'
