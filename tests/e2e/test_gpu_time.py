# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""GPU times from the real plugin, over a stand-in CUDA driver, to the file and Prometheus."""
import time

import nbt
from loader import Agent
from plugged import Plugged
import servers
from servers import NodeExporter, Prometheus, promtool

KERNEL_S = 20e-6  # what the stand-in's kernels take
LAUNCHES = 300
BUS_BYTES = 1000 * 4 * 2 * 7 / 8  # 8 ranks, on two nodes
LABELS = {"operation": "AllReduce", "size": "lt64KiB", "algorithm": "RING", "protocol": "SIMPLE",
          "scope": "network"}


def timed(agent, n, **labels):
    """The series once n operations were timed."""
    series = agent.until(lambda s: s.sum("nccl_timed_operations_total", **labels) >= n,
                         f"{n} timed operations")
    assert series.sum("nccl_timed_operations_total", **labels) == n
    return series


def test_every_launch_is_timed_once():
    job = Plugged()
    agent = Agent("--pid", job.pid, "--gpu-timing-budget", "100")
    job.wait_awake()
    agent.fresh()
    job.do("launch 10")  # the first ones find no CUDA events yet
    agent.until(lambda s: s.get("nccl_communicator_info") or job.control().n_launches >= 10, "10")
    before = job.control()
    job.do(f"launch {LAUNCHES}")
    nbt.wait_for(lambda: job.control().n_launches == before.n_launches + LAUNCHES, "the launches")
    n = job.control().n_timed
    assert n - before.n_timed > LAUNCHES / 2, (before, job.control())
    series = timed(agent, n)
    (labels, _), = series.get("nccl_timed_operations_total")
    assert LABELS.items() <= labels.items(), labels
    seconds = series.sum("nccl_timed_seconds_total")
    assert 0.9 < seconds / n / KERNEL_S < 3, seconds / n
    assert series.sum("nccl_timed_bus_bytes_total") == n * BUS_BYTES
    assert series.sum("nccl_operation_duration_seconds_count") == n
    assert series.one("nccl_operation_duration_seconds_bucket", le="+Inf") == n
    assert series.sum("nccl_bpftrace_events_lost_total") == 0
    # each call was found: its delay is known wherever the clocks were compared well enough
    assert 0 < series.sum("nccl_operation_queue_seconds_count") <= n
    assert series.sum("nccl_bpftrace_invalid_timings_total") == 0
    assert promtool(agent.file.read_text()) == ""
    job.stop()
    agent.until(lambda s: not s.get("nccl_timed_operations_total"), "the job's end")


def test_a_short_job_leaves_its_figures():
    """Begun and ended between two writes."""
    agent = servers.agent("--gpu-timing-budget", "100", interval=6)
    agent.fresh()
    job = Plugged()
    job.wait_awake()
    job.do("launch 500")
    job.do("end")
    time.sleep(0.1)  # what waits in the plugin is handed over within some milliseconds
    n = job.control().n_timed
    job.stop()
    series = agent.fresh()
    assert n > 0 and series.sum("nccl_timed_operations_total") == n
    assert not agent.fresh().get("nccl_timed_operations_total")


def test_bandwidth_in_prometheus():
    job = Plugged()
    agent = Agent("--pid", job.pid, "--gpu-timing-budget", "100")
    job.wait_awake()
    prometheus = Prometheus(NodeExporter(agent.directory))
    job.do("busy")
    query = ("sum by (operation, size) (rate(nccl_timed_bus_bytes_total[6s])) / "
             "sum by (operation, size) (rate(nccl_timed_seconds_total[6s]))")
    nbt.wait_for(lambda: [v for _, v in prometheus.query(query) if v > 0], "a bandwidth", 30)
    (labels, bandwidth), = prometheus.query(query)
    assert labels == {"operation": "AllReduce", "size": "lt64KiB"}, labels
    assert BUS_BYTES / KERNEL_S / 3 < bandwidth < BUS_BYTES / KERNEL_S * 1.1, bandwidth
    median, = prometheus.query("histogram_quantile(0.5, sum by (le) "
                               "(rate(nccl_operation_duration_seconds_bucket[6s])))")
    assert 1e-5 < median[1] <= 2e-4, median
    job.do("calm")
