# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""NVIDIA's own library without a GPU: its functions refuse, and are seen to be called."""
import glob
import os
import subprocess

import loader
import nbt
from loader import Agent, Loader, METHODS, calls, expect_calls, wait_known

PLACES = ("/usr/local/cuda*/lib*/libnccl.so.2*", "/usr/local/cuda*/targets/*/lib/libnccl.so.2*",
          "/usr/lib/*/libnccl.so.2*", "/usr/lib64/libnccl.so.2*",
          "~/.cache/nccl-bpftrace/wheels/*/libnccl.so.2")
OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast", "Reduce", "AlltoAll",
              "Gather", "Scatter", "Send", "Recv")


def libraries():
    """NCCL_LIBRARY, or one of each release that is on this machine."""
    named = os.environ.get("NCCL_LIBRARY")
    if named:
        return [named]
    found = sorted({os.path.realpath(path) for place in PLACES
                    for path in glob.glob(os.path.expanduser(place))})
    return found or nbt.skip("no libnccl.so.2 here (NCCL_LIBRARY=path names one)")


def exports(path, symbol):
    """The dynamic symbol table, as binutils read it."""
    table = subprocess.run([nbt.need("nm", "binutils"), "--dynamic", "--defined-only", path],
                           text=True, capture_output=True, check=True).stdout
    return any(line.split()[-1].split("@")[0] == symbol for line in table.splitlines())


def load(path):
    process = Loader(None)
    process.say(f"load {path}")
    answer = process.hear()
    if answer != "ok":
        process.stop()
        return None
    return process


def test_every_operation_is_counted():
    """With a NULL communicator: counted per operation, the rank unknown, nobody dies of it."""
    n = 13
    agent = Agent()
    loaded = {path: load(path) for path in libraries()}
    loaded = {path: process for path, process in loaded.items() if process}
    if not loaded:
        nbt.skip("the libnccl.so.2 that are here cannot be loaded")
    wait_known(agent, *(process.pid for process in loaded.values()))
    wanted = {}
    for path, process in loaded.items():
        process.do(f"each {n}")
        wanted[process.pid] = n * sum(exports(path, f"nccl{name}") for name in OPERATIONS)
    series = expect_calls(agent, wanted)
    for path, process in loaded.items():
        for name in OPERATIONS:
            counted = calls(series, process.pid, name)
            assert counted == (n if exports(path, f"nccl{name}") else 0), f"{path}: {name}"
        (info, _), = series.get("nccl_communicator_info", pid=str(process.pid))
        assert info["rank"] == "" and info["comm"] == f"unknown-{process.pid}-1", info
        assert info["identity"] == "unknown", info
        (info, _), = series.get("nccl_bpftrace_process_info", pid=str(process.pid))
        assert info["nccl_version"], path
    assert agent.process.poll() is None


def test_with_both_kinds_of_probes():
    """The newest, through uprobe_multi and through perf events."""
    for method in METHODS:
        process = load(libraries()[-1])
        if not process:
            nbt.skip(f"{libraries()[-1]} cannot be loaded")
        agent = Agent("--attach", method)
        wait_known(agent, process.pid)
        process.do("call 50")
        process.do("thread 7")
        expect_calls(agent, {process.pid: 57})
