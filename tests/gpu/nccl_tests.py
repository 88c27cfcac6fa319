# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nccl-tests' programs as a job: where they are, one run of them, what it measured."""
import os
import re
import resource
import subprocess
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
    """One run: .rows is {bytes: (µs, algbw, busbw, µs in place)}, .cpu its CPU seconds."""

    def __init__(self, name, *args, environment=(), seconds=120):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.output = subprocess.run(
            [program(name), *map(str, args)], text=True, timeout=seconds, check=True,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=dict(os.environ, **dict(environment))).stdout
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        self.cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        self.rows = {int(size): (float(time), float(alg), float(bus), float(in_place))
                     for size, _, time, alg, bus, in_place in ROW.findall(self.output)}
        assert self.rows, self.output
