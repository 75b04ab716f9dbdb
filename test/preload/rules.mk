# Tests of the preload, on a driver that notes its calls (build/test/record) and on the simulated driver.
PRELOAD_TEST := $(BUILD)/test/preload
RECORD       := $(PRELOAD_TEST)/record
CHECK        += check-preload
CHECK_PACKAGES += perl-base strace musl-tools

$(PRELOAD_TEST)/preload_%.inc: test/preload/preload_gen.pl include/cuda_abi/calls.def include/cuda_abi/newer.def
	@mkdir -p $(@D)
	@echo "  GEN   $@"
	$(Q)perl test/preload/preload_gen.pl $* include/cuda_abi/calls.def include/cuda_abi/newer.def >$@

$(RECORD)/libcuda.so.1: test/preload/preload_record.c test/preload/preload_record.h $(PRELOAD_TEST)/preload_record.inc test/preload/preload_record.map $(SIM_OBJ)/driver/procaddr.o $(BUILD)/obj/test/preload/preload_interop.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -I$(PRELOAD_TEST) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic-functions \
		-Wl,--version-script=test/preload/preload_record.map -o $@ $(filter %.c %.o,$^)

# The part of the preload that hooks calls, with an acting layer that tells which wrapper was called.
PRELOAD_SEES := $(patsubst %,$(BUILD)/obj/preload/hooks/%.o,elf hooks nvml_hooks special symbols wrappers)
TRACING := $(PRELOAD_TEST)/libtracing.so
$(TRACING): $(PRELOAD_SEES) $(BUILD)/obj/test/preload/preload_trace.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs -o $@ $^

$(BUILD)/obj/test/preload/preload_trace.o: CFLAGS += -ftls-model=initial-exec

$(PRELOAD_TEST)/coverage $(PRELOAD_TEST)/coverage-linked: test/preload/preload_coverage.c test/preload/preload_record.h $(wildcard preload/*/*.h preload/*/*.def) $(PRELOAD_TEST)/preload_calls.inc $(RECORD)/libcuda.so.1
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -I$(PRELOAD_TEST) $(LDFLAGS) $(if $(filter %-linked,$@),-DLINKED) -o $@ $< \
		$(if $(filter %-linked,$@),-L$(RECORD) -l:libcuda.so.1) -ldl

# Libraries that reach the driver in odd ways, and the program that tries them.
ODD_LIBS := linked own constructor marker1 marker2
ODD_LIB   = $(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(LDFLAGS) -shared -o $@ $<

$(PRELOAD_TEST)/lib%.so: test/preload/preload_lib.c $(RECORD)/libcuda.so.1
	@echo "  LINK  $@"
	@mkdir -p $(@D)/hidden $(@D)/other
	$(Q)$(ODD_LIB) $(LIB_$*) -ldl
LIB_linked      := -DLIB_LINKED -L$(RECORD) -l:libcuda.so.1
LIB_own         := -DLIB_OWN
LIB_constructor := -DLIB_CONSTRUCTOR
LIB_marker1     := -DLIB_MARKER=1 -Wl,-rpath,$(abspath $(PRELOAD_TEST))/hidden
LIB_marker2     := -DLIB_MARKER=2

$(PRELOAD_TEST)/ways: test/preload/preload_ways.c $(wildcard preload/*/*.h preload/*/*.def) $(ODD_LIBS:%=$(PRELOAD_TEST)/lib%.so)
	@echo "  LINK  $@"
	$(Q)cp $(RECORD)/libcuda.so.1 $(PRELOAD_TEST)/other/
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(LDFLAGS) -shared -DLIB_MARKER=3 -o $(PRELOAD_TEST)/hidden/libhidden.so test/preload/preload_lib.c -ldl
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(LDFLAGS) -o $@ $< -Wl,--no-as-needed -L$(PRELOAD_TEST) -lmarker1 -lmarker2 \
		-Wl,-rpath,$(abspath $(PRELOAD_TEST)) -lpthread -ldl

# A driver that writes down each call and forwards it, to compare programs with and without the preload. The one in
# reenters/ has functions that call each other by their exported names, the one in less/ lacks some.
$(PRELOAD_TEST)/forward/libcuda.so.1: FORWARD_OWN := -Wl,-Bsymbolic-functions
$(PRELOAD_TEST)/reenters/libcuda.so.1: FORWARD_OWN := -DREENTERS
$(PRELOAD_TEST)/less/libcuda.so.1: FORWARD_OWN := -Wl,-Bsymbolic-functions -Wl,--version-script=test/preload/preload_less.map
$(patsubst %,$(PRELOAD_TEST)/%/libcuda.so.1,forward reenters less): test/preload/preload_forward.c $(PRELOAD_TEST)/preload_forward.inc $(BUILD)/obj/test/preload/preload_interop.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -I$(PRELOAD_TEST) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 $(FORWARD_OWN) \
		-o $@ $(filter %.c %.o,$^) -ldl

# If all of the segment's library is linked into it, the preload must need no more libraries.
$(PRELOAD_TEST)/libwhole.so: $(PRELOAD_OBJ) $(filter-out $(SHM_CALLED),$(SHM_OBJ))
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs -Wl,--version-script=preload/preload.map -o $@ $^ -l:libinih.a

# RUN starts a program for another architecture, SET names a variable for that program.
RUN ?= env
SET ?=

# The preloads that are tried: the real one, and one that writes down what it sees.
WAYS ?= $(TRACING) $(PRELOAD)

.PHONY: check-preload check-ways check-aarch64
check-ways: $(if $(SET),,$(SIM)/libnvidia-ml.so.1) $(WAYS) $(PRELOAD_TEST)/coverage $(PRELOAD_TEST)/coverage-linked $(PRELOAD_TEST)/ways
	@for t in coverage coverage-linked ways; do for p in $(WAYS); do \
		$(RUN) $(SET) GPUARB_DISABLE=1 $(SET) LD_LIBRARY_PATH=$(RECORD) $(SET) LD_PRELOAD=$$p $(PRELOAD_TEST)/$$t || exit 1; done; done

check-preload: $(ALL) check-ways $(PRELOAD_TEST)/libwhole.so $(PRELOAD_TEST)/forward/libcuda.so.1 $(patsubst %,$(SIM)/test_%,memory graph errors module ipc procaddr) ## every entry point by every way, and nothing felt
	@CC="$(CC)" test/preload/preload_headers.sh $(PRELOAD_TEST)/headers
	@test/preload/preload_loads.sh $(PRELOAD_TEST)/libwhole.so symbols
	@test/preload/preload_loads.sh $(PRELOAD)
	@GPUARB_DISABLE=1 test/preload/preload_differential.sh $(BUILD) $(PRELOAD)
	@test/preload/preload_differential.sh $(BUILD) $(PRELOAD) acts

# The whole preload for another architecture: libraries from Debian's packages for it, programs in emulation.
AARCH64_USR = $(abspath $(BUILD)/aarch64)/packages/usr
AARCH64_CC  = aarch64-linux-gnu-gcc -I$(AARCH64_USR)/include -I$(AARCH64_USR)/include/aarch64-linux-gnu -L$(AARCH64_USR)/lib/aarch64-linux-gnu
AARCH64_RUN = qemu-aarch64-static -L /usr/aarch64-linux-gnu

check-aarch64: $(ALL) ## the preload on another machine: every entry point by every way, and limits, with a cross compiler and qemu
	@test/install-deps.sh gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
	@test/foreign-packages.sh arm64 $(BUILD)/aarch64/packages libinih-dev libatomic-ops-dev liburcu-dev
	@$(MAKE) --no-print-directory BUILD=$(BUILD)/aarch64 CC="$(AARCH64_CC)" HEADERS="atomic_ops.h ini.h urcu/static/urcu-bp.h" RUN="$(AARCH64_RUN)" SET=-E check-ways foreign-memory
	@test/preload/preload_loads.sh $(BUILD)/aarch64/libgpuarb-preload.so symbols
	@test/preload/preload_foreign.sh $(BUILD) $(BUILD)/aarch64 $(AARCH64_RUN)

.PHONY: check-userlands
check-userlands: $(ALL) ## the preload in Debian 11 and 13 (glibc 2.31 and 2.41): needs root and a network, makes roots below build/
	@test/install-deps.sh debootstrap
	@test/preload/preload_userlands.sh $(BUILD) $(BUILD)/userlands

# Memory against a quota: gpuarb's books and the simulated GPU's.
MEMORY_TEST := $(PRELOAD_TEST)/memory
CHECK       += check-preload-memory

$(MEMORY_TEST): $(patsubst %,$(BUILD)/obj/test/preload/%.o,preload_memory preload_memory_query preload_memory_more preload_memory_graph preload_memory_ordered preload_memory_wait preload_memory_context preload_memory_promise preload_memory_turns preload_memory_race preload_memory_says preload_memory_frozen) $(BUILD)/obj/test/harness.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o) $(BUILD)/libgpuarb.a | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -l:libinih.a -lpthread -ldl -lm

# What a program sees that uses nothing but NVML, without libcuda.
NVML_ONLY := $(PRELOAD_TEST)/nvml $(PRELOAD_TEST)/nvml-linked
$(NVML_ONLY): test/preload/preload_nvml.c test/harness.h include/nvml_abi.h preload/hooks/nvml_hooks.h preload/hooks/nvml.def $(BUILD)/obj/test/harness.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o) $(BUILD)/libgpuarb.a | $(SIM)/libnvidia-ml.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(LDFLAGS) $(if $(filter %-linked,$@),-DLINKED) -o $@ $(filter %.c %.o %.a,$^) \
		$(if $(filter %-linked,$@),-L$(SIM) -l:libnvidia-ml.so.1) -l:libinih.a -lpthread -ldl -lm

# An NVML with odd figures, or one that hangs.
ODD_NVML := $(PRELOAD_TEST)/odd/libnvidia-ml.so.1
$(ODD_NVML): test/preload/preload_nvml_odd.c
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(LDFLAGS) -shared -fPIC -Wl,-soname,libnvidia-ml.so.1 -o $@ $<

.PHONY: check-preload-memory
check-preload-memory: $(ALL) $(MEMORY_TEST) $(NVML_ONLY) $(ODD_NVML) ## device memory of every kind against a quota, with races and kills
	@for t in $(NVML_ONLY); do LD_LIBRARY_PATH=$(SIM) LD_PRELOAD=$(PRELOAD) $$t || exit 1; done
	@LD_LIBRARY_PATH=$(SIM) LD_PRELOAD=$(PRELOAD) $(MEMORY_TEST)
	@LD_LIBRARY_PATH=$(dir $(ODD_NVML)):$(SIM) LD_PRELOAD=$(PRELOAD) $(MEMORY_TEST) nvml

# The tests of memory in emulation.
.PHONY: foreign-memory
foreign-memory: $(PRELOAD) $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 $(BUILD)/simload $(MEMORY_TEST)
	@$(RUN) $(SET) LD_LIBRARY_PATH=$(SIM) $(SET) LD_PRELOAD=$(PRELOAD) $(MEMORY_TEST)

# The preload as a guest in programs that close descriptors, fork, destroy contexts, or shut themselves in.
HOST_TEST := $(PRELOAD_TEST)/host
CHECK     += check-preload-host

$(HOST_TEST): $(patsubst %,$(BUILD)/obj/test/preload/%.o,preload_host preload_host_process preload_host_driver preload_host_sandbox preload_host_gate preload_host_callback preload_host_queue preload_host_newer preload_host_peers preload_host_slow) $(BUILD)/obj/test/harness.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o) $(BUILD)/libgpuarb.a | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -l:libinih.a -lpthread -ldl -lm

$(PRELOAD_TEST)/secure: $(BUILD)/obj/test/preload/preload_secure.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -ldl

.PHONY: check-preload-host
check-preload-host: $(ALL) $(HOST_TEST) $(PRELOAD_TEST)/secure $(patsubst %,$(PRELOAD_TEST)/%/libcuda.so.1,forward reenters less) ## what a program does with descriptors, children, contexts and rights goes on as before
	@LD_LIBRARY_PATH=$(SIM) LD_PRELOAD=$(PRELOAD) $(HOST_TEST)
	@: >$(PRELOAD_TEST)/forward/log
	@for how in works fails never; do \
		FORWARD_DRIVER=$(SIM)/libcuda.so.1 FORWARD_LOG=$(PRELOAD_TEST)/forward/log FORWARD_HOST_FUNC=$$how \
		LD_LIBRARY_PATH=$(PRELOAD_TEST)/forward:$(SIM) LD_PRELOAD=$(PRELOAD) $(HOST_TEST) callback: || exit; done
	@for case in "callback: is told" "waits by copying"; do \
		FORWARD_DRIVER=$(SIM)/libcuda.so.1 FORWARD_LOG=$(PRELOAD_TEST)/forward/log \
		LD_LIBRARY_PATH=$(PRELOAD_TEST)/reenters:$(SIM) LD_PRELOAD=$(PRELOAD) $(HOST_TEST) "$$case" || exit; done
	@FORWARD_DRIVER=$(SIM)/libcuda.so.1 FORWARD_LOG=$(PRELOAD_TEST)/forward/log \
		LD_LIBRARY_PATH=$(PRELOAD_TEST)/less:$(SIM) LD_PRELOAD=$(PRELOAD) $(HOST_TEST) "has one GPU"
	@for case in newer: slow:; do \
		FORWARD_DRIVER=$(SIM)/libcuda.so.1 FORWARD_LOG=$(PRELOAD_TEST)/forward/log \
		LD_LIBRARY_PATH=$(PRELOAD_TEST)/forward:$(SIM) LD_PRELOAD=$(PRELOAD) $(HOST_TEST) $$case || exit; done
	@test/preload/preload_secure.sh $(BUILD)

# Compute limits act on every kind of load and hurt none. bench_limits measures how exact they are.
CHECK += check-preload-limits

.PHONY: check-preload-limits
check-preload-limits: $(ALL) ## limits on unmodified programs, their end, their death, their graphs, no segment at all
	@test/preload/preload_limits.sh $(BUILD)

# All of it at once, at random.
STRESS_GATE         := $(PRELOAD_TEST)/stress
STRESS_GATE_SECONDS ?= 12
CHECK               += check-preload-stress

$(STRESS_GATE): $(patsubst %,$(BUILD)/obj/test/preload/%.o,preload_stress preload_stress_program) $(BUILD)/obj/test/harness.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o) $(BUILD)/libgpuarb.a | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -l:libinih.a -lpthread -ldl -lm

.PHONY: check-preload-stress
check-preload-stress: $(ALL) $(STRESS_GATE) ## random programs under limits that change, stopped and killed (STRESS_GATE_SECONDS=12)
	@LD_LIBRARY_PATH=$(SIM) LD_PRELOAD=$(PRELOAD) $(STRESS_GATE) --seconds $(STRESS_GATE_SECONDS)
