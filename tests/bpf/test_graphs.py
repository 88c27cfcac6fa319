# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""CUDA graphs: calls that are captured, operations that run without a call (case C10)."""
import re
import time

import loader
import nbt
from caller import Caller
from loader import Agent
from plugged import Plugged, symbols

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
MODES = ("launched", "captured", "replayed")


def counted(series, expected):
    """{(comm, rank, operation): {mode: (calls, bytes)}}"""
    def read(entry, mode):
        labels = {key: entry[key] for key in ("comm", "rank", "operation")}
        return tuple(int(series.sum(f"nccl_{what}_total", mode=mode, **labels))
                     for what in ("operations", "operation_bytes"))

    return {(e["comm"], e["rank"], e["operation"]): {mode: read(e, mode) for mode in MODES}
            for e in expected}


def unresolved(series):
    return series.one("nccl_bpftrace_graph_launches_unresolved_total")


def run_job(script, **options):
    job = nbt.Sim(script, ranks=2, gpu=True, **options)
    agent = Agent(*nbt.pid_words(job.pids))
    before = unresolved(agent.series())
    job.run()
    return job, agent, before


def test_one_captured_a_hundred_replayed():
    """C10."""
    job, agent, before = run_job("comm a; allreduce a 1000 fp32; synchronize; "
                                 "capture g { allreduce a 500 fp32 }; replay g x 100; synchronize")
    series = agent.fresh()
    for found in counted(series, job.expected()).values():
        assert found == {"launched": (1, 4000), "captured": (1, 2000), "replayed": (100, 200000)}
    assert unresolved(series) == before


def test_several_graphs_and_groups():
    job, agent, before = run_job("""
        comm a; comm b
        allreduce a 10 fp32
        capture g { allreduce a 100 fp32 x 3; group { send b 5 int8; recv b 5 int8 } }
        capture h { allgather b 7 int32; allreduce a 1 fp64 }
        loop 5 { replay g x 4; replay h; allreduce a 10 fp32 }
        replay h x 10; drop g; capture g { reducescatter b 3 fp16 }; replay g x 2; drop g; drop h
        synchronize""")
    check_account(agent.fresh(), job)
    assert unresolved(agent.fresh()) == before


def check_account(series, job):
    """nccl-sim's own account: calls with the captured ones among them, and replays."""
    expected = job.expected()
    found = counted(series, expected)
    for entry in expected:
        modes = found[entry["comm"], entry["rank"], entry["operation"]]
        calls, captured, replayed = (int(entry[key]) for key in ("calls", "captured", "replayed"))
        assert [modes[mode][0] for mode in MODES] == [calls - captured, captured, replayed], entry


def test_captured_before_the_tracer_came():
    """Unknown, and said so: neither counted nor guessed."""
    job = nbt.Sim("comm a; allreduce a 10 fp32; capture g { allreduce a 10 fp32 }; barrier; @0 print first; "
                  "wait; replay g x 50; allreduce a 10 fp32; synchronize", ranks=2, gpu=True)
    job.go()
    assert job.process.stdout.readline() == "first\n"
    agent = Agent(*nbt.pid_words(job.pids))
    before = unresolved(agent.series())
    job.go()
    job.wait_done()
    series = agent.until(lambda s: unresolved(s) > before, "unknown launches")
    series = agent.fresh()
    assert unresolved(series) - before == 2 * 50
    assert series.sum("nccl_operations_total", mode="replayed") == 0
    job.stop()
    series = agent.fresh(3)
    assert unresolved(series) - before == 2 * 50  # it does not fall when they are gone


class Grapher(Caller):
    def __init__(self):
        super().__init__("grapher", [nbt.TARGETS / "graphs/libcuda.so.1"])
        self.agent = Agent("--pid", self.pid)
        self.do("comm")
        self.do("call", 1, 1)  # so that it is known
        self.agent.until(lambda s: self.tally(s) == (1, 0, 0), "attached")
        self.before = unresolved(self.agent.fresh())

    def script(self, text):
        for line in text.replace(";", "\n").splitlines():
            if line.strip():
                self.do(*line.split())

    def tally(self, series):
        return tuple(int(series.sum("nccl_operations_total", mode=mode)) for mode in MODES)

    def expect(self, launched, captured, replayed, unknown=0):
        series = self.agent.fresh(2)
        found = (*self.tally(series), unresolved(series) - self.before)
        assert found == (launched + 1, captured, replayed, unknown), found
        return series


def test_every_variant_of_the_driver_s_functions():
    job = Grapher()
    begins = ("cuStreamBeginCapture", "cuStreamBeginCapture_ptsz", "cuStreamBeginCapture_v2",
              "cuStreamBeginCapture_v2_ptsz")
    ends = ("cuStreamEndCapture", "cuStreamEndCapture_ptsz") * 3
    makes = ("cuGraphInstantiate", "cuGraphInstantiate_v2", "cuGraphInstantiateWithFlags",
             "cuGraphInstantiateWithParams", "cuGraphInstantiateWithParams_ptsz")
    launches = ("cuGraphLaunch", "cuGraphLaunch_ptsz") * 3
    for i, (end, make, launch) in enumerate(zip(ends, makes, launches)):
        job.script(f"symbol {begins[i % 4]}; begin {i}; call 2 5; symbol {end}; end {i} {i}; "
                   f"symbol {make}; make {i + 10} {i}; symbol {launch}; launch {i + 10} {i + 1}")
    job.expect(0, 2 * 5, 2 * (1 + 2 + 3 + 4 + 5))
    for i, begin in enumerate(("cuStreamBeginCaptureToGraph", "cuStreamBeginCaptureToGraph_ptsz")):
        job.script(f"create {i}; symbol {begin}; into 5 {i}; call 1 5; end 5 {i}; "
                   f"make {i + 10} {i}; launch {i + 10} 100")
    job.expect(0, 12, 30 + 200)


def test_each_step_on_another_thread():
    job = Grapher()
    job.script("@1 begin 5; @1 call 3 10; @0 call 2 10; @2 end 5 1; @3 make 2 1; @0 launch 2 7; "
               "@1 call 1 10; @1 launch 2 1")
    job.expect(2 + 1, 3, 3 * 8)


def test_a_capture_on_each_thread():
    """Two at once, on each thread's own default stream, too."""
    job = Grapher()
    job.script("@1 begin 2; @2 begin 2; @1 call 1 10; @2 call 5 10; @1 end 2 1; @2 end 2 2; "
               "@1 make 3 1; @2 make 4 2; @0 launch 3 10; @0 launch 4 100")
    job.expect(0, 6, 10 + 500)


def test_handles_are_used_again():
    job = Grapher()
    job.script("begin 5; call 1 10; end 5 1; make 2 1; drop 1; launch 2 3; free 2")
    job.script("begin 5; call 4 10; end 5 1; make 2 1; launch 2 10; drop 1; free 2")
    job.expect(0, 5, 3 + 40)
    for _ in range(50):  # the kernel keeps nothing of those that are no more
        job.script("begin 5; call 1 10; end 5 1; make 2 1; make 3 1; launch 2 1; launch 3 1; "
                   "free 2; drop 1; free 3")
    job.expect(0, 5 + 50, 43 + 100)


def test_a_graph_without_nccl_is_known_to_have_none():
    job = Grapher()
    job.script("begin 5; end 5 1; make 2 1; launch 2 1000; call 1 10")
    job.expect(1, 0, 0)


def test_what_cannot_be_known():
    """Each is counted as unknown, and nothing else goes astray."""
    job = Grapher()
    job.script("create 1; make 2 1; launch 2 5")  # made by hand
    job.expect(0, 0, 0, 5)
    job.script("begin 5; call 1 10; end 5 1; local 2 1; launch 2 3")  # its handle was moved
    job.expect(0, 1, 0, 5 + 3)
    job.script("make 3 1; launch 3 2; begin 5; call 1 10; launch 3 1; end 5 4; make 6 4; "
               "launch 6 4; launch 3 1")  # a graph launched into a capture
    job.expect(0, 2, 3, 8 + 4)
    job.script("begin 5; call 1 10; end 5 7; child 7 1; make 8 7; launch 8 6; "
               "begin 5; call 1 10; end 5 9; make 10 9; launch 10 1")  # a graph in a graph
    job.expect(0, 4, 3 + 1, 12 + 6)
    job.script("begin 5; call 1 10; begin 6; call 1 10; end 6 11; end 5 12; make 13 11; "
               "launch 13 9; call 1 10")  # two captures of one thread at once
    job.expect(1, 6, 4, 18 + 9)


def test_what_fails():
    job = Grapher()
    job.script("begin 5; call 1 10; fail; end 5 1; call 1 10")
    job.expect(1, 1, 0)
    job.script("begin 5; call 1 10; end 5 1; fail; make 2 1; make 2 1; launch 2 4")
    job.expect(1, 2, 4)
    job.script("begin 5; stream 5; call 1 10")  # the capture goes with its stream
    job.expect(2, 2, 4)


def test_more_graphs_than_one_process_may_have():
    """Past it launches are unknown, and other processes are served."""
    job, other = Grapher(), Grapher()
    n = 4200  # a capture, what it holds, a graph and an executable each
    for _ in range(n):
        job.say("begin", 5), job.say("call", 1, 1), job.say("end", 5, 1), job.say("make", 2, 1)
        job.say("launch", 2, 1)
        for _ in range(5):
            job.answer()
    series = job.agent.fresh(2)
    launched, captured, replayed = job.tally(series)
    unknown = unresolved(series) - job.before
    full = series.one("nccl_bpftrace_events_lost_total", reason="graph_full")
    assert (launched, captured) == (1, n) and replayed + unknown + full == n, (replayed, unknown, full)
    assert 0 < replayed < n
    other.script("begin 5; call 1 10; end 5 1; make 2 1; launch 2 7")
    other.expect(0, 1, 7)


def test_probed_only_where_nccl_is():
    """libcuda is in every process that uses a GPU: those without NCCL pay nothing."""
    driver = nbt.tempdir() / "libcuda.so.1"
    driver.write_bytes((nbt.TARGETS / "graphs/libcuda.so.1").read_bytes())
    job = Plugged(plugin=None, nccl=None, comm=None)
    Agent("--pid", job.pid)
    job.do(f"load {driver}")

    def entry():
        maps = open(f"/proc/{job.pid}/maps", encoding="ascii").read()
        start = min(int(at, 16) for at in re.findall(rf"^([0-9a-f]+)-.* {driver}$", maps, re.M))
        with open(f"/proc/{job.pid}/mem", "rb") as memory:
            memory.seek(start + symbols(driver)["cuGraphLaunch"])
            return memory.read(5)

    plain = entry()
    time.sleep(1)
    assert entry() == plain
    job.do(f"load {loader.LIBRARY}")
    nbt.wait_for(lambda: entry() != plain, "probes on libcuda")


def test_with_perf_links():
    job = Grapher()
    job.agent.stop()
    agent = Agent("--attach", "perf", "--pid", job.pid)
    agent.until(lambda s: s.get("nccl_bpftrace_process_info", pid=str(job.pid)), "known")
    agent.fresh()
    job.script("begin 5; call 1 10; end 5 1; make 2 1; launch 2 7; call 3 10")
    series = agent.fresh()
    assert job.tally(series) == (3, 1, 7), job.tally(series)


def test_who_launches_no_more_is_named():
    """Counts of launches since the capture are compared; a rank that stops keeps the others waiting."""
    job = nbt.Sim("comm a; capture g { allreduce a 500 fp32 x 3 }; loop 40 { replay g; pause 50 }; "
                  "@0-2 replay g; wait; @3 replay g; loop forever { replay g; pause 50 }",
                  ranks=4, gpu=True)
    agent = Agent(*nbt.pid_words(job.pids), "--stuck-after", 6)
    states = lambda s: {l["state"] for l, value in s.get("nccl_communicator_state") if value}
    job.go()
    for state in ("healthy", "waiting", "stuck"):
        agent.until(lambda s: states(s) == {state}, state, 30)
    said = agent.output()
    assert re.search(r"verdict=waiting cause=missing_launch .*culprits=3 waiting=0-2 ", said), said
    job.go()
    agent.until(lambda s: states(s) == {"healthy"}, "healthy again", 30)


def test_launches_of_what_was_captured_before_are_movement():
    """They are not counted, but who makes them is not missing."""
    job = nbt.Sim("comm a; capture g { allreduce a 500 fp32 }; loop 10 { allreduce a 10 fp32; pause 20 }; "
                  "barrier; @0 print first; wait; @0 allreduce a 10 fp32; "
                  "loop 200 { replay g; pause 50 }; @1 allreduce a 10 fp32; barrier; @0 print last; wait",
                  ranks=2, gpu=True)
    job.go()
    assert job.process.stdout.readline() == "first\n"
    agent = Agent(*nbt.pid_words(job.pids), "--stuck-after", 4)
    job.go()
    assert job.process.stdout.readline() == "last\n"
    assert not re.search("verdict=(waiting|stuck)", agent.output()), agent.output()
