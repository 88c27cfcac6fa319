# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The systemd unit: what it grants suffices, and is what is granted elsewhere; its configuration file."""
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import managed
import nbt
import tenant
from managed import TEXTFILES
from servers import NodeExporter, fake_gpus

PACKAGING = nbt.ROOT / "packaging"
UNIT = "nccl-bpftrace.service"
CONF = PACKAGING / "nccl-bpftrace.conf"
EXPOSURE = 17  # of 100, as systemd counts it


def settings(text=None):
    """{name: [values]} of the unit's [Service]; a value that is set again adds to it."""
    text = text or (PACKAGING / UNIT).read_text()
    found = {}
    for name, value in re.findall(r"^(\w+)=(.*)$", text.split("[Service]")[1].split("[Install]")[0], re.M):
        found.setdefault(name, []).append(value)
    return found


def capabilities():
    (granted,) = settings()["AmbientCapabilities"]
    return granted.split()


def test_capabilities_are_the_same_everywhere():
    unit = settings()
    assert unit["AmbientCapabilities"] == unit["CapabilityBoundingSet"]
    checked = re.findall(r'\{"(CAP_\w+)", CAP_', (nbt.ROOT / "src/cmd_check.c").read_text())
    assert sorted(capabilities()) == sorted(checked)
    readme = re.search(r"^- Root, or (.*?), and write", (nbt.ROOT / "README.md").read_text(), re.M | re.S)[1]
    assert sorted(re.findall(r"CAP_\w+", readme)) == sorted(checked)
    pod = re.search(r"add: \[(.*)\]", (PACKAGING / "kubernetes/daemonset.yaml").read_text())[1]
    assert sorted("CAP_" + name for name in pod.split(", ")) == sorted(checked)
    comments = re.findall(r"CAP_\w+", re.search(r"# All the privilege.*?\n(.*?)# On kernels", (PACKAGING / UNIT).read_text(),
                                                re.S)[1])
    assert sorted(comments) == sorted(checked)


def analyze(*words):
    """systemd-analyze of the unit as it is installed."""
    program = nbt.need("systemd-analyze", "systemd")
    unit = nbt.tempdir() / UNIT
    unit.write_text((PACKAGING / UNIT).read_text().replace("@SBINDIR@", str(nbt.BUILD)))
    done = subprocess.run([program, *words, unit], text=True, capture_output=True,
                          env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"})
    return done.returncode, done.stdout + done.stderr


def test_unit_is_understood():
    nbt.need("setfacl", "acl")
    status, said = analyze("verify", "--man=no")
    # of what this systemd knows and this machine's libseccomp does not
    said = re.sub(r".*Failed to parse system call, ignoring.*\n?", "", said)
    assert status == 0 and not said.strip(), said


def test_unit_is_confined():
    status, said = analyze("security", "--offline=true", "--no-pager", f"--threshold={EXPOSURE}")
    if "unrecognized option" in said:
        nbt.skip("this systemd-analyze has no --offline (before 250)")
    assert status == 0, said


def options_of_run():
    done = nbt.run_agent("run", "--help")
    return dict(re.findall(r"^ +(?:-\w, )?--([\w-]+)(?: [A-Z]+)? {2,}(.*)$", done.stdout, re.M))


def test_configuration_file_names_every_option_and_its_default():
    offered = re.findall(r"^#([\w-]+) = (.*)$", CONF.read_text(), re.M)
    documented = options_of_run()
    assert len(documented) > 10
    assert sorted(name for name, _ in offered) == sorted(set(documented) - {"config", "help", "version"})
    for name, value in offered:
        found = re.search(r"\((\d+[KM]?)(?:; diagnose: \d+)?\)$", documented[name]) or \
            re.search(r"(\S+) \(the default\)", documented[name]) or \
            re.search(r"\(default: (/[^\s)]+)", documented[name])
        assert not found or found[1] == value, f"{name} = {value}, --help says {found[1]}"


def test_configuration_file_is_read():
    """Every line of it, uncommented; and as it is installed."""
    file = nbt.tempdir() / "conf"
    directory = nbt.tempdir()
    text = CONF.read_text().replace(TEXTFILES, str(directory)).replace("/proc/1/root", "/")
    for settings_text in (re.sub(r"^#([\w-]+ = )", r"\1", text, flags=re.M), text):
        file.write_text(settings_text)
        done = nbt.run_agent("run", "--config", file, "--duration", 1, "--textfile-dir", directory)
        assert done.returncode in (0, 3), done.stderr
        assert "conf:" not in done.stderr, done.stderr  # FILE:LINE: of a line that is refused


def trace_as(uid):
    """Without systemd: the unit's capabilities and no others, another user's job."""
    if os.geteuid() != 0:
        nbt.skip("needs root")
    directory = nbt.tempdir()
    os.chown(directory, uid, uid)
    program = directory / "nccl-bpftrace"
    shutil.copy(nbt.AGENT, program)
    caps = ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in capabilities())])
    job = tenant.start()
    agent = subprocess.Popen(
        [nbt.need("setpriv", "util-linux"), f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs",
         f"--bounding-set={caps}", f"--inh-caps={caps}", f"--ambient-caps={caps}", program, "run", "--interval", "1",
         "--textfile-dir", directory], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, preexec_fn=fake_gpus(2))
    nbt.defer(nbt.end, agent)
    file = directory / "nccl_bpftrace.prom"
    nbt.wait_for(lambda: file.exists() or agent.poll() is not None, "the textfile", 30)
    assert agent.poll() is None
    status = Path(f"/proc/{agent.pid}/status").read_text()
    assert bin(int(re.search(r"^CapEff:\s+(\w+)", status, re.M)[1], 16)).count("1") == len(capabilities())
    job.run()
    tenant.expect_all(lambda: nbt.Series(file.read_text()), job)


def test_capabilities_suffice_without_root():
    trace_as(65534)


def test_capabilities_suffice_as_root():
    """As in a container, whose root may do no more than that."""
    trace_as(0)


def installed():
    """As `make install` puts it."""
    root = managed.node()
    root.run("make", "-C", nbt.ROOT, "install", "SETUP=true", "PREFIX=/usr/local")
    root.run("systemd-sysusers", "/usr/local/lib/sysusers.d/nccl-bpftrace.conf")
    unit = f"/usr/local/lib/systemd/system/{UNIT}"
    assert "ExecStart=/usr/local/sbin/nccl-bpftrace run " in root.run("cat", unit)
    return managed.Service(root, unit)


def test_the_service():
    """All of the unit's sandbox by systemd itself: another user's job is traced, what is told is read by node_exporter."""
    service = installed()
    service.conf.write_text(service.conf.read_text() + "interval = 1\n")
    service.drop_in("WatchdogSec=3\nTimeoutStopSec=2\nRestartSec=1\n")
    job = tenant.start()
    service.start()
    status = dict(re.findall(r"^(\w+):\s*(.*)$", (service.process() / "status").read_text(), re.M))
    uid = service.root.run("id", "-u", "nccl-bpftrace").strip()
    assert status["Uid"].split() == [uid] * 4 and uid != "0", status
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2"), status
    for held in ("CapPrm", "CapEff", "CapBnd", "CapAmb"):
        assert bin(int(status[held], 16)).count("1") == len(capabilities()), status
    nbt.wait_for(service.file.exists, "the textfile")
    job.run()
    tenant.expect_all(service.series, job)
    assert (service.file.stat().st_uid, service.file.stat().st_mode & 0o777) == (int(uid), 0o644)
    # at least: other jobs may run on the machine
    told = r"([2-9]|\d\d+) NCCL processes traced, \d+ cannot be; textfiles: " + TEXTFILES
    nbt.wait_for(lambda: re.fullmatch(told, service.status_text()), "STATUS", 10)
    exporter = NodeExporter(service.file.parent)
    assert exporter.series().get("nccl_operations_total")

    # one that hangs is started again
    hung = service.process()
    os.kill(int(hung.name), signal.SIGSTOP)
    nbt.wait_for(lambda: service.show()["NRestarts"] == "1" and service.show()["ActiveState"] == "active",
                 "the watchdog", 60, 0.3)
    assert service.process() != hung

    # a bad setting ends it, and stays bad
    service.conf.write_text("interval = soon\n")
    assert service.control("restart").returncode != 0
    nbt.wait_for(lambda: service.show()["ActiveState"] == "failed", "the end", 10)
    assert service.show()["ExecMainStatus"] == "2"


def test_it_stops_cleanly():
    """Where there is no node_exporter either."""
    service = installed()
    service.root.run("rmdir", TEXTFILES)
    service.start()
    nbt.wait_for(lambda: service.status_text().endswith("textfiles: none"), "STATUS", 20)
    process = service.process()
    assert service.control("stop").returncode == 0
    shown = service.show()
    assert (shown["ActiveState"], shown["ExecMainStatus"], shown["Result"]) == ("inactive", "0", "success"), shown
    assert not process.exists()


def generated(btf):
    """What the generator adds to the unit on a kernel with such a BTF; "" for nothing."""
    place = nbt.tempdir()
    (place / "btf").write_bytes(btf)
    script = place / "generator"
    script.write_text((PACKAGING / "nccl-bpftrace.generator").read_text().replace("/sys/kernel/btf/vmlinux",
                                                                                  str(place / "btf")))
    for _ in range(2):
        done = subprocess.run(["sh", script, place], text=True, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    made = place / f"{UNIT}.d/uprobes.conf"
    return made.read_text() if made.exists() else ""


def test_kernels_without_uprobe_multi():
    """One capability more, which suffices; without it the service says what is missing, and does not pretend to trace."""
    assert generated(b"\0bpf_link\0bpf_uprobe_multi_link\0") == ""
    added = generated(b"\0bpf_link\0")
    service = installed()
    service.conf.write_text("interval = 1\nattach = perf\n")
    service.drop_in("StandardError=append:/run/said\n")
    service.manager.start()
    assert service.control("start").returncode != 0
    said = service.root.run("cat", "/run/said")
    assert "CAP_SYS_ADMIN" in said and service.show()["ExecMainStatus"] == "3", said
    service.control("stop")
    service.drop_in(added.removeprefix("[Service]\n"))
    service.manager.control("daemon-reload")
    job = tenant.start()
    assert service.control("start").returncode == 0
    nbt.defer(service.control, "stop")
    nbt.wait_for(service.file.exists, "the textfile", 30)
    job.run()
    tenant.expect_all(service.series, job)


def test_what_it_cannot_do_it_says():
    """The knobs of other users' jobs need one capability more, following other plugins another one."""
    service = installed()
    service.conf.write_text("gpu-timing-budget = 5\nforeign-plugins = yes\ninterval = 1\n")
    service.drop_in("StandardError=append:/run/said\n")
    service.start()
    said = service.root.path / "run/said"
    nbt.wait_for(lambda: "CAP_DAC_OVERRIDE is missing" in said.read_text() and
                 "CAP_SYS_ADMIN is missing" in said.read_text(), "what it says")
    service.control("stop")
    said.write_text("")
    service.drop_in("StandardError=append:/run/said\nAmbientCapabilities=CAP_DAC_OVERRIDE CAP_SYS_ADMIN\n"
                    "CapabilityBoundingSet=CAP_DAC_OVERRIDE CAP_SYS_ADMIN\n")
    service.manager.control("daemon-reload")
    assert service.control("start").returncode == 0
    nbt.wait_for(lambda: "heartbeat" in service.file.read_text(), "the textfile")
    assert "missing" not in said.read_text()
