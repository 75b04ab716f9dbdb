# The command-line tools: one source each, cli.c for all.
TOOLS := $(patsubst tools/%.c,$(BUILD)/%,$(wildcard tools/gpuarb-*.c))
ALL   += $(TOOLS)

$(TOOLS:$(BUILD)/%=$(BUILD)/obj/tools/%.o): CPPFLAGS += -Ishm
# argp finds the version by its name.
$(TOOLS:$(BUILD)/%=$(BUILD)/obj/tools/%.o): CFLAGS += -fvisibility=default
$(BUILD)/gpuarb-set: $(BUILD)/obj/tools/conf_edit.o
$(BUILD)/gpuarb-cdi $(BUILD)/gpuarb-node: $(BUILD)/obj/tools/nvml.o
$(BUILD)/gpuarb-cdi: LDLIBS += -l:libjansson.a
PACKAGES += libjansson-dev

$(TOOLS): $(BUILD)/%: $(BUILD)/obj/tools/%.o $(BUILD)/obj/tools/cli.o $(BUILD)/libgpuarb.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS) -l:libinih.a -lpthread
