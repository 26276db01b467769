# SPDX-License-Identifier: MIT
#
# libraries.mk: the libraries, the shim, the command.
#
#     libcowshed          memfd/ quiet/ core/ share/    the engine: all that the shim needs
#     libcowshed-tensor   tensor/                on libcowshed
#     libcowshed-cuda     cuda/                  on both
#     libcowshed-preload  preload/               the shim, on libcowshed
#     libcowshed-copies   preload/copies/        memcpy and memmove, on libcowshed
#     libcowshed.a        the first three, for tests, which also use hidden names

# Machine code for devices. Without nvcc the images are empty (cuda/kernels.h).
NVCC   ?= $(shell command -v nvcc)
IMAGES := $(patsubst cuda/kernels/%.cu,build/kernels/%,$(sort $(wildcard cuda/kernels/*.cu)))

ENGINE_OBJ  := $(call obj,$(call files,memfd quiet core share,*.c))
TENSOR_OBJ  := $(call obj,$(call files,tensor,*.c))
CUDA_OBJ    := $(call obj,$(sort $(wildcard cuda/*.c))) $(IMAGES:%=%.o)
LIB_OBJ     := $(ENGINE_OBJ) $(TENSOR_OBJ) $(CUDA_OBJ)
PRELOAD_OBJ := $(call obj,$(sort $(wildcard preload/*.c)))
OWN_OBJ     := $(call obj,$(OWN_LIBC))
COPIES_OBJ  := $(call obj,$(sort $(wildcard preload/copies/*.c)))
CLI_OBJ     := $(call obj,$(sort $(wildcard cli/*.c)))

LIB_A      := $(B)/lib/libcowshed.a
LIB_SO     := $(B)/lib/libcowshed.so.0
TENSOR_SO  := $(B)/lib/libcowshed-tensor.so.0
CUDA_SO    := $(B)/lib/libcowshed-cuda.so.0
LIBS_SO    := $(LIB_SO) $(TENSOR_SO) $(CUDA_SO)
# The names that the linker looks for.
LIBS_LINK  := $(LIBS_SO:.0=)
PRELOAD_SO := $(B)/lib/libcowshed-preload.so
COPIES_SO  := $(B)/lib/libcowshed-copies.so
CLI        := $(B)/bin/cowshed

# The same in all modes. Newer devices compile the PTX of the last one.
SMS := 75 80 86 89 90
NVCC_FLAGS := -std=c++17 -O3 -I. -Iinclude -fatbin -Xfatbin -compress-all \
	$(foreach sm,$(SMS),-gencode arch=compute_$(sm),code=sm_$(sm)) \
	-gencode arch=compute_$(lastword $(SMS)),code=compute_$(lastword $(SMS))

build/kernels/%.fatbin: cuda/kernels/%.cu $(wildcard cuda/kernels/*.h) tensor/rules.h tensor/half.h \
		include/cowshed-tensor.h mk/libraries.mk
	$(call say,$(if $(NVCC),NVCC,NO NVCC),$<)
	@mkdir -p $(@D)
	$(Q)$(if $(NVCC),$(NVCC) $(NVCC_FLAGS) -o $@ $<,: >$@)

build/kernels/%.o: build/kernels/%.fatbin cuda/kernels/image.S
	$(Q)$(CC) -DNAME=cow__image_$* -DIMAGE='"$<"' $(HARDEN) -fPIC -c -o $@ cuda/kernels/image.S

# The commit of the source, for people who look at a process. An object of its own, and in the
# shared library alone: a new commit links no test anew.
COMMIT ?= $(if $(wildcard .git),$(shell git rev-parse --short=12 HEAD 2>/dev/null))
force:
$(O)/commit.c: force
	@mkdir -p $(@D)
	@echo 'extern const char cow__commit[48]; const char cow__commit[48] = "$(COMMIT)";' >$@.new
	@if cmp -s $@.new $@; then rm $@.new; else mv $@.new $@; fi
$(O)/commit.o: $(O)/commit.c
	$(Q)$(CC) $(LIB_CFLAGS) $(CFLAGS) -c -o $@ $<

# Without memcpy and its like: the linker would take them for the whole program.
$(LIB_A): $(filter-out $(OWN_OBJ),$(LIB_OBJ))
	$(call say,AR,$@)
	@mkdir -p $(@D)
	@rm -f $@
	$(Q)$(AR) rcsD $@ $^

# No library is ever unloaded: threads and fork handlers live in them, and memory comes from
# them. link_so: of the objects and libraries before |; NAME.map names the exports.
define link_so
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK_SO) -Wl,-soname,$(notdir $@) -Wl,-z,nodelete $(1) \
		-Wl,--version-script=$(filter %.map,$^) -o $@ $(filter-out %.map,$^) $(LDFLAGS)
endef

# The engine is initialised before other libraries. Of fork handlers the one registered first
# runs last before the fork, and handlers of others that allocate must find the engine
# unlocked (docs/design/fork.md). At that time libc does not know the environment yet, which
# names the file for the counters of MODE=cov.
$(LIB_SO): $(ENGINE_OBJ) $(O)/commit.o core/libcowshed.map
	$(call link_so,$(if $(filter cov,$(MODE)),,-Wl,-z,initfirst))

$(TENSOR_SO): $(TENSOR_OBJ) $(LIB_SO) tensor/libcowshed-tensor.map
	$(call link_so,$(RUNPATH_BESIDE))

$(CUDA_SO): $(CUDA_OBJ) $(LIB_SO) $(TENSOR_SO) cuda/libcowshed-cuda.map
	$(call link_so,$(RUNPATH_BESIDE))

$(LIBS_LINK): %.so: %.so.0
	@ln -sf $(notdir $<) $@

$(PRELOAD_SO): $(PRELOAD_OBJ) $(OWN_OBJ) $(LIB_SO) preload/preload.map
	$(call link_so,$(RUNPATH_BESIDE))

$(COPIES_SO): $(COPIES_OBJ) $(LIB_SO) preload/copies/copies.map
	$(call link_so,$(RUNPATH_BESIDE))

$(CLI): $(CLI_OBJ) $(LIB_SO) | $(CUDA_SO)
	$(call say,LINK,$@)
	@mkdir -p $(@D)
	$(Q)$(CC) $(LINK) -pie $(RUNPATH_LIB) -o $@ $(CLI_OBJ) $(LIB_SO) $(LDFLAGS)
