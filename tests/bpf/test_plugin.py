# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plugin as built: its USDT note, and a probe with a semaphore on it that wakes it."""
import os
import subprocess
import sys
import time

import nbt
from hook import PLUGIN, file_offset, note, open_uprobe

# A process that NCCL has initialised the plugin in; tells each value of the mask.
JOB = """
import ctypes, sys, time
plugin = ctypes.CDLL(sys.argv[1])
table = (ctypes.c_void_p * 6).in_dll(plugin, "ncclProfiler_v6")
init = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint64,
                        ctypes.POINTER(ctypes.c_int), ctypes.c_char_p, ctypes.c_int, ctypes.c_int,
                        ctypes.c_int, ctypes.c_void_p)(table[1])
context, mask, last = ctypes.c_void_p(), ctypes.c_int(99), None
init(ctypes.byref(context), 7, ctypes.byref(mask), b"tp", 1, 8, 0, None)
while True:
    if mask.value != last:
        last = mask.value
        print(last, flush=True)
    time.sleep(0.005)
"""


def test_usdt_note():
    found = note()
    assert found[1] == "nccl_bpftrace" and found[2] == "batch"
    with open(PLUGIN, "rb") as file:
        file.seek(file_offset(int(found[3], 16)))
        if os.uname().machine == "x86_64":
            assert file.read(5) == b"\x0f\x1f\x44\x00\x00"
            assert found[5].strip() == "8@%rdi 4@%esi"
        file.seek(file_offset(int(found[4], 16)))
        assert file.read(2) == b"\0\0"


def test_a_probe_wakes_it():
    found = note()
    job = subprocess.Popen([sys.executable, "-c", JOB, PLUGIN], stdout=subprocess.PIPE, text=True)
    nbt.defer(nbt.end, job)
    assert job.stdout.readline() == "0\n"

    def measure():
        start = time.monotonic()
        fd = open_uprobe(int(found[3], 16), int(found[4], 16))
        assert job.stdout.readline() == "7687\n"
        awake = time.monotonic()
        os.close(fd)  # on a busy machine the kernel takes its time
        closed = time.monotonic()
        assert job.stdout.readline() == "0\n"
        return awake - start, time.monotonic() - closed

    nbt.soon(measure, (1, 1))
