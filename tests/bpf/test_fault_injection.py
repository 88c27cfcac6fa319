# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
Random faults in small jobs, many at a time under one agent: the right verdict of each, and no false
alarm. NBT_SEED=N repeats a run; its table goes into README.
"""
import os
import random
import statistics
import time
from dataclasses import dataclass

import nbt
import verdicts
from hook import PLUGIN
from verdicts import Case, FaultySim, Truth, Watcher

SCENARIOS = 200
STUCK_AFTER = 5
BLIND_SHARE = 0.05  # that may end as unknown or degraded_sight, with late attach or loss only
# Two cores simulate some hundred ranks here: limits are those of a real node, plus this.
SLACK = 3.0

# Of 200: kind, how many, of those attached to late, of those while records are lost.
PLAN = (("none", 34, 6, 5), ("idle", 10, 2, 0), ("drift", 16, 3, 2), ("missing", 34, 8, 4),
        ("stopped", 12, 3, 1), ("killed", 12, 0, 0), ("gpu", 8, 1, 0), ("straggler", 30, 6, 4),
        ("mismatch", 32, 6, 3), ("aborted", 6, 0, 0), ("error", 6, 2, 1))
HURT = "waiting", "stuck"


@dataclass
class Scenario:
    kind: str
    ranks: int
    culprit: int
    hz: int
    steps: int  # healthy ones before the fault
    seed: int
    late: bool = False  # the agent is started in the middle of the job
    before: bool = False  # and after the fault
    lossy: bool = False

    @property
    def rest(self):
        return ",".join(str(r) for r in range(self.ranks) if r != self.culprit)

    def call(self, extra=""):
        return f"allreduce w {1000 + self.seed % 1000} fp32{extra}"


def draw(rng, kind, late, lossy):
    hz = rng.choice((10, 15, 20))
    s = Scenario(kind, rng.randint(3, 8), 0, hz, int(hz * rng.uniform(3, 6)), rng.getrandbits(30),
                 late, lossy=lossy)
    s.culprit = rng.randrange(s.ranks)
    if late:
        s.steps += 4 * hz
        # what has no lasting trace can only be seen by who was there
        s.before = kind in ("missing", "stopped", "straggler", "error") and rng.random() < 0.5
        s.steps = s.steps // 4 if s.before else s.steps
    if lossy:
        s.hz = 40
        s.steps = int(40 * rng.uniform(7, 12))
    return s


def plan(seed):
    """[[scenarios of one batch]]: late ones, and those of a lossy agent, have batches of their own."""
    rng = random.Random(seed)
    plain, late, lossy = [], [], []
    for kind, n, n_late, n_lossy in PLAN:
        late += [draw(rng, kind, True, False) for _ in range(n_late)]
        lossy += [draw(rng, kind, False, True) for _ in range(n_lossy)]
        plain += [draw(rng, kind, False, False) for _ in range(n - n_late - n_lossy)]
    for batch in (plain, late, lossy):
        rng.shuffle(batch)
    size = -(-len(plain) // 5)
    batches = [plain[i:i + size] for i in range(0, len(plain), size)]
    return [*batches, late[::2], late[1::2], lossy]


def disagreement(s):
    """(what the culprit calls, what the others call, operation, number, words of the sentence)"""
    kind = s.seed % 5
    number, count = s.steps + 1, 1000 + s.seed % 1000
    if kind == 0:
        return (f"allreduce w {count + 7} fp32", s.call(), "AllReduce", number,
                (str(count + 7), str(count)))
    if kind == 1:
        return f"allreduce w {count} int32", s.call(), "AllReduce", number, ()
    if kind == 2:
        return s.call(" op=max"), s.call(), "AllReduce", number, ()
    if kind == 3:
        return "reduce w 10 fp32 root=2", "reduce w 10 fp32 root=1", "Reduce", number, ("1", "2")
    return ("broadcast w 10 fp32; @%d allreduce w 10 fp32" % s.culprit,
            "allreduce w 10 fp32; @%s broadcast w 10 fp32" % s.rest, None, "", ())


def script_of(s):
    """(script, truth)"""
    r, n, call = s.culprit, s.steps + 1, s.call()
    work = f"pause {900 / s.hz:.0f} {1100 / s.hz:.0f}"
    on = f"loop forever {{ {work}; {call} }}"
    # as jobs do: what is called once was called before
    also = "; reduce w 10 fp32 root=1; broadcast w 10 fp32" if s.kind == "mismatch" else ""
    begin = f"comm w config; loop {s.steps} {{ {work}; {call}{also} }};"
    mark = f"@{r} stamp fault {n};"
    times = {"name_within": 10 + SLACK, "reach_within": STUCK_AFTER + 10 + SLACK}
    one = frozenset([r])
    missing = Truth(s.kind, HURT, one, "AllReduce", "missing_call", **times)
    if s.kind == "none":
        return begin + on, Truth(s.kind)
    if s.kind == "idle":
        return begin + "pause 600000", Truth(s.kind)
    if s.kind == "drift":  # the same steps, and nobody waits: ranks wander apart
        return begin + on, Truth(s.kind)
    if s.kind == "missing":
        return begin + f"{mark} @{r} pause 600000; {call}", missing
    if s.kind == "stopped":
        return begin + f"{mark} @{r} stop; {call}", missing
    if s.kind == "gpu":  # works on something else for ever; each step waits for its GPU
        step = f"{call}; synchronize"
        return (f"comm w config; loop {s.steps} {{ {work}; {step} }}; {mark} @{r} compute forever; "
                f"{step}", Truth(s.kind, HURT, one, "AllReduce", "gpu_not_started", **times))
    if s.kind == "killed":
        return begin + f"{mark} @{r} kill; {call}", Truth(
            s.kind, ("aborted",), one, "AllReduce", "ended", **times)
    if s.kind == "aborted":
        return begin + f"{mark} @{r} abort w; @{r} pause 600000; {call}", \
            Truth(s.kind, ("aborted",), one, **times)
    if s.kind == "error":
        return begin + f"{mark} @{r} error w ncclRemoteError; @{r} pause 600000; {call}", \
            Truth(s.kind, ("error",), one, values=("ncclRemoteError",), **times)
    if s.kind == "straggler":
        late = f"@{r} loop forever {{ {work}; pause {30 + s.seed % 30}; {call} }};"
        return f"{begin} @{r} stamp fault; {late} {on}", \
            Truth(s.kind, ("straggler",), one, "AllReduce", "late", name_within=15 + SLACK)
    wrong, right, operation, number, values = disagreement(s)
    return begin + f"@{r} stamp fault {number}; @{s.rest} {right}; @{r} {wrong}; " + on, \
        Truth(s.kind, ("mismatch",), one, operation, "disagree", values, name_within=5 + SLACK, once=True)


def start(s):
    script, truth = script_of(s)
    gpu = s.kind == "gpu"
    args = ["--seed", s.seed] + ([] if s.kind in ("drift", "gpu") else ["--sync"])
    words = [f"{name}={value}" for name, value in vars(s).items() if value is not False]
    return Case(" ".join(words), truth, FaultySim(
        script, ranks=s.ranks, args=args, gpu=gpu, plugin=PLUGIN if gpu else None))


def follow(batch, watcher, cases):
    """Until each fault is named, or its time is over; jobs without one are watched as long."""
    least = max(s.steps / s.hz for s in batch) + STUCK_AFTER + 3
    verdicts.watch(watcher, cases, least + 15, least)
    for case in cases:
        case.job.stop()


def run_plain(batch):
    watcher = Watcher("--stuck-after", STUCK_AFTER)
    cases = [start(s) for s in batch]
    watcher.wait_traced([pid for case in cases for pid in case.job.pids])
    for case in cases:
        case.job.go()
    follow(batch, watcher, cases)
    return watcher, cases


def run_late(batch):
    cases = [start(s) for s in batch]
    for case in cases:
        case.job.go()
    early = [case for case, s in zip(cases, batch) if s.before]
    nbt.wait_for(lambda: all(case.job.fault() for case in early), "the faults before the attach", 30)
    watcher = Watcher("--stuck-after", STUCK_AFTER)
    for case in cases:
        case.since = time.monotonic()
    follow(batch, watcher, cases)
    return watcher, cases


def run_lossy(batch):
    """The agent is stopped for a while, with a ring that holds less than what is called meanwhile."""
    watcher = Watcher("--stuck-after", STUCK_AFTER, "--ring-size", "16K")
    cases = [start(s) for s in batch]
    watcher.wait_traced([pid for case in cases for pid in case.job.pids])
    for case in cases:
        case.job.go()
    verdicts.watch(watcher, cases, 5, least=5)
    with watcher.blinded() as times:
        time.sleep(4)  # not a wait: this is how long it sees nothing
    for case in cases:
        case.since, case.blind = times[1], times
    follow(batch, watcher, cases)
    lost = watcher.agent.series().sum("nccl_bpftrace_events_lost_total")
    assert lost > 0, "nothing was lost: the batch shows nothing"
    return watcher, cases


def summarise(found):
    """One row for each kind; found: [(scenario, case)]"""
    rows = []
    for kind in [row[0] for row in PLAN]:
        here = [case.finding for s, case in found if s.kind == kind]
        times = [f.seconds for f in here if f.seconds is not None]
        count = {name: sum(f.outcome == name for f in here)
                 for name in ("right", "unknown", "degraded")}
        rows.append((kind, len(here), *count.values(), len(here) - sum(count.values()),
                     f"{statistics.median(times):.1f} / {max(times):.1f}" if times else "-"))
    head = ("fault", "scenarios", "right", "unknown", "degraded sight", "wrong",
            "s to the name, median / max")
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 6)), ""))
    nbt.table(head, rows)


def test_two_hundred_scenarios():
    seed = int(os.environ.get("NBT_SEED", "1"))
    print(f"     NBT_SEED={seed}")
    begin, found = time.monotonic(), []
    for batch in plan(seed):
        runner = run_lossy if batch[0].lossy else run_late if batch[0].late else run_plain
        watcher, cases = runner(batch)
        watcher.agent.stop()
        found += zip(batch, cases)
        print(f"     {time.monotonic() - begin:.0f} s: {len(found)} scenarios", flush=True)
    summarise(found)
    bad = [case for _, case in found if case.finding.outcome not in ("right", "unknown", "degraded")]
    if bad:
        verdicts.report(bad)
    assert not bad, f"{len(bad)} wrong"
    blind = [(s, case) for s, case in found if case.finding.outcome != "right"]
    assert len(found) >= SCENARIOS and len(blind) <= BLIND_SHARE * len(found), len(blind)
    assert all(s.late or s.lossy for s, _ in blind), [case.name for _, case in blind]
