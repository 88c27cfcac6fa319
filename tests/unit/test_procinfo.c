/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whose job a process is, where the kernel tells little or much of its cgroups. */
#include <limits.h>

#include "unit.h"

#include "../../src/job.c"
#include "../../src/job_cgroup.c"
#include "../../src/procinfo.c"

static const char *cgroup;
static int cgroup_error;

ssize_t proc_file__read(uint32_t pid, const char *name, char *buf, size_t size)
{
	static const char environ_[] = "SLURM_JOB_ID=7";

	(void)pid;
	if (!strcmp(name, "environ")) {
		memcpy(buf, environ_, sizeof(environ_));
		return sizeof(environ_);
	}
	if (cgroup_error)
		return cgroup_error;
	return snprintf(buf, size, "%s", cgroup) < (int)size ? strlen(buf) : size - 1;
}

bool inspector__writes_files(const char *text, size_t len)
{
	return text && !len;
}

int helper__reply(int reply_fd, const void *data, size_t len, const int *fds, int n_fds)
{
	return data && len && !fds && !n_fds ? reply_fd : -EINVAL;
}

int job_names__find(const char *root, const struct job_identity *job, struct job_names *ret)
{
	*ret = (struct job_names){};
	return root && job ? 0 : -ENOENT;
}

static void expect_job(const char *job_id)
{
	struct job_identity from_cgroup = {};
	struct procinfo info = {};

	read_job(1, &info, &from_cgroup);
	CHECK_STR(info.job.job_id, job_id);
	CHECK(procinfo__valid(&info));
}

TEST(environment_where_no_cgroup_says)
{
	cgroup = "0::/system.slice/sshd.service\n";
	expect_job("7");
	cgroup_error = -ENOENT; /* a kernel without cgroups */
	expect_job("7");
}

TEST(environment_of_who_hides_its_cgroup)
{
	cgroup_error = -ENAMETOOLONG;
	expect_job("");
}

/* Fifteen hierarchies in which directories are a tenant's, as long as may be, before root's. */
TEST(job_behind_long_paths)
{
	static char text[16 * PATH_MAX];
	size_t n = 0;

	for (int i = 16; i > 1; i--) {
		n += snprintf(text + n, sizeof(text) - n, "%d:name=t%d:/", i, i);
		memset(text + n, 'a', PATH_MAX - 32);
		n += PATH_MAX - 32;
		text[n++] = '\n';
	}
	strcpy(text + n, "1:pids:/slurm/uid_1/job_9/step_0\n");
	cgroup = text;
	cgroup_error = 0;
	expect_job("9");
}

UNIT_MAIN()
