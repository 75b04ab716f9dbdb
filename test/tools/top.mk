# gpuarb-top: its numbers, its screens without a terminal, and the program on a real one.
TOP_TESTS := top_numbers top_screens top_history top_out top_looks top_tool top_terminal
CHECK     += check-top
TESTS     += $(TOP_TESTS:%=$(BUILD)/test/%)
CHECK_PACKAGES += libcriterion-dev libjansson-dev tmux
# promtool comes with a server. It is installed only where nothing would start that server; elsewhere it is used if it
# is there.
ifeq ($(wildcard /run/systemd/system),)
CHECK_PACKAGES += prometheus
endif

$(BUILD)/test/top_%: $(BUILD)/obj/test/tools/top_%.o $(BUILD)/obj/test/tools/top_world.o $(BUILD)/obj/test/harness.o $(TOP_PURE) $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -l:libinih.a -l:libjansson.a -lpthread -lm -lcriterion

$(BUILD)/test/top_tool: $(BUILD)/obj/test/stress/garble.o
$(BUILD)/test/top_looks: $(patsubst %,$(BUILD)/obj/tools/%.o,top/top_source top/top_names common/nvml common/nvml_child common/proc common/nonclients)
$(BUILD)/test/top_looks: LDFLAGS += -Wl,--wrap=gpuarb_view_read,--wrap=calloc,--wrap=realloc

.PHONY: check-top
check-top: $(BUILD)/gpuarb-top $(BUILD)/gpuarb-node $(SIM)/libnvidia-ml.so.1 $(TOP_TESTS:%=$(BUILD)/test/%) ## gpuarb-top: numbers, screens, every option, a real terminal
	@for t in $(TOP_TESTS); do T_BUILD=$(BUILD) $(BUILD)/test/$$t -j2 || exit 1; done
