# SPDX-License-Identifier: MIT
#
# What there is to make. The rules are in mk/, a page each:
#
#     config.mk     modes, folders, compilers, flags
#     libraries.mk  the libraries, the shim, the command
#     python.mk     the Python package
#     tests.mk      how tests, benchmarks and examples are built
#     check.mk      which tests run when
#     install.mk    the manual, installation, Debian packages
#
# Sources are found by their names, so a new file needs no edit here. All that is built lies in
# build/$(MODE)/: lib/ bin/ python/ (a PYTHONPATH) tests/ bench/ examples/ obj/.
#
# Variables:
#     MODE=plain|debug|asan|tsan|cov|fuzz
#     T=TEXT            check: only tests with TEXT in their path, as T=core/cow, also slow ones
#     STRICT=1          check: a skipped test is a failure; V=1: a line for each test
#     V=1               show commands
#     NO_INSTALL=1      install no packages
#     FUZZ_SECONDS=60   check in MODE=fuzz: for each target
#     KERNELS=, SETS=, FULL=1   check-kernels: see scripts/check-kernels.sh
#     SECONDS=600       check-chaos, stress, soak: how long; SEED=: from where
#     PYTHON            the Python whose headers are used; PYTHON_NOGIL: one without the GIL
#     OUTSIDE=quick     check-outside: the part of 20 minutes
#     CC CXX CFLAGS CXXFLAGS LDFLAGS    the last three are appended to ours
#     DESTDIR prefix bindir libdir includedir mandir unitdir    install; RUNPATH=: no run paths

.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
.SECONDARY:

include $(addprefix mk/,config.mk libraries.mk python.mk tests.mk check.mk install.mk)

# "make clean all" cleans first.
ifneq ($(filter clean,$(MAKECMDGOALS)),)
.NOTPARALLEL:
endif

.PHONY: $(shell sed -nE 's/^([a-z-]+):.*/\1/p' Makefile mk/*.mk)

all: $(ALL) ## the libraries, the command, the examples (default)

objects: $(filter-out build/kernels/%,$(LIB_OBJ)) $(PRELOAD_OBJ) $(COPIES_OBJ) $(CLI_OBJ) ## what all links, compiled only

everything: all $(CHECKED) ## the same, with tests and benchmarks

python: $(PACKAGE_EXT) $(PACKAGE_PY) $(PACKAGE_BUILT) ## the Python package, in build/plain/python
	$(Q)find $(PACKAGE) -xtype l -delete

# ---- Checks -----------------------------------------------------------------

CHECK := BUILD='$(B)' MODE='$(MODE)' V='$(filter 1,$(V))' scripts/check.sh

check: $(NEEDED) $(PYTHON_ENV) ## build all, run the tests: minutes
	$(Q)$(SHORTER) $(CHECK) $(if $(and $(SHORTER),$(if $(T),,all)),$(filter-out $(SLOW),$(RUN)),$(RUN))

check-rest: $(NEEDED) $(PYTHON_ENV) ## the tests that check leaves out or shortens; BUDGET=: seconds for them
	$(Q)$(if $(SHORTER),BUDGET='$(BUDGET)' $(CHECK) $(REST),echo 'MODE=$(MODE): make check leaves nothing out')

check-all: $(NEEDED) $(PYTHON_ENV) $(if $(T),,$(LONG)) ## all tests, none shortened, and the long ones
	$(Q)LONG=1 $(CHECK) $(RUN) $(LONG) $(LONG_SCRIPTS)

nogil: everything ## a CPython without the GIL, built in build/nogil if there is none, and the module for it
	$(Q)python=$$(scripts/nogil.sh build) && $(MAKE) python PYTHON="$$python"

check-nogil: nogil ## the tests of the Python package in that
	$(Q)python=$$(scripts/nogil.sh venv) && PYTHON="$$python" $(CHECK) \
		$(filter tests/python/test_%.py,$(PYTHON_TESTS))

check-newest: everything ## the tests of the Python package with the newest packages that the index has
	$(Q)rm -rf build/venv-newest && sed 's/==.*//' python/requirements-test.txt >build/newest.txt
	$(Q)scripts/python-env.sh build/newest.txt build/venv-newest
	$(Q)PYTHON="$$PWD/build/venv-newest/bin/python" $(CHECK) \
		$(filter tests/python/test_%.py,$(PYTHON_TESTS))

lint: python-env $(LIB_OBJ) $(LIBS_SO) $(PRELOAD_SO) $(if $(PYTHON_H),python) ## the rules of CONTRIBUTING.md, on files and objects
	$(Q)export BUILD='$(B)' CC='$(CC)' CXX='$(CXX)' PYTHON_H='$(PYTHON_H)'; \
		bad=0; for part in lint-python lint-folders lint-objects lint-libc lint; do \
			scripts/$$part.sh || bad=1; done; exit $$bad

analyze: ## static analysis: cppcheck, clang-tidy, gcc -fanalyzer (5 minutes)
	$(Q)scripts/analyze.sh

check-programs: everything python-env ## real programs and their own tests under the shim
	$(Q)LIMIT=7200 $(CHECK) $(PROGRAM_SCRIPTS)

programs-table: everything ## real programs with and without the shim, measured; writes docs/coverage.md: an hour, root
	$(Q)BUILD='$(B)' scripts/programs-table.sh

check-outside: everything ## what others wrote, with and without the shim: hours; OUTSIDE=quick: 20 minutes
	$(Q)BUILD='$(B)' scripts/check-outside.sh

check-roots: ## what make wheels built, installed into Debian 11, Debian 13 and arm64; root, debootstrap
	$(Q)scripts/check-roots.sh; status=$$?; [ $$status -eq 77 ] || exit $$status

check-valgrind: everything ## the tests of the library under valgrind (hours)
	$(Q)LIMIT=3600 CK_TIMEOUT_MULTIPLIER=20 \
		AROUND='valgrind -q --error-exitcode=9 --child-silent-after-fork=no' $(CHECK) \
		$(filter-out $(foreach t,$(NOT_VALGRIND),$(B)/tests/$(dir $t)test_$(notdir $t)),$(TESTS))

check-kernels: everything ## tests on Debian's kernels, x86-64 and arm64, in QEMU; writes docs/platforms.md (an hour)
	$(Q)scripts/check-kernels.sh

check-older: everything ## short tests of core, memfd, quiet and share as if on Linux 5.10 and 6.1: minutes
	$(Q)bad=0; for kernel in 5.10 6.1; do echo "as on $$kernel:"; \
		AROUND="$(B)/tests/programs/older $$kernel" QUICK=1 T=tests $(CHECK) \
			$(filter $(addprefix $(B)/tests/,core/% memfd/% quiet/% share/%),$(TESTS) $(FAULT)) || bad=1; \
		done; exit $$bad

check-model: ## the protocols of share/, of safe points, rewrites and strangers, every order of steps (spin)
	$(Q)CC='$(CC)' bash tests/model/share.sh || [ $$? -eq 77 ]
	$(Q)CC='$(CC)' bash tests/model/park.sh || [ $$? -eq 77 ]
	$(Q)CC='$(CC)' bash tests/model/stop.sh || [ $$? -eq 77 ]
	$(Q)CC='$(CC)' bash tests/model/rewrite.sh || [ $$? -eq 77 ]
	$(Q)CC='$(CC)' bash tests/model/border.sh || [ $$? -eq 77 ]

SECONDS ?= 600
check-chaos: everything ## processes that share and are killed, for SECONDS=600, from SEED=
	$(Q)$(B)/tests/stress/share_storm $(SECONDS) \
		$(or $(SEED),$(shell date +%s)) 12

stress: everything ## fork storms for SECONDS=600 (0: for ever), from SEED=
	$(Q)BUILD='$(B)' STRESS='$(SECONDS)' bash tests/preload/storm.sh

soak: everything ## both in turns for hours, SECONDS=7200, and what memory is left
	$(Q)BUILD='$(B)' bash tests/stress/soak.sh $(if $(filter file,$(origin SECONDS)),7200,$(SECONDS))

check-gpu: everything ## the CUDA tests on the machine's own driver and GPU
	$(Q)BUILD='$(B)' bash scripts/check-gpu.sh

coverage: ## lines that no test runs: build/cov/coverage.txt (an hour)
	$(Q)rm -rf build/cov/profiles
	$(Q)$(MAKE) check MODE=cov; r=$$?; BUILD=build/cov scripts/coverage.sh && exit $$r

# ---- Measurements -----------------------------------------------------------

demo: $(ALL) $(B)/bench/plain_measure $(if $(PYTHON_H),python,no-python) ## a minute that shows what it is for
	$(Q)BUILD='$(B)' bash bench/demo.sh

bench: everything python-env ## measure; writes docs/results.md, its tables and plots
	$(Q)scripts/python-env.sh bench/requirements.txt build/venv-plots
	$(Q)BUILD='$(B)' bash bench/run.sh; status=$$?; \
		if python=$$(PYTHON=build/venv-plots/bin/python scripts/python.sh); then \
			"$$python" bench/results.py build/bench.txt || status=1; \
		else echo 'bench: no Python of 3.11 or newer: no docs/results.md'; fi; exit $$status

bench-gpu: everything ## measure on a GPU: ours, the driver's own, PyTorch's
	$(Q)BUILD='$(B)' bash bench/gpu.sh

bench-python: everything python-env ## measure the Python package: ours, torch.multiprocessing, Dask, ...
	$(Q)BUILD='$(B)' bash bench/python.sh

# ---- Installation and chores ------------------------------------------------

man: $(MAN3) ## the manual pages, in docs/man and build/man

install: all man install-files ## headers, libraries, command, pkg-config files, units, man pages

uninstall: man uninstall-files ## remove all of that, but no folder

deb: all deb-files ## Debian packages, in build/deb

wheels: ## wheels and Debian packages for old libcs, both architectures, in build/wheels; fetches tools
	$(Q)PYTHON='$(PYTHON)' scripts/wheels.sh

deps: ## install missing packages (NO_INSTALL=1: only name them)
	@:

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

-include $(shell find $(B) -name '*.d' 2>/dev/null)
