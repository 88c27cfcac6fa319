# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torchrun tests/gpu/ddp_job.py DIR: DistributedDataParallel training, a round of steps per file
round.<n>; rank 0 answers with times.<n>: {"seconds", "cpu"} of the round, all ranks' CPU summed."""
import json
import os
import resource
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

DIR, STEPS = Path(sys.argv[1]), 25


def cpu():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    gate = dist.new_group(backend="gloo")
    layers = [torch.nn.Linear(4096, 4096) for _ in range(12)]
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*layers).to(device))
    optimizer = torch.optim.SGD(model.parameters(), 1e-6)
    x = torch.randn(2048, 4096, device=device)

    def steps(count):
        for _ in range(count):
            optimizer.zero_grad()
            model(x).square().mean().backward()
            optimizer.step()
        torch.cuda.synchronize()

    steps(30)
    (DIR / f"ready.{dist.get_rank()}").touch()
    number = 0
    while not (DIR / "end").exists():
        if not (DIR / f"round.{number}").exists():
            time.sleep(0.005)
            continue
        dist.barrier(gate)
        used, start = cpu(), time.perf_counter()
        steps(STEPS)
        seconds = time.perf_counter() - start
        total = torch.tensor([cpu() - used])
        dist.all_reduce(total, group=gate)
        if dist.get_rank() == 0:
            half = DIR / f"times.{number}.tmp"
            half.write_text(json.dumps({"seconds": seconds, "cpu": total.item()}))
            half.rename(DIR / f"times.{number}")
        number += 1
    dist.destroy_process_group()


main()
