# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/targets/plugged: a process that drives the real plugin as NCCL does; and its memory."""
import os
import re
import struct
import subprocess
from collections import namedtuple
from functools import lru_cache
from pathlib import Path

import loader
import nbt

PLUGIN = nbt.BUILD / "libnccl-profiler-bpftrace.so"

# struct nbp_control
Control = namedtuple("Control", "magic size version budget_ppm launch_cost_ns wants awake n_comms "
                                "n_launches n_timed n_batches n_records lost")
CONTROL = struct.Struct("<QIIIIIxxxxIIQQQQ128s")


@lru_cache
def symbols(path):
    """{symbol: link-time address} of .symtab."""
    text = subprocess.run([nbt.need("nm", "binutils"), path], text=True, capture_output=True,
                          check=True).stdout
    return {name: int(address, 16) for address, name in
            re.findall(r"^([0-9a-f]+) \w (\S+)$", text, re.M)}


class Plugged(loader.Loader):
    """With the plugin loaded, and NCCL, so that it is a process that the agent tells of."""

    def __init__(self, plugin=PLUGIN, nccl=loader.LIBRARY, comm=0xabc, **popen):
        super().__init__(nccl, program=nbt.TARGETS / "plugged", **popen)
        if plugin:
            self.plug(Path(plugin))
        if comm:
            self.do(f"comm {comm}")

    def plug(self, plugin):
        self.do(f"plugin {plugin}")
        self.find(plugin)

    def find(self, plugin):
        """Where the plugin that was loaded lies."""
        self.plugin = plugin
        self.base = self.find_base()
        self.memory = os.open(f"/proc/{self.pid}/mem", os.O_RDONLY)
        nbt.defer(os.close, self.memory)
        self.do(f"hook {self.address('nccl_bpftrace_batch')}")

    def find_base(self):
        maps = Path(f"/proc/{self.pid}/maps").read_text()
        name = re.escape(os.path.realpath(self.plugin).rsplit("/", 1)[1])
        return min(int(start, 16) for start in
                   re.findall(rf"^([0-9a-f]+)-\S+ \S+ 0+ .*/{name}$", maps, re.M))

    def address(self, symbol):
        return self.base + symbols(self.plugin)[symbol]

    def semaphore(self):
        return int.from_bytes(
            os.pread(self.memory, 2, self.address("nccl_bpftrace_batch_semaphore")), "little")

    def control(self):
        raw = os.pread(self.memory, CONTROL.size, self.address("nccl_bpftrace_control"))
        return Control(*CONTROL.unpack(raw))

    def awake(self):
        return bool(self.control().awake)

    def wait_awake(self, wanted=True, seconds=5):
        nbt.wait_for(lambda: self.awake() == wanted, f"plugin awake: {wanted}", seconds, 0.005)
