/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Names of the system table in which a process may wait for long; numbers are this machine's. */
#include <sys/syscall.h>

#include "procstate.h"
#include "util.h"

static const struct {
	const char *name;
	bool takes_fd;
} table[] = {
#define CALL(name)    [SYS_##name] = {#name, false}
#define FD_CALL(name) [SYS_##name] = {#name, true}
#ifdef SYS_open /* x86-64 has kept these beside their successors */
	CALL(access),
	CALL(epoll_wait),
	CALL(fork),
	CALL(lstat),
	CALL(mkdir),
	CALL(open),
	CALL(pause),
	CALL(poll),
	CALL(readlink),
	CALL(rename),
	CALL(select),
	CALL(stat),
	CALL(unlink),
	CALL(vfork),
#endif
	CALL(clock_nanosleep),
	CALL(clone),
	CALL(clone3),
	CALL(execve),
	CALL(exit),
	CALL(exit_group),
	CALL(faccessat),
	CALL(faccessat2),
	CALL(futex),
	CALL(futex_waitv),
	CALL(getrandom),
	CALL(io_getevents),
	CALL(io_submit),
	CALL(madvise),
	CALL(mbind),
	CALL(membarrier),
	CALL(mkdirat),
	CALL(mlock),
	CALL(mlock2),
	CALL(mmap),
	CALL(mount),
	CALL(move_pages),
	CALL(mprotect),
	CALL(mremap),
	CALL(msgrcv),
	CALL(msgsnd),
	CALL(munmap),
	CALL(nanosleep),
	CALL(newfstatat),
	CALL(openat),
	CALL(openat2),
	CALL(ppoll),
	CALL(process_vm_readv),
	CALL(process_vm_writev),
	CALL(pselect6),
	CALL(ptrace),
	CALL(readlinkat),
	CALL(renameat2),
	CALL(restart_syscall),
	CALL(rt_sigsuspend),
	CALL(rt_sigtimedwait),
	CALL(sched_yield),
	CALL(semop),
	CALL(semtimedop),
	CALL(statfs),
	CALL(statx),
	CALL(sync),
	CALL(umount2),
	CALL(unlinkat),
	CALL(wait4),
	CALL(waitid),
	FD_CALL(accept),
	FD_CALL(accept4),
	FD_CALL(close),
	FD_CALL(connect),
	FD_CALL(epoll_pwait),
	FD_CALL(epoll_pwait2),
	FD_CALL(fallocate),
	FD_CALL(fcntl),
	FD_CALL(fdatasync),
	FD_CALL(flock),
	FD_CALL(fstat),
	FD_CALL(fstatfs),
	FD_CALL(fsync),
	FD_CALL(ftruncate),
	FD_CALL(getdents64),
	FD_CALL(io_uring_enter),
	FD_CALL(ioctl),
	FD_CALL(lseek),
	FD_CALL(mq_timedreceive),
	FD_CALL(pread64),
	FD_CALL(preadv),
	FD_CALL(preadv2),
	FD_CALL(pwrite64),
	FD_CALL(pwritev),
	FD_CALL(pwritev2),
	FD_CALL(read),
	FD_CALL(readv),
	FD_CALL(recvfrom),
	FD_CALL(recvmmsg),
	FD_CALL(recvmsg),
	FD_CALL(sendfile),
	FD_CALL(sendmmsg),
	FD_CALL(sendmsg),
	FD_CALL(sendto),
	FD_CALL(shutdown),
	FD_CALL(splice),
	FD_CALL(syncfs),
	FD_CALL(write),
	FD_CALL(writev),
#undef CALL
#undef FD_CALL
};

const char *procstate__syscall_name(int32_t number)
{
	return number >= 0 && number < (int32_t)ARRAY_SIZE(table) ? table[number].name : NULL;
}

bool procstate__syscall_takes_fd(int32_t number)
{
	return procstate__syscall_name(number) && table[number].takes_fd;
}
