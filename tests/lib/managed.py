# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""A copy of this machine to install into, and systemd in it: what is done there is done nowhere else."""
import os
import re
import stat
import subprocess
from pathlib import Path

import nbt

MANAGER = "/lib/systemd/systemd"
CLOSE_SECONDS = 20

# The upper layer is a tmpfs: an overlay cannot be one. Processes, devices, cgroups and /tmp are the machine's own.
PREPARE = """
mount --make-rprivate /
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$1/root"
mount -t overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" overlay "$1/root"
for directory in proc sys dev; do mount --rbind "/$directory" "$1/root/$directory"; done
mkdir -p "$1/root/$2"
mount --bind /tmp "$1/root/tmp"
[ -e "$1/root/$2/README.md" ] || mount --bind "$2" "$1/root/$2"
mount -t tmpfs tmpfs "$1/root/run"
mkdir "$1/root/run/upper"
mount --bind "$1/upper" "$1/root/run/upper"
touch "$1/root/run/console"
mount --bind "$1/root/run/console" "$1/root/dev/console"
mkdir "$1/root/run/before"
cd "$1/root"
pivot_root . run/before
umount -l /run/before
cd /
echo ready
read -r end
"""


class Root:
    """Commands in it see a copy of the machine's files, which the test may change; it goes with the test."""

    def __init__(self):
        if os.geteuid() != 0:
            nbt.skip("needs root")
        self.holder = subprocess.Popen(
            ["unshare", "--mount", "sh", "-ec", PREPARE, "sh", nbt.tempdir(), nbt.ROOT],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        nbt.defer(nbt.end_by_input, self.holder)
        if self.holder.stdout.readline() != "ready\n":
            nbt.skip("no overlay of the root directory here: " + self.holder.stderr.read().strip())
        self.path = Path(f"/proc/{self.holder.pid}/root")

    def enter(self, *command):
        return ["nsenter", f"--target={self.holder.pid}", "--mount", "--root", "--wd=/", *map(str, command)]

    def try_run(self, *command, seconds=100, **kwargs):
        return subprocess.run(self.enter(*command), text=True, capture_output=True,
                              stdin=subprocess.DEVNULL, timeout=seconds, **kwargs)

    def run(self, *command, **kwargs):
        """Its standard output; fails when it does."""
        done = self.try_run(*command, **kwargs)
        assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def changes(self):
        """{path: what it is now} of all that differs from the machine: what the upper layer holds."""
        upper = self.path / "run/upper"
        found = {}
        for path in upper.rglob("*"):
            name = Path("/") / path.relative_to(upper)
            if description(path) != description(name):
                found[str(name)] = description(path)
        return found


def description(path):
    """Kind, access and content of a file; None: there is none. An overlay notes that so, too."""
    try:
        st = path.lstat()
    except FileNotFoundError:
        return None
    if stat.S_ISCHR(st.st_mode) and not st.st_rdev:
        return None
    access = {name: os.getxattr(path, name) for name in os.listxattr(path, follow_symlinks=False)
              if name.startswith("system.")} if not path.is_symlink() else {}
    content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return st.st_mode, st.st_uid, st.st_gid, access, content


def cgroup_places():
    """Where systemd keeps its groups: the unified hierarchy, and the named one beside it where there is one."""
    own = dict(line.split(":", 2)[1:] for line in Path("/proc/self/cgroup").read_text().splitlines())
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, place, kind, options = line.split()[:4]
        if kind == "cgroup2" and "" in own:
            yield Path(place)
        elif kind == "cgroup" and "name=systemd" in options.split(","):
            yield Path(place)


class Manager:
    """systemd as its own users' manager runs it, in a Root, with no unit but those that it is given."""

    STUBS = ("basic", "shutdown", "sysinit", "multi-user")

    def __init__(self, root):
        self.root = root
        if not (root.path / MANAGER.lstrip("/")).exists():
            nbt.skip("systemd is not installed (apt: systemd)")
        self.units = "/run/test-units"
        root.run("mkdir", "-p", self.units, "/run/systemd/system")
        for stub in self.STUBS:
            self.add(f"{stub}.target", "[Unit]\nDefaultDependencies=no\n")
        self.log = self.root.path / "run/test-log"
        self.environment = {"XDG_RUNTIME_DIR": "/run", "SYSTEMD_UNIT_PATH": self.units,
                            "SYSTEMD_IGNORE_CHROOT": "1", "HOME": "/root", "PATH": os.environ["PATH"]}
        self.groups = self.make_groups()
        self.process = None

    def make_groups(self):
        groups = [place / f"nccl-bpftrace-manager.{os.getpid()}" for place in cgroup_places()]
        for group in groups:
            try:
                group.mkdir()
            except OSError as error:
                nbt.skip(f"no cgroup can be made here: {error}")
            nbt.defer(self.end_group, group)
        return groups or nbt.skip("no cgroups that systemd could use")

    def end_group(self, group):
        below = sorted(group.rglob("cgroup.procs"), key=lambda path: -len(path.parts))
        for procs in below:
            for pid in procs.read_text().split():
                os.kill(int(pid), 9)
        for procs in below:
            nbt.wait_for(lambda: not procs.read_text(), f"the end of all in {procs}")
            procs.parent.rmdir()

    def add(self, name, text):
        (self.root.path / self.units.lstrip("/") / name).write_text(text)

    def start(self):
        joins = "".join(f'echo $$ >"{group}/cgroup.procs"; ' for group in self.groups)
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(
                self.root.enter("sh", "-c", f"{joins}cd /; umask 0; exec {MANAGER} --user --unit=basic.target "
                                            "--log-target=console"),
                env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        nbt.defer(nbt.end, self.process, 9)
        nbt.wait_for(lambda: self.control("is-active", "basic.target").stdout == "active\n" or
                     self.process.poll() is not None, f"systemd", 30)
        if self.process.poll() is not None:
            nbt.skip("systemd does not run here: " + self.log.read_text())

    def control(self, *words):
        return self.root.try_run("systemctl", "--user", "--no-pager", *words, env=self.environment)

    def show(self, unit):
        """The unit's properties."""
        return dict(line.split("=", 1) for line in self.control("show", unit).stdout.splitlines()
                    if "=" in line)


TEXTFILES = "/var/lib/prometheus/node-exporter"


def node():
    """A copy of this machine as one that has what the service needs, but not the service."""
    root = Root()
    for program, package in (("setfacl", "acl"), ("systemd-sysusers", "systemd")):
        if root.try_run("sh", "-c", f"command -v {program}").returncode:
            nbt.skip(f"{program} is not installed (apt: {package})")
    root.run("sh", "-c", f"rm -rf {TEXTFILES} /etc/nccl-bpftrace.conf /etc/nccl.conf; mkdir -p {TEXTFILES}; "
                         "! dpkg -s nccl-bpftrace >/dev/null 2>&1 || dpkg --purge nccl-bpftrace")
    return root


class Service:
    """The service as it is installed in a root, under a real systemd."""

    NAME = "nccl-bpftrace.service"

    def __init__(self, root, unit):
        self.root = root
        self.manager = Manager(root)
        self.manager.add(self.NAME, root.run("cat", unit))
        self.conf = root.path / "etc/nccl-bpftrace.conf"
        self.file = root.path / TEXTFILES.lstrip("/") / "nccl_bpftrace.prom"

    def drop_in(self, text):
        self.root.run("mkdir", "-p", f"{self.manager.units}/{self.NAME}.d")
        self.manager.add(f"{self.NAME}.d/test.conf", "[Service]\n" + text)

    def control(self, word):
        return self.manager.control(word, self.NAME)

    def start(self):
        self.manager.start()
        done = self.control("start")
        nbt.defer(self.control, "stop")
        assert done.returncode == 0, f"{done.stderr}{self.control('status').stdout}"

    def show(self):
        """Its properties."""
        return self.manager.show(self.NAME)

    def status_text(self):
        return self.show().get("StatusText", "")

    def process(self):
        """/proc of its main process."""
        return Path("/proc") / self.show()["MainPID"]

    def series(self):
        return nbt.Series(self.file.read_text())
