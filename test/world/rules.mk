# The world: the arbiter in virtual time. The product's sources, compiled a second time with the world's headers
# in place of self.h, own.h and compat.h, and linked with a C library that the world answers for.
WORLD     := $(BUILD)/world
WORLD_OBJ := $(BUILD)/obj-world

WORLD_SRC     := $(wildcard test/world/*.c)
WORLD_SHM     := $(filter-out shm/base/self.c $(SHM_CALLED:$(BUILD)/obj/%.o=%.c),$(wildcard shm/*/*.c))
WORLD_PRELOAD := $(filter-out $(patsubst %,preload/%.c,process/own hooks/elf hooks/symbols hooks/compat),$(wildcard preload/*/*.c))
WORLD_SIM     := $(patsubst %,test/sim/driver/%.c,$(SIM_CUDA)) $(patsubst %,test/sim/device/%.c,$(filter-out shm,$(SIM_MODEL)))
WORLD_LOAD    := test/load/simload_latency.c test/load/simload_lease.c test/load/simload_options.c test/load/simload_work.c

world_objects = $(patsubst %.c,$(WORLD_OBJ)/%.o,$1)
WORLD_OBJS := $(call world_objects,$(WORLD_SRC) $(WORLD_SHM) $(WORLD_PRELOAD) $(WORLD_LOAD))
WORLD_WRAP := malloc calloc realloc free strdup aligned_alloc mmap clock_gettime nanosleep sched_yield pthread_mutex_init \
	pthread_mutex_lock pthread_mutex_unlock pthread_create pthread_join pthread_detach pthread_self pthread_once \
	pthread_key_create pthread_setspecific pthread_getspecific pthread_atfork atexit sem_init sem_post sem_wait \
	getenv secure_getenv getpid prctl syscall stat fstat dlopen dlsym

# Threads and processes are simulated. Thread-local variables, and the static variables of the simulated driver and of a
# few files of the product, are put into sections of their own: their values are brought there before a thread runs.
WORLD_FLAGS := -fPIE -include test/world/world_self.h -include test/world/world_compat.h \
	-D__thread='__attribute__((section("world_tls")))' -DARB_WORLD
# All leases in the world belong to programs with the preload, so the watch over others (shm/admission/shared.c) is not used.
# Arrays with an entry for each GPU have sections of their own, so that only the entries of existing GPUs are brought.
WORLD_STATE = objdump -h $@ | awk '$$2 ~ /^\.(bss|data)(\.|$$)/ && $$2 !~ /^\.data\.rel\.ro|^\.bss\.watch$$/ && $$3 !~ /^0+$$/ \
	{ print "--rename-section", $$2 "=" ($$2 ~ /^\.bss\.(known|primary|high|standard|current|managed)$$/ ? "world_by_" substr($$2, 6) : "world_state") \
		",alloc,load,contents,data" }' | xargs -r sh -c 'objcopy "$$@" $@' sh
WORLD_SWAPPED := $(call world_objects,$(filter-out test/sim/driver/errors.c,$(WORLD_SIM)) $(wildcard preload/memory/memory*.c) shm/admission/shared.c)

$(call world_objects,$(WORLD_PRELOAD)): WORLD_FLAGS += -include test/world/world_own.h -Wno-address -foptimize-sibling-calls
$(call world_objects,$(WORLD_SIM)): WORLD_FLAGS += -fvisibility=default
$(call world_objects,shm/admission/shared.c preload/memory/memory_context.c preload/memory/memory_managed.c test/sim/driver/graphmem.c test/sim/driver/pool.c): \
	WORLD_FLAGS += -fdata-sections

$(WORLD_OBJ)/%.o: %.c $(RULES) Makefile
	@mkdir -p $(@D)
	@echo "  CC    $< (world)"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) $(WORLD_FLAGS) -MMD -MP -c $< -o $@
	$(Q)$(if $(filter $@,$(WORLD_SWAPPED)),$(WORLD_STATE))

# The driver's functions get other names, because the preload defines functions of the same names.
$(WORLD_OBJ)/sim.o: $(call world_objects,$(WORLD_SIM))
	@echo "  LD    $@"
	$(Q)$(LD) -r -o $@.all $^
	$(Q)nm -g --defined-only $@.all | awk '$$3 ~ /^cu/ { print $$3, "sim_" $$3 }' >$@.names
	$(Q)objcopy --redefine-syms=$@.names $@.all $@

$(WORLD): $(WORLD_OBJS) $(WORLD_OBJ)/sim.o
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -rdynamic -o $@ $^ $(WORLD_WRAP:%=-Wl,--wrap=%) -l:libinih.a -l:libjansson.a -lpthread -ldl -lm

-include $(shell find $(WORLD_OBJ) -name '*.d' 2>/dev/null)

# The same seeds on every machine, for a minute at most, and every limit case. For a night: make check-world SEEDS=1000000.
SEEDS         ?= 600
WORLD_MINUTES ?= $(if $(filter command line,$(origin SEEDS)),0,1)
WORLD_SECONDS ?= 60
CHECK         += check-world
CHECK_PACKAGES += binutils perl-base

.PHONY: check-world check-day
check-world: $(WORLD) ## the arbiter in virtual time, by seed: random worlds and every limit case (SEEDS=1000000: a night)
	@SEEDS=$(SEEDS) MINUTES=$(WORLD_MINUTES) SECONDS_EACH=$(WORLD_SECONDS) test/world/worlds.sh $(WORLD)

check-day: $(WORLD) ## a simulated day of eight tenants that come, go, are killed and get other limits
	@$(WORLD) --day

.PHONY: check-world-compilers
check-world-compilers: ## the same seeds give the same hashes with gcc and clang, -O0 and -O2
	@MAKE="$(MAKE)" test/world/compilers.sh $(BUILD)/compilers 200

.PHONY: check-world-thresholds
check-world-thresholds: $(WORLD) ## what gets worse with each threshold of the tracking core four times larger and smaller (half an hour)
	@test/world/thresholds.sh $(WORLD)

.PHONY: check-world-shrink
check-world-shrink: $(WORLD) ## --shrink finds a shorter run of a world with a planted mistake
	@test/world/shrink.sh $(BUILD)/shrink death-billed-to-now $(MAKE) --no-print-directory CC="'$(CC)'" BUILD=build build/world

# Does the world find mistakes? Each is planted in a copy of the tree, which takes long. ONLY=pattern: some of them.
.PHONY: check-world-mutations
check-world-mutations: ## deliberate mistakes in copies of the product: how many seeds the world needs to find each
	@SEEDS=$(if $(filter command line,$(origin SEEDS)),$(SEEDS),10000) test/world/mutations.sh $(BUILD)/mutations \
		$(MAKE) --no-print-directory CC="'$(CC)'" BUILD=build build/world

# The published accuracy of limits is measured here. bench_limits runs the same cases in real time.
BENCH += bench/world.sh
bench: $(WORLD)
