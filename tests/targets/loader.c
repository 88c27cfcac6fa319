/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Calls NCCL as the lines on standard input say, in ways that nccl-sim cannot; answers each line
 * with `ok ...`. It is not linked against NCCL: `load PATH` brings it in.
 *
 *   load PATH        dlopen
 *   comm             makes a communicator of one rank; later calls use it, before that NULL
 *   call N           N AllReduce of one float, on the main thread
 *   thread N         the same on a second thread
 *   vfork N          the same in a CLONE_VM child that ends at once: `ok PID`
 *   fork             a child that waits: `ok PID`
 *   child N          that child calls
 *   each N           every function of the API that can be called with nothing, N times
 *   burn N           N calls, in a child forked for them: `ok PID` when it has ended
 *   seccomp          from now on an unknown system call kills
 *   map PATH         maps the file executable, touches nothing of it
 *   dirty PATH       maps the file shared and writes to it
 *   mapdirect PATH   like map, through O_DIRECT
 *   exec PATH        becomes another program
 *   last PATH        loads PATH, calls 100 times, exits at once
 */
#include <dlfcn.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nccl_sim.h"

#define CHILD_STACK (256 * 1024)
#define MAP_BYTES   4096

static struct {
	void *library;
	ncclComm_t comm;
	__typeof__(ncclAllReduce) *all_reduce;
	int to_child, from_child;
} self;

static int say(const char *text)
{
	printf("%s\n", text);
	return fflush(stdout);
}

static int say_number(long number)
{
	printf("ok %ld\n", number);
	return fflush(stdout);
}

static void *find(const char *symbol)
{
	return self.library ? dlsym(self.library, symbol) : NULL;
}

static int load(const char *path)
{
	self.library = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
	if (!self.library)
		return say(dlerror());
	self.all_reduce = (__typeof__(self.all_reduce))find("ncclAllReduce");
	return say(self.all_reduce ? "ok" : "no ncclAllReduce there");
}

static int make_comm(void)
{
	__typeof__(ncclGetUniqueId) *get_id = (__typeof__(get_id))find("ncclGetUniqueId");
	__typeof__(ncclCommInitRank) *init = (__typeof__(init))find("ncclCommInitRank");
	ncclUniqueId id;

	if (!get_id || !init || get_id(&id) || init(&self.comm, 1, id, 0))
		return say("cannot make a communicator");
	return say("ok");
}

static void call(long n)
{
	static float data;

	while (n-- > 0)
		self.all_reduce(&data, &data, 1, ncclFloat32, ncclSum, self.comm, NULL);
}

static void *thread_main(void *arg)
{
	call((long)arg);
	return NULL;
}

static int call_on_thread(long n)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, thread_main, (void *)n) || pthread_join(thread, NULL))
		return say("no thread");
	return say("ok");
}

static int child_main(void *arg)
{
	call((long)arg);
	return 0;
}

static int call_in_vm_child(long n)
{
	char *stack = malloc(CHILD_STACK);
	pid_t pid = clone(child_main, stack + CHILD_STACK, CLONE_VM | CLONE_VFORK | SIGCHLD,
			  (void *)n);

	if (pid < 0 || waitpid(pid, NULL, 0) != pid)
		return say("no child");
	free(stack);
	return say_number(pid);
}

static int call_in_child(long n)
{
	pid_t pid = fork();

	if (!pid) {
		call(n);
		_exit(0);
	}
	return waitpid(pid, NULL, 0) == pid ? say_number(pid) : say("no child");
}

static void serve_parent(int from, int to)
{
	long n;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(from, &n, sizeof(n)) == sizeof(n)) {
		call(n);
		if (write(to, &n, sizeof(n)) != sizeof(n))
			break;
	}
	_exit(0);
}

static int fork_child(void)
{
	int down[2], up[2];
	pid_t pid;

	if (pipe2(down, O_CLOEXEC) || pipe2(up, O_CLOEXEC))
		return say("no pipe");
	pid = fork();
	if (!pid) {
		close(down[1]);
		serve_parent(down[0], up[1]);
	}
	close(down[0]);
	close(up[1]);
	self.to_child = down[1];
	self.from_child = up[0];
	return pid < 0 ? say("no child") : say_number(pid);
}

static int call_by_child(long n)
{
	if (write(self.to_child, &n, sizeof(n)) != sizeof(n) ||
	    read(self.from_child, &n, sizeof(n)) != sizeof(n))
		return say("the child is gone");
	return say("ok");
}

/* Each refuses a NULL communicator, and does so after its entry. */
static int call_each(long n)
{
#define WITH(function, ...)                                                                        \
	do {                                                                                       \
		__typeof__(function) *f = (__typeof__(f))find(#function);                          \
		for (long i = 0; f && i < n; i++)                                                  \
			f(__VA_ARGS__);                                                            \
	} while (0)
	ncclUniqueId id = {};
	ncclComm_t made = NULL;

	WITH(ncclAllReduce, NULL, NULL, 1, ncclFloat32, ncclSum, NULL, NULL);
	WITH(ncclAllGather, NULL, NULL, 1, ncclFloat32, NULL, NULL);
	WITH(ncclReduceScatter, NULL, NULL, 1, ncclFloat32, ncclSum, NULL, NULL);
	WITH(ncclBroadcast, NULL, NULL, 1, ncclFloat32, 0, NULL, NULL);
	WITH(ncclReduce, NULL, NULL, 1, ncclFloat32, ncclSum, 0, NULL, NULL);
	WITH(ncclAlltoAll, NULL, NULL, 1, ncclFloat32, NULL, NULL);
	WITH(ncclGather, NULL, NULL, 1, ncclFloat32, 0, NULL, NULL);
	WITH(ncclScatter, NULL, NULL, 1, ncclFloat32, 0, NULL, NULL);
	WITH(ncclSend, NULL, 1, ncclFloat32, 0, NULL, NULL);
	WITH(ncclRecv, NULL, 1, ncclFloat32, 0, NULL, NULL);
	/* lifecycle: -1 ranks, nothing to end; NCCL 2.23 dies itself of a split of nothing */
	WITH(ncclCommInitRank, &made, -1, id, 0);
	WITH(ncclCommInitRankConfig, &made, -1, id, 0, NULL);
	WITH(ncclCommFinalize, NULL);
	WITH(ncclCommDestroy, NULL);
	WITH(ncclCommAbort, NULL);
#undef WITH
	return say("ok");
}

static int lock_down(void)
{
#define ALLOW(name) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_##name, 0, 1), \
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)
	struct sock_filter filter[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		ALLOW(read), ALLOW(write), ALLOW(exit_group), ALLOW(futex), ALLOW(brk),
		ALLOW(mmap), ALLOW(munmap), ALLOW(rt_sigreturn),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
	};
#undef ALLOW
	struct sock_fprog program = {.len = sizeof(filter) / sizeof(*filter), .filter = filter};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
		return say("no seccomp");
	return say("ok");
}

static int map(const char *path, int open_flags, int protection, int flags)
{
	int fd = open(path, open_flags | O_CLOEXEC);
	volatile char *data = fd < 0 ? MAP_FAILED : mmap(NULL, MAP_BYTES, protection, flags, fd, 0);

	if (data == MAP_FAILED)
		return say("cannot map it");
	if (protection & PROT_WRITE)
		data[0] = 1;
	return say("ok"); /* the mapping holds the file */
}

static int become(const char *path)
{
	execl(path, path, (char *)NULL);
	return say("cannot execute it");
}

static int call_and_end(const char *path)
{
	if (load(path))
		return -1;
	call(100);
	_exit(0);
}

static int obey(const char *line, const char *argument)
{
	long n = atol(argument);

#define IS(word) (!strcmp(line, word))
	if (IS("load"))
		return load(argument);
	if (IS("comm"))
		return make_comm();
	if (IS("call"))
		return call(n), say("ok");
	if (IS("thread"))
		return call_on_thread(n);
	if (IS("vfork"))
		return call_in_vm_child(n);
	if (IS("burn"))
		return call_in_child(n);
	if (IS("fork"))
		return fork_child();
	if (IS("child"))
		return call_by_child(n);
	if (IS("each"))
		return call_each(n);
	if (IS("seccomp"))
		return lock_down();
	if (IS("map"))
		return map(argument, O_RDONLY, PROT_READ | PROT_EXEC, MAP_PRIVATE);
	if (IS("dirty"))
		return map(argument, O_RDWR, PROT_READ | PROT_WRITE, MAP_SHARED);
	if (IS("mapdirect"))
		return map(argument, O_RDONLY | O_DIRECT, PROT_READ | PROT_EXEC, MAP_PRIVATE);
	if (IS("exec"))
		return become(argument);
	if (IS("last"))
		return call_and_end(argument);
	return say("unknown line");
#undef IS
}

int main(void)
{
	static char line[4096];

	setvbuf(stdin, NULL, _IONBF, 0); /* what follows `exec` is for the next program */
	while (fgets(line, sizeof(line), stdin)) {
		char *argument;

		line[strcspn(line, "\n")] = 0;
		argument = strchr(line, ' ');
		if (argument)
			*argument++ = 0;
		obey(line, argument ? argument : "");
	}
	return 0;
}
