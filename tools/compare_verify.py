#!/usr/bin/env python3
"""Runs of `fa4 verify --json` beside each other: what each found, and whether their bits are the same.

    tools/compare_verify.py FOLDER... [--json F]

A folder is one run (a policy of the emulator, a device): its *.json are the run's documents, one a
shard. Cases are told apart by seed and number; those that two runs both ran must have equal
digests. Exit status: 0; 1: a failed case, a formal finding, or bits that differ; 2: bad input.
"""
import argparse
import collections
import glob
import json
import os
import sys


def share(accuracy):
    """Error over bound; an exact result within a bound of 0 counts as 0."""
    if accuracy is None:
        return 0.0
    error, bound = accuracy["error"], accuracy["bound"]
    if error is None or bound is None:  # JSON has no NaN
        return float("inf")
    return error / bound if bound > 0 else 0.0 if error == 0 else float("inf")


def read_run(folder):
    """{(seed, number): case} and the run's summary."""
    files = sorted(glob.glob(os.path.join(folder, "*.json")))
    if not files:
        raise ValueError(f"{folder}: holds no *.json; accepted: folders with documents of fa4 verify --json")
    cases = {}
    for file in files:
        with open(file) as stream:
            document = json.load(stream)
        if document.get("command") != "verify":
            raise ValueError(f"{file}: command {document.get('command')}; accepted: verify")
        for case in document["cases"]:
            cases[document["seed"], case["index"]] = case
    ran = {key: case for key, case in cases.items() if case["skip_reason"] is None}
    summary = {
        "run": os.path.basename(os.path.normpath(folder)),
        "ran": len(ran),
        "skipped": len(cases) - len(ran),
        "failed": [[*key, case["detail"]] for key, case in ran.items() if not case["passed"]],
        "formal_findings": sum(case["formal_findings"] for case in ran.values()),
        "kernels": dict(sorted(collections.Counter(case["kernel"] for case in ran.values()).items())),
        "out_share": max((share(case["out"]) for case in ran.values()), default=0.0),
        "lse_share": max((share(case["lse"]) for case in ran.values()), default=0.0),
        "seconds": round(sum(case["seconds"] for case in ran.values()), 1),
    }
    return ran, summary


def digests(ran):
    return {key: case["digest"] for key, case in ran.items() if case["digest"] is not None}


def compare(runs):
    """For each run: cases in common with any run before it, and those whose bits differ."""
    known = {}
    for ran, summary in runs:
        own = digests(ran)
        summary["compared"] = sum(key in known for key in own)
        summary["differing"] = [list(key) for key in own if known.get(key, own[key]) != own[key]]
        for key, digest in own.items():
            known.setdefault(key, digest)


def markdown(summaries):
    lines = ["| run | cases ran | failed | formal findings | compared with the runs above | other bits | out, share of its bound | lse |",
             "|---|---|---|---|---|---|---|---|"]
    for s in summaries:
        lines.append(f"| {s['run']} | {s['ran']} | {len(s['failed'])} | {s['formal_findings']} | {s['compared']} "
                     f"| {len(s['differing'])} | {s['out_share']:.2f} | {s['lse_share']:.2f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folders", nargs="+", metavar="FOLDER")
    parser.add_argument("--json", help="write summaries, failures and differences here")
    options = parser.parse_args()
    try:
        runs = [read_run(folder) for folder in options.folders]
    except (OSError, ValueError, KeyError) as error:
        print(f"compare_verify: {error}", file=sys.stderr)
        return 2
    compare(runs)
    summaries = [summary for _, summary in runs]
    print(markdown(summaries))
    for s in summaries:
        for seed, index, detail in s["failed"]:
            print(f"{s['run']}: seed {seed}, case {index} failed: {detail}")
        for seed, index in s["differing"]:
            print(f"{s['run']}: seed {seed}, case {index} has other bits")
    if options.json:
        with open(options.json, "w") as stream:
            json.dump({"runs": summaries}, stream, indent=1)
    wrong = any(s["failed"] or s["differing"] or s["formal_findings"] for s in summaries)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
