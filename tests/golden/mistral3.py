#!/usr/bin/env python3
"""mistral3.py ARCHS: writes tests/golden/mistral3.h, what llama.cpp makes of the test data's mistral3 model beyond its original context.

The model is ARCHS/mistral3.gguf with two changes, which the test makes in the same way: its original context is 8 positions, and instead of
yarn_beta_fast (32, the default too) it names attention.temperature_scale, 0.4: two keys of one length. All weights are unpacked to f32
first and the KV cache is f32, so that nothing is rounded but f32 sums. 24 tokens go through three times the original context; the logits
of some of them are kept.

    python3 tests/golden/mistral3.py ../shared/data/archs >tests/golden/mistral3.h     (llama-cpp-python, gguf, numpy)
"""
import json
import os
import struct
import sys
import tempfile

import gguf
import llama_cpp as ll
import numpy as np

ORIGINAL, TEMPERATURE, POSITIONS = 8, 0.4, [0, 7, 8, 15, 16, 23]


def patched(data):
    def value_at(key, code):
        at = data.index(struct.pack("<Q", len(key)) + key) + 8
        assert struct.unpack_from("<I", data, at + len(key))[0] == code
        return at, at + len(key) + 4

    data = bytearray(data)
    _, value = value_at(b"mistral3.rope.scaling.original_context_length", 4)
    struct.pack_into("<I", data, value, ORIGINAL)
    old, new = b"mistral3.rope.scaling.yarn_beta_fast", b"mistral3.attention.temperature_scale"
    assert len(old) == len(new)
    name, value = value_at(old, 6)
    assert struct.unpack_from("<f", data, value)[0] == 32
    data[name : name + len(new)] = new
    struct.pack_into("<f", data, value, TEMPERATURE)
    return bytes(data)


def unpacked(source, target):
    """All tensors as f32, all keys as they are."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, "mistral3")
    for key, field in reader.fields.items():
        if key.startswith("GGUF.") or key == "general.architecture":
            continue
        kind = field.types[0]
        if key == "general.file_type":
            writer.add_uint32(key, 0)
        elif kind == gguf.GGUFValueType.ARRAY:
            writer.add_array(key, field.contents())
        else:
            writer.add_key_value(key, field.contents(), kind)
    for t in reader.tensors:
        values = gguf.dequantize(t.data, t.tensor_type).astype(np.float32)
        writer.add_tensor(t.name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main(folder):
    with open(os.path.join(folder, "mistral3.json"), encoding="utf-8") as f:
        tokens = json.load(f)["tokens"]
    with tempfile.TemporaryDirectory() as tmp:
        a, b = os.path.join(tmp, "a.gguf"), os.path.join(tmp, "b.gguf")
        with open(os.path.join(folder, "mistral3.gguf"), "rb") as f, open(a, "wb") as g:
            g.write(patched(f.read()))
        unpacked(a, b)
        llm = ll.Llama(b, n_ctx=64, n_batch=64, n_threads=1, logits_all=True, type_k=0, type_v=0, flash_attn=False, verbose=False)
        llm.eval(tokens)
        rows = np.asarray(llm.scores[: len(tokens)], dtype=np.float32)
    print("/* Written by mistral3.py. */")
    print(f"enum {{ GOLDEN_ORIGINAL = {ORIGINAL}, GOLDEN_ROWS = {len(POSITIONS)} }};")
    print(f"static const float golden_temperature = {TEMPERATURE}f;")
    print("static const int golden_positions[] = {" + ", ".join(map(str, POSITIONS)) + "};")
    print("static const float golden_logits[] = {")
    for p in POSITIONS:
        row = [f"{x:.9g}f" if "." in f"{x:.9g}" or "e" in f"{x:.9g}" else f"{x:.9g}.0f" for x in rows[p]]
        for i in range(0, len(row), 10):
            print("    " + ", ".join(row[i : i + 10]) + ",")
    print("};")


main(sys.argv[1])
