#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What tracing costs on this machine, as one table. Root. Never fails by a time: it prints.

usage: bench.py [WORD...]   only the parts whose name contains a word: probe plugin graph
                            consume timing textfile record attach agent exec callbacks foreign
                            handover
"""
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import nbt  # noqa: E402
from caller import Caller  # noqa: E402
from hook import PLUGIN  # noqa: E402
from probed import is_probed  # noqa: E402

BENCH = nbt.BUILD / "bench"
PLAIN = nbt.BUILD / "sim/2.28.9/libnccl.so.2"
NOP5 = BENCH / "nop5/libnccl.so.2"
REAL = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "lib64/libnccl.so.2"
N_PROCESSES = 8

rows = []


def row(name, measured, unit, baseline=None, goal=None, digits=0):
    """goal: the most that is wanted, in the same unit; met is told from the values, not the text."""
    if measured is None:
        return note(name, "not measured")
    ratio = f"{measured / baseline:.2f}" if baseline else ""
    met = "" if goal is None else "yes" if measured <= goal else "NO"
    form = lambda value: "" if value is None else f"{value:.{digits}f} {unit}"
    rows.append((name, form(measured), form(baseline), ratio,
                 "" if goal is None else f"<= {goal:g} {unit}", met))


def note(name, why):
    rows.append((name, why, "", "", "", ""))


def run(program, *args):
    """{name: value} as a program of the bench prints them."""
    print(f"... {program} {' '.join(map(str, args))}", file=sys.stderr, flush=True)
    text = subprocess.run([BENCH / program, *args], text=True, check=True, timeout=120,
                          stdout=subprocess.PIPE).stdout
    pairs = (line.split() for line in text.splitlines())
    return {name: float(value) if value != "none" else None for name, value in pairs}


def bench_probe():
    """The program's time by the kernel's statistics; a call's as the caller sees it."""
    sites = [("nop5", NOP5, ()), ("instruction", PLAIN, ()), ("real NCCL, null", REAL, ("null",))]
    for what, path, args in sites:
        if not path.exists():
            note(f"probe on {what}", "not here")
            continue
        found = run("bench_probe", path, *args)
        if found["dropped"]:
            note(f"probe on {what}", f"{found['dropped']:.0f} rounds dropped: another tracer")
        bare, untraced = found["bare_program_ns"], found["untraced_caller_ns"]
        row(f"program, count only, {what} (beside: bare)", found["counted_program_ns"], "ns", bare)
        row(f"program, count+record, {what} (beside: bare)", found["recorded_program_ns"], "ns",
            bare, 500)
        row(f"the same, agent behind, {what} (beside: in time)", found["behind_program_ns"], "ns",
            found["recorded_program_ns"])
        for variant in ("bare", "counted", "recorded"):
            row(f"call, {variant}, {what} (beside: untraced)", found[f"{variant}_caller_ns"], "ns",
                untraced)


def bench_plugin():
    """A batch at the plugin's hook, on its own thread: what its records cost to take."""
    for n in (1, 64):
        found = run("bench_probe", nbt.BUILD / "libnccl-profiler-bpftrace.so", str(n))
        if found["dropped"]:
            note(f"batch of {n}", f"{found['dropped']:.0f} rounds dropped: another tracer")
        what = f"plugin's batch of {n}"
        row(f"program, {what} (beside: bare)", found["recorded_program_ns"], "ns",
            found["bare_program_ns"])
        row("the same, for each record", found["recorded_program_ns"] / n, "ns", None, 500)
        row(f"hook, {what} (beside: untraced)", found["recorded_caller_ns"], "ns",
            found["untraced_caller_ns"])


def bench_graph():
    """A launch of a CUDA graph: what its probe costs."""
    found = run("bench_probe", nbt.TARGETS / "graphs/libcuda.so.1")
    row("program, launch of a graph (beside: bare)", found["recorded_program_ns"], "ns",
        found["bare_program_ns"], 500)
    row("launch of a graph (beside: untraced)", found["recorded_caller_ns"], "ns",
        found["untraced_caller_ns"])


def bench_consume():
    found = run("bench_consume")
    row("record consumed, full 16 MB ring", found["consume_ns"], "ns", None, 500, 1)
    row("record consumed and judged (beside: consumed)", found["watched_ns"], "ns",
        found["consume_ns"], 500, 1)
    row("record consumed, 2 M/s for 2 s (CPU)", found["sustained_cpu_ns"], "ns", None, 500, 1)
    row(f"records lost at {found['sustained_per_s'] / 1e6:.2f} M/s", found["sustained_lost"], "",
        None, 0)
    row("first refresh, 10000 communicators x 5", found["first_refresh_ms"], "ms", None, None, 1)
    row("refresh, 10000 communicators x 5", found["refresh_ms"], "ms", None, None, 1)


def bench_timing():
    found = run("bench_timing")
    row("plugin's record put together (beside: read)", found["timing_ns"], "ns", found["read_ns"],
        500, 1)
    row("the same, and summed up (beside: read)", found["timing_stats_ns"], "ns",
        found["read_ns"], 500, 1)
    row("communicator with a plugin, idle (beside: without)", found["idle_comm_bytes"], "bytes",
        found["level1_comm_bytes"])
    row("the same, 10 timed launches in flight", found["busy_comm_bytes"], "bytes",
        found["level1_comm_bytes"])


def bench_textfile():
    directory = nbt.tempdir()
    found = run("bench_picture", directory)
    for name in ("capped", "whole"):
        row(f"textfile, 8 processes x 64 communicators, {found[name + '_series']:.0f} series",
            found[name], "ms", None, None, 1)


def bench_record():
    found = run("bench_record", nbt.tempdir())
    row("launch recorded, jsonl (beside: by jansson)", found["jsonl_ns"], "ns", found["jansson_ns"],
        3000)
    row("launch recorded, inspector", found["inspector_ns"], "ns", None, 3000)
    row("launch into a bucket for NVIDIA's dashboards", found["bucket_ns"], "ns", None, 2000)
    row("the file of one GPU, as full as it can be", found["file_ms"], "ms", None, None, 1)


class Entries:
    """The first bytes of ncclAllReduce in each process: what a probe changes."""

    def __init__(self, pids, library):
        names = subprocess.run(["nm", "-D", library], text=True, capture_output=True,
                               check=True).stdout
        offset = int(re.search(r"^([0-9a-f]+) \w ncclAllReduce$", names, re.M)[1], 16)
        with open(library, "rb") as file:
            file.seek(offset)
            self.plain = file.read(5)
        self.files = []
        for pid in pids:
            maps = Path(f"/proc/{pid}/maps").read_text()
            found = re.search(rf"^([0-9a-f]+)-\S+ r-xp ([0-9a-f]+) .*{re.escape(str(library))}$",
                              maps, re.M)
            start = int(found[1], 16) - int(found[2], 16)
            self.files.append((os.open(f"/proc/{pid}/mem", os.O_RDONLY), start + offset))

    def n_probed(self):
        return sum(os.pread(fd, 5, address) != self.plain for fd, address in self.files)

    def wait(self, n, start, seconds=10):
        """Seconds since start until so many have a probe; None when that did not come."""
        while self.n_probed() != n:
            if time.monotonic() - start > seconds:
                return None
            time.sleep(0.0005)
        return time.monotonic() - start

    def close(self):
        for fd, _ in self.files:
            os.close(fd)


def bench_attach_one(method, library, what, rounds):
    print(f"... attach and end: {method}, {what}", file=sys.stderr, flush=True)
    job = nbt.Sim("comm world; loop forever { rate 100; allreduce world 10 fp32 }",
                  ranks=N_PROCESSES, nccl=library)
    job.go()
    entries = Entries(job.pids, library)
    attach, leave, killed = [], [], []
    for i in range(2 * rounds):
        if entries.n_probed() and entries.wait(0, time.monotonic()) is None:
            note(f"attach, {what}", "another tracer is there")
            break
        start = time.monotonic()
        agent = nbt.Agent("--attach", method, wait=False)
        attach.append(entries.wait(N_PROCESSES, start))
        agent.wait_file()
        start = time.monotonic()
        if i % 2:
            agent.process.terminate()
            agent.process.wait(30)
            leave.append(time.monotonic() - start)
            entries.wait(0, start)
        else:
            agent.process.kill()
            killed.append(entries.wait(0, start))
            agent.process.wait()
    if None in attach + killed:
        note(f"attach, {method}, {what}", "disturbed by another tracer")
    entries.close()
    job.stop()
    ms = lambda values: 1e3 * statistics.median(v for v in values if v is not None)
    for values, name, goal in ((attach, "start to 8 processes attached", 1000),
                               (leave, "SIGTERM to exit", None),
                               (killed, "SIGKILL to a job without probes", None)):
        if any(v is not None for v in values):
            row(f"{name}, {method}, {what}", ms(values), "ms", None, goal)


def bench_attach():
    bench_attach_one("multi", PLAIN, "instruction", 3)
    if NOP5.exists():
        bench_attach_one("multi", NOP5, "nop5", 3)
    bench_attach_one("perf", PLAIN, "instruction", 1)


def cpu_seconds(pid):
    """Of the thread to the nanosecond, and of the helpers it had, to the tick."""
    ticks = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    children = (int(ticks[13]) + int(ticks[14])) / os.sysconf("SC_CLK_TCK")
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9 + children


def status(pid, field):
    return int(re.search(rf"^{field}:\s*(\d+)", Path(f"/proc/{pid}/status").read_text(), re.M)[1])


def watch_agent(agent, seconds):
    """CPU in percent of a core, wake-ups a second."""
    cpu, switches = cpu_seconds(agent.pid), status(agent.pid, "voluntary_ctxt_switches")
    start = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - start
    return (100 * (cpu_seconds(agent.pid) - cpu) / took,
            (status(agent.pid, "voluntary_ctxt_switches") - switches) / took)


def bench_agent():
    print("... the agent, idle", file=sys.stderr, flush=True)
    agent = nbt.Agent(interval=15)
    time.sleep(1)
    cpu, wakeups = watch_agent(agent, 6)
    row("agent's CPU, nothing to trace", cpu, "%", None, None, 3)
    row("agent's wake-ups, nothing to trace", wakeups, "/s", None, None, 1)
    agent.stop()
    print("... the agent at 10 000 operations/s", file=sys.stderr, flush=True)
    comms = "; ".join(f"comm c{i}" for i in range(8))
    calls = "; ".join(f"allreduce c{i} 1000 fp32" for i in range(8))
    job = nbt.Sim(f"{comms}; loop forever {{ rate 156.25; {calls} }}", ranks=N_PROCESSES)
    agent = nbt.Agent(interval=15)
    job.go()
    time.sleep(2)
    cpu, wakeups = watch_agent(agent, 20)
    row("agent's CPU, 10 000 operations/s, 8 x 8", cpu, "%", None, 0.5, 3)
    row("agent's wake-ups, the same", wakeups, "/s", None, None, 1)
    lost = agent.series().sum("nccl_bpftrace_events_lost_total")
    row("records lost, the same", lost, "", None, 0)
    row("agent's memory, the same", status(agent.pid, "VmRSS") / 1024, "MB", None, 32, 1)
    job.stop()


def bench_exec():
    with_agent, without, cpu = [], [], []
    for _ in range(4):
        without.append(run("bench_exec", "800")["exec_per_s"])
        agent = nbt.Agent(interval=15)
        before = cpu_seconds(agent.pid)
        with_agent.append(run("bench_exec", "800")["exec_per_s"])
        cpu.append(100 * (cpu_seconds(agent.pid) - before) / 0.8)
        agent.stop()
    us = lambda rates: 1e6 / statistics.median(rates)
    row("fork+exec with an idle agent (beside: without)", us(with_agent), "us", us(without))
    row(f"agent's CPU at {statistics.median(with_agent):.0f} fork+exec/s", statistics.median(cpu),
        "%", None, None, 3)


def bench_callbacks():
    """By NCCL's callbacks for one collective; asleep NCCL makes none."""
    found = run("bench_callbacks", BENCH / "libplugin.so")
    what = {"all": "plugin awake, a collective's callbacks, untimed",
            "all_of_two": "  two communicators in turn", "api": "  GroupApi, CollApi",
            "launch": "  KernelLaunch", "operation": "  Group, Coll"}
    for name, text in what.items():
        row(f"{text} (beside: empty callbacks)", found[f"{name}_ns"], "ns",
            found[f"{name}_empty_ns"], 150 if name == "all" else None)
    row("  notes lost meanwhile", found["lost"], "", None, 0)


def bench_foreign():
    """Another plugin that is followed: a trap for each of its calls, here all of one collective."""
    plugin = nbt.BUILD / "tests/plugin/libforeign.so"
    print("... bench_foreign", file=sys.stderr, flush=True)
    job = subprocess.Popen([BENCH / "bench_foreign", PLAIN, plugin], text=True,
                           stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    nbt.defer(nbt.end, job)

    def measure():
        job.stdin.write("\n")
        job.stdin.flush()
        pairs = (line.split() for line in iter(job.stdout.readline, ".\n"))
        return {name: float(value) for name, value in pairs}

    untraced = measure()
    agent = nbt.Agent("--foreign-plugins", "--ring-size", "64M", "--pid", job.pid)
    nbt.wait_for(lambda: ": followed" in agent.output(), "the plugin followed")
    followed = measure()
    lost = agent.fresh().sum("nccl_bpftrace_events_lost_total")
    for what, calls in (("collective", "6 of 10 calls on the job's own thread"),
                        ("channel", "2 of 3 calls on NCCL's progress thread")):
        row(f"another plugin followed, a {what}: {calls} (beside: untraced)",
            followed[f"{what}_ns"], "ns", untraced[f"{what}_ns"])
    row("  records lost meanwhile", lost, "", None, 0)


def bench_handover():
    """A call as the job sees it, in one process: probed, and after its plugin tells of it alone."""
    calls, rounds = 5000, 9
    job = Caller(prefix=["env", f"NCCL_PROFILER_PLUGIN={PLUGIN}", "NCCL_CONF_FILE=/dev/null"])
    for v in (0, 1):
        job.make("init", v, 8, 2 + v)

    def many(n):
        job.do("many", 1, n)
        job.answer()

    def call_ns():
        def once():
            time.sleep(0.02)  # for the plugin's thread
            start = time.monotonic_ns()
            many(calls)
            return (time.monotonic_ns() - start) / calls
        return statistics.median(once() for _ in range(rounds))

    def untouched(wanted):
        nbt.wait_for(lambda: is_probed(job.pid) != wanted, "probes as they should be", 60)

    untouched(True)
    bare = call_ns()
    agent = nbt.Agent("--handover-after", 0)
    untouched(False)
    call_ns()
    row("call, probed, plugin awake (beside: untraced)", call_ns(), "ns", bare)
    agent.stop()
    untouched(True)
    agent = nbt.Agent("--handover-after", 2)
    untouched(False)
    deadline = time.monotonic() + 60
    while is_probed(job.pid) and time.monotonic() < deadline:
        many(100)
        time.sleep(0.1)
    if is_probed(job.pid):
        return note("call, handed over", "another tracer stays")
    row("call, handed over (beside: untraced)", call_ns(), "ns", bare)


def machine():
    cpu = re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.M)
    virtual = subprocess.run(["systemd-detect-virt"], text=True, capture_output=True).stdout.strip() \
        if os.path.exists("/usr/bin/systemd-detect-virt") else ""
    print(f"{cpu[1] if cpu else platform.machine()}, {os.cpu_count()} cores"
          f"{', ' + virtual if virtual else ''}, Linux {platform.release()}")


def table():
    head = ("", "measured", "baseline", "ratio", "goal", "met?")
    width = [max(len(line[i]) for line in [head, *rows]) for i in range(len(head))]
    for line in [head, *rows]:
        print("  ".join([line[0].ljust(width[0])] +
                        [cell.rjust(w) for cell, w in zip(line[1:], width[1:])]).rstrip())


def main():
    if os.geteuid() != 0:
        sys.exit("bench: run as root")
    words = sys.argv[1:]
    for part in (bench_probe, bench_plugin, bench_graph, bench_consume, bench_timing, bench_textfile,
                 bench_record, bench_attach, bench_agent, bench_exec, bench_callbacks, bench_foreign, bench_handover):
        if words and not any(word in part.__name__ for word in words):
            continue
        try:
            part()
        except Exception as error:
            note(part.__name__[6:], f"not measured: {error!r:.60}")
        finally:
            nbt.cleanup()
    machine()
    table()


if __name__ == "__main__":
    main()
