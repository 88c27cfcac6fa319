# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Attached in the middle of a PyTorch job on two GPUs: counts and identity as the job has them."""
import sys
from pathlib import Path

import nbt

sys.path.insert(0, str(Path(__file__).resolve().parent))
import gpu  # noqa: E402

STEPS = 50
OPERATIONS = {"all_reduce": "AllReduce", "all_gather": "AllGather",
              "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast"}


def expected_calls(account, ranks, series, rank):
    """By NCCL operation. all_to_all is one AlltoAll, or in older PyTorch a send and a receive per
    rank in one group: which of the two, the tracer says; never both."""
    want = {ours: sum(n for key, n in account.items() if key.endswith("/" + theirs))
            for theirs, ours in OPERATIONS.items()}
    all_to_all = sum(n for key, n in account.items() if key.endswith("/all_to_all"))
    for operation, theirs in (("Send", "send"), ("Recv", "recv")):
        want[operation] = sum(n for key, n in account.items() if key.endswith("/" + theirs))
    if series.sum("nccl_operations_total", rank=rank, operation="AlltoAll"):
        want["AlltoAll"] = all_to_all
    else:
        want["Send"] += all_to_all * ranks
        want["Recv"] += all_to_all * ranks
    return want


def check_counts(job, series):
    rows = []
    for rank, account in enumerate(job.accounts()):
        want = expected_calls(account, job.ranks, series, str(rank))
        for operation, calls in sorted(want.items()):
            got = series.sum("nccl_operations_total", rank=str(rank), operation=operation)
            rows.append((rank, operation, calls, int(got)))
        rows.append((rank, "any", sum(want.values()),
                     int(series.sum("nccl_operations_total", rank=str(rank)))))
    gpu.table(("rank", "operation", "called by the script since attach", "counted"), rows)
    assert all(want == got for _, _, want, got in rows), "counts differ"


def match_labels(communicators, series):
    """[(what NCCL logged, the tracer's labels)]. One split off has no hash in NCCL's log: it is one
    of the tracer's others in that process."""
    named = {c["hash"] for c in communicators}
    others = {pid: [l for l, _ in series.get("nccl_communicator_info", pid=pid)
                    if l["comm"] not in named] for pid in {c["pid"] for c in communicators}}
    for c in communicators:
        if c["hash"]:
            found = [l for l, _ in series.get("nccl_communicator_info", comm=c["hash"],
                                              rank=c["rank"], pid=c["pid"])]
            assert len(found) == 1, (c, found)
            yield c, found[0]
        else:
            assert others[c["pid"]], f"not known to the tracer: {c}"
            yield c, others[c["pid"]].pop(0)
    assert not any(others.values()), f"not known to NCCL: {others}"


def check_identity(job, series, made_before, n_nodes):
    uuids, rows, before = gpu.uuids(), [], {c["hash"] for c in made_before}
    communicators = job.communicators()
    assert len(communicators) >= 2 * job.ranks, communicators
    ranks_of = {}
    for c, found in match_labels(communicators, series):
        rows.append((c["made_by"], found["comm"], found["rank"], found["nranks"], found["UUID"],
                     found["n_nodes"], found["identity"]))
        assert (found["rank"], found["nranks"]) == (c["rank"], c["nranks"]), (c, found)
        assert found["UUID"] == uuids[c["bus"]], (found["UUID"], c["bus"], uuids)
        assert found["n_nodes"] == str(n_nodes)
        made_before_attach = bool(c["hash"]) and c["hash"] in before
        assert found["identity"] == ("recovered" if made_before_attach else "observed"), found
        ranks_of.setdefault(found["comm"], []).append(found["rank"])
    gpu.table(("made by", "hash", "rank", "nranks", "UUID", "nodes", "identity"), rows)
    for value, ranks in ranks_of.items():
        assert sorted(ranks) == [str(r) for r in range(job.ranks)], f"{value}: hash of {ranks}"


def check_sequences(job, series):
    """The world's AllReduce number is NCCL's own since creation: calls before attach are in it."""
    rows = []
    world = job.communicators()[0]["hash"]
    for rank in range(job.ranks):
        number = series.one("nccl_operation_sequence", comm=world, rank=str(rank),
                            operation="AllReduce")
        calls = series.one("nccl_operations_total", comm=world, rank=str(rank),
                           operation="AllReduce")
        rows.append((rank, int(calls), int(number), int(number - calls)))
        assert number - calls == 100, "100 steps were made before attach"
    gpu.table(("rank", "AllReduce counted", "NCCL's number", "made before attach"), rows)


def attached_in_the_middle(mode, environment=(), n_nodes=1):
    gpu.need_gpus(2)
    job = gpu.TorchJob(2, STEPS, mode, environment)
    before = job.communicators()
    ps = nbt.run_agent("ps")
    print(ps.stdout, ps.stderr)
    agent = nbt.Agent()
    first = agent.series()
    for c in before:
        assert first.one("nccl_communicator_info", comm=c["hash"], rank=c["rank"]) == 1
        assert first.one("nccl_operation_sequence", comm=c["hash"], rank=c["rank"],
                         operation="AllReduce") == 100, "absolute from the first scrape"
    job.tell("go")
    job.wait("done")
    series = agent.fresh()
    check_counts(job, series)
    check_identity(job, series, before, n_nodes)
    check_sequences(job, series)
    lost = series.sum("nccl_bpftrace_events_lost_total")
    print(f"records received {int(series.one('nccl_bpftrace_events_total'))}, lost {int(lost)}; "
          f"agent CPU {series.one('nccl_bpftrace_cpu_seconds_total'):.3f} s, "
          f"RSS {series.one('nccl_bpftrace_resident_memory_bytes') / 1e6:.1f} MB")
    assert lost == 0
    job.tell("end")
    nbt.wait_for(lambda: job.process.poll() is not None, "the job's end", 60)
    assert job.process.returncode == 0, job.output()


def test_communicators_by_split():
    attached_in_the_middle("eager")


def test_communicators_by_init():
    attached_in_the_middle("lazy")


def test_two_nodes_by_hostid():
    attached_in_the_middle("lazy", {"NCCL_BPFTRACE_NODES": "1"}, n_nodes=2)
