# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torchrun tests/gpu/cost_job.py DIR: times all_reduce of 8 bytes and of 2 MB, a round per file round.<n>."""
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

DIR, CALLS = Path(sys.argv[1]), 2000


def round_of(tensor):
    """Microseconds a call: on the host alone, and until the GPU has done all."""
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(CALLS):
        dist.all_reduce(tensor)
    queued = time.perf_counter() - start
    torch.cuda.synchronize()
    return queued / CALLS * 1e6, (time.perf_counter() - start) / CALLS * 1e6


def main():
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    tensors = {"8 B": torch.ones(2, device="cuda"), "2 MB": torch.ones(1 << 19, device="cuda")}
    for tensor in tensors.values():
        round_of(tensor)
    (DIR / f"ready.{dist.get_rank()}").touch()
    number = 0
    while not (DIR / "end").exists():
        if not (DIR / f"round.{number}").exists():
            time.sleep(0.005)
            continue
        times = {name: round_of(tensor) for name, tensor in tensors.items()}
        if dist.get_rank() == 0:
            half = DIR / f"times.{number}.tmp"
            half.write_text(json.dumps(times))
            half.rename(DIR / f"times.{number}")
        number += 1
    dist.destroy_process_group()


main()
