# libgpuarb: the segments and the protocols over them.
PACKAGES += libatomic-ops-dev libinih-dev
HEADERS  += atomic_ops.h ini.h

SHM_SRC := $(wildcard shm/*/*.c)
SHM_OBJ := $(SHM_SRC:%.c=$(BUILD)/obj/%.o)
# With threads and NVML: for programs that call the library, not for the preload.
SHM_CALLED := $(patsubst %,$(BUILD)/obj/shm/admission/%.o,api nvml_load sampler_nvml sampler_thread sampler_watchdog)

# A thread's own word is one load away, also in the handler of a signal.
$(SHM_OBJ): CFLAGS += -ftls-model=initial-exec

ALL += $(BUILD)/libgpuarb.a $(BUILD)/libgpuarb.so

$(BUILD)/libgpuarb.a: $(SHM_OBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/libgpuarb.so: $(SHM_OBJ) shm/libgpuarb.map
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgpuarb.so.1 -Wl,-z,defs -Wl,-z,nodelete -Wl,--exclude-libs,ALL \
		-Wl,--version-script=shm/libgpuarb.map -o $@ $(SHM_OBJ) -l:libinih.a
	$(Q)ln -sf libgpuarb.so $(BUILD)/libgpuarb.so.1
