# Tests of admission: leases by task class.

# The Python module, which has nothing to build.
CHECK    += check-python
PACKAGES += python3
.PHONY: check-python
check-python: $(BUILD)/libgpuarb.so $(BUILD)/gpuarb-set ## leases from Python
	@python3 test/python_admission.py $(BUILD)

# Several processes, then many of them.
ADMISSION_SECONDS ?= 4
CHECK             += check-admission
.PHONY: check-admission check-admission-long
check-admission: $(BUILD)/test/multi_admission $(BUILD)/test/stress_admission $(BUILD)/gpuarb-watchdog ## leases of several processes: who dies, who samples, who goes first
	@T_BUILD=$(BUILD) $(BUILD)/test/multi_admission -j2
	$(BUILD)/test/stress_admission --seconds $(ADMISSION_SECONDS)

check-admission-long: ## the same for longer: make check-admission-long SECONDS=300
	@$(MAKE) --no-print-directory check-admission ADMISSION_SECONDS=$(SECONDS)
