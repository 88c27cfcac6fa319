# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One simulated job, attached to before it starts: every count as the job itself counted."""
import nbt


def test_counts_equal_the_job_s_own():
    sim = nbt.Sim("comm world; split half world 2; loop 50 { allreduce world 1000 fp32; "
                  "allgather half 100 bf16 x 3; group { reducescatter world 64 fp64 x 2 } }; "
                  "broadcast world 7 int8; bcast world 9 int8; reduce world 5 fp16", ranks=4)
    agent = nbt.Agent()
    sim.run()
    of_job = {(e["comm"], e["rank"]): "observed" for e in sim.expected()}
    agent.until(lambda s: {(l["comm"], l["rank"]): l["identity"]
                           for l, _ in s.get("nccl_communicator_info")}.items() >= of_job.items(),
                "every communicator's making was seen")
    series = agent.fresh()
    expected = sim.expected()
    assert nbt.counted_totals(series, expected) == nbt.expected_totals(expected)
    assert series.sum("nccl_bpftrace_events_lost_total") == 0
    for entry in expected:
        info = series.get("nccl_communicator_info", comm=entry["comm"], rank=entry["rank"])
        assert len(info) == 1, info
        assert info[0][0]["pid"] == entry["pid"]
        assert info[0][0]["nranks"] == entry["nranks"]
        if entry["sequence"] != "-":
            assert series.one("nccl_operation_sequence", comm=entry["comm"], rank=entry["rank"],
                              operation=entry["operation"]) == float(entry["sequence"])
