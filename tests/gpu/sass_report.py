#!/usr/bin/env python3
"""What the kernels' machine code says of their speed, without a GPU: a table for docs/device.md.

    pip install nvidia-cuda-nvdisasm        # NVIDIA's disassembler, from PyPI
    python3 tests/gpu/sass_report.py --nvcc /usr/local/cuda/bin/nvcc --nvdisasm .../nvidia/cu13/bin/nvdisasm

For each kernel: registers, warps that fit a multiprocessor, and the bytes that a thread has in flight: the most that are
loaded from global memory in a stretch of code before one of them is used. By Little's law a memory of bandwidth B and
latency L is kept busy by B * L bytes in flight; the share is what the kernel has of that, at most 100%.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Architecture -> name, multiprocessors, GB/s, ns of a load that misses L2, registers and threads of a multiprocessor, and
# its shared memory in KiB. Bandwidths and sizes are data sheets'; latencies are measured by others (Chips and Cheese;
# Luo et al. 2024) and rounded up.
GPUS = {
    "sm_89": ("RTX 4090", 128, 1008, 600, 65536, 1536, 100),
    "sm_90": ("H100 SXM", 132, 3350, 700, 65536, 2048, 228),
    "sm_87": ("Orin AGX 64", 16, 204, 700, 65536, 1536, 164),
}
# Of a load's name: bytes.
SIZES = {".128": 16, ".64": 8, ".U16": 2, ".S16": 2, ".U8": 1, ".S8": 1}
# By a pattern of the demangled name -> (what it is, threads of a block, dynamic shared bytes). First kernels of decoding one
# token. Those of prompts copy to shared memory by themselves (cp.async), which no register shows: last comes what a block has
# under way of its rows, in steps of 32 of them and 256 columns.
KERNELS = {
    r"AttendChunk<\(.*KvType\)0, 1>": ("attention, f16, a head for each kv head", 128, 18 << 10),
    r"AttendChunk<\(.*KvType\)0, 4>": ("attention, f16, groups of up to 4", 128, 23 << 10),
    r"AttendChunk<\(.*KvType\)0, 8>": ("attention, f16, groups of up to 8", 128, 46 << 10),
    r"AttendChunk<\(.*KvType\)1, 4>": ("attention, q8_0, groups of up to 4", 128, 23 << 10),
    r"FewTokens<\(.*DType\)4, 1,": ("product, Q4_0, 1 token", 512, 0),
    r"FewTokens<\(.*DType\)3, 1,": ("product, Q8_0, 1 token", 512, 0),
    r"FewTokens<\(.*DType\)8, 1,": ("product, Q4_K, 1 token", 512, 0),
    r"FloatTokens<\(.*DType\)1": ("product, f16", 256, 0),
    r"GemmRows<\(.*DType\)4, true>": ("gate and up of chosen rows, Q4_0", 128, 0),
    r"GemmRows<\(.*DType\)3, true>": ("gate and up of chosen rows, Q8_0", 128, 0),
    r"DownRows<\(.*DType\)4>": ("sum of down rows, Q4_0", 256, 0),
    r"SignPredictKernel<false>": ("sign prediction, one plane", 128, 0),
    r"NormTokens": ("norm", 512, 0),
    r"GemmRowTiles<\(.*DType\)4>": ("prompt: gate and up of chosen rows, Q4_0", 128, 0, 2 * 32 * 144),
    r"GemmRowTiles<\(.*DType\)3>": ("prompt: gate and up of chosen rows, Q8_0", 128, 0, 2 * 32 * 272),
    r"::RowTiles<\(.*DType\)4, true, true>": ("prompt: sum of down rows, Q4_0", 256, 0, 3 * 32 * 144),
    r"::RowTiles<\(.*DType\)3, true, true>": ("prompt: sum of down rows, Q8_0", 256, 0, 2 * 32 * 272),
}


def instructions(text):
    """Kernel -> its instructions in order, with branch targets as None."""
    out, current = {}, None
    for line in text.splitlines():
        if m := re.match(r"\s*\.text\.(\S+):", line):
            current = out.setdefault(m[1], [])
        elif current is not None and re.match(r"\s*\.L_", line):
            current.append(None)
        elif current is not None and (m := re.search(r"/\*[0-9a-f]{4,}\*/\s+(.*?);", line)):
            current.append(m[1])
    return out


def registers_read(code):
    """Registers of an instruction's operands but the first."""
    operands = code.split(",", 1)
    return set(re.findall(r"\bR(\d+)\b", operands[1] if len(operands) > 1 else code))


def bytes_in_flight(code):
    """The most bytes that are loaded before one of them is read, over all stretches without a branch target."""
    best = flying = 0
    waiting = {}
    for each in code:
        if each is None:
            waiting, flying = {}, 0
            continue
        if any(r in waiting for r in registers_read(each)):
            waiting, flying = {}, 0
        if m := re.search(r"\bLDG(\.\S+)?\s+R(\d+)", each):
            size = next((n for suffix, n in SIZES.items() if suffix in (m[1] or "")), 4)
            for i in range(max(1, size // 4)):
                waiting[str(int(m[2]) + i)] = size
            flying += size
            best = max(best, flying)
    return best


def figures(cubin, nvdisasm, cuobjdump_usage):
    text = subprocess.run([nvdisasm, "-c", str(cubin)], capture_output=True, text=True, check=True).stdout
    usage = {}
    for m in re.finditer(r"function '?(\S+?)'? for.*?\n(?:.*\n)*?.*Used (\d+) registers(?:.*?(\d+) bytes smem)?", cuobjdump_usage):
        usage[m[1]] = (int(m[2]), int(m[3] or 0))
    return {name: (bytes_in_flight(code), *usage.get(name, (0, 0))) for name, code in instructions(text).items()}


def demangle(name):
    return subprocess.run(["c++filt", name], capture_output=True, text=True, check=True).stdout.strip()


def table(architecture, options):
    gpu, processors, gb_s, ns, registers_all, threads_all, shared_kib = GPUS[architecture]
    needed = gb_s * ns / processors
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for source in sorted((ROOT / "kernels/cuda").glob("*.cu")):
            cubin = Path(folder) / f"{source.stem}.cubin"
            said = subprocess.run([options.nvcc, "-std=c++20", f"-I{ROOT}", "-fmad=false", f"-arch={architecture}", "-cubin", "-Xptxas", "-v",
                                   str(source), "-o", str(cubin)], capture_output=True, text=True, check=True).stderr
            for name, (flying, registers, shared) in figures(cubin, options.nvdisasm, said).items():
                plain = demangle(name)
                for pattern, (what, threads, dynamic, *copied) in KERNELS.items():
                    if not re.search(pattern, plain):
                        continue
                    flying = copied[0] // threads if copied else flying
                    blocks = min(threads_all // threads, registers_all // (max(registers, 1) * threads), (shared_kib << 10) // max(shared + dynamic, 1))
                    rows[what] = (registers, blocks * threads // 32, flying, blocks * threads * flying / needed)
    print(f"\n{gpu} ({architecture}): {gb_s} GB/s, {ns} ns: {needed / 1000:.1f} KB in flight on each of {processors} multiprocessors\n")
    print("| kernel | registers | warps | bytes in flight of a thread | share of the bandwidth |\n|---|---|---|---|---|")
    for what, *_ in KERNELS.values():
        if what in rows:
            registers, warps, flying, share = rows[what]
            print(f"| {what} | {registers} | {warps} | {flying} | {min(share, 1):.0%} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvdisasm", default="nvdisasm")
    parser.add_argument("--architectures", nargs="*", default=list(GPUS))
    options = parser.parse_args()
    for architecture in options.architectures:
        table(architecture, options)


if __name__ == "__main__":
    sys.exit(main())
