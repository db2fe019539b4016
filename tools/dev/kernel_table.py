#!/usr/bin/env python3
"""What CUDA's compiler says of the kernels, and what they move: the tables of docs/kernels.md.

usage: kernel_table.py BUILD            print them (BUILD is the build folder)
       kernel_table.py BUILD --write    put them into docs/kernels.md
       kernel_table.py BUILD --check    compare them with docs/kernels.md; spilled registers fail

Exit code 77: there is no nvcc in this build.
"""
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
DOCS = ROOT / "docs" / "kernels.md"
# Of an SM: shared memory in bytes. Registers, threads and blocks are the same for all three.
ARCHES = {"sm_80": 164 * 1024, "sm_90": 228 * 1024, "sm_100": 228 * 1024}
REGISTERS, THREADS, BLOCKS, RESERVED = 65536, 2048, 32, 1024


def nvcc_of(build):
    for line in (build / "CMakeCache.txt").read_text().splitlines():
        found = re.match(r"TTT_NVCC:\w+=(.+)", line)
        if found and "NOTFOUND" not in found[1]:
            return found[1]
    return None


def compiled(nvcc, arch):
    """Kernel name to (registers, bytes spilled), by ptxas's own words."""
    with tempfile.TemporaryDirectory() as folder:
        said = subprocess.run(
            [nvcc, "-std=c++17", "-O3", f"-I{ROOT}", f"-arch={arch}", "-cubin", "-Xptxas", "-v",
             str(ROOT / "kernels/cuda/kernels.cu"), "-o", f"{folder}/out"],
            check=True, capture_output=True, text=True).stderr
    kernels, name, spilled = {}, None, 0
    for line in said.splitlines():
        if found := re.search(r"Function properties for (\w+)", line):
            name = found[1]
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            spilled = int(found[1]) + int(found[2])
        elif found := re.search(r"Used (\d+) registers", line):
            kernels[name] = (int(found[1]), spilled)
    return kernels


def blocks_of(registers, threads, shared, room):
    """Blocks that an SM has at a time."""
    warps = threads // 32
    each = (registers + 7) // 8 * 8 * 32  # registers are given to warps by the 256
    by_registers = REGISTERS // each // 4 * 4 // warps
    by_shared = room // (shared + RESERVED)
    return min(by_registers, by_shared, THREADS // threads, BLOCKS)


def runs_on(name, arch):
    """Clusters need sm_90, and there a kernel with one is taken."""
    if "_cluster_" in name:
        return arch != "sm_80"
    return "_block_" not in name or arch == "sm_80"


def kernel_rows(build, nvcc):
    plan = subprocess.run([build / "kernels/cuda/ttt_cuda_list"], check=True, capture_output=True,
                          text=True).stdout
    by_arch = {arch: compiled(nvcc, arch) for arch in ARCHES}
    rows, spills = [], []
    for line in plan.splitlines():
        name, threads, parts, shared = line.split()
        cells = []
        for arch, room in ARCHES.items():
            registers, spilled = by_arch[arch][name]
            if spilled:
                spills.append(f"{name} spills {spilled} bytes on {arch}")
            if not runs_on(name, arch):
                cells.append("")
                continue
            blocks = blocks_of(registers, int(threads), int(shared), room)
            share = 100 * blocks * int(threads) // THREADS
            cells.append(f"{registers}, {spilled}, {blocks} ({share} %)")
        cluster = "" if parts == "1" else parts
        rows.append(f"| {name} | {threads} | {cluster} | {int(shared) / 1024:.1f} | "
                    + " | ".join(cells) + " |")
    for arch in ARCHES:
        unplanned = set(by_arch[arch]) - {line.split()[0] for line in plan.splitlines()}
        if unplanned:
            spills.append(f"kernels without a plan: {sorted(unplanned)}")
    return rows, spills


def tables(build, nvcc):
    version = subprocess.run([nvcc, "--version"], check=True, capture_output=True, text=True).stdout
    release = re.search(r"release ([\d.]+)", version)[1]
    rows, wrong = kernel_rows(build, nvcc)
    head = [f"By nvcc {release}; each cell: registers, bytes spilled, blocks an SM (threads of its 2048).",
            "", "| kernel | threads | cluster | shared, KiB | " + " | ".join(ARCHES) + " |",
            "|---|---|---|---|" + "---|" * len(ARCHES)]
    traffic = subprocess.run([build / "tests/test_kernels_cuda_traffic", "table"], check=True,
                             capture_output=True, text=True).stdout.rstrip()
    return {"kernels": "\n".join(head + rows), "traffic": traffic}, wrong


def between(text, name):
    found = re.search(rf"<!-- {name} -->\n(.*?)\n<!-- end -->", text, re.S)
    return found[1] if found else None


def main():
    if len(sys.argv) < 2 or sys.argv[2:] not in ([], ["--write"], ["--check"]):
        sys.exit(__doc__)
    build = Path(sys.argv[1])
    nvcc = nvcc_of(build)
    if nvcc is None:
        print("there is no nvcc in this build")
        sys.exit(77)
    made, wrong = tables(build, nvcc)
    text = DOCS.read_text()
    for name, table in made.items():
        stood = between(text, name)
        if sys.argv[2:] == []:
            print(table, end="\n\n")
        elif sys.argv[2] == "--write":
            text = text.replace(f"<!-- {name} -->\n{stood}\n<!-- end -->",
                                f"<!-- {name} -->\n{table}\n<!-- end -->")
        elif stood != table and (name == "traffic" or stood.split(";")[0] == table.split(";")[0]):
            # Another compiler's registers are no fault of the document; its spills would be.
            wrong.append(f"the table of {name} in docs/kernels.md is out of date: write it again "
                         "with --write")
    if sys.argv[2:] == ["--write"]:
        DOCS.write_text(text)
    for line in wrong:
        print(line)
    sys.exit(1 if wrong else 0)


main()
