/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* `key = value` lines; `#` starts a comment. */
#ifndef CONFIG_FILE_H
#define CONFIG_FILE_H

/* 0, or -EINVAL after it has said why, or with *ret_why for the caller to say. */
typedef int config_setting_fn(void *ctx, const char *key, const char *value, const char **ret_why);

/* Reads the file. 0, or -EINVAL after one line on stderr with file, line and the mend. */
int config_file__read(const char *path, config_setting_fn *setting, void *ctx);

#endif
