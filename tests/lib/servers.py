# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What reads the agent's files in real life, node_exporter and Prometheus, and jobs to fill them."""
import atexit
import contextlib
import ctypes
import functools
import http.client
import json
import os
import re
import select
import socket
import subprocess
import urllib.parse
from pathlib import Path

import nbt

LOOPBACK = "127.0.0.1"
CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWNET = 0x00020000, 0x04000000, 0x40000000
MS_REC, MS_PRIVATE = 0x4000, 0x40000


def cgroup_root():
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return next((Path(m[1]) for m in mounts if m[2] == "cgroup2"), None) or \
        nbt.skip("no cgroup v2")


@functools.cache
def own_cgroup():
    """A cgroup that holds this test run and what it starts, and nothing else of the machine."""
    root = cgroup_root()
    home = re.search("^0::(.*)$", Path("/proc/self/cgroup").read_text(), re.M)[1]
    name = f"nccl-bpftrace-test.{os.getpid()}"

    def leave():
        (root / home.lstrip("/") / "cgroup.procs").write_text(str(os.getpid()))
        nbt.wait_for(lambda: not (root / name / "cgroup.procs").read_text(), "the last job's end")
        (root / name).rmdir()

    (root / name).mkdir()
    (root / name / "cgroup.procs").write_text(str(os.getpid()))
    atexit.register(leave)
    return f"/{name}"


def child_cgroup(name):
    """(name, file to write process numbers to) of a cgroup below that, empty, until the test ends."""
    path = cgroup_root() / own_cgroup().lstrip("/") / name
    path.mkdir()

    def leave():
        for pid in (path / "cgroup.procs").read_text().split():
            with contextlib.suppress(ProcessLookupError):  # it is ending
                (path.parent / "cgroup.procs").write_text(pid)
        nbt.wait_for(lambda: not (path / "cgroup.procs").read_text(), f"{name} to be empty")
        path.rmdir()

    nbt.defer(leave)
    return f"{own_cgroup()}/{name}", path / "cgroup.procs"


def agent(*args, **kwargs):
    """An agent that sees the jobs of this test run only."""
    return nbt.Agent("--cgroup", own_cgroup(), *args, **kwargs)


def free_port():
    with socket.socket() as s:
        s.bind((LOOPBACK, 0))
        return s.getsockname()[1]


class Server:
    """A program that listens on a loopback port; another port is tried when one was taken."""

    READY = "/"  # a page that is there once it works

    def __init__(self, command):
        for _ in range(5):
            self.port = free_port()
            self.log = nbt.Log(command("")[0])
            self.process = subprocess.Popen(command(f"{LOOPBACK}:{self.port}"), stdout=self.log,
                                            stderr=self.log, stdin=subprocess.DEVNULL)
            nbt.defer(nbt.end, self.process)
            nbt.wait_for(lambda: self.process.poll() is not None or self.answers(),
                         f"{command('')[0]} to answer", 30)
            if self.process.poll() is None:
                return
        raise AssertionError(f"it ends: {self.output()}")

    def answers(self):
        try:
            return self.get(self.READY)
        except (OSError, http.client.HTTPException, AssertionError):
            return False

    def output(self):
        return self.log.read()

    def get(self, path):
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read().decode()
            assert response.status == 200, f"{path}: {response.status}: {body[:500]}"
            return body or "empty"
        finally:
            connection.close()


class NodeExporter(Server):
    def __init__(self, directory, metrics_of_itself=False):
        program = nbt.need("prometheus-node-exporter", "prometheus-node-exporter")
        silent = [] if metrics_of_itself else ["--web.disable-exporter-metrics"]
        super().__init__(lambda address: [
            program, f"--web.listen-address={address}", "--collector.disable-defaults",
            "--collector.textfile", f"--collector.textfile.directory={directory}",
            "--web.max-requests=0", *silent])

    def series(self):
        return nbt.Series(self.get("/metrics"))

    def clean_series(self):
        """Its series; fails when it refused a file."""
        series = self.series()
        assert series.one("node_textfile_scrape_error") == 0, self.output()
        return series


class Prometheus(Server):
    READY = "/-/ready"

    def __init__(self, *node_exporters, interval="500ms", honor_labels=False, labels=(),
                 settings=None):
        """
        labels: what it puts on every target's series, target by target, as it does with the pod on
        Kubernetes; settings: more of its configuration.
        """
        program = nbt.need("prometheus", "prometheus")
        directory = nbt.tempdir()
        config = directory / "prometheus.yml"  # JSON is YAML
        labels = labels or [{}] * len(node_exporters)
        config.write_text(json.dumps({
            "global": {"scrape_interval": interval, "scrape_timeout": interval,
                       "evaluation_interval": interval},
            "scrape_configs": [{"job_name": "node", "honor_labels": honor_labels,
                                "static_configs": [
                {"targets": [f"{LOOPBACK}:{exporter.port}"], "labels": dict(own)}
                for exporter, own in zip(node_exporters, labels)]}], **(settings or {})}))
        super().__init__(lambda address: [
            program, f"--config.file={config}", f"--web.listen-address={address}",
            f"--storage.tsdb.path={directory}/db"])
        nbt.wait_for(lambda: sum(value for _, value in self.query("up")) == len(node_exporters),
                     "a first scrape", 60)

    def query(self, expression):
        """[(labels, value)] of an instant query."""
        return [(entry["metric"], float(entry["value"][1]))
                for entry in self.ask("query", query=expression)["result"]]

    def ask(self, what, **parameters):
        """The data of an answer of its API."""
        path = f"/api/v1/{what}?" + urllib.parse.urlencode(parameters)
        return json.loads(self.get(path))["data"]


def promtool(text):
    """What `promtool check metrics` has to say against the text; "" when it is clean."""
    program = nbt.need("promtool", "prometheus")
    done = subprocess.run([program, "check", "metrics"], input=text, text=True,
                          capture_output=True, timeout=30)
    return "" if done.returncode == 0 else done.stdout + done.stderr or "it failed"


def sim(*args, **kwargs):
    """A simulated job that agent() sees."""
    own_cgroup()
    return nbt.Sim(*args, **kwargs)


class Crowd:
    """tests/targets/crowd.c: armed (library loaded, nothing called yet) when constructed."""

    def __init__(self, *args, env=None):
        own_cgroup()
        self.process = subprocess.Popen(
            [nbt.TARGETS / "crowd", *map(str, args)], stdin=subprocess.PIPE, text=True,
            stdout=subprocess.PIPE, env={**os.environb, **(env or {})})
        self.pid = self.process.pid
        nbt.defer(self.stop)
        self.expect("armed")

    def expect(self, word, seconds=60):
        if not select.select([self.process.stdout], [], [], seconds)[0]:
            raise AssertionError(f"crowd did not say {word!r} within {seconds} s")
        line = self.process.stdout.readline()
        assert line == word + "\n", f"crowd said {line!r}, not {word!r}"

    def run(self):
        self.go()
        self.wait_done()

    def go(self):
        self.process.stdin.write("\n")
        self.process.stdin.flush()

    def wait_done(self):
        self.expect("done")

    def stop(self):
        nbt.end_by_input(self.process)


def _checked(result):
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def private_mounts(*mounts):
    """
    A preexec_fn: the program sees a tmpfs at each (path, options, directories to make in it),
    and nobody else does. Others reach it under /proc/PID/root.
    """
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare():
        _checked(libc.unshare(CLONE_NEWNS))
        _checked(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None))
        for path, options, directories in mounts:
            _checked(libc.mount(b"tmpfs", os.fsencode(path), b"tmpfs", 0, options.encode()))
            for directory in directories:
                os.makedirs(os.path.join(path, directory))

    return prepare


def private_hostname(name):
    """A preexec_fn: the program finds itself on a host of this name (bytes)."""
    libc = ctypes.CDLL(None, use_errno=True)

    def prepare():
        _checked(libc.unshare(CLONE_NEWUTS))
        _checked(libc.sethostname(name, len(name)))

    return prepare


def private_network():
    """A preexec_fn: the program has no network but a loopback of its own, which is down."""
    libc = ctypes.CDLL(None, use_errno=True)
    return lambda: _checked(libc.unshare(CLONE_NEWNET))


def fake_gpus(n, first=0):
    """A preexec_fn: the program finds the driver's account of n GPUs, those that nccl-sim names."""
    mount = private_mounts(("/proc/driver", "", []))

    def prepare():
        mount()
        for i in range(n):
            address = f"0000:{0x10 + 8 * i:02x}:00.0"
            os.makedirs(f"/proc/driver/nvidia/gpus/{address}")
            with open(f"/proc/driver/nvidia/gpus/{address}/information", "w") as file:
                file.write(f"Model: \t\t Stand-in\nGPU UUID:\t {gpu_uuid(first + i)}\n"
                           f"Bus Location: \t {address}\nDevice Minor: \t {i}\n"
                           "GPU Excluded:\t No\n")

    return prepare


def gpu_uuid(i):
    return f"GPU-00000000-1111-2222-3333-{i:012x}"
