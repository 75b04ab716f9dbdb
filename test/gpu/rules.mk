# The check of a real GPU. Without GPU= all of it runs on the simulated GPU.
GPU_TEST := $(BUILD)/test/gpu
CHECK    += check-gpu-short
CHECK_PACKAGES += python3 gdb
GPU_BUILT := $(GPU_TEST)/gpu_work $(GPU_TEST)/bad/libcuda.so.1 $(GPU_TEST)/cupti/libcupti.so
TESTS    += $(GPU_BUILT)

$(GPU_TEST)/gpu_work: $(patsubst %,$(BUILD)/obj/test/gpu/%.o,work facts gpu_cases switches)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -ldl

$(GPU_TEST)/bad/libcuda.so.1: test/gpu/misbehave.c test/gpu/misbehave_forward.c test/gpu/misbehave.h $(PRELOAD_TEST)/preload_forward.inc $(BUILD)/obj/test/preload/preload_interop.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(CPPFLAGS) -I$(PRELOAD_TEST) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic-functions \
		-o $@ $(filter %.c %.o,$^) -ldl

$(GPU_TEST)/cupti/libcupti.so: $(BUILD)/obj/test/gpu/cupti/simulated.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libcupti.so -o $@ $^ -lpthread -lm

.PHONY: check-checkpoint
CHECK += check-checkpoint
check-checkpoint: $(ALL) $(GPU_TEST)/gpu_work ## a program that is frozen by cuCheckpointProcess*, on the simulated GPU
	@python3 test/preload/checkpoint.py $(BUILD)

.PHONY: check-collectives
CHECK += check-collectives
check-collectives: $(ALL) ## jobs of 2 and 4 ranks that wait for each other, every policy, a rank killed, on the simulated GPUs
	@python3 test/preload/collectives.py $(BUILD)

.PHONY: check-gpu check-gpu-short
check-gpu: $(ALL) $(GPU_BUILT) ## does gpuarb hold on this GPU? ten minutes, a page and a file to attach (GPU=0); without GPU= on the simulated one
	@python3 test/gpu/check_gpu.py $(BUILD) $(if $(GPU),--gpu $(GPU))
	@$(if $(GPU),,python3 test/gpu/selftest.py $(BUILD))

check-gpu-short: $(ALL) $(GPU_BUILT) ## a short pass of check-gpu on the simulated GPU, and whether each of its parts can fail
	@python3 test/gpu/check_gpu.py $(BUILD) --short
	@python3 test/gpu/selftest.py $(BUILD)
