/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* nftw() */
#endif
#include "unit.h"

#include "../../src/gpu.c"

#include <ftw.h>
#include <sys/stat.h>

static char root[] = "/tmp/nccl_bpftrace_gpu.XXXXXX";

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
	(void)st;
	(void)flag;
	(void)ftw;
	return remove(path);
}

static void root_new(void)
{
	strcpy(root + sizeof(root) - 7, "XXXXXX");
	CHECK(mkdtemp(root));
}

static void root_free(void)
{
	nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static void add(const char *name, const char *text)
{
	char path[512];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", root, name);
	CHECK(!mkdir(path, 0755));
	if (!text)
		return;
	strcat(path, "/information");
	file = fopen(path, "w");
	CHECK(file);
	fputs(text, file);
	fclose(file);
}

#define INFORMATION(uuid, bus, minor)                                                              \
	"Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\nGPU UUID: \t " uuid "\n"                         \
	"Video BIOS: \t 96.00.bc.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\n"                 \
	"DMA Mask: \t 0xfffffffffffff\nBus Location: \t " bus "\nDevice Minor: \t " minor "\n"     \
	"GPU Firmware: \t 570.86.10\nGPU Excluded:\t No\n"

#define UUID_A "GPU-80ded6bd-1a89-2628-3d94-902187dbab1d"
/* as the driver writes it; escaped because of trigraphs */
#define UUID_UNKNOWN "GPU-" Q4 Q4 "-" Q4 "-" Q4 "-" Q4 "-" Q4 Q4 Q4
#define Q4	     "\?\?\?\?"
#define UUID_B	     "GPU-00000000-1111-2222-3333-444444444444"

TEST(order_is_by_bus_id)
{
	struct gpu_table *table = NULL;
	const struct gpu *gpu;

	root_new();
	add("0001:0a:00.0", INFORMATION(UUID_B, "0001:0a:00.0", "0"));
	add("0000:9b:00.0", INFORMATION(UUID_A, "0000:9b:00.0", "1"));
	CHECK_INT(gpu_table__load(&table, root), 0);
	CHECK_INT(table->count, 2);
	gpu = gpu_table__by_bus_id(table, 0x9b000);
	CHECK(gpu);
	CHECK_STR(gpu ? gpu->uuid : NULL, UUID_A);
	CHECK_INT(gpu ? gpu->index : 99, 0);
	CHECK_INT(gpu ? gpu->minor : 99, 1);
	gpu = gpu_table__by_bus_id(table, 1 << 20 | 0x0a000);
	CHECK_STR(gpu ? gpu->uuid : NULL, UUID_B);
	CHECK_INT(gpu ? gpu->index : 99, 1);
	CHECK(gpu == &table->gpus[1]);
	CHECK(gpu_table__by_uuid(table, UUID_B) == gpu);
	CHECK(gpu_table__by_uuid(table, "GPU-80DED6BD-1a89-2628-3d94-902187dbab1d") ==
	      &table->gpus[0]);
	CHECK(!gpu_table__by_uuid(table, "GPU-80ded6bd-1a89-2628-3d94-902187dbab1e"));
	CHECK(!gpu_table__by_uuid(table, ""));
	CHECK(!gpu_table__by_bus_id(table, 0x9b001));
	CHECK(gpu_table__by_uuid(table, UUID_B) == gpu);
	CHECK(!gpu_table__by_uuid(table, "GPU-80ded6bd"));
	CHECK(!gpu_table__by_uuid(table, ""));
	gpu_table__free(table);
	root_free();
}

TEST(bus_id_form)
{
	int64_t id = -7;

	CHECK_INT(bus_id__parse("0000:9b:00.0", &id), 0);
	CHECK_INT(id, 0x9b000);
	CHECK_INT(bus_id__parse("0002:Ff:1f.7", &id), 0);
	CHECK_INT(id, 2 << 20 | 0xff << 12 | 0x1f << 4 | 7);
	CHECK_INT(bus_id__parse("00010000:01:00.0", &id), 0);
	CHECK_INT(id, 0x10000LL << 20 | 1 << 12);
	id = -7;
	CHECK(bus_id__parse("", &id));
	CHECK(bus_id__parse("0000", &id));
	CHECK(bus_id__parse("0000:9b", &id));
	CHECK(bus_id__parse("0000:9b:00", &id));
	CHECK(bus_id__parse("0000:9b:00.0x", &id));
	CHECK(bus_id__parse("0000:9:00.0", &id));
	CHECK(bus_id__parse("0000:9b:00.0 ", &id));
	CHECK_INT(id, -7);
}

TEST(unknown_facts_keep_their_place)
{
	struct gpu_table *table = NULL;

	root_new();
	add("0000:01:00.0", NULL);
	add("0000:02:00.0", INFORMATION(UUID_UNKNOWN, "0000:02:00.0", "255"));
	add("0000:03:00.0", INFORMATION(UUID_A "0", "0000:03:00.0", "x"));
	add("0000:04:00.0", "GPU UUID: \t " UUID_A "\nno colon here\n:\n");
	add("junk", "nothing\n");
	CHECK_INT(gpu_table__load(&table, root), 0);
	CHECK_INT(table->count, 4);
	for (size_t i = 0; i < 3 && i < table->count; i++)
		CHECK_STR(table->gpus[i].uuid, "");
	CHECK_INT(table->gpus[0].minor, -1);
	CHECK_INT(table->gpus[1].minor, 255);
	CHECK_INT(table->gpus[2].minor, -1);
	CHECK_STR(table->gpus[3].uuid, UUID_A);
	gpu_table__free(table);
	root_free();
}

TEST(excluded_gpu_has_no_index)
{
	struct gpu_table *table = NULL;

	root_new();
	add("0000:01:00.0", "GPU Excluded:\t Yes\n");
	add("0000:02:00.0", INFORMATION(UUID_A, "0000:02:00.0", "1"));
	CHECK_INT(gpu_table__load(&table, root), 0);
	CHECK_INT(table->count, 1);
	CHECK_STR(table->gpus[0].uuid, UUID_A);
	gpu_table__free(table);
	root_free();
}

TEST(no_driver_is_an_empty_table)
{
	struct gpu_table *table = NULL;

	CHECK_INT(gpu_table__load(&table, "/nonexistent/gpus"), 0);
	CHECK_INT(table->count, 0);
	CHECK(!gpu_table__by_bus_id(table, 0));
	gpu_table__free(table);
	gpu_table__free(NULL);
}

TEST(root_is_no_directory)
{
	struct gpu_table *table = NULL;

	CHECK_INT(gpu_table__load(&table, "/dev/null"), -ENOTDIR);
	CHECK(!table);
}

TEST(table_is_bounded)
{
	struct gpu_table *table = NULL;
	char name[32];

	root_new();
	for (int i = 0; i < GPU_MAX + 8; i++) {
		snprintf(name, sizeof(name), "%04x:%02x:00.0", i >> 8, i & 0xff);
		add(name, "Device Minor: \t 1\n");
	}
	CHECK_INT(gpu_table__load(&table, root), 0);
	CHECK_INT(table->count, GPU_MAX);
	gpu_table__free(table);
	root_free();
}

UNIT_MAIN()
