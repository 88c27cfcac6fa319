# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Is there a breakpoint on a function of NCCL, as a rule the stand-in, in one process?"""
import os
import re
import subprocess
from functools import lru_cache
from pathlib import Path

import nbt

LIBRARY = nbt.BUILD / "sim/2.28.9/libnccl.so.2"


@lru_cache
def exported(path):
    """{symbol: link-time address}, which for a library is its offset from where it is loaded."""
    text = subprocess.run([nbt.need("nm", "binutils"), "-D", path], text=True, capture_output=True,
                          check=True).stdout
    return {name: int(address, 16) for address, name in
            re.findall(r"^([0-9a-f]+) \w (\S+)$", text, re.M)}


def entry(pid, function, size=1, library=LIBRARY):
    """The function's first bytes, as the process has them."""
    maps = Path(f"/proc/{pid}/maps").read_text()
    path = os.path.realpath(library)
    base = min(int(start, 16) for start in
               re.findall(rf"^([0-9a-f]+)-.* {re.escape(path)}$", maps, re.M))
    with open(f"/proc/{pid}/mem", "rb") as memory:
        memory.seek(base + exported(path)[function])
        return memory.read(size)


def is_probed(pid, function="ncclAllReduce", library=LIBRARY):
    return entry(pid, function, library=library) == \
        {"x86_64": b"\xcc", "aarch64": b"\x00"}[os.uname().machine]


def wait_probed(pid, wanted=True, seconds=60):
    nbt.wait_for(lambda: is_probed(pid) == wanted,
                 f"process {pid} {'has' if wanted else 'is without'} its probes", seconds)
