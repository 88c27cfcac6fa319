/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program with an NCCL of its own inside, of a layout that nobody knows: no version, no list of
 * communicators, no getter whose code tells where the rank lies. `strange NRANKS RANK...` makes a
 * communicator for each rank, all at one address when a `-` stands before, and calls on each as
 * often as its rank says plus one. A line on stdin lets each step go.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nccl_sim.h"

#define NCCL_OWN __attribute__((noipa)) /* else the calls here would not be calls */

struct ncclComm {
	char nothing[64];
};

NCCL_OWN ncclResult_t ncclCommInitRank(ncclComm_t *newcomm, int nranks, ncclUniqueId commId, int myrank)
{
	(void)nranks, (void)commId, (void)myrank;
	*newcomm = *newcomm ? *newcomm : calloc(1, sizeof(struct ncclComm));
	return ncclSuccess;
}

NCCL_OWN ncclResult_t ncclAllReduce(const void *sendbuff, void *recvbuff, size_t count,
			   ncclDataType_t datatype, ncclRedOp_t op, ncclComm_t comm,
			   cudaStream_t stream)
{
	(void)sendbuff, (void)recvbuff, (void)datatype, (void)op, (void)stream;
	comm->nothing[0] = (char)count;
	return ncclSuccess;
}

NCCL_OWN ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
	comm->nothing[0] = 0;
	return ncclSuccess;
}

static void wait_line(const char *say)
{
	char line[16];

	puts(say);
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

int main(int argc, char **argv)
{
	bool reuse = argc > 2 && !strcmp(argv[2], "-");
	ncclComm_t comms[16] = {0};
	ncclUniqueId id = {{0}};

	wait_line("ok");
	for (int i = 2 + reuse, k = 0; i < argc && k < 16; i++, k += !reuse) {
		int rank = atoi(argv[i]);

		ncclCommInitRank(&comms[k], atoi(argv[1]), id, rank);
		for (int n = 0; n <= rank; n++)
			ncclAllReduce(NULL, NULL, 10, ncclFloat32, ncclSum, comms[k], NULL);
		wait_line("ok");
		if (reuse)
			ncclCommDestroy(comms[k]);
	}
	wait_line("done");
	return 0;
}
