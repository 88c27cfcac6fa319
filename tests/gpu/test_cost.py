# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What the tracer costs a PyTorch job on two GPUs: rounds with and without it in alternation."""
import json
import statistics
import subprocess
import sys
from pathlib import Path

import nbt

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu  # noqa: E402

PAIRS = 20


def test_cost_of_tracing_all_reduce():
    """Printed, not judged by time: machines are noisy. That all calls were counted is asserted."""
    gpu.need_gpus(2)
    directory = nbt.tempdir()
    job = subprocess.Popen([sys.executable, "-m", "torch.distributed.run", "--standalone",
                            "--nproc-per-node=2", gpu.HERE / "cost_job.py", directory],
                           stdin=subprocess.DEVNULL)
    nbt.defer(nbt.end, job)
    nbt.wait_for(lambda: all((directory / f"ready.{r}").exists() for r in (0, 1)), "ready", 120)
    times = {False: [], True: []}
    for number in range(2 * PAIRS):
        traced = bool(number % 2)
        agent = nbt.Agent() if traced else None
        (directory / f"round.{number}").touch()
        done = directory / f"times.{number}"
        nbt.wait_for(done.exists, f"round {number}", 60, 0.005)
        times[traced].append(json.loads(done.read_text()))
        if agent:
            assert agent.fresh().sum("nccl_operations_total", operation="AllReduce") == 8000
            agent.stop()
    (directory / "end").touch()
    assert job.wait(60) == 0
    rows = []
    for size in times[False][0]:
        for place, what in enumerate(("host, queueing", "until done")):
            without = [t[size][place] for t in times[False]]
            ratios = [b[size][place] / a[size][place]
                      for a, b in zip(times[False], times[True])]
            rows.append((size, what, f"{statistics.median(without):.2f} µs",
                         f"{statistics.median(t[size][place] for t in times[True]):.2f} µs",
                         f"{statistics.median(ratios):.3f}",
                         f"{min(ratios):.3f} to {max(ratios):.3f}"))
    gpu.table(("all_reduce", "time a call", "without", "traced", "ratio (median)", "all pairs"),
              rows)
