# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The plugin's hook, and its control block in a running process, without the agent."""
import ctypes
import os
import re
import struct
import subprocess
from pathlib import Path

import nbt

PLUGIN = nbt.BUILD / "libnccl-profiler-bpftrace.so"


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


class Control:
    """struct nbp_control of a process, by the plugin's symbol."""

    WORDS = struct.Struct("<Q8I4Q16Q")
    NAMES = ("magic", "size", "version", "budget_ppm", "launch_cost_ns", "wants", "timer", "awake",
             "n_comms", "n_launches", "n_timed", "n_batches", "n_records")

    def __init__(self, pid):
        text = subprocess.run([nbt.need("nm", "binutils"), PLUGIN], text=True, capture_output=True,
                              check=True).stdout
        address = int(re.search(r"^(\w+) \w nccl_bpftrace_control$", text, re.M)[1], 16)
        first = next(line for line in Path(f"/proc/{pid}/maps").read_text().splitlines()
                     if line.endswith(str(PLUGIN)))
        self.address = address + int(first.split("-")[0], 16)
        self.memory = f"/proc/{pid}/mem"

    def read(self):
        """{name: value}, and lost: the losses by reason."""
        with open(self.memory, "rb", buffering=0) as file:
            file.seek(self.address)
            words = self.WORDS.unpack(file.read(self.WORDS.size))
        assert words[0] == 0x6c727463706c6e62 and words[1] == self.WORDS.size, words
        return {**dict(zip(self.NAMES, words)), "lost": words[len(self.NAMES):]}

    def set(self, name, value):
        with open(self.memory, "r+b", buffering=0) as file:
            file.seek(self.address + 8 + 4 * (self.NAMES.index(name) - 1))
            file.write(value.to_bytes(4, "little"))
