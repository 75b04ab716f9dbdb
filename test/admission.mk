# Tests of admission: leases by task class.

# The Python module, which has nothing to build.
CHECK    += check-python
PACKAGES += python3
.PHONY: check-python
check-python: $(BUILD)/libgpuarb.so $(BUILD)/gpuarb-set ## leases from Python
	@python3 test/python_admission.py $(BUILD)
