/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include <errno.h>

#include "unit.h"

#include "../../src/nccl_layout.c"

#define X86 NCCL_ARCH_X86_64
#define ARM NCCL_ARCH_ARM64

static struct nccl_layout layout_of(int32_t version)
{
	struct nccl_layout layout = {0};

	CHECK_INT(nccl_layout__by_version_on(X86, version, &layout), 0);
	return layout;
}

TEST(table_is_in_order_and_sane)
{
	for (size_t i = 0; i < ARRAY_SIZE(classes); i++) {
		const struct layout_class *class = &classes[i];

		CHECK(class->first <= class->last);
		CHECK(!i || classes[i - 1].last < class->first);
		CHECK(class->shape >= 0 && (size_t) class->shape < ARRAY_SIZE(shapes));
		CHECK(class->rank % 4 == 0 && class->rank + 300 < class->size);
		CHECK(class->size % 8 == 0 && class->seq_number < class->size);
		CHECK(class->seq_number < 0 || class->seq_number % 8 == 0);
	}
}

TEST(known_releases)
{
	struct nccl_layout layout = layout_of(22809);

	CHECK_INT(layout.source, NCCL_LAYOUT_TABLE);
	CHECK_INT(layout.version, 22809);
	CHECK_INT(layout.size, 1082968);
	CHECK_INT(layout.start_magic, 0);
	CHECK_INT(layout.end_magic, 1082960);
	CHECK_INT(layout.comm_hash, 1066184);
	CHECK_INT(layout.rank, 1066192);
	CHECK_INT(layout.bus_id, 1066224);
	CHECK_INT(layout.n_nodes, 1066376);
	CHECK_INT(layout.seq_number, 1075728);
	CHECK_INT(layout.comm_name_ptr, 1075640);
	layout = layout_of(23203);
	CHECK_INT(layout.node, 1181608); /* 2.32 put 12 bytes before it */
	layout = layout_of(21801);
	CHECK_INT(layout.start_magic, -1);
	CHECK_INT(layout.nvml_dev, -1);
	CHECK_INT(layout.seq_number, -1);
	CHECK_INT(layout.n_seq, 0);
}

TEST(unknown_release_leaves_the_result_alone)
{
	struct nccl_layout layout = {.rank = -7};

	CHECK_INT(nccl_layout__by_version(0, &layout), -ENOENT);
	CHECK_INT(nccl_layout__by_version(20804, &layout), -ENOENT);
	CHECK_INT(nccl_layout__by_version(23204, &layout), -ENOENT);
	CHECK_INT(nccl_layout__by_version(22805, &layout), -ENOENT); /* between two that differ */
	CHECK_INT(nccl_layout__by_version(-1, &layout), -ENOENT);
	CHECK_INT(layout.rank, -7);
}

TEST(arm64_differs_behind_the_mutex_only)
{
	struct nccl_layout x86 = layout_of(23203), arm;

	CHECK_INT(nccl_layout__by_version_on(ARM, 23203, &arm), 0);
	CHECK_INT(arm.end_magic, 1196536);
	CHECK_INT(arm.size, 1196544);
	arm.size = x86.size;
	arm.end_magic = x86.end_magic;
	CHECK(!memcmp(&arm, &x86, sizeof(arm)));
	CHECK_INT(nccl_layout__by_version_on(ARM, 22809, &arm), 0);
	CHECK_INT(arm.end_magic, 1082960);
}

TEST(code_of_a_known_layout_gives_all_of_it)
{
	struct nccl_layout layout;

	CHECK_INT(nccl_layout__from_code_on(X86, &layout, 1066192, 1082960, 0), 0);
	CHECK_INT(layout.source, NCCL_LAYOUT_CODE);
	CHECK_INT(layout.seq_number, 1075728);
	CHECK_INT(layout.n_seq, 5);
	/* a version that lies does not matter */
	CHECK_INT(nccl_layout__from_code_on(X86, &layout, 1181416, 1196528, 23102), 0);
	CHECK_INT(layout.node, 1181608);
	CHECK_INT(layout.seq_number, 1193800);
}

TEST(code_of_a_patched_release_moves_it_when_both_ends_moved_alike)
{
	struct nccl_layout layout;

	CHECK_INT(nccl_layout__from_code_on(X86, &layout, 1066192 + 64, 1082960 + 64, 22809), 0);
	CHECK_INT(layout.rank, 1066256);
	CHECK_INT(layout.seq_number, 1075728 + 64);
	CHECK_INT(layout.size, 1082968 + 64);
	/* the end moved further: something between grew, and seqNumber may be before or behind it
	 */
	CHECK_INT(nccl_layout__from_code_on(X86, &layout, 1066192 + 64, 1082960 + 72, 22809), 0);
	CHECK_INT(layout.comm_hash, 1066256 - 8);
	CHECK_INT(layout.end_magic, 1082960 + 72);
	CHECK_INT(layout.seq_number, -1);
	CHECK_INT(layout.n_seq, 0);
	CHECK_INT(layout.init_state, -1);
}

TEST(code_of_a_release_that_nobody_knows)
{
	struct nccl_layout layout;

	CHECK_INT(nccl_layout__from_code_on(X86, &layout, 1200000, -1, 23500), 0);
	CHECK_INT(layout.rank, 1200000);
	CHECK_INT(layout.n_ranks, 1200004);
	CHECK_INT(layout.comm_hash, 1199992);
	CHECK_INT(layout.bus_id, 1200032);
	CHECK_INT(layout.node, 1200192); /* the newest shape */
	CHECK_INT(layout.size, -1);
	CHECK_INT(layout.start_magic, -1);
	CHECK_INT(layout.seq_number, -1);
	/* one between known ones takes the shape of the one before */
	CHECK_INT(nccl_layout__from_code_on(X86, &layout, 1200000, 1300000, 22901), 0);
	CHECK_INT(layout.node, 1200180);
	CHECK_INT(layout.start_magic, 0);
	CHECK_INT(layout.end_magic, 1300000);
}

TEST(impossible_offsets_are_refused)
{
	struct nccl_layout layout = {.rank = -7};

	CHECK_INT(nccl_layout__from_code(&layout, 0, -1, 22809), -EINVAL);
	CHECK_INT(nccl_layout__from_code(&layout, -4, -1, 22809), -EINVAL);
	CHECK_INT(nccl_layout__from_code(&layout, 1066193, -1, 22809), -EINVAL);
	CHECK_INT(nccl_layout__from_code(&layout, 1066192, 4096, 22809), -EINVAL);
	CHECK_INT(nccl_layout__from_code(&layout, INT32_MAX - 3, -1, 22809), -EINVAL);
	CHECK_INT(layout.rank, -7);
}

UNIT_MAIN()
