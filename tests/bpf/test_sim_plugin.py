# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The stand-in libnccl and profiler plugins: it finds, calls and leaves them as NCCL does, shown with
a plugin that only writes down its callbacks. Then this project's plugin in simulated jobs.
"""
import os
import re
import shutil

import nbt
from hook import PLUGIN, Control, note, open_uprobe

LOG_PLUGIN = nbt.BUILD / "sim/libnccl-profiler-log.so"
ABI_OF = {"2.23.4": 1, "2.25.1": 2, "2.26.5": 3, "2.27.7": 4, "2.28.9": 5, "2.30.7": 6, "2.99.1": 6}
ALL_EVENTS = 0xfff


def logged(script, nccl=None, ranks=2, mask=ALL_EVENTS, plugin=LOG_PLUGIN, gpu=False,
           **environment):
    """The callbacks of each rank: a list of lines."""
    path = nbt.tempdir() / "callbacks"
    words = {"CALLBACK_LOG": path, "CALLBACK_MASK": mask, "NCCL_CONF_FILE": "/dev/null",
             **environment}
    if plugin:
        words["NCCL_PROFILER_PLUGIN"] = plugin
    sim = nbt.Sim(script, ranks=ranks, nccl=nccl, gpu=gpu,
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


def test_kernel_timer():
    """KernelCh for each channel of each operation, in the GPU's own time, inside the kernel's."""
    lines = logged("comm a; allreduce a 100000 fp32; group { allreduce a 10 fp32; "
                   "allgather a 10 fp32 }; synchronize; destroy a", gpu=True)[0]
    events = shape(lines)
    assert events.count("start KernelCh in Coll") == events.count("record KernelCh 22") == \
        events.count("stop KernelCh") == 7 + 1 + 1
    times = {int(re.search(r"handle=(\d+)", line)[1]): int(line.split("timer=")[1])
             for line in lines if "start KernelCh" in line}
    for line in lines:
        found = re.match(r"record handle=(\d+) state=22 timer=(\d+)", line)
        assert not found or int(found[2]) > times[int(found[1])] > 17 * 10**17
    assert not any("KernelCh" in event for event in
                   shape(logged("comm a; allreduce a 10 fp32; synchronize", gpu=True, mask=0xfbf)[0]))


def test_graphs():
    """Captured once: one API event and one launch, no more at a replay. With the kernel timer
    the operation is told of at each replay, else once."""
    script = "comm a; capture g { allreduce a 10 fp32 }; replay g x 100; synchronize; drop g; destroy a"
    for mask, told in ((0xfbf, 1), (0xfff, 100)):
        lines = logged(script, gpu=True, mask=mask)[0]
        events = shape(lines)
        assert events.count("start CollApi in GroupApi") == 1
        assert events.count("start KernelLaunch in GroupApi") == 1
        assert events.count("start Coll in CollApi") == events.count("start Group") == told
        assert sum(" captured=1" in line for line in lines) == 2
        assert events.count("start KernelCh in Coll") == (100 if mask & 0x40 else 0)


WARM = "comm a; comm b; allreduce a 10 fp32; @0 print ready; wait; "


def awake_job(script, **options):
    """A job of two ranks whose plugins are awake and have their events: (job, their controls)."""
    sim = nbt.Sim(WARM + "allreduce a 10 fp32; @0 print warm; wait; " + script,
                  plugin=PLUGIN, **options)
    sim.go()
    assert sim.process.stdout.readline() == "ready\n"
    controls = [Control(pid) for pid in sim.pids]
    for control in controls:
        state = control.read()
        if state["awake"]:
            nbt.skip("another tracer on this machine listens")
        assert state["n_launches"] == state["n_records"] == 0, state
    found = note()
    nbt.defer(os.close, open_uprobe(int(found[3], 16), int(found[4], 16)))
    nbt.wait_for(lambda: all(c.read()["awake"] for c in controls), "plugins awake", 2)
    for control in controls:
        control.set("budget_ppm", 1000000)
    sim.go()
    assert sim.process.stdout.readline() == "warm\n"
    return sim, controls


def told(control, old, wanted):
    """The control block once its counters have risen by what is wanted, less what was there."""
    def look():
        now = control.read()
        state = {name: value if name == "lost" else value - old.get(name, 0)
                 for name, value in now.items()}
        return state if all(state[name] >= n for name, n in wanted.items()) else None

    return nbt.wait_for(look, f"{wanted}; {control.read()}", 5)


def test_asleep_it_is_not_called():
    sim = nbt.Sim("comm a; loop 1000 { allreduce a 10 fp32 }; synchronize", gpu=True, plugin=PLUGIN)
    sim.run()
    for pid in sim.pids:
        state = Control(pid).read()
        if state["awake"]:
            nbt.skip("another tracer on this machine listens")
        assert (state["awake"], state["n_launches"], state["n_records"]) == (0, 0, 0), state
        assert not any(state["lost"]), state


def test_awake_every_launch_is_timed():
    """Eager, grouped, of two communicators, and captured ones, which are launches, not timed."""
    time_ready = "pause 1500; "  # the plugin looks for CUDA once a second
    sim, controls = awake_job(
        time_ready + "allreduce a 10 fp32; synchronize; pause 100; @0 print timing; wait; "
        "loop 50 { rate 100; allreduce a 100000 fp32; allgather b 100000 fp32; alltoall a 100 fp32; "
        "group { reducescatter a 10 fp32; send b 9 int8; recv b 9 int8 }; synchronize; }; "
        "capture g { allreduce a 10 fp32 x 3 }; replay g x 20; synchronize", gpu=True)
    sim.go()
    assert sim.process.stdout.readline() == "timing\n"
    before = [control.read() for control in controls]
    sim.go()
    sim.wait_done()
    # calls, operations, launches twice; captured ones have no end
    operations = 50 * (1 + 1 + 4 + 1 + 2)
    wanted = {"n_launches": 50 * 5 + 3, "n_timed": 50 * 5,
              "n_records": 2 * operations + 2 * 50 * 5 + 3 * 3}
    for control, old in zip(controls, before):
        state = told(control, old, wanted)
        assert state["n_launches"] == wanted["n_launches"], state
        assert state["n_timed"] == wanted["n_timed"], state
        # communicators now and then, and the counts of both with each round
        assert state["n_records"] <= wanted["n_records"] + 2 * state["n_batches"] + 40, state
        assert not any(state["lost"]), state


def test_awake_without_a_gpu():
    """No CUDA driver in the process: nothing is timed, nothing is lost."""
    sim, controls = awake_job("allreduce a 10 fp32 x 100")
    sim.go()
    sim.wait_done()
    for control in controls:
        state = told(control, {}, {"n_launches": 101, "n_records": 3 * 101})
        assert state["n_launches"] == 101 and state["n_timed"] == 0, state
        assert not any(state["lost"]), state
