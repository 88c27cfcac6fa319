# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""torchrun tests/gpu/hurt_job.py DIR SCENARIO: what could go wrong with a profiler plugin in a job.

Each rank makes ready.<rank> (its pid) when NCCL is warm, waits for `go`, does the scenario, and
writes what it found to done.<rank> as JSON; then it waits for `end`. A scenario that finds a wrong
result raises, and torchrun ends with an error.
"""
import ctypes
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

DIR = Path(sys.argv[1])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PATIENCE = 35  # seconds for a scenario that repeats itself


def wait(name):
    deadline = time.monotonic() + 120
    while not (DIR / name).exists():
        if time.monotonic() > deadline:
            sys.exit(f"nobody made {name}")
        time.sleep(0.01)


def say(name, text=""):
    half = DIR / f"{name}.{RANK}.tmp"
    half.write_text(text)
    half.rename(DIR / f"{name}.{RANK}")


def cost():
    """Resident memory in KiB, descriptors, threads."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {"kib": pages * os.sysconf("SC_PAGE_SIZE") // 1024,
            "fds": len(os.listdir("/proc/self/fd")), "threads": len(os.listdir("/proc/self/task"))}


def agreed(value):
    """All ranks go on, or none: by the first rank's word."""
    tensor = torch.tensor([int(value)], device="cuda")
    dist.broadcast(tensor, 0)
    return bool(tensor.item())


def repeat(count, step):
    """`count` times, or as often as there is time for."""
    start, done = time.monotonic(), 0
    while done < count and agreed(time.monotonic() - start < PATIENCE):
        step(done)
        done += 1
    return done


def replays(graph, out, value):
    for _ in range(100):
        graph.replay()
        torch.cuda.synchronize()
        assert bool((out == value).all()), f"replay gave {out[0].item()}, not {value}"


read_by_graphs = []


def captured(size):
    """A graph of two all_reduce and what lies between, captured so that any unsafe call of any
    thread breaks it. Not by torch.cuda.graph(), which first waits for all that is under way."""
    x = torch.ones(size, device="cuda")
    out = torch.empty_like(x)
    read_by_graphs.append(x)  # it lies outside of the graph's own memory
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(capture_error_mode="global")
        y = x * 2
        dist.all_reduce(y)
        z = y + 1
        dist.all_reduce(z)
        out.copy_(z)
        time.sleep(0.03)  # the plugin's thread looks at its events every 5 ms
        graph.capture_end()
    return graph, out, float((2 * RANKS + 1) * RANKS)


def graph_replays():
    graph, out, value = captured(1 << 16)
    replays(graph, out, value)
    for _ in range(200):
        dist.all_reduce(torch.ones(1 << 16, device="cuda"))
        time.sleep(0.0005)
    replays(graph, out, value)
    return {"replays": 200}


def capture_while_pending():
    """Launches that are timed wait behind a sleeping kernel while graphs are captured."""
    pending = torch.ones(1 << 20, device="cuda")
    behind = torch.cuda.Event()
    captures, still_pending = 0, 0
    start = time.monotonic()
    while captures < 20 and agreed(time.monotonic() - start < PATIENCE):
        torch.cuda.synchronize()
        torch.cuda._sleep(1_000_000_000)  # about half a second
        for _ in range(10):
            dist.all_reduce(pending)
            time.sleep(0.001)
        behind.record()
        graph, out, value = captured(1 << 12)
        captures += 1
        still_pending += not behind.query()
        if captures % 5 == 1:
            replays(graph, out, value)
    replays(graph, out, value)
    return {"captures": captures, "still_pending": still_pending}


def new_group():
    return dist.new_group(list(range(RANKS)), backend="nccl")


def destroy_in_flight():
    big = torch.ones(1 << 26, device="cuda")

    def step(_):
        group = new_group()
        for _ in range(20):
            dist.all_reduce(big, group=group, async_op=True)
        dist.destroy_process_group(group)

    return {"destroyed": repeat(50, step)}


def abort_in_flight():
    """One rank alone has called: its kernels wait for ever, until both abort."""
    big = torch.ones(1 << 22, device="cuda")
    stream = torch.cuda.Stream()

    def step(i):
        group = new_group()
        dist.all_reduce(big, group=group)
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            if RANK == i % RANKS:
                for _ in range(5):
                    dist.all_reduce(big, group=group, async_op=True)
        time.sleep(0.02)
        dist.distributed_c10d._abort_process_group(group)

    return {"aborted": repeat(50, step)}


class Nccl:
    """The library as the job has it, without PyTorch's process groups: two ranks in one process."""

    def __init__(self):
        self.library = ctypes.CDLL("libnccl.so.2")
        self.devices = (ctypes.c_int * 2)(0, 1)
        self.data = [torch.ones(1 << 16, device=f"cuda:{d}") for d in range(2)]
        self.streams = [[torch.cuda.Stream(device=d) for _ in range(2)] for d in range(2)]

    def check(self, result):
        assert result == 0, f"NCCL says {result}"

    def make(self):
        comms = (ctypes.c_void_p * 2)()
        self.check(self.library.ncclCommInitAll(comms, 2, self.devices))
        return list(comms)

    def all_reduce(self, comms, which):
        self.check(self.library.ncclGroupStart())
        for d in range(2):
            p = ctypes.c_void_p(self.data[d].data_ptr())
            stream = ctypes.c_void_p(self.streams[d][which].cuda_stream)
            self.check(self.library.ncclAllReduce(p, p, ctypes.c_size_t(1 << 16), 7, 2,
                                                  ctypes.c_void_p(comms[d]), stream))
        self.check(self.library.ncclGroupEnd())

    def destroy(self, comms):
        for comm in comms:
            self.check(self.library.ncclCommDestroy(ctypes.c_void_p(comm)))


def two_communicators():
    """Two on each GPU, made and destroyed again and again; work of both under way at one time.
    ncclMax (2) leaves the data as it is."""
    nccl = Nccl()

    def step():
        first, second = nccl.make(), nccl.make()
        for _ in range(10):
            nccl.all_reduce(first, 0)
            nccl.all_reduce(second, 1)
        torch.cuda.synchronize(0)
        torch.cuda.synchronize(1)
        nccl.destroy(first)
        nccl.destroy(second)

    for _ in range(10):
        step()
    asleep, n_asleep = [cost()], 0
    start = time.monotonic()
    while n_asleep < 15 and time.monotonic() - start < 10:
        step()
        n_asleep += 1
    asleep.append(cost())
    say("asleep")
    wait("awake")
    for _ in range(3):
        step()
    awake, n = [cost()], 0
    start = time.monotonic()
    while n < 100 and time.monotonic() - start < PATIENCE:
        step()
        n += 1
    awake.append(cost())
    assert all(bool((d == 1).all()) for d in nccl.data)
    return {"cycles": n, "cycles_asleep": n_asleep, "asleep": asleep, "awake": awake}


def under_load():
    """Until `stop`."""
    x = torch.ones(1 << 10, device="cuda")
    n, before = 0, cost()
    while agreed(not (DIR / "stop").exists()):
        for _ in range(500):
            dist.all_reduce(x, op=dist.ReduceOp.MAX)
        n += 500
    torch.cuda.synchronize()
    assert bool((x == 1).all())
    return {"calls": n, "before": before, "after": cost()}


def some_work():
    x = torch.ones(1 << 20, device="cuda")
    for _ in range(300):
        dist.all_reduce(x, op=dist.ReduceOp.MAX)
        time.sleep(0.005)
    torch.cuda.synchronize()
    assert bool((x == 1).all())
    threads = sorted(path.read_text().strip() for path in Path("/proc/self/task").glob("*/comm"))
    return {"calls": 300, "thread_names": threads}


SCENARIOS = {f.__name__: f for f in (graph_replays, capture_while_pending, destroy_in_flight,
                                     abort_in_flight, under_load, some_work)}


def main():
    if sys.argv[2] == "two_communicators":
        torch.cuda.set_device(0)
        say("ready", str(os.getpid()))
        wait("go")
        found = two_communicators()
        say("done", json.dumps(found))
        wait("end")
        return
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local))
    for _ in range(20):
        dist.all_reduce(torch.ones(1 << 12, device="cuda"))
    torch.cuda.synchronize()
    say("ready", str(os.getpid()))
    wait("go")
    found = SCENARIOS[sys.argv[2]]()
    torch.cuda.synchronize()
    dist.barrier()
    say("done", json.dumps(found))
    wait("end")
    dist.destroy_process_group()


main()
