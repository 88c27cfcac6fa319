/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "rendezvous.h"

#include <stdlib.h>
#include <string.h>
#include <uthash.h>

#include "names.h"

#define ALL_RANKS (-1)

/* from, to: ranks of a message; of a collective both are ALL_RANKS. */
struct place {
	uint64_t comm_hash;
	int32_t from, to;
	uint64_t number;
};

struct meeting {
	struct place place;
	uint32_t n_expected, n_come, n_parted;
	uint64_t last_start_ns;
	struct rank_speed slowest;
	uint64_t signature; /* of the first to come */
	bool mismatch;
	UT_hash_handle hh;
};

/* One side of a meeting. A message to oneself has both on one rank: the sign tells them apart. */
struct side {
	struct place place; /* number is 0 in a key */
	int32_t rank;
	int32_t pad;
};

/* How many times it has come. */
struct visits {
	struct side side;
	uint64_t n;
	UT_hash_handle hh;
};

struct rendezvous {
	struct meeting *meetings;
	struct visits *visits;
};

struct rendezvous *rendezvous_new(void)
{
	return calloc(1, sizeof(struct rendezvous));
}

void rendezvous_free(struct rendezvous *rendezvous)
{
	struct meeting *meeting, *next_meeting;
	struct visits *visits, *next_visits;

	if (!rendezvous)
		return;
	HASH_ITER(hh, rendezvous->meetings, meeting, next_meeting)
	{
		HASH_DEL(rendezvous->meetings, meeting);
		free(meeting);
	}
	HASH_ITER(hh, rendezvous->visits, visits, next_visits)
	{
		HASH_DEL(rendezvous->visits, visits);
		free(visits);
	}
	free(rendezvous);
}

static struct visits *visits_get(struct rendezvous *rendezvous, const struct side *side)
{
	struct visits *found;

	HASH_FIND(hh, rendezvous->visits, side, sizeof(*side), found);
	if (found)
		return found;
	found = calloc(1, sizeof(*found));
	if (!found)
		return NULL;
	found->side = *side;
	HASH_ADD(hh, rendezvous->visits, side, sizeof(*side), found);
	return found;
}

static struct meeting *meeting_get(struct rendezvous *rendezvous, struct place place,
				   uint32_t n_expected)
{
	struct meeting *found;

	HASH_FIND(hh, rendezvous->meetings, &place, sizeof(place), found);
	if (found)
		return found;
	found = calloc(1, sizeof(*found));
	if (!found)
		return NULL;
	found->place = place;
	found->n_expected = n_expected;
	HASH_ADD(hh, rendezvous->meetings, place, sizeof(place), found);
	return found;
}

static void come(struct meeting *meeting, uint64_t start_ns, struct rank_speed speed,
		 uint64_t signature)
{
	if (!meeting->n_come++) {
		meeting->signature = signature;
		meeting->slowest = speed;
	}
	meeting->mismatch |= meeting->signature != signature;
	if (start_ns > meeting->last_start_ns)
		meeting->last_start_ns = start_ns;
	if (speed.slow > meeting->slowest.slow)
		meeting->slowest.slow = speed.slow;
	if (speed.link > meeting->slowest.link)
		meeting->slowest.link = speed.link;
}

/* What all ranks must agree on. */
static uint64_t signature_of(const struct gpu_op *ops, uint32_t n)
{
	uint64_t signature = 1;

	for (uint32_t i = 0; i < n; i++) {
		if (gpu_op_is_p2p(&ops[i]))
			continue;
		signature = signature * UINT64_C(0x100000001b3) + ops[i].func;
		signature = signature * UINT64_C(0x100000001b3) + ops[i].bytes;
	}
	return signature;
}

static struct side message_side(const struct gpu_command *command, const struct gpu_op *op)
{
	bool send = op->func == FUNC_SEND;

	return (struct side){
		.place = { .comm_hash = command->comm_hash,
			   .from = send ? command->rank : op->root,
			   .to = send ? op->root : command->rank },
		.rank = send ? command->rank : ~command->rank,
	};
}

/* A kernel has one meeting for all its collectives, and one for each message. */
static uint32_t sides_of(const struct gpu_command *command, const struct gpu_op *ops,
			 struct side *ret)
{
	bool collective = false;
	uint32_t n = 0;

	for (uint32_t i = 0; i < command->n_ops; i++) {
		if (gpu_op_is_p2p(&ops[i])) {
			ret[n++] = message_side(command, &ops[i]);
		} else if (!collective) {
			ret[n++] = (struct side){
				.place = { command->comm_hash, ALL_RANKS, ALL_RANKS, 0 },
				.rank = command->rank,
			};
			collective = true;
		}
	}
	return n;
}

void rendezvous_post(struct rendezvous *rendezvous, const struct gpu_command *command,
		    const struct gpu_op *ops, uint64_t start_ns, struct rank_speed speed,
		    struct meeting_set *set)
{
	struct side *sides = calloc(command->n_ops, sizeof(*sides));
	uint64_t signature = signature_of(ops, command->n_ops);

	set->meeting = calloc(command->n_ops, sizeof(*set->meeting));
	if (!sides || !set->meeting)
		abort(); /* here and below: half a rendezvous would make all that follows wrong */
	set->n = sides_of(command, ops, sides);
	for (uint32_t i = 0; i < set->n; i++) {
		bool all = sides[i].place.from == ALL_RANKS;
		struct visits *visits = visits_get(rendezvous, &sides[i]);

		if (!visits)
			abort();
		sides[i].place.number = ++visits->n;
		set->meeting[i] = meeting_get(rendezvous, sides[i].place,
					      all ? (uint32_t)command->n_ranks : 2);
		if (!set->meeting[i])
			abort();
		come(set->meeting[i], start_ns, speed, all ? signature : 0);
	}
	free(sides);
}

static void part(struct rendezvous *rendezvous, struct meeting_set *set)
{
	for (uint32_t i = 0; i < set->n; i++) {
		struct meeting *meeting = set->meeting[i];

		if (++meeting->n_parted < meeting->n_expected)
			continue;
		HASH_DEL(rendezvous->meetings, meeting);
		free(meeting);
	}
	free(set->meeting);
	*set = (struct meeting_set){ 0 };
}

static struct kernel_load load_of(const struct meeting_set *set, const struct gpu_command *command,
				  const struct gpu_op *ops)
{
	struct kernel_load load = { .slow = 1, .link = 1, .network = command->n_nodes > 1 };

	for (uint32_t i = 0; i < set->n; i++) {
		const struct meeting *meeting = set->meeting[i];

		if (meeting->slowest.slow > load.slow)
			load.slow = meeting->slowest.slow;
		if (meeting->slowest.link > load.link)
			load.link = meeting->slowest.link;
		load.number = load.number * 31 + meeting->place.number;
	}
	for (uint32_t i = 0; i < command->n_ops; i++) {
		bool self = ops[i].root == command->rank;

		if (!gpu_op_is_p2p(&ops[i]))
			load.collective_bytes += model_bus_bytes(&ops[i], command->n_ranks);
		else if (!self && ops[i].func == FUNC_SEND)
			load.sent_bytes += (double)ops[i].bytes;
		else if (!self)
			load.received_bytes += (double)ops[i].bytes;
	}
	return load;
}

bool rendezvous_end(struct rendezvous *rendezvous, struct meeting_set *set,
		    const struct gpu_command *command, const struct gpu_op *ops,
		    const struct gpu_model *model, uint64_t *ret_end_ns)
{
	struct kernel_load load;
	uint64_t from_ns = 0;

	for (uint32_t i = 0; i < set->n; i++) {
		const struct meeting *meeting = set->meeting[i];

		if (meeting->n_come < meeting->n_expected || meeting->mismatch)
			return false;
		if (meeting->last_start_ns > from_ns)
			from_ns = meeting->last_start_ns;
	}
	load = load_of(set, command, ops);
	*ret_end_ns = from_ns + model_duration_ns(model, &load);
	part(rendezvous, set);
	return true;
}
