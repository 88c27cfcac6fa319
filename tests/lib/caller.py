# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/targets/caller.c and its like: programs that call NCCL as they are told, line by line."""
import os
import subprocess
from collections import namedtuple

import nbt

Comm = namedtuple("Comm", "address hash rank nranks")


class Caller:
    def __init__(self, program="caller", args=(), nccl=None, prefix=()):
        environment = dict(os.environ)
        if nccl:  # same soname: the one linked with is not looked for
            environment["LD_PRELOAD"] = str(nbt.BUILD / "sim" / nccl / "libnccl.so.2")
        self.process = subprocess.Popen(
            [*map(str, prefix), nbt.TARGETS / program, *map(str, args)], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        nbt.defer(self.stop)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline().split()
        assert line and line[0] in ("ok", "done"), f"{self.process.args}: {line}"
        return line[1:]

    def say(self, *words):
        """Without waiting for the answer."""
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def do(self, *words):
        self.say(*words)
        return self.answer()

    def make(self, *words):
        """What makes a communicator; tells it as NCCL itself does."""
        address, comm_hash, rank, nranks = self.do(*words)
        return Comm(int(address, 16), comm_hash, rank, nranks)

    def stop(self):
        if self.process.poll() is None:
            self.process.stdin.close()
        return nbt.end(self.process)
