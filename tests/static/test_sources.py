# SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
"""What holds for the sources as they stand: format, sizes, licences, both architectures."""
import re
import shutil
import subprocess

import nbt


def sources(*globs):
    return sorted(path for glob in globs for path in nbt.ROOT.glob(glob))


def test_format():
    formatter = shutil.which("clang-format-14") or nbt.need("clang-format", "clang-format")
    version = subprocess.run([formatter, "--version"], text=True, capture_output=True).stdout
    if " 14." not in version:
        nbt.skip(f"clang-format 14 lays down the format, this is {version.strip()}")
    files = sources("src/*.[ch]", "src/plugin/*.[ch]", "bpf/*.[ch]", "include/*.h")
    done = subprocess.run([formatter, "--dry-run", "--Werror", *files], text=True,
                          capture_output=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_every_file_names_its_licence():
    missing = [str(path) for path in
               sources("src/**/*", "bpf/*", "include/*", "vmlinux/**/*.h", "scripts/*", "tests/**/*")
               if path.is_file() and path.suffix in (".c", ".h", ".cc", ".py", ".sh", ".mk", ".def")
               and "SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause"
               not in path.read_text()[:300]]
    assert not missing, missing


def test_files_and_functions_are_small():
    long = []
    for path in sources("src/*.[ch]", "src/plugin/*.[ch]", "bpf/*.[ch]"):
        lines = path.read_text().splitlines()
        if len(lines) > 400:
            long.append(f"{path.name}: {len(lines)} lines")
        start = None
        for number, line in enumerate(lines):
            if line == "{":
                start = number
            if line == "}" and start is not None:
                if number - start - 1 > 60:
                    long.append(f"{path.name}:{start}: {number - start - 1} lines")
                start = None
    assert not long, long


def test_bpf_compiles_for_both_architectures():
    for arch in ("x86", "arm64"):
        program = nbt.BUILD / f"bpf/{arch}/nccl_bpftrace.bpf.o"
        assert program.stat().st_size > 10000, program


def test_user_space_compiles_for_arm64():
    """Types and the arm64 branches; a whole link would need arm64's libbpf."""
    compiler = nbt.need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
    pure = ["nccl_api.c", "nccl_layout.c", "nccl_identity.c", "nccl_code.c", "nccl_code_x86.c",
            "nccl_code_arm64.c", "nccl_elf.c", "elf_file.c", "usdt.c", "image.c", "comm.c",
            "comm_learn.c", "comm_owner.c", "comm_query.c", "watch_number.c", "utf8.c", "job.c",
            "prom.c", "rates.c", "inspector.c", "inspector_prom.c", "json_text.c", "record_inspector.c",
            "record_jsonl.c", "plugin_conf.c",
            *(path.name for path in sources("src/timing*.c", "src/screen_[dgko-pt-v]*.c")),
            *(f"plugin/{path.name}" for path in sources("src/plugin/*.c"))]
    for name in pure:
        done = subprocess.run([compiler, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra",
                               "-Werror", "-fsyntax-only", "-Iinclude", "-Isrc",
                               "-idirafter", "/usr/include", nbt.ROOT / "src" / name],
                              text=True, capture_output=True, cwd=nbt.ROOT)
        assert done.returncode == 0, f"{name}: {done.stderr[-2000:]}"


def test_plugin_links_for_arm64():
    compiler = nbt.need("aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu")
    plugin = nbt.tempdir() / "plugin.so"
    done = subprocess.run([compiler, "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror",
                           "-O2", "-Iinclude", "-fPIC", "-fvisibility=hidden", "-shared",
                           "-pthread", "-Wl,-z,defs", "-o", plugin,
                           *sources("src/plugin/*.c"), "-ldl"],
                          text=True, capture_output=True, cwd=nbt.ROOT)
    assert done.returncode == 0, done.stderr[-2000:]
    note = subprocess.run([nbt.need("readelf", "binutils"), "-nW", plugin], text=True,
                          capture_output=True, check=True).stdout
    assert re.search(r"Provider: nccl_bpftrace\s+Name: batch\s.*\s+Arguments: 8@x0 4@x1", note), note


def test_api_prototypes_against_nvidia_s_header():
    if not (nbt.BUILD / "tests/test_api_prototypes").exists():
        nbt.skip("no nccl.h here: NCCL_H=FILE make test names one")
