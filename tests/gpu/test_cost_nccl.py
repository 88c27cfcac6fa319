# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What the tracer, its plugin and NVIDIA Inspector cost nccl-tests' all_reduce_perf on two GPUs.

How fast a small all_reduce is depends on its launch on the host, and that on what others do on the
machine: from one second to the next it differs more than tracing costs. So one process for each
setting is there at a time, on the same processors, and they take turns cycle by cycle, each cycle all
sizes, with a bare one before and after each. Whose turn it is not is held up in its output: its
terminal does not take the line of the last size.
"""
import os
import re
import shutil
import select
import statistics
import subprocess
import sys
import termios
import time
import tty
from pathlib import Path

import nbt
from hook import PLUGIN
from probed import is_probed

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu  # noqa: E402
import nccl_tests  # noqa: E402

SETS = int(os.environ.get("ROUNDS", "20"))  # of fresh processes: the pairs of the table
SECONDS = int(os.environ.get("SECONDS_AT_MOST", "540"))  # then the sets done so far are told of
TURNS = int(os.environ.get("TURNS", "25"))  # measured, of each set
WARM_TURNS, HANDOVER_TURNS = 5, 60
MIB = 1 << 20
LAST, FACTOR = 64 * MIB, 4
ARGS = ("-b", 16, "-e", LAST, "-f", FACTOR, "-g", 2, "-n", 50, "-w", 5, "-c", 0, "-N", 100000)
# Of the jobs; nothing else of this test runs there. One for the thread that launches, one for the
# others: two processors need not be equally fast.
LAUNCHES_ON, OTHERS_ON = 4, 12
CPUS = {LAUNCHES_ON, OTHERS_ON}


def library():
    """The libnccl.so.2 that the programs load."""
    text = subprocess.run(["ldd", nccl_tests.program("all_reduce")], text=True, check=True,
                          stdout=subprocess.PIPE).stdout
    return Path(re.search(r"libnccl\.so\.2 => (\S+)", text)[1])


class Job:
    """all_reduce_perf, held up but for cycle(); .cycles: [{bytes: µs out of place and in place}]."""

    def __init__(self, nccl=None, **environment):
        if nccl:
            environment["LD_LIBRARY_PATH"] = f"{nccl.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}"
        self.master, self.slave = os.openpty()
        tty.setraw(self.slave)
        self.process = subprocess.Popen(
            [nccl_tests.program("all_reduce"), *map(str, ARGS)], stdin=subprocess.DEVNULL,
            preexec_fn=lambda: os.sched_setaffinity(0, CPUS), stdout=self.slave,
            stderr=self.slave, env=dict(os.environ, **environment))
        self.pid = self.process.pid
        self.said, self.rest, self.cycles = "", "", [{}]
        nbt.defer(self.end)

    def row(self):
        """The size of the next row, which is taken down."""
        while True:
            line, newline, rest = self.rest.partition("\n")
            if not newline:
                if not select.select([self.master], [], [], 120)[0]:
                    raise AssertionError(f"all_reduce_perf says nothing: {self.said}{self.rest}")
                self.rest += os.read(self.master, 1 << 16).decode()
                continue
            self.rest = rest
            row = nccl_tests.ROW.match(line)
            if row:
                self.cycles[-1][int(row[1])] = float(row[3]) + float(row[6])
                return int(row[1])
            self.said += line + "\n"

    def is_held_up(self):
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] == "S"

    def cycle(self):
        """All sizes once. It is held up when the last of them is done, whose row comes next time."""
        termios.tcflow(self.slave, termios.TCOON)
        while (size := self.row()) != LAST // FACTOR:
            if size == LAST:
                self.cycles.append({})
        termios.tcflow(self.slave, termios.TCOOFF)
        still = 0
        while still < 5:
            time.sleep(0.001)
            still = still + 1 if self.is_held_up() else 0

    def threads_ns(self):
        """{thread: its time on a processor so far}"""
        return {int(task.name): int((task / "schedstat").read_text().split()[0])
                for task in Path(f"/proc/{self.pid}/task").iterdir()}

    def cpu_ns(self):
        return sum(self.threads_ns().values())

    def pin(self):
        threads = self.threads_ns()
        busiest = max(threads, key=threads.get)
        for tid in threads:
            os.sched_setaffinity(tid, {LAUNCHES_ON if tid == busiest else OTHERS_ON})

    def end(self):
        self.process.kill()
        self.process.wait()


class Copies:
    """Files of their own for what is traced, so that no probe is in what is not."""

    def __init__(self):
        place, nccl = nbt.tempdir(), library()
        self.nccl = [self.copy(nccl, place / name) for name in ("bare", "plugin")]
        self.plugin = self.copy(PLUGIN, place)
        self.empty = place / "libempty.so"
        subprocess.run([nbt.need("cc", "gcc"), "-O2", "-shared", "-fPIC", "-o", self.empty,
                        Path(__file__).with_name("empty_profiler.c")], check=True)

    @staticmethod
    def copy(path, directory):
        directory.mkdir(exist_ok=True)
        return Path(shutil.copy(path, directory))


BARE, IDLE, TRACER, EMPTY, BOTH, INSPECTOR = (
    "nothing", "plugin, no tracer", "tracer, no plugin", "a plugin that does nothing",
    "plugin and tracer", "NVIDIA Inspector")
GOALS = {IDLE: (1.005, 1.005), BOTH: (1.03, 1.01)}


def start(copies):
    dumps = nbt.tempdir()
    return {
        BARE: Job(NCCL_PROFILER_PLUGIN="none"),
        IDLE: Job(NCCL_PROFILER_PLUGIN=str(PLUGIN)),
        TRACER: Job(copies.nccl[0], NCCL_PROFILER_PLUGIN="none"),
        EMPTY: Job(NCCL_PROFILER_PLUGIN=str(copies.empty)),
        BOTH: Job(copies.nccl[1], NCCL_PROFILER_PLUGIN=str(copies.plugin)),
        INSPECTOR: Job(NCCL_PROFILER_PLUGIN=nccl_tests.inspector(), NCCL_INSPECTOR_ENABLE="1",
                       NCCL_INSPECTOR_PROM_DUMP="1", NCCL_INSPECTOR_DUMP_DIR=str(dumps),
                       NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS="30000000"),
    }


def turn(jobs):
    """One cycle of each setting, and a bare one before it."""
    for name in jobs:
        if name != BARE:
            jobs[BARE].cycle()
            jobs[name].cycle()


def ratio(cycle, before, after, low, high):
    return statistics.geometric_mean(2 * cycle[size] / (before[size] + after[size])
                                     for size in cycle if low <= size < high)


RANGES = ((0, MIB), (MIB, 2 * MIB), (MIB, 2 * LAST))


class Set:
    """Fresh processes: .ratios {setting: [median of its turns, by range]}, .cpu_ns {setting: of a
    cycle}, .bare the usual cycle, .is_handed_over."""

    def __init__(self, copies):
        jobs = start(copies)
        for job in jobs.values():
            job.cycle()
            job.pin()
        agent = nbt.Agent("--no-ui", "--handover-after", 1, "--pid", jobs[TRACER].pid,
                          "--pid", jobs[BOTH].pid)
        for number in range(HANDOVER_TURNS):
            turn(jobs)
            self.is_handed_over = not is_probed(jobs[BOTH].pid, library=copies.nccl[1])
            if self.is_handed_over and number >= WARM_TURNS:
                break
        assert is_probed(jobs[TRACER].pid, library=copies.nccl[0])
        cpu = {name: (job.cpu_ns(), len(job.cycles)) for name, job in jobs.items()}
        for _ in range(TURNS):
            turn(jobs)
        jobs[BARE].cycle()
        for name, job in jobs.items():
            job.cycle()  # the last row of the last turn
            cpu[name] = (job.cpu_ns() - cpu[name][0]) / (len(job.cycles) - cpu[name][1])
        agent.stop()
        for job in jobs.values():
            job.end()
        self.cpu_ns = cpu
        self.evaluate({name: job.cycles[:-1] for name, job in jobs.items()})

    def evaluate(self, cycles):
        others, bare = [name for name in cycles if name != BARE], cycles[BARE]
        found = {BARE: list(zip(bare[1:], bare, bare[2:]))}
        # counted from the end: the last bare one came after all turns
        for place, name in enumerate(others):
            found[name] = []
            for turn_of in range(TURNS):
                before = len(bare) - 1 - len(others) * (TURNS - turn_of) + place
                found[name].append((cycles[name][turn_of - TURNS], bare[before],
                                    bare[before + 1]))
        self.ratios = {name: [statistics.median(ratio(*three, *sizes) for three in threes)
                              for sizes in RANGES] for name, threes in found.items()}
        self.bare = {size: statistics.median(cycle[size] for cycle in bare[-TURNS:]) / 2
                     for size in bare[0]}


def test_cost_of_all_reduce():
    """Medians over the sets, with their 95 % intervals; goals are printed beside, not asserted by
    time on a machine that others may share."""
    gpu.need_gpus(2)
    nbt.defer(os.sched_setaffinity, 0, os.sched_getaffinity(0))
    os.sched_setaffinity(0, os.sched_getaffinity(0) - CPUS)
    copies, sets = Copies(), []
    begin = time.monotonic()
    while len(sets) < SETS:
        took = (time.monotonic() - begin) / max(len(sets), 1)
        if sets and time.monotonic() - begin + took > SECONDS:
            print(f"only {len(sets)} of {SETS} sets: the time is over")
            break
        sets.append(Set(copies))
    print(f"     handed over in {sum(s.is_handed_over for s in sets)} of {len(sets)} sets")
    rows = [(BARE, *(f"{statistics.median(s.bare[size] for s in sets):.2f} µs"
                     for size in (16, MIB, LAST)),
             f"{statistics.median(s.cpu_ns[BARE] for s in sets) / 1e6:.1f} ms", "")]
    for name in sets[0].ratios:
        rows.append((f"{name}{', to itself' if name == BARE else ''}",
                     *(gpu.ratio_text([s.ratios[name][i] for s in sets]) for i in range(3)),
                     gpu.ratio_text([s.cpu_ns[name] / s.cpu_ns[BARE] for s in sets]),
                     "{} below 1 MB, {} from there on".format(*GOALS[name]) if name in GOALS else ""))
    gpu.table(("all_reduce_perf", "16 B (ratios: below 1 MB)", "1 MB",
               "64 MB (ratios: 1 MB and more)", "CPU of the job, a cycle", "goal"), rows)
