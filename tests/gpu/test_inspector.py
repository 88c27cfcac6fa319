# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The same job once with NVIDIA Inspector in Prometheus mode, once with this project's plugin and
tracer: do both files say the same? NCCL_INSPECTOR_NCCL names the libnccl.so.2 that Inspector was made
for: that of 2.30.7 told nothing of Send and Recv with NCCL 2.28.9."""
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "bpf")]
import gpu  # noqa: E402
import nccl_tests  # noqa: E402
import test_plugin as hook  # noqa: E402

LINE = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
LABEL = re.compile(r'(\w+)="([^"]*)"')
TIME = ("nccl_collective_exec_time_microseconds", "nccl_p2p_exec_time_microseconds")


class Job:
    def __init__(self, seconds, **environment):
        self.directory = nbt.tempdir()
        nccl = os.environ.get("NCCL_INSPECTOR_NCCL")
        preload = {"LD_PRELOAD": nccl} if nccl else {}
        self.log = open(self.directory / "log", "w")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
             HERE / "sizes_job.py", self.directory, str(seconds)], stdin=subprocess.DEVNULL,
            stdout=self.log, stderr=self.log,
            env=dict(os.environ, OMP_NUM_THREADS="1", **preload, **environment))
        nbt.defer(nbt.end, self.process)

    def wait(self, name, seconds=120):
        nbt.wait_for(lambda: all((self.directory / f"{name}.{r}").exists() for r in (0, 1)),
                     name, seconds, 0.05)

    def end(self):
        (self.directory / "end").touch()
        assert self.process.wait(60) == 0, (self.directory / "log").read_text()[-2000:]

    def kill(self):
        """At once: Inspector waits at the end for its thread that sleeps up to its dump interval."""
        self.process.kill()
        for path in self.directory.glob("ready.*"):
            os.kill(int(path.read_text()), signal.SIGKILL)


def read(directory):
    """({file: label names in order}, {(metric, operation, size, algorithm, GPU): value})"""
    order, values = {}, {}
    for path in sorted(Path(directory).glob("nccl_inspector_metrics_*.prom")):
        for line in path.read_text().splitlines():
            found = LINE.match(line)
            assert found, line
            labels = LABEL.findall(found[2])
            order.setdefault(path.name, set()).add((found[1], tuple(n for n, _ in labels)))
            of = dict(labels)
            values[found[1], of.get("collective") or of["p2p_operation"], of["message_size"],
                   of.get("algo_proto", ""), of["gpu"]] = float(found[3])
    return order, values


def theirs():
    directory = nbt.tempdir()
    job = Job(34, NCCL_PROFILER_PLUGIN=nccl_tests.inspector(), NCCL_INSPECTOR_ENABLE="1",
              NCCL_INSPECTOR_PROM_DUMP="1", NCCL_INSPECTOR_DUMP_DIR=str(directory),
              NCCL_INSPECTOR_DUMP_THREAD_INTERVAL_MICROSECONDS="30000000")
    job.wait("done")
    time.sleep(0.5)
    found = read(directory)
    job.kill()
    return found


def ours():
    job = Job(12, NCCL_PROFILER_PLUGIN=str(hook.PLUGIN))
    job.wait("ready")
    agent = nbt.Agent("--no-ui", "--gpu-timing-budget", "5", interval=8)
    job.wait("done")
    agent.fresh()
    found = read(agent.directory)
    job.end()
    return found


def test_same_files_as_inspector():
    gpu.need_gpus(2)
    nccl_tests.inspector()
    order, reference = theirs()
    our_order, values = ours()
    assert order and our_order == order, (order, our_order)
    rows, far = [], []
    for key in sorted(set(reference) | set(values)):
        a, b = reference.get(key), values.get(key)
        ratio = b / a if a and b else None
        if key[0] in TIME and key[4] == "GPU0":
            rows.append((*key[1:4], a, b, f"{ratio:.3f}" if ratio else "-"))
        if not ratio or (key[0] in TIME and not 0.97 <= ratio <= 1.03):
            far.append((key, a, b))
    gpu.table(("operation", "message_size", "algo_proto", "Inspector, µs", "ours, µs", "ratio"),
              rows)
    for what in far:
        print("differs:", *what)
    assert {key[:3] for key in reference} == {key[:3] for key in values}
