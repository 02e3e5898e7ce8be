#!/usr/bin/env python3
"""Facts about GGUF files as the PyPI package gguf reads them: writes golden/gguf_facts.txt, which test_gguf compares with.

gguf_facts.py DATA          lines for DATA/{archs,quants,vocab}/*.gguf and for tests/fuzz/seeds/gguf (made by hone's writer)
gguf_facts.py --text FILE   the description of one file, of which gguf_facts.txt holds the SHA-256
"""
import glob
import hashlib
import os
import sys

from gguf import GGUFReader, GGUFValueType as T

NAMES = {T.UINT8: "u8", T.INT8: "i8", T.UINT16: "u16", T.INT16: "i16", T.UINT32: "u32", T.INT32: "i32", T.FLOAT32: "f32",
         T.BOOL: "bool", T.STRING: "string", T.UINT64: "u64", T.INT64: "i64", T.FLOAT64: "f64"}


def values(reader):
    for key, field in reader.fields.items():
        if key.startswith("GGUF."):
            continue
        # key length, key, type, then: (element type, count,) parts of the items
        kind = T(int(field.parts[2][0]))
        is_array = kind == T.ARRAY
        if is_array:
            kind = T(int(field.parts[3][0]))
        n = int(field.parts[4][0]) if is_array else 1
        payload = b"".join(p.tobytes() for p in field.parts[5 if is_array else 3:])
        yield "%s %s%s %d %s" % (key, "array of " if is_array else "", NAMES[kind], n, hashlib.sha256(payload).hexdigest())


def tensors(reader):
    for t in reader.tensors:
        data = reader.data[t.data_offset:t.data_offset + t.n_bytes].tobytes()
        yield "%s %d %s %d at %d %s" % (t.name, t.tensor_type, " ".join(str(n) for n in t.shape), t.n_bytes, t.data_offset,
                                        hashlib.sha256(data).hexdigest())


def describe(path):
    reader = GGUFReader(path)
    v, t = list(values(reader)), list(tensors(reader))
    text = "".join(line + "\n" for line in v + t)
    return int(reader.fields["GGUF.version"].parts[0][0]), len(v), len(t), text


def main():
    if sys.argv[1] == "--text":
        print(describe(sys.argv[2])[3], end="")
        return
    here = os.path.dirname(os.path.abspath(__file__))
    seeds = os.path.join(here, "..", "fuzz", "seeds", "gguf")
    with open(os.path.join(here, "gguf_facts.txt"), "w") as out:
        for where, root, pattern in (("seeds", seeds, "*.gguf"), ("data", sys.argv[1], "*/*.gguf")):
            for path in sorted(glob.glob(os.path.join(root, pattern))):
                version, n_values, n_tensors, text = describe(path)
                out.write("%s %s %d %d %d %s\n" % (where, os.path.relpath(path, root), version, n_values, n_tensors,
                                                  hashlib.sha256(text.encode()).hexdigest()))


main()
