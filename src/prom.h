/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Writes metrics in Prometheus' text format 0.0.4 and puts them where node_exporter's textfile
 * collector finds them.
 *
 * One struct prom lives as long as the agent. Each interval: prom__reset(), then for each family
 * prom__begin() and its samples, then prom__publish(). When memory runs out, the error is kept
 * until prom__reset(): further samples do nothing, and prom__publish() returns it and leaves the
 * old file, so that a file with a hole is never shown.
 *
 * Label values may come from jobs. They are repaired to valid UTF-8, bounded and escaped here;
 * node_exporter drops a whole file for one bad byte. Numbers are printed for the "C" locale, which
 * a program has that never calls setlocale().
 */
#ifndef NCCL_BPFTRACE_PROM_H
#define NCCL_BPFTRACE_PROM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "metrics.h"

#define PROM_FILE_NAME "nccl_bpftrace.prom"

/* Longest label value in bytes, before escaping; a longer one is cut and ends with "…". */
#define PROM_VALUE_MAX	 128
#define PROM_ESCAPED_MAX (2 * PROM_VALUE_MAX + 1)

struct prom;

/*
 * A label's value as it stands between the quotes: repaired to valid UTF-8, cut to PROM_VALUE_MAX
 * bytes, then escaped. Returns buf.
 */
const char *prom__escape(const char *value, char buf[PROM_ESCAPED_MAX]);

/*
 * max_series bounds the series of capped families in one file (an agent's own are never refused).
 * Returns 0 or -ENOMEM; free with prom__free().
 */
int prom__new(struct prom **ret, size_t max_series);
void prom__free(struct prom *p); /* NULL is fine */

/* Empties the text for a new file. What was suppressed stays counted: counters do not fall. */
void prom__reset(struct prom *p);

/*
 * The value of a label "cluster" that samples from now on carry first; NULL or "" for none.
 * Borrowed: it must live until it is set anew.
 */
void prom__set_cluster(struct prom *p, const char *cluster);

/*
 * Asks for room for n series that belong together, such as all of one communicator, before the
 * first of them is written. When they do not all fit, returns false and counts n as suppressed:
 * the caller then writes none of them. Families are written one after the other, so that without
 * asking, the first family would take all the room and the last ones have none.
 */
bool prom__admit(struct prom *p, size_t n);

/* Series suppressed since prom__new(). */
uint64_t prom__suppressed(const struct prom *p);

/*
 * Turns to a family; HELP and TYPE are written with its first sample. A family cannot be taken up
 * again once another was written, because the format wants its lines together: -EALREADY, and
 * samples are refused until the next family.
 */
int prom__begin(struct prom *p, enum metric_id id);

/*
 * One sample of the family begun. label_values has one value for each label of the family, in its
 * order; NULL stands for ""; label_values itself may be NULL for a family without labels.
 * Returns 0 when it was written or was counted as suppressed by the cap, -EINVAL for a value that
 * is NaN or infinite or when no family was begun, -ENOMEM.
 */
int prom__sample(struct prom *p, const char *const *label_values, double value);
int prom__sample_u64(struct prom *p, const char *const *label_values, uint64_t value);

/* Appends text as it is, for files in another program's format: no family, no bound. */
void prom__add_text(struct prom *p, const char *text);

/*
 * One histogram of the family begun: n_bounds upper bounds, rising, and one bucket more than that,
 * each with what fell into it alone. Errors as of prom__sample(); the cap takes all of its series
 * or none.
 */
int prom__histogram(struct prom *p, const char *const *label_values, const double *bounds,
		    size_t n_bounds, const uint64_t *buckets, double sum);
#define PROM_HISTOGRAM_SERIES(n_bounds) ((n_bounds) + 3) /* +Inf, _sum, _count */

/*
 * The text so far, NUL-terminated, owned by p and valid until p is next changed.
 * Returns 0, or -ENOMEM when a part of it is missing.
 */
int prom__text(const struct prom *p, const char **ret_text, size_t *ret_len);

/*
 * The functions below do the file's part and are in prom_file.c.
 *
 * prom__publish() puts the text in place of the file name of the directory dirfd, whole or not at
 * all, mode 0644 whatever the umask. It is first written as ".<name>.<pid>.tmp", which
 * node_exporter does not read. Nobody but the agent's user should be able to write to the
 * directory.
 * Returns 0 or -errno (-ENOSPC, -EIO, -ENOMEM, ...); then the old file stays and no new one is
 * left behind.
 */
int prom__publish(const struct prom *p, int dirfd, const char *name);

/*
 * Removes the temporary files that agents which are gone left behind for PROM_FILE_NAME: regular
 * files of exactly that pattern whose process is gone or is this one. Call it when this process is
 * not publishing. Returns how many, or -errno when the directory cannot be read.
 */
int prom__sweep(int dirfd);

/* Removes a published file; 0 also when there is none. */
int prom__unlink(int dirfd, const char *name);

#endif
