# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plugin in nccl-tests over other releases of the real NCCL, which take other versions of its
interface: NCCL_LIBRARIES names their libnccl.so.2, separated by colons."""
import os
import re
import sys
import threading
import time
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import nccl_tests  # noqa: E402
import test_plugin as hook  # noqa: E402

ARGS = ("-b", 8, "-e", "64M", "-f", 8, "-t", 2, "-g", 1, "-n", 1500, "-w", 20,
        "-N", 2)  # the plugin may still sleep in the first cycle


def libraries():
    names = [name for name in os.environ.get("NCCL_LIBRARIES", "").split(":") if name]
    return [Path(name) for name in names] or nbt.skip(
        "NCCL_LIBRARIES names no libnccl.so.2 (colons between them)")


def run(library, name="all_reduce", **environment):
    return nccl_tests.Run(name, *ARGS, environment=dict(
        LD_LIBRARY_PATH=str(library.parent), NCCL_PROFILER_PLUGIN=str(hook.PLUGIN),
        NCCL_DEBUG="VERSION", **environment))


class Watch(threading.Thread):
    """Keeps the textfile that knew most: a job's series go soon after the job."""

    def __init__(self, agent):
        super().__init__(daemon=True)
        self.agent, self.over, self.best, self.error = agent, False, agent.series(), None
        self.start()

    def look(self):
        series = self.agent.series()
        if series.sum("nccl_operations_total") >= self.best.sum("nccl_operations_total"):
            self.best = series

    def run(self):
        while not self.over and not self.error:
            try:
                self.look()
            except AssertionError as error:
                self.error = error
            time.sleep(0.1)

    def end(self):
        self.agent.fresh()
        self.over = True
        self.join()
        if self.error:
            raise self.error
        return self.best


def version(output):
    found = re.search(r"NCCL version ([\d.]+)", output)
    return found[1] if found else "?"


def test_every_release_gives_what_it_can_and_is_not_hurt():
    gpu.need_gpus(2)
    nccl_tests.program("all_reduce")
    rows = []
    for library in libraries():
        for options in ((), ("--kernel-timer",)):
            agent = nbt.Agent("--no-ui", *options)
            watch = Watch(agent)
            job = run(library)
            assert "Out of bounds values : 0 OK" in job.output, job.output
            series = watch.end()
            calls = series.sum("nccl_operations_total", operation="AllReduce")
            timed = series.sum("nccl_timed_operations_total")
            seconds = series.sum("nccl_timed_seconds_total")
            lost = series.sum("nccl_bpftrace_events_lost_total")
            for family in ("nccl_bpftrace_events_lost_total",
                           "nccl_bpftrace_invalid_timings_total"):
                print(version(job.output), *options, family.split("_")[2],
                      {labels["reason"]: value for labels, value in series.get(family) if value})
            sources = sorted({labels["timing"] for labels, _ in
                              series.get("nccl_communicator_info")})
            rows.append((version(job.output), " ".join(options) or "-", int(calls), int(timed),
                         f"{seconds / timed * 1e6:.1f} µs" if timed else "-", " ".join(sources),
                         int(lost)))
            agent.stop()
            number = [int(part) for part in version(job.output).split(".")[:2]]
            assert calls > 0
            assert (timed > 0) == (number >= [2, 28] or (bool(options) and number >= [2, 27])), rows
            assert ("kernel_timer" in sources) == (bool(options) and number < [2, 31]), rows
            invalid = series.sum("nccl_bpftrace_invalid_timings_total")
            assert invalid <= timed / 1000, (invalid, rows)
    gpu.table(("NCCL", "asked for", "AllReduce calls", "timed", "mean", "timing", "lost"), rows)
