# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The public cases about verdicts with PyTorch on two GPUs: state, culprit, operation, number, and the
seconds from the fault to the culprit's name. Jobs of a test run side by side on the same GPUs.

NBT_LONG=1 NBT_TEST_SECONDS=900: the pauses in full, 10 and 5 minutes, too. NBT_DRY=1: with simulated
jobs in place of PyTorch's, where there is no GPU: the test of this test.
"""
import os
import signal
import sys
import time
from pathlib import Path

import nbt
import servers
import verdicts
from hook import PLUGIN
from verdicts import Case, FaultySim, Truth, Watcher

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu  # noqa: E402

DRY, LONG = (bool(os.environ.get(name)) for name in ("NBT_DRY", "NBT_LONG"))
SLACK = 3.0 if DRY else 0.0  # a machine of two cores runs simulated jobs late
STEPS, WARM, NUMEL = 60, 10, 1 << 20
NEXT = STEPS + WARM + 1  # the number of the operation after the healthy steps
STUCK_AFTER = 12
IDLE, PAUSE, CHECKPOINT = 90, 75, 30  # seconds
FULL = 600, 300, 30
ENVIRONMENT = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "0", "TORCH_NCCL_ENABLE_MONITORING": "0",
          "TORCH_NCCL_DUMP_ON_TIMEOUT": "0", "NCCL_MAX_NCHANNELS": "8"}


class TorchJob(gpu.TorchJob):
    """torchrun of verdict_job.py, killed at the end: its ranks hang."""

    def __init__(self, scenario, plugin):
        self.pids = ()
        environment = {**ENVIRONMENT, **({"NCCL_PROFILER_PLUGIN": str(PLUGIN)} if plugin else {})}
        super().__init__(2, STEPS, scenario, environment, program="verdict_job.py", ready=False)
        nbt.defer(self.stop)

    def wait_ready(self):
        self.wait("ready", 120)
        self.pids = [int((self.directory / f"ready.{r}").read_text()) for r in range(self.ranks)]

    def go(self):
        self.tell("go")

    def find(self, name):
        return next((path.read_text() or "0 0" for path in self.directory.glob(f"{name}.?")), None)

    def fault(self):
        words = (self.find("fault") or "").split()
        return (int(words[0]) / verdicts.NS, int(words[1])) if words else None

    def stop(self):
        for pid in self.pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.pids = ()
        nbt.end(self.process)


CALL = f"allreduce w {NUMEL} fp32"
# The same jobs as scripts of nccl-sim; hosts wait for their GPUs as PyTorch's do.
STEP = f"{CALL}; synchronize"
ON = f"loop forever {{ pause 45 55; {STEP} }}"
SCRIPTS = {
    "missing": f"@1 stamp fault {NEXT}; @1 pause 3600000; {STEP}",
    "stopped": f"@1 stamp fault {NEXT}; @1 stop; {STEP}",
    "behind_a_kernel": f"@1 stamp fault {NEXT}; @1 compute 3600000; {STEP}",
    "straggler": f"@1 stamp fault; loop forever {{ pause 45 55; @1 pause 50; {STEP} }}",
    "only_straggler": f"@1 stamp fault; loop forever {{ @1 pause 50; {STEP} }}",
    "straggler_on_gpu": f"@1 stamp fault; loop forever {{ loop 8 {{ pause 1; @1 compute 50; {CALL} }}; "
                        "synchronize }",
    "count": f"@1 stamp fault {NEXT}; @0 allreduce w {2 * NUMEL} fp32; @1 {CALL}; pause 3600000",
    "datatype": f"@1 stamp fault {NEXT}; @0 {CALL}; @1 allreduce w {NUMEL} int32; {ON}",
    "order": f"@1 stamp fault; @0 {CALL}; @0 broadcast w {NUMEL} fp32; @1 broadcast w {NUMEL} fp32; "
             f"@1 {CALL}; pause 3600000",
    "late_attach": f"loop 50 {{ pause 90 110; {STEP} }}; stamp fifty; loop 30 {{ pause 90 110; {STEP} }};"
                   f"stamp eighty; wait; @1 load LATER; loop 120 {{ pause 90 110; {STEP} }};"
                   f"@1 stamp fault {NEXT + 200}; @0 {CALL}; @1 allreduce w {NUMEL} int32; {ON}",
    "idle": "pause 3600000",
    "pause": f"pause SECONDS000; {ON}",
    "checkpoint": f"@0 stamp fault {NEXT}; @0 pause SECONDS000; {ON}",
}


class SimJob(FaultySim):
    def __init__(self, scenario, plugin):
        step = f"broadcast w {NUMEL} fp32; {STEP}" if scenario == "order" else STEP
        begin = f"comm w config; loop {{}} {{{{ pause 45 55; {step} }}}};"
        self.directory = nbt.tempdir()
        name, _, seconds = scenario.partition("=")
        rest = SCRIPTS[name].replace("LATER", f"{self.directory}/later.so\n")
        rest = rest.replace("SECONDS", seconds)
        super().__init__(f"{begin.format(WARM)} stamp ready; wait; {begin.format(STEPS)[15:]} {rest}",
                         gpu=True, plugin=PLUGIN if plugin else None)
        self.go()

    def wait_ready(self):
        nbt.wait_for(lambda: self.find("ready"), "ready", 60)

    def tell(self, _name):
        self.go()


def start(scenario, truth, plugin):
    name = f"{scenario} ({'plugin' if plugin else 'no plugin'})"
    return Case(name, truth, (SimJob if DRY else TorchJob)(scenario, plugin))


def missing_truth(kind, **more):
    return Truth(kind, ("waiting", "stuck"), frozenset([1]), "AllReduce", "missing_call",
                 name_within=10 + SLACK, reach_within=STUCK_AFTER + 6 + SLACK, **more)


def mismatch_truth(operation="AllReduce", values=()):
    """Of two ranks that disagree none is the culprit by number."""
    return Truth("mismatch", ("mismatch",), None, operation, "disagree", values,
                 name_within=5 + SLACK)


def straggler_truth(cause, **more):
    return Truth("straggler", ("straggler",), frozenset([1]), "AllReduce", cause,
                 name_within=15 + SLACK, **more)


def moving(plugin):
    """Jobs that go on."""
    # with the plugin it is seen at both places
    for name in ("straggler", "only_straggler"):
        yield start(name, straggler_truth(None if plugin else "late"), plugin)
    # without it only as far as the host comes later, too
    yield start("straggler_on_gpu", straggler_truth("late_on_gpu") if plugin else
                straggler_truth("late", may=True), plugin)
    yield start("datatype", mismatch_truth(), plugin)


def hanging(plugin):
    """Jobs that do not."""
    on_gpu = Truth("gpu", ("waiting", "stuck"), frozenset([1]), "AllReduce", "gpu_not_started",
                   name_within=STUCK_AFTER + 6 + SLACK, reach_within=STUCK_AFTER + 6 + SLACK)
    yield start("missing", missing_truth("missing"), plugin)
    yield start("stopped", missing_truth("stopped"), plugin)
    yield start("behind_a_kernel", on_gpu if plugin else Truth("none"), plugin)
    yield start("count", mismatch_truth(values=(str(NUMEL), str(2 * NUMEL))), plugin)
    yield start("order", mismatch_truth(None), plugin)


def pausing(plugin, pause=PAUSE, checkpoint=CHECKPOINT):
    """V7: watched with the default --stuck-after."""
    rests = Truth("none", passes=frozenset(["idle"]))
    yield start("idle", rests, plugin)
    yield start(f"pause={pause}", rests, plugin)
    yield start(f"checkpoint={checkpoint}", Truth(
        "checkpoint", ("waiting",), frozenset([0]), "AllReduce", "missing_call", over=True,
        name_within=10 + SLACK), plugin)


def watcher(cases, *args):
    """An agent that sees these jobs alone."""
    pids = [pid for case in cases for pid in case.job.pids]
    found = Watcher("--no-ui", *args, *nbt.pid_words(pids), agent_class=nbt.Agent)
    found.wait_traced(pids)
    return found


def follow(cases, seconds, least=0, args=("--stuck-after", STUCK_AFTER)):
    """Lets the jobs go on under an agent, then ends them."""
    agent = watcher(cases, *args)
    for case in cases:
        case.job.go()
    verdicts.watch(agent, cases, seconds, least)
    verdicts.report(cases)
    for case in cases:
        case.job.stop()
    agent.agent.stop()


def run(plugin):
    if not DRY:
        gpu.need_gpus(2)
    if plugin and not PLUGIN.exists():
        nbt.skip("the plugin is not built")
    pauses, goers, hangers = ([*make(plugin)] for make in (pausing, moving, hanging))
    for case in [*pauses, *goers, *hangers]:
        case.job.wait_ready()
    begin = time.monotonic()
    patient = watcher(pauses)
    for case in pauses:
        case.job.go()
    follow(goers, 30, least=STEPS / 20 + 15)
    left = STEPS / 20 + max(IDLE, PAUSE + 15) - (time.monotonic() - begin)
    idle = wait_out(patient, pauses, max(left, 1))
    # last: what hangs on a GPU makes it late for all others that are on it
    follow(hangers, STEPS / 20 + STUCK_AFTER + 15, least=STEPS / 20 + STUCK_AFTER + 8)
    judge([*goers, *hangers, *pauses], idle)


def wait_out(patient, pauses, seconds):
    """The state of the first of those that pause, which is idle to the end."""
    verdicts.watch(patient, pauses, seconds, least=seconds)
    return patient.pictures()[1].get(pauses[0].comm)


def judge(cases, idle):
    verdicts.report(cases)
    bad = [case.name for case in cases if case.finding.outcome != "right"]
    assert not bad and idle == {"idle"}, (bad, idle)


def test_without_the_plugin():
    run(False)


def test_with_the_plugin():
    run(True)


def test_pauses_in_full():
    if not LONG:
        nbt.skip("takes 11 minutes: NBT_LONG=1 NBT_TEST_SECONDS=900")
    if not DRY:
        gpu.need_gpus(2)
    idle, pause, checkpoint = FULL
    pauses = [*pausing(False, pause, checkpoint)]
    for case in pauses:
        case.job.wait_ready()
    patient = watcher(pauses)
    for case in pauses:
        case.job.go()
    judge(pauses, wait_out(patient, pauses, STEPS / 20 + idle))


def late_watcher(job):
    """V5: (an agent of a cgroup that rank 0's process is in, what lets in rank 1's)."""
    name, procs = servers.child_cgroup("late")
    procs.write_text(str(job.pids[0]))
    found = Watcher("--no-ui", "--cgroup", name, "--stuck-after", STUCK_AFTER,
                    agent_class=nbt.Agent)
    found.wait_traced(job.pids[:1])
    return found, lambda: procs.write_text(str(job.pids[1]))


def test_attached_to_one_rank_after_the_other():
    """V5: to rank 0 at step 50, to rank 1 at step 80: no false mismatch, and a true one after that."""
    if not DRY:
        gpu.need_gpus(2)
    servers.own_cgroup()
    case = start("late_attach", mismatch_truth(), False)
    case.job.wait_ready()
    nbt.copy_library(case.job.directory / "later.so")
    case.job.go()
    nbt.wait_for(lambda: case.job.find("fifty"), "step 50", 60)
    agent, let_in = late_watcher(case.job)
    nbt.wait_for(lambda: case.job.find("eighty"), "step 80", 60)
    let_in()
    case.job.tell("more")
    agent.wait_traced(case.job.pids)
    assert not case.job.fault(), "rank 1 was seen too late: the test shows nothing"
    verdicts.watch(agent, [case], 30)
    verdicts.report([case])
    assert case.finding.outcome == "right"
