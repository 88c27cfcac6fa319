#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
What a fleet's files cost one Prometheus: files of nodes of 8 GPUs by the agent's own writer
(scale_files.c), served over HTTP, scraped every 15 s, with the rules and alerts of grafana/ as they are.

usage: tests/bench/scale.py [NODES [SECONDS]]
"""
import http.server
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import nbt  # noqa: E402
import panels  # noqa: E402
import servers  # noqa: E402

GPUS = 8
INTERVAL = 15
FAMILY = "nccl_bpftrace.prom"


class Files(http.server.ThreadingHTTPServer):
    """/nodeN/metrics is the file of node N."""

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, directory):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                text = (directory / self.path.split("/")[1] / FAMILY).read_bytes()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_):
                pass

        super().__init__((servers.LOOPBACK, 0), Handler)
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Prometheus(servers.Server):
    """It scrapes itself, too."""

    READY = "/-/ready"
    query, ask = servers.Prometheus.query, servers.Prometheus.ask

    def __init__(self, files, nodes):
        program = nbt.need("prometheus", "prometheus")
        directory = nbt.tempdir()
        port = files.server_port
        targets = "".join(
            f"  - targets: ['{servers.LOOPBACK}:{port}']\n"
            f"    labels: {{__metrics_path__: /node{i}/metrics, instance: node{i}, cluster: test}}\n"
            for i in range(nodes))
        rules = "".join(f"- {panels.RENDERED}/{name}.yaml\n" for name in ("rules", "alerts"))

        def command(address):
            if not address:  # asked for its name only
                return [program]
            (directory / "prometheus.yml").write_text(
                f"global: {{scrape_interval: {INTERVAL}s}}\nrule_files:\n{rules}scrape_configs:\n"
                f"- job_name: prometheus\n  static_configs:\n  - targets: ['{address}']\n"
                f"- job_name: node\n  static_configs:\n{targets}")
            return [program, f"--config.file={directory}/prometheus.yml",
                    f"--web.listen-address={address}", f"--storage.tsdb.path={directory}/db"]

        super().__init__(command)

    def one(self, expression):
        found = self.query(expression)
        return found[0][1] if found else float("nan")


def write(directory, nodes, number):
    start = time.monotonic()
    subprocess.run([nbt.BUILD / "bench/scale_files", directory, str(nodes), str(number)], check=True)
    return time.monotonic() - start


def measure(nodes, seconds):
    directory = nbt.tempdir()
    took = write(directory, nodes, 1)
    files = Files(directory)
    prometheus = Prometheus(files, nodes)
    end = time.monotonic() + seconds
    number = 1
    while time.monotonic() < end:
        number += 1
        due = time.monotonic() + INTERVAL
        write(directory, nodes, number)
        time.sleep(max(0, due - time.monotonic()))
    report(prometheus, directory, nodes, took)


OWN = '{job="prometheus"}'
FIGURES = (  # of Prometheus, as it says itself: what, expression, factor, unit
    ("targets up", 'count(up{job="node"} == 1)', 1, "{:.0f}"),
    ("series in the head", f"prometheus_tsdb_head_series{OWN}", 1, "{:.0f}"),
    ("samples taken in", f"rate(prometheus_tsdb_head_samples_appended_total{OWN}[1m])", 1, "{:.0f} /s"),
    ("a scrape, mean", 'avg(scrape_duration_seconds{job="node"})', 1e3, "{:.0f} ms"),
    ("a scrape, most", 'max(scrape_duration_seconds{job="node"})', 1e3, "{:.0f} ms"),
    ("Prometheus' processor time", f"rate(process_cpu_seconds_total{OWN}[1m])", 1, "{:.2f} CPUs"),
    ("Prometheus' resident memory", f"process_resident_memory_bytes{OWN}", 2 ** -30, "{:.2f} GiB"),
    ("rules that failed", f"sum(prometheus_rule_evaluation_failures_total{OWN})", 1, "{:.0f}"),
)
GROUP = "prometheus_rule_group_last_"


def report(prometheus, directory, nodes, took):
    text = (directory / "node0" / FAMILY).read_text()
    series = nbt.Series(text)
    of_gpus = sum("UUID" in dict(pairs) for _, pairs in series.samples)
    rows = [
        ("nodes, GPUs", f"{nodes}, {nodes * GPUS}"),
        ("series of a GPU", f"{of_gpus / GPUS:g}"),
        ("series of a node beside those", len(series.samples) - of_gpus),
        ("file of a node", f"{len(text) / 1e3:.0f} kB"),
        ("to make all files once", f"{took:.1f} s"),
        *((what, form.format(factor * prometheus.one(expression)))
          for what, expression, factor, form in FIGURES)]
    sizes = {labels["rule_group"]: value for labels, value in
             prometheus.query(f"{GROUP}evaluation_samples")}
    for labels, value in prometheus.query(f"{GROUP}duration_seconds"):
        group = labels["rule_group"]
        rows.append((f"{group.split(';')[1]}, every 30 s",
                     f"{1e3 * value:.0f} ms, {sizes[group]:.0f} series"))
    nbt.table(("what", "figure"), rows)


if __name__ == "__main__":
    try:
        measure(int(sys.argv[1]) if len(sys.argv) > 1 else 250,
                int(sys.argv[2]) if len(sys.argv) > 2 else 180)
    finally:
        nbt.cleanup()
