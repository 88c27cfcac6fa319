# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""
The mixin of grafana/: its panels and rules, and how to render it with other settings.

Patience is configuration (grafana/config.libsonnet), so a test need not wait for it:

    directory = panels.render({"stuckFor": "2s", "stillSeconds": 6, "evaluationSeconds": 1,
                               "rateRange": "10s", "lateFor": "5s"})

makes rules.yaml, alerts.yaml and dashboards/*.json there; panels.QUICK is such a set for a job that
is scraped every second.
"""
import collections
import json
import re
import subprocess
from pathlib import Path

import nbt

RENDERED = nbt.ROOT / "grafana/rendered"
Panel = collections.namedtuple("Panel", "dashboard title type expr unit legend ref")

# What a fault must last before its alert fires, for scrapes and textfiles every second.
QUICK = {
    "evaluationSeconds": 1, "rateRange": "10s",
    "agentStaleSeconds": 15, "agentStaleFor": "2s", "agentGoneRange": "60s", "agentGoneFor": "2s",
    "stillSeconds": 6, "stuckFor": "2s", "missingFor": "4s", "inFlightSeconds": 15,
    "vanishedRange": "60s", "lossRange": "30s", "lateFor": "5s", "slowFor": "5s",
    "qualityFor": "5s", "driftRange": "20s", "driftOffset": "20s", "driftFor": "2s",
    "driftMinSeconds": 0.001,
}

# What Grafana puts in place of variables: everything, in windows that every test's data fill.
VARIABLES = {"$__rate_interval": "1m", "$__interval": "15s", "$__range": "5m"}


def render(config, directory=None):
    """The directory with rules.yaml, alerts.yaml and dashboards/, rendered with other settings."""
    nbt.need("jsonnet", "jsonnet")
    directory = Path(directory or nbt.tempdir())
    done = subprocess.run([nbt.ROOT / "scripts/grafana.sh", directory, json.dumps(config)],
                          text=True, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return directory


def dashboards(directory=RENDERED):
    """{file name without .json: dashboard}"""
    return {path.stem: json.loads(path.read_text())
            for path in sorted((directory / "dashboards").glob("*.json"))}


def flat(dashboard):
    """Every panel but the rows."""
    for panel in dashboard["panels"]:
        yield from panel.get("panels", []) if panel["type"] == "row" else [panel]


def filled(expression, variables=()):
    """With VARIABLES, those given, and any other variable as "All"."""
    for name, value in {**VARIABLES, **dict(variables)}.items():
        expression = expression.replace(name, value)
    return re.sub(r"\$\{?[a-zA-Z_]\w*(:\w+)?\}?", ".*", expression)


def queries(directory=RENDERED, **variables):
    """[Panel] of every query; variables are Grafana's by name, say job_id="4711"."""
    given = [(f"${name}", value) for name, value in variables.items()]
    return [Panel(name, panel["title"], panel["type"], filled(target["expr"], given),
                  panel["fieldConfig"]["defaults"]["unit"], target["legendFormat"], target["refId"])
            for name, dashboard in dashboards(directory).items()
            for panel in flat(dashboard) for target in panel["targets"]]


def rules(directory=RENDERED):
    """[(name of record or alert, expression)] of rules.yaml and alerts.yaml."""
    found = []
    for name in ("rules.yaml", "alerts.yaml"):
        text = (directory / name).read_text()
        for rule in re.split(r"^  - ", text, flags=re.M)[1:]:
            title = re.match(r"(?:record|alert): '(.*)'", rule)[1]
            block = re.search(r"^ +expr: \|-\n((?:      .*\n|\n)+)", rule, re.M)
            expr = block[1] if block else \
                re.search(r"^ +expr: '(.*)'$", rule, re.M)[1].replace("''", "'")
            found.append((title, re.sub(r"^      ", "", expr, flags=re.M).rstrip()))
    return found
