# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
From the job's GPU to the textfile: durations and bandwidths against the account of the simulated
GPUs, in jobs whose plugin the tracer wakes. What it proves is the tracer's arithmetic and that it
loses nothing on the way, nothing of a real GPU's times.
"""
import json
import math
import time
from collections import defaultdict

import nbt
from hook import PLUGIN, Control
from servers import fake_gpus, gpu_uuid

TIMED = ("nccl_timed_operations_total", "nccl_timed_seconds_total", "nccl_timed_bus_bytes_total")
DURATION = "nccl_operation_duration_seconds"
RANKS = 4

# While the GPU computes, all that follows is launched, so that no kernel waits for the host.
COMMS = "comm a config; comm b config; "
WARM = COMMS + "loop 25 { allreduce a 10 fp32; allgather b 10 fp32; " \
       "synchronize; pause 100; barrier }; @0 print warm; wait; "


class Timed:
    """A job traced with every launch timed; what the textfile and the account say since go()."""

    def __init__(self, script, ranks=RANKS, nodes=1, nccl=None, args=(), agent_args=(),
                 budget=100, warm=WARM):
        self.gpus = ranks // nodes
        self.sim = nbt.Sim(warm + script, ranks=ranks, nccl=nccl, gpu=True, plugin=PLUGIN,
                           args=["--gpus-per-node", self.gpus, *args])
        words = nbt.pid_words(self.sim.pids)
        self.agent = nbt.Agent("--gpu-timing-budget", budget, *agent_args, *words,
                               preexec_fn=fake_gpus(self.gpus))
        self.sim.go()
        assert self.sim.process.stdout.readline() == "warm\n"
        self.before = self.agent.fresh()
        self.since_ns = time.monotonic_ns()
        self.sim.go()
        self.sim.wait_done()
        self.after = self.agent.fresh(2)
        if any(Control(pid).read()["budget_ppm"] != budget * 10000 for pid in self.sim.pids):
            nbt.skip("another tracer on this machine set the plugin's budget")

    def told(self, family):
        """{labels that tell series apart: growth}"""
        def sums(series):
            found = defaultdict(float)
            for labels, value in series.get(family):
                found[tuple(labels.get(name, "") for name in
                            ("UUID", "operation", "size", "scope", "algorithm",
                             "protocol"))] += value
            return found
        old = sums(self.before)
        return {key: value - old[key] for key, value in sums(self.after).items()
                if value != old[key]}

    def truth(self):
        return [line for line in self.sim.truth() if line["host_ns"] > self.since_ns]

    def launches(self):
        """[(pid, lines of one kernel)]"""
        found = defaultdict(list)
        for line in self.truth():
            found[line["pid"], line["launch"]].append(line)
        return [(pid, lines) for (pid, _), lines in found.items()]

    def uuid(self, pid):
        return gpu_uuid(self.sim.pids.index(pid) % self.gpus)


def size_class(n):
    for end, name in ((64 << 10, "lt64KiB"), (1 << 20, "lt1MiB"), (16 << 20, "lt16MiB"),
                      (256 << 20, "lt256MiB")):
        if n < end:
            return name
    return "ge256MiB"


def share(operation, lines, bytes_, bus_bytes, operations=None):
    names = {(line["algorithm"], line["protocol"]) for line in lines}
    algorithm, protocol = names.pop() if len(names) == 1 else ("", "")
    return (operation, size_class(bytes_), algorithm, protocol,
            operations or len(lines), bus_bytes)


def shares(lines):
    """What one kernel adds: [(operation, size, algorithm, protocol, operations, bus bytes)]."""
    kinds = {line["operation"] for line in lines}
    n = lines[0]["nranks"]
    if kinds == {"Send", "Recv"} and len(lines) == 2 * n:
        whole = lines[0]["bytes"] * n
        return [share("AlltoAll", lines, whole, whole * (n - 1) / n, operations=1)]
    if kinds == {"Send", "Recv"} and len(lines) == 2:
        return [share(line["operation"], [line], line["bytes"], line["bus_bytes"])
                for line in lines]
    assert len(kinds) == 1, kinds
    whole = sum(line["bytes"] * (n if line["operation"] in ("AllGather", "ReduceScatter") else 1)
                for line in lines)
    return [share(kinds.pop(), lines, whole, sum(line["bus_bytes"] for line in lines))]


def expected(job):
    """{key as of told(): [operations, seconds, bus bytes]} by the account."""
    sums = defaultdict(lambda: [0, 0, 0])
    for pid, lines in job.launches():
        scope = "node" if lines[0]["nodes"] == 1 else "network"
        for operation, size, algorithm, protocol, operations, bus in shares(lines):
            total = sums[job.uuid(pid), operation, size, scope, algorithm, protocol]
            total[0] += operations
            total[1] += lines[0]["duration_ns"] / 1e9
            total[2] += bus
    return sums


def check(job, share_of_seconds=0.01):
    """Operations and bytes exact; seconds, hence bandwidths, within a share."""
    wanted = expected(job)
    operations, seconds, bus_bytes = (job.told(family) for family in TIMED)
    differ = {key: (operations.get(key), wanted.get(key)) for key in {*operations, *wanted}
              if operations.get(key) != wanted.get(key, [None])[0]}
    assert not differ, f"told and true: {differ}"
    worst = 0
    for key, (_, truth_seconds, truth_bus) in wanted.items():
        assert math.isclose(bus_bytes[key], truth_bus, rel_tol=1e-9), (key, bus_bytes, truth_bus)
        worst = max(worst, abs(seconds[key] / truth_seconds - 1))
        assert math.isclose(seconds[key], truth_seconds, rel_tol=share_of_seconds), \
            (key, seconds[key], truth_seconds)
    lost = job.after.sum("nccl_bpftrace_events_lost_total")
    assert lost == 0, [x for x in job.after.get("nccl_bpftrace_events_lost_total") if x[1]]
    assert job.after.sum("nccl_bpftrace_invalid_timings_total") == 0
    print(f"     {len(wanted)} series, {sum(t[0] for t in wanted.values())} operations, "
          f"seconds off by at most {100 * worst:.3f} %")


EVERYTHING = "loop 20 { rate 20; barrier; compute 3; allreduce a 25000000 fp32 x 2; " \
             "allgather a 5000000 bf16; reducescatter b 5000000 fp16; broadcast a 3000000 fp64; " \
             "reduce b 20000 fp32; alltoall a 700000 fp32; group { send a 900000 int8; " \
             "recv a 900000 int8 }; group { allreduce b 300 fp32; allreduce b 5000000 fp32 }; " \
             "synchronize }"


def test_durations_and_bandwidths():
    job = Timed(EVERYTHING, args=["--gpu-jitter", 30])
    check(job)
    series = job.after
    for family in ("nccl_operation_duration_seconds_count", "nccl_timed_operations_total"):
        assert {labels["UUID"] for labels, _ in series.get(family)} == \
            {gpu_uuid(i) for i in range(RANKS)}
    infos = series.get("nccl_communicator_info")
    assert len(infos) == 2 * RANKS
    assert {labels["timing"] for labels, _ in infos} == {"cuda_event"}


def test_over_the_network():
    """Two simulated nodes, here on one, so that two ranks have GPUs of one UUID: another scope,
    another bandwidth."""
    check(Timed(EVERYTHING, nodes=2))


def test_replays_by_the_kernel_timer():
    """A graph's replays have no launch that events could be put around: NCCL's own timer has them."""
    job = Timed("capture g { allreduce a 2000000 fp32; allgather b 700000 fp32 }; "
                "loop 20 { rate 50; compute 2; replay g; synchronize }; pause 100",
                agent_args=["--kernel-timer"])
    truth = [line for line in job.truth() if line["replay"]]
    assert len(truth) == 20 * 2 * RANKS
    told = {name: defaultdict(float) for name in ("operations", "seconds")}
    for name, family in zip(told, TIMED):
        for (uuid, operation, *_), value in job.told(family).items():
            told[name][uuid, operation] += value
    for uuid in map(gpu_uuid, range(RANKS)):
        for operation in ("AllReduce", "AllGather"):
            lines = [line for line in truth
                     if job.uuid(line["pid"]) == uuid and line["operation"] == operation]
            seconds = sum(line["last_ns"] - line["first_ns"] for line in lines) / 1e9
            assert told["operations"][uuid, operation] == len(lines) == 20, told["operations"]
            assert math.isclose(told["seconds"][uuid, operation], seconds, rel_tol=0.01)


def test_no_kernel_timer_of_a_release_whose_times_are_wrong():
    sim = nbt.Sim("comm a; loop 100 { rate 50; allreduce a 1000 fp32; synchronize }; wait",
                  nccl=nbt.BUILD / "sim/2.99.1/libnccl.so.2", gpu=True, plugin=PLUGIN)
    agent = nbt.Agent("--no-ui", "--kernel-timer",
                      *nbt.pid_words(sim.pids))
    sim.go()
    for pid in sim.pids:
        line = f"process {pid}: no --kernel-timer: NCCL 2.99.1 would tell wrong times"
        nbt.wait_for(lambda: line in agent.output(), line, 20)
        assert not Control(pid).read()["wants"]
    agent.until(lambda s: {labels["timing"] for labels, _ in s.get("nccl_communicator_info")} ==
                {"cuda_event"}, "timed by events")
    assert agent.output().count("no --kernel-timer") == len(sim.pids)


def test_what_hangs_stays_in_flight():
    sim = nbt.Sim("comm a; loop 25 { allreduce a 10 fp32; synchronize; pause 100 }; barrier; "
                  "@1 gpu hang; allreduce a 77 fp32; @0 print hangs; wait; @1 gpu ok; synchronize",
                  gpu=True, plugin=PLUGIN)
    agent = nbt.Agent("--gpu-timing-budget", 100,
                      *nbt.pid_words(sim.pids))
    sim.go()
    assert sim.process.stdout.readline() == "hangs\n"
    now = time.time()
    flight = "nccl_operations_in_flight"
    series = agent.until(lambda s: s.sum(flight) == 2, "one operation in flight on each rank")
    for _, start in agent.fresh(2).get("nccl_oldest_in_flight_start_timestamp_seconds"):
        assert abs(start - now) < 1, (start, now)
    assert len(series.get(flight)) == 2 and agent.series().sum(flight) == 2
    sim.go()
    sim.wait_done()
    agent.until(lambda s: s.sum(flight) == 0, "nothing in flight")


def test_one_gpu_is_busy_with_something_else():
    """All have launched: in flight on every rank, since its launch, for as long as it takes."""
    warm = "loop 25 { allreduce a 10 fp32; synchronize; pause 100 }; barrier; "
    sim = nbt.Sim(f"comm a; {warm} @2 compute forever; allreduce a 77 fp32; barrier; "
                  "@0 print launched; wait; @2 gpu ok; synchronize",
                  ranks=RANKS, gpu=True, plugin=PLUGIN)
    agent = nbt.Agent("--gpu-timing-budget", 100,
                      *nbt.pid_words(sim.pids))
    sim.go()
    assert sim.process.stdout.readline() == "launched\n"
    now = time.time()
    flight, start = "nccl_operations_in_flight", "nccl_oldest_in_flight_start_timestamp_seconds"
    agent.until(lambda s: s.sum(flight) == RANKS, "in flight on all ranks")
    time.sleep(8)  # longer than an agent believes in a launch that its plugin is silent of
    series = agent.fresh(2)
    assert {labels["rank"]: value for labels, value in series.get(flight)} == \
        {str(rank): 1 for rank in range(RANKS)}
    starts = series.get(start)
    assert len(starts) == RANKS
    assert all(abs(value - now) < 2 for _, value in starts), (starts, now)
    # who comes when the first tracer has gone is told of it by the plugins
    agent.stop()
    told = nbt.run_agent("diagnose", "--json", "--duration", "12",
                         *nbt.pid_words(sim.pids))
    assert told.returncode == 4, told
    found, = json.loads(told.stdout)["communicators"]
    assert (found["state"], found["culprit_ranks"], found["operation"], found["sequence"]) == \
        ("stuck", [2], "AllReduce", 26), found
    sim.go()
    sim.wait_done()


def test_every_version_is_counted_exactly():
    """Counts are those of the account, with the plugin of each interface; events time from 2.28."""
    script = EVERYTHING.replace("alltoall a 700000 fp32; ", "")
    for nccl in ("2.23.4", "2.25.1", "2.26.5", "2.27.7", "2.30.7"):
        job = Timed(script, ranks=2, nccl=nccl,
                    warm=WARM if nccl == "2.30.7" else COMMS + "@0 print warm; wait; ")
        expected_ = job.sim.expected()
        assert nbt.counted_totals(job.after, expected_) == nbt.expected_totals(expected_), nccl
        if nccl == "2.30.7":
            check(job)
        else:
            assert not job.told("nccl_timed_operations_total")
        assert {labels["plugin"] for labels, _ in job.after.get("nccl_bpftrace_process_info")} == \
            {"active"}
