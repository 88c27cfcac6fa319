/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/comm.c"
#include "../../src/comm_graph.c"
#include "../../src/comm_owner.c"
#include "../../src/comm_plugin.c"
#include "../../src/comm_query.c"
#include "../../src/logline.c"
#include "../../src/nccl_api.c"
#include "../../src/rates.c"

#include "stub_tracer.h"

TEST(rates_are_differences)
{
	struct tracer *tracer = stub_new();
	struct rates *rates = NULL;
	struct comm *comm = stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 100);
	struct comm *late;

	CHECK_INT(rates__new(&rates, 0), 0);
	CHECK_INT(rates__update(rates, tracer->comms, 50, 2 * NSEC_PER_SEC), 0);
	CHECK_INT(rates__of(rates, comm).operations, 50);
	CHECK_INT(rates__of(rates, comm).bytes, 50000);
	CHECK_INT(rates__total(rates).records, 25);

	comms__begin(tracer->comms);
	stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 110);
	late = stub_calls(tracer, 6, 2, 0, NCCL_FN_AllGather, 5);
	CHECK_INT(rates__of(rates, late).operations, 0);
	CHECK_INT(rates__update(rates, tracer->comms, 50, 3 * NSEC_PER_SEC), 0);
	CHECK_INT(rates__of(rates, comm).operations, 10);
	CHECK_INT(rates__of(rates, late).bytes, 5 * 1000 * 8);
	CHECK_INT(rates__total(rates).operations, 15);
	CHECK_INT(rates__total(rates).records, 0);

	/* nothing moved; no time has passed; time ran backwards */
	rates__update(rates, tracer->comms, 50, 4 * NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).operations, 0);
	rates__update(rates, tracer->comms, 90, 4 * NSEC_PER_SEC);
	CHECK_INT(rates__total(rates).records, 0);
	rates__update(rates, tracer->comms, 99, 1 * NSEC_PER_SEC);
	CHECK_INT(rates__total(rates).records, 0);
	rates__free(rates);
	stub_free(tracer);
}

TEST(bytes_that_become_known_are_no_burst)
{
	struct tracer *tracer = stub_new();
	struct rates *rates = NULL;
	struct comm *comm = stub_calls(tracer, 5, 1, 0, NCCL_FN_AllGather, 100);

	rates__new(&rates, 0);
	comm->n_ranks = 0;
	rates__update(rates, tracer->comms, 0, NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).operations, 100);
	CHECK_INT(rates__of(rates, comm).bytes, 0);
	comm->n_ranks = 8;
	rates__update(rates, tracer->comms, 0, 2 * NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).bytes, 0);
	stub_calls(tracer, 5, 1, 0, NCCL_FN_AllGather, 1);
	rates__update(rates, tracer->comms, 0, 3 * NSEC_PER_SEC);
	CHECK_INT(rates__of(rates, comm).bytes, 8000);
	rates__free(rates);
	stub_free(tracer);
}

TEST(what_is_gone_is_forgotten)
{
	struct tracer *tracer = stub_new();
	struct rates *rates = NULL;
	struct comm *comm = stub_calls(tracer, 5, 1, 0, NCCL_FN_AllReduce, 100);

	rates__new(&rates, 0);
	rates__update(rates, tracer->comms, 0, NSEC_PER_SEC);
	comm->dead_ns = 1;
	comms__expire(tracer->comms, 2);
	rates__update(rates, tracer->comms, 0, 2 * NSEC_PER_SEC);
	CHECK(!rates->all);
	rates__free(rates);
	stub_free(tracer);
}

TEST(log_line)
{
	struct tracer *tracer = stub_new();
	struct logline *logline = NULL;
	char line[512] = "";
	FILE *out = fmemopen(line, sizeof(line), "w");

	CHECK_INT(logline__new(&logline, out), 0);
	logline->rates->last_ns = 0;
	CHECK_INT(logline__write(logline, tracer, NSEC_PER_SEC), 0);
	CHECK_STR(strchr(line, ' '),
		  " processes=0 unsupported=0 communicators=0 operations/s=0.0 bytes/s=0 "
		  "records/s=0.0 lost=0 oldest_call=-\n");
	CHECK(strlen(line) > 20 && line[19] == 'Z' && line[10] == 'T');
	rewind(out);
	stub_calls(tracer, 9, 1, 0, NCCL_FN_AllReduce, 7);
	tracer->census.traced = 1;
	tracer->lost[TRACER_LOST_BAD_RECORD] = 2;
	CHECK_INT(logline__write(logline, tracer, 6 * NSEC_PER_SEC), 0);
	CHECK_STR(strchr(line, ' '),
		  " processes=1 unsupported=0 communicators=1 operations/s=1.4 bytes/s=1400 "
		  "records/s=0.0 lost=2 oldest_call=1.0s\n");
	logline__free(logline);
	fclose(out);
	stub_free(tracer);
}

UNIT_MAIN()
