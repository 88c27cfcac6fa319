# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The simulated GPUs do what their account says, so that other tests can hold the tracer against it.
None of this says anything of a real GPU.
"""
import time
from collections import defaultdict

import nbt

LATENCY_NS, BANDWIDTH = 15000, 300  # nccl-sim's own defaults; bytes a nanosecond


def run(script, ranks=2, args=(), **options):
    sim = nbt.Sim(script, ranks=ranks, args=args, gpu=True, **options)
    sim.run()
    return sim


def kernels(truth):
    """{(comm, k): the k-th kernel of each rank of a communicator}, one operation standing for it."""
    seen, met = defaultdict(list), defaultdict(list)
    for line in truth:
        launches = seen[line["comm"], line["rank"]]
        if line["launch"] not in launches:
            launches.append(line["launch"])
            met[line["comm"], len(launches)].append(line)
    return met


def work_ns(met):
    """How long a kernel works once all ranks are there."""
    assert len({line["end_ns"] for line in met}) == 1, met
    return met[0]["end_ns"] - max(line["start_ns"] for line in met)


def test_kernels_meet_and_end_together():
    sim = run("comm a; @1 pause 30; allreduce a 3000000 fp32 x 20; allgather a 30000000 int8; "
              "synchronize", ranks=4)
    met = kernels(sim.truth())
    assert len(met) == 21 and all(len(lines) == 4 for lines in met.values())
    for lines in met.values():
        expected = LATENCY_NS + lines[0]["bus_bytes"] / BANDWIDTH
        assert abs(work_ns(lines) - expected) <= 1, (lines, expected)
    comm = next(iter(met))[0]
    first = {line["rank"]: line["duration_ns"] for line in met[comm, 1]}
    assert first[0] > 25e6 and first[1] < 25e6, first
    # who is ahead of its GPU has kernels without gaps, of the time that they work
    for k in range(2, 21):
        for line in met[comm, k]:
            before = next(l for l in met[comm, k - 1] if l["rank"] == line["rank"])
            assert line["start_ns"] == max(before["end_ns"], line["host_ns"])
    gather = met[comm, 21][0]
    assert gather["bytes"] == 30000000 and gather["bus_bytes"] == 3 * 30000000


def test_messages_meet_by_order():
    """Sends wait for their receives: in a ring, and when one side comes later."""
    sim = run("comm a; group { send a 1000000 fp32; recv a 1000000 fp32 }; "
              "@0 send a 5 int8 peer=1; @1 pause 20; @1 recv a 5 int8 peer=0; "
              "alltoall a 1000 fp32; synchronize", ranks=3)
    truth = sim.truth()
    ring = [line for line in truth if line["count"] == 1000000]
    assert len(ring) == 6 and all(line["operations"] == 2 for line in ring)
    late = {line["operation"]: line for line in truth if line["count"] == 5}
    assert late["Send"]["duration_ns"] > 15e6 and late["Recv"]["duration_ns"] < 5e6
    assert late["Send"]["end_ns"] == late["Recv"]["end_ns"]
    all_to_all = [line for line in truth if line["count"] == 1000]
    assert len(all_to_all) == 3 * 6 and all(line["operations"] == 6 for line in all_to_all)


def test_seed_decides_the_jitter():
    def times(seed):
        sim = run("comm a; allreduce a 1000000 fp32 x 10; synchronize",
                  args=["--gpu-jitter", 20, "--seed", seed])
        return [work_ns(lines) for _, lines in sorted(kernels(sim.truth()).items())]

    assert times(1) == times(1) != times(2)
    assert len(set(times(1))) == 10


def test_slow_gpu_and_slow_link():
    sim = run("comm a; allreduce a 3000000 fp32; synchronize; barrier; @1 gpu slow=3; barrier; "
              "allreduce a 3000000 fp32; synchronize; barrier; @1 gpu ok; @0 gpu link=5; barrier; "
              "allreduce a 3000000 fp32; synchronize; barrier; gpu ok; barrier; "
              "allreduce a 3000000 fp32; @1 compute 7; synchronize")
    met = kernels(sim.truth())
    plain, slow, link, again = (work_ns(lines) for _, lines in sorted(met.items()))
    assert plain == again == LATENCY_NS + 40000
    assert slow == 3 * plain and link == LATENCY_NS + 5 * 40000


def test_a_gpu_that_hangs_holds_up_the_others():
    sim = nbt.Sim("comm a; comm b; allreduce a 10 fp32; synchronize; barrier; @1 gpu hang; "
                  "allreduce a 10 fp32; allreduce b 10 fp32 stream=1; @0 print hangs; wait; "
                  "@1 gpu ok; synchronize; synchronize stream=1", gpu=True)
    sim.go()
    assert sim.process.stdout.readline() == "hangs\n"
    sim.go()
    sim.wait_done()
    assert [len(lines) for lines in kernels(sim.truth()).values()] == [2, 2, 2]
    # one that is never mended, and a rank that leaves a call out: both end with the job only
    for script in ("@1 gpu hang; allreduce a 10 fp32; synchronize",
                   "@0 allreduce a 10 fp32; allreduce a 20 fp32; synchronize"):
        stuck = nbt.Sim(f"comm a; @0 print on; {script}; print through", gpu=True)
        stuck.go()
        assert stuck.process.stdout.readline() == "on\n"
        time.sleep(0.3)
        assert stuck.process.poll() is None
        nbt.end(stuck.process)
        assert "through" not in stuck.process.stdout.read()


def test_a_gpu_that_is_busy_with_something_else():
    """Until it is told to be well; its kernel of NCCL starts then, the others' have waited."""
    sim = nbt.Sim("comm a; allreduce a 10 fp32; synchronize; barrier; @1 compute forever; "
                  "allreduce a 10 fp32; @0 print busy; wait; @1 gpu ok; synchronize; "
                  "compute 5; allreduce a 10 fp32; synchronize", ranks=3, gpu=True)
    sim.go()
    assert sim.process.stdout.readline() == "busy\n"
    until = time.monotonic_ns() + 300000000
    while time.monotonic_ns() < until:
        time.sleep(0.05)
    assert sim.process.poll() is None
    sim.go()
    sim.wait_done()
    met = kernels(sim.truth())
    comm = next(iter(met))[0]
    second = {line["rank"]: line for line in met[comm, 2]}
    assert second[1]["start_ns"] >= until and second[1]["duration_ns"] < 250e6, second
    assert second[0]["duration_ns"] > 250e6 and second[2]["duration_ns"] > 250e6, second
    assert len(met[comm, 3]) == 3


def test_graph_captured_once_replayed_often():
    """C10: one all_reduce in a graph, launched 100 times: through the driver's graph calls."""
    sim = run("comm a; allreduce a 100 fp32; capture g { allreduce a 200 fp32 }; "
              "replay g x 100; synchronize; drop g")
    for line in sim.expected():
        assert (line["calls"], line["captured"], line["replayed"]) == ("2", "1", "100"), line
        assert line["sequence"] == "1"
    truth = sim.truth()
    assert sum(line["replay"] for line in truth) == 200 and len(truth) == 202
    assert {line["sequence"] for line in truth if line["replay"]} == {"-"}


def test_without_gpus_their_words_are_refused():
    sim = nbt.Sim("comm a; synchronize")
    sim.go()
    assert sim.process.wait(10) == 1
