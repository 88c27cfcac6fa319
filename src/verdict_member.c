/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The ranks of a communicator that live on this node. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verdict_private.h"

/* The first whose rank is not less. */
static uint32_t verdict_comm__place(const struct verdict_comm *comm, int32_t rank)
{
	uint32_t low = 0, high = comm->n_members;

	/* a node's ranks mostly follow one another */
	if (high && rank >= comm->ranks[0].member.rank) {
		uint32_t guess = rank - comm->ranks[0].member.rank;

		if (guess < high && comm->ranks[guess].member.rank == rank &&
		    (!guess || comm->ranks[guess - 1].member.rank < rank))
			return guess;
	}
	while (low < high) {
		uint32_t middle = (low + high) / 2;

		if (comm->ranks[middle].member.rank < rank)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

int32_t verdict_comm__index(const struct verdict_comm *comm, const struct verdict_member *member)
{
	for (uint32_t i = verdict_comm__place(comm, member->rank);
	     i < comm->n_members && comm->ranks[i].member.rank == member->rank; i++) {
		if (comm->ranks[i].member.tgid == member->tgid)
			return i;
	}
	return -1;
}

int32_t verdict_comm__living(const struct verdict_comm *comm, int32_t rank)
{
	for (uint32_t i = verdict_comm__place(comm, rank);
	     i < comm->n_members && comm->ranks[i].member.rank == rank; i++) {
		if (!comm->members[i].has_left)
			return i;
	}
	return -1;
}

uint32_t verdict_comm__unseen(const struct verdict_comm *comm, struct verdict_named *ret)
{
	struct verdict_named unseen = {};
	int32_t rank = 0;

	if (comm->n_nodes != 1 || comm->n_members >= (uint32_t)comm->n_ranks)
		return 0;
	for (uint32_t i = 0; i <= comm->n_members; i++) {
		int32_t end = i < comm->n_members ? comm->ranks[i].member.rank : comm->n_ranks;

		for (; rank < end; rank++) {
			if (unseen.n < VERDICT_MAX_NAMED)
				unseen.ranks[unseen.n] = rank;
			unseen.n++;
		}
		rank = end + 1;
	}
	if (ret)
		*ret = unseen;
	return unseen.n;
}

struct verdict_comm *verdicts__member(struct verdicts *verdicts,
				      const struct verdict_member *member, uint32_t *ret_index)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;

	if (i < 0 || comm->members[i].has_left)
		return NULL;
	*ret_index = i;
	return comm;
}

void verdict_comm__recount(struct verdict_comm *comm)
{
	const struct verdict_rank *last = NULL;

	comm->n_living = 0;
	comm->is_contested = false;
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (comm->members[i].has_left)
			continue;
		comm->n_living++;
		if (last && last->member.rank == comm->ranks[i].member.rank)
			comm->is_contested = true;
		last = &comm->ranks[i];
	}
}

void verdict_comm__remove(struct verdict_comm *comm, uint32_t i)
{
	uint32_t n = comm->n_members - i - 1, column = comm->members[i].column;

	memmove(comm->ranks + i, comm->ranks + i + 1, n * sizeof(*comm->ranks));
	memmove(comm->members + i, comm->members + i + 1, n * sizeof(*comm->members));
	comm->n_members--;
	comm->owner->n_members--;
	/* the last column takes the freed one's place: columns stay dense */
	comm->n_columns--;
	verdict_comm__move_column(comm, comm->n_columns, column);
	for (uint32_t k = 0; k < comm->n_members; k++) {
		if (comm->members[k].column == comm->n_columns)
			comm->members[k].column = column;
	}
}

/* Whoever holds the rank and has left makes room for one who comes. */
static void verdict_comm__drop_left(struct verdict_comm *comm, int32_t rank)
{
	uint32_t i = verdict_comm__place(comm, rank);

	while (i < comm->n_members && comm->ranks[i].member.rank == rank) {
		if (comm->members[i].has_left)
			verdict_comm__remove(comm, i);
		else
			i++;
	}
}

static int verdict_comm__grow(struct verdict_comm *comm)
{
	uint32_t room = comm->room ? comm->room * 2 : 1;
	struct verdict_rank *ranks;
	struct member *members;

	if (comm->owner->n_members == MAX_ALL_MEMBERS)
		return -ENOSPC;
	if (comm->n_members < comm->room)
		return 0;
	if (room > MAX_MEMBERS)
		return -ENOSPC;
	ranks = realloc(comm->ranks, room * sizeof(*ranks));
	if (!ranks)
		return -ENOMEM;
	comm->ranks = ranks;
	members = realloc(comm->members, room * sizeof(*members));
	if (!members)
		return -ENOMEM;
	comm->members = members;
	comm->room = room;
	return 0;
}

static void member__init(struct member *member, uint32_t column, bool whole, uint64_t now_ns)
{
	*member = (struct member){
		.column = column,
		.whole = whole,
		.is_gap = !whole,
		.told_ns = now_ns,
		.late = {{.operation = NCCL_OP_MAX}, {.operation = NCCL_OP_MAX}},
	};
	for (int op = 0; op < NCCL_OP_MAX; op++) {
		member->reached[op] = member->called[op] = whole ? 0 : VERDICT_NO_SEQUENCE;
		member->reached_ns[op] = now_ns;
	}
}

int verdict_comm__insert(struct verdict_comm *comm, const struct verdict_member *member, bool whole,
			 uint64_t now_ns)
{
	uint32_t i, n;
	int err;

	verdict_comm__drop_left(comm, member->rank);
	err = verdict_comm__grow(comm);
	if (err)
		return err;
	i = verdict_comm__place(comm, member->rank);
	n = comm->n_members - i;
	memmove(comm->ranks + i + 1, comm->ranks + i, n * sizeof(*comm->ranks));
	memmove(comm->members + i + 1, comm->members + i, n * sizeof(*comm->members));
	comm->ranks[i] = (struct verdict_rank){
		.member = *member,
		.joined_ns = now_ns,
		.last_operation = NCCL_OP_MAX,
		.last_sequence = VERDICT_NO_SEQUENCE,
		.gpu = {.operation = NCCL_OP_MAX, .sequence = VERDICT_NO_SEQUENCE},
	};
	member__init(&comm->members[i], comm->n_columns++, whole, now_ns);
	verdict_comm__fit_late(comm);
	comm->n_members++;
	comm->owner->n_members++;
	return 0;
}
