# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tracer, its plugin and NVIDIA Inspector cost nccl-tests' all_reduce_perf on two GPUs."""
import math
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import nccl_tests  # noqa: E402
import test_plugin as hook  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "20"))
SECONDS = int(os.environ.get("SECONDS_AT_MOST", "600"))  # then the rounds done so far are told of
# The last of four cycles is what is measured: by then probes have been handed over to the plugin.
ARGS = ("-b", 16, "-e", "64M", "-f", 4, "-t", 2, "-g", 1, "-n", 500, "-w", 20, "-c", 0, "-N", 4)
MIB = 1 << 20


def bare():
    return nccl_tests.Run("all_reduce", *ARGS, environment={"NCCL_PROFILER_PLUGIN": "none"})


def plugin():
    return nccl_tests.Run("all_reduce", *ARGS,
                          environment={"NCCL_PROFILER_PLUGIN": str(hook.PLUGIN)})


def traced(run, *args):
    agent = nbt.Agent("--no-ui", "--handover-after", 1, *args)
    try:
        return run()
    finally:
        agent.stop()


def inspector():
    with tempfile.TemporaryDirectory() as directory:
        return nccl_tests.Run("all_reduce", *ARGS, environment={
            "NCCL_PROFILER_PLUGIN": nccl_tests.inspector(), "NCCL_INSPECTOR_ENABLE": "1",
            "NCCL_INSPECTOR_PROM_DUMP": "1", "NCCL_INSPECTOR_DUMP_DIR": directory,
            "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "30000000"})


SETTINGS = {
    "plugin, no tracer": (plugin, (1.005, 1.005)),
    "tracer, no plugin": (lambda: traced(bare), None),
    "plugin and tracer": (lambda: traced(plugin), (1.03, 1.01)),
    "NVIDIA Inspector": (inspector, None),
}


def ratio(run, base, low, high):
    """Geometric mean over the sizes."""
    logs = [math.log((run.rows[size][0] + run.rows[size][3]) /
                     (base.rows[size][0] + base.rows[size][3]))
            for size in base.rows if low <= size < high]
    return math.exp(sum(logs) / len(logs))


def test_cost_of_all_reduce():
    """Median ratio to nothing, with its 95 % interval; goals are printed beside, not asserted by time
    on a machine that others may share."""
    gpu.need_gpus(2)
    nccl_tests.program("all_reduce")
    runs = {name: [] for name in SETTINGS}
    bases = []
    bare()
    start = round_of = time.monotonic()
    for number in range(ROUNDS):
        last, round_of = round_of, time.monotonic()
        if number and round_of - start + round_of - last > SECONDS:
            print(f"only {number} of {ROUNDS} rounds: the time is over")
            break
        bases.append(bare())
        names = list(SETTINGS)
        if number % 2:
            names.reverse()
        for name in names:
            runs[name].append(SETTINGS[name][0]())
    rows = [("nothing", "{:.2f} µs".format(statistics.median(b.rows[16][0] for b in bases)),
             "{:.2f} µs".format(statistics.median(b.rows[MIB][0] for b in bases)),
             "{:.2f} µs".format(statistics.median(b.rows[64 * MIB][0] for b in bases)),
             "{:.2f} s".format(statistics.median(b.cpu for b in bases)), "")]
    add = [("nothing, the round before", list(zip(bases[:-1], bases[1:])), None)]
    for name, pairs, goal in add + [(name, list(zip(runs[name], bases)), goal)
                                    for name, (_, goal) in SETTINGS.items()]:
        rows.append((name, gpu.ratio_text([ratio(r, b, 0, MIB) for r, b in pairs]),
                     gpu.ratio_text([ratio(r, b, MIB, 2 * MIB) for r, b in pairs]),
                     gpu.ratio_text([ratio(r, b, MIB, 1 << 40) for r, b in pairs]),
                     gpu.ratio_text([r.cpu / b.cpu for r, b in pairs]),
                     "{} below 1 MB, {} from there on".format(*goal) if goal else ""))
    gpu.table(("all_reduce_perf", "16 B (ratios: below 1 MB)", "1 MB", "64 MB (ratios: 1 MB and more)",
               "CPU of the job", "goal"), rows)
