"""ab_validity.py: the table of ab_validity.sh.

    row MODE CASE RUN AT OUT     a comparison's JSON from stdin: a line to stdout, and as JSON to OUT
    shuffle                      the lines of stdin in an order that is random and always the same
    summary OUT                  the counts; exit code 1 when one is not as it should be
"""
import json
import random
import sys


def percent(x):
    return "   any" if x is None else f"{100 * x:+6.2f}"


def row(mode, case, run, at, out):
    report = json.loads(sys.stdin.readline())
    standing, state = report["standings"][0], report["machine_state"]
    x = standing["result"]
    span = x["sequence"] if x["early"] else x["gain"]
    r = {"mode": mode, "case": case, "run": int(run), "outcome": standing["outcome"], "gain": x["gain"]["centre"], "lo": span["lo"],
         "hi": span["hi"], "blocks": x["blocks"], "early": x["early"], "block_noise": x["block_noise"], "drift": x["drift"],
         "signed_rank_p": x["signed_rank_p"], "outputs": standing["outputs"], "test": report["test_name"],
         "repetitions": report["test"]["repetitions"], "a_ns": x["a_ns"], "seconds": report["seconds"], "steal": state["steal"],
         "others": state["others"]}
    with open(out, "a") as f:
        f.write(json.dumps(r) + "\n")
    early = "early" if r["early"] else ""
    print(f"{at:>7} {mode:10} {case:6} {r['outcome']:13} {percent(r['gain'])} % [{percent(r['lo'])}, {percent(r['hi'])}] "
          f"{r['blocks']:3} blocks {early:5} a block varies by {100 * r['block_noise']:.1f} %, A by {100 * r['drift']:+.0f} % over the run; "
          f"{r['seconds']:.0f} s", flush=True)


def called(outcome):
    return outcome in ("win", "loss")


RULES = {"aa": ("called win or loss", called, lambda k, n: k <= max(1, n // 40)),
         "spin3": ("called loss", lambda o: o == "loss", lambda k, n: k >= 0.9 * n),
         "spin02": ("called win or loss", called, lambda k, n: k <= 0.1 * n),
         "drift": ("called win or loss", called, lambda k, n: k <= 0.1 * n)}


def summary(out):
    rows = [json.loads(line) for line in open(out)]
    bad = 0
    print()
    for mode in ("in-process", "fresh"):
        for case, (what, count, good) in RULES.items():
            some = [r for r in rows if r["mode"] == mode and r["case"] == case]
            if not some:
                continue
            k = sum(count(r["outcome"]) for r in some)
            ok = good(k, len(some))
            bad += not ok
            noise = sorted(r["block_noise"] for r in some)[len(some) // 2]
            seconds = sorted(r["seconds"] for r in some)[len(some) // 2]
            print(f"{mode:10} {case:6} {k} of {len(some)} {what}{'' if ok else ': NOT AS IT SHOULD BE'}"
                  f" (medians: a block varies by {100 * noise:.1f} %, {seconds:.0f} s)")
    return bad > 0


def shuffle():
    lines = sys.stdin.readlines()
    random.Random(1).shuffle(lines)
    sys.stdout.writelines(lines)


if __name__ == "__main__":
    sys.exit({"row": row, "shuffle": shuffle, "summary": summary}[sys.argv[1]](*sys.argv[2:]))
