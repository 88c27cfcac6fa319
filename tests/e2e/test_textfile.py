# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The textfile: what hostile, dying or countless jobs, a full disk and a dead agent do to it."""
import http.client
import os
import re
import resource
import signal
import stat
import subprocess
import threading
import time
from pathlib import Path

import nbt
import servers
from servers import (Crowd, NodeExporter, fake_gpus, gpu_uuid, private_mounts, promtool)

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
ALONE = ("test_five_hundred_processes", "test_ten_thousand_communicators",
         "test_late_job_is_found_within_a_second", "test_no_torn_file_under_scraping")

# Whatever a job does, no label has another name.
LABELS = {
    "version", "libbpf", "kernel", "state", "reason", "job_id", "UUID", "pid", "namespace", "pod",
    "container", "slurm_step", "local_rank", "command", "nccl_version", "plugin", "comm", "rank",
    "comm_name", "nranks", "n_nodes", "node", "gpu", "identity", "timing", "operation", "mode",
    "result", "kind", "le",
}
COMM = re.compile(r"[0-9a-f]{16}|unknown-\d+-\d+")
HEARTBEAT = "nccl_bpftrace_heartbeat_timestamp_seconds"
SUPPRESSED = "nccl_bpftrace_series_suppressed_total"

NASTY = {
    "quote": b'a"b\\c',
    "newline": b"a\nb",
    "not_utf8": b"\xff\xfe\xc3(\xed\xa0\x80\xf8",
    "cut_character": b"\xc3\xa9" * 40 + b"\xe2\x82",
    "escape": b"\x1b[2J\x1b]0;x\x07\xc2\x9bm\x7f",
    "long": b"x" * 4096,
    "braces": b'"} 1\nnccl_operations_total{comm="x"} 7\n# HELP x y\n',
}


def check_labels(series):
    for (family, pairs) in series.samples:
        for name, value in pairs:
            assert name in LABELS, f"{family} has a label {name}"
            if name == "comm":
                assert COMM.fullmatch(value), value


def capped(series):
    """Series that jobs make, and that --max-series bounds."""
    return sum(name == "nccl_bpftrace_process_info" or not name.startswith("nccl_bpftrace_")
               for name, _ in series.samples)


def settle(agent, condition, what, seconds=15):
    return agent.until(condition, what, seconds)


def attached(agent, n):
    """Once the agent traces n processes: what they call from now on is counted."""
    settle(agent, lambda s: s.sum("nccl_bpftrace_processes", state="traced") == n,
           f"{n} traced processes")


def test_same_communicator_name_and_gpu_are_distinct_series():
    """X2: two jobs, each with a communicator `world` of one rank on the first GPU."""
    sims = [servers.sim("comm world config; allreduce world 100 fp32 x 3", ranks=1)
            for _ in range(2)]
    agent = servers.agent(preexec_fn=fake_gpus(2))
    for sim in sims:
        sim.run()
    expected = sims[0].expected() + sims[1].expected()
    assert len(nbt.expected_totals(expected)) == 2
    series = settle(agent, lambda s: s.sum("nccl_operations_total") == 6 and
                    len(s.get("nccl_communicator_info", UUID=gpu_uuid(0), gpu="0")) == 2,
                    "both on the first GPU")
    assert nbt.counted_totals(series, expected) == nbt.expected_totals(expected)
    assert len({l["comm_name"] for l, _ in series.get("nccl_communicator_info")}) == 1
    assert len(series.get("nccl_bpftrace_process_info", UUID=gpu_uuid(0))) == 2
    assert len(NodeExporter(agent.directory).clean_series().get("nccl_operations_total")) == 2


def test_forged_identity_changes_no_other_job():
    """X2: a job gives its communicator the hash and rank of another job's."""
    agent = servers.agent()
    honest = servers.sim("comm world config; allreduce world 100 fp32 x 50; wait; "
                     "allreduce world 100 fp32 x 50", ranks=1)
    attached(agent, 1)
    honest.go()
    series = settle(agent, lambda s: s.sum("nccl_operations_total") == 50 and
                    s.get("nccl_communicator_info", pid=str(honest.pids[0])), "50 calls")
    hash_ = series.get("nccl_operations_total")[0][0]["comm"]
    assert len(hash_) == 16
    forger = Crowd("forge", hash_, 0, 1, 7)
    attached(agent, 2)
    forger.run()
    honest.go()
    honest.wait_done()
    series = settle(agent, lambda s: s.sum("nccl_operations_total") == 107, "107 calls")
    assert series.one("nccl_operations_total", comm=hash_, rank="0") == 100
    info = series.get("nccl_communicator_info", comm=hash_)
    assert [l["pid"] for l, _ in info] == [str(honest.pids[0])], info
    others = [(l["comm"], v) for l, v in series.get("nccl_operations_total") if l["comm"] != hash_]
    assert len(others) == 1 and others[0][0].startswith(f"unknown-{forger.pid}-"), others
    assert others[0][1] == 7
    NodeExporter(agent.directory).clean_series()


def test_hostile_names_break_no_file():
    """X3: names, job ids and task names of any bytes: the file parses, all series are there."""
    good = servers.sim("comm world config; allreduce world 100 fp32 x 5", ranks=2)
    hostile = {what: Crowd("named", name.hex(), name.hex(), 3,
                           env={b"SLURM_JOB_ID": name, b"SLURM_CLUSTER_NAME": name,
                                b"SLURM_STEP_ID": name, b"LOCAL_RANK": name})
               for what, name in NASTY.items()}
    agent = servers.agent()
    for crowd in hostile.values():
        crowd.run()
    good.run()

    def all_there(series):
        infos = series.get("nccl_communicator_info")
        return series.sum("nccl_operations_total") == 10 + 3 * len(NASTY) and \
            len(infos) == 2 + len(NASTY) and all(l["nranks"] for l, _ in infos)

    series = settle(agent, all_there, "every communicator with its name")
    check_labels(series)
    text = agent.file.read_text(encoding="utf-8", errors="strict")
    assert promtool(text) == ""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)
    assert all(len(value) <= 128 for _, pairs in series.samples for _, value in pairs)
    read = NodeExporter(agent.directory).clean_series()
    for entry in good.expected():
        assert read.one("nccl_operations_total", comm=entry["comm"], rank=entry["rank"]) == 5
    for what, crowd in hostile.items():
        labels = read.get("nccl_communicator_info", pid=str(crowd.pid))
        assert len(labels) == 1, what
        comm = labels[0][0]["comm"]
        assert read.one("nccl_operations_total", comm=comm) == 3, what
        assert read.get("nccl_operations_total", comm=comm)[0][0].get("job_id", "") == "", what
    names = {what: read.get("nccl_communicator_info", pid=str(crowd.pid))[0][0].get("comm_name", "")
             for what, crowd in hostile.items()}
    assert names["quote"] == 'a"b\\c', names
    assert set(names["long"]) == {"x"} and set(names["cut_character"]) == {"é"}, names
    command = read.get("nccl_bpftrace_process_info", pid=str(hostile["newline"].pid))
    assert command[0][0]["command"].startswith("a"), command


class Scraper(threading.Thread):
    """Asks node_exporter without a pause; keeps what was wrong."""

    def __init__(self, port, n_lines):
        super().__init__(daemon=True)
        self.port, self.n_lines = port, n_lines
        self.over, self.n, self.wrong = False, 0, []

    def run(self):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        while not self.over:
            connection.request("GET", "/metrics")
            body = connection.getresponse().read()
            self.n += 1
            n = len(re.findall(rb"^nccl_", body, re.M))
            if n != self.n_lines or b"\nnode_textfile_scrape_error 0\n" not in body:
                self.wrong.append(n)
        connection.close()


def test_no_torn_file_under_scraping():
    """X4: read in a tight loop, directly and through node_exporter, while it is written."""
    crowd = Crowd("comms", 100, 1)
    agent = servers.agent()
    crowd.run()
    series = settle(agent, lambda s: s.sum("nccl_operations_total") == 100 and
                    all(l["nranks"] for l, _ in s.get("nccl_communicator_info")) and
                    len(s.get("nccl_bpftrace_process_info")) == 1, "100 communicators")
    series = agent.fresh(2)
    n_lines = len(series.samples)
    exporter = NodeExporter(agent.directory)
    scraper = Scraper(exporter.port, n_lines)
    scraper.start()
    seen, n_reads, wrong = set(), 0, []
    deadline = time.monotonic() + 30
    while (len(seen) < 6 or scraper.n < 100) and time.monotonic() < deadline:
        text = agent.file.read_bytes()
        n_reads += 1
        lines = text.count(b"\nnccl_")
        if lines != n_lines or not text.endswith(b"\n"):
            wrong.append((lines, len(text)))
            continue
        seen.add(re.search(rb"\n" + HEARTBEAT.encode() + rb" (\S+)", text)[1])
    scraper.over = True
    scraper.join(30)
    print(f"     {n_reads} direct reads of {len(text)} bytes, {scraper.n} scrapes, "
          f"{len(seen)} versions")
    assert not wrong, wrong[:5]
    assert not scraper.wrong, scraper.wrong[:5]
    assert len(seen) >= 6 and scraper.n >= 100, (len(seen), scraper.n)


def test_full_disk_keeps_the_old_file():
    """X4: nothing torn, nothing left behind, said once, and written again once there is room."""
    home = nbt.tempdir()
    agent = servers.agent(directory=home, wait=False,
                      preexec_fn=private_mounts((home, "size=64k", [])))
    agent.directory = Path(f"/proc/{agent.pid}/root{home}")
    agent.wait_file()
    exporter = NodeExporter(agent.directory)
    filler = agent.directory / "filler"
    with open(filler, "wb", buffering=0) as file:
        try:
            while True:
                file.write(b"x" * 4096)
        except OSError:
            pass
    old = agent.file.read_bytes()
    nbt.wait_for(lambda: "cannot write the textfile" in agent.output(), "the complaint")
    asked = time.monotonic()  # two more intervals
    nbt.wait_for(lambda: time.monotonic() - asked > 2.2, "time")
    kept = agent.file.read_bytes()
    assert kept.endswith(b"\n") and kept.count(b"\n") >= old.count(b"\n")
    assert nbt.Series(kept.decode()).one(HEARTBEAT) < time.time() - 2
    assert not list(agent.directory.glob(".*.tmp"))
    assert exporter.clean_series().one(HEARTBEAT) > 0
    said = [line for line in agent.output().splitlines() if "cannot write" in line]
    assert len(said) == 1 and "No space left on device" in said[0], said
    filler.unlink()
    nbt.wait_for(lambda: "written again" in agent.output(), "the end of the complaint")
    agent.fresh()
    assert sum("textfile" in line for line in agent.output().splitlines()) == 2


def test_umask_does_not_hide_the_file():
    """X4: mode 0644 and readable by another user, whatever the umask."""
    directory = nbt.tempdir()
    directory.chmod(0o755)
    agent = servers.agent(directory=directory, preexec_fn=lambda: os.umask(0o077))
    agent.fresh()
    assert stat.S_IMODE(agent.file.stat().st_mode) == 0o644
    read = subprocess.run(["cat", agent.file], user="nobody", group="nogroup", extra_groups=[],
                          capture_output=True, text=True)
    assert HEARTBEAT in read.stdout, read.stderr


def test_killed_job_leaves_the_file():
    """X5: gone within two intervals; node-level counters never fall; never NaN or Inf."""
    job = servers.sim("comm world config; loop forever { rate 200; allreduce world 100 fp32 }",
                      ranks=2)
    other = servers.sim("comm world config; loop forever { rate 50; allreduce world 100 fp32 }",
                    ranks=1)
    agent = servers.agent()
    job.go()
    other.go()
    pids = {str(pid) for pid in job.pids}
    counters = ["nccl_bpftrace_events_total", "nccl_bpftrace_cpu_seconds_total", SUPPRESSED,
                "nccl_bpftrace_events_lost_total"]
    last, floor = {}, {}

    def look(want_there):
        text = agent.file.read_text()
        assert not re.search(r" [+-]?(nan|inf)", text, re.I)
        series = nbt.Series(text)
        for key, value in series.samples.items():
            if key[0] in counters:
                assert value >= floor.get(key, 0), f"{key} fell from {floor[key]} to {value}"
                floor[key] = value
        there = {l["pid"] for l, _ in series.get("nccl_communicator_info")} & pids
        last["series"], last["made"] = series, series.one(HEARTBEAT)
        return bool(there) == want_there

    nbt.wait_for(lambda: look(True), "the job's series", 20)
    nbt.wait_for(lambda: look(True) and
                 last["series"].get("nccl_operations_total", operation="AllReduce"), "calls")
    for pid in job.pids:
        os.kill(pid, signal.SIGKILL)
    killed = time.time()
    nbt.wait_for(lambda: look(False), "the job's series to go", 20)
    late = last["made"] - killed
    assert late <= 2.3, f"only the file made {late:.2f} s after the end, at --interval 1, is free"
    assert last["series"].one("nccl_bpftrace_processes", state="traced") == 1
    made = last["made"]
    nbt.wait_for(lambda: look(False) and last["made"] > made + 2, "two files more", 20)
    assert last["series"].one("nccl_communicator_info", pid=str(other.pids[0])) == 1


def check_capped(agent, limit):
    series = agent.series()
    check_labels(series)
    assert capped(series) <= limit, capped(series)
    assert series.one(SUPPRESSED) > 0
    rss = series.one("nccl_bpftrace_resident_memory_bytes")
    print(f"     {capped(series)} series, RSS {rss / 2**20:.0f} MiB")
    assert rss < 128 * 2**20, rss
    assert promtool(agent.file.read_text()) == ""
    exporter = NodeExporter(agent.directory)
    read = exporter.clean_series()
    assert set(series.families()) <= set(read.families())


def test_ten_thousand_communicators():
    """X6: a cap, a count of what it folds, bounded memory; the older job keeps its series."""
    agent = servers.agent("--max-series", 1000)
    old = servers.sim("comm world config; allreduce world 100 fp32 x 5", ranks=1)
    attached(agent, 1)
    old.run()
    settle(agent, lambda s: s.sum("nccl_operations_total") == 5, "the older job")
    crowds = [Crowd("comms", 2500, 5000 if i == 0 else 1) for i in range(4)]
    attached(agent, 5)
    for crowd in crowds:
        crowd.go()
    for crowd in crowds:
        crowd.wait_done()
    series = settle(agent, lambda s: s.one(SUPPRESSED) > 50000 and capped(s) > 900,
                    "10 000 communicators", 30)
    agent.fresh()
    check_capped(agent, 1000)
    series = agent.series()
    assert series.one("nccl_operations_total", comm=old.expected()[0]["comm"]) == 5
    # all or nothing: a communicator that is shown is shown in all families
    infos = {l["comm"] for l, _ in series.get("nccl_communicator_info")}
    assert infos == {l["comm"] for l, _ in series.get("nccl_operations_total")}
    assert series.sum("nccl_bpftrace_events_lost_total") == 0


def test_message_sizes_make_no_series():
    """X6: 5 000 sizes on one communicator are one series for each family."""
    agent = servers.agent()
    crowd = Crowd("comms", 1, 5000)
    attached(agent, 1)
    crowd.run()
    series = settle(agent, lambda s: s.sum("nccl_operations_total") == 5000, "5 000 calls")
    assert series.one("nccl_operation_bytes_total") == 4 * 1000 * 5000 * 5001 / 2
    assert capped(agent.fresh()) <= 8


def test_ten_thousand_forged_hashes():
    """X6: one address under 10 000 names: bounded, and every call is counted as one or lost."""
    agent = servers.agent("--max-series", 1000)
    crowd = Crowd("hashes", 10000)
    attached(agent, 1)
    crowd.run()
    settle(agent, lambda s: s.one(SUPPRESSED) > 0, "series above the cap")
    check_capped(agent, 1000)
    assert agent.process.poll() is None


def test_five_hundred_processes():
    """X6: all of them, with the file descriptors that a shell gives."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    agent = servers.agent(
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard)))
    crowd = Crowd("processes", 500)
    attached(agent, 1)  # the library's probes stand; the parent itself never calls
    crowd.run()
    attached(agent, 501)
    crowd.run()
    series = settle(agent, lambda s: s.one("nccl_bpftrace_processes", state="traced") == 501 and
                    s.sum("nccl_operations_total") == 500 and
                    len(s.get("nccl_communicator_info")) == 500, "500 processes", 40)
    check_labels(series)
    assert len(series.get("nccl_bpftrace_process_info")) == 501
    assert len(NodeExporter(agent.directory).clean_series().get("nccl_operations_total")) == 500
    rss = series.one("nccl_bpftrace_resident_memory_bytes")
    print(f"     RSS {rss / 2**20:.0f} MiB")
    assert rss < 128 * 2**20
    crowd.stop()
    settle(agent, lambda s: not s.get("nccl_communicator_info") and
           not s.get("nccl_bpftrace_process_info"), "none left")


def test_late_job_is_found_within_a_second():
    """Of a job that starts after the agent and calls for 3 s at 100 a second, 2 s are counted."""
    agent = servers.agent()
    sim = servers.sim("comm world config; loop 300 { rate 100; allreduce world 100 fp32 }", ranks=1)
    sim.run()
    counted = agent.fresh().sum("nccl_operations_total")
    assert 200 <= counted <= 300, counted


def inspector_file(gpu):
    """As NVIDIA Inspector of NCCL 2.30 writes it: no HELP, no TYPE, families interleaved."""
    text = ""
    for nodes, ranks in ((1, 8), (4, 32)):
        common = (f'version="v5.1",slurm_job_id="12345",node="n0",gpu="GPU{gpu}",'
                  f'comm_name="DP Group 0",n_nodes="{nodes}",nranks="{ranks}"')
        for collective in ("AllReduce", "AllGather", "ReduceScatter", "Broadcast"):
            for size in ("8-9KB", "1-2MB", "4-5GB"):
                labels = (f'{common},collective="{collective}",message_size="{size}",'
                          f'algo_proto="RING_SIMPLE"')
                text += f"nccl_bus_bandwidth_gbs{{{labels}}} {100 + gpu}\n"
                text += f"nccl_collective_exec_time_microseconds{{{labels}}} 2000.5\n"
        for operation in ("Send", "Recv"):
            labels = f'{common},p2p_operation="{operation}",message_size="512-513MB"'
            text += f"nccl_p2p_bus_bandwidth_gbs{{{labels}}} 40.25\n"
            text += f"nccl_p2p_exec_time_microseconds{{{labels}}} 1154.87\n"
    return text


def test_inspector_s_files_stand_beside_ours():
    """X1: node_exporter loses no series of either."""
    sim = servers.sim("comm world config; allreduce world 100 fp32 x 5; broadcast world 9 int8",
                  ranks=2)
    agent = servers.agent()
    sim.run()
    settle(agent, lambda s: s.sum("nccl_operations_total") == 12 and
           len(s.get("nccl_communicator_info")) == 2, "the job")
    theirs = set()
    for gpu in range(2):
        text = inspector_file(gpu)
        name = f"nccl_inspector_metrics_00112233-4455-6677-8899-aabbccddee{gpu:02x}.prom"
        (agent.directory / name).write_text(text)
        theirs |= nbt.Series(text).samples.keys()
    ours = agent.fresh().samples.keys()
    read = NodeExporter(agent.directory).clean_series()

    def with_values(keys):  # one family's series get each other's labels, as ""
        return {(name, frozenset((n, v) for n, v in pairs if v)) for name, pairs in keys}

    assert len(theirs) == 2 * 56
    assert not with_values(theirs | ours) - with_values(read.samples.keys())


def test_left_overs_of_a_dead_agent_are_swept():
    """An agent that dies while it writes leaves a temporary file; the next one removes it."""
    directory = nbt.tempdir()
    stranger = directory / ".nccl_bpftrace.prom.x.tmp"
    stranger.write_text("not ours")

    def die_within_a_write():
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))

    first = servers.agent(directory=directory, wait=False, preexec_fn=die_within_a_write)
    assert first.process.wait(20) == -signal.SIGXFSZ
    left = [p.name for p in directory.glob(".*.tmp") if p != stranger]
    assert left and not list(directory.glob("*.prom")), list(directory.iterdir())
    assert NodeExporter(directory).clean_series().get(HEARTBEAT) == []
    second = servers.agent(directory=directory)
    second.fresh()
    assert not [name for name in left if (directory / name).exists()]
    assert stranger.exists()


def test_killed_agent_s_file_is_taken_over():
    """After SIGKILL the file stays and shows its age; the next agent starts from what is true."""
    sim = servers.sim("comm world config; allreduce world 100 fp32 x 5", ranks=1)
    first = servers.agent()
    sim.run()
    settle(first, lambda s: s.sum("nccl_operations_total") == 5, "5 calls")
    first.stop(signal.SIGKILL)
    stale = first.series()
    second = servers.agent(directory=first.directory)
    series = second.fresh()
    assert series.one(HEARTBEAT) > stale.one(HEARTBEAT)
    assert series.sum("nccl_operations_total") == 0, "what came before is not known"
    assert series.one("nccl_bpftrace_processes", state="traced") == 1


def test_one_agent_a_directory():
    """A second one is refused while the first runs, and not after."""
    first = servers.agent()
    args = ["run", "--interval", "1", "--duration", "1", "--textfile-dir", first.directory]
    refused = nbt.run_agent(*args)
    assert refused.returncode == 2 and refused.stderr.count("\n") == 1, refused
    assert str(first.directory) in refused.stderr
    first.fresh()
    assert first.stop() == 0
    assert nbt.run_agent(*args).returncode == 0


def test_ended_agent_leaves_one_whole_file():
    """Its last picture, as of its end; nothing beside it."""
    for sig in (signal.SIGTERM, signal.SIGINT):
        agent = servers.agent()
        asked = time.time()
        assert agent.stop(sig) == 0, agent.output()
        assert [p.name for p in agent.directory.iterdir()] == ["nccl_bpftrace.prom"]
        assert agent.series().one(HEARTBEAT) >= asked - 0.01


def test_cluster_label():
    """--cluster stands on every series; else the job's own, on the job's."""
    sim = servers.sim("comm world config; allreduce world 100 fp32 x 5", ranks=1)
    slurm = Crowd("named", b"slurm".hex(), b"slurm".hex(), 3,
                  env={b"SLURM_CLUSTER_NAME": b"of-the-job", b"SLURM_JOB_ID": b"4711"})
    named, plain = servers.agent("--cluster", "north"), servers.agent()
    sim.run()
    slurm.run()
    done = lambda s: (s.sum("nccl_operations_total") == 8 and  # noqa: E731
                      len(s.get("nccl_communicator_info")) == 2)
    series = settle(named, done, "both jobs")
    assert all(("cluster", "north") in pairs for _, pairs in series.samples)
    series = settle(plain, done, "both jobs")
    with_label = {l["job_id"]: l.get("cluster") for l, _ in series.get("nccl_operations_total")}
    assert with_label == {"": None, "4711": "of-the-job"}
    assert not series.get(HEARTBEAT, cluster="of-the-job")


def default_directory(exists):
    """An agent told of no directory; where its default would be."""
    directories = ["prometheus/node-exporter"] if exists else []
    agent = subprocess.Popen(
        [nbt.AGENT, "run", "--interval", "1", "--cgroup", servers.own_cgroup()],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        preexec_fn=private_mounts(("/var/lib", "", directories)))
    nbt.defer(nbt.end, agent)
    directory = Path(f"/proc/{agent.pid}/root/var/lib/prometheus/node-exporter")
    return agent, directory / "nccl_bpftrace.prom"


def test_default_directory():
    """/var/lib/prometheus/node-exporter when it exists; else none, and that is no error."""
    agent, file = default_directory(True)
    nbt.wait_for(file.exists, "the file", 20)
    assert nbt.Series(file.read_text()).one(HEARTBEAT) > 0
    agent, file = default_directory(False)
    line = agent.stdout.readline()
    assert "processes=" in line, line
    assert not file.parent.exists()
    assert nbt.end(agent) == 0
