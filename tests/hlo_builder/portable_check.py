"""Portable artifacts: read back by jaxlib's StableHLO, and run by the CPU plugin.

    python portable_check.py DRIVER

Every graph of the tests of operations and control flow, and those below with functions, constants
and many devices, is written as text and as an artifact. jaxlib must read the artifact, and read the
module that the text becomes when jaxlib writes and reads it as an artifact of its own. Artifacts of
all versions that differ are compared in this way, the results of artifacts and texts must be the
same bits, and so must artifacts that are written twice. That libtpu and XLA:CUDA take artifacts
too is test_accept.c's.

TTT_CASES=REGEX takes the graphs whose name matches.
"""

import base64
import collections
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
from jax._src.interpreters import mlir as jax_mlir  # knows which dialects there are
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

import cases_control
import cases_ops
from neutral import DTYPES, FLOATS, Driver, Graph

NEWEST = [1, 17, 0]  # that hlo_builder writes
OLDEST = [0, 0, 0]  # whichever has all that the graph uses
OF_CPU_PLUGIN = [1, 13, 7]
CHANGES = (0, 1, 3, 5, 6, 9, 10, 11, 14, 17)  # minor versions with an operation in another form
SQUARE, LINE = {"data": 2, "model": 2}, {"data": 4, "model": 1}  # the driver runs the second


# ---- graphs ----


def control():
    g = Graph("control")
    x, n = g.param(np.linspace(-1, 1, 6).reshape(2, 3)), g.param(np.int32(3))
    outside = g.tanh(x)
    looped = g.loop(lambda i, a: g.compare(i, n, kind="lt"),
                    lambda i, a: [i + 1, g.choose("if", g.compare(i, n, kind="eq"),
                                                  [lambda: a, lambda: a * outside])[0] + outside],
                    [g.scalar_int(type="i32", value=0), x])
    chosen = g.choose("case", n, [lambda: outside, lambda: looped[1] + 1, lambda: x * x])
    picked = g.choose("if", g.compare(n, looped[0], kind="le"),
                      [lambda: [x, n], lambda: [outside, n + 1]])
    g.result(*looped, *chosen, *picked)
    return g


def scans():
    g = Graph("scans")
    x, w = g.param(np.linspace(-1, 1, 12).reshape(6, 2)), g.param(np.array([0.5, -0.3]))

    def step(i, carry, slices):
        return [g.tanh(carry[0] * w + slices[0])], [carry[0] * w]

    results = []
    for options in ({}, {"reverse": True, "unroll": 4}, {"checkpoint": [2]}):
        last, outputs = g.scan(step, [w], [x], **options)
        loss = g.sum(g.mul(last[0], last[0]), dims=[0]) + g.sum(outputs[0], dims=[0, 1])
        results += [loss, *g.grad(loss, [x, w])]
    g.result(*results)
    return g


def functions():
    g = Graph("functions")
    x = g.param(np.linspace(-1, 1, 4))

    def inner(a):
        return g.sin(a) * a

    def outer(a, b):
        return [g.body_op("call", inner, [a], name="inner")[0] + b, b * 2]

    a, b = g.body_op("call", outer, [x, x * 3], name="outer")
    c = g.body_op("call", inner, [b], name="inner")[0]
    d = g.body_op("composite", lambda v: g.tanh(v), [a], name="ttt.tanh")[0]
    loss = g.sum(c * d, dims=[0])
    g.result(loss, *g.grad(loss, [x]))
    return g


def custom_calls():
    g = Graph("custom_calls")
    x = g.param(np.linspace(-1, 1, 4))
    g.result(g.custom_call(g.custom_call(x + 1, in_place=True), has_side_effect=True))
    return g


def constants(type):
    g = Graph("constants")
    x = g.param(np.zeros(3, DTYPES[type]))
    rng = np.random.default_rng(1)
    arrays = [np.zeros((0, 2)), np.zeros((2, 2)), np.array(1), np.ones(3), np.ones(20),
              np.arange(7) % 2, np.arange(8) % 2, np.arange(9) % 3 == 0,
              rng.integers(0, 99, (40, 3))]
    if type in FLOATS:
        info = cases_ops.ml_dtypes.finfo(DTYPES[type])
        arrays += [np.array([np.nan, -np.nan, np.inf, -np.inf, 0.0, -0.0, 0.1])]
        arrays += [np.full(2, float(v)) for v in (info.smallest_subnormal, info.tiny, info.max,
                                                  info.min, np.inf, np.nan, -0.0, 1 / 3,
                                                  3 * float(info.smallest_subnormal))]
    elif type != "i1":
        info = np.iinfo(DTYPES[type])
        arrays += [np.full(2, info.min, DTYPES[type]), np.array([info.max, info.min], DTYPES[type])]
    with np.errstate(invalid="ignore"):
        g.result(x, *[g.constant(a.astype(DTYPES[type])) for a in arrays])
    scalars = (0, 1, -1.5, np.inf, 2.0 ** -20) if type in FLOATS else (0, 1)
    for value in scalars:
        word = float(value) if np.isfinite(value) else "inf"
        g.result(g.full(type=type, dims=[2, 3], value=word))
    return g


def sharded(mesh, gspmd):
    g = Graph("sharded", mesh=mesh, devices=4, gspmd=gspmd, in_split=[0, -1])
    x = g.param(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), spec=["data", None])
    w = g.param(np.linspace(1, 2, 16, dtype=np.float32).reshape(4, 4), spec=[None, "model"])
    y = g.shard(g.matmul(x, w), spec=["data", "model"])
    z = g.shard(g.tanh(y), spec=["data+model", None])
    g.result(g.sum(z, dims=[0, 1]), w - g.scalar(type="f32", value=0.5))
    g.document["result_specs"] = [[], [None, "model"]]
    g.document["donate"] = [[w.number, 1]]
    return g


def manual(mesh):
    g = Graph("manual", mesh=mesh, devices=4, in_split=[0, -1], out_split=[0, -1])
    x = g.param(np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4), spec=["data", "model"])
    k = g.param(np.int32(2))
    rows = np.arange(4).reshape(mesh["data"], mesh["model"]).tolist()
    columns, all_four = np.transpose(rows).tolist(), [[0, 1, 2, 3]]

    def body(a):
        total = a
        for kind in ("add", "max", "min", "mul"):
            total = total + g.all_reduce(a, kind=kind, groups=all_four)
        wide = g.all_gather(a, dim=1, groups=rows)
        narrow = g.reduce_scatter(wide, dim=1, groups=rows)
        moved = g.collective_permute(a, groups=[[0, 1], [1, 0], [2, 3], [3, 2]])
        number = g.convert(g.partition_id(), type="f32")
        some = g.choose("if", g.compare(k, g.scalar_int(type="i32", value=1), kind="gt"),
                        [lambda: g.erf(moved) * number, lambda: narrow])[0]
        return [total + some, g.all_reduce(g.sum(narrow, dims=[0]), kind="add", groups=columns)]

    out = g.node("manual", [x], 2, blocks=[g.block(body, 1)], in_specs=[["data", "model"]],
                 out_specs=[["data", "model"], ["model"]])
    g.result(*out)
    return g


def scoped():
    g = Graph("scoped")
    x = g.param(np.ones(2))
    y = g.node("exp", [x], scope="layer.0")[0]
    g.result(g.node("log", [g.node("sqrt", [y], scope="layer.1")[0]], scope="layer.0")[0])
    return g


def extra_graphs():
    graphs = {"control": control(), "scans": scans(), "functions": functions(), "scoped": scoped(),
              "custom_calls": custom_calls()}
    graphs.update({f"constants {type}": constants(type) for type in DTYPES})
    for name, mesh in (("square", SQUARE), ("line", LINE)):
        graphs[f"sharded {name}"] = sharded(mesh, False)
        graphs[f"sharded {name} gspmd"] = sharded(mesh, True)
        graphs[f"manual {name}"] = manual(mesh)
    return graphs


def op_graphs():
    """All, and those that are the first of their operation."""
    graphs, firsts, seen = {}, {}, set()
    for case in {c.name: c for m in (cases_ops, cases_control) for c in m.all_cases()}.values():
        if "row_major" in case.covers:  # a wish that artifacts leave out
            continue
        graphs[case.name] = case.graph
        covers = case.covers if isinstance(case.covers, str) else " ".join(sorted(case.covers))
        if (covers, case.kind) not in seen:
            firsts[case.name] = case.graph
        seen.add((covers, case.kind))
    return graphs, firsts


# ---- checks ----


class Portable:
    """A graph to be run, or written, as an artifact of a version."""

    def __init__(self, graph, version):
        self.graph, self.version = graph, version

    def text(self):
        return json.dumps({**json.loads(self.graph.text()), "portable": self.version})


def written(driver, graphs):
    """The driver's answers: text and artifact of each."""
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
        file.write("".join(graph.text() + "\n" for graph in graphs))
        file.flush()
        done = subprocess.run([driver.path, "--text", file.name], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"driver ended with {done.returncode}: {done.stderr[-2000:]}")
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        answer["portable"] = base64.b64decode(answer.get("portable", ""))
    return answers


def generic(module):
    return module.operation.get_asm(print_generic_op_form=True, large_elements_limit=None)


def read_back(text, artifact):
    """What jaxlib reads of the text's own artifact, and of ours."""
    with jax_mlir.make_ir_context() as context:
        module = ir.Module.parse(text)
        version = stablehlo.get_current_version()
        theirs = stablehlo.serialize_portable_artifact(module, version, True)
        return (generic(stablehlo.deserialize_portable_artifact(context, theirs)),
                generic(stablehlo.deserialize_portable_artifact(context, artifact)))


class Check:
    def __init__(self, driver):
        self.driver, self.failures, self.ops = driver, [], collections.Counter()

    def fail(self, name, why):
        self.failures.append(f"{name}: {why}")

    def modules(self, graphs, version):
        """Artifacts of one version against the texts."""
        sizes = [0, 0]
        wrapped = [Portable(graph, version) for graph in graphs.values()]
        answers, again = written(self.driver, wrapped), written(self.driver, wrapped)
        for name, answer, second in zip(graphs, answers, again):
            name = f"{name} as {version}"
            if "error" in answer:
                self.fail(name, answer["error"])
                continue
            if answer != second:
                self.fail(name, "written twice, it differs")
            try:
                expected, found = read_back(answer["text"], answer["portable"])
            except Exception as error:
                self.fail(name, error)
                continue
            self.ops.update(re.findall(r'"((?:chlo|func|sdy|stablehlo)\.\w+)"', found))
            sizes[0] += len(answer["text"])
            sizes[1] += len(answer["portable"])
            if expected != found:
                lines = difflib.unified_diff(expected.splitlines(), found.splitlines(), n=0)
                self.fail(name, "\n".join(lines)[:4000])
        print(f"{len(graphs)} graphs as {version}: {sizes[0]} bytes of text, {sizes[1]} portable")

    def forms(self, graphs):
        """Older versions; one that a graph is too new for must be refused in words."""
        for minor in CHANGES:
            wrapped = [Portable(graph, [1, minor, 0]) for graph in graphs.values()]
            fine, refused = {}, 0
            for (name, graph), answer in zip(graphs.items(), written(self.driver, wrapped)):
                if "error" not in answer:
                    fine[name] = graph
                elif re.search("no portable form before StableHLO", answer["error"]):
                    refused += 1
                else:
                    self.fail(f"{name} as 1.{minor}", answer["error"])
            if refused and minor >= 11:
                self.fail(f"1.{minor}", f"{refused} graphs refused")
            self.modules(fine, [1, minor, 0])

    def runs(self, graphs):
        """The same bits as text and as artifact."""
        texts = self.driver.start(list(graphs.values()))()
        for version in (OLDEST, OF_CPU_PLUGIN):
            answers = self.driver.start([Portable(g, version) for g in graphs.values()])()
            for name, text, portable in zip(graphs, texts, answers):
                if "error" in text or "error" in portable:
                    self.fail(f"{name}, run", text.get("error") or portable.get("error"))
                elif text["results"] != portable["results"]:
                    self.fail(f"{name}, run", "other results than the text's")
        print(f"{len(graphs)} graphs run")

    def locations(self):
        answer = written(self.driver, [Portable(scoped(), OLDEST)])[0]
        with jax_mlir.make_ir_context() as context:
            module = stablehlo.deserialize_portable_artifact(context, answer["portable"])
            text = module.operation.get_asm(enable_debug_info=True, pretty_debug_info=True)
        for pattern in (r'exponential.*"layer.0"', r'sqrt.*"layer.1"', r'log .*"layer.0"'):
            if not re.search(pattern, text):
                self.fail("locations", f"no {pattern} in\n{text}")

    def finish(self, everything):
        """True when all is well. Each of the writer's operations must have been seen."""
        table = set(self.driver.table()) - {
            "param", "stop_gradient", "keep", "row_major", "custom_vjp", "scan", "remat",  # lowered away
            "call", "erf", "sharding_constraint", "manual_computation"}  # in other dialects
        missing = table - {op.removeprefix("stablehlo.") for op in self.ops}
        missing |= {"func.call", "chlo.erf", "sdy.sharding_constraint", "sdy.manual_computation",
                    "stablehlo.composite", "stablehlo.if"} - set(self.ops)
        if everything and missing:
            self.fail("coverage", f"never written: {', '.join(sorted(missing))}")
        for failure in self.failures:
            print("FAILED", failure)
        print(f"{sum(self.ops.values())} operations of {len(self.ops)} kinds read back, "
              f"{len(self.failures)} failures")
        return not self.failures


def main():
    check = Check(Driver(sys.argv[1]))
    wanted = os.environ.get("TTT_CASES", "")
    every, firsts = op_graphs()
    extras = extra_graphs()
    every, firsts, extras = ({name: graph for name, graph in graphs.items()
                              if re.search(wanted, name)} for graphs in (every, firsts, extras))
    for version in (OLDEST, NEWEST):
        check.modules({**every, **extras}, version)
    check.forms({**firsts, **extras})
    check.locations()
    check.runs({name: graph for name, graph in {**firsts, **extras}.items()
                if "square" not in name})
    return 0 if check.finish(wanted == "") else 1


if __name__ == "__main__":
    sys.exit(main())
