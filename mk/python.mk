# SPDX-License-Identifier: MIT
#
# python.mk: the Python package as it is installed. It holds links to what is built and to the
# sources: the extension module, and beside it the libraries, the shim and the command.

# The stable ABI of Python 3.11: one module for that version and all later ones. Headers of
# any of these versions will do. A Python without the GIL, whose folder of headers ends with "t",
# has no stable ABI: it gets a module of its own, beside the other one in the package.
PYTHON ?=
PYTHON_H := $(if $(SANITIZED),,$(shell PYTHON='$(PYTHON)' bash scripts/python.sh include))
NOGIL := $(filter %t,$(notdir $(PYTHON_H)))
EXT_SUFFIX ?= $(if $(NOGIL),$(shell '$(or $(PYTHON),python3)' -c \
	'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))'),.abi3.so)
FLAGS_python = $(C_BASE) $(C_WARN) $(HARDEN) -Werror=implicit-function-declaration -fPIC \
	-fvisibility=hidden -isystem '$(PYTHON_H)' -Wno-write-strings

PACKAGE := $(B)/python/cowshed
PACKAGE_EXT := $(PACKAGE)/_cowshed$(EXT_SUFFIX)
PACKAGE_EXT_OBJ := $(patsubst %.c,$(O)/%$(if $(NOGIL),.$(NOGIL)).o,$(wildcard python/_cowshed/*.c))
PACKAGE_PY := $(patsubst %,$(B)/%,$(foreach d,python/cowshed python/cowshed/*,\
	$(wildcard $d/*.py $d/*.pyi $d/py.typed)))
PACKAGE_BUILT := $(PACKAGE)/bin/cowshed $(addprefix $(PACKAGE)/lib/,$(notdir \
	$(LIBS_SO) $(PRELOAD_SO) $(COPIES_SO)))

$(PACKAGE_EXT_OBJ): | $(if $(PYTHON_H),,no-python-headers)
no-python-headers:
	$(error no Python.h of 3.11 or newer was found (Debian: python3-dev))

$(O)/python/_cowshed/%.$(or $(NOGIL),no-gil).o: python/_cowshed/%.c mk/config.mk
	$(call say,CC,$<)
	@mkdir -p $(@D)
	$(Q)$(CC) $(FLAGS_python) $(CFLAGS) -c -o $@ $<

# The interpreter brings the undefined symbols. The loader knows libcowshed.so.0 by its name, so
# the one that the shim has loaded serves the module, too.
$(PACKAGE_EXT): $(PACKAGE_EXT_OBJ) $(LIB_SO) $(TENSOR_SO)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -shared -Wl,-rpath,'$$ORIGIN/lib' -o $@ $^ $(LDFLAGS)

$(PACKAGE_PY): $(B)/%: %
	@mkdir -p $(@D)
	$(Q)ln -srf $< $@

$(PACKAGE_BUILT): $(PACKAGE)/%: $(B)/%
	@mkdir -p $(@D)
	$(Q)ln -srf $< $@
