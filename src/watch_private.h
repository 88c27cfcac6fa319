/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the watch: watch.c, watch_*.c. */
#ifndef WATCH_PRIVATE_H
#define WATCH_PRIVATE_H

#include <uthash.h>

#include "util.h"
#include "watch.h"
#include "watch_number.h"

#define WATCH_MAX_MEMBERS  16384
#define WATCH_MAX_HELD	   1024 /* calls of one rank whose number is not told yet */
#define WATCH_MAX_ALL_HELD 65536
#define WATCH_KEPT	   256	/* that left, so that one that comes and goes leaves room */
#define WATCH_RECENT	   1024 /* a power of two */

/* A call that no probe saw, until the plugin tells of the operation that came of it. */
struct held_call {
	uint64_t time_ns, count;
	uint32_t datatype;
	int32_t root;
	enum nccl_operation operation;
};

/* A rank of a communicator in a process. */
struct watch_member {
	struct watch_key {
		uint64_t hash;
		uint32_t tgid;
		int32_t rank;
	} key;
	struct verdict_member name; /* the same, for the judge */
	bool whole, left;
	bool blind; /* a call came whose number is not known; NCCL's memory may know it */
	int32_t n_nodes;
	uint64_t round;		   /* the last settle that saw it living, or ended */
	uint64_t met_ns, heard_ns; /* heard: its last call */
	uint64_t asked_ns;	   /* last asked to be read again */
	uint64_t read_ns, refreshed_ns, replayed_ns; /* told of up to there */
	uint64_t unresolved;  /* launches of graphs by its process, as told */
	int32_t async_result; /* as told */
	uint64_t errors[WATCH_N_ERRORS];
	struct watch_number numbers[NCCL_OP_MAX];
	struct held_call *held; /* the oldest first */
	uint32_t n_held, held_room;
	UT_hash_handle hh;
};

struct watch {
	struct tracer *tracer;
	struct verdicts *verdicts;
	struct watch_member *members;
	struct watch_member *recent[WATCH_RECENT]; /* where the last ones were found */
	uint64_t n_held;			   /* room of all */
	uint64_t round, refused;
	uint64_t left_ns[WATCH_KEPT]; /* when the last ones left, a ring */
	unsigned int n_left;
	unsigned int n_new;		/* met by their calls since the last look at all of them */
	uint64_t refresh_ns;		/* what the last refresh took */
	uint64_t refreshed_ns;		/* the refresh whose counters were looked at */
	uint64_t ring_full, ring_told;	/* records lost at the last settle; told whose they are */
	uint64_t lost[TRACER_LOST_MAX]; /* as told */
};

/* watch.c */
struct watch_member *watch__find(struct watch *watch, uint64_t hash, uint32_t tgid, int32_t rank);
/* Joins it when it is new; NULL: it has no name of its own, or finds no place. */
struct watch_member *watch__member(struct watch *watch, const struct comm *comm, uint64_t now_ns);
void watch__leave(struct watch *watch, struct watch_member *member, enum verdict_end how,
		  uint64_t time_ns);

/* watch_comm.c: what the picture of communicators tells. */
void watch__take_comms(struct watch *watch, uint64_t now_ns);
void watch__read_again(struct watch *watch, uint64_t now_ns);

/* watch_loss.c */
bool watch__has_new_losses(const struct watch *watch);
/* As of the last refresh. */
void watch__take_losses(struct watch *watch, uint64_t now_ns);

/* watch_plugin.c: what plugins tell. */
int watch__listen_to_plugins(struct watch *watch);
void watch__release_held(struct watch *watch, uint64_t now_ns);
void watch__drop_held(struct watch *watch, struct watch_member *member);
void watch__take_gpu(struct watch *watch, const struct watch_member *member, uint64_t now_ns);

#endif
