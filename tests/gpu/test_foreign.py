# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""NVIDIA's Inspector, followed by --foreign-plugins, in nccl-tests' all_reduce_perf on two GPUs."""
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
import gpu  # noqa: E402
import nccl_tests  # noqa: E402

MIB = 1 << 20
ROUNDS = int(os.environ.get("ROUNDS", "5"))


def all_reduce(low, high, n, factor=2, **environment):
    """With Inspector in it, which writes its own files elsewhere."""
    with tempfile.TemporaryDirectory() as directory:
        return nccl_tests.Run(
            "all_reduce", "-b", low, "-e", high, "-f", factor, "-t", 2, "-g", 1, "-n", n, "-w", 50,
            "-c", 0, to_the_end=False, environment={
                "NCCL_PROFILER_PLUGIN": nccl_tests.inspector(), "NCCL_INSPECTOR_ENABLE": "1",
                "NCCL_INSPECTOR_DUMP_DIR": directory,
                "NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS": "30000000", **environment})


class Recorder:
    def __init__(self):
        self.file = nbt.tempdir() / "recording"
        self.process = subprocess.Popen(
            [nbt.AGENT, "record", "-o", self.file, "--foreign-plugins", "--ring-size", "512M"],
            stderr=subprocess.PIPE, text=True)
        nbt.defer(nbt.end, self.process)
        assert self.process.stderr.readline().startswith("nccl-bpftrace: recording to ")

    def stop(self):
        assert nbt.end(self.process) == 0
        self.said = self.process.stderr.read()
        self.lines = [json.loads(line) for line in self.file.read_text().splitlines()]
        return self


def test_times_of_inspector():
    """Against nccl-tests' own; from 16 MB on a launch's time is its operation's. In the first second,
    and where NCCL's progress thread does not keep up with its traps, nothing is timed: told, not
    asserted, below 64 MB."""
    gpu.need_gpus(2)
    nccl_tests.inspector()
    all_reduce("16M", "16M", 100)
    alone = all_reduce("16M", "256M", 2000, factor=4)
    recorder = Recorder()
    run = all_reduce("16M", "256M", 10000, factor=4)
    recorder.stop()
    print(f"     {recorder.said.strip()}")
    assert "followed (ABI v" in recorder.said, recorder.said
    told, calls, durations = Counter(), Counter(), defaultdict(list)
    for line in recorder.lines:
        if line["kind"] == "call" and line["operation"] == "AllReduce":
            calls[line["count"] * 4] += 1
        for operation in line["operations"] if line["kind"] == "launch" else []:
            size = operation["count"] * operation["type_bytes"]
            told[size] += 1
            assert operation["algorithm"] and operation["protocol"], operation
            if line["duration_ns"]:
                assert line["source"] == "kernel_timer", line
                durations[size].append(line["duration_ns"] / 1e3)
    rows, errors = [], {}
    for size in run.rows:
        times = durations[size]
        truth = (run.rows[size][0] + run.rows[size][3]) / 2
        mean = statistics.mean(times) if times else float("nan")
        errors[size] = mean / truth - 1
        rows.append((f"{size // MIB} MB", f"{(alone.rows[size][0] + alone.rows[size][3]) / 2:.1f} µs",
                     f"{truth:.1f} µs", f"{mean:.1f} µs", f"{100 * errors[size]:+.2f} %",
                     f"{100 * len(times) / max(told[size], 1):.1f} %", told[size], calls[size]))
    gpu.table(("size", "Inspector alone", "followed", "told", "off by", "of them timed",
               "operations told", "calls"), rows)
    for number, size in enumerate(run.rows):  # of the first, some are called before it is followed
        assert told[size] == calls[size] > 0 or (not number and calls[size] > told[size] > 0), \
            (size, told[size], calls[size])
        if durations[size]:
            assert abs(errors[size]) < 0.05, (size, errors[size])
    for size in (64 * MIB, 256 * MIB):
        assert len(durations[size]) > 0.9 * told[size], (size, len(durations[size]), told[size])
    assert {line["rank"] for line in recorder.lines if line["kind"] == "launch"} >= {0, 1}


def test_cost_of_following():
    """Ratios to Inspector alone: medians with their 95 % interval, printed."""
    gpu.need_gpus(2)
    nccl_tests.inspector()
    sizes = ((8, "8"), (MIB, "1M"), (16 * MIB, "16M"), (64 * MIB, "64M"))
    alone, followed = defaultdict(list), defaultdict(list)
    for _ in range(ROUNDS):
        for size, text in sizes:
            alone[size].append(all_reduce(text, text, 1000).rows[size])
        agent = nbt.Agent("--foreign-plugins", "--no-ui", "--ring-size", "512M")
        for size, text in sizes:
            followed[size].append(all_reduce(text, text, 1000).rows[size])
        agent.stop()
    gpu.table(("all_reduce_perf", "Inspector alone", "followed", "ratio"), [
        (text, f"{statistics.median(r[0] for r in alone[size]):.1f} µs",
         f"{statistics.median(r[0] for r in followed[size]):.1f} µs",
         gpu.ratio_text([(b[0] + b[3]) / (a[0] + a[3])
                         for a, b in zip(alone[size], followed[size])]))
        for size, text in sizes])
