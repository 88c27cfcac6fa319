# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make            build/nccl-bpftrace, build/libnccl-profiler-bpftrace.so, build/nccl-sim
# make demo       a simulated job, traced (root)
# make test       every layer of tests (root; what cannot run here is skipped with its reason)
# make bench      what tracing costs here (root)
# make scale      what the files of a fleet cost one Prometheus
# make test-nccl-versions   against every release of the real library (needs PyPI)
# make grafana    dashboards and rules from their source
# make format     clang-format
# make install PREFIX= DESTDIR=    program, plugin, service, man pages, completion, dashboards and rules
# make uninstall PREFIX= DESTDIR=  takes them away; the configuration stays
# make deb        a Debian package in build/

BUILD := build
PREFIX ?= /usr/local
CC ?= gcc
CLANG ?= clang
BPFTOOL ?= $(firstword $(wildcard /usr/sbin/bpftool) bpftool)
STATIC ?= 1
SETUP := scripts/setup.sh

ARCH := $(shell uname -m | sed 's/x86_64/x86/; s/aarch64/arm64/')
MULTIARCH = $(shell $(CC) -print-multiarch 2>/dev/null)
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla $(if $(CI),-Werror)
CFLAGS ?= -O2 -g
CPPFLAGS := -D_GNU_SOURCE -Iinclude -Isrc -I$(BUILD)
BUILD_ID := $(shell git describe --always --dirty 2>/dev/null || echo release)
LDLIBS := -lbpf -lelf -lz -lcap -ljansson -lncursesw -ltinfo -lm
LDFLAGS := $(if $(filter 1,$(STATIC)),-static)

SOURCES := $(wildcard src/*.c) src/plugin/abi.c src/plugin/abi_layout.c
OBJECTS := $(SOURCES:src/%.c=$(BUILD)/obj/%.o)
# What the others declare extern is linked first: libbpf 1.1 loses it otherwise.
BPF_FIRST := bpf/nccl_bpftrace.bpf.c
BPF_SOURCES := $(BPF_FIRST) $(filter-out $(BPF_FIRST),$(wildcard bpf/*.bpf.c))
BPF_HEADERS := include/nccl_bpftrace_record.h include/nccl_bpftrace_plugin.h $(wildcard bpf/*.h)
SKELETON := $(BUILD)/nccl_bpftrace.skel.h

.PHONY: all plugin setup demo test test-unit test-nccl-versions bench format install uninstall deb clean
all: $(BUILD)/nccl-bpftrace plugin sim

# Everything below needs packages; setup does nothing when they are there.
setup:
	@$(SETUP)
ifeq ($(filter clean format uninstall,$(MAKECMDGOALS)),)
$(OBJECTS) $(SKELETON): | setup
endif

define bpf_rules
$(BUILD)/bpf/$(1)/%.o: bpf/%.bpf.c $(BPF_HEADERS) vmlinux/$(1)/vmlinux.h | setup
	@mkdir -p $$(@D)
	$(CLANG) -g -O2 -target bpf -mcpu=v3 -D__TARGET_ARCH_$(1) -Wall -Werror -Ivmlinux/$(1) -Iinclude \
		-I/usr/include/$$(MULTIARCH) -c -o $$@ $$<
$(BUILD)/bpf/$(1)/nccl_bpftrace.bpf.o: $(BPF_SOURCES:bpf/%.bpf.c=$(BUILD)/bpf/$(1)/%.o)
	$$(BPFTOOL) gen object $$@ $$^
endef
$(foreach arch,x86 arm64,$(eval $(call bpf_rules,$(arch))))

$(SKELETON): $(BUILD)/bpf/$(ARCH)/nccl_bpftrace.bpf.o
	$(BPFTOOL) gen skeleton $< name nccl_bpftrace_bpf > $@.tmp && mv $@.tmp $@

# A terminfo entry that is built in: for a node whose database does not know the terminal.
TERMINFO_NAME := nccl-bpftrace-ansi
$(BUILD)/screen_terminfo.h: src/screen.terminfo | setup
	@mkdir -p $(@D)
	tic -o $(BUILD)/terminfo $<
	infocmp -A $(BUILD)/terminfo -Q1 $(TERMINFO_NAME) | sed '/^#/d' | tr -d '\n' | \
		sed 's/.*/#define SCREEN_TERMINFO "&"\n#define SCREEN_TERMINFO_NAME "$(TERMINFO_NAME)"\n/' > $@.tmp
	mv $@.tmp $@
$(BUILD)/obj/screen_curses.o: $(BUILD)/screen_terminfo.h

$(BUILD)/obj/%.o: src/%.c $(SKELETON)
	@mkdir -p $(@D)
	$(CC) -std=gnu11 $(CPPFLAGS) $(CFLAGS) $(WARN) -DNCCL_BPFTRACE_BUILD='"$(BUILD_ID)"' -MMD -MP -c -o $@ $<

$(BUILD)/nccl-bpftrace: $(OBJECTS)
	$(CC) $(CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

-include $(OBJECTS:.o=.d)
include src/plugin/plugin.mk
include tests/sim/sim.mk
include tests/tests.mk
include tests/bench/bench.mk
include grafana/grafana.mk

demo: all
	@scripts/demo.sh

format:
	clang-format -i src/*.[ch] src/plugin/*.[ch] bpf/*.[ch] include/*.h tests/*/*.[ch]

# Every release of the real library that PyPI has, against tables and machine code (no root).
test-nccl-versions: $(PLUGIN) | setup
	@scripts/nccl-versions.py $(ARGS)

UNITDIR ?= $(PREFIX)/lib/systemd/system
GENERATORDIR := $(DESTDIR)$(UNITDIR)-generators
BASHDIR := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
# Dashboards and rules, as rendered, and what goes with them.
RENDERED := $(wildcard grafana/rendered)
GRAFANADIR := $(DESTDIR)$(PREFIX)/share/nccl-bpftrace/grafana

# An edited configuration is kept.
install: $(BUILD)/nccl-bpftrace plugin
	install -D -m 0755 $(BUILD)/nccl-bpftrace $(DESTDIR)$(PREFIX)/sbin/nccl-bpftrace
	install -D -m 0755 $(PLUGIN) $(DESTDIR)$(PREFIX)/lib/nccl-bpftrace/libnccl-profiler-bpftrace.so
	install -D -m 0644 src/man/nccl-bpftrace.8 $(DESTDIR)$(PREFIX)/share/man/man8/nccl-bpftrace.8
	install -D -m 0644 src/man/nccl-bpftrace.conf.5 $(DESTDIR)$(PREFIX)/share/man/man5/nccl-bpftrace.conf.5
	install -D -m 0644 packaging/nccl-bpftrace.bash-completion $(BASHDIR)/nccl-bpftrace
	install -D -m 0644 packaging/nccl-bpftrace.sysusers $(DESTDIR)$(PREFIX)/lib/sysusers.d/nccl-bpftrace.conf
	install -d -m 0755 $(DESTDIR)$(UNITDIR)
	sed 's,@SBINDIR@,$(PREFIX)/sbin,' packaging/nccl-bpftrace.service >$(DESTDIR)$(UNITDIR)/nccl-bpftrace.service
	chmod 0644 $(DESTDIR)$(UNITDIR)/nccl-bpftrace.service
	install -D -m 0755 packaging/nccl-bpftrace.generator $(GENERATORDIR)/nccl-bpftrace
	[ -e $(DESTDIR)/etc/nccl-bpftrace.conf ] || \
		install -D -m 0644 packaging/nccl-bpftrace.conf $(DESTDIR)/etc/nccl-bpftrace.conf
ifneq ($(RENDERED),)
	install -d -m 0755 $(GRAFANADIR)
	cp -R $(RENDERED)/. $(GRAFANADIR)
	install -m 0644 grafana/runbooks.md grafana/alertmanager.yml $(GRAFANADIR)
endif

INSTALLED := sbin/nccl-bpftrace share/man/man8/nccl-bpftrace.8 share/man/man5/nccl-bpftrace.conf.5 \
	share/bash-completion/completions/nccl-bpftrace lib/sysusers.d/nccl-bpftrace.conf
uninstall:
	rm -f $(INSTALLED:%=$(DESTDIR)$(PREFIX)/%) $(DESTDIR)$(UNITDIR)/nccl-bpftrace.service \
		$(GENERATORDIR)/nccl-bpftrace
	rm -rf $(DESTDIR)$(PREFIX)/lib/nccl-bpftrace $(DESTDIR)$(PREFIX)/share/nccl-bpftrace

# dpkg-buildpackage wants a tree with debian/ in it; what is built already is not built again.
DEB_SOURCES := $(wildcard Makefile LICENSE README.md bpf grafana include packaging scripts src tests vmlinux)
deb: $(BUILD)/nccl-bpftrace plugin
	@$(SETUP) --deb
	rm -rf $(BUILD)/deb
	mkdir -p $(BUILD)/deb/tree
	cp -a $(DEB_SOURCES) $(BUILD)/deb/tree
	cp -a packaging/debian $(BUILD)/deb/tree/debian
	ln -s $(abspath $(BUILD)) $(BUILD)/deb/tree/build
	cd $(BUILD)/deb/tree && env -u MAKEFLAGS -u CFLAGS dpkg-buildpackage -b -us -uc -nc
	mv $(BUILD)/deb/nccl-bpftrace_*.deb $(BUILD)
	rm -rf $(BUILD)/deb

clean:
	rm -rf $(BUILD)
