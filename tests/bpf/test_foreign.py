# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
--foreign-plugins: operations and GPU times from a profiler plugin that is not ours, in simulated
jobs against the account of their GPUs; and tables that are none.
"""
import json
import math
import os
import re
import shutil
import signal
import time
from collections import defaultdict
from pathlib import Path

import nbt
from hook import PLUGIN as OURS
from plugged import Plugged
from servers import fake_gpus, gpu_uuid

FOREIGN = nbt.BUILD / "tests/plugin/libforeign.so"
RANKS = 4
WARM = "comm a config; comm b config; loop 10 { allreduce a 10 fp32; allgather b 10 fp32; " \
       "synchronize; pause 50; barrier }; @0 print warm; wait; "
WORK = "loop 20 { rate 20; barrier; compute 3; allreduce a 25000000 fp32 x 2; " \
       "allgather a 5000000 bf16; reducescatter b 5000000 fp16; broadcast a 3000000 fp64; " \
       "reduce b 20000 fp32; group { allreduce b 300 fp32; allreduce b 5000000 fp32 }; " \
       "synchronize }"


def pid_words(pids):
    return [word for pid in pids for word in ("--pid", pid)]


def told(series, family):
    """{(UUID, operation): sum}"""
    sums = defaultdict(float)
    for labels, value in series.get(family):
        sums[labels["UUID"], labels["operation"]] += value
    return sums


class Followed:
    """A job with the other plugin, an agent that follows it, and what the agent says since go()."""

    def __init__(self, script=WORK, nccl=None, agent_args=("--foreign-plugins",), warm=WARM,
                 ranks=RANKS, plugin=FOREIGN, agent_first=False, environment=(), **agent):
        env = [f"{name}={value}" for name, value in dict(environment).items()]
        self.sim = nbt.Sim(warm + script, ranks=ranks, nccl=nccl, gpu=True, plugin=plugin,
                           args=["--gpus-per-node", ranks], prefix=["env", *env] if env else ())
        self.args, self.agent_args = agent, agent_args
        if agent_first:
            self.start_agent()
        self.sim.go()
        assert self.sim.process.stdout.readline() == "warm\n"
        if not agent_first:
            self.start_agent()

    def start_agent(self):
        self.agent = nbt.Agent(*self.agent_args, *pid_words(self.sim.pids),
                               preexec_fn=fake_gpus(len(self.sim.pids)), **self.args)

    def wait_said(self, what):
        """A line of the agent about each process."""
        nbt.wait_for(lambda: all(re.search(rf"process {pid}: profiler plugin \S+: {what}",
                                           self.agent.output()) for pid in self.sim.pids),
                     f"{what} in: {self.agent.output()}", 15)

    def work(self):
        self.before = self.agent.fresh(2)
        self.since_ns = time.monotonic_ns()
        self.sim.go()
        self.sim.wait_done()
        self.after = self.agent.fresh(3)

    def risen(self, family):
        old = told(self.before, family)
        return {key: value - old[key] for key, value in told(self.after, family).items()
                if value != old[key]}

    def truth(self):
        sums = defaultdict(lambda: [0, 0])
        for line in self.sim.truth():
            if line["host_ns"] > self.since_ns:
                total = sums[gpu_uuid(self.sim.pids.index(line["pid"])), line["operation"]]
                total[0] += 1
                total[1] += (line["last_ns"] - line["first_ns"]) / 1e9
        return sums

    def expect_true(self):
        truth, operations = self.truth(), self.risen("nccl_timed_operations_total")
        seconds = self.risen("nccl_timed_seconds_total")
        wanted = {key: n for key, (n, _) in truth.items()}
        assert operations == wanted, f"told {operations}, true {wanted}"
        worst = max(abs(seconds[key] / true - 1) for key, (_, true) in truth.items())
        assert worst < 0.001, (worst, seconds, truth)
        assert self.after.sum("nccl_bpftrace_events_lost_total") == 0, self.lost()
        print(f"     {sum(wanted.values())} operations, seconds off by at most {100 * worst:.4f} %")

    def lost(self):
        return [x for x in self.after.get("nccl_bpftrace_events_lost_total") if x[1]]


def test_times_of_a_late_tracer():
    """Its communicators were made before the tracer came: their calls tell which they are."""
    for nccl in ("2.27.7", "2.28.9", "2.30.7"):
        job = Followed(WARM + WORK, nccl=nccl, warm="comm a; comm b; @0 print warm; wait; ") \
            if False else Followed(nccl=nccl)
        job.wait_said(f"followed .ABI v{dict(zip(('2.27.7', '2.28.9', '2.30.7'), (4, 5, 6)))[nccl]}")
        nbt.cleanup()
