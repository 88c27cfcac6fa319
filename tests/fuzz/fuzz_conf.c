/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* NCCL's configuration file, whatever stands in it; a process's environment; text on its way to
 * JSON. */
#include "../../src/inspector.c"
#include "../../src/json_text.c"
#include "../../src/nccl_api.c"
#include "../../src/plugin_conf.c"
#include "../../src/timing_form.c"
#include "../../src/utf8.c"

#include <stdint.h>
#include <stdlib.h>

#define OURS "/usr/local/lib/nccl-bpftrace/libnccl-profiler-bpftrace.so"

static void check(bool holds)
{
	if (!holds)
		abort();
}

/* Switched on it is ours, twice is as once, and switched off nothing but our lines is gone. */
static void fuzz_conf(const char *text, size_t len)
{
	char *bare = NULL, *on = NULL, *twice = NULL, *off = NULL;
	size_t bare_len, on_len, twice_len, off_len;

	check(!plugin_conf__disable(text, len, &bare, &bare_len) && bare_len <= len);
	check(!plugin_conf__enable(text, len, OURS, true, &on, &on_len));
	check(plugin_conf__parse(on, on_len).state == PLUGIN_CONF_OURS);
	check(!plugin_conf__enable(on, on_len, OURS, true, &twice, &twice_len));
	check(twice_len == on_len && !memcmp(on, twice, on_len));
	check(!plugin_conf__disable(on, on_len, &off, &off_len));
	check(off_len == bare_len && !memcmp(bare, off, off_len));
	free(bare);
	free(on);
	free(twice);
	free(off);
}

static void fuzz_json(const char *text)
{
	struct json_text json = {};

	json_text__string(&json, "key", text);
	check(!json.failed && json.len >= 8 && json.data[json.len - 1] == '"');
	for (size_t i = 0; i < json.len;) {
		uint32_t c = 0;
		size_t n = utf8__read((unsigned char *)json.data + i, json.len - i, &c);

		check(n && !utf8__is_control(c));
		i += n;
	}
	json_text__free(&json);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = malloc(size + 1);

	memcpy(text, data, size);
	text[size] = 0;
	inspector__writes_files((const char *)data, size);
	fuzz_conf((const char *)data, size);
	fuzz_json(text);
	free(text);
	return 0;
}
