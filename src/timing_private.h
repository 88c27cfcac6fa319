/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Shared by the parts of the timing module: timing.c, timing_launch.c, timing_call.c, ... */
#ifndef TIMING_PRIVATE_H
#define TIMING_PRIVATE_H

#include "timing.h"
#include "util.h"

/* What processes can grow is bounded: each, and all together. */
#define TIMING_MAX_PROCESSES		  4096
#define TIMING_MAX_COMMS		  8192
#define TIMING_MAX_COMMS_PER_PROCESS	  1024
#define TIMING_MAX_ALL_OPERATIONS	  131072 /* beside the first of each launch: 8 MB */
#define TIMING_MAX_OPERATIONS_PER_PROCESS 16384
#define TIMING_MAX_OPENS		  32768 /* 9 MB */
#define TIMING_MAX_OPENS_PER_PROCESS	  8192
#define TIMING_MAX_OPENS_PER_COMM	  256	 /* launches */
#define TIMING_MAX_HELD_PER_COMM	  1024	 /* operations that wait for a timer */
#define TIMING_MAX_CALLS		  262144 /* without an operation yet: 12 MB */
#define TIMING_MAX_CALLS_PER_PROCESS	  32768
#define TIMING_MAX_CALLS_PER_COMM	  4096

#define WINDOW_OPERATIONS 4096 /* the last numbers of which it is known whether they came */
#define WINDOW_DONE	  64
#define WINDOW_MADE	  64

#define SLACK_NS NSEC_PER_MSEC /* between two readings of the host's clock */

#define MAX_NUMBER (1ULL << 62) /* no process counts that far */

/* Numbers that run from 1: which is the highest, and how many between never came. */
struct numbers {
	uint64_t base; /* not expected: before our time */
	uint64_t highest, received;
	uint64_t folded; /* missing ones of before a restart */
	bool begun;
	bool is_guess; /* base: it is the first that came, and an earlier one may be lost */
};

/* An API call, until its operation comes. */
struct call {
	uint64_t time_ns, group, bytes;
	uint32_t tid;
	int32_t root;
	uint8_t function;
	bool is_used, is_single; /* single: the group is one public call */
};

/* First in, first out; the used ones at its head are dropped. */
struct calls {
	struct call *ring;
	uint32_t size, head, n;
};

/* A launch that has not been handed out. */
struct open {
	struct open *prev, *next;
	struct timing_launch launch; /* comm and operations are set when it is handed out */
	uint64_t seen_ns, beat;	     /* beat: of tracked.n_beats */
	uint32_t tid, n_seen, capacity;
	bool is_told;	      /* its NBP_LAUNCHED came, or its NBP_FINISHED */
	bool is_split;	      /* its operations wait for their timers, each by itself */
	bool is_sealed;	      /* what is missing beside it is known: `doubtful` says it */
	bool doubtful;	      /* one of its operations may be among the lost */
	uint64_t passed_ns;   /* since when a later one is known to be done */
	uint64_t first, last; /* numbers of its operations; 0: none */
	struct timing_operation *operations;
	struct timing_operation one;
};

/* A launch that is known to have been made. */
struct made {
	uint64_t number, launch_ns;
	uint64_t first, sequence; /* of its first operation; first 0: none is described */
	enum nccl_operation operation;
	bool captured;
};

/* What is under way: launches above last_done, up to last_timed. */
struct flight {
	uint64_t last_timed, last_done; /* launch numbers */
	uint64_t last_done_stream;
	struct made made[WINDOW_MADE];
	struct {
		struct made launch; /* number 0: none */
		uint64_t beat, gpu_start_ns;
		bool started;
	} told; /* the last that a plugin said to be queued or started */
};

/* Of a communicator that has launched. */
struct work {
	struct open *opens, *held; /* the oldest first */
	uint32_t n_opens, n_held;
	struct calls calls;
	uint64_t seen[WINDOW_OPERATIONS / 64]; /* operations: bit number % WINDOW_OPERATIONS */
	uint64_t seen_highest;
	uint64_t done[WINDOW_DONE];  /* launches, at number % WINDOW_DONE */
	uint64_t timed[WINDOW_DONE]; /* operations with a timer, likewise */
	struct flight flight;
	uint64_t timers_until_ns; /* kernel timers come; 0: they do not */
};

/* What counts against the bounds: places, whether in use or not. */
struct usage {
	uint32_t operations, opens, calls;
};

/* As the last record of each reason told. */
struct losses {
	uint64_t total[NBP_LOSS_MAX];
	uint32_t known; /* bit by reason */
};

struct tracked_process;

/* A timing_comm with what only this module sees of it. */
struct tracked {
	struct timing_comm comm; /* first */
	struct tracked_process *process;
	struct tracked *prev, *next;	       /* of the process */
	struct tracked *busy_prev, *busy_next; /* of those that settle() must look at */
	bool is_busy, is_indexed;
	struct index_key {
		uint64_t hash;
		uint32_t tgid;
		int32_t rank;
	} index;
	UT_hash_handle by_hash;
	struct losses losses;
	struct numbers api, launch, operation;
	uint64_t n_beats, beat_ns;	  /* signs of life; the last, by its own clock */
	uint64_t own_up;		  /* notes that the plugin says it lost, of any number */
	uint64_t missing_before, missing; /* at the last settle; counted so far */
	struct work *work;		  /* NULL: never launched */
};

struct tracked_process {
	uint32_t tgid, n_comms;
	struct usage usage;
	struct tracked *comms; /* the oldest first */
	struct losses losses;
	UT_hash_handle hh;
};

struct timings {
	timing_launch_fn *fn;
	void *ctx;
	timing_operation_fn *on_operation; /* NULL: nobody listens */
	void *operation_ctx;
	struct timing_comm *comms; /* each the first member of a struct tracked */
	struct tracked *index;	   /* by hash and rank in a process: the newest */
	struct tracked *busy;
	struct tracked_process *processes;
	struct usage usage;
	uint64_t now_ns; /* the latest that we were told */
	uint64_t invalid[TIMING_INVALID_MAX], lost[TIMING_LOST_MAX];
};

/* timing_number.c */
bool numbers__add(struct numbers *numbers, uint64_t number); /* false: no number */
void numbers__told(struct numbers *numbers, uint64_t highest);
uint64_t numbers__missing(const struct numbers *numbers);
void work__see(struct work *work, uint64_t operation);
bool work__saw(const struct work *work, const struct numbers *operations, uint64_t number);
uint64_t tracked__missing(const struct tracked *tracked);

/* timing_loss.c */
uint64_t timings__loss(struct timings *timings, struct losses *losses,
		       const struct nbp_loss_record *loss);
void tracked__loss(struct timings *timings, struct tracked *tracked,
		   const struct nbp_loss_record *loss);

/* timing_open.c */
struct work *tracked__work(struct timings *timings, struct tracked *tracked);
struct open *open__make(struct timings *timings, struct tracked *tracked,
			const struct nbp_record *record, uint64_t number, uint64_t now_ns);
struct open *work__find(const struct work *work, uint64_t number);
struct open *work__need(struct timings *timings, struct tracked *tracked,
			const struct nbp_record *record, uint64_t number, uint64_t now_ns);
void open__add(struct timings *timings, struct tracked *tracked, struct open *open,
	       const struct timing_operation *operation);
bool open__is_pending(const struct open *open);
void open__hand_out(struct timings *timings, struct tracked *tracked, struct open *open);
void work__hand_out(struct timings *timings, struct tracked *tracked, struct open *open);
void work__give_up(struct timings *timings, struct tracked *tracked, struct open *open);
void work__seal(const struct tracked *tracked);
void tracked__doubt(struct tracked *tracked);

/* timing_launch.c */
void tracked__call(struct timings *timings, struct tracked *tracked,
		   const struct nbp_record *record, uint64_t now_ns);
void tracked__operation(struct timings *timings, struct tracked *tracked,
			const struct nbp_record *record, uint64_t now_ns);
void tracked__launch(struct timings *timings, struct tracked *tracked,
		     const struct nbp_record *record, uint64_t now_ns);

/* timing_timer.c: NCCL's kernel timer, one operation at a time. */
bool work__has_timers(const struct work *work, uint64_t now_ns);
void tracked__hold(struct timings *timings, struct tracked *tracked, struct open *open);
void tracked__expect_timers(struct timings *timings, struct tracked *tracked, uint64_t now_ns);
void tracked__timer(struct timings *timings, struct tracked *tracked,
		    const struct nbp_record *record, uint64_t now_ns);
void tracked__settle_held(struct timings *timings, struct tracked *tracked, uint64_t now_ns);

/* timing_flight.c */
void flight__made(struct flight *flight, const struct timing_launch *launch, uint64_t launch_ns);
void flight__described(struct flight *flight, uint64_t number,
		       const struct timing_operation *operation);
void flight__done(struct flight *flight, const struct timing_launch *launch);
void flight__restart(struct flight *flight);
void tracked__told(struct timings *timings, struct tracked *tracked,
		   const struct nbp_record *record, uint64_t now_ns);
void tracked__beat(struct tracked *tracked, const struct nbp_record *record);
bool tracked__is_untold(const struct tracked *tracked, const struct open *open);
void tracked__expire_told(struct tracked *tracked);

/* timing_settle.c */
bool tracked__settle(struct timings *timings, struct tracked *tracked, uint64_t now_ns);
void tracked__close(struct timings *timings, struct tracked *tracked);

/* timing_call.c */
uint32_t calls__add(struct calls *calls, const struct call *call, uint32_t room);
uint64_t calls__take(struct calls *calls, const struct nbp_record *operation, uint64_t bytes);
uint32_t calls__expire(struct calls *calls, uint64_t before_ns);

/* timing_form.c */
void launch__judge(struct timing_launch *launch);

/* timing_check.c: TIMING_INVALID_MAX: the time is sound. */
enum timing_invalid nbp_launch__check(const struct nbp_launch *launch, uint64_t launch_ns,
				      uint64_t now_ns);
enum timing_invalid nbp_timer__check(const struct nbp_timer *timer, uint64_t launch_ns,
				     uint64_t now_ns);

#endif
