"""Norms, softmaxes, losses, activations, attention; and programs for several devices.

    python test_networks.py DRIVER
"""

import sys

import cases_nn
from cases_ops import TOLERANCE
from harness import Report, run_cases
from neutral import Driver


def main():
    report = Report()
    run_cases(Driver(sys.argv[1]), cases_nn.all_cases(), TOLERANCE, report)
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
