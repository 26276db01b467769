# SPDX-License-Identifier: MIT
#
# tests.mk: how tests, benchmarks and examples are built. mk/check.mk says which of them run.
#
# tests/ mirrors the folders of the code: tests/core/cow/test_thaw.c is about core/cow/thaw.c.
# A file's prefix says how it is linked:
#
#     test_, bug_   with the archive, whose hidden names it may use
#     fault_        the same, with gates in place of ours that fail on demand
#     fuzz_         under libFuzzer with MODE=fuzz; else with a main() that replays a corpus
#     long_         as test_, for check-all alone

TEST_FOLDERS := $(filter-out tests/device tests/driver tests/fuzz tests/programs tests/stress,\
	$(patsubst %/,%,$(wildcard tests/*/)))
WITH_URING := tests/core/fork/test_pinned.c tests/core/program/bug_changes_beside_a_ring.c
tests_named = $(call bin,$(call files,$(TEST_FOLDERS),$(1)))

TESTS := $(filter-out $(if $(URING),,$(call bin,$(WITH_URING))),\
	$(call tests_named,test_*.c test_*.cc bug_*.c))
LONG  := $(call tests_named,long_*.c)
FAULT := $(call tests_named,fault_*.c)

SUPPORT_OBJ := $(call obj,$(filter-out tests/support/test_%,$(wildcard tests/support/*.c)))
FAULT_OBJ   := $(call obj,$(wildcard tests/support/fault/*.c))
# A third party's device. tests/device/installed.sh builds it as its author would.
DEVICE_OBJ  := $(call obj,$(wildcard tests/device/*.c))
FUZZ_MAIN   := $(call obj,$(filter-out tests/fuzz/fuzz_%,$(wildcard tests/fuzz/*.c)))
FUZZ  := $(if $(FUZZ_MAIN)$(filter fuzz,$(MODE)),$(call bin,$(wildcard tests/fuzz/fuzz_*.c)))
PROGRAMS := $(call bin,$(wildcard tests/programs/*.c tests/programs/*.cc \
	tests/stress/*.c))
EXAMPLES := $(call bin,$(wildcard examples/*.c))
PLAIN_BENCH := $(call bin,$(wildcard bench/plain_*.c))
# This one measures the engine below its interface, with the archive.
INNER_BENCH := $(call bin,$(wildcard bench/tensors.c))
# Preloaded into programs beside the shim. It knows nothing of the library.
NOTER := $(B)/bench/preload_forks.so
BENCH := $(filter-out $(PLAIN_BENCH) $(INNER_BENCH) $(NOTER:.so=),$(call bin,$(wildcard bench/*.c)))

$(TESTS) $(LONG): $(B)/%: $(O)/%.o $(SUPPORT_OBJ) $(DEVICE_OBJ) $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(if $(wildcard $*.cc),$(CXX),$(CC)) $(LINK) -o $@ $^ $(TEST_LIBS) $(URING) $(LDFLAGS)

$(B)/tests/memfd/test_bytes: $(OWN_OBJ)
$(B)/tests/core/fault_pages: $(O)/tests/fuzz/fuzz_storage.o
$(FAULT): $(B)/%: $(O)/%.o $(SUPPORT_OBJ) $(DEVICE_OBJ) $(FAULT_OBJ) $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -Wl,--wrap=cow__pool_take -o $@ $(filter-out %.a,$^) $(LIB_A) \
		$(TEST_LIBS) $(URING) $(LDFLAGS)

# Objects of the command, which uses libc's memory.
$(B)/tests/cli/fault_look: $(O)/cli/look.o $(O)/cli/sample.o
$(B)/tests/cli/fault_look: private LDFLAGS += -Wl,--wrap=calloc -Wl,--wrap=realloc

$(B)/tests/cli/test_words: $(addprefix $(O)/cli/,words.o page.o picture.o counters.o fallbacks.o human.o)
$(B)/tests/cli/test_shelf: $(O)/cli/broker_shelf.o $(O)/cli/broker_hash.o $(O)/cli/broker_users.o
$(B)/tests/cli/test_users: $(O)/cli/broker_hash.o $(O)/cli/broker_users.o

# Objects of the command and of the shim that fuzzers need.
BROKER_OBJ := $(O)/cli/broker_serve.o $(O)/cli/broker_shelf.o $(O)/cli/broker_loop.o \
	$(O)/cli/broker_hash.o $(O)/cli/broker_users.o
$(B)/tests/fuzz/fuzz_broker: $(BROKER_OBJ)
$(B)/tests/fuzz/fuzz_options: $(O)/preload/options.o
$(FUZZ): $(B)/%: $(O)/%.o $(if $(filter fuzz,$(MODE)),,$(FUZZ_MAIN)) $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) $(if $(filter fuzz,$(MODE)),-fsanitize=fuzzer) -o $@ $(filter-out %.a,$^) \
		$(LIB_A) $(LDFLAGS) -lm

# ---- The reference driver: a libcuda of our own -----------------------------
#
# It runs the library's kernels, compiled for the host (docs/design/cuda-reference-driver.md),
# without sanitizers: its threads change stacks.

CU_FILES   := $(wildcard cuda/kernels/*.cu tests/driver/*.cu)
DRIVER_OBJ := $(call obj,$(wildcard tests/driver/*.c)) $(CU_FILES:%.cu=$(O)/host/%.o)
DRIVER_SO  := $(B)/tests/driver/libcuda.so.1
HOST_CUDA  := -std=gnu++17 -I. -Iinclude -include tests/driver/host_cuda.h -x c++

# A kernel's file, and behind it a line for each kernel that is found in it.
$(O)/host/%.cc: %.cu tests/driver/host_cuda.h mk/tests.mk
	@mkdir -p $(@D)
	$(Q)$(CXX) $(HOST_CUDA) -DCOWREF_LIST -E $< | tr '\n' ' ' | \
		grep -oE 'COWREF_KERNEL +void +[A-Za-z0-9_]+' | awk \
		'BEGIN { print "#include \"$<\"" } { print "REF_KERNEL(" $$NF ")" }' >$@

$(O)/host/%.o: $(O)/host/%.cc
	$(call say,CXX,$*.cu)
	$(Q)$(CXX) $(HOST_CUDA) -O1 -g $(WARN) -MMD -MP $(DRIVER_FLAGS) $(CXXFLAGS) -c -o $@ $<

$(DRIVER_SO): $(DRIVER_OBJ)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(LINK_SO) -Wl,-soname,libcuda.so.1 -o $@ $(DRIVER_OBJ) $(LDFLAGS)

$(TESTS) $(FAULT): | $(DRIVER_SO)

# ---- Programs that know nothing of the library ------------------------------

define compile_program
	$(call say,PROGRAM,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE= $(PROGRAM_FLAGS) $(CFLAGS) -MF $@.d -o $@ $< -lpthread
endef
$(B)/tests/programs/%: tests/programs/%.c mk/config.mk
	$(compile_program)

$(B)/tests/stress/%: tests/stress/%.c mk/config.mk
	$(compile_program)

$(B)/tests/programs/%: tests/programs/%.cc mk/config.mk
	$(call say,PROGRAM,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -fsized-deallocation $(PROGRAM_FLAGS) $(CXXFLAGS) -MF $@.d -o $@ $< -lpthread

# This one knows the library.
$(B)/tests/stress/share_storm: tests/stress/share_storm.c $(LIB_A) mk/config.mk
	$(call say,PROGRAM,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE= $(PROGRAM_FLAGS) -I. -Iinclude $(CFLAGS) \
		-MF $@.d -o $@ $< $(LIB_A) $(LINK)

# ---- Benchmarks and examples: users of the shared libraries -----------------

$(B)/bench/gpu: LDFLAGS += -ldl
$(BENCH) $(EXAMPLES): $(B)/%: $(O)/%.o $(LIBS_SO)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) $(RUNPATH_LIB) -o $@ $< -Wl,--as-needed $(LIBS_SO) $(LDFLAGS) -lm

$(INNER_BENCH): $(B)/%: $(O)/%.o $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -o $@ $^ $(LDFLAGS) -lm

$(PLAIN_BENCH): $(B)/%: $(O)/%.o
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -o $@ $< $(LDFLAGS) -lm

$(NOTER): $(B)/%.so: %.c mk/config.mk
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PROGRAM_FLAGS) $(CFLAGS) -MF $@.d -fPIC -shared -o $@ $< -ldl
