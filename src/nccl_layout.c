/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "nccl_layout.h"

#include <errno.h>
#include <stdbool.h>

#include "util.h"

/* startMagic at 0 and endMagic in the last 8 bytes: since 2.21. */
#define SINCE_MAGIC 22105

/* arm64: from 2.29 on a pthread_mutex_t, 8 bytes larger there, lies between seqNumber and endMagic.
 */
#define SINCE_ARM64_MUTEX  22902
#define ARM64_MUTEX_GROWTH 8

/* Distances from rank; 0: this shape has no such field. nRanks is at 4 and cudaDev at 8 in all. */
struct shape {
	int16_t comm_hash, nvml_dev, bus_id, node, n_nodes, local_rank, local_ranks;
};

static const struct shape shapes[] = {
	{0, 0, 16, 24, 28, 0, 32},	  /* 0: 2.9 */
	{0, 0, 16, 152, 156, 0, 160},	  /* 1: 2.10 */
	{0, 0, 16, 152, 156, 0, 288},	  /* 2: 2.11 */
	{0, 0, 16, 152, 156, 160, 164},	  /* 3: 2.12 to 2.16 */
	{0, 0, 24, 164, 168, 172, 176},	  /* 4: 2.17 */
	{-8, 0, 24, 164, 168, 172, 176},  /* 5: 2.18.1 */
	{-8, 12, 32, 172, 176, 180, 184}, /* 6: 2.18.3 to 2.21 */
	{-8, 12, 32, 180, 184, 188, 192}, /* 7: 2.22 to 2.31 */
	{-8, 12, 32, 192, 196, 200, 204}, /* 8: 2.32 */
};

/* Releases first to last have one layout; patch releases do move fields. Offsets on x86-64. */
struct layout_class {
	int32_t first, last, shape, size, rank, init_state, async_result, abort_flag, seq_number,
		comm_name_ptr, proxy_state, proxy_result;
};

/*
 * Rows up to 2.30.7: the headers of each git tag, compiled with -g and read with gdb. They equal
 * the DWARF of the shipped libraries, looked at for 2.18.1, 2.18.3, 2.19.3, 2.20.5, 2.21.5, 2.22.3,
 * 2.23.4, 2.24.3, 2.25.1, 2.26.2, 2.26.5, 2.27.3, 2.27.7, 2.28.3, 2.28.9, 2.29.2, 2.29.7, 2.30.4
 * and 2.30.7. The rows of 2.31.2 and 2.32.3 come from that DWARF, of x86-64 and arm64.
 *
 * seq_number: before 2.26 NCCL counts there only while a profiler plugin asks it to, so a reader
 * would take 0 for the truth: not given. comm_name_ptr: what 2.23 to 2.26 call commName is never
 * set. async_result was called fatalError up to 2.13. proxy_result, in what proxy_state points to,
 * came with 2.19; 2.19.1 and 2.19.4, which are in no wheel, by their headers.
 */
static const struct layout_class classes[] = {
	{20906, 20908, 0, 18728, 16432, -1, 17160, 17168, -1, -1, -1, -1},
	{20909, 20909, 0, 18736, 16432, -1, 17160, 17168, -1, -1, -1, -1},
	{21003, 21003, 1, 18872, 16432, -1, 17288, 17296, -1, -1, -1, -1},
	{21104, 21104, 2, 19072, 16432, -1, 17432, 17440, -1, -1, -1, -1},
	{21207, 21212, 3, 20952, 16432, -1, 17336, 17344, -1, -1, -1, -1},
	{21304, 21304, 3, 9920, 5296, -1, 6148, 6152, -1, -1, -1, -1},
	{21403, 21505, 3, 10880, 6064, 10868, 7080, 7088, -1, -1, -1, -1},
	{21602, 21605, 3, 10888, 6072, 10876, 7088, 7096, -1, -1, -1, -1},
	{21701, 21701, 4, 12640, 7608, 12624, 8796, 8800, -1, -1, -1, -1},
	{21801, 21801, 5, 11128, 9176, 11112, 10512, 10520, -1, -1, -1, -1},
	{21803, 21805, 6, 11176, 9176, 11160, 10520, 10528, -1, -1, -1, -1},
	{21806, 21806, 6, 11432, 9432, 11416, 10776, 10784, -1, -1, -1, -1},
	{21901, 21901, 6, 11344, 9176, 11280, 10580, 10584, -1, -1, 10824, 120},
	{21903, 21903, 6, 11600, 9432, 11536, 10836, 10840, -1, -1, 11080, 120},
	{21904, 21904, 6, 11552, 9432, 11488, 10836, 10840, -1, -1, 11080, 104},
	{22003, 22005, 6, 13152, 10456, 12584, 11868, 11872, -1, -1, 12112, 192},
	{22105, 22105, 6, 16288, 13536, 15704, 14972, 14976, -1, -1, 15216, 192},
	{22203, 22203, 7, 219520, 213584, 218928, 215028, 215032, -1, -1, 215296, 192},
	{22304, 22304, 7, 253152, 246952, 252512, 248552, 248560, -1, -1, 248824, 200},
	{22403, 22403, 7, 252624, 246952, 252480, 248500, 248504, -1, -1, 248768, 200},
	{22501, 22501, 7, 501072, 492712, 500928, 494388, 494392, -1, -1, 494656, 200},
	{22602, 22606, 7, 506752, 492728, 500952, 494404, 494408, 501008, -1, 494672, 200},
	{22703, 22707, 7, 1080320, 1066168, 1074456, 1067844, 1067848, 1074512, 1074432, 1068144,
	 200},
	{22803, 22803, 7, 1081816, 1066184, 1075664, 1069036, 1069040, 1075720, 1075632, 1069304,
	 200},
	{22807, 22809, 7, 1082968, 1066192, 1075672, 1069044, 1069048, 1075728, 1075640, 1069312,
	 208},
	{22902, 22903, 7, 1084808, 1066712, 1076800, 1069564, 1069568, 1076856, 1076760, 1069832,
	 208},
	{22907, 22907, 7, 1199592, 1181400, 1191488, 1184252, 1184256, 1191544, 1191448, 1184520,
	 232},
	{23003, 23004, 7, 1199728, 1181408, 1191504, 1184276, 1184280, 1191560, 1191456, 1184544,
	 236},
	{23007, 23007, 7, 1199744, 1181424, 1191520, 1184292, 1184296, 1191576, 1191472, 1184560,
	 220},
	{23102, 23102, 7, 1196464, 1181416, 1193720, 1185136, 1185144, 1193776, 1193656, 1185408,
	 220},
	{23203, 23203, 8, 1196536, 1181416, 1193744, 1185144, 1185152, 1193800, 1193672, 1185416,
	 220},
};

static int32_t from_rank(int32_t rank, int16_t distance)
{
	return distance ? rank + distance : -1;
}

/* What follows from rank and a shape alone; everything else not known. */
static struct nccl_layout layout__near_rank(int32_t rank, const struct shape *shape)
{
	return (struct nccl_layout){
		.size = -1,
		.start_magic = -1,
		.end_magic = -1,
		.comm_hash = from_rank(rank, shape->comm_hash),
		.rank = rank,
		.n_ranks = rank + 4,
		.cuda_dev = rank + 8,
		.nvml_dev = from_rank(rank, shape->nvml_dev),
		.bus_id = from_rank(rank, shape->bus_id),
		.node = from_rank(rank, shape->node),
		.n_nodes = from_rank(rank, shape->n_nodes),
		.local_rank = from_rank(rank, shape->local_rank),
		.local_ranks = from_rank(rank, shape->local_ranks),
		.init_state = -1,
		.async_result = -1,
		.abort_flag = -1,
		.seq_number = -1,
		.comm_name_ptr = -1,
		.proxy_state = -1,
		.proxy_result = -1,
	};
}

static void layout__set_end_magic(struct nccl_layout *layout, int32_t end_magic)
{
	layout->start_magic = 0;
	layout->end_magic = end_magic;
	layout->size = end_magic + 8;
}

static int32_t class__end_magic(const struct layout_class *class, enum nccl_arch arch)
{
	int32_t size = class->size;

	if (class->first < SINCE_MAGIC)
		return -1;
	if (arch == NCCL_ARCH_ARM64 && class->first >= SINCE_ARM64_MUTEX)
		size += ARM64_MUTEX_GROWTH;
	return size - 8;
}

static int32_t moved(int32_t offset, int32_t by)
{
	return offset < 0 ? -1 : offset + by;
}

/* All of a class, moved by some bytes. */
static struct nccl_layout class__layout(const struct layout_class *class, enum nccl_arch arch,
					int32_t by)
{
	struct nccl_layout layout = layout__near_rank(class->rank + by, &shapes[class->shape]);

	if (class->first >= SINCE_MAGIC)
		layout__set_end_magic(&layout, class__end_magic(class, arch) + by);
	else
		layout.size = class->size + by;
	layout.version = class->first;
	layout.init_state = moved(class->init_state, by);
	layout.async_result = moved(class->async_result, by);
	layout.abort_flag = moved(class->abort_flag, by);
	layout.seq_number = moved(class->seq_number, by);
	layout.n_seq = class->seq_number < 0 ? 0 : NCCL_N_SEQUENCES;
	layout.comm_name_ptr = moved(class->comm_name_ptr, by);
	layout.proxy_state = moved(class->proxy_state, by);
	layout.proxy_result = class->proxy_result;
	return layout;
}

static const struct layout_class *class__of_version(int32_t version)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++)
		if (version >= classes[i].first && version <= classes[i].last)
			return &classes[i];
	return NULL;
}

/* The newest class that is no newer than version; the newest of all when that is 0. */
static const struct layout_class *class__nearest(int32_t version)
{
	size_t i = ARRAY_SIZE(classes) - 1;

	while (version > 0 && i > 0 && classes[i].first > version)
		i--;
	return &classes[i];
}

/* rank and endMagic together name a layout, whatever the library says that its version is. */
static const struct layout_class *class__of_offsets(enum nccl_arch arch, int32_t rank,
						    int32_t end_magic)
{
	for (size_t i = 0; end_magic >= 0 && i < ARRAY_SIZE(classes); i++)
		if (classes[i].rank == rank && class__end_magic(&classes[i], arch) == end_magic)
			return &classes[i];
	return NULL;
}

int nccl_layout__by_version_on(enum nccl_arch arch, int32_t version, struct nccl_layout *ret)
{
	const struct layout_class *class = class__of_version(version);

	if (!class)
		return -ENOENT;
	*ret = class__layout(class, arch, 0);
	ret->source = NCCL_LAYOUT_TABLE;
	ret->version = version;
	return 0;
}

int nccl_layout__by_version(int32_t version, struct nccl_layout *ret)
{
	return nccl_layout__by_version_on(NCCL_ARCH_HOST, version, ret);
}

int nccl_layout__from_code_on(enum nccl_arch arch, struct nccl_layout *ret, int32_t rank_offset,
			      int32_t end_magic_offset, int32_t version)
{
	const struct layout_class *class = class__of_version(version);
	int32_t by = class ? rank_offset - class->rank : 0;

	/* 64 MB: beyond any struct that NCCL had, and far from overflow */
	if (rank_offset < 8 || rank_offset > 64 << 20 || rank_offset % 4 ||
	    end_magic_offset > 64 << 20 ||
	    (end_magic_offset >= 0 && end_magic_offset < rank_offset))
		return -EINVAL;
	if (!class || end_magic_offset < 0 ||
	    end_magic_offset != class__end_magic(class, arch) + by) {
		class = class__of_offsets(arch, rank_offset, end_magic_offset);
		by = 0;
	}
	if (class) {
		*ret = class__layout(class, arch, by);
	} else {
		class = class__nearest(version);
		*ret = layout__near_rank(rank_offset, &shapes[class->shape]);
		ret->version = class->first;
		if (end_magic_offset >= 0)
			layout__set_end_magic(ret, end_magic_offset);
	}
	ret->source = NCCL_LAYOUT_CODE;
	return 0;
}

int nccl_layout__from_code(struct nccl_layout *ret, int32_t rank_offset, int32_t end_magic_offset,
			   int32_t version)
{
	return nccl_layout__from_code_on(NCCL_ARCH_HOST, ret, rank_offset, end_magic_offset,
					 version);
}
