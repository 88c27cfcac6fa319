# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the GPU tests share: is there a GPU, a PyTorch job, and the truth as NCCL and the driver log it."""
import json
import math
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

import nbt

HERE = Path(__file__).resolve().parent
table = nbt.table


def need_gpus(count):
    if not shutil.which("nvidia-smi"):
        nbt.skip("no NVIDIA GPU here (no nvidia-smi)")
    listed = subprocess.run(["nvidia-smi", "-L"], text=True, capture_output=True).stdout
    found = len(re.findall(r"^GPU \d+:", listed, re.M))
    if found < count:
        nbt.skip(f"needs {count} GPUs, {found} here")
    if subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode:
        nbt.skip("PyTorch is not installed")


def uuids():
    """{bus id as NCCL logs it, 'dc000': UUID} by nvidia-smi."""
    out = subprocess.run(["nvidia-smi", "--query-gpu=pci.bus_id,uuid", "--format=csv,noheader"],
                         text=True, capture_output=True, check=True).stdout
    found = {}
    for line in out.splitlines():
        bus, uuid = (part.strip() for part in line.split(","))
        domain, number, device = bus.lower().split(":")
        slot, function = device.split(".")
        key = int(domain, 16) << 20 | int(number, 16) << 12 | int(slot, 16) << 4 | int(function, 16)
        found[f"{key:x}"] = uuid
    return found


class TorchJob:
    """torchrun of torch_job.py or another of its kind, stopped at `ready` when the constructor returns."""

    def __init__(self, ranks, steps, mode, environment=(), seconds=180,
                 program="torch_job.py", ready=True):
        self.directory = nbt.tempdir()
        self.ranks = ranks
        env = dict(os.environ, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT",
                   NCCL_DEBUG_FILE=str(self.directory / "nccl.%p.log"), OMP_NUM_THREADS="1", NCCL_BPFTRACE_JOB=program,
                   **dict(environment))
        self.log = nbt.Log("the job")
        self.process = subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--standalone",
             f"--nproc-per-node={ranks}", HERE / "launch.py", self.directory, str(steps), mode],
            stdout=self.log, stderr=self.log, env=env, stdin=subprocess.DEVNULL)
        nbt.defer(nbt.end, self.process)
        if ready:
            self.wait("ready", seconds)

    def wait(self, name, seconds=180):
        def there():
            if self.process.poll() is not None:
                raise AssertionError(f"the job ended: {self.output()}")
            return all((self.directory / f"{name}.{r}").exists() for r in range(self.ranks))
        nbt.wait_for(there, f"{name} of every rank", seconds, 0.05)

    def tell(self, name):
        (self.directory / name).touch()

    def accounts(self):
        """[{'group/operation': calls}] by rank."""
        return [json.loads((self.directory / f"done.{r}").read_text()) for r in range(self.ranks)]

    def output(self):
        return self.log.read()[-4000:]

    COMPLETE = re.compile(r"NCCL INFO (\S+) comm (0x[0-9a-f]+) rank (\d+) n[Rr]anks (\d+) .*?"
                          r"busId ([0-9a-f]+) (?:commId (0x[0-9a-f]+))?.*Init COMPLETE")

    def communicators(self):
        """What NCCL itself logged of each communicator, with the logging pid. NCCL logs the hash of
        one made from an id only: it is "" for one that was split off."""
        found = []
        for path in sorted(self.directory.glob("nccl.*.log")):
            for line in path.read_text(errors="replace").splitlines():
                match = self.COMPLETE.search(line)
                if match:
                    found.append(dict(pid=path.name.split(".")[1], made_by=match[1], rank=match[3],
                                      nranks=match[4], bus=match[5],
                                      hash=f"{int(match[6], 16):016x}" if match[6] else ""))
        return found


def interval(values):
    """Median and its distribution-free interval of 95 % or more (binomial order statistics)."""
    values = sorted(values)
    n, k = len(values), 0
    while 2 * sum(math.comb(n, i) for i in range(k + 1)) / 2 ** n <= 0.05:
        k += 1
    k = max(k - 1, 0)
    return statistics.median(values), values[k], values[n - 1 - k]


def ratio_text(values):
    return "{:.3f} ({:.3f}–{:.3f})".format(*interval(values))


def now():
    return time.monotonic()
