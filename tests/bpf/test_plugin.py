# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plugin as built: its USDT note, and a probe with a semaphore on it that wakes it."""
import ctypes
import os
import re
import subprocess
import sys
import time

import nbt

PLUGIN = nbt.BUILD / "libnccl-profiler-bpftrace.so"

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


def note():
    text = subprocess.run([nbt.need("readelf", "binutils"), "-nW", PLUGIN], text=True,
                          capture_output=True, check=True).stdout
    found = re.search(r"Provider: (\S+)\s+Name: (\S+)\s+Location: (\S+), Base: \S+ "
                      r"Semaphore: (\S+)\s+Arguments: (.+)", text)
    assert found, text
    return found


def file_offset(address):
    text = subprocess.run(["readelf", "-lW", PLUGIN], text=True, capture_output=True,
                          check=True).stdout
    for line in re.findall(r"LOAD\s+(\S+) (\S+) \S+ (\S+)", text):
        offset, start, size = (int(word, 16) for word in line)
        if start <= address < start + size:
            return address - start + offset
    raise AssertionError(f"{address:#x} is in no segment")


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


def open_uprobe(address, semaphore):
    try:
        with open("/sys/bus/event_source/devices/uprobe/type", encoding="ascii") as file:
            kind = int(file.read())
    except OSError:
        nbt.skip("no uprobe events in this kernel")
    path = ctypes.create_string_buffer(os.fsencode(PLUGIN))
    attr = bytearray(128)

    def put(at, size, value):
        attr[at:at + size] = value.to_bytes(size, "little")

    put(0, 4, kind)
    put(4, 4, len(attr))
    put(8, 8, file_offset(semaphore) << 32)  # config: ref_ctr_offset
    put(56, 8, ctypes.addressof(path))  # config1: uprobe_path
    put(64, 8, file_offset(address))  # config2: probe_offset
    number = {"x86_64": 298, "aarch64": 241}[os.uname().machine]
    libc = ctypes.CDLL(None, use_errno=True)
    buffer = (ctypes.c_char * len(attr)).from_buffer(attr)
    fd = libc.syscall(number, buffer, -1, 0, -1, 8)
    assert fd >= 0, os.strerror(ctypes.get_errno())
    return fd


def test_a_probe_wakes_it():
    found = note()
    job = subprocess.Popen([sys.executable, "-c", JOB, PLUGIN], stdout=subprocess.PIPE, text=True)
    nbt.defer(nbt.end, job)
    assert job.stdout.readline() == "0\n"
    start = time.monotonic()
    fd = open_uprobe(int(found[3], 16), int(found[4], 16))
    assert job.stdout.readline() == "7687\n"
    assert time.monotonic() - start < 1
    start = time.monotonic()
    os.close(fd)
    assert job.stdout.readline() == "0\n"
    assert time.monotonic() - start < 1
