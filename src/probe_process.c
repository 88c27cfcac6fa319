/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
/* The map of processes: whose calls are counted, whose ends are told. */
#include <bpf/bpf.h>
#include <errno.h>

#include "probe_private.h"

int probe__watch_ends(struct probe *probe)
{
	probe->exits = bpf_program__attach(probe->skel->progs.process_exit);
	if (!probe->exits)
		return -errno;
	probe->execs = bpf_program__attach(probe->skel->progs.process_exec);
	return probe->execs ? 0 : -errno;
}

int probe__list_process(struct probe *probe, uint32_t tgid)
{
	uint32_t keys = 0;
	int err = bpf_map_update_elem(bpf_map__fd(probe->skel->maps.processes), &tgid, &keys,
				      BPF_NOEXIST);

	return err == -EEXIST ? 0 : err;
}

int probe__uncharge_process(struct probe *probe, uint32_t tgid)
{
	int err, fd = bpf_map__fd(probe->skel->maps.processes);
	uint32_t keys;

	err = bpf_map_lookup_elem(fd, &tgid, &keys);
	if (err || !keys)
		return err;
	keys--;
	return bpf_map_update_elem(fd, &tgid, &keys, BPF_EXIST) ?: (int)keys;
}

int probe__forget_process(struct probe *probe, uint32_t tgid)
{
	return bpf_map_delete_elem(bpf_map__fd(probe->skel->maps.processes), &tgid);
}
