#!/usr/bin/env python3
"""The table of bench/cpu.sh: paired ratios a round, their median and quartiles. cpu_table.py MODEL SAMPLES"""
import json
import os
import statistics
import sys


def spread(values, digits=2):
    values = sorted(values)
    at = lambda q: values[round(q * (len(values) - 1))]
    return f"{statistics.median(values):.{digits}f} [{at(0.25):.{digits}f} {at(0.75):.{digits}f}]"


def main():
    model, path = sys.argv[1:3]
    rounds = {}
    for line in open(path):
        s = json.loads(line)
        r = rounds.setdefault(s["round"], {})
        if s["engine"] == "peer":
            r["peer_decode"], r["peer_prefill"] = s["decode_tokens_per_second"], s["prefill_tokens_per_second"]
        elif s["kind"] == "decode":
            r["decode"], r["roof"] = 1e9 / s["step_ns"], s["read_roof"]
            r["bytes"] = sum(n["bytes"] for n in s["nodes"] if n["op"] != "attention")
            r["reference"] = sum(n["kernel"].endswith("_ref") for n in s["nodes"])
        else:
            r["prefill"] = s["n_tokens"] * 1e9 / s["step_ns"]
    r = list(rounds.values())
    col = lambda name: [x[name] for x in r]
    ratio = lambda a, b: [x[a] / x[b] for x in r]
    print(f"\n{os.path.basename(model)}: {len(r)} rounds, median [quartiles]")
    print(f"  decode   hone {spread(col('decode'), 1)} t/s   llama.cpp {spread(col('peer_decode'), 1)} t/s   times {spread(ratio('decode', 'peer_decode'))}")
    print(f"  prefill  hone {spread(col('prefill'), 1)} t/s   llama.cpp {spread(col('peer_prefill'), 1)} t/s   times {spread(ratio('prefill', 'peer_prefill'))}")
    print(f"  read roof {spread([x / 1e9 for x in col('roof')], 1)} GB/s; decode's share of it {spread([x['decode'] * x['bytes'] / x['roof'] for x in r])}; "
          f"nodes on references: {max(col('reference'))}")


main()
