# The preload, on a driver that notes what it was called for (build/test/record) and on the simulated one.
PRELOAD_TEST := $(BUILD)/test/preload
RECORD       := $(PRELOAD_TEST)/record
CHECK        += check-preload
PACKAGES     += perl-base

$(PRELOAD_TEST)/preload_%.inc: test/preload_gen.pl include/cuda_abi/calls.def
	@mkdir -p $(@D)
	@echo "  GEN   $@"
	$(Q)perl test/preload_gen.pl $* include/cuda_abi/calls.def >$@

$(RECORD)/libcuda.so.1: test/preload_record.c test/preload_record.h $(PRELOAD_TEST)/preload_record.inc test/preload_record.map $(SIM_OBJ)/procaddr.o $(BUILD)/obj/test/preload_interop.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -I$(PRELOAD_TEST) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic-functions \
		-Wl,--version-script=test/preload_record.map -o $@ $(filter %.c %.o,$^)

# The part that sees, with an acting layer that says which wrapper was called.
PRELOAD_SEES := $(patsubst %,$(BUILD)/obj/preload/%.o,elf hooks nvml_hooks special symbols wrappers)
TRACING := $(PRELOAD_TEST)/libtracing.so
$(TRACING): $(PRELOAD_SEES) $(BUILD)/obj/test/preload_trace.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-z,defs -o $@ $^

$(BUILD)/obj/test/preload_trace.o: CPPFLAGS += -Ipreload
$(BUILD)/obj/test/preload_trace.o: CFLAGS += -ftls-model=initial-exec

$(PRELOAD_TEST)/coverage $(PRELOAD_TEST)/coverage-linked: test/preload_coverage.c test/preload_record.h $(wildcard preload/*.h preload/*.def) $(PRELOAD_TEST)/preload_calls.inc $(RECORD)/libcuda.so.1
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -Ipreload -I$(PRELOAD_TEST) $(LDFLAGS) $(if $(filter %-linked,$@),-DLINKED) -o $@ $< \
		$(if $(filter %-linked,$@),-L$(RECORD) -l:libcuda.so.1) -ldl

.PHONY: check-preload
check-preload: $(ALL) $(PRELOAD_TEST)/coverage $(PRELOAD_TEST)/coverage-linked $(TRACING) ## every entry point by every way, and nothing felt
	@for t in coverage coverage-linked; do for p in $(TRACING) $(PRELOAD); do \
		GPUARB_DISABLE=1 LD_LIBRARY_PATH=$(RECORD) LD_PRELOAD=$$p $(PRELOAD_TEST)/$$t || exit 1; done; done

# Memory against a quota: gpuarb's books and the simulated GPU's.
MEMORY_TEST := $(PRELOAD_TEST)/memory
CHECK       += check-preload-memory

$(MEMORY_TEST): $(patsubst %,$(BUILD)/obj/test/%.o,preload_memory preload_memory_query preload_memory_more preload_memory_race harness) $(SIM_MODEL:%=$(SIM_OBJ)/%.o) $(BUILD)/libgpuarb.a | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -l:libinih.a -lpthread -ldl -lm

.PHONY: check-preload-memory
check-preload-memory: $(ALL) $(MEMORY_TEST) ## device memory of every kind against a quota, with races and kills
	@LD_LIBRARY_PATH=$(SIM) LD_PRELOAD=$(PRELOAD) $(MEMORY_TEST)
