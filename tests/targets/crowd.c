/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/*
 * Jobs that a script cannot describe: very many communicators or processes, names of arbitrary
 * bytes, forged identities.
 *
 *	crowd comms N SIZES			N communicators with an AllReduce each, the first one
 *						with SIZES different sizes
 *	crowd processes N			N processes with a communicator and an AllReduce each
 *	crowd named COMMHEX COMMANDHEX CALLS	a communicator and a task of these names, in hex
 *	crowd forge HASH RANK NRANKS CALLS	writes an identity into its own communicator
 *	crowd hashes N				one call under each of N forged hashes
 *
 * Says "armed", waits for a line, works, says "done" and stays until its standard input ends.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SIM_VERSION 22809
#include "layout.h"
#include "nccl_sim.h"

static _Noreturn void fail(const char *what)
{
	fprintf(stderr, "crowd: %s\n", what);
	exit(1);
}

static void say(const char *word)
{
	printf("%s\n", word);
	fflush(stdout);
}

static void await_line(void)
{
	char line[16];

	if (!fgets(line, sizeof(line), stdin))
		exit(0);
}

static char *from_hex(const char *hex)
{
	char *text = calloc(1, strlen(hex) / 2 + 1);
	unsigned int byte;

	if (!text)
		fail("out of memory");
	for (size_t i = 0; hex[2 * i] && sscanf(hex + 2 * i, "%2x", &byte) == 1; i++)
		text[i] = (char)byte;
	return text;
}

static ncclComm_t make_comm(const char *name)
{
	ncclConfig_t config = {.size = sizeof(config), .magic = NCCL_CONFIG_MAGIC,
			       .version = SIM_VERSION, .commName = name};
	ncclUniqueId id;
	ncclComm_t comm;

	if (ncclGetUniqueId(&id) || ncclCommInitRankConfig(&comm, 1, id, 0, &config))
		fail("no communicator");
	return comm;
}

static void call(ncclComm_t comm, size_t count)
{
	if (ncclAllReduce(NULL, NULL, count, ncclFloat32, ncclSum, comm, NULL))
		fail("ncclAllReduce");
}

static void many_comms(long n, long sizes)
{
	ncclComm_t first = make_comm("first");

	for (long i = 1; i <= sizes; i++)
		call(first, (size_t)i * 1000);
	while (--n > 0)
		call(make_comm(NULL), 1);
}

static void await_children(int fd, long n)
{
	char byte;

	while (n--)
		if (read(fd, &byte, 1) != 1)
			fail("a child is gone");
}

/*
 * A fork would be a copy of this process in the tracer's eyes: each one starts anew. Says "done"
 * when all have loaded the library, and again when all have called.
 */
static void many_processes(long n)
{
	int ready[2], go[2], hold[2];

	if (pipe(ready) || pipe(go) || pipe(hold))
		fail("pipe");
	for (long i = 0; i < n; i++) {
		pid_t pid = fork();

		if (pid < 0)
			fail("fork");
		if (pid)
			continue;
		dup2(hold[0], 0); /* its end is the children's: this process holds hold[1] */
		dup2(ready[1], 1);
		dup2(go[0], 2);
		close_range(3, ~0U, 0);
		execl("/proc/self/exe", "crowd", "child", (char *)NULL);
		_exit(127);
	}
	close(ready[1]); /* so that a child's death is seen */
	await_children(ready[0], n);
	say("done");
	await_line();
	for (long i = 0; i < n; i++)
		if (write(go[1], "", 1) != 1)
			fail("write");
	await_children(ready[0], n);
}

static int child(void)
{
	char byte;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (write(1, "", 1) != 1 || read(2, &byte, 1) != 1)
		return 1;
	call(make_comm(NULL), 1);
	if (write(1, "", 1) != 1)
		return 1;
	return read(0, &byte, 1) != 0;
}

static void named(const char *comm, const char *command, long calls)
{
	ncclComm_t made = make_comm(from_hex(comm));

	prctl(PR_SET_NAME, from_hex(command));
	while (calls--)
		call(made, 1);
}

static void forge(uint64_t hash, int rank, int n_ranks, long calls)
{
	ncclComm_t comm = make_comm("forger");

	comm->commHash = hash;
	comm->rank = rank;
	comm->nRanks = n_ranks;
	while (calls--)
		call(comm, 1);
}

static void forge_hashes(long n)
{
	ncclComm_t comm = make_comm(NULL);

	for (long i = 1; i <= n; i++) {
		comm->commHash = (uint64_t)i << 32;
		call(comm, 1);
	}
}

static void work(char **argv, int n)
{
	if (n == 4 && !strcmp(argv[1], "comms"))
		many_comms(atol(argv[2]), atol(argv[3]));
	else if (n == 3 && !strcmp(argv[1], "processes"))
		many_processes(atol(argv[2]));
	else if (n == 5 && !strcmp(argv[1], "named"))
		named(argv[2], argv[3], atol(argv[4]));
	else if (n == 6 && !strcmp(argv[1], "forge"))
		forge(strtoull(argv[2], NULL, 16), atoi(argv[3]), atoi(argv[4]), atol(argv[5]));
	else if (n == 3 && !strcmp(argv[1], "hashes"))
		forge_hashes(atol(argv[2]));
	else
		fail("usage");
}

int main(int argc, char **argv)
{
	char line[16];

	alarm(300); /* whatever becomes of the test */
	if (argc == 2 && !strcmp(argv[1], "child"))
		return child();
	if (argc == 5 && !strcmp(argv[1], "named")) /* before it is first looked at */
		prctl(PR_SET_NAME, from_hex(argv[3]));
	say("armed");
	await_line();
	work(argv, argc);
	say("done");
	while (fgets(line, sizeof(line), stdin))
		;
	return 0;
}
