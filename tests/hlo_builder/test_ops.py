"""Every operation against NumPy and JAX, every gradient against JAX and finite differences.

    python test_ops.py DRIVER

TTT_CASES=REGEX runs the cases whose name matches, and prints the program of those that failed.
"""

import sys

import cases_ops
from harness import Report, run_cases
from neutral import Driver


def main():
    report = Report()
    driver = Driver(sys.argv[1])
    run_cases(driver, cases_ops.all_cases(), cases_ops.TOLERANCE, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
