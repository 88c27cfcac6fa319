# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""`plugin enable|disable|status`: NCCL's configuration file keeps all else, byte for byte."""
import json
import os
import shutil
import subprocess

import nbt

BUILT = nbt.BUILD / "libnccl-profiler-bpftrace.so"
LINE = f"NCCL_PROFILER_PLUGIN={BUILT}\n".encode()
CHAIN = b"NCCL_BPFTRACE_CHAIN=libnccl-profiler-inspector.so\n"
OTHER = b"# the site's own\nNCCL_PROFILER_PLUGIN=inspector\nNCCL_DEBUG=WARN"


def plugin(action, conf, *args, status=0):
    done = nbt.run_agent("plugin", action, "--conf", conf, *args)
    assert done.returncode == status, done
    assert (status == 0) == (not done.stderr), done.stderr
    if status:
        assert done.stderr.count("\n") == 1 and not done.stdout, done
    return done


def state(conf):
    found = json.loads(plugin("status", conf, "--json").stdout)
    assert found["schema"] == "nccl-bpftrace/plugin/1" and found["conf"] == str(conf)
    return found


def conf_with(content):
    path = nbt.tempdir() / "nccl.conf"
    if content is not None:
        path.write_bytes(content)
    return path


def test_on_and_off_again():
    for content in (None, b"", b"# x\r\n\nNCCL_DEBUG = INFO\n\xff\xfe", b"A=1\n" * 20000):
        conf = conf_with(content)
        assert state(conf)["state"] == "disabled"
        plugin("enable", conf)
        assert conf.read_bytes() == LINE + (content or b"")
        found = state(conf)
        assert (found["state"], found["value"], found["installed"]) == ("enabled", str(BUILT), True)
        inode = conf.stat().st_ino
        plugin("enable", conf)
        assert conf.stat().st_ino == inode, "written again although nothing changed"
        plugin("disable", conf)
        assert (conf.read_bytes() if conf.exists() else b"") == (content or b"")
        plugin("disable", conf)
        assert state(conf)["state"] == "disabled"
        assert os.listdir(conf.parent) in ([], ["nccl.conf"])


def test_mode_owner_and_attributes_stay():
    conf = conf_with(b"A=1\n")
    os.chmod(conf, 0o640)
    os.chown(conf, 1234, 4321)
    try:
        os.setxattr(conf, "user.nccl_bpftrace_test", b"kept")
        has_xattr = True
    except OSError:
        has_xattr = False
    plugin("enable", conf)
    after = conf.stat()
    assert (after.st_mode & 0o7777, after.st_uid, after.st_gid) == (0o640, 1234, 4321)
    if has_xattr:
        assert os.getxattr(conf, "user.nccl_bpftrace_test") == b"kept"
    fresh = conf_with(None)
    subprocess.run(["sh", "-c", f"umask 077; exec {nbt.AGENT} plugin enable --conf {fresh}"],
                   check=True, capture_output=True)
    assert fresh.stat().st_mode & 0o7777 == 0o644


def test_link_stays_a_link():
    conf = conf_with(b"A=1\n")
    link = conf.parent / "link.conf"
    link.symlink_to(conf)
    plugin("enable", link)
    assert link.is_symlink() and conf.read_bytes() == LINE + b"A=1\n"


def test_another_s_plugin_is_not_pushed_out():
    conf = conf_with(OTHER)
    assert state(conf)["state"] == "other"
    done = plugin("enable", conf, status=2)
    assert "inspector" in done.stderr and "--chain" in done.stderr
    assert conf.read_bytes() == OTHER
    plugin("enable", conf, "--chain")
    assert conf.read_bytes() == LINE + CHAIN + OTHER
    found = state(conf)
    assert (found["state"], found["chain"]) == ("enabled", "libnccl-profiler-inspector.so")
    assert "inspector" in plugin("status", conf).stdout
    plugin("disable", conf)
    assert conf.read_bytes() == OTHER


def test_says_what_goes_before_and_what_stays():
    text = plugin("status", conf_with(None)).stdout
    for word in ("~/.nccl.conf", "$NCCL_CONF_FILE", "keep what they have", "container"):
        assert word in text, text
    gone = conf_with(b"NCCL_PROFILER_PLUGIN=/nowhere/libnccl-profiler-bpftrace.so\n")
    assert "not there" in plugin("status", gone).stdout


def test_refusals():
    conf = conf_with(b"A=1\n")
    directory = nbt.tempdir()
    assert "not at" in plugin("enable", conf, "--plugin", directory / "no.so", status=2).stderr
    plugin("enable", directory, status=2)
    assert "--conf" in plugin("status", directory, status=2).stderr
    assert "enable disable status" in nbt.run_agent("plugin").stderr
    for words in (("plugin", "on"), ("plugin", "enable", "disable"), ("plugin", "able"),
                  ("ps", "enable")):
        done = nbt.run_agent(*words)
        assert done.returncode == 2 and "unexpected argument" in done.stderr, done
    assert conf.read_bytes() == b"A=1\n"


def test_what_others_may_change_is_not_given_to_every_job():
    conf = conf_with(b"")
    directory = nbt.tempdir()
    copy = directory / BUILT.name
    shutil.copy(BUILT, copy)
    os.chmod(copy, 0o666)
    assert "write to it" in plugin("enable", conf, "--plugin", copy, status=2).stderr
    os.chmod(copy, 0o644)
    os.chmod(directory, 0o777)
    assert "replace it" in plugin("enable", conf, "--plugin", copy, status=2).stderr
    os.chmod(directory, 0o755)
    os.chown(copy, 1234, 0)
    plugin("enable", conf, "--plugin", copy, status=2)
    os.chown(copy, 0, 0)
    plugin("enable", conf, "--plugin", copy)


def test_without_privilege():
    conf = conf_with(b"A=1\n")
    os.chmod(conf.parent, 0o755)
    setpriv = nbt.need("setpriv", "util-linux")
    done = subprocess.run([setpriv, "--reuid=65534", "--clear-groups", nbt.AGENT, "plugin",
                           "enable", "--conf", conf], text=True, capture_output=True)
    assert done.returncode in (2, 3) and done.stderr.count("\n") == 1, done
    assert "sudo" in done.stderr or "write" in done.stderr, done
    assert conf.read_bytes() == b"A=1\n" and os.listdir(conf.parent) == ["nccl.conf"]


def test_jobs_take_it():
    """A simulated job that reads the file as NCCL does has the plugin, and its launches are timed."""
    conf = conf_with(b"# the site's\n")
    plugin("enable", conf)
    output = nbt.tempdir() / "recording"
    job = nbt.Sim("comm world config; pause 1500; allreduce world 100000 fp32 x 20; synchronize",
                  ranks=2, gpu=True, prefix=["env", f"NCCL_CONF_FILE={conf}"])
    pids = nbt.pid_words(job.pids)
    record = subprocess.Popen([nbt.AGENT, "record", "-o", output, "--gpu-timing-budget", "100",
                               *pids], stderr=subprocess.PIPE, text=True)
    nbt.defer(nbt.end, record)
    assert "recording" in record.stderr.readline()
    job.go()
    job.wait_done()
    nbt.wait_for(lambda: output.read_text().count('"kind":"launch"') == 40, "40 launches")
    assert nbt.end(record) == 0
    assert output.read_text().count('"operation":"AllReduce","bytes":400000') == 40


def test_installed_plugin_is_found():
    """make install with a prefix and a DESTDIR; the program finds its own plugin there."""
    root = nbt.tempdir()
    subprocess.run(["make", "-s", "install", "PREFIX=/opt/x", f"DESTDIR={root}"], cwd=nbt.ROOT,
                   check=True, capture_output=True)
    program = root / "opt/x/sbin/nccl-bpftrace"
    installed = root / "opt/x/lib/nccl-bpftrace" / BUILT.name
    assert installed.read_bytes() == BUILT.read_bytes()
    conf = conf_with(b"")
    done = subprocess.run([program, "plugin", "enable", "--json", "--conf", conf], text=True,
                          capture_output=True)
    assert done.returncode == 0, done
    assert json.loads(done.stdout)["plugin"] == str(installed.resolve())
    assert conf.read_text() == f"NCCL_PROFILER_PLUGIN={installed.resolve()}\n"
