# The simulated GPU. Libraries and tools go to build/sim/, ready for LD_LIBRARY_PATH.
SIM     := $(BUILD)/sim
SIM_OBJ := $(BUILD)/obj/test/sim

# The device model: a shared file that each process advances when it looks. NVML and the report read it, too.
SIM_MODEL := shm engine steady compute sim_residency held predict sim_account sim_settings
# libcuda.so.1: all names, which answer "not supported", and the calls that are modelled.
SIM_CUDA := defaults procaddr
SIM_CUDA += driver sim_device context errors checkpoint
SIM_CUDA += stream event submit hostfn memop green
SIM_CUDA += module library kernels launch occupancy
SIM_CUDA += sim_memory pool array managed vmm texture ipc
SIM_CUDA += copy copycalls
SIM_CUDA += graph graphmem graphparams graphexec capture userobject newer

# libnvidia-ml.so.1 reads the model and knows nothing of the driver.
SIM_NVML := nvml_default nvml_identity nvml_sensors nvml_system nvml_usage

# libcudart.so.13 for programs that nvcc built with -cudart shared; it uses only the driver's interface.
SIM_CUDART := cudart_core cudart_copy cudart_default cudart_device cudart_graph cudart_launch cudart_memory \
	cudart_module cudart_stream

ALL      += $(SIM)/libcudart.so.13
ALL      += $(SIM)/libcuda.so.1 $(SIM)/libnvidia-ml.so.1 $(SIM)/gpusim-report $(SIM)/abi-checked
PACKAGES += perl-base
CHECK_PACKAGES += libcriterion-dev
CHECK    += check-sim

# Like the real driver it calls its own functions directly, even if another library defines their names.
$(SIM)/libcuda.so.1: $(SIM_CUDA:%=$(SIM_OBJ)/driver/%.o) $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -Wl,-soname,libcuda.so.1 -Wl,-z,defs -Wl,-z,nodelete -Wl,-Bsymbolic-functions $(LDFLAGS) -o $@ $^ -lpthread -ldl -lm
	@ln -sf libcuda.so.1 $(SIM)/libcuda.so

$(SIM)/libnvidia-ml.so.1: $(SIM_NVML:%=$(SIM_OBJ)/nvml/%.o) $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -Wl,-soname,libnvidia-ml.so.1 -Wl,-z,defs -Wl,-Bsymbolic-functions $(LDFLAGS) -o $@ $^ -lpthread
	@ln -sf libnvidia-ml.so.1 $(SIM)/libnvidia-ml.so

$(SIM)/libcudart.so.13: $(SIM_CUDART:%=$(SIM_OBJ)/runtime/%.o) test/sim/runtime/cudart.map
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -Wl,-soname,libcudart.so.13 -Wl,-z,defs -Wl,--version-script=test/sim/runtime/cudart.map $(LDFLAGS) -o $@ \
		$(filter %.o,$^) -lpthread -ldl

$(SIM)/gpusim-report: $(SIM_OBJ)/device/sim_report.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o)
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lpthread

# The load generator finds the driver by dlopen; simload-linked is the same program, bound at link time.
ALL += $(BUILD)/simload $(BUILD)/simload-linked
SIMLOAD_OBJ := $(patsubst %,$(BUILD)/obj/test/load/%.o,simload simload_latency simload_lease simload_options simload_work)

$(BUILD)/simload: $(SIMLOAD_OBJ)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lpthread -ldl -lm

$(BUILD)/simload-linked: $(SIMLOAD_OBJ) | $(SIM)/libcuda.so.1
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -Wl,--no-as-needed -L$(SIM) -l:libcuda.so.1 -Wl,--as-needed -lpthread -ldl -lm

# Compares the project's header with NVIDIA's, where a toolkit is installed.
$(SIM)/abi-checked: test/sim/check-abi.sh test/sim/abi-tables.pl test/sim/driver/driver.def test/sim/driver/sim_interop.def $(wildcard test/sim/runtime/cudart*.def) test/sim/runtime/cudart_abi.h $(wildcard include/cuda_abi/*) include/cuda_abi.h
	@mkdir -p $(@D)
	@CC="$(CC)" test/sim/check-abi.sh $(SIM)/abi && touch $@

SIM_TESTS := procaddr nvml nvml_load zeros

$(SIM)/test_%: $(SIM_OBJ)/test/test_%.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -lcriterion -ldl -lpthread -lm

# Tests that are linked with the driver and read the ground truth with a reader of their own.
SIM_MODEL_TESTS := order share slices fifo spatial held queues clock checkpoint host memory graph errors ipc module
SIM_TESTS       += $(SIM_MODEL_TESTS)
TESTS           += $(SIM_TESTS:%=$(SIM)/test_%)
$(SIM_MODEL_TESTS:%=$(SIM)/test_%): $(SIM)/test_%: $(SIM_OBJ)/test/test_%.o $(SIM_OBJ)/test/simtest.o $(SIM_MODEL:%=$(SIM_OBJ)/device/%.o) | $(SIM)/libcuda.so.1
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -o $@ $^ -L$(SIM) -l:libcuda.so.1 -lcriterion -lpthread -lm

.PHONY: check-sim check-clients sim-readme
check-sim: $(ALL) $(SIM_TESTS:%=$(SIM)/test_%) ## test the simulated GPU itself
	@for t in $(SIM_TESTS); do LD_LIBRARY_PATH=$(SIM) $(SIM)/test_$$t -j2 || exit 1; done
	@test/sim/check-simload.sh $(BUILD)
	@test/sim/check-cudart.sh $(SIM)
	@test/sim/unmodelled.sh -c $(SIM)/libcuda.so.1 test/sim/README.md

check-clients: all ## run ffmpeg, hashcat and viewers on the simulated GPU, without the preload and with it
	@test/sim/check-clients.sh $(SIM)
	@test/sim/check-clients.sh $(SIM) $(PRELOAD)

sim-readme: $(SIM)/libcuda.so.1 ## write the list of what is not modelled into test/sim/README.md
	@test/sim/unmodelled.sh $(SIM)/libcuda.so.1 test/sim/README.md

# Objects of the tests are kept between runs.
.SECONDARY:
