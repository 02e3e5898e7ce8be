"""cuda_table.py: lines for bench/cuda.sh from hone's own output: ok, FAIL, skip or a dash; what; what was measured.

    check FILE.jsonl [WORDS]              kernels that passed, those that did not, with the first faults of each
    sanitize TOOL FOLDER                  compute-sanitizer's logs, a file a model
    archs FOLDER DATA                     logits against the independent ones, shadow and placement, a line a model, then their sums
    agree FILE.jsonl                      bench/agree.py's lines
    ladder NAME LADDER TRACE.json         the last rung; copies and nodes on the host
    speed NAME FILE.jsonl DECODE PREFILL  tokens a second, and whether they are as many as asked for
    deep FILE.jsonl SHARE                 decode at each depth as a share of the first
"""
import glob
import json
import os
import re
import sys

KL, NMSE = 0.01, 0.025  # lab/bench.h and lab/compare.c: what an output may differ by with 8-bit activations


def say(good, what, words):
    print(f"{ {True: 'ok', False: 'FAIL', None: '-'}[good]:<4} {what:<12} {words}")


def rows(path):
    if not os.path.exists(path):
        return
    with open(path, errors="replace") as f:
        for line in f:
            line = line.strip()
            if line.startswith("{"):
                try:
                    yield json.loads(line)
                except json.JSONDecodeError:  # a run that was ended
                    pass


def document(path):
    try:
        return json.load(open(path))
    except (OSError, json.JSONDecodeError):
        return None


def check(path, words=""):
    kernels, whole = {}, None
    for r in rows(path):
        if "kernel" in r and "status" in r:
            kernels.setdefault(r["kernel"], []).append(r)
        else:
            whole = r
    good, bad, untested, cases = [], [], [], 0
    for name, jobs in sorted(kernels.items()):
        ran = [j for j in jobs if j["status"] != "unfit"]
        wrong = [j for j in ran if j["status"] != "ok"]
        cases += len(ran) - len(wrong)
        (untested if not ran else bad if wrong else good).append(name)
    say(bool(whole and good and not bad and not whole.get("not_run")), "check", f"{len(good)} kernels right in {cases} cases, {len(bad)} with faults, {len(untested)} that no case fits"
        + (f", {words}" if words else "") + ("" if whole else "; IT DID NOT END"))
    for name in bad:
        wrong = [j for j in kernels[name] if j["status"] in ("fault", "not_run")]
        print(f"  fault {name}: {len(wrong)} of {len(kernels[name])} cases")
        for j in wrong[:3]:
            print(f"      {j['case']}: {j.get('fault', j['status'])}: {j.get('message', j.get('reason', ''))[:200]}")
    for name in untested:
        print(f"  untested {name}: {kernels[name][0].get('reason', '')[:120]}")


def sanitize(tool, folder):
    clean, wrong = [], []
    for path in sorted(glob.glob(os.path.join(folder, "*"))):
        text = open(path, errors="replace").read()
        summary = re.findall(r"(?:ERROR|RACECHECK|LEAK) SUMMARY: .*", text)
        ended = "exit code 0" in text and text.count('"logits_hash"') == 2
        if "exit code 124" in text or "exit code 137" in text:
            text = "========= it did not end in time\n" + text
        none = summary and all(re.search(r"SUMMARY: 0 (errors|hazards)", s) for s in summary)
        (clean if ended and none else wrong).append((os.path.basename(path), text))
    say(bool(clean) and not wrong, tool, f"{len(clean)} models clean" + (f", {len(wrong)} NOT" if wrong else "") + ": "
        + " ".join(name for name, _ in (wrong or clean)))
    for name, text in wrong:
        lines = [line for line in text.splitlines() if line.startswith("=========") and line.strip("= ")]
        kernels = sorted(set(re.findall(r"in (?:kernel )?`?([A-Za-z_][A-Za-z0-9_:<>, ]*)\(", text)))[:3]
        print(f"     {name}: {(lines or text.splitlines() or ['no output'])[0][:140]} | {text.strip().splitlines()[-1] if text.strip() else ''} | {'; '.join(kernels)[:200]}")


def compare(ref, got):
    """Of logits [positions][vocabulary]: mean divergence, mean and largest NMSE of centred logits, equal top tokens and near-ties (lab/compare.h)."""
    import numpy
    a, b = ref.astype(float), got.astype(float)
    d = b - a
    a0, d0 = a - a.mean(1, keepdims=True), d - d.mean(1, keepdims=True)
    nmse = (d0 ** 2).sum(1) / (a0 ** 2).sum(1)
    same = a.argmax(1) == b.argmax(1)
    two = numpy.partition(a, -2, axis=1)[:, -2:]
    near = ~same & (two[:, 1] - two[:, 0] <= 4 * numpy.sqrt((d ** 2).mean(1))) & (nmse <= NMSE)
    log = [x - numpy.log(numpy.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True)) - x.max(1, keepdims=True) for x in (a, b)]
    kl = (numpy.exp(log[0]) * (log[0] - log[1])).sum(1)
    return kl.mean(), nmse.mean(), nmse.max(), int(same.sum()), int(near.sum()), len(a)


def arch_logits(log, facts):
    """Words, and whether they are right."""
    import numpy
    path, wanted = log + ".f32", facts[:-5] + ".logits"
    if not os.path.exists(path):
        text = open(log + ".eval", errors="replace").read().strip() if os.path.exists(log + ".eval") else ""
        return f"no logits: {text.splitlines()[-1][-200:] if text else 'no output'}", False
    vocab = json.load(open(facts))["n_vocab"]
    ref, got = (numpy.fromfile(f, "<f4").reshape(-1, vocab) for f in (wanted, path))
    if ref.shape != got.shape or not numpy.isfinite(got).all():
        return f"{len(got)} positions, {len(ref)} wanted, {int((~numpy.isfinite(got)).sum())} no numbers", False
    kl, nmse, worst, same, near, n = compare(ref, got)
    good = kl <= KL and nmse <= NMSE and same + near == n
    return f"nmse {nmse:.1e} (worst {worst:.1e}), KL {kl:.1e}, top {same} + {near} near-ties of {n}", good


def archs(folder, data):
    sums = {"logits": [], "shadow": [], "host": []}
    names = sorted(os.path.basename(f)[:-5] for f in glob.glob(os.path.join(data, "*.json")) if os.path.exists(f[:-5] + ".gguf"))
    for name in names:
        log = os.path.join(folder, name)
        words, good = arch_logits(log, os.path.join(data, name + ".json"))
        shadow, trace = document(log + ".shadow"), document(log + ".trace")
        sums["logits"] += [] if good else [name]
        n_faults = shadow["n_faults"] if shadow else None
        sums["shadow"] += [] if n_faults == 0 else [name]
        moved = trace.get("moved_to_host") if trace else None
        sums["host"] += [] if moved == 0 else [f"{name} ({moved})"]
        more = "no answer" if n_faults is None else f"{n_faults} faults"
        print(f"{name:<16} {words}; shadow: {more}; {moved} nodes on the host, {copies(trace or {})}")
        for f in (shadow["faults"] if shadow else [])[:3]:
            print("                 " + json.dumps(f)[:240])
    n = len(names)
    for key, what in (("logits", "have the independent implementation's logits, by NMSE, KL and top tokens"),
                      ("shadow", "have every kernel of their graph within its op's tolerance"),
                      ("host", "run wholly on the device")):
        left = sums[key]
        say(not left if key != "host" else (True if not left else None), "archs", f"{n - len(left)} of {n} {what}" + (f"; not: {', '.join(left)}" if left else ""))


def agree(path):
    if not list(rows(path)):
        say(False, "agree", "no result")
    for r in rows(path):
        good = None if r["kind"] != "both" else r["equal_percent"] >= 99
        say(good, "agree", f"{r['path']}, {r['kind']}: {r['equal_percent']:.2f} % of {r['positions']} top tokens are the reference's; {r['near_ties']} near-ties, "
            f"{r['wrong']} others; KL {r['kl_mean']:.1e}, NMSE {r['nmse_mean']:.1e}")


def copies(trace):
    """Of a trace's JSON: what is copied between devices, the logits' copy for the host among it."""
    names = [n["name"] for n in trace.get("nodes", []) if n["kernel"].endswith("_copy_transfer")]
    return f"{len(names)} copies" + (f" ({', '.join(names)})" if names else "")


def ladder(name, path, trace_path):
    lines = [line for line in open(path, errors="replace").read().splitlines() if line.strip()] if os.path.exists(path) else []
    trace = document(trace_path) or {}
    back = [line.split()[0] for line in lines if "TAKEN BACK" in line]
    last = lines[-1] if lines else "no output"
    rung = next((line for line in reversed(lines) if line.startswith("all local ")), "")
    say(last.startswith("all local") and not back and trace.get("moved_to_host") == 0, "ladder",
        f"{name}: {' '.join(rung.split()[:10])}; {last[:60]}; taken back: {', '.join(back) or 'nothing'}; {copies(trace)}, "
        f"{trace.get('moved_to_host')} nodes on the host")


def speed(name, path, decode, prefill):
    n = 0
    for r in rows(path):
        if "avg_ts" not in r:
            continue
        n += 1
        asked = float(prefill) if r["n_prompt"] else float(decode)
        share = r.get("roof_share")
        right = r.get("verdict") not in ("different", None) and not r.get("error") and r.get("deterministic") is not False
        enough = r["avg_ts"] >= asked
        if r.get("verdict") == "unverified" and enough:
            right = None  # a speed without a verdict holds nothing
        say(right if right is None else right and enough, "speed", f"{name} {r.get('test', '?')}: {r['avg_ts']:.1f} t/s +- {r.get('stddev_ts', 0):.1f}" + (f", asked for {asked:.0f}" if asked else "")
            + f"; {r.get('verdict', '?')}" + (f"; {100 * share:.1f} % of the read rate" if share and r["n_gen"] else "")
            + (f"; {r['error'][:160]}" if r.get("error") else ""))
    if not n:
        say(False, "speed", f"{name}: no result")


def deep(path, wanted):
    at = [(r["n_depth"], r["avg_ts"]) for r in rows(path) if r.get("avg_ts") and not r.get("error")]
    if len(at) < 2:
        return say(False, "deep", "no result")
    share = at[-1][1] / at[0][1]
    say(share >= float(wanted), "deep", ", ".join(f"{ts:.1f} t/s at depth {d}" for d, ts in at) + f": {share:.2f} of it, asked for {wanted}")


if __name__ == "__main__":
    {f.__name__: f for f in (check, sanitize, archs, agree, ladder, speed, deep)}[sys.argv[1]](*sys.argv[2:])
