# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tracer and its plugin cost a PyTorch DDP job on two GPUs: two such jobs stand side by
side, one with the plugin, and train in turns, with and without a tracer."""
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import test_plugin as hook  # noqa: E402

ROUNDS = int(os.environ.get("ROUNDS", "20"))
STEPS = 25  # of a round: ddp_job.py


class Job:
    def __init__(self, plugin):
        self.directory, self.number = nbt.tempdir(), 0
        self.log = open(self.directory / "log", "w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
             HERE / "ddp_job.py", self.directory], stdin=subprocess.DEVNULL, stdout=self.log,
            stderr=self.log, env=dict(os.environ, NCCL_PROFILER_PLUGIN=plugin, OMP_NUM_THREADS="1"))
        nbt.defer(nbt.end, self.process)
        nbt.wait_for(lambda: all((self.directory / f"ready.{r}").exists() for r in (0, 1)),
                     f"ready; {(self.directory / 'log').read_text()[-2000:]}", 120)

    def round(self):
        (self.directory / f"round.{self.number}").touch()
        done = self.directory / f"times.{self.number}"
        nbt.wait_for(done.exists, f"round {self.number}", 60, 0.005)
        self.number += 1
        return json.loads(done.read_text())

    def end(self):
        (self.directory / "end").touch()
        assert self.process.wait(60) == 0, (self.directory / "log").read_text()[-2000:]


def traced(job):
    agent = nbt.Agent("--no-ui", "--handover-after", 1)
    try:
        job.round()  # the plugin wakes, probes are handed over
        return job.round()
    finally:
        agent.stop()


def test_cost_of_ddp_steps():
    gpu.need_gpus(2)
    bare, plugin = Job("none"), Job(str(hook.PLUGIN))
    settings = {
        "plugin, no tracer": (plugin.round, 1.005),
        "plugin and tracer": (lambda: traced(plugin), 1.005),
    }
    bases, runs = [], {name: [] for name in settings}
    for number in range(ROUNDS):
        bases.append(bare.round())
        names = list(settings)
        if number % 2:
            names.reverse()
        for name in names:
            runs[name].append(settings[name][0]())
    bare.end()
    plugin.end()
    rows = [("nothing", f"{statistics.median(b['seconds'] for b in bases) * 1000 / STEPS:.2f} ms",
             f"{statistics.median(b['cpu'] for b in bases):.2f} s", ""),
            ("nothing, the round before",
             *(gpu.ratio_text([a[what] / b[what] for a, b in zip(bases, bases[1:])])
               for what in ("seconds", "cpu")), "")]
    for name, (_, goal) in settings.items():
        rows.append((name, gpu.ratio_text([r["seconds"] / b["seconds"]
                                           for r, b in zip(runs[name], bases)]),
                     gpu.ratio_text([r["cpu"] / b["cpu"] for r, b in zip(runs[name], bases)]), goal))
    gpu.table(("DDP, 12 layers of 4096", "step", "CPU of the job", "goal"), rows)
