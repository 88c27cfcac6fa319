# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`nccl-bpftrace diagnose` at work: when its watch has begun, and what it says at the end."""
import json
import os
import pty
import select
import subprocess

import nbt


class Diagnose:
    """Of these processes alone; on a terminal, so that it tells when the watch has begun."""

    def __init__(self, pids, *args, as_json=True):
        self.master, slave = pty.openpty()
        nbt.defer(os.close, self.master)
        self.out = nbt.Log("diagnose")
        words = nbt.pid_words(pids)
        words += ["--json"] if as_json else []
        self.as_json, self.told = as_json, ""
        self.process = subprocess.Popen(
            [nbt.AGENT, "diagnose", *map(str, [*words, *args])], stdin=subprocess.DEVNULL,
            stdout=self.out, stderr=slave)
        os.close(slave)
        nbt.defer(nbt.end, self.process)

    def progress(self):
        """What it has told on the terminal until now."""
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.told += os.read(self.master, 65536).decode()
            except OSError:  # it has ended
                break
        return self.told

    def begun(self):
        nbt.wait_for(lambda: "s left" in self.progress() or self.process.poll() is not None,
                     "the watch", 60)
        assert self.process.poll() is None, f"ended: {self.process.returncode} {self.progress()}"

    def end(self, seconds=120):
        """(exit status, the JSON object or the text)"""
        nbt.wait_for(lambda: self.progress() is not None and self.process.poll() is not None,
                     "the end of diagnose", seconds, 0.1)
        said = self.out.read()
        return self.process.returncode, json.loads(said) if self.as_json else said

    def comm(self, name="world", seconds=120):
        """(exit status, what it says of the communicator of that name)"""
        status, said = self.end(seconds)
        found = [comm for comm in said["communicators"] if comm["comm_name"] == name]
        assert len(found) == 1, said
        return status, found[0]
