# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The public cases about verdicts in simulated jobs: state, culprit, operation, number, and how long
after the fault the culprit is named. The table that each test prints goes into a closing note."""
import time

import nbt
import servers
import verdicts
from hook import PLUGIN
from verdicts import Case, FaultySim, Truth, Watcher

STUCK_AFTER = 8
STEPS, HZ = 40, 10  # healthy ones before the fault
CALL = "allreduce w 1000 fp32"
# A machine of two cores that simulates hundreds of ranks runs them late: limits are those of a
# real node, plus this.
SLACK = 3.0


def limits(culprit=10, last=STUCK_AFTER + 10):
    return {"name_within": culprit + SLACK, "reach_within": last + SLACK}


def others(ranks, culprit):
    """The rank list of all but one."""
    left = [f"0-{culprit - 1}"] if culprit > 1 else ["0"] if culprit == 1 else []
    right = [f"{culprit + 1}-{ranks - 1}"] if culprit < ranks - 1 else []
    return ",".join(left + right)


def work(hz=HZ):
    """What a rank computes between two calls: now less, now more."""
    return f"pause {900 / hz:.0f} {1100 / hz:.0f}"


def healthy(call=CALL, steps=STEPS, hz=HZ, after=""):
    return f"comm w config; loop {steps} {{ {work(hz)}; {call}{after} }};"


def forever(before="", call=CALL, hz=HZ, after=""):
    return f"loop forever {{ {work(hz)}; {before} {call}{after} }}"


def start(name, script, truth, ranks, plugin=False, gpu=False, sync=True):
    args = ["--sync"] if sync and not gpu else []
    job = FaultySim(script, ranks=ranks, args=args, gpu=gpu, plugin=PLUGIN if plugin else None)
    name += " (plugin)" if plugin else ""
    return Case(name, truth, job)


def check(cases, watcher, seconds, least=0):
    """Starts the jobs, follows them, prints what was said of them."""
    watcher.wait_traced([pid for case in cases for pid in case.job.pids])
    for case in cases:
        case.job.go()
    verdicts.watch(watcher, cases, seconds, least)
    verdicts.report(cases)
    bad = [case.name for case in cases if case.finding.outcome != "right"]
    assert not bad, bad


def missing(ranks, r):
    """V1: a rank that does not call while its peers wait for it."""
    truth = Truth("missing", ("waiting", "stuck"), frozenset([r]), "AllReduce", "missing_call",
                  **limits())
    tail = f"@{r} stamp fault {STEPS + 1}; @{r} pause 600000; {CALL}"
    yield start("V1 missing call", healthy() + tail, truth, ranks)
    after = "; synchronize"
    for plugin in (False, True):
        yield start("V1 missing call, hosts do not wait", healthy(after=after) + tail + after,
                    truth, ranks, plugin, gpu=True)


def stopped(ranks, r):
    """V8: SIGSTOP is another verdict than a GPU that is stuck."""
    truth = Truth("stopped", ("waiting", "stuck"), frozenset([r]), "AllReduce", "missing_call",
                  **limits())
    yield start("V8 SIGSTOP", f"{healthy()} @{r} stamp fault {STEPS + 1}; @{r} stop; {CALL}", truth,
                ranks)


def behind_a_kernel(ranks, r):
    """V2, V8: all have called, one GPU works on something else. Known with the plugin only."""
    script = (f"{healthy(after='; synchronize')} @{r} stamp fault {STEPS + 1}; "
              f"@{r} compute 600000; {CALL}; synchronize")
    truth = Truth("gpu", ("waiting", "stuck"), frozenset([r]), "AllReduce", "gpu_not_started",
                  **limits())
    yield start("V2 GPU behind a kernel", script, truth, ranks, plugin=True, gpu=True)
    yield start("V2 GPU behind a kernel", script, Truth("none"), ranks, gpu=True)


def straggler(ranks, r):
    """V3: late by 50 ms at every step."""
    truth = Truth("straggler", ("straggler",), frozenset([r]), "AllReduce", "late",
                  **limits(15, 15))
    yield start("V3 straggler", f"{healthy()} @{r} stamp fault; " + forever(f"@{r} pause 50;"),
                truth, ranks)
    # hosts that do not wait: the GPU is late, and only the plugin knows
    truth = Truth("straggler", ("straggler",), frozenset([r]), "AllReduce", "late_on_gpu",
                  **limits(15, 15))
    script = (f"{healthy(after='; synchronize')} @{r} stamp fault; " +
              forever(f"@{r} compute 50;", after="; synchronize"))
    yield start("V3 late on the GPU", script, truth, ranks, plugin=True, gpu=True)
    yield start("V3 late on the GPU", script, Truth("none"), ranks, gpu=True)


def mismatches(ranks, r):
    """V4: one rank disagrees once, nothing hangs, and the job goes on."""
    rest, n = others(ranks, r), STEPS + 1
    kinds = {
        "count": ("allreduce w 1000 fp32", "allreduce w 2000 fp32", "AllReduce", ("1000", "2000")),
        "datatype": ("allreduce w 1000 fp32", "allreduce w 1000 int32", "AllReduce", ()),
        "redop": ("allreduce w 1000 fp32", "allreduce w 1000 fp32 op=max", "AllReduce", ()),
        "root": ("broadcast w 1000 fp32", "broadcast w 1000 fp32 root=1", "Broadcast", ("0", "1")),
        "operation": ("allreduce w 10 fp32; ROLE broadcast w 10 fp32",
                      "broadcast w 10 fp32; ROLE allreduce w 10 fp32", None, ()),
    }
    for kind, (right, wrong, operation, values) in kinds.items():
        number = {"AllReduce": n, "Broadcast": 1}.get(operation, "")
        truth = Truth("mismatch", ("mismatch",), frozenset([r]), operation, "disagree", values,
                      **limits(5, 5))
        script = (f"{healthy()} @{r} stamp fault {number}; "
                  f"@{rest} {right.replace('ROLE', '@' + rest)}; "
                  f"@{r} {wrong.replace('ROLE', f'@{r}')}; " + forever())
        yield start(f"V4 {kind}", script, truth, ranks)


def slow_link(r):
    """Every transfer takes much longer than it used to, and no rank is late. With the plugin only."""
    truth = Truth("slow", ("slow",), frozenset(), "AllReduce", "slow_transfer", **limits(15, 15))
    call = "allreduce w 50000000 fp32"
    yield start("slow link", f"{healthy(call, 300, after='; synchronize')} @{r} stamp fault; "
                f"@{r} gpu link=20; " + forever(call=call, after="; synchronize"), truth, 8,
                plugin=True, gpu=True)


def unhurt(ranks):
    """No fault: calls, and ranks that drift by tens of milliseconds and never wait for one another."""
    yield start("healthy", "comm w config; " + forever(), Truth("none"), ranks)
    yield start("drift", "comm w config; " + forever(), Truth("none"), ranks,
                sync=False)


def test_eight_ranks_hurt():
    watcher = Watcher("--stuck-after", STUCK_AFTER)
    cases = [*missing(8, 3), *stopped(8, 3), *behind_a_kernel(8, 3), *straggler(8, 3), *unhurt(8)]
    check(cases, watcher, 60, least=25)


def test_eight_ranks_that_disagree():
    watcher = Watcher("--stuck-after", STUCK_AFTER)
    check([*mismatches(8, 3)], watcher, 40, least=15)


def test_slow_link():
    check([*slow_link(3)], Watcher("--stuck-after", STUCK_AFTER), 60)


def test_sixty_four_ranks():
    watcher = Watcher("--stuck-after", STUCK_AFTER)
    cases = [*stopped(64, 63), next(behind_a_kernel(64, 17)), *unhurt(64)]
    check(cases, watcher, 80, least=25)
    for case in cases:
        case.job.stop()
    cases = [next(missing(64, 0)), next(straggler(64, 40)), next(mismatches(64, 5))]
    check(cases, watcher, 80)


def test_attached_to_one_rank_after_the_other():
    """V5: to rank 0 at step 50, to rank 1 at step 80: no false mismatch, and a true one after that."""
    library = nbt.copy_library(nbt.tempdir() / "later.so")
    step = f"loop {{}} {{{{ {work(20)}; {CALL} }}}};"
    truth = Truth("mismatch", ("mismatch",), None, "AllReduce", "disagree",
                  ("1000", "2000"), **limits(5, 5))
    script = ("comm w config; " + step.format(50) + "@0 stamp fifty; wait; " + step.format(30) +
              f"@0 stamp eighty; wait; @1 load {library}\n" + step.format(200) +
              f"@1 stamp fault 281; @0 {CALL}; @1 allreduce w 2000 fp32;" + forever())
    case = start("V5 late by 30 steps", script, truth, 2)
    name, procs = servers.child_cgroup("late")
    case.job.go()
    nbt.wait_for(lambda: case.job.find("fifty"), "step 50", 30)
    procs.write_text(str(case.job.pids[0]))
    watcher = Watcher("--cgroup", name, "--stuck-after", STUCK_AFTER, agent_class=nbt.Agent)
    watcher.wait_traced(case.job.pids[:1])
    case.job.go()
    nbt.wait_for(lambda: case.job.find("eighty"), "step 80", 30)
    procs.write_text(str(case.job.pids[1]))
    case.job.go()
    watcher.wait_traced(case.job.pids)
    assert not case.job.fault(), "rank 1 was seen too late: the test shows nothing"
    verdicts.watch(watcher, [case], 40)
    verdicts.report([case])
    assert case.finding.outcome == "right"


def test_lost_records_accuse_nobody():
    """V6: what rests on absence is not claimed after a loss; that sight is degraded is said."""
    watcher = Watcher("--ring-size", "8K", "--stuck-after", STUCK_AFTER)
    healthy_job = start("V6 healthy", "comm w config; " + forever(hz=20), Truth("none"), 8)
    truth = Truth("missing", ("waiting", "stuck"), frozenset([3]), "AllReduce", **limits())
    hurt = start("V6 missing while blind", healthy(steps=60, hz=20) + "wait; "
                 f"loop 20 {{ {work(20)}; {CALL} }}; @3 stamp fault 81; @3 pause 600000; {CALL}",
                 truth, 8)
    cases = [healthy_job, hurt]
    watcher.wait_traced([pid for case in cases for pid in case.job.pids])
    for case in cases:
        case.job.go()
    verdicts.watch(watcher, cases, 6)
    with watcher.blinded():
        hurt.job.go()
        nbt.wait_for(hurt.job.fault, "the fault", 30)
        time.sleep(1)  # not a wait: both jobs go on, or wait, unseen
    verdicts.watch(watcher, cases, 25)
    verdicts.report(cases)
    lost = watcher.agent.series().sum("nccl_bpftrace_events_lost_total")
    assert lost > 0, "nothing was lost: the test shows nothing"
    assert any(said.state == "degraded_sight" for said in hurt.finding.said)
    assert hurt.finding.outcome in ("degraded", "right"), hurt.finding.outcome
    assert healthy_job.finding.outcome == "right", "sight comes back with the next call of all"


def test_pauses_are_no_faults():
    """V7, shortened (10 minutes of idleness are a unit test's, in its own time): nobody calls; all
    pause at one number; rank 0 is busy elsewhere for a while and its peers wait for it."""
    pause, stuck_after = 15, 30
    watcher = Watcher("--stuck-after", stuck_after)
    resting = f"pause {pause}000"
    truth = Truth("checkpoint", ("waiting",), frozenset([0]), "AllReduce", "missing_call",
                  over=True, **limits(pause, pause))
    cases = [
        start("V7 nobody calls", healthy() + "pause 600000", Truth("none"), 8),
        start("V7 all pause", f"{healthy()} {resting}; " + forever(), Truth("none"), 8),
        start("V7 checkpoint", f"{healthy()} @0 stamp fault {STEPS + 1}; @0 {resting}; " + forever(),
              truth, 8)]
    check(cases, watcher, 60, least=STEPS / HZ + pause + 8)
    _, states = watcher.pictures()
    assert states[cases[0].comm] == {"idle"}, states[cases[0].comm]
