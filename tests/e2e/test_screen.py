# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The live screen: in tmux, with keys; on a pty, byte by byte."""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import termios
import time

import nbt
import servers
from panes import Pane, words
from servers import Crowd, private_hostname

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
SIZES = ((80, 24), (200, 50))
FOOT = " q quit  Enter open  s sort  r reverse  / filter  f freeze  h help"
JOB = ("comm world config; split tensor world 4; "
       "loop forever { rate 50; allreduce world 1000 fp32; allgather tensor 10 int8; barrier }")


def rows(screen, pattern):
    return [line for line in screen.splitlines() if re.search(pattern, line)]


def check_fits(pane, columns, lines):
    """Nothing but printable ASCII, in a screen of that size; its last line is the foot."""
    found = pane.screen().split("\n")[:-1]
    assert len(found) == lines, found
    for line in found:
        assert len(line) <= columns and line.isascii() and (line.isprintable() or not line), line
    assert found[-1].startswith(" q quit") or found[-1].startswith(" h back"), found


# ---- nothing to see ----

def test_waits():
    """No process: the whole screen, and the terminal as it was after each way to end."""
    for end in ("q", "C-c", "TERM", "HUP"):
        pane = Pane(80, 24)
        pane.shows("waiting for")
        lines = [words(line) for line in pane.lines()]
        assert re.fullmatch(r" \S+ \d\d:\d\d:\d\d N traced N not traceable agent N CPU N",
                            re.sub("N:N:N", "00:00:00", lines[0])), lines[0]
        assert lines[1].startswith(" N records/s none lost textfiles: /"), lines[1]
        assert lines[2:4] == [" N communicators, by trouble",
                              " No process with NCCL on this node: waiting for one."], lines
        assert lines[4:-1] == [""] * 19 and lines[-1] == words(FOOT), lines
        check_fits(pane, 80, 24)
        if end in ("q", "C-c"):
            pane.keys(end)
        else:
            os.kill(pane.agent(), getattr(signal, f"SIG{end}"))
        assert pane.ended() == 0


def test_help():
    """All of it at 80 x 24, and only there as long as asked for."""
    pane = Pane(80, 24)
    pane.shows("waiting for")
    pane.keys("h")
    screen = pane.shows(" KEYS")
    check_fits(pane, 80, 24)
    assert " COLUMNS" in screen and "waiting for" not in screen, screen
    for key in ("Up Down k j", "PgUp PgDn", "Enter", "Tab", "s  ", "/  ", "q Ctrl-C"):
        assert f"\n {key}" in screen, screen
    pane.keys("Escape")
    pane.shows("waiting for")
    pane.keys("q")
    assert pane.ended() == 0


def test_too_small():
    pane = Pane(80, 24)
    pane.shows("waiting for")
    pane.resize(50, 12)
    pane.until(lambda s: s.startswith("too small: needs 60x10"), "that it is too small")
    pane.resize(60, 10)
    pane.shows("waiting for")
    check_fits(pane, 60, 10)
    pane.keys("q")
    assert pane.ended() == 0


# ---- jobs ----

def start(ranks, script=JOB, **kwargs):
    """A job and a screen that has seen it call."""
    sim = servers.sim(script, ranks=ranks, **kwargs)
    pane = Pane(80, 24, "--stuck-after", "8")
    pane.shows(f" {ranks} traced", 60)
    sim.go()
    pane.until(lambda s: re.search(rf" world +{ranks}/{ranks} AllReduce.* \d", s), "the job", 60)
    return sim, pane


def check_overview(pane, ranks, columns):
    titles = pane.row("^ STATE")
    wanted = ["STATE", "FOR", "COMMUNICATOR", "JOB", "RANKS", "OPERATION", "OPS/S", "BYTES/S",
              "BUSBW", "CULPRITS", "WHY"]
    if columns == 80:
        wanted = [name for name in wanted if name not in ("JOB", "BYTES/S", "BUSBW", "WHY")]
    assert titles.split() == wanted, titles
    number = r" #\d+" if ranks > 1 else ""  # NCCL numbers nothing in a communicator of one rank
    row = pane.row(rf" world .*{ranks}/{ranks} AllReduce{number} +\d")
    assert re.match(r"[> ](healthy|idle|unknown) ", row), row
    assert re.search(r"[0-9a-f]{8} world ", row), row


def check_opened(pane, ranks, columns):
    titles = pane.row("^ +RANK ROLE")
    assert ("COMMAND" in titles) == (columns > 80) and "OF MOST" in titles, titles
    pane.row(r"^[> ] +0 +\d+ .*AllReduce +[\d-]+ +\d\.\ds")
    operations = pane.row("^[> ]AllReduce +\\d+ ")
    assert "4.00 kB" in operations, operations
    pane.row("^ LAST CHANGES OF STATE")


def go_to(pane, pattern):
    """Goes down to the row. What a key does is seen before the next one is pressed."""
    def look(screen):
        found = re.search(pattern, screen, re.M)
        if not found:
            selected = rows(screen, "^>")
            pane.keys("Down")
            pane.until(lambda s: rows(s, "^>")[:1] != selected[:1], "another row selected")
        return found

    pane.until(look, f"{pattern!r} selected")


def pages(ranks):
    """Each page at two sizes, the keys between them."""
    _, pane = start(ranks)
    for columns, lines in SIZES:
        pane.resize(columns, lines)
        pane.until(lambda s: (" WHY" in s) == (columns > 80), f"{columns} columns")
        check_overview(pane, ranks, columns)
        check_fits(pane, columns, lines)
        pane.keys("/")
        pane.shows("filter: _")
        pane.type("world")
        pane.shows("filter: world_")
        pane.keys("Enter")
        go_to(pane, rf"^>.* {ranks}/{ranks} AllReduce")
        pane.keys("Enter")
        pane.shows("LAST CHANGES OF STATE")
        check_opened(pane, ranks, columns)
        check_fits(pane, columns, lines)
        pane.keys("End")
        pane.row(rf"^> +{ranks - 1} +\d+ ")
        pane.keys("Home")
        pane.row(r"^> +0 +\d+ ")
        pane.keys("Tab")
        pane.row(">AllReduce ")
        pane.keys("Escape")
        pane.shows(" STATE")
        pane.keys("Escape")
        pane.until(lambda s: "filter:" not in s, "no filter")
    pane.keys("q")
    assert pane.ended() == 0


def test_1_rank():
    pages(1)


def test_8_ranks():
    pages(8)


def test_64_ranks():
    pages(64)


def test_sort_reverse_freeze():
    sim, pane = start(8)
    for sort in ("name", "rate", "age", "trouble"):
        pane.keys("s")
        pane.shows(f"communicators, by {sort}")
    pane.keys("s")
    pane.keys("s")
    rates = [float(re.search(r"#\d+ +([\d.]+)", line)[1])
             for line in rows(pane.shows("by rate"), r"#\d+ ")]
    assert len(rates) == 5 and rates == sorted(rates, reverse=True), rates
    pane.keys("r")
    pane.shows("by rate reversed")
    pane.keys("f")
    pane.shows("FROZEN")
    frozen = pane.screen()
    calls = series(pane.textfiles).sum("nccl_operations_total")
    nbt.wait_for(lambda: series(pane.textfiles).sum("nccl_operations_total") > calls + 500,
                 "more calls", 30)
    assert pane.screen() == frozen
    pane.keys("Down")  # one may look around in it
    pane.until(lambda s: s != frozen and "FROZEN" in s, "another row")
    pane.keys("f")
    pane.until(lambda s: "FROZEN" not in s, "that it goes on")
    sim.stop()
    pane.shows("No process with NCCL", 60)
    pane.keys("q")
    assert pane.ended() == 0


# ---- a hang ----

HANG = ("comm world config; loop 200 { rate 50; allreduce world 1000 fp32; barrier }; "
        "@3 stop; loop forever { rate 50; allreduce world 1000 fp32 }")


def test_hang():
    """Rank 3 stops: it is named, on both pages and at both sizes; then it goes on."""
    sim, pane = start(8, HANG, args=["--sync"])
    row = pane.row(r"^>(waiting|stuck) ", 60)
    assert re.search(r" world +8/8 AllReduce #201 +\S+ +3$", row), row
    row = pane.row(r"^>stuck ", 60)
    assert re.search(r" world +8/8 AllReduce #201 +0 +3$", row), row
    pane.shows("culprits: 3             waiting: 0-2,4-7")
    check_fits(pane, 80, 24)
    pane.resize(200, 50)
    row = pane.row(r"^>stuck .* 3 +\S.* ")
    assert re.search(r" world .* 8/8 AllReduce #201 .* 3 +\w", row), row
    pane.keys("Enter")
    ranks = rows(pane.shows("LAST CHANGES OF STATE"), r"^[> ] +\d+ (culprit|waiting) ")
    assert len(ranks) == 8, ranks
    assert re.match(rf"> +3 culprit +{sim.pids[3]} .* AllReduce +200 ", ranks[0]), ranks[0]
    for rank, line in zip((0, 1, 2, 4, 5, 6, 7), ranks[1:]):
        assert re.match(rf"  +{rank} waiting +{sim.pids[rank]} .* AllReduce +201 ", line), line
    check_fits(pane, 200, 50)
    pane.resize(80, 24)
    pane.row(r"\d[smh] ago  stuck, rank 3 first")
    pane.row(r"\d[smh] ago  waiting, rank 3 first")
    pane.until(lambda s: len(rows(s, "^[> ] +[0-7] (culprit|waiting) ")) == 8, "all ranks")
    check_fits(pane, 80, 24)
    os.kill(sim.pids[3], signal.SIGCONT)
    pane.row(r"\d[smh] ago  healthy", 60)
    pane.keys("Escape")
    pane.row("^>healthy ")
    pane.keys("q")
    assert pane.ended() == 0


# ---- the terminal ----

def series(directory):
    file = directory / "nccl_bpftrace.prom"
    nbt.wait_for(file.exists, "the textfile", 30)
    return nbt.Series(file.read_text())


def heartbeat(directory):
    return series(directory).one("nccl_bpftrace_heartbeat_timestamp_seconds")


def test_ctrl_s_holds_up_nothing():
    """The terminal takes nothing: textfiles go on; Ctrl-Q shows all again, SIGTERM still ends it."""
    for end in ("C-q", "TERM"):
        pane = Pane(80, 24)
        pane.shows("waiting for")
        pane.keys("C-s")
        start = heartbeat(pane.textfiles)
        pane.keys("h")  # would be shown
        nbt.wait_for(lambda: heartbeat(pane.textfiles) > start + 3.5, "three files more", 30)
        assert " KEYS" not in pane.screen()
        if end == "C-q":
            pane.keys("C-q")
            pane.shows(" KEYS")
            check_fits(pane, 80, 24)
            pane.keys("q", "q")  # out of the help first
        else:
            os.kill(pane.agent(), signal.SIGTERM)
        assert pane.ended() == 0


def test_job_control():
    """Ctrl-Z gives the terminal back; in the background nothing is shown, but traced; fg shows."""
    pane = Pane(80, 24, shell=True)
    pane.shows("prompt>")
    pane.type(pane.command + "\n")
    pane.shows("waiting for")
    pane.keys("C-z")
    pane.until(lambda s: "Stopped" in s and "q quit" not in s, "that it is stopped")
    pane.type("stty -a\n")
    modes = pane.shows("echoke")
    assert re.search(r"\sopost .* icanon .* echo ", modes, re.S), modes
    pane.type("clear\n")
    pane.type("bg\n")
    start = heartbeat(pane.textfiles)
    nbt.wait_for(lambda: heartbeat(pane.textfiles) > start + 2.5, "two files more", 30)
    pane.type("echo still here\n")
    screen = pane.shows("\nstill here")
    assert "q quit" not in screen, screen
    pane.type("fg\n")
    pane.shows("waiting for")
    check_fits(pane, 80, 24)
    pane.keys("q")
    screen = pane.until(lambda s: "q quit" not in s, "the shell again")
    pane.type("echo $? after\n")
    pane.shows("\n0 after")


def test_stopped_and_continued_from_outside():
    pane = Pane(80, 24)
    pane.shows("waiting for")
    os.kill(pane.agent(), signal.SIGSTOP)
    pane.keys("h")
    os.kill(pane.agent(), signal.SIGCONT)
    pane.shows(" KEYS")
    pane.keys("q", "q")
    assert pane.ended() == 0


def test_sigquit_gives_the_terminal_back():
    pane = Pane(80, 24, prefix="ulimit -c 0;")
    pane.shows("waiting for")
    os.kill(pane.agent(), signal.SIGQUIT)
    assert pane.ended() == 128 + signal.SIGQUIT


def test_messages_do_not_spoil_the_screen():
    """What goes to stderr is shown in a line of its own, in colour unless NO_COLOR is set, and is
    there after the end."""
    for prefix, colour in (("", True), ("env NO_COLOR=1", False)):
        pane = Pane(80, 24, prefix=prefix)
        pane.shows("waiting for")
        shutil.rmtree(pane.textfiles)
        pane.row("^ nccl-bpftrace: cannot write the textfile: ")
        check_fits(pane, 80, 24)
        seen = pane.screen(escapes=True)
        assert bool(re.search(r"\x1b\[33m nccl-bpftrace: cannot", seen)) == colour, seen
        assert re.search(r"\x1b\[1m(\x1b\[33m)? nccl-bpftrace: cannot", seen), seen
        pane.keys("q")
        assert pane.ended() == 0
        pane.row("^nccl-bpftrace: cannot write the textfile: ")


def test_terminals():
    """Known or not: one that the node's database has no entry of, and one that can do nothing."""
    for term in ("xterm-256color", "vt100", "linux", "no-such-terminal", "tmux-direct"):
        pane = Pane(80, 24, prefix=f"env TERM={term}")
        pane.shows("waiting for")
        pane.keys("h")
        pane.shows(" KEYS")
        check_fits(pane, 80, 24)
        pane.keys("C-l")
        pane.shows(" KEYS")
        pane.keys("q")
        pane.shows("q quit")
        pane.keys("q")
        pane.until(lambda s: "status 0" in s, "its end")
    no_database = "".join(f"mount -t tmpfs none {path};" for path in
                          ("/etc/terminfo", "/lib/terminfo", "/usr/share/terminfo")
                          if os.path.isdir(path))
    pane = Pane(80, 24, prefix=f"unshare -m sh -c '{no_database} exec \"$@\"' -")
    pane.shows("waiting for")
    check_fits(pane, 80, 24)
    pane.keys("q")
    assert pane.ended() == 0
    for term in ("dumb", ""):
        pane = Pane(80, 24, prefix=f"env TERM={term}")
        pane.shows("nccl-bpftrace: no screen on this terminal (TERM is not set, or the terminal")
        pane.shows("oldest_call=-")
        pane.keys("C-c")
        assert pane.ended() == 0


def test_without_keys():
    """Standard input is no terminal: the screen is there, and ends with a signal."""
    pane = Pane(80, 24, prefix="</dev/null")
    pane.shows("waiting for")
    pane.keys("h")
    pane.keys("C-c")
    assert pane.ended() == 0


# All that may come between printable ASCII: ncurses' sequences for xterm, none with a text in it.
OWN = re.compile(rb"\x1b\[[?0-9;]*[A-Za-z]|\x1b\(B|\x1b[=>78]|[\r\n\b]")


class Terminal:
    """The agent on a pty, every byte of which is kept."""

    def __init__(self, *args, **popen):
        self.text, self.textfiles = b"", nbt.tempdir()
        self.master, self.slave = pty.openpty()
        nbt.defer(os.close, self.master)
        nbt.defer(os.close, self.slave)
        termios.tcsetwinsize(self.slave, (50, 200))
        self.modes = termios.tcgetattr(self.slave)
        self.process = subprocess.Popen(
            [nbt.AGENT, "run", "--cgroup", servers.own_cgroup(), "--interval", "1",
             "--textfile-dir", self.textfiles, *args],
            stdin=self.slave, stdout=self.slave, stderr=subprocess.PIPE,
            env={**os.environ, "TERM": "xterm"}, **popen)
        nbt.defer(nbt.end, self.process)

    def read(self):
        while select.select([self.master], [], [], 0)[0]:
            self.text += os.read(self.master, 65536)
        return self.text

    def until(self, word, seconds=30):
        nbt.wait_for(lambda: word in self.read(), f"{word!r} on the terminal", seconds)


def test_no_escape_of_a_job_or_host_reaches_the_terminal():
    """X3: names of a job and of the host."""
    evil = b"\x1b[2J\x1b]0;x\x07\xc2\x9b"
    crowds = [Crowd("named", name.hex(), name.hex(), 3)
              for name in (evil, b"a\nb\r\x08", b"\xff\xfe\xc3", b"plain")]
    terminal = Terminal(preexec_fn=private_hostname(evil))
    terminal.until(b"traced")
    nbt.wait_for(lambda: series(terminal.textfiles).sum(
        "nccl_bpftrace_processes", state="traced") == 4, "the jobs", 30)
    for crowd in crowds:
        crowd.run()
    terminal.until(b"?[2J?]0;x??")
    terminal.until(b"plain")
    os.write(terminal.master, b"\r")
    terminal.until(b"LAST CALL")
    os.write(terminal.master, b"q")
    nbt.wait_for(lambda: terminal.read() and terminal.process.poll() is not None, "its end")
    text = terminal.read()
    left = OWN.sub(b"", text)
    assert left.isascii() and left.decode().isprintable(), left
    assert text.count(b"\x1b[?1049h") == text.count(b"\x1b[?1049l") == 1
    assert termios.tcgetattr(terminal.slave) == terminal.modes


def test_a_terminal_that_nobody_reads():
    """A dead connection: all buffers are full, and yet it ends when told to, soon."""
    terminal = Terminal()
    terminal.until(b"waiting for")
    # keys are taken and answered with whole screens until the pty is full of them
    for _ in range(3000):
        os.write(terminal.master, b"\x0c")
    start = heartbeat(terminal.textfiles)
    nbt.wait_for(lambda: heartbeat(terminal.textfiles) > start + 2.5, "two files more", 30)
    begun = time.monotonic()
    assert nbt.end(terminal.process, signal.SIGTERM) == 0
    assert time.monotonic() - begun < 8
    assert termios.tcgetattr(terminal.slave) == terminal.modes


# ---- no screen ----

KEYS = ["processes", "unsupported", "communicators", "operations/s", "bytes/s", "records/s", "lost",
        "oldest_call"]


def log_lines(agent):
    return [line for line in agent.output().splitlines() if " processes=" in line]


def check_time(stamp):
    assert abs(time.time() - time.mktime(time.strptime(stamp, "%Y-%m-%dT%H:%M:%SZ")) +
               time.timezone) < 60, stamp


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
        check_time(stamp)
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


def test_log_of_a_hang():
    """A line for each change of state, between the others, with the culprit."""
    agent = servers.agent("--stuck-after", "6")
    sim = servers.sim(HANG, ranks=8, args=["--sync"])
    agent.until(lambda s: s.one("nccl_bpftrace_processes", state="traced") == 8, "the job")
    sim.go()

    def verdicts(state):
        return re.findall(rf"^(\S+) verdict={state} .* culprits=(\S+) .* sequence=(\S+) ",
                          agent.output(), re.M)

    nbt.wait_for(lambda: verdicts("stuck"), "that it is stuck", 60)
    os.kill(sim.pids[3], signal.SIGCONT)
    nbt.wait_for(lambda: verdicts("healthy"), "that it is over", 60)
    for stamp, culprits, sequence in verdicts("(?:waiting|stuck)"):
        check_time(stamp)
        assert (culprits, sequence) == ("3", "201"), agent.output()
    assert len(verdicts("waiting")) == len(verdicts("stuck")) == 1, agent.output()


def test_no_ui_on_a_terminal():
    """--no-ui: log lines, no escape sequence."""
    terminal = Terminal("--no-ui")
    nbt.wait_for(lambda: terminal.read().count(b"oldest_call=") >= 2, "two lines")
    assert nbt.end(terminal.process, signal.SIGINT) == 0
    assert b"\x1b" not in terminal.read()
