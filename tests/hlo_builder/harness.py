"""Runs cases through the driver and the references, compares, and tells the largest errors."""

import base64
import multiprocessing
import os
import re
import sys
import time
import traceback

import numpy as np

from neutral import NAMES, decode, merge, results_of, split
from reference import batches, run_jax, run_numpy

# Relative to the largest number of an array, or to this when that is smaller.
FLOOR = 1e-2
# Finite differences in f64 against gradients; the issue asks for 1e-6. Observed: see the output.
DIFFERENCE_TOLERANCE = 1e-6


def error_of(found, expected):
    """The largest difference relative to the largest number; infinite when NaNs, infinities or
    integers differ."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return np.inf
    if found.size == 0:
        return 0.0
    if found.dtype.kind in "iub":
        return 0.0 if np.array_equal(found, expected) else np.inf
    a, b = found.astype(np.float64), expected.astype(np.float64)
    odd = ~np.isfinite(a) | ~np.isfinite(b)
    if not np.array_equal(a[odd], b[odd], equal_nan=True):
        return np.inf
    a, b = a[~odd], b[~odd]
    return float(np.abs(a - b).max() / max(np.abs(b).max(), FLOOR)) if a.size else 0.0


class Report:
    """Failures, and the largest error of each family with its case."""

    def __init__(self):
        self.failures, self.worst, self.counts = [], {}, {}

    def note(self, family, name, error, tolerance):
        self.counts[family] = self.counts.get(family, 0) + 1
        # 'not <=' also catches NaN
        if not error <= tolerance:
            self.failures.append(f"{family}: {name}: error {error:.3g}, allowed {tolerance:.3g}")
        ratio = error / tolerance if tolerance else error
        if family not in self.worst or ratio > self.worst[family][0]:
            self.worst[family] = (ratio, error, tolerance, name)

    def fail(self, family, name, why):
        self.failures.append(f"{family}: {name}: {why}")

    def finish(self):
        print(f"{'family':34}{'compared':>9}{'worst error':>13}{'allowed':>10}  where")
        for family, (_, error, tolerance, name) in sorted(self.worst.items()):
            print(f"{family:34}{self.counts[family]:>9}{error:13.2e}{tolerance:10.0e}  {name}")
        for failure in self.failures:
            print("FAILED", failure)
        print(f"{sum(self.counts.values())} comparisons, {len(self.failures)} failures")
        return 1 if self.failures else 0


def _reference(graphs):
    """In a process of its own: results, or a text where JAX refuses."""
    try:
        return run_jax(graphs)
    except Exception:
        if len(graphs) == 1:
            return [traceback.format_exc(limit=-4)]
        return [_reference([g])[0] for g in graphs]


def _start_references(pool, cases, size):
    chunks = list(batches(cases, size))
    work = pool.map_async(_reference, [[c.graph for c in chunk] for chunk in chunks], chunksize=1)

    def finish(report):
        results = {}
        for chunk, found in zip(chunks, work.get()):
            for case, result in zip(chunk, found):
                if isinstance(result, str):
                    report.fail("reference", case.name, result)
                else:
                    results[case] = result
        return results

    return finish


def tolerance_of(case, array, table):
    if array.dtype.kind in "iub":
        return 0.0
    if case.tolerance is not None and array.dtype == np.float64:
        return case.tolerance
    return max(table[NAMES[array.dtype]], case.tolerance or 0)


def judge(case, answer, expected, report, judge_name, table):
    type_family = f"{case.family} / {judge_name}"
    for k, right in enumerate(expected):
        if right is None:
            continue
        found = decode(answer["results"][k], right)
        kind = NAMES[right.dtype] if right.dtype.kind not in "iub" else "integers"
        report.note(f"{type_family} / {kind}", f"{case.name} result {k}", error_of(found, right),
                    tolerance_of(case, right, table))


def judge_differences(case, answer, expected, report):
    """The gradients that the driver computed against its own finite differences."""
    found = results_of(answer, expected)
    for text in answer["differences"]:
        slopes = np.frombuffer(base64.b64decode(text))
        n = len(case.graph.wishes[0]["params"])
        for place, k in enumerate(case.slopes):
            own, slopes = slopes[:found[k].size], slopes[found[k].size:]
            report.note(f"{case.family} / differences / order {place // n + 1}",
                        f"{case.name} result {k}", error_of(own.reshape(found[k].shape), found[k]),
                        DIFFERENCE_TOLERANCE)


def built(driver, cases, report):
    """The cases that can be built at all, and the operations that are in their graphs."""
    good = []
    covered = {"forward": set(), "gradient": set()}
    for case, answer in zip(cases, driver.start([c.graph for c in cases], "--text")()):
        if "error" in answer:
            report.fail(case.family, case.name, answer["error"])
            continue
        good.append(case)
        for op in case.covers:
            if op in answer["ops"]:
                covered["forward"].add(op)
                covered[case.kind].add(op)
            else:
                report.fail(case.family, case.name, f"there is no {op} in its graph: {answer['ops']}")
    return good, covered


def _answers(driver, chunks):
    """Starts the chunks, each as one program; what is refused is run again one by one."""
    wait = driver.start([merge([c.graph for c in chunk]) for chunk in chunks])

    def finish():
        answers, again = {}, []
        for chunk, answer in zip(chunks, wait()):
            if "error" in answer:
                again += chunk
            else:
                answers.update(zip(chunk, split([c.graph for c in chunk], answer)))
        for case, answer in zip(again, driver.start([c.graph for c in again])()):
            answers[case] = answer if "error" in answer else split([case.graph], answer)[0]
        return answers

    return finish


def run_cases(driver, cases, table, report, batch=24):
    """Runs all; returns the operations that forward and gradient cases were seen to have."""
    started = time.time()
    wanted = os.environ.get("TTT_CASES")
    cases = [c for c in cases if not wanted or re.search(wanted, c.name)]
    cases, covered = built(driver, cases, report)
    alone = [c for c in cases if c.alone]
    chunks = [*batches([c for c in cases if not c.alone], batch), *[[c] for c in alone]]
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        references = _start_references(pool, [c for c in cases if "jax" in c.judges], batch)
        answers = _answers(driver, chunks)()
        references = references(report)
    numpy_results = {c: run_numpy(c.graph) for c in cases if "numpy" in c.judges}
    for case in cases:
        answer = answers[case]
        if "error" in answer:
            report.fail(case.family, case.name, answer["error"].splitlines()[0])
            if wanted:
                print(answer.get("text", ""), file=sys.stderr)
            continue
        right, other = references.get(case), numpy_results.get(case)
        if right is not None:
            judge(case, answer, right, report, "jax", table)
        if other is not None:
            judge(case, answer, other, report, "numpy", table)
        if case.expected is not None:
            judge(case, answer, case.expected, report, "by hand", table)
        elif right is None and (other is None or any(r is None for r in other)):
            report.fail(case.family, case.name, "nobody judged it")
        if case.slopes and right is not None:
            judge_differences(case, answer, right, report)
    print(f"{len(cases)} cases in {time.time() - started:.0f} s")
    return covered
