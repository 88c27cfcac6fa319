/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Small things every module may use. */
#ifndef UTIL_H
#define UTIL_H

#include <stddef.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))
#define NSEC_PER_SEC  1000000000ULL
#define NSEC_PER_MSEC 1000000ULL

/* Scope-bound resources: `_cleanup_close_ int fd = -1;` */
static inline void cleanup__free(void *p)
{
	free(*(void **)p);
}

static inline void cleanup__close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
}

static inline void cleanup__fclose(FILE **file)
{
	if (*file)
		fclose(*file);
}

#define _cleanup_free_	 __attribute__((cleanup(cleanup__free)))
#define _cleanup_close_	 __attribute__((cleanup(cleanup__close)))
#define _cleanup_fclose_ __attribute__((cleanup(cleanup__fclose)))

/* CLOCK_MONOTONIC, the clock of bpf_ktime_get_ns(). */
static inline uint64_t now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

/* A difference of the two clocks that is taken for one, and not for the time it takes to read. */
#define CLOCK_STEP_NS (10 * NSEC_PER_MSEC)

/*
 * CLOCK_REALTIME - CLOCK_MONOTONIC. Both are slewed alike: only a step of the wall clock, or a
 * suspend, changes the difference. Else it is kept, so that the time of a call long ago does not
 * flicker. True when it has changed. ret_wall: the wall clock now.
 */
static inline bool wall_offset__update(int64_t *offset_ns, struct timespec *ret_wall)
{
	int64_t now;

	clock_gettime(CLOCK_REALTIME, ret_wall);
	now = (int64_t)(ret_wall->tv_sec * NSEC_PER_SEC + ret_wall->tv_nsec - now_ns());
	if (llabs(now - *offset_ns) <= (int64_t)CLOCK_STEP_NS)
		return false;
	*offset_ns = now;
	return true;
}

#endif
