# The world: the arbiter in virtual time. The product's sources, compiled a second time with the world's headers
# in place of self.h and own.h, and linked with a C library that the world answers for.
WORLD     := $(BUILD)/world
WORLD_OBJ := $(BUILD)/obj-world
WORLD_SRC := $(wildcard test/world/*.c)
WORLD_SHM := $(filter-out shm/self.c shm/api.c shm/keeper.c shm/nvml.c shm/steward.c,$(wildcard shm/*.c))

WORLD_OBJS := $(patsubst %.c,$(WORLD_OBJ)/%.o,$(WORLD_SRC) $(WORLD_SHM))
WORLD_WRAP := malloc calloc realloc free strdup aligned_alloc clock_gettime nanosleep pthread_mutex_init \
	pthread_mutex_lock pthread_mutex_unlock pthread_create pthread_join pthread_detach pthread_self pthread_once \
	pthread_key_create pthread_setspecific pthread_getspecific pthread_atfork atexit sem_init sem_post sem_wait \
	getenv secure_getenv getpid prctl syscall

$(WORLD_OBJ)/%.o: %.c
	@mkdir -p $(@D)
	@echo "  CC    $< (world)"
	$(Q)$(CC) $(ALL_CFLAGS) -Itest/world -include test/world/self.h $(CPPFLAGS) -MMD -MP -c $< -o $@

$(WORLD): $(WORLD_OBJS)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(WORLD_WRAP:%=-Wl,--wrap=%) -l:libinih.a -lpthread

-include $(WORLD_OBJS:.o=.d)

# A minute of seeds; make check-world SEEDS=1000000 for a night.
SEEDS         ?= 1000000
WORLD_MINUTES ?= $(if $(filter command line,$(origin SEEDS)),0,0.7)
CHECK         += check-world

.PHONY: check-world
check-world: $(WORLD) ## the arbiter in virtual time, by seed: a minute of small random worlds (SEEDS=1000000: a night)
	@$(WORLD) --seeds 1..$(SEEDS) --minutes $(WORLD_MINUTES)
