#!/usr/bin/env python3
"""Writes tests/golden/rope.h: rotary embeddings as ggml computes them, in every mode that hone has.

    python3 tests/golden/rope.py > tests/golden/rope.h      (needs the PyPI package llama-cpp-python; written with 0.3.36)

The input is the same formula here and in the test: value i of a tensor is ((7919 i) mod 1001 - 500) / 256, exact in f32."""

import ctypes
import pathlib

import llama_cpp

LIB = pathlib.Path(llama_cpp.__file__).parent / "lib"
BASE = ctypes.CDLL(str(LIB / "libggml-base.so"), mode=ctypes.RTLD_GLOBAL)
CPU = ctypes.CDLL(str(LIB / "libggml-cpu.so"), mode=ctypes.RTLD_GLOBAL)
F32, I32 = 0, 26
NORM, NEOX, MROPE, IMROPE = 0, 2, 8, 40
MODES = {NORM: "ROPE_NORM", NEOX: "ROPE_NEOX", MROPE: "ROPE_SECTIONS", IMROPE: "ROPE_SECTIONS_INTERLEAVED"}
POINTER, INT, FLOAT = ctypes.c_void_p, ctypes.c_int, ctypes.c_float


class InitParams(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("memory", POINTER), ("no_alloc", ctypes.c_bool)]


def declare(lib, name, result, *args):
    f = getattr(lib, name)
    f.restype, f.argtypes = result, list(args)
    return f


init = declare(BASE, "ggml_init", POINTER, InitParams)
free = declare(BASE, "ggml_free", None, POINTER)
new_1d = declare(BASE, "ggml_new_tensor_1d", POINTER, POINTER, INT, ctypes.c_int64)
new_3d = declare(BASE, "ggml_new_tensor_3d", POINTER, POINTER, INT, *[ctypes.c_int64] * 3)
get_data = declare(BASE, "ggml_get_data", POINTER, POINTER)
rope_ext = declare(BASE, "ggml_rope_ext", POINTER, *[POINTER] * 4, INT, INT, INT, *[FLOAT] * 6)
rope_multi = declare(BASE, "ggml_rope_multi", POINTER, *[POINTER] * 4, INT, ctypes.POINTER(INT), INT, INT, *[FLOAT] * 6)
new_graph = declare(BASE, "ggml_new_graph", POINTER, POINTER)
expand = declare(BASE, "ggml_build_forward_expand", None, POINTER, POINTER)
compute = declare(CPU, "ggml_graph_compute_with_ctx", INT, POINTER, POINTER, INT)
declare(CPU, "ggml_cpu_init", None)()

# name, mode, head_dim, n_dims, heads, positions, base, freq_scale, ext_factor, attn_factor, n_ctx_orig, sections, factors
CASES = [
    ("norm", NORM, 12, 12, 2, [0, 3, 20], 10000.0, 1.0, 0.0, 1.0, 0, None, None),
    ("norm_part", NORM, 14, 8, 1, [1, 30], 10000.0, 1.0, 0.0, 1.0, 0, None, None),
    ("neox", NEOX, 16, 16, 2, [2, 9, 23], 1e6, 1.0, 0.0, 1.0, 0, None, None),
    ("neox_part", NEOX, 20, 12, 1, [5, 11], 10000.0, 0.5, 0.0, 1.0, 0, None, None),
    ("factors", NORM, 12, 12, 1, [4, 17], 500000.0, 1.0, 0.0, 1.0, 0, None, [1, 1, 1.5, 4, 8, 8]),
    ("yarn", NORM, 32, 32, 1, [1, 7, 60], 10000.0, 0.25, 1.0, 1.0, 4096, None, None),
    ("yarn_neox", NEOX, 40, 32, 1, [3, 50], 150000.0, 0.03125, 1.0, 1.25, 4096, None, None),
    ("sections", MROPE, 20, 16, 2, [3, 4, 5, 10, 11, 12, 20, 22, 24, 7, 8, 9], 10000.0, 1.0, 0.0, 1.0, 0, [4, 2, 2, 0], None),
    ("sections_four", MROPE, 16, 16, 1, [3, 4, 10, 11, 20, 22, 7, 8], 10000.0, 1.0, 0.0, 1.0, 0, [2, 3, 1, 2], None),
    ("interleaved", IMROPE, 18, 16, 2, [3, 4, 5, 10, 11, 12, 20, 22, 24, 7, 8, 9], 1e7, 1.0, 0.0, 1.0, 0, [3, 3, 2, 0], None),
    ("interleaved_four", IMROPE, 32, 32, 1, [3, 4, 10, 11, 20, 22, 7, 8], 10000.0, 1.0, 0.0, 1.0, 0, [2, 5, 5, 4], None),
    ("interleaved_qwen35", IMROPE, 64, 64, 1, [3, 10, 20, 7], 1e7, 1.0, 0.0, 1.0, 0, [11, 11, 10, 0], None),
]


def fill(tensor, ctype, values):
    array = (ctype * len(values))(*values)
    ctypes.memmove(get_data(tensor), array, ctypes.sizeof(array))


def run(name, mode, d, n_dims, heads, positions, base, scale, ext, attn, ctx_orig, sections, factors):
    c = init(InitParams(16 << 20, None, False))
    tokens = len(positions) // (4 if sections else 1)
    n = d * heads * tokens
    x, p = new_3d(c, F32, d, heads, tokens), new_1d(c, I32, len(positions))
    fill(x, ctypes.c_float, [(7919 * i % 1001 - 500) / 256 for i in range(n)])
    fill(p, ctypes.c_int32, positions)
    f = None
    if factors:
        f = new_1d(c, F32, len(factors))
        fill(f, ctypes.c_float, factors)
    tail = (ctx_orig, base, scale, ext, attn, 32.0, 1.0)
    y = rope_multi(c, x, p, f, n_dims, (INT * 4)(*sections), mode, *tail) if sections else rope_ext(c, x, p, f, n_dims, mode, *tail)
    g = new_graph(c)
    expand(g, y)
    assert compute(c, g, 1) == 0
    values = list((ctypes.c_float * n).from_address(get_data(y)))
    free(c)

    def braces(xs):
        return "{" + ", ".join(f"{v:.9g}" for v in xs) + "}"

    params = f"{{{MODES[mode]}, {n_dims}, {base!r}f, {scale!r}f, {ext!r}f, {attn!r}f, 32, 1, {ctx_orig}, {braces(sections or [0])}}}"
    print(f'    {{"{name}",\n     {params},\n     {d}, {heads}, {tokens}, {braces(positions)},')
    print(f"     {braces(factors or [0])}, {len(factors or [])},")
    print("     {" + ",\n      ".join(", ".join(f"{v:.9g}f" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}"
                                                for v in values[i:i + 8]) for i in range(0, n, 8)) + "}},")


print("/* rope.h: written by tests/golden/rope.py; do not edit. */")
print("/* clang-format off */")
print("static const struct golden_rope {")
print("    const char *name;\n    struct rope_params params;\n    int head_dim, n_head, n_tokens;\n    int32_t positions[16];")
print("    float factors[8];\n    int n_factors;\n    float out[128];\n} golden_rope[] = {")
for case in CASES:
    run(*case)
print("};")
