#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
# make demo: a simulated job of 8 ranks runs; the tracer is attached to it while it runs.
set -eu
cd "$(dirname "$0")/.."

seconds=${DEMO_SECONDS:-15}
if [ "$(id -u)" != 0 ]; then
	echo "make demo: tracing needs root: run 'sudo make demo'" >&2
	exit 3
fi

directory=$(mktemp -d /tmp/nccl-bpftrace-demo.XXXXXX)
chmod 755 "$directory"
file=$directory/nccl_bpftrace.prom
build/nccl-sim --ranks 8 --script tests/sim/demo.script 2>"$directory/job.log" &
job=$!
trap 'kill $job 2>/dev/null || true; wait $job 2>/dev/null || true' EXIT
sleep 2 # the job is under way when the tracer comes

echo "A simulated 8-rank job runs (pid $job); no GPU is used, no data moves. The tracer attaches now,"
echo "for $seconds s: nccl-bpftrace run --duration $seconds --interval 3 --textfile-dir $directory"
[ ! -t 1 ] || sleep 2
build/nccl-bpftrace run --duration "$seconds" --interval 3 --textfile-dir "$directory"

echo
echo "nccl-bpftrace ps, the first lines:"
build/nccl-bpftrace ps | head -8
echo
echo "From the textfile, for rank 0:"
grep -E '^nccl_(operations_total|operation_sequence)\{.*rank="0"' "$file" | head -6
calls=$(awk '/^nccl_operations_total/ { n += $NF } END { printf "%d", n }' "$file")
lost=$(awk '/^nccl_bpftrace_events_lost_total/ { n += $NF } END { printf "%d", n }' "$file")
echo
echo "$calls calls counted, $lost records lost. The textfile: $file"
[ "$calls" -gt 0 ]
