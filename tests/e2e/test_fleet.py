# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A job on four nodes, from its fault to who is told: agents, node_exporter, Prometheus with the rules and
alerts of grafana/, Alertmanager with its sample configuration. And what every panel and rule says of it.
"""
import os
import re
import shutil
import signal
import time
from pathlib import Path

import nbt
import panels
from fleet import GPUS, Fleet
from hook import PLUGIN
from servers import gpu_uuid
from verdicts import FaultySim

NODES = 4
JOB = "4711"
RANK_HANGS, RANK_LATE = 6, 13  # on node2, on node4
STUCK_AFTER = 5

STEP = """
    allreduce world 1048576 fp32; allgather tp 65536 fp32; reducescatter tp 65536 fp32
    synchronize
"""
# A rank does not call, until the test lets it; later one computes longer, then one does not call.
SCRIPT = f"""
    comm world config
    {"".join(f"@{i * GPUS}-{i * GPUS + GPUS - 1} comm tp config;" for i in range(NODES))}
    loop 60 {{ pause 30; {STEP} }}
    @{RANK_HANGS} stamp hangs
    @{RANK_HANGS} wait
    @{RANK_HANGS} stamp cured
    loop 60 {{ pause 30; {STEP} }}
    @0 stamp settled
    wait
    @{RANK_LATE} stamp late
    loop 150 {{ pause 30; @{RANK_LATE} pause 50; {STEP} }}
    @{RANK_HANGS} stamp hangs_again
    @{RANK_HANGS} wait
    loop 20 {{ pause 30; {STEP} }}
    wait
    @8 error tp ncclRemoteError
    @12 abort tp
    @10 kill
    @0 allreduce tp 8 fp32
    @1-3 allreduce tp 9 fp32
    @15 allreduce world 8 fp32
    @0-14 allreduce world 9 fp32
    wait
"""

# What other exporters say of a node: DCGM's gauges; counters with their labels and growth.
DCGM = {
    "DCGM_FI_DEV_GPU_UTIL": 97, "DCGM_FI_DEV_GPU_TEMP": 54, "DCGM_FI_DEV_POWER_USAGE": 612.5,
    "DCGM_FI_DEV_SM_CLOCK": 1980, "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": 21400,
    "DCGM_FI_DEV_XID_ERRORS": 0,
}
NETWORK = {
    "node_infiniband_port_data_received_bytes_total": ("mlx5_0", ',port="1"', 4e10),
    "node_infiniband_port_data_transmitted_bytes_total": ("mlx5_0", ',port="1"', 4e10),
    "node_infiniband_port_errors_received_total": ("mlx5_0", ',port="1"', 0),
    "node_infiniband_port_discards_transmitted_total": ("mlx5_0", ',port="1"', 0),
    "node_infiniband_link_downed_total": ("mlx5_0", ',port="1"', 1),
    "node_network_receive_bytes_total": ("eth0", "", 1e6),
    "node_network_transmit_bytes_total": ("eth0", "", 1e6),
}

# Expressions that need what does not happen here: lost records, more than an agent has room for, a
# type without a size, a whole node that is late; whether bandwidth falls is chance, as the machine is
# shared. grafana/tests has each of these alerts fire.
EMPTY = {
    "NCCLNetworkBandwidthDrift", "NCCLNodeBandwidthDrift",
    "nccl-agent: Calls without a size A", "nccl-agent: Records lost B", "nccl-agent: Times refused B",
    "nccl-fleet: Records lost B", "NCCLCountsWrong", "NCCLNodeLate", "NCCLProcessesUntraced",
    "NCCLRanksUnjudged", "NCCLRecordsLost", "NCCLSampleRatioLow", "NCCLSeriesSuppressed",
    "NCCLSightDegraded",
}


def outer_pids(job):
    """The pids of its ranks here: they are in a PID namespace of their own."""
    found, namespace = {}, os.readlink(f"/proc/{job.process.pid}/ns/pid_for_children")
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            pids = re.search(r"^NSpid:\t(\d+)\t(\d+)$", path.read_text(), re.M)
            is_inside = os.readlink(path.with_name("ns") / "pid") == namespace
        except OSError:
            continue
        if pids and is_inside:
            found[int(pids[2])] = int(pids[1])
    return [found[pid] for pid in job.pids]


class Story:
    """The fleet with its job, and when what happened."""

    def __init__(self):
        # Not handed over: plugins do not tell the reduction, and then there is no signature to compare.
        self.fleet = Fleet(NODES, "--stuck-after", STUCK_AFTER, "--gpu-timing-budget", 100,
                           "--handover-after", 0, rateRange="20s")
        self.job = FaultySim("".join(self.environments()) + SCRIPT, ranks=NODES * GPUS, gpu=True,
                             args=["--gpus-per-node", GPUS],
                             prefix=["unshare", "--pid", "--fork", "--kill-child",
                                     "env", f"SLURM_JOB_ID={JOB}"])
        self.job.pids = outer_pids(self.job)
        for i, node in enumerate(self.fleet.nodes):
            node.take(self.job.pids[i * GPUS:(i + 1) * GPUS])
        self.fleet.start()
        self.receiver = self.fleet.receiver
        self.wall_offset = time.time() - time.monotonic()
        self.begun = time.time()
        self.job.go()

    def environments(self):
        """Of each node's ranks: GPUs, and a plugin's file, of its own: agents share neither."""
        directory = nbt.tempdir()
        for i, node in enumerate(self.fleet.nodes):
            shutil.copy(PLUGIN, directory / f"{node.name}.so")
            ranks = f"@{i * GPUS}-{i * GPUS + GPUS - 1}"
            yield (f"{ranks} env NCCL_SIM_FIRST_GPU={node.first_gpu}\n"
                   f"{ranks} env NCCL_PROFILER_PLUGIN={directory / node.name}.so\n")

    def at(self, stamp):
        """Unix time of it; waits for it."""
        nbt.wait_for(lambda: self.job.find(stamp), f"the job to say {stamp}", 120)
        return self.job.find(stamp)[0] + self.wall_offset

    def comm(self):
        found = self.fleet.prometheus.query('group by (comm) (nccl_communicator_info{nranks="16"})')
        assert len(found) == 1, found
        return found[0][0]["comm"]


def test_right_alert_of_the_right_rank():
    """A rank that hangs is P0 and mutes the P1 of its job; each names rank and node, and resolves."""
    story = Story()
    hangs = story.at("hangs")
    who = {"job_id": JOB, "comm": story.comm()}
    behind = {**who, "alertname": "NCCLRankBehind", "rank": str(RANK_HANGS), "instance": "node2",
              "node": "node2", "priority": "P0"}
    told, receiver, labels = story.receiver.wait(since=hangs, **behind)
    assert receiver == "nccl-page", receiver
    story.job.go()
    cured = story.at("cured")
    resolved, _, _ = story.receiver.wait("resolved", since=cured, **behind)
    # The same process is waited for in its node's own communicator, where it has another rank.
    pid = str(story.job.pids[RANK_HANGS])
    for _, _, alert in story.receiver.told:
        found = alert["labels"]
        assert "rank" not in found or (found["instance"], found.get("pid")) == ("node2", pid), found
    story.at("settled")
    story.job.go()
    late = story.at("late")
    slow = {**who, "alertname": "NCCLRankLate", "rank": str(RANK_LATE), "instance": "node4",
            "node": "node4", "priority": "P1"}
    slow_told, receiver, labels = story.receiver.wait(since=late, **slow)
    assert receiver == "nccl-chat", receiver
    hangs_again = story.at("hangs_again")
    story.receiver.wait(since=hangs_again, **behind)
    check_inhibited(story, slow)
    story.job.go()
    story.receiver.wait("resolved", since=hangs_again, **behind)
    check_expressions(story)
    print(f"     hangs: told after {told - hangs:.1f} s, resolved {resolved - cured:.1f} s after the "
          f"cure; late: told after {slow_told - late:.1f} s")


def check_inhibited(story, slow):
    """Alertmanager mutes the P1 by a P0 of the job, while both fire."""
    def muted():
        return [alert for alert in story.fleet.alertmanager.alerts(**slow)
                if alert["status"]["inhibitedBy"]]

    alert = nbt.wait_for(muted, "the P1 to be muted", 30)[0]
    assert alert["status"]["state"] == "suppressed", alert
    by = {alert["fingerprint"] for alert in
          story.fleet.alertmanager.alerts(job_id=JOB, priority="P0")}
    assert set(alert["status"]["inhibitedBy"]) <= by, (alert["status"], by)


def exporters_samples(node, n):
    """Samples of what other exporters of a node say, after so many rounds."""
    lines = []
    for i in range(GPUS):
        labels = (f'{{gpu="{i}",UUID="{gpu_uuid(node.first_gpu + i)}",device="nvidia{i}",'
                  f'modelName="NVIDIA H200",Hostname="{node.name}"}}')
        lines += [f"{name}{labels} {value}" for name, value in DCGM.items()]
    lines += [f'{name}{{device="{device}"{port}}} {n * step}'
              for name, (device, port, step) in NETWORK.items()]
    return "\n".join(lines) + "\n"


def break_things(story):
    """Errors, an abort, a death, disagreement: and agents that die, go, and are refused."""
    nodes = story.fleet.nodes
    story.job.go()
    for n in range(1, 4):
        for node in nodes:
            node.add_file("other.prom", exporters_samples(node, n))
        nodes[0].agent.fresh(2)
    nodes[0].agent.stop(signal.SIGKILL)
    nodes[1].agent.stop()
    nodes[1].agent.file.unlink()
    nodes[2].add_file("bad.prom", "not a metric\n")
    for name in ("NCCLAgentStale", "NCCLAgentGone", "NCCLTextfileRefused", "NCCLRankVanished",
                 "NCCLCommunicatorFailed", "NCCLMismatch", "NCCLMismatchAcrossNodes"):
        nbt.wait_for(lambda name=name: story.fleet.prometheus.query(
            f'ALERTS{{alertname="{name}"}}'), name, 60, 0.2)


def check_expressions(story):
    """Every expression of panels and rules has had data in the story, but for those of EMPTY."""
    break_things(story)
    rendered = story.fleet.rendered
    expressions = {f"{p.dashboard}: {p.title} {p.ref}": p.expr for p in panels.queries(rendered)}
    expressions |= dict(panels.rules(rendered))
    empty = set(expressions)

    def look():
        for name in sorted(empty):
            if story.fleet.prometheus.ask("query_range", query=expressions[name], step=1,
                                          start=story.begun, end=time.time())["result"]:
                empty.discard(name)
        return empty <= EMPTY

    try:
        nbt.wait_for(look, "", 60, 0.5)
    except AssertionError:
        raise AssertionError(f"no data: {empty - EMPTY}") from None
    print(f"     {len(expressions) - len(empty)} of {len(expressions)} expressions had data")
