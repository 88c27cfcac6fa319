# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every call is counted, once, with its bytes; every record arrives or is counted as lost."""
import json
import os
import signal
import subprocess
import time
from pathlib import Path

import nbt
from caller import Caller

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
EVENTS = "nccl_bpftrace_events_total"
LOST = "nccl_bpftrace_events_lost_total"
CALLS = "nccl_operations_total"
BYTES = "nccl_operation_bytes_total"
SEQUENCE = "nccl_operation_sequence"

# ncclDataType_t of NCCL 2.30
SIZES = {"int8": 1, "uint8": 1, "int32": 4, "uint32": 4, "int64": 8, "uint64": 8, "fp16": 2,
         "fp32": 4, "fp64": 8, "bf16": 2, "fp8e4m3": 1, "fp8e5m2": 1}

KEYS_PER_PROCESS = 8192
COUNTERS = 65536


def agent_of(*jobs, args=()):
    """One that sees these jobs alone: others may run on this machine, and events have no label."""
    pids = [pid for job in jobs for pid in getattr(job, "pids", None) or [job.pid]]
    return nbt.Agent(*args, *nbt.pid_words(pids))


def counts(series, **labels):
    """{operation: calls}"""
    found = {}
    for pairs, value in series.get(CALLS, **labels):
        found[pairs["operation"]] = found.get(pairs["operation"], 0) + int(value)
    return found


def test_million_calls_with_the_agent_stopped():
    """The smallest ring overflows: what is lost is counted, and the counters do not care."""
    n = 1_000_000
    job = Caller()
    agent = agent_of(job, args=["--ring-size", "4K"])
    job.make("init", 0, 8, 5)
    agent.until(lambda s: s.one(EVENTS) == 1, "the creation's record")
    job.say("call", "ncclAllReduce", 0, 10, 7, n)
    agent.until(lambda s: s.sum(CALLS) > 0, "the first calls")
    os.kill(agent.pid, signal.SIGSTOP)
    nbt.defer(os.kill, agent.pid, signal.SIGCONT)
    time.sleep(5)  # not a wait: this is how long it is stopped
    os.kill(agent.pid, signal.SIGCONT)
    job.answer()
    series = agent.fresh(2)
    assert series.one(LOST, reason="ring_full") > 0, "nothing was lost: the test shows nothing"
    assert series.one(EVENTS) + series.sum(LOST) == n + 1  # with the creation
    assert series.sum(LOST) == series.one(LOST, reason="ring_full")
    assert series.one(CALLS, rank="5", operation="AllReduce") == n
    assert series.one(BYTES, rank="5", operation="AllReduce") == n * 10 * 4


def test_bcast_and_pnccl_count_once():
    job = Caller()
    agent = agent_of(job)
    job.make("init", 0, 8, 5)
    job.do("call", "ncclBcast", 0, 100, 7, 1)
    job.do("call", "pncclAllReduce", 0, 100, 7, 1)
    series = agent.until(lambda s: s.sum(CALLS) >= 2, "both calls")
    assert counts(agent.fresh()) == {"Broadcast": 1, "AllReduce": 1}
    assert series.one(BYTES, operation="Broadcast") == 400


def test_every_datatype():
    job = Caller()
    agent = agent_of(job)
    comms = {}
    for number, name in enumerate(SIZES):
        comms[name] = job.make("init", number, 8, 5)
        job.do("call", "ncclAllReduce", number, 1000 + number, number, 3)
        job.do("call", "ncclAllGather", number, 1000 + number, number, 2)
    last = len(SIZES) * 5
    series = agent.until(lambda s: s.sum(CALLS) == last, "all calls")
    for number, (name, size) in enumerate(SIZES.items()):
        labels = {"comm": comms[name].hash}
        count = 1000 + number
        assert counts(series, **labels) == {"AllReduce": 3, "AllGather": 2}, name
        assert series.one(BYTES, operation="AllReduce", **labels) == 3 * count * size, name
        assert series.one(BYTES, operation="AllGather", **labels) == 2 * count * size * 8, name


def test_unknown_datatypes_add_no_bytes():
    """A call with a type that nobody knows is a call; how large it was is not known."""
    job = Caller()
    agent = agent_of(job)
    strange = [12, 15, 16, 99, 255, 256, 2**31 - 1]
    comm = job.make("init", 0, 8, 5)
    for number in strange:
        job.do("call", "ncclAllReduce", 0, 1000, number, 1)
    job.do("call", "ncclAllReduce", 0, 2**64 - 1, 8, 1)  # count x 8 overflows
    job.do("call", "ncclAllReduce", 0, 2**61 + 1, 8, 1)  # and would look like 8 bytes
    n = len(strange) + 2
    series = agent.until(lambda s: s.sum(CALLS) == n, "all calls")
    assert series.one(CALLS, comm=comm.hash, operation="AllReduce") == n
    assert series.get(BYTES) == []
    job.do("call", "ncclAllReduce", 0, 1000, 7, 1)
    series = agent.until(lambda s: s.sum(CALLS) == n + 1, "one more")
    assert series.one(BYTES) == 4000


def test_threads_with_verified_records():
    """A program that is preempted between its steps must not mix two records."""
    seconds = 60 if os.environ.get("NBT_LONG") else 10
    job = Caller(prefix=["taskset", "-c", "0,1"])
    agent = agent_of(job, args=["--verify-records", "--ring-size", "16M"])
    comms = [job.make("init", v, 8, 2 + v) for v in (0, 1)]
    job.do("hammer", 64)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert agent.series().one(LOST, reason="bad_record") == 0
        time.sleep(0.5)
    made = int(job.do("stop")[0])
    assert made > 10000, made
    series = agent.until(lambda s: s.sum(CALLS) == made, f"{made} calls counted", 10)
    assert series.one(LOST, reason="bad_record") == 0
    series = agent.fresh()
    assert series.one(EVENTS) + series.sum(LOST) == made + len(comms)
    total = [series.one(CALLS, comm=c.hash, rank=c.rank) for c in comms]
    assert sum(total) == made and min(total) > 0, total


def test_pid_scopes_exactly():
    jobs = [Caller() for _ in range(3)]
    agent = agent_of(jobs[0], jobs[2])
    for n, job in enumerate(jobs):
        job.make("init", 0, 8, n)
        job.do("call", "ncclAllReduce", 0, 10, 7, 100 + n)
    series = agent.until(lambda s: s.sum(CALLS) >= 202, "calls of both")
    series = agent.fresh()
    assert {p["rank"]: int(v) for p, v in series.get(CALLS)} == {"0": 100, "2": 102}
    assert series.one(EVENTS) == 204  # of the third not even records
    assert series.sum(LOST) == 0
    assert {p["pid"] for p, _ in series.get("nccl_bpftrace_process_info")} == \
        {str(jobs[0].pid), str(jobs[2].pid)}


def cgroup2():
    for line in Path("/proc/mounts").read_text().splitlines():
        if line.split()[2] == "cgroup2":
            return Path(line.split()[1])
    return None


def test_cgroup_scopes_exactly():
    """Processes in the cgroup and below it, those that come later too; no others."""
    root = cgroup2()
    if not root:
        nbt.skip("no cgroup2 file system is mounted")
    top = root / f"nccl-bpftrace-test.{os.getpid()}"
    for path in (top, top / "below"):
        path.mkdir()
        nbt.defer(path.rmdir)
    inside, below, outside = jobs = [Caller() for _ in range(3)]
    (top / "cgroup.procs").write_text(str(inside.pid))
    (top / "below/cgroup.procs").write_text(str(below.pid))
    agent = nbt.Agent("--cgroup", top)
    later = Caller(prefix=["sh", "-c", f'echo $$ >"{top}/cgroup.procs"; exec "$@"', "sh"])
    agent.until(lambda s: s.one("nccl_bpftrace_processes", state="traced") == 3, "the later one")
    for n, job in enumerate([*jobs, later]):
        job.make("init", 0, 8, n)
        job.do("call", "ncclAllReduce", 0, 10, 7, 100 + n)
    agent.until(lambda s: s.sum(CALLS) >= 304, "calls of the three")
    series = agent.fresh()
    assert {p["rank"]: int(v) for p, v in series.get(CALLS)} == {"0": 100, "1": 101, "3": 103}
    assert series.one(EVENTS) == 307 and series.sum(LOST) == 0
    for job in [*jobs, later]:
        job.stop()


def test_more_keys_than_a_process_may_have():
    """What finds no counter of its own is counted all the same, under no communicator."""
    job = Caller()
    other = Caller()
    agent = agent_of(job, other, args=["--max-series", 1_000_000])
    n = KEYS_PER_PROCESS + 1000
    job.do("bogus", n)
    job.do("bogus", n)  # the same once more
    series = agent.until(lambda s: s.sum(CALLS) == 2 * n, f"{2 * n} calls", 30)
    assert len(series.get(CALLS)) == KEYS_PER_PROCESS + 1
    assert series.one(CALLS, comm=f"unknown-{job.pid}-0") == 2000
    assert series.one(LOST, reason="counter_full") == 0
    comm = other.make("init", 0, 8, 5)  # nobody else suffers
    other.do("call", "ncclAllReduce", 0, 10, 7, 10)
    agent.until(lambda s: s.sum(CALLS, comm=comm.hash, rank="5") == 10, "another process", 30)


def test_more_keys_than_there_are_counters():
    """All tenants together: what is in no counter is counted as lost, nothing vanishes."""
    jobs = [Caller() for _ in range(COUNTERS // KEYS_PER_PROCESS + 1)]
    agent = agent_of(*jobs, args=["--max-series", 1_000_000, "--ring-size", "64M"])
    each = KEYS_PER_PROCESS + 10
    for job in jobs:
        job.say("bogus", each)
    for job in jobs:
        job.answer()
    made = len(jobs) * each

    def complete(series):
        return series.sum(CALLS) + series.one(LOST, reason="counter_full") == made

    series = agent.until(complete, f"{made} calls, counted or lost", 60)
    assert series.one(LOST, reason="counter_full") > 0, "there was place for all: no test"
    assert series.sum(CALLS) >= COUNTERS


def test_sequences_at_late_attach():
    """NCCL's numbers are absolute: what was called before we came is in them, called since or not."""
    sim = nbt.Sim("comm world; allreduce world 10 fp32 x 100; allgather world 10 fp32 x 7; "
                  "alltoall world 10 fp32 x 3; barrier; @0 print first; wait; allreduce world 10 fp32 x 5; "
                  "group { broadcast world 10 fp32 x 4 }; alltoall world 10 fp32 x 2; barrier; "
                  "wait; group { allreduce world 10 fp32 x 3; allgather world 10 fp32 }; wait",
                  ranks=4)
    sim.go()
    assert sim.process.stdout.readline() == "first\n"
    agent = agent_of(sim)

    def values(series, operation):
        return sorted((p["rank"], v) for p, v in series.get(SEQUENCE, operation=operation))

    def all_ranks(value):
        return [(str(rank), value) for rank in range(4)]

    agent.until(lambda s: values(s, "AllReduce") == all_ranks(100), "100 of before")
    assert values(agent.series(), "AllGather") == all_ranks(7)
    assert agent.series().get(CALLS) == []
    sim.go()
    series = agent.until(lambda s: s.sum(CALLS) == 4 * (5 + 4 + 2), "the second part")
    assert values(series, "AllReduce") == all_ranks(105)
    assert values(series, "AllGather") == all_ranks(7)
    assert values(series, "Broadcast") == all_ranks(4)
    assert values(series, "AlltoAll") == []  # NCCL keeps none, and ours is not the whole
    sim.go()
    series = agent.until(lambda s: s.sum(CALLS) == 4 * 15, "the third part")
    assert values(series, "AllReduce") == all_ranks(108)
    assert values(series, "AllGather") == all_ranks(8)
    assert values(series, "Broadcast") == all_ranks(4)


def test_own_sequence_where_nccl_keeps_none():
    """From 2.26 on NCCL counts; before, and for AlltoAll, our count is the number, if whole."""
    sim = nbt.Sim("comm world; allreduce world 10 fp32 x 6; barrier; wait; "
                  "allreduce world 10 fp32 x 5", ranks=2, nccl="2.19.3")
    agent = agent_of(sim)
    sim.go()
    agent.until(lambda s: s.sum(SEQUENCE, operation="AllReduce") == 12, "own count")
    assert agent.stop() == 0
    late = agent_of(sim)
    sim.go()
    series = late.until(lambda s: s.sum(CALLS) == 10, "the rest")
    assert series.get(SEQUENCE) == [], "a count that began in the middle is no sequence number"


def test_own_sequence_of_alltoall():
    sim = nbt.Sim("comm world; alltoall world 10 fp32 x 6; group { alltoall world 1 fp32 x 4 }",
                  ranks=2)
    agent = agent_of(sim)
    sim.run()
    agent.until(lambda s: s.sum(SEQUENCE, operation="AlltoAll") == 20, "own count")


def test_old_communicator_is_not_taken_for_a_new_one():
    """One more of the same shape does not make the first one's count whole."""
    job = Caller()
    old = job.make("init", 0, 8, 5)
    job.do("call", "ncclAlltoAll", 0, 10, 7, 6)
    agent = agent_of(job)
    new = job.make("init", 1, 8, 5)
    agent.until(lambda s: len(s.get("nccl_communicator_info")) == 2, "both communicators")
    for v in (0, 1):
        job.do("call", "ncclAlltoAll", v, 10, 7, 2)
    agent.until(lambda s: s.sum(CALLS) == 4, "their calls")
    series = agent.until(lambda s: {
        p["comm"]: p["identity"] for p, _ in s.get("nccl_communicator_info")} ==
        {old.hash: "recovered", new.hash: "observed"}, "which of them was seen being made")
    assert [(p["comm"], v) for p, v in series.get(SEQUENCE)] == [(new.hash, 2)]


def test_calls_that_launch_nothing_raise_no_sequence():
    """No data, or a rank alone: NCCL launches nothing and its number stays."""
    job = Caller()
    agent = agent_of(job)
    many, alone = job.make("init", 0, 8, 5), job.make("init", 1, 1, 0)
    for count in (10, 0, 0, 10, 0):
        job.do("call", "ncclAllReduce", 0, count, 7, 1)
    job.do("call", "ncclAllReduce", 1, 10, 7, 5)
    series = agent.until(lambda s: s.sum(CALLS) == 10, "all calls")
    assert series.one(SEQUENCE, comm=many.hash) == 2
    assert series.get(SEQUENCE, comm=alone.hash) == []
