# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A PyTorch job for the GPU tests: torchrun tests/gpu/torch_job.py DIR STEPS [eager|lazy].

Trains nothing: it calls collectives, counts its own calls, and stops twice to be looked at. Ranks
meet through files in DIR, never through collectives, so that every NCCL call is one it counts.
    ready.<rank>   the world communicator is made and warm
    go             (from the test) the tracer is attached: go on
    done.<rank>    JSON: what this rank called since `go`, by group and operation
    end            (from the test) end
"""
import json
import os
import sys
from collections import Counter

import torch
import torch.distributed as dist

from meeting import say, together, wait

STEPS = int(sys.argv[2])
EAGER = len(sys.argv) > 3 and sys.argv[3] == "eager"
calls = Counter()


def step(group, name, numel):
    """One of each; `name` is the group's name in the account."""
    n, rank = dist.get_world_size(group), dist.get_rank(group)
    x = torch.ones(numel, device="cuda")
    many = torch.empty(numel * n, device="cuda")
    dist.all_reduce(x, group=group)
    dist.all_gather_into_tensor(many, x, group=group)
    dist.reduce_scatter_tensor(x, many, group=group)
    dist.broadcast(x, src=dist.get_global_rank(group, 0), group=group)
    dist.all_to_all_single(torch.empty_like(many), many, group=group)
    peer = dist.get_global_rank(group, (rank + 1) % n)
    y = torch.empty_like(x)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, x, peer, group),
                                        dist.P2POp(dist.irecv, y, peer, group)]):
        work.wait()
    for operation in ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all",
                      "send", "recv"):
        calls[name, operation] += 1


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    device = torch.device("cuda", local)
    dist.init_process_group("nccl", **({"device_id": device} if EAGER else {}))
    world = dist.group.WORLD
    for _ in range(100):
        step(world, "world", 1024)
    torch.cuda.synchronize()
    say("ready")
    wait("go")
    calls.clear()
    for _ in range(STEPS):
        step(world, "world", 1 << 12)
    fresh = dist.new_group(list(range(dist.get_world_size())))
    for _ in range(STEPS):
        step(fresh, "new_group", 1 << 10)
    if EAGER:
        part = dist.split_group(split_ranks=[list(range(dist.get_world_size()))])
        for _ in range(STEPS):
            step(part, "split", 1 << 8)
    for _ in range(2000):
        dist.all_reduce(torch.ones(8, device="cuda"))
    calls["world", "all_reduce"] += 2000
    torch.cuda.synchronize()
    together("drained")
    say("done", json.dumps({f"{g}/{o}": n for (g, o), n in calls.items()}))
    wait("end")
    dist.destroy_process_group()


main()
