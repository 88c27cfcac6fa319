/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "attach.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <linux/perf_event.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "helper.h"
#include "nccl_bpftrace_record.h"
#include "util.h"

_Static_assert(NCCL_FN_PROBED <= HELPER_MAX_FDS, "a link per function must fit one message");

/* BPF_LINK_CREATE for uprobe_multi: newer than the headers and the libbpf of Debian 12. */
struct link_create_multi {
	__u32 prog_fd, target_fd, attach_type, flags;
	__u64 path, offsets, ref_ctr_offsets, cookies;
	__u32 cnt, multi_flags, pid, pad;
};

static int link_multi(int program_fd, const char *path, const uint64_t *offsets,
		      const uint64_t *cookies, uint32_t n)
{
	struct link_create_multi attr = {
		.prog_fd = program_fd,
		.attach_type = ATTACH_TRACE_UPROBE_MULTI,
		.path = (uintptr_t)path,
		.offsets = (uintptr_t)offsets,
		.cookies = (uintptr_t)cookies,
		.cnt = n,
	};
	int fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : fd;
}

bool attach__multi_works(int program_fd)
{
	uint64_t offset = 0, cookie = 0;

	/* "/" is no regular file: a kernel that knows the link type says EBADF, others EINVAL. */
	return link_multi(program_fd, "/", &offset, &cookie, 1) == -EBADF;
}

static int uprobe_pmu_type(void)
{
	_cleanup_fclose_ FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type;

	if (!file)
		return -errno;
	return fscanf(file, "%d", &type) == 1 ? type : -EINVAL;
}

static int link_perf(int program_fd, int pmu, const char *path, uint64_t offset, uint64_t cookie)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = pmu,
		.config1 = (uintptr_t)path,
		.config2 = offset,
	};
	DECLARE_LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = cookie);
	_cleanup_close_ int event =
		syscall(__NR_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	if (event < 0)
		return -errno;
	return bpf_link_create(program_fd, event, BPF_PERF_EVENT, &opts);
}

/* One link a function. What was made before an error is closed by the child's end. */
static int link_each(const struct attach_request *request, const char *path,
		     const uint64_t *offsets, const uint64_t *cookies, int n, int *fds)
{
	int pmu = uprobe_pmu_type();

	if (pmu < 0)
		return pmu;
	for (int i = 0; i < n; i++) {
		fds[i] = link_perf(request->program_fd, pmu, path, offsets[i], cookies[i]);
		if (fds[i] < 0)
			return fds[i];
	}
	return n;
}

/* Number of fds, or -errno. */
static int attach_entries(const struct attach_request *request, const char *path,
			  const struct nccl_image *image, int *fds)
{
	uint64_t offsets[NCCL_FN_PROBED], cookies[NCCL_FN_PROBED];
	int n = 0;

	for (unsigned int i = 0; i < NCCL_FN_PROBED; i++) {
		if (!image->entry[i])
			continue;
		offsets[n] = image->entry[i];
		cookies[n++] = NB_COOKIE(request->library, i);
	}
	if (!request->multi)
		return link_each(request, path, offsets, cookies, n, fds);
	fds[0] = link_multi(request->program_fd, path, offsets, cookies, n);
	return fds[0] < 0 ? fds[0] : 1;
}

void attach__describe(const struct nccl_layout *layout, struct nb_library *ret)
{
	*ret = (struct nb_library){
		.rank = layout->rank,
		.comm_hash = layout->comm_hash,
		.start_magic = layout->start_magic,
		.seq_number = layout->seq_number,
		.n_sequences = layout->n_seq,
	};
}

/* The BPF side must know the layout before the first probe fires. */
static int attach_image(const struct attach_request *request, const char *path,
			const struct nccl_image *image, int *fds)
{
	struct nb_library library;
	uint32_t index = request->library;
	int err;

	attach__describe(&image->layout, &library);
	err = bpf_map_update_elem(request->libraries_fd, &index, &library, BPF_ANY);
	return err ?: attach_entries(request, path, image, fds);
}

static void read_path(const char *map_file, char *buf, size_t size)
{
	ssize_t n = readlink(map_file, buf, size - 1);

	buf[n > 0 ? n : 0] = 0;
}

int attach__work(void *arg, int reply_fd)
{
	const struct attach_request *request = arg;
	struct attach_reply reply = {};
	int n, fds[HELPER_MAX_FDS];
	_cleanup_close_ int fd = -1;
	char map_file[96];

	snprintf(map_file, sizeof(map_file), "/proc/%u/map_files/%" PRIx64 "-%" PRIx64,
		 request->pid, request->start, request->end);
	read_path(map_file, reply.path, sizeof(reply.path));
	fd = open(map_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	reply.err = nccl_elf__read(fd, &reply.image);
	if (reply.err || reply.image.status != NCCL_IMAGE_OK || request->library < 0)
		return helper__reply(reply_fd, &reply, sizeof(reply), NULL, 0);
	n = attach_image(request, map_file, &reply.image, fds);
	if (n < 0)
		reply.err = n;
	return helper__reply(reply_fd, &reply, sizeof(reply), fds, n < 0 ? 0 : n);
}
