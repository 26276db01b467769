# SPDX-License-Identifier: MIT
#
# config.mk: the mode, the folders of a build, compilers and flags. A change here compiles
# everything again.

MODE ?= plain
# WITHOUT=NAME leaves a mechanism out, for bench/ablate.sh.
WITHOUT ?=
B := build/$(MODE)$(WITHOUT:%=-without-%)
O := $(B)/obj
V ?= 0
Q := $(if $(filter 1,$(V)),,@)
SHORT_FLAGS := $(filter-out --%,$(firstword -$(MAKEFLAGS)))
SILENT := $(findstring s,$(SHORT_FLAGS))
say = $(if $(Q),$(if $(SILENT),,@printf '  %-7s %s\n' '$(1)' '$(2)'))
# Before tests and measurements a build says a line for each folder, when it comes to it first.
ifneq ($(filter check check-% demo bench bench-% stress soak,$(MAKECMDGOALS)),)
say = $(if $(Q),$(if $(SILENT)$(filter build/%,$(2)),,@[ -d '$(@D)' ] || echo '  build   $(dir $(2))'))
endif

ifeq ($(origin CC),default)
CC := $(if $(filter fuzz cov,$(MODE)),clang,gcc)
endif
ifeq ($(origin CXX),default)
CXX := $(if $(filter cov,$(MODE)),clang++,g++)
endif
AR ?= ar
PKG_CONFIG ?= pkg-config
# -j on the command line wins over this. So does the -j of a make that calls this one.
MAKEFLAGS += --no-builtin-rules \
	$(if $(filter 0,$(MAKELEVEL)),-j$(shell nproc 2>/dev/null || echo 2))

# Missing packages are installed here, before the lines below ask which are there. make -n,
# -q and -t install nothing.
NEED_DEPS := $(filter deps check check-% coverage stress soak demo bench bench-% lint analyze,$(MAKECMDGOALS))
ifneq ($(NEED_DEPS),)
ifeq ($(strip $(foreach f,n q t,$(findstring $(f),$(SHORT_FLAGS)))),)
$(shell NO_INSTALL='$(NO_INSTALL)' scripts/deps.sh $(filter-out deps,$(NEED_DEPS)) \
	$(if $(filter fuzz cov,$(MODE)),check $(MODE)) >&2)
ifneq ($(.SHELLSTATUS),0)
$(error a required package is missing)
endif
endif
endif

# ---- Flags ------------------------------------------------------------------

plain_FLAGS := -O2
debug_FLAGS := -O0 -g3 -fno-omit-frame-pointer -DCOW_DEBUG
asan_FLAGS  := -O1 -fno-omit-frame-pointer -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined
tsan_FLAGS  := -O1 -fno-omit-frame-pointer -fsanitize=thread -Wno-tsan
# The counters lie in a mapped file, so those of children and killed processes count, too.
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
# The prefix map keeps the build's folder out of the objects.
BASE := -g -ffile-prefix-map='$(CURDIR)'=. $(MODE_FLAGS) -I. -Iinclude -pthread -MMD -MP \
	$(if $(SANITIZED),-DCOW_SANITIZED) $(WITHOUT:%=-DCOW_WITHOUT_%=1)
C_BASE := -std=gnu11 -D_GNU_SOURCE= $(BASE)
# CFLAGS, CXXFLAGS and LDFLAGS belong to the user and come last.

# Hardening of what is installed. _FORTIFY_SOURCE needs an optimizer; control-flow protection
# needs a compiler that knows it.
has_flag = $(shell echo | $(CC) -Werror $(1) -fsyntax-only -x c - >/dev/null 2>&1 && echo '$(1)')
HARDEN := -fstack-protector-strong $(call has_flag,-fcf-protection) \
	$(call has_flag,-mbranch-protection=standard) \
	$(if $(filter plain,$(MODE)),-U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)

LIB_CFLAGS := $(C_BASE) $(C_WARN) $(HARDEN) -fPIC -fvisibility=hidden -fno-plt \
	-ftls-model=initial-exec

# The flags of a source: those of its top-level folder, then those of the file itself.
FLAGS_memfd := $(LIB_CFLAGS)
FLAGS_quiet := $(LIB_CFLAGS)
FLAGS_core := $(LIB_CFLAGS)
FLAGS_share := $(LIB_CFLAGS)
FLAGS_tensor := $(LIB_CFLAGS)
FLAGS_cuda := $(LIB_CFLAGS)
FLAGS_preload := $(LIB_CFLAGS) -fno-builtin
FLAGS_cli := $(C_BASE) $(C_WARN) $(HARDEN) -fPIE
FLAGS_bench := $(C_BASE) $(WARN) -DBENCH_SOURCES='"$(CURDIR)/bench"'
FLAGS_examples := $(FLAGS_bench)
# Tests compile faster at -O1.
FLAGS_tests := $(C_BASE) $(WARN) $(if $(filter plain,$(MODE)),-O1) $(shell $(PKG_CONFIG) --cflags check)
TEST_CXXFLAGS := -std=gnu++17 $(BASE) $(WARN) $(shell $(PKG_CONFIG) --cflags check)

# Code of threads without thread-local storage, where the stack canary lives. The sanitizers
# keep their data there, too: with them the library makes no such thread.
NO_TLS := memfd/thread.c core/memory/helper.c core/memory/workers.c
# Code that is memcpy or strlen must not call it.
COPIES_CFLAGS := $(call has_flag,-fno-tree-loop-distribute-patterns) -fno-stack-protector
# What our libraries bring of libc, each for itself: hidden functions (memfd/bytes.c).
OWN_LIBC := memfd/bytes.c memfd/text.c
DRIVER_FLAGS := -fPIC -fvisibility=hidden
# Code that waits for the kernel or the disk, and is part of every program under the shim: small
# rather than fast.
SMALL := core/program/% core/fork/border.c core/fork/eager.c core/fork/retire.c \
	core/memory/stranger.c core/base/feature.c core/base/profile.c core/base/settings.c \
	core/storage/moment.c memfd/moment.c memfd/probe.c memfd/tries.c share/file.c share/broker.c \
	share/broker_put.c share/export.c share/group.c share/io.c share/transfer.c
flags = $(FLAGS_$(firstword $(subst /, ,$(1)))) \
	$(if $(filter plain,$(MODE)),$(if $(filter $(SMALL),$(1)),-Os)) \
	$(if $(filter $(NO_TLS),$(1)),-fno-stack-protector) \
	$(if $(filter preload/copies/% $(OWN_LIBC),$(1)),-fno-builtin $(COPIES_CFLAGS)) \
	$(if $(filter tests/driver/%,$(1)),$(DRIVER_FLAGS)) \
	$(if $(filter %/fiber.c,$(1)),-fno-sanitize=all)

# Programs for the shim: calls of malloc must stay calls.
PROGRAM_FLAGS := -O1 -g -fno-builtin -pthread -MMD -MP -Wall -Wextra

LINK := -pthread $(MODE_FLAGS) -Wl,-z,relro,-z,now,--enable-new-dtags
LINK_SO := $(LINK) -shared $(if $(SANITIZED),,-Wl,-z,defs)
# Tests run on machines with a GPU and without packages, so subunit is linked statically.
SUBUNIT_A := $(filter /%,$(shell $(CC) -print-file-name=libsubunit.a))
TEST_LIBS := $(patsubst -lsubunit,$(or $(SUBUNIT_A),-lsubunit),\
	$(shell $(PKG_CONFIG) --libs check)) -lpthread
# For tests that put memory under I/O. Without liburing they are left out.
URING := $(shell $(PKG_CONFIG) --libs liburing 2>/dev/null)
# Run paths let a build, and an installation in any folder, work where it lies. The loader's own
# folders need none: RUNPATH= leaves them out.
RUNPATH ?= yes
ifneq ($(RUNPATH),)
RUNPATH_LIB := -Wl,-rpath,'$$ORIGIN/../lib'
RUNPATH_BESIDE := -Wl,-rpath,'$$ORIGIN'
endif

# ---- Compiling --------------------------------------------------------------

# The files below DIRS that match PATTERNS, two folders deep at most, sorted.
files = $(sort $(foreach d,$(1),$(wildcard $(foreach p,$(2),$d/$p $d/*/$p $d/*/*/$p))))
obj = $(addprefix $(O)/,$(addsuffix .o,$(basename $(1))))
bin = $(addprefix $(B)/,$(basename $(1)))

$(O)/%.o: %.c mk/config.mk
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(call flags,$<) $(CFLAGS) -c -o $@ $<

$(O)/%.o: %.cc mk/config.mk
	$(call say,CXX,$<)
	@mkdir -p $(@D)
	$(Q)$(CXX) $(TEST_CXXFLAGS) $(CXXFLAGS) -c -o $@ $<
