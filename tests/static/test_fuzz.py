# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fuzzing for some seconds each; NBT_FUZZ_SECONDS says how many."""
import json
import os
import struct
import subprocess

import nbt

POD_UID = "6b8e2f4c-1d3a-4c5b-9e7f-0a1b2c3d4e5f"
CONTAINER_ID = "8f0c2d1e9b7a6354f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3021"
SECONDS = os.environ.get("NBT_FUZZ_SECONDS", "2")


def fuzz(name, *seeds, libraries=()):
    clang = nbt.need("clang", "clang libclang-rt-dev")
    program = nbt.BUILD / f"tests/fuzz/{name}"
    program.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run([clang, "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-Iinclude", "-Isrc",
                            "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all",
                            "-o", program, f"tests/fuzz/fuzz_{name}.c",
                            *libraries],
                           cwd=nbt.ROOT, text=True, capture_output=True)
    if "cannot find" in built.stderr and "clang_rt" in built.stderr:
        nbt.skip("clang has no fuzzer runtime (apt: libclang-rt-dev)")
    assert built.returncode == 0, built.stderr[-3000:]
    corpus = nbt.tempdir()
    for number, seed in enumerate(seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    done = subprocess.run([program, f"-max_total_time={SECONDS}", "-max_len=65536",
                           "-rss_limit_mb=2048", f"-artifact_prefix={corpus}/", corpus],
                          text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


def test_job():
    fuzz("job", b"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\nSLURM_JOB_ID=7\0"
                b"LOCAL_RANK=1\0",
         f"3:devices:/kubepods/burstable/pod{POD_UID}/{CONTAINER_ID}\n1:name=systemd:/x/kubepods-pod"
         f"{POD_UID.replace('-', '_')}.slice:cri-containerd:{CONTAINER_ID}\n"
         f"0::/kubepods-besteffort-pod{'3d1f' * 8}.slice/crio-{CONTAINER_ID}.scope/x\n".encode())


def test_names():
    names = {"io.kubernetes.cri.sandbox-uid": POD_UID, "io.kubernetes.cri.sandbox-name": "llm",
             "io.kubernetes.cri.sandbox-namespace": "research", "io.kubernetes.pod.uid": POD_UID,
             "io.kubernetes.pod.namespace": "research", "io.kubernetes.pod.name": "llm",
             "io.kubernetes.cri.container-name": "a", "io.kubernetes.container.name": "b"}
    file = {"annotations": names, "Config": {"Labels": names}, "Name": "/trainer"}
    fuzz("names", json.dumps(file).encode(), f"research_llm-3_{POD_UID}".encode(),
         f"llm-3_research_trainer-{CONTAINER_ID}.log".encode(), libraries=["-ljansson"])


def test_conf():
    fuzz("conf", b"NCCL_DEBUG=INFO\nNCCL_PROFILER_PLUGIN=inspector\r\nNCCL_BPFTRACE_CHAIN=x\n"
                 b"NCCL_PROFILER_PLUGIN=/a/libnccl-profiler-bpftrace.so\n"
                 b"\0NCCL_INSPECTOR_ENABLE=1\0NCCL_INSPECTOR_PROM_DUMP=1\0")


def test_elf():
    fuzz("elf", (nbt.BUILD / "sim/2.28.9/libnccl.so.2").read_bytes()[:65536])


def test_foreign():
    """Steps of fuzz_foreign.c: an operation of one channel, and its time."""
    def step(what, handle, parent=0, tid=0, timer=0, channels=0):
        return struct.pack("<8BHHIi4BBBBBI", what, 5, 0, 1, handle, parent, tid, 0, 0, 10, 1, 1,
                           0, 2, 3, 4, channels, 1, 2, 0, timer)
    fuzz("foreign", (step(0, 1, channels=1) + step(5, 2, 1, 1, 100)[:12] + struct.pack(
        "<Ii4BBBBBI", 6, 1, 0, 2, 3, 4, 1, 1, 2, 0, 100) + step(1, 2, 0, 1, 200)) * 4)


def test_identity():
    fuzz("identity")


def test_procstate():
    fuzz("procstate", b"7 (a) b) T 1 7 7 0 -1 4194304 1 0 1 0 0 0 0 0 20 0 3 0 2 2 4 18446744073709551615 "
                      b"1 1 1 0 0 0 0 0 0 1 0 0 17 0 0 0 0 0 0 1 1 1 1 1 1 1 19\n")


def test_text():
    fuzz("text", "grüße €\033[1m".encode())


def plugin_record(kind, *words, tail=b""):
    """One step of fuzz_timing.c: what to do, then a record; numbers are doubled, see narrow()."""
    head = struct.pack("<HHIQQiiQ", kind, 128, 1, 1000 * 10**9, 0xabc, 1, 2, 1)
    return b"\x01" + head + (struct.pack(f"<{len(words)}Q", *words) + tail).ljust(88, b"\0")


def test_timing():
    function = struct.pack("<iIBBBBB", 1, 4, 4, 7, 255, 1, 2)
    unknown = 0xffffffff
    seed = plugin_record(1, 1)
    for number in range(1, 5):
        launched = 2 * number, 0x5000
        seed += plugin_record(2, 2 * number, 100, 0x5000, number,
                              tail=struct.pack("<iIBBBB", 1, 1, 4, 7, 255, 0))
        seed += plugin_record(4, *launched, 0, 0, 0, tail=struct.pack(
            "<IIBBBB", unknown, unknown, 1, 0, 0, 0))
        seed += plugin_record(3, number, 100, 2 * number, 2 * number, number, tail=function)
        seed += plugin_record(4, *launched, 1000 * 10**9, 1000 * 10**9 + 1, 1, tail=struct.pack(
            "<IIBBBB", 1000, 1, 2, 0, 1, 0))
        seed += plugin_record(5, 2 * number, number, 1, 2, 1000 * 10**9, 1)
    seed += plugin_record(7, 0, 1, 1) + plugin_record(6)
    fuzz("timing", seed)
