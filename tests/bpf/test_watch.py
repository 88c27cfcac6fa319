# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the judge is told, seen by the states of communicators in the textfile."""
import os
import signal
import time

import nbt
from hook import PLUGIN
from probed import is_probed, wait_probed

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
# The first takes all CPUs; the others need a library that nobody else probes.
ALONE = ("test_lost_records_accuse_nobody", "test_handed_over_and_a_rank_is_missing",
         "test_one_rank_is_handed_over_and_another_is_not")
STATE = "nccl_communicator_state"
WARM_UP = "comm a; loop 20 { allreduce a 1000 fp32; pause 20 };"


def agent_of(job, *args, **kwargs):
    """Only of this job: another one may run here."""
    return nbt.Agent(*nbt.pid_words(job.pids), *args, **kwargs)


def states(series, job_comm=None):
    """The states that hold, over all ranks."""
    return {labels["state"] for labels, value in series.get(STATE) if value}


def until(agent, state, seconds=20):
    return agent.until(lambda s: states(s) == {state}, f"{state}, not {states(agent.series())}",
                       seconds)


def stays(agent, allowed, seconds):
    """No other state in any file for so long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = states(agent.fresh())
        assert found <= set(allowed), found


def test_healthy_ranks_stay_healthy():
    job = nbt.Sim("comm a; split b a 2; loop forever { allreduce a 1000 fp32; "
                  "group { allgather b 10 fp32; allreduce b 10 fp32 x 3 }; alltoall a 10 fp32; "
                  "broadcast a 5 int8 root=3; pause 1 5 }", ranks=8, args=["--sync"])
    agent = agent_of(job)
    job.go()
    series = until(agent, "healthy")
    assert len(series.get(STATE)) == 16
    stays(agent, ["healthy"], 6)
    series = agent.fresh()
    assert not series.get("nccl_mismatches_total") and not series.get("nccl_errors_total")
    comms = {labels["comm"] for labels, _ in series.get(STATE)}
    for comm in comms:
        assert series.sum("nccl_operation_lateness_seconds_total", comm=comm) > 0
    count = series.sum("nccl_operation_lateness_seconds_count")
    assert count == series.sum("nccl_operation_lateness_seconds_bucket", le="+Inf") > 1000


def test_a_missing_rank_and_its_return():
    job = nbt.Sim(f"{WARM_UP} @0-6 allreduce a 1000 fp32; wait; @7 allreduce a 1000 fp32; "
                  "loop forever { allreduce a 1000 fp32; pause 20 }", ranks=8)
    agent = agent_of(job, "--stuck-after", 8)
    job.go()
    until(agent, "waiting")
    until(agent, "stuck")
    job.go()
    series = until(agent, "healthy")
    assert [labels["state"] for labels, value in series.get(STATE) if not value] in \
        ([], ["stuck"] * 8)
    assert not agent.fresh(2).get(STATE, state="stuck")


def hung_job(nccl=None, last="@0-6 allreduce a 1000 fp32;"):
    """Before any tracer came."""
    job = nbt.Sim(f"{WARM_UP} {last} barrier; @0 print hangs; wait", ranks=8, nccl=nccl)
    job.go()
    assert job.process.stdout.readline() == "hangs\n"
    return job


def test_a_job_that_hung_before():
    """NCCL's memory tells who has not called."""
    job = hung_job()
    until(agent_of(job, "--stuck-after", 8), "waiting")


def test_a_job_that_is_idle_since_before():
    job = hung_job(last="")
    agent = agent_of(job, "--stuck-after", 3)
    stays(agent, ["unknown", "idle", "healthy"], 12)


def test_nothing_is_known_of_a_job_that_hung_before_with_an_older_nccl():
    """It keeps no number, so nobody can say who is behind."""
    job = hung_job(nccl="2.23.4")
    agent = agent_of(job, "--stuck-after", 3)
    stays(agent, ["unknown", "idle", "healthy"], 10)


def test_an_older_nccl_seen_from_the_start():
    """Its calls are counted."""
    job = nbt.Sim(f"{WARM_UP} @0-6 allreduce a 1000 fp32; wait", ranks=8, nccl="2.23.4")
    agent = agent_of(job)
    job.go()
    until(agent, "waiting")


def test_ranks_attached_to_at_different_times():
    """V5: at different steps, in the middle of groups."""
    job = nbt.Sim("comm a; loop forever { group { allreduce a 1000 fp32; allreduce a 10 fp32; "
                  "allreduce a 500 fp64 }; pause 1 4 }", ranks=2, args=["--sync"])
    job.go()
    for _ in range(4):
        agent = agent_of(job)
        until(agent, "healthy")
        series = agent.fresh(2)
        assert states(series) == {"healthy"} and not series.get("nccl_mismatches_total")
        agent.stop()


def test_abort():
    job = nbt.Sim(f"{WARM_UP} @0-2 allreduce a 1000 fp32; wait; abort a; wait", ranks=4)
    agent = agent_of(job, interval=3)
    job.go()
    until(agent, "waiting")
    job.go()
    series = agent.until(lambda s: "aborted" in states(s), "aborted", 20)
    assert {value for _, value in
            series.get("nccl_errors_total", result="ncclCommAbort")} == {1}


def test_asynchronous_error():
    job = nbt.Sim(f"{WARM_UP} @2 error a ncclRemoteError; wait; @2 error a ncclSuccess; wait; "
                  "@2 error a ncclSystemError; wait", ranks=4)
    agent = agent_of(job)
    job.go()
    series = until(agent, "error", 30)
    errors = series.get("nccl_errors_total")
    assert [(l["rank"], l["result"], n) for l, n in errors] == [("2", "ncclRemoteError", 1)], errors
    job.go()
    agent.until(lambda s: "error" not in states(s), "the error is over", 30)
    job.go()
    series = until(agent, "error", 30)
    assert series.one("nccl_errors_total", rank="2", result="ncclRemoteError") == 1
    assert series.one("nccl_errors_total", rank="2", result="ncclSystemError") == 1


def test_captured_calls_are_compared_with_nobody():
    """C10: rank 0 captures three calls, rank 1 one; what is not replayed is no hang."""
    job = nbt.Sim("comm a; loop 20 { allreduce a 1000 fp32; pause 20 }; "
                  "@0 capture g { allreduce a 500 fp32 x 3 }; @1 capture g { allreduce a 100 fp32 };"
                  "loop forever { allreduce a 1000 fp32; pause 50 }", ranks=2, gpu=True)
    agent = agent_of(job)
    job.go()
    until(agent, "healthy")
    stays(agent, ["healthy"], 6)
    assert not agent.fresh().get("nccl_mismatches_total")


def test_a_graph_that_is_launched_moves_its_communicator():
    job = nbt.Sim("comm a; allreduce a 1000 fp32; capture g { allreduce a 500 fp32 }; synchronize; "
                  "loop forever { replay g; synchronize; pause 100 }", ranks=2, gpu=True)
    agent = agent_of(job)
    job.go()
    until(agent, "healthy")
    stays(agent, ["healthy"], 14)


def handed_over_job(script, ranks=4):
    job = nbt.Sim("comm a; loop forever { allreduce a 1000 fp32; allgather a 10 bf16; pause 20 }"
                  if script is None else script, ranks=ranks, gpu=True, plugin=PLUGIN)
    agent = agent_of(job, "--handover-after", 2)
    return job, agent


def test_handed_over_and_a_rank_is_missing():
    """Only the plugin tells of the calls, and who does not call is found all the same."""
    job, agent = handed_over_job(
        "comm a; loop 800 { allreduce a 1000 fp32; allgather a 10 bf16; pause 20 }; "
        "@0-2 allreduce a 1000 fp32; wait; @3 allreduce a 1000 fp32; "
        "loop forever { allreduce a 1000 fp32; pause 20 }")
    job.go()
    until(agent, "healthy")
    for pid in job.pids:
        wait_probed(pid, False)
    before = agent.fresh(2)
    lateness = before.sum("nccl_operation_lateness_seconds_count")
    series = agent.fresh(2)
    assert states(series) == {"healthy"}, states(series)
    assert not is_probed(job.pids[0])
    assert series.sum("nccl_operation_lateness_seconds_count") > lateness  # they are compared
    until(agent, "waiting", 40)
    job.go()
    until(agent, "healthy")
    assert not agent.fresh().get("nccl_mismatches_total")


def test_one_rank_is_handed_over_and_another_is_not():
    """The plugin's word of one and the probes' of the other agree."""
    job, agent = handed_over_job(
        "@1 env NCCL_PROFILER_PLUGIN=none; comm a; "
        "loop forever { allreduce a 1000 fp32; allgather a 10 bf16; broadcast a 7 fp64 root=1; "
        "group { reduce a 5 fp16 root=1; allreduce a 9 int8 x 3 }; pause 20 }", ranks=2)
    job.go()
    wait_probed(job.pids[0], False)
    assert is_probed(job.pids[1])
    before = agent.fresh(2)
    series = agent.fresh(3)
    assert states(series) == {"healthy"}, states(series)
    assert not series.get("nccl_mismatches_total"), series.get("nccl_mismatches_total")
    family = "nccl_operation_lateness_seconds_count"
    assert series.sum(family) > before.sum(family) + 100


def test_lost_records_accuse_nobody():
    """V6: in a ring of 4 KiB hardly any record finds a place."""
    job = nbt.Sim("comm a; loop forever { allreduce a 1000 fp32 x 50; pause 10 }", ranks=8,
                  args=["--sync"])
    agent = agent_of(job, "--ring-size", "4K", "--stuck-after", 2)
    job.go()
    os.kill(agent.pid, signal.SIGSTOP)  # else it may keep up
    time.sleep(2)
    os.kill(agent.pid, signal.SIGCONT)
    agent.until(lambda s: s.one("nccl_bpftrace_events_lost_total", reason="ring_full") > 1000,
                "lost records", 20)
    stays(agent, ["healthy", "unknown", "degraded_sight"], 10)
    assert not agent.fresh().get("nccl_mismatches_total")
