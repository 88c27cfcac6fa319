/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* Discovery: which executable files are mapped where. */
#include "vmlinux.h"
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "nccl_bpftrace_record.h"

#define VM_EXEC 0x4UL

const volatile __u32 page_shift = 12;

/* Never written by BPF: it owns the per-CPU rings in which the kernel tells of new mappings. */
struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} new_mappings SEC(".maps");

/* Executable file mappings of every process, by the inode below any overlay. */
SEC("iter/task_vma")
int executable_mappings(struct bpf_iter__task_vma *ctx)
{
	struct vm_area_struct *vma = ctx->vma;
	struct task_struct *task = ctx->task;
	struct nb_mapping m = {};
	struct file *file;
	struct inode *inode;

	if (!task || !vma || !(vma->vm_flags & VM_EXEC))
		return 0;
	file = vma->vm_file;
	if (!file)
		return 0;
	inode = file->f_inode;
	m.tgid = task->tgid;
	m.start = vma->vm_start;
	m.end = vma->vm_end;
	m.file_offset = (__u64)vma->vm_pgoff << page_shift;
	m.inode = (__u64)inode;
	m.ino = BPF_CORE_READ(inode, i_ino);
	m.generation = BPF_CORE_READ(inode, i_generation);
	m.dev = BPF_CORE_READ(inode, i_sb, s_dev);
	m.fs_magic = BPF_CORE_READ(inode, i_sb, s_magic);
	bpf_probe_read_kernel_str(m.name, sizeof(m.name),
				  BPF_CORE_READ(file, f_path.dentry, d_name.name));
	bpf_seq_write(ctx->meta->seq, &m, sizeof(m));
	return 0;
}
