# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""tests/targets/teller: a process whose plugin tells of what the test says, GPU times and all."""
import loader
import nbt
import plugged
import servers

BROADCAST, REDUCE, ALLGATHER, REDUCESCATTER, ALLREDUCE, _, SEND, RECV = range(8)
INT8, FLOAT32 = 0, 7
TREE, RING, _, _, NVLS = range(5)
LL, LL128, SIMPLE = range(3)
UNKNOWN = 255


def uuid_of(gpu):
    """The UUID of one of servers.fake_gpus()."""
    return servers.gpu_uuid(gpu)


class Teller(loader.Loader):
    def __init__(self, **popen):
        super().__init__(program=nbt.TARGETS / "teller", **popen)
        self.do(f"load {plugged.PLUGIN}")
        self.find(plugged.PLUGIN)

    def comm(self, number, gpu=0, comm_hash=0xabc, rank=0, nranks=8, n_nodes=1, name=""):
        bare = uuid_of(gpu).removeprefix("GPU-").replace("-", "")
        self.do(f"comm {number} {comm_hash:x} {rank} {nranks} {n_nodes} {bare} {name}")

    def one(self, comm, function, count, ns, times=1, datatype=FLOAT32, algorithm=RING,
            protocol=SIMPLE):
        """Launches of one operation each; ns 0: not timed."""
        self.do(f"one {comm} {function} {count} {datatype} {algorithm} {protocol} {ns} {times}")

    def pair(self, comm, count, ns, peer=1, datatype=FLOAT32):
        self.do(f"pair {comm} {count} {datatype} {peer} {ns}")

    def many(self, comm, function, count, n, ns):
        self.do(f"many {comm} {function} {count} {n} {ns}")

    find, find_base = plugged.Plugged.find, plugged.Plugged.find_base
    address = plugged.Plugged.address
