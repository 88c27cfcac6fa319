# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Are the GPU times true? nccl-tests' own times against those of a recording, size by size."""
import json
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

ARGS = ("-b", "1K", "-e", "64M", "-f", 4, "-t", 2, "-g", 1, "-n", 2000, "-w", 20, "-c", 0,
        "-N", 2)  # the plugin may still sleep in the first cycle
LARGE = 16 << 20
PROGRAMS = {"all_reduce": "AllReduce", "all_gather": "AllGather",
            "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast", "alltoall": "AlltoAll",
            "sendrecv": "Send"}


def recorded(name):
    """nccl-tests' run, and {size: [(ns, bus bytes)]} of the launches that were timed meanwhile."""
    path = nbt.tempdir() / "recording"
    agent = subprocess.Popen([nbt.AGENT, "record", "-o", path, "--format", "jsonl"],
                             stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    nbt.defer(nbt.end, agent)
    nbt.wait_for(path.exists, "the recording", 20)
    run = nccl_tests.Run(name, *ARGS, environment={"NCCL_PROFILER_PLUGIN": str(hook.PLUGIN)})
    nbt.end(agent)
    found = defaultdict(list)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert lines[-1]["kind"] == "end", lines[-1]
    for line in lines:
        if line["kind"] != "launch" or line["duration_ns"] is None or not line["complete"]:
            continue
        if line["form"] == "pair":
            one = line["operations"][0]
            size = one["count"] * one["type_bytes"]
            found[size].append((line["duration_ns"], size))
        elif line["operation"] == PROGRAMS[name]:
            found[line["bytes"]].append((line["duration_ns"], line["bus_bytes"]))
    return run, found


def test_gpu_times_against_nccl_tests():
    gpu.need_gpus(2)
    nccl_tests.program("all_reduce")
    rows, wrong = [], []
    for name in PROGRAMS:
        run, found = recorded(name)
        for size, (out_of_place, _, bus, in_place) in run.rows.items():
            samples = found.get(size, [])
            if not samples:
                wrong.append((name, size, "no launch was timed"))
                continue
            # In place NCCL leaves out a rank's copy to itself: with two ranks that is no AlltoAll.
            truth = out_of_place if name == "alltoall" else (out_of_place + in_place) / 2
            ours = statistics.median(ns for ns, _ in samples) / 1e3
            bandwidth = statistics.median(b / ns for ns, b in samples)
            expected = bus * out_of_place / truth
            rows.append((name, size, len(samples), f"{truth:.2f}", f"{ours:.2f}",
                         f"{ours - truth:+.2f}", f"{ours / truth:.3f}", f"{expected:.1f}",
                         f"{bandwidth:.1f}"))
            if size >= LARGE and not (0.98 <= ours / truth <= 1.02 and
                                      0.97 <= bandwidth / expected <= 1.03):
                wrong.append((name, size, truth, ours))
            if size < LARGE and abs(ours - truth) > 2:
                wrong.append((name, size, truth, ours))
    gpu.table(("program", "bytes", "timed", "nccl-tests, µs", "GPU, µs", "difference", "ratio",
               "busbw, GB/s", "ours"), rows)
    assert not wrong, wrong
