# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every metric family of the code, as Prometheus' own linter sees it."""
import re
import subprocess

import nbt
from servers import promtool

PROGRAM = r"""
#include <stdio.h>
#include "metrics.c"
int main(void)
{
	for (int i = 0; i < METRIC_COUNT; i++) {
		const struct prom_family *f = &prom_families[i];

		printf("%s\t%s\t%s\t%d", f->name, f->type, f->help, f->capped);
		for (const char *const *label = f->labels; *label; label++)
			printf("\t%s", *label);
		printf("\n");
	}
}
"""


def families():
    """[(name, type, help, capped, labels)]"""
    program = nbt.tempdir() / "families"
    subprocess.run(["cc", "-I", nbt.ROOT / "src", "-x", "c", "-", "-o", program], input=PROGRAM,
                   text=True, check=True)
    rows = [line.split("\t") for line in
            subprocess.check_output([program], text=True).splitlines()]
    return [(name, kind, text, capped == "1", labels)
            for name, kind, text, capped, *labels in rows]


def test_families_pass_the_linter():
    text = ""
    for name, kind, help_, _, labels in families():
        pairs = ",".join(f'{label}="x"' for label in labels)
        text += f"# HELP {name} {help_}\n# TYPE {name} {kind}\n"
        if kind == "histogram":
            text += (f'{name}_bucket{{{pairs},le="1"}} 1\n{name}_bucket{{{pairs},le="+Inf"}} 1\n'
                     f"{name}_sum{{{pairs}}} 1\n{name}_count{{{pairs}}} 1\n")
        else:
            text += f"{name}{{{pairs}}} 1\n"
    assert promtool(text) == ""


def test_families_are_well_formed():
    rows = families()
    assert len({name for name, *_ in rows}) == len(rows)
    for name, kind, help_, capped, labels in rows:
        assert re.fullmatch(r"nccl_[a-z_]+", name), name
        assert (kind == "counter") == name.endswith("_total"), f"{name} is a {kind}"
        assert kind in ("counter", "gauge", "histogram"), f"{name} is a {kind}"
        assert help_.isascii() and help_.endswith(".") and "\\" not in help_, help_
        assert len(set(labels)) == len(labels) and "le" not in labels, f"{name}: {labels}"
        for label in labels:  # node_exporter dies of "__", a job's own name would be "cluster"
            assert label == "UUID" or re.fullmatch(r"[a-z][a-z_]*[a-z]", label), label
            assert "__" not in label and label != "cluster", label
        # what jobs can multiply is bounded
        assert capped == ("job_id" in labels), name
