# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The profiler plugin: needs nothing but libc, whatever NCCL or CUDA the job brings.
PLUGIN := $(BUILD)/libnccl-profiler-bpftrace.so
PLUGIN_SOURCES := $(wildcard src/plugin/*.c)
PLUGIN_HEADERS := $(wildcard src/plugin/*.h) include/nccl_bpftrace_plugin.h
PLUGIN_FLAGS := -std=gnu11 -D_GNU_SOURCE -Iinclude -fPIC -fvisibility=hidden $(WARN)
# NCCL unloads plugins, and the thread must go on: never unmapped.
PLUGIN_LINK_MODE := -shared -pthread -Wl,-z,nodelete
PLUGIN_LINK := $(PLUGIN_LINK_MODE) -Wl,-z,defs -Wl,-soname,libnccl-profiler-bpftrace.so

$(BUILD)/plugin/%.o: src/plugin/%.c $(PLUGIN_HEADERS) | setup
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_FLAGS) $(CFLAGS) -c -o $@ $<

$(PLUGIN): $(PLUGIN_SOURCES:src/plugin/%.c=$(BUILD)/plugin/%.o)
	$(CC) $(CFLAGS) $(PLUGIN_LINK) -o $@ $^ -ldl

plugin: $(PLUGIN)
