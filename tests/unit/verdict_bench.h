/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* One communicator (and a second one) whose ranks do exactly what a test says. */
#ifndef VERDICT_BENCH_H
#define VERDICT_BENCH_H

#define MS	  NSEC_PER_MSEC
#define SEC	  NSEC_PER_SEC
#define HASH	  0xabcdef0123456789ULL
#define OTHER	  0x1111222233334444ULL
#define BENCH_MAX 64

struct bench {
	struct verdicts *verdicts;
	uint64_t now_ns, settled_ns;
	int n;
	uint64_t sequences[BENCH_MAX][NCCL_OP_MAX];
	bool hears[BENCH_MAX]; /* its calls are told */
};

static struct verdict_member bench_member(const struct bench *b, int rank)
{
	return (struct verdict_member){HASH, rank, b->n, 100 + rank};
}

static void bench_settle(struct bench *b)
{
	while (b->settled_ns + 250 * MS <= b->now_ns) {
		b->settled_ns += 250 * MS;
		verdicts__settle(b->verdicts, b->settled_ns);
	}
}

/* Lets time pass, with settles. */
static void bench_pass(struct bench *b, uint64_t ns)
{
	b->now_ns += ns;
	bench_settle(b);
}

static void bench_init(struct bench *b, int n, bool whole, uint64_t stuck_after_ns)
{
	const struct verdict_options options = {.stuck_after_ns = stuck_after_ns};

	*b = (struct bench){.n = n, .now_ns = 1000 * SEC, .settled_ns = 1000 * SEC};
	CHECK_INT(verdicts__new(&b->verdicts, &options), 0);
	for (int rank = 0; rank < n; rank++) {
		const struct verdict_member member = bench_member(b, rank);

		verdicts__join(b->verdicts, &member, whole, 1, b->now_ns);
		b->hears[rank] = true;
	}
}

static void bench_free(struct bench *b)
{
	verdicts__free(b->verdicts);
}

static struct verdict_call bench_call(struct bench *b, int rank, enum nccl_operation operation)
{
	return (struct verdict_call){
		.member = bench_member(b, rank),
		.operation = operation,
		.sequence = ++b->sequences[rank][operation],
		.time_ns = b->now_ns,
		.count = 1024,
		.datatype = 7,
		.redop = operation == NCCL_OP_AllReduce ? 0 : ~0U,
		.root = operation == NCCL_OP_Broadcast ? 0 : -1,
	};
}

static void bench_send(struct bench *b, const struct verdict_call *call)
{
	if (b->hears[call->member.rank])
		verdicts__call(b->verdicts, call);
}

static void call_one(struct bench *b, int rank, enum nccl_operation operation)
{
	const struct verdict_call call = bench_call(b, rank, operation);

	bench_send(b, &call);
}

/* All but one (-1: all) call, a little apart. */
static void call_all_but(struct bench *b, int but, enum nccl_operation operation)
{
	for (int rank = 0; rank < b->n; rank++) {
		if (rank != but)
			call_one(b, rank, operation);
		b->now_ns += 1000;
	}
}

static void steps(struct bench *b, int n, uint64_t period_ns)
{
	for (int i = 0; i < n; i++) {
		call_all_but(b, -1, NCCL_OP_AllReduce);
		bench_pass(b, period_ns);
	}
}

static const struct verdict *verdict_of(const struct bench *b)
{
	return verdict_comm__now(verdicts__find(b->verdicts, HASH));
}

static const struct verdict *worst_of(const struct bench *b)
{
	return verdict_comm__worst(verdicts__find(b->verdicts, HASH));
}

static bool names(const struct verdict_named *named, int n, const int *ranks)
{
	if (named->n != (uint32_t)n)
		return false;
	for (int i = 0; i < n; i++) {
		if (named->ranks[i] != ranks[i])
			return false;
	}
	return true;
}

#define NAMES(named, ...)                                                                          \
	names(named, sizeof((int[]){__VA_ARGS__}) / sizeof(int), (int[]){__VA_ARGS__})

#define CHECK_STATE(b, want) CHECK_STR(verdict_state__name(verdict_of(b)->state), want)
#define CHECK_WHY(b, part)                                                                         \
	do {                                                                                       \
		if (!strstr(verdict_of(b)->why, part)) {                                           \
			unit_n_failures++;                                                         \
			printf("FAIL %s:%d: \"%s\" is not in \"%s\"\n", __FILE__, __LINE__, part,  \
			       verdict_of(b)->why);                                                \
		}                                                                                  \
	} while (0)

#endif
