/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The communicators of this node and their ranks. */
#include <errno.h>
#include <stdlib.h>

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
	verdicts->n_members -= comm->n_members;
	verdict_comm__free_tracks(comm);
	verdict_comm__free_late(comm, LATE_ON_HOST);
	verdict_comm__free_late(comm, LATE_ON_GPU);
	verdict_comm__free_timed(comm);
	verdict_comm__free_pairs(comm);
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
	comm->mismatch.after = NCCL_OP_MAX;
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

/* What was counted from the creation on is not known any more; NCCL's own numbers are. */
static void member__is_not_whole(struct member *member)
{
	member->whole = false;
	member->is_gap = true;
	for (int op = 0; op < NCCL_OP_MAX; op++) {
		if (!member->reached[op] || op >= NCCL_OP_AlltoAll)
			member->reached[op] = member->called[op] = VERDICT_NO_SEQUENCE;
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
	struct member *m;
	uint32_t i;
	struct verdict_comm *comm = verdicts__member(verdicts, member, &i);

	if (!comm)
		return;
	m = &comm->members[i];
	m->has_left = true;
	m->how = how;
	m->left_ns = now_ns;
	/* of two that held the rank the other one is right from now on */
	if (comm->is_contested && verdict_comm__living(comm, member->rank) >= 0)
		verdict_comm__remove(comm, i);
	verdict_comm__recount(comm);
}

static void member__lose(struct member *member, uint64_t now_ns)
{
	member->is_gap = true;
	member->lost_ns = later(member->lost_ns, now_ns); /* some of them may yet be told of */
	member->peers_unsure = true;
	/* the order of calls not yet looked at may have holes */
	member->n_linked = member->n_logged;
}

void verdicts__lost(struct verdicts *verdicts, uint32_t tgid, uint64_t now_ns)
{
	for (struct verdict_comm *comm = verdicts->first; comm; comm = comm->next) {
		for (uint32_t i = 0; i < comm->n_members; i++) {
			struct member *m = &comm->members[i];

			if (m->has_left || (tgid && comm->ranks[i].member.tgid != tgid))
				continue;
			member__lose(m, now_ns);
			comm->lost_ns = comm->loss_ns = now_ns;
			comm->unsure = ~0U;
		}
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
