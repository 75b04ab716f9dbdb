# Examples of each way to use gpuarb: from C, from Python, from a shell.
CHECK += check-examples
.PHONY: check-examples
check-examples: $(TOOLS) $(PRELOAD) $(BUILD)/libgpuarb.so $(BUILD)/simload $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 ## build and run the examples on the simulated GPU
	@CC="$(CC)" tools/examples/examples.sh $(BUILD)
