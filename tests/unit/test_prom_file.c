/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* unshare() */
#endif
#include "unit.h"

#include "../../src/metrics.c"
#include "../../src/prom.c"
#include "../../src/utf8.c"
#include "../../src/prom_file.c"

#include "unit_prom.h"

#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>

static char dir_path[64];

static int dir_new(void)
{
	int fd;

	strcpy(dir_path, "/tmp/nccl_bpftrace_prom.XXXXXX");
	CHECK(mkdtemp(dir_path));
	fd = open(dir_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	CHECK(fd >= 0);
	return fd;
}

static int dir_count(int dirfd)
{
	int n = 0, fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY);
	struct dirent *entry;
	DIR *dir = fdopendir(fd);

	while ((entry = readdir(dir)))
		n += strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..");
	closedir(dir);
	return n;
}

static void dir_free(int dirfd)
{
	int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY);
	struct dirent *entry;
	DIR *dir = fdopendir(fd);

	while ((entry = readdir(dir)))
		if (unlinkat(dirfd, entry->d_name, 0))
			unlinkat(dirfd, entry->d_name, AT_REMOVEDIR);
	closedir(dir);
	close(dirfd);
	rmdir(dir_path);
}

static void touch(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_EXCL, 0600);

	CHECK(fd >= 0);
	close(fd);
}

static bool exists(int dirfd, const char *name)
{
	return !faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW);
}

/* What the file holds; the caller frees it. */
static char *slurp(int dirfd, const char *name)
{
	int fd = openat(dirfd, name, O_RDONLY);
	struct stat st;
	char *text;
	ssize_t n;

	if (fd < 0 || fstat(fd, &st))
		return strdup("(no file)");
	text = malloc((size_t)st.st_size + 1);
	n = read(fd, text, (size_t)st.st_size);
	text[n < 0 ? 0 : n] = '\0';
	close(fd);
	return text;
}

static void expect_file(int dirfd, const char *name, const char *want)
{
	char *got = slurp(dirfd, name);

	CHECK_STR(got, want);
	free(got);
}

/* n samples, all with the value n: a torn file does not fit itself */
static void render(struct prom *p, int n)
{
	prom__reset(p);
	prom__begin(p, METRIC_LAST_OPERATION);
	for (int i = 0; i < n; i++)
		prom__sample_u64(p, comm_labels, (uint64_t)n);
}

TEST(publish_replaces_whole_and_is_readable)
{
	struct prom *p = prom_new(BIG_CAP);
	int dirfd = dir_new();
	mode_t umask_before = umask(077);
	struct stat st;

	for (int n = 3; n > 0; n--) {
		render(p, n);
		CHECK_INT(prom__publish(p, dirfd, PROM_FILE_NAME), 0);
		expect_file(dirfd, PROM_FILE_NAME, text_of(p));
		CHECK_INT(dir_count(dirfd), 1);
	}
	CHECK(!fstatat(dirfd, PROM_FILE_NAME, &st, 0));
	CHECK_INT(st.st_mode & 07777, 0644);
	umask(umask_before);
	CHECK_INT(prom__unlink(dirfd, PROM_FILE_NAME), 0);
	CHECK_INT(prom__unlink(dirfd, PROM_FILE_NAME), 0);
	CHECK_INT(dir_count(dirfd), 0);
	dir_free(dirfd);
	CHECK_INT(prom__unlink(-1, PROM_FILE_NAME), -EBADF);
	CHECK_INT(prom__publish(p, -1, PROM_FILE_NAME), -EBADF);
	prom__free(p);
}

TEST(publish_follows_no_link)
{
	struct prom *p = prom_new(BIG_CAP);
	int dirfd = dir_new();
	char temp[64];

	touch(dirfd, "victim");
	snprintf(temp, sizeof(temp), ".%s.%d.tmp", PROM_FILE_NAME, (int)getpid());
	CHECK(!symlinkat("victim", dirfd, temp));
	CHECK(!symlinkat("victim", dirfd, PROM_FILE_NAME));
	render(p, 2);
	CHECK_INT(prom__publish(p, dirfd, PROM_FILE_NAME), 0);
	expect_file(dirfd, "victim", "");
	expect_file(dirfd, PROM_FILE_NAME, text_of(p));
	CHECK_INT(dir_count(dirfd), 2);
	dir_free(dirfd);
	prom__free(p);
}

TEST(publish_fails_clean)
{
	struct prom *p = prom_new(BIG_CAP);
	int dirfd = dir_new();
	char name[300];

	render(p, 2);
	CHECK(!mkdirat(dirfd, PROM_FILE_NAME, 0755));
	CHECK_INT(prom__publish(p, dirfd, PROM_FILE_NAME), -EISDIR);
	CHECK_INT(dir_count(dirfd), 1);
	memset(name, 'n', sizeof(name));
	name[250] = '\0';
	CHECK_INT(prom__publish(p, dirfd, name), -ENAMETOOLONG);
	CHECK_INT(dir_count(dirfd), 1);
	dir_free(dirfd);
	prom__free(p);
}

/* Runs fn in a child; returns its exit status. */
static int in_child(int (*fn)(void))
{
	int status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(fn());
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#define CHILD_SKIPPED 77

/* Publishes a small file, then one that does not fit. Returns 0 when the small one stayed. */
static int publish_too_much(int dirfd, int want_err)
{
	struct prom *p = prom_new(BIG_CAP);
	char *got;
	int err, ret;

	render(p, 3);
	if (prom__publish(p, dirfd, PROM_FILE_NAME))
		return 1;
	render(p, 20000);
	err = prom__publish(p, dirfd, PROM_FILE_NAME);
	render(p, 3);
	got = slurp(dirfd, PROM_FILE_NAME);
	ret = err != want_err ? 2 : strcmp(got, text_of(p)) ? 3 : dir_count(dirfd) != 1 ? 4 : 0;
	free(got);
	prom__free(p);
	return ret;
}

static int child_disk_full(void)
{
	int dirfd;

	/* a mount namespace of its own: the mount is gone with this process */
	if (geteuid() || unshare(CLONE_NEWNS) ||
	    mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) ||
	    mount("tmpfs", dir_path, "tmpfs", 0, "size=64k"))
		return CHILD_SKIPPED;
	dirfd = open(dir_path, O_RDONLY | O_DIRECTORY);
	return publish_too_much(dirfd, -ENOSPC);
}

TEST(disk_full_keeps_the_old_file)
{
	int dirfd = dir_new(), status = in_child(child_disk_full);

	dir_free(dirfd);
	if (status == CHILD_SKIPPED)
		SKIP("needs root and mount namespaces, for a small tmpfs");
	CHECK_INT(status, 0);
}

static int child_size_limit(void)
{
	const struct rlimit limit = {65536, 65536};

	signal(SIGXFSZ, SIG_IGN);
	if (setrlimit(RLIMIT_FSIZE, &limit))
		return CHILD_SKIPPED;
	return publish_too_much(open(dir_path, O_RDONLY | O_DIRECTORY), -EFBIG);
}

TEST(failed_write_keeps_the_old_file)
{
	int dirfd = dir_new(), status = in_child(child_size_limit);

	dir_free(dirfd);
	CHECK_INT(status, 0);
}

static int child_publishes(void)
{
	struct prom *p = prom_new(BIG_CAP);
	int dirfd = open(dir_path, O_RDONLY | O_DIRECTORY);

	for (int i = 0; i < 2000; i++) {
		render(p, 1 + i * 37 % 400);
		if (prom__publish(p, dirfd, PROM_FILE_NAME))
			return 1;
	}
	prom__free(p);
	return 0;
}

/* Whether all samples are there: the last value says how many there must be. */
static bool whole(const char *text)
{
	const char *last = strrchr(text, ' ');
	size_t len = strlen(text);

	return last && text[len - 1] == '\n' &&
	       count_of(text, "\nnccl_last_operation_timestamp_seconds{") == (size_t)atol(last + 1);
}

TEST(reader_never_sees_a_torn_file)
{
	int dirfd = dir_new(), n_torn = 0, n_read = 0, status = -1;
	pid_t pid = fork();

	if (!pid)
		_exit(child_publishes());
	while (waitpid(pid, &status, WNOHANG) == 0) {
		char *text = slurp(dirfd, PROM_FILE_NAME);

		if (strcmp(text, "(no file)") || n_read) {
			n_torn += !whole(text);
			n_read++;
		}
		free(text);
	}
	CHECK_INT(status, 0);
	CHECK_INT(n_torn, 0);
	CHECK(n_read > 100);
	dir_free(dirfd);
}

static int child_exits(void)
{
	return 0;
}

TEST(sweep_takes_only_ours_and_only_the_dead)
{
	int dirfd = dir_new();
	char gone[64], us[64];
	pid_t pid = fork();

	if (!pid)
		_exit(child_exits());
	waitpid(pid, NULL, 0); /* now a pid that is surely gone */
	snprintf(gone, sizeof(gone), ".nccl_bpftrace.prom.%d.tmp", (int)pid);
	snprintf(us, sizeof(us), ".nccl_bpftrace.prom.%d.tmp", (int)getpid());
	touch(dirfd, gone);
	touch(dirfd, us);
	touch(dirfd, ".nccl_bpftrace.prom.1.tmp"); /* alive */
	touch(dirfd, PROM_FILE_NAME);
	touch(dirfd, "node.prom");
	touch(dirfd, ".nccl_bpftrace.prom.tmp");
	touch(dirfd, ".nccl_bpftrace.prom.x.tmp");
	touch(dirfd, ".nccl_bpftrace.prom.-5.tmp");
	touch(dirfd, ".nccl_bpftrace.prom.0.tmp");
	touch(dirfd, ".nccl_bpftrace.prom.99999999999999999999.tmp");
	snprintf(us, sizeof(us), ".nccl_bpftrace.prom.0%d.tmp", (int)pid);
	touch(dirfd, us);
	snprintf(us, sizeof(us), ".nccl_bpftrace.prom.%d.tmp.bak", (int)pid);
	touch(dirfd, us);
	CHECK_INT(dir_count(dirfd), 12);
	CHECK_INT(prom__sweep(dirfd), 2);
	CHECK(!exists(dirfd, gone));
	CHECK_INT(dir_count(dirfd), 10);
	touch(dirfd, "victim");
	CHECK(!symlinkat("victim", dirfd, gone));
	CHECK_INT(prom__sweep(dirfd), 0);
	CHECK(exists(dirfd, gone) && exists(dirfd, "victim"));
	dir_free(dirfd);
	CHECK_INT(prom__sweep(-1), -EBADF);
}

/* Every family, with values that try to break out. */
static void render_all(struct prom *p)
{
	const char *values[PROM_VALUE_MAX] = {"a\"b", "c\\d", "e\nf", "\xff\xfe", "\x1b[0m"};
	static char long_value[4097];

	memset(long_value, 'x', sizeof(long_value) - 1);
	values[5] = long_value;
	values[6] = "} 1\nevil 2";
	prom__reset(p);
	prom__set_cluster(p, "c1");
	for (int i = 0; i < METRIC_COUNT; i++) {
		prom__begin(p, (enum metric_id)i);
		CHECK_INT(prom__sample_u64(p, values, UINT64_MAX), 0);
	}
}

static int run_promtool(const char *path)
{
	int fd, status = -1;
	pid_t pid = fork();

	if (!pid) {
		fd = open(path, O_RDONLY);
		dup2(fd, 0);
		execlp("promtool", "promtool", "check", "metrics", (char *)NULL);
		_exit(CHILD_SKIPPED);
	}
	waitpid(pid, &status, 0);
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(promtool_finds_nothing)
{
	struct prom *p = prom_new(BIG_CAP);
	int dirfd = dir_new(), status;
	char path[128];

	render_all(p);
	CHECK_INT(count_of(text_of(p), "\n"), METRIC_COUNT * 3);
	CHECK(!strstr(text_of(p), "\nevil"));
	CHECK_INT(prom__publish(p, dirfd, PROM_FILE_NAME), 0);
	snprintf(path, sizeof(path), "%s/%s", dir_path, PROM_FILE_NAME);
	status = run_promtool(path);
	dir_free(dirfd);
	prom__free(p);
	if (status == CHILD_SKIPPED)
		SKIP("promtool is not installed");
	CHECK_INT(status, 0);
}

UNIT_MAIN()
