# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Dashboards, rules and alerts: as rendered, as Prometheus' own tools see them, and what they name."""
import functools
import importlib.util
import itertools
import re
import subprocess
import sys

import nbt
import panels

GRAFANA = nbt.ROOT / "grafana"
# What is not ours, with the labels that are asked of it.
FOREIGN = {
    **dict.fromkeys(("DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_POWER_USAGE",
                     "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL",
                     "DCGM_FI_DEV_XID_ERRORS"), {"UUID"}),
    **dict.fromkeys(("node_infiniband_port_data_received_bytes_total",
                     "node_infiniband_port_data_transmitted_bytes_total",
                     "node_infiniband_port_errors_received_total",
                     "node_infiniband_port_discards_transmitted_total",
                     "node_infiniband_link_downed_total", "node_network_receive_bytes_total",
                     "node_network_transmit_bytes_total"), {"device"}),
    "node_textfile_mtime_seconds": {"file"},
    "node_textfile_scrape_error": set(),
    "promhttp_metric_handler_errors_total": {"cause"},
}
SCRAPED = {"cluster", "instance"}  # labels that Prometheus adds
ALERT_LABELS = {"alertname", "alertstate", "priority", "component", "severity"}
WORDS = set("by on and or unless sum max min avg count group topk quantile count_values group_left "
            "group_right time rate increase last_over_time sum_over_time histogram_quantile vector "
            "label_replace offset le".split())


def render():
    return panels.render({})


@functools.cache
def families():
    """{name of a series: labels}, from the table in the code."""
    path = nbt.ROOT / "tests/static/test_metrics.py"
    spec = importlib.util.spec_from_file_location("static_test_metrics", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {}
    for name, kind, _, _, labels in module.families():
        if kind == "histogram":
            found.update({name + "_bucket": {*labels, "le"}, name + "_sum": set(labels),
                          name + "_count": set(labels)})
        else:
            found[name] = set(labels)
    return found


def expressions():
    """[(where, expression)] of all rules and panels."""
    return panels.rules() + [(f"{p.dashboard}: {p.title}", p.expr) for p in panels.queries()]


def variable_queries():
    for name, dashboard in panels.dashboards().items():
        for variable in dashboard["templating"]["list"]:
            if variable["type"] == "query":
                found = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
                assert found, f"{name}: {variable['query']}"
                yield f"{name}: ${variable['name']}", panels.filled(found[1]), found[2]


def promtool(*args):
    done = subprocess.run([nbt.need("promtool", "prometheus"), *args], text=True,
                          capture_output=True, timeout=200)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]


def test_rendered_is_up_to_date():
    directory = render()
    for old, new in itertools.product((panels.RENDERED,), (directory,)):
        names = {p.relative_to(d) for d in (old, new) for p in d.rglob("*") if p.is_file()}
        assert len(names) >= 6, names
        for name in names:
            for place in (old, new):
                assert (place / name).exists(), f"{name} is not rendered, or stale: make grafana"
            assert (old / name).read_text() == (new / name).read_text(), f"{name}: make grafana"


def test_source_is_formatted():
    files = [*GRAFANA.glob("*.libsonnet"), *GRAFANA.glob("*/*.libsonnet")]
    done = subprocess.run([nbt.need("jsonnetfmt", "jsonnet"), "--test", *files], text=True,
                          capture_output=True)
    assert done.returncode == 0, f"make grafana: {done.stderr}"


def test_configuration_changes_what_it_says():
    directory = panels.render({"selector": 'job="node"', "clusterLabel": "region",
                               "nodeLabel": "nodename", "evaluationSeconds": 7,
                               "podLabel": "exported_pod", "runbookURLPattern": "https://x/%s.html",
                               "communicatorLabels": ["job_id", "comm"]})
    promtool("check", "rules", "--lint=all", directory / "rules.yaml", directory / "alerts.yaml")
    for where, text in panels.rules(directory):
        assert not re.search(r"\b(instance|cluster)\b(?!:)", text.replace("instance_", "")), where
        for name in re.findall(r"\b(?:nccl|node|promhttp)_\w+\{[^}]*\}", text):
            assert 'job="node"' in name, f"{where}: {name}"
    text = (directory / "alerts.yaml").read_text()
    assert "https://x/ncclrankbehind.html" in text and "interval: 7s" in text
    assert "exported_pod" in (directory / "dashboards/nccl-job.json").read_text()


def test_any_threshold_may_be_0():
    names = ("lateShare", "lastShare", "nodeLateRatio", "nodeLateSeconds", "nodeLateMinNodes",
             "driftRatio", "driftMinSeconds", "sampleRatioMin", "stillSeconds", "inFlightSeconds")
    directory = panels.render(dict.fromkeys(names, 0))
    promtool("check", "rules", directory / "rules.yaml", directory / "alerts.yaml")


def test_rules_are_clean():
    promtool("check", "rules", "--lint=all", panels.RENDERED / "rules.yaml",
             panels.RENDERED / "alerts.yaml")


def test_quick_rules_are_clean():
    """The ones that end-to-end tests use."""
    directory = panels.render(panels.QUICK)
    promtool("check", "rules", "--lint=all", directory / "rules.yaml", directory / "alerts.yaml")


def test_alerts_fire_and_do_not_and_resolve():
    promtool("test", "rules", *sorted((GRAFANA / "tests").glob("*.yaml")))


def alerts():
    """{name: text of its rule}"""
    rules = re.split(r"^  - ", (panels.RENDERED / "alerts.yaml").read_text(), flags=re.M)[1:]
    return {re.match("alert: '(.*)'", rule)[1]: rule for rule in rules}


def test_every_alert_has_its_cases_and_its_runbook():
    cases = "".join(path.read_text() for path in (GRAFANA / "tests").glob("*.yaml"))
    runbooks = re.split(r"^## ", (GRAFANA / "runbooks.md").read_text(), flags=re.M)
    texts = {page.split("\n", 1)[0]: page for page in runbooks[1:]}
    assert set(texts) == set(alerts()), set(texts) ^ set(alerts())
    for name, rule in alerts().items():
        asked = re.findall(rf"alertname: {name}\n +exp_alerts:( \[\])?", cases)
        assert "" in asked and asked.count(" []") >= 2, f"{name}: fires, near miss, over"
        for key in ("for", "severity", "priority", "component", "summary", "description",
                    "runbook_url"):
            assert re.search(rf"^ +{key}: ", rule, re.M), f"{name} has no {key}"
        assert f"#{name.lower()}'" in rule
        for part in ("**Means**", "**Run**", "**Usual causes**", "**Over**"):
            assert part in texts[name], f"runbook of {name} has no {part}"


def test_alertmanager_takes_the_sample():
    done = subprocess.run([nbt.need("amtool", "prometheus-alertmanager"), "check-config",
                           GRAFANA / "alertmanager.yml"], text=True, capture_output=True)
    assert done.returncode == 0 and "6 inhibit rules" in done.stdout, done.stdout + done.stderr


def test_each_priority_has_its_receiver():
    for priority, receiver in (("P0", "page"), ("P1", "chat"), ("P2", "ticket")):
        done = subprocess.run([nbt.need("amtool", "prometheus-alertmanager"), "config", "routes",
                               "test", f"--config.file={GRAFANA / 'alertmanager.yml'}",
                               f"--verify.receivers=nccl-{receiver}", f"priority={priority}"],
                              text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr


def test_panels_parse():
    """Every expression of a panel or a variable, as a rule."""
    text = "groups:\n- name: panels\n  rules:\n"
    queries = [p.expr for p in panels.queries()] + [e for _, e, _ in variable_queries()]
    for i, expr in enumerate(queries):
        text += f"  - record: panel:query:number{i}\n    expr: |-\n"
        text += "".join(f"      {line}\n" for line in expr.split("\n"))
    path = nbt.tempdir() / "panels.yaml"
    path.write_text(text)
    promtool("check", "rules", path)
    assert len(queries) > 90


def named(expression):
    """(names of series, labels that are matched or grouped by), without strings and ranges."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    bare = re.sub(r"\[[^\]]*\](?: offset \w+)?", "", bare)
    labels = set(re.findall(r"(\w+) *(?:=~|!~|!=|=)\"", bare))
    for group in re.findall(r"\b(?:by|on|group_left|group_right) ?\(([^)]*)\)", bare):
        labels |= set(re.findall(r"\w+", group))
    series = re.sub(r"\b(?:by|on|group_left|group_right) ?\([^)]*\)|\{[^}]*\}", " ", bare)
    names = set(re.findall(r"\b[a-zA-Z_][\w:]*[a-zA-Z_]\b", series)) - WORDS
    return names, labels


def test_only_what_is_emitted_is_named():
    records = {name for name, _ in panels.rules() if ":" in name}
    every = set().union(*families().values()) | SCRAPED | ALERT_LABELS | {"signature"}
    for where, expression in expressions() + [(w, e) for w, e, _ in variable_queries()]:
        names, labels = named(expression)
        assert names, f"{where}: {expression}"
        unknown = names - set(families()) - set(FOREIGN) - records - {"ALERTS"}
        assert not unknown, f"{where} names {sorted(unknown)}"
        foreign = set().union(*(FOREIGN[name] for name in names & set(FOREIGN)))
        assert labels <= every | foreign, f"{where}: labels {sorted(labels - every - foreign)}"
    for where, expression, label in variable_queries():
        assert label in every, f"{where}: {label}"


def test_selectors_ask_a_family_for_its_own_labels():
    for where, expression in expressions() + [(w, e) for w, e, _ in variable_queries()]:
        for name, matchers in re.findall(r"\b((?:nccl|DCGM|node|promhttp)_\w+)\{([^}]*)\}",
                                         expression):
            if "ALERTS" in name or name not in {**families(), **FOREIGN}:
                continue
            labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", matchers))
            wrong = labels - {**families(), **FOREIGN}[name] - SCRAPED
            assert not wrong, f"{where}: {name} has no {sorted(wrong)}"


def mixed(expression):
    """Groupings that put together what has one name in two clusters; a UUID is one GPU's anywhere."""
    groups = [re.findall(r"\w+", group) for group in re.findall(r"\b(?:by|on) ?\(([^)]*)\)", expression)]
    names = {"instance", "node", "job_id", "comm", "rank", "pid", "UUID"}
    return [group for group in groups if "cluster" not in group and names & set(group) and group != ["UUID"]]


def test_clusters_are_not_mixed():
    # They match what names no cluster: of such there is one in a Prometheus.
    allowed = {"instance:nccl_bpftrace_agent:alive": [["instance"]], "NCCLTextfileRefused": [["instance"]]}
    readme = re.findall(r"^```promql\n(.*?)^```", (nbt.ROOT / "README.md").read_text(), re.M | re.S)
    for where, expression in expressions() + [("README", query) for query in readme]:
        assert mixed(expression) == allowed.get(where, []), f"{where}: {expression}"


def test_every_record_is_used():
    text = "\n".join(e for _, e in expressions())
    for name, _ in panels.rules():
        assert ":" not in name or name in text, f"nothing uses {name}"


def test_every_family_is_used():
    text = "\n".join(e for _, e in expressions())
    readme = (nbt.ROOT / "README.md").read_text()
    for name in families():
        base = re.sub("_(bucket|sum|count)$", "", name)
        assert name in text or f"`{base}`" in readme, f"nothing uses {name}"


def test_foreign_names_are_used():
    text = "\n".join(e for _, e in expressions())
    assert not [name for name in FOREIGN if name not in text]


def test_dashboards_are_well_formed():
    uids = [d["uid"] for d in panels.dashboards().values()]
    assert len(uids) == 4 and len(set(uids)) == 4, uids
    for name, dashboard in panels.dashboards().items():
        assert dashboard["title"] and dashboard["description"] and not dashboard["editable"]
        ids = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(ids)) == len(ids), f"{name}: {ids}"
        titles = [panel["title"] for panel in dashboard["panels"]]
        assert len(set(titles)) == len(titles), f"{name}: {titles}"
        taken = {}
        for panel in dashboard["panels"]:
            at = panel["gridPos"]
            assert at["x"] + at["w"] <= 24, f"{name}: {panel['title']}"
            for spot in itertools.product(range(at["x"], at["x"] + at["w"]),
                                          range(at["y"], at["y"] + at["h"])):
                assert spot not in taken, f"{name}: {panel['title']} on {taken[spot]}"
                taken[spot] = panel["title"]


def test_panels_are_well_formed():
    for name, dashboard in panels.dashboards().items():
        source = {"type": "prometheus", "uid": "${datasource}"}
        for panel in panels.flat(dashboard):
            where = f"{name}: {panel['title']}"
            assert panel["datasource"] == source, where
            assert panel["title"] and len(panel["description"]) > 10, where
            assert panel["fieldConfig"]["defaults"]["unit"], where
            refs = [target["refId"] for target in panel["targets"]]
            assert refs and len(set(refs)) == len(refs), where
            for target in panel["targets"]:
                assert target["datasource"] == source and target["legendFormat"], where


def test_rates_use_grafana_s_window():
    for name, dashboard in panels.dashboards().items():
        for panel in panels.flat(dashboard):
            for target in panel["targets"]:
                windows = re.findall(r"\[[^\]]*\]", re.sub('"[^"]*"', "", target["expr"]))
                assert set(windows) <= {"[$__rate_interval]"}, f"{name}: {panel['title']}"


def test_variables_are_matched_as_many():
    for name, dashboard in panels.dashboards().items():
        multi = [v["name"] for v in dashboard["templating"]["list"] if v.get("multi")]
        text = "\n".join(target["expr"] for panel in panels.flat(dashboard)
                         for target in panel["targets"])
        for variable in multi:
            assert f'=~"${variable}"' in text, f"{name} does not use ${variable}"
            assert not re.search(rf'(?<!=~)"\${variable}"', text), f"{name}: ${variable}"


def test_dashboards_are_as_grafana_s_schema_says():
    done = subprocess.run([sys.executable, nbt.ROOT / "scripts/check-dashboards.py"], text=True,
                          capture_output=True, timeout=120)
    if done.returncode == 77:
        nbt.skip("the Python package grafana-foundation-sdk is not installed")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
