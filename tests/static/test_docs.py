# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""README, man page and completion say what the program says of itself."""
import json
import os
import re
import shutil
import subprocess

import nbt
from watched import Diagnose

README = (nbt.ROOT / "README.md").read_text()
MAN = nbt.ROOT / "src/man/nccl-bpftrace.8"
MAN_PAGES = (MAN, nbt.ROOT / "src/man/nccl-bpftrace.conf.5")
COMPLETION = nbt.ROOT / "packaging/nccl-bpftrace.bash-completion"
COMMANDS = ("run", "ps", "diagnose", "check", "record", "plugin")
ACTIONS = {"plugin": ("enable", "disable", "status")}


def source(name):
    return (nbt.ROOT / name).read_text()


def same(ours, theirs, what):
    """Fails with the difference alone."""
    missing, extra = sorted(set(theirs) - set(ours)), sorted(set(ours) - set(theirs))
    assert not missing and not extra, f"{what}: missing {missing}, too much {extra}"


def table(first_header):
    """The cells of README's table whose first header this is."""
    found = re.findall(rf"^\| {re.escape(first_header)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", README, re.M)
    assert len(found) == 1, f"{len(found)} tables begin with {first_header!r}"
    return [[cell.strip() for cell in row.strip("|").split("|")]
            for row in found[0].splitlines()]


def quoted(text):
    return re.findall(r"`([^`]+)`", text)


def section(title):
    return re.search(rf"^#+ {title}\n(.*?)(?=^#+ |\Z)", README, re.M | re.S)[1]


def code_lines():
    for block in re.findall(r"^```\n(.*?)^```", README, re.M | re.S):
        yield from block.splitlines()
    for line in re.findall(r"^    (.+)$", README, re.M):
        yield line


def help_of(command):
    done = nbt.run_agent(command, "--help")
    assert done.returncode == 0, done.stderr
    return done.stdout


def help_options(command):
    """{"--name": (letter or "", METAVAR or "", help text)}"""
    rows = re.findall(r"^ +(?:-(\w),)? +(--[\w-]+)(?: ([A-Z]+))? {2,}(.*)$", help_of(command), re.M)
    assert rows, help_of(command)
    return {name: (letter, metavar, text) for letter, name, metavar, text in rows}


def all_options():
    """{"--name": (letter, METAVAR, commands, help text)}"""
    found = {}
    for command in COMMANDS:
        for name, (letter, metavar, text) in help_options(command).items():
            commands = found[name][2] if name in found else ()
            found[name] = (letter, metavar, (*commands, command), text)
    return found


def readme_options():
    """{"--name": (letter, METAVAR, commands, default)}"""
    found = {}
    for spelt, commands, default, _ in table("option"):
        letter, long = "", quoted(spelt)[-1]
        if len(quoted(spelt)) == 2:
            letter = quoted(spelt)[0].lstrip("-")
        name, _, metavar = long.partition(" ")
        found[name] = (letter, metavar, tuple(commands.split()), default)
    return found


def test_commands():
    listed = re.findall(r"^  (\w+) ", help_of("run").split("Options of run")[0], re.M)
    same([quoted(row[0])[0] for row in table("command")], listed, "README's commands")
    same(COMMANDS, listed, "this test's commands")
    for command, actions in ACTIONS.items():
        assert f"{command} {'|'.join(actions)} [OPTION]" in help_of(command), help_of(command)
    same(re.findall(r"^\.It Cm (\w+)$", MAN.read_text(), re.M), listed, "the man page's commands")


def test_options():
    same({(name, *row[:3]) for name, row in readme_options().items()},
         {(name, *row[:3]) for name, row in all_options().items()}, "README's options")


def test_defaults():
    documented = readme_options()
    n = 0
    for name, (_, _, _, text) in all_options().items():
        found = (re.search(r"\((\d+[KM]?)(?:; diagnose: \d+)?\)$", text) or re.search(r"(\S+) \(the default\)", text) or
                 re.search(r"\(default: (/[^\s)]+)", text))
        numeric = re.fullmatch(r"\d+[KM]?", documented[name][3])
        assert found or not numeric, f"{name}: --help has no default {documented[name][3]}"
        if found:
            n += 1
            assert found[1] in documented[name][3].strip("`"), f"{name}: {found[1]} by --help"
        of_diagnose = re.search(r"; diagnose: (\d+)\)$", text)
        if of_diagnose:
            assert documented[name][3].endswith(f"; `diagnose`: {of_diagnose[1]}"), name
    assert n == 10, f"{n} defaults found in --help"


def test_exit_statuses():
    real = re.findall(r"EXIT_\w+ = (\d)", source("src/options.h"))
    assert real
    same([row[0] for row in table("status")], real, "README")
    part = re.search(r"^\.Sh EXIT STATUS\n(.*?)^\.Sh", MAN.read_text(), re.M | re.S)[1]
    same(re.findall(r"^\.It (\d)$", part, re.M), real, "man page")
    ends = {quoted(row[0])[0]: re.findall(r"\d", row[2]) for row in table("command")}
    for command in COMMANDS:
        line = re.search(r"^Exit status: (.*)", help_of(command), re.M)[1]
        same(re.findall(r"(?:^|, )(\d) ", line), ends[command], f"{command} --help")
    same({end for command in COMMANDS for end in ends[command]}, real, "README's commands")
    assert nbt.run_agent("--no-such-option").returncode == 2
    assert nbt.run_agent("no-such-command").returncode == 2


def expand(labels):
    short = {"J": ["job_id", "UUID"], "C": ["job_id", "UUID", "comm", "rank"]}
    return [name for label in labels.split(",") if label.strip()
            for name in short.get(label.strip(), [label.strip()])]


def test_metrics():
    """Against the table that the program writes from, compiled here."""
    directory = nbt.tempdir()
    (directory / "print.c").write_text(r"""
#include <stdio.h>
#include "metrics.c"
int main(void)
{
	for (int i = 0; i < METRIC_COUNT; i++) {
		printf("%s %s", prom_families[i].name, prom_families[i].type);
		for (const char *const *l = prom_families[i].labels; *l; l++)
			printf(" %s", *l);
		puts("");
	}
}
""")
    subprocess.run([nbt.need("gcc", "gcc"), "-I", nbt.ROOT / "src", "-o", directory / "print",
                    directory / "print.c"], check=True)
    real = subprocess.run([directory / "print"], text=True, capture_output=True,
                          check=True).stdout.splitlines()
    assert len(real) > 10
    same([" ".join([quoted(family)[0], kind, *expand(labels)])
          for family, kind, labels, _ in table("family")], real, "README's metrics")


def test_loss_reasons():
    names = re.search(r"nb_lost__name\(.*?\n}", source("src/probe.c"), re.S)[0]
    more = re.search(r"tracer__lost_name\(.*?\n}", source("src/tracer.c"), re.S)[0]
    real = re.findall(r'\] = "(\w+)"', names) + re.findall(r'return "(\w+)"', more)
    ours = re.findall(r"TRACER_LOST_(?!MAX|FOREIGN)\w+(?: = NB_LOST_MAX)?,", source("src/tracer.h"))
    assert len(real) == len(ours) + \
        len(re.findall(r"\tNB_LOST_(?!MAX)\w+,", source("include/nccl_bpftrace_record.h")))
    names = re.search(r"foreign_loss__name\(.*?\n}", source("src/foreign.c"), re.S)[0]
    real += re.findall(r'\] = "(\w+)"', names)
    same([quoted(row[0])[0] for row in table("reason")], real, "README")
    part = re.search(r"^\.Sh DIAGNOSTICS\n(.*?)^\.Sh", MAN.read_text(), re.M | re.S)[1]
    same(re.findall(r"^\.It (\w+)$", part, re.M), real, "man page")


def test_plugin_loss_and_timing_reasons():
    text = source("src/timing_form.c")
    names = re.search(r"timing_lost__name\(.*?\n}", text, re.S)[0]
    real = [name for name in re.findall(r'\] = "(\w+)"', names)
            if not name.startswith(("plugin_timing_", "plugin_timer_"))]
    same([name for row in table("plugin's loss") for name in quoted(row[0])], real, "README")
    names = re.search(r"timing_invalid__name\(.*?\n}", text, re.S)[0]
    real = re.findall(r'"(\w+)"', names)
    real.remove("unknown")
    same([quoted(row[0])[0] for row in table("timing refused")], real, "README")


def test_omission_reasons():
    names = re.search(r"inspector_omitted__name\(.*?\n}", source("src/inspector_file.c"), re.S)[0]
    same([quoted(row[0])[0] for row in table("why")], re.findall(r'\] = "(\w+)"', names), "README")


def test_identities():
    real = re.findall(r'\[COMM_\w+\] = "(\w+)"', source("src/cmd_ps.c"))
    same([quoted(row[0])[0] for row in table("`identity`")], real, "README")


def test_operations():
    real = re.findall(r"NCCL_OP_(\w+),", source("src/nccl_api.h"))
    real.remove("MAX")
    named = re.search(r"^`operation` is NCCL's name: ([\w,\s]+)\.", README, re.M)[1]
    same(re.findall(r"\w+", named), real, "README's operations")


def test_keys():
    rows = re.findall(r'^\t\{"([^"]+)", "([^"]+)"\},$', source("src/screen_keys.c"), re.M)
    assert len(rows) > 10
    same([(*quoted(keys), text) for keys, text in table("keys")],
         [(*keys.split(), text) for keys, text in rows], "README's keys")
    part = re.search(r"^\.Sh KEYS\n(.*?)^\.Sh", MAN.read_text(), re.M | re.S)[1]
    same([(keys.replace("\\-", "-"), text) for keys, text in
          re.findall(r"^\.It (.*)\n(.*)\.$", part, re.M)],
         [(" , ".join(keys.split()), text[0].upper() + text[1:]) for keys, text in rows],
         "man page's keys")


def test_limits():
    defined = {}
    for path in [*nbt.ROOT.glob("include/*.h"), *nbt.ROOT.glob("src/*.[ch]"),
                 *nbt.ROOT.glob("src/plugin/*.[ch]")]:
        defined.update(re.findall(r"#define (\w+)\s+(\d+)\b", path.read_text()))
    rows = table("limit")
    assert len(rows) > 10
    for what, value, _ in rows:
        constant = quoted(what)[-1]
        assert defined.get(constant) == value, f"{constant} is {defined.get(constant)}, not {value}"


def test_json_of_check():
    done = nbt.run_agent("check", "--json")
    assert done.returncode in (0, 3), done.stderr
    found = json.loads(done.stdout)
    text = re.search(r"`check --json` prints(.*?)\n\n", README, re.S)[1]
    assert found["schema"] in quoted(text)
    for key in (*found, *found["items"][0]):
        assert key in quoted(text) or f"{key}[]" in quoted(text), key


def test_json_of_ps():
    if os.geteuid() != 0:
        nbt.skip("needs root")
    job = nbt.Sim("comm world config\nallreduce world 1 fp32", ranks=1)
    job.run()
    found = json.loads(nbt.run_agent("ps", "--json", "--pid", job.pids[0]).stdout)
    process = found["processes"][0]
    described = {quoted(row[0])[0]: quoted(row[1]) for row in table("key")}
    assert [found["schema"]] == described["schema"]
    no_words = {"absent", "idle", "active", "null"}
    same([key.rstrip("[]") for key in set(described["processes[]"]) - no_words], process, "process")
    same(set(described["processes[].communicators[]"]) - no_words, process["communicators"][0],
         "communicator")


def test_json_of_diagnose():
    if os.geteuid() != 0:
        nbt.skip("needs root")
    job = nbt.Sim("comm world config; allreduce world 1 fp32; @1 allreduce world 1 fp32; wait",
                  ranks=2, hold=False)
    job.go()
    status, found = Diagnose(job.pids, "--duration", 5, "--stuck-after", 4).end()
    described = {}
    for key, value in table("of `diagnose`"):
        for name in quoted(key):
            described[name.removesuffix("[]")] = quoted(value)
    same({name for name in described if "." not in name}, found, "the object")
    assert described["schema"] == [found["schema"]]
    comm = found["communicators"][0]
    rank = comm["ranks"][0]
    assert (status, rank["culprit"]) == (4, True), found
    assert rank["process"]["state"] in ("sleeping", "running"), found  # it looks up now and then
    for key, real in (("communicators", comm), ("communicators[].ranks", rank),
                      ("communicators[].ranks[].process", rank["process"])):
        words = {word.removesuffix("[]") for word in described[key]}
        missing = set(real) - words
        assert not missing, f"{key}: {missing}"
    words = set(described["communicators[].ranks[].process"])
    assert set(rank["process"]["main_thread"]) <= words


def test_command_lines():
    """Every call of the program in README and man page is one that it takes."""
    lines = [line for line in code_lines() if re.match(r"(sudo )?build/nccl-bpftrace", line)]
    lines += re.findall(r"`((?:sudo )?build/nccl-bpftrace[^`]*)`", README)
    lines += re.findall(r"^\.Dl # (nccl-bpftrace.*)", MAN.read_text(), re.M)
    assert len(lines) >= 7, lines
    for line in lines:
        words = line.removeprefix("sudo ").split()
        done = nbt.run_agent(*words[1:], "--help")
        assert done.returncode == 0, f"{line}: {done.stderr}"


def test_make_targets():
    real = set()
    for path in (nbt.ROOT / "Makefile", nbt.ROOT / "tests/tests.mk",
                 nbt.ROOT / "tests/bench/bench.mk", nbt.ROOT / "grafana/grafana.mk"):
        for targets in re.findall(r"^([a-z][\w -]*):(?!=)", path.read_text(), re.M):
            real.update(targets.split())
    named = re.findall(r"(?:`|^    )(?:sudo )?make ([a-z][\w-]*)", README, re.M)
    assert len(named) > 4
    assert set(named) <= real, f"no such target: {sorted(set(named) - real)}"


def test_links():
    links = re.findall(r"\]\(([^)\s]+)\)", README)
    assert len(links) > 5
    headings = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")
                for title in re.findall(r"^#+ (.*)$", README, re.M)}
    for link in links:
        if link.startswith("#"):
            assert link[1:] in headings, f"no heading for {link}"
        elif "://" not in link:
            assert (nbt.ROOT / link.split("#")[0]).exists(), f"no such file: {link}"


def test_queries():
    promtool = nbt.need("promtool", "prometheus")
    queries = re.findall(r"^```promql\n(.*?)^```", README, re.M | re.S)
    assert len(queries) >= 5
    rules = nbt.tempdir() / "rules.json"
    rules.write_text(json.dumps({"groups": [{"name": "readme", "rules": [
        {"alert": f"Query{i}", "expr": query} for i, query in enumerate(queries)]}]}))
    done = subprocess.run([promtool, "check", "rules", rules], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    families = {quoted(row[0])[0] for row in table("family")}
    families |= {quoted(row[0])[0] + suffix for row in table("family") if row[1] == "histogram"
                 for suffix in ("_bucket", "_sum", "_count")}
    named = set(re.findall(r"\bnccl_\w+", "".join(queries)))
    assert named <= families, f"no such family: {sorted(named - families)}"


def test_man_page_options():
    found = set()
    for line in re.findall(r"^\.It (Fl .*)$", MAN.read_text(), re.M):
        letter = re.match(r"Fl (\w) , ", line)
        name, metavar = re.search(r"Fl -([\w-]+)(?: Ar ([A-Z]+))?$", line).groups()
        found.add(("--" + name, letter[1] if letter else "", metavar or ""))
    same(found, {(name, *row[:2]) for name, row in all_options().items()}, "man page")


def test_man_pages_render():
    groff = nbt.need("groff", "groff-base")
    for page in MAN_PAGES:
        done = subprocess.run([groff, "-mdoc", "-Tutf8", "-ww", "-z", page], text=True, capture_output=True)
        assert done.returncode == 0 and not done.stderr, done.stderr
        if not shutil.which("man"):
            continue
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", "-Z", page],
                              capture_output=True, env={**os.environ, "LC_ALL": "C.UTF-8"})
        assert done.returncode == 0 and not done.stderr, done.stderr.decode()


def complete(*words):
    script = (f'source "{COMPLETION}"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); '
              '_nccl_bpftrace; printf "%s\\n" "${COMPREPLY[@]}"')
    done = subprocess.run(["bash", "-c", script, "bash", "nccl-bpftrace", *words], text=True,
                          capture_output=True, cwd=nbt.ROOT)
    assert done.returncode == 0 and not done.stderr, done.stderr
    return done.stdout.split()


def test_completion():
    nbt.need("bash", "bash")
    same(complete(""), [*COMMANDS, *help_options("run")], "completion of the first word")
    for command in COMMANDS:
        same(complete(command, ""), [*ACTIONS.get(command, ()), *help_options(command)],
             f"completion of {command}")
        for name, (_, metavar, _) in help_options(command).items():
            offered = complete(command, name, "--h")
            assert not metavar or not offered, f"{name} takes a value, not {offered}"
    same(complete("record", "--format", ""), ["jsonl", "inspector"], "completion of --format")
    same(complete("run", "--attach", ""), ["auto", "multi", "perf"], "completion of --attach")
    assert "src" in complete("run", "--textfile-dir", "sr")
    assert "README.md" in complete("run", "--config", "READ")
    assert "README.md" in complete("plugin", "enable", "--conf", "READ")
    same(complete("plugin", "enable", ""), help_options("plugin"), "completion after an action")
