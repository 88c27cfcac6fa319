# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`diagnose` of simulated jobs: states, culprits, exit statuses, what it says of processes."""
import json
import os
import re
import signal
import subprocess
from pathlib import Path

import nbt
from watched import Diagnose

SIDE_BY_SIDE = True  # each watches the processes of its own job, for ten seconds and more
SYNC = ("--sync",)
TRAIN = "loop forever { rate 20; allreduce world 1000 fp32 }"
# each rank keeps a beat of its own: without this one may be late at every step
IN_STEP = "loop forever { rate 20; barrier; allreduce world 1000 fp32 }"


def job(script, ranks=4, args=SYNC, go=True):
    """A job whose script has begun."""
    sim = nbt.Sim("comm world config; " + script, ranks=ranks, args=args, hold=False)
    if go:
        sim.go()
    return sim


def wait_until_in(pid, *words):
    """Until the process waits in one of these system calls, and does nothing else."""
    def look():
        text = open(f"/proc/{pid}/syscall").read().split()
        return text and text[0] in words
    nbt.wait_for(look, f"process {pid} in system call {words}", 60)


def state_of(pid):
    return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[0]


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    nbt.wait_for(lambda: state_of(pid) == "T", f"process {pid} to stop")


def test_healthy():
    sim = job(IN_STEP)
    quiet = Diagnose(sim.pids)
    text = Diagnose(sim.pids, as_json=False)
    status, comm = quiet.comm()
    assert (status, comm["state"]) == (0, "healthy"), comm
    assert comm["local_ranks"] == [0, 1, 2, 3] and comm["nranks"] == 4
    assert comm["culprit_ranks"] == comm["waiting_ranks"] == [] and comm["next_pid"] is None
    assert [rank["pid"] for rank in comm["ranks"]] == sim.pids
    for rank in comm["ranks"]:
        assert rank["last_operation"] == "AllReduce" and rank["last_sequence"] > 0, rank
        assert rank["last_call_seconds"] < 5 and rank["process"] is None, rank
        assert rank["gpu"] is None and rank["uuid"] is None
    status, said = text.end()
    assert status == 0
    assert re.fullmatch(rf'healthy   comm {comm["comm"]} "world" \(4 ranks, 4 here\)\n'
                        r"4 NCCL processes, 1 communicator: 1 healthy; watched 1\d[\d.]*s on .+\n",
                        said), said


def test_no_process():
    for args in (("--pid", os.getpid()), ("--pid", 4194304)):
        done = nbt.run_agent("diagnose", "--duration", 1, *args, seconds=60)
        assert (done.returncode, done.stderr) == (0, ""), done
        assert re.fullmatch("no NCCL process among those asked for; watched .*\n", done.stdout), done
        done = nbt.run_agent("diagnose", "--duration", 1, "--json", *args, seconds=60)
        said = json.loads(done.stdout)
        assert done.returncode == 0 and said["schema"] == "nccl-bpftrace/diagnose/1"
        assert said["state"] is None and said["communicators"] == said["not_judged"] == []


def test_a_hang_from_before():
    """By default the watch is no longer than --stuck-after: all of it counts."""
    sim = job("loop 10 { allreduce world 1000 fp32 }; @2 wait; allreduce world 1000 fp32")
    wait_until_in(sim.pids[2], str(202), str(98))  # futex on x86-64 and arm64
    status, comm = Diagnose(sim.pids).comm()
    assert (status, comm["state"], comm["culprit_ranks"]) == (4, "stuck", [2]), comm
    assert comm["waiting_ranks"] == [0, 1, 3] and comm["cause"] == "missing_call"
    assert (comm["operation"], comm["sequence"]) == ("AllReduce", 11), comm
    assert comm["for_seconds"] >= 10 and comm["began_before"] is True
    assert comm["next_pid"] == sim.pids[2]
    rank = comm["ranks"][2]
    assert rank["culprit"] and not rank["waiting"] and not rank["ended"]
    assert rank["process"]["state"] == "sleeping", rank
    assert rank["process"]["main_thread"]["syscall"] == "futex", rank
    assert comm["ranks"][0]["waiting"] and comm["ranks"][0]["process"] is None


def test_a_rank_that_was_gone_before():
    """Its peers wait for it, and nothing of it is left but its number: no idleness."""
    sim = job("loop 10 { allreduce world 1000 fp32 }; @2 kill; allreduce world 1000 fp32")
    nbt.wait_for(lambda: not os.path.exists(f"/proc/{sim.pids[2]}/maps") or
                 state_of(sim.pids[2]) == "Z", "rank 2 to end", 60)
    alive = [pid for pid in sim.pids if pid != sim.pids[2]]
    status, comm = Diagnose(alive, "--duration", 13).comm()
    assert (status, comm["state"]) == (1, "unknown"), comm
    assert "rank 2 of this node was never seen" in comm["why"], comm


def test_a_job_that_ends_by_aborting():
    sim = job("loop 40 { rate 20; allreduce world 1000 fp32 }; abort world; wait", go=False)
    watch = Diagnose(sim.pids)
    watch.begun()
    sim.go()
    status, comm = watch.comm()
    assert status == 0 and not comm["culprit_ranks"], comm


def test_no_communicator():
    sim = nbt.Sim("allreduce null 1 fp32; wait", ranks=2, hold=False)
    sim.go()
    status, said = Diagnose(sim.pids, "--duration", 2, as_json=False).end()
    assert status == 0 and "2 NCCL processes, 0 communicators" in said, said
    assert "No process has a communicator" in said, said


def test_a_hang_in_the_watch():
    sim = job("loop 40 { rate 20; allreduce world 1000 fp32 }; @0 wait; allreduce world 1000 fp32",
              go=False)
    watch = Diagnose(sim.pids, "--duration", 20, "--stuck-after", 5)
    watch.begun()
    sim.go()
    status, comm = watch.comm()
    assert (status, comm["state"], comm["culprit_ranks"]) == (4, "stuck", [0]), comm
    assert comm["waiting_ranks"] == [1, 2, 3]
    assert (comm["operation"], comm["sequence"]) == ("AllReduce", 41), comm
    assert comm["began_before"] is False and 5 <= comm["for_seconds"] < 20
    rank = comm["ranks"][0]
    assert (rank["last_operation"], rank["last_sequence"]) == ("AllReduce", 40), rank
    assert rank["last_call_seconds"] > comm["for_seconds"] - 1
    assert rank["process"]["calling_thread"] is None  # the first thread called


def test_a_stopped_rank():
    sim = job(TRAIN)
    watch = Diagnose(sim.pids, "--duration", 20)
    text = Diagnose(sim.pids, "--duration", 20, as_json=False)
    watch.begun()
    text.begun()
    stop(sim.pids[3])
    nbt.defer(os.kill, sim.pids[3], signal.SIGCONT)
    status, comm = watch.comm()
    assert (status, comm["state"], comm["culprit_ranks"]) == (4, "stuck", [3]), comm
    process = comm["ranks"][3]["process"]
    assert process["state"] == "stopped" and process["stop_signal"] in (signal.SIGSTOP, None)
    status, said = text.end()
    assert status == 4
    lines = said.splitlines()
    assert re.fullmatch(rf'STUCK     comm {comm["comm"]} "world" \(4 ranks, 4 here\), for \d+s',
                        lines[0]), said
    flat = " ".join(said.split())
    assert re.search(rf"rank 3: pid {sim.pids[3]} nccl-sim:3, stopped( \(SIGSTOP\))? "
                     rf"evidence: Rank 3 \(pid {sim.pids[3]}\): last call AllReduce \d+, ", flat), said
    assert f"next: kill -CONT {sim.pids[3]} " in flat, said
    assert re.search(r"Rank 3 has not called AllReduce \d+, in which ranks 0-2 have waited", flat), said
    assert re.search(r" since \d\d:\d\d:\d\d rank 3: ", flat), said
    assert re.search(r"4 NCCL processes, 1 communicator: 1 stuck; ", lines[-1]), said


def test_waiting_is_no_alarm_yet():
    sim = job("loop 10 { allreduce world 1000 fp32 }; @1 wait; allreduce world 1000 fp32")
    status, comm = Diagnose(sim.pids, "--stuck-after", 3600).comm()
    assert (status, comm["state"], comm["culprit_ranks"]) == (1, "waiting", [1]), comm


def test_straggler():
    sim = job("loop forever { pause 20; @1 pause 30; allreduce world 1000 fp32 }")
    status, comm = Diagnose(sim.pids, "--duration", 15).comm()
    assert (status, comm["state"], comm["culprit_ranks"]) == (1, "straggler", [1]), comm
    assert comm["cause"] == "late" and comm["operation"] == "AllReduce", comm


def test_who_waits_elsewhere_leads_there():
    """Rank 1 waits for rank 3 in a communicator of their own, and so the others for rank 1."""
    sim = job("split odd world 2; loop 20 { allreduce odd 10 fp32; allreduce world 1000 fp32 }; "
              "@3 wait; allreduce odd 10 fp32; allreduce world 1000 fp32")
    status, said = Diagnose(sim.pids).end()
    assert status == 4, said
    assert {comm["next_pid"] for comm in said["communicators"] if comm["state"] == "stuck"} == \
        {sim.pids[3]}, said


def test_a_gpu_that_is_busy():
    """What the plugin tells of its GPU: all have called, and one GPU has not started."""
    sim = nbt.Sim("comm world config; loop 20 { rate 20; allreduce world 1000 fp32; synchronize }; "
                  "@1 compute 600000; loop 5 { rate 20; allreduce world 1000 fp32 }; wait",
                  gpu=True, plugin=nbt.BUILD / "libnccl-profiler-bpftrace.so", hold=False)
    watch = Diagnose(sim.pids, "--duration", 30, "--stuck-after", 10, "--gpu-timing-budget", 100)
    watch.begun()
    nbt.wait_for(lambda: "29 s left" not in watch.progress()[-40:], "the plugin to wake", 60)
    sim.go()
    status, comm = watch.comm()
    assert (status, comm["state"], comm["cause"]) == (4, "stuck", "gpu_not_started"), comm
    assert comm["culprit_ranks"] == [1] and comm["waiting_ranks"] == [0], comm
    assert (comm["operation"], comm["sequence"]) == ("AllReduce", 21), comm
    busy = comm["ranks"][1]["in_flight"]
    assert busy["launches"] == 5 and (busy["operation"], busy["sequence"]) == ("AllReduce", 21), comm
    assert busy["started"] is False and busy["seconds"] >= 10, busy
    assert comm["ranks"][0]["in_flight"]["started"] is True, comm


def test_mismatch():
    sim = job("loop forever { rate 20; @0 allreduce world 2000 fp32; @1-3 allreduce world 1000 fp32 }",
              args=())
    status, comm = Diagnose(sim.pids).comm()
    assert (status, comm["state"], comm["mismatch"]) == (4, "mismatch", "count"), comm
    assert comm["operation"] == "AllReduce" and comm["sequence"] > 0


def test_aborted():
    sim = job("loop 40 { rate 20; allreduce world 1000 fp32 }; @1 abort world; wait", go=False)
    watch = Diagnose(sim.pids)
    watch.begun()
    sim.go()
    status, comm = watch.comm()
    assert (status, comm["state"], comm["culprit_ranks"]) == (4, "aborted", [1]), comm


def test_ended_by_a_signal():
    sim = job("loop 10 { allreduce world 1000 fp32 }; @2 wait; allreduce world 1000 fp32")
    watch = Diagnose(sim.pids, "--duration", 3600, "--stuck-after", 4)
    watch.begun()
    nbt.wait_for(lambda: re.search(r": 359[0-3] s left", watch.progress()), "some seconds", 60)
    watch.process.send_signal(signal.SIGINT)
    status, comm = watch.comm(seconds=20)
    assert (status, comm["state"], comm["culprit_ranks"]) == (4, "stuck", [2]), comm
    assert re.search(r"\rwatching|\r\x1b\[Kwatching 4 NCCL processes: \d+ s left", watch.told)
    assert watch.told.endswith("\r\x1b[K"), watch.told[-40:]


def test_no_progress_without_a_terminal():
    sim = job(IN_STEP, ranks=2)
    done = nbt.run_agent("diagnose", *nbt.pid_words(sim.pids), "--duration", 6, seconds=60)
    assert (done.returncode, done.stderr) == (0, ""), done


def freezers():
    """(new cgroup, file and word that freeze it, word that thaws it): of both versions."""
    for line in open("/proc/self/mounts"):
        _, root, kind, options, *_ = line.split()
        place = Path(root) / f"nccl-bpftrace-test-{os.getpid()}"
        if kind == "cgroup2":
            yield place, "cgroup.freeze", "1", "0"
        if kind == "cgroup" and "freezer" in options.split(","):
            yield place, "freezer.state", "FROZEN", "THAWED"


def test_a_frozen_rank():
    tried = 0
    for place, name, freeze, thaw in freezers():
        sim = job(TRAIN, ranks=2)
        place.mkdir()
        nbt.defer(place.rmdir)
        nbt.defer(sim.stop)
        (place / "cgroup.procs").write_text(str(sim.pids[1]))
        (place / name).write_text(freeze)
        nbt.defer((place / name).write_text, thaw)
        status, comm = Diagnose(sim.pids).comm()
        assert (status, comm["state"], comm["culprit_ranks"]) == (4, "stuck", [1]), comm
        assert comm["ranks"][1]["process"]["state"] == "frozen", comm["ranks"][1]
        tried += 1
    if not tried:
        nbt.skip("no cgroup that can be frozen")


def test_refused():
    for args, words in ((["--duration", "0"], ["--duration", "'0'"]),
                        (["--duration", "ten"], ["--duration", "'ten'"]),
                        (["--stuck-after", "-1"], ["--stuck-after", "'-1'"]),
                        (["--json=yes"], ["--json"]), (["--json", "garbage"], ["'garbage'"]),
                        (["--no-ui"], ["diagnose", "--no-ui"]), (["--nonsense"], ["'--nonsense'"])):
        done = nbt.run_agent("diagnose", *args)
        assert (done.returncode, done.stdout) == (2, ""), done
        lines = done.stderr.splitlines()
        assert len(lines) == 1 and lines[0].startswith("nccl-bpftrace: "), done
        assert all(word in lines[0] for word in words), done
    full = open("/dev/full", "w")
    done = subprocess.run([nbt.AGENT, "diagnose", "--duration", "1", "--pid", "4194304"],
                          stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2 and "cannot be written" in done.stderr, done
