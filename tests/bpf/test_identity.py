# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whose call it was: every communicator with its rank and size, or `unknown`; never another's."""
import json
import subprocess

import nbt
from caller import Caller

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
INFO = "nccl_communicator_info"
CALLS = "nccl_operations_total"
LOST = "nccl_bpftrace_events_lost_total"
FLOAT32 = 7


def agent_of(*jobs, args=(), **kwargs):
    """One that sees these jobs alone: others may run on this machine."""
    pids = [pid for job in jobs for pid in getattr(job, "pids", None) or [job.pid]]
    return nbt.Agent(*args, *nbt.pid_words(pids), **kwargs)


def infos(series):
    """{(comm, rank): (nranks, identity)}"""
    return {(p["comm"], p["rank"]): (p["nranks"], p["identity"]) for p, _ in series.get(INFO)}


def expect_infos(agent, expected, seconds=20):
    """Until the textfile tells just these communicators: {(comm, rank): (nranks, identity)}."""
    try:
        return agent.until(lambda s: infos(s) == expected, "identities", seconds)
    except AssertionError:
        raise AssertionError(f"{infos(agent.series())} is not {expected}") from None


def of(comm, identity="observed"):
    return {(comm.hash, comm.rank): (comm.nranks, identity)}


def of_job(expected, identity):
    return {(e["comm"], e["rank"]): (e["nranks"], identity) for e in expected}


WAYS = ("comm first; comm second config; comm third scalable; split half second 2; "
        "split quarter half 2; group { split again first 1; comm fifth }; "
        "allreduce first 10 fp32; allreduce second 10 fp32; allreduce third 10 fp32; "
        "allreduce half 10 fp32; allreduce quarter 10 fp32; allreduce again 10 fp32; "
        "allreduce fifth 10 fp32")


def ways_of(nccl):
    return WAYS.replace(" scalable", "") if nccl == "2.19.3" else WAYS


def creations_seen(nccl):
    sim = nbt.Sim(ways_of(nccl), ranks=4, nccl=nccl)
    agent = agent_of(sim)
    sim.run()
    series = expect_infos(agent, of_job(sim.expected(), "observed"))
    assert series.sum(CALLS) == 4 * 7
    assert nbt.counted_totals(agent.fresh(), sim.expected()) == \
        nbt.expected_totals(sim.expected())


def creations_missed(nccl):
    """A call on each after attachment, for those NCCLs that list no communicators."""
    sim = nbt.Sim(ways_of(nccl) + "; barrier; @0 print first; wait; " +
                  "; ".join(f"allreduce {c} 10 fp32" for c in
                            "first second third half quarter again fifth".split()), ranks=4,
                  nccl=nccl)
    sim.go()
    assert sim.process.stdout.readline() == "first\n"
    agent = agent_of(sim)
    if nccl == "2.19.3":
        assert infos(agent.fresh()) == {}
    else:
        agent.until(lambda s: len(infos(s)) == 4 * 7, "the list of communicators")
    sim.go()
    sim.wait_done()
    expect_infos(agent, of_job(sim.expected(), "recovered"))
    agent.until(lambda s: s.sum(CALLS) == 4 * 7, "the calls since")
    assert infos(agent.series()) == of_job(sim.expected(), "recovered")


def test_creations_seen_2_19_3():
    creations_seen("2.19.3")


def test_creations_seen_2_28_9():
    creations_seen("2.28.9")


def test_creations_seen_2_99_1():
    creations_seen("2.99.1")


def test_creations_missed_2_19_3():
    creations_missed("2.19.3")


def test_creations_missed_2_28_9():
    creations_missed("2.28.9")


def test_creations_missed_2_99_1():
    creations_missed("2.99.1")


def never_another(library):
    """Ranks of a library without symbols: the right ones, or unknown; the counts hold anyhow."""
    sim = nbt.Sim("comm world; split half world 2; allreduce world 10 fp32 x 3; "
                  "allreduce half 10 fp32 x 2; barrier; @0 print first; wait; "
                  "allreduce world 10 fp32 x 3; allreduce half 10 fp32 x 2", ranks=4,
                  nccl=library)
    early = agent_of(sim)
    sim.go()
    assert sim.process.stdout.readline() == "first\n"
    late = agent_of(sim)
    sim.go()
    sim.wait_done()
    expected = sim.expected()
    ranks = {e["comm"]: e["nranks"] for e in expected}
    for agent, calls in ((early, 4 * 10), (late, 4 * 5)):
        series = agent.until(lambda s, n=calls: s.sum(CALLS) == n, f"{calls} calls")
        series = agent.fresh()
        by_pid = {e["pid"]: set() for e in expected}
        for e in expected:
            by_pid[e["pid"]].add((e["rank"], e["nranks"]))
        for pairs, _ in series.get(INFO):
            if pairs["identity"] == "unknown":
                assert pairs["rank"] == "", pairs
                continue
            assert (pairs["rank"], pairs["nranks"]) in by_pid[pairs["pid"]], (pairs, by_pid)
            assert pairs["comm"] in ranks or pairs["comm"].startswith("unknown-"), pairs
    return early


def stripped(version):
    path = nbt.tempdir() / "libnccl.so.2"
    subprocess.run([nbt.need("strip", "binutils"), "--strip-all", "-o", path,
                    nbt.BUILD / "sim" / version / "libnccl.so.2"], check=True)
    return path


def test_stripped_2_19_3():
    never_another(stripped("2.19.3"))


def test_stripped_2_28_9():
    early = never_another(stripped("2.28.9"))
    early.until(lambda s: {p["identity"] for p, _ in s.get(INFO)} == {"observed"}, "all seen")


def test_stripped_2_99_1():
    never_another(stripped("2.99.1"))


def test_init_all_and_shrink():
    job = Caller()
    agent = agent_of(job)
    expected = of(job.make("all", 0, 4))
    for v in range(1, 4):
        expected |= of(job.make("view", v))
    shrunk = job.make("shrink", 4, 2, 1)  # rank 2 of 4, without rank 1
    assert (shrunk.rank, shrunk.nranks) == ("1", "3")
    expected |= of(shrunk)
    expected |= of(job.make("config", 5, 8, 6))
    expected |= of(job.make("scalable", 6, 16, 9))
    assert len(expected) == 7
    expect_infos(agent, expected)
    for v in range(7):
        job.do("call", "ncclAllReduce", v, 10, FLOAT32, v + 1)
    series = agent.until(lambda s: s.sum(CALLS) == 28, "all calls")
    assert infos(series) == expected


def test_rank_by_arguments_alone():
    """Nobody knows this NCCL's layout, and it has no list: the creating call itself tells."""
    job = Caller("strange", [8, 5, 0, 7])
    agent = agent_of(job)
    for rank in (5, 0, 7):
        job.do("")
        agent.until(lambda s, r=str(rank): [p["nranks"] for p, _ in s.get(INFO, rank=r)] == ["8"],
                    f"rank {rank} of 8", 20)
    series = agent.fresh()
    assert len(series.get(INFO)) == 3
    assert {p["rank"]: v for p, v in series.get(CALLS)} == {"5": 6, "0": 1, "7": 8}
    assert {p["comm"].rsplit("-", 1)[0] for p, _ in series.get(INFO)} == {f"unknown-{job.pid}"}


def test_unknown_layout_attached_late():
    job = Caller("strange", [8, 0, 5])
    job.do("")
    agent = agent_of(job)
    job.do("")  # rank 5: seen from its creation
    agent.until(lambda s: s.sum(CALLS, rank="5") == 6, "rank 5", 20)
    assert agent.series().sum(CALLS) == 6


def test_unknown_layout_address_used_again():
    """Nothing tells one from the next there: then it has no rank, rather than the first one's."""
    job = Caller("strange", [8, "-", 5, 2])
    agent = agent_of(job)
    job.do("")
    agent.until(lambda s: s.sum(CALLS, rank="5") == 6, "rank 5", 20)
    job.do("")
    series = agent.until(lambda s: s.sum(CALLS) in (9, 3), "rank 2's calls", 20)
    for _ in range(3):
        series = agent.fresh()
        assert all(p["rank"] in ("", "2") for p, _ in series.get(CALLS) if _ in (9, 3)), \
            series.get(CALLS)
        assert series.get(CALLS, rank="5") == [] or series.one(CALLS, rank="5") == 6


def test_reduce_has_its_communicator_on_the_stack():
    job = Caller()
    agent = agent_of(job)
    one, two = job.make("init", 0, 8, 5), job.make("init", 1, 4, 2)
    job.do("call", "ncclReduce", 0, 10, FLOAT32, 3)
    job.do("call", "ncclReduce", 1, 10, FLOAT32, 4)
    series = agent.until(lambda s: s.sum(CALLS) == 7, "all calls")
    assert series.one(CALLS, comm=one.hash, rank="5", operation="Reduce") == 3
    assert series.one(CALLS, comm=two.hash, rank="2", operation="Reduce") == 4


def maps_of(agent, name):
    """The ids of the agent's BPF maps of a name."""
    ids = set()
    for text in nbt.descriptors(agent.pid):
        for line in text.splitlines():
            if line.startswith("map_id:"):
                ids.add(int(line.split()[1]))
    shown = json.loads(subprocess.run([nbt.need("bpftool", "bpftool"), "-j", "map", "show"],
                                      check=True, capture_output=True, text=True).stdout)
    return [m["id"] for m in shown if m["id"] in ids and m["name"] == name]


def kernel_counters(agent):
    (map_id,) = maps_of(agent, "counters")
    dump = json.loads(subprocess.run([nbt.need("bpftool", "bpftool"), "-j", "map", "dump", "id",
                                      str(map_id)], check=True, capture_output=True,
                                     text=True).stdout)
    return len(dump)


def churn(nccl):
    """1 000 communicators, each destroyed before the next is made, again and again."""
    job = Caller(nccl=nccl)
    agent = agent_of(job, args=["--max-series", 100000])
    sizes, at = [], None
    for rounds in range(4):
        at = job.do("churn", 1000)
        nbt.wait_for(lambda: kernel_counters(agent) == 0, "the counters of what has ended gone", 30)
        series = agent.fresh()
        assert infos(series) == {}, f"{len(infos(series))} that are destroyed are shown"
        assert series.sum(LOST) == 0
        sizes.append(series.one("nccl_bpftrace_resident_memory_bytes"))
    assert int(at[0]) < 10, "addresses are not used again: the test shows nothing"
    assert sizes[-1] < sizes[0] + (1 << 20), sizes
    comm = job.make("init", 0, 16, 11)
    job.do("call", "ncclAllReduce", 0, 10, FLOAT32, 5)
    series = expect_infos(agent, of(comm))
    assert series.one(CALLS, comm=comm.hash, rank="11") == 5


def test_churn_2_19_3():
    churn("2.19.3")


def test_churn_2_28_9():
    churn("2.28.9")


def test_churn_is_counted_while_it_lasts():
    """What ended within an interval is in the file that tells of the interval, with its rank."""
    job = Caller(nccl="2.19.3")
    agent = agent_of(job, args=["--max-series", 100000], interval=4)
    agent.fresh()  # the next is an interval away: all of them end within it
    job.do("churn", 1000)
    series = agent.until(lambda s: s.sum(CALLS) == 1000, "a thousand calls", 20)
    ranks = [p["rank"] for p, _ in series.get(CALLS)]
    assert {rank: ranks.count(rank) for rank in set(ranks)} == {str(r): 125 for r in range(8)}
    assert all(p["nranks"] == "8" for p, _ in series.get(INFO))


def test_ended_at_once_is_forgotten():
    """Ten at ten addresses, gone before anyone has read a counter: they stay neither."""
    job = Caller(nccl="2.19.3")
    agent = agent_of(job)
    alive = job.make("init", 20, 8, 7)
    for v in range(10):
        job.make("init", v, 8, 3)
        job.do("call", "ncclAllReduce", v, 10, FLOAT32, 1)
    for v in range(10):
        job.do("destroy" if v % 2 else "abort", v)
    job.do("call", "ncclAllReduce", 20, 10, FLOAT32, 1)
    agent.until(lambda s: s.sum(CALLS) >= 1, "calls")
    expect_infos(agent, of(alive))
    nbt.wait_for(lambda: kernel_counters(agent) == 1, "one counter left", 20)
