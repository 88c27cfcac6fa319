/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* What the descriptor of an operation says, by the version of the interface. */
#include <string.h>

#include "foreign_private.h"
#include "plugin/abi_decode.h"

/* Pointers into the process become pointers to what was copied from there. */
static void task__place_text(char *descriptor, int16_t at, const char *text)
{
	if (at >= 0)
		memcpy(descriptor + at, &text, sizeof(text));
}

bool foreign_record__decode(const struct nb_foreign_record *record, struct abi_event *event)
{
	const struct abi_version *v = &abi_versions[record->abi];
	const struct abi_task *at = record->type == ABI_P2P ? &v->p2p : &v->coll;
	_Alignas(8) char descriptor[NB_FOREIGN_DESCRIPTOR];
	char text[NB_FOREIGN_TEXTS][NB_FOREIGN_TEXT + 1] = {};
	struct abi_names names = {}; /* addresses of ours: nothing to remember them by */

	memcpy(descriptor, record->task.descriptor, sizeof(descriptor));
	for (int i = 0; i < NB_FOREIGN_TEXTS; i++)
		memcpy(text[i], record->task.text[i], NB_FOREIGN_TEXT);
	task__place_text(descriptor, at->name, NULL);
	if (v->strings) {
		task__place_text(descriptor, at->function, text[0]);
		task__place_text(descriptor, at->datatype, text[1]);
	}
	if (v->strings && record->type != ABI_CE_COLL) {
		task__place_text(descriptor, at->algorithm, text[2]);
		task__place_text(descriptor, at->protocol, text[3]);
	}
	*event = (struct abi_event){};
	if (record->type == ABI_CE_COLL)
		abi__ce_coll((const void *)descriptor, &names, event);
	else
		abi__task(v, record->type, descriptor, &names, event);
	event->name = NULL;
	return event->function < NBP_FUNCTION_MAX;
}
