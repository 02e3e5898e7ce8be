"""tensor_parallel.py: the rows of tensor_parallel.sh.

    PART REPORT [PREDICTED]     a row of the table for each comparison in what `hone ab -o jsonl` wrote, and on stderr what the part asks
                                of it; PREDICTED: what `hone plan -o jsonl` wrote, a line each time
"""
import json
import statistics
import sys


def note(text):
    print(text, file=sys.stderr)


def ratio(share):
    return "any" if share is None else f"{1 + share:.3f}"


def rows(report):
    tokens = report["test"]["n_prompt"] + report["test"]["n_gen"]
    for standing in report["standings"]:
        x = standing["result"]
        span = x["sequence"] if x["early"] else x["gain"]
        level = "always valid, 99 %" if x["early"] else "99 %"
        rate = [f"{1e9 * tokens / ns:.2f}" if ns else "-" for ns in (x["a_ns"], x["b_ns"])]
        print(f"| {sys.argv[1]} | `{report['arms'][0]['spec']}` | `{standing['spec']}` | {rate[0]} | {rate[1]} | {ratio(x['gain']['centre'])} | "
              f"[{ratio(span['lo'])}, {ratio(span['hi'])}] {level} | {x['blocks']} | {standing['verdict']} |")
        yield span, x


def devices(report):
    for span, _ in rows(report):
        lo, hi = (0 if span["lo"] is None else 1 + span["lo"]), (9 if span["hi"] is None else 1 + span["hi"])
        word = "holds" if lo >= 0.95 else "does not hold" if hi < 0.95 else "cannot be told from these blocks"
        note(f"devices: 0.95 of one device or more: {word}")


def plan(report, predicted):
    said = [json.loads(line) for line in open(predicted)]
    two = [p["rows"][-1] for p in said]
    assert all(r["devices"] == 2 for r in two)
    tokens = report["test"]["n_prompt"] + report["test"]["n_gen"]
    speedups, rates = [r["speedup"] for r in two], [r["tokens_per_second"] for r in two]
    for span, x in rows(report):
        centre = 1 + x["gain"]["centre"]
        s, t = statistics.median(speedups), statistics.median(rates)
        note(f"plan: {s:.2f} times as fast ({min(speedups):.2f} to {max(speedups):.2f} in {len(said)} predictions), {t:.2f} t/s; "
             f"real: {centre:.2f} [{ratio(span['lo'])}, {ratio(span['hi'])}], {1e9 * tokens / x['b_ns']:.2f} t/s; "
             f"plan : real = {s / centre:.2f} of the speed-up, {t * x['b_ns'] / tokens / 1e9:.2f} of the rate")
        note(f"plan: of its step {100 * two[0]['sums_ns'] / two[0]['step_ns']:.1f} % are {said[0]['sums']} sums of {said[0]['sum_bytes']:.0f} bytes over "
             f"{said[0]['latency_ns'] / 1e3:.2f} us and {said[0]['bytes_per_second'] / 1e9:.1f} GB/s; it takes each device to have memory of its own")


with open(sys.argv[2]) as f:
    text = f.read()
the_report = json.loads(text)
if sys.argv[1] == "devices":
    devices(the_report)
elif sys.argv[1] == "plan":
    plan(the_report, sys.argv[3])
else:
    for _ in rows(the_report):
        pass
