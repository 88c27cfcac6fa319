# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""How the ranks of a GPU job, and the test, meet: through files in the job's directory, the first
argument, and never through collectives, so that every NCCL call is one that the job counts."""
import os
import sys
import time
from pathlib import Path

DIR = Path(sys.argv[1])
RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def wait(name, seconds=300):
    deadline = time.monotonic() + seconds
    while not (DIR / name).exists():
        if time.monotonic() > deadline:
            sys.exit(f"nobody made {name}")
        time.sleep(0.01)


def say(name, text=""):
    """Makes NAME.<rank>, whole from the first moment."""
    path = DIR / f"{name}.{RANK}"
    half = DIR / f"{path.name}.tmp"
    half.write_text(text)
    half.rename(path)


def together(name):
    say(name)
    for rank in range(RANKS):
        wait(f"{name}.{rank}")
