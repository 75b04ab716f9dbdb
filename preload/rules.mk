# The preload: one library that loads into any program, and needs nothing but an old libc.
PRELOAD_SRC := $(wildcard preload/*/*.c)
PRELOAD_OBJ := $(PRELOAD_SRC:%.c=$(BUILD)/obj/%.o)
# The tracking core's decisions: pure, and linked into its tests and gpuarb-replay as they are.
BOOK_OBJ    := $(patsubst %.c,$(BUILD)/obj/%.o,$(wildcard preload/book/*.c))
PRELOAD     := $(BUILD)/libgpuarb-preload.so
# Empty where there is no inih for the machine that it is built for.
PRELOAD_LIBS ?= $(BUILD)/libgpuarb.a -l:libinih.a

ALL += $(PRELOAD)
# Its headers alone: preload/process/known.h.
PACKAGES += liburcu-dev
HEADERS  += urcu/static/urcu-bp.h

# It is there from the start, so that a thread's own word is one load away.
$(PRELOAD_OBJ): CFLAGS += -ftls-model=initial-exec
# The dynamic linker looks at its caller's address: our dlsym and dlopen jump to the real ones. So do wrappers.
$(BUILD)/obj/preload/hooks/symbols.o $(BUILD)/obj/preload/hooks/wrappers.o: CFLAGS += -foptimize-sibling-calls

# The wrappers' calls of each other must not go through the dynamic linker, nor be taken by the program.
$(PRELOAD): $(PRELOAD_OBJ) $(filter %.a,$(filter-out -l%,$(PRELOAD_LIBS))) preload/preload.map
	@echo "  LINK  $@"
	$(Q)$(CC) $(ALL_CFLAGS) $(LDFLAGS) -shared -Wl,-soname,libgpuarb-preload.so -Wl,-z,defs -Wl,-z,nodelete \
		-Wl,--version-script=preload/preload.map -o $@ $(PRELOAD_OBJ) $(PRELOAD_LIBS)
