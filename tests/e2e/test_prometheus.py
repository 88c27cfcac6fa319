# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The whole way: agent, textfile, node_exporter, Prometheus, and what a query then says."""
import collections
import os
import re
import signal

import nbt
import servers
from servers import NodeExporter, Prometheus

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
WINDOW = "6s"


def traced(ranks, script):
    """(agent, Prometheus) with a job of the script under way."""
    agent = servers.agent()
    sim = servers.sim(script, ranks=ranks)
    agent.until(lambda s: s.one("nccl_bpftrace_processes", state="traced") == ranks, "the job")
    prometheus = Prometheus(NodeExporter(agent.directory))
    sim.go()
    return agent, sim, prometheus


def test_rate_is_the_job_s_own():
    """A job of 100 calls a second per rank has a rate of about 100 per rank, and 400 bytes each."""
    _, _, prometheus = traced(
        2, "comm world config; loop forever { rate 100; allreduce world 100 fp32 }")
    # the window must be full: a rate that is still growing passes through every value
    nbt.wait_for(lambda: len([1 for _, n in prometheus.query(
        f"count_over_time(nccl_operations_total[{WINDOW}])") if n >= 11]) == 2, "a full window", 30)
    rates = prometheus.query(f"rate(nccl_operations_total[{WINDOW}])")
    assert {labels["rank"] for labels, _ in rates} == {"0", "1"}, rates
    for labels, rate in rates:
        assert 75 < rate < 125, (labels, rate)
    for labels, size in prometheus.query(f"rate(nccl_operation_bytes_total[{WINDOW}]) / "
                                         f"rate(nccl_operations_total[{WINDOW}])"):
        assert abs(size - 400) < 1, (labels, size)


def test_no_series_is_lost_on_the_way():
    """As many series of each name in Prometheus as in the file."""
    agent, sim, prometheus = traced(
        4, "comm world config; split half world 2; allreduce world 100 fp32 x 3; "
           "broadcast half 9 int8; allgather world 8 fp16; reducescatter half 8 fp64")
    sim.wait_done()
    agent.until(lambda s: s.sum("nccl_operations_total") == 24 and
                len(s.get("nccl_communicator_info")) == 8, "the job")
    agent.fresh()
    series = agent.series()
    counts = collections.Counter(name for name, _ in series.samples)

    def there():
        return {labels["__name__"]: n for labels, n in
                prometheus.query('count by (__name__) ({__name__=~"nccl_.*"})')}

    nbt.wait_for(lambda: there() == counts, f"{counts}; there were: {there()}")
    for labels, value in prometheus.query("nccl_operations_total"):
        assert value == series.one("nccl_operations_total", comm=labels["comm"],
                                   rank=labels["rank"], operation=labels["operation"])
    assert prometheus.query("node_textfile_scrape_error")[0][1] == 0


def test_idle_job_ages_visibly():
    """X7: the last call's time stands still, its age grows, and no rate is left."""
    agent, sim, prometheus = traced(1, "comm world config; loop 150 { rate 100; "
                                       "allreduce world 100 fp32 }")
    sim.wait_done()
    ended = agent.fresh().one("nccl_last_operation_timestamp_seconds")
    age = "time() - nccl_last_operation_timestamp_seconds"
    first = nbt.wait_for(lambda: prometheus.query(f"{age} > 2"), "an age of 2 s", 20)[0][1]
    nbt.wait_for(lambda: prometheus.query(f"{age} > {first} + 4"), "an age of 4 s more", 20)
    assert abs(prometheus.query("nccl_last_operation_timestamp_seconds")[0][1] - ended) < 0.001
    nbt.wait_for(lambda: prometheus.query("rate(nccl_operations_total[4s])") and
                 prometheus.query("rate(nccl_operations_total[4s])")[0][1] == 0, "a rate of 0")
    stood = prometheus.query("changes(nccl_last_operation_timestamp_seconds[4s])")
    assert [value for _, value in stood] == [0], stood


def test_dead_agent_is_seen():
    """After SIGKILL the heartbeat stands still and ages; the old values are still served."""
    agent, _, prometheus = traced(1, "comm world config; loop forever { rate 100; "
                                     "allreduce world 100 fp32 }")
    nbt.wait_for(lambda: prometheus.query("nccl_operations_total"), "the job")
    os.kill(agent.pid, signal.SIGKILL)
    agent.process.wait()
    nbt.wait_for(lambda: prometheus.query(
        "time() - nccl_bpftrace_heartbeat_timestamp_seconds > 3"), "an old heartbeat", 20)
    assert prometheus.query("nccl_operations_total")


DCGM_LABELS = ('gpu="{gpu}",UUID="{uuid}",pci_bus_id="00000000:{bus:02X}:00.0",device="nvidia{gpu}",'
               'modelName="NVIDIA H100 80GB HBM3",Hostname="node1",'
               'DCGM_FI_DRIVER_VERSION="550.54.15"')
DCGM_HEADS = {
    "DCGM_FI_DEV_GPU_UTIL": "GPU utilization (in %).",
    "DCGM_FI_DEV_GPU_TEMP": "GPU temperature (in C).",
}


def dcgm_file(directory, more):
    """As DCGM exporter writes of two GPUs. more: {GPU: [further labels, one for each copy]}"""
    lines = []
    for number, (name, help_text) in enumerate(DCGM_HEADS.items()):
        lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge"]
        for gpu, copies in more.items():
            labels = DCGM_LABELS.format(gpu=gpu, uuid=servers.gpu_uuid(gpu), bus=0x10 + 8 * gpu)
            lines += [f"{name}{{{labels}{copy}}} {40 + 10 * number + gpu}" for copy in copies]
    (directory / "dcgm.prom.new").write_text("\n".join(lines) + "\n")
    (directory / "dcgm.prom.new").rename(directory / "dcgm.prom")


def joined(more):
    """A job of two ranks, one a GPU, beside DCGM exporter's series: (pids by GPU, Prometheus)."""
    agent = servers.agent(preexec_fn=servers.fake_gpus(2))
    dcgm_file(agent.directory, more)
    sim = servers.sim("comm world config; allreduce world 100 fp32", ranks=2)
    sim.run()
    agent.until(lambda s: {l["UUID"] for l, _ in s.get("nccl_bpftrace_process_info")} ==
                {servers.gpu_uuid(0), servers.gpu_uuid(1)}, "both GPUs", 60)
    node_exporter = NodeExporter(agent.directory)
    node_exporter.clean_series()
    prometheus = Prometheus(node_exporter)
    nbt.wait_for(lambda: len(prometheus.query("nccl_bpftrace_process_info")) == 2, "both ranks", 60)
    return {e["rank"]: e["pid"] for e in sim.expected()}, prometheus


def expect_joined(more, clashes):
    """README's join gives each rank its GPU's figures, where a plain one may be refused."""
    pids, prometheus = joined(more)
    readme = (nbt.ROOT / "README.md").read_text()
    join = re.search(r"^(nccl_bpftrace_process_info \* .*DCGM.*)$", readme, re.M)[1]
    assert "DCGM_FI_DEV_GPU_UTIL" in join, join
    for number, name in enumerate(DCGM_HEADS):
        found = {(labels["pid"], labels["UUID"]): value for labels, value in
                 prometheus.query(join.replace("DCGM_FI_DEV_GPU_UTIL", name))}
        assert found == {(pids["0"], servers.gpu_uuid(0)): 40 + 10 * number,
                         (pids["1"], servers.gpu_uuid(1)): 41 + 10 * number}, (found, pids)
    try:
        prometheus.query("nccl_bpftrace_process_info * on (UUID) group_left () "
                         "DCGM_FI_DEV_GPU_UTIL")
    except AssertionError as error:
        assert clashes and "422" in str(error), error
    else:
        assert not clashes, "these were to be series that a plain join refuses"


def test_join_with_dcgm():
    expect_joined({0: [""], 1: [""]}, clashes=False)


def test_join_with_dcgm_s_series_for_each_hpc_job():
    expect_joined({0: [',hpc_job="1234"', ',hpc_job="1235"'], 1: [',hpc_job="1234"']},
                  clashes=True)


def test_join_with_dcgm_s_series_for_each_pod():
    expect_joined({gpu: [f',pod="{pod}",namespace="research",container="main"'
                         for pod in ("llm-0", "llm-1")] for gpu in (0, 1)}, clashes=True)
