"""Cases of single operations: forwards in many types and shapes, backwards in f64.

A case is a function that adds to a graph and returns the values to look at. `add` makes it a forward
case, `add_grad` one whose gradients are looked at too, by JAX and by finite differences, and second
derivatives as well for what is smooth. Every case names the operation of hlo_builder's table that
it covers.
"""

import itertools
import zlib

import ml_dtypes
import numpy as np

from neutral import DTYPES, FLOATS, Graph

INTS = ("i64", "i32", "ui64", "ui32", "ui16", "ui8")


class Case:
    def __init__(self, name, graph, covers, kind, tolerance, family):
        self.name, self.graph, self.covers = name, graph, covers
        self.kind = kind  # "forward" or "gradient"
        self.tolerance, self.family = tolerance, family
        self.slopes = []  # results that the finite differences are to equal, in their order
        self.judges = ("jax", "numpy")
        self.expected = None  # results by hand, where the judges do not know
        self.alone = bool(set(graph.document) - {"name", "params", "nodes", "results"})


CASES = []

# How far results of a type may be off, relative to the largest number of the array. Observed on
# XLA:CPU: f64 2e-16, f32 2e-7, bf16 6e-3 and f16 9e-4 (one unit in the last place).
TOLERANCE = {"f64": 1e-13, "f32": 4e-6, "bf16": 2e-2, "f16": 4e-3}


def rng_for(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def array(rng, type, shape, low=-2.0, high=2.0):
    """Random numbers of a type; integers have the low and high of the floats, rounded."""
    if type == "i1":
        return rng.random(shape) < 0.5
    x = rng.uniform(low, high, shape)
    if type in INTS:
        low, high = int(max(low, 0) if type.startswith("u") else low), int(high)
        return rng.integers(low, high + 1, shape).astype(DTYPES[type])
    return np.asarray(x).astype(DTYPES[type])


def spaced(rng, shape, low=0.3, high=2.0):
    """Different numbers, none near another: what depends on their order has a derivative."""
    n = int(np.prod(shape))
    return rng.permutation(np.linspace(low, high, max(n, 1))[:n]).reshape(shape)


def add(name, covers, build, inputs, family="forward", tolerance=None, judges=("numpy",),
        **options):
    """inputs: arrays. `build(g, *params)` returns a value or a list of them."""
    g = Graph(**options)
    out = build(g, *[g.param(a) for a in inputs])
    g.result(*(out if isinstance(out, (list, tuple)) else [out]))
    case = Case(name, g, covers, "forward", tolerance, family)
    case.judges = judges
    CASES.append(case)


def add_grad(name, covers, build, inputs, wrt=None, second=True, differences=True,
             family="gradient", tolerance=1e-12, float_outputs=None, **options):
    """Gradients of a random weighted sum of the float outputs by the f64 inputs (or by `wrt`)."""
    g = Graph(**options)
    rng = rng_for(name)
    inputs = [np.asarray(a) for a in inputs]
    params = [g.param(a) for a in inputs]
    out = build(g, *params)
    out = list(out) if isinstance(out, (list, tuple)) else [out]
    g.result(*out)
    if wrt is None:
        wrt = [i for i, a in enumerate(inputs) if a.dtype == np.float64]
    shapes = [np.shape(a) for a in shapes_of(g, len(out))]
    floats = [i for i in range(len(out)) if float_outputs is None or i in float_outputs]

    def weighted(values, shapes):
        total = None
        for v, shape in zip(values, shapes):
            weight = g.param(rng.uniform(0.5, 1.5, shape))
            term = g.sum(v * weight, dims=list(range(len(shape))))
            total = term if total is None else total + term
        return total

    case = Case(name, g, covers, "gradient", tolerance, family)
    loss = weighted([out[i] for i in floats], [shapes[i] for i in floats])
    grads = g.grad(loss, [params[i] for i in wrt])
    at = len(g.document["results"])
    g.result(loss, *grads)
    scalars = [at]
    case.slopes = list(range(at + 1, at + 1 + len(wrt)))
    if second:
        slope = weighted(grads, [inputs[i].shape for i in wrt])
        bends = g.grad(slope, [params[i] for i in wrt])
        at = len(g.document["results"])
        g.result(slope, *bends)
        scalars.append(at)
        case.slopes += range(at + 1, at + 1 + len(wrt))
    if differences:
        g.finite_differences(scalars, wrt)
    CASES.append(case)


def shapes_of(g, n):
    """Shapes of the first n results, from JAX's shape inference."""
    import jax
    from reference import jax_function
    return jax.eval_shape(jax_function(g), *g.inputs)[:n]


# ---- elementwise ---------------------------------------------------------------------------------

SPELLING = {
    "neg": "negate", "exp": "exponential", "expm1": "exponential_minus_one", "log1p": "log_plus_one",
    "sin": "sine", "cos": "cosine", "sub": "subtract", "mul": "multiply", "div": "divide",
    "rem": "remainder", "pow": "power", "max": "maximum", "min": "minimum",
    "shift_right": "shift_right_logical",
}
UNARY = {  # domain of the inputs
    "neg": (-2, 2), "abs": (-2, 2), "sign": (-2, 2), "floor": (-3, 3), "ceil": (-3, 3),
    "exp": (-2, 2), "expm1": (-2, 2), "log": (0.2, 3), "log1p": (-0.7, 3), "tanh": (-2, 2),
    "logistic": (-3, 3), "sqrt": (0.2, 3), "rsqrt": (0.2, 3), "sin": (-3, 3), "cos": (-3, 3),
    "erf": (-2, 2),
}
BINARY = {
    "add": ((-2, 2), (-2, 2)), "sub": ((-2, 2), (-2, 2)), "mul": ((-2, 2), (-2, 2)),
    "div": ((-2, 2), (0.5, 2)), "rem": ((-5, 5), (0.7, 2)), "pow": ((0.3, 2), (-2, 2)),
    "max": ((-2, 2), (-2, 2)), "min": ((-2, 2), (-2, 2)),
}
FLAT = ("sign", "floor", "ceil")
SHAPES = [((3, 4), (3, 4)), ((3, 1), (4,)), ((), (2, 3)), ((2, 3), ()), ((0, 3), (3,)), ((), ())]


def one(op, **attrs):
    return lambda g, *x: getattr(g, op)(*x, **attrs)


def elementwise():
    for op, domain in UNARY.items():
        spelling = SPELLING.get(op, op)
        rng = rng_for(op)
        for shape in ((3, 4), (), (0, 3)):
            add_grad(f"{op}{list(shape)}", [spelling], one(op), [array(rng, "f64", shape, *domain)],
                     second=op not in FLAT)
        for type in FLOATS[1:]:
            add(f"{op} {type}", [spelling], one(op), [array(rng, type, (5, 7), *domain)])
    for op in ("neg", "abs", "sign"):
        for type in ("i64", "i32"):
            add(f"{op} {type}", [SPELLING.get(op, op)], one(op), [array(rng, type, (9,), -5, 5)])
    for type in (*INTS, "i1"):
        add(f"not {type}", ["not"], one("not"), [array(rng, type, (7,), 0, 100)])
    for op, (left, right) in BINARY.items():
        spelling = SPELLING.get(op, op)
        rng = rng_for(op)
        for a, b in SHAPES:
            x, y = array(rng, "f64", a, *left), array(rng, "f64", b, *right)
            if op == "rem":  # not where it jumps
                x = np.floor(x) + 0.5
                y = np.full(b, 2.0)
            add_grad(f"{op}{list(a)}{list(b)}", [spelling], one(op), [x, y],
                     second=op not in ("max", "min", "rem"))
        for type in FLOATS[1:]:
            add(f"{op} {type}", [spelling], one(op),
                [array(rng, type, (4, 5), *left), array(rng, type, (5,), *right)])
        for type in INTS:
            high = 3 if op == "pow" else 9
            add(f"{op} {type}", [spelling], one(op),
                [array(rng, type, (6, 4), -9 if op != "pow" else 0, high),
                 array(rng, type, (6, 4), 1, high)])
    for op in ("div", "rem"):  # corners of integer division
        for type in ("i32", "i64"):
            least = np.iinfo(DTYPES[type]).min
            add(f"{op} corners {type}", [SPELLING[op]], one(op),
                [np.array([least, least, 7, -7, 0, 5, -5], DTYPES[type]),
                 np.array([-1, 3, 0, 0, 0, -3, 3], DTYPES[type])])
    for op in ("and", "or", "xor"):
        for type in (*INTS, "i1"):
            add(f"{op} {type}", [op], one(op),
                [array(rng, type, (8,), 0, 100), array(rng, type, (2, 1), 0, 100)])
    for op in ("shift_left", "shift_right"):
        for type in INTS:
            x = array(rng, type, (40,), 0, 120)
            x = -x if type in ("i32", "i64") else x
            add(f"{op} {type}", [SPELLING.get(op, op)], one(op),
                [x, np.arange(40).astype(DTYPES[type]) * 2])


def corners():
    """Where there is no derivative, or a formula could give NaN: as JAX has it."""
    def nd(name, covers, build, inputs, **more):
        add_grad("corner " + name, covers, build, inputs, second=False, differences=False,
                 family="corner", **more)

    tie = np.array([1.0, -1.0, 0.0, 2.0]), np.array([1.0, 3.0, 0.0, -2.0])
    nd("max ties", ["maximum"], one("max"), tie)
    nd("min ties", ["minimum"], one("min"), tie)
    nd("abs at 0", ["abs"], one("abs"), [np.array([0.0, -1.0, 1.0])])
    nd("clamp ends", ["clamp"], one("clamp"),
       [np.full(5, -1.0), np.array([-1.0, -2.0, 0.0, 1.0, 3.0]), np.full(5, 1.0)])
    nd("reduce max ties", ["reduce"], one("reduce", kind="max", dims=[1]),
       [np.array([[1.0, 3.0, 3.0], [2.0, 2.0, 2.0]])])
    nd("reduce min ties", ["reduce"], one("reduce", kind="min", dims=[0]),
       [np.array([[1.0, 3.0, 3.0], [1.0, 2.0, 3.0]])])
    nd("product with zeros", ["reduce"], one("reduce", kind="mul", dims=[1]),
       [np.array([[1.0, 0.0, 3.0], [0.0, 0.0, 2.0], [1.5, 2.0, 2.5]])])
    for p in (0.0, 1.0, 2.0, 3.0, 0.5, -1.0):
        nd(f"power {p}", ["power"] if p not in (0.0, 1.0) else [],
           lambda g, x, p=p: g.pow(x, g.like(x, value=p)), [np.array([0.7, 1.0, 2.5])])
    nd("square of 0 and below", ["power"], lambda g, x: g.pow(x, g.like(x, value=2.0)),
       [np.array([0.0, -1.5, 2.0])])
    nd("power by exponent at 0", ["power"], lambda g, a, b: g.pow(a, b),
       [np.array([0.0, 1.0, 2.0]), np.array([2.0, 0.0, 1.0])], wrt=[1])
    nd("power by base at exponent 0", ["power"], lambda g, a, b: g.pow(a, b),
       [np.array([0.0, 1.0, 2.0]), np.array([0.0, 0.0, 0.0])], wrt=[0])
    nd("remainder of negatives", ["remainder"], one("rem"),
       [np.array([-5.3, 5.3, -0.2]), np.array([2.0, -2.0, 1.0])])
    special = np.array([np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0])
    for op in ("max", "min", "add", "mul", "div"):
        add(f"special {op}", [SPELLING.get(op, op)], one(op), [special[:, None], special[None, :]])
    for op in ("sign", "abs", "exp", "tanh", "sqrt", "log"):
        add(f"special {op}", [SPELLING.get(op, op)], one(op), [special])
    add("argmax with NaN", ["reduce"], one("argmax", dim=0), [np.array([1.0, np.nan, 3.0, np.nan])])
    add("reduce max with NaN", ["reduce"], one("reduce", kind="max", dims=[0]),
        [np.array([1.0, np.nan, 3.0])])


def choosing():
    rng = rng_for("choosing")
    for type in DTYPES:
        a, b = array(rng, type, (4, 5), 0, 3), array(rng, type, (5,), 0, 3)
        if type in FLOATS:
            a[0, 0] = np.nan
        add(f"compare {type}", ["compare"],
            lambda g, x, y: [g.compare(x, y, kind=k) for k in ("eq", "ne", "lt", "le", "gt", "ge")],
            [a, b])
        add(f"select {type}", ["select"], one("select"),
            [rng.random((4, 1)) < 0.5, array(rng, type, (4, 5), 0, 5), array(rng, type, (5,), 0, 5)])
        if type != "i1":
            add(f"clamp {type}", ["clamp"], one("clamp"),
                [array(rng, type, (), 1, 1), array(rng, type, (3, 4), 0, 6),
                 array(rng, type, (4,), 3, 4)])
    x, y = array(rng, "f64", (3, 4)), array(rng, "f64", (4,))
    add_grad("select", ["select"], one("select"), [rng.random((3, 4)) < 0.5, x, y])
    add_grad("select of scalars", ["select"], one("select"),
             [rng.random((3, 4)) < 0.5, array(rng, "f64", ()), array(rng, "f64", ())])
    add_grad("clamp", ["clamp"], one("clamp"), [np.array(-0.5), x, np.array([0.1, 0.9, 0.4, 0.6])],
             second=False)
    # All types into all others; negative floats do not go into unsigned ones.
    names = list(DTYPES)
    add("convert", ["convert"],
        lambda g, *p: [g.convert(v, type=t) for v in p for t in names],
        [array(rng, t, (6,), 0, 9) for t in names])
    add("convert towards zero", ["convert"],
        lambda g, x: [g.convert(x, type=t) for t in ("i32", "i64", "f32", "bf16", "f16", "i1")],
        [np.array([-2.7, -0.5, 0.0, 0.5, 2.7, 1000.3])])
    add_grad("convert f64 f32 f64", ["convert"],
             lambda g, x: g.convert(g.convert(x, type="f32"), type="f64"),
             [array(rng, "f64", (5,))], second=False, differences=False, tolerance=1e-6,
             family="short types")
    same = [("f64", "i64", "ui64"), ("f32", "i32", "ui32"), ("bf16", "f16", "ui16")]
    for group in same:
        for a, b in itertools.permutations(group, 2):
            add(f"bitcast {a} {b}", ["bitcast_convert"], one("bitcast", type=b),
                [array(rng, a, (3, 2), 1, 90)])


def constants():
    rng = rng_for("constants")
    p = [np.zeros((), np.float32)]
    for type in DTYPES:
        if type != "i1":
            add(f"iota {type}", ["iota"],
                lambda g, _, t=type: [g.iota(type=t, dims=[4, 5], dim=d) for d in (0, 1)], p)
        values = array(rng, type, (3, 5), 0, 100)
        if type in FLOATS:
            values = values - values[:1] * 3
            values[0] = [np.nan, np.inf, -np.inf, -0.0, ml_dtypes.finfo(DTYPES[type]).max]
        elif type == "i1":
            values[0] = [True, False, True, False, True]
        else:
            info = np.iinfo(DTYPES[type])
            values[0] = [info.min, info.max, 0, 1, info.max - 1]
        values = values.astype(DTYPES[type])
        add(f"constant {type}", ["constant"],
            lambda g, _, v=values: [g.constant(v), g.constant(v[:0]), g.constant(v[1, 1]),
                                    g.constant(np.broadcast_to(v[1, 2], (2, 2)))], p)
        add(f"full {type}", ["constant"],
            lambda g, x, t=type: [g.scalar(type=t, value=1), g.scalar_int(type=t, value=1),
                                  g.full(type=t, dims=[2, 3], value=1),
                                  g.full(type=t, dims=[0], value=0),
                                  g.zeros_like(g.convert(x, type=t))], p)
    for value in (1 / 3, 1e-300, 1e300, "inf", "-inf", "nan", -0.0, 5e-324, 0.1):
        add(f"scalar {value}", ["constant"],
            lambda g, _, v=value: [g.scalar(type="f64", value=v), g.scalar(type="f32", value=v)], p)
    for value in (2**63 - 1, -2**63, 2**53 + 1):
        add(f"scalar_int {value}", ["constant"],
            lambda g, _, v=value: g.scalar_int(type="i64", value=v), p)
    # What is folded here must be what XLA would compute.
    def folded(g, x):
        out = []
        for op, (low, high) in UNARY.items():
            for t in ("f64", "f32", "bf16"):
                v = round((low + 2 * high) / 3, 3)
                c = g.scalar(type=t, value=v)
                out += [getattr(g, op)(c)]
        for op in BINARY:
            for t in ("f64", "f32", "bf16", "i32"):
                out += [getattr(g, op)(g.scalar(type=t, value=7), g.scalar(type=t, value=2))]
        out += [g.convert(g.scalar(type="f64", value=2.7), type=t) for t in DTYPES]
        return out
    add("folding", [], folded, p)


# ---- shape ---------------------------------------------------------------------------------------

def shapes():
    rng = rng_for("shapes")
    x = array(rng, "f64", (2, 3, 4))
    empty = np.zeros((0, 3))

    def both(name, covers, build, inputs, types=("bf16", "i32", "i1", "ui8"), **more):
        add_grad(name, covers, build, inputs, **more)
        for t in types:
            add(f"{name} {t}", covers, build,
                [array(rng, t, np.shape(a), 0, 5) if np.asarray(a).dtype == np.float64 else a
                 for a in inputs])

    both("broadcast", ["broadcast_in_dim"], one("broadcast", result=[5, 2, 3, 4], dims=[1, 2, 3]), [x])
    both("broadcast ones", ["broadcast_in_dim"], one("broadcast", result=[4, 3, 2], dims=[2, 1]),
         [array(rng, "f64", (2, 1))])
    both("broadcast scalar", ["broadcast_in_dim"], one("broadcast", result=[2, 3], dims=[]),
         [array(rng, "f64", ())])
    both("broadcast_to", ["broadcast_in_dim"], one("broadcast_to", result=[2, 4, 3]),
         [array(rng, "f64", (4, 1))])
    both("broadcast to empty", ["broadcast_in_dim"], one("broadcast_to", result=[0, 3]),
         [array(rng, "f64", (3,))])
    both("reshape", ["reshape"], one("reshape", dims=[4, 6]), [x])
    both("reshape guess", ["reshape"], one("reshape", dims=[3, -1, 2]), [x])
    both("reshape scalar", ["reshape"], one("reshape", dims=[1, 1]), [array(rng, "f64", ())])
    both("reshape empty", ["reshape"], one("reshape", dims=[3, 0, 2]), [empty])
    both("transpose", ["transpose"], one("transpose", dims=[2, 0, 1]), [x])
    both("transpose empty", ["transpose"], one("transpose", dims=[1, 0]), [empty])
    both("reverse", ["reverse"], one("reverse", dims=[0, 2]), [x])
    both("slice", ["slice"], one("slice", start=[0, 1, 0], limit=[2, 3, 4], stride=[1, 2, 3]), [x])
    both("slice to nothing", ["slice"], one("slice", start=[1, 1], limit=[1, 3], stride=[1, 1]),
         [array(rng, "f64", (2, 3))])
    both("slice_dim", ["slice"], one("slice_dim", dim=-1, start=-3, limit=-1), [x])
    both("shift later", ["pad"], one("shift", dim=1, by=2), [x])
    both("shift earlier", ["pad"], one("shift", dim=0, by=-1), [x])
    for starts in ((0, 1, 2), (-5, 1, 9), (1, 2, 3)):  # clamped
        at = [np.array(s, np.int32) for s in starts]
        both(f"dynamic_slice {starts}", ["dynamic_slice"], one("dynamic_slice", sizes=[1, 2, 3]),
             [x, *at])
        both(f"dynamic_update {starts}", ["dynamic_update_slice"], one("dynamic_update"),
             [x, array(rng, "f64", (1, 2, 3)), *at])
    for type in ("i64", "ui32", "ui8"):
        add_grad(f"dynamic_slice by {type}", ["dynamic_slice"], one("dynamic_slice", sizes=[2, 2]),
                 [array(rng, "f64", (3, 5)), *[np.array(s, DTYPES[type]) for s in (2, 1)]])
    for i in (0, 2, 7, -1):
        both(f"index {i}", ["dynamic_slice"], one("index", dim=1), [x, np.array(i, np.int32)])
        both(f"update_index {i}", ["dynamic_update_slice"], one("update_index", dim=1),
             [x, np.array(i, np.int32), array(rng, "f64", (2, 4))])
    for low, high, interior in ((1, 2, 0), (-1, 1, 0), (0, -2, 0), (1, 1, 2), (-2, -1, 1), (0, 0, 0),
                                (-1, -1, 2)):
        pads = {"low": [low, 0], "high": [high, 1], "interior": [interior, 0]}
        both(f"pad {low} {high} {interior}", ["pad"] if (low, high, interior) != (0, 0, 0) else ["pad"],
             one("pad", **pads), [array(rng, "f64", (4, 3)), array(rng, "f64", ())])
    both("pad empty", ["pad"], one("pad", low=[1, 0], high=[1, 0], interior=[1, 0]),
         [empty, array(rng, "f64", ())])
    both("concat", ["concatenate"], one("concat", dim=1),
         [array(rng, "f64", (2, n, 3)) for n in (1, 3, 0, 2)])
    both("concat of one", [], one("concat", dim=-1), [array(rng, "f64", (2, 3))])
    both("concat of itself", ["concatenate"], lambda g, a: g.concat(a, a, dim=0),
         [array(rng, "f64", (2, 3))])
    for dim in (0, 1, 2):
        both(f"stack {dim}", ["concatenate"], one("stack", dim=dim),
             [array(rng, "f64", (2, 3)) for _ in range(3)])


# ---- reductions ----------------------------------------------------------------------------------

def reductions():
    rng = rng_for("reductions")
    for kind in ("add", "mul", "max", "min"):
        for shape, dims in (((2, 3, 4), [1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [0, 1, 2]), ((5,), [0]),
                            ((3, 2), [-1])):
            add_grad(f"reduce {kind} {list(shape)} {dims}", ["reduce"], one("reduce", kind=kind, dims=dims),
                     [spaced(rng, shape)], second=kind in ("add", "mul"))
        add_grad(f"reduce {kind} of nothing", [], one("reduce", kind=kind, dims=[]),
                 [array(rng, "f64", (2, 2))], second=False)
        add(f"reduce {kind} empty", ["reduce"], one("reduce", kind=kind, dims=[0]), [np.zeros((0, 3))])
        add_grad(f"reduce {kind} of no rows", ["reduce"], one("reduce", kind=kind, dims=[1]),
                 [np.zeros((0, 3))], second=False, differences=False)
        for type in (*FLOATS[1:], *INTS):
            add(f"reduce {kind} {type}", ["reduce"], one("reduce", kind=kind, dims=[0]),
                [array(rng, type, (6, 4), 0.5 if type in FLOATS else 0, 2)])
        add_grad(f"reduce_keep {kind}", ["reduce"], one("reduce_keep", kind=kind, dims=[-1, 0]),
                 [spaced(rng, (2, 3, 4))], second=kind == "mul")
    for kind in ("and", "or"):
        for type in (*INTS, "i1"):
            add(f"reduce {kind} {type}", ["reduce"], one("reduce", kind=kind, dims=[1]),
                [array(rng, type, (5, 3), 0, 100)])
            add(f"reduce {kind} {type} empty", ["reduce"], one("reduce", kind=kind, dims=[1]),
                [array(rng, type, (2, 0), 0, 100)])
    add("sum of many bf16", ["reduce"], one("sum", dims=[0]), [np.full((4096, 2), 1.0, DTYPES["bf16"])])
    add("mean of large f16", ["reduce"], one("mean", dims=[0]), [np.full((4096,), 30.0, DTYPES["f16"])])
    add_grad("mean", ["reduce"], one("mean", dims=[0, 2]), [array(rng, "f64", (2, 3, 4))])
    for shape, dim in (((5,), 0), ((2, 7), 1), ((3, 2, 2), 0), ((2, 1), 1), ((0, 2), 0), ((1, 17), -1)):
        add_grad(f"cumsum {list(shape)} {dim}", [], one("cumsum", dim=dim), [array(rng, "f64", shape)])
    for type in (*FLOATS[1:], "i32", "ui8"):
        add(f"cumsum {type}", [], one("cumsum", dim=0), [array(rng, type, (9, 2), 0, 3)])
    for type in ("f64", "f32", "bf16", "i32", "ui8"):
        for dim in (0, -1):
            add(f"argmax {type} {dim}", ["reduce"], one("argmax", dim=dim), [array(rng, type, (5, 7), 0, 3)])


# ---- products ------------------------------------------------------------------------------------

def dots():
    rng = rng_for("dots")
    forms = [  # shapes, batch, contracting
        ((3, 4), (4, 5), [], [], [1], [0]),
        ((4,), (4,), [], [], [0], [0]),
        ((3,), (2,), [], [], [], []),
        ((2, 3, 4), (2, 4, 5), [0], [0], [2], [1]),
        ((4, 2, 3), (5, 4, 2), [1], [2], [0], [1]),
        ((2, 3, 4, 5), (3, 5, 2, 6), [0, 1], [2, 0], [3], [1]),
        ((2, 3, 4), (4, 3, 2), [], [], [2, 1], [0, 1]),
        ((2, 3, 4), (3, 2), [0, 1], [1, 0], [], []),
        ((2, 0), (0, 3), [], [], [1], [0]),
        ((0, 2), (2, 3), [], [], [1], [0]),
        ((), (2,), [], [], [], []),
    ]
    for a, b, lb, rb, lc, rc in forms:
        attrs = dict(lhs_batch=lb, rhs_batch=rb, lhs_contract=lc, rhs_contract=rc)
        covers = ["dot_general"]
        add_grad(f"dot {a} {b} {lb}{rb}{lc}{rc}", covers, one("dot", **attrs),
                 [array(rng, "f64", a), array(rng, "f64", b)])
        for type in ("f32", "bf16", "f16", "i32"):
            add(f"dot {a} {b} {lb}{rb}{lc}{rc} {type}", covers, one("dot", **attrs),
                [array(rng, type, a), array(rng, type, b)], judges=("jax",))
    plain = dict(lhs_batch=[], rhs_batch=[], lhs_contract=[1], rhs_contract=[0])
    for type in ("bf16", "f16"):
        add(f"dot {type} to f32", ["dot_general"], one("dot", type="f32", precision=2, **plain),
            [array(rng, type, (3, 64)), array(rng, type, (64, 5))], judges=("jax",))
    # Mixed: bf16 in, f32 out, and the gradients back in bf16.
    def mixed(g, a, b):
        y = g.dot(g.convert(a, type="bf16"), g.convert(b, type="bf16"), type="f32", **plain)
        return g.convert(y, type="f64")
    add_grad("dot bf16 to f32", ["dot_general"], mixed,
             [array(rng, "f64", (3, 8)), array(rng, "f64", (8, 2))], second=False, differences=False,
             tolerance=1e-2, family="short types")
    for a, b in (((3, 4), (4, 5)), ((2, 3, 4), (4, 5)), ((2, 3, 4), (2, 4, 5)),
                 ((2, 2, 3, 4), (2, 2, 4, 1))):
        add_grad(f"matmul {a} {b}", ["dot_general"], one("matmul"),
                 [array(rng, "f64", a), array(rng, "f64", b)])
    for spec, a, b in (
        ("bqhd,bkhd->bhqk", (2, 3, 2, 4), (2, 5, 2, 4)), ("bhqk,bkhd->bqhd", (2, 2, 3, 5), (2, 5, 2, 4)),
        ("ij,jk->ik", (2, 3), (3, 4)), ("ij,jk->ki", (2, 3), (3, 4)), ("i,j->ij", (2,), (3,)),
        ("i,j->ji", (2,), (3,)), ("i,i->", (4,), (4,)), ("bij,bj->bi", (2, 3, 4), (2, 4)),
        ("ij,ij->ij", (2, 3), (2, 3)), ("ij,ji->ji", (2, 3), (3, 2)), ("abc,cb->a", (2, 3, 4), (4, 3))):
        add_grad(f"einsum {spec}", ["dot_general"], one("einsum", spec=spec),
                 [array(rng, "f64", a), array(rng, "f64", b)])
    add("einsum_as", ["dot_general"], one("einsum_as", spec="ij,kj->ik", type="f32", precision=2),
        [array(rng, "bf16", (3, 16)), array(rng, "bf16", (4, 16))], judges=("jax",))
    for shape, kernel, low, high, groups in (
        ((2, 6, 3), (3, 3, 4), 0, 0, 1), ((1, 5, 4), (2, 2, 6), 1, 1, 2), ((2, 5, 3), (3, 1, 3), 2, 0, 3),
        ((2, 5, 3), (3, 1, 6), 2, 0, 3), ((1, 1, 2), (1, 2, 2), 0, 0, 0), ((2, 4, 2), (4, 2, 3), 3, 3, 1),
        ((2, 2, 2), (3, 2, 3), 0, 0, 1), ((0, 4, 2), (2, 2, 3), 0, 0, 1), ((1, 3, 2), (2, 2, 1), 4, 5, 1)):
        empty = shape[0] == 0 or shape[1] + low + high < kernel[0]
        if shape[1] + low + high >= kernel[0]:
            add_grad(f"conv1d {shape} {kernel} {low} {high} {groups}", ["convolution"] if not empty else [],
                     one("conv1d", pad_low=low, pad_high=high, groups=groups),
                     [array(rng, "f64", shape), array(rng, "f64", kernel)])
            add(f"conv1d {shape} {kernel} {low} {high} {groups} f32", ["convolution"] if not empty else [],
                one("conv1d", pad_low=low, pad_high=high, groups=groups),
                [array(rng, "f32", shape), array(rng, "f32", kernel)], judges=("jax",))
    for shape, width in (((2, 6, 3), 4), ((5, 2), 1), ((2, 2, 3), 4), ((1, 2, 3, 2), 2)):
        add_grad(f"causal_conv {shape} {width}", [], one("causal_conv"),
                 [array(rng, "f64", shape), array(rng, "f64", (width, shape[-1]))])
    add("causal_conv bf16", [], one("causal_conv"),
        [array(rng, "bf16", (2, 7, 3)), array(rng, "bf16", (4, 3))], judges=("jax",))


# ---- gather, scatter, sort, random ---------------------------------------------------------------

def gathers():
    rng = rng_for("gathers")

    def dims(offset, collapsed, start_map, ivd, operand_batch=(), indices_batch=()):
        return dict(offset=list(offset), collapsed=list(collapsed), start_map=list(start_map),
                    index_vector_dim=ivd, operand_batch=list(operand_batch),
                    indices_batch=list(indices_batch))

    forms = [  # operand, indices, dims, window, updates' shape
        ((5, 3), np.array([0, 4, 4, 2, 9, -3]), dims([1], [0], [0], 1), [1, 3], (6, 3)),
        ((5, 3), np.array([[0, 1], [4, 2], [3, 7]]), dims([], [0, 1], [0, 1], 1), [1, 1], (3,)),
        ((4, 6), np.array([[1, 2], [3, 5], [-1, 0]]), dims([1, 2], [], [0, 1], 1), [2, 3], (3, 2, 3)),
        ((4, 6), np.array([[1, 3, -1], [2, 5, 0]]), dims([0, 2], [], [0, 1], 0), [2, 3], (2, 3, 3)),
        ((4, 6), np.array([[2, 1], [0, 3]]), dims([2], [0], [1, 0], 1)
         | dict(offset=[1]), [1, 2], (2, 2)),
        ((2, 4, 3), np.array([[1, 3], [0, 2]]), dims([2], [1], [1], 2, [0], [0]), [1, 1, 3], (2, 2, 3)),
        ((3, 4), np.zeros((0,), np.int64), dims([1], [0], [0], 1), [1, 4], (0, 4)),
        ((3, 4), np.array(2), dims([0], [0], [0], 0), [1, 4], (4,)),
        ((7,), np.array([[1], [6], [1]]), dims([1], [], [0], 1), [2], (3, 2)),
    ]
    for n, (shape, indices, d, window, updates) in enumerate(forms):
        covers = ["gather"] if indices.size else []
        for type in ("i32", "i64"):
            i = indices.astype(DTYPES[type])
            add_grad(f"gather {n} {type}", ["gather"], one("gather", window=window, **d),
                     [array(rng, "f64", shape), i])
            add_grad(f"scatter_add {n} {type}", ["scatter"] if indices.size else [], one("scatter_add", **d),
                     [array(rng, "f64", shape), i, array(rng, "f64", updates)])
        for type in ("f32", "bf16", "i32", "ui8"):
            add(f"gather {n} of {type}", covers, one("gather", window=window, **d),
                [array(rng, type, shape, 0, 9), indices.astype(np.int32)], judges=("jax",))
            add(f"scatter_add {n} of {type}", [], one("scatter_add", **d),
                [array(rng, type, shape, 0, 9), indices.astype(np.int32), array(rng, type, updates, 0, 9)],
                judges=("jax",))
    for type in ("i32", "i64", "ui8", "ui32"):
        add_grad(f"take {type}", ["gather"], one("take"),
                 [array(rng, "f64", (5, 2, 2)), array(rng, type, (3, 2), 0, 4)])
    add_grad("take one", ["gather"], one("take"), [array(rng, "f64", (5, 3)), np.array(7, np.int32)])
    add("take bf16 twice", ["gather"], lambda g, t, i: g.take(t, i),
        [array(rng, "bf16", (4, 3)), array(rng, "i32", (2, 5), 0, 3)])
    add_grad("take none", [], one("take"), [array(rng, "f64", (4, 3)), np.zeros((0,), np.int32)])


def sorts():
    rng = rng_for("sorts")
    for descending in (False, True):
        for shape, dim in (((7,), 0), ((3, 5), 1), ((5, 3), 0), ((2, 1, 4), -1), ((0, 2), 0), ((2, 1), 1)):
            add_grad(f"sort {shape} {dim} {descending}", ["sort"],
                     lambda g, x, y, dim=dim, d=descending: g.sort(x, y, dim=dim, descending=d),
                     [spaced(rng, shape), array(rng, "f64", shape)], second=False)
        for type in ("f32", "i32", "i64", "ui8", "bf16"):
            # Few different keys: only a stable sort brings the second array along in order.
            add(f"sort {type} {descending}", ["sort"],
                lambda g, x, y, d=descending: g.sort(x, y, dim=0, descending=d),
                [array(rng, type, (40,), 0, 4), np.arange(40, dtype=np.int32)], judges=("jax",))
        add_grad(f"sort one {descending}", ["sort"],
                 lambda g, x, d=descending: g.sort(x, dim=0, descending=d), [spaced(rng, (6,))],
                 second=False)
    add("sort with NaN", ["sort"], lambda g, x: g.sort(x, dim=0),
        [np.array([3.0, np.nan, -np.inf, np.inf, 1.0, np.nan])], judges=("numpy",))
    for shape, k in (((9,), 3), ((3, 6), 2), ((2, 4), 4), ((2, 4), 0), ((2, 2, 5), 1)):
        add_grad(f"top_k {shape} {k}", ["sort"], lambda g, x, k=k: g.top_k(x, k), [spaced(rng, shape)],
                 second=False, float_outputs=[0])
    for type in ("f32", "bf16", "i32"):
        add(f"top_k {type}", ["sort"], lambda g, x: g.top_k(x, 5), [array(rng, type, (3, 30), 0, 9)],
            judges=("jax",))


def random():
    for type in ("ui64", "ui32", "ui16", "ui8"):
        for shape in ((), (5,), (3, 4), (2, 3, 7)):
            add(f"random_bits {type} {shape}", ["rng_bit_generator"],
                lambda g, s, t=type, d=shape: g.random_bits(s, t, list(d)),
                [np.array([123456789, 2**63 + 5], np.uint64)], judges=("jax",))


def plain():
    """Operations that do nothing but be there."""
    rng = rng_for("plain")
    x = array(rng, "f64", (3, 2))
    add_grad("barrier", ["optimization_barrier"], lambda g, a, b: g.barrier(g.tanh(a), g.sin(b)),
             [x, array(rng, "f64", (4,))])
    add_grad("keep", ["keep"], lambda g, a: g.keep(g.tanh(a)), [x])
    add_grad("row_major", ["row_major"], lambda g, a: g.row_major(g.tanh(a)), [x])
    add("stop_gradient", ["stop_gradient"], one("stop_gradient"), [x])
    add_grad("stop_gradient", ["stop_gradient"], lambda g, a: g.stop_gradient(g.tanh(a)) * a, [x],
             differences=False)
    add_grad("custom_call", ["custom_call"], lambda g, a: g.custom_call(g.tanh(a)), [x])
    add("barrier", ["optimization_barrier"], lambda g, a, b: g.barrier(a, b),
        [x, np.array([1, 2], np.int32)])


def all_cases():
    for part in (elementwise, corners, choosing, constants, shapes, reductions, dots, gathers, sorts,
                 random, plain):
        part()
    return list(CASES)
