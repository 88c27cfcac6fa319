/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Whole lines only, whatever the disk or the reader does. */
#include "unit.h"

#include "../../src/record_file.c"

#include <sys/resource.h>
#include <sys/wait.h>

static char dir[64], path[128];

static void dir_new(void)
{
	strcpy(dir, "/tmp/nccl_bpftrace_record.XXXXXX");
	CHECK(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/out", dir);
}

static void dir_free(void)
{
	unlink(path);
	CHECK_INT(rmdir(dir), 0);
}

/* What stands in the file; NULL: there is none. The caller frees it. */
static char *slurp(size_t *ret_len)
{
	FILE *in = fopen(path, "re");
	char *text = NULL;
	size_t size = 0;
	ssize_t n;

	if (!in)
		return NULL;
	n = getdelim(&text, &size, 0, in);
	fclose(in);
	*ret_len = n < 0 ? 0 : n;
	if (n < 0)
		text[0] = 0;
	return text;
}

TEST(lines_are_there_after_a_flush)
{
	struct record_file *file = NULL;
	struct stat st;
	char *text;
	size_t len;

	dir_new();
	umask(022);
	CHECK_INT(record_file__new(&file, path), 0);
	CHECK(!stat(path, &st));
	CHECK_INT(st.st_mode & 07777, 0644);
	CHECK_INT(record_file__write(file, "one\n", 4), 0);
	CHECK_INT(record_file__bytes(file), 4);
	CHECK_INT(record_file__flush(file), 0);
	text = slurp(&len);
	CHECK_STR(text, "one\n");
	free(text);
	CHECK_INT(record_file__write(file, "two\n", 4), 0);
	CHECK_INT(record_file__close(file, true), 0);
	text = slurp(&len);
	CHECK_STR(text, "one\ntwo\n");
	free(text);
	dir_free();
}

TEST(what_is_there_is_not_touched)
{
	struct record_file *file = NULL;
	char target[160];

	dir_new();
	close(open(path, O_CREAT | O_WRONLY, 0600));
	CHECK_INT(record_file__new(&file, path), -EEXIST);
	unlink(path);
	/* a link to nothing would make the file where it points */
	snprintf(target, sizeof(target), "%s/target", dir);
	CHECK(!symlink(target, path));
	CHECK_INT(record_file__new(&file, path), -EEXIST);
	CHECK(access(target, F_OK));
	unlink(path);
	CHECK_INT(record_file__new(&file, "/nowhere/x"), -ENOENT);
	CHECK_INT(record_file__new(&file, dir), -EEXIST);
	CHECK(!file);
	dir_free();
}

TEST(an_empty_recording_leaves_no_file)
{
	struct record_file *file = NULL;

	dir_new();
	CHECK_INT(record_file__new(&file, path), 0);
	CHECK_INT(record_file__close(file, true), 0);
	CHECK(access(path, F_OK));
	CHECK_INT(record_file__new(&file, path), 0);
	CHECK_INT(record_file__write(file, "one\n", 4), 0);
	CHECK_INT(record_file__flush(file), 0);
	CHECK_INT(record_file__write(file, "two\n", 4), 0);
	CHECK_INT(record_file__close(file, false), 0);
	CHECK(access(path, F_OK));
	CHECK_INT(record_file__close(NULL, true), 0);
	dir_free();
}

TEST(much_goes_through_and_long_lines_too)
{
	struct record_file *file = NULL;
	size_t n = 0, len, long_len = BUFFER_BYTES + 100;
	char *text, *long_line = malloc(long_len);

	memset(long_line, 'x', long_len);
	long_line[long_len - 1] = '\n';
	dir_new();
	CHECK_INT(record_file__new(&file, path), 0);
	for (int i = 0; i < 100000; i++) {
		char line[32];
		int size = sprintf(line, "line %d\n", i);

		CHECK_INT(record_file__write(file, line, size), 0);
		n += size;
	}
	CHECK_INT(record_file__write(file, long_line, long_len), 0);
	CHECK_INT(record_file__write(file, "end\n", 4), 0);
	CHECK_INT(record_file__bytes(file), n + long_len + 4);
	CHECK_INT(record_file__close(file, true), 0);
	text = slurp(&len);
	CHECK_INT(len, n + long_len + 4);
	CHECK(!memcmp(text + len - 9, "xxxx\nend\n", 9));
	free(text);
	free(long_line);
	dir_free();
}

/* A size limit fails in the middle of a write, as a full disk does. */
static int child_full(size_t line_len)
{
	const struct rlimit limit = {10000, 10000};
	struct record_file *file = NULL;
	char line[3000];
	int err = 0;

	signal(SIGXFSZ, SIG_IGN);
	setrlimit(RLIMIT_FSIZE, &limit);
	memset(line, 'x', sizeof(line));
	line[line_len - 1] = '\n';
	if (record_file__new(&file, path))
		return 1;
	for (int i = 0; i < 2000 && !err; i++)
		err = record_file__write(file, line, line_len) ?: record_file__flush(file);
	if (err != -EFBIG || record_file__write(file, line, line_len) != -EFBIG)
		return 2;
	if (record_file__bytes(file) != 10000 / line_len * line_len)
		return 3;
	return record_file__close(file, true) == -EFBIG ? 0 : 4;
}

TEST(a_full_disk_leaves_whole_lines)
{
	static const size_t lengths[] = {7, 999, 2999};

	for (unsigned int i = 0; i < ARRAY_SIZE(lengths); i++) {
		int status = -1;
		size_t len = 0;
		pid_t pid;
		char *text;

		dir_new();
		pid = fork();
		if (!pid)
			_exit(child_full(lengths[i]));
		waitpid(pid, &status, 0);
		CHECK_INT(WEXITSTATUS(status), 0);
		text = slurp(&len);
		CHECK_INT(len, 10000 / lengths[i] * lengths[i]);
		CHECK(len && text[len - 1] == '\n');
		free(text);
		dir_free();
	}
}

/* One whose reader does not read: waits, and ends when a signal asks for it. */
static int child_stuck(int fd)
{
	struct record_file *file = NULL;
	static char line[BUFFER_BYTES];
	sigset_t set;

	dup2(fd, STDOUT_FILENO);
	sigemptyset(&set);
	sigaddset(&set, SIGTERM);
	sigprocmask(SIG_BLOCK, &set, NULL);
	memset(line, '\n', sizeof(line));
	if (record_file__new(&file, "-") || record_file__write(file, line, sizeof(line)))
		return 1;
	raise(SIGTERM);
	return record_file__flush(file) == -EINTR ? 0 : 2;
}

TEST(a_reader_that_sleeps_does_not_keep_us)
{
	int status = -1, pipes[2];
	pid_t pid;

	CHECK(!pipe(pipes));
	pid = fork();
	if (!pid)
		_exit(child_stuck(pipes[1]));
	waitpid(pid, &status, 0);
	CHECK_INT(status, 0);
	close(pipes[0]);
	close(pipes[1]);
}

UNIT_MAIN()
