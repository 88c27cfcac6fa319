# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A PyTorch job of CUDA graphs, with files in DIR as torch_job.py has them.

Before `ready` one graph is captured that the tracer cannot know; after `go` two that it can, one of
them twice. `done.<rank>` is the account: {mode: {operation: calls}}, and launches of the first.
"""
import json
import os

import torch
import torch.distributed as dist

from meeting import say, wait

OLD, ONE, MANY, AGAIN = 7, 100, 11, 5  # replays


def capture(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        work()
    return graph


def replay(graph, times):
    for _ in range(times):
        graph.replay()
    torch.cuda.synchronize()


def main():
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    n = dist.get_world_size()
    x = torch.ones(1 << 12, device="cuda")
    many = torch.empty(n << 12, device="cuda")

    def one():
        dist.all_reduce(x)

    def several():
        for _ in range(3):
            dist.all_reduce(x)
        dist.all_gather_into_tensor(many, x)
        dist.reduce_scatter_tensor(x, many)

    for _ in range(3):
        one()
        several()
    torch.cuda.synchronize()
    old = capture(one)
    say("ready")
    wait("go")
    one()
    first, second = capture(one), capture(several)
    replay(first, ONE)
    replay(second, MANY)
    replay(old, OLD)
    del first
    again = capture(one)
    replay(again, AGAIN)
    one()
    torch.cuda.synchronize()
    x.fill_(1)
    torch.cuda.synchronize()
    second.replay()
    torch.cuda.synchronize()
    assert x[0].item() == n ** 3 * n, x[0].item()  # a replay does what was captured
    captured = {"AllReduce": 2 + 3, "AllGather": 1, "ReduceScatter": 1}
    replayed = {"AllReduce": ONE + AGAIN + 3 * (MANY + 1), "AllGather": MANY + 1,
                "ReduceScatter": MANY + 1}
    say("done", json.dumps({"launched": {"AllReduce": 2}, "captured": captured,
                            "replayed": replayed, "unresolved": OLD}))
    wait("end")
    del old, second, again  # NCCL destroys no communicator that a graph still uses
    torch.cuda.synchronize()
    dist.destroy_process_group()


main()
