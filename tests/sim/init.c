/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* How communicators come to be: from a unique id, or from a parent. */
#include "lib.h"

#include "profiler.h"

#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define NO_DEVICE (-1)
#define COMPUTE_CAPABILITY 90

/* This process's place in the simulated job. */
static struct sim_process process;

const struct sim_process *sim_process(void)
{
	return &process;
}

SIM_EXPORT void nccl_sim_attach(struct sim_shared *area, int world_rank, int gpus_per_node,
				int sync)
{
	process = (struct sim_process){ area, world_rank, gpus_per_node, sync };
}

/* One step of the splitmix64 generator, so that near inputs give far hashes; never 0. */
static uint64_t mix(uint64_t hash, uint64_t value)
{
	hash = hash * UINT64_C(0x100000001b3) + value + UINT64_C(0x9e3779b97f4a7c15);
	hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
	hash ^= hash >> 31;
	return hash ? hash : 1;
}

static uint64_t hash_of_id(const ncclUniqueId *id)
{
	uint64_t hash = 0;

	for (size_t i = 0; i < sizeof(id->internal); i++)
		hash = mix(hash, (unsigned char)id->internal[i]);
	return hash;
}

/* (domain << 20) | (bus << 12) | (device << 4), as NCCL keeps it. */
static int64_t bus_id_of(int device)
{
	return (int64_t)(device / 16) << 20 | (int64_t)(0x10 + device % 16 * 8) << 12;
}

/* Nodes are numbered in the order in which the ranks meet them. */
static void place_on_nodes(struct ncclComm *comm, const struct sim_meeting *meeting)
{
	int seen[SIM_MAX_RANKS], n_seen = 0;

	comm->localRanks = 0;
	for (int i = 0; i < comm->nRanks; i++) {
		int host = meeting->world_rank[i] / process.gpus_per_node;
		int mine = process.world_rank / process.gpus_per_node;
		int node = 0;

		while (node < n_seen && seen[node] != host)
			node++;
		if (node == n_seen)
			seen[n_seen++] = host;
		if (host != mine)
			continue;
		comm->node = node;
		if (i == comm->rank)
			comm->localRank = comm->localRanks;
		comm->localRanks++;
	}
	comm->nNodes = n_seen;
	comm->maxLocalRanks = comm->localRanks;
}

static void place_alone(struct ncclComm *comm)
{
	comm->node = 0;
	comm->nNodes = 1;
	comm->localRank = comm->rank;
	comm->localRanks = comm->maxLocalRanks = comm->nRanks;
}

/* Rank and size appear only when all ranks have come, as with NCCL's bootstrap. */
ncclResult_t sim_job_init(const struct sim_job *job)
{
	struct ncclComm *comm = &job->comm->nccl;
	struct sim_meeting *meeting = NULL;
	int device = job->device;

	comm->magic = mix(job->hash, 0);
	comm->commHash = job->hash;
	if (process.shared && job->device == NO_DEVICE) {
		if (job->n_ranks > SIM_MAX_RANKS)
			return sim_fail(ncclInvalidArgument, "more ranks than can be simulated");
		meeting = sim_meeting_get(process.shared, job->hash);
		if (!meeting)
			return sim_fail(ncclSystemError, "too many communicators in one run");
		meeting->world_rank[job->rank] = process.world_rank;
		if (!sim_barrier_wait(&meeting->barrier, (uint32_t)job->n_ranks,
				      &process.shared->stop))
			return sim_fail(ncclRemoteError, "the job is being stopped");
		device = process.world_rank % process.gpus_per_node;
	}
	job->comm->meeting = meeting;
	comm->rank = job->rank;
	comm->nRanks = job->n_ranks;
	if (meeting)
		place_on_nodes(comm, meeting);
	else
		place_alone(comm);
	comm->cudaDev = comm->nvmlDev = device == NO_DEVICE ? comm->localRank : device;
	comm->compCap = COMPUTE_CAPABILITY;
	comm->busId = bus_id_of(comm->nvmlDev);
	profiler_comm_init(job->comm);
	__atomic_store_n(&comm->initState, ncclSuccess, __ATOMIC_RELEASE);
	return ncclSuccess;
}

static bool before(const struct sim_post *post, int a, int b)
{
	return post[a].key < post[b].key || (post[a].key == post[b].key && a < b);
}

/* A child's ranks are those of one colour, ordered by key, then by rank in the parent. */
static void split_place(struct sim_comm *parent, struct sim_job *init, int color)
{
	struct sim_meeting *meeting = parent->meeting;
	int me = parent->nccl.rank;

	init->rank = 0;
	init->n_ranks = 0;
	for (int i = 0; i < parent->nccl.nRanks; i++) {
		if (meeting->post[i].color != color)
			continue;
		init->n_ranks++;
		if (before(meeting->post, i, me))
			init->rank++;
	}
}

ncclResult_t sim_job_split(const struct sim_job *job)
{
	struct sim_comm *parent = job->comm;
	struct sim_job init = { .kind = JOB_INIT, .comm = job->child, .hash = job->hash,
				.device = NO_DEVICE };

	init.rank = parent->nccl.rank;
	init.n_ranks = parent->nccl.nRanks;
	if (parent->meeting) {
		parent->meeting->post[init.rank] = (struct sim_post){ job->color, job->key };
		if (!sim_comm_meet(parent))
			return sim_fail(ncclRemoteError, "the job is being stopped");
		split_place(parent, &init, job->color);
		/* nobody may post again before all have read */
		if (!sim_comm_meet(parent))
			return sim_fail(ncclRemoteError, "the job is being stopped");
	}
	return job->child ? sim_job_init(&init) : ncclSuccess;
}

static ncclResult_t init_rank(ncclComm_t *newcomm, int n_ranks, const ncclUniqueId *id, int rank,
			      const ncclConfig_t *config, int device)
{
	struct sim_job job = { .kind = JOB_INIT, .rank = rank, .n_ranks = n_ranks,
			       .device = device };

	if (!newcomm || !id)
		return sim_fail(ncclInvalidArgument, "newcomm or commId is NULL");
	if (n_ranks < 1 || rank < 0 || rank >= n_ranks)
		return sim_fail(ncclInvalidArgument, "invalid rank or number of ranks");
	job.comm = sim_comm_new(config, NULL);
	if (!job.comm)
		return sim_fail(ncclSystemError, "out of memory");
	job.hash = hash_of_id(id);
	*newcomm = &job.comm->nccl;
#if SIM_VERSION >= 22304
	int version;

	ncclGetVersion(&version); /* NCCL tells its peers through the exported function */
#endif
	return sim_submit(&job);
}

NCCL_API(ncclResult_t, ncclGetUniqueId, ncclUniqueId *out)
{
	if (!out)
		return sim_fail(ncclInvalidArgument, "out is NULL");
	if (getrandom(out->internal, sizeof(out->internal), 0) != sizeof(out->internal))
		return sim_fail(ncclSystemError, "no random bytes");
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommInitRank, ncclComm_t *newcomm, int nranks, ncclUniqueId commId,
	 int myrank)
{
	return init_rank(newcomm, nranks, &commId, myrank, NULL, NO_DEVICE);
}

NCCL_API(ncclResult_t, ncclCommInitRankConfig, ncclComm_t *comm, int nranks, ncclUniqueId commId,
	 int myrank, ncclConfig_t *config)
{
	return init_rank(comm, nranks, &commId, myrank, config, NO_DEVICE);
}

#if SIM_VERSION >= 22304
NCCL_API(ncclResult_t, ncclCommInitRankScalable, ncclComm_t *newcomm, int nranks, int myrank,
	 int nId, ncclUniqueId *commId, ncclConfig_t *config)
{
	if (nId < 1)
		return sim_fail(ncclInvalidArgument, "no unique id given");
	return init_rank(newcomm, nranks, commId, myrank, config, NO_DEVICE);
}
#endif

NCCL_API(ncclResult_t, ncclCommInitAll, ncclComm_t *comms, int ndev, const int *devlist)
{
	ncclResult_t result;
	ncclUniqueId id;

	if (!comms || ndev < 1)
		return sim_fail(ncclInvalidArgument, "no communicators asked for");
	result = ncclGetUniqueId(&id);
	if (SIM_VERSION < 22501)
		ncclGroupStart();
	for (int i = 0; i < ndev && result == ncclSuccess; i++)
		result = init_rank(&comms[i], ndev, &id, i, NULL, devlist ? devlist[i] : i);
	if (SIM_VERSION < 22501 && result == ncclSuccess)
		result = ncclGroupEnd();
	return result;
}

NCCL_API(ncclResult_t, ncclCommSplit, ncclComm_t comm, int color, int key, ncclComm_t *newcomm,
	 ncclConfig_t *config)
{
	struct sim_job job = { .kind = JOB_SPLIT, .color = color, .key = key };
	ncclResult_t result = sim_comm_ready(comm);

	if (result != ncclSuccess)
		return result;
	if (!newcomm || color < NCCL_SPLIT_NOCOLOR)
		return sim_fail(ncclInvalidArgument, "newcomm is NULL or color is negative");
	job.comm = (struct sim_comm *)comm;
	job.hash = mix(mix(comm->commHash, ++job.comm->n_children), (uint64_t)color);
	if (color != NCCL_SPLIT_NOCOLOR) {
		job.child = sim_comm_new(config, comm);
		if (!job.child)
			return sim_fail(ncclSystemError, "out of memory");
	}
	*newcomm = job.child ? &job.child->nccl : NULL;
	return sim_submit(&job);
}

#if SIM_VERSION >= 22703
static bool listed(const int *list, int n, int rank)
{
	while (n > 0)
		if (list[--n] == rank)
			return true;
	return false;
}

/* Called by the ranks that stay only; each can tell the others' places from the list. */
NCCL_API(ncclResult_t, ncclCommShrink, ncclComm_t comm, int *excludeRanksList,
	 int excludeRanksCount, ncclComm_t *newcomm, ncclConfig_t *config, int shrinkFlags)
{
	struct sim_job job = { .kind = JOB_INIT, .device = NO_DEVICE };
	ncclResult_t result = sim_comm_ready(comm);

	(void)shrinkFlags;
	if (result != ncclSuccess)
		return result;
	if (!newcomm || !excludeRanksList || excludeRanksCount < 1 ||
	    listed(excludeRanksList, excludeRanksCount, comm->rank))
		return sim_fail(ncclInvalidArgument, "no list, or this rank is on it");
	for (int i = 0; i < comm->nRanks; i++) {
		if (listed(excludeRanksList, excludeRanksCount, i))
			continue;
		job.n_ranks++;
		job.rank += i < comm->rank;
	}
	job.hash = mix(mix(comm->commHash, ++((struct sim_comm *)comm)->n_children), ~0u);
	job.comm = sim_comm_new(config, comm);
	if (!job.comm)
		return sim_fail(ncclSystemError, "out of memory");
	*newcomm = &job.comm->nccl;
	return sim_submit(&job);
}
#endif
