# SPDX-License-Identifier: MIT
#
# check.mk: what a mode builds, and which tests run when.
#
#     make check         all tests but SLOW, with QUICK=1: minutes
#     make check-rest    what check leaves out: SLOW, and what QUICK=1 shortens
#     make check-all     all tests, none shortened, and LONG: half an hour
#
# QUICK=1 shortens four kinds of test: random programs run a quarter of the rounds (ROUNDS() in
# tests/support/support.h), sweeps try three errors of nine (tests/support/fault/sweep.h),
# scripts of tests/preload run programs at one threshold of three (lib.sh), forks.sh fewer
# programs. make check sets it in the modes plain and debug.
#
# Sanitizers bring a malloc of their own, so the shim and its tests stay out with them.

SCRIPTS := $(filter-out %/lib.sh %/common.sh,$(wildcard tests/preload/*.sh))
LONG_SCRIPTS := $(wildcard tests/packaging/long_*.sh)
PROGRAM_SCRIPTS := tests/preload/real.sh \
	$(filter-out %/lib.sh,$(wildcard tests/preload/programs/*.sh tests/preload/programs/beside/*.sh))

# A test of Python runs once, and once more under the shim (tests/python/run.sh). These run once:
# they start processes under the shim themselves, or none.
PYTHON_ONCE := $(addprefix tests/python/test_,dask_cluster.py docs.py joblib.py profile.py ray.py readme.py results.py \
	templates_hung.py templates_killed.py torch_install.py tutorial.py types.py)
# The scripts take longest, so they come first.
PYTHON_TESTS := $(if $(PYTHON_H),$(filter-out %/run.sh,$(wildcard tests/python/*.sh)) \
	$(foreach t,$(wildcard tests/python/test_*.py),$t $(if $(filter $(PYTHON_ONCE),$t),,$t:shim)))

ifeq ($(MODE),fuzz)
ALL := $(LIB_A) $(FUZZ)
RUN := $(FUZZ)
else ifneq ($(SANITIZED),)
ALL := $(LIB_A) $(LIBS_SO) $(LIBS_LINK) $(CLI) $(EXAMPLES)
RUN := $(TESTS) $(FAULT) $(FUZZ)
else
ALL := $(LIB_A) $(LIBS_SO) $(LIBS_LINK) $(PRELOAD_SO) $(COPIES_SO) $(CLI) \
	$(EXAMPLES)
RUN := $(TESTS) $(FAULT) $(FUZZ) $(EXAMPLES) $(SCRIPTS) tests/stress/share_storm.sh \
	tests/oracle/copies.sh tests/device/installed.sh $(wildcard tests/cuda/*.sh) \
	$(filter-out $(LONG_SCRIPTS),$(wildcard tests/packaging/*.sh)) \
	$(PYTHON_TESTS)
EXTRA := $(PROGRAMS) $(BENCH) $(INNER_BENCH) $(PLAIN_BENCH) $(NOTER) $(if $(PYTHON_H),python,no-python)
endif

# Not in make check, because of the time that they take (check-all says it).
#
# These take more than 10 seconds and stay, since no shorter test is about the same:
#     preload/forks.sh hostile.sh pages.sh   programs that fork, forbid and unmap under the shim
#     support/test_harness                   waits until a test that hangs is ended
#     core/fork/fault_fork                   each kernel call of a fork fails
SLOW := $(call bin,$(addsuffix .c,$(addprefix tests/,\
	core/fault_denied cuda/fault_copy cuda/fault_share fuzz/fuzz_strided fuzz/fuzz_views tensor/test_strided))) \
	$(patsubst %,tests/preload/%.sh,allocators containers copies demo filters limits mmap options real storm) \
	tests/stress/share_storm.sh tests/cuda/foreign.sh \
	$(addprefix tests/python/,harness.sh install.sh stdlib.sh) \
	$(patsubst %,tests/python/test_%.py,arrays benchmarks checkpoint dask dask_cluster examples \
	files_mutated joblib pickle process ray snapshot templates templates_hung templates_killed threads \
	torch_elsewhere torch_install torch_loader torch_reduce torch_sharing tutorial types) \
	$(filter-out %/test_fork.py:shim,$(filter %:shim,$(PYTHON_TESTS)))

# QUICK=1 is for make check alone, whatever the environment has.
unexport QUICK
SHORTER := $(if $(filter plain debug,$(MODE)),QUICK=1)
# What QUICK=1 shortens, and SLOW.
REST := $(if $(SHORTER),$(SLOW) $(filter-out $(SLOW),$(FAULT) $(SCRIPTS) \
	$(call bin,$(shell grep -lrE '\<(ROUNDS\>|rounds.[0-9A-Z])' tests --include='test_*.c' --include='test_*.cc' \
	--include='bug_*.c' 2>/dev/null))))

# What can't be built here is counted as skipped.
export LEFT_OUT := $(strip $(if $(URING),,$(WITH_URING:.c=):liburing) \
	$(if $(SANITIZED)$(PYTHON_H),,tests/python:Python.h))
RUN += $(if $(filter fuzz,$(MODE)),,$(if $(LEFT_OUT),scripts/left-out.sh))

CHECKED := $(if $(filter fuzz,$(MODE)),,$(DRIVER_SO) $(TESTS) $(FAULT) $(EXTRA)) $(FUZZ)

# With T=TEXT nothing but programs is built, if programs are all that is to run.
SELECTED := $(if $(T),$(foreach t,$(RUN) $(LONG) $(LONG_SCRIPTS),$(if $(findstring $(T),$t),$t)))
NEEDED := $(if $(SELECTED),$(if $(filter-out $(B)/%,$(SELECTED)),everything,\
	$(SELECTED) $(CLI) $(LIBS_SO)),everything)

# The packages of Python's tests are fetched only if one of these tests is to run.
PYTHON_ENV := $(if $(filter fuzz asan tsan,$(MODE)),,$(if $(T),$(if $(findstring $(T),\
	$(PYTHON_TESTS)),python-env),$(if $(PYTHON_H),python-env)))

# Under valgrind, limits, other programs and measured memory are valgrind's own, so tests of
# these stay out. channel and io do not end there.
NOT_VALGRIND := share/broker/others share/broker/start share/channel core/fallbacks \
	core/fork/fork_hard core/fork/large_family hostile/floods core/program/mapping hostile/limits share/io \
	core/memory/memory core/options core/storage/storage
