# Tests of admission: leases by task class.

# The Python module, which needs no build.
CHECK    += check-python
CHECK_PACKAGES += python3
.PHONY: check-python
check-python: $(BUILD)/libgpuarb.so $(BUILD)/gpuarb-set ## leases from Python
	@python3 test/tools/python_admission.py $(BUILD)

# Tests with several processes, then with many.
ADMISSION_SECONDS ?= 4
CHECK             += check-admission
.PHONY: check-admission check-admission-long
$(BUILD)/test/stress_admission: $(BUILD)/obj/test/stress/lateness.o
check-admission: $(BUILD)/test/multi_admission $(BUILD)/test/multi_sampler $(BUILD)/test/stress_admission $(BUILD)/test/stress_wakes $(BUILD)/test/stress_fork $(BUILD)/gpuarb-watchdog ## leases of several processes: who dies, who samples, who goes first
	@T_BUILD=$(BUILD) $(BUILD)/test/multi_admission -j2
	@T_BUILD=$(BUILD) $(BUILD)/test/multi_sampler -j2
	$(BUILD)/test/stress_admission --seconds $(ADMISSION_SECONDS)
	$(BUILD)/test/stress_wakes --rounds $$(($(ADMISSION_SECONDS) * 100))
	$(BUILD)/test/stress_fork

check-admission-long: ## the same for longer: make check-admission-long SECONDS=300
	@$(MAKE) --no-print-directory check-admission ADMISSION_SECONDS=$(SECONDS)

# Whole programs on the simulated GPU.
LEASE := $(BUILD)/test/preload/lease-shared $(BUILD)/test/preload/lease-static $(BUILD)/test/preload/hang/libnvidia-ml.so.1
CHECK += check-lease-programs

# The API comes from the shared library, the functions that look at the segment from the archive.
$(BUILD)/test/preload/lease-shared: $(BUILD)/obj/test/preload/preload_lease.o $(BUILD)/libgpuarb.so $(BUILD)/libgpuarb.a | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $< -L$(BUILD) -l:libgpuarb.so -l:libgpuarb.a -L$(SIM) -l:libcuda.so.1 -l:libinih.a -lpthread -ldl

$(BUILD)/test/preload/lease-static: $(BUILD)/obj/test/preload/preload_lease.o $(BUILD)/libgpuarb.a | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -l:libinih.a -lpthread -ldl

$(BUILD)/obj/test/tools/hanging_nvml.o: CFLAGS += -fvisibility=default
$(BUILD)/test/preload/hang/libnvidia-ml.so.1: $(BUILD)/obj/test/tools/hanging_nvml.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libnvidia-ml.so.1 -o $@ $^

.PHONY: check-lease-programs
check-lease-programs: $(ALL) $(LEASE) ## leases of whole programs: one client with or without the preload, gpuarb-run --class
	@test/tools/lease_programs.sh $(BUILD)
