#!/usr/bin/env python3
"""agree.py: how often does another way of running a model choose the reference's token?

    agree.py HONE MODEL FOLDER NAME [OPTION...]

The reference is the all-reference path on the CPU (`kernel=ref`, no fusion, a cache of f32); its logits are kept in FOLDER for the next call. NAME is the
other way, with the options that `hone eval` needs for it (none: as hone runs by itself). Both are fed the same tokens:

    text            windows of bench/kv_text.txt, each position but the first few
    continuation    the reference's own greedy words behind the head of each window, which is where a model is asked (lab/reference.h)

Each is fed twice: all tokens at once ("prefill") and one at a time ("decode"). A line each: positions, equal top tokens, near-ties as lab/compare.h has
them (the reference's gap is at most four times the RMS error there), others, mean KL divergence, mean NMSE of centred logits. JSON lines; the last line
has both texts together. Environment: WINDOWS (8), WINDOW (128), HEAD (32), GREEDY (64), PATHS (decode,prefill).
"""
import json
import os
import subprocess
import sys

import numpy

ENV = {name: int(os.environ.get(name, preset)) for name, preset in (("WINDOWS", 8), ("WINDOW", 128), ("HEAD", 32), ("GREEDY", 64))}
SKIP = 4  # positions at the beginning of a text, where nothing is known yet
REFERENCE = ["-ngl", "0", "--set", "kernel=ref", "--set", "fuse=off", "-ctk", "f32", "-ctv", "f32"]


def run_jobs(hone, model, options, jobs):
    """The answers of one process; the first line of `eval --jobs` says who answers."""
    text = "".join(json.dumps(j) + "\n" for j in jobs)
    done = subprocess.run([hone, "eval", "-m", model, "-c", "512", "--jobs", "-", *options], input=text, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"agree.py: {done.stderr.strip()[-400:]}")
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return lines[0], lines[1:]


def sequences(hone, model, folder):
    """(kind, ids, first compared position), with the reference's continuations."""
    path = os.path.join(folder, "sequences.json")
    if os.path.exists(path):
        return [tuple(s) for s in json.load(open(path))]
    text = os.path.join(os.path.dirname(os.path.abspath(__file__)), "kv_text.txt")
    done = subprocess.run([hone, "tokenize", "-m", model, "-f", text, "--no-special"], capture_output=True, text=True, check=True)
    ids = json.loads(done.stdout)
    step = max(len(ids) // ENV["WINDOWS"], 1)
    windows = [ids[i * step:i * step + ENV["WINDOW"]] for i in range(ENV["WINDOWS"])]
    windows = [w for w in windows if len(w) == ENV["WINDOW"]]
    _, answers = run_jobs(hone, model, REFERENCE, [{"tokens": w[:ENV["HEAD"]], "greedy": ENV["GREEDY"]} for w in windows])
    out = [("text", w, SKIP) for w in windows]
    out += [("continuation", w[:ENV["HEAD"]] + a["greedy"], ENV["HEAD"] - 1) for w, a in zip(windows, answers)]
    json.dump(out, open(path, "w"))
    return out


def logits(hone, model, options, folder, name, seqs, single):
    """Logits of every compared position, [positions][vocabulary], and who made them; kept for the reference."""
    files = [os.path.join(folder, f"{name}.{i}.f32") for i in range(len(seqs))]
    about = {}
    if name != "reference" or not all(os.path.exists(f) for f in files):
        jobs = [{"tokens": ids, "from": first, "logits": f, "prefill": max(first, 1) if single else len(ids)}
                for (_, ids, first), f in zip(seqs, files)]
        about, _ = run_jobs(hone, model, options, jobs)
    return files, about


def compare(a, b):
    """Of two files of logits (f32) of the same positions: for each, whether its top token is the same, a near-tie, its divergence and error.

    f32 is enough: with d = b - a, KL = log(sum of p exp(d)) - sum of p d, whose terms are small where the logits are close."""
    same = a.argmax(1) == b.argmax(1)
    d = b - a
    p = numpy.exp(a - a.max(1, keepdims=True))
    p /= p.sum(1, dtype=float, keepdims=True).astype("f4")
    kl = numpy.log((p * numpy.exp(d)).sum(1, dtype=float) / p.sum(1, dtype=float)) - (p * d).sum(1, dtype=float) / p.sum(1, dtype=float)
    squares, mean = numpy.square(d).mean(1, dtype=float), d.mean(1, dtype=float)
    nmse = (squares - mean ** 2) / (numpy.square(a).mean(1, dtype=float) - a.mean(1, dtype=float) ** 2)
    near = numpy.zeros(len(a), bool)
    for i in numpy.flatnonzero(~same):
        two = numpy.partition(a[i], -2)[-2:]
        near[i] = abs(float(two[1]) - float(two[0])) <= 4 * squares[i] ** 0.5 and nmse[i] <= 0.025
    return numpy.stack([same, near, ~same & ~near, numpy.maximum(kl, 0), nmse], 1)


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    hone, model, folder, name, *options = sys.argv[1:]
    os.makedirs(folder, exist_ok=True)
    seqs = sequences(hone, model, folder)
    refs, _ = logits(hone, model, REFERENCE, folder, "reference", seqs, False)
    for path in os.environ.get("PATHS", "decode,prefill").split(","):
        files, about = logits(hone, model, options, folder, name, seqs, path == "decode")
        vocab = about["n_vocab"]
        rows = [compare(numpy.fromfile(r, "<f4").reshape(-1, vocab), numpy.fromfile(f, "<f4").reshape(-1, vocab)) for r, f in zip(refs, files)]
        for kind in ("text", "continuation", "both"):
            part = numpy.concatenate([r for r, s in zip(rows, seqs) if kind in (s[0], "both")])
            n = len(part)
            equal, near, other = (int(x) for x in part[:, :3].sum(0))
            print(json.dumps({"arm": name, "path": path, "kind": kind, "positions": n, "equal": equal, "equal_percent": round(100 * equal / n, 3),
                              "near_ties": near, "wrong": other, "kl_mean": float(part[:, 3].mean()), "nmse_mean": float(part[:, 4].mean())}))
        for f in files:
            os.remove(f)


if __name__ == "__main__":
    main()
