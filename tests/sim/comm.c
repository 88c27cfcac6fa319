/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Communicators: memory, the list of the live ones, questions, end. */
#include "lib.h"

#include "plan.h"
#include "profiler.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COMM_LIST_STEP 32

/* Tracers and debuggers read the text of the last warning and the version from here. */
char ncclLastError[1024];
extern const char sim_version_text[];
const char sim_version_text[] = "NCCL version " SIM_VERSION_TEXT "+cuda13.0";

#if SIM_HAS_COMM_LIST
/* NCCL's own names: capacity with holes; every live communicator of this process. */
extern struct ncclComm **ncclComms;
extern int nNcclComms;
struct ncclComm **ncclComms;
int nNcclComms;
static pthread_mutex_t comms_lock = PTHREAD_MUTEX_INITIALIZER;

static void comms_grow(void)
{
	size_t n = (size_t)nNcclComms + COMM_LIST_STEP;
	struct ncclComm **list = realloc(ncclComms, n * sizeof(*list));

	if (!list)
		return;
	memset(list + nNcclComms, 0, COMM_LIST_STEP * sizeof(*list));
	ncclComms = list;
	nNcclComms = (int)n;
}

/* Puts to where from stands; from NULL asks for a hole. */
static bool comms_replace(const struct ncclComm *from, struct ncclComm *to)
{
	for (int i = 0; i < nNcclComms; i++) {
		if (ncclComms[i] == from) {
			ncclComms[i] = to;
			return true;
		}
	}
	return false;
}

static void comms_add(struct ncclComm *comm)
{
	const char *ras = getenv("NCCL_RAS_ENABLE");

	if (ras && !strcmp(ras, "0"))
		return;
	pthread_mutex_lock(&comms_lock);
	if (!comms_replace(NULL, comm)) {
		comms_grow();
		comms_replace(NULL, comm);
	}
	pthread_mutex_unlock(&comms_lock);
}

static void comms_remove(struct ncclComm *comm)
{
	pthread_mutex_lock(&comms_lock);
	comms_replace(comm, NULL);
	pthread_mutex_unlock(&comms_lock);
}
#else
static void comms_add(struct ncclComm *comm)
{
	(void)comm;
}

static void comms_remove(struct ncclComm *comm)
{
	(void)comm;
}
#endif

ncclResult_t sim_fail(ncclResult_t result, const char *why)
{
	snprintf(ncclLastError, sizeof(ncclLastError), "%s", why);
	return result;
}

/* Kept out of line, and comparing as NCCL does: readers of machine code look for the constant. */
__attribute__((noinline)) ncclResult_t sim_comm_check(const struct ncclComm *comm)
{
	if (!comm)
		return sim_fail(ncclInvalidArgument, "communicator is NULL");
#if SIM_HAS_COMM_MAGIC
	if (comm->startMagic != NCCL_MAGIC || comm->endMagic != NCCL_MAGIC)
		return sim_fail(ncclInvalidArgument, "communicator is corrupted or was destroyed");
#endif
	return ncclSuccess;
}

/* NCCL asks its own exported function before nearly every call. */
ncclResult_t sim_comm_ready(struct ncclComm *comm)
{
	ncclResult_t state = ncclSuccess;
	ncclResult_t result = ncclCommGetAsyncError(comm, &state);

	if (result != ncclSuccess)
		return result;
	if (state == ncclInProgress)
		return sim_fail(ncclInvalidArgument, "communicator is not ready yet");
	return state;
}

struct sim_comm *sim_comm_new(const ncclConfig_t *config, const struct ncclComm *parent)
{
	struct sim_comm *comm = calloc(1, sizeof(*comm));

	if (!comm)
		return NULL;
#if SIM_HAS_COMM_MAGIC
	comm->nccl.startMagic = NCCL_MAGIC;
	comm->nccl.endMagic = NCCL_MAGIC;
#endif
	comm->nccl.initState = ncclInProgress;
	comm->nccl.abortFlag = &comm->abort_word;
	comm->nccl.configBlocking = 1;
#if SIM_HAS_COMM_NAME
	if (config && config->size > offsetof(ncclConfig_t, commName))
		comm->nccl.configCommName = config->commName;
	else if (!config && parent)
		comm->nccl.configCommName = parent->configCommName; /* NCCL's pointer, no copy */
#else
	(void)config, (void)parent;
#endif
	comms_add(&comm->nccl);
	return comm;
}

/* What is stored is what NCCL leaves behind for those who still hold the pointer. */
void sim_comm_free(struct sim_comm *comm)
{
	struct ncclComm volatile *nccl = &comm->nccl;

	comms_remove(&comm->nccl);
	sim_group_forget(comm);
	progress_forget(comm);
	profiler_comm_finalize(comm);
	nccl->rank = nccl->nRanks = nccl->cudaDev = -1;
	nccl->busId = -1;
#if SIM_HAS_COMM_MAGIC
	nccl->startMagic = nccl->endMagic = 0;
#endif
	free(comm);
}

bool sim_comm_meet(struct sim_comm *comm)
{
	const struct sim_process *process = sim_process();

	return !comm->meeting || sim_barrier_wait(&comm->meeting->barrier,
						  (uint32_t)comm->nccl.nRanks,
						  &process->shared->stop);
}

NCCL_API(ncclResult_t, ncclCommUserRank, const ncclComm_t comm, int *rank)
{
	ncclResult_t result = sim_comm_ready(comm);

	if (result != ncclSuccess)
		return result;
	if (!rank)
		return sim_fail(ncclInvalidArgument, "rank is NULL");
	*rank = comm->rank;
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommCount, const ncclComm_t comm, int *count)
{
	ncclResult_t result = sim_comm_ready(comm);

	if (result != ncclSuccess)
		return result;
	if (!count)
		return sim_fail(ncclInvalidArgument, "count is NULL");
	*count = comm->nRanks;
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommCuDevice, const ncclComm_t comm, int *devid)
{
	ncclResult_t result = sim_comm_ready(comm);

	if (result != ncclSuccess)
		return result;
	if (!devid)
		return sim_fail(ncclInvalidArgument, "devid is NULL");
	*devid = comm->cudaDev;
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommGetAsyncError, ncclComm_t comm, ncclResult_t *asyncError)
{
	ncclResult_t result = sim_comm_check(comm);

	if (result != ncclSuccess)
		return result;
	if (!asyncError)
		return sim_fail(ncclInvalidArgument, "asyncError is NULL");
	*asyncError = comm->initState != ncclSuccess ? comm->initState : comm->asyncResult;
	return ncclSuccess;
}

NCCL_API(ncclResult_t, ncclCommFinalize, ncclComm_t comm)
{
	ncclResult_t result = sim_comm_ready(comm);

	if (result == ncclSuccess)
		comm->finalizeCalled = 1;
	return result;
}

NCCL_API(ncclResult_t, ncclCommDestroy, ncclComm_t comm)
{
	ncclResult_t result = sim_comm_check(comm);

	if (comm && result == ncclSuccess)
		sim_comm_free((struct sim_comm *)comm);
	return comm ? result : ncclSuccess; /* NCCL lets a NULL one pass */
}

NCCL_API(ncclResult_t, ncclCommAbort, ncclComm_t comm)
{
	if (!comm)
		return ncclSuccess; /* as NCCL */
	if (sim_comm_check(comm) != ncclSuccess)
		return ncclInvalidArgument;
	__atomic_store_n(comm->abortFlag, 1, __ATOMIC_RELEASE);
	sim_comm_free((struct sim_comm *)comm);
	return ncclSuccess;
}

#if SIM_VERSION >= 22807
NCCL_API(ncclResult_t, ncclCommRevoke, ncclComm_t comm, int revokeFlags)
{
	(void)revokeFlags;
	return sim_comm_ready(comm);
}
#endif

SIM_EXPORT void nccl_sim_view(ncclComm_t comm, struct nccl_sim_view *ret_view)
{
	memset(ret_view, 0, sizeof(*ret_view));
	ret_view->comm_hash = comm->commHash;
	ret_view->rank = comm->rank;
	ret_view->n_ranks = comm->nRanks;
#if SIM_HAS_SEQ_NUMBER
	ret_view->has_seq = 1;
	for (int i = 0; i < SIM_SEQ_COUNT; i++)
		ret_view->seq[i] = __atomic_load_n(&comm->seqNumber[i], __ATOMIC_RELAXED);
#endif
}

SIM_EXPORT void nccl_sim_set_error(ncclComm_t comm, ncclResult_t result)
{
	__atomic_store_n(&comm->asyncResult, result, __ATOMIC_RELEASE);
}
