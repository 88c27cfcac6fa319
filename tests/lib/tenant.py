# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A job of a user who is neither root nor the tracer."""
from pathlib import Path

import nbt

PLUGIN = nbt.BUILD / "libnccl-profiler-bpftrace.so"
UID = 4242
# A plugin that sleeps looks up four times a second.
CALLS = "comm a config; loop 200 { allreduce a 1000 fp32; allgather a 10 fp32; synchronize; pause 10 }"


def prefix():
    """argv in front of a job: another user's, who may still write where tests do."""
    setpriv = nbt.need("setpriv", "util-linux")
    caps = "-all,+dac_override"
    return [setpriv, f"--reuid={UID}", f"--regid={UID}", "--clear-groups", f"--inh-caps={caps}",
            f"--ambient-caps={caps}"]


def start(plugin=PLUGIN):
    """Two ranks, armed."""
    job = nbt.Sim(CALLS, ranks=2, prefix=prefix(), gpu=True, plugin=plugin)
    for pid in job.pids:
        assert Path(f"/proc/{pid}").stat().st_uid == UID, "the job is not another user's"
    return job


def expect_all(read, job):
    """Every call of the job is counted for the right rank, and launches are timed."""
    wanted = nbt.expected_totals(job.expected())
    assert len(wanted) == 4
    nbt.wait_for(lambda: nbt.counted_totals(read(), job.expected()) == wanted,
                 f"{wanted} counted", 30, 0.2)
    nbt.wait_for(lambda: read().sum("nccl_timed_operations_total") > 0, "GPU times", 30, 0.2)
