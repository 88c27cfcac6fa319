# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The DaemonSet: what it asks for and what not, against Kubernetes' own schema; and the Slurm scripts."""
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbt

MANIFEST = nbt.ROOT / "packaging/kubernetes/daemonset.yaml"
CONTAINERFILE = nbt.ROOT / "packaging/Containerfile"
PROLOG = nbt.ROOT / "packaging/slurm/task_prolog.sh"
CACHE = Path(os.environ.get("NCCL_BPFTRACE_CACHE") or
             Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nccl-bpftrace")
VALIDATE = "kubernetes-validate"
SCHEMAS = ("1.30", "1.34")  # the first one with appArmorProfile


def objects():
    """By kind. The system's Python has PyYAML with yamllint, whatever runs this."""
    nbt.need("yamllint", "yamllint")
    done = subprocess.run(["/usr/bin/python3", "-c", "import json, sys, yaml; "
                           "print(json.dumps(list(yaml.safe_load_all(sys.stdin))))"],
                          stdin=MANIFEST.open(), text=True, capture_output=True, check=True)
    return {found["kind"]: found for found in json.loads(done.stdout)}


def test_yaml():
    rules = "{extends: default, rules: {line-length: {max: 120}}}"
    done = subprocess.run([nbt.need("yamllint", "yamllint"), "--strict", "-d", rules, MANIFEST.parent],
                          text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_against_the_schema():
    """Of several releases; unknown keys are refused."""
    program = shutil.which(VALIDATE) or shutil.which(VALIDATE, path=CACHE / "kubernetes/bin") or nbt.skip(
        f"no {VALIDATE}: python3 -m venv {CACHE}/kubernetes && {CACHE}/kubernetes/bin/pip install {VALIDATE}")
    for release in SCHEMAS:
        done = subprocess.run([program, "--strict", "-k", release, MANIFEST], text=True, capture_output=True)
        assert done.returncode == 0, f"{release}: {done.stdout}{done.stderr}"


def test_it_asks_for_no_more_than_it_needs():
    found = objects()
    assert set(found) == {"Namespace", "DaemonSet"}, "nothing that is granted by the API server"
    spec = found["DaemonSet"]["spec"]["template"]["spec"]
    assert spec["hostPID"] and spec["automountServiceAccountToken"] is False
    assert "serviceAccountName" not in spec
    tracer, exporter = spec["containers"]
    context = tracer["securityContext"]
    assert context["privileged"] is False and context["readOnlyRootFilesystem"]
    assert context["capabilities"]["drop"] == ["ALL"]
    assert exporter["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert exporter["securityContext"]["runAsNonRoot"]
    paths = [volume["hostPath"]["path"] for volume in spec["volumes"] if "hostPath" in volume]
    assert paths == ["/sys/fs/cgroup"], paths
    for container in (tracer, exporter):
        named = {mount["name"]: mount for mount in container["volumeMounts"]}
        assert set(named) <= {volume["name"] for volume in spec["volumes"]}
        for name, mount in named.items():
            assert mount.get("readOnly") or (container is tracer and name == "textfiles"), mount
    assert found["DaemonSet"]["spec"]["selector"]["matchLabels"].items() <= \
        found["DaemonSet"]["spec"]["template"]["metadata"]["labels"].items()


def test_what_it_runs():
    """Images of this version, and command lines that the programs take."""
    spec = objects()["DaemonSet"]["spec"]["template"]["spec"]
    tracer, exporter = spec["containers"]
    version = re.search(r'VERSION "(.*)"', (nbt.ROOT / "src/version.h").read_text())[1]
    assert tracer["image"] == f"nccl-bpftrace:{version}"
    assert f"-t {tracer['image']} " in CONTAINERFILE.read_text()
    done = nbt.run_agent(*tracer["args"], "--help")
    assert done.returncode == 0, done.stderr
    mounts = {mount["mountPath"] for mount in tracer["volumeMounts"]}
    assert tracer["args"][tracer["args"].index("--textfile-dir") + 1] in mounts
    program = nbt.need("prometheus-node-exporter", "prometheus-node-exporter")
    done = subprocess.run([program, *exporter["args"], "--version"], text=True, capture_output=True)
    assert done.returncode == 0, done.stderr
    assert exporter["args"][-1].endswith(f":{exporter['ports'][0]['containerPort']}")


def test_container_file():
    """What it copies is what is built, and the image holds no more than that."""
    text = CONTAINERFILE.read_text()
    assert re.findall(r"^FROM (\S+)", text, re.M) == ["debian:12", "scratch"]
    for path in re.search(r"^COPY --from=build (.*) /$", text, re.M)[1].split():
        assert (nbt.ROOT / path.removeprefix("/source/")).exists(), path
    done = subprocess.run([nbt.need("readelf", "binutils"), "-lW", nbt.AGENT], text=True, capture_output=True,
                          check=True)
    assert "INTERP" not in done.stdout, "not a static file: it would not run there"


def prolog(**environment):
    plugin = nbt.BUILD / "libnccl-profiler-bpftrace.so"
    script = nbt.tempdir() / "task_prolog.sh"
    script.write_text(re.sub(r"^plugin=.*$", f"plugin={plugin}", PROLOG.read_text(), flags=re.M))
    done = subprocess.run(["sh", script], text=True, capture_output=True,
                          env={"PATH": os.environ["PATH"], **environment})
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.replace(str(plugin), "PLUGIN")


def test_task_prolog():
    assert os.access(PROLOG, os.X_OK)
    assert prolog(SLURM_JOB_PARTITION="train") == "export NCCL_PROFILER_PLUGIN=PLUGIN\n"
    assert prolog(SLURM_JOB_PARTITION="rain") == prolog() == ""
    assert prolog(SLURM_JOB_PARTITION="train", NCCL_PROFILER_PLUGIN="mine") == ""


def test_scripts():
    shellcheck = nbt.need("shellcheck", "shellcheck")
    scripts = [PROLOG, nbt.ROOT / "scripts/setup.sh",
               *nbt.ROOT.glob("packaging/debian/*.p*[rm]*")]
    assert len(scripts) == 4, scripts
    done = subprocess.run([shellcheck, "--severity=warning", *scripts], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout
