# The command-line tools: one source each, and cli.c for all.
TOOLS := $(patsubst tools/%.c,$(BUILD)/%,$(wildcard tools/gpuarb-*.c))
ALL   += $(TOOLS)

# arbiter.conf(5) is made of the words of the example.
ALL += $(BUILD)/arbiter.conf.5
$(BUILD)/arbiter.conf.5: arbiter.conf.example tools/arbiter.conf.5.in tools/conf-page.sh
	@mkdir -p $(@D)
	@echo "  GEN   $@"
	$(Q)tools/conf-page.sh arbiter.conf.example tools/arbiter.conf.5.in >$@.new && mv $@.new $@

# gpuarb-top: its parts that need no terminal are tested alone.
TOP_PURE := $(patsubst %,$(BUILD)/obj/tools/top/top_%.o,text grid model ui words past since explain explain_quota table pages draw json prom)
$(BUILD)/gpuarb-top: $(TOP_PURE) $(patsubst %,$(BUILD)/obj/tools/%.o,top/top_source top/top_names top/top_screen common/proc common/holders common/nonclients)
$(BUILD)/gpuarb-top: LDLIBS += -l:libjansson.a -lncursesw -ltinfo
PACKAGES += libncurses-dev libjansson-dev
HEADERS  += ncurses.h jansson.h

# All tools that are told a GPU; not gpuarb-runtime and gpuarb-replay.
$(filter-out $(BUILD)/gpuarb-runtime $(BUILD)/gpuarb-replay,$(TOOLS)): $(patsubst %,$(BUILD)/obj/tools/common/%.o,cli_gpu nvml nvml_child)
$(BUILD)/gpuarb-node: $(BUILD)/obj/tools/node_rights.o $(BUILD)/obj/tools/node_check.o
# The tools that count what programs use that are no clients.
$(BUILD)/gpuarb-run $(BUILD)/gpuarb-watchdog: $(patsubst %,$(BUILD)/obj/tools/common/%.o,nonclients proc)
$(BUILD)/gpuarb-run: $(BUILD)/obj/tools/run_place.o $(BUILD)/obj/tools/common/gpus.o
$(BUILD)/gpuarb-cdi: LDLIBS += -l:libjansson.a
# gpuarb-replay runs the tracking core itself.
$(BUILD)/gpuarb-replay: $(BOOK_OBJ)
$(BUILD)/gpuarb-replay: LDLIBS += -l:libjansson.a
RUNTIME_PARTS := args conf wish pod grant room node bundle json gpus
$(BUILD)/gpuarb-runtime: $(patsubst %,$(BUILD)/obj/tools/runtime/runtime_%.o,$(RUNTIME_PARTS))
$(BUILD)/gpuarb-runtime: LDLIBS += -l:libjansson.a
# Nodes of a cluster have C libraries of all ages: gpuarb-runtime needs none, if a static one can be linked here.
$(BUILD)/gpuarb-runtime: LDFLAGS += $(if $(findstring -fsanitize,$(OPT) $(CFLAGS)),,$(STATIC))
STATIC = $(shell echo 'int main(void) { return 0; }' | $(CC) -static-pie -x c - -o /dev/null 2>/dev/null && echo -static-pie)
$(BUILD)/gpuarb-run: $(patsubst %,$(BUILD)/obj/tools/%.o,run_check run_class run_container run_directory run_record)
$(BUILD)/gpuarb-set: $(patsubst %,$(BUILD)/obj/tools/%.o,common/conf_edit common/conf_save set_class set_show set_where)

$(TOOLS): $(BUILD)/%: $(BUILD)/obj/tools/%.o $(BUILD)/obj/tools/common/cli.o $(BUILD)/libgpuarb.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) $(LDLIBS) -l:libinih.a -lpthread -ldl
