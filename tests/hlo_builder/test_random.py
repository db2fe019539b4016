"""Random small graphs, built by hlo_builder and computed by JAX: values and gradients agree.

    python test_random.py DRIVER [NUMBER [SEED]]

Graphs have scans, branches, calls, remat and gradients inside; each ends in gradients of a loss by all
its parameters. A failure names the graph's own seed: NUMBER 1 and that seed run it alone and print
its program.
"""

import multiprocessing
import sys
import time

import numpy as np

from neutral import Driver, Graph, merge, split, results_of

# Errors of f64 relative to the largest number of an array. Observed over 2000 graphs: 9e-14. A sign or
# a term that is wrong is off by far more.
TOLERANCE = 1e-9
BATCH = 40  # graphs in one program


class Shaped:
    def __init__(self, value, shape):
        self.v, self.shape = value, tuple(shape)


class Maker:
    """Adds random nodes to a graph. `own` are the floats that were made in the current block or given
    to it; `leaves` those given to it, by which a gradient may be asked for."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)
        self.g = Graph(f"random{seed}")
        self.params = []
        self.own, self.leaves = [], []
        self.depth = 0
        self.names = 0

    # ---- choosing ----

    def pick(self, items):
        return items[self.rng.integers(len(items))]

    def dims(self, least=0, most=3):
        return tuple(int(d) for d in self.rng.choice([1, 2, 3, 4], self.rng.integers(least, most + 1)))

    def param(self, shape):
        """A fresh parameter; inside a body, a constant: bodies see parameters as captured values."""
        values = self.rng.uniform(-1.5, 1.5, shape)
        if self.depth:
            return Shaped(self.g.constant(values), shape)
        p = Shaped(self.g.param(values), shape)
        self.params.append(p)
        self.own.append(p)
        self.leaves.append(p)
        return p

    def value(self, test=lambda shape: True):
        """One that was made lately rather than long ago."""
        fitting = [x for x in self.own if test(x.shape)]
        if not fitting:
            return None
        return fitting[-1 - min(int(self.rng.exponential(2.5)), len(fitting) - 1)]

    def like(self, shape):
        """A value of that shape: an old one or a new one."""
        found = self.value(lambda s: s == shape) if self.rng.random() < 0.7 else None
        return found or self.param(shape)

    # ---- single operations; each returns a new Shaped or None ----

    def unary(self):
        x = self.value()
        op = self.pick(["neg", "tanh", "sin", "cos", "logistic", "silu", "gelu", "erf", "exp", "abs",
                        "square", "log", "root", "keep", "barrier", "stop"])
        g, v = self.g, x.v
        out = {
            "exp": lambda: g.exp(g.tanh(v)), "square": lambda: g.tanh(v * v),
            "log": lambda: g.log(v * v + 1.0), "root": lambda: g.rsqrt(v * v + 0.5),
            "barrier": lambda: g.barrier(v)[0],
            "stop": lambda: g.stop_gradient(v) * g.sin(v),
        }.get(op, lambda: getattr(g, op)(v))()
        return Shaped(out, x.shape)

    def binary(self):
        x = self.value()
        shape = list(x.shape[self.rng.integers(len(x.shape) + 1):])
        for d in range(len(shape)):
            if self.rng.random() < 0.3:
                shape[d] = 1
        y = self.like(tuple(shape))
        op = self.pick(["add", "sub", "mul", "div", "max", "min"])
        a, b = (x.v, y.v) if self.rng.random() < 0.5 or op == "div" else (y.v, x.v)
        if op == "div":
            b = b * b + 1.0
        if op in ("max", "min"):  # fresh: two ways to one number would differ in the last place
            b = self.param(x.shape).v
        return Shaped(self.g.tanh(getattr(self.g, op)(a, b)), x.shape)

    def select(self):
        x = self.value()
        mask = self.g.constant(self.rng.random(x.shape) < 0.5)
        return Shaped(self.g.select(mask, x.v, self.like(x.shape).v), x.shape)

    def clamp(self):
        x = self.value()
        low, high = (self.g.scalar(type="f64", value=v) for v in (-0.637, 0.571))
        return Shaped(self.g.clamp(low, x.v, high), x.shape)

    def reshape(self):
        x = self.value()
        n = int(np.prod(x.shape))
        options = [(n,), (1, n), (n, 1)] + [(k, n // k) for k in (2, 3, 4) if n % k == 0]
        shape = self.pick(options)
        return Shaped(self.g.reshape(x.v, dims=list(shape)), shape)

    def transpose(self):
        x = self.value()
        order = [int(d) for d in self.rng.permutation(len(x.shape))]
        return Shaped(self.g.transpose(x.v, dims=order), [x.shape[d] for d in order])

    def reverse(self):
        x = self.value(lambda s: len(s) > 0)
        return x and Shaped(self.g.reverse(x.v, dims=[int(self.rng.integers(len(x.shape)))]), x.shape)

    def cut(self):
        x = self.value(lambda s: len(s) > 0)
        if x is None:
            return None
        start = [int(self.rng.integers(n)) for n in x.shape]
        limit = [int(self.rng.integers(s + 1, n + 1)) for s, n in zip(start, x.shape)]
        stride = [int(self.rng.integers(1, 3)) for _ in start]
        shape = [-(-(e - s) // k) for s, e, k in zip(start, limit, stride)]
        return Shaped(self.g.slice(x.v, start=start, limit=limit, stride=stride), shape)

    def dynamic(self):
        x = self.value(lambda s: len(s) > 0)
        if x is None:
            return None
        sizes = [int(self.rng.integers(1, n + 1)) for n in x.shape]
        at = [self.g.constant(np.array(self.rng.integers(-2, n + 2), np.int32)) for n in x.shape]
        if self.rng.random() < 0.5:
            return Shaped(self.g.dynamic_slice(x.v, *at, sizes=sizes), sizes)
        return Shaped(self.g.dynamic_update(x.v, self.like(tuple(sizes)).v, *at), x.shape)

    def pad(self):
        x = self.value(lambda s: 0 < len(s) and np.prod(s) < 30)
        if x is None:
            return None
        interior = [int(self.rng.integers(2)) for _ in x.shape]
        spread = [n + (n - 1) * k for n, k in zip(x.shape, interior)]
        low = [int(self.rng.integers(1 - n if n > 1 else 0, 3)) for n in spread]
        high = [int(self.rng.integers(max(1 - n - lo, -n + 1), 3)) if n + lo > 0 else 2
                for n, lo in zip(spread, low)]
        shape = [n + a + b for n, a, b in zip(spread, low, high)]
        if min(shape) < 1:
            return None
        fill = self.like(())
        return Shaped(self.g.pad(x.v, fill.v, low=low, high=high, interior=interior), shape)

    def concat(self):
        x = self.value(lambda s: len(s) > 0 and np.prod(s) < 30)
        if x is None:
            return None
        dim = int(self.rng.integers(len(x.shape)))
        y = self.like(x.shape)
        shape = list(x.shape)
        if self.rng.random() < 0.4 and len(shape) < 3:
            shape.insert(dim, 2)
            return Shaped(self.g.stack(x.v, y.v, dim=dim), shape)
        shape[dim] *= 2
        return Shaped(self.g.concat(x.v, y.v, dim=dim), shape)

    def broadcast(self):
        x = self.value(lambda s: len(s) < 3 and np.prod(s) < 20)
        if x is None:
            return None
        shape = list(x.shape)
        at = int(self.rng.integers(len(shape) + 1))
        dims = [d for d in range(len(shape) + 1) if d != at]
        shape.insert(at, int(self.rng.integers(1, 4)))
        return Shaped(self.g.broadcast(x.v, result=shape, dims=dims), shape)

    def reduce(self):
        x = self.value(lambda s: len(s) > 0)
        if x is None:
            return None
        dims = sorted(int(d) for d in self.rng.choice(len(x.shape), self.rng.integers(1, len(x.shape) + 1),
                                                      replace=False))
        kind = self.pick(["add", "add", "mean", "mul", "max", "min"])
        if kind == "mean":
            out = self.g.mean(x.v, dims=dims)
        else:
            v = x.v + self.param(x.shape).v if kind in ("max", "min") else x.v  # no ties by two ways
            out = self.g.reduce(v, kind=kind, dims=dims)
        return Shaped(self.g.sin(out), [n for d, n in enumerate(x.shape) if d not in dims])

    def along(self):
        x = self.value(lambda s: len(s) > 0)
        if x is None:
            return None
        dim = int(self.rng.integers(len(x.shape)))
        op = self.pick(["cumsum", "softmax", "log_softmax", "sort", "top_k", "rms_norm"])
        g = self.g
        if op == "sort":
            return Shaped(g.sort(x.v + self.param(x.shape).v, x.v, dim=dim,
                                 descending=bool(self.rng.random() < 0.5))[self.rng.integers(2)], x.shape)
        if op == "top_k":
            k = int(self.rng.integers(1, x.shape[-1] + 1))
            return Shaped(g.top_k(x.v + self.param(x.shape).v, k)[0], [*x.shape[:-1], k])
        if op == "rms_norm":
            return Shaped(g.rms_norm(x.v, self.like((x.shape[-1],)).v, epsilon=0.1), x.shape)
        return Shaped(getattr(g, op)(x.v, dim=dim), x.shape)

    def product(self):
        x = self.value(lambda s: len(s) == 2)
        if x is None:
            return None
        n = int(self.rng.integers(1, 4))
        if self.rng.random() < 0.5:
            return Shaped(self.g.tanh(self.g.matmul(x.v, self.like((x.shape[1], n)).v)), (x.shape[0], n))
        spec, y, shape = self.pick([
            ("ij,kj->ik", (n, x.shape[1]), (x.shape[0], n)), ("ij,kj->kij", (n, x.shape[1]), (n, *x.shape)),
            ("ij,ij->j", x.shape, (x.shape[1],)), ("ij,ik->kj", (x.shape[0], n), (n, x.shape[1])),
            ("ij,j->i", (x.shape[1],), (x.shape[0],))])
        return Shaped(self.g.sin(self.g.einsum(x.v, self.like(y).v, spec=spec)), shape)

    def rows(self):
        x = self.value(lambda s: len(s) > 0)
        if x is None:
            return None
        n = int(self.rng.integers(1, 4))
        indices = self.g.constant(self.rng.integers(-1, x.shape[0] + 1, n).astype(np.int32))
        return Shaped(self.g.take(x.v, indices), (n, *x.shape[1:]))

    # ---- bodies ----

    def inside(self, given, n_nodes, then):
        """Runs `then` with a block's own lists of values, the given ones in it."""
        own, leaves = self.own, self.leaves
        captured = [self.pick(own) for _ in range(2)]
        self.own, self.leaves = captured + given, list(given)
        self.depth += 1
        self.grow(n_nodes)
        out = then()
        self.depth -= 1
        self.own, self.leaves = own, leaves
        return out

    def shaped_result(self, shape):
        """Something of that shape out of what the block made last."""
        last = self.own[-1]
        total = self.g.mean(last.v, dims=list(range(len(last.shape)))) if last.shape else last.v
        base = self.value(lambda s: s == shape)
        if base is None:
            return self.g.broadcast_to(g_tanh(self.g, total), result=list(shape))
        return g_tanh(self.g, base.v + total)

    def body(self):
        if self.depth >= 2 or (self.depth == 1 and self.rng.random() < 0.5):
            return None
        return getattr(self, self.pick(["scan", "scan", "remat", "call", "branch", "rule"]))()

    def scan(self):
        c = self.value(lambda s: np.prod(s) < 20)
        x = self.value(lambda s: len(s) > 0 and np.prod(s) < 30)
        if c is None or x is None:
            return None
        n = int(self.rng.integers(1, 4))
        checkpoint = self.pick([(), (), (2,), (3,), (2, 2)])

        def step(number, carry, slices):
            def finish():
                return ([self.shaped_result(c.shape)], [self.own[-1].v])
            given = [Shaped(carry[0], c.shape), Shaped(slices[0], x.shape[1:])]
            result = self.inside(given, n, lambda: (finish(), self.own[-1].shape))
            step.shape = result[1]
            return result[0]

        last, ys = self.g.scan(step, [c.v], [x.v], reverse=bool(self.rng.random() < 0.5),
                               unroll=int(self.rng.integers(0, 3)), checkpoint=checkpoint,
                               save=self.pick(["all", "dots", "marked", "loops"]))
        self.own.append(Shaped(last[0], c.shape))
        if len(step.shape) >= 3:
            return None
        return Shaped(ys[0], (x.shape[0], *step.shape))

    def one_body(self, op, **attrs):
        x, y = self.value(), self.value()
        n = int(self.rng.integers(1, 4))

        def body(a, b):
            given = [Shaped(a, x.shape), Shaped(b, y.shape)]
            return self.inside(given, n, lambda: self.shaped_result(x.shape))
        return Shaped(self.g.body_op(op, body, [x.v, y.v], **attrs)[0], x.shape)

    def remat(self):
        return self.one_body("remat", save=self.pick(["all", "dots", "marked", "loops"]))

    def call(self):
        self.names += 1
        return self.one_body(self.pick(["call", "composite"]), name=f"random.f{self.names}")

    def rule(self):
        """A gradient of one's own that is the derived one, asked for inside the rule."""
        x = self.value()
        state = self.rng.bit_generator.state

        def f(a):
            return self.g.tanh(a) * self.g.sin(a)

        def rule(a, y, d):
            return self.g.vjp([f(a)], [d], [a])
        self.rng.bit_generator.state = state
        return Shaped(self.g.custom_vjp(f, rule, [x.v])[0], x.shape)

    def branch(self):
        x = self.value()
        n = int(self.rng.integers(1, 3))
        index = self.g.constant(np.array(self.rng.integers(0, 2), np.int32))
        branches = [lambda: self.inside([x], n, lambda: self.shaped_result(x.shape)) for _ in range(2)]
        if self.rng.random() < 0.5:
            return Shaped(self.g.choose("case", index, branches)[0], x.shape)
        return Shaped(self.g.choose("if", self.g.convert(index, type="i1"), branches)[0], x.shape)

    def gradient(self):
        """A gradient in the middle: what follows makes it a gradient of a gradient."""
        if not self.leaves or self.rng.random() < 0.6:
            return None
        x, leaf = self.own[-1], self.pick(self.leaves)
        loss = self.g.sum(x.v * x.v, dims=list(range(len(x.shape))))
        return Shaped(self.g.tanh(self.g.grad(loss, [leaf.v])[0]), leaf.shape)

    MAKERS = ["unary"] * 4 + ["binary"] * 4 + [
        "select", "clamp", "reshape", "transpose", "reverse", "cut", "dynamic", "pad", "concat",
        "broadcast", "reduce", "reduce", "along", "along", "product", "product", "rows", "body", "body",
        "body", "gradient"]

    def grow(self, n):
        for _ in range(n):
            new = getattr(self, self.pick(self.MAKERS))()
            if new is not None and np.prod(new.shape) <= 60 and len(new.shape) <= 4:
                self.own.append(new)


def g_tanh(g, v):
    return g.tanh(v)


def make(seed):
    m = Maker(seed)
    for _ in range(m.rng.integers(1, 4)):
        m.param(m.dims())
    m.grow(int(m.rng.integers(2, 8)))
    outputs = m.own[-3:]
    loss = None
    for x in outputs:
        term = m.g.sum(x.v * x.v, dims=list(range(len(x.shape))))
        loss = term if loss is None else loss + term
    m.g.result(*[x.v for x in outputs], loss, *m.g.grad(loss, [p.v for p in m.params]))
    return m.g


def reference(seeds):
    """In a process of its own. What JAX itself fails on is None."""
    from reference import run_jax
    graphs = [make(s) for s in seeds]
    try:
        return run_jax(graphs)
    except Exception as e:
        if len(seeds) == 1:
            print(f"seed {seeds[0]}: JAX: {str(e)[:200]}")
            return [None]
        half = len(seeds) // 2
        return reference(seeds[:half]) + reference(seeds[half:])


def compare(seed, found, expected, worst, failures):
    from harness import error_of
    error = max(error_of(a, b) for a, b in zip(found, expected))
    worst.append((error if error == error else np.inf, seed))
    if not error <= TOLERANCE:
        failures.append(f"seed {seed}: error {error:.3g}")


def main():
    driver = Driver(sys.argv[1])
    number = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    first = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    print(f"{number} random graphs from seed {first}")
    started = time.time()
    seeds = list(range(first, first + number))
    chunks = [seeds[k:k + BATCH] for k in range(0, len(seeds), BATCH)]
    merged = [merge([make(s) for s in chunk]) for chunk in chunks]
    worst, failures, refused, nodes = [], [], 0, sum(len(m.document["nodes"]) for m in merged)
    if number == 1:
        print(driver.start(merged, "--text")()[0])
    with multiprocessing.get_context("spawn").Pool(min(2, len(chunks))) as pool:
        expected = pool.map_async(reference, chunks, chunksize=1)
        answers = driver.start(merged)()
        expected = expected.get()
    for chunk, answer, right in zip(chunks, answers, expected):
        graphs = [make(s) for s in chunk]
        if "error" in answer:  # find out whose it is
            for seed, alone in zip(chunk, driver.start(graphs)()):
                if "error" in alone:
                    failures.append(f"seed {seed}: {alone['error'][:300]}")
            continue
        for seed, own, results in zip(chunk, split(graphs, answer), right):
            if results is None:
                refused += 1
                continue
            compare(seed, results_of(own, results), results, worst, failures)
    for failure in failures:
        print("FAILED", failure)
    if refused > number / 50:
        failures.append("too many")
        print(f"FAILED to be judged: {refused}")
    error, seed = max(worst, default=(0.0, 0))
    print(f"{number} graphs, {nodes} nodes at the top, {time.time() - started:.0f} s; worst error "
          f"{error:.2e} (seed {seed}), allowed {TOLERANCE:.0e}; {refused} that JAX fails on; "
          f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
