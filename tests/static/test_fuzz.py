# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Fuzzing for some seconds each; NBT_FUZZ_SECONDS says how many."""
import os
import subprocess

import nbt

SECONDS = os.environ.get("NBT_FUZZ_SECONDS", "2")


def fuzz(name, seed=None):
    clang = nbt.need("clang", "clang libclang-rt-dev")
    program = nbt.BUILD / f"tests/fuzz/{name}"
    program.parent.mkdir(parents=True, exist_ok=True)
    built = subprocess.run([clang, "-std=gnu11", "-D_GNU_SOURCE", "-g", "-O1", "-Iinclude", "-Isrc",
                            "-fsanitize=fuzzer,address,undefined", "-fno-sanitize-recover=all",
                            "-o", program, f"tests/fuzz/fuzz_{name}.c"],
                           cwd=nbt.ROOT, text=True, capture_output=True)
    if "cannot find" in built.stderr and "clang_rt" in built.stderr:
        nbt.skip("clang has no fuzzer runtime (apt: libclang-rt-dev)")
    assert built.returncode == 0, built.stderr[-3000:]
    corpus = nbt.tempdir()
    if seed:
        (corpus / "seed").write_bytes(seed)
    done = subprocess.run([program, f"-max_total_time={SECONDS}", "-max_len=65536",
                           "-rss_limit_mb=2048", f"-artifact_prefix={corpus}/", corpus],
                          text=True, capture_output=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]


def test_job():
    fuzz("job", b"0::/system.slice/slurmstepd.scope/job_12/step_0/user/task_0\nSLURM_JOB_ID=7\0"
                b"LOCAL_RANK=1\0")


def test_elf():
    fuzz("elf", (nbt.BUILD / "sim/2.28.9/libnccl.so.2").read_bytes()[:65536])


def test_identity():
    fuzz("identity")


def test_text():
    fuzz("text", "grüße €\033[1m".encode())
