#!/usr/bin/env python3
"""The tables of bench/kv_matrix.sh: kv_table.py FOLDER FORMAT... reads K-V.json, fused-K.json and unfused-K.json of each."""
import json
import math
import os
import sys

# A pair degrades where its perplexity is more than 1 % above that of f16/f16, and by more than two standard errors of the paired ratio; it is
# seen in the KL divergence where that is above 0.01 nats, twice to three times what a difference in the last bits comes to (f32/f32).
RISE, KL = 0.01, 0.01


def main():
    folder, formats = sys.argv[1], sys.argv[2:]

    def read(name):
        with open(os.path.join(folder, name + ".json"), encoding="utf-8") as f:
            return json.load(f)

    pairs = {(k, v): read(f"{k}-{v}") for k in formats for v in formats}
    base = pairs["f16", "f16"]

    def grid(title, cell):
        print(f"\n{title}\n\n| K \\ V | " + " | ".join(formats) + " |\n|---|" + "---|" * len(formats))
        for k in formats:
            print(f"| {k} | " + " | ".join(cell(pairs[k, v]) for v in formats) + " |")

    grid("Perplexity", lambda p: f"{p['perplexity']:.3f}")
    grid("KL divergence from f16/f16, mean, in thousandths of a nat", lambda p: f"{1000 * p['kl']['mean']:.2f}")
    grid("The same likeliest token as f16/f16, in percent", lambda p: f"{100 * p['kl']['top1']:.1f}")

    def rise(p):
        return math.expm1(p["kl"]["log_ratio"])

    def degrades(p):
        return rise(p) > RISE and p["kl"]["log_ratio"] > 2 * p["kl"]["log_ratio_error"]

    def span(values, digits):
        low, high = (f"{f(values):+.{digits}f}" if digits == 2 else f"{f(values):.{digits}f}" for f in (min, max))
        return low if low == high else f"{low} to {high}"

    def named(title, wanted):
        print(f"\n| {title}: K | V | perplexity against f16/f16, % | standard error | KL, nats |\n|---|---|---|---|---|")
        for k in formats:
            of = [(v, pairs[k, v]) for v in formats if wanted(pairs[k, v])]
            if of:
                print(f"| {k} | {', '.join(v for v, _ in of) if len(of) < len(formats) else 'any'} | {span([100 * rise(p) for _, p in of], 2)} | "
                      f"{span([100 * p['kl']['log_ratio_error'] for _, p in of], 1)} | {span([p['kl']['mean'] for _, p in of], 3)} |")

    print(f"\n{base['scored']} scored positions of {base['done']} windows; f16/f16 {base['perplexity']:.3f} +/- {base['perplexity_error']:.3f}.")
    named("degrades", degrades)
    named("seen in the KL divergence alone", lambda p: not degrades(p) and p["kl"]["mean"] > KL)
    print("\n| one window, f32 activations | " + " | ".join(formats) + " |\n|---|" + "---|" * len(formats))
    fused, unfused = ([read(f"{how}-{k}")["perplexity"] for k in formats] for how in ("fused", "unfused"))
    print("| fused | " + " | ".join(f"{x:.3f}" for x in fused) + " |")
    print("| unfused | " + " | ".join(f"{x:.3f}" for x in unfused) + " |")
    print("| difference, % | " + " | ".join(f"{100 * (b / a - 1):+.5f}" for a, b in zip(fused, unfused)) + " |")


main()
