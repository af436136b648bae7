#!/usr/bin/env python3
"""Counts tests one by one and says why any were skipped.

count_tests.py DIR, where DIR holds ctest.xml (ctest --output-junit) and one PROGRAM.xml for every
GoogleTest program that ran. A program without such a file counts as one test. Exit 1: a test failed.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree as ET


def programs(ctest_xml):
    """(name, status, message) of every test that ctest ran: status is run, fail or notrun."""
    for case in ET.parse(ctest_xml).getroot().iter("testcase"):
        skipped = case.find("skipped")
        message = skipped.get("message", "") if skipped is not None else ""
        yield case.get("name"), case.get("status"), message


def gtest_cases(xml):
    """(name, outcome, message) of every case of one GoogleTest program."""
    for case in ET.parse(xml).getroot().iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        skipped = case.find("skipped")
        if case.find("failure") is not None:
            yield name, "failed", ""
        elif skipped is not None or case.get("result") == "skipped":
            yield name, "skipped", skipped.get("message", "") if skipped is not None else ""
        elif case.get("status") == "run":
            yield name, "passed", ""


def count(directory):
    outcomes = collections.Counter()
    reasons = collections.Counter()
    for name, status, message in programs(directory / "ctest.xml"):
        report = directory / f"{name}.xml"
        if report.exists():
            cases = list(gtest_cases(report))
            if status == "fail" and not any(outcome == "failed" for _, outcome, _ in cases):
                cases.append((name, "failed", ""))
        else:
            # A program that asks to be skipped says SKIP_...; one that is missing was not run either.
            skipped = status == "disabled" or message.startswith("SKIP_")
            outcome = "skipped" if skipped else {"run": "passed"}.get(status, "failed")
            cases = [(name, outcome, f"{name}: {message}")]
        for _, outcome, why in cases:
            outcomes[outcome] += 1
            if outcome == "skipped":
                lines = [line.strip() for line in why.splitlines() if line.strip()]
                reasons[lines[-1] if lines else "no reason given"] += 1
    return outcomes, reasons


def main():
    outcomes, reasons = count(pathlib.Path(sys.argv[1]))
    print()
    for reason, number in reasons.most_common():
        print(f"skipped {number}: {reason}")
    print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
    return 1 if outcomes["failed"] else 0


if __name__ == "__main__":
    sys.exit(main())
