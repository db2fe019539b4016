"""Cases of control flow: scans with every option, remat, branches, calls, rules of one's own; and
gradients by values in the middle, gradients of gradients, gradients inside bodies."""

import itertools

import numpy as np

from cases_ops import CASES, add, add_grad, array, rng_for

LENGTHS = (0, 1, 2, 5, 17)
CHECKPOINTS = ((), (4,), (2, 3), (4, 16))
SAVES = ("all", "dots", "marked", "loops")
T, N = 5, 3  # steps and width, where it does not matter


def rows(rng, *shape):
    return array(rng, "f64", shape, -1, 1)


def cell(g, w, marked=False):
    """A recurrent step with a product, something marked and something free."""
    def body(step, carry, x):
        h = g.matmul(g.reshape(carry[0], dims=[1, N]), w)
        h = g.reshape(h, dims=[N]) + x[0]
        h = g.tanh(g.keep(h) if marked else h)
        return [h * g.exp(g.neg(x[0] * x[0]))], [h * carry[0], g.sum(h * h, dims=[0])]
    return body


def scans():
    rng = rng_for("scans")
    for k, (length, checkpoint, save) in enumerate(itertools.product(LENGTHS, CHECKPOINTS, SAVES)):
        options = dict(reverse=k % 2 == 1, unroll=k % 4, save=save, checkpoint=checkpoint)

        def build(g, c, xs, w, options=options, save=save):
            last, ys = g.scan(cell(g, w, save == "marked"), [c], [xs], **options)
            return [*last, *ys]

        add_grad(f"scan {length} {checkpoint} {save} {options['reverse']} {options['unroll']}",
                 ["scan"] if length > 1 else [], build, [rows(rng, N), rows(rng, length, N), rows(rng, N, N)], second=k % 4 == 1,
                 family="scan")
    for k, (reverse, unroll) in enumerate(itertools.product((False, True), (1, 2, 3))):
        for length in (5, 6):
            add_grad(f"scan unrolled {length} {reverse} {unroll}", ["scan"],
                     lambda g, c, xs, w, r=reverse, u=unroll: sum(
                         g.scan(cell(g, w), [c], [xs], reverse=r, unroll=u), []),
                     [rows(rng, N), rows(rng, length, N), rows(rng, N, N)], family="scan")
    for reverse in (False, True):  # more steps than the outer group holds, and a rest
        for save in SAVES:
            add_grad(f"scan 70 {reverse} {save}", ["scan"],
                     lambda g, c, xs, w, r=reverse, s=save: sum(
                         g.scan(cell(g, w, True), [c], [xs], reverse=r, checkpoint=(4, 16), save=s), []),
                     [rows(rng, N), rows(rng, 70, N), rows(rng, N, N)], second=False, differences=False,
                     family="scan")


def odd_scans():
    rng = rng_for("odd scans")

    def scan_case(name, build, inputs, **more):
        for checkpoint in ((), (2,)):
            add_grad(f"{name} {checkpoint}", ["scan"],
                     lambda g, *p, c=checkpoint: build(g, c, *p), inputs, family="scan", **more)

    def no_inputs(g, cp, c, w):
        last, ys = g.scan(lambda s, carry, x: ([g.tanh(carry[0] * w)], [carry[0] * w]), [c], length=T,
                          checkpoint=cp)
        return last + ys
    scan_case("scan without inputs", no_inputs, [rows(rng, N), rows(rng, N)])

    def no_outputs(g, cp, c, xs):
        return g.scan(lambda s, carry, x: ([g.sin(carry[0] + x[0])], []), [c], [xs], checkpoint=cp)[0]
    scan_case("scan without outputs", no_outputs, [rows(rng, N), rows(rng, T, N)])

    def no_carry(g, cp, xs, w):
        return g.scan(lambda s, carry, x: ([], [g.tanh(x[0] * w)]), [], [xs], checkpoint=cp)[1]
    scan_case("scan without carries", no_carry, [rows(rng, T, N), rows(rng, N)])

    def step_number(g, cp, c, xs):
        def body(s, carry, x):
            f = g.convert(s, type="f64")
            return [carry[0] * x[0] + f], [carry[0] * f]
        last, ys = g.scan(body, [c], [xs], reverse=True, checkpoint=cp)
        return last + ys
    scan_case("scan with step numbers", step_number, [rows(rng, N), rows(rng, T, N)])

    def integers(g, cp, c, table):
        def body(s, carry, x):
            i = g.rem(carry[0] + x[0], g.scalar_int(type="i32", value=4))
            return [i, g.tanh(carry[1] + g.take(table, i))], [i, carry[1]]
        zero = g.scalar_int(type="i32", value=0)
        jumps = g.constant(np.array([1, 2, 3, 1, 5, 2], np.int32))
        last, ys = g.scan(body, [zero, c], [jumps], checkpoint=cp)
        return [last[1], ys[1]]
    scan_case("scan with integer carries", integers, [rows(rng, N), rows(rng, 4, N)])

    def same_twice(g, cp, c, xs):
        def body(s, carry, x):
            return [carry[1], g.sin(carry[0]) * x[0]], [carry[0], carry[0], x[1]]
        last, ys = g.scan(body, [c, c], [xs, xs], checkpoint=cp)
        return last + ys
    scan_case("scan with the same twice", same_twice, [rows(rng, N), rows(rng, T, N)])

    def idle(g, cp, c, d, xs, ys):
        """One carry that nothing changes, one input that nothing uses, one result nobody wants."""
        def body(s, carry, x):
            return [carry[0], g.tanh(carry[1] * carry[0] + x[0])], [carry[1], x[1]]
        last, out = g.scan(body, [c, d], [xs, ys], checkpoint=cp)
        return [last[1]]
    scan_case("scan with idle parts", idle, [rows(rng, N), rows(rng, N), rows(rng, T, N), rows(rng, T)])

    def nested(g, cp, c, xs, w):
        def inner(s, carry, x):
            return [g.tanh(carry[0] * w + x[0])], [g.sum(carry[0] * w, dims=[0])]

        def outer(s, carry, x):
            last, ys = g.scan(inner, [carry[0]], [x[0]], checkpoint=cp)
            return [last[0] * w], [ys[0], g.sum(last[0], dims=[0])]
        last, ys = g.scan(outer, [c], [xs], checkpoint=cp, save="marked" if cp else "all")
        return last + ys
    scan_case("nested scans", nested, [rows(rng, N), rows(rng, 4, 3, N), rows(rng, N)])

    def stacked_layers(g, cp, x, ws, bs):
        def layer(s, carry, p):
            def block(h, w, b):
                return g.tanh(g.matmul(h, w) + b) + h
            return g.body_op("remat", block, [carry[0], *p], save="dots"), []
        return g.scan(layer, [x], [ws, bs], checkpoint=cp)[0]
    scan_case("scan over layers", stacked_layers, [rows(rng, 2, N), rows(rng, 4, N, N), rows(rng, 4, N)])

    def two_in_a_row(g, cp, c, xs):
        def body(s, carry, x):
            return [g.sin(carry[0] + x[0])], [carry[0]]
        last, ys = g.scan(body, [c], [xs], checkpoint=cp)
        last, zs = g.scan(body, last, ys, reverse=True, checkpoint=cp)
        return last + zs
    scan_case("a scan after another", two_in_a_row, [rows(rng, N), rows(rng, T, N)])

    def branch_inside(g, cp, c, xs):
        def body(s, carry, x):
            warm = g.compare(g.sum(x[0], dims=[0]), g.scalar(type="f64", value=0.0), kind="gt")
            h = g.choose("if", warm, [lambda: g.sin(carry[0]) * x[0], lambda: g.exp(carry[0]) + x[0]])
            return h, [g.softmax(h[0], dim=0)]
        last, ys = g.scan(body, [c], [xs], checkpoint=cp)
        return last + ys
    scan_case("branches in a scan", branch_inside, [rows(rng, N), rows(rng, T, N)])


def learning(g, eta, inner_steps=1, rows=4):
    """A step of test-time training: the carry is a weight, one step of descent on it is the body."""
    def body(s, carry, x):
        w = carry[0]
        for _ in range(inner_steps):
            error = g.matmul(x[0], w) - x[1]
            loss = g.mean(error * error, dims=[0, 1])
            w = w - g.grad(loss, [w])[0] * eta
        return [w], [g.matmul(x[0], w)]
    return body


def learners():
    rng = rng_for("learners")
    inputs = [rows(rng, N, N), rows(rng, 6, 4, N), rows(rng, 6, 4, N), np.array(0.3)]
    for k, (checkpoint, save, steps) in enumerate((((), "all", 1), ((2,), "all", 1), ((4,), "dots", 1),
                                                   ((2, 2), "marked", 1), ((), "dots", 2), ((3,), "all", 2))):
        def build(g, w, keys, values, eta, checkpoint=checkpoint, save=save, steps=steps):
            last, ys = g.scan(learning(g, eta, steps), [w], [keys, values], checkpoint=checkpoint, save=save)
            return last + ys
        add_grad(f"learner in a scan {checkpoint} {save} {steps}", [], build, inputs, family="learner",
                 second=k < 3)
        if k == 1:
            add_grad("learner in a scan, compiled as usual", [], build, inputs, family="learner",
                     optimized=True)

    def mlp(g, w1, w2, keys, values):
        """Two weights, a norm in the inner loss, a learned step: as in TTT-MLP."""
        def body(s, carry, x):
            hidden = g.gelu(g.matmul(x[0], carry[0]))
            out = g.layer_norm(g.matmul(hidden, carry[1]), g.constant(np.ones(N)), g.constant(np.zeros(N)),
                               epsilon=1e-6)
            error = out + x[0] - x[1]
            loss = g.sum(error * error, dims=[0, 1])
            d1, d2 = g.grad(loss, carry)
            return [carry[0] - d1 * 0.05, carry[1] - d2 * 0.05], [out]
        last, ys = g.scan(body, [w1, w2], [keys, values], checkpoint=(2,), save="dots")
        return last + ys
    add_grad("learner of two layers", [], mlp,
             [rows(rng, N, 4), rows(rng, 4, N), rows(rng, 4, 2, N), rows(rng, 4, 2, N)], family="learner",
             second=False)


def remats():
    rng = rng_for("remats")
    for save in SAVES:
        def block(g, x, w, b):
            h = g.keep(g.tanh(g.matmul(x, w)))
            return [g.softmax(h + b, dim=-1) * h, g.sum(h, dims=[0])]

        def build(g, x, w, b, save=save):
            return g.body_op("remat", lambda *p: block(g, *p), [x, w, b], save=save)
        inputs = [rows(rng, 2, N), rows(rng, N, N), rows(rng, N)]
        add_grad(f"remat {save}", ["remat"], build, inputs, family="remat")

        def captured(g, x, w, b, save=save):
            return g.body_op("remat", lambda y: block(g, y, w, b), [g.sin(x)], save=save)
        add_grad(f"remat with captured {save}", ["remat"], captured, inputs, family="remat")

        def twice(g, x, w, b, save=save):
            y = g.body_op("remat", lambda y: block(g, y, w, b)[:1], [x], save=save)
            return g.body_op("remat", lambda y: block(g, y, w, b)[:1], y, save=save)
        add_grad(f"remat twice {save}", ["remat"], twice, inputs, family="remat")

        def inside(g, x, w, b, save=save):
            return g.body_op("remat", lambda y: g.body_op(
                "remat", lambda z: block(g, z, w, b)[:1], [g.sin(y)], save=save), [x], save="all")
        add_grad(f"remat inside remat {save}", ["remat"], inside, inputs, family="remat")

    for save in ("marked", "loops"):
        def scan_inside(g, c, xs, w, save=save):
            def body(c, xs):
                last, ys = g.scan(cell(g, w), [c], [xs], checkpoint=(2,))
                return last + ys
            return g.body_op("remat", body, [c, xs], save=save)
        add_grad(f"scan inside remat {save}", ["remat"], scan_inside,
                 [rows(rng, N), rows(rng, T, N), rows(rng, N, N)], family="remat")

    def unused(g, x, y):
        return g.body_op("remat", lambda a, b: [g.sin(a), g.cos(b)], [x, y], save="all")[:1]
    add_grad("remat with an unused result", ["remat"], unused, [rows(rng, N), rows(rng, N)], family="remat")

    def gradient_inside(g, x):
        def body(y):
            loss = g.sum(g.sin(y) * y, dims=[0])
            return g.grad(loss, [y])
        return g.body_op("remat", body, [x], save="all")
    add_grad("gradient inside remat", [], gradient_inside, [rows(rng, N)], family="remat")


def branches():
    rng = rng_for("branches")
    for truth in (True, False):
        def build(g, p, x, y):
            return g.choose("if", p, [lambda: [g.sin(x) * y, g.sum(x, dims=[0])],
                                      lambda: [g.exp(y), g.sum(x * x, dims=[0])]])
        add_grad(f"if {truth}", ["case"], build, [np.array(truth), rows(rng, N), rows(rng, N)],
                 family="branches")
    for index in (0, 1, 2, 3, 9):
        def pick(g, i, x, y):
            return g.choose("case", i, [lambda: g.sin(x), lambda: g.tanh(y) * x, lambda: x,
                                        lambda: g.constant(np.ones(N))])
        add_grad(f"case {index}", ["case"], pick, [np.array(index, np.int32), rows(rng, N), rows(rng, N)],
                 family="branches")

    def inside(g, p, q, x):
        def outer():
            return g.choose("if", q, [lambda: g.sin(x) * x, lambda: g.exp(x)])
        return g.choose("if", p, [outer, lambda: [x * x]])
    for p, q in itertools.product((True, False), repeat=2):
        add_grad(f"if inside if {p} {q}", ["case"], inside, [np.array(p), np.array(q), rows(rng, N)],
                 family="branches")

    def scan_inside(g, p, c, xs, w):
        def on_true():
            last, ys = g.scan(cell(g, w), [c], [xs], checkpoint=(2,))
            return [last[0]]
        return g.choose("if", p, [on_true, lambda: [c * 2.0]])
    for p in (True, False):
        add_grad(f"scan inside if {p}", ["case"], scan_inside,
                 [np.array(p), rows(rng, N), rows(rng, T, N), rows(rng, N, N)], family="branches")

    def gradient_inside(g, p, x):
        def on_true():
            return g.grad(g.sum(g.sin(x) * x, dims=[0]), [x])
        return g.choose("if", p, [on_true, lambda: [x * x]])
    add_grad("gradient inside if", [], gradient_inside, [np.array(True), rows(rng, N)],
             family="branches")


def calls():
    rng = rng_for("calls")
    for op in ("call", "composite"):
        def block(g, x, w):
            return [g.tanh(x * w), g.sum(x, dims=[0])]

        def build(g, x, w, op=op):
            y = g.body_op(op, lambda a, b: block(g, a, b), [x, w], name="ttt.block")
            z = g.body_op(op, lambda a, b: block(g, a, b), [y[0], w], name="ttt.block")
            return y + z
        add_grad(op, ["call"], build, [rows(rng, N), rows(rng, N)], family="calls")

        def captured(g, x, w, op=op):
            y = g.body_op(op, lambda a: block(g, a, w), [x], name="ttt.block")
            # The same name, another body.
            z = g.body_op(op, lambda a: g.sin(a) * w, [y[0]], name="ttt.block")
            return y + z
        add_grad(f"{op} with captured", ["call"], captured, [rows(rng, N), rows(rng, N)], family="calls")

        def nested(g, x, w, op=op):
            return g.body_op(op, lambda a: g.body_op("call", lambda b: g.sin(b) * w, [a * w], name="inner"),
                             [x], name="ttt.outer")
        add_grad(f"{op} inside {op}", ["call"], nested, [rows(rng, N), rows(rng, N)], family="calls")

        def in_scan(g, c, xs, w, op=op):
            def body(s, carry, x):
                return g.body_op(op, lambda a, b: [g.tanh(a * w + b)], [carry[0], x[0]], name="ttt.step"), []
            return g.scan(body, [c], [xs], checkpoint=(2,))[0]
        add_grad(f"{op} in a scan", ["call"], in_scan, [rows(rng, N), rows(rng, T, N), rows(rng, N)],
                 family="calls")


def rules():
    rng = rng_for("rules")

    def honest(g, x):
        """The right gradient by another formula."""
        return g.custom_vjp(lambda a: g.log1p(g.exp(a)), lambda a, y, d: d * g.logistic(a), [x])
    add_grad("custom_vjp", ["custom_vjp"], honest, [rows(rng, N)], family="rules")

    def wrong(g, x, y):
        """A rule is believed, whatever it says."""
        z = g.custom_vjp(lambda a, b: [a * b, a + b], lambda a, b, p, q, d, e: [d * 7.0 + e, None], [x, y])
        return [z[0] * z[1]]
    add_grad("custom_vjp that lies", ["custom_vjp"], wrong, [rows(rng, N), rows(rng, N)], family="rules",
             differences=False, second=False)

    def one_output(g, x, y):
        z = g.custom_vjp(lambda a, b: [a * b, g.sin(a)],
                         lambda a, b, p, q, d, e: [d * b + e * g.cos(a), d * a], [x, y])
        return [g.tanh(z[0])]
    add_grad("custom_vjp with an unused output", ["custom_vjp"], one_output, [rows(rng, N), rows(rng, N)],
             family="rules")

    def by_vjp(g, x):
        """A rule that asks for a gradient itself, of values in the middle of the graph."""
        h = g.sin(x)
        k = g.exp(h) * x

        def rule(a, y, d):
            again = g.tanh(a) * a
            return g.vjp([again], [d], [a])
        y = g.custom_vjp(lambda a: g.tanh(a) * a, rule, [h])
        return [y[0] * k, g.cos(k)]
    add_grad("custom_vjp by vjp", ["custom_vjp"], by_vjp, [rows(rng, N)], family="rules")

    def in_scan(g, c, xs):
        def body(s, carry, x):
            h = g.custom_vjp(lambda a, b: g.log1p(g.exp(a * b)),
                             lambda a, b, y, d: [d * b * g.logistic(a * b), d * a * g.logistic(a * b)],
                             [carry[0], x[0]])
            return [g.sin(h[0])], [h[0]]
        last, ys = g.scan(body, [c], [xs], checkpoint=(2,))
        return last + ys
    add_grad("custom_vjp in a scan", ["custom_vjp"], in_scan, [rows(rng, N), rows(rng, T, N)],
             family="rules")

    def mixed(g, x, i):
        z = g.custom_vjp(lambda a, k: a * g.convert(k, type="f64"),
                         lambda a, k, y, d: [d * g.convert(k, type="f64"), None], [x, i])
        return z
    add_grad("custom_vjp with integers", ["custom_vjp"], mixed, [rows(rng, N), np.array([1, 2, 3], np.int32)],
             family="rules")


def loops():
    rng = rng_for("loops")

    def powers(g, x, w, limit):
        def condition(i, a, b):
            return g.compare(i, limit, kind="lt")

        def body(i, a, b):
            return [g.add(i, g.scalar_int(type="i32", value=1)), a * w, b + a]
        zero = g.scalar_int(type="i32", value=0)
        return g.loop(condition, body, [zero, x, x])
    for limit in (0, 1, 6):
        add(f"while {limit}", ["while"], powers, [rows(rng, N), rows(rng, N), np.array(limit, np.int32)],
            family="loops", judges=("jax",))

    def nested(g, x, w):
        def condition(a):
            return g.compare(g.sum(a, dims=[0]), g.scalar(type="f64", value=50.0), kind="lt")

        def body(a):
            inner = g.loop(lambda i, b: g.compare(i, g.scalar_int(type="i32", value=3), kind="lt"),
                           lambda i, b: [g.add(i, g.scalar_int(type="i32", value=1)), b * w],
                           [g.scalar_int(type="i32", value=0), a])
            return [inner[1]]
        return g.loop(condition, body, [x])
    add("while inside while", ["while"], nested, [np.ones(N), np.full(N, 1.3)], family="loops",
        judges=("jax",))


def middles():
    """Where gradients start and end."""
    rng = rng_for("middles")
    x, y = rows(rng, N), rows(rng, N)

    def case(name, build, inputs, n=None):
        add(name, [], build, inputs, family="middles", judges=("jax",), tolerance=1e-12)

    def by_middle(g, x, y):
        h = g.sin(x) * y
        k = g.exp(h)
        loss = g.sum(k * h + x, dims=[0])
        return g.grad(loss, [h, k, x, y, h])
    case("gradients by values in the middle", by_middle, [x, y])

    def unused(g, x, y):
        return g.grad(g.sum(x, dims=[0]), [y, x])
    case("gradient by what is not used", unused, [x, y])

    def itself(g, x, y):
        loss = g.sum(x * y, dims=[0])
        return g.grad(loss, [loss, x])
    case("gradient by the loss itself", itself, [x, y])

    def several(g, x, y, d):
        a, b, c = g.sin(x), x * y, g.exp(y)
        return g.vjp([a, b, c, a], [d, None, d * d, x], [x, y])
    case("vjp of several outputs", several, [x, y, rows(rng, N)])

    def constant(g, x, y):
        return g.vjp([g.constant(np.ones(N)) * y], [x], [x, y])
    case("vjp of a constant", constant, [x, y])

    def third(g, x, y):
        f = g.sum(g.sin(x * y) * g.exp(x), dims=[0])
        for _ in range(3):
            d = g.grad(f, [x])[0]
            f = g.sum(d * d, dims=[0])
        return [f, *g.grad(f, [x, y])]
    case("fourth derivatives", third, [x, y])

    def stopped(g, x, y):
        loss = g.sum(g.stop_gradient(x * y) * g.sin(x) * y, dims=[0])
        d = g.grad(loss, [x, y])
        return d + g.grad(g.sum(d[0] * d[1], dims=[0]), [x, y])
    case("stop_gradient twice over", stopped, [x, y])

    def descent(g, w, x, y):
        """An inner step, then the gradient of what follows by all that went in: no scan."""
        def loss(w):
            e = g.tanh(g.matmul(x, w)) - y
            return g.sum(e * e, dims=[0, 1])
        for _ in range(3):
            w = w - g.grad(loss(w), [w])[0] * 0.1
        return [w]
    add_grad("inner descent, unrolled", [], descent, [rows(rng, N, 2), rows(rng, 4, N), rows(rng, 4, 2)],
             family="middles")

    def in_body(g, x, w):
        """A gradient inside a scan by what was captured from outside."""
        def body(s, carry, xs):
            loss = g.sum(g.sin(carry[0] * w) * xs[0], dims=[0])
            d = g.grad(loss, [w, carry[0]])
            return [carry[0] - d[1]], [d[0]]
        last, ys = g.scan(body, [g.cos(w)], [x], checkpoint=(2,))
        return last + ys
    add_grad("gradient by a captured value", [], in_body, [rows(rng, T, N), rows(rng, N)], family="middles")


def all_cases():
    CASES.clear()
    for part in (scans, odd_scans, learners, remats, branches, calls, rules, loops, middles):
        part()
    return list(CASES)
