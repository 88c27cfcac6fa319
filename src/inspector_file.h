/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * The sink for NVIDIA's dashboards: nccl_inspector_metrics_<uuid>.prom of every GPU that has GPU
 * times, in node_exporter's textfile directory. It is written whole each interval while a process
 * that was timed on that GPU lives, and once more after its end; what ended in the interval stands
 * in it. It is gone when the jobs are, and when this program ends: nothing in it tells how old it
 * is.
 */
#ifndef INSPECTOR_FILE_H
#define INSPECTOR_FILE_H

#include "inspector_prom.h"
#include "tracer.h"

/* Why an operation or launch is in no file: first Inspector's reasons, then the files'. */
enum {
	INSPECTOR_FOLDED = INSPECTOR_OMISSION_MAX, /* past INSPECTOR_MAX_BUCKETS */
	INSPECTOR_NO_GPU,			   /* UUID not known, or past INSPECTOR_MAX_GPUS */
	INSPECTOR_LEFT,				   /* Inspector writes that GPU's file itself */
	INSPECTOR_OMITTED_MAX,
};

struct inspector_files;

/*
 * dir is that of a textfile, whose lock says that no other agent writes there: what of ours is in
 * it is left over, and is removed. cluster as for textfile__new(). Strings are copied. 0 or -errno.
 */
int inspector_files__new(struct inspector_files **ret, const char *dir, const char *cluster);

/* From now on what plugins tell the tracer of is taken in. The tracer must end first. */
int inspector_files__listen(struct inspector_files *files, struct tracer *tracer);

/* Writes and removes what is due; the first -errno, after all were tried. */
int inspector_files__write(struct inspector_files *files, struct tracer *tracer);

/* Removes the files; takes NULL. */
void inspector_files__free(struct inspector_files *files);

uint64_t inspector_files__omitted(const struct inspector_files *files, int reason);
const char *inspector_omitted__name(int reason);

#endif
