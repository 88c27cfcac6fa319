# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`record`: every operation in a file, in our form and in NVIDIA Inspector's."""
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time

import nbt
import plugged
import servers
import teller
from teller import ALLGATHER, ALLREDUCE, BROADCAST, REDUCESCATTER, Teller

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others


class Recording:
    """`nccl-bpftrace record`, attached when the constructor returns."""

    def __init__(self, *args, output=None, jobs=(), **popen):
        self.output = output or nbt.tempdir() / "recording"
        pids = nbt.pid_words(job.pid for job in jobs)
        self.process = subprocess.Popen(
            [nbt.AGENT, "record", "-o", self.output, *pids, *map(str, args)], text=True,
            stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, **popen)
        nbt.defer(nbt.end, self.process)
        first = self.process.stderr.readline()
        assert first.startswith("nccl-bpftrace: recording to "), first
        self.said = ""

    def stop(self, sig=signal.SIGTERM):
        """Its exit status."""
        self.process.send_signal(sig)
        return self.wait()

    def wait(self, seconds=20):
        self.said += self.process.communicate(timeout=seconds)[1]
        return self.process.returncode

    def lines(self):
        text = self.output.read_text()
        assert text.endswith("\n") or not text
        return [json.loads(line) for line in text.splitlines()]

    def until(self, n, kind="launch"):
        """The lines, once there are so many of a kind."""
        def enough():
            lines = self.lines() if self.output.exists() else []
            return len([x for x in lines if x.get("kind", kind) == kind]) >= n and lines

        return nbt.wait_for(enough, f"{n} lines of {kind}", 15)


def kinds(lines, kind):
    return [line for line in lines if line["kind"] == kind]


def described(kind):
    """The keys that README names for a kind of line."""
    row = re.search(rf"^\| `{kind}` \| .* \| (.*) \|$", (nbt.ROOT / "README.md").read_text(), re.M)[1]
    keys = [key.removesuffix("[]") for key in re.findall(r"`([a-z_\[\]]+)`", row)]
    return {"kind", *keys}


def test_launches_with_all_that_is_known():
    job = Teller()
    recording = Recording(jobs=[job])
    job.comm(0, name="DP Group 0", rank=3, gpu=2)
    job.one(0, ALLREDUCE, 1 << 20, 100000, 3)
    job.pair(0, 1000, 50000, peer=4)
    job.many(0, ALLGATHER, 4096, 5, 70000)
    job.one(0, BROADCAST, 10, 0)
    lines = recording.until(6)
    assert recording.stop() == 0
    begin, *launches, end = recording.lines()
    assert lines == recording.lines()[:-1], "the end is one line more"
    assert begin["schema"] == "nccl-bpftrace/record/1" and begin["host"] == os.uname().nodename
    now = time.clock_gettime_ns(time.CLOCK_REALTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    assert abs(begin["wall_offset_ns"] - now) < 100e6
    assert [x["launch"] for x in launches] == [1, 2, 3, 4, 5, 6]
    assert [x["duration_ns"] for x in launches] == [100000] * 3 + [50000, 70000, None]
    assert [x["timing"] for x in launches] == ["timed"] * 5 + ["budget"]
    assert [x["form"] for x in launches] == ["one"] * 3 + ["pair", "one", "one"]
    assert [x["n_operations"] for x in launches] == [1, 1, 1, 2, 5, 1]
    for line in launches:
        assert (line["pid"], line["rank"], line["nranks"]) == (job.pid, 3, 8)
        assert (line["comm_name"], line["uuid"]) == ("DP Group 0", teller.uuid_of(2))
        assert begin["monotonic_ns"] < line["launch_ns"] < end["monotonic_ns"]
        for operation in line["operations"]:
            assert operation["call_ns"] <= line["launch_ns"]
    assert set(begin) == described("begin") and set(end) == described("end")
    assert set(launches[0]) == described("launch")
    assert [x["operation"] for x in launches[3]["operations"]] == ["Send", "Recv"]
    assert launches[3]["operations"][0]["peer"] == 4
    assert launches[0]["bus_bytes"] == 4 * 2 ** 20 * 7 / 4
    assert (end["launches"], end["operations"], end["timed"]) == (6, 11, 5)
    assert not any(end["lost"].values()) and not any(end["invalid"].values()), end
    assert "6 launches (5 timed), 11 operations" in recording.said, recording.said


def test_calls_of_a_job_without_the_plugin():
    servers.own_cgroup()
    job = servers.sim("comm world config; allreduce world 100 fp32 x 3; broadcast world 7 int8; "
                      "@0 send world 5 fp64 peer=1; @1 recv world 5 fp64 peer=0", ranks=2)
    recording = Recording("--cgroup", servers.own_cgroup())
    job.run()
    wanted = sum(int(e["calls"]) for e in job.expected())
    recording.until(wanted, "call")
    assert recording.stop(signal.SIGINT) == 0
    lines = recording.lines()
    calls = kinds(lines, "call")
    assert len(calls) == wanted == kinds(lines, "end")[0]["calls"]
    for expected in job.expected():
        found = [c for c in calls if (c["pid"], c["operation"]) ==
                 (int(expected["pid"]), expected["operation"])]
        assert len(found) == int(expected["calls"]), expected
        for call in found:
            assert (call["rank"], call["nranks"]) == (int(expected["rank"]), 2)
            assert call["comm"] == expected["comm"]
            assert call["type_bytes"] * call["count"] * len(found) == int(expected["bytes"])
    assert set(calls[0]) | {"peer"} == described("call")
    assert not kinds(lines, "launch")


def test_inspector_s_lines():
    job = Teller()
    recording = Recording("--format", "inspector", jobs=[job])
    job.comm(0, name="DP Group 0")
    job.one(0, REDUCESCATTER, 1 << 20, 1000000, 2)
    job.pair(0, 1 << 20, 2000000)
    job.one(0, ALLREDUCE, 100, 50000)       # too small for Inspector
    job.many(0, ALLREDUCE, 1 << 20, 2, 50000)
    job.one(0, ALLREDUCE, 1 << 20, 0)
    job.one(0, BROADCAST, 1 << 20, 1000000, datatype=teller.INT8)
    recording.until(5)
    assert recording.stop() == 0
    lines = recording.lines()
    assert len(lines) == 5
    for line in lines:
        assert line["header"] == {"id": "0xabc", "comm_name": "DP Group 0", "rank": 0, "n_ranks": 8,
                                  "nnodes": 1}
        assert line["metadata"]["pid"] == job.pid
        assert abs(line["metadata"]["dump_timestamp_us"] / 1e6 - time.time()) < 60
    collective = lines[0]["coll_perf"]
    assert collective["coll"] == "ReduceScatter" and collective["coll_msg_size_bytes"] == 4 << 20
    assert collective["coll_algobw_gbs"] == round(8 * (4 << 20) / 1e6, 6)
    assert collective["coll_busbw_gbs"] == round(7 * (4 << 20) / 1e6, 6)
    assert [x["p2p_perf"]["p2p"] for x in lines[2:4]] == ["Send", "Recv"]
    trace = collective["event_trace_ts"]
    gpu = trace["kernel_events"][0]
    assert 1000 <= gpu["kernel_stop_ts"] - gpu["kernel_start_ts"] <= 1001
    assert trace["coll_start_ts"] <= trace["coll_stop_ts"] <= gpu["kernel_start_ts"]
    for part in ("1 launches not timed", "1 launches of several", "1 operations below 8192"):
        assert part in recording.said, recording.said


def test_a_short_job_is_there_whole():
    """Ended before the next flush: nothing waits for anything of the job."""
    job = Teller()
    recording = Recording(jobs=[job])
    job.comm(0)
    job.one(0, ALLREDUCE, 1 << 20, 10000, 50)
    job.stop()
    launches = kinds(recording.until(50), "launch")
    assert len(launches) == 50 and all(x["duration_ns"] == 10000 for x in launches)
    assert recording.stop() == 0


def test_duration_and_standard_output():
    job = Teller()
    done = subprocess.run([nbt.AGENT, "record", "-o", "-", "--pid", str(job.pid), "--duration", "1"],
                          text=True, capture_output=True, timeout=30, stdin=subprocess.DEVNULL)
    assert done.returncode == 0, done
    assert [json.loads(line)["kind"] for line in done.stdout.splitlines()] == ["begin", "end"]
    assert "recording to standard output" in done.stderr


def test_errors_are_one_line_and_2():
    directory = nbt.tempdir()
    there, link = directory / "there", directory / "link"
    there.write_text("mine\n")
    link.symlink_to(directory / "elsewhere")
    for output, word in ((there, "not overwritten"), (link, "not overwritten"),
                         (directory, "not overwritten"), (directory / "no/file", "directory that")):
        done = nbt.run_agent("record", "-o", output)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done
        assert word in done.stderr and str(output) in done.stderr, done.stderr
    assert there.read_text() == "mine\n" and not (directory / "elsewhere").exists()
    assert sorted(os.listdir(directory)) == ["link", "there"]


def test_without_privilege_no_file_is_left():
    directory = nbt.tempdir()
    os.chmod(directory, 0o777)
    setpriv = nbt.need("setpriv", "util-linux")
    done = subprocess.run([setpriv, "--reuid=65534", "--clear-groups", nbt.AGENT, "record", "-o",
                           directory / "out"], text=True, capture_output=True,
                          stdin=subprocess.DEVNULL)
    assert done.returncode == 3 and done.stderr.count("\n") == 1, done
    assert not os.listdir(directory)


def test_full_disk():
    """The recording ends, says so, and leaves whole lines."""
    mounted = nbt.tempdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", mounted], check=True)
    nbt.defer(subprocess.run, ["umount", mounted])
    job = Teller()
    recording = Recording(output=mounted / "out", jobs=[job])
    job.comm(0)
    job.one(0, ALLREDUCE, 1 << 20, 10000, 500)
    assert recording.wait() == 2
    assert "No space left" in recording.said and recording.said.count("\n") == 1, recording.said
    lines = recording.lines()  # each one parses
    assert len(lines) > 50 and not kinds(lines, "end")


def test_reader_that_leaves():
    """`| head`: one line on stderr, status 2, even when nothing more is to be written."""
    job = Teller()
    read, write = os.pipe()
    process = subprocess.Popen([nbt.AGENT, "record", "-o", "-", "--pid", str(job.pid)], text=True,
                               stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    nbt.defer(nbt.end, process)
    os.close(write)
    assert process.stderr.readline()
    assert os.read(read, 10)
    os.close(read)
    said = process.communicate(timeout=20)[1]
    assert process.returncode == 2 and said.count("\n") == 1, said
    assert "Broken pipe" in said and "reader" in said, said


def test_reader_that_sleeps():
    """A signal still ends it."""
    job = Teller()
    read, write = os.pipe()
    process = subprocess.Popen([nbt.AGENT, "record", "-o", "-", "--pid", str(job.pid)], text=True,
                               stdout=write, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
    nbt.defer(nbt.end, process)
    os.close(write)
    assert process.stderr.readline()
    job.comm(0)
    job.one(0, ALLREDUCE, 1 << 20, 1000, 500)
    time.sleep(1.5)
    process.terminate()
    said = process.communicate(timeout=5)[1]
    assert process.returncode == 2 and "reader" in said, said
    os.close(read)


def test_ends_while_launches_come():
    """What is under way when it ends is in the recording; nothing is handed out after its end."""
    job = plugged.Plugged()
    recording = Recording("--gpu-timing-budget", "100", jobs=[job])
    job.wait_awake()
    job.do("busy")
    recording.until(500)
    assert recording.stop() == 0
    assert int(job.do("calm")) > 500
    lines = recording.lines()
    numbers = [line["launch"] for line in kinds(lines, "launch")]
    assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))
    assert kinds(lines, "end")[0]["launches"] == len(numbers)


def test_killed_it_leaves_whole_lines():
    job = Teller()
    recording = Recording(jobs=[job])
    job.comm(0)
    job.one(0, ALLREDUCE, 1 << 20, 10000, 100)
    recording.until(100)
    recording.process.kill()
    recording.process.wait()
    assert len(kinds(recording.lines(), "launch")) == 100


def test_progress_on_a_terminal():
    master, slave = pty.openpty()
    nbt.defer(os.close, master)
    process = subprocess.Popen([nbt.AGENT, "record", "-o", nbt.tempdir() / "out", "--duration", "3",
                                "--pid", str(os.getpid())], stdin=subprocess.DEVNULL, stderr=slave)
    nbt.defer(nbt.end, process)
    os.close(slave)
    said = b""
    while process.poll() is None or select.select([master], [], [], 0.1)[0]:
        if select.select([master], [], [], 0.2)[0]:
            try:
                said += os.read(master, 4096)
            except OSError:
                break
    assert process.wait(10) == 0, (process.returncode, said)
    assert said.count(b"\r\x1b[K") >= 2 and b"2 s: 0 launches" in said, said


def test_nvidia_s_own_reader():
    """NVIDIA's perf_summary_exporter.py, unchanged: NCCL_BPFTRACE_INSPECTOR_EXPORTER=FILE."""
    script = os.environ.get("NCCL_BPFTRACE_INSPECTOR_EXPORTER")
    if not script:
        nbt.skip("NCCL_BPFTRACE_INSPECTOR_EXPORTER names no perf_summary_exporter.py")
    python = os.environ.get("NCCL_BPFTRACE_INSPECTOR_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import pandas, duckdb, matplotlib, pyarrow, tqdm, numpy"],
                      capture_output=True).returncode:
        nbt.skip(f"{python} lacks what the exporter imports; "
                 "NCCL_BPFTRACE_INSPECTOR_PYTHON names another")
    directory = nbt.tempdir()
    job = Teller()
    recording = Recording("--format", "inspector", jobs=[job], output=directory / "rank0.log")
    shapes = {"nvlink-only": (8, 1), "hca-only": (4, 4), "mixed": (16, 2)}
    functions = {"AllReduce": ALLREDUCE, "AllGather": ALLGATHER, "ReduceScatter": REDUCESCATTER,
                 "Broadcast": BROADCAST}
    for number, (nranks, n_nodes) in enumerate(shapes.values()):
        job.comm(number, comm_hash=0xabc + number, nranks=nranks, n_nodes=n_nodes, name="g")
        for function in functions.values():
            for size in (8192, 1 << 20):
                job.one(number, function, size, 100000 + size, 5)
        job.pair(number, 1 << 20, 100000)
    recording.until(3 * (4 * 2 * 5 + 2))
    assert recording.stop() == 0
    done = subprocess.run([python, script, "--input_dir", directory, "--output_dir",
                           directory / "out"], text=True, capture_output=True, cwd=directory)
    log = (directory / "out/output.log").read_text()
    assert done.returncode == 0 and "Done!" in done.stdout, done.stdout + done.stderr + log
    assert "Failed to parse" not in log and "Error" not in log, log
    assert log.count("Missing required fields") == 3 * 2  # its Sends and Recvs: it reads none
    for shape in shapes:
        for function in functions:
            name = f"summary_{shape}_{function}_"
            found = list((directory / "out").glob(f"**/{name}*.csv"))
            assert len(found) == 2, f"{name}: {found}; {log}"
