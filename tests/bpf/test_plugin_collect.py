# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The agent and the real plugin together: woken, heard to the last record, let sleep again."""
import os
import re
import signal
import subprocess
import time

import loader
import nbt
from loader import METHODS, Agent
from plugged import PLUGIN, Plugged

DROP_SECONDS = 40  # in which the kernel undoes the perf links of one that was killed, on a busy machine


def received(series):
    return series.one("nccl_bpftrace_events_total")


def lost(series, reason=None):
    return series.sum("nccl_bpftrace_events_lost_total", **({"reason": reason} if reason else {}))


def agent_for(*jobs, args=(), **kwargs):
    """Of these processes alone: others here may have the plugin, too."""
    return Agent(*args, *nbt.pid_words(job.pid for job in jobs), **kwargs)


def expect_records(agent, *jobs):
    """What the plugins handed over is what came, to the last one: nothing else sends records."""
    def handed():
        return sum(job.control().n_records for job in jobs)

    for job in jobs:
        job.wait_awake()
    time.sleep(0.1)  # what waits in the plugin is handed over within some milliseconds
    least = handed()
    agent.until(lambda s: received(s) + lost(s) >= least, "every record")
    least = handed()
    series = agent.fresh(2)  # each tells of itself once a second, so there is no standing still
    assert lost(series) == 0
    assert least <= received(series) <= handed(), (least, received(series), handed())
    return least


def test_every_record_arrives():
    for method in METHODS:
        job = Plugged()
        assert job.do("mask") == "0"
        agent = agent_for(job, args=("--attach", method))
        job.wait_awake()
        assert int(job.do("mask")) > 0
        job.do("launch 5000")
        handed = expect_records(agent, job)
        assert handed >= 3 * 5000, handed  # API event, launch, operation
        job.do("end")
        job.do("comm 77")
        job.do("launch 100")
        assert expect_records(agent, job) >= handed + 3 * 100
        agent.stop()
        job.stop()


def test_awake_within_a_second_asleep_within_a_second():
    """Figures for README come from here: printed."""
    def measure(method):
        job = Plugged()
        start = time.monotonic()
        agent = Agent("--attach", method)
        job.wait_awake()
        attached = time.monotonic()
        assert job.semaphore() == 1
        killed = time.monotonic()
        agent.process.send_signal(signal.SIGKILL)
        nbt.wait_for(lambda: job.semaphore() == 0, "semaphore 0", DROP_SECONDS, 0.001)
        dropped = time.monotonic()
        job.wait_awake(False)
        asleep = time.monotonic()
        print(f"     {method}: awake {attached - start:.3f} s after start; after SIGKILL: semaphore "
              f"0 {(dropped - killed) * 1e3:.0f} ms, asleep {(asleep - killed) * 1e3:.0f} ms")
        agent.process.wait()
        job.stop()
        return attached - start, dropped - killed, asleep - dropped

    for method in METHODS:
        # the first is with the agent's start; the second is the kernel's: 30 ms, perf links 700 ms,
        # on a machine that has nothing else to do
        nbt.soon(lambda how=method: measure(how), (1.5, DROP_SECONDS, 1))


def test_agents_come_and_go_under_load():
    job = Plugged()
    job.do("busy")
    total = 0
    for i in range(20 if os.environ.get("NBT_LONG") else 8):
        agent = Agent("--attach", METHODS[i % 2], wait=False)
        job.wait_awake(seconds=10)
        before = job.control().n_records
        nbt.wait_for(lambda: job.control().n_records > before, f"records, agent {i}", 5, 0.005)
        total += job.control().n_records - before
        if i % 4 < 2:
            agent.process.kill()
            agent.process.wait()
        else:
            assert agent.stop() == 0, agent.output()
        nbt.wait_for(lambda: job.semaphore() == 0, f"semaphore 0 after agent {i}", DROP_SECONDS,
                     0.001)
        job.wait_awake(False)
    assert total
    assert int(job.do("calm")) > 0
    assert job.process.poll() is None
    agent = agent_for(job)
    job.wait_awake()
    before = received(agent.series())
    job.do("launch 300")
    agent.until(lambda s: received(s) >= before + 3 * 300, "records after all that")


def test_two_agents_at_once():
    job = Plugged()
    one, two = agent_for(job), agent_for(job)
    job.wait_awake()
    one.stop()
    time.sleep(0.3)
    assert job.semaphore() == 1  # the kernel counts probes that are there, not who listens
    before = received(two.fresh())
    job.do("launch 100")
    two.until(lambda s: received(s) >= before + 300, "records for the other")
    assert job.awake()


def test_copies_links_and_mounts():
    """Whatever the file is called, and wherever it is mapped from, each once."""
    directory = nbt.tempdir()
    copy, link = directory / "libother.so", directory / "libnccl-profiler.so"
    copy.write_bytes(PLUGIN.read_bytes())
    link.symlink_to(PLUGIN)
    overlay = mount_overlay(directory)
    jobs = [Plugged(path) for path in (PLUGIN, copy, link, *overlay)]
    agent = agent_for(*jobs)
    for job in jobs:
        job.wait_awake()
        assert job.semaphore() == 1, job.plugin
        job.do("launch 200")
    expect_records(agent, *jobs)


def mount_overlay(directory):
    """Two overlays of the plugin's directory: the same inode, twice."""
    lower = directory / "lower"
    lower.mkdir()
    (lower / PLUGIN.name).write_bytes(PLUGIN.read_bytes())
    found = []
    for i in range(2):
        where = directory / f"pod{i}"
        where.mkdir()
        done = subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir={lower}:/mnt",
                               where], text=True, capture_output=True)
        if done.returncode:
            return []
        nbt.defer(subprocess.run, ["umount", where])
        found.append(where / PLUGIN.name)
    return found


def test_only_the_process_asked_for():
    ours, other = Plugged(), Plugged()
    agent = agent_for(ours)
    ours.wait_awake()
    ours.do("launch 200")
    other.do("launch 200")
    expect_records(agent, ours)


def test_a_plugin_loaded_later():
    job = Plugged(plugin=None, comm=None)
    agent = agent_for(job)
    job.plug(PLUGIN)
    job.do("comm 5")
    job.wait_awake()
    job.do("launch 100")
    expect_records(agent, job)


def test_hostile_batches():
    """Counted by their reason; the records of others are as before."""
    job, other = Plugged(), Plugged(comm=0xdef)
    agent = agent_for(job, other)
    for each in (job, other):
        each.wait_awake()
    time.sleep(0.2)
    start = agent.fresh()

    def risen(series):
        reasons = {l["reason"]: value - start.one("nccl_bpftrace_events_lost_total", **l)
                   for l, value in series.get("nccl_bpftrace_events_lost_total")}
        # what came is judged by its contents, too: plugin_bad_record and others
        return {reason: int(value) for reason, value in reasons.items()
                if value and not reason.startswith("plugin_")}

    job.do("batch 64 2 128")  # filled with nonsense, but a record by its size
    for n, kind, size in ((10, 2, 127), (5, 2, 65535), (3, 0, 128), (2, 99, 128)):
        job.do(f"batch {n} {kind} {size}")
    for n in (65, 4294967295):
        job.do(f"batch {n} 2 128")
    job.do("batch 0 2 128")
    job.do("absent 64")
    job.do("half 10")
    for kind in range(1, 8):
        job.do(f"batch 64 {kind} 128")
    other.do("launch 100")
    series = agent.until(lambda s: received(s) - received(start) >= 64 + 1 + 7 * 64 + 300,
                         "what can be taken")
    assert risen(agent.fresh()) == {"bad_record": 10 + 5 + 3 + 2, "bad_batch": 2 + 64 + 9}
    assert agent.process.poll() is None and job.process.poll() is None


DEFAULT = (10000, 0)  # budget_ppm, wants


def knobs(job):
    control = job.control()
    return control.budget_ppm, control.wants


def test_knobs():
    """Written into each plugin that is heard, also one that comes later; set back at the end."""
    job = Plugged()
    agent = Agent("--gpu-timing-budget", "0.5", "--kernel-timer")
    nbt.wait_for(lambda: knobs(job) == (5000, 1), "knobs")
    later = Plugged(comm=0x77)
    nbt.wait_for(lambda: knobs(later) == (5000, 1), "knobs of a later one")
    assert agent.stop() == 0
    assert knobs(job) == knobs(later) == DEFAULT

    agent = Agent("--gpu-timing-budget", "100")
    nbt.wait_for(lambda: knobs(job) == (1000000, 0), "every launch")
    agent.process.kill()
    agent.process.wait()
    job.wait_awake(False)
    assert knobs(job) == (1000000, 0)
    agent = Agent()  # the next one, with nothing said, finds what was left behind
    nbt.wait_for(lambda: knobs(job) == DEFAULT, "the default again")
    agent.stop()
    agent = Agent("--gpu-timing-budget", "0")
    nbt.wait_for(lambda: knobs(job) == (0, 0), "no timing")
    job.do("launch 50")
    assert job.control().n_timed == 0


def test_a_false_control_block():
    """A process that tells a wrong address: nothing is written there, and nobody else suffers."""
    job, other = Plugged(), Plugged(comm=0x77)
    agent = Agent("--gpu-timing-budget", "3")
    nbt.wait_for(lambda: knobs(other) == (30000, 0), "knobs")
    for where in ("0x1000", "0xffffffffffffffff", "1", "scratch"):
        job.do(f"control {where}")
    time.sleep(0.5)
    assert job.do("scratch") == "untouched"
    assert agent.process.poll() is None
    agent.stop()
    assert knobs(other) == DEFAULT


def plugin_of(series, job):
    found = {l["plugin"] for l, _ in series.get("nccl_bpftrace_process_info", pid=str(job.pid))}
    return found.pop() if len(found) == 1 else None


def test_states():
    """absent, idle, active: in the textfile, ps and check."""
    job, without = Plugged(comm=None), Plugged(plugin=None, comm=None)
    both = "--pid", job.pid, "--pid", without.pid

    def ps():
        found = loader.ps(*both)
        text = nbt.run_agent("ps", *both).stdout
        assert ("plugin active" in text) == (found[job.pid]["plugin"] == "active"), text
        assert ("plugin idle" in text) == (found[job.pid]["plugin"] == "idle"), text
        return found[job.pid]["plugin"], found[without.pid]["plugin"]

    assert ps() == ("idle", "absent")
    agent = agent_for(job, without)
    series = agent.until(lambda s: plugin_of(s, job) and plugin_of(s, without), "both told of")
    assert (plugin_of(series, job), plugin_of(series, without)) == ("idle", "absent")
    assert series.one("nccl_bpftrace_processes", state="plugin") == 1
    assert series.one("nccl_bpftrace_processes", state="traced") == 2
    job.do("comm 9")
    agent.until(lambda s: plugin_of(s, job) == "active", "heard")
    assert ps() == ("active", "absent")
    _, items = loader.check()
    found, = (item["found"] for item in items if item["name"] == "plugin in jobs")
    assert [i["ok"] for i in items if i["name"] == "plugin for the node"] == [True]
    assert re.match(r"in \d+ of \d+ NCCL processes, [1-9]\d* awake; not in process \d+", found), found
    agent.stop()
    nbt.wait_for(lambda: ps() == ("idle", "absent"), "asleep again")
