#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Makes one 5-byte nop of the five nops at a function's entry. usage: join_nops.py FILE SYMBOL"""
import re
import subprocess
import sys

path, symbol = sys.argv[1:]
names = subprocess.run(["nm", "-D", path], text=True, capture_output=True, check=True).stdout
offset = int(re.search(rf"^([0-9a-f]+) \w {symbol}$", names, re.M)[1], 16)  # as linked: no delta
with open(path, "r+b") as file:
    file.seek(offset)
    if file.read(5) != b"\x90" * 5:
        sys.exit(f"{path}: {symbol} does not begin with five nops")
    file.seek(offset)
    file.write(b"\x0f\x1f\x44\x00\x00")
