#!/usr/bin/env python3
"""Writes tests/golden/formats.bin: blocks of every weight format with the values that the PyPI package `gguf` unpacks from them, and
values with the blocks that it packs them into.

    python3 tests/golden/formats.py tests/golden/formats.bin      (needs gguf and numpy; written with gguf 0.19.0)

A record: kind (4 bytes: "unpk" or "pack"), format name (12 bytes, NUL-padded), n_values, n_bytes (u32), the block bytes, the
values as f32; little-endian. It also prints the SHA-256 digests of the half-precision conversions that tests/test_formats.c holds."""

import hashlib
import struct
import sys

import numpy as np
from gguf import GGMLQuantizationType as T
from gguf.constants import GGML_QUANT_SIZES
from gguf.quants import dequantize, quantize

# Where a block keeps its binary16 numbers, to give some blocks scales as real files have them.
HALVES = {
    T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0], T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2],
    T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_NL: [0], T.IQ4_XS: [0], T.MXFP4: [], T.F16: [], T.BF16: [],
}
# numpy's packers that are the rule of the format; the others are free to choose their scales.
PACKED = [T.BF16, T.F16, T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0]
HOSTILE = np.array([0x0000, 0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00, 0x7D01, 0x3C00, 0xBC00], np.uint16)


def record(out, kind, t, blocks, values):
    blocks = np.ascontiguousarray(blocks).view(np.uint8).reshape(-1)
    values = np.ascontiguousarray(values, dtype=np.float32).reshape(-1)
    out.write(struct.pack("<4s12sII", kind, t.name.encode(), values.size, blocks.size))
    out.write(blocks.tobytes())
    out.write(values.tobytes())


def unpack_records(out, rng):
    for t, halves in HALVES.items():
        n, size = GGML_QUANT_SIZES[t]
        sane, hostile = (8, 16) if n < 256 else (3, 3)
        if n == 1:
            sane = hostile = 256
        blocks = rng.integers(0, 256, (sane + hostile, size), dtype=np.uint8)
        for i, at in enumerate(halves):
            scale = rng.normal(0, 0.02, sane).astype(np.float16).view(np.uint8).reshape(sane, 2)
            blocks[:sane, at:at + 2] = scale
            pick = (np.arange(hostile) + 5 * i) % HOSTILE.size if n < 256 else rng.integers(0, HOSTILE.size, hostile)
            blocks[sane:, at:at + 2] = HOSTILE[pick].view(np.uint8).reshape(hostile, 2)
        if t == T.MXFP4:
            blocks[:, 0] = np.concatenate([rng.integers(115, 130, sane), np.arange(4), np.arange(252, 256), np.arange(8) * 30])
        with np.errstate(all="ignore"):
            record(out, b"unpk", t, blocks, dequantize(blocks, t))


def pack_records(out, rng):
    rows = [rng.normal(0, s, 32) for s in (0.02, 1, 300, 1e-4, 3e-6)]
    rows += [np.zeros(32), np.full(32, 1.5), np.full(32, -0.37), np.linspace(-1, 1, 32), np.linspace(1, -1, 32), np.arange(32.0)]
    rows += [np.where(np.arange(32) == 7, -2.0, 0.0), np.where(np.arange(32) == 31, 2.0, 0.01), np.abs(rng.normal(0, 1, 32))]
    tie = np.zeros(32)
    tie[[3, 20]] = 4, -4
    rows += [tie, -tie, rng.integers(-8, 8, 32) * 0.5, rng.integers(-127, 128, 32) + 0.5, rng.laplace(0, 0.1, 32)]
    # A scale of exactly 1 or 0.5: the codes' ties and what is just beside one.
    ties = np.array([127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5, 126.5, -126.5, np.float32(0.49999997), -np.float32(0.49999997)])
    rows += [np.resize(ties, 32), np.resize(ties[:10], 32) / 2, np.resize([-8, 0.5, 1.5, 2.5, 3.5, -0.5, -1.5, 6.5], 32)]
    rows += [np.resize([0, 15, 0.5, 1.5, 2.5, 14.5], 32), np.resize([-16, 0.5, 15.5, -2.5, 15, -15.5], 32)]
    x = np.array(rows, dtype=np.float32)
    for t in PACKED:
        record(out, b"pack", t, quantize(x, t), x)


def conversions():
    def digest(a):
        return hashlib.sha256(np.ascontiguousarray(a).tobytes()).hexdigest()

    h = np.arange(65536, dtype=np.uint16)
    wide = h.view(np.float16).astype(np.float32).view(np.uint32)
    wide[np.isnan(h.view(np.float16))] = 0x7FC00000
    print("f16 to f32:", digest(wide))
    # Every sign, exponent and upper ten bits of the fraction, with the lower 13 bits at and beside the rounding points.
    low = np.array([0, 1, 0x0FFF, 0x1000, 0x1001, 0x1FFF], np.uint32)
    bits = ((np.arange(1 << 19, dtype=np.uint32) << 13)[:, None] | low[None, :]).reshape(-1)
    f = bits.view(np.float32)
    f = f[~np.isnan(f)]
    with np.errstate(over="ignore"):
        print("f32 to f16:", digest(f.astype(np.float16)))
    print("f32 to bf16:", digest(quantize(f, T.BF16)))


def main():
    rng = np.random.default_rng(20)
    with open(sys.argv[1], "wb") as out:
        unpack_records(out, rng)
        pack_records(out, rng)
    conversions()


main()
