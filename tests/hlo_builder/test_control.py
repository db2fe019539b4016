"""Control flow and its gradients against JAX and finite differences.

    python test_control.py DRIVER

TTT_CASES=REGEX runs the cases whose name matches, and prints the program of those that failed.
"""

import sys

import cases_control
from cases_ops import TOLERANCE
from harness import Report, run_cases
from neutral import Driver


def main():
    report = Report()
    run_cases(Driver(sys.argv[1]), cases_control.all_cases(), TOLERANCE, report, batch=12)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
