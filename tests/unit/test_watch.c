/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the judge is told of a tracer's picture, of calls and of plugins. */
#include "unit.h"

#include "../../src/comm.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_learn.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/nccl_api.c"
#include "../../src/watch.c"
#include "../../src/watch_comm.c"
#include "../../src/watch_loss.c"
#include "../../src/watch_number.c"
#include "../../src/watch_plugin.c"
#include "stub_verdict.h"
#include "timing_feed.h"

#include "stub_tracer.h"

#define HASH 0xc0ffeeULL
#define ADDR 0x7f0000000000ULL
#define PID  100

static uint64_t t_ns = 1000 * SECOND;

struct world {
	struct tracer *tracer;
	struct watch *watch;
};

static struct world world_new(void)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SECOND};
	struct world w = {.tracer = stub_new()};

	w.tracer->refreshed_ns = 1;
	timings__new(&w.tracer->timings, feed_keep, NULL);
	stub_process(w.tracer, PID, "train");
	CHECK_INT(watch__new(&w.watch, w.tracer, &options), 0);
	heard();
	return w;
}

static void world_free(struct world *w)
{
	watch__free(w->watch);
	timings__free(w->tracer->timings);
	stub_free(w->tracer);
}

static void settle(struct world *w, uint64_t after_ns)
{
	t_ns += after_ns;
	w->tracer->refresh_at_ns = t_ns;
	watch__settle(w->watch, t_ns);
}

static struct nb_record call_of(int rank, uint16_t function, uint64_t entry, uint64_t pending)
{
	return (struct nb_record){
		.kind = NB_KIND_CALL,
		.tgid = PID,
		.time_ns = t_ns,
		.function = function,
		.comm = ADDR + rank,
		.comm_hash = HASH,
		.rank = rank,
		.n_ranks = 8,
		.count = 10,
		.sequence = entry,
		.datatype = 7,
		.root = -1,
		.pending = pending,
	};
}

static void call(struct world *w, const struct nb_record record)
{
	t_ns += 1000;
	w->tracer->on_call(w->tracer->on_call_ctx, &record);
}

static void lifecycle(struct world *w, enum nccl_function_id function, uint64_t comm, int rank)
{
	const struct nb_record record = {
		.kind = NB_KIND_LIFECYCLE,
		.tgid = PID,
		.time_ns = t_ns,
		.function = function,
		.comm = comm,
		.rank = rank,
		.n_ranks = 8,
		.count = 0x5000 + rank,
	};

	comms__record(w->tracer->comms, &record);
}

/* What a helper has read of a communicator. */
static struct comm *learn(struct world *w, int rank, uint64_t all_reduces, int result)
{
	struct nccl_identity id = {
		.comm_hash = HASH,
		.rank = rank,
		.n_ranks = 8,
		.node = 0,
		.n_nodes = 2,
		.sequence = {[4] = all_reduces},
		.async_result = result,
		.valid = NCCL_IDENTITY_HASH | NCCL_IDENTITY_SEQUENCE | NCCL_IDENTITY_STATE |
			 NCCL_IDENTITY_NODES,
	};

	comms__learn(w->tracer->comms, PID, ADDR + rank, true, t_ns, &id);
	return comms__named(w->tracer->comms, PID, HASH, rank);
}

TEST(a_rank_and_its_calls)
{
	struct world w = world_new();

	comms__complete(w.tracer->comms, PID, t_ns);
	lifecycle(&w, NCCL_FN_CommInitRank, 0, 3);
	t_ns += MS;
	call(&w, call_of(3, NCCL_FN_AllReduce, 0, 1));
	call(&w, call_of(3, NCCL_FN_AllReduce, 0, 2));
	call(&w, call_of(3, NCCL_FN_AllGather, 0, 1));
	call(&w, call_of(3, NCCL_FN_AlltoAll, NB_NO_SEQUENCE, 1));
	call(&w, call_of(3, NCCL_FN_AllReduce, 2, 1));
	CHECK_STR(heard(), "join 3/8 whole nodes 0; AllReduce 3 #1 x10; AllReduce 3 #2 x10; "
			   "AllGather 3 #1 x10; AlltoAll 3 #1 x10; AllReduce 3 #3 x10; ");
	call(&w, call_of(3, NCCL_FN_AllReduce, 2, NB_PENDING_CAPTURED));
	call(&w, call_of(3, NCCL_FN_Signal, NB_NO_SEQUENCE, 0));
	CHECK(strstr(heard(), "AllReduce 3 #? captured x10; moved 3 at "));
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "");
	lifecycle(&w, NCCL_FN_CommDestroy, ADDR + 3, -1);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "destroyed 3; ");
	call(&w, call_of(3, NCCL_FN_AllReduce, 3, 1)); /* late: of one that is no more */
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "");
	world_free(&w);
}

TEST(one_that_was_there_before)
{
	struct world w = world_new();

	learn(&w, 1, 40, 0);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "join 1/8 nodes 2; AllReduce 1 reached 40; ");
	call(&w, call_of(1, NCCL_FN_AllReduce, 40, 1)); /* perhaps not the first of its group */
	call(&w, call_of(1, NCCL_FN_AllReduce, 41, 1));
	call(&w, call_of(1, NCCL_FN_AlltoAll, NB_NO_SEQUENCE, 1));
	CHECK_STR(heard(), "AllReduce 1 #? x10; AllReduce 1 #42 x10; AlltoAll 1 #? x10; ");
	world_free(&w);
}

/* A creation is matched with its communicator a moment after the first calls. */
TEST(its_making_is_learnt_late)
{
	struct world w = world_new();
	struct comm *comm;

	lifecycle(&w, NCCL_FN_CommInitRank, 0, 2);
	t_ns += MS;
	call(&w, call_of(2, NCCL_FN_AlltoAll, NB_NO_SEQUENCE, 1));
	call(&w, call_of(2, NCCL_FN_AlltoAll, NB_NO_SEQUENCE, 2));
	CHECK_STR(heard(), "join 2/8 nodes 0; AlltoAll 2 #? x10; AlltoAll 2 #? x10; ");
	comm = comms__named(w.tracer->comms, PID, HASH, 2);
	comms__made(w.tracer->comms, PID, 0x5002, ADDR + 2);
	CHECK_INT(comm->identity, COMM_OBSERVED);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "AlltoAll 2 reached 2; join 2/8 whole nodes 0; ");
	call(&w, call_of(2, NCCL_FN_AlltoAll, NB_NO_SEQUENCE, 3));
	CHECK_STR(heard(), "AlltoAll 2 #3 x10; ");
	comms__probed_since(w.tracer->comms, PID, t_ns); /* it was not all seen after all */
	settle(&w, 250 * MS);
	call(&w, call_of(2, NCCL_FN_AlltoAll, NB_NO_SEQUENCE, 4));
	CHECK_STR(heard(), "join 2/8 nodes 0; AlltoAll 2 #? x10; ");
	world_free(&w);
}

TEST(ends)
{
	struct world w = world_new();

	for (int rank = 0; rank < 4; rank++)
		learn(&w, rank, 0, 0);
	settle(&w, 250 * MS);
	heard();
	t_ns += MS;
	lifecycle(&w, NCCL_FN_CommAbort, ADDR + 0, -1);
	lifecycle(&w, NCCL_FN_CommFinalize, ADDR + 1, -1);
	settle(&w, 250 * MS);
	CHECK(strstr(told_words, "aborted 0; ") && strstr(told_words, "destroyed 1; "));
	heard();
	CHECK_INT(watch__errors(w.watch, &(struct verdict_member){HASH, 0, 8, PID})[WATCH_ABORTED],
		  1);
	lifecycle(&w, NCCL_FN_CommDestroy, ADDR + 1, -1); /* finalised long since */
	comms__process_gone(w.tracer->comms, PID, t_ns);
	settle(&w, 250 * MS);
	CHECK(strstr(told_words, "died 2; ") && strstr(told_words, "died 3; ") &&
	      !strstr(told_words, " 1; "));
	heard();
	comms__expire(w.tracer->comms, UINT64_MAX);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "");
	CHECK(!w.watch->members);
	world_free(&w);
}

/* A process that says it is a rank of another's communicator. */
TEST(a_name_that_another_has)
{
	struct world w = world_new();
	struct nb_record forged;

	call(&w, call_of(1, NCCL_FN_AllReduce, 5, 1));
	heard();
	forged = call_of(1, NCCL_FN_AllReduce, 900, 1);
	forged.tgid = PID + 1;
	call(&w, forged);
	settle(&w, 250 * MS);
	CHECK(!strstr(heard(), "join"));
	world_free(&w);
}

TEST(errors)
{
	struct world w = world_new();
	const struct verdict_member member = {HASH, 1, 8, PID};

	learn(&w, 1, 0, 7);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "join 1/8 nodes 2; ");
	t_ns += MS;
	learn(&w, 1, 0, 6);
	settle(&w, 250 * MS);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "error 1 'ncclRemoteError'; ");
	t_ns += MS;
	learn(&w, 1, 0, 0);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "error 1 ''; ");
	t_ns += MS;
	learn(&w, 1, 0, 31); /* of a release that nobody knows */
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "error 1 'ncclResult'; ");
	CHECK_INT(watch__errors(w.watch, &member)[6], 1);
	world_free(&w);
}

/* What nobody saw is learnt from memory, which is read again while nothing comes. */
TEST(read_again_while_it_is_quiet)
{
	struct world w = world_new();
	unsigned int n = 0;

	learn(&w, 1, 40, 0);
	for (int i = 0; i < 4 * 60; i++)
		settle(&w, 250 * MS);
	n = w.tracer->n_asked;
	CHECK(n >= 6 && n <= 16);
	heard();
	learn(&w, 1, 41, 0);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "AllReduce 1 reached 41; ");
	for (w.tracer->n_asked = 0; w.tracer->n_asked < 2 && n < 10000; n++) {
		call(&w, call_of(1, NCCL_FN_AllReduce, 41 + n, 1));
		settle(&w, 250 * MS);
	}
	CHECK(n > 60); /* busy: only for its errors */
	w.tracer->n_asked = 0;
	w.tracer->processes[0].scan_err = -EIO;
	for (int i = 0; i < 4 * 50; i++)
		settle(&w, 250 * MS);
	CHECK(w.tracer->n_asked <= 1);
	world_free(&w);
}

/* A call without a number of its own: memory is asked at once how far it is. */
TEST(a_call_that_is_not_numbered_is_looked_for)
{
	struct world w = world_new();

	learn(&w, 1, 40, 0);
	settle(&w, 250 * MS);
	call(&w, call_of(1, NCCL_FN_AllReduce, 40, 1));
	settle(&w, 250 * MS);
	CHECK_INT(w.tracer->n_asked, 0);
	settle(&w, 500 * MS);
	CHECK_INT(w.tracer->n_asked, 1);
	learn(&w, 1, 41, 0);
	heard();
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "AllReduce 1 reached 41; ");
	settle(&w, 750 * MS);
	CHECK_INT(w.tracer->n_asked, 1);
	world_free(&w);
}

static void count(struct world *w, int rank, uint64_t lost, uint64_t entry, uint64_t pending)
{
	const struct nb_key key = {ADDR + rank, HASH, PID, rank, NCCL_FN_AllReduce, 0, 8};
	const struct nb_counter counter = {
		.launched = {.calls = pending},
		.lost = lost,
		.first_ns = t_ns - MS,
		.last_ns = t_ns,
		.sequence = entry,
		.pending = pending,
	};

	comms__begin(w->tracer->comms);
	comms__count(w->tracer->comms, &key, &counter);
}

TEST(losses)
{
	struct world w = world_new();

	call(&w, call_of(1, NCCL_FN_AllReduce, 5, 1));
	call(&w, call_of(1, NCCL_FN_AllReduce, 6, 1));
	settle(&w, 2 * SECOND);
	heard();
	w.tracer->lost[NB_LOST_RING_FULL] = 3;
	count(&w, 1, 3, 9, 1);
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "lost 100; AllReduce 1 reached 10; ");
	settle(&w, 2 * SECOND);
	CHECK_STR(heard(), "AllReduce 1 reached 10; "); /* it stands there still */
	w.tracer->lost[NB_LOST_RING_FULL] = 4;		/* and that one is in no counter */
	settle(&w, 250 * MS);
	settle(&w, 2 * SECOND);
	settle(&w, 2 * SECOND);
	CHECK(strstr(heard(), "lost 0; "));
	settle(&w, 2 * SECOND);
	CHECK(!strstr(heard(), "lost"));
	w.tracer->lost[NB_LOST_GRAPH_FULL] = w.tracer->lost[NB_LOST_PLUGIN_RING_FULL] = 9;
	settle(&w, 250 * MS);
	CHECK(!strstr(heard(), "lost")); /* probes tell of all its calls */
	w.tracer->handed_over = PID;
	w.tracer->lost[NB_LOST_PLUGIN_RING_FULL] = 10;
	settle(&w, 250 * MS);
	CHECK(strstr(heard(), "lost 100; "));
	w.tracer->lost[TRACER_LOST_BAD_RECORD] = 1;
	settle(&w, 250 * MS);
	CHECK(strstr(heard(), "lost 0; "));
	world_free(&w);
}

/* A refresh costs: not more often than needed, at once where records were lost. */
TEST(refreshes)
{
	struct world w = world_new();

	for (int i = 0; i < 40; i++)
		settle(&w, 250 * MS);
	CHECK(w.tracer->n_refreshes >= 9 && w.tracer->n_refreshes <= 11);
	w.tracer->n_refreshes = 0;
	w.tracer->lost[NB_LOST_RING_FULL] = 1;
	settle(&w, 250 * MS);
	CHECK_INT(w.tracer->n_refreshes, 1);
	world_free(&w);
}

TEST(launches_of_graphs_move_it)
{
	struct world w = world_new();
	struct comm *comm = learn(&w, 1, 0, 0);

	settle(&w, 250 * MS);
	heard();
	comm->replayed_ns = 77;
	settle(&w, 2 * SECOND);
	settle(&w, 2 * SECOND);
	CHECK_STR(heard(), "moved 1 at 77; ");
	world_free(&w);
}

TEST(what_graphs_run_is_told)
{
	struct world w = world_new();
	struct comm *comm = learn(&w, 1, 0, 0);
	struct comm_operation *reduce = &comm->operations[NCCL_OP_ReduceScatter];

	settle(&w, 250 * MS);
	heard();
	reduce->tally[COMM_CAPTURED].calls = 3;
	reduce->tally[COMM_REPLAYED].calls = 30;
	comm->operations[NCCL_OP_Send].tally[COMM_CAPTURED].calls =
		9; /* differ from rank to rank */
	comm->operations[NCCL_OP_AllReduce].tally[COMM_CAPTURED].calls = 1;
	settle(&w, 2 * SECOND);
	CHECK_STR(heard(), "replayed 1: 30 of 4 2, known; ");
	w.tracer->processes[0].unresolved = 1;
	settle(&w, 2 * SECOND);
	CHECK(strstr(heard(), "moved 1 at "));
	settle(&w, 2 * SECOND);
	CHECK_STR(heard(), "replayed 1: 30 of 4 2, unknown; ");
	w.tracer->processes[0].unresolved = 0;
	w.tracer->lost[NB_LOST_GRAPH_FULL] = 1;
	settle(&w, 2 * SECOND);
	CHECK(strstr(heard(), "replayed 1: 30 of 4 2, unknown; "));
	world_free(&w);
}

/* ---- handed over: the plugin tells ---- */

static struct nbp_record api_of(int rank, uint8_t function, uint64_t count)
{
	return (struct nbp_record){
		.kind = NBP_KIND_API,
		.time_ns = now_ns(),
		.comm_hash = HASH,
		.rank = rank,
		.n_ranks = 8,
		.api = {.count = count, .function = function, .datatype = 7, .root = -1},
	};
}

static void api(struct world *w, const struct nbp_record record)
{
	w->tracer->plugin.call(w->tracer->plugin.ctx, PID, &record);
}

static void launched(struct world *w, enum nccl_operation operation, uint64_t sequence,
		     uint64_t call_ns)
{
	const struct timing_comm comm = {.key = {1, PID}, .hash = HASH, .rank = 1, .n_ranks = 8};

	w->tracer->plugin.operation(w->tracer->plugin.ctx, &comm,
				    &(struct timing_operation){.operation = operation,
							       .sequence = sequence,
							       .call_ns = call_ns,
							       .count = 4711});
}

TEST(only_the_plugin_tells)
{
	struct world w = world_new();
	struct nbp_record first, second;

	t_ns = now_ns();
	learn(&w, 1, 40, 0);
	settle(&w, 250 * MS);
	heard();
	/* A group: called, called, launched, launched. Which is which, its time tells. */
	first = api_of(1, NBP_ALLREDUCE, 10);
	second = api_of(1, NBP_ALLREDUCE, 20);
	second.time_ns = first.time_ns + 5;
	api(&w, first);
	api(&w, second);
	CHECK_STR(heard(), "");
	launched(&w, NCCL_OP_AllReduce, 41, second.time_ns);
	launched(&w, NCCL_OP_AllReduce, 40, first.time_ns);
	CHECK_STR(heard(), "AllReduce 1 #42 x20; AllReduce 1 #41 x10; ");
	api(&w, api_of(1, NBP_ALLREDUCE, 30)); /* of which launch it is, is not told */
	launched(&w, NCCL_OP_AllReduce, 42, 0);
	CHECK_STR(heard(), "AllReduce 1 #43 x30; ");
	/* One that does not get to its launch is called all the same. */
	api(&w, api_of(1, NBP_ALLREDUCE, 40));
	t_ns = now_ns();
	settle(&w, 250 * MS);
	CHECK_STR(heard(), "");
	settle(&w, 500 * MS);
	CHECK_STR(heard(), "AllReduce 1 #44 x40; ");
	launched(&w, NCCL_OP_AllReduce, 43, 0); /* at last */
	CHECK_STR(heard(), "");
	first = api_of(1, NBP_ALLREDUCE, 50);
	first.api.capture = NBP_CAPTURED_YES;
	api(&w, first);
	CHECK_STR(heard(), "AllReduce 1 #? captured x50; ");
	world_free(&w);
}

TEST(lost_words_of_the_plugin)
{
	struct world w = world_new();

	t_ns = now_ns();
	learn(&w, 1, 40, 0);
	settle(&w, 250 * MS);
	heard();
	w.tracer->plugin.lost(w.tracer->plugin.ctx, PID);
	api(&w, api_of(1, NBP_ALLREDUCE, 10));
	t_ns = now_ns();
	settle(&w, SECOND);
	CHECK_STR(heard(), "lost 100; AllReduce 1 #? x10; ");
	world_free(&w);
}

TEST(more_calls_than_have_room)
{
	struct world w = world_new();
	unsigned int n = 0;

	t_ns = now_ns();
	learn(&w, 1, 40, 0);
	settle(&w, 250 * MS);
	for (int i = 0; i < WATCH_MAX_HELD + 1; i++) {
		api(&w, api_of(1, NBP_ALLREDUCE, 10));
		for (const char *at = heard(); (at = strstr(at, "x10;")); at++)
			n++;
	}
	CHECK_INT(n, WATCH_MAX_HELD + 1); /* all told, in their order */
	CHECK(w.watch->n_held <= WATCH_MAX_ALL_HELD);
	settle(&w, 250 * MS);
	CHECK_INT(w.watch->n_held, 0);
	world_free(&w);
}

TEST(what_copy_engines_do_has_numbers_of_its_own)
{
	struct world w = world_new();
	const struct timing_comm comm = {.key = {1, PID}, .hash = HASH, .rank = 1, .n_ranks = 8};

	t_ns = now_ns();
	learn(&w, 1, 40, 0);
	settle(&w, 250 * MS);
	heard();
	api(&w, api_of(1, NBP_ALLGATHER, 10));
	w.tracer->plugin.operation(w.tracer->plugin.ctx, &comm,
				   &(struct timing_operation){.operation = NCCL_OP_AllGather,
							      .sequence = 3,
							      .algorithm = NBP_COPY_ENGINE});
	CHECK_STR(heard(), "");
	world_free(&w);
}

static void launch(struct world *w, const struct timing_launch launch)
{
	w->tracer->on_launch(w->tracer->on_launch_ctx, &launch);
}

TEST(gpu_times)
{
	struct world w = world_new();
	const struct timing_comm comm = {.key = {1, PID}, .hash = HASH, .rank = 1, .n_ranks = 8};
	const struct timing_operation operations[2] = {
		{.operation = NCCL_OP_Reduce, .sequence = 6},
		{.operation = NCCL_OP_Send, .sequence = NBP_NO_NUMBER},
	};
	struct timing_launch l = {
		.comm = &comm,
		.number = 1,
		.duration_ns = 500,
		.complete = true,
		.n_operations = 1,
		.n_described = 1,
		.operations = operations,
	};

	learn(&w, 1, 0, 0);
	settle(&w, 250 * MS);
	heard();
	launch(&w, l);
	CHECK_STR(heard(), "timed 1 Reduce #7 500 ns; ");
	l.n_operations = l.n_described = 2;
	launch(&w, l);
	l.n_operations = l.n_described = 1;
	l.operations = operations + 1;
	launch(&w, l);
	l.operations = operations;
	l.capture = NBP_CAPTURED_YES;
	launch(&w, l);
	l.capture = NBP_CAPTURED_NO;
	l.number = 0; /* a graph's replay */
	launch(&w, l);
	CHECK_STR(heard(), "");
	world_free(&w);
}

/* However many processes and communicators there are. */
TEST(room)
{
	struct world w = world_new();

	for (int i = 0; i < WATCH_MAX_MEMBERS + 10; i++) {
		struct nb_record r = call_of(1, NCCL_FN_AllReduce, 5, 1);

		r.comm_hash += i + 1;
		r.comm += i * 64;
		call(&w, r);
		told_words[0] = 0;
	}
	CHECK_INT(HASH_COUNT(w.watch->members), WATCH_MAX_MEMBERS);
	CHECK_INT(watch__refused(w.watch), 10);
	world_free(&w);
}

UNIT_MAIN()
