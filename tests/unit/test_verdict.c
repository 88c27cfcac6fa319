/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include "../../src/nccl_api.c"

#include "verdict_sources.h"

#define MS   NSEC_PER_MSEC
#define SEC  NSEC_PER_SEC
#define HASH 0xabcdef0123456789ULL

TEST(missing_call_is_named)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * SEC};
	struct verdicts *verdicts = NULL;
	const struct verdict *v;
	uint64_t now = 1000 * SEC;

	CHECK_INT(verdicts__new(&verdicts, &options), 0);
	for (int32_t r = 0; r < 4; r++)
		verdicts__join(verdicts, &(struct verdict_member){HASH, r, 4, 100 + r}, true, 1,
			       now);
	for (uint64_t n = 1; n <= 400; n++, now += 250 * MS) {
		for (int32_t r = 0; r < 4; r++) {
			struct verdict_call call = {
				.member = {HASH, r, 4, 100 + r},
				.operation = NCCL_OP_AllReduce,
				.sequence = n,
				.time_ns = now,
				.count = 1024,
				.root = -1,
			};

			if (n < 100 || (n == 100 && r != 2))
				verdicts__call(verdicts, &call);
		}
		verdicts__settle(verdicts, now + MS);
		v = verdict_comm__now(verdicts__find(verdicts, HASH));
		if (n == 99)
			CHECK_INT(v->state, VERDICT_HEALTHY);
		if (n == 120) {
			CHECK_INT(v->state, VERDICT_WAITING);
			CHECK_INT(v->culprits.n, 1);
			CHECK_INT(v->culprits.ranks[0], 2);
			CHECK_INT(v->waiting.n, 3);
			CHECK_INT(v->sequence, 100);
			CHECK_INT(v->operation, NCCL_OP_AllReduce);
		}
	}
	CHECK_INT(v->state, VERDICT_STUCK);
	verdicts__free(verdicts);
}

UNIT_MAIN()
