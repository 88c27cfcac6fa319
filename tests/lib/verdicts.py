# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Verdicts of a running agent against the truth of jobs with faults: what was said, of whom, when."""
import contextlib
import os
import re
import signal
import threading
import time
from dataclasses import dataclass, field

import nbt
import servers

STATE = "nccl_communicator_state"
NS = 1e9
# A state that says that something is wrong with a rank; what is merely not known accuses nobody.
ACCUSING = {"waiting", "stuck", "straggler", "slow", "mismatch", "aborted", "error"}
BLIND = {"unknown", "degraded_sight"}


def ranks_of(text):
    """{ranks} of "0-2,5"; of "-" none."""
    found = set()
    for part in text.split("+")[0].split(",") if text != "-" else ():
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return frozenset(found)


@dataclass
class Said:
    """One line of the agent's about one communicator."""
    at: float  # seconds of CLOCK_MONOTONIC, when it was read
    comm: str
    state: str
    culprits: frozenset
    waiting: frozenset
    operation: str
    sequence: int  # 0: none
    cause: str
    why: str

    LINE = re.compile(r'^\S+Z verdict=(\S+) (.*?) why="(.*)"$')

    @classmethod
    def read(cls, line):
        found = cls.LINE.match(line)
        if not found:
            return None
        words = dict(word.split("=", 1) for word in found[2].split())
        sequence = words["sequence"]
        return cls(time.monotonic(), words["comm"], found[1], ranks_of(words["culprits"]),
                   ranks_of(words["waiting"]), words["operation"],
                   0 if sequence == "-" else int(sequence), words["cause"], found[3])

    def __str__(self):
        return (f"{self.state} ({self.cause}) culprits {sorted(self.culprits)} {self.operation} "
                f"{self.sequence}: {self.why}")


class Watcher:
    """An agent, and what it has said of each communicator so far."""

    def __init__(self, *args, interval=1, agent_class=servers.agent):
        self.agent = agent_class(*args, interval=interval)
        self.said = {}
        self.read_to, self.rest = 0, ""
        self.ended = threading.Event()
        thread = threading.Thread(target=self.follow, daemon=True)
        thread.start()
        nbt.defer(thread.join)
        nbt.defer(self.ended.set)

    def follow(self):
        """A line is read soon after it was written, whatever the test is at meanwhile."""
        while not self.ended.wait(0.05):
            self.poll()

    def poll(self):
        raw = os.pread(self.agent.log.fileno(), 1 << 22, self.read_to)
        self.read_to += len(raw)
        *lines, self.rest = (self.rest + raw.decode()).split("\n")
        for line in lines:
            said = Said.read(line)
            if said:
                self.said.setdefault(said.comm, []).append(said)

    @contextlib.contextmanager
    def blinded(self):
        """The agent is stopped meanwhile: what its ring does not hold is lost. Gives [begin, end]."""
        times = [time.monotonic(), float("inf")]
        os.kill(self.agent.pid, signal.SIGSTOP)
        try:
            yield times
        finally:
            times[1] = time.monotonic()
            os.kill(self.agent.pid, signal.SIGCONT)

    def of(self, comm):
        return list(self.said.get(comm, ()))

    def pictures(self):
        """({pid: communicator}, {communicator: {states of its ranks}}) of the latest textfile."""
        series = self.agent.series()
        comms, states = {}, {}
        for labels, _ in series.get("nccl_communicator_info"):
            comms[int(labels["pid"])] = labels["comm"]
        for labels, value in series.get(STATE):
            if value == 1:
                states.setdefault(labels["comm"], set()).add(labels["state"])
        return comms, states

    def wait_traced(self, pids, seconds=60):
        """Until every one of these processes is attached to: nothing they call from now on is missed."""
        def look():
            traced = {int(labels["pid"]) for labels, _ in
                      self.agent.series().get("nccl_bpftrace_process_info")}
            return set(pids) <= traced

        nbt.wait_for(look, f"{len(pids)} processes traced", seconds, 0.1)


class FaultySim(nbt.Sim):
    """A simulated job whose `stamp` lines are read as they come; `stamp fault N` marks the fault,
    with the number of the operation that it strikes."""

    def __init__(self, script, ranks=2, **kwargs):
        servers.own_cgroup()
        self.stamps = []
        super().__init__(script, ranks=ranks, **kwargs)
        threading.Thread(target=self.read_stamps, daemon=True).start()

    def read_stamps(self):
        for line in self.process.stdout:
            found = re.match(r"stamp rank=(\d+) ns=(\d+) (\S+) ?(.*)", line)
            if found:
                self.stamps.append((found[3], int(found[2]) / NS, found[4]))

    def stop(self):
        """At once: its ranks hang, and die with their driver."""
        return nbt.end(self.process, signal.SIGKILL)

    def find(self, name):
        """(seconds of CLOCK_MONOTONIC, words) of the first stamp of that name; None."""
        return next((stamp[1:] for stamp in list(self.stamps) if stamp[0] == name), None)

    def fault(self):
        """(seconds of CLOCK_MONOTONIC, sequence number or 0) once it was injected; None."""
        found = self.find("fault")
        return found and (found[0], int(found[1] or 0))


@dataclass
class Truth:
    """What is wrong with a job, and how that is said. No states: nothing is wrong with it."""
    kind: str
    states: tuple = ()  # each says it; the last of them is the one that must be reached
    culprits: frozenset = frozenset()  # None: whichever, where two ranks alone disagree
    operation: str = None
    cause: str = None  # of the last state
    values: tuple = ()  # words that the last state's sentence must hold
    name_within: float = 10.0  # seconds from the fault until the culprits are named
    reach_within: float = 30.0  # until the last state
    resting: tuple = ("healthy", "idle")  # states without a fault, or after it is over
    over: bool = False  # the fault ends by itself: a resting state must come again
    once: bool = False  # one call shows it, and nothing after that
    may: bool = False  # what is seen of the job need not show it
    passes: frozenset = frozenset()  # states that it must be seen in on the way


@dataclass
class Finding:
    """outcome: right, unknown, degraded, missed, late or wrong."""
    outcome: str
    seconds: float = None  # from the fault to the name
    reached: float = None  # to the last state
    text: str = ""
    said: list = field(default_factory=list)


def is_right(said, truth, sequence):
    """Of an accusing line: is it what is wrong?"""
    is_last = said.state == truth.states[-1] if truth.states else False
    return (said.state in truth.states and truth.culprits in (None, said.culprits) and
            (not truth.operation or said.operation == truth.operation and
             sequence in (0, said.sequence)) and
            (not is_last or not truth.cause or said.cause == truth.cause) and
            (not is_last or all(word in said.why for word in truth.values)))


def find_wrong(history, truth, fault):
    """The first line that accuses where nothing is wrong, or of another thing; None."""
    at, sequence = fault or (float("inf"), 0)
    for said in history:
        if said.state in ACCUSING and (said.at < at or not is_right(said, truth, sequence)):
            return said
    return None


def blindness(history, states):
    if "degraded_sight" in states or history and history[-1].state == "degraded_sight":
        return "degraded"
    return "unknown" if not states or "unknown" in states else None


def evaluate(history, states, truth, fault, since):
    """
    The finding of a communicator so far. history: what was said of it; states: of its ranks in the
    latest textfile; fault: (seconds, sequence number) or None; since: the fault's time, or, where
    that is later, when the agent first could see it.
    """
    wrong = find_wrong(history, truth, fault)
    if wrong:
        return Finding("wrong", text=f"{wrong.at - (fault[0] if fault else wrong.at):+.1f} s: "
                       f"{wrong}", said=history)
    if not truth.states:
        ok = states and states <= set(truth.resting)
        return Finding("right" if ok else blindness(history, states) or "wrong",
                       text=f"states {sorted(states)}", said=history)
    if not fault:
        return Finding("missed", text="the fault did not come", said=history)
    hits = [said for said in history if said.state in ACCUSING]
    named = hits[0].at - since if hits else None
    last = next((said.at - since for said in hits if said.state == truth.states[-1]), None)
    rested = states and states <= set(truth.resting) if truth.over else truth.states[-1] in states
    if last is not None and rested:
        late = named > truth.name_within or last > truth.reach_within
        return Finding("late" if late else "right", named, last, said=history)
    if truth.may and not hits and states and states <= set(truth.resting):
        return Finding("right", text="not seen", said=history)
    text = str(history[-1]) if history else "nothing was said"
    return Finding(blindness(history, states) or "missed", named, last,
                   f"states {sorted(states)}; {text}", history)


@dataclass
class Case:
    """A job and the truth about it."""
    name: str
    truth: Truth
    job: object  # with pids, by rank, and fault(): (seconds of CLOCK_MONOTONIC, number) or None
    pids: tuple = ()
    comm: str = ""
    finding: Finding = None
    since: float = 0  # not before it can the agent know of the fault
    blind: tuple = ()  # from when to when records were lost
    seen: set = field(default_factory=set)  # states

    def look(self, watcher, comms, states):
        if not self.comm:
            found = {comms.get(pid) for pid in self.job.pids}
            self.comm = found.pop() if len(found) == 1 and None not in found else ""
        fault = self.job.fault()
        since = max(fault[0] if fault else 0, self.since)
        self.seen |= states.get(self.comm, set())
        self.finding = evaluate(watcher.of(self.comm), states.get(self.comm, set()), self.truth,
                                fault, since)
        if self.finding.outcome == "right" and not self.truth.passes <= self.seen:
            self.finding.outcome = "missed"
            self.finding.text = f"seen in {sorted(self.seen)} and not in {sorted(self.truth.passes)}"
        if self.truth.once and fault and self.blind and self.finding.outcome == "missed" and \
                self.blind[0] <= fault[0] <= self.blind[1]:
            self.finding.outcome = "degraded"  # its records are among those that were lost
        return self.finding

    def is_settled(self):
        """Nothing more has to be waited for."""
        return bool(self.truth.states) and self.finding.outcome in ("right", "wrong", "late")


def watch(watcher, cases, seconds, least=0):
    """Follows the cases until each fault is named, at least `least` and at most `seconds` long."""
    begin = time.monotonic()
    while True:
        comms, states = watcher.pictures()
        for case in cases:
            case.look(watcher, comms, states)
        now = time.monotonic() - begin
        if now > seconds or now > least and all(c.is_settled() or not c.truth.states
                                                for c in cases):
            return
        time.sleep(0.1)


def seconds_text(seconds):
    return "-" if seconds is None else f"{seconds:.1f}"


def report(cases, **columns):
    """Prints what was found of each case, and the whole story of those that were not right."""
    head = ("case", "found", "state", "culprit", "operation", "number", "named after, s",
            "reached after, s")
    rows = []
    for case in cases:
        hits = [said for said in case.finding.said if said.state in ACCUSING]
        last = hits[-1] if hits else None
        rows.append((case.name, case.finding.outcome, last.state if last else "none",
                     ",".join(map(str, sorted(last.culprits))) if last else "-",
                     last.operation if last else "-", last.sequence or "-" if last else "-",
                     seconds_text(case.finding.seconds), seconds_text(case.finding.reached)))
    nbt.table(head, rows)
    for case in cases:
        if case.finding.outcome != "right":
            print(f"{case.name} (communicator {case.comm}): {case.finding.outcome}: "
                  f"{case.finding.text}")
            for said in case.finding.said:
                print(f"    {said.at:.1f}: {said}")
