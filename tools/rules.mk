# The command-line tools: one source each, cli.c for all.
TOOLS := $(patsubst tools/%.c,$(BUILD)/%,$(wildcard tools/gpuarb-*.c))
ALL   += $(TOOLS)

$(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard tools/*.c)): CPPFLAGS += -Ishm

# arbiter.conf(5): the words are those of the example.
ALL += $(BUILD)/arbiter.conf.5
$(BUILD)/arbiter.conf.5: arbiter.conf.example tools/arbiter.conf.5.in tools/conf-page.sh
	@mkdir -p $(@D)
	@echo "  GEN   $@"
	$(Q)tools/conf-page.sh arbiter.conf.example tools/arbiter.conf.5.in >$@.new && mv $@.new $@

# gpuarb-top: the parts that need no terminal are tested by themselves.
TOP_PURE := $(patsubst %,$(BUILD)/obj/tools/top_%.o,text grid model ui words past since explain table pages draw json prom)
$(BUILD)/gpuarb-top: $(TOP_PURE) $(patsubst %,$(BUILD)/obj/tools/%.o,top_source top_names top_screen proc nonclients)
$(BUILD)/gpuarb-top: LDLIBS += -l:libjansson.a -lncursesw -ltinfo
PACKAGES += libncurses-dev libjansson-dev
HEADERS  += ncurses.h jansson.h

# All are told which GPU.
$(TOOLS): $(patsubst %,$(BUILD)/obj/tools/%.o,cli_gpu nvml nvml_child)
$(BUILD)/gpuarb-node: $(BUILD)/obj/tools/node_rights.o $(BUILD)/obj/tools/node_check.o
# Those that count what programs have which are no clients.
$(BUILD)/gpuarb-run $(BUILD)/gpuarb-watchdog: $(patsubst %,$(BUILD)/obj/tools/%.o,nonclients proc)
$(BUILD)/gpuarb-run: $(BUILD)/obj/tools/run_place.o $(BUILD)/obj/tools/gpus.o
$(BUILD)/gpuarb-cdi: LDLIBS += -l:libjansson.a
$(BUILD)/gpuarb-run: $(patsubst %,$(BUILD)/obj/tools/%.o,run_check run_class run_container run_directory)
$(BUILD)/gpuarb-set: $(patsubst %,$(BUILD)/obj/tools/%.o,conf_edit conf_save set_class set_show set_where)

$(TOOLS): $(BUILD)/%: $(BUILD)/obj/tools/%.o $(BUILD)/obj/tools/cli.o $(BUILD)/libgpuarb.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) -l:libinih.a -lpthread -ldl
