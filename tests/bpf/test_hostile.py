# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Programs and hosts that make it hard: odd control flow, other tracers, hung files, few rights."""
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import loader
import nbt
from loader import Agent, Loader, METHODS, calls, expect_calls, is_known, wait_known

LINKED_IN = nbt.TARGETS / "linked_in"
FUSE = nbt.TARGETS / "fuse_mirror"


class Program:
    """linked_in, armed; go() lets it call and gives what it says of it."""

    def __init__(self, *args, prefix=()):
        self.process = subprocess.Popen([*map(str, prefix), LINKED_IN, *map(str, args)],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        nbt.defer(nbt.end, self.process)
        self.pid = self.process.pid
        line = self.process.stdout.readline()
        if line.startswith("no such memory"):
            nbt.skip(f"linked_in {args[0]}: {line.strip()}")
        assert line == "armed\n", line

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        said = []
        while not said or said[-1] not in ("done\n", ""):
            said.append(self.process.stdout.readline())
        return said

    def finish(self):
        self.process.stdin.close()
        return self.process.wait(10)


def test_left_by_longjmp_and_exceptions():
    """A6: entry probes leave nothing behind on the stack that an unwinder could trip over."""
    for method in METHODS:
        agent = Agent("--attach", method)
        ways = ("return", "longjmp", "throw")
        alone = [Program(way, 500) for way in ways]
        untraced = [program.go() for program in alone]
        traced = [Program(way, 500) for way in ways]
        wait_known(agent, *(program.pid for program in traced))
        assert [program.go() for program in traced] == untraced
        expect_calls(agent, {program.pid: 500 for program in traced})
        assert [program.finish() for program in traced + alone] == [0] * 6


def test_under_gdb():
    """A6: a debugger's breakpoint on the traced function itself."""
    gdb = nbt.need("gdb", "gdb")
    untraced = Program("return", 40)
    plain = untraced.go()
    untraced.finish()
    for method in METHODS:
        agent = Agent("--attach", method)
        process = subprocess.Popen(
            [gdb, "-nx", "-batch", "-ex", "set debuginfod enabled off", "-ex", "set confirm off",
             "-ex", "break ncclAllReduce", "-ex", "commands\nsilent\ncontinue\nend",
             "-ex", "run", "--args", LINKED_IN, "return", "40"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        nbt.defer(nbt.end, process)
        for line in process.stdout:
            if line == "armed\n":
                break
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        pid, = [int(c) for c in children if os.readlink(f"/proc/{c}/exe") == str(LINKED_IN)]
        wait_known(agent, pid)
        process.stdin.write("\n")
        process.stdin.flush()
        said = []
        for line in process.stdout:
            said.append(line)
            if line == "done\n":
                break
        assert [line for line in said if line in plain] == plain, said
        agent.until(lambda s: calls(s, pid) == 40, f"40 calls under gdb ({method})")
        process.stdin.close()
        assert process.wait(20) == 0


def test_seccomp_that_kills():
    """A7: what the kernel does at a probe is no system call of the program's."""
    for method in METHODS:
        agent = Agent("--attach", method)
        process = Loader()
        wait_known(agent, process.pid)
        process.do("seccomp")
        process.do("call 300")
        expect_calls(agent, {process.pid: 300})
        assert process.stop() == 0


def kernel_objects(pid):
    """Programs and links that a process holds: {("prog" or "link", id)}."""
    found = set()
    for text in nbt.descriptors(pid):
        found |= {("prog", int(n)) for n in re.findall(r"^prog_id:\s+(\d+)", text, re.M)}
        found |= {("link", int(n)) for n in re.findall(r"^link_id:\s+(\d+)", text, re.M)}
    return found


def still_there(bpftool, objects):
    return {(kind, n) for kind, n in objects
            if not subprocess.run([bpftool, kind, "show", "id", str(n)],
                                  capture_output=True).returncode}


def test_agent_killed_at_any_moment():
    """A9: the job runs on, the kernel keeps nothing, the next agent starts clean."""
    bpftool = nbt.need("bpftool", "bpftool")
    job = nbt.Sim("comm world; loop 200000000 { allreduce world 64 fp32; rate 5000 }")
    job.go()
    process = Loader()
    directory, seen = nbt.tempdir(), set()
    chance = random.Random(9)
    start = time.monotonic()
    Agent(directory=directory).stop(signal.SIGKILL)
    # past the attaching, which comes well before the first file, however slow this machine is
    longest = max(0.5, 0.4 * (time.monotonic() - start))
    for turn in range(20):
        agent = Agent("--attach", METHODS[turn % 4 == 3], directory=directory, wait=False)
        moment = time.monotonic() + chance.uniform(0, longest)
        while time.monotonic() < moment:
            seen |= kernel_objects(agent.pid)
        agent.stop(signal.SIGKILL)
        assert job.process.poll() is None
        process.do("call 1")
    assert any(kind == "link" for kind, _ in seen), "no agent came as far as to attach"
    nbt.wait_for(lambda: not still_there(bpftool, seen), "nothing of ours in the kernel", 20, 0.3)
    (directory / "nccl_bpftrace.prom").unlink(missing_ok=True)
    agent = Agent(directory=directory)
    left = [p.name for p in directory.iterdir() if p.name not in ("nccl_bpftrace.prom", ".nccl_bpftrace.lock")]
    assert not left, left
    wait_known(agent, process.pid)
    process.do("call 33")
    expect_calls(agent, {process.pid: 33})
    assert job.process.poll() is None


def traces(agent):
    process = Loader()
    wait_known(agent, process.pid)
    process.do("comm")
    process.do("call 21")
    series = expect_calls(agent, {process.pid: 21})
    (info, _), = series.get("nccl_communicator_info", pid=str(process.pid))
    assert info["rank"] == "0", info


class Confined(Agent):
    """The agent behind a command that takes something away from it."""

    def __init__(self, prefix, *args, **kwargs):
        self.program = nbt.AGENT
        script = nbt.tempdir() / "agent"
        script.write_text("#!/bin/sh\nexec " + " ".join(map(str, prefix)) +
                          f' {nbt.AGENT} "$@"\n')
        script.chmod(0o755)
        nbt.AGENT = script
        try:
            super().__init__(*args, **kwargs)
        finally:
            nbt.AGENT = self.program


def test_root_without_resource_capability():
    """A10: containers: no CAP_SYS_RESOURCE, so no RLIMIT_MEMLOCK; no complaint either."""
    setpriv = nbt.need("setpriv", "util-linux")
    for method in METHODS:
        agent = Confined([setpriv, "--bounding-set", "-sys_resource", "--inh-caps",
                          "-sys_resource"], "--attach", method)
        status = Path(f"/proc/{agent.pid}/status").read_text()
        assert not int(re.search(r"CapEff:\s+(\w+)", status)[1], 16) >> 24 & 1, "it has it still"
        traces(agent)
        assert "nccl-bpftrace:" not in agent.output(), agent.output()


def test_without_tracefs():
    """A10: neither tracefs nor debugfs."""
    unshare = nbt.need("unshare", "util-linux")
    hide = nbt.tempdir() / "hide"
    hide.write_text('#!/bin/sh -e\nfor at in tracing debug; do\n'
                    '\t! [ -d /sys/kernel/$at ] || mount -t tmpfs none /sys/kernel/$at\ndone\n'
                    'exec "$@"\n')
    hide.chmod(0o755)
    for method in METHODS:
        agent = Confined([unshare, "--mount", "--propagation", "private", hide], "--attach", method)
        traces(agent)
        assert "nccl-bpftrace:" not in agent.output(), agent.output()


LEAST = ("bpf", "perfmon", "sys_ptrace", "checkpoint_restore", "dac_read_search")


def as_nobody(capabilities):
    """argv in front of a program that then has these capabilities and no user."""
    setpriv = nbt.need("setpriv", "util-linux")
    caps = ",".join(["-all"] + [f"+{c}" for c in capabilities])
    return [setpriv, "--reuid", "65534", "--regid", "65534", "--clear-groups",
            f"--bounding-set={caps}", f"--inh-caps={caps}", f"--ambient-caps={caps}"]


def open_directory():
    directory = nbt.tempdir()
    os.chown(directory, 65534, 65534)
    return directory


def reachable_agent():
    """A copy that nobody may execute, wherever this tree lies."""
    path = open_directory() / "nccl-bpftrace"
    shutil.copy(nbt.AGENT, path)
    return path


def test_as_nobody_with_few_capabilities():
    """A10: not root, only what is needed; check says the same."""
    original = nbt.AGENT
    where = open_directory()
    nbt.AGENT = reachable_agent()
    try:
        agent = Confined(as_nobody(LEAST), directory=where)
        traces(agent)
        agent.stop()
        for taken in (None, *LEAST):
            have = [c for c in LEAST if c != taken]
            done = subprocess.run([*as_nobody(have), nbt.AGENT, "check", "--textfile-dir", where],
                                  text=True,
                                  capture_output=True, timeout=30)
            assert done.returncode == (3 if taken else 0), f"without {taken}: {done.stdout}"
            assert not taken or f"CAP_{taken.upper()}" in done.stdout, done.stdout
    finally:
        nbt.AGENT = original


def test_no_helper_can_be_started():
    """Jobs that ran before are found as soon as one can; who asks meanwhile is told that none could."""
    prlimit = nbt.need("prlimit", "util-linux")
    where, original, process = open_directory(), nbt.AGENT, Loader()
    nbt.AGENT = reachable_agent()
    alone = [*as_nobody(LEAST), prlimit, "--nproc=0:"]
    try:
        for command in ("ps", "diagnose", "check"):
            done = subprocess.run([*alone, nbt.AGENT, command], text=True, capture_output=True,
                                  timeout=30)
            said = done.stdout if command == "check" else done.stderr
            assert done.returncode == 3 and "cannot be looked at" in said, done
            assert "no NCCL process" not in done.stdout, done
            assert len(done.stderr.splitlines()) == (command != "check"), done
        agent = Confined(alone, "--pid", process.pid, directory=where)
    finally:
        nbt.AGENT = original
    nbt.wait_for(lambda: "(Resource temporarily unavailable); tried again" in agent.output(),
                 "that it cannot look")
    assert not agent.fresh().get("nccl_communicator_info")
    _, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    subprocess.run([*as_nobody(()), prlimit, "--pid", str(agent.pid), f"--nproc={hard}:"], check=True)
    wait_known(agent, process.pid)
    process.do("comm")
    process.do("call 21")
    expect_calls(agent, {process.pid: 21})


class Mount:
    """fuse_mirror over a directory with a copy of the library; hang() stops its answers."""

    def __init__(self, *names):
        if not os.path.exists("/dev/fuse") or not FUSE.exists():
            nbt.skip("no /dev/fuse, or built without libfuse3-dev")
        self.source, self.at = nbt.tempdir(), nbt.tempdir()
        for name in names:
            shutil.copy(loader.LIBRARY, self.source / name)
        self.server = subprocess.Popen([FUSE, self.source, self.at], stdin=subprocess.DEVNULL,
                                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        nbt.defer(self.stop)
        nbt.wait_for(lambda: os.path.ismount(self.at) or self.server.poll() is not None,
                     "the FUSE mount")
        if self.server.poll() is not None:
            nbt.skip("FUSE cannot be mounted here")

    def outlived_by(self, process):
        """The server ends first: closing a file of it is one more thing that it would not answer."""
        nbt.defer(self.stop)
        return process

    def hang(self, what):
        (self.source / f".hang-{what}").touch()

    def stop(self):
        """Whoever waits for it gets an error: the connection goes with its server."""
        self.server.kill()
        self.server.wait()
        subprocess.run(["umount", "-l", self.at], stderr=subprocess.DEVNULL)


def longest_silence(agent, seconds):
    """Seconds between two writes of the file, at most, looked at for so long."""
    end, last, longest = time.monotonic() + seconds, time.monotonic(), 0
    heartbeat = None
    while time.monotonic() < end:
        now = agent.series().one("nccl_bpftrace_heartbeat_timestamp_seconds")
        if now != heartbeat:
            heartbeat, last = now, time.monotonic()
        longest = max(longest, time.monotonic() - last)
        time.sleep(0.05)
    return longest


def keeps_going(agent):
    """The file is written on, and who comes now is traced."""
    silence = longest_silence(agent, 5)
    assert silence < 2.5, f"no file for {silence:.1f} s, at one a second"
    other = Loader(shutil.copy(loader.LIBRARY, nbt.tempdir() / "libnccl.so.2"))
    wait_known(agent, other.pid, seconds=15)
    other.do("call 17")
    expect_calls(agent, {other.pid: 17})


def hung_library(what):
    mount = Mount("libnccl.so.2")
    hung = mount.outlived_by(Loader(None))
    if what == "open":
        hung.do(f"map {mount.at}/libnccl.so.2")
    mount.hang(what)
    if what == "read":
        hung.do(f"map {mount.at}/libnccl.so.2")
    return mount, hung


def test_library_on_a_mount_that_never_answers():
    """A11: no open, or no read, of the file is ever answered."""
    for what in ("open", "read"):
        mount, hung = hung_library(what)
        agent = Agent("--pid", hung.pid, wait=False)
        agent.wait_file()
        series = agent.until(
            lambda s: s.one("nccl_bpftrace_processes", state="unsupported") == 1, "it is listed")
        assert not series.get("nccl_communicator_info")
        assert "not readable" in loader.ps()[hung.pid]["not_known"]
        agent.stop()
        keeps_going(Agent())
        mount.stop()


def test_files_on_fuse_are_not_probed_unasked():
    """A11: it answers at first. A probe there would be one hung page away from stopping every fork
    on the machine, which no deadline ends: it is listed, with the mend, and hurts nobody."""
    mount = Mount("libnccl.so.2")
    process = mount.outlived_by(Loader(mount.at / "libnccl.so.2"))
    agent = Agent("--pid", process.pid)
    agent.until(lambda s: s.one("nccl_bpftrace_processes", state="unsupported") == 1,
                "it is listed")
    assert not agent.series().get("nccl_operations_total")
    agent.stop()
    agent = Agent()
    for what in ("open", "read"):
        mount.hang(what)
    keeps_going(agent)
    start = time.monotonic()
    assert agent.stop() == 0
    assert time.monotonic() - start < 2


def test_files_on_fuse_are_probed_when_asked():
    mount = Mount("libnccl.so.2")
    process = mount.outlived_by(Loader(mount.at / "libnccl.so.2"))
    agent = Agent("--fuse", "--pid", process.pid)
    wait_known(agent, process.pid)
    process.do("call 5")
    expect_calls(agent, {process.pid: 5})
    agent.stop()


def test_many_hung_files_do_not_starve_others():
    """A11: one tenant's sixty hung files wait behind each other, not before everybody."""
    mount = Mount(*[f"libnccl-{i}.so" for i in range(60)])
    hung = mount.outlived_by(Loader(None))
    for i in range(60):
        hung.do(f"map {mount.at}/libnccl-{i}.so")
    mount.hang("open")
    agent = Agent(wait=False)
    nbt.wait_for(agent.file.exists, "the first file", 5 + 3 * 2)
    keeps_going(agent)


def unreadable(program):
    """A job whose list of communicators does not answer: traced, listed as not readable."""
    agent = Agent()
    wait_known(agent, program.pid)
    said = program.go()
    assert said[0].startswith("sum 0"), said
    series = expect_calls(agent, {program.pid: 90})
    keeps_going(agent)
    for info, _ in series.get("nccl_communicator_info", pid=str(program.pid)):
        assert info["identity"] == "unknown" and info["rank"] == "", info
    said = loader.ps()[program.pid]["not_known"]
    assert said and "memory" in said, said


def test_communicators_in_memory_nobody_serves():
    """A11: userfaultfd."""
    unreadable(Program("userfaultfd", 90))
