/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "ledger.h"

#include <inttypes.h>
#include <stdlib.h>

struct ledger_record *ledger_add(struct ledger *ledger, int name, const struct nccl_sim_view *view)
{
	struct ledger_record *record;

	if (ledger->n_records == LEDGER_MAX_RECORDS)
		return NULL;
	record = &ledger->record[ledger->n_records];
	record->comm_hash = view->comm_hash;
	record->name = name;
	record->rank = view->rank;
	record->n_ranks = view->n_ranks;
	record->has_seq = view->has_seq;
	__atomic_add_fetch(&ledger->n_records, 1, __ATOMIC_RELEASE);
	return record;
}

static void add(uint64_t *counter, uint64_t value)
{
	__atomic_add_fetch(counter, value, __ATOMIC_RELAXED);
}

void ledger_count(struct ledger_record *record, const struct instruction *operation)
{
	const struct operation_info *info = &operations[operation->operation];
	uint64_t each = datatype_bytes(operation->datatype);
	uint64_t ranks = info->times_ranks ? (uint64_t)record->n_ranks : 1;

	add(&record->calls[info->counted_as], 1);
	if (each)
		add(&record->bytes[info->counted_as], operation->count * each * ranks);
	else
		add(&record->unknown_type_calls[info->counted_as], 1);
}

void ledger_add_mode(struct ledger_record *record, const struct instruction *operation,
		     enum ledger_mode mode, uint64_t n)
{
	add(&record->mode[mode][operations[operation->operation].counted_as], n);
}

void ledger_sequence(struct ledger_record *record, const struct nccl_sim_view *view)
{
	for (int i = 0; i < SIM_SEQ_COUNT; i++) {
		uint64_t old = __atomic_load_n(&record->seq[i], __ATOMIC_RELAXED);

		while (view->seq[i] > old &&
		       !__atomic_compare_exchange_n(&record->seq[i], &old, view->seq[i], false,
						    __ATOMIC_RELAXED, __ATOMIC_RELAXED))
			;
	}
}

static void print_operation(const struct ledger_record *record, const struct script *script,
			    pid_t pid, const struct operation_info *info, FILE *out)
{
	enum operation operation = info->counted_as;

	fprintf(out, "pid=%d rank=%d nranks=%d comm=%016" PRIx64 " name=%s operation=%s calls=%"
		PRIu64 " bytes=%" PRIu64, (int)pid, record->rank, record->n_ranks,
		record->comm_hash, script->comm_name[record->name], info->nccl_name,
		record->calls[operation], record->bytes[operation]);
	if (record->has_seq && info->sequence >= 0)
		fprintf(out, " sequence=%" PRIu64, record->seq[info->sequence]);
	else
		fputs(" sequence=-", out);
	if (record->unknown_type_calls[operation])
		fprintf(out, " unknown_type_calls=%" PRIu64, record->unknown_type_calls[operation]);
	if (record->mode[LEDGER_CAPTURED][operation])
		fprintf(out, " captured=%" PRIu64 " replayed=%" PRIu64,
			record->mode[LEDGER_CAPTURED][operation],
			record->mode[LEDGER_REPLAYED][operation]);
	fputc('\n', out);
}

static int by_hash(const void *a, const void *b)
{
	const struct ledger_record *const *left = a, *const *right = b;

	return ((*left)->comm_hash > (*right)->comm_hash) -
	       ((*left)->comm_hash < (*right)->comm_hash);
}

void ledger_print(const struct ledger *ledger, const struct script *script, pid_t pid, FILE *out)
{
	const struct ledger_record *sorted[LEDGER_MAX_RECORDS];
	uint32_t n = __atomic_load_n(&ledger->n_records, __ATOMIC_ACQUIRE);

	for (uint32_t i = 0; i < n; i++)
		sorted[i] = &ledger->record[i];
	qsort(sorted, n, sizeof(sorted[0]), by_hash);
	for (uint32_t i = 0; i < n; i++)
		for (int operation = 0; operation < OP_COUNT; operation++)
			if (sorted[i]->calls[operation])
				print_operation(sorted[i], script, pid, &operations[operation],
						out);
}
