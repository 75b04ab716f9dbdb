# Traces of the tracking core: traces that programs record here, and the stored traces of the world's cases.
CHECK += check-traces
CHECK_PACKAGES += xz-utils
TRACES := test/traces/corpus
TESTS += $(BUILD)/test/trace_program

$(BUILD)/test/trace_program: $(BUILD)/obj/test/traces/trace_program.o | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -lpthread -ldl -lm

.PHONY: check-traces
check-traces: $(BUILD)/test/trace_program $(BUILD)/simload $(BUILD)/gpuarb-top $(BUILD)/gpuarb-run $(BUILD)/gpuarb-replay $(PRELOAD) ## what programs record, and what the world's cases recorded, is decided the same again
	@test/traces/corpus.sh $(BUILD) $(TRACES)
	@test/traces/programs.sh $(BUILD)

# Used after a change of the core that is meant to change decisions.
.PHONY: traces
traces: $(WORLD) ## record the cases of the world anew, for check-traces (two minutes)
	@test/traces/make.sh $(WORLD) $(TRACES)
