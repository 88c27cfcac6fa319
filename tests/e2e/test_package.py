# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""The Debian package: built, installed, upgraded, removed, purged, in a copy of this machine."""
import functools
import re
import shutil
import subprocess
from pathlib import Path

import managed
import nbt
import tenant
from managed import TEXTFILES
from servers import fake_gpus

UNIT = "nccl-bpftrace.service"
CONF = "/etc/nccl-bpftrace.conf"
PLUGIN = "/usr/lib/nccl-bpftrace/libnccl-profiler-bpftrace.so"
# What dpkg, and the programs that it tells of a package, write down for themselves; and the user, which stays.
NOTES = re.compile(r"/var/lib/(dpkg|systemd)/|/var/(cache|log)(/|$)|/etc/(passwd|group|g?shadow|sub[ug]id)-?$|"
                   r"/etc/\.pwd\.lock$|/var/lib/(dpkg|systemd)$")


@functools.cache
def package():
    """Built once; a directory that stays until the tests are over holds it."""
    for program in ("dpkg-buildpackage", "dh"):
        nbt.need(program, {"dh": "debhelper"}.get(program, "dpkg-dev"))
    done = subprocess.run(["make", "-C", nbt.ROOT, "deb", "SETUP=true"], text=True, capture_output=True,
                          check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found, = nbt.BUILD.glob("nccl-bpftrace_*.deb")
    return found


def later_version(root, version):
    """The same package as a later one, whose configuration file has another comment."""
    tree = nbt.tempdir() / "later"
    subprocess.run(["dpkg-deb", "-R", package(), tree], check=True)
    control = tree / "DEBIAN/control"
    control.write_text(re.sub(r"^Version: .*$", f"Version: {version}", control.read_text(), flags=re.M))
    conf = tree / CONF.lstrip("/")
    conf.write_text(conf.read_text() + "# one more comment\n")
    made = tree.with_name("later.deb")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-b", tree, made], check=True, stdout=subprocess.DEVNULL)
    return made


def fields(deb):
    text = subprocess.run(["dpkg-deb", "-f", deb], text=True, capture_output=True, check=True).stdout
    return dict(re.findall(r"^([\w-]+): (.*)$", text, re.M))


def differing(before, after):
    return sorted(path for path in {*before, *after}
                  if before.get(path) != after.get(path) and not NOTES.search(path))


def test_fields():
    found = fields(package())
    version = re.search(r'VERSION "(.*)"', (nbt.ROOT / "src/version.h").read_text())[1]
    assert found["Version"] == version, (found["Version"], version)
    assert re.search(r"\bacl\b", found["Depends"]) and "libbpf" not in found["Depends"], found
    assert found["Built-Using"].startswith("elfutils (= "), found
    listed = subprocess.run(["dpkg-deb", "-c", package()], text=True, capture_output=True, check=True).stdout
    files = re.findall(r"^-(\S+) (\S+) .* \.(/\S+)$", listed, re.M)
    assert {owner for _, owner, _ in files} == {"root/root"}
    assert {path for mode, _, path in files if mode == "rwxr-xr-x"} == {
        "/usr/sbin/nccl-bpftrace", "/lib/systemd/system-generators/nccl-bpftrace",
        "/usr/share/doc/nccl-bpftrace/examples/slurm/task_prolog.sh"}
    for path in (CONF, PLUGIN, "/usr/share/man/man8/nccl-bpftrace.8.gz", "/usr/lib/sysusers.d/nccl-bpftrace.conf",
                 "/usr/share/man/man5/nccl-bpftrace.conf.5.gz", "/usr/share/doc/nccl-bpftrace/copyright",
                 "/usr/share/doc/nccl-bpftrace/examples/kubernetes/daemonset.yaml",
                 "/usr/share/bash-completion/completions/nccl-bpftrace"):
        assert path in [name for _, _, name in files], path


def test_make_install():
    """All of it, and nothing else; a configuration file that is there stays."""
    place = nbt.tempdir()
    command = ["make", "-C", nbt.ROOT, "install", "SETUP=true", "PREFIX=/opt/nb", f"DESTDIR={place}"]
    for _ in range(2):
        done = subprocess.run(command, text=True, capture_output=True)
        assert done.returncode == 0, done.stdout + done.stderr
        conf = place / CONF.lstrip("/")
        conf.write_text("# edited\n")
    found = {str(path.relative_to(place)): path.stat().st_mode & 0o777 for path in place.rglob("*")
             if path.is_file() and "share/nccl-bpftrace/grafana" not in str(path)}
    assert found == {
        "etc/nccl-bpftrace.conf": 0o644,
        "opt/nb/sbin/nccl-bpftrace": 0o755,
        "opt/nb/lib/nccl-bpftrace/libnccl-profiler-bpftrace.so": 0o755,
        f"opt/nb/lib/systemd/system/{UNIT}": 0o644,
        "opt/nb/lib/systemd/system-generators/nccl-bpftrace": 0o755,
        "opt/nb/lib/sysusers.d/nccl-bpftrace.conf": 0o644,
        "opt/nb/share/man/man5/nccl-bpftrace.conf.5": 0o644,
        "opt/nb/share/man/man8/nccl-bpftrace.8": 0o644,
        "opt/nb/share/bash-completion/completions/nccl-bpftrace": 0o644,
    }, found
    rendered, shared = nbt.ROOT / "grafana/rendered", place / "opt/nb/share/nccl-bpftrace/grafana"
    assert (shared / "runbooks.md").exists() and (shared / "alertmanager.yml").exists()
    names = [path.relative_to(rendered) for path in rendered.rglob("*") if path.is_file()]
    assert names and all((shared / name).read_bytes() == (rendered / name).read_bytes() for name in names)
    assert conf.read_text() == "# edited\n"
    assert "ExecStart=/opt/nb/sbin/nccl-bpftrace run " in (place / f"opt/nb/lib/systemd/system/{UNIT}").read_text()
    done = subprocess.run([place / "opt/nb/sbin/nccl-bpftrace", "plugin", "status", "--conf", place / "none"],
                          text=True, capture_output=True)
    assert f"{place}/opt/nb/lib/nccl-bpftrace/" in done.stdout and "not there" not in done.stdout, done.stdout
    done = subprocess.run([*command[:3], "uninstall", *command[4:]], text=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    left = [str(path.relative_to(place)) for path in place.rglob("*") if not path.is_dir() or "nccl" in path.name]
    assert left == ["etc/nccl-bpftrace.conf"], left


def test_lintian():
    lintian = shutil.which("lintian") or nbt.skip("lintian is not installed (apt: lintian)")
    done = subprocess.run([lintian, "--allow-root", "--fail-on", "error,warning", package()], text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_install_upgrade_remove_purge():
    package()
    root = managed.node()
    before = root.changes()
    root.run("dpkg", "-i", package())
    installed = differing(before, root.changes())
    assert {CONF, PLUGIN, "/usr/sbin/nccl-bpftrace"} <= set(installed), installed
    version = fields(package())["Version"]
    assert root.run("nccl-bpftrace", "--version").startswith(f"nccl-bpftrace {version} ")
    assert re.match(r"nccl-bpftrace:x:\d+:\d+:.*:/:/usr/sbin/nologin$",
                    root.run("getent", "passwd", "nccl-bpftrace"))
    assert root.run("readlink", "-f", f"/etc/systemd/system/multi-user.target.wants/{UNIT}").strip().endswith(UNIT)
    assert "nccl-bpftrace.conf" in root.run("sh", "-c", "dpkg -V nccl-bpftrace; dpkg -s nccl-bpftrace")

    edited = (root.path / CONF.lstrip("/")).read_text() + "interval = 1\n"
    (root.path / CONF.lstrip("/")).write_text(edited)
    root.run("nccl-bpftrace", "plugin", "enable")
    assert (root.path / "etc/nccl.conf").read_text() == f"NCCL_PROFILER_PLUGIN={PLUGIN}\n"
    root.run("dpkg", "--force-confold", "-i", later_version(root, "9.9"))
    assert root.run("dpkg-query", "-W", "-f", "${Version}", "nccl-bpftrace") == "9.9"
    assert (root.path / CONF.lstrip("/")).read_text() == edited, "the edited configuration is gone"
    assert "one more" in (root.path / f"{CONF}.dpkg-dist".lstrip("/")).read_text()
    assert PLUGIN in (root.path / "etc/nccl.conf").read_text(), "an upgrade switches the plugin off"

    # the service, killed so that it takes nothing away, what else it could leave, and another's
    service = managed.Service(root, f"/lib/systemd/system/{UNIT}")
    service.start()
    job = tenant.start()
    nbt.wait_for(service.file.exists, "the textfile", 30)
    job.run()
    tenant.expect_all(service.series, job)
    service.manager.control("kill", "--signal=KILL", UNIT)
    service.control("stop")
    assert "user:nccl-bpftrace:rwx" in root.run("getfacl", "-p", TEXTFILES)
    ours = [".nccl_bpftrace.prom.17.tmp", "nccl_inspector_metrics_GPU-0.prom"]
    root.run("sh", "-c", f"cd {TEXTFILES}; touch {' '.join(ours)} smart.prom; chown nccl-bpftrace {' '.join(ours)};"
             "chown root nccl_bpftrace.prom")  # who ran it by hand
    (root.path / "etc/nccl.conf").write_text((root.path / "etc/nccl.conf").read_text() + "NCCL_DEBUG=WARN\n")
    root.run("dpkg", "-r", "nccl-bpftrace")
    assert root.run("ls", "-A", TEXTFILES) == "smart.prom\n"
    assert "nccl-bpftrace" not in root.run("getfacl", "-p", TEXTFILES)
    assert (root.path / "etc/nccl.conf").read_text() == "NCCL_DEBUG=WARN\n"
    assert (root.path / CONF.lstrip("/")).read_text() == edited, "removed is not purged"
    root.run("rm", "/etc/nccl.conf", f"{TEXTFILES}/smart.prom")
    root.run("dpkg", "--purge", "nccl-bpftrace")
    left = differing(before, root.changes())
    assert not left, f"left behind: {left}"


def test_it_is_not_started_where_nothing_is():
    """In an image that is being built, or a chroot."""
    package()
    root = managed.node()
    root.run("dpkg", "-i", package())
    assert not list(Path(root.path / TEXTFILES.lstrip("/")).iterdir())


def test_the_plugin_of_the_package():
    """Stripped as it is, the tracer finds it, and it gives GPU times."""
    tree = nbt.tempdir()
    subprocess.run(["dpkg-deb", "-x", package(), tree], check=True)
    job = tenant.start(tree / PLUGIN.lstrip("/"))
    agent = nbt.Agent(*nbt.pid_words(job.pids), preexec_fn=fake_gpus(2))
    job.run()
    tenant.expect_all(agent.series, job)
