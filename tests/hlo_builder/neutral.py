"""A neutral description of graphs: written once here, built by the driver, computed by NumPy and JAX.

A graph is a list of nodes in order. A node has an operation's name, the numbers of the values it
takes, the numbers of those it makes, and attributes. Numbers are unique in a document, also across
the blocks of control flow, which are lists of nodes with parameters and results of their own.

    g = Graph("example")
    x = g.param(np.ones((2, 3)))
    loss = g.sum(g.tanh(x), dims=[0, 1])
    g.result(loss, *g.grad(loss, [x]))

Any operation of the driver is a method: operands first, attributes by name. Types have StableHLO's
names. `Driver` runs many documents in two processes at a time.
"""

import base64
import json
import os
import subprocess
import tempfile
import threading

import ml_dtypes
import numpy as np

DTYPES = {
    "f64": np.float64, "f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16,
    "i64": np.int64, "i32": np.int32, "ui64": np.uint64, "ui32": np.uint32, "ui16": np.uint16,
    "ui8": np.uint8, "i1": np.bool_,
}
NAMES = {np.dtype(dtype): name for name, dtype in DTYPES.items()}
FLOATS = ("f64", "f32", "bf16", "f16")


def type_of(array):
    return NAMES[np.asarray(array).dtype]


def encode(array):
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode()


def decode(text, like):
    """An array of `like`'s shape and type from base64."""
    return np.frombuffer(base64.b64decode(text), dtype=like.dtype).reshape(like.shape)


def number(value):
    """JSON has no infinities and no NaN: they are words."""
    value = float(value)
    return value if np.isfinite(value) else repr(value)


class Value:
    """A value of a graph; arithmetic on it adds nodes."""

    def __init__(self, graph, number):
        self.graph, self.number = graph, number

    def __add__(self, other):
        return self.graph.add(self, self.graph.value_of(other, self))

    def __sub__(self, other):
        return self.graph.sub(self, self.graph.value_of(other, self))

    def __mul__(self, other):
        return self.graph.mul(self, self.graph.value_of(other, self))

    def __truediv__(self, other):
        return self.graph.div(self, self.graph.value_of(other, self))

    def __matmul__(self, other):
        return self.graph.matmul(self, other)

    def __neg__(self):
        return self.graph.neg(self)


class Graph:
    def __init__(self, name="test", **options):
        self.document = {"name": name, "params": [], "nodes": [], "results": [], **options}
        self.nodes = self.document["nodes"]
        self.n_values = 0
        self.inputs = []  # arrays, one a parameter
        self.wishes = []  # finite differences: results, parameters, step

    def new(self):
        self.n_values += 1
        return Value(self, self.n_values - 1)

    def value_of(self, x, like):
        return x if isinstance(x, Value) else self.like(like, value=number(x))

    def param(self, array, **more):
        array = np.asarray(array)
        v = self.new()
        self.inputs.append(array)
        self.document["params"].append(
            {"type": type_of(array), "dims": list(array.shape), "out": v.number, **more})
        return v

    def result(self, *values):
        self.document["results"] += [v.number for v in values]

    def node(self, op, operands, n_out=1, **attrs):
        out = [self.new() for _ in range(n_out)]
        self.nodes.append({"op": op, "in": [-1 if v is None else v.number for v in operands],
                           "out": [v.number for v in out], **attrs})
        return out

    def __getattr__(self, op):
        """g.tanh(x), g.reduce(x, kind="max", dims=[0]) …: any operation with one result."""
        if op.startswith("_"):
            raise AttributeError(op)
        return lambda *operands, **attrs: self.node(op, operands, **attrs)[0]

    def constant(self, array):
        array = np.asarray(array)
        return self.node("constant", [], type=type_of(array), dims=list(array.shape),
                         data=encode(array))[0]

    def sort(self, *arrays, dim=-1, descending=False):
        return self.node("sort", arrays, len(arrays), dim=dim, descending=descending)

    def top_k(self, x, k):
        return self.node("top_k", [x], 2, k=k)

    def random_bits(self, state, type, dims, op="random_bits"):
        return self.node(op, [state], 2, type=type, dims=dims)

    def barrier(self, *values):
        return self.node("barrier", values, len(values))

    def grad(self, loss, wrt):
        return self.node("grad", [loss, *wrt], len(wrt))

    def vjp(self, outputs, d_outputs, wrt):
        return self.node("vjp", [*outputs, *d_outputs, *wrt], len(wrt), n_outputs=len(outputs))

    def block(self, function, n_params, **more):
        """Calls `function` with new values; what it adds and returns is the block."""
        params = [self.new() for _ in range(n_params)]
        outside, self.nodes = self.nodes, []
        results = function(*params)
        results = results if isinstance(results, (list, tuple)) else [results]
        block = {"params": [v.number for v in params], "nodes": self.nodes,
                 "results": [-1 if v is None else v.number for v in results], **more}
        self.nodes = outside
        return block

    def scan(self, body, carry, inputs=(), length=0, reverse=False, unroll=0, save="all",
             checkpoint=()):
        """body(step, carries, slices) returns (next carries, outputs). Returns both lists."""
        n = len(carry)

        def step(number, *values):
            following, outputs = body(number, list(values[:n]), list(values[n:]))
            return [*following, *outputs]

        block = self.block(step, 1 + n + len(inputs), n_carry=n)
        out = self.node("scan", [*carry, *inputs], len(block["results"]), blocks=[block],
                        length=length, reverse=reverse, unroll=unroll, save=save,
                        checkpoint=list(checkpoint))
        return out[:n], out[n:]

    def loop(self, condition, body, carry):
        blocks = [self.block(condition, len(carry)), self.block(body, len(carry))]
        return self.node("while", carry, len(carry), blocks=blocks)

    def choose(self, op, index, branches):
        """op "if" (true, then false) or "case"; branches take nothing."""
        blocks = [self.block(branch, 0) for branch in branches]
        return self.node(op, [index], len(blocks[0]["results"]), blocks=blocks)

    def body_op(self, op, body, operands, **attrs):
        """remat, call, composite, manual: a body over operands."""
        block = self.block(body, len(operands))
        return self.node(op, operands, len(block["results"]), blocks=[block], **attrs)

    def custom_vjp(self, body, rule, operands):
        """rule(*inputs, *outputs, *gradients of the outputs): gradients of the inputs or None."""
        block = self.block(body, len(operands))
        n_out = len(block["results"])
        blocks = [block, self.block(rule, len(operands) + 2 * n_out)]
        return self.node("custom_vjp", operands, n_out, blocks=blocks)

    def finite_differences(self, results, params, h=1e-3):
        self.wishes.append({"results": results, "params": params, "h": h})

    def text(self):
        return json.dumps({**self.document, "n_values": self.n_values, "differences": self.wishes,
                           "inputs": [[encode(a) for a in self.inputs]]})


def _moved(node, by):
    """A node or block whose values have other numbers."""
    out = dict(node)
    for key in ("in", "out", "params", "results"):
        if key in out and isinstance(out[key], list):
            out[key] = [i if i < 0 else i + by for i in out[key]]
    for key in ("nodes", "blocks"):
        if key in out:
            out[key] = [_moved(n, by) for n in out[key]]
    return out


def merge(graphs):
    """One graph of several that have nothing to do with each other: programs compile faster
    together. Results and wishes follow each other. One alone stays as it is, options and all."""
    if len(graphs) == 1:
        return graphs[0]
    whole = Graph("merged")
    for g in graphs:
        by, n_params, n_results = whole.n_values, len(whole.inputs), len(whole.document["results"])
        whole.document["params"] += [{**p, "out": p["out"] + by} for p in g.document["params"]]
        moved = _moved({"nodes": g.document["nodes"], "results": g.document["results"]}, by)
        whole.document["nodes"] += moved["nodes"]
        whole.document["results"] += moved["results"]
        whole.inputs += g.inputs
        whole.n_values += g.n_values
        whole.wishes += [{"results": [r + n_results for r in w["results"]],
                          "params": [p + n_params for p in w["params"]], "h": w["h"]}
                         for w in g.wishes]
    return whole


def split(graphs, answer):
    """The answers to each of the merged graphs."""
    results, wishes = iter(answer["results"][0]), iter(answer["differences"][0])
    return [{"results": [next(results) for _ in g.document["results"]],
             "differences": [next(wishes) for _ in g.wishes]} for g in graphs]


class Driver:
    """Runs documents; `processes` of them at a time."""

    def __init__(self, path, processes=2):
        self.path, self.processes = path, processes

    def table(self):
        """{operation: "rule", "refused" or "none"}"""
        lines = subprocess.run([self.path, "--ops"], check=True, capture_output=True, text=True)
        return dict(line.rsplit(" ", 1) for line in lines.stdout.splitlines())

    def start(self, graphs, *options):
        """Starts running them in the background; the returned function waits for the answers."""
        if not options:
            subprocess.run([self.path, os.devnull], check=True)  # no plugin: say so once
        answers = [None] * len(graphs)
        threads = [threading.Thread(target=self._work, args=(graphs, options, answers, k))
                   for k in range(min(self.processes, len(graphs)))]
        for thread in threads:
            thread.start()

        def wait():
            for thread in threads:
                thread.join()
            return answers

        return wait

    def _work(self, graphs, options, answers, first):
        """Every n-th document. One that ends the process is answered by that, and the rest goes on
        in another."""
        left = list(range(first, len(graphs), self.processes))
        while left:
            with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as file:
                file.write("".join(graphs[k].text() + "\n" for k in left))
                file.flush()
                done = subprocess.run([self.path, *options, file.name], capture_output=True, text=True)
            for line in done.stdout.splitlines():
                answers[left.pop(0)] = json.loads(line)
            why = {"error": f"driver ended with {done.returncode}: {done.stderr[-2000:]}"}
            if left:
                answers[left.pop(0)] = why
            elif done.returncode != 0:  # after the last answer: the sanitizers' verdict
                answers[first] = why


def results_of(answer, expected):
    """The results, shaped as the expected ones."""
    return [decode(text, np.asarray(like)) for text, like in zip(answer["results"], expected)]
