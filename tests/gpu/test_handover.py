# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Handing over in a PyTorch job on two GPUs: its probes go while it calls, and no count is wrong."""
import re
import sys
from pathlib import Path

import nbt
from hook import PLUGIN
from probed import is_probed

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu  # noqa: E402


def library(pid):
    maps = Path(f"/proc/{pid}/maps").read_text()
    return re.search(r"\S*/libnccl\.so\.2$", maps, re.M)[0]


def test_handed_over_while_it_calls():
    gpu.need_gpus(2)
    if not PLUGIN.exists():
        nbt.skip("the plugin is not built")
    job = gpu.TorchJob(2, 2000, "eager", {"NCCL_PROFILER_PLUGIN": str(PLUGIN)})
    pids = [int(pid) for pid in {c["pid"] for c in job.communicators()}]
    path = library(pids[0])
    agent = nbt.Agent("--handover-after", 1)

    def probed(function="ncclAllReduce"):
        return [is_probed(pid, function, path) for pid in pids]

    assert all(probed()), "no probes"
    job.tell("go")
    nbt.wait_for(lambda: not any(probed()), "the probes are gone", 30, 0.01)
    assert all(probed("ncclSend"))
    assert not (job.directory / "done.0").exists(), "it was over before"
    job.wait("done")
    series = agent.fresh(2)
    rows = []
    for rank, account in enumerate(job.accounts()):
        for operation in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "AlltoAll",
                          "Send", "Recv"):
            called = sum(n for name, n in account.items()
                         if name.split("/")[1].replace("_", "") == operation.lower())
            rows.append((rank, operation, called, int(series.sum(
                "nccl_operations_total", rank=str(rank), operation=operation))))
    gpu.table(("rank", "operation", "by the script since attach", "counted"), rows)
    lost = series.sum("nccl_bpftrace_events_lost_total")
    job.tell("end")
    assert job.process.wait(60) == 0, job.output()
    assert all(want == got for *_, want, got in rows) and not lost, f"counts differ, {lost} lost"
