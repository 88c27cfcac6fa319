# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nccl-tests' programs as a job: where they are, one run of them, what it measured."""
import os
import re
import subprocess
import threading
from pathlib import Path

import nbt

ROW = re.compile(r"^\s+(\d+)\s+(\d+)\s+\w+\s+\w+\s+-?\d+\s+(\S+)\s+(\S+)\s+(\S+)\s+\S+\s+(\S+)", re.M)


def program(name):
    """NCCL_TESTS names the directory with all_reduce_perf and the others, built for the NCCL here."""
    directory = os.environ.get("NCCL_TESTS")
    if not directory:
        nbt.skip("NCCL_TESTS does not name a directory with nccl-tests' programs")
    path = Path(directory) / f"{name}_perf"
    if not path.exists():
        nbt.skip(f"{path} is not there")
    return path


def inspector():
    path = os.environ.get("NCCL_INSPECTOR")
    if not path or not Path(path).exists():
        nbt.skip("NCCL_INSPECTOR does not name NVIDIA's libnccl-profiler-inspector.so")
    return path


class Run:
    """One run: .rows is {bytes: (µs, algbw, busbw, µs in place)} of its last cycle, .cycles
    {bytes: [such]} of all."""

    def __init__(self, name, *args, environment=(), seconds=120, to_the_end=True, cpus=None):
        """Not to the end: it is killed when it has told all, for Inspector waits for its thread that
        sleeps up to its dump interval. cpus: the processors that it may run on, if not all."""
        process = subprocess.Popen(
            ["stdbuf", "-oL", program(name), *map(str, args)], text=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            preexec_fn=cpus and (lambda: os.sched_setaffinity(0, cpus)),
            env=dict(os.environ, **dict(environment)))
        guard = threading.Timer(seconds, process.kill)
        guard.start()
        self.output, told = "", False
        for line in process.stdout:
            self.output += line
            told = told or line.startswith("# Avg bus bandwidth")
            if told and not to_the_end:
                process.kill()
        status = process.wait()
        guard.cancel()
        assert told and (not status or not to_the_end), (status, self.output)
        self.cycles = {}
        for size, _, *numbers in ROW.findall(self.output):
            self.cycles.setdefault(int(size), []).append(tuple(map(float, numbers)))
        self.rows = {size: cycles[-1] for size, cycles in self.cycles.items()}
        assert self.rows, self.output
