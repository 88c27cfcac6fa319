# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A PyTorch job of two ranks in which something goes wrong: launch.py DIR STEPS SCENARIO[=SECONDS].

Each rank makes ready.<rank> (its pid) when NCCL is warm and waits for `go`; then STEPS healthy steps
of one all_reduce, then the scenario, of which rank 1 is the culprit unless it says otherwise. The
rank that does the harm makes fault.<rank>: CLOCK_MONOTONIC in ns, and the number of the operation
that is struck, counted from the communicator's first. No scenario ends by itself: the job is killed.
"""
import ctypes
import os
import random
import signal
import sys
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from meeting import DIR, RANK, say, wait

STEPS = int(sys.argv[2])
SCENARIO, _, SECONDS = sys.argv[3].partition("=")
NUMEL = 1 << 20
CULPRIT = 1
WARM = 10
EVER = 3600  # seconds
AHEAD = 8  # steps that a host may be ahead of its GPU


class Job:
    def __init__(self):
        # twice as large as what is sent: a peer that is sent too much writes into memory of ours
        self.memory = torch.zeros(2 * NUMEL, device="cuda")
        self.x = self.memory[:NUMEL]
        self.calls = 0
        self.pending = []

    def all_reduce(self, x=None):
        self.calls += 1
        dist.all_reduce(self.x if x is None else x)

    def broadcast(self):
        dist.broadcast(self.x, src=0)

    def step(self, hz=20):
        self.all_reduce()
        if SCENARIO == "order":
            self.broadcast()
        torch.cuda.synchronize()
        time.sleep(1 / hz)

    def run(self, steps, hz=20):
        for _ in range(steps):
            self.step(hz)

    def run_on(self):
        while True:
            self.step(20)

    def fault(self, number=None):
        number = self.calls + 1 if number is None else number
        say("fault", f"{time.monotonic_ns()} {number}")

    def call_and_wait(self):
        self.all_reduce()
        torch.cuda.synchronize()


def cycles_per_ms():
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(1_000_000)
    begin.record()
    torch.cuda._sleep(100_000_000)
    end.record()
    end.synchronize()
    return 100_000_000 / begin.elapsed_time(end)


def missing(job):
    """V1: the culprit's host sleeps before its call."""
    if RANK == CULPRIT:
        job.fault()
        time.sleep(EVER)
    job.call_and_wait()


def stopped(job):
    """V8: SIGSTOP."""
    if RANK == CULPRIT:
        job.fault()
        os.kill(os.getpid(), signal.SIGSTOP)
    job.call_and_wait()


def behind_a_kernel(job):
    """V2, V8: both call, and one GPU works on something else before."""
    if RANK == CULPRIT:
        for _ in range(60):  # ten seconds each: a kernel of its own that can be counted on
            torch.cuda._sleep(int(10_000 * job.cycles))
        job.fault()
    job.call_and_wait()


def straggler(job):
    """V3: the culprit's host comes 50 ms later to each step, which takes 45 to 55 ms."""
    if RANK == CULPRIT:
        job.fault(0)
    while True:
        time.sleep(random.uniform(0.045, 0.055) + (0.05 if RANK == CULPRIT else 0))
        job.call_and_wait()


def only_straggler(job):
    """V3: the same, and the other does nothing but wait for it."""
    if RANK == CULPRIT:
        job.fault(0)
    while True:
        if RANK == CULPRIT:
            time.sleep(0.05)
        job.call_and_wait()


def straggler_on_gpu(job):
    """V3: the culprit's GPU computes 50 ms longer; hosts run ahead and are never late."""
    if RANK == CULPRIT:
        job.fault(0)
    while True:
        if RANK == CULPRIT:
            torch.cuda._sleep(int(50 * job.cycles))
        job.all_reduce()
        event = torch.cuda.Event()
        event.record()
        job.pending.append(event)
        if len(job.pending) > AHEAD:
            job.pending.pop(0).synchronize()


def count(job):
    """V4: rank 0 sends twice the elements; what NCCL makes of that is not waited for."""
    if RANK == CULPRIT:
        job.fault()
    job.all_reduce(job.memory if RANK == 0 else job.x)
    time.sleep(EVER)


def datatype(job):
    """V4: the same count of another type of the same size: nothing hangs, and the job goes on."""
    if RANK == CULPRIT:
        job.fault()
    job.all_reduce(job.x.view(torch.int32) if RANK == CULPRIT else job.x)
    torch.cuda.synchronize()
    job.run_on()


def order(job):
    """V4: one rank reduces and then broadcasts, the other the other way round."""
    if RANK == CULPRIT:
        job.fault(0)
        job.broadcast()
        job.all_reduce()
    else:
        job.all_reduce()
        job.broadcast()
    time.sleep(EVER)


def late_attach(job):
    """V5: tells of steps 50 and 80, at which the test attaches; a true mismatch at the end."""
    job.run(50, hz=10)
    say("fifty")
    job.run(30, hz=10)
    say("eighty")
    wait("more")  # rank 1 has been let into the agent's cgroup
    if RANK == CULPRIT:
        ctypes.CDLL(str(DIR / "later.so"))  # a mapping that the agent is told of
    job.run(120, hz=10)
    datatype(job)


def idle(_job):
    """V7: nobody calls."""
    time.sleep(EVER)


def pause(job):
    """V7: all pause at one number, then go on."""
    time.sleep(float(SECONDS))
    job.run_on()


def checkpoint(job):
    """V7: rank 0 is busy for a while, the other waits in the next collective."""
    if RANK == 0:
        job.fault()
        time.sleep(float(SECONDS))
    job.run_on()


SCENARIOS = {f.__name__: f for f in (missing, stopped, behind_a_kernel, straggler, only_straggler,
                                     straggler_on_gpu, count, datatype, order, late_attach, idle,
                                     pause, checkpoint)}


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device, timeout=timedelta(hours=2))
    job = Job()
    job.run(WARM)
    job.cycles = cycles_per_ms()
    say("ready", str(os.getpid()))
    wait("go")
    job.run(STEPS)
    SCENARIOS[SCENARIO](job)


main()
