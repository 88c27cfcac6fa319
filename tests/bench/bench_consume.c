/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the agent's side of the ring and of the counters costs; a BPF loop stands for the jobs. */
#include "../../src/probe.c"

#include <pthread.h>
#include <sched.h>
#include <sys/epoll.h>

#include "bench.h"
#include "bench.skel.h"
#include "loop.h"
#include "tracer.h"
#include "watch.h"

#define ROUNDS	     15
#define RING_BYTES   (16 << 20)
#define N_FILL	     160000 /* 16 MB hold 161 319 */
#define RATE_PER_S   2000000ULL
#define SUSTAIN_NS   (2 * NSEC_PER_SEC)
#define TICK_MS	     100 /* the agent's */
#define N_COMMS	     10000
#define N_OPERATIONS 5
#define N_RANKS	     8

struct bench {
	struct loop *loop;
	struct tracer *tracer;
	struct probe *probe; /* its */
	struct watch *watch;
	struct bench_bpf *skel;
	struct comms *comms;
	uint64_t end_ns, feeder_behind_ns;
	volatile bool done;
};

static void bench__feed(struct bench *bench, uint32_t n)
{
	DECLARE_LIBBPF_OPTS(bpf_test_run_opts, opts, .ctx_in = &n, .ctx_size_in = sizeof(n));

	if (bpf_prog_test_run_opts(bpf_program__fd(bench->skel->progs.feed), &opts))
		die("the feeding program", errno);
}

static void bench__open(struct bench *bench)
{
	const struct tracer_options options = {.probe = {.ring_bytes = RING_BYTES}};
	const char *why = NULL;
	int err =
		loop__new(&bench->loop) ?: tracer__new(&bench->tracer, bench->loop, &options, &why);

	if (err)
		die(why, err);
	comms__new(&bench->comms);
	bench->probe = tracer__probe(bench->tracer);
	bench->skel = bench_bpf__open();
	if (!bench->skel ||
	    bpf_map__reuse_fd(bench->skel->maps.events, probe__events_fd(bench->probe)))
		die("bench.bpf", errno);
	bpf_program__set_autoload(bench->skel->progs.bare, false);
	if (bench_bpf__load(bench->skel))
		die("bench.bpf", errno);
	bench->skel->bss->wake_bytes = RING_BYTES / 16; /* as the tracer */
	bench->skel->bss->template = (struct nb_record){
		.kind = NB_KIND_CALL,
		.size = sizeof(struct nb_record),
		.tgid = 1,
		.function = NCCL_FN_AllReduce,
		.comm = 0x7f0000000000,
		.comm_hash = 0x123456789abcdef,
		.n_ranks = N_RANKS,
		.count = 1000,
		.root = -1,
		.pending = 1,
	};
	bench->skel->bss->n_ranks = N_RANKS;
}

/* As `run` does: with a judge, to whom each call is told. */
static void bench__watch(struct bench *bench)
{
	const struct verdict_options options = {.stuck_after_ns = 60 * NSEC_PER_SEC};
	int err = watch__new(&bench->watch, bench->tracer, &options);

	if (err)
		die("watch", err);
}

static void pin(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu % sysconf(_SC_NPROCESSORS_ONLN), &set);
	sched_setaffinity(0, sizeof(set), &set); /* where it may not: it floats */
}

static void full_ring(struct bench *bench, const char *name)
{
	struct rounds ns = {};

	for (int i = 0; i < ROUNDS; i++) {
		uint64_t start, before = probe__received(bench->probe);

		bench__feed(bench, N_FILL);
		start = now_ns();
		probe__consume(bench->probe);
		rounds__add(&ns,
			    (double)(now_ns() - start) / (probe__received(bench->probe) - before));
	}
	rounds__print(&ns, name);
}

static void *feeder_main(void *arg)
{
	struct bench *bench = arg;
	uint64_t start, now, made = 0;

	pin(1);
	start = now_ns();
	while ((now = now_ns()) < start + SUSTAIN_NS) {
		uint64_t due = (now - start) * (RATE_PER_S / 1000000) / 1000 - made;

		/* What an interruption kept back must not come as one burst that no job makes. */
		if (due > RATE_PER_S / 100) {
			bench->feeder_behind_ns += due * 1000 / (RATE_PER_S / 1000000);
			made += due - RATE_PER_S / 100;
			due = RATE_PER_S / 100;
		}
		if (due)
			bench__feed(bench, due);
		made += due;
	}
	bench->end_ns = now_ns() - start;
	bench->done = true;
	return NULL;
}

static uint64_t thread_cpu_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &ts);
	return ts.tv_sec * NSEC_PER_SEC + ts.tv_nsec;
}

static void sustained(struct bench *bench)
{
	uint64_t before = probe__received(bench->probe), cpu_ns = thread_cpu_ns(), n;
	struct epoll_event event = {.events = EPOLLIN};
	int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	pthread_t feeder;

	bench->skel->bss->feed_lost = bench->skel->bss->fed = 0;
	pin(0);
	epoll_ctl(epoll_fd, EPOLL_CTL_ADD, probe__ring_fd(bench->probe), &event);
	if (pthread_create(&feeder, NULL, feeder_main, bench))
		die("thread", errno);
	while (!bench->done) {
		epoll_wait(epoll_fd, &event, 1, TICK_MS);
		probe__consume(bench->probe);
	}
	pthread_join(feeder, NULL);
	probe__consume(bench->probe);
	cpu_ns = thread_cpu_ns() - cpu_ns;
	n = probe__received(bench->probe) - before;
	printf("sustained_per_s %.0f\n", (n + bench->skel->bss->feed_lost) * 1e9 / bench->end_ns);
	printf("sustained_lost %llu\n", (unsigned long long)bench->skel->bss->feed_lost);
	printf("sustained_cpu_ns %.1f\n", (double)cpu_ns / n);
}

static void on_counter(void *ctx, const struct nb_key *key, const struct nb_counter *counter)
{
	comms__count(ctx, key, counter);
}

static void bench__add_counters(struct bench *bench)
{
	static const uint16_t functions[N_OPERATIONS] = {
		NCCL_FN_AllReduce, NCCL_FN_AllGather, NCCL_FN_ReduceScatter,
		NCCL_FN_Broadcast, NCCL_FN_Reduce,
	};
	const struct nb_counter counter = {.launched.calls = 1, .first_ns = 1, .last_ns = 2};
	int fd = bpf_map__fd(bench->probe->skel->maps.counters);

	for (int i = 0; i < N_COMMS * N_OPERATIONS; i++) {
		int comm = i / N_OPERATIONS;
		const struct nb_key key = {
			.comm = 0x7f0000000000 + comm * 0x100000ULL,
			.comm_hash = (comm + 1) * 0x9e3779b97f4a7c15ULL,
			.tgid = 1000 + comm % 8,
			.rank = comm % 8,
			.n_ranks = 8,
			.function = functions[i % N_OPERATIONS],
		};

		if (bpf_map_update_elem(fd, &key, &counter, BPF_ANY))
			die("counter", errno);
	}
}

static uint64_t refresh_ns(struct bench *bench)
{
	uint64_t start = now_ns();

	comms__begin(bench->comms);
	probe__read_counters(bench->probe, on_counter, bench->comms);
	return now_ns() - start;
}

static void many_counters(struct bench *bench)
{
	struct rounds ms = {};

	bench__add_counters(bench);
	printf("first_refresh_ms %.2f\n", refresh_ns(bench) / 1e6);
	for (int i = 0; i < ROUNDS; i++)
		rounds__add(&ms, refresh_ns(bench) / 1e6);
	rounds__print(&ms, "refresh_ms");
}

int main(void)
{
	static struct bench bench;

	bench__open(&bench);
	full_ring(&bench, "consume_ns");
	bench__watch(&bench);
	full_ring(&bench, "watched_ns");
	sustained(&bench);
	many_counters(&bench);
	return 0;
}
