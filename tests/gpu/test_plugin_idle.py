# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plugin in a PyTorch job on two GPUs, asleep and awake: the job does not notice."""
import os
import sys
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import test_plugin as hook  # noqa: E402


def threads(pid):
    return [(Path(task) / "comm").read_text().strip()
            for task in Path(f"/proc/{pid}/task").iterdir()]


def run_job(between):
    gpu.need_gpus(2)
    if not hook.PLUGIN.exists():
        nbt.skip("the plugin is not built")
    job = gpu.TorchJob(2, 50, "eager", {"NCCL_PROFILER_PLUGIN": str(hook.PLUGIN)})
    for communicator in job.communicators():
        assert "nccl-bpftrace" in threads(communicator["pid"]), "the plugin is not loaded"
    agent = nbt.Agent()
    between()
    job.tell("go")
    job.wait("done")
    assert agent.fresh().sum("nccl_operations_total", rank="0") == 3050
    job.tell("end")
    assert job.process.wait(60) == 0, job.output()


def test_job_runs_with_the_plugin_asleep():
    run_job(lambda: None)


def test_job_runs_with_the_plugin_awake():
    """A probe on the hook raises its semaphore, as a tracer would: GPU timing is on."""
    def wake():
        found = hook.note()
        nbt.defer(os.close, hook.open_uprobe(int(found[3], 16), int(found[4], 16)))
    run_job(wake)
