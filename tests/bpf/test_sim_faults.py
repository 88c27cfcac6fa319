# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The stand-in's faults: what a script can make go wrong, and how a job bears it."""
import re
import subprocess

import nbt

STAMP = re.compile(r"stamp rank=(\d+) ns=(\d+) (.*)")


def run(script, *args, ranks=2, status=0):
    """[(rank, ns, text)] of a script's stamps."""
    done = subprocess.run([nbt.SIM, "--ranks", str(ranks), *args, "-e", script], text=True,
                          capture_output=True, timeout=60, stdin=subprocess.DEVNULL)
    assert done.returncode == status, done.stderr
    return [(int(rank), int(ns), text) for rank, ns, text in STAMP.findall(done.stdout)]


def test_random_pauses_follow_the_seed():
    script = "loop 5 { stamp on\npause 1 60 }; stamp end"

    def pauses(seed):
        times = [[ns for r, ns, _ in run(script, "--seed", str(seed)) if r == rank]
                 for rank in range(2)]
        return [[(b - a) / 1e6 for a, b in zip(t, t[1:])] for t in times]

    first, again, other = pauses(3), pauses(3), pauses(4)
    for rank in range(2):
        assert all(ms >= 1 for ms in first[rank])
        # a busy machine only makes them longer: what the two runs share is the shorter of them
        same = [abs(a - b) for a, b in zip(first[rank], again[rank])]
        assert sorted(same)[2] < 5, (first, again)
    assert max(abs(a - b) for a, b in zip(first[0], other[0])) > 5, (first, other)
    assert max(abs(a - b) for a, b in zip(first[0], first[1])) > 5, "ranks draw for themselves"
    for bad in ("pause 5 4", "compute 5 4", "pause 5 x"):
        run(bad, status=2)


def test_an_asynchronous_error_is_the_communicator_s():
    """As with NCCL: the calls after it fail, on this communicator and this rank only."""
    run("comm a; comm b; @1 error a ncclRemoteError; allreduce b 10 fp32; @0 allreduce a 10 fp32")
    run("comm a; @1 error a ncclSystemError; @1 error a ncclSuccess; allreduce a 10 fp32")
    run("comm a; @1 error a ncclRemoteError; @1 allreduce a 10 fp32", status=1)
    for bad in ("error null ncclRemoteError", "comm a; error a ncclFoo", "comm a; error a"):
        run(bad, status=2)


def test_ranks_that_disagree_go_on_where_nothing_hangs():
    """Each kind of mismatch, with collectives that wait for all and with such that do not."""
    disagree = ("@0 allreduce a 10 fp32; @1 allreduce a 20 fp32;"
                "@0 allreduce a 10 fp32; @1 allreduce a 10 int32;"
                "@0 allreduce a 10 fp32; @1 allreduce a 10 fp32 op=max;"
                "@0 broadcast a 10 fp32; @1 broadcast a 10 fp32 root=1;"
                "@0 broadcast a 10 fp32; allreduce a 10 fp32; @1 broadcast a 10 fp32;")
    for args in ((), ("--sync",)):
        assert len(run(f"comm a; {disagree} stamp end", *args)) == 2


def test_sixty_four_ranks():
    stamps = run("comm w; loop 5 { rate 10; @63 pause 30; allreduce w 10 fp32; stamp after\n}",
                 "--sync", ranks=64)
    assert len(stamps) == 64 * 5
