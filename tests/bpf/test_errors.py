# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Every refusal is one line that names the thing and the mend, with the status of its kind."""
import json
import os
import re
import subprocess

import nbt
from caller import Caller

COMMANDS = ("run", "ps", "diagnose", "check")
USAGE, CANNOT_TRACE = 2, 3


def agent(*args, **kwargs):
    return nbt.run_agent(*args, seconds=60, **kwargs)


def refused(args, *words, status=USAGE, **kwargs):
    """One line on stderr with all these words; nothing on stdout."""
    done = agent(*args, **kwargs)
    where = f"{args}: {done.returncode} {done.stdout[-300:]!r} {done.stderr!r}"
    assert done.returncode == status, where
    assert done.stdout == "", where
    lines = done.stderr.splitlines()
    assert len(lines) == 1 and lines[0].startswith("nccl-bpftrace: "), where
    for word in words:
        assert str(word) in lines[0], f"{word!r} not in {where}"
    return lines[0]


def help_of(command):
    """{long name: (letter or None, metavar or None, text)} as --help tells."""
    done = agent(command, "--help")
    assert (done.returncode, done.stderr) == (0, ""), done
    options = {}
    for line in done.stdout.splitlines():
        found = re.match(r"  (?:-(\w), |    )--([a-z-]+)(?: ([A-Z]+))? +(\S.*)$", line)
        if found:
            options[found[2]] = (found[1], found[3], found[4])
    return options


def test_help_and_version():
    for command in COMMANDS:
        options = help_of(command)
        assert {"help", "version", "verbose"} <= set(options), options
        for name, (letter, metavar, text) in options.items():
            assert len(text) > 5, name
            assert letter is None or agent(command, f"-{letter}", "--help").returncode == 0
        for flag in ("--version", "-V"):
            done = agent(command, flag)
            assert done.returncode == 0 and done.stderr == ""
            assert re.match(r"nccl-bpftrace \S+ \(libbpf v?\d\S*, kernel " +
                            re.escape(os.uname().release) + r", built \S+\)\n$", done.stdout), done
    top = agent("--help").stdout
    assert top == agent("run", "--help").stdout
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\S", top, re.M), command
    contract = {"textfile-dir", "interval", "duration", "pid", "cgroup", "no-ui", "cluster",
                "max-series", "config", "verbose"}
    assert contract <= set(help_of("run"))
    assert "json" in help_of("ps") and "json" in help_of("check")


def test_unknown_words():
    for command in COMMANDS:
        for option in ("--nonsense", "--nonsense=1", "--", "-x", "-vv", "--pi", "---pid"):
            refused([command, option], f"'{option}'", "--help")
        refused([command, "word"], "'word'", "--help")
        refused([command, ""], "''", "--help")
    refused(["nonsense"], "'nonsense'", "--help")
    refused([""], "''", "--help")
    refused(["--nonsense"], "'--nonsense'", "--help")
    refused(["Run"], "'Run'", "--help")


def test_option_of_another_command():
    known = {command: set(help_of(command)) for command in COMMANDS}
    for command in COMMANDS:
        for name in set().union(*known.values()) - known[command]:
            refused([command, f"--{name}"], command, f"--{name}", "--help")


def test_missing_and_unwanted_values():
    for command in COMMANDS:
        for name, (letter, metavar, _) in help_of(command).items():
            if metavar:
                refused([command, f"--{name}"], f"--{name}", metavar)
                refused([command, f"--{name}="], f"--{name}")
                refused([command, f"--{name}", ""], f"--{name}")
            else:
                refused([command, f"--{name}=yes"], f"--{name}", "no value")


BAD_NUMBERS = ("x", "-1", "+1", " 1", "1 ", "1x", "0x10", "1.5", "1e3", "0", "18446744073709551616",
               "18446744073709551615", "99999999999999999999999999", "١")
BAD_SIZES = ("x", "-1", "0", "4095", "3K", "4k", "4KB", "4 K", "K", "1025M", "2097152K", "1G",
             "18446744073709551615M", "18014398509481985K", "99999999999999999999999999M")


def test_bad_numbers():
    numbers = 0
    for command in COMMANDS:
        for name, (letter, metavar, _) in help_of(command).items():
            bad = {"SEC": BAD_NUMBERS, "PID": BAD_NUMBERS, "N": BAD_NUMBERS, "SIZE": BAD_SIZES,
                   "METHOD": ("x", "Auto", "multi ")}.get(metavar, ())
            for value in bad:
                if name == "handover-after" and value == "0":
                    continue  # never
                refused([command, f"--{name}", value], f"--{name}", f"'{value}'")
                refused([command, f"--{name}={value}"], f"--{name}", f"'{value}'")
            numbers += bool(bad)
    assert numbers >= 7, numbers
    refused(["run", "--interval", "86401"], "--interval", "86400")
    refused(["run", "--pid", "4194305"], "--pid", "4194304")
    refused(["run", *nbt.pid_words(range(1, 66))], "--pid", "64", "--cgroup")


def test_directories():
    directory = nbt.tempdir()
    (directory / "file").write_text("")
    for wrong in (directory / "none", directory / "file", directory / "none/below"):
        refused(["run", "--duration", 1, "--textfile-dir", wrong], "--textfile-dir", wrong,
                "directory that exists")
    for wrong in (directory, directory / "none", "/sys/fs/cgroup/none", "none", "/none/such"):
        for command in ("run", "ps"):
            refused([command, "--cgroup", wrong], "--cgroup", wrong, "/sys/fs/cgroup")
    done = agent("check", "--textfile-dir", directory / "none")
    assert done.returncode == CANNOT_TRACE
    assert re.search(r"^FAIL +textfile directory .*none.*\n.*mend: \S", done.stdout, re.M), done


def test_config_file():
    directory = nbt.tempdir()
    file = directory / "config"
    refused(["run", "--config", file], "--config", file, "No such file")
    refused(["run", "--config", directory], "--config", directory)
    for text, line, *words in (
            ("nonsense = 1\n", 1, "nonsense"),
            ("# a comment\n\ninterval = x\n", 3, "interval", "'x'", "86400"),
            ("interval = 5\nmax-series\n", 2, "max-series"),
            ("interval =\n", 1, "interval"),
            ("json = yes\n", 1, "json"),
            (" = 5\n", 1),
            ("config = other\n", 1, "config"),
            ("ring-size = 1G # too large\n", 1, "ring-size", "'1G'"),
            ("textfile-dir =   \n", 1, "textfile-dir"),
            ("cgroup = /none/such\n", 1, "cgroup", "/none/such"),
            ("attach = never\n", 1, "attach", "'never'"),
            ("pid = 1\npid = 0\n", 2, "pid", "'0'")):
        file.write_text(text)
        refused(["run", "--config", file], f"{file}:{line}:", *words)
    file.write_text("# all of it\ninterval = 1 # often\n  duration=1\n\npid = 4194304\n"
                    f"textfile-dir = {directory}\n")
    done = agent("run", "--config", file)
    assert done.returncode == 0, done
    assert (directory / "nccl_bpftrace.prom").exists()
    file.write_text("textfile-dir = /none\npid = 4194304\nduration = 1\n")
    done = agent("run", "--config", file, "--textfile-dir", directory)  # the command line wins
    assert done.returncode == 0, done


def run(*words):
    return subprocess.run([str(w) for w in words], text=True, capture_output=True, timeout=60,
                          stdin=subprocess.DEVNULL)


def one_line(done, *words):
    assert done.returncode == CANNOT_TRACE and done.stdout == "", done
    assert len(done.stderr.splitlines()) == 1, done
    for word in words:
        assert word in done.stderr, (word, done)


def failed_items(stdout):
    items = json.loads(stdout)["items"]
    assert all(item["ok"] or item["mend"] for item in items)
    return {item["name"] for item in items if not item["ok"]}


def test_without_privilege():
    command = nbt.as_nobody()
    for name in ("run", "ps", "diagnose"):
        one_line(run(*command, name), "root", "CAP_BPF")
    done = run(*command, "check")
    assert done.returncode == CANNOT_TRACE and done.stderr == "", done
    assert re.search(r"^FAIL +privilege .*\n +mend: .*sudo", done.stdout, re.M), done.stdout
    done = run(*command, "check", "--json")
    assert done.returncode == CANNOT_TRACE
    assert {"privilege", "bpf programs"} <= failed_items(done.stdout)
    for flag in ("--help", "--version"):
        assert run(*command, flag).returncode == 0


def test_without_btf():
    hide = [nbt.need("unshare", "util-linux"), "-m", "sh", "-c",
            'mount -t tmpfs none /sys/kernel/btf && exec "$@"', "sh", nbt.AGENT]
    for name in ("run", "ps", "diagnose"):
        one_line(run(*hide, name), "BTF", "CONFIG_DEBUG_INFO_BTF")
    done = run(*hide, "check", "--json")
    assert done.returncode == CANNOT_TRACE
    assert {"btf", "bpf programs"} <= failed_items(done.stdout)


def test_in_another_pid_namespace():
    """The kernel's process numbers are the host's: there, they would be another's."""
    unshare = [nbt.need("unshare", "util-linux"), "--pid", "--fork"]
    for inside in ([*unshare, "--mount-proc", nbt.AGENT], [*unshare, nbt.AGENT]):
        for words in (["run"], ["ps"], ["diagnose"], ["record", "-o", "-"]):
            one_line(run(*inside, *words), "host's PID namespace", "hostPID")
        done = run(*inside, "check", "--json")
        assert done.returncode == CANNOT_TRACE and done.stderr == "", done
        assert failed_items(done.stdout) == {"PID namespace"}
    done = run(*unshare, "--mount-proc", nbt.AGENT, "check")
    assert re.search(r"^FAIL +PID namespace .*\n +mend: .*hostPID", done.stdout, re.M), done.stdout


def test_no_nccl_process():
    empty = ("--pid", 4194304)  # of other jobs on this machine nothing is asked
    done = agent("ps", *empty)
    assert (done.returncode, done.stderr) == (0, ""), done
    assert re.match(r"no NCCL process .*\n$", done.stdout), done
    done = agent("ps", "--json", *empty)
    assert done.returncode == 0
    assert json.loads(done.stdout) == {"schema": "nccl-bpftrace/ps/1", "processes": []}
    waiting = nbt.Agent(*empty)
    waiting.fresh(2)
    assert waiting.process.poll() is None and waiting.stop() == 0


def test_check_where_all_is_well():
    directory = nbt.tempdir()
    done = agent("check", "--json", "--textfile-dir", directory)
    assert done.returncode == 0, done
    items = json.loads(done.stdout)
    assert items["schema"] == "nccl-bpftrace/check/1"
    assert all(item["ok"] and not item["mend"] for item in items["items"]), items
    assert {"kernel", "btf", "privilege", "PID namespace", "bpf programs", "attaching",
            "textfile directory"} <= {item["name"] for item in items["items"]}


def test_check_looks_for_names_of_pods():
    def said(root):
        done = agent("check", "--host-root", root)
        assert done.returncode == 0, done
        return re.search(r"^ok +names of pods +(.*)$", done.stdout, re.M)[1]

    root = nbt.tempdir()
    assert said(root) == f"none: var/log/pods below {root}: No such file or directory"
    (root / "var/log/pods").mkdir(parents=True)
    assert said(root) == f"from var/log/pods below {root}"


def test_standard_output_that_takes_nothing():
    Caller()  # so that there is something to say
    for args in (["ps"], ["ps", "--json"], ["check"], ["check", "--json"], ["--help"],
                 ["--version"]):
        for where in (">&-", ">/dev/full"):
            done = subprocess.run(["sh", "-c", f'"$@" {where}', "sh", nbt.AGENT, *args], text=True,
                                  stderr=subprocess.PIPE, timeout=60)
            assert done.returncode == USAGE, (args, where, done)
            assert len(done.stderr.splitlines()) == 1, (args, where, done)
            assert "standard output" in done.stderr, (args, where, done)


def test_closed_streams_break_nothing():
    """What is opened in the place of a closed stream must not get what is printed."""
    directory = nbt.tempdir()
    for where in (">&-", "2>&-", "<&- >&- 2>&-", ">/dev/full"):
        done = subprocess.run(["sh", "-c", f'"$@" {where}', "sh", nbt.AGENT, "run", "--pid",
                               "4194304", "--interval", "1", "--duration", "2", "--textfile-dir",
                               directory], timeout=60, stdin=subprocess.DEVNULL,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        assert done.returncode == 0, where
        series = nbt.Series((directory / "nccl_bpftrace.prom").read_text())
        assert series.one("nccl_bpftrace_build_info") == 1
        (directory / "nccl_bpftrace.prom").unlink()


def test_signals_end_as_asked():
    for name in ("SIGINT", "SIGTERM"):
        running = nbt.Agent("--pid", 4194304)
        assert running.stop(getattr(nbt.signal, name)) == 0, name
