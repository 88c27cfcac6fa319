# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The stand-in libnccl and profiler plugins: it finds, calls and leaves them as NCCL does, shown with
a plugin that only writes down its callbacks. Then this project's plugin in simulated jobs.
"""
import os
import re
import shutil

import nbt

LOG_PLUGIN = nbt.BUILD / "sim/libnccl-profiler-log.so"
ABI_OF = {"2.23.4": 1, "2.25.1": 2, "2.26.5": 3, "2.27.7": 4, "2.28.9": 5, "2.30.7": 6, "2.99.1": 6}
ALL_EVENTS = 0xfff


def logged(script, nccl=None, ranks=2, mask=ALL_EVENTS, plugin=LOG_PLUGIN, args=(), **environment):
    """The callbacks of each rank: a list of lines."""
    path = nbt.tempdir() / "callbacks"
    words = {"CALLBACK_LOG": path, "CALLBACK_MASK": mask, "NCCL_CONF_FILE": "/dev/null",
             **environment}
    if plugin:
        words["NCCL_PROFILER_PLUGIN"] = plugin
    sim = nbt.Sim(script, ranks=ranks, nccl=nccl, args=args,
                  prefix=["env", *[f"{name}={value}" for name, value in words.items()]])
    sim.run()
    files = [path.with_name(f"callbacks.{pid}") for pid in sim.pids]
    return [file.read_text().splitlines() if file.exists() else [] for file in files]


def shape(lines):
    """Handles by order of appearance say nothing: what is left is what happened to which."""
    started, out = {}, []
    for line in lines:
        found = re.match(r"(start|stop|record)(?: (\w+))? handle=(\d+)(.*)", line)
        if not found:
            out.append(line.split()[0])
            continue
        verb, name, handle, rest = found.groups()
        if verb == "start":
            started[handle] = name
        state = re.search(r"state=(\d+)", rest)
        parent = re.search(r"parent=(\d+)", rest)
        out.append(verb + " " + started[handle] + (f" {state[1]}" if state else "") +
                   (f" in {started[parent[1]]}" if parent and parent[1] != "0" else ""))
    return out


API_CALL = ["start GroupApi", "record GroupApi 23", "start CollApi in GroupApi", "stop CollApi",
            "record GroupApi 24", "start KernelLaunch in GroupApi", "stop KernelLaunch",
            "start Group", "start Coll in CollApi", "stop Coll", "stop Group", "stop GroupApi"]


def test_order_of_one_call():
    """profiler v5 and v6: as NCCL 2.28 and 2.30 call them; v4 and older: without API events."""
    for nccl in ("2.28.9", "2.30.7"):
        for lines in logged("comm a; allreduce a 10 fp32; destroy a", nccl=nccl):
            assert shape(lines) == ["init", *API_CALL, "finalize"], shape(lines)
    for nccl in ("2.23.4", "2.25.1", "2.26.5", "2.27.7"):
        for lines in logged("comm a; allreduce a 10 fp32; destroy a", nccl=nccl):
            assert shape(lines) == ["init", "start Group", "start Coll in Group", "stop Coll",
                                    "stop Group", "finalize"], shape(lines)


def test_order_in_a_group():
    """One launch; collectives by size, then sends and receives; the group's depth is told."""
    script = "comm a; group { allreduce a 10 fp32; allgather a 1000 fp32; send a 5 int8; " \
             "recv a 5 int8 }"
    lines = logged(script)[0]
    events = shape(lines)
    assert events.count("start GroupApi") == 1 and "depth=2" in lines[1]
    assert events[3:11] == ["start CollApi in GroupApi", "stop CollApi"] * 2 + \
        ["start P2pApi in GroupApi", "stop P2pApi"] * 2
    assert events[-13:] == ["start KernelLaunch in GroupApi", "stop KernelLaunch", "start Group",
                            *["start Coll in CollApi"] * 2, *["start P2p in P2pApi"] * 2,
                            *["stop Coll"] * 2, *["stop P2p"] * 2, "stop Group", "stop GroupApi"]
    tasks = [line for line in lines if " func=" in line and ("Coll " in line or "P2p " in line)]
    assert re.search(r"AllGather count=4000 sequence=0 type=ncclInt8", tasks[0]), tasks
    assert re.search(r"AllReduce count=10 sequence=0 type=ncclFloat32", tasks[1]), tasks
    assert "func=Send count=5 peer=1" in tasks[2] and "func=Recv count=5 peer=1" in tasks[3]


def test_all_to_all_is_sends_and_receives():
    events = shape(logged("comm a; alltoall a 10 fp32; gather a 7 int8 root=1", ranks=4)[1])
    assert events.count("start P2pApi in GroupApi") == 2 * 4 + 1 + 4
    assert events.count("start KernelLaunch in GroupApi") == 2
    assert not any("CollApi" in event for event in events)


def test_mask_decides():
    def kinds(mask, nccl="2.28.9"):
        lines = logged("comm a; allreduce a 10 fp32; send a 1 int8", nccl=nccl, mask=mask)[0]
        return {event.split()[1] for event in shape(lines) if event.startswith("start")}

    assert kinds(0) == set()
    assert kinds(0x800) == {"GroupApi", "KernelLaunch"}
    assert kinds(0x2) == {"GroupApi", "CollApi", "Group", "Coll"}
    assert kinds(0x4) == {"GroupApi", "P2pApi", "Group", "P2p"}
    assert kinds(0x1) == {"GroupApi", "Group"}
    assert kinds(0x40) == {"GroupApi", "CollApi", "P2pApi", "Group", "Coll", "P2p"}
    assert kinds(0x2, "2.27.7") == {"Group", "Coll"}
    assert kinds(0x4, "2.25.1") == {"Group"}


def test_version_of_the_interface():
    for nccl, version in ABI_OF.items():
        lines = logged("comm a", nccl=nccl, ranks=1)[0]
        assert lines[0].startswith(f"init v{version} "), (nccl, lines)
    assert logged("comm a", nccl="2.19.3", ranks=1) == [[]]


def test_where_it_is_looked_for():
    directory = nbt.tempdir()
    shutil.copy(LOG_PLUGIN, directory / "libnccl-profiler.so")
    conf = directory / "nccl.conf"
    conf.write_text(f"# node-wide\nNCCL_PROFILER_PLUGIN={LOG_PLUGIN}\n")

    def found(nccl=None, **environment):
        return bool(logged("comm a", ranks=1, nccl=nccl, **environment)[0])

    assert found(plugin="log", LD_LIBRARY_PATH=LOG_PLUGIN.parent)
    assert not found(plugin="log", LD_LIBRARY_PATH=LOG_PLUGIN.parent, nccl="2.25.1")
    assert found(plugin=None, LD_LIBRARY_PATH=directory)
    assert not found(plugin=None)
    assert not found(plugin="None", LD_LIBRARY_PATH=directory)
    assert found(plugin=None, NCCL_CONF_FILE=conf)
    assert not found(plugin="none", NCCL_CONF_FILE=conf)


def test_life():
    """One plugin for all communicators; unloaded after the last; a failure is for good."""
    lines = logged("comm a; comm b; destroy a; destroy b; comm a; destroy a", ranks=1)[0]
    assert [line.split()[0] for line in lines] == \
        ["init", "init", "finalize", "finalize", "init", "finalize"]
    script = f"comm a; @0 env NCCL_PROFILER_PLUGIN={LOG_PLUGIN}; destroy a; comm a"
    assert logged(script, ranks=1, plugin="/nowhere.so") == [[]]
    refused = {nccl: shape(logged("comm a; allreduce a 1 fp32; destroy a", nccl=nccl,
                                  CALLBACK_REFUSE=1)[0]) for nccl in ("2.27.7", "2.28.9")}
    assert refused == {"2.27.7": ["init"], "2.28.9": ["init"]}, refused
