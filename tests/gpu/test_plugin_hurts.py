# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What a plugin could do to a PyTorch job, and must not: two GPUs, the plugin awake, and proven so.
Each test by its name (tests/run gpu/test_plugin_hurts.test_NAME), in less than a minute."""
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import hook
import nbt

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import gpu  # noqa: E402

TIMER = {0: "off", 1: "on", 2: "no_abi", 3: "no_shm", 4: "chained"}  # enum nbp_timer_state
FAST = {"NCCL_NVLS_ENABLE": "0", "NCCL_MAX_NCHANNELS": "4"}  # communicators are made sooner


class Job:
    """torchrun of hurt_job.py, warm when the constructor returns."""

    def __init__(self, scenario, ranks=2, environment=(), prefix=()):
        gpu.need_gpus(2)
        if not hook.PLUGIN.exists():
            nbt.skip("the plugin is not built")
        self.directory, self.ranks = nbt.tempdir(), ranks
        env = dict(os.environ, OMP_NUM_THREADS="1", NCCL_PROFILER_PLUGIN=str(hook.PLUGIN),
                   TORCH_NCCL_ASYNC_ERROR_HANDLING="0", **dict(environment))
        self.log = nbt.Log("the job")
        self.process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={ranks}", HERE / "hurt_job.py", self.directory, scenario],
            stdout=self.log, stderr=self.log, env=env, stdin=subprocess.DEVNULL)
        nbt.defer(nbt.end, self.process)
        self.wait("ready", 60)
        self.pids = [int((self.directory / f"ready.{r}").read_text()) for r in range(ranks)]

    def wait(self, name, seconds=58):
        def there():
            if self.process.poll() is not None:
                raise AssertionError(f"the job ended: {self.output()}")
            return all((self.directory / f"{name}.{r}").exists() for r in range(self.ranks))
        nbt.wait_for(there, f"{name} of every rank; the job said: {self.output()}", seconds, 0.02)

    def tell(self, name):
        (self.directory / name).touch()

    def output(self):
        return self.log.read()[-3000:]

    def controls(self):
        return [hook.Control(pid) for pid in self.pids]

    def end(self):
        """What each rank found; the job must end well."""
        self.wait("done")
        self.tell("end")
        found = [json.loads((self.directory / f"done.{r}").read_text()) for r in range(self.ranks)]
        assert self.process.wait(30) == 0, self.output()
        return found


def all_awake(controls, value=1):
    nbt.wait_for(lambda: all(c.read()["awake"] == value for c in controls),
                 "the plugin awake" if value else "the plugin asleep", 5, 0.002)


def run(scenario, environment=(), agent=(), prefix=()):
    """One scenario with the plugin awake from its begin to its end. What the ranks found, and what
    the plugin did meanwhile."""
    job = Job(scenario, environment=environment, prefix=prefix)
    controls = job.controls()
    assert not any(c.read()["awake"] for c in controls)
    nbt.Agent("--no-ui", *agent)
    all_awake(controls)
    before = [c.read() for c in controls]
    job.tell("go")
    job.wait("done")
    after = [c.read() for c in controls]
    assert all(c["awake"] for c in after)
    records = [a["n_records"] - b["n_records"] for a, b in zip(after, before)]
    timed = [a["n_timed"] - b["n_timed"] for a, b in zip(after, before)]
    assert min(records) > 0, f"nothing was handed over: {records}"
    found = job.end()
    print(f"     {scenario}: {found[0]}; by rank: records {records}, timed launches {timed}, "
          f"timer {[TIMER[a['timer']] for a in after]}")
    return found, timed, after


def row(what, outcome):
    gpu.table(("plugin awake", "outcome"), [(what, outcome)])


def test_graph_replays():
    _, timed, _ = run("graph_replays")
    assert min(timed) > 0
    row("captured in global mode, 200 replays", "right")


def test_capture_while_timed_launches_are_pending():
    found, timed, _ = run("capture_while_pending")
    captures = found[0]["captures"]
    assert captures >= 10 and min(timed) >= 5 * captures, (captures, timed)
    assert found[0]["still_pending"] >= captures * 3 // 4, found
    row(f"{captures} captures in global mode over {timed[0]} timed launches", "right")


def test_destroy_with_work_in_flight():
    found, timed, _ = run("destroy_in_flight", FAST)
    n = found[0]["destroyed"]
    assert n >= 25 and min(timed) >= n, (n, timed)
    row(f"destroy_process_group with work in flight, {n} times", "job lives")


def test_abort_with_work_in_flight():
    found, timed, _ = run("abort_in_flight", FAST)
    n = found[0]["aborted"]
    assert n >= 25 and min(timed) > 0, (n, timed)
    row(f"abort with kernels that wait for ever, {n} times", "job lives")


SMALL = ("unshare", "-m", "bash", "-c",
         'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "bash")


def test_small_dev_shm():
    """64 MB, a container's default."""
    _, timed, after = run("some_work", prefix=SMALL)
    assert min(timed) > 0 and all(a["timer"] == 0 for a in after)
    row("/dev/shm of 64 MB", "job lives, timed by CUDA events")


def test_small_dev_shm_and_the_kernel_timer_wanted():
    found, timed, after = run("some_work", agent=("--kernel-timer",), prefix=SMALL)
    assert min(timed) > 0 and all(TIMER[a["timer"]] == "no_shm" for a in after), after
    assert not any("NCCL Progress" in name for name in found[0]["thread_names"])
    row("/dev/shm of 64 MB, --kernel-timer", "refused; job lives")


def test_kernel_timer():
    found, _, after = run("some_work", {"NCCL_SET_THREAD_NAME": "1"}, agent=("--kernel-timer",))
    assert all(TIMER[a["timer"]] == "on" for a in after), after
    assert any("NCCL Progress" in name for name in found[0]["thread_names"])
    row("--kernel-timer", "on; job lives")


def test_kernel_timer_and_graphs():
    """Captured with the timer, replayed with it and after it has gone."""
    run("graph_replays", agent=("--kernel-timer",))
    row("--kernel-timer, captured in global mode, 200 replays", "right")


def test_two_communicators_on_one_gpu():
    job = Job("two_communicators", 1, FAST)
    job.tell("go")
    job.wait("asleep")
    control = job.controls()[0]
    assert not control.read()["awake"]
    nbt.Agent("--no-ui")
    job.tell("awake")
    nbt.wait_for(lambda: control.read()["awake"], "the plugin awake", 10, 0.002)
    before = control.read()
    job.wait("done")
    after = control.read()
    found = job.end()[0]
    n, grown = found["cycles"], {}
    for when, count in (("asleep", found["cycles_asleep"]), ("awake", n)):
        first, last = found[when]
        grown[when] = (last["kib"] - first["kib"]) / count
        assert last["fds"] <= first["fds"] + 4, found
        assert last["threads"] <= first["threads"] + 2, found
    print(f"     {n} cycles; KiB a cycle: {grown}; {found}")
    assert n >= 40 and after["n_comms"] == 0
    assert after["n_timed"] > before["n_timed"]
    assert grown["awake"] <= max(grown["asleep"], 0) + 300
    row(f"two communicators on each GPU, made and destroyed {n} times",
        f"{grown['awake']:.0f} KiB a cycle (asleep {grown['asleep']:.0f})")


def test_agent_killed_again_and_again():
    """And how soon the plugin wakes and sleeps."""
    wakes, sleeps = [], []
    job = Job("under_load")
    controls = job.controls()
    job.tell("go")
    start = time.monotonic()
    while len(wakes) < 100 and time.monotonic() - start < 40:
        begun = time.monotonic()
        agent = nbt.Agent("--no-ui", wait=False)
        all_awake(controls)
        wakes.append(time.monotonic() - begun)
        time.sleep(0.05)
        os.kill(agent.pid, signal.SIGKILL)
        agent.process.wait()
        begun = time.monotonic()
        all_awake(controls, 0)
        sleeps.append(time.monotonic() - begun)
    after = [c.read() for c in controls]
    job.tell("stop")
    found = job.end()
    print(f"     {found[0]}")
    assert len(wakes) >= 20 and min(a["n_records"] for a in after) > 0
    for rank in found:
        assert rank["after"]["fds"] <= rank["before"]["fds"] + 4, rank
        assert rank["after"]["kib"] <= rank["before"]["kib"] + 50 * 1024, rank
    text = [f"{sorted(times)[len(times) // 2]:.2f} s, at most {max(times):.2f} s"
            for times in (wakes, sleeps)]
    row(f"agent killed and started again {len(wakes)} times under load",
        f"awake after its start: {text[0]}; asleep after its death: {text[1]}; "
        f"{found[0]['calls']} calls right")
    assert sorted(wakes)[len(wakes) // 2] < 1 and sorted(sleeps)[len(sleeps) // 2] < 1
