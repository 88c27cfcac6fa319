# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torchrun tests/gpu/sizes_job.py DIR SECONDS: collectives and a send/receive pair of four sizes, in
blocks of 20 back to back, over and over; ready.<rank> once all were called."""
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

DIR, SECONDS = Path(sys.argv[1]), float(sys.argv[2])
SIZES = [1 << 16, 1 << 20, 1 << 24, 1 << 26]


def main():
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", device_id=device)
    gate = dist.new_group(backend="gloo")
    n, rank = dist.get_world_size(), dist.get_rank()
    peer = (rank + 1) % n
    one = torch.ones(SIZES[-1] // 4, device=device)
    many = torch.ones(n * SIZES[-1] // 4, device=device)
    other = torch.empty_like(one)

    def pair(x):
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer),
                                            dist.P2POp(dist.irecv, other[:x.numel()], peer)]):
            work.wait()

    calls = (
        dist.all_reduce,
        lambda x: dist.all_gather_into_tensor(many[:n * x.numel()], x),
        lambda x: dist.reduce_scatter_tensor(x, many[:n * x.numel()]),
        lambda x: dist.broadcast(x, src=0),
        pair,
    )

    def once():
        for call in calls:
            for size in SIZES:
                x = one[:size // 4]
                for _ in range(20):
                    call(x)
                torch.cuda.synchronize()
                dist.barrier(gate)

    once()
    (DIR / f"ready.{rank}").write_text(str(os.getpid()))
    start = time.monotonic()
    over = torch.zeros(1)
    while not over.item():
        once()
        over[0] = time.monotonic() - start > SECONDS
        dist.broadcast(over, src=0, group=gate)
    (DIR / f"done.{rank}").touch()
    while not (DIR / "end").exists():
        time.sleep(0.02)
    dist.destroy_process_group()


main()
