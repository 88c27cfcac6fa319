# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Are the GPU times true? nccl-tests' own times against those of a recording, size by size and cycle
by cycle: their median, as what disturbs one cycle is in nccl-tests' mean of it."""
import json
import os
import statistics
import sys
import subprocess
from collections import defaultdict
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import nccl_tests  # noqa: E402
import test_plugin as hook  # noqa: E402

N, CYCLES = 1000, 6  # the plugin may still sleep in the first
ARGS = ("-b", "1K", "-e", "64M", "-f", 4, "-t", 2, "-g", 1, "-n", N, "-w", 20, "-c", 0,
        "-N", CYCLES)
LARGE = 16 << 20
TINY = 4 << 10
LEAST = 4  # timed launches of one place in a cycle
CPUS = 4  # of the programs, where there are twice as many
PROGRAMS = {"all_reduce": "AllReduce", "all_gather": "AllGather",
            "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast", "alltoall": "AlltoAll",
            "sendrecv": "Send"}


def processors():
    """Those of nccl-tests' programs, on which nothing else of this test runs from now on; None: too
    few. The host's pace decides the small sizes, and threads that move from one processor to another
    made the same size take 8 µs or 14."""
    here = os.sched_getaffinity(0)
    if len(here) < 2 * CPUS:
        return None
    nbt.defer(os.sched_setaffinity, 0, here)
    theirs = set(sorted(here)[-CPUS:])
    os.sched_setaffinity(0, here - theirs)
    return theirs


def recorded(name, cpus):
    """nccl-tests' run; {size: {(pid, rank): [(launch, ns, bus bytes)]}} of the launches that were
    timed meanwhile; and {size: [ns]} of those that were because they came after a pause: they wait
    for the other rank, and are none of nccl-tests' usual ones."""
    path = nbt.tempdir() / "recording"
    agent = subprocess.Popen([nbt.AGENT, "record", "-o", path, "--format", "jsonl"],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    nbt.defer(nbt.end, agent)
    nbt.wait_for(path.exists, "the recording", 20)
    run = nccl_tests.Run(name, *ARGS, environment={"NCCL_PROFILER_PLUGIN": str(hook.PLUGIN)},
                         cpus=cpus)
    nbt.end(agent)
    found, after_pauses = defaultdict(lambda: defaultdict(list)), defaultdict(list)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1]["kind"] == "end", lines[-1]
    for line in lines:
        if line["kind"] != "launch" or not line["complete"] or not line["launch"]:
            continue
        if line["form"] == "pair":
            one = line["operations"][0]
            size = bus_bytes = one["count"] * one["type_bytes"]
        elif line["operation"] == PROGRAMS[name]:
            size, bus_bytes = line["bytes"], line["bus_bytes"]
        else:
            continue
        if line["sampled"] is False:
            after_pauses[size].append(line["duration_ns"])
            continue
        found[size][line["pid"], line["rank"]].append(
            (line["launch"], line["duration_ns"], bus_bytes))
    return run, found, after_pauses


def by_cycle(ranks, places):
    """By cycle, the last first, [[(ns, bus bytes)] by place] of the launches of one size: N of each
    place follow one another, out of place, and in place where that is the same operation; before the
    next cycle come those of other sizes."""
    found = defaultdict(lambda: [[] for _ in range(places)])
    for launches in ranks.values():
        cycle, end = -1, 0
        for number, ns, bus_bytes in sorted(launches, reverse=True):
            if cycle < 0 or end - number > 4 * N:
                cycle, end = cycle + 1, number
            place = places - 1 - (end - number) // N
            if ns is not None and place >= 0:
                found[cycle][place].append((ns, bus_bytes))
    return [found[cycle] for cycle in sorted(found)]


def usual(values):
    """Mean but for the least and the greatest twentieth, as nccl-tests' times are means; the first
    launch of many waits for the other rank."""
    values = sorted(values)
    cut = len(values) // 20
    return statistics.mean(values[cut:len(values) - cut])


def times(place):
    return usual(ns / 1e3 for ns, _ in place)


def rate(place):
    """Bytes by time, as nccl-tests has it and a query of both sums."""
    return usual(bus_bytes for _, bus_bytes in place) / times(place) / 1e3


def compare(name, run, size, ranks):
    """[(nccl-tests' µs, ours, its bus bandwidth, ours, launches)] by cycle, the last first."""
    found = []
    theirs = reversed(run.cycles[size])
    for (out_of_place, _, bus, in_place), places in zip(
            theirs, by_cycle(ranks, 1 if name == "alltoall" else 2)):
        # In place NCCL leaves out a rank's copy to itself: with two ranks that is no AlltoAll.
        truth = out_of_place if name == "alltoall" else (out_of_place + in_place) / 2
        if all(len(place) >= LEAST for place in places):
            found.append((truth, statistics.mean(map(times, places)),
                          bus * out_of_place / truth,
                          statistics.mean(map(rate, places)),
                          sum(map(len, places))))
    return found


def pauses_text(ns):
    return f"{len(ns)}: {statistics.mean(ns) / 1e3:.1f}" if ns else ""


def host_pace(run):
    """How often the host launches, by sizes that take the GPU next to nothing. Where nccl-tests has
    this time the GPU waits for the host, and may well be busy for less."""
    return max(min(row[0], row[3]) for size, row in run.rows.items() if size <= TINY)


def is_true(size, truth, ours, expected, bandwidth, pace):
    if size >= LARGE:
        return 0.98 <= ours / truth <= 1.02 and 0.97 <= bandwidth / expected <= 1.03
    return ours - truth <= 2 and (ours - truth >= -2 or
                                  truth <= 1.1 * pace and ours >= 0.7 * truth)


def test_gpu_times_against_nccl_tests():
    gpu.need_gpus(2)
    nccl_tests.program("all_reduce")
    cpus, rows, wrong, n_within = processors(), [], [], 0
    for name in PROGRAMS:
        run, found, after_pauses = recorded(name, cpus)
        for size in run.rows:
            cycles = compare(name, run, size, found.get(size, {}))
            if len(cycles) < CYCLES // 2:
                wrong.append((name, size, f"launches were timed in {len(cycles)} cycles"))
                continue
            # the cycle whose difference is the middle one
            cycles.sort(key=lambda cycle: cycle[1] - cycle[0])
            truth, ours, expected, bandwidth, _ = cycles[len(cycles) // 2]
            rows.append((name, size, sum(cycle[4] for cycle in cycles), f"{truth:.2f}",
                         f"{ours:.2f}", f"{ours - truth:+.2f}", f"{ours / truth:.3f}",
                         f"{expected:.1f}", f"{bandwidth:.1f}", pauses_text(after_pauses[size])))
            if not is_true(size, truth, ours, expected, bandwidth, host_pace(run)):
                wrong.append((name, size, truth, ours, expected, bandwidth))
            n_within += abs(ours - truth) <= (0.02 * truth if size >= LARGE else 2)
    gpu.table(("program", "bytes", "timed", "nccl-tests, µs", "GPU, µs", "difference", "ratio",
               "busbw, GB/s", "ours", "after pauses, µs"), rows)
    print(f"     {n_within} of {len(rows)} within 2 % and 2 µs")
    assert not wrong, wrong
