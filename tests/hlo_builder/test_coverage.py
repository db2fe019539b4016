"""Fails when an operation of the table has no forward case, or one with a gradient no gradient case.

    python test_coverage.py DRIVER

A case counts for an operation only if the driver saw that operation in the case's graph, before any
gradient was added. Whether the cases pass is for the other tests.
"""

import sys

import cases_control
import cases_nn
import cases_ops
from harness import Report, built
from neutral import Driver, Graph

import numpy as np

# One rule serves a family; these of it take no floats, so that no gradient ever reaches them.
WITHOUT_FLOATS = {"not", "and", "or", "xor", "shift_left", "shift_right_logical"}


def refusals(driver, report):
    """What has no gradient says so instead of giving zeros."""
    g = Graph("loop")
    x = g.param(np.ones(3))
    y = g.loop(lambda a: g.compare(g.sum(a, dims=[0]), g.scalar(type="f64", value=9.0), kind="lt"),
               lambda a: [a * 2.0], [x])
    g.result(*g.grad(g.sum(y[0], dims=[0]), [x]))
    h = Graph("manual", mesh={"x": 4})
    x = h.param(np.ones(8), spec=["x"])
    y = h.body_op("manual", lambda a: [a * 2.0], [x], in_specs=[["x"]], out_specs=[["x"]])
    h.result(*h.grad(h.sum(y[0], dims=[0]), [x]))
    for name, answer in zip(("while", "manual_computation"), driver.start([g, h], "--text")()):
        if f"{name} has no gradient" not in answer.get("error", ""):
            report.fail("coverage", name, f"its gradient is not refused: {answer.get('error')}")


def main():
    report = Report()
    driver = Driver(sys.argv[1])
    cases = cases_ops.all_cases() + cases_control.all_cases() + cases_nn.all_cases()
    _, covered = built(driver, cases, report)
    covered["forward"] |= {"param"}  # there is no graph without
    table = driver.table()
    for op, rule in table.items():
        if op not in covered["forward"]:
            report.fail("coverage", op, "no forward case")
        if rule == "rule" and op not in covered["gradient"] | WITHOUT_FLOATS:
            report.fail("coverage", op, "no gradient case")
    refusals(driver, report)
    print(f"{len(cases)} cases for {len(table)} operations")
    return report.finish()


if __name__ == "__main__":
    sys.exit(main())
