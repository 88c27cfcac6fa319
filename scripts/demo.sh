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

# What the textfile tells of GPU time: mean time and bandwidth by operation and size.
gpu_times() {
	awk '
	/^nccl_timed_/ {
		split($0, part, /[{}]/)
		operation = size = part[2]
		sub(/.*operation="/, "", operation)
		sub(/".*/, "", operation)
		sub(/.*size="/, "", size)
		sub(/".*/, "", size)
		key = operation " " size
		sum[part[1], key] += $NF
		seen[key]
	}
	END {
		for (key in seen) {
			split(key, word, " ")
			n = sum["nccl_timed_operations_total", key]
			s = sum["nccl_timed_seconds_total", key]
			if (n && s)
				printf "%-14s %-9s %8d timed  %8.1f us  %7.1f GB/s\n", word[1],
				       word[2], n, s / n * 1e6,
				       sum["nccl_timed_bus_bytes_total", key] / s / 1e9
		}
	}' "$1" | sort
}

directory=$(mktemp -d /tmp/nccl-bpftrace-demo.XXXXXX)
chmod 755 "$directory"
file=$directory/nccl_bpftrace.prom
NCCL_PROFILER_PLUGIN=$PWD/build/libnccl-profiler-bpftrace.so \
	build/nccl-sim --gpu --gpu-jitter 10 --ranks 8 --script tests/sim/demo.script \
	2>"$directory/job.log" &
job=$!
trap 'kill $job 2>/dev/null || true; wait $job 2>/dev/null || true' EXIT
trap 'exit 1' HUP INT PIPE TERM # a shell that a signal ends leaves its EXIT trap undone
sleep 2 # the job is under way when the tracer comes

# of what else runs on this machine nothing is shown
only=$(sed 's/[0-9][0-9]*/--pid &/g' "/proc/$job/task/$job/children")

echo "A simulated 8-rank job runs (pid $job). Its GPUs are simulated too: no data moves, and their"
echo "times are a model's, not any GPU's. Ranks 0 to 5 have the plugin, idle so far; 6 and 7 have not."
echo "The tracer attaches now, for $seconds s:"
echo "nccl-bpftrace run --duration $seconds --interval 3 --textfile-dir $directory (and its pids)"
[ ! -t 1 ] || sleep 2
# shellcheck disable=SC2086 # options, a word each
build/nccl-bpftrace run --duration "$seconds" --interval 3 --textfile-dir "$directory" $only

echo
echo "nccl-bpftrace ps, the first lines:"
# shellcheck disable=SC2086
build/nccl-bpftrace ps $only | head -8
echo
echo "From the textfile, for rank 0:"
grep -E '^nccl_(operations_total|operation_sequence)\{.*rank="0"' "$file" | head -6
calls=$(awk '/^nccl_operations_total/ { n += $NF } END { printf "%d", n }' "$file")
lost=$(awk '/^nccl_bpftrace_events_lost_total/ { n += $NF } END { printf "%d", n }' "$file")
timed=$(awk '/^nccl_timed_operations_total/ { n += $NF } END { printf "%d", n }' "$file")
echo
echo "From the textfile, time on the (simulated) GPUs, sampled at no more than 1 % of wall time:"
echo "operation and size, how many were timed, mean time from start to end, bus bandwidth. The time"
echo "that a kernel waits for ranks that come later is part of it, as on a real GPU: rank 3 is late."
gpu_times "$file"
echo
echo "$calls calls counted, $timed of them timed, $lost records lost. The textfile: $file"
[ "$calls" -gt 0 ] && [ "$timed" -gt 0 ]
