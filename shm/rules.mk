# libgpuarb: the segments and the protocols over them.
PACKAGES += libatomic-ops-dev libinih-dev

SHM_SRC := $(wildcard shm/*.c)
SHM_OBJ := $(SHM_SRC:%.c=$(BUILD)/obj/%.o)

ALL += $(BUILD)/libgpuarb.a $(BUILD)/libgpuarb.so

$(BUILD)/libgpuarb.a: $(SHM_OBJ)
	@echo "  AR    $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $^

$(BUILD)/libgpuarb.so: $(SHM_OBJ) shm/libgpuarb.map
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgpuarb.so.1 -Wl,-z,defs -Wl,--exclude-libs,ALL \
		-Wl,--version-script=shm/libgpuarb.map -o $@ $(SHM_OBJ) -l:libinih.a
	$(Q)ln -sf libgpuarb.so $(BUILD)/libgpuarb.so.1
