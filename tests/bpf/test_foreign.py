# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
--foreign-plugins: operations and GPU times from a profiler plugin that is not ours, in simulated
jobs against the account of their GPUs; and tables that are none.
"""
import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections import defaultdict
from pathlib import Path

import nbt
from hook import PLUGIN as OURS
from plugged import Plugged
from servers import fake_gpus, gpu_uuid

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
FOREIGN = nbt.BUILD / "tests/plugin/libforeign.so"
RANKS = 4
ABI = {"2.23.4": 1, "2.25.1": 2, "2.26.5": 3, "2.27.7": 4, "2.28.9": 5, "2.30.7": 6}
COMMS = "comm a config; comm b config; "
SOME = "loop 25 { allreduce a 10 fp32; allgather b 10 fp32; synchronize; pause 100; barrier }; "
WARM = COMMS + SOME + "@0 print warm; wait; "
WORK = "loop 20 { rate 20; barrier; compute 3; allreduce a 25000000 fp32 x 2; " \
       "allgather a 5000000 bf16; reducescatter b 5000000 fp16; broadcast a 3000000 fp64; " \
       "reduce b 20000 fp32; group { allreduce b 300 fp32; allreduce b 5000000 fp32 }; " \
       "synchronize }; pause 100; "


LEARN = "loop 12 { allreduce a 10 fp32; allgather b 10 fp32; synchronize; pause 100; barrier }; " \
        "@0 print learnt; wait; "


def told(series, family):
    """{(UUID, operation): sum}"""
    sums = defaultdict(float)
    for labels, value in series.get(family):
        sums[labels["UUID"], labels["operation"]] += value
    return sums


class Followed:
    """A job with the other plugin, an agent that follows it, and what that says of work()."""

    is_followed = False

    def __init__(self, script=WORK, warm=WARM, nccl=None, late=True, plugin=FOREIGN, **environment):
        self.is_followed = plugin == FOREIGN
        words = ["env", *[f"{name}={value}" for name, value in environment.items()]]
        self.sim = nbt.Sim(warm + script, ranks=RANKS, nccl=nccl, gpu=True, plugin=plugin,
                           args=["--gpus-per-node", RANKS], prefix=words if environment else ())
        if not late:
            self.start_agent()
        self.sim.go()
        assert self.sim.process.stdout.readline() == "warm\n"
        if late:
            self.start_agent()

    def start_agent(self):
        self.agent = nbt.Agent("--foreign-plugins", *nbt.pid_words(self.sim.pids),
                               preexec_fn=fake_gpus(RANKS))

    def wait_said(self, what, pids=None):
        """A line of the agent about each process."""
        nbt.wait_for(lambda: all(re.search(rf"process {pid}: profiler plugin \S+: {what}",
                                           self.agent.output()) for pid in pids or self.sim.pids),
                     f"{what} in what it says", 15)

    def learn(self):
        """Where the machine is busy, a job has made its communicators before it is followed."""
        self.wait_said("followed")
        self.sim.go()
        assert self.sim.process.stdout.readline() == "learnt\n"
        return self

    def work(self):
        if self.is_followed:  # where the machine is busy that takes its time
            self.wait_said("followed")
        self.before = self.agent.fresh(3)  # it knows nothing of what began before, for a second
        self.since_ns = time.monotonic_ns()
        self.sim.go()
        self.sim.wait_done()
        self.after = self.agent.fresh(2)
        return self

    def risen(self, family):
        old = told(self.before, family)
        return {key: value - old[key] for key, value in told(self.after, family).items()
                if value != old[key]}

    def truth(self):
        sums = defaultdict(lambda: [0, 0])
        for line in self.sim.truth():
            if line["host_ns"] > self.since_ns:
                total = sums[gpu_uuid(self.sim.pids.index(line["pid"])), line["operation"]]
                total[0] += 1
                total[1] += (line["last_ns"] - line["first_ns"]) / 1e9
        return sums

    def lost(self):
        return [x for x in self.after.get("nccl_bpftrace_events_lost_total") if x[1]] + \
            [x for x in self.after.get("nccl_bpftrace_invalid_timings_total") if x[1]]

    def expect_true(self, share=1.0):
        """share: of the operations that must be timed; 1: each, and none wrong."""
        truth, operations = self.truth(), self.risen("nccl_timed_operations_total")
        seconds = self.risen("nccl_timed_seconds_total")
        differ = {key: (n, operations.get(key, 0)) for key, (n, _) in truth.items()
                  if not n >= operations.get(key, 0) >= share * n}
        assert not differ and operations.keys() <= truth.keys(), f"true and told: {differ}"
        if share == 1:
            worst = max(abs(seconds[key] / true - 1) for key, (_, true) in truth.items())
            assert worst < 0.001, (worst, seconds, truth)
            assert not self.lost(), self.lost()
            print(f"     {sum(n for n, _ in truth.values())} operations, seconds off by at most "
                  f"{100 * worst:.4f} %")

    def expect_counts(self):
        expected = self.sim.expected()
        assert nbt.counted_totals(self.after, expected) == nbt.expected_totals(expected)

    def timing(self):
        return {labels["timing"] for labels, _ in self.after.get("nccl_communicator_info")}


def test_times_of_a_job_that_ran_before():
    """Which communicators its plugin's contexts stand for is learnt from NCCL's calls."""
    for nccl in ("2.27.7", "2.28.9", "2.30.7"):
        job = Followed(LEARN + WORK, nccl=nccl)
        job.wait_said(rf"followed \(ABI v{ABI[nccl]}\)")
        job.learn().work().expect_true()
        assert job.timing() == {"kernel_timer"}
        names = {labels["comm_name"] for labels, _ in job.after.get("nccl_communicator_info")}
        assert names == {"a", "b"}, names
        assert {labels["plugin"] for labels, _ in job.after.get("nccl_bpftrace_process_info")} == \
            {"absent"}
        job.agent.stop()
        job.sim.stop()


def test_times_of_a_job_that_comes_later():
    job = Followed(LEARN + WORK, late=False)
    job.learn().work().expect_true()
    job.expect_counts()


def test_versions_without_a_timer():
    """Algorithm and protocol, never a GPU time; counted as ever."""
    for nccl in ("2.23.4", "2.25.1", "2.26.5"):
        job = Followed(nccl=nccl, late=False)
        job.wait_said(rf"followed \(ABI v{ABI[nccl]}\)")
        job.work()
        assert not job.risen("nccl_timed_operations_total")
        job.expect_counts()
        assert not job.lost(), job.lost()
        assert job.timing() == {"none"}
        job.agent.stop()
        job.sim.stop()


def test_operations_in_a_recording():
    """What v1 to v3 tell, too: algorithm, protocol, NCCL's own sequence number."""
    for nccl in ("2.26.5", "2.28.9"):
        file = nbt.tempdir() / "recording"
        sim = nbt.Sim(WARM + WORK, ranks=2, nccl=nccl, gpu=True, plugin=FOREIGN)
        recorder = subprocess.Popen([nbt.AGENT, "record", "-o", file, "--foreign-plugins",
                                     *nbt.pid_words(sim.pids)], stderr=subprocess.PIPE, text=True)
        nbt.defer(nbt.end, recorder)
        assert recorder.stderr.readline().startswith("nccl-bpftrace: recording to ")
        sim.go()
        assert sim.process.stdout.readline() == "warm\n"
        sim.go()
        sim.wait_done()
        time.sleep(1)
        assert nbt.end(recorder) == 0
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        told_of = [o for line in lines if line["kind"] == "launch" for o in line["operations"]
                   if o["operation"] == "Broadcast"]
        assert len(told_of) == 2 * 20, len(told_of)
        assert {o["sequence"] for o in told_of} == set(range(20))
        assert {(o["algorithm"], o["protocol"]) for o in told_of} == {("RING", "SIMPLE")}
        assert {o["channels"] for o in told_of} == ({None} if nccl == "2.26.5" else {16})


def test_send_and_receive():
    job = Followed(LEARN + "loop 20 { rate 50; group { send a 900000 int8; recv a 900000 int8 }; "
                   "alltoall b 70000 fp32; synchronize }; pause 100", late=False)
    job.learn().work().expect_true()


def test_only_what_it_asks_for():
    """Without channels no time; without operations nothing: counts come from the probes."""
    for mask in ("0x6", "0xf00", "0"):
        job = Followed(late=False, FOREIGN_MASK=mask)
        job.work()
        assert not job.risen("nccl_timed_operations_total")
        assert not job.lost(), job.lost()
        job.expect_counts()
        job.agent.stop()
        job.sim.stop()


def test_every_event_at_once():
    job = Followed(LEARN + WORK, late=False, FOREIGN_MASK="0xfff")
    job.learn().work().expect_true()


def test_without_the_option():
    job = Followed.__new__(Followed)
    job.sim = nbt.Sim(WARM + WORK, ranks=RANKS, gpu=True, plugin=FOREIGN,
                      args=["--gpus-per-node", RANKS])
    job.agent = nbt.Agent(*nbt.pid_words(job.sim.pids))
    job.sim.go()
    job.sim.process.stdout.readline()
    job.work()
    assert not job.risen("nccl_timed_operations_total")
    assert "profiler plugin" not in job.agent.output()
    assert not probes_of(job.sim.pids[0])


def probes_of(pid):
    """Whether a breakpoint is in the functions of the other plugin in that process."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    found = re.search(rf"^([0-9a-f]+)-([0-9a-f]+) r-xp ([0-9a-f]+) \S+ \d+ +{FOREIGN}$", maps, re.M)
    start, end, offset = (int(word, 16) for word in found.groups())
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(start)
        code = memory.read(end - start)
    with open(FOREIGN, "rb") as file:
        file.seek(offset)
        return code != file.read(end - start)


def test_nobody_else_is_probed():
    """The functions are probed where the plugin is followed, and nowhere else that maps the file."""
    job, other = Followed(), nbt.Sim(WARM, ranks=2, plugin=FOREIGN, gpu=True)
    other.go()
    other.process.stdout.readline()
    job.wait_said("followed")
    assert all(probes_of(pid) for pid in job.sim.pids)
    assert not any(probes_of(pid) for pid in other.pids)
    job.agent.stop()
    nbt.wait_for(lambda: not any(probes_of(pid) for pid in job.sim.pids), "no probe left", 10)


def test_ours_comes_first():
    """Ours alone is no foreign one; behind ours another is left to it."""
    for words in ({}, {"NCCL_BPFTRACE_CHAIN": FOREIGN}):
        job = Followed(plugin=OURS, late=False, **words)
        job.work()
        assert "profiler plugin" not in job.agent.output(), job.agent.output()
        assert "cuda_event" in job.timing()
        if words:
            assert not probes_of(job.sim.pids[0])
        shown = nbt.run_agent("ps", "--json", "--pid", job.sim.pids[0])
        assert json.loads(shown.stdout)["processes"][0]["other_plugin"] is None
        job.agent.stop()
        job.sim.stop()


def test_ps_and_check_name_it():
    sim = nbt.Sim(WARM, ranks=2, plugin=FOREIGN, gpu=True)
    sim.go()
    sim.process.stdout.readline()
    text = nbt.run_agent("ps", "--pid", sim.pids[0]).stdout
    assert f"another profiler plugin: {FOREIGN} (ABI v5)" in text, text
    shown = json.loads(nbt.run_agent("ps", "--json", "--pid", sim.pids[0]).stdout)["processes"][0]
    assert shown["other_plugin"] == {"library": str(FOREIGN), "abi": 5}
    assert shown["plugin"] == "absent"
    assert re.search(r"ok +another profiler plugin +in \d+ NCCL processes.*libforeign.so",
                     nbt.run_agent("check").stdout)


# ---- tables that are none ----

class Spoiled(Plugged):
    """A process that has the plugin mapped, and does not call it."""

    def __init__(self, what=None):
        super().__init__(plugin=None, comm=None,
                         env=dict(os.environ, **({"FOREIGN_TABLE": what} if what else {})))
        self.do(f"load {FOREIGN}")


WRONG = {"data": "a function outside the code of its own file",
         "anonymous": "a function outside the code of its own file",
         "libc": "a function outside the code of its own file",
         "null": "no function where NCCL calls one"}


def test_wrong_tables():
    """Refused with the reason; the process, and who maps the same files, go on."""
    jobs = {what: Spoiled(what) for what in WRONG}
    good = Spoiled()
    agent = nbt.Agent("--foreign-plugins",
                      *nbt.pid_words([good.pid, *[j.pid for j in jobs.values()]]))
    nbt.wait_for(lambda: f"process {good.pid}: profiler plugin {FOREIGN}: followed"
                 in agent.output(), "the good one's", 15)
    nbt.wait_for(lambda: agent.output().count("not followed: ") == len(WRONG), "refusals", 40)
    for what, job in jobs.items():
        assert re.search(rf"process {job.pid}: profiler plugin {FOREIGN}: not followed: its table "
                         rf".*{WRONG[what]}", agent.output()), agent.output()
        assert not probes_of(job.pid)
    assert probes_of(good.pid)
    assert agent.fresh().sum("nccl_bpftrace_events_lost_total") == 0
    assert all(job.process.poll() is None for job in [good, *jobs.values()])


def test_a_table_that_is_filled_late():
    job = Spoiled("late")
    agent = nbt.Agent("--foreign-plugins", "--pid", job.pid)
    nbt.wait_for(lambda: f"process {job.pid}" in agent.output(), "a verdict", 10)
    assert "followed (ABI v5)" in agent.output(), agent.output()


def test_two_plugins_at_once():
    job = Spoiled()
    second = nbt.tempdir() / "libsecond.so"
    shutil.copy(FOREIGN, second)
    job.do(f"load {second}")
    agent = nbt.Agent("--foreign-plugins", "--pid", job.pid)
    nbt.wait_for(lambda: "not followed: there is a second one" in agent.output(), "a refusal", 10)
    assert not probes_of(job.pid)


def test_a_job_that_ends_while_followed():
    """What it has told is in the figures; a later job with the same plugin is followed, too."""
    for how in (signal.SIGKILL, signal.SIGTERM):
        job = Followed()
        job.wait_said("followed")
        for pid in job.sim.pids:
            os.kill(pid, how)
        time.sleep(1)
        assert job.agent.process.poll() is None
        job.agent.stop()
        job.sim.stop()
