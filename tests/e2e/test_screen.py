# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The live screen under a pty, and the log line where there is none."""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import nbt
import servers
from servers import Crowd, private_hostname

ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
HIDE, SHOW = b"\x1b[?25l", b"\x1b[?25h"
HOME = b"\x1b[H"
# All that the screen itself sends: the two above, home, clear, and looks.
OWN = re.compile(rb"\x1b\[(\?1049[hl]|\?25[hl]|H|K|J|[0-9;]*m)")


class Terminal:
    """The agent on a pty of that size; what it shows is kept."""

    def __init__(self, columns, rows, *args, **popen):
        self.columns, self.rows, self.text = columns, rows, b""
        self.master, slave = pty.openpty()
        nbt.defer(os.close, self.master)
        self.slave = slave
        nbt.defer(os.close, slave)
        self.resize(columns, rows)
        self.modes = termios.tcgetattr(slave)
        self.process = subprocess.Popen(
            [nbt.AGENT, "run", "--cgroup", servers.own_cgroup(), "--interval", "1",
             "--textfile-dir", nbt.tempdir(), *args],
            stdin=slave, stdout=slave, stderr=subprocess.PIPE, **popen)
        nbt.defer(nbt.end, self.process)

    def resize(self, columns, rows):
        self.columns, self.rows = columns, rows
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536)

    def frames(self):
        """The whole frames so far, each a list of lines without the screen's own sequences."""
        self.read()
        parts = self.text.split(HOME)[1:]
        return [re.split("\r+\n", OWN.sub(b"", part).decode("ascii")) for part in parts[:-1]]

    def until(self, condition, what, seconds=15):
        """The first frame from now on for which the condition holds."""
        start = len(self.frames())
        found = []

        def look():
            found.extend(frame for frame in self.frames()[start:] if condition("\n".join(frame)))
            return found

        nbt.wait_for(look, f"{what} on screen", seconds)
        return found[0]

    def check_frames(self, frames=None):
        for frame in frames or self.frames():
            assert len(frame) <= self.rows, frame
            for line in frame:
                assert len(line) < self.columns and line.isprintable(), repr(line)

    def end(self, sig=signal.SIGINT):
        """Ends the agent; its exit status. The terminal must be as it was."""
        status = nbt.end(self.process, sig)
        self.read()
        assert self.text.count(ENTER) == self.text.count(LEAVE) == 1
        assert self.text.count(HIDE) == self.text.count(SHOW) == 1
        assert self.text.rindex(LEAVE) > self.text.rindex(HOME)
        assert b"\x1b" not in OWN.sub(b"", self.text), OWN.sub(b"", self.text)
        assert termios.tcgetattr(self.slave) == self.modes
        return status


def test_waits_on_a_small_terminal():
    """No process: it says so, fits 80 x 24 and gives the terminal back on SIGINT and SIGTERM."""
    for sig in (signal.SIGINT, signal.SIGTERM):
        terminal = Terminal(80, 24)
        terminal.until(lambda text: "waiting for" in text, "that it waits")
        terminal.check_frames()
        assert terminal.end(sig) == 0


def test_job_fits_two_sizes():
    """More communicators than lines: each size is kept to, what is left out is counted."""
    sim = servers.sim("comm world config; split a world 2; split b world 4; "
                      "loop forever { rate 50; allreduce world 100 fp32; allreduce a 10 int8; "
                      "broadcast b 10 int8 }", ranks=12)
    for columns, rows in ((80, 24), (200, 60), (40, 5)):
        terminal = Terminal(columns, rows)
        terminal.until(lambda text: "12 traced" in text or columns < 80, "the job")
        if sim:
            sim.go()
            sim = None
        frame = terminal.until(lambda text: "COMMUNICATOR" in text and
                               ("AllReduce" in text or columns < 80),
                               "a table with calls")
        terminal.check_frames()
        shown = sum(bool(re.match(r"[0-9a-f]{16}|unknown-", line)) for line in frame)
        if rows == 60:
            assert shown == 36 and "world" in "\n".join(frame), frame
        else:
            left = re.search(r"(\d+) more", "\n".join(frame))
            assert left and shown + int(left[1]) == 36, frame
        assert terminal.end() == 0


def test_resize_is_followed():
    terminal = Terminal(200, 60)
    terminal.until(lambda text: "waiting for" in text, "that it waits")
    terminal.resize(30, 4)
    n = len(terminal.frames()) + 1  # one was perhaps under way
    nbt.wait_for(lambda: len(terminal.frames()) > n + 1, "two frames more")
    terminal.check_frames(terminal.frames()[n + 1:])
    assert terminal.end() == 0


def test_no_escape_of_a_job_or_host_reaches_the_terminal():
    """X3: names of a job and of the host."""
    evil = b"\x1b[2J\x1b]0;x\x07\xc2\x9b"
    crowds = [Crowd("named", name.hex(), name.hex(), 3)
              for name in (evil, b"a\nb\r\x08", b"\xff\xfe\xc3", b"plain")]
    terminal = Terminal(200, 60, preexec_fn=private_hostname(evil))
    terminal.until(lambda text: "4 traced" in text, "the jobs")
    for crowd in crowds:
        crowd.run()
    frame = terminal.until(lambda text: text.count("AllReduce") == 4, "their calls")
    terminal.check_frames()
    for crowd in crowds:
        assert sum(f" {crowd.pid} " in line for line in frame) == 1, frame
    assert terminal.end() == 0


def test_terminal_that_takes_nothing_stops_no_tracing():
    """Nobody reads the pty: the textfile goes on, and SIGINT still ends the agent."""
    terminal = Terminal(200, 60)
    directory = terminal.process.args[terminal.process.args.index("--textfile-dir") + 1]
    file = directory / "nccl_bpftrace.prom"
    terminal.until(lambda text: "waiting for" in text, "that it waits")
    termios.tcflow(terminal.slave, termios.TCOOFF)

    def made():
        return nbt.Series(file.read_text()).one("nccl_bpftrace_heartbeat_timestamp_seconds")

    start = made()
    nbt.wait_for(lambda: made() > start + 3.5, "three files more", 15)
    termios.tcflow(terminal.slave, termios.TCOON)
    assert terminal.end() == 0


KEYS = ["processes", "unsupported", "communicators", "operations/s", "bytes/s", "records/s", "lost",
        "oldest_call"]


def log_lines(agent):
    return [line for line in agent.output().splitlines() if " processes=" in line]


def test_log_line():
    """Without a terminal: one line an interval, its keys in their order, its values true."""
    agent = servers.agent()
    sim = servers.sim("comm world config; loop forever { rate 100; allreduce world 1000 fp32 }",
                      ranks=2)
    agent.until(lambda s: s.one("nccl_bpftrace_processes", state="traced") == 2, "the job")
    sim.go()
    start = len(log_lines(agent))
    nbt.wait_for(lambda: len(log_lines(agent)) >= start + 6, "six lines", 20)
    for line in log_lines(agent):
        stamp, *pairs = line.split(" ")
        assert abs(time.time() - time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")) +
                   time.timezone) < 60, line
        assert [pair.split("=")[0] for pair in pairs] == KEYS, line
    values = [dict(pair.split("=") for pair in line.split(" ")[1:])
              for line in log_lines(agent)[start + 2:]]
    assert {v["processes"] for v in values} == {"2"} and {v["lost"] for v in values} == {"0"}
    assert {v["communicators"] for v in values} == {"2"}, values
    rates = [float(v["operations/s"]) for v in values]
    assert 140 < sum(rates) / len(rates) < 260, rates
    for v in values:
        assert abs(float(v["bytes/s"]) - 4000 * float(v["operations/s"])) < 4000, v
        assert float(v["oldest_call"].rstrip("s")) < 2, v
    sim.stop()
    nbt.wait_for(lambda: "processes=0 unsupported=0 communicators=0" in log_lines(agent)[-1],
                 "a line without the job")


def test_no_ui_on_a_terminal():
    """--no-ui: log lines, no escape sequence."""
    terminal = Terminal(80, 24, "--no-ui")

    def line():
        terminal.read()
        return terminal.text.count(b"oldest_call=") >= 2

    nbt.wait_for(line, "two lines")
    assert nbt.end(terminal.process, signal.SIGINT) == 0
    terminal.read()
    assert b"\x1b" not in terminal.text
