# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# The plugin driven as NCCL drives it, once under ASan and UBSan, once under TSan: programs
# build/tests/test_plugin*_KIND, and beside them in plugin/ the plugin built likewise and a
# stand-in libcuda.so.1.

PLUGIN_SANITIZE_asan := -fsanitize=address,undefined -fno-sanitize-recover=undefined
PLUGIN_SANITIZE_tsan := -fsanitize=thread
PLUGIN_TEST_CFLAGS := -std=gnu11 -D_GNU_SOURCE -g -O1 -Iinclude -Itests/unit -Itests/plugin \
	$(WARN) -Wno-unused-function
PLUGIN_TEST_HEADERS := $(wildcard tests/plugin/*.h) tests/unit/unit.h include/nccl_bpftrace_plugin.h
PLUGIN_TEST_DIR := $(BUILD)/tests/plugin

define plugin_tests
$(PLUGIN_TEST_DIR)/libplugin_$(1).so: $(PLUGIN_SOURCES) $(PLUGIN_HEADERS)
	@mkdir -p $$(@D)
	$$(CC) $(PLUGIN_FLAGS) -DPLUGIN_TEST -g -O1 $(PLUGIN_SANITIZE_$(1)) $(PLUGIN_LINK_MODE) \
		-o $$@ $(PLUGIN_SOURCES) -ldl
$(BUILD)/tests/test_plugin_$(1) $(BUILD)/tests/test_plugin_end_$(1) \
$(BUILD)/tests/test_plugin_pair_$(1) $(BUILD)/tests/test_plugin_stuck_$(1): $(BUILD)/tests/%_$(1): tests/plugin/%.c \
		$(PLUGIN_TEST_HEADERS) $(PLUGIN_TEST_DIR)/libplugin_$(1).so $(PLUGIN_TEST_DIR)/libcuda.so.1
	$$(CC) $(PLUGIN_TEST_CFLAGS) -DPLUGIN_FILE='"libplugin_$(1).so"' $(PLUGIN_SANITIZE_$(1)) \
		-rdynamic -pthread -o $$@ $$< -L$(PLUGIN_TEST_DIR) -l:libcuda.so.1 \
		-Wl,-rpath,'$$$$ORIGIN/plugin' -ldl
$(BUILD)/tests/test_plugin_timer_$(1): tests/plugin/test_plugin_timer.c $(PLUGIN_TEST_HEADERS) \
		$(PLUGIN_TEST_DIR)/libplugin_$(1).so
	$$(CC) $(PLUGIN_TEST_CFLAGS) -DPLUGIN_FILE='"libplugin_$(1).so"' $(PLUGIN_SANITIZE_$(1)) \
		-rdynamic -pthread -o $$@ $$< -ldl
$(BUILD)/tests/test_plugin_chain_$(1): tests/plugin/test_plugin_chain.c $(PLUGIN_TEST_HEADERS) \
		$(PLUGIN_TEST_DIR)/libplugin_$(1).so $(PLUGIN_TEST_DIR)/libchained.so
	$$(CC) $(PLUGIN_TEST_CFLAGS) -DPLUGIN_FILE='"libplugin_$(1).so"' $(PLUGIN_SANITIZE_$(1)) \
		-rdynamic -pthread -o $$@ $$< -ldl
UNIT_TESTS += $(BUILD)/tests/test_plugin_$(1) $(BUILD)/tests/test_plugin_chain_$(1) \
	$(BUILD)/tests/test_plugin_timer_$(1) $(BUILD)/tests/test_plugin_end_$(1) \
	$(BUILD)/tests/test_plugin_pair_$(1) $(BUILD)/tests/test_plugin_stuck_$(1)
endef
$(foreach kind,asan tsan,$(eval $(call plugin_tests,$(kind))))

$(PLUGIN_TEST_DIR)/libcuda.so.1: tests/plugin/fake_cuda.c tests/plugin/fake_cuda.h
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_TEST_CFLAGS) -fPIC -shared -Wl,-soname,libcuda.so.1 -o $@ $<

$(PLUGIN_TEST_DIR)/libchained.so: tests/plugin/chained.c tests/plugin/chained.h
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_TEST_CFLAGS) -fPIC -shared -o $@ $<

define ticks_test
UNIT_TESTS += $(BUILD)/tests/test_ticks_$(1)
$(BUILD)/tests/test_ticks_$(1): tests/plugin/test_ticks.c src/plugin/ticks.c $(PLUGIN_HEADERS) \
		tests/unit/unit.h
	@mkdir -p $$(@D)
	$$(CC) $(PLUGIN_TEST_CFLAGS) $(PLUGIN_SANITIZE_$(1)) -pthread -o $$@ $$<
endef
$(foreach kind,asan tsan,$(eval $(call ticks_test,$(kind))))

UNIT_TESTS += $(BUILD)/tests/test_budget $(BUILD)/tests/test_joined
$(BUILD)/tests/test_budget $(BUILD)/tests/test_joined: $(BUILD)/tests/%: tests/plugin/%.c $(PLUGIN_HEADERS) tests/unit/unit.h
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_TEST_CFLAGS) $(PLUGIN_SANITIZE_asan) -o $@ $<

# Another plugin, and for which versions its events are laid out how. Its functions begin as most
# do: endbr64, push.
PLUGIN_TEST_FOREIGN := $(PLUGIN_TEST_DIR)/libforeign.so
$(PLUGIN_TEST_FOREIGN): tests/plugin/foreign.c src/plugin/abi_layout.c src/plugin/abi.h
	@mkdir -p $(@D)
	$(CC) $(PLUGIN_TEST_CFLAGS) -O2 $(if $(filter x86,$(ARCH)),-fcf-protection) -fno-omit-frame-pointer \
		-fno-optimize-sibling-calls 		-fvisibility=hidden -fPIC -shared -pthread -o $@ $(filter %.c,$^)
