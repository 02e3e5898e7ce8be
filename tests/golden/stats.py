#!/usr/bin/env python3
"""stats.py: golden values of lab/stats.c and lab/sequence.c from SciPy, written to stats.h. Needs numpy and scipy (1.17 made the
checked-in file); the tests need neither.

    python3 tests/golden/stats.py > tests/golden/stats.h
"""
import numpy as np
from scipy import stats, integrate, special

rng = np.random.default_rng(20)
samples = {
    "normal": np.round(rng.standard_normal(16) + 0.3, 3),
    "ties": np.array([1, 1, -1, 2, 2, 2, -3, 0, 0, 4, 5, -5, 6, 6.5], dtype=float),
    "long": np.round(rng.standard_t(2, 260) + 0.1, 4),
    "one_side": np.array([0.5, 0.1, 0.2, 0.7, 0.25, 0.9, 1.5, 0.01, 3.0, 0.33]),
}


def signed_rank(x):
    """Exact by all sign patterns where that can be done, else SciPy's exact (no ties) or normal approximation."""
    x = x[x != 0]
    ranks = stats.rankdata(abs(x))
    if len(x) <= 16:
        up = ranks[x > 0].sum()
        signs = (np.arange(2 ** len(x))[:, None] >> np.arange(len(x))) & 1
        sums = signs @ ranks
        smaller = min(up, ranks.sum() - up)
        return min(1, 2 * np.mean(sums <= smaller + 1e-9))
    return stats.wilcoxon(x, method="exact" if len(x) <= 200 else "approx").pvalue


def holm(p, alpha):
    order, out = np.argsort(p), [False] * len(p)
    for k, i in enumerate(order):
        if p[i] > alpha / (len(p) - k):
            break
        out[i] = True
    return out


def gain(above, n):
    return 2 * integrate.quad(lambda p: (2 * p) ** above * (2 * (1 - p)) ** (n - above), 0.5, 1, epsabs=0, epsrel=1e-12, limit=200)[0]


print("/* stats.h: written by tests/golden/stats.py; do not edit. */\n/* clang-format off */\n#include <stdbool.h>\n#include <stddef.h>\n")
for name, x in samples.items():
    print(f"static const double golden_{name}[] = {{{', '.join(f'{v:.10g}' for v in x)}}};")
print("static const struct {\n    const double *x;\n    size_t n;\n    double signed_rank, trimmed_mean, trimmed_error;\n} golden_samples[] = {")
for name, x in samples.items():
    w = stats.mstats.winsorize(x, limits=(0.2, 0.2)).data
    cut = int(0.2 * len(x))
    error = np.std(w, ddof=1) / np.sqrt(len(x)) / (1 - 2 * cut / len(x))
    print(f"    {{golden_{name}, {len(x)}, {signed_rank(x):.15g}, {stats.trim_mean(x, 0.2):.15g}, {error:.15g}}},")
print("};")
print("static const struct {\n    size_t above, n;\n    double gain;\n} golden_gains[] = {")
for above, n in [(0, 1), (1, 1), (5, 8), (11, 11), (10, 11), (15, 16), (16, 32), (26, 32), (69, 100), (31, 100), (180, 300)]:
    print(f"    {{{above}, {n}, {gain(above, n):.12g}}},")
print("};")
for k, p in enumerate([[0.001, 0.2, 0.004], [0.0034, 0.0033, 0.0032], [0.009], [0.02, 0.011], [0.005, 0.0051, 0.5, 0.002]]):
    print(f"static const double golden_holm_p{k}[] = {{{', '.join(map(str, p))}}};")
    print(f"static const bool golden_holm_r{k}[] = {{{', '.join(str(v).lower() for v in holm(p, 0.01))}}};")
