#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# Slurm's TaskProlog: runs as the job's user; `export NAME=VALUE` on its output goes into the task's environment.
# It never fails, for that would end the task.
plugin=/usr/lib/nccl-bpftrace/libnccl-profiler-bpftrace.so
partitions=" train debug "

case $partitions in
*" ${SLURM_JOB_PARTITION:-} "*) ;;
*) exit 0 ;;
esac
if [ -z "${NCCL_PROFILER_PLUGIN:-}" ] && [ -r "$plugin" ]; then
	echo "export NCCL_PROFILER_PLUGIN=$plugin"
fi
exit 0
