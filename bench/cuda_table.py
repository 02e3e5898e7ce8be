"""cuda_table.py: lines for bench/cuda.sh from hone's own output.

    check FILE.jsonl            kernels that passed, those that did not, with the first faults of each
    logits REF GPU REF.json     how far one model's logits are from another's
    speed NAME FILE.jsonl       tokens a second of each test of a bench run
"""
import json
import sys


def rows(path):
    with open(path) as f:
        for line in f:
            line = line.strip()
            if line.startswith("{"):
                yield json.loads(line)


def check(path):
    kernels = {}
    for r in rows(path):
        for j in r.get("results", [r]):
            if "kernel" in j and "status" in j:
                kernels.setdefault(j["kernel"], []).append(j)
    good, bad, untested = [], [], []
    for name, jobs in sorted(kernels.items()):
        ran = [j for j in jobs if j["status"] != "unfit"]
        wrong = [j for j in ran if j["status"] != "ok"]
        (untested if not ran else bad if wrong else good).append(name)
    print(f"check: {len(good)} kernels right, {len(bad)} with faults, {len(untested)} that no case fits")
    for name in bad:
        wrong = [j for j in kernels[name] if j["status"] in ("fault", "not_run")]
        ok = sum(j["status"] == "ok" for j in kernels[name])
        print(f"  fault {name}: {len(wrong)} of {ok + len(wrong)} cases")
        for j in wrong[:3]:
            print(f"      {j['case']}: {j.get('fault', j['status'])}: {j.get('message', j.get('reason', ''))[:200]}")
    for name in untested:
        print(f"  untested {name}: {kernels[name][0].get('reason', '')[:120]}")


def logits(ref_path, gpu_path, json_path):
    import numpy
    ref, gpu = numpy.fromfile(ref_path, "<f4").astype(float), numpy.fromfile(gpu_path, "<f4").astype(float)
    if ref.size != gpu.size or not ref.size:
        print(f"sizes differ: {ref.size} and {gpu.size} values")
        return
    vocab = json.load(open(json_path))["n_vocab"]
    x, y = ref.reshape(-1, vocab), gpu.reshape(-1, vocab)
    error, norm = ((x - y) ** 2).sum(1), (x ** 2).sum(1)
    same = int((x.argmax(1) == y.argmax(1)).sum())
    nan = int(numpy.isnan(y).sum())
    print(f"nmse {error.sum() / norm.sum():.2e} (worst position {(error / norm).max():.2e}), top token the same at {same} of {len(x)}"
          + (f", {nan} NaN" if nan else ""))


def speed(name, path):
    n = 0
    for r in rows(path):
        if "avg_ts" not in r:
            continue
        n += 1
        test = f"pp{r['n_prompt']}" if r["n_prompt"] else f"tg{r['n_gen']}"
        print(f"{name} {test}: {r['avg_ts']:.1f} t/s +- {r.get('stddev_ts', 0):.1f} ({r.get('verdict', '?')}, {r.get('backends', '?')})"
              + (f" FAILED: {r['error'][:160]}" if r.get("error") else ""))
    if not n:
        print(f"{name}: no result")


if __name__ == "__main__":
    {"check": check, "logits": logits, "speed": speed}[sys.argv[1]](*sys.argv[2:])
