# Benchmarks: build/bench_<name> [--json] [--case NAME]; each has one source, and all use report.c.
PACKAGES += libjansson-dev
HEADERS  += jansson.h

BENCH_SRC := $(wildcard bench/bench_*.c)
BENCH_BIN := $(BENCH_SRC:bench/%.c=$(BUILD)/%)
BENCH += $(BENCH_BIN)
ALL += $(BENCH_BIN)

$(BUILD)/obj/bench/report.o: CPPFLAGS += -DBENCH_COMMIT='"$(shell git describe --always --dirty 2>/dev/null || echo unknown)"'

$(BENCH_BIN): $(BUILD)/%: $(BUILD)/obj/bench/%.o $(BUILD)/obj/bench/report.o $(BUILD)/libgpuarb.a
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(filter %.o,$^) $(filter %.a,$^) -l:libinih.a -l:libjansson.a -lpthread -lm

$(BUILD)/bench_limits $(BUILD)/bench_device $(BUILD)/bench_latency: $(BUILD)/obj/bench/clients.o

# bench_preload loads these when it runs.
$(BUILD)/bench_preload: | $(BUILD)/libgpuarb-preload.so $(BUILD)/stub/libcuda.so.1 $(BUILD)/simload $(BUILD)/sim/libcuda.so.1

# A driver that does nothing, for bench_memory_path; the preload finds it in its usual way.
STUB := $(BUILD)/stub/libcuda.so.1
ALL  += $(STUB)
$(STUB): $(BUILD)/obj/bench/stub_driver.o
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(LDFLAGS) -shared -Wl,-soname,libcuda.so.1 -o $@ $^

$(BUILD)/obj/bench/stub_driver.o: CFLAGS += -fvisibility=default
$(BUILD)/bench_memory_path: $(BUILD)/obj/preload/hooks/elf.o | $(STUB)

# The pictures in the README: they are measured, then drawn. It takes half a minute; data and pictures are committed.
.PHONY: plots
plots: $(WORLD) $(BUILD)/simload $(TOOLS) $(PRELOAD) $(SIM)/libcuda.so.1 $(SIM)/gpusim-report ## measure shares over time with and without gpuarb, and requests beside training; draw them (bench/shares.svg, bench/latency.svg)
	@test/install-deps.sh gnuplot-nox
	@echo "Measuring shares over time, without an arbiter and with gpuarb (about 30 s)..."
	@bench/plot-shares.sh $(BUILD) bench/shares.dat
	@gnuplot -e 'data="bench/shares.dat"; picture="bench/shares.svg"' bench/shares.gp
	@sed -i 's|<title>Gnuplot</title>|<title>Shares of a GPU over time, without an arbiter and with gpuarb</title>|' bench/shares.svg
	@$(WORLD) --cases latency-plot >bench/latency.dat
	@gnuplot -e 'data="bench/latency.dat"; picture="bench/latency.svg"' bench/latency.gp
	@sed -i 's|<title>Gnuplot</title>|<title>How long requests take beside training, without an arbiter and with gpuarb</title>|' bench/latency.svg
	@echo "plots: bench/shares.svg, from bench/shares.dat; bench/latency.svg, from bench/latency.dat"

# These benchmarks run these programs.
$(BUILD)/bench_limits $(BUILD)/bench_device $(BUILD)/bench_latency: | $(BUILD)/libgpuarb.so $(BUILD)/libgpuarb-preload.so $(BUILD)/simload $(BUILD)/sim/libcuda.so.1 $(BUILD)/sim/gpusim-report

$(BUILD)/bench_start: | $(BUILD)/libgpuarb-preload.so

# bench_top runs the tool.
$(BUILD)/bench_top: | $(BUILD)/gpuarb-top
# bench_memory runs these programs.
$(BUILD)/bench_memory: | $(BUILD)/bench_memory_path $(BUILD)/simload $(BUILD)/test/preload/memory $(BUILD)/sim/gpusim-report

# bench_tracker runs these programs.
$(BUILD)/bench_tracker: | $(BUILD)/libgpuarb-preload.so $(BUILD)/simload $(BUILD)/sim/libcuda.so.1
