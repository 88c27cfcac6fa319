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

#include "attach_private.h"
#include "handover.h"
#include "helper.h"
#include "nccl_bpftrace_record.h"
#include "util.h"

#define REF_CTR_SHIFT 32 /* format/ref_ctr_offset of the uprobe event source: config:32-63 */

_Static_assert(IMAGE_MAX_SITES <= HELPER_MAX_FDS, "a link per site must fit one message");

/* BPF_LINK_CREATE for uprobe_multi: newer than the headers and the libbpf of Debian 12. */
struct link_create_multi {
	__u32 prog_fd, target_fd, attach_type, flags;
	__u64 path, offsets, ref_ctr_offsets, cookies;
	__u32 cnt, multi_flags, pid, pad;
};

int link_multi(int program_fd, const struct sites *sites)
{
	struct link_create_multi attr = {
		.prog_fd = program_fd,
		.attach_type = ATTACH_TRACE_UPROBE_MULTI,
		.path = (uintptr_t)sites->path,
		.offsets = (uintptr_t)sites->offsets,
		.ref_ctr_offsets = (uintptr_t)sites->ref_ctrs,
		.cookies = (uintptr_t)sites->cookies,
		.cnt = sites->n,
		.pid = sites->pid,
	};
	int fd = syscall(__NR_bpf, BPF_LINK_CREATE, &attr, sizeof(attr));

	return fd < 0 ? -errno : fd;
}

bool attach__multi_works(int program_fd)
{
	/* "/" is no regular file: a kernel that knows the link type says EBADF, others EINVAL. */
	return link_multi(program_fd, &(struct sites){.path = "/", .n = 1}) == -EBADF;
}

static int uprobe_pmu_type(void)
{
	_cleanup_fclose_ FILE *file = fopen("/sys/bus/event_source/devices/uprobe/type", "re");
	int type;

	if (!file)
		return -errno;
	return fscanf(file, "%d", &type) == 1 ? type : -EINVAL;
}

bool attach__perf_is_permitted(void)
{
	/* "/" is no regular file, so that no event is made; privilege is looked at before. */
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = uprobe_pmu_type(),
		.config1 = (uintptr_t) "/",
	};
	int fd = syscall(__NR_perf_event_open, &attr, -1, 0, -1, PERF_FLAG_FD_CLOEXEC);

	if (fd >= 0)
		close(fd);
	return fd >= 0 || (errno != EACCES && errno != EPERM);
}

static int link_perf(int program_fd, int pmu, const struct sites *sites, uint32_t i, pid_t pid)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = pmu,
		.config = sites->ref_ctrs[i] << REF_CTR_SHIFT,
		.config1 = (uintptr_t)sites->path,
		.config2 = sites->offsets[i],
	};
	DECLARE_LIBBPF_OPTS(bpf_link_create_opts, opts, .perf_event.bpf_cookie = sites->cookies[i]);
	_cleanup_close_ int event = -1;

	if (sites->ref_ctrs[i] > UINT32_MAX)
		return -EFBIG;
	event = syscall(__NR_perf_event_open, &attr, pid, pid < 0 ? 0 : -1, -1,
			PERF_FLAG_FD_CLOEXEC);
	if (event < 0)
		return -errno;
	return bpf_link_create(program_fd, event, BPF_PERF_EVENT, &opts);
}

int attach__in_process(int program_fd, uint32_t pid, const char *path, uint64_t offset,
		       uint64_t cookie)
{
	struct sites sites = {.path = path, .n = 1, .offsets = {offset}, .cookies = {cookie}};
	int pmu = uprobe_pmu_type();

	return pmu < 0 ? pmu : link_perf(program_fd, pmu, &sites, 0, pid);
}

/* One link a function. What was made before an error is closed by the child's end. */
static int link_each(int program_fd, const struct sites *sites, int *fds)
{
	int pmu = uprobe_pmu_type();

	if (pmu < 0)
		return pmu;
	for (uint32_t i = 0; i < sites->n; i++) {
		fds[i] = link_perf(program_fd, pmu, sites, i, -1);
		if (fds[i] < 0)
			return fds[i];
	}
	return sites->n;
}

static void sites__add(struct sites *sites, const struct attach_request *request,
		       const struct image_site *site)
{
	sites->offsets[sites->n] = site->offset;
	sites->ref_ctrs[sites->n] = site->ref_ctr;
	sites->cookies[sites->n++] = NB_COOKIE(request->link, request->library, site->function);
}

/* Two links, so that one can go while the other stays: fds of the calls, and of the rest. */
static int link_split(int program_fd, const struct sites *calls, const struct sites *rest, int *fds)
{
	fds[0] = link_multi(program_fd, calls);
	if (fds[0] < 0)
		return fds[0];
	fds[1] = link_multi(program_fd, rest);
	return fds[1] < 0 ? fds[1] : 2;
}

/* Number of fds, or -errno. */
static int attach_sites(const struct attach_request *request, const char *path,
			const struct image *image, int *fds, bool *ret_split)
{
	struct sites all = {.path = path}, calls = {.path = path}, rest = {.path = path};

	for (uint32_t i = 0; i < image->n_sites; i++) {
		const struct image_site *site = &image->sites[i];
		bool is_call =
			image->kind == IMAGE_NCCL && handover__covers(image->sites[i].function);

		sites__add(&all, request, site);
		sites__add(is_call ? &calls : &rest, request, site);
	}
	*ret_split = request->multi && calls.n && rest.n;
	if (!request->multi)
		return link_each(request->program_fd, &all, fds);
	if (*ret_split)
		return link_split(request->program_fd, &calls, &rest, fds);
	fds[0] = link_multi(request->program_fd, &all);
	return fds[0] < 0 ? fds[0] : 1;
}

int attach__calls_work(void *arg, int reply_fd)
{
	const struct attach_calls_request *request = arg;
	struct sites sites = {.n = request->n, .pid = request->pid};
	uint64_t made_ns;
	char path[32];
	int fd;

	for (uint32_t i = 0; i < request->n; i++) {
		sites.offsets[i] = request->offsets[i];
		sites.cookies[i] =
			NB_COOKIE(request->link, request->library, request->functions[i]);
	}
	/* the file itself, whatever stands at its path by now */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", request->file_fd);
	sites.path = path;
	fd = link_multi(request->program_fd, &sites);
	if (fd < 0)
		return fd;
	made_ns = now_ns();
	return helper__reply(reply_fd, &made_ns, sizeof(made_ns), &fd, 1);
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

/* The BPF side must know NCCL's layout before the first probe fires. */
static int attach_image(const struct attach_request *request, const char *path,
			const struct image *image, int *fds, bool *ret_split)
{
	struct nb_library library;
	uint32_t index = request->library;
	int err = 0;

	if (image->kind == IMAGE_NCCL) {
		attach__describe(&image->nccl.layout, &library);
		err = bpf_map_update_elem(request->libraries_fd, &index, &library, BPF_ANY);
	}
	return err ?: attach_sites(request, path, image, fds, ret_split);
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
	bool split = false;
	char map_file[96];

	snprintf(map_file, sizeof(map_file), "/proc/%u/map_files/%" PRIx64 "-%" PRIx64,
		 request->pid, request->start, request->end);
	read_path(map_file, reply.path, sizeof(reply.path));
	fd = open(map_file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return -errno;
	reply.err = image__read(fd, &reply.image);
	if (reply.err || !reply.image.n_sites || reply.image.kind != request->kind)
		return helper__reply(reply_fd, &reply, sizeof(reply), NULL, 0);
	n = attach_image(request, map_file, &reply.image, fds, &split);
	reply.made_ns = now_ns();
	if (n < 0)
		reply.err = n;
	reply.has_calls = n > 0 && split;
	if (reply.has_calls)
		fds[n++] = fd;
	return helper__reply(reply_fd, &reply, sizeof(reply), fds, n < 0 ? 0 : n);
}
