/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The communicators of this node and their ranks. */
#include "verdict.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "verdict_private.h"

int verdicts__new(struct verdicts **ret, const struct verdict_options *options)
{
	struct verdicts *verdicts = calloc(1, sizeof(*verdicts));

	if (!verdicts)
		return -ENOMEM;
	verdicts->options = *options;
	*ret = verdicts;
	return 0;
}

static struct verdict_comm *verdicts__head(const struct verdicts *verdicts, uint64_t hash)
{
	struct verdict_comm *head;

	HASH_FIND(hh, verdicts->by_hash, &hash, sizeof(hash), head);
	return head;
}

struct verdict_comm *verdicts__comm(struct verdicts *verdicts, uint64_t hash, int32_t n_ranks)
{
	struct verdict_comm *comm = verdicts->recent;

	if (comm && comm->hash == hash && comm->n_ranks == n_ranks)
		return comm;
	comm = verdicts__head(verdicts, hash);
	while (comm && comm->n_ranks != n_ranks)
		comm = comm->sibling;
	if (comm)
		verdicts->recent = comm;
	return comm;
}

static void verdicts__unindex(struct verdicts *verdicts, struct verdict_comm *comm)
{
	struct verdict_comm *head = verdicts__head(verdicts, comm->hash);

	if (head != comm) {
		while (head->sibling != comm)
			head = head->sibling;
		head->sibling = comm->sibling;
		return;
	}
	HASH_DEL(verdicts->by_hash, comm);
	if (comm->sibling)
		HASH_ADD(hh, verdicts->by_hash, hash, sizeof(comm->hash), comm->sibling);
}

static void verdicts__drop(struct verdicts *verdicts, struct verdict_comm *comm)
{
	verdicts__unindex(verdicts, comm);
	*(comm->prev ? &comm->prev->next : &verdicts->first) = comm->next;
	*(comm->next ? &comm->next->prev : &verdicts->last) = comm->prev;
	verdicts->recent = NULL;
	verdicts->n_comms--;
	verdict_comm__free_tracks(comm);
	free(comm->ranks);
	free(comm->members);
	free(comm);
}

void verdicts__free(struct verdicts *verdicts)
{
	if (!verdicts)
		return;
	while (verdicts->first)
		verdicts__drop(verdicts, verdicts->first);
	free(verdicts);
}

static void verdicts__index(struct verdicts *verdicts, struct verdict_comm *comm)
{
	struct verdict_comm *head = verdicts__head(verdicts, comm->hash);

	if (head) {
		comm->sibling = head->sibling;
		head->sibling = comm;
	} else {
		HASH_ADD(hh, verdicts->by_hash, hash, sizeof(comm->hash), comm);
	}
	comm->prev = verdicts->last;
	*(comm->prev ? &comm->prev->next : &verdicts->first) = comm;
	verdicts->last = comm;
	verdicts->n_comms++;
}

static struct verdict_comm *verdicts__add(struct verdicts *verdicts,
					  const struct verdict_member *member, uint64_t now_ns)
{
	struct verdict_comm *comm;

	if (!member->hash || member->n_ranks < 1 || verdicts->n_comms == MAX_COMMS)
		return NULL;
	comm = calloc(1, sizeof(*comm));
	if (!comm)
		return NULL;
	comm->hash = member->hash;
	comm->n_ranks = member->n_ranks;
	comm->owner = verdicts;
	comm->known_ns = now_ns;
	comm->candidate = VERDICT_UNKNOWN;
	comm->now = (struct verdict){
		.state = VERDICT_UNKNOWN,
		.since_ns = now_ns,
		.confirmed_ns = now_ns,
		.operation = NCCL_OP_MAX,
		.sequence = VERDICT_NO_SEQUENCE,
		.why = "Not enough seen yet.",
	};
	comm->worst = comm->now;
	verdicts__index(verdicts, comm);
	return comm;
}

/* ---- ranks ---- */

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

/* Living ones counted, and whether two of them claim one rank. */
static void verdict_comm__recount(struct verdict_comm *comm)
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

static void verdict_comm__remove(struct verdict_comm *comm, uint32_t i)
{
	uint32_t n = comm->n_members - i - 1, column = comm->members[i].column;

	memmove(comm->ranks + i, comm->ranks + i + 1, n * sizeof(*comm->ranks));
	memmove(comm->members + i, comm->members + i + 1, n * sizeof(*comm->members));
	comm->n_members--;
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
	uint32_t room = comm->room ? comm->room * 2 : 8;
	struct verdict_rank *ranks;
	struct member *members;

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

static int verdict_comm__insert(struct verdict_comm *comm, const struct verdict_member *member,
				bool whole, uint64_t now_ns)
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
	comm->members[i] = (struct member){.column = comm->n_columns++, .whole = whole};
	for (int op = 0; op < NCCL_OP_MAX; op++) {
		comm->members[i].reached[op] = whole ? 0 : VERDICT_NO_SEQUENCE;
		comm->members[i].reached_ns[op] = now_ns;
	}
	comm->n_members++;
	return 0;
}

/* What was counted from the creation on is not known any more; NCCL's own numbers are. */
static void member__is_not_whole(struct member *member)
{
	member->whole = false;
	for (int op = 0; op < NCCL_OP_MAX; op++) {
		if (!member->reached[op] || op >= NCCL_OP_AlltoAll)
			member->reached[op] = VERDICT_NO_SEQUENCE;
	}
}

void verdicts__join(struct verdicts *verdicts, const struct verdict_member *member, bool whole,
		    int32_t n_nodes, uint64_t now_ns)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i;

	if (!comm && member->rank >= 0 && member->rank < member->n_ranks)
		comm = verdicts__add(verdicts, member, now_ns);
	if (!comm || member->rank < 0 || member->rank >= member->n_ranks) {
		verdicts->refused++;
		return;
	}
	if (n_nodes > 0)
		comm->n_nodes = n_nodes;
	i = verdict_comm__index(comm, member);
	if (i >= 0 && !comm->members[i].has_left) {
		if (!whole && comm->members[i].whole)
			member__is_not_whole(&comm->members[i]);
		return;
	}
	if (verdict_comm__insert(comm, member, whole, now_ns))
		verdicts->refused++;
	verdict_comm__recount(comm);
}

void verdicts__leave(struct verdicts *verdicts, const struct verdict_member *member,
		     enum verdict_end how, uint64_t now_ns)
{
	struct verdict_comm *comm = verdicts__comm(verdicts, member->hash, member->n_ranks);
	int32_t i = comm ? verdict_comm__index(comm, member) : -1;

	if (i < 0 || comm->members[i].has_left)
		return;
	comm->members[i].has_left = true;
	comm->members[i].how = how;
	comm->members[i].left_ns = now_ns;
	if (how == VERDICT_END_ABORTED)
		comm->has_aborted = true;
	/* of two that held the rank the other one is right from now on */
	if (comm->is_contested) {
		uint32_t first = verdict_comm__place(comm, member->rank);

		for (uint32_t k = first; k < comm->n_members; k++) {
			if (comm->ranks[k].member.rank != member->rank)
				break;
			if (!comm->members[k].has_left) {
				verdict_comm__remove(comm, i);
				break;
			}
		}
	}
	verdict_comm__recount(comm);
}

void verdicts__lost(struct verdicts *verdicts, uint32_t tgid, uint64_t now_ns)
{
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next) {
		bool is_hit = !tgid;

		for (uint32_t i = 0; i < comm->n_members && !is_hit; i++)
			is_hit = comm->ranks[i].member.tgid == tgid && !comm->members[i].has_left;
		if (is_hit)
			comm->lost_ns = now_ns;
	}
}

static bool verdict_comm__is_over(const struct verdict_comm *comm, uint64_t before_ns)
{
	for (uint32_t i = 0; i < comm->n_members; i++) {
		if (!comm->members[i].has_left || comm->members[i].left_ns >= before_ns)
			return false;
	}
	return true;
}

/* A verdict that is an alarm stands for five minutes after the last rank has left. */
void verdicts__expire(struct verdicts *verdicts, uint64_t before_ns)
{
	uint64_t seen_ns = verdicts->now_ns > AGREEMENT_NS ? verdicts->now_ns - AGREEMENT_NS : 0;
	struct verdict_comm *next;

	for (struct verdict_comm *comm = verdicts->first; comm; comm = next) {
		bool is_alarm = verdict_state__exit_status(comm->now.state) == 4;

		next = comm->next;
		if (verdict_comm__is_over(comm,
					  is_alarm && seen_ns < before_ns ? seen_ns : before_ns))
			verdicts__drop(verdicts, comm);
	}
}
