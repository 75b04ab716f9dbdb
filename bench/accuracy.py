#!/usr/bin/env python3
"""The README's table of accuracy, from two runs of the world:

    build/world --cases all --seconds 20 --json >quiet.json
    build/world --cases all --seconds 20 --robbed --json >robbed.json
    bench/accuracy.py quiet.json robbed.json
"""
import json
import re
import statistics
import sys


def kind(name):
    base = re.sub(r"-slices\d*$", "", name)
    sliced = base != name
    if re.search(r"-(exclusive|auto|fair)$", base):
        return "taking turns"
    if base.startswith("alone-") or base == "change-20-80":
        return "alone, limits of 10 to 90 percent, kernels of 5 us to 200 ms"
    if "+" in base:
        return ("the same where the GPU gives time slices of 2 ms" if sliced
                else "two to five programs together")
    return "graphs, threads, streams, every kind of waiting"


def table(cases):
    rows = {}
    for case in cases:
        rows.setdefault(kind(case["case"]), []).append(case["error"])
    out = {name: f"{statistics.median(errors):.2f} / {max(errors):.2f}" for name, errors in rows.items()}
    shared = max(c["bill"] for c in cases if "-slices" not in c["case"])
    sliced = max(c["bill"] for c in cases if "-slices" in c["case"])
    out["a bill, at most (with time slices)"] = f"{shared:.2f} ({sliced:.2f})"
    return out


def main():
    quiet, robbed = (json.load(open(path)) for path in sys.argv[1:3])
    left, right = table(quiet), table(robbed)
    print(f"| {len(quiet)} cases | quiet machine | robbed machine |\n|---|---|---|")
    for name in ("alone, limits of 10 to 90 percent, kernels of 5 us to 200 ms",
                 "graphs, threads, streams, every kind of waiting", "two to five programs together",
                 "the same where the GPU gives time slices of 2 ms", "taking turns",
                 "a bill, at most (with time slices)"):
        print(f"| {name} | {left[name]} | {right[name]} |")
    failed = [c["case"] for c in quiet + robbed if c["failed"]]
    if failed:
        print("failed: " + " ".join(failed), file=sys.stderr)
    return bool(failed)


sys.exit(main())
