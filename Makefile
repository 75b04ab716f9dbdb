# gpuarb: everything is built into build/. Each folder adds its part in its own rules.mk:
#   ALL     files that `make` builds          CHECK    targets that `make check` runs
#   BENCH   files that `make bench` runs      HEADERS  of libraries, looked for before anything is compiled
#   PACKAGES Debian packages that building, the demo and the benchmarks need; CHECK_PACKAGES: what the tests need besides
#   TESTS   programs of tests, built on all cores before `make check` runs them
#   BESIDE  those of CHECK that may run beside one another: what they judge does not depend on what else runs
#   DEADLINES  check-x=900: seconds that a part of `make check` may take, if DEADLINE is too short for it
# `make help` lists the targets.

BUILD   ?= build
CC      ?= cc
OPT     ?= -O2 -g
WARN    := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wundef
ifdef WERROR
WARN    += -Werror
endif
CPPFLAGS += -Iinclude -I. -D_GNU_SOURCE
ifdef DEBUG
CPPFLAGS += -DARB_DEBUG
endif
ALL_CFLAGS = -std=gnu11 $(OPT) $(WARN) -fno-strict-aliasing -fvisibility=hidden -fPIC $(CFLAGS)

# `make V=1` shows the commands.
Q := $(if $(V),,@)

ALL      :=
CHECK    :=
BENCH    :=
TESTS    :=
DEADLINES :=
# Longest first, and what computes beside what sleeps. Real programs under limits run alone.
BESIDE := check-asan check-runner check-world check-crash-sample check-unit check-debug check-tsan check-upgrade \
	check-stress-short check-top check-mig check-first check-install check-tree check-multi check-tools \
	check-completion check-lint check-runtime check-kubernetes check-rights check-systemd check-python check-traces
HEADERS  :=
PACKAGES := gcc libc6-dev make
CHECK_PACKAGES :=

.DEFAULT_GOAL := all
.PHONY: all check demo bench deps deps-check clean help

RULES := $(wildcard shm/rules.mk preload/rules.mk tools/rules.mk tools/deploy/rules.mk test/sim/rules.mk test/world/rules.mk test/rules.mk test/tools/top.mk test/preload/rules.mk test/tools/admission.mk test/gpu/rules.mk test/fuzz/rules.mk test/traces/rules.mk test/lint.mk test/coverage.mk tools/examples/rules.mk bench/rules.mk)
include $(RULES)

all: $(ALL) ## build everything into build/

deps: ## install the Debian packages that building and the demo need
	@test/install-deps.sh $(sort $(PACKAGES))

deps-check: ## install the Debian packages that the tests need, too
	@test/install-deps.sh $(sort $(PACKAGES) $(CHECK_PACKAGES))

# A test begins with an environment of its own, whatever that of its caller says about gpuarb and the GPU. (Only tests:
# packages are built below fakeroot, which is a preload.)
ifneq ($(filter check%,$(MAKECMDGOALS)),)
$(foreach v,$(filter GPUARB_% GPUSIM_% FORWARD_% CUDA_% NVIDIA_% SLURM_% LD_PRELOAD,$(.VARIABLES)),$(eval unexport $(v)))
endif

# What is built is built on all cores, unless our caller has said how many.
JOBS = $(if $(findstring -j,$(MAKEFLAGS)),,-j$(shell nproc))

# Seconds for each part of the check, and more for those that need it: check-asan=900.
DEADLINE  ?= 300
check: ## install what is missing, build, run the tests (DEADLINE=300: seconds for each part)
	@$(MAKE) --no-print-directory deps-check
	@$(MAKE) --no-print-directory $(JOBS) all $(TESTS)
	+@MAKE="$(MAKE)" DEADLINE="$(DEADLINE)" DEADLINES="$(DEADLINES)" BESIDE="$(BESIDE)" test/run-checks.sh $(BUILD) $(CHECK)

# A real one instead of the simulated GPU: make demo GPU=0.
demo: ## install what is missing, build, and show three programs sharing a GPU (GPU=0: a real one)
	@$(MAKE) --no-print-directory deps
	+@test/progress.sh "Building..." $(MAKE) --no-print-directory -j$(shell nproc) $(DEMO_NEEDS)
	@$(BUILD)/demo $(BUILD) $(GPU)

bench: ## run every benchmark and print a table
	@$(MAKE) --no-print-directory deps
	@$(MAKE) --no-print-directory all $(BUILD)/world
	@BUILD="$(BUILD)" bench/run-all.sh $(BENCH)

clean: ## remove build/
	rm -rf $(BUILD)

help: ## show the targets
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile $(RULES) | sed -E 's/:.*## /\t/' | sort | expand -t 20

# Looked for once.
$(BUILD)/have-headers: test/have-headers.sh
	@CC="$(CC)" CPPFLAGS="$(CPPFLAGS)" test/have-headers.sh $(sort $(HEADERS))
	@mkdir -p $(@D) && touch $@

# One rule compiles every object; the folder structure is kept below build/obj.
$(BUILD)/obj/%.o: %.c $(RULES) Makefile | $(BUILD)/have-headers
	@mkdir -p $(@D)
	@echo "  CC    $<"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -MMD -MP -c $< -o $@

-include $(shell find $(BUILD)/obj -name '*.d' 2>/dev/null)
