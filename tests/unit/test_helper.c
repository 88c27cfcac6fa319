/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "unit.h"

#include <fcntl.h>

#include "../../src/helper.c"
#include "../../src/helper_child.c"
#include "../../src/loop.c"

#define MSEC NSEC_PER_MSEC

struct answer {
	struct loop *loop;
	int status, n_done, wanted, n_messages, last_fd;
	char text[64];
};

static void on_message(void *ctx, const void *data, size_t len, const int *fds, int n_fds)
{
	struct answer *answer = ctx;

	answer->n_messages++;
	if (len < sizeof(answer->text))
		memcpy(answer->text, data, len);
	for (int i = 0; i < n_fds; i++)
		answer->last_fd = fds[i];
}

static void on_done(void *ctx, int status)
{
	struct answer *answer = ctx;

	answer->status = status;
	if (++answer->n_done == answer->wanted)
		loop__stop(answer->loop, 0);
}

static int work_reply(void *arg, int reply_fd)
{
	int fd = open("/dev/null", O_RDONLY);
	int err = helper__reply(reply_fd, arg, strlen(arg) + 1, &fd, 1);

	return err ?: -ENOENT;
}

static int work_for_ever(void *arg, int reply_fd)
{
	(void)arg;
	(void)reply_fd;
	while (pause() < 0)
		;
	return 0;
}

static int work_crash(void *arg, int reply_fd)
{
	(void)arg;
	(void)reply_fd;
	_exit(3);
	return 0;
}

/* True when the child has no descriptor but the standard ones, the socket and the kept one. */
static int work_count_fds(void *arg, int reply_fd)
{
	int kept = *(int *)arg, n = 0;

	for (int fd = 3; fd < 256; fd++)
		n += fd != reply_fd && fd != kept && fcntl(fd, F_GETFD) >= 0;
	return n ? -EBADF : fcntl(kept, F_GETFD) < 0 ? -ENOENT : 0;
}

static struct helper_job job_of(helper_work_fn *work, struct answer *answer)
{
	return (struct helper_job){
		.work = work,
		.message = on_message,
		.done = on_done,
		.ctx = answer,
		.keep_fds = {-1, -1, -1, -1},
	};
}

static void run(const struct helper_job *jobs, int n, struct answer *answer, uint64_t deadline_ns)
{
	struct helpers *helpers = NULL;

	CHECK(!loop__new(&answer->loop));
	CHECK(!helpers__new(&helpers, answer->loop, deadline_ns));
	answer->wanted = n;
	for (int i = 0; i < n; i++)
		CHECK(!helper__run(helpers, &jobs[i]));
	loop__run(answer->loop);
	CHECK_INT(helpers__pending(helpers), 0);
	helpers__free(helpers);
	loop__free(answer->loop);
}

TEST(message_descriptor_and_status_come_back)
{
	struct answer answer = {.last_fd = -1};
	struct helper_job job = job_of(work_reply, &answer);

	job.arg = "hello";
	job.arg_size = 6;
	run(&job, 1, &answer, 5000 * MSEC);
	CHECK_STR(answer.text, "hello");
	CHECK_INT(answer.status, -ENOENT);
	CHECK(fcntl(answer.last_fd, F_GETFD) == FD_CLOEXEC);
	close(answer.last_fd);
}

TEST(one_that_waits_for_ever_is_killed_at_its_deadline)
{
	struct answer answer = {};
	struct helper_job job = job_of(work_for_ever, &answer);
	uint64_t start = now_ns();

	run(&job, 1, &answer, 50 * MSEC);
	CHECK_INT(answer.status, -ETIMEDOUT);
	CHECK(now_ns() - start < 5000 * MSEC);
}

TEST(one_that_dies_without_a_word_is_told)
{
	struct answer answer = {};
	struct helper_job job = job_of(work_crash, &answer);

	run(&job, 1, &answer, 5000 * MSEC);
	CHECK_INT(answer.status, -ECHILD);
	CHECK_INT(answer.n_messages, 0);
}

TEST(the_child_holds_only_what_it_is_given)
{
	struct answer answer = {};
	struct helper_job job = job_of(work_count_fds, &answer);
	int kept = open("/dev/null", O_RDONLY), other = open("/dev/null", O_RDONLY);

	job.arg = &kept;
	job.arg_size = sizeof(kept);
	job.keep_fds[0] = kept;
	run(&job, 1, &answer, 5000 * MSEC);
	CHECK_INT(answer.status, 0);
	close(kept);
	close(other);
}

TEST(doubtful_work_leaves_room_for_the_rest)
{
	struct answer hung = {}, quick = {};
	struct helper_job jobs[16];
	struct helpers *helpers = NULL;
	struct loop *loop = NULL;

	CHECK(!loop__new(&loop));
	CHECK(!helpers__new(&helpers, loop, 60000 * MSEC));
	hung.loop = quick.loop = loop;
	hung.wanted = 16;
	quick.wanted = 1;
	for (int i = 0; i < 16; i++) {
		jobs[i] = job_of(work_for_ever, &hung);
		jobs[i].doubtful = true;
		CHECK(!helper__run(helpers, &jobs[i]));
	}
	jobs[0] = job_of(work_reply, &quick);
	jobs[0].arg = "x";
	jobs[0].arg_size = 2;
	CHECK(!helper__run(helpers, &jobs[0]));
	loop__run(loop); /* would not end if the hung ones had taken every place */
	CHECK_INT(quick.n_done, 1);
	CHECK_INT(hung.n_done, 0);
	helpers__free(helpers);
	loop__free(loop);
	close(quick.last_fd);
}

TEST(closing_elsewhere_closes_here_at_once)
{
	struct helpers *helpers = NULL;
	struct loop *loop = NULL;
	int fds[2];
	char byte;

	CHECK(!loop__new(&loop));
	CHECK(!helpers__new(&helpers, loop, 1000 * MSEC));
	CHECK(!pipe(fds));
	helpers__close_elsewhere(helpers, &fds[1], 1);
	CHECK_INT(read(fds[0], &byte, 1), 0); /* end of file: the child's copy goes too */
	close(fds[0]);
	helpers__free(helpers);
	loop__free(loop);
}

UNIT_MAIN()
