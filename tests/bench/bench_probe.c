/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * What one traced call costs: for the program by the kernel's own statistics, and for the caller.
 * usage: bench_probe LIBRARY [null]; null: calls have no communicator (the real NCCL, no GPU)
 *        bench_probe PLUGIN N; batches of N records handed to the plugin's hook
 *        bench_probe DRIVER; launches of a CUDA graph that was captured while it was probed
 */
#include "../../src/attach.c"

#include <bpf/libbpf.h>
#include <dlfcn.h>

#include "bench.skel.h"
#include "bench.h"
#include "probe.h"
#include "usdt.h"

#define ROUNDS	     11
#define MAX_CALLS    20000 /* of a round; fewer where each takes long */
#define MIN_CALLS    2000
#define ROUND_NS     (40 * NSEC_PER_MSEC)
#define N_WARM	     200
#define RING_BYTES   (16 << 20)
#define SMALL_RING   (2 << 20)				   /* MAX_CALLS records just fit */
#define RECORD_BYTES (sizeof(struct nb_plugin_record) + 8) /* in the ring */
#define MAX_WAITS    150				   /* of 20 ms, for other tracers to go */

/* Of ncclAllReduce and of what makes a communicator; no more of NCCL is needed. */
typedef int all_reduce_fn(const void *, void *, size_t, int, int, void *, void *);
struct unique_id {
	char internal[128];
};

struct site {
	const char *path;
	struct image image;
	all_reduce_fn *call;
	void *comm;
	void (*hook)(const struct nbp_record *, uint32_t); /* the plugin's; else NULL */
	uint32_t n_records;				   /* for it */
	struct nbp_record *records;
	int (*launch)(uint64_t, void *); /* libcuda's; else NULL */
	void *driver;
	uint64_t exec;
	const void *address; /* of the function */
	uint64_t offset;
	unsigned char entry[8]; /* its first bytes without any probe */
};

/* BEHIND: the agent does not come to take, most calls find more than a sixteenth of the ring full.
 */
enum { UNTRACED, BARE, COUNTED, RECORDED, BEHIND, N_VARIANTS };
static const char *const names[N_VARIANTS] = {"untraced", "bare", "counted", "recorded", "behind"};

struct variant {
	int program_fd;
	struct probe *probe; /* NULL: none of ours */
	struct rounds caller_ns, program_ns;
};

struct bench {
	struct site site;
	struct variant variants[N_VARIANTS];
	int libraries_fd;
	bool multi;
	unsigned int n_waits, n_dropped;
};

struct measured {
	double caller_ns, program_ns;
};

static void site__open_comm(struct site *site, void *library)
{
	int (*get_id)(struct unique_id *) = dlsym(library, "ncclGetUniqueId");
	int (*init)(void **, int, struct unique_id, int) = dlsym(library, "ncclCommInitRank");
	void (*sim_attach)(void *, int, int, int) = dlsym(library, "nccl_sim_attach");
	struct unique_id id;

	if (sim_attach)
		sim_attach(NULL, 0, 1, 0);
	if (!get_id || !init || get_id(&id) || init(&site->comm, 1, id, 0))
		die("cannot make a communicator", 0);
}

static void site__open_nccl(struct site *site, void *library, const char *how)
{
	site->call = (all_reduce_fn *)dlsym(library, "ncclAllReduce");
	if (!site->call)
		die("exports no NCCL", 0);
	site->address = (const void *)site->call;
	site->offset = site->image.nccl.entry[NCCL_FN_AllReduce];
	if (!how)
		site__open_comm(site, library);
}

static void site__open_plugin(struct site *site, void *library, int fd, const char *n)
{
	struct elf_file file;
	struct usdt usdt;
	Dl_info info;

	site->n_records = n ? atoi(n) : 1;
	site->records = calloc(NBP_MAX_BATCH, sizeof(*site->records));
	site->offset = site->image.sites[0].offset;
	if (!site->records || !dladdr(dlsym(library, "ncclProfiler_v6"), &info) ||
	    elf_file__open(&file, fd) || usdt__find(&file, NBP_PROVIDER, NBP_PROBE, &usdt))
		die("the plugin", 0);
	elf_file__close(&file);
	site->hook = (void *)((char *)info.dli_fbase + usdt.vaddr);
	site->address = (const void *)site->hook;
	for (int i = 0; i < NBP_MAX_BATCH; i++) {
		site->records[i].kind = NBP_KIND_API;
		site->records[i].size = sizeof(*site->records);
	}
}

static void site__open_cuda(struct site *site, void *library)
{
	site->driver = library;
	site->launch = (int (*)(uint64_t, void *))dlsym(library, "cuGraphLaunch");
	site->address = (const void *)site->launch;
	for (uint32_t i = 0; i < site->image.n_sites; i++)
		if (!site->offset && site->image.sites[i].function == NB_GRAPH_LAUNCH)
			site->offset = site->image.sites[i].offset;
	if (!site->launch)
		die("no cuGraphLaunch", 0);
}

/* Seen by the probes: the launches are of a graph that they know. */
static void site__capture(struct site *site)
{
	int (*begin)(void *, int) = dlsym(site->driver, "cuStreamBeginCapture_v2");
	int (*end)(void *, uint64_t *) = dlsym(site->driver, "cuStreamEndCapture");
	int (*make)(uint64_t *, uint64_t, uint64_t) =
		dlsym(site->driver, "cuGraphInstantiateWithFlags");
	int (*destroy)(uint64_t) = dlsym(site->driver, "cuGraphDestroy");
	uint64_t graph = 0;

	if (!begin || !end || !make || !destroy)
		die("not the stand-in driver", 0);
	begin((void *)0x1000, 0);
	end((void *)0x1000, &graph);
	make(&site->exec, graph, 0);
	destroy(graph);
}

static void site__open(struct site *site, const char *path, const char *how)
{
	void *library = dlopen(path, RTLD_NOW);
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (!library || fd < 0)
		die(path, errno);
	site->path = path;
	if (image__read(fd, &site->image) || !site->image.n_sites)
		die("nothing to probe in it", 0);
	if (site->image.kind == IMAGE_PLUGIN)
		site__open_plugin(site, library, fd, how);
	else if (site->image.kind == IMAGE_CUDA)
		site__open_cuda(site, library);
	else
		site__open_nccl(site, library, how);
	if (pread(fd, site->entry, sizeof(site->entry), site->offset) < 0)
		die(path, errno);
	close(fd);
}

/* Another tracer on this machine may have found us. */
static bool site__is_untouched(const struct site *site)
{
	return !memcmp(site->address, site->entry, sizeof(site->entry));
}

static uint64_t site__calls_ns(const struct site *site, unsigned int n)
{
	uint64_t start = now_ns();

	for (unsigned int i = 0; i < n && site->hook; i++)
		site->hook(site->records, site->n_records);
	for (unsigned int i = 0; i < n && site->launch; i++)
		site->launch(site->exec, NULL);
	for (unsigned int i = 0; i < n && site->call; i++)
		site->call(NULL, NULL, 1024, 7, 0, site->comm, NULL);
	return now_ns() - start;
}

static void program__stats(int fd, uint64_t *ret_ns, uint64_t *ret_runs)
{
	struct bpf_prog_info info = {};
	uint32_t len = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &len))
		die("statistics", errno);
	*ret_ns = info.run_time_ns;
	*ret_runs = info.run_cnt;
}

static int bench__attach(struct bench *bench, const struct variant *v, int *fds)
{
	const struct attach_request request = {
		.program_fd = v->program_fd,
		.libraries_fd = v->probe ? probe__libraries_fd(v->probe) : bench->libraries_fd,
		.multi = bench->multi,
	};
	bool split;
	int n = attach_image(&request, bench->site.path, &bench->site.image, fds, &split);

	if (n < 0)
		die("attach", n);
	return n;
}

/* False: another tracer stays. */
static bool bench__wait_untouched(struct bench *bench)
{
	while (!site__is_untouched(&bench->site) && bench->n_waits < MAX_WAITS) {
		bench->n_waits++;
		usleep(20000);
	}
	return site__is_untouched(&bench->site);
}

/* Of the plugin's batches no more than the ring holds: it is emptied after each round. */
static unsigned int site__n_calls(const struct site *site, uint64_t warm_ns)
{
	uint64_t n = ROUND_NS * N_WARM / (warm_ns + 1);

	n = n > MAX_CALLS ? MAX_CALLS : n < MIN_CALLS ? MIN_CALLS : n;
	if (site->hook && n > RING_BYTES / 2 / (RECORD_BYTES * site->n_records))
		n = RING_BYTES / 2 / (RECORD_BYTES * site->n_records);
	return n;
}

static void bench__measure(struct bench *bench, struct variant *v, struct measured *ret)
{
	uint64_t before_ns = 0, before = 0, after_ns = 0, after = 0;
	unsigned int n;

	if (bench->site.launch)
		site__capture(&bench->site);
	/* Also makes the nop a call, which the kernel does at the first hit. */
	n = site__n_calls(&bench->site, site__calls_ns(&bench->site, N_WARM));
	if (v->program_fd >= 0)
		program__stats(v->program_fd, &before_ns, &before);
	ret->caller_ns = (double)site__calls_ns(&bench->site, n) / n;
	if (v->program_fd >= 0)
		program__stats(v->program_fd, &after_ns, &after);
	ret->program_ns = after > before ? (double)(after_ns - before_ns) / (after - before) : 0;
}

static void bench__round(struct bench *bench, struct variant *v, bool with_statistics)
{
	int fds[HELPER_MAX_FDS], n = 0;
	struct measured measured;

	/* What another tracer costs lies outside our program, but not outside the call. */
	if (!with_statistics && !bench__wait_untouched(bench)) {
		bench->n_dropped++;
		return;
	}
	if (v->program_fd >= 0)
		n = bench__attach(bench, v, fds);
	bench__measure(bench, v, &measured);
	while (n)
		close(fds[--n]);
	if (v->probe)
		probe__consume(v->probe);
	if (with_statistics)
		rounds__add(&v->program_ns, measured.program_ns);
	else if (!site__is_untouched(&bench->site))
		bench->n_dropped++;
	else
		rounds__add(&v->caller_ns, measured.caller_ns);
}

static void bench__rounds(struct bench *bench, bool with_statistics)
{
	int fd = with_statistics ? bpf_enable_stats(BPF_STATS_RUN_TIME) : -1;

	for (int i = 0; i < ROUNDS; i++)
		for (int j = 0; j < N_VARIANTS; j++)
			if (j != UNTRACED || !with_statistics)
				bench__round(bench, &bench->variants[j], with_statistics);
	if (fd >= 0)
		close(fd);
}

static struct probe *open_probe(uint64_t ring_bytes, bool no_records)
{
	const struct probe_options options = {.ring_bytes = ring_bytes, .no_records = no_records};
	const char *why = NULL;
	struct probe *probe;
	int err = probe__new(&probe, &options, &why);

	if (err)
		die(why, err);
	return probe;
}

static void bench__load(struct bench *bench)
{
	struct bench_bpf *skel = bench_bpf__open();
	struct variant *v = bench->variants;

	v[UNTRACED].program_fd = -1;
	v[COUNTED].probe = open_probe(RING_BYTES, true);
	v[RECORDED].probe = open_probe(RING_BYTES, false);
	v[BEHIND].probe = open_probe(SMALL_RING, false);
	for (int i = COUNTED; i < N_VARIANTS; i++)
		probe__list_process(v[i].probe, getpid());
	for (int i = COUNTED; i < N_VARIANTS; i++)
		v[i].program_fd = probe__program_fd(v[i].probe, bench->site.image.kind);
	bench->multi = probe__uses_multi(v[RECORDED].probe);
	bench->libraries_fd = probe__libraries_fd(v[RECORDED].probe);
	if (!skel)
		die("bench.bpf", errno);
	bpf_program__set_autoload(skel->progs.feed, false);
	if (bench->multi)
		bpf_program__set_expected_attach_type(skel->progs.bare, ATTACH_TRACE_UPROBE_MULTI);
	if (bench_bpf__load(skel))
		die("bench.bpf", errno);
	v[BARE].program_fd = bpf_program__fd(skel->progs.bare);
}

int main(int argc, char **argv)
{
	static struct bench bench;

	if (argc < 2)
		die("usage: bench_probe LIBRARY [null] | PLUGIN [N]", EINVAL);
	site__open(&bench.site, argv[1], argc > 2 ? argv[2] : NULL);
	bench__load(&bench);
	bench__rounds(&bench, false);
	bench__rounds(&bench, true);
	for (int i = 0; i < N_VARIANTS; i++) {
		char name[64];

		snprintf(name, sizeof(name), "%s_caller_ns", names[i]);
		rounds__print(&bench.variants[i].caller_ns, name);
		snprintf(name, sizeof(name), "%s_program_ns", names[i]);
		rounds__print(&bench.variants[i].program_ns, name);
	}
	printf("dropped %u\nmulti %d\n", bench.n_dropped, bench.multi);
	printf("lost %llu\n",
	       (unsigned long long)probe__lost(bench.variants[RECORDED].probe, NB_LOST_RING_FULL));
	return 0;
}
