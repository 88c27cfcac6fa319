# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Where NCCL can be found, and when: files, mounts, processes that come, fork, execute and go."""
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import loader
import nbt
import servers
from hook import PLUGIN
from loader import Agent, Loader, METHODS, calls, expect_calls, is_known, wait_known

SIM = nbt.BUILD / "sim"
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def copy(source, target):
    """A file with an inode of its own."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(source, target)
    return target


def test_library_replaced_on_disk():
    """A1: whoever mapped the old file goes on with it; a path names the new one."""
    for method in METHODS:
        path = copy(loader.LIBRARY, nbt.tempdir() / "libnccl.so.2")
        old = Loader(path)
        new_file = copy(SIM / "2.30.7/libnccl.so.2", path.with_name("new"))
        os.rename(new_file, path)
        agent = Agent("--attach", method)
        new = Loader(path)
        wait_known(agent, old.pid, new.pid)
        old.do("call 11")
        new.do("call 22")
        series = expect_calls(agent, {old.pid: 11, new.pid: 22})
        versions = {l["pid"]: l["nccl_version"]
                    for l, _ in series.get("nccl_bpftrace_process_info")}
        assert versions[str(old.pid)] == "2.28.9" and versions[str(new.pid)] == "2.30.7", versions


def in_mount_namespace(script):
    """argv that runs what follows it in a mount namespace in which the script was done."""
    unshare = nbt.need("unshare", "util-linux")
    return [unshare, "--mount", "--propagation", "private", "sh", "-ec", f'{script}; exec "$@"', "-"]


def test_same_path_in_two_mount_namespaces():
    """A2: one path, two files; and a path that the host does not have."""
    base = nbt.tempdir()
    one = copy(SIM / "2.28.9/libnccl.so.2", base / "one/libnccl.so.2")
    two = copy(SIM / "2.30.7/libnccl.so.2", base / "two/libnccl.so.2")
    hidden = copy(SIM / "2.19.3/libnccl.so.2", base / "three/libnccl.so.2")
    (base / "lib").mkdir()
    (base / "tmp").mkdir()
    agent = Agent()
    a = Loader(base / "lib/libnccl.so.2",
               in_mount_namespace(f"mount --bind {one.parent} {base}/lib"))
    b = Loader(base / "lib/libnccl.so.2",
               in_mount_namespace(f"mount --bind {two.parent} {base}/lib"))
    c = Loader(base / "tmp/deep/libnccl.so.2", in_mount_namespace(
        f"mount -t tmpfs none {base}/tmp; mkdir {base}/tmp/deep; cp {hidden} {base}/tmp/deep"))
    wait_known(agent, a.pid, b.pid, c.pid)
    assert not (base / "tmp/deep").exists() and not (base / "lib/libnccl.so.2").exists()
    for number, process in enumerate((a, b, c), 1):
        process.do(f"call {number * 10}")
    series = expect_calls(agent, {a.pid: 10, b.pid: 20, c.pid: 30})
    versions = {l["pid"]: l["nccl_version"] for l, _ in series.get("nccl_bpftrace_process_info")}
    assert [versions[str(p.pid)] for p in (a, b, c)] == ["2.28.9", "2.30.7", "2.19.3"], versions


def overlay(lower, at):
    """An overlay mount of its own over lower."""
    for name in ("upper", "work", "merged"):
        (at / name).mkdir(parents=True)
    done = subprocess.run(
        ["mount", "-t", "overlay", "overlay", "-o",
         f"lowerdir={lower},upperdir={at}/upper,workdir={at}/work", at / "merged"],
        text=True, capture_output=True)
    if done.returncode:
        nbt.skip(f"no overlay mounts here: {done.stderr.strip()}")
    nbt.defer(subprocess.run, ["umount", "-l", at / "merged"], check=True)
    return at / "merged"


def test_two_overlays_of_one_file():
    """A2b: two containers of one image: one real inode, each call counted once."""
    base = nbt.tempdir()
    copy(loader.LIBRARY, base / "image/libnccl.so.2")
    mounts = [overlay(base / "image", base / name) for name in ("pod1", "pod2")]
    for method in METHODS:
        agent = Agent("--attach", method)
        pods = [Loader(mount / "libnccl.so.2") for mount in mounts]
        wait_known(agent, *(pod.pid for pod in pods))
        pods[0].do("call 20")
        pods[1].do("call 30")
        expect_calls(agent, {pods[0].pid: 20, pods[1].pid: 30})


def test_loaded_while_the_agent_runs():
    """A3: tracer, process, then the library; every call after the first second is counted."""
    for method in METHODS:
        agent = Agent("--attach", method)
        late = Loader(None)
        agent.fresh()
        assert not is_known(agent.series(), late.pid)
        start = time.monotonic()
        late.do(f"load {copy(loader.LIBRARY, nbt.tempdir() / 'late.so')}")
        wait_known(agent, late.pid)
        took = time.monotonic() - start
        assert took < 5, f"{took:.1f} s until the file told, at one write a second"
        late.do("comm")
        late.do("call 9")
        expect_calls(agent, {late.pid: 9})
        agent.until(lambda s, pid=str(late.pid): [
            l["identity"] for l, _ in s.get("nccl_communicator_info", pid=pid)] == ["observed"],
                    "its making was seen")


def test_what_was_before_is_unknown_not_zero():
    """A3, C8: calls before attachment are in NCCL's own number, where it has one, and nowhere else."""
    script = "comm world; allreduce world 1 fp32 x 5; print before; wait; " \
             "allreduce world 1 fp32 x 3"
    numbered, silent = (nbt.Sim(script, nccl=version) for version in ("2.28.9", "2.19.3"))
    for sim in (numbered, silent):
        sim.go()
        for _ in sim.pids:
            assert sim.process.stdout.readline() == "before\n"
    pids = numbered.pids + silent.pids
    agent = Agent()
    wait_known(agent, *pids)
    assert not any(calls(agent.series(), pid) for pid in pids)
    numbered.run()
    silent.run()
    series = expect_calls(agent, {pid: 3 for pid in pids})
    for pid in pids:
        (info, _), = series.get("nccl_communicator_info", pid=str(pid))
        assert info["identity"] == "recovered", info
        sequence = [value for _, value in series.get("nccl_operation_sequence",
                                                     comm=info["comm"], rank=info["rank"])]
        assert sequence == ([8] if pid in numbered.pids else []), sequence
    zeros = [l for l, value in series.get("nccl_operations_total") if not value]
    assert not zeros, zeros


def test_linked_into_an_executable():
    """A4: found by its .symtab."""
    for method in METHODS:
        sim = nbt.Sim("comm world; allreduce world 100 fp32 x 25",
                      program=SIM / "nccl-sim-static")
        agent = Agent("--attach", method)
        wait_known(agent, sim.process.pid)  # the ranks are forks of it
        sim.run()
        expect_calls(agent, {pid: 25 for pid in sim.pids})


def test_inside_another_library():
    """A4: the file's name says nothing; stripped, what it exports is still there."""
    agent = Agent()
    whole = Loader(copy(loader.LIBRARY, nbt.tempdir() / "libtorch_cuda.so"))
    stripped = Loader(copy(SIM / "stripped/libnccl.so.2", nbt.tempdir() / "libtorch_hip.so"))
    wait_known(agent, whole.pid, stripped.pid)
    for number, process in enumerate((whole, stripped), 1):
        process.do("comm")
        process.do(f"call {number * 7}")
    series = expect_calls(agent, {whole.pid: 7, stripped.pid: 14})
    for process in (whole, stripped):
        info, = series.get("nccl_communicator_info", pid=str(process.pid))
        assert (info[0]["rank"], info[0]["nranks"]) == ("0", "1"), info


def without_symbols():
    """The static program as it would be shipped: stripped, with the section that CUDA code has."""
    path = nbt.tempdir() / "trainer"
    kernels = path.with_name("kernels")
    kernels.write_bytes(b"\0" * 64)
    subprocess.run([nbt.need("objcopy", "binutils"), "--strip-all", "--add-section",
                    f".nv_fatbin={kernels}", SIM / "nccl-sim-static", path], check=True)
    return path


def test_stripped_executable_is_reported():
    """A4: it cannot be traced, and ps, check and the textfile say so and why."""
    sim = nbt.Sim("comm world", ranks=1, program=without_symbols())
    pid = sim.process.pid
    agent = Agent("--pid", pid)
    series = agent.until(lambda s: s.one("nccl_bpftrace_processes", state="unsupported") == 1,
                         "a process that is unsupported")
    assert series.one("nccl_bpftrace_processes", state="traced") == 0
    assert "stripped" in loader.ps()[pid]["not_known"]
    said = [item["found"] for item in loader.check()[1] if item["name"] == "library"]
    assert any("trainer" in text and "stripped" in text for text in said), said


def test_threads_and_vm_children_with_pid():
    """A5: exactly that process, all of its threads; a CLONE_VM child is another process."""
    for method in METHODS:
        process, other = Loader(), Loader()
        agent = Agent("--attach", method, "--pid", process.pid)
        wait_known(agent, process.pid)
        other.do("call 1000")
        process.do("call 10")
        process.do("thread 20")
        process.do("vfork 30")
        process.do("burn 40")
        other.do("call 1000")
        series = expect_calls(agent, {process.pid: 30})
        assert series.sum("nccl_operations_total") == 30


def test_short_lived_children_are_counted():
    """A5: a CLONE_VM child and a fork that end before anybody can look at them."""
    for method in METHODS:
        process = Loader()
        agent = Agent("--attach", method)
        wait_known(agent, process.pid)
        process.do("call 10")
        vm_child = int(process.do("vfork 30"))
        fork = int(process.do("burn 40"))
        agent.until(lambda s: calls(s, process.pid) == 10 and calls(s, vm_child) == 30 and
                    calls(s, fork) == 40, "each under its own number")


def test_fork_shows_nothing_until_it_calls():
    """A data loader has a copy of its parent's communicators: they are not its own."""
    process = Loader()
    process.do("comm")
    before = int(process.do("fork"))
    agent = Agent()
    wait_known(agent, process.pid)
    after = int(process.do("fork"))
    process.do("call 4")
    series = expect_calls(agent, {process.pid: 4})
    shown = loader.ps()
    assert process.pid in shown
    for child in (before, after):
        assert not is_known(series, child) and child not in shown
        assert not series.get("nccl_communicator_info", pid=str(child))
    process.do("child 6")
    expect_calls(agent, {process.pid: 4, after: 6})


def test_exits_right_after_its_calls():
    """Loaded, called, gone, before a file could tell: counted all the same."""
    for method in METHODS:
        resident = Loader()
        agent = Agent("--attach", method)
        wait_known(agent, resident.pid)
        brief = Loader(None)
        brief.say(f"last {loader.LIBRARY}")
        assert brief.process.wait(10) == 0
        agent.until(lambda s: calls(s, brief.pid) == 100, "100 calls of a process that is gone")
        agent.until(lambda s: not s.get("nccl_communicator_info", pid=str(brief.pid)),
                    "its series gone")


def test_becomes_another_program():
    """Same number, NCCL gone with the old program: it is no NCCL process any more."""
    process = Loader()
    process.do("comm")
    agent = Agent("--pid", process.pid)
    wait_known(agent, process.pid)
    process.do("call 5")
    expect_calls(agent, {process.pid: 5})
    process.say(f"exec {shutil.which('cat')}")
    process.say("now it is cat")
    assert process.hear() == "now it is cat"
    agent.until(lambda s: s.one("nccl_bpftrace_processes", state="traced") == 0 and
                not s.get("nccl_communicator_info", pid=str(process.pid)) and
                not is_known(s, process.pid), "nothing of a process without NCCL")


def test_becomes_another_nccl_program():
    """Same number, another program with NCCL, loaded anew at another address."""
    process = Loader()
    process.do("comm")
    agent = Agent()
    wait_known(agent, process.pid)
    process.do("call 5")
    expect_calls(agent, {process.pid: 5})
    process.say(f"exec {loader.PROGRAM}")
    process.do(f"load {SIM / '2.30.7/libnccl.so.2'}")
    process.do("comm")
    agent.until(lambda s: s.get("nccl_bpftrace_process_info", pid=str(process.pid),
                                nccl_version="2.30.7"), "the new library")
    process.do("call 8")

    def only_the_new(series):
        info = series.get("nccl_communicator_info", pid=str(process.pid))
        return len(info) == 1 and calls(series, process.pid) == 8 and info[0][0]["rank"] == "0"

    agent.until(only_the_new, "8 calls on the one communicator that there is")


def loader_with_number(pid):
    """A process under that number, which is free; skips when others take it each time."""
    for _ in range(200):
        LAST_PID.write_text(str(pid - 1))
        candidate = Loader(None)
        if candidate.pid == pid:
            return candidate
        candidate.stop()
    return nbt.skip("others took the number each time")


def use_number_again(held_up):
    keeper = Loader()  # the file keeps its probes
    agent = Agent(interval=2)
    wait_known(agent, keeper.pid)
    first = Loader()
    wait_known(agent, first.pid)
    first.do("comm")
    first.do("call 5")
    expect_calls(agent, {first.pid: 5})
    if held_up:
        agent.process.send_signal(signal.SIGSTOP)
    first.stop()
    second = loader_with_number(first.pid)
    second.do(f"load {loader.LIBRARY}")
    second.do("comm")
    second.do("call 7")
    if held_up:
        agent.process.send_signal(signal.SIGCONT)

    def only_the_second(series):
        info = series.get("nccl_communicator_info", pid=str(second.pid))
        return len(info) == 1 and calls(series, second.pid) == 7 and is_known(series, second.pid)

    agent.until(only_the_second, "7 calls of the second", 45)
    series = agent.fresh(2)
    assert only_the_second(series), series.get("nccl_operations_total", pid=str(second.pid))
    second.do("call 1")
    agent.until(lambda s: calls(s, second.pid) == 8, "one more")


def test_number_of_a_dead_process_used_again():
    """A new process under an old number: its calls are its own, from the first; also where the
    tracer hears of the old one's end, and of the new one's calls, much later."""
    if not LAST_PID.exists():
        nbt.skip("the kernel has no ns_last_pid (CONFIG_CHECKPOINT_RESTORE)")
    for held_up in (False, True):
        use_number_again(held_up)


def test_eight_processes_within_a_second():
    """Asserted at five, for a busy machine."""
    for method in METHODS:
        processes = [Loader() for _ in range(8)]
        start = time.monotonic()
        agent = Agent("--attach", method)
        took = time.monotonic() - start
        series = agent.series()
        missing = [p.pid for p in processes if not is_known(series, p.pid)]
        assert not missing, f"not in the first file: {missing}"
        assert took < 5, f"{took:.1f} s"
        for process in processes:
            process.do("call 3")
        expect_calls(agent, {p.pid: 3 for p in processes})


def test_ends_at_once():
    """Perf links take seconds to undo: not the agent's. On SIGTERM it is gone within two."""
    for method in METHODS:
        files = [copy(loader.LIBRARY, nbt.tempdir() / f"libnccl.so.{i}") for i in range(4)]
        processes = [Loader(path) for path in files]
        agent = Agent("--attach", method)
        wait_known(agent, *(p.pid for p in processes))
        start = time.monotonic()
        status = agent.stop()
        took = time.monotonic() - start
        assert status == 0, agent.output()
        assert took < 2, f"--attach {method}: {took:.1f} s"
        for process in processes:
            process.do("call 1")


def test_burst_of_processes():
    """300 programs started at once while a job starts: it is traced, the agent not busy for long."""
    agent = Agent()
    before = agent.series().one("nccl_bpftrace_cpu_seconds_total")
    true = shutil.which("true")
    storm = [subprocess.Popen([true]) for _ in range(150)]
    process = Loader(copy(loader.LIBRARY, nbt.tempdir() / "libnccl.so.2"))
    storm += [subprocess.Popen([true]) for _ in range(150)]
    wait_known(agent, process.pid)
    for one in storm:
        one.wait()
    process.do("call 12")
    series = expect_calls(agent, {process.pid: 12})
    spent = series.one("nccl_bpftrace_cpu_seconds_total") - before
    assert spent < 2, f"{spent:.2f} s of CPU for 300 processes"


def test_others_map_the_same_files_at_the_same_time():
    """What they are is learnt from ours, whichever process the kernel told of first and last."""
    name, procs = servers.child_cgroup("ours")
    agent = Agent("--cgroup", name)
    for turn in range(1, 4):
        plugin = copy(PLUGIN, nbt.tempdir() / "libnccl-profiler-bpftrace.so")
        job = nbt.Sim("comm a; allreduce a 1000 fp32", ranks=8, gpu=True, plugin=plugin)
        procs.write_text(str(job.pids[turn]))
        job.go()  # only now the plugin is loaded, by all ranks at once
        for state in ("traced", "plugin"):
            agent.until(lambda s, what=state: s.one("nccl_bpftrace_processes", state=what) == turn,
                        f"{turn} processes {state}", 20)
