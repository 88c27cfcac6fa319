# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tests share: the agent, simulated jobs, textfiles read back, waiting without hoping."""
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build"
AGENT = BUILD / "nccl-bpftrace"
SIM = BUILD / "nccl-sim"
TARGETS = BUILD / "tests/targets"

_undo = []  # run last to first after each test
_logs = []  # what the programs of this test say


class Skip(Exception):
    pass


def skip(reason):
    raise Skip(reason)


def defer(function, *args, **kwargs):
    """Calls the function when the test is over, whatever its verdict."""
    _undo.append((function, args, kwargs))


def cleanup():
    _logs.clear()
    while _undo:
        function, args, kwargs = _undo.pop()
        try:
            function(*args, **kwargs)
        except Exception as error:  # the next one must still run
            print(f"     clean-up: {error!r}")


class Log:
    """
    What a program says, to be its standard output or error, and read while it writes: where in the
    file it writes is shared with it, so nothing here may move that place.
    """

    def __init__(self, who):
        self.file, self.who = tempfile.TemporaryFile(), who
        _logs.append(self)

    def fileno(self):
        return self.file.fileno()

    def read(self):
        return os.pread(self.fileno(), os.fstat(self.fileno()).st_size, 0).decode(errors="replace")


def said():
    """The last that each program of this test said."""
    return "".join(f"---- {log.who} said:\n{text[-3000:]}\n"
                   for log in _logs if (text := log.read()))


def need(program, package):
    path = shutil.which(program) or shutil.which(program, path="/usr/sbin:/sbin:/usr/bin")
    return path or skip(f"{program} is not installed (apt: {package})")


def tempdir():
    path = Path(tempfile.mkdtemp(prefix="nccl-bpftrace-test."))
    defer(shutil.rmtree, path, ignore_errors=True)
    return path


def wait_for(condition, what, seconds=10.0, every=0.02):
    """The condition's value once it is true; fails, naming what was waited for, after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {what}")
        time.sleep(every)


def soon(measure, limits, tries=3):
    """
    The times that measure() gives, in seconds, none above its limit: at the best of some tries,
    for a machine that is busy with others says nothing of ours.
    """
    for _ in range(tries):
        times = measure()
        if all(took < limit for took, limit in zip(times, limits)):
            return times
    raise AssertionError(f"{times} s, {tries} times; the limits: {limits} s")


def end(process, sig=signal.SIGTERM, seconds=10):
    if process.poll() is None:
        process.send_signal(sig)
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    return process.returncode


def end_by_input(process):
    """Closes its input, which ends it; kills it when that does not. Its exit status."""
    if process.poll() is None:
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            end(process)
    return process.returncode


class Series:
    """The samples of one textfile: {(family, frozenset of label pairs): value}."""

    LINE = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
    LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(?:,|$)')
    ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}

    def __init__(self, text):
        self.samples = {}
        for line in text.splitlines():
            if line.startswith("#"):
                continue
            found = self.LINE.match(line)
            if not found:
                raise AssertionError(f"not a sample: {line!r}")
            labels = {name: re.sub(r"\\.", lambda m: self.ESCAPES[m[0]], value)
                      for name, value in self.LABEL.findall(found[2] or "")}
            key = (found[1], frozenset(labels.items()))
            if key in self.samples:
                raise AssertionError(f"twice: {line!r}")
            self.samples[key] = float(found[3])

    def get(self, family, **labels):
        """[(labels as dict, value)] of a family, those with all the given labels."""
        want = set(labels.items())
        return [(dict(pairs), value) for (name, pairs), value in self.samples.items()
                if name == family and want <= pairs]

    def sum(self, family, **labels):
        return sum(value for _, value in self.get(family, **labels))

    def one(self, family, **labels):
        found = self.get(family, **labels)
        assert len(found) == 1, f"{family} {labels}: {len(found)} series, not 1: {found}"
        return found[0][1]

    def families(self):
        return {name for name, _ in self.samples}


def pid_words(pids):
    """Words of a command line: what is traced is these processes alone."""
    return [word for pid in pids for word in ("--pid", str(pid))]


class Agent:
    """`nccl-bpftrace run` with a textfile directory of its own, ended after the test."""

    def __init__(self, *args, interval=1, directory=None, wait=True, **popen):
        self.directory = Path(directory) if directory else tempdir()
        self.log = Log("the agent")
        self.process = subprocess.Popen(
            [AGENT, "run", "--interval", str(interval), "--textfile-dir", self.directory,
             *map(str, args)], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, **popen)
        self.pid = self.process.pid
        defer(self.stop)
        if wait:
            self.wait_file()

    @property
    def file(self):
        return self.directory / "nccl_bpftrace.prom"

    def wait_file(self):
        """What ran at the start is attached once the first file is there."""
        wait_for(lambda: self.file.exists() or self.process.poll() is not None,
                 f"textfile of the agent; it said: {self.output()}", 20)
        assert self.process.poll() is None, f"agent ended: {self.output()}"

    def output(self):
        return self.log.read()

    def series(self):
        return Series(self.file.read_text())

    def fresh(self, writes=1):
        """The series of a file made entirely after this call."""
        for _ in range(writes):
            old = self.series().one("nccl_bpftrace_heartbeat_timestamp_seconds")
            asked = max(old, time.time())
            wait_for(lambda: self.series().one("nccl_bpftrace_heartbeat_timestamp_seconds") > asked,
                     "a new textfile", 30)
        return self.series()

    def until(self, condition, what, seconds=15):
        """The series for which the condition holds."""
        found = []

        def look():
            series = self.series()
            if condition(series):
                found.append(series)
            return found

        wait_for(look, what, seconds, 0.1)
        return found[0]

    def stop(self, sig=signal.SIGTERM):
        return end(self.process, sig)


class Sim:
    """A simulated job: armed (library loaded, nothing called yet) when the constructor returns."""

    def __init__(self, script, ranks=2, nccl=None, args=(), hold=True, program=SIM, prefix=(),
                 gpu=False, plugin=None):
        """gpu: with simulated GPUs, see truth(). plugin: a profiler plugin for all ranks."""
        self.expect_file = tempdir() / "expect"
        self.truth_file = self.expect_file.with_name("truth")
        if plugin:
            prefix = [*prefix, "env", f"NCCL_PROFILER_PLUGIN={plugin}"]
        if gpu:
            args = ["--gpu", "--truth", self.truth_file, *args]
        command = [*prefix, program, "--ranks", str(ranks), "--arm", "--expect", self.expect_file,
                   *args]
        command += ["--hold"] if hold else []
        command += ["--nccl", nccl] if nccl else []
        command += ["-e", script]
        self.process = subprocess.Popen(list(map(str, command)), stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        defer(self.stop)
        line = self.process.stdout.readline()
        found = re.match(r"armed pids=([\d,]+)", line)
        assert found, f"nccl-sim did not arm: {line!r}"
        self.pids = [int(pid) for pid in found[1].split(",")]

    def go(self):
        """Lets the script start, or go on from a `wait`."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait_done(self, seconds=60):
        """Until all ranks have done the script; with hold they are still there."""
        for line in self.process.stdout:
            if line.startswith("done"):
                return
        raise AssertionError(f"nccl-sim ended: {self.process.wait(seconds)}")

    def run(self):
        self.go()
        self.wait_done()

    def expected(self):
        """What the tracer must report: [dict(pid, rank, nranks, comm, name, operation, ...)]."""
        wait_for(self.expect_file.exists, "nccl-sim's account")
        lines = self.expect_file.read_text().splitlines()
        return [dict(pair.split("=", 1) for pair in line.split()) for line in lines]

    def truth(self):
        """Each operation of each kernel that has ended: [dict(pid, comm, operation, start_ns, ...)]"""
        lines = self.truth_file.read_text().splitlines()
        words = [dict(pair.split("=", 1) for pair in line.split()) for line in lines]
        return [{name: int(word) if word.isdigit() and name != "comm" else word
                 for name, word in line.items()} for line in words]

    def stop(self):
        return end_by_input(self.process)


def expected_totals(expected):
    """{(comm, rank, operation): (calls, bytes)} as nccl-sim counted."""
    return {(e["comm"], e["rank"], e["operation"]): (int(e["calls"]), int(e["bytes"]))
            for e in expected}


def counted_totals(series, expected):
    """The same, as the textfile tells of the communicators that are expected: another job may run."""
    ours = {e["comm"] for e in expected}
    calls = {(l["comm"], l["rank"], l["operation"]): value
             for l, value in series.get("nccl_operations_total") if l["comm"] in ours}
    size = {(l["comm"], l["rank"], l["operation"]): value
            for l, value in series.get("nccl_operation_bytes_total")}
    return {key: (int(n), int(size.get(key, 0))) for key, n in calls.items()}


def run_agent(*args, seconds=30, **kwargs):
    """A command that ends by itself: CompletedProcess with text output."""
    return subprocess.run([AGENT, *map(str, args)], text=True, capture_output=True,
                          timeout=seconds, stdin=subprocess.DEVNULL, **kwargs)


def as_nobody(*capabilities):
    """The agent's command line for a user with these capabilities alone, where such can run it."""
    place = tempdir()
    place.chmod(0o755)
    copy = place / "nccl-bpftrace"
    shutil.copy(AGENT, copy)
    copy.chmod(0o755)
    granted = ",".join(f"+{name}" for name in capabilities)
    grant = [f"--inh-caps={granted}", f"--ambient-caps={granted}"] if capabilities else []
    return [need("setpriv", "util-linux"), "--reuid", "65534", "--regid", "65534",
            "--clear-groups", *grant, copy]


def copy_library(path):
    """A harmless library that no process has mapped yet: this program's libm under another name."""
    maps = Path("/proc/self/maps").read_text()
    shutil.copy(re.search(r"\S*/libm[.-]\S+", maps)[0], path)
    return path


def descriptors(pid):
    """What the kernel says of each descriptor of a process; one that is closed meanwhile is none."""
    for path in (Path("/proc") / str(pid) / "fdinfo").iterdir():
        try:
            yield path.read_text()
        except OSError:
            pass


def table(head, rows):
    """Prints a markdown table: the figures of a closing note."""
    rows = [list(map(str, row)) for row in [head, *rows]]
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    for number, row in enumerate(rows):
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    print(end="", flush=True)
