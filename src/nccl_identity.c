/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The reading half of nccl_layout.h: one communicator, judged field by field. */
#include "nccl_layout.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "utf8.h"

#define NCCL_MAGIC 0x0280028002800280ULL

/* Larger than any cluster or machine: what is beyond was no such number. */
#define MAX_RANKS   (1 << 24)
#define MAX_DEVICES 4096
/* ncclResult_t has 8 values up to 2.28 and 9 since; some room for what comes. */
#define MAX_RESULT 32

struct source {
	const struct nccl_layout *layout;
	nccl_read_fn read;
	void *ctx;
	uint64_t comm;
};

/* A field of the communicator; -ENOENT when the layout has none. */
static int source__field(const struct source *src, int32_t offset, void *buf, size_t len)
{
	if (offset < 0)
		return -ENOENT;
	if (src->comm > UINT64_MAX - offset - len)
		return -EINVAL;
	return src->read(src->ctx, src->comm + offset, buf, len);
}

static int source__check_magic(const struct source *src, int32_t offset)
{
	uint64_t magic;
	int err = source__field(src, offset, &magic, sizeof(magic));

	if (err == -ENOENT)
		return 0;
	if (err)
		return err;
	return magic == NCCL_MAGIC ? 0 : -EINVAL;
}

/* rank, nRanks, cudaDev: three ints in a row in every release. */
static int source__read_rank(const struct source *src, struct nccl_identity *id)
{
	int32_t field[3];
	int err = source__field(src, src->layout->rank, field, sizeof(field));

	if (err)
		return err == -ENOENT ? -EINVAL : err;
	/* the struct is zeroed when made, and rank is poisoned with -1 before it is freed */
	if (field[0] == 0 && field[1] == 0)
		return -EAGAIN;
	if (field[1] <= 0 || field[1] > MAX_RANKS || field[0] < 0 || field[0] >= field[1] ||
	    field[2] < 0 || field[2] > MAX_DEVICES)
		return -EINVAL;
	id->rank = field[0];
	id->n_ranks = field[1];
	id->cuda_dev = field[2];
	id->valid |= NCCL_IDENTITY_IDENTITY;
	return 0;
}

static void source__read_device(const struct source *src, struct nccl_identity *id)
{
	int64_t bus_id;
	int32_t nvml_dev;

	if (source__field(src, src->layout->bus_id, &bus_id, sizeof(bus_id)) || bus_id <= 0 ||
	    bus_id >= 1LL << 52)
		return;
	if (source__field(src, src->layout->nvml_dev, &nvml_dev, sizeof(nvml_dev)) ||
	    nvml_dev < 0 || nvml_dev > MAX_DEVICES)
		nvml_dev = -1;
	id->bus_id = bus_id;
	id->nvml_dev = nvml_dev;
	id->valid |= NCCL_IDENTITY_BUS_ID;
}

/* The four numbers must fit each other: with a guessed offset they are any others. */
static bool nodes_fit(const struct nccl_identity *id, int32_t node, int32_t n_nodes,
		      int32_t local_rank, int32_t local_ranks)
{
	return node >= 0 && node < n_nodes && local_rank >= 0 && local_rank < local_ranks &&
	       local_ranks <= id->n_ranks && n_nodes <= id->n_ranks && local_rank <= id->rank &&
	       (n_nodes == 1) == (local_ranks == id->n_ranks) &&
	       (n_nodes > 1 || local_rank == id->rank);
}

/*
 * Not set before the topology has been exchanged: nNodes is 0 until then. In a known layout numbers
 * that do not fit mean that this is no communicator; in a guessed one that the guess was wrong.
 */
static int source__read_nodes(const struct source *src, struct nccl_identity *id)
{
	const struct nccl_layout *layout = src->layout;
	int32_t node, n_nodes, local_rank, local_ranks;

	if (source__field(src, layout->node, &node, sizeof(node)) ||
	    source__field(src, layout->n_nodes, &n_nodes, sizeof(n_nodes)) ||
	    source__field(src, layout->local_rank, &local_rank, sizeof(local_rank)) ||
	    source__field(src, layout->local_ranks, &local_ranks, sizeof(local_ranks)))
		return 0;
	if (!nodes_fit(id, node, n_nodes, local_rank, local_ranks)) {
		bool made = (id->valid & NCCL_IDENTITY_STATE) && !id->init_state && n_nodes;

		return layout->source == NCCL_LAYOUT_TABLE && made ? -EINVAL : 0;
	}
	id->node = node;
	id->n_nodes = n_nodes;
	id->local_rank = local_rank;
	id->local_ranks = local_ranks;
	id->valid |= NCCL_IDENTITY_NODES;
	return 0;
}

/*
 * As ncclCommGetAsyncError() does: what its network thread met, where the communicator itself is
 * well. What that thread has beside it (one-sided operations, GIN) is not looked at.
 */
static int32_t source__read_proxy_result(const struct source *src)
{
	uint64_t proxy;
	int32_t result;

	if (src->layout->proxy_result < 0 ||
	    source__field(src, src->layout->proxy_state, &proxy, sizeof(proxy)) || !proxy ||
	    proxy > UINT64_MAX - src->layout->proxy_result - sizeof(result) ||
	    src->read(src->ctx, proxy + src->layout->proxy_result, &result, sizeof(result)))
		return 0;
	return result > 0 && result <= MAX_RESULT ? result : 0;
}

/* -EINVAL when initState is no ncclResult_t: then the rest was chance. */
static int source__read_state(const struct source *src, struct nccl_identity *id)
{
	int32_t init_state, async_result;

	if (source__field(src, src->layout->init_state, &init_state, sizeof(init_state)) ||
	    source__field(src, src->layout->async_result, &async_result, sizeof(async_result)))
		return 0;
	if (init_state < 0 || init_state > MAX_RESULT)
		return -EINVAL;
	if (async_result < 0 || async_result > MAX_RESULT)
		return 0;
	id->init_state = init_state;
	id->async_result = async_result ?: source__read_proxy_result(src);
	id->valid |= NCCL_IDENTITY_STATE;
	return 0;
}

static void source__read_abort(const struct source *src, struct nccl_identity *id)
{
	uint64_t flag;
	uint32_t value;

	if (source__field(src, src->layout->abort_flag, &flag, sizeof(flag)) || !flag ||
	    src->read(src->ctx, flag, &value, sizeof(value)))
		return;
	id->aborted = value != 0;
	id->valid |= NCCL_IDENTITY_ABORT;
}

static void source__read_counters(const struct source *src, struct nccl_identity *id)
{
	if (!source__field(src, src->layout->comm_hash, &id->comm_hash, sizeof(id->comm_hash)) &&
	    id->comm_hash)
		id->valid |= NCCL_IDENTITY_HASH;
	if (src->layout->n_seq == NCCL_N_SEQUENCES &&
	    !source__field(src, src->layout->seq_number, id->sequence, sizeof(id->sequence)))
		id->valid |= NCCL_IDENTITY_SEQUENCE;
}

/* Reads up to len bytes, page by page, since the name may end just below an unmapped one. */
static size_t source__read_up_to(const struct source *src, uint64_t addr, char *buf, size_t len)
{
	size_t done = 0;

	while (done < len && addr <= UINT64_MAX - len) {
		size_t part = 4096 - (addr + done) % 4096;

		if (part > len - done)
			part = len - done;
		if (src->read(src->ctx, addr + done, buf + done, part))
			break;
		if (memchr(buf + done, '\0', part))
			return done + part;
		done += part;
	}
	return done;
}

/* Length of the character at s, 0 when it is none, not printable, or not whole. */
static size_t printable__length(const unsigned char *s, size_t len)
{
	uint32_t c = 0;
	size_t n = utf8__read(s, len, &c);

	return n && !utf8__is_control(c) && !utf8__is_layout(c) ? n : 0;
}

/* The user's pointer, kept by NCCL and not copied: it may well dangle. */
static void source__read_name(const struct source *src, struct nccl_identity *id)
{
	unsigned char buf[NCCL_IDENTITY_NAME_SIZE];
	size_t len, at = 0, n;
	uint64_t addr;

	if (source__field(src, src->layout->comm_name_ptr, &addr, sizeof(addr)) || !addr)
		return;
	len = source__read_up_to(src, addr, (char *)buf, sizeof(buf));
	while (at < len && buf[at]) {
		n = printable__length(buf + at, len - at);
		if (!n && len == sizeof(buf) && at + 3 >= len)
			break; /* a character that the end of the buffer cuts */
		if (!n)
			return;
		if (at + n >= sizeof(id->name))
			break;
		at += n;
	}
	if (!at || (at == len && len < sizeof(buf)))
		return; /* empty, or not ended where reading failed */
	memcpy(id->name, buf, at);
	id->name[at] = '\0';
	id->valid |= NCCL_IDENTITY_NAME;
}

int nccl_layout__identify(const struct nccl_layout *layout, nccl_read_fn read, void *ctx,
			  uint64_t comm, struct nccl_identity *ret)
{
	const struct source src = {layout, read, ctx, comm};
	struct nccl_identity id = {.nvml_dev = -1};
	int err;

	if (layout->source == NCCL_LAYOUT_NONE || !comm)
		return -EINVAL;
	if ((err = source__check_magic(&src, layout->start_magic)) ||
	    (err = source__check_magic(&src, layout->end_magic)) ||
	    (err = source__read_rank(&src, &id)) || (err = source__read_state(&src, &id)) ||
	    (err = source__read_nodes(&src, &id)))
		return err;
	source__read_device(&src, &id);
	source__read_counters(&src, &id);
	source__read_abort(&src, &id);
	source__read_name(&src, &id);
	*ret = id;
	return 0;
}
