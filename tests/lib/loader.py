# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/targets/loader: a process that calls NCCL when told; and what the agent says of a process."""
import json
import os
import select
import subprocess

import nbt

PROGRAM = nbt.TARGETS / "loader"
LIBRARY = nbt.BUILD / "sim/2.28.9/libnccl.so.2"
METHODS = ("multi", "perf")


class Loader:
    """Loads the library at once unless it is None."""

    def __init__(self, library=LIBRARY, prefix=(), program=PROGRAM, **popen):
        self.process = subprocess.Popen([*map(str, prefix), program], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, bufsize=0, **popen)
        self.pid = self.process.pid
        nbt.defer(self.stop)
        if library:
            self.do(f"load {library}")

    def say(self, line):
        self.process.stdin.write(f"{line}\n".encode())

    def hear(self, seconds=20):
        """The next line it prints."""
        text = b""
        while not text.endswith(b"\n"):
            ready, _, _ = select.select([self.process.stdout], [], [], seconds)
            assert ready, f"the loader is silent, {self.process.poll()}"
            got = os.read(self.process.stdout.fileno(), 4096)
            assert got, f"the loader ended: {self.process.wait()}"
            text += got
        return text.decode()[:-1]

    def do(self, line):
        """What follows `ok` in the answer."""
        self.say(line)
        answer = self.hear()
        assert answer.startswith("ok"), f"loader: {line!r}: {answer!r}, {self.process.poll()}"
        return answer[2:].strip()

    def stop(self):
        """Its exit status; it ends with its input."""
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(2)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
        return self.process.wait()


def calls(series, pid, operation=None):
    """Calls of a process, as a textfile counts them."""
    comms = {(l["comm"], l["rank"])
             for l, _ in series.get("nccl_communicator_info", pid=str(pid))}
    return sum(value for l, value in series.get("nccl_operations_total")
               if (l["comm"], l["rank"]) in comms and operation in (None, l["operation"]))


def is_known(series, pid):
    return bool(series.get("nccl_bpftrace_process_info", pid=str(pid)))


def wait_known(agent, *pids, seconds=10):
    """The file tells of them: their probes are there."""
    agent.until(lambda s: all(is_known(s, pid) for pid in pids), f"{pids} traced", seconds)


def expect_calls(agent, wanted, seconds=15):
    """{pid: calls}, exactly: reached, and not passed a write later. The last series."""
    def counted(series):
        return {pid: calls(series, pid) for pid in wanted}

    try:
        agent.until(lambda s: all(counted(s)[pid] >= n for pid, n in wanted.items()),
                    f"calls {wanted}", seconds)
    except AssertionError as error:
        raise AssertionError(f"{error}; counted {counted(agent.series())}") from None
    series = agent.fresh()
    assert counted(series) == wanted, f"counted {counted(series)}, called {wanted}"
    return series


def ps(*args, seconds=30):
    """{pid: process} of `ps --json`."""
    done = nbt.run_agent("ps", "--json", *args, seconds=seconds)
    assert done.returncode == 0, done
    return {p["pid"]: p for p in json.loads(done.stdout)["processes"]}


def check(**kwargs):
    """(exit status, items) of `check --json`."""
    done = nbt.run_agent("check", "--json", **kwargs)
    return done.returncode, json.loads(done.stdout)["items"]


class Agent(nbt.Agent):
    """Shows every process, however many others the machine has."""

    def __init__(self, *args, **kwargs):
        super().__init__("--max-series", 200000, *args, **kwargs)
