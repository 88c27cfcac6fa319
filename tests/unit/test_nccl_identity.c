/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>
#include <stdlib.h>

#include "unit.h"

#include "../../src/nccl_identity.c"
#include "../../src/utf8.c"
#include "../../src/nccl_layout.c"

/* A process with one communicator at COMM, a page of text at TEXT, and nothing else. */
#define COMM  0x7f0000001000ULL
#define TEXT  0x7e0000000000ULL
#define PAGE  4096
#define PROXY 0x7d0000000000ULL

struct process {
	uint8_t *comm;
	size_t size;
	char text[PAGE];
	uint32_t abort_flag; /* at TEXT + PAGE */
	int32_t proxy_result;
	uint64_t proxy_at; /* of that */
	int error;	   /* what every read ends with, when not 0 */
};

static int process__read(void *ctx, uint64_t addr, void *buf, size_t len)
{
	struct process *process = ctx;

	if (process->error)
		return process->error;
	if (addr >= COMM && addr - COMM <= process->size && len <= process->size - (addr - COMM))
		memcpy(buf, process->comm + (addr - COMM), len);
	else if (addr >= TEXT && addr - TEXT <= PAGE && len <= PAGE - (addr - TEXT))
		memcpy(buf, process->text + (addr - TEXT), len);
	else if (addr == TEXT + PAGE && len == 4)
		memcpy(buf, &process->abort_flag, len);
	else if (process->proxy_result && addr == process->proxy_at && len == 4)
		memcpy(buf, &process->proxy_result, len);
	else
		return -EIO;
	return 0;
}

static void put32(struct process *process, int32_t offset, int32_t value)
{
	if (offset >= 0)
		memcpy(process->comm + offset, &value, sizeof(value));
}

static void put64(struct process *process, int32_t offset, uint64_t value)
{
	if (offset >= 0)
		memcpy(process->comm + offset, &value, sizeof(value));
}

/* Rank 5 of 8, second of two nodes with four each. */
static struct process process__new(const struct nccl_layout *layout)
{
	struct process process = {.comm = calloc(1, layout->size), .size = layout->size};

	put64(&process, layout->start_magic, NCCL_MAGIC);
	put64(&process, layout->end_magic, NCCL_MAGIC);
	put64(&process, layout->comm_hash, 0x1122334455667788);
	put32(&process, layout->rank, 5);
	put32(&process, layout->n_ranks, 8);
	put32(&process, layout->cuda_dev, 1);
	put32(&process, layout->nvml_dev, 3);
	put64(&process, layout->bus_id, 0x1b000);
	put32(&process, layout->node, 1);
	put32(&process, layout->n_nodes, 2);
	put32(&process, layout->local_rank, 1);
	put32(&process, layout->local_ranks, 4);
	for (int i = 0; i < layout->n_seq; i++)
		put64(&process, layout->seq_number + 8 * i, 100 + i);
	put64(&process, layout->comm_name_ptr, TEXT);
	put64(&process, layout->abort_flag, TEXT + PAGE);
	strcpy(process.text, "tp_group");
	return process;
}

static struct nccl_layout layout_of(int32_t version)
{
	struct nccl_layout layout = {0};

	CHECK_INT(nccl_layout__by_version_on(NCCL_ARCH_X86_64, version, &layout), 0);
	return layout;
}

static int identify(struct process *process, const struct nccl_layout *layout,
		    struct nccl_identity *ret)
{
	return nccl_layout__identify(layout, process__read, process, COMM, ret);
}

/* Everything that a release has is read from it, in every one. */
TEST(communicator_of_every_release)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		struct nccl_layout layout = layout_of(classes[i].first);
		struct process process = process__new(&layout);
		struct nccl_identity id;

		CHECK_INT(identify(&process, &layout, &id), 0);
		CHECK_INT(id.rank, 5);
		CHECK_INT(id.n_ranks, 8);
		CHECK_INT(id.cuda_dev, 1);
		CHECK_INT(id.bus_id, 0x1b000);
		CHECK_INT(id.nvml_dev, layout.nvml_dev >= 0 ? 3 : -1);
		CHECK_INT(!(id.valid & NCCL_IDENTITY_HASH), layout.comm_hash < 0);
		CHECK_INT(!(id.valid & NCCL_IDENTITY_NODES), layout.local_rank < 0);
		CHECK_INT(!(id.valid & NCCL_IDENTITY_SEQUENCE), layout.n_seq == 0);
		CHECK_INT(!(id.valid & NCCL_IDENTITY_NAME), layout.comm_name_ptr < 0);
		if (layout.n_seq)
			CHECK_INT(id.sequence[4], 104);
		if (id.valid & NCCL_IDENTITY_NAME)
			CHECK_STR(id.name, "tp_group");
		free(process.comm);
	}
}

TEST(communicator_being_made)
{
	struct nccl_layout layout = layout_of(22809);
	struct process process = process__new(&layout);
	struct nccl_identity id = {.rank = -7};

	put32(&process, layout.rank, 0);
	put32(&process, layout.n_ranks, 0);
	CHECK_INT(identify(&process, &layout, &id), -EAGAIN);
	CHECK_INT(id.rank, -7);
	/* a moment later: ranks but neither hash nor nodes */
	put32(&process, layout.n_ranks, 8);
	put64(&process, layout.comm_hash, 0);
	put32(&process, layout.n_nodes, 0);
	put32(&process, layout.init_state, 7);
	CHECK_INT(identify(&process, &layout, &id), 0);
	CHECK_INT(id.rank, 0);
	CHECK(!(id.valid & (NCCL_IDENTITY_HASH | NCCL_IDENTITY_NODES)));
	CHECK_INT(id.init_state, 7);
	free(process.comm);
}

static void check_refused(int32_t offset, int32_t value)
{
	struct nccl_layout layout = layout_of(22809);
	struct process process = process__new(&layout);
	struct nccl_identity id = {.rank = -7};

	put32(&process, offset, value);
	CHECK_INT(identify(&process, &layout, &id), -EINVAL);
	CHECK_INT(id.rank, -7);
	free(process.comm);
}

TEST(what_is_no_communicator_is_refused)
{
	struct nccl_layout layout = layout_of(22809);

	check_refused(layout.start_magic, 0); /* freed, 2.21 on */
	check_refused(layout.end_magic, 0);
	check_refused(layout.rank, -1); /* poisoned */
	check_refused(layout.rank, 8);
	check_refused(layout.n_ranks, -1);
	check_refused(layout.n_ranks, 1 << 30);
	check_refused(layout.cuda_dev, -1);
	check_refused(layout.init_state, 12345);
	check_refused(layout.node, 2);
	check_refused(layout.n_nodes, 9);
	check_refused(layout.local_rank, 4);
	check_refused(layout.local_ranks, 9);
	check_refused(layout.local_ranks, 8); /* all ranks here, and yet two nodes */
}

TEST(guessed_nodes_that_do_not_fit_are_not_given)
{
	struct nccl_layout layout = layout_of(22809);
	struct process process = process__new(&layout);
	struct nccl_identity id;

	layout.source = NCCL_LAYOUT_CODE;
	put32(&process, layout.node, 77);
	CHECK_INT(identify(&process, &layout, &id), 0);
	CHECK_INT(id.rank, 5);
	CHECK(!(id.valid & NCCL_IDENTITY_NODES));
	free(process.comm);
}

TEST(memory_that_cannot_be_read)
{
	struct nccl_layout layout = layout_of(22809), none = {0};
	struct process process = process__new(&layout);
	struct nccl_identity id = {.rank = -7};

	process.error = -EFAULT;
	CHECK_INT(identify(&process, &layout, &id), -EFAULT);
	process.error = 0;
	process.size = layout.rank; /* the mapping ends before the fields */
	CHECK_INT(identify(&process, &layout, &id), -EIO);
	process.size = layout.size;
	CHECK_INT(identify(&process, &none, &id), -EINVAL);
	CHECK_INT(nccl_layout__identify(&layout, process__read, &process, 0, &id), -EINVAL);
	CHECK_INT(nccl_layout__identify(&layout, process__read, &process, UINT64_MAX - 3, &id),
		  -EINVAL);
	CHECK_INT(id.rank, -7);
	free(process.comm);
}

TEST(abort_flag_is_followed)
{
	struct nccl_layout layout = layout_of(22809);
	struct process process = process__new(&layout);
	struct nccl_identity id;

	CHECK_INT(identify(&process, &layout, &id), 0);
	CHECK(id.valid & NCCL_IDENTITY_ABORT);
	CHECK_INT(id.aborted, 0);
	process.abort_flag = 1;
	CHECK_INT(identify(&process, &layout, &id), 0);
	CHECK_INT(id.aborted, 1);
	put64(&process, layout.abort_flag, 0xdead0000);
	CHECK_INT(identify(&process, &layout, &id), 0);
	CHECK(!(id.valid & NCCL_IDENTITY_ABORT));
	free(process.comm);
}

/* The name at the very end of the readable page, or at another place of it. */
static void check_name(const char *bytes, size_t len, size_t at, const char *name)
{
	struct nccl_layout layout = layout_of(22809);
	struct process process = process__new(&layout);
	struct nccl_identity id;

	memcpy(process.text + at, bytes, len);
	put64(&process, layout.comm_name_ptr, TEXT + at);
	CHECK_INT(identify(&process, &layout, &id), 0);
	CHECK_INT(!(id.valid & NCCL_IDENTITY_NAME), !name);
	CHECK_STR(id.name, name ? name : "");
	free(process.comm);
}

#define NAME(bytes, name) check_name(bytes, sizeof(bytes), 64, name)

/* The communicator's own error, or else that of its network thread. */
TEST(asynchronous_result)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		struct nccl_layout layout = layout_of(classes[i].first);
		struct process process = process__new(&layout);
		struct nccl_identity id;
		bool has_proxy = layout.proxy_result >= 0;

		if (layout.init_state < 0)
			goto next;
		process.proxy_at = PROXY + layout.proxy_result;
		put64(&process, layout.proxy_state, PROXY);
		CHECK_INT(identify(&process, &layout, &id), 0);
		CHECK_INT(id.async_result, 0);
		process.proxy_result = 6;
		CHECK_INT(identify(&process, &layout, &id), 0);
		CHECK_INT(id.async_result, has_proxy ? 6 : 0);
		put32(&process, layout.async_result, 3);
		CHECK_INT(identify(&process, &layout, &id), 0);
		CHECK_INT(id.async_result, 3);
		put32(&process, layout.async_result, 0);
		process.proxy_result = 12345; /* no result */
		CHECK_INT(identify(&process, &layout, &id), 0);
		CHECK_INT(id.async_result, 0);
		put64(&process, layout.proxy_state, UINT64_MAX);
		CHECK_INT(identify(&process, &layout, &id), 0);
	next:
		free(process.comm);
	}
}

TEST(names)
{
	NAME("dp", "dp");
	NAME("", NULL);
	NAME("gr\xc3\xbc\xc3\x9f"
	     "e \xe2\x82\xac \xf0\x9f\x9a\x80",
	     "grüße € 🚀");
	check_name("end", 4, PAGE - 4, "end");
	check_name("cut", 3, PAGE - 3, NULL); /* no end before the unmapped page */
}

TEST(names_that_are_not_printable)
{
	NAME("a\nb", NULL);
	NAME("\x1b[31mred", NULL);
	NAME("a\x7f", NULL);
	NAME("\xc2\x9b"
	     "31m",
	     NULL);			/* a control character of two bytes */
	NAME("\xc0\xaf", NULL);		/* overlong */
	NAME("\xed\xa0\x80", NULL);	/* surrogate */
	NAME("\xf4\x90\x80\x80", NULL); /* beyond Unicode */
	NAME("\xe2\x80\xae"
	     "abc",
	     NULL); /* right-to-left override */
	NAME("\xff\xfe", NULL);
	NAME("ab\xe2\x82", NULL); /* ends within a character */
}

TEST(long_names_are_cut_at_a_character)
{
	char longest[200], want[64];

	memset(longest, 'x', sizeof(longest));
	longest[199] = '\0';
	memset(want, 'x', 63);
	want[63] = '\0';
	check_name(longest, sizeof(longest), 64, want);
	memcpy(longest + 62, "\xe2\x82\xac", 3);
	want[62] = '\0';
	check_name(longest, sizeof(longest), 64, want);
	longest[63] = '\0';
	want[62] = '\0';
	longest[62] = '\0';
	check_name(longest, sizeof(longest), 64, want);
}

UNIT_MAIN()
