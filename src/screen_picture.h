/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * All that the screen shows, copied at one time, so that it can be sorted, opened and scrolled
 * while it is frozen. What a job wrote is in it as it was written.
 */
#ifndef SCREEN_PICTURE_H
#define SCREEN_PICTURE_H

#include <time.h>

#include "rates.h"
#include "screen_timed.h"
#include "tracer.h"
#include "verdict.h"

#define PICTURE_MAX_COMMS    1024
#define PICTURE_MAX_RANKS    4096
#define PICTURE_MAX_TROUBLES 8 /* processes that cannot be traced, or read */

/* How the verdict names a rank. */
enum picture_role {
	ROLE_NONE,
	ROLE_CULPRIT,
	ROLE_WAITING,
};

struct picture_rank {
	int32_t rank; /* -1: not known */
	uint32_t tgid;
	char command[16];
	int32_t gpu; /* -1: not known */
	enum picture_role role;
	enum nccl_operation last_operation; /* NCCL_OP_MAX: no call seen */
	uint64_t last_sequence;		    /* VERDICT_NO_SEQUENCE: not known */
	uint64_t last_ns;		    /* 0: no call seen */
	bool in_flight_known;
	uint32_t in_flight;
	uint32_t n_compared, n_last; /* as in struct verdict_rank */
	uint64_t lateness_ns;
	struct rate rate;
};

struct picture_operation {
	enum nccl_operation operation;
	uint64_t calls;	     /* of the rank that made most */
	struct rate rate;    /* of the rank with the highest */
	uint64_t last_bytes; /* of the last call, nccl-tests' size column; 0: not known */
	unsigned int n_sizes;
	struct screen_timed_size sizes[SCREEN_MAX_SIZES + 1];
};

struct picture_comm {
	uint64_t hash; /* 0: not known */
	char label[32], name[64], job[JOB_ID_SIZE];
	int32_t n_ranks, n_nodes; /* 0: not known */
	unsigned int first_rank, n_local;
	bool judged; /* there is a verdict */
	struct verdict verdict;
	struct verdict_event events[VERDICT_MAX_EVENTS];
	uint32_t n_events;
	struct rate rate;  /* of the rank with the highest */
	double bus_bytes;  /* per second, of the operation and size timed most lately; 0: not timed
			    */
	uint64_t known_ns; /* since when the oldest of its local ranks is known */
	uint64_t last_ns;  /* of its ranks' calls; 0: none */
	unsigned int latest; /* rank (index) whose call that was */
	unsigned int n_operations;
	struct picture_operation operations[NCCL_OP_MAX];
};

struct picture_loss {
	const char *reason;
	uint64_t n;
};

struct picture {
	uint64_t now_ns;
	time_t wall;
	char host[64];
	struct tracer_census census;
	struct rate total;
	double cpu_percent; /* of one CPU, since the picture before */
	uint64_t resident_bytes;
	struct picture_loss losses[TRACER_LOST_MAX];
	unsigned int n_losses;
	char troubles[PICTURE_MAX_TROUBLES][200];
	unsigned int n_troubles; /* of all, those that found no place too */
	struct picture_comm *comms;
	unsigned int n_comms, n_comms_left_out;
	struct picture_rank *ranks;
	unsigned int n_ranks;
	unsigned int comms_room, ranks_room;
};

/* What it is taken from. All but the timed sizes must be as of now. */
struct picture_source {
	struct tracer *tracer;
	struct verdicts *verdicts;
	const struct rates *rates;
	const struct screen_timed *timed;
};

/*
 * Takes the communicators and ranks in, sorted by hash and rank; the head is the caller's. 0 or
 * -ENOMEM: the picture is empty then.
 */
int picture__take(struct picture *picture, const struct picture_source *source);
void picture__clear(struct picture *picture);

/* "AllReduce #123", what the verdict is about or else the last call; "-". */
const char *picture_comm__operation(const struct picture *picture, const struct picture_comm *comm,
				    char *buf, size_t size);

/* How long it has been in its state; trouble: since it began. 0: not known. */
static inline uint64_t picture_comm__age_ns(const struct picture *picture,
					    const struct picture_comm *comm)
{
	bool in_trouble = verdict_state__exit_status(comm->verdict.state);
	uint64_t since_ns = in_trouble ? comm->verdict.since_ns : comm->verdict.confirmed_ns;

	if (!comm->judged || !since_ns || since_ns > picture->now_ns)
		return 0;
	return picture->now_ns - since_ns;
}

static inline enum verdict_state picture_comm__state(const struct picture_comm *comm)
{
	return comm->judged ? comm->verdict.state : VERDICT_UNKNOWN;
}

#endif
