#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""Checks src/ against every release of the real NCCL: make test-nccl-versions.

For each release: downloads NVIDIA's wheel (pip), takes libnccl.so.2 and nccl.h out of it and
compares what nccl_elf.c and the tables say of the library with what the library's own debug
information, its symbols and its header say:

  version    ncclGetVersion()'s machine code against the wheel's release
  API        every exported nccl* function stands in nccl_api.def, none earlier than its row says
  fields     each offset of nccl_layout.c's row against DWARF
  code       rank, nRanks, cudaDev, endMagic from machine code against DWARF
  unknown    the release taken for one that nobody knows, the table ending before it: rank,
             nRanks, cudaDev right, commHash right or not given; how many further guesses are right
  comms      the address of ncclComms by machine code against .symtab (2.24 on)
  prototypes nccl.h compiles with tests/unit/test_api_prototypes.c
  profiler   the versions of the profiler interface that the library looks for, highest first, by
             its strings: the cooperating plugin exports one of them

A column holds "-" where a side is missing. Wheels stay in the cache, outside of the repository:
${NCCL_BPFTRACE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/nccl-bpftrace}/wheels; all of them are some
6 GB, the libraries taken out of them 8 GB more.
"""
import argparse
import glob
import json
import mmap
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PACKAGE = "nvidia-nccl-cu12"
RELEASES = """2.18.1 2.18.3 2.19.3 2.20.5 2.21.5 2.22.3 2.23.4 2.24.3 2.25.1 2.26.2 2.26.5 2.27.3
2.27.7 2.28.3 2.28.9 2.29.2 2.29.7 2.30.4 2.30.7 2.31.2 2.32.3""".split()
WARNINGS = "-std=gnu11 -D_GNU_SOURCE -O2 -g -Wall -Wextra -Wshadow -Werror".split()
IMAGE_SOURCES = """tests/nccl_image.c src/nccl_elf.c src/elf_file.c src/nccl_code.c
src/nccl_code_x86.c src/nccl_code_arm64.c src/nccl_layout.c src/nccl_identity.c src/utf8.c
src/nccl_api.c""".split()

# nccl_image's names are DWARF's. What the table leaves out on purpose is -1 there and not compared.
FIELDS = """startMagic endMagic commHash rank nRanks cudaDev nvmlDev busId node nNodes localRank
localRanks initState asyncResult abortFlag seqNumber config.commName
proxyState proxyState.asyncResult""".split()
CODE_FIELDS = ("rank", "nRanks", "cudaDev")
GUESSES = ("nvmlDev", "busId", "node", "nNodes", "localRank", "localRanks")

GDB = r"""
import gdb, json
comm = gdb.lookup_type('struct ncclComm')
offsets = {'size': comm.sizeof}
for path in %r:
    offset, t = 0, comm
    for part in path.split('.'):
        if t.strip_typedefs().code == gdb.TYPE_CODE_PTR:  # then from the struct it points to
            offset, t = 0, t.strip_typedefs().target()
        fields = [f for f in t.strip_typedefs().fields() if f.name == part and hasattr(f, 'bitpos')]
        if not fields:
            offset = None
            break
        offset, t = offset + fields[0].bitpos // 8, fields[0].type
    offsets[path] = offset
    if path == 'seqNumber' and offset is not None:
        offsets['n_seq'] = t.sizeof // 8
print('JSON' + json.dumps(offsets))
"""


class Missing(Exception):
    """Something that this release cannot be checked without."""


def cache_dir():
    base = os.environ.get("NCCL_BPFTRACE_CACHE")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "nccl-bpftrace")
    return os.path.join(base, "wheels")


def version_code(release):
    major, minor, patch = (int(part) for part in release.split("."))
    return 10000 * major + 100 * minor + patch


def wheel_of(release, args):
    pattern = os.path.join(args.cache, f"*nccl_cu12-{release}-*{args.machine}.whl")
    found = glob.glob(pattern)
    if found:
        return found[0]
    if args.offline:
        raise Missing("not in the cache (--offline)")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--only-binary=:all:",
               "-d", args.cache, f"{PACKAGE}=={release}"]
    for tag in ("manylinux1", "manylinux2014", "manylinux_2_17", "manylinux_2_18",
                "manylinux_2_27"):
        command += ["--platform", f"{tag}_{args.machine}"]
    done = subprocess.run(command, capture_output=True, text=True)
    found = glob.glob(pattern)
    if done.returncode or not found:
        lines = (done.stderr.strip() or "pip failed").splitlines()
        raise Missing("no wheel: " + lines[-1][:100])
    return found[0]


def extract(wheel, directory):
    """libnccl.so.2 and nccl.h, each whole or not there."""
    os.makedirs(directory, exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for member in archive.namelist():
            name = os.path.basename(member)
            path = os.path.join(directory, name)
            if name not in ("libnccl.so.2", "nccl.h") or os.path.exists(path):
                continue
            with archive.open(member) as source, open(path + ".part", "wb") as target:
                shutil.copyfileobj(source, target, 1 << 20)
            os.rename(path + ".part", path)


def release_files(release, args):
    suffix = "" if args.machine == platform.machine() else "-" + args.machine
    directory = os.path.join(args.cache, release + suffix)
    paths = [os.path.join(directory, name) for name in ("libnccl.so.2", "nccl.h")]
    if not all(os.path.exists(path) for path in paths):
        extract(wheel_of(release, args), directory)
    return paths


def build_image_tool(args):
    tool = os.path.join(ROOT, "build", "tests", "nccl_image")
    os.makedirs(os.path.dirname(tool), exist_ok=True)
    subprocess.run([args.cc, *WARNINGS, "-o", tool, *IMAGE_SOURCES], cwd=ROOT, check=True)
    return tool


def read_image(args, library, *options):
    arch = "arm64" if args.machine == "aarch64" else "x86_64"
    out = subprocess.run([args.tool, "--arch", arch, *options, library], check=True, text=True,
                         capture_output=True).stdout
    image = {}
    for line in out.splitlines():
        key, value = line.split("=", 1)
        image[key] = int(value, 0) if re.fullmatch(r"-?(0x[0-9a-f]+|\d+)", value) else value
    return image


def read_table(args):
    rows = subprocess.run([args.tool, "--table"], check=True, text=True, capture_output=True).stdout
    return {symbol: (int(since), probed)
            for symbol, since, probed in (row.split("\t") for row in rows.splitlines())}


def read_dwarf(library):
    """Offsets by gdb, or None when there is no gdb or no debug information."""
    if not shutil.which("gdb"):
        return None
    with tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(GDB % FIELDS)
        script.flush()
        out = subprocess.run(["gdb", "-nx", "-batch", "-x", script.name, library],
                             capture_output=True, text=True).stdout
    found = re.search(r"^JSON(.*)$", out, re.M)
    return json.loads(found.group(1)) if found else None


def read_exports(library):
    """Names of the nccl* functions in .dynsym, by readelf: not by the code under test."""
    out = subprocess.run(["readelf", "--dyn-syms", "-W", library], capture_output=True, text=True,
                         check=True).stdout
    found = set()
    for line in out.splitlines():
        part = line.split()
        if len(part) >= 8 and part[3] == "FUNC" and part[6] != "UND" and part[7].startswith("nccl"):
            found.add(part[7].split("@")[0])
    return found


def profiler_versions(path):
    """N of every ncclProfiler_vN that stands in the file, highest first: NCCL looks in that order."""
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text:
        found = re.findall(rb"ncclProfiler_v(\d+)\0", text)
    return sorted({int(version) for version in found}, reverse=True)


class Release:
    """One release: its files, what was found wrong, and the row of the table printed."""

    def __init__(self, release, args):
        self.release, self.args = release, args
        self.code = version_code(release)
        self.problems = []
        self.nccl, self.header = release_files(release, args)
        self.image = read_image(args, self.nccl)
        self.unknown = read_image(args, self.nccl, "--code-only")
        self.dwarf = read_dwarf(self.nccl)

    def expect(self, ok, problem):
        if not ok:
            self.problems.append(problem)
        return ok

    def check_version(self):
        self.expect(self.image["status"] == 1, self.image["reason"])
        ok = self.expect(self.image["version"] == self.code, f"version {self.image['version']}")
        return "ok" if ok else "wrong"

    def check_api(self, table):
        exports = read_exports(self.nccl)
        missing = sorted(exports - set(table))
        early = sorted(s for s in exports & set(table) if table[s][0] > self.code)
        gone = sorted(s for s, (since, probed) in table.items()
                      if probed == "probed" and since <= self.code and s not in exports)
        entries = {key[6:] for key in self.image if key.startswith("entry.")}
        probed = {s for s in exports if table.get(s, (0, ""))[1] == "probed"}
        self.expect(not missing, f"not in nccl_api.def: {' '.join(missing)}")
        self.expect(not early, f"earlier than nccl_api.def says: {' '.join(early)}")
        self.expect(not gone, f"nccl_api.def has, the library has not: {' '.join(gone)}")
        self.expect(entries == probed, f"entries differ: {' '.join(sorted(entries ^ probed))}")
        self.expect(self.image["n_exported"] == len(exports), "n_exported is wrong")
        return f"{len(probed)} of {len(exports)}"

    def check_fields(self):
        self.expect(self.image["layout"] == "table", f"layout from {self.image['layout']}")
        if not self.dwarf:
            return "-"
        given = [field for field in FIELDS if self.image[field] >= 0]
        for field in given:
            self.expect(self.image[field] == self.dwarf[field],
                        f"{field}: table {self.image[field]}, DWARF {self.dwarf[field]}")
        self.expect(self.image["size"] == self.dwarf["size"], "size differs from DWARF's")
        if self.image["seqNumber"] >= 0:
            self.expect(self.image["n_seq"] == self.dwarf["n_seq"], "seqNumber[]: other length")
        return f"{len(given) + 1} equal"

    def check_code(self):
        truth = self.dwarf or self.image
        for field in CODE_FIELDS:
            self.expect(self.unknown[field] == truth[field],
                        f"{field}: code {self.unknown[field]}, else {truth[field]}")
        want = truth["endMagic"] if truth["endMagic"] is not None else -1
        self.expect(self.unknown["endMagic"] == want, f"endMagic: code {self.unknown['endMagic']}")
        return str(self.unknown["rank"]) + ("" if want < 0 else f", {want}")

    def check_unknown(self):
        truth = self.dwarf or self.image
        right = self.unknown["commHash"] == truth["commHash"]
        self.expect(right or self.unknown["commHash"] == -1,
                    f"commHash guessed as {self.unknown['commHash']}")
        guesses = sum(self.unknown[field] == truth[field] for field in GUESSES
                      if truth[field] not in (None, -1))
        total = sum(truth[field] not in (None, -1) for field in GUESSES)
        return f"rank, nRanks, cudaDev{', hash' if right else ''}; {guesses}/{total}"

    def check_comms(self):
        if self.code < 22403:
            return "-"
        keys = ("comms_vaddr", "n_comms_vaddr")
        by_code = tuple(self.unknown[key] for key in keys)
        by_symbol = None if self.image["comms_from_code"] else tuple(self.image[k] for k in keys)
        self.expect(all(by_code), "ncclComms not found by code")
        if by_symbol:
            self.expect(by_symbol == by_code, f"ncclComms: .symtab {by_symbol}, code {by_code}")
        return "symtab, code" if by_symbol else "code"

    def check_prototypes(self):
        with tempfile.TemporaryDirectory() as directory:
            program = os.path.join(directory, "prototypes")
            done = subprocess.run(
                [self.args.cc, *WARNINGS, "-Itests/unit/stub", f'-DNCCL_H="{self.header}"', "-o",
                 program, "tests/unit/test_api_prototypes.c"],
                cwd=ROOT, capture_output=True, text=True)
            errors = [line for line in done.stderr.splitlines() if "error:" in line]
            if not self.expect(not done.returncode, "nccl.h: " + " ".join(errors[:1])):
                return "wrong"
            done = subprocess.run([program], capture_output=True, text=True)
        self.expect(not done.returncode, done.stdout)
        return done.stdout.split(" prototypes", 1)[0]

    def check_profiler(self):
        asked = profiler_versions(self.nccl)
        if not asked:
            self.expect(self.code < 22300, "no ncclProfiler_vN")
            return "-"
        ours = [version for version in asked if version in profiler_versions(self.args.plugin)]
        if not self.expect(ours, f"looks for v{asked[0]}..v{asked[-1]}, the plugin has none"):
            return "wrong"
        return f"v{asked[0]}" if ours[0] == asked[0] else f"v{asked[0]}, gets v{ours[0]}"

    def row(self, table):
        cells = [self.release, self.check_version(), self.check_api(table), self.check_fields(),
                 self.check_code(), self.check_unknown(), self.check_comms(),
                 self.check_prototypes(), self.check_profiler(),
                 f"{float(self.image['time_us']) / 1000:.1f}"]
        return cells + ["FAIL" if self.problems else "ok"]


def print_table(rows):
    head = ["release", "version", "probed of exported", "table = DWARF", "code: rank, endMagic",
            "as an unknown release; further guesses", "ncclComms by", "prototypes", "profiler", "ms", ""]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, ["-" * width for width in widths], *rows]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(row, widths)) + " |")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--offline", action="store_true", help="only what is in the cache")
    parser.add_argument("--machine", default=platform.machine(), choices=("x86_64", "aarch64"),
                        help="whose libraries (default: this machine's)")
    parser.add_argument("releases", nargs="*", metavar="RELEASE", help="e.g. 2.28.9; default: all")
    args = parser.parse_args()
    args.cc = os.environ.get("CC", "gcc")
    args.cache = cache_dir()
    args.plugin = os.path.join(ROOT, "build", "libnccl-profiler-bpftrace.so")
    return args


def main():
    args = parse_arguments()
    os.makedirs(args.cache, exist_ok=True)
    args.tool = build_image_tool(args)
    table, rows, skipped, problems = read_table(args), [], [], []
    for name in args.releases or RELEASES:
        try:
            release = Release(name, args)
        except Missing as reason:
            skipped.append(f"skip {name}: {reason}")
            continue
        rows.append(release.row(table))
        problems += [f"FAIL {name}: {problem}" for problem in release.problems]
    print_table(rows)
    print(*skipped, *problems, sep="\n", end="\n" if skipped or problems else "")
    n_failed = sum(row[-1] == "FAIL" for row in rows)
    print(f"{len(rows) - n_failed} passed, {n_failed} failed, {len(skipped)} skipped")
    return 1 if n_failed else 0


if __name__ == "__main__":
    sys.exit(main())
