# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Whose job a process is: real cgroups named as Slurm and Kubernetes name them, and a host's files."""
import json
import os
import re
import subprocess
from pathlib import Path

import nbt
import servers
from hook import PLUGIN

SIDE_BY_SIDE = True  # each has its own jobs, and an agent that sees no others
INFO = "nccl_bpftrace_process_info"
UID = "6b8e2f4c-1d3a-4c5b-9e7f-0a1b2c3d4e5f"
OTHER_UID = "00000000-1111-2222-3333-444444444444"
ID = "8f0c2d1e9b7a6354f0e1d2c3b4a5968778695a4b3c2d1e0f9a8b7c6d5e4f3021"
OTHER_ID = "1" * 64
POD = (f"kubepods-burstable-pod{UID.replace('-', '_')}.slice", f"cri-containerd-{ID}.scope")
CLAIM = ["SLURM_JOB_ID=7", "SLURM_STEP_ID=9", "LOCAL_RANK=1", "POD_NAME=another",
         "POD_NAMESPACE=another"]
SCRIPT = "comm world config; allreduce world 10 fp32 x 3"


def job_in(*levels, ranks=1, wrapped=(), claim=CLAIM):
    """A simulated job that claims another's identity, in a cgroup of these levels."""
    path = ""
    for level in levels:
        path = f"{path}/{level}".lstrip("/")
        _, procs = servers.child_cgroup(path)
    enter = ["sh", "-c", f'echo $$ >"{procs}" && exec "$@"', "-"] if levels else []
    return servers.sim(SCRIPT, ranks=ranks, prefix=[*wrapped, *enter, "env", *claim])


def hierarchy(controller):
    """Where version 1 of cgroups has it mounted."""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, path, kind, options = line.split()[:4]
        if kind == "cgroup" and controller in options.split(","):
            return Path(path)
    return nbt.skip(f"no cgroup v1 hierarchy of {controller}")


def job_in_version_1(path):
    """The same, in a cgroup of one controller, while version 2 knows nothing of jobs."""
    at = hierarchy("pids") / f"nccl-bpftrace-test.{os.getpid()}"
    for name in ("", *path.split("/")):
        at /= name
        at.mkdir()
        nbt.defer(leave, at)
    return servers.sim(SCRIPT, ranks=1, prefix=[
        "sh", "-c", 'echo $$ >"$0" && exec "$@"', at / "cgroup.procs", "env", *CLAIM])


def leave(cgroup):
    nbt.wait_for(lambda: not (cgroup / "cgroup.procs").read_text(), f"{cgroup} to be left")
    cgroup.rmdir()


def host(pods=(), logs=(), files=()):
    """A directory made like the root of a host."""
    root = nbt.tempdir()
    for pod in pods:
        (root / "var/log/pods" / pod).mkdir(parents=True)
    for name in logs:
        (root / "var/log/containers").mkdir(parents=True, exist_ok=True)
        (root / "var/log/containers" / name).symlink_to("/nowhere")
    for name, content in files:
        (root / name).parent.mkdir(parents=True)
        (root / name).write_text(json.dumps(content))
    return root


def labels_of(job, root, ranks=1):
    """The labels of process_info of one rank; those of the counters and of `ps` agree with them."""
    agent = servers.agent("--host-root", root)
    job.run()
    series = agent.until(lambda s: s.sum("nccl_operations_total") == 3 * ranks, "the calls", 60)
    series = agent.fresh()
    labels = series.get(INFO)[0][0]
    assert {l["job_id"] for l, _ in series.get("nccl_operations_total")} == {labels["job_id"]}
    done = nbt.run_agent("ps", "--json", "--host-root", root, "--cgroup", servers.own_cgroup())
    assert done.returncode == 0, done
    process = next(p for p in json.loads(done.stdout)["processes"]
                   if str(p["pid"]) == labels["pid"])
    assert process["job_id"] == labels["job_id"]
    for name in ("namespace", "pod", "container", "slurm_step", "local_rank"):
        assert process["job"][name] == labels[name], (name, process)
    return {name: labels[name] for name in
            ("job_id", "namespace", "pod", "container", "slurm_step", "local_rank")}


def expected(job_id="", namespace="", pod="", container="", slurm_step="", local_rank="1"):
    return locals()


def test_pod_by_the_kubelet_s_folders():
    root = host([f"research_llm-worker-3_{UID}/trainer", f"another_another_{OTHER_UID}/main"],
                [f"llm-worker-3_research_trainer-{ID}.log",
                 f"another_another_main-{OTHER_ID}.log"])
    assert labels_of(job_in(*POD, ranks=2), root, 2) == expected(
        "research/llm-worker-3", "research", "llm-worker-3", "trainer")


def test_pod_by_the_runtime_s_bundle():
    root = host(files=[(
        f"run/containerd/io.containerd.runtime.v2.task/k8s.io/{ID}/config.json",
        {"process": {"env": CLAIM}, "annotations": {
            "io.kubernetes.cri.container-name": "trainer",
            "io.kubernetes.cri.sandbox-name": "llm-worker-3",
            "io.kubernetes.cri.sandbox-namespace": "research",
            "io.kubernetes.cri.sandbox-uid": UID}})])
    assert labels_of(job_in(f"pod{UID}", ID), root) == expected(
        "research/llm-worker-3", "research", "llm-worker-3", "trainer")


def test_pod_without_a_name():
    """The environment's claim is not taken where the cgroup has a pod, though none knows its name."""
    assert labels_of(job_in(*POD), host()) == expected(container=ID[:12])


def test_slurm_step():
    job = job_in("node1_slurmstepd.scope", "job_4242", "step_batch", "user", "task_0")
    assert labels_of(job, host()) == expected("4242", slurm_step="batch")


def test_slurm_step_of_version_1():
    job = job_in_version_1("slurm_node1/uid_1000/job_4243/step_4/task_0")
    assert labels_of(job, host()) == expected("4243", slurm_step="4")


def test_pod_of_version_1():
    job = job_in_version_1(f"kubepods/burstable/pod{UID}/{ID}")
    assert labels_of(job, host([f"research_llm_{UID}"])) == expected(
        "research/llm", "research", "llm", ID[:12])


def test_docker_by_its_own_file():
    root = host(files=[(f"var/lib/docker/containers/{ID}/config.v2.json", {
        "Name": "/my_trainer", "Config": {"Labels": {
            "io.kubernetes.pod.namespace": "another", "io.kubernetes.pod.name": "another",
            "io.kubernetes.pod.uid": OTHER_UID}}})])
    job = job_in(f"docker-{ID}.scope", claim=["LOCAL_RANK=1"])
    assert labels_of(job, root) == expected(container="my_trainer")


def test_bare():
    assert labels_of(job_in(), host()) == expected("7", slurm_step="9")


def test_cgroups_that_a_user_can_make():
    root = host([f"another_another_{OTHER_UID}", f"research_llm_{UID}"])
    job = job_in("user@1000.service", f"pod{OTHER_UID}", OTHER_ID, claim=["LOCAL_RANK=1"])
    assert labels_of(job, root) == expected()


def test_cgroups_that_a_container_can_make():
    root = host([f"another_another_{OTHER_UID}", f"research_llm_{UID}"])
    job = job_in(*POD, f"pod{OTHER_UID}", OTHER_ID, "job_7", "step_9")
    assert labels_of(job, root) == expected("research/llm", "research", "llm", ID[:12])


def test_with_the_capabilities_that_are_needed_alone():
    """What is root's alone, below the root of another process: as a DaemonSet sees the host."""
    bundle = {"io.kubernetes.cri.container-name": "trainer",
              "io.kubernetes.cri.sandbox-name": "llm", "io.kubernetes.cri.sandbox-uid": UID,
              "io.kubernetes.cri.sandbox-namespace": "research"}
    where = f"io.containerd.runtime.v2.task/k8s.io/{ID}"
    mount = servers.private_mounts(("/run", "mode=700", [f"containerd/{where}"]))
    first = subprocess.Popen(["cat"], stdin=subprocess.PIPE, preexec_fn=mount)
    nbt.defer(nbt.end_by_input, first)
    root = Path(f"/proc/{first.pid}/root")
    (root / "run/containerd" / where / "config.json").write_text(json.dumps({
        "annotations": bundle}))
    job = job_in(*POD)
    agent = nbt.as_nobody("bpf", "perfmon", "sys_ptrace", "checkpoint_restore",
                          "dac_read_search")
    done = subprocess.run([*agent, "ps", "--json", "--host-root", root, "--cgroup",
                           servers.own_cgroup()], text=True, capture_output=True, timeout=60)
    assert done.returncode == 0, done
    processes = json.loads(done.stdout)["processes"]
    assert [p["pid"] for p in processes] == job.pids, processes
    assert processes[0]["job_id"] == "research/llm" and \
        processes[0]["job"]["container"] == "trainer", processes


def test_job_in_a_pid_namespace_of_its_own():
    """The numbers of processes are the host's, not those that the job has for itself."""
    job = job_in(wrapped=[nbt.need("unshare", "util-linux"), "--pid", "--fork", "--mount-proc"],
                 ranks=2)
    assert all(pid < 100 for pid in job.pids), "the job has numbers of its own"
    agent = servers.agent()
    job.run()
    series = agent.until(lambda s: s.sum("nccl_operations_total") == 6 and
                         len(s.get(INFO)) == 2, "the calls", 60)
    for labels, _ in series.get(INFO):
        status = Path(f"/proc/{labels['pid']}/status").read_text()
        numbers = re.search(r"^NSpid:\s+(.*)$", status, re.M)[1].split()
        assert len(numbers) == 2 and int(numbers[1]) in job.pids, (labels, numbers)
        assert (labels["job_id"], labels["slurm_step"]) == ("7", "9")
    assert nbt.counted_totals(series, job.expected()) == nbt.expected_totals(job.expected())
    infos = {(l["rank"], l["identity"]) for l, _ in series.get("nccl_communicator_info")}
    assert infos == {("0", "observed"), ("1", "observed")}


def test_gpu_time_of_a_job_in_a_pid_namespace_of_its_own():
    """The tracer wakes each plugin by the number that its process has out here."""
    ranks = 3
    job = servers.sim("comm world config; loop 100 { allreduce world 100 fp32; pause 20 }",
                      ranks=ranks, gpu=True, plugin=PLUGIN, prefix=[
                          nbt.need("unshare", "util-linux"), "--pid", "--fork", "--mount-proc"])
    assert all(pid < 100 for pid in job.pids), "the job has numbers of its own"
    agent = servers.agent("--gpu-timing-budget", "100", preexec_fn=servers.fake_gpus(ranks))
    job.run()
    series = agent.until(lambda s: len(s.get("nccl_timed_operations_total")) == ranks and
                         len(s.get(INFO, plugin="active")) == ranks, "times of each GPU", 60)
    assert {labels["UUID"] for labels, _ in series.get("nccl_timed_operations_total")} == {
        servers.gpu_uuid(i) for i in range(ranks)}
    assert not {labels["pid"] for labels, _ in series.get(INFO)} & set(map(str, job.pids))


def test_host_root_that_is_none():
    for root, why in (("/proc/self/status", "is not a directory"),
                      ("/no/such/directory", "No such file or directory")):
        done = nbt.run_agent("ps", "--host-root", root)
        assert done.returncode == 2 and done.stdout == "", done
        assert len(done.stderr.splitlines()) == 1 and root in done.stderr, done
        assert why in done.stderr, done


def test_labels_of_the_exporter_s_own_pod():
    """Prometheus labels a target that is a pod; README says what then becomes of the job's labels."""
    root = host([f"research_llm_{UID}"], [f"llm_research_trainer-{ID}.log"])
    job = job_in(*POD)
    agent = servers.agent("--host-root", root)
    job.run()
    agent.until(lambda s: s.get(INFO, pod="llm"), "the job's pod", 60)
    target = {"namespace": "monitoring", "pod": "nccl-bpftrace-x7", "container": "node-exporter"}
    node_exporter = servers.NodeExporter(agent.directory)
    for honor_labels, prefix in ((False, "exported_"), (True, "")):
        prometheus = servers.Prometheus(node_exporter, honor_labels=honor_labels, labels=[target])
        (labels, _), = nbt.wait_for(lambda p=prometheus: p.query(INFO), "the job", 60)
        assert [labels[prefix + name] for name in target] == ["research", "llm", "trainer"], labels
        assert honor_labels or [labels[name] for name in target] == list(target.values()), labels
        assert labels["job_id"] == "research/llm"
