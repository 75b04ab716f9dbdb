# Parsers with arbitrary input. `make check` runs the stored inputs and changes of them under the sanitizers. `make
# fuzz TARGET=config SECONDS=600` searches with libFuzzer (clang).
FUZZ_TARGETS := $(patsubst test/fuzz/fuzz_%.c,%,$(wildcard test/fuzz/fuzz_*.c))
FUZZ_CHANGES ?= 2000
TARGET       ?= config
FUZZ_TOOLS   := common/conf_edit top/top_since
# Sources that a target needs in addition, for libFuzzer's build.
FUZZ_trace   := $(wildcard preload/book/*.c)
FUZZ_json    := test/tools/top_world.c $(TOP_PURE:$(BUILD)/obj/%.o=%.c)
FUZZ_bundle  := tools/runtime/runtime_json.c
FUZZ_WISH    := $(filter-out args,$(RUNTIME_PARTS))
FUZZ_wish    := $(FUZZ_WISH:%=tools/runtime/runtime_%.c) tools/common/cli.c
FUZZ_runtime_conf := tools/runtime/runtime_conf.c tools/common/cli.c

$(BUILD)/test/fuzz_%: $(BUILD)/obj/test/fuzz/fuzz_%.o $(BUILD)/obj/test/fuzz/main.o $(FUZZ_TOOLS:%=$(BUILD)/obj/tools/%.o) $(BUILD)/libgpuarb.a
	@mkdir -p $(@D)
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $(sort $(filter %.o,$^)) $(filter %.a,$^) $(LDLIBS) -l:libinih.a -lpthread

$(BUILD)/test/fuzz_trace: $(BOOK_OBJ)
$(BUILD)/test/fuzz_json: $(BUILD)/obj/test/tools/top_world.o $(TOP_PURE)
$(BUILD)/test/fuzz_bundle: $(BUILD)/obj/tools/runtime/runtime_json.o
$(BUILD)/test/fuzz_runtime_conf: $(BUILD)/obj/tools/runtime/runtime_conf.o $(BUILD)/obj/tools/common/cli.o
$(BUILD)/test/fuzz_wish: $(FUZZ_WISH:%=$(BUILD)/obj/tools/runtime/runtime_%.o) $(BUILD)/obj/tools/common/cli.o
$(BUILD)/test/fuzz_json $(BUILD)/test/fuzz_bundle $(BUILD)/test/fuzz_wish: LDLIBS += -l:libjansson.a

.PHONY: check-fuzz check-fuzz-corpus fuzz
CHECK += check-fuzz
check-fuzz: ## every parser on stored inputs and changes of them, under the sanitizers
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/asan OPT="$(ASAN)" $(FUZZ_TARGETS:%=$(BUILD)/asan/test/fuzz_%)
	@for t in $(FUZZ_TARGETS); do $(BUILD)/asan/test/fuzz_$$t test/fuzz/corpus/$$t $(FUZZ_CHANGES) || exit 1; done

# libFuzzer has a main of its own. What it finds goes to build/fuzz; inputs worth keeping are copied into the corpus.
fuzz: ## search for inputs that break a parser: make fuzz TARGET=config SECONDS=600
	@test/install-deps.sh clang libclang-rt-14-dev $(PACKAGES)
	@mkdir -p $(BUILD)/fuzz/found-$(TARGET)
	$(Q)clang -std=gnu11 -g -O1 -fsanitize=fuzzer,address,undefined $(CPPFLAGS) -fno-strict-aliasing -o $(BUILD)/fuzz/$(TARGET) \
		$(sort test/fuzz/fuzz_$(TARGET).c $(FUZZ_TOOLS:%=tools/%.c) $(FUZZ_$(TARGET)) $(SHM_SRC)) -l:libinih.a -l:libjansson.a -lpthread -ldl
	$(BUILD)/fuzz/$(TARGET) -max_total_time=$(SECONDS) -artifact_prefix=$(BUILD)/fuzz/ $(BUILD)/fuzz/found-$(TARGET) test/fuzz/corpus/$(TARGET)
