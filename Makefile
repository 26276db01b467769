# SPDX-License-Identifier: MIT
#
# The only makefile. Sources are found by wildcard, so a new file needs no edit
# here. Everything that is built lies in build/$(MODE)/:
#
#     lib/    libcowshed.a, libcowshed.so.0, libcowshed-preload.so,
#             libcowshed-copies.so
#     bin/    cowshed
#     python/ the package cowshed: PYTHONPATH for trying it
#     tests/  bench/  examples/   one program for each source
#     obj/    objects and their dependency files
#
# Variables: MODE=plain|debug|asan|tsan|cov|fuzz, V=1 (show commands), T=text
# (check: only programs with it in their name), STRICT=1 (check: a skip is a
# failure), FUZZ_SECONDS=60 (check in MODE=fuzz: for each target), NO_INSTALL=1
# (never touch package managers), PYTHON (whose headers to use), CC, CXX, CFLAGS, CXXFLAGS,
# LDFLAGS (appended to ours); for install: DESTDIR, prefix, bindir, libdir, includedir, mandir,
# unitdir, RUNPATH= (none).

MODE ?= plain
B := build/$(MODE)
O := $(B)/obj
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
SHORT_FLAGS := $(filter-out --%,$(firstword -$(MAKEFLAGS)))
SILENT := $(findstring s,$(SHORT_FLAGS))
say = $(if $(Q),$(if $(SILENT),,@printf '  %-7s %s\n' '$(1)' '$(2)'))

ifeq ($(origin CC),default)
CC := $(if $(filter fuzz cov,$(MODE)),clang,gcc)
endif
ifeq ($(origin CXX),default)
CXX := $(if $(filter cov,$(MODE)),clang++,g++)
endif
AR ?= ar
PKG_CONFIG ?= pkg-config
# -j on the command line wins over this, and a make that calls this one.
MAKEFLAGS += --no-builtin-rules \
	$(if $(filter 0,$(MAKELEVEL)),-j$(shell nproc 2>/dev/null || echo 2))

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:
.PHONY: all everything check coverage check-all check-programs check-valgrind check-model check-chaos stress soak demo bench check-gpu bench-gpu bench-python lint analyze \
	python python-env no-python man install uninstall deb clean deps help

# What is missing is installed before anything below asks whether it is there; not for make -n, -q, -t.
NEED_DEPS := $(filter deps check check-% coverage stress soak demo bench bench-% lint analyze,$(MAKECMDGOALS))
ifneq ($(NEED_DEPS),)
ifeq ($(strip $(foreach f,n q t,$(findstring $(f),$(SHORT_FLAGS)))),)
$(shell NO_INSTALL='$(NO_INSTALL)' scripts/deps.sh $(filter-out deps,$(NEED_DEPS)) \
	$(if $(filter fuzz cov,$(MODE)),check $(MODE)) >&2)
ifneq ($(.SHELLSTATUS),0)
$(error what is needed is not there)
endif
endif
endif

# ---- Flags ------------------------------------------------------------------

plain_FLAGS := -O2
debug_FLAGS := -O0 -g3 -fno-omit-frame-pointer -DCOW_DEBUG
asan_FLAGS  := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined
tsan_FLAGS  := -O1 -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan
# Counters in a mapped file: children and killed processes count, too.
cov_FLAGS   := -O0 -fprofile-instr-generate -fcoverage-mapping \
	-mllvm -runtime-counter-relocation -Wno-unused-command-line-argument
fuzz_FLAGS  := -O1 -fno-omit-frame-pointer \
	-fsanitize=address,undefined,fuzzer-no-link

MODE_FLAGS := $($(MODE)_FLAGS)
ifeq ($(MODE_FLAGS),)
$(error MODE=$(MODE): no such mode; plain, debug, asan, tsan, cov or fuzz)
endif
SANITIZED := $(filter asan tsan fuzz,$(MODE))

WARN := -Wall -Wextra -Wshadow -Wpointer-arith -Wwrite-strings -Wvla -Wundef
C_WARN := $(WARN) -Wstrict-prototypes -Wmissing-prototypes
# The folder of a build leaves no trace in it.
BASE := -g -ffile-prefix-map='$(CURDIR)'=. $(MODE_FLAGS) -I. -Iinclude -pthread -MMD -MP \
	$(if $(SANITIZED),-DCOW_SANITIZED)
C_BASE := -std=gnu11 -D_GNU_SOURCE= $(BASE)
# CFLAGS, CXXFLAGS, LDFLAGS are the user's alone, and come last.

# What is installed. Fortified where there is an optimizer, which that takes; protected
# against jumps to anywhere where the processor's compiler can do it.
has_flag = $(shell echo | $(CC) -Werror $(1) -fsyntax-only -x c - >/dev/null 2>&1 && echo '$(1)')
HARDEN := -fstack-protector-strong $(call has_flag,-fcf-protection) \
	$(call has_flag,-mbranch-protection=standard) \
	$(if $(filter plain,$(MODE)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)

LIB_CFLAGS := $(C_BASE) $(C_WARN) $(HARDEN) -fPIC -fvisibility=hidden -fno-plt \
	-ftls-model=initial-exec
# These run on a thread that has no thread-local storage, where the stack canary
# lives. (So does what the sanitizers keep: with them there is no such thread.)
NO_TLS := memfd/thread% core/helper% tensor/workers%
NO_TLS_CFLAGS := -fno-stack-protector

PRELOAD_CFLAGS := $(LIB_CFLAGS) -fno-builtin
# Code that is memcpy must not be made to call it.
COPIES_CFLAGS := $(call has_flag,-fno-tree-loop-distribute-patterns) -fno-stack-protector
CLI_CFLAGS := $(C_BASE) $(C_WARN) $(HARDEN) -fPIE
TEST_CFLAGS = $(C_BASE) $(WARN) $(shell $(PKG_CONFIG) --cflags check)
TEST_CXXFLAGS = -std=gnu++17 $(BASE) $(WARN) $(shell $(PKG_CONFIG) --cflags check)
# Real programs for the shim: calls of malloc must stay calls.
PROGRAM_FLAGS := -O1 -g -fno-builtin -pthread -MMD -MP -Wall -Wextra
BENCH_CFLAGS := $(C_BASE) $(WARN) -DBENCH_SOURCES='"$(CURDIR)/bench"'

LINK := -pthread $(MODE_FLAGS) -Wl,-z,relro,-z,now,--enable-new-dtags
LINK_SO := $(LINK) -shared $(if $(SANITIZED),,-Wl,-z,defs)
# Tests go to machines with a GPU and without packages: what libcheck needs goes along.
SUBUNIT_A := $(filter /%,$(shell $(CC) -print-file-name=libsubunit.a))
TEST_LIBS = $(patsubst -lsubunit,$(or $(SUBUNIT_A),-lsubunit),\
	$(shell $(PKG_CONFIG) --libs check)) -lpthread
# Tests that put memory under I/O; without liburing they are left out.
URING := $(shell $(PKG_CONFIG) --libs liburing 2>/dev/null)
WITH_URING := tests/test_pinned.c
# So that a build, and an installation in any folder, works where it lies. In the loader's
# own folders there is no need of it: RUNPATH= leaves it out.
RUNPATH ?= yes
ifneq ($(RUNPATH),)
RUNPATH_LIB := -Wl,-rpath,'$$ORIGIN/../lib'
RUNPATH_BESIDE := -Wl,-rpath,'$$ORIGIN'
endif

# The stable ABI of 3.11: one module for that version and all later ones. Whose headers it is
# compiled with does not matter, as long as they are as new.
PYTHON ?=
PYTHON_H := $(if $(SANITIZED),,$(shell PYTHON='$(PYTHON)' bash scripts/python.sh include))
PYTHON_CFLAGS = $(C_BASE) $(C_WARN) $(HARDEN) -Werror=implicit-function-declaration -fPIC \
	-fvisibility=hidden -isystem '$(PYTHON_H)' -Wno-write-strings

# ---- Sources ----------------------------------------------------------------

obj = $(addprefix $(O)/,$(addsuffix .o,$(basename $(1))))
bin = $(addprefix $(B)/,$(basename $(1)))

# Machine code for devices, where nvcc is; else empty images of it (cuda/kernels.h).
NVCC        ?= $(shell command -v nvcc)
IMAGES      := $(patsubst cuda/kernels/%.cu,build/kernels/%,$(sort $(wildcard cuda/kernels/*.cu)))
LIB_OBJ     := $(call obj,$(sort $(wildcard memfd/*.c core/*.c share/*.c tensor/*.c \
	cuda/*.c))) $(IMAGES:%=%.o)
PRELOAD_OBJ := $(call obj,$(sort $(wildcard preload/*.c)))
COPIES_OBJ  := $(call obj,$(sort $(wildcard preload/copies/*.c)))
CLI_OBJ     := $(call obj,$(sort $(wildcard cli/*.c)))
SUPPORT_OBJ := $(call obj,$(wildcard tests/support/*.c))
# For the tests here. tests/device/installed.sh builds it as its author would.
DEVICE_OBJ  := $(call obj,$(wildcard tests/device/*.c))
# A libcuda of our own (docs/design/cuda-reference-driver.md), with the library's kernels,
# which are compiled for the host without sanitizers: their threads change stacks.
KERNELS     := $(wildcard cuda/kernels/*.cu tests/driver/*.cu)
DRIVER_OBJ  := $(call obj,$(wildcard tests/driver/*.c)) $(KERNELS:%.cu=$(O)/host/%.o)
DRIVER_SO   := $(B)/tests/driver/libcuda.so.1
FAULT_OBJ   := $(call obj,$(wildcard tests/support/fault/*.c))
FUZZ_MAIN   := $(call obj,$(filter-out tests/fuzz/fuzz_%,$(wildcard tests/fuzz/*.c)))

TESTS := $(call bin,$(filter-out $(if $(URING),,$(WITH_URING)),\
	$(wildcard tests/test_*.c tests/test_*.cc tests/regress/bug_*.c)))
LONG  := $(call bin,$(wildcard tests/long_*.c))
NOT_VALGRIND := broker_others broker_start channel fallbacks fork_hard hostile_floods mapping \
	hostile_limits io memory options storage
LONG_SCRIPTS := $(wildcard tests/packaging/long_*.sh)
FAULT := $(call bin,$(wildcard tests/fault_*.c))
# Under libFuzzer in MODE=fuzz; else each replays its corpus, by a main() of ours.
FUZZ  := $(if $(FUZZ_MAIN)$(filter fuzz,$(MODE)),$(call bin,$(wildcard tests/fuzz/fuzz_*.c)))
PROGRAMS := $(call bin,$(wildcard tests/programs/*.c tests/programs/*.cc \
	tests/stress/*.c))
EXAMPLES := $(call bin,$(wildcard examples/*.c))
PLAIN_BENCH := $(call bin,$(wildcard bench/plain_*.c))
# The engine below its interface: with the archive.
INNER_BENCH := $(call bin,$(wildcard bench/tensors.c))
BENCH := $(filter-out $(PLAIN_BENCH) $(INNER_BENCH),$(call bin,$(wildcard bench/*.c)))
SCRIPTS := $(filter-out %/lib.sh %/common.sh,$(wildcard tests/preload/*.sh))
SLOW_SCRIPTS := tests/preload/real.sh \
	$(filter-out %/lib.sh,$(wildcard tests/preload/programs/*.sh))

# One run each, and another one under the shim (tests/python/run.sh), but for those that put
# processes of their own under it, or none. The scripts are the longest: not to the end.
PYTHON_ONCE := $(addprefix tests/python/test_,dask_cluster.py docs.py readme.py results.py \
	torch_install.py tutorial.py types.py)
PYTHON_TESTS := $(if $(PYTHON_H),$(filter-out %/run.sh,$(wildcard tests/python/*.sh)) \
	$(foreach t,$(wildcard tests/python/test_*.py),$t $(if $(filter $(PYTHON_ONCE),$t),,$t:shim)))

LIB_A := $(B)/lib/libcowshed.a
LIB_SO := $(B)/lib/libcowshed.so.0
LIB_LINK := $(B)/lib/libcowshed.so
PRELOAD_SO := $(if $(PRELOAD_OBJ),$(B)/lib/libcowshed-preload.so)
COPIES_SO := $(if $(COPIES_OBJ),$(B)/lib/libcowshed-copies.so)
CLI := $(if $(CLI_OBJ),$(B)/bin/cowshed)

# The Python package as it is installed, of links to what is built and to the sources.
PACKAGE := $(B)/python/cowshed
PACKAGE_EXT := $(PACKAGE)/_cowshed.abi3.so
PACKAGE_EXT_OBJ := $(call obj,$(wildcard python/_cowshed/*.c))
PACKAGE_PY := $(patsubst %,$(B)/%,$(foreach d,python/cowshed python/cowshed/*,\
	$(wildcard $d/*.py $d/*.pyi $d/py.typed)))
PACKAGE_BUILT := $(PACKAGE)/bin/cowshed $(addprefix $(PACKAGE)/lib/,$(notdir \
	$(LIB_SO) $(PRELOAD_SO) $(COPIES_SO)))

# What a mode builds and checks. Sanitizers bring a malloc of their own, so the
# shim and what is for it stay out.
ifeq ($(MODE),fuzz)
ALL := $(LIB_A) $(FUZZ)
RUN := $(FUZZ)
else ifneq ($(SANITIZED),)
ALL := $(LIB_A) $(LIB_SO) $(LIB_LINK) $(CLI) $(EXAMPLES)
RUN := $(TESTS) $(FAULT) $(FUZZ)
else
ALL := $(LIB_A) $(LIB_SO) $(LIB_LINK) $(PRELOAD_SO) $(COPIES_SO) $(CLI) \
	$(EXAMPLES)
RUN := $(TESTS) $(FAULT) $(FUZZ) $(EXAMPLES) $(SCRIPTS) tests/stress/share_storm.sh \
	tests/oracle/copies.sh tests/device/installed.sh $(wildcard tests/cuda/*.sh) \
	$(filter-out $(LONG_SCRIPTS),$(wildcard tests/packaging/*.sh)) \
	$(PYTHON_TESTS)
EXTRA := $(PROGRAMS) $(BENCH) $(INNER_BENCH) $(PLAIN_BENCH) $(if $(PYTHON_H),python,no-python)
endif

# What can't be built here is skipped, not forgotten.
export LEFT_OUT := $(strip $(if $(URING),,tests/test_pinned:liburing) \
	$(if $(SANITIZED)$(PYTHON_H),,tests/python:Python.h))
RUN += $(if $(filter fuzz,$(MODE)),,$(if $(LEFT_OUT),scripts/left-out.sh))

# "make clean all" cleans first.
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

# ---- Targets ----------------------------------------------------------------

all: $(ALL) ## the libraries, the command, the examples (default)

CHECKED := $(if $(filter fuzz,$(MODE)),,$(DRIVER_SO) $(TESTS) $(FAULT) $(EXTRA)) $(FUZZ)
everything: all $(CHECKED) ## the same, with tests and benchmarks

# The packages of Python's tests are fetched only if one of these is to be run.
PYTHON_ENV := $(if $(filter fuzz asan tsan,$(MODE)),,$(if $(T),$(if $(findstring $(T),\
	$(PYTHON_TESTS)),python-env),$(if $(PYTHON_H),python-env)))

check: everything $(PYTHON_ENV) ## build all and run the tests
	$(Q)BUILD='$(B)' MODE='$(MODE)' scripts/check.sh $(RUN)

coverage: ## what of the code tests run, and the lines that none does: build/cov/coverage.txt (an hour)
	$(Q)rm -rf build/cov/profiles
	$(Q)$(MAKE) check MODE=cov; r=$$?; BUILD=build/cov scripts/coverage.sh && exit $$r

check-all: everything $(PYTHON_ENV) $(LONG) ## the same, with the long tests
	$(Q)BUILD='$(B)' MODE='$(MODE)' LONG=1 scripts/check.sh $(RUN) $(LONG) $(LONG_SCRIPTS)

check-programs: everything python-env ## real programs and their own tests under the shim
	$(Q)BUILD='$(B)' MODE='$(MODE)' LIMIT=7200 scripts/check.sh $(SLOW_SCRIPTS)

# Not under valgrind: who starts other programs, sets limits or measures memory, which are
# valgrind's then, too; channel and io don't come to an end there.
check-valgrind: everything ## the tests of the library under valgrind (hours)
	$(Q)BUILD='$(B)' MODE='$(MODE)' LIMIT=3600 CK_TIMEOUT_MULTIPLIER=20 \
		AROUND='valgrind -q --error-exitcode=9 --child-silent-after-fork=no' scripts/check.sh \
		$(filter-out $(call bin,$(NOT_VALGRIND:%=tests/test_%.c)),$(TESTS))

check-model: ## the protocol of share/, every order of its steps (spin)
	$(Q)CC='$(CC)' bash tests/model/share.sh || [ $$? -eq 77 ]

SECONDS ?= 600
check-chaos: everything ## processes that share and are killed, for SECONDS=600, from SEED=
	$(Q)$(B)/tests/stress/share_storm $(SECONDS) \
		$(or $(SEED),$(shell date +%s)) 12

stress: everything ## fork storms for SECONDS=600 (0: for ever), from SEED=
	$(Q)BUILD='$(B)' STRESS='$(SECONDS)' bash tests/preload/storm.sh

soak: everything ## both in turns for hours, SECONDS=7200, and what memory is left
	$(Q)BUILD='$(B)' bash tests/stress/soak.sh $(if $(filter file,$(origin SECONDS)),7200,$(SECONDS))

demo: everything ## two minutes that show what it is for
	$(Q)BUILD='$(B)' bash bench/demo.sh

bench: everything python-env ## measure; writes docs/results.md, its tables and plots
	$(Q)scripts/python-env.sh bench/requirements.txt build/venv-plots
	$(Q)BUILD='$(B)' bash bench/run.sh; status=$$?; \
		if python=$$(PYTHON=build/venv-plots/bin/python scripts/python.sh); then \
			"$$python" bench/results.py build/bench.txt || status=1; \
		else echo 'bench: no Python of 3.11 or newer: no docs/results.md'; fi; exit $$status

check-gpu: everything ## the CUDA tests on the machine's own driver and GPU
	$(Q)BUILD='$(B)' bash scripts/check-gpu.sh

bench-gpu: everything ## measure on a GPU: ours, the driver's own, PyTorch's
	$(Q)BUILD='$(B)' bash bench/gpu.sh

bench-python: everything python-env ## measure the Python package: ours, torch.multiprocessing, Dask, ...
	$(Q)BUILD='$(B)' bash bench/python.sh

lint: python-env $(LIB_OBJ) $(LIB_SO) $(if $(PYTHON_H),python) ## the rules of CONTRIBUTING.md, on files and objects
	$(Q)export BUILD='$(B)' CC='$(CC)' CXX='$(CXX)' PYTHON_H='$(PYTHON_H)'; \
		scripts/lint-python.sh; python=$$?; scripts/lint.sh && exit $$python

analyze: ## static analysis: cppcheck, clang-tidy, gcc -fanalyzer (minutes)
	$(Q)scripts/analyze.sh

deps: ## install missing packages (NO_INSTALL=1: only name them)
	@:

python: $(PACKAGE_EXT) $(PACKAGE_PY) $(PACKAGE_BUILT) ## the Python package, in build/plain/python
	$(Q)find $(PACKAGE) -xtype l -delete

no-python:
	@echo '  PYTHON  left out: no Python.h of 3.11 or newer (python3-dev)'

python-env:
	$(Q)PYTHON='$(PYTHON)' scripts/python-env.sh

clean: ## remove build/
	$(Q)rm -rf build

have = $$(command -v $(1) >/dev/null && echo yes || echo no)
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  %-16s%s\n", $$1, $$2}' Makefile
	@echo "variables: see the top of the Makefile; MODE=$(MODE), version $(VERSION)"
	@echo "optional: clang $(call have,clang), nvcc $(call have,nvcc)," \
		"python3 $(call have,python3)"

# ---- Libraries and the command ----------------------------------------------

$(O)/memfd/%.o: memfd/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LIB_CFLAGS) $(if $(filter $(NO_TLS),$<),$(NO_TLS_CFLAGS)) \
		$(CFLAGS) -c -o $@ $<

$(O)/core/%.o: core/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LIB_CFLAGS) $(if $(filter $(NO_TLS),$<),$(NO_TLS_CFLAGS)) \
		$(CFLAGS) -c -o $@ $<

$(O)/share/%.o: share/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LIB_CFLAGS) $(if $(filter $(NO_TLS),$<),$(NO_TLS_CFLAGS)) \
		$(CFLAGS) -c -o $@ $<

$(O)/tensor/%.o: tensor/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LIB_CFLAGS) $(if $(filter $(NO_TLS),$<),$(NO_TLS_CFLAGS)) \
		$(CFLAGS) -c -o $@ $<

$(O)/cuda/%.o: cuda/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LIB_CFLAGS) $(CFLAGS) -c -o $@ $<

# The same in all modes. What PTX is for is newer than all of these.
SMS := 75 80 86 89 90
NVCC_FLAGS := -std=c++17 -O3 -I. -Iinclude -fatbin -Xfatbin -compress-all \
	$(foreach sm,$(SMS),-gencode arch=compute_$(sm),code=sm_$(sm)) \
	-gencode arch=compute_$(lastword $(SMS)),code=compute_$(lastword $(SMS))

build/kernels/%.fatbin: cuda/kernels/%.cu $(wildcard cuda/kernels/*.h) tensor/rules.h tensor/half.h \
		include/cowshed-tensor.h Makefile
	$(call say,$(if $(NVCC),NVCC,NO NVCC),$<)
	@mkdir -p $(@D)
	$(Q)$(if $(NVCC),$(NVCC) $(NVCC_FLAGS) -o $@ $<,: >$@)

build/kernels/%.o: build/kernels/%.fatbin cuda/kernels/image.S
	$(Q)$(CC) -DNAME=cow__image_$* -DIMAGE='"$<"' $(HARDEN) -fPIC -c -o $@ cuda/kernels/image.S

$(O)/preload/%.o: preload/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PRELOAD_CFLAGS) $(if $(filter preload/copies/%,$<),\
		$(COPIES_CFLAGS)) $(CFLAGS) -c -o $@ $<

$(O)/cli/%.o: cli/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CLI_CFLAGS) $(CFLAGS) -c -o $@ $<

$(LIB_A): $(LIB_OBJ)
	$(call say,AR,$@)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $^

# Never unloaded: our threads and fork handlers live in it, and memory that it gave. Begun before
# other libraries: of fork handlers the first registered is the last before the fork, and what
# others allocate in theirs must find the engine free (docs/design/fork.md). That is before libc
# knows the environment, which tells the counters of MODE=cov where their file is.
$(LIB_SO): $(LIB_OBJ) core/libcowshed.map
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK_SO) -Wl,-soname,libcowshed.so.0 -Wl,-z,nodelete \
		$(if $(filter cov,$(MODE)),,-Wl,-z,initfirst) \
		-Wl,--version-script=core/libcowshed.map -o $@ $(LIB_OBJ) $(LDFLAGS)

$(LIB_LINK): $(LIB_SO)
	@ln -sf $(notdir $<) $@

$(PRELOAD_SO): $(PRELOAD_OBJ) $(LIB_SO) preload/preload.map
	$(call say,LINK,$@)
	$(Q)$(CC) $(LINK_SO) -Wl,-soname,$(notdir $@) $(RUNPATH_BESIDE) \
		-Wl,--version-script=preload/preload.map -o $@ $(PRELOAD_OBJ) \
		$(LIB_SO) $(LDFLAGS)

$(COPIES_SO): $(COPIES_OBJ) $(LIB_SO) preload/copies/copies.map
	$(call say,LINK,$@)
	$(Q)$(CC) $(LINK_SO) -Wl,-soname,$(notdir $@) $(RUNPATH_BESIDE) \
		-Wl,--version-script=preload/copies/copies.map -o $@ \
		$(COPIES_OBJ) $(LIB_SO) $(LDFLAGS)

$(CLI): $(CLI_OBJ) $(LIB_SO)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -pie $(RUNPATH_LIB) -o $@ $(CLI_OBJ) $(LIB_SO) $(LDFLAGS)

# ---- The Python package: beside its module lie the engine, the shim, the command ----

$(O)/python/%.o: python/%.c Makefile
	$(if $(PYTHON_H),,$(error no Python.h of 3.11 or newer was found (Debian: python3-dev)))
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(PYTHON_CFLAGS) $(CFLAGS) -c -o $@ $<

# The interpreter brings what is undefined. A libcowshed.so.0 that is there already, because
# the shim needs it, is the one: the loader knows it by that name.
$(PACKAGE_EXT): $(PACKAGE_EXT_OBJ) $(LIB_SO)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -shared -Wl,-rpath,'$$ORIGIN/lib' -o $@ $(PACKAGE_EXT_OBJ) $(LIB_SO) \
		$(LDFLAGS)

$(PACKAGE_PY): $(B)/%: %
	@mkdir -p $(@D)
	$(Q)ln -srf $< $@

$(PACKAGE_BUILT): $(PACKAGE)/%: $(B)/%
	@mkdir -p $(@D)
	$(Q)ln -srf $< $@

# ---- Tests: whitebox, with the archive, whose hidden symbols they may use ---

$(O)/tests/%.o: tests/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(TEST_CFLAGS) $(CFLAGS) -c -o $@ $<

$(O)/tests/%.o: tests/%.cc Makefile
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(TEST_CXXFLAGS) $(CXXFLAGS) -c -o $@ $<

$(TESTS) $(LONG): $(B)/%: $(O)/%.o $(SUPPORT_OBJ) $(DEVICE_OBJ) $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(if $(wildcard $*.cc),$(CXX),$(CC)) $(LINK) -o $@ $^ $(TEST_LIBS) $(URING) $(LDFLAGS)

DRIVER_FLAGS := -fPIC -fvisibility=hidden
$(O)/tests/driver/%.o: CFLAGS_HERE = $(TEST_CFLAGS) $(DRIVER_FLAGS)
$(O)/tests/driver/%.o: tests/driver/%.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_HERE) $(if $(filter %/fiber.c,$<),-fno-sanitize=all) $(CFLAGS) -c -o $@ $<

# A kernel's file, and behind it a line for each kernel that is found in it.
HOST_CUDA := -std=gnu++17 -I. -Iinclude -include tests/driver/host_cuda.h -x c++
$(O)/host/%.cc: %.cu tests/driver/host_cuda.h Makefile
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

$(B)/tests/fault_pages: $(O)/tests/fuzz/fuzz_storage.o
# As tests, with gates that fail on demand in place of ours (tests/support/fault/).
$(FAULT): $(B)/%: $(O)/%.o $(SUPPORT_OBJ) $(DEVICE_OBJ) $(FAULT_OBJ) $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -Wl,--wrap=cow__pool_take -o $@ $(filter-out %.a,$^) $(LIB_A) \
		$(TEST_LIBS) $(URING) $(LDFLAGS)

# What is not the library's.
$(B)/tests/fuzz/fuzz_broker: $(O)/cli/broker_serve.o $(O)/cli/broker_shelf.o $(O)/cli/broker_loop.o
$(B)/tests/fuzz/fuzz_options: $(O)/preload/options.o
$(FUZZ): $(B)/%: $(O)/%.o $(if $(filter fuzz,$(MODE)),,$(FUZZ_MAIN)) $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) $(if $(filter fuzz,$(MODE)),-fsanitize=fuzzer) -o $@ $^ $(LDFLAGS) -lm

define compile_program
	$(call say,PROGRAM,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE= $(PROGRAM_FLAGS) $(CFLAGS) -MF $@.d -o $@ $< -lpthread
endef
$(B)/tests/programs/%: tests/programs/%.c Makefile
	$(compile_program)

$(B)/tests/stress/%: tests/stress/%.c Makefile
	$(compile_program)

# This one knows the library.
$(B)/tests/stress/share_storm: tests/stress/share_storm.c $(LIB_A) Makefile
	$(call say,PROGRAM,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) -std=gnu11 -D_GNU_SOURCE= $(PROGRAM_FLAGS) -I. -Iinclude $(CFLAGS) \
		-MF $@.d -o $@ $< $(LIB_A) $(LINK)

$(B)/tests/programs/%: tests/programs/%.cc Makefile
	$(call say,PROGRAM,$@)
	@mkdir -p $(@D)
	$(Q)$(CXX) -std=gnu++17 -fsized-deallocation $(PROGRAM_FLAGS) $(CXXFLAGS) -MF $@.d -o $@ $< -lpthread

# ---- Benchmarks and examples: users of the shared library -------------------

$(O)/bench/%.o $(O)/examples/%.o: CFLAGS_HERE := $(BENCH_CFLAGS)
$(O)/%.o: %.c Makefile
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(CFLAGS_HERE) $(CFLAGS) -c -o $@ $<

$(B)/bench/gpu: LDFLAGS += -ldl
$(BENCH) $(EXAMPLES): $(B)/%: $(O)/%.o $(LIB_SO)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) $(RUNPATH_LIB) -o $@ $< $(LIB_SO) $(LDFLAGS) -lm

$(INNER_BENCH): $(B)/%: $(O)/%.o $(LIB_A)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -o $@ $^ $(LDFLAGS) -lm

$(PLAIN_BENCH): $(B)/%: $(O)/%.o
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -o $@ $< $(LDFLAGS) -lm

# ---- Installation -----------------------------------------------------------

prefix ?= /usr/local
bindir ?= $(prefix)/bin
libdir ?= $(prefix)/lib
includedir ?= $(prefix)/include
mandir ?= $(prefix)/share/man
VERSION = $(shell awk '/^.define COW_VERSION_/{printf "%s%s", s, $$3; s = "."}' include/cowshed.h)
RELEASED = $(shell sed -nE '/^## /{s/.*\((.*)\)/\1/p;q}' CHANGELOG.md)
unitdir ?= $(prefix)/lib/systemd/user
HEADERS := $(sort $(wildcard include/*.h))
UNITS := $(sort $(wildcard cli/systemd/cowshed-broker.*))
MAN1 := $(sort $(wildcard docs/man/*.1))
MAN7 := $(sort $(wildcard docs/man/*.7))

# Section 3 is the public headers, as pages; the list says which function is on which.
MAN3 := build/man/links
$(MAN3): $(HEADERS) docs/man/section3.awk CHANGELOG.md
	@rm -rf $(@D) && mkdir -p $(@D)
	$(Q)awk -v out=$(@D) -v version=$(VERSION) -v date=$(RELEASED) -f docs/man/section3.awk $(HEADERS)

man: $(MAN3) ## the manual pages, in docs/man and build/man

# The archive stays here: one engine per process.
install: all man ## headers, libraries, command, cowshed.pc, units, man pages
	$(Q)install -d $(DESTDIR)$(bindir) $(DESTDIR)$(includedir) \
		$(DESTDIR)$(libdir)/pkgconfig $(DESTDIR)$(unitdir)
	$(Q)install -m 644 $(HEADERS) $(DESTDIR)$(includedir)
	$(Q)install -m 755 $(LIB_SO) $(DESTDIR)$(libdir)/libcowshed.so.$(VERSION)
	$(Q)ln -sf libcowshed.so.$(VERSION) $(DESTDIR)$(libdir)/libcowshed.so.0
	$(Q)ln -sf libcowshed.so.0 $(DESTDIR)$(libdir)/libcowshed.so
	$(Q)$(if $(PRELOAD_SO),install -m 755 $(PRELOAD_SO) $(COPIES_SO) \
		$(DESTDIR)$(libdir))
	$(Q)$(if $(CLI),install -m 755 $(CLI) $(DESTDIR)$(bindir))
	$(Q)for unit in $(UNITS); do sed 's|@bindir@|$(bindir)|' $$unit \
		>$(DESTDIR)$(unitdir)/$${unit##*/} || exit; done
	$(Q)chmod 644 $(addprefix $(DESTDIR)$(unitdir)/,$(notdir $(UNITS)))
	$(Q)install -Dm 644 -t $(DESTDIR)$(mandir)/man1 $(MAN1)
	$(Q)install -Dm 644 -t $(DESTDIR)$(mandir)/man3 build/man/*.3
	$(Q)install -Dm 644 -t $(DESTDIR)$(mandir)/man7 $(MAN7)
	$(Q)while read -r name page; do ln -sf $$page.3 $(DESTDIR)$(mandir)/man3/$$name.3 || \
		exit; done <$(MAN3)
	$(Q)printf '%s\n' 'prefix=$(prefix)' 'libdir=$(libdir)' 'includedir=$(includedir)' '' \
		'Name: cowshed' 'Version: $(VERSION)' \
		'Description: Copy-on-write, shareable memory for Linux' \
		'Libs: -L$${libdir} -lcowshed' 'Cflags: -I$${includedir}' \
		> $(DESTDIR)$(libdir)/pkgconfig/cowshed.pc
	$(Q)chmod 644 $(DESTDIR)$(libdir)/pkgconfig/cowshed.pc

# Folders stay, also empty ones: none is cowshed's alone.
uninstall: man ## take all of that away, but no folder
	$(Q)rm -f $(addprefix $(DESTDIR)$(includedir)/,$(notdir $(HEADERS))) \
		$(DESTDIR)$(libdir)/libcowshed.so $(DESTDIR)$(libdir)/libcowshed.so.0 \
		$(DESTDIR)$(libdir)/libcowshed.so.$(VERSION) \
		$(DESTDIR)$(libdir)/libcowshed-preload.so \
		$(DESTDIR)$(libdir)/libcowshed-copies.so $(DESTDIR)$(bindir)/cowshed \
		$(DESTDIR)$(libdir)/pkgconfig/cowshed.pc \
		$(addprefix $(DESTDIR)$(unitdir)/,$(notdir $(UNITS))) \
		$(addprefix $(DESTDIR)$(mandir)/man1/,$(notdir $(MAN1))) \
		$(addprefix $(DESTDIR)$(mandir)/man7/,$(notdir $(MAN7)))
	$(Q)(cd build/man && ls *.3; sed 's/ .*/.3/' links) | \
		(cd $(DESTDIR)$(mandir)/man3 2>/dev/null && xargs rm -f)

# The same objects, linked anew: in the system's own folders there is no need of run paths.
deb: all ## Debian packages, in build/deb
	$(Q)rm -rf build/deb/tree
	$(Q)triplet=$$(dpkg-architecture -qDEB_HOST_MULTIARCH) && $(MAKE) -s B=build/deb/linked \
		O=$(O) RUNPATH= DESTDIR=build/deb/tree prefix=/usr \
		libdir=/usr/lib/$$triplet install
	$(Q)VERSION=$(VERSION) RELEASED=$(RELEASED) scripts/deb.sh build/deb

-include $(wildcard $(O)/*/*.d $(O)/*/*/*.d $(O)/*/*/*/*.d $(B)/tests/programs/*.d \
	$(B)/tests/stress/*.d)
