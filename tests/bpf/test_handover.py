# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A process whose plugin is awake loses its probes on collectives; its counts stay exact."""
import os
import signal
import time

import nbt
from caller import Caller
from hook import PLUGIN, note, open_uprobe
from probed import is_probed, wait_probed

CALLS, BYTES = "nccl_operations_total", "nccl_operation_bytes_total"
LOST = "nccl_bpftrace_events_lost_total"
PAUSE_US = 4000  # after 64 calls: the plugin's thread keeps up on a busy machine


def plugged(**kwargs):
    """A caller with the real plugin, and two communicators of eight ranks."""
    job = Caller(prefix=["env", f"NCCL_PROFILER_PLUGIN={PLUGIN}", "NCCL_CONF_FILE=/dev/null"],
                 **kwargs)
    return job, [job.make("init", v, 8, 2 + v) for v in (0, 1)]


def plain():
    job = Caller(prefix=["env", "NCCL_PROFILER_PLUGIN=none", "NCCL_CONF_FILE=/dev/null"])
    return job, [job.make("init", v, 8, 2 + v) for v in (0, 1)]


def agent_of(*args):
    return nbt.Agent("--handover-after", 2, *args)


def made(series, comms, family=CALLS, **labels):
    return sum(series.sum(family, comm=c.hash, rank=str(c.rank), **labels) for c in comms)


def expect(agent, comms, calls):
    """Exactly so many calls: reached, and not passed later."""
    agent.until(lambda s: made(s, comms) >= calls, f"{calls} calls", 60)
    series = agent.fresh(2)
    assert made(series, comms) == calls, (made(series, comms), calls)
    return series


def has_identity(series, comm, identity):
    return series.get("nccl_communicator_info", comm=comm.hash, rank=str(comm.rank),
                      identity=identity)


class Monotone:
    """Samples a file as it changes: the counts must never fall."""

    def __init__(self, agent, comms):
        self.agent, self.comms, self.last = agent, comms, 0

    def look(self):
        now = made(self.agent.series(), self.comms)
        assert now >= self.last, (now, self.last)
        self.last = now


def test_one_is_handed_over_and_another_is_not():
    job, comms = plugged()
    other, other_comms = plain()
    agent = agent_of()
    for caller in (job, other):
        wait_probed(caller.pid)
        caller.do("hammer", 2, PAUSE_US)
    wait_probed(job.pid, False)
    assert is_probed(other.pid)
    assert is_probed(job.pid, "ncclSend") and is_probed(job.pid, "ncclCommInitRank")
    time.sleep(1)
    calls, other_calls = int(job.do("stop")[0]), int(other.do("stop")[0])
    series = expect(agent, comms, calls)
    assert made(series, other_comms) == other_calls
    assert not is_probed(job.pid) and is_probed(other.pid)
    assert series.one(LOST, reason="handover") == 0
    for c in comms:  # the identity stays that of the probes
        assert series.one("nccl_communicator_info", comm=c.hash, rank=str(c.rank)) == 1


def test_there_and_back_under_fire():
    """A communicator that is made gives the process its probes back, until all is proved again."""
    job, comms = plugged()
    agent = agent_of()
    times = 50 if os.environ.get("NBT_LONG") else 6
    file = Monotone(agent, comms)
    wait_probed(job.pid)
    job.do("hammer", 2, PAUSE_US)
    for _ in range(times):
        wait_probed(job.pid, False)
        file.look()
        job.do("comm")
        wait_probed(job.pid)
        file.look()
    wait_probed(job.pid, False)
    calls = int(job.do("stop")[0])
    series = expect(agent, comms, calls)
    print(f"     {calls} calls, {times} times there and back")
    assert series.one(LOST, reason="handover") == 0


def test_exact_bytes_and_what_was_called_last():
    job, comms = plugged()
    agent = agent_of()
    names = ["ncclAllReduce", "ncclAllGather", "ncclReduceScatter", "ncclBroadcast", "ncclReduce"]
    wait_probed(job.pid)
    probed, deadline = 0, time.monotonic() + 20
    while is_probed(job.pid):
        assert time.monotonic() < deadline, "not handed over"
        for name in names:
            job.do("call", name, 0, 1000, 7, 5)
        probed += 5
        time.sleep(0.1)
    for name in names:
        job.do("call", name, 0, 500, 1, 7)  # ncclUint8, which NCCL does not name
    job.do("call", "ncclSend", 0, 10, 7, 3)
    job.do("call", "ncclAlltoAll", 0, 10, 7, 3)
    series = expect(agent, comms[:1], 5 * (probed + 7) + 6)
    for name, ranks in zip(names, (1, 8, 8, 1, 1)):
        assert made(series, comms[:1], BYTES, operation=name[4:]) == \
            ranks * (probed * 4000 + 7 * 500), name
        assert made(series, comms[:1], "nccl_operation_sequence", operation=name[4:]) == probed + 7, name
    assert made(series, comms[:1], operation="Send") == 3
    assert made(series, comms[:1], operation="AlltoAll") == 3
    assert time.time() - made(series, comms[:1], "nccl_last_operation_timestamp_seconds") < 60


def test_another_wakes_it_and_the_agent_comes_again():
    """The plugin is awake before the agent, and stays so: what was before is not the agent's."""
    job, comms = plugged()
    found = note()
    waker = open_uprobe(int(found[3], 16), int(found[4], 16))
    job.do("call", "ncclAllReduce", 0, 100, 7, 1000)
    for sig in (signal.SIGKILL, signal.SIGTERM, signal.SIGTERM):
        agent = agent_of()
        wait_probed(job.pid)
        job.do("hammer", 2, PAUSE_US)
        wait_probed(job.pid, False)
        time.sleep(0.5)
        calls = int(job.do("stop")[0])
        expect(agent, comms, calls)
        agent.stop(sig)
        nbt.wait_for(lambda: not is_probed(job.pid, "ncclSend"), "the agent's probes are gone", 20)
        if waker >= 0:
            os.close(waker)
            waker = -1


def test_one_rank_keeps_the_probes():
    job, comms = plugged()
    alone = job.make("init", 5, 1, 0)
    agent = agent_of()
    wait_probed(job.pid)
    job.do("hammer", 2, PAUSE_US)
    time.sleep(5)
    assert is_probed(job.pid)
    calls = int(job.do("stop")[0])
    job.do("call", "ncclAllReduce", 5, 100, 7, 10)
    series = expect(agent, comms, calls)
    assert made(series, [alone]) == 10


def test_perf_links_stay():
    job, comms = plugged()
    agent = agent_of("--attach", "perf")
    wait_probed(job.pid)
    job.do("hammer", 2, PAUSE_US)
    time.sleep(5)
    assert is_probed(job.pid)
    expect(agent, comms, int(job.do("stop")[0]))


def test_who_comes_later_is_probed_at_once():
    job, comms = plugged()
    agent = agent_of()
    wait_probed(job.pid)
    job.do("hammer", 2, PAUSE_US)
    wait_probed(job.pid, False)
    late, late_comms = plain()
    wait_probed(late.pid)
    late.do("call", "ncclAllReduce", 0, 100, 7, 1234)
    assert not is_probed(job.pid)
    calls = int(job.do("stop")[0])
    series = expect(agent, comms, calls)
    assert made(series, late_comms) == 1234
    late.stop()
    job.do("call", "ncclAllReduce", 0, 100, 7, 10)
    expect(agent, comms, calls + 10)


def test_a_forked_process_gets_its_own_probes():
    """Nothing tells of a fork but the making of a communicator, which takes NCCL 50 ms and more."""
    job, comms = plugged()
    agent = agent_of()
    wait_probed(job.pid)
    job.do("hammer", 2, PAUSE_US)
    wait_probed(job.pid, False)
    ranks = nbt.Sim("comm a; pause 50; allreduce a 100 fp32 x 1000", ranks=3,
                    prefix=["env", "NCCL_PROFILER_PLUGIN=none"])
    ranks.run()
    expected = nbt.expected_totals(ranks.expected())
    agent.until(lambda s: nbt.counted_totals(s, ranks.expected()) == expected, expected)
    series = expect(agent, comms, int(job.do("stop")[0]))
    assert nbt.counted_totals(series, ranks.expected()) == expected
    assert not is_probed(job.pid)


def test_an_agent_that_was_held_up_does_not_claim_all():
    job, comms = plugged()
    agent = agent_of()
    wait_probed(job.pid)
    job.do("hammer", 2, PAUSE_US)
    wait_probed(job.pid, False)
    os.kill(agent.pid, signal.SIGSTOP)
    late, late_comms = plain()
    late.do("call", "ncclAllReduce", 0, 100, 7, 50)
    time.sleep(0.2)
    os.kill(agent.pid, signal.SIGCONT)

    def one_more_is_seen(series):
        late.do("call", "ncclAllReduce", 0, 100, 7, 1)
        return made(series, late_comms)

    agent.until(one_more_is_seen, "calls in the other process", 60)
    seen = made(agent.fresh(2), late_comms)  # fewer than there were, and from now on all
    late.do("call", "ncclAllReduce", 0, 100, 7, 10)
    after = late.make("init", 7, 8, 3)
    late.do("call", "ncclAllReduce", 7, 100, 7, 30)
    agent.until(lambda s: made(s, [after]) == 30, "what came later")
    series = agent.until(lambda s: has_identity(s, after, "observed"), "its making was seen")
    assert made(series, late_comms) == seen + 10
    assert has_identity(series, late_comms[0], "recovered"), series.get("nccl_communicator_info",
                                                                        pid=str(late.pid))
    expect(agent, comms, int(job.do("stop")[0]))


def test_who_captures_keeps_the_probes():
    """The first capture of one that was handed over is not known, and said to be so; then all is."""
    UNRESOLVED = "nccl_bpftrace_graph_launches_unresolved_total"
    sim = nbt.Sim("comm a; loop 1200 { allreduce a 10 fp32; pause 10 }; "
                  "capture g { allreduce a 10 fp32 x 3 }; replay g x 20; synchronize; print first; "
                  "wait; capture h { broadcast a 10 fp32 root=0 x 4 }; replay h x 30; synchronize; "
                  "allreduce a 10 fp32 x 5", gpu=True, plugin=PLUGIN)
    agent = agent_of()
    sim.go()
    wait_probed(sim.pids[0])
    nbt.wait_for(lambda: not any(is_probed(pid) for pid in sim.pids), "both handed over", 20)
    assert sim.process.stdout.readline() == "first\n"
    for pid in sim.pids:
        wait_probed(pid)
    agent.fresh(2)  # the tracer itself knows by then that they are, and only so knows captures
    sim.go()
    sim.wait_done()
    expected = {("AllReduce", "launched"): 2 * 1205, ("AllReduce", "captured"): 2 * 3,
                ("Broadcast", "captured"): 2 * 4, ("Broadcast", "replayed"): 2 * 4 * 30}

    def counted(series):
        comms = {e["comm"] for e in sim.expected()}
        return {key: sum(series.sum(CALLS, comm=comm, operation=key[0], mode=key[1])
                         for comm in comms) for key in expected}

    try:
        agent.until(lambda s: counted(s) == expected, "all")
    except AssertionError:
        print(counted(agent.series()), expected)
        raise
    series = agent.fresh(2)
    assert counted(series) == expected, counted(series)
    assert series.one(UNRESOLVED) == 2 * 20
    time.sleep(3)
    assert all(is_probed(pid) for pid in sim.pids)
