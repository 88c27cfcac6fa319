# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The stand-in libnccl.so.2 in several versions, and the driver of simulated jobs. Uses CC,
# CFLAGS, BUILD; gives the target `sim` and the variable SIM_OUTPUTS.
CFLAGS ?= -O2 -g -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla
BUILD ?= build

SIM_DIR := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
SIM_OUT := $(BUILD)/sim
SIM_STRIP ?= strip
SIM_VERSIONS := 2.19.3 2.23.4 2.25.1 2.26.5 2.27.7 2.28.9 2.30.7 2.99.1
SIM_DEFAULT := 2.28.9
SIM_LIB_SOURCES := comm init task group plan plan_event tuning profiler api_event event names conf \
	progress gpu_use stubs shared
SIM_DRIVER_SOURCES := main job script parse parse_operation token rank call gpu_call ledger api \
	engine engine_model engine_truth rendezvous names
SIM_CUDA_SOURCES := cuda_context cuda_stream cuda_event cuda_graph shared
SIM_HEADERS := $(wildcard $(SIM_DIR)/*.h) src/plugin/abi.h
SIM_LIBS := $(SIM_VERSIONS:%=$(SIM_OUT)/%/libnccl.so.2) $(SIM_OUT)/stripped/libnccl.so.2
SIM_LOG := $(SIM_OUT)/libnccl-profiler-log.so
SIM_OUTPUTS := $(BUILD)/nccl-sim $(SIM_OUT)/nccl-sim-static $(SIM_LIBS) $(SIM_LOG) \
	$(SIM_OUT)/cuda/libcuda.so.1

# 2.28.9 -> 22809. The stand-in is always optimised: readers of machine code expect NCCL's shape.
sim_code = $(shell echo $(1) | awk -F. '{ print 10000 * $$1 + 100 * $$2 + $$3 }')
SIM_CFLAGS := $(CFLAGS) -std=gnu11 -D_GNU_SOURCE -pthread
SIM_LIB_CFLAGS := $(SIM_CFLAGS) -O2 -fno-lto -fvisibility=hidden

.PHONY: sim
sim: $(SIM_OUTPUTS)

define sim_library
$(SIM_OUT)/$(1)/%.o: $(SIM_DIR)/%.c $(SIM_HEADERS)
	@mkdir -p $$(@D)
	$$(CC) $$(SIM_LIB_CFLAGS) -fPIC -DSIM_VERSION=$(call sim_code,$(1)) -c -o $$@ $$<
$(SIM_OUT)/$(1)/libnccl.so.2: $(SIM_LIB_SOURCES:%=$(SIM_OUT)/$(1)/%.o)
	$$(CC) $$(SIM_LIB_CFLAGS) -shared -Wl,-soname,libnccl.so.2 -o $$@ $$^ -ldl
endef
$(foreach version,$(SIM_VERSIONS),$(eval $(call sim_library,$(version))))

$(SIM_OUT)/stripped/libnccl.so.2: $(SIM_OUT)/$(SIM_DEFAULT)/libnccl.so.2
	@mkdir -p $(@D)
	$(SIM_STRIP) --strip-all -o $@ $<

# The stand-in CUDA driver.
$(SIM_OUT)/cuda/%.o: $(SIM_DIR)/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_LIB_CFLAGS) -fPIC -c -o $@ $<
$(SIM_OUT)/cuda/libcuda.so.1: $(SIM_CUDA_SOURCES:%=$(SIM_OUT)/cuda/%.o)
	$(CC) $(SIM_LIB_CFLAGS) -shared -Wl,-soname,libcuda.so.1 -o $@ $^

# A profiler plugin that only writes down what it is told.
$(SIM_LOG): $(SIM_DIR)/callback_log.c src/plugin/abi.h
	@mkdir -p $(@D)
	$(CC) $(SIM_LIB_CFLAGS) -fPIC -shared -o $@ $<

$(SIM_OUT)/driver/%.o: $(SIM_DIR)/%.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -c -o $@ $<

$(SIM_OUT)/driver/api_static.o: $(SIM_DIR)/api.c $(SIM_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(SIM_CFLAGS) -DSIM_STATIC -c -o $@ $<

$(BUILD)/nccl-sim: $(SIM_DRIVER_SOURCES:%=$(SIM_OUT)/driver/%.o) $(SIM_OUT)/driver/shared.o
	$(CC) $(SIM_CFLAGS) -o $@ $^ -ldl

# One program, the library inside, nothing exported: what is found is found in .symtab.
$(SIM_OUT)/nccl-sim-static: $(SIM_OUT)/driver/api_static.o \
		$(patsubst %,$(SIM_OUT)/driver/%.o,$(filter-out api names,$(SIM_DRIVER_SOURCES))) \
		$(SIM_LIB_SOURCES:%=$(SIM_OUT)/$(SIM_DEFAULT)/%.o)
	$(CC) $(SIM_CFLAGS) -o $@ $^ -ldl

# `make sim` only needs these; objects are kept for the next build.
.SECONDARY: $(foreach version,$(SIM_VERSIONS),$(SIM_LIB_SOURCES:%=$(SIM_OUT)/$(version)/%.o))
