# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make bench: what tracing costs on this machine, as one table. Root; under 4 minutes.
# make scale: what the files of 250 nodes of 8 GPUs cost one Prometheus; under 5 minutes.

BENCH := $(BUILD)/bench
BENCH_FLAGS = -std=gnu11 $(CPPFLAGS) -Itests/unit $(CFLAGS) $(WARN) -I$(BENCH)
BENCH_SKELETON := $(BENCH)/bench.skel.h
BENCH_PROGRAMS := $(BENCH)/bench_probe $(BENCH)/bench_consume $(BENCH)/bench_picture $(BENCH)/bench_timing \
	$(BENCH)/bench_record $(BENCH)/bench_exec $(BENCH)/bench_callbacks $(BENCH)/bench_foreign
# The stand-in with a nop of 5 bytes at each entry, which newer x86 kernels turn into a call.
BENCH_NOP5 := $(if $(filter x86,$(ARCH)),$(BENCH)/nop5/libnccl.so.2)

.PHONY: bench-build
bench-build: all $(BUILD)/tests/targets/caller $(GRAPH_DRIVER) $(PLUGIN_TEST_FOREIGN) $(BENCH_PROGRAMS) $(BENCH_NOP5)

bench: bench-build
	@tests/bench/bench.py

$(BENCH)/bench.bpf.o: tests/bench/bench.bpf.c $(BPF_HEADERS) vmlinux/$(ARCH)/vmlinux.h | setup
	@mkdir -p $(@D)
	$(CLANG) -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(ARCH) -Wall -Ivmlinux/$(ARCH) -Iinclude \
		-I/usr/include/$(MULTIARCH) -c -o $@ $<

$(BENCH_SKELETON): $(BENCH)/bench.bpf.o
	$(BPFTOOL) gen skeleton $< name bench_bpf > $@.tmp && mv $@.tmp $@

# Each includes the .c whose inside it needs; the archive gives the rest.
$(BENCH)/agent.a: $(OBJECTS)
	@mkdir -p $(@D)
	@rm -f $@
	ar rcs $@ $^

$(BENCH)/bench_probe: tests/bench/bench_probe.c tests/bench/bench.h src/attach.c $(BENCH)/agent.a $(BENCH_SKELETON)
	$(CC) $(BENCH_FLAGS) -o $@ $< $(BENCH)/agent.a $(LDLIBS) -ldl

$(BENCH)/bench_consume: tests/bench/bench_consume.c tests/bench/bench.h src/probe.c $(BENCH)/agent.a $(BENCH_SKELETON)
	$(CC) $(BENCH_FLAGS) -o $@ $< $(BENCH)/agent.a $(LDLIBS) -pthread

$(BENCH)/bench_picture: tests/bench/bench_picture.c tests/bench/textfile_files.h tests/bench/bench.h $(wildcard src/*.[ch]) $(SKELETON)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -Wno-unused-function -o $@ $< -lm

$(BENCH)/scale_files: tests/bench/scale_files.c tests/bench/textfile_files.h tests/bench/bench.h \
		$(wildcard src/*.[ch] tests/unit/*.h) $(SKELETON)
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -Wno-unused-function -o $@ $< -lm

.PHONY: scale
scale: $(BENCH)/scale_files
	@tests/bench/scale.py

$(BENCH)/bench_timing: tests/bench/bench_timing.c tests/bench/bench.h tests/unit/timing_feed.h $(wildcard src/*.[ch])
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -Wno-unused-function -o $@ $<

$(BENCH)/bench_record: tests/bench/bench_record.c tests/bench/bench.h tests/unit/unit_launch.h $(wildcard src/*.[ch])
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -Wno-unused-function -o $@ $< -ljansson -lm

$(BENCH)/bench_exec: tests/bench/bench_exec.c tests/bench/bench.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -static -o $@ $<

# The plugin with its semaphore in sight, beside a stand-in driver.
$(BENCH)/libplugin.so: $(PLUGIN_SOURCES) $(PLUGIN_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_FLAGS) $(CFLAGS) -DPLUGIN_TEST $(PLUGIN_LINK_MODE) -o $@ $(PLUGIN_SOURCES) -ldl

$(BENCH)/bench_callbacks: tests/bench/bench_callbacks.c tests/bench/bench.h $(BENCH)/libplugin.so \
		$(PLUGIN_TEST_DIR)/libcuda.so.1
	$(CC) $(BENCH_FLAGS) -o $@ $< -L$(PLUGIN_TEST_DIR) -l:libcuda.so.1 \
		-Wl,-rpath,'$$ORIGIN/../tests/plugin' -ldl

$(BENCH)/bench_foreign: tests/bench/bench_foreign.c tests/bench/bench.h src/plugin/abi.h
	@mkdir -p $(@D)
	$(CC) $(BENCH_FLAGS) -o $@ $< -ldl

# gcc leaves five nops of one byte; they are joined afterwards.
$(BENCH)/nop5/libnccl.so.2: $(SIM_LIB_SOURCES:%=tests/sim/%.c) $(SIM_HEADERS) tests/bench/join_nops.py
	@mkdir -p $(@D)
	$(CC) $(SIM_LIB_CFLAGS) -fcf-protection=none -fpatchable-function-entry=5 -fPIC -DSIM_VERSION=22809 \
		-shared -Wl,-soname,libnccl.so.2 -o $@.tmp $(SIM_LIB_SOURCES:%=tests/sim/%.c)
	tests/bench/join_nops.py $@.tmp ncclAllReduce && mv $@.tmp $@
