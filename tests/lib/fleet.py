# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
A fleet on one machine: nodes with an agent and a node_exporter each, Prometheus and Alertmanager with
the product's own rules, and who is told. An agent is on a host of its own name, with GPUs of its
own, without a network, and sees the processes of its node's cgroup. It is in the machine's PID
namespace, as on a real node; node_exporter listens on the machine's loopback.
"""
import http.server
import json
import re
import threading
import time

import nbt
import panels
import servers

CLUSTER = "test"
GPUS = 4  # of a node


class Node:
    """The number counts from 1, as do the names: node1."""

    def __init__(self, number, *args):
        self.name, self.first_gpu = f"node{number}", (number - 1) * GPUS
        self.cgroup, self.members = servers.child_cgroup(self.name)
        self.args = args
        self.agent = self.exporter = None

    def take(self, pids):
        for pid in pids:
            self.members.write_text(str(pid))

    def start(self):
        steps = [servers.private_hostname(self.name.encode()), servers.private_network(),
                 servers.fake_gpus(GPUS, self.first_gpu)]

        def prepare():
            for step in steps:
                step()

        self.agent = nbt.Agent("--no-ui", "--cgroup", self.cgroup, *self.args, preexec_fn=prepare,
                               wait=False)
        self.exporter = servers.NodeExporter(self.agent.directory, metrics_of_itself=True)

    def add_file(self, name, text):
        """What another exporter of the node has to tell."""
        path = self.agent.directory / name
        path.with_suffix(".new").write_text(text)
        path.with_suffix(".new").rename(path)


class Receiver:
    """Takes Alertmanager's notifications, with the time at which they came."""

    def __init__(self):
        told = self.told = []  # (time.time(), receiver, alert)

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                size = int(self.headers["Content-Length"])
                message = json.loads(self.rfile.read(size))
                now = time.time()
                told.extend((now, message["receiver"], alert) for alert in message["alerts"])
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer((servers.LOOPBACK, 0), Handler)
        self.url = f"http://{servers.LOOPBACK}:{self.server.server_port}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        nbt.defer(self.server.server_close)
        nbt.defer(self.server.shutdown)

    def find(self, status="firing", since=0, **labels):
        """[(when, receiver, labels)] of notifications about alerts with these labels."""
        want = labels.items()
        return [(when, receiver, alert["labels"]) for when, receiver, alert in list(self.told)
                if alert["status"] == status and when >= since and want <= alert["labels"].items()]

    def wait(self, status="firing", since=0, seconds=90, **labels):
        """The first of them."""
        def heard():
            return f"{status} {labels}; told of: " + str(sorted(
                {(alert["status"], alert["labels"]["alertname"]) for _, _, alert in self.told}))

        try:
            return nbt.wait_for(lambda: self.find(status, since, **labels), "", seconds, 0.1)[0]
        except AssertionError:
            raise AssertionError(f"not within {seconds} s: {heard()}") from None


class Alertmanager(servers.Server):
    """With the sample configuration, but that it tells the receiver, and at once."""

    READY = "/-/ready"

    def __init__(self, receiver):
        program = nbt.need("prometheus-alertmanager", "prometheus-alertmanager")
        directory = nbt.tempdir()
        text = (nbt.ROOT / "grafana/alertmanager.yml").read_text()
        text = re.sub(r"(group_wait|group_interval): \S+", r"\1: 1s", text)
        text = re.sub(r"^(- name: \S+)$", "\\1\n  webhook_configs:\n"
                      f"  - {{url: '{receiver.url}', send_resolved: true}}", text, flags=re.M)
        (directory / "alertmanager.yml").write_text(text)
        super().__init__(lambda address: [
            program, f"--config.file={directory}/alertmanager.yml",
            f"--web.listen-address={address}", f"--storage.path={directory}/data",
            "--cluster.listen-address="])

    def alerts(self, **labels):
        """What it has now of alerts with these labels: [its own description]"""
        return [alert for alert in json.loads(self.get("/api/v2/alerts"))
                if labels.items() <= alert["labels"].items()]


class Fleet:
    """n nodes; overrides: keys of grafana/config.libsonnet."""

    def __init__(self, n, *args, **overrides):
        self.nodes = [Node(i + 1, *args) for i in range(n)]
        self.config = {**panels.QUICK, **overrides}
        self.rendered = panels.render(self.config)

    def start(self):
        for node in self.nodes:
            node.start()
        for node in self.nodes:
            node.agent.wait_file()
        self.receiver = Receiver()
        self.alertmanager = Alertmanager(self.receiver)
        self.prometheus = servers.Prometheus(
            *[node.exporter for node in self.nodes], interval="1s",
            labels=[{"instance": node.name, "cluster": CLUSTER} for node in self.nodes],
            settings={"rule_files": [f"{self.rendered}/rules.yaml", f"{self.rendered}/alerts.yaml"],
                      "alerting": {"alertmanagers": [{"static_configs": [{"targets": [
                          f"{servers.LOOPBACK}:{self.alertmanager.port}"]}]}]}})

    def firing(self):
        """{(alert, labels)} that Prometheus holds for firing."""
        return [(alert["labels"]["alertname"], alert["labels"])
                for alert in self.prometheus.ask("alerts")["alerts"] if alert["state"] == "firing"]
