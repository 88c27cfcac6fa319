# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Unit tests: tests/unit/test_X.c includes the module's .c and those that it needs.

UNIT_FLAGS := -std=gnu11 -D_GNU_SOURCE -g1 -Og -fsanitize=address,undefined \
	-fno-sanitize-recover=undefined -Iinclude -Isrc -I$(BUILD) -Itests/unit $(WARN) -Wno-unused-function
UNIT_TESTS := $(patsubst tests/unit/%.c,$(BUILD)/tests/%,$(filter-out %/test_api_prototypes.c,$(wildcard tests/unit/test_*.c)))
include tests/plugin/plugin.mk
TARGETS := $(patsubst tests/targets/%.c,$(BUILD)/tests/targets/%,$(wildcard tests/targets/*.c)) \
	$(patsubst tests/targets/%.cc,$(BUILD)/tests/targets/%,$(wildcard tests/targets/*.cc))
# Without libfuse3-dev there is no FUSE server, and its tests are skipped.
ifeq ($(wildcard /usr/include/fuse3/fuse.h),)
TARGETS := $(filter-out %/fuse_mirror,$(TARGETS))
endif

$(BUILD)/tests/test_%: tests/unit/test_%.c $(wildcard src/*.[ch]) $(wildcard tests/unit/*.h) $(SKELETON)
	@mkdir -p $(@D)
	$(CC) $(UNIT_FLAGS) -o $@ $< -lelf -lm -ljansson

# The API table against NVIDIA's own header, where there is one; NCCL_H=FILE names another.
NCCL_H ?= $(firstword $(wildcard /usr/local/cuda/include/nccl.h /usr/include/nccl.h))
ifneq ($(NCCL_H),)
UNIT_TESTS += $(BUILD)/tests/test_api_prototypes
$(BUILD)/tests/test_api_prototypes: UNIT_FLAGS += -DNCCL_H='"$(NCCL_H)"' \
	$(if $(wildcard $(dir $(NCCL_H))cuda_runtime.h),,-Itests/unit/stub)
endif

# Programs that call NCCL in ways a script cannot: linked against the stand-in library.
$(BUILD)/tests/targets/%: tests/targets/%.c $(SIM_OUTPUTS)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -D_GNU_SOURCE -O1 -g $(WARN) -Itests/sim -pthread -o $@ $< \
		-L$(BUILD)/sim/2.28.9 -Wl,--as-needed -l:libnccl.so.2 -Wl,-rpath,'$$ORIGIN/../../sim/2.28.9' -ldl
$(BUILD)/tests/targets/%: tests/targets/%.cc $(SIM_OUTPUTS)
	@mkdir -p $(@D)
	$(CXX) -O1 -g -Wall -Wextra -Itests/sim -pthread -o $@ $< \
		-L$(BUILD)/sim/2.28.9 -Wl,--as-needed -l:libnccl.so.2 -Wl,-rpath,'$$ORIGIN/../../sim/2.28.9' -ldl

# Not linked against NCCL: three load what they are told, one has its own, one is a file system.
$(BUILD)/tests/targets/loader: tests/targets/loader.c $(wildcard tests/sim/nccl_sim.h)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -D_GNU_SOURCE -O1 -g $(WARN) -Itests/sim -pthread -o $@ $< -ldl
$(BUILD)/tests/targets/teller: tests/targets/teller.c include/nccl_bpftrace_plugin.h
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -D_GNU_SOURCE -O1 -g $(WARN) -Iinclude -o $@ $< -ldl
$(BUILD)/tests/targets/plugged: tests/targets/plugged.c $(PLUGIN_TEST_HEADERS) $(PLUGIN_TEST_DIR)/libcuda.so.1
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_TEST_CFLAGS) -pthread -o $@ $< -L$(PLUGIN_TEST_DIR) -l:libcuda.so.1 \
		-Wl,-rpath,'$$ORIGIN/../plugin' -ldl
$(BUILD)/tests/targets/linked_in: tests/targets/linked_in.cc
	@mkdir -p $(@D)
	$(CXX) -O1 -g -Wall -Wextra -o $@ $<
$(BUILD)/tests/targets/fuse_mirror: tests/targets/fuse_mirror.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -D_GNU_SOURCE -D_FILE_OFFSET_BITS=64 -O1 -g $(WARN) -I/usr/include/fuse3 \
		-o $@ $< -lfuse3 -pthread

GRAPH_DRIVER := $(BUILD)/tests/targets/graphs/libcuda.so.1
$(GRAPH_DRIVER): tests/targets/lib/graph_driver.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O1 -g $(WARN) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<

.PHONY: tests-build
tests-build: all $(GRAPH_DRIVER) $(UNIT_TESTS) $(TARGETS) $(PLUGIN_TEST_FOREIGN) $(BUILD)/bpf/x86/nccl_bpftrace.bpf.o $(BUILD)/bpf/arm64/nccl_bpftrace.bpf.o

# `make test T=attach` runs only the tests whose name contains the word.
test:
	@$(SETUP) --tests
	@$(MAKE) --no-print-directory -j$(shell nproc) tests-build
	@tests/run $(T)

test-unit: $(UNIT_TESTS)
	@tests/run --unit $(T)
