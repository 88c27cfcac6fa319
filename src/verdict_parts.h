/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the parts of the judge do for one another; verdict_private.h includes it. */
#ifndef VERDICT_PARTS_H
#define VERDICT_PARTS_H

/* verdict.c */
struct verdict_comm *verdicts__comm(struct verdicts *verdicts, uint64_t hash, int32_t n_ranks);

/* verdict_member.c */
/* 0, -ENOMEM, or -ENOSPC. Whoever held the rank and has left makes room. */
int verdict_comm__insert(struct verdict_comm *comm, const struct verdict_member *member, bool whole,
			 uint64_t now_ns);
void verdict_comm__remove(struct verdict_comm *comm, uint32_t index);
/* Counts who lives, and sees whether two of them claim one rank. */
void verdict_comm__recount(struct verdict_comm *comm);
/* Index of it among the ranks of its communicator; -1: not known. */
int32_t verdict_comm__index(const struct verdict_comm *comm, const struct verdict_member *member);
/* Index of the living member that holds a rank; -1. */
int32_t verdict_comm__living(const struct verdict_comm *comm, int32_t rank);
/* A living member of that name; NULL. */
/* How many ranks of a communicator of this node alone were never seen, and which. 0: none, or it
 * has other nodes. */
uint32_t verdict_comm__unseen(const struct verdict_comm *comm, struct verdict_named *ret);
struct verdict_comm *verdicts__member(struct verdicts *verdicts,
				      const struct verdict_member *member, uint32_t *ret_index);

/* verdict_call.c */
void habit__add(struct habit *habit, uint64_t value_ns, uint64_t time_ns);
/* The n-th largest (1: the largest; up to 4) of those not too old; 0: there are not so many. */
uint64_t habit__nth(const struct habit *habit, uint32_t n, uint64_t now_ns);
/* It has come to that number at least. */
void member__reach(struct member *member, enum nccl_operation op, uint64_t sequence,
		   uint64_t time_ns);
void verdict_comm__active(struct verdict_comm *comm, struct member *member, uint64_t time_ns);

/* verdict_arrival.c */
/* Takes words of history from what all may use; false: there are none left. */
bool verdict_comm__charge(struct verdict_comm *comm, uint32_t n_cells);
void verdict_comm__discharge(struct verdict_comm *comm, uint32_t n_cells);
void verdict_comm__free_tracks(struct verdict_comm *comm);
/* What stands in column `from` stands in `to` now, and nothing in `from`. */
void verdict_comm__move_column(struct verdict_comm *comm, uint32_t from, uint32_t to);
void verdict_comm__arrive(struct verdict_comm *comm, uint32_t index,
			  const struct verdict_call *call);
/* NULL: not remembered. */
struct entry *verdict_comm__entry(const struct verdict_comm *comm, enum nccl_operation operation,
				  uint64_t sequence);
static inline uint64_t *track__arrival(const struct track *track, const struct entry *entry,
				       uint32_t column)
{
	return &track->arrivals[(entry - track->entries) * (size_t)track->n_columns + column];
}

/* 0, too, for one who came to the communicator after the last call of that operation. */
static inline uint64_t track__arrived(const struct track *track, const struct entry *entry,
				      uint32_t column)
{
	return column < track->n_columns ? *track__arrival(track, entry, column) : 0;
}

/* verdict_mismatch.c */
/* The call has just been taken into the entry. True: it differs. */
bool entry__compare(struct verdict_comm *comm, struct entry *entry, const struct verdict_call *call,
		    uint32_t index);
/* Every rank came, or no more will: the minority is to blame. */
void entry__count_mismatch(struct verdict_comm *comm, enum nccl_operation operation,
			   struct entry *entry);
bool verdict_comm__find_mismatch(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret);

/* verdict_order.c */
void member__log(struct verdict_comm *comm, uint32_t index, const struct verdict_call *call);
void verdict_comm__link(struct verdict_comm *comm, uint64_t now_ns);
/* Of two ranks that stand still, each has called what the other has not. */
void verdict_comm__note_crossing(struct verdict_comm *comm, uint32_t a, uint32_t b,
				 uint64_t now_ns);

/* verdict_missing.c */
bool verdict_comm__find_missing(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret);
/* Since when others want of that rank a call that they have made; ~0: it is not behind. */
uint64_t verdict_comm__wanted_since(struct verdict_comm *comm, uint32_t index,
				    enum nccl_operation operation);
/* habit: NULL: none. */
uint64_t verdict_comm__threshold(const struct verdict_comm *comm, const struct habit *habit,
				 uint64_t least_ns, uint64_t now_ns);
enum verdict_state verdict_comm__waits_or_stuck(const struct verdict_comm *comm, uint64_t since_ns,
						uint64_t now_ns);
bool verdict_comm__is_sure(const struct verdict_comm *comm, enum nccl_operation operation);
/* Numbers of one operation: the least and the most of living ranks. */
struct range {
	uint64_t least, most;
	uint32_t n_known;
};
struct range verdict_comm__range(const struct verdict_comm *comm, enum nccl_operation operation);

/* Its last call, launch or step forward. */
uint64_t member__still_since(const struct member *member);
bool member__has_time(const struct member *member, uint64_t wanted_ns, uint64_t now_ns);

/* verdict_replay.c */
/* Living ranks can be told apart by how much their CUDA graphs have run. */
bool verdict_comm__replays_compare(const struct verdict_comm *comm);
bool verdict_comm__find_unlaunched(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret);

/* verdict_peer.c. follows: no call of the operation is missing before it. */
void verdict_comm__peer_call(struct verdict_comm *comm, uint32_t index,
			     const struct verdict_call *call, bool follows);
bool verdict_comm__find_unsent(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret);
/* Has it owed a message when it left? */
bool verdict_comm__owes(struct verdict_comm *comm, uint32_t index, uint64_t now_ns);
void verdict_comm__free_pairs(struct verdict_comm *comm);

/* verdict_end.c */
bool verdict_comm__find_error(const struct verdict_comm *comm, struct finding *ret);
/* It died without having called that, as far as its numbers are known. */
bool member__died_before(const struct member *m, enum nccl_operation operation, uint64_t sequence);
bool verdict_comm__find_end(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret);

/* verdict_gpu.c */
bool verdict_comm__find_on_gpu(const struct verdict_comm *comm, uint64_t now_ns,
			       struct finding *ret);
bool verdict_comm__is_flying(const struct verdict_comm *comm, uint64_t now_ns);

#define MIN_SLICE_NS (NSEC_PER_SEC / 2)

/* verdict_late.c: all came to a number, on their hosts or GPUs. */
struct meeting {
	uint64_t first_ns, last_ns;
	uint64_t times_ns[MAX_MEMBERS]; /* by index; 0: has left */
	uint32_t weight;		/* numbers that it stands for */
	bool is_waited;			/* the first may have waited for the last */
};
void verdict_comm__gather_lateness(struct verdict_comm *comm, enum late_sight sight,
				   const struct meeting *meeting);
/* What was gathered and has no column for a member that came begins anew. */
void verdict_comm__fit_late(struct verdict_comm *comm);
void verdict_comm__free_late(struct verdict_comm *comm, enum late_sight sight);

/* verdict_slices.c */
#define MIN_SLICES 10
#define MAX_SLICES 32
/* The newest closed slices, `scale` of them taken together: so that each has a whole step. */
struct window {
	const struct verdict_comm *comm;
	const struct late *late;
	uint32_t scale, n;
};

struct window window__of(const struct verdict_comm *comm, const struct late *late, uint32_t scale);
const struct slice *late__last_slice(const struct late *late);
/* Of the k-th newest (0: the newest). */
uint64_t window__start_ns(const struct window *w, uint32_t k);
uint64_t window__duration_ns(const struct window *w, uint32_t k);
uint64_t window__waste_ns(const struct window *w, uint32_t k, uint32_t column);
/* What a rank must exceed to be late in it. */
uint64_t window__limit_ns(const struct window *w, uint32_t k);
/* Of the n newest, in how many is it late? per: hundredths of the limit. */
uint32_t window__count(const struct window *w, uint32_t column, uint32_t n, uint32_t per);
/* Of the time that the others lose to it more than to one another, in the n newest. */
double window__share(const struct window *w, uint32_t column, uint32_t n);
bool window__is_significant(const struct window *w, uint32_t column, double *ret_waste);
uint32_t window__streak(const struct window *w, uint32_t column);
/* By how much it was later than the others in the mean, slice by slice. */
void window__lateness(const struct window *w, uint32_t column, uint32_t n, double *ret_us);

/* verdict_straggler.c */
bool verdict_comm__find_straggler(struct verdict_comm *comm, enum late_sight sight, uint64_t now_ns,
				  struct finding *ret);
/* It was told of all the time lately. */
bool late__is_recent(const struct late *late, uint64_t now_ns); /* NULL: false */

/* verdict_waited.c */
#define MAX_POINTS LATE_NUMBERS
/* Numbers, newest first: how late a rank came, and when the others came in the mean. */
struct points {
	double lateness[MAX_POINTS], others[MAX_POINTS];
	uint32_t n;
};
/* Maybe: what is seen fits, noise allows for the other, too. */
enum waited { WAITED_NO, WAITED_UNKNOWN, WAITED_MAYBE, WAITED_YES };
double points__step_ns(const struct points *points); /* 0: not known */
/* Do the others wait for it? */
enum waited points__waited(const struct points *points);
/* Do they nearly nothing else? False: no, or the points are too few. */
bool points__fill_time(const struct points *points);
/*
 * Of a row of arrivals by column: the last of those blamed, and the mean of the others. False: it
 * is of before that time, somebody is not in it, or there are no others.
 */
bool points__add(struct points *points, const struct verdict_comm *comm, const uint64_t *row,
		 const struct rank_set *blamed, uint64_t since_ns);
/* The k-th least (0: the least) of n values, whose order changes. */
double doubles__nth(double *values, uint32_t n, uint32_t k);
/* Mean square of successive differences by variance. */
double doubles__von_neumann(const double *values, uint32_t n);
/*
 * Student's t of the first 10, 16 or 32 of them is beyond what chance does, though we look all day
 * at many ranks. ret_mean is set when there are that many.
 */
bool doubles__beyond_chance(const double *values, uint32_t n, double *ret_mean);

/* verdict_timed.c */
void verdict_comm__free_timed(struct verdict_comm *comm);
bool verdict_comm__find_slow(struct verdict_comm *comm, uint64_t now_ns, struct finding *ret);

/* verdict_chain.c */
void verdicts__chain(struct verdicts *verdicts);
struct finding verdict_comm__nothing(const struct verdict_comm *comm);

/* verdict_acquit.c */
void verdicts__acquit(struct verdicts *verdicts);

/* verdict_words.c */
struct text {
	char *at;
	size_t left;
};
void text__add(struct text *text, const char *format, ...) __attribute__((format(printf, 2, 3)));
void text__add_ranks(struct text *text, const struct verdict_named *named, const char *one,
		     const char *many);
void text__add_age(struct text *text, uint64_t age_ns);
void text__add_call(struct text *text, enum nccl_operation operation, uint64_t sequence);
/* verdict_why.c, verdict_evidence.c */
void verdict_comm__explain(const struct verdict_comm *comm, struct verdict *verdict,
			   uint64_t now_ns);
void verdict_comm__add_evidence(const struct verdict_comm *comm, struct verdict *verdict,
				uint64_t now_ns);

#endif
