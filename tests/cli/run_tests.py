#!/usr/bin/env python3
"""run_tests.py MODULE REPORT.xml: runs one module's tests and writes GoogleTest's report, so that each is counted."""

import os
import sys
import unittest
import xml.etree.ElementTree as ET


class Recorder(unittest.TextTestResult):
    def __init__(self, *args):
        super().__init__(*args)
        self.cases = {}

    def startTest(self, test):
        super().startTest(test)
        self.cases[test.id()] = None

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self.cases[test.id()] = ("skipped", reason)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.cases[test.id()] = ("failure", str(error[1]))

    addError = addFailure

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error is not None:
            self.cases[test.id()] = ("failure", str(subtest))


def main():
    module, report = sys.argv[1:]
    tests = unittest.defaultTestLoader.loadTestsFromName(module)
    result = unittest.TextTestRunner(verbosity=2, resultclass=Recorder).run(tests)
    suites = ET.Element("testsuites")
    suite = ET.SubElement(suites, "testsuite", name=module)
    for name, outcome in result.cases.items():
        classname, _, method = name.rpartition(".")
        case = ET.SubElement(suite, "testcase", classname=classname, name=method, status="run", result="completed")
        if outcome is not None:
            ET.SubElement(case, outcome[0], message=outcome[1])
    os.makedirs(os.path.dirname(report), exist_ok=True)
    ET.ElementTree(suites).write(report)
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
