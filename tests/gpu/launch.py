# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""One rank of torch_job.py, or of the job that NCCL_BPFTRACE_JOB names; with NCCL_BPFTRACE_NODES=1
each rank is a node of its own for NCCL."""
import os
import runpy
from pathlib import Path

if os.environ.get("NCCL_BPFTRACE_NODES"):
    os.environ["NCCL_HOSTID"] = f"node{os.environ['RANK']}"
    os.environ["NCCL_SOCKET_IFNAME"] = "lo"
runpy.run_path(str(Path(__file__).with_name(os.environ.get("NCCL_BPFTRACE_JOB", "torch_job.py"))), run_name="__main__")
