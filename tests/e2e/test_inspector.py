# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""nccl_inspector_metrics_<uuid>.prom: NVIDIA Inspector's file, written by us; and who reads it."""
import os
import signal
import socket
import time

import nbt
import servers
import teller
from servers import NodeExporter, Prometheus
from teller import ALLGATHER, ALLREDUCE, BROADCAST, REDUCESCATTER, Teller

NODE = socket.gethostname()


def agent_for(*jobs, gpus=4, args=(), **kwargs):
    pids = nbt.pid_words(job.pid for job in jobs)
    return nbt.Agent(*pids, *args, preexec_fn=servers.fake_gpus(gpus), **kwargs)


def file_of(directory, gpu):
    bare = teller.uuid_of(gpu).removeprefix("GPU-")
    return directory / f"nccl_inspector_metrics_{bare}.prom"


def files(directory):
    return sorted(path.name for path in directory.glob("*nccl_inspector*"))


def text_of(directory, gpu):
    try:
        return file_of(directory, gpu).read_text()
    except FileNotFoundError:
        return None


def wait_text(directory, gpu, *parts):
    """The file's text once it has all the parts."""
    def found():
        text = text_of(directory, gpu)
        return text if text is not None and all(part in text for part in parts) else None

    return nbt.wait_for(found, f"{parts} in the file of GPU {gpu}: {text_of(directory, gpu)!r}", 15)


def omitted(series, reason):
    return series.one("nccl_bpftrace_inspector_omitted_total", reason=reason)


def labels(gpu, name, rest, job="unknown", n_nodes=1, nranks=8):
    return (f'{{version="v5.1",slurm_job_id="{job}",node="{NODE}",gpu="GPU{gpu}",'
            f'comm_name="{name}",n_nodes="{n_nodes}",nranks="{nranks}",{rest}}}')


def test_the_file_is_inspector_s_line_for_line():
    job = Teller()
    agent = agent_for(job, interval=2)
    agent.fresh()
    job.comm(0, gpu=2, name="DP Group 0")
    job.one(0, ALLREDUCE, 4 << 20, 200000, 2)
    job.one(0, ALLGATHER, 1 << 20, 1000000, datatype=teller.INT8, protocol=teller.LL128)
    job.pair(0, 1 << 20, 400000)
    job.one(0, ALLREDUCE, 100, 10000)
    text = wait_text(agent.directory, 2, "All")
    gather = labels(2, "DP Group 0", 'collective="AllGather",message_size="1-2MB",'
                                     'algo_proto="RING_LL128"')
    reduce = labels(2, "DP Group 0", 'collective="AllReduce",message_size="16-17MB",'
                                     'algo_proto="RING_SIMPLE"')
    send = labels(2, "DP Group 0", 'p2p_operation="Send",message_size="4-5MB"')
    receive = send.replace("Send", "Recv")
    assert text == (
        f"nccl_bus_bandwidth_gbs{gather} 7.34003\n"
        f"nccl_collective_exec_time_microseconds{gather} 1000\n"
        f"nccl_bus_bandwidth_gbs{reduce} 146.801\n"
        f"nccl_collective_exec_time_microseconds{reduce} 200\n"
        f"nccl_p2p_bus_bandwidth_gbs{send} 10.4858\n"
        f"nccl_p2p_exec_time_microseconds{send} 400\n"
        f"nccl_p2p_bus_bandwidth_gbs{receive} 10.4858\n"
        f"nccl_p2p_exec_time_microseconds{receive} 400\n"), text
    assert file_of(agent.directory, 2).stat().st_mode & 0o7777 == 0o644
    assert omitted(agent.fresh(), "small") == 1
    nbt.wait_for(lambda: text_of(agent.directory, 2) == "", "an idle GPU's file is empty")
    assert files(agent.directory) == [file_of(agent.directory, 2).name]


def test_a_short_job_stands_in_a_file_and_goes():
    job = Teller()
    agent = agent_for(job, interval=3)
    job.comm(0)
    job.one(0, BROADCAST, 1 << 20, 100000, 3)
    job.stop()
    wait_text(agent.directory, 0, 'collective="Broadcast"')
    appeared = time.monotonic()
    nbt.wait_for(lambda: not files(agent.directory), "the file to go", 20)
    assert time.monotonic() - appeared > 2, "it stood for less than an interval"


def test_a_killed_job_s_file_goes():
    job = Teller()
    agent = agent_for(job)
    job.comm(0)
    job.one(0, ALLREDUCE, 1 << 20, 1000)
    wait_text(agent.directory, 0, "AllReduce")
    job.process.kill()
    job.process.wait()
    nbt.wait_for(lambda: not files(agent.directory), "the file to go", 10)


def test_the_agent_s_end_and_death():
    job = Teller()
    directory = nbt.tempdir()
    for sig in (signal.SIGTERM, signal.SIGKILL):
        (directory / "nccl_bpftrace.prom").unlink(missing_ok=True)
        agent = agent_for(job, directory=directory)
        job.comm(0)
        job.one(0, ALLREDUCE, 1 << 20, 1000)
        wait_text(directory, 0, "AllReduce")
        agent.stop(sig)
        assert len(files(directory)) == (sig == signal.SIGKILL)
    bare = teller.uuid_of(1).removeprefix("GPU-")
    others = [f"nccl_inspector_metrics_{bare}.prom", f".nccl_inspector_metrics_{bare}.prom.12.tmp",
              "nccl_inspector_metrics_x.prom", f"nccl_inspector_metrics_{bare}.prom.bak"]
    for name in others:
        (directory / name).write_text("")
    os.chmod(directory / others[0], 0o777)  # as Inspector's own
    (directory / "nccl_bpftrace.prom").unlink()
    agent_for(job, directory=directory)
    assert files(directory) == sorted(others[:1] + others[2:]), files(directory)


def test_each_process_sees_one_gpu():
    """All call theirs GPU 0: the node's index tells them apart."""
    jobs = [Teller() for _ in range(4)]
    agent = agent_for(*jobs)
    for gpu, job in enumerate(jobs):
        job.comm(0, gpu=gpu, rank=gpu, name="world")
        job.one(0, ALLREDUCE, 1 << 20, 100000)
    for gpu in range(4):
        wait_text(agent.directory, gpu, f'gpu="GPU{gpu}"')


def test_two_jobs_on_one_gpu():
    jobs = [Teller(env={**os.environ, "SLURM_JOB_ID": str(n)}) for n in (11, 12)]
    agent = agent_for(*jobs, interval=2)
    agent.until(lambda s: len(s.get("nccl_bpftrace_process_info")) == 2, "both")
    for job in jobs:
        job.comm(0)
        job.one(0, ALLREDUCE, 1 << 20, 100000)
    wait_text(agent.directory, 0, 'slurm_job_id="11"', 'slurm_job_id="12"')
    jobs[0].stop()
    jobs[1].one(0, ALLREDUCE, 1 << 20, 100000)
    nbt.wait_for(lambda: text_of(agent.directory, 0) == "", "idle and still there")
    jobs[1].stop()
    nbt.wait_for(lambda: not files(agent.directory), "the file to go", 10)


def test_gpu_that_the_node_does_not_list():
    job = Teller()
    agent = agent_for(job, gpus=1)
    job.comm(0, gpu=3)
    job.one(0, ALLREDUCE, 1 << 20, 100000)
    wait_text(agent.directory, 3, f'gpu="{teller.uuid_of(3)}"')


def test_where_inspector_writes_itself():
    env = {**os.environ, "NCCL_INSPECTOR_ENABLE": "1", "NCCL_INSPECTOR_PROM_DUMP": "1"}
    theirs, ours = Teller(env=env), Teller()
    agent = agent_for(theirs, ours)
    agent.until(lambda s: len(s.get("nccl_bpftrace_process_info")) == 2, "both")
    for job, gpu in ((theirs, 1), (ours, 2)):
        job.comm(0, gpu=gpu)
        job.one(0, ALLREDUCE, 1 << 20, 1000, 3)
    wait_text(agent.directory, 2, "AllReduce")
    assert text_of(agent.directory, 1) is None
    agent.until(lambda s: omitted(s, "left_to_inspector") == 3, "said so")
    # a file of somebody else's that is alive is not pushed out
    other = file_of(agent.directory, 3)
    other.write_text("# another's\n")
    os.chmod(other, 0o777)
    ours.comm(1, gpu=3, comm_hash=0xdef)
    ours.one(1, ALLREDUCE, 1 << 20, 1000, 2)
    agent.fresh(2)
    assert other.read_text() == "# another's\n"
    old = time.time() - 1000
    os.utime(other, (old, old))
    ours.one(1, ALLREDUCE, 1 << 20, 1000, 2)
    nbt.wait_for(lambda: ours.one(1, ALLREDUCE, 1 << 20, 1000) or
                 "AllReduce" in text_of(agent.directory, 3), "one that is dead is replaced")


def test_directory_replaced():
    job = Teller()
    agent = agent_for(job)
    job.comm(0)
    agent.directory.rename(agent.directory.with_suffix(".old"))
    nbt.defer(nbt.shutil.rmtree, agent.directory.with_suffix(".old"))
    agent.directory.mkdir()
    job.one(0, ALLREDUCE, 1 << 20, 1000)
    wait_text(agent.directory, 0, "AllReduce")


def inspector_s_own(gpu):
    """As Inspector itself writes it: bare, GPU0 for everybody."""
    at = labels(0, "theirs", 'collective="AllReduce",message_size="8-9KB",algo_proto="TREE_LL"')
    at = at.replace(NODE, f"{NODE}-{gpu}")
    return (f"nccl_bus_bandwidth_gbs{at} 12.5\n"
            f"nccl_collective_exec_time_microseconds{at} 42\n")


def count_ours(series):
    return sum(name.startswith(("nccl_bus", "nccl_coll", "nccl_p2p")) for name, _ in series.samples)


def test_x1_inspector_s_own_file_beside_ours():
    """node_exporter loses no series of either, whatever jobs call their communicators."""
    job = Teller()
    agent = agent_for(job)
    theirs = file_of(agent.directory, 1)
    theirs.write_text(inspector_s_own(1))
    os.chmod(theirs, 0o777)
    agent.fresh()
    for number, name in enumerate(('a"b', "a\\", "é\x1b[2J", "plain", "")):
        job.comm(number, comm_hash=0xabc + number, name=name)
        job.one(number, ALLREDUCE, 1 << 20, 1000)
    job.pair(0, 1 << 20, 1000)
    text = wait_text(agent.directory, 0, "plain", "Send")
    agent.process.send_signal(signal.SIGSTOP)
    nbt.defer(agent.process.send_signal, signal.SIGCONT)
    text = text_of(agent.directory, 0)
    series = NodeExporter(agent.directory).clean_series()
    assert count_ours(series) == text.count("\n") + 2, series.samples
    assert series.one("nccl_bus_bandwidth_gbs", comm_name="theirs") == 12.5
    assert "nccl_operations_total" in series.families() or \
        "nccl_bpftrace_build_info" in series.families()


# What NVIDIA's Grafana template asks for, panel by panel.
GROUPS = [('message_size, nranks', 'n_nodes="1"'), ('message_size, nranks, n_nodes', 'n_nodes!="1"')]
PANELS = [
    f'avg by({by}) ({metric}{{cluster="$cluster", slurm_job_id="$jobid", {what}, {nodes}}})'
    for what, metrics in (
        *((f'collective="{c}"', ("nccl_bus_bandwidth_gbs",
                                 "nccl_collective_exec_time_microseconds"))
          for c in ("ReduceScatter", "AllReduce", "AllGather")),
        *((f'p2p_operation="{p}"', ("nccl_p2p_bus_bandwidth_gbs", "nccl_p2p_exec_time_microseconds"))
          for p in ("Recv", "Send")))
    for by, nodes in GROUPS for metric in metrics]


def test_all_panels_of_nvidia_s_dashboard():
    """Each of its 20 queries finds data: agent, files, node_exporter, Prometheus."""
    assert len(PANELS) == 20
    jobs = [Teller(env={**os.environ, "SLURM_JOB_ID": "12345"}) for _ in range(2)]
    agent = agent_for(*jobs, interval=2, args=("--cluster", "c1"))
    agent.until(lambda s: len(s.get("nccl_bpftrace_process_info")) == 2, "both")
    for gpu, job in enumerate(jobs):
        for number, (n_nodes, nranks) in enumerate(((1, 8), (4, 32))):
            job.comm(number, gpu=gpu, comm_hash=0xabc + number, rank=gpu, nranks=nranks,
                     n_nodes=n_nodes, name=f"group {number}")
    prometheus = Prometheus(NodeExporter(agent.directory))
    missing = set(PANELS)
    for _ in range(20):
        for job in jobs:
            for number in range(2):
                for function in (ALLREDUCE, ALLGATHER, REDUCESCATTER):
                    job.one(number, function, 1 << 20, 200000)
                job.pair(number, 1 << 20, 200000)
        for panel in sorted(missing):
            expression = panel.replace("$cluster", "c1").replace("$jobid", "12345")
            if all(value > 0 for _, value in prometheus.query(expression)) and \
                    prometheus.query(expression):
                missing.discard(panel)
        if not missing:
            break
        time.sleep(0.5)
    assert not missing, missing
    assert not [v for _, v in prometheus.query("node_textfile_scrape_error") if v]
