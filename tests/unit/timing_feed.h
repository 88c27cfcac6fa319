/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Plugin records for the tests, and a listener that keeps what it is handed. Includes the module.
 */
#ifndef NCCL_BPFTRACE_TESTS_TIMING_FEED_H
#define NCCL_BPFTRACE_TESTS_TIMING_FEED_H

#include "../../src/timing.c"
#include "../../src/timing_call.c"
#include "../../src/timing_check.c"
#include "../../src/timing_flight.c"
#include "../../src/timing_form.c"
#include "../../src/timing_launch.c"
#include "../../src/timing_loss.c"
#include "../../src/timing_number.c"
#include "../../src/timing_open.c"
#include "../../src/timing_settle.c"
#include "../../src/timing_timer.c"

#define FEED_MAX 64
#define TGID	 1000
#define TID	 1001
#define US	 1000ULL
#define MS	 1000000ULL
#define SECOND	 1000000000ULL

/* Copies of what was handed out. */
struct feed {
	struct timings *timings;
	uint64_t now_ns;
	struct timing_launch launches[FEED_MAX];
	struct timing_operation operations[FEED_MAX][16];
	unsigned int n;
	uint64_t api, launch, operation; /* numbers given */
	uint64_t group, comm_id;
	int32_t rank, n_ranks;
};

static void feed_keep(void *ctx, const struct timing_launch *launch)
{
	struct feed *feed = ctx;
	unsigned int i = feed->n++;

	if (i >= FEED_MAX)
		return;
	feed->launches[i] = *launch;
	for (uint32_t k = 0; k < launch->n_described && k < 16; k++)
		feed->operations[i][k] = launch->operations[k];
}

static inline struct feed *feed_new(void)
{
	struct feed *feed = calloc(1, sizeof(*feed));

	timings__new(&feed->timings, feed_keep, feed);
	feed->now_ns = 1000 * SECOND;
	feed->comm_id = 7;
	feed->n_ranks = 8;
	feed->rank = 3;
	return feed;
}

static inline void feed_free(struct feed *feed)
{
	timings__free(feed->timings);
	free(feed);
}

static inline struct nbp_record feed_record(struct feed *feed, enum nbp_kind kind)
{
	return (struct nbp_record){
		.kind = kind,
		.size = sizeof(struct nbp_record),
		.tid = TID,
		.time_ns = feed->now_ns,
		.comm_hash = 0xabc + feed->comm_id,
		.rank = feed->rank,
		.n_ranks = feed->n_ranks,
		.comm_id = feed->comm_id,
	};
}

static inline void feed_send(struct feed *feed, const struct nbp_record *record)
{
	timings__record(feed->timings, TGID, record, feed->now_ns);
}

static inline struct nbp_record feed_comm(struct feed *feed)
{
	struct nbp_record r = feed_record(feed, NBP_KIND_COMM);

	r.tid = 0;
	r.comm = (struct nbp_comm){.n_nodes = 1,
				   .cuda_device = 0,
				   .gpu_uuid = {0x12, 0x34, 0xab},
				   .abi = 5,
				   .name = "default_pg",
				   .api_number = feed->api,
				   .launch = feed->launch,
				   .operation = feed->operation,
				   .control = 0x7f00};
	return r;
}

static inline struct nbp_record feed_api(struct feed *feed, uint8_t function, uint64_t count,
					 uint32_t depth)
{
	struct nbp_record r = feed_record(feed, NBP_KIND_API);

	r.api = (struct nbp_api){
		.api_number = ++feed->api,
		.count = count,
		.group = feed->group,
		.root = NBP_NO_RANK,
		.group_depth = depth,
		.function = function,
		.datatype = 7,
		.redop = NBP_UNKNOWN_U8,
	};
	return r;
}

static inline struct nbp_record feed_launched(struct feed *feed, enum nbp_timing timing)
{
	struct nbp_record r = feed_record(feed, NBP_KIND_LAUNCH);

	r.launch = (struct nbp_launch){
		.launch = ++feed->launch,
		.stream = 0x5000,
		.clock_error_ns = NBP_UNKNOWN,
		.n_operations = NBP_UNKNOWN,
		.phase = NBP_LAUNCHED,
		.timing = timing,
	};
	return r;
}

/* Of the last launch. */
static inline struct nbp_record feed_operation(struct feed *feed, uint8_t function, uint64_t count,
					       int32_t peer)
{
	struct nbp_record r = feed_record(feed, NBP_KIND_OPERATION);

	r.operation = (struct nbp_operation){
		.sequence = 100 + feed->operation,
		.count = count,
		.launch = feed->launch,
		.operation = ++feed->operation,
		.group = feed->group,
		.root = peer,
		.n_channels = 16,
		.function = function,
		.datatype = 7,
		.redop = NBP_UNKNOWN_U8,
		.algorithm = NBP_RING,
		.protocol = NBP_SIMPLE,
	};
	return r;
}

/* Started 20 us after its launch; the clock goes on to its end. */
static inline struct nbp_record feed_finished(struct feed *feed, const struct nbp_record *launched,
					      uint64_t duration_ns, uint32_t n_operations)
{
	struct nbp_record r = *launched;
	uint64_t start_ns = launched->time_ns + 20 * US;

	if (feed->now_ns < start_ns + duration_ns)
		feed->now_ns = start_ns + duration_ns + 10 * US;
	r.launch.phase = NBP_FINISHED;
	r.launch.source = NBP_SOURCE_CUDA_EVENT;
	r.launch.gpu_start_ns = start_ns;
	r.launch.gpu_end_ns = start_ns + duration_ns;
	r.launch.duration_ns = duration_ns;
	r.launch.clock_error_ns = 2000;
	r.launch.n_operations = n_operations;
	return r;
}

#define SEND(feed, ...)                                                                            \
	do {                                                                                       \
		const struct nbp_record feed_r = __VA_ARGS__;                                      \
		feed_send(feed, &feed_r);                                                          \
	} while (0)

#endif
