# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CUDA graphs of a PyTorch job on two GPUs: what is captured, what is replayed (case C10)."""
import sys
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import test_plugin as hook  # noqa: E402


def graphs(environment=(), args=()):
    gpu.need_gpus(2)
    job = gpu.TorchJob(2, 0, "eager", environment, program="graph_job.py")
    agent = nbt.Agent(*args, *nbt.pid_words({comm["pid"] for comm in job.communicators()}))
    job.tell("go")
    job.wait("done")
    series = agent.fresh(2)
    rows, unresolved = [], 0
    for rank, account in enumerate(job.accounts()):
        unresolved += account.pop("unresolved")
        for mode, operations in account.items():
            for operation, calls in operations.items():
                counted = series.sum("nccl_operations_total", rank=str(rank), mode=mode,
                                     operation=operation)
                rows.append((rank, mode, operation, calls, int(counted)))
            rows.append((rank, mode, "any", sum(operations.values()), int(
                series.sum("nccl_operations_total", rank=str(rank), mode=mode))))
    rows.append(("all", "launches of a graph from before", "unresolved", unresolved, int(
        series.one("nccl_bpftrace_graph_launches_unresolved_total"))))
    gpu.table(("rank", "mode", "operation", "by the script since attach", "counted"), rows)
    job.tell("end")
    nbt.wait_for(lambda: job.process.poll() is not None, "the job's end", 60)
    assert job.process.returncode == 0, job.output()
    assert all(want == got for *_, want, got in rows), "counts differ"


def test_captured_and_replayed():
    graphs()


def test_captured_and_replayed_beside_the_plugin():
    """The plugin awake and timing every launch it may: it must not touch a stream under capture."""
    graphs({"NCCL_PROFILER_PLUGIN": str(hook.PLUGIN)}.items(), ("--gpu-timing-budget", "100"))
