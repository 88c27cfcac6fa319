/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * A program that has an NCCL of its own linked in, whose AllReduce is left in odd ways, or whose
 * list of communicators lies in memory that does not answer. Says `armed`, waits for a line, calls,
 * says what came of it and `done`, waits for the end of standard input.
 *
 *   linked_in throw|longjmp|return N      AllReduce is left so, N times
 *   linked_in userfaultfd N               the list lies in a region that nobody serves
 *   linked_in file N PATH                 the list lies in a mapping of the file
 */
#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum leave { RETURN, THROW, LONGJMP };

static const size_t region_bytes = 1 << 16;
static leave how;
static jmp_buf back;

extern "C" {
/* What NCCL 2.24 and later have: read from outside by those who know where. */
void *ncclComms;
int nNcclComms;

__attribute__((noinline)) int ncclGetVersion(int *version)
{
	*version = 22809;
	return 0;
}

__attribute__((noinline)) int ncclAllReduce(const void *, void *, size_t, int, int, void *, void *)
{
	if (how == THROW)
		throw 1;
	if (how == LONGJMP)
		longjmp(back, 1);
	return 0;
}
}

static int call(void *comm)
{
	try {
		if (!setjmp(back))
			return ncclAllReduce(nullptr, nullptr, 1, 7, 0, comm, nullptr);
		return 2;
	} catch (int) {
		return 3;
	}
}

static void *unserved_region()
{
	struct uffdio_api api = {UFFD_API, 0, 0};
	struct uffdio_register area = {};
	int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
	void *region = mmap(nullptr, region_bytes, PROT_READ | PROT_WRITE,
			    MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	area.range.start = reinterpret_cast<uintptr_t>(region);
	area.range.len = region_bytes;
	area.mode = UFFDIO_REGISTER_MODE_MISSING;
	if (fd < 0 || ioctl(fd, UFFDIO_API, &api) || ioctl(fd, UFFDIO_REGISTER, &area))
		return nullptr;
	return region;
}

static void *file_region(const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	void *region = mmap(nullptr, region_bytes, PROT_READ, MAP_SHARED, fd, 0);

	return region == MAP_FAILED ? nullptr : region;
}

/* A communicator in that memory, too. */
static void *prepare(const char *mode, const char *path)
{
	how = !strcmp(mode, "throw") ? THROW : !strcmp(mode, "longjmp") ? LONGJMP : RETURN;
	if (!strcmp(mode, "userfaultfd"))
		ncclComms = unserved_region();
	else if (!strcmp(mode, "file"))
		ncclComms = file_region(path);
	else
		return nullptr;
	if (!ncclComms) {
		puts("no such memory here");
		exit(1);
	}
	nNcclComms = 3;
	return static_cast<char *>(ncclComms) + region_bytes / 2;
}

int main(int argc, char **argv)
{
	int n = argc > 2 ? atoi(argv[2]) : 0, version, sum = 0;
	void *comm = prepare(argc > 1 ? argv[1] : "", argc > 3 ? argv[3] : "");
	char line[16];

	puts("armed");
	fflush(stdout);
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	ncclGetVersion(&version);
	for (int i = 0; i < n; i++)
		sum += call(comm);
	printf("sum %d version %d\ndone\n", sum, version);
	fflush(stdout);
	return fgets(line, sizeof(line), stdin) ? 1 : 0;
}
