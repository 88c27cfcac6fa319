/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* A communicator's memory as a tenant may fill it: what is accepted is consistent. */
#include "../../src/nccl_api.c"
#include "../../src/nccl_identity.c"
#include "../../src/utf8.c"
#include "../../src/nccl_layout.c"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct memory {
	const uint8_t *data;
	size_t size;
};

static int read_wrapped(void *ctx, uint64_t addr, void *buf, size_t len)
{
	const struct memory *memory = ctx;

	for (size_t i = 0; i < len; i++)
		((uint8_t *)buf)[i] = memory->data[(addr + i) % memory->size];
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct memory memory = {data + 1, size - 1};
	struct nccl_layout layout;
	struct nccl_identity id;

	if (size < 2 || nccl_layout__by_version(data[0] & 1 ? 22809 : 21903, &layout))
		return 0;
	if (!nccl_layout__identify(&layout, read_wrapped, &memory, 0x1000, &id) &&
	    (id.rank < 0 || id.rank >= id.n_ranks || !memchr(id.name, 0, sizeof(id.name))))
		abort();
	return 0;
}
