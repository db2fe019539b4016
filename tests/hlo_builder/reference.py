"""What a neutral description means, twice: operation by operation in NumPy, and whole in JAX.

NumPy knows the plain operations, forwards only. JAX knows all of them, and gradients: a node "grad"
or "vjp" is answered by running the block again up to that node, with a zero added to each of the
values asked for, and asking JAX for the derivative by these zeros. So gradients by values in the
middle of a graph, and gradients of gradients, mean exactly what hlo.h says they do.
"""

import itertools
import math

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from neutral import DTYPES, FLOATS, decode

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_default_matmul_precision", "highest")

# ---- NumPy ---------------------------------------------------------------------------------------

_erf = np.vectorize(math.erf, otypes=[np.float64])


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _exact(function):
    """Computed in f64 and rounded once to x's type: what short types should come out as."""
    def f(*arrays):
        dtype = arrays[0].dtype
        if dtype in (np.float64, np.int64, np.uint64) or np.issubdtype(dtype, np.integer):
            return function(*arrays)
        return np.asarray(function(*[a.astype(np.float64) for a in arrays])).astype(dtype)
    return f


def _int_div(a, b):
    """Towards zero; x / 0 is -1 (all ones), and the smallest number by -1 is itself, as in XLA."""
    if not np.issubdtype(a.dtype, np.integer):
        return a / b
    out = np.empty(np.broadcast_shapes(a.shape, b.shape), a.dtype)
    a, b = np.broadcast_arrays(a, b)
    bits = np.iinfo(a.dtype)
    for i in np.ndindex(out.shape):
        x, y = int(a[i]), int(b[i])
        q = -1 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        out[i] = np.array(q & ((1 << bits.bits) - 1), np.uint64).astype(a.dtype)
    return out


def _int_rem(a, b):
    if not np.issubdtype(a.dtype, np.integer):
        return np.fmod(a, b)
    a, b = np.broadcast_arrays(a, b)
    out = np.empty(a.shape, a.dtype)
    for i in np.ndindex(out.shape):
        x, y = int(a[i]), int(b[i])
        out[i] = x if y == 0 else int(math.fmod(x, y)) if abs(x) < 2**53 else x - abs(x) // abs(y) * (
            abs(y) if x >= 0 else -abs(y))
    return out


def _shift(function):
    def f(a, b):
        bits = np.iinfo(a.dtype).bits
        unsigned = np.dtype(f"u{a.dtype.itemsize}")
        shifted = function(a.view(unsigned), np.minimum(b.view(unsigned), bits - 1))
        return np.where(b.view(unsigned) < bits, shifted, 0).astype(unsigned).view(a.dtype)
    return f


NUMPY_UNARY = {
    "neg": np.negative, "abs": np.abs, "sign": np.sign, "floor": np.floor, "ceil": np.ceil,
    "exp": np.exp, "expm1": np.expm1, "log": np.log, "log1p": np.log1p, "tanh": np.tanh,
    "logistic": _sigmoid, "sqrt": np.sqrt, "rsqrt": lambda x: 1 / np.sqrt(x), "sin": np.sin,
    "cos": np.cos, "erf": _erf,
}
NUMPY_BINARY = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": _int_div, "rem": _int_rem,
    "pow": np.power, "max": np.maximum, "min": np.minimum,
}
NUMPY_REDUCE = {
    "add": np.sum, "mul": np.prod, "max": np.max, "min": np.min,
    "and": lambda x, axis: np.bitwise_and.reduce(x, axis=axis),
    "or": lambda x, axis: np.bitwise_or.reduce(x, axis=axis),
}
COMPARE = {"eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
           "gt": np.greater, "ge": np.greater_equal}


def _axes(dims, rank):
    return tuple(d % rank for d in dims)


def _neutral(kind, dtype):
    if kind in ("add", "or"):
        return np.zeros((), dtype)
    if kind == "mul":
        return np.ones((), dtype)
    if kind == "and":
        return np.array(True) if dtype == np.bool_ else ~np.zeros((), dtype)
    if np.issubdtype(dtype, np.integer):
        return np.array(np.iinfo(dtype).min if kind == "max" else np.iinfo(dtype).max, dtype)
    return np.array(-np.inf if kind == "max" else np.inf, dtype)


def _np_reduce(x, kind, dims):
    axes = _axes(dims, x.ndim)
    if x.size == 0 or not axes:
        shape = [s for d, s in enumerate(x.shape) if d not in axes]
        return x if not axes else np.full(shape, _neutral(kind, x.dtype))
    if np.issubdtype(x.dtype, np.integer) or x.dtype == np.bool_:
        if kind in ("and", "or"):  # one axis at a time: ufunc.reduce of several is for reorderable
            for axis in sorted(axes, reverse=True):
                x = NUMPY_REDUCE[kind](x, axis)
            return x
        return np.asarray(NUMPY_REDUCE[kind](x, axis=axes)).astype(x.dtype)
    return np.asarray(_exact(lambda a: NUMPY_REDUCE[kind](a, axis=axes))(x))


def _np_pad(x, value, low, high, interior):
    for d, (lo, hi, inner) in enumerate(zip(low, high, interior)):
        size = x.shape[d]
        spread = size + max(size - 1, 0) * inner
        shape = list(x.shape)
        shape[d] = spread
        out = np.full(shape, value)
        at = [slice(None)] * x.ndim
        at[d] = slice(0, spread, inner + 1)
        if size:
            out[tuple(at)] = x
        at[d] = slice(max(-lo, 0), spread - max(-hi, 0))
        out = out[tuple(at)]
        widths = [(0, 0)] * x.ndim
        widths[d] = (max(lo, 0), max(hi, 0))
        x = np.pad(out, widths, constant_values=value)
    return x


def _starts(x, starts, sizes):
    return [int(np.clip(int(s), 0, n - k)) for s, n, k in zip(starts, x.shape, sizes)]


def _np_dynamic_slice(x, *starts, sizes):
    at = _starts(x, starts, sizes)
    return x[tuple(slice(s, s + k) for s, k in zip(at, sizes))]


def _np_dynamic_update(x, update, *starts):
    at = _starts(x, starts, update.shape)
    x = x.copy()
    x[tuple(slice(s, s + k) for s, k in zip(at, update.shape))] = update
    return x


def _np_convert(x, type):
    to = np.dtype(DTYPES[type])
    if to == np.bool_:
        return x != 0
    if np.issubdtype(to, np.integer) and x.dtype.kind not in "iub":
        x = np.trunc(x.astype(np.float64))
    return x.astype(to)


def _np_sort(*arrays, dim, descending):
    key = arrays[0]
    order = np.argsort(-key if descending else key, axis=dim, kind="stable")
    return tuple(np.take_along_axis(a, order, axis=dim) for a in arrays)


def _np_slice_dim(x, dim, start, limit):
    at = [slice(None)] * x.ndim
    size = x.shape[dim]
    at[dim] = slice(start + size if start < 0 else start, limit + size if limit < 0 else limit)
    return x[tuple(at)]


def _np_moved(x, dim, by):
    pad = [(max(by, 0), max(-by, 0)) if d == dim else (0, 0) for d in range(x.ndim)]
    at = [slice(max(-by, 0), max(-by, 0) + x.shape[d]) if d == dim else slice(None) for d in range(x.ndim)]
    return np.pad(x, pad)[tuple(at)]


NUMPY = {
    **{name: _exact(f) for name, f in NUMPY_UNARY.items()},
    **{name: _exact(f) for name, f in NUMPY_BINARY.items()},
    "not": np.invert, "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor,
    "shift_left": _shift(np.left_shift), "shift_right": _shift(np.right_shift),
    "compare": lambda a, b, kind: COMPARE[kind](a, b),
    "select": np.where,
    "clamp": lambda low, x, high: np.minimum(np.maximum(low, x), high),
    "convert": _np_convert,
    "bitcast": lambda x, type: x.view(DTYPES[type]),
    "scalar": lambda type, value: np.array(float(value)).astype(DTYPES[type]),
    "scalar_int": lambda type, value: np.array(value).astype(DTYPES[type]),
    "full": lambda type, dims, value: np.full(dims, float(value)).astype(DTYPES[type]),
    "like": lambda x, value: np.array(float(value)).astype(x.dtype),
    "zeros_like": np.zeros_like,
    "constant": lambda type, dims, data: decode(data, np.empty(dims, DTYPES[type])),
    "iota": lambda type, dims, dim: np.broadcast_to(
        np.arange(dims[dim]).reshape([-1 if d == dim else 1 for d in range(len(dims))]),
        dims).astype(DTYPES[type]),
    "broadcast": lambda x, result, dims: np.broadcast_to(
        x.reshape([x.shape[dims.index(d)] if d in dims else 1 for d in range(len(result))]), result),
    "broadcast_to": lambda x, result: np.broadcast_to(x, result),
    "reshape": lambda x, dims: x.reshape(dims),
    "transpose": lambda x, dims: x.transpose(dims),
    "reverse": lambda x, dims: np.flip(x, tuple(dims)),
    "slice": lambda x, start, limit, stride: x[
        tuple(slice(*s) for s in zip(start, limit, stride))],
    "slice_dim": _np_slice_dim,
    "shift": _np_moved,
    "dynamic_slice": _np_dynamic_slice,
    "dynamic_update": _np_dynamic_update,
    "index": lambda x, i, dim: np.take(x, np.clip(int(i), 0, x.shape[dim] - 1), axis=dim),
    "update_index": lambda x, i, u, dim: np.concatenate(
        [np.expand_dims(u, dim) if k == np.clip(int(i), 0, x.shape[dim] - 1)
         else np.take(x, [k], axis=dim) for k in range(x.shape[dim])], dim),
    "pad": _np_pad,
    "concat": lambda *parts, dim: np.concatenate(parts, dim),
    "stack": lambda *parts, dim: np.stack(parts, dim),
    "reduce": _np_reduce,
    "sum": lambda x, dims: _np_reduce(x, "add", dims),
    "mean": lambda x, dims: np.mean(x, axis=_axes(dims, x.ndim), dtype=np.float64).astype(x.dtype),
    "reduce_keep": lambda x, kind, dims: np.reshape(
        _np_reduce(x, kind, dims),
        [1 if d in _axes(dims, x.ndim) else s for d, s in enumerate(x.shape)]),
    "cumsum": lambda x, dim: np.cumsum(
        x.astype(np.float64) if x.dtype.kind not in "iu" else x, axis=dim).astype(x.dtype),
    "argmax": lambda x, dim: np.argmax(x, axis=dim).astype(np.int32),
    "matmul": np.matmul,
    "take": lambda table, i: table[np.clip(i, 0, table.shape[0] - 1)],
    "sort": _np_sort,
    "top_k": lambda x, k: (
        np.take_along_axis(x, np.argsort(-x, axis=-1, kind="stable")[..., :k], -1),
        np.argsort(-x, axis=-1, kind="stable")[..., :k].astype(np.int32)),
    "einsum": lambda a, b, spec: np.einsum(spec, a, b),
    "barrier": lambda *a: a, "stop_gradient": lambda x: x, "keep": lambda x: x, "row_major": lambda x: x,
    "shard": lambda x, spec: x,
    "custom_call": lambda x: 3 * x,
}


def run_numpy(graph):
    """The results; None for those that come after an operation that NumPy does not know here."""
    env = {p["out"]: a for p, a in zip(graph.document["params"], graph.inputs)}
    with np.errstate(all="ignore"):
        for node in graph.document["nodes"]:
            if node["op"] not in NUMPY or any(i not in env for i in node["in"]):
                continue
            attrs = {k: v for k, v in node.items() if k not in ("op", "in", "out", "scope")}
            out = NUMPY[node["op"]](*[env[i] for i in node["in"]], **attrs)
            out = out if len(node["out"]) > 1 or isinstance(out, tuple) else [out]
            env.update(zip(node["out"], map(np.asarray, out)))
    return [env.get(i) for i in graph.document["results"]]


# ---- JAX -----------------------------------------------------------------------------------------

_PRECISION = {0: None, 1: "high", 2: "highest"}


def _j_unary():
    return {
        "neg": lax.neg, "abs": lax.abs, "sign": lax.sign, "floor": lax.floor, "ceil": lax.ceil,
        "exp": lax.exp, "expm1": lax.expm1, "log": lax.log, "log1p": lax.log1p, "tanh": lax.tanh,
        "logistic": lax.logistic, "sqrt": lax.sqrt, "rsqrt": lax.rsqrt, "sin": lax.sin,
        "cos": lax.cos, "not": lax.bitwise_not, "erf": lax.erf,
        "gelu": lambda x: jax.nn.gelu(x, approximate=True), "silu": jax.nn.silu,
        "stop_gradient": lax.stop_gradient, "keep": lambda x: x, "row_major": lambda x: x, "zeros_like": jnp.zeros_like,
        "custom_call": lambda x: 3 * x,
    }


def _j_broadcasting(f):
    def g(*arrays):
        return f(*jnp.broadcast_arrays(*arrays))
    return g


def _j_binary():
    table = {
        "add": lax.add, "sub": lax.sub, "mul": lax.mul, "div": lax.div, "rem": lax.rem,
        "pow": lax.pow, "max": lax.max, "min": lax.min, "and": lax.bitwise_and,
        "or": lax.bitwise_or, "xor": lax.bitwise_xor, "shift_left": lax.shift_left,
        "shift_right": lax.shift_right_logical,
        "select": lambda p, a, b: lax.select(p, a, b), "clamp": lax.clamp,
    }
    return {name: _j_broadcasting(f) for name, f in table.items()}


def _j_index_last(indices, at, batch):
    """JAX wants the components of an index last; the batching dimensions move along."""
    if at == indices.ndim:
        return indices[..., None], batch
    return jnp.moveaxis(indices, at, -1), [b - (b > at) for b in batch]


def _j_gather(x, i, offset, collapsed, operand_batch, indices_batch, start_map, index_vector_dim,
              window):
    i, batch = _j_index_last(i, index_vector_dim, indices_batch)
    numbers = lax.GatherDimensionNumbers(tuple(offset), tuple(collapsed), tuple(start_map),
                                         tuple(operand_batch), tuple(batch))
    return lax.gather(x, i, numbers, tuple(window), mode=lax.GatherScatterMode.CLIP)


def _j_scatter(x, i, u, offset, collapsed, operand_batch, indices_batch, start_map,
               index_vector_dim):
    i, batch = _j_index_last(i, index_vector_dim, indices_batch)
    numbers = lax.ScatterDimensionNumbers(tuple(offset), tuple(collapsed), tuple(start_map),
                                          tuple(operand_batch), tuple(batch))
    return lax.scatter_add(x, i, u, numbers, mode=lax.GatherScatterMode.FILL_OR_DROP)


def _j_dot(a, b, lhs_batch, rhs_batch, lhs_contract, rhs_contract, type=None, precision=0):
    return lax.dot_general(a, b, ((lhs_contract, rhs_contract), (lhs_batch, rhs_batch)),
                           precision=_PRECISION[precision],
                           preferred_element_type=None if type is None else DTYPES[type])


def _j_sort(*arrays, dim, descending):
    if not descending:
        return lax.sort(arrays, dimension=dim % arrays[0].ndim, is_stable=True, num_keys=1)
    key = -arrays[0] if jnp.issubdtype(arrays[0].dtype, jnp.floating) else ~arrays[0]
    return lax.sort((lax.stop_gradient(key), *arrays), dimension=dim % arrays[0].ndim,
                    is_stable=True, num_keys=1)[1:]


def _j_conv(x, w, pad_low, pad_high, groups):
    return lax.conv_general_dilated(x, w, (1,), [(pad_low, pad_high)],
                                    dimension_numbers=("NWC", "WIO", "NWC"),
                                    feature_group_count=max(groups, 1))


def _j_causal(x, w):
    width, out = w.shape[0], 0
    for by in range(width):
        moved = jnp.concatenate([jnp.zeros_like(x[..., :by, :]), x[..., : x.shape[-2] - by, :]], -2)
        out = out + moved[..., : x.shape[-2], :] * w[width - 1 - by]
    return out


def _wide(x):
    return x.astype(jnp.float32) if x.dtype in (jnp.bfloat16, jnp.float16) else x


def _j_layer_norm(x, scale, bias, epsilon):
    y = _wide(x)
    y = (y - y.mean(-1, keepdims=True)) * lax.rsqrt(y.var(-1, keepdims=True) + epsilon)
    return (y * scale + bias).astype(x.dtype)


def _j_rms_norm(x, scale, epsilon):
    y = _wide(x)
    return (y * lax.rsqrt((y * y).mean(-1, keepdims=True) + epsilon) * scale).astype(x.dtype)


def _j_cross_entropy(logits, labels):
    logs = jax.nn.log_softmax(_wide(logits), axis=-1)
    return -jnp.take_along_axis(logs, labels[..., None].astype(jnp.int64), -1)[..., 0]


def _j_rope(x, positions, theta, interleaved=False):
    y = _wide(x)
    pairs = x.shape[-1] // 2
    angle = positions.astype(y.dtype)[..., None, None] * theta ** (-jnp.arange(pairs) / pairs)
    c, s = jnp.cos(angle).astype(y.dtype), jnp.sin(angle).astype(y.dtype)
    a, b = (y[..., 0::2], y[..., 1::2]) if interleaved else (y[..., :pairs], y[..., pairs:])
    a, b = a * c - b * s, b * c + a * s
    if interleaved:
        return jnp.stack([a, b], -1).reshape(x.shape).astype(x.dtype)
    return jnp.concatenate([a, b], -1).astype(x.dtype)


def _j_bits(state, type, dims):
    state, bits = lax.rng_bit_generator(state, tuple(dims), DTYPES[type],
                                        algorithm=lax.RandomAlgorithm.RNG_THREE_FRY)
    return bits, state


def _j_reduce(x, kind, dims):
    axes = _axes(dims, x.ndim)
    if kind in ("add", "mul", "max", "min"):
        table = {"add": jnp.sum, "mul": jnp.prod}
        if kind in table:
            wide = _wide(x)
            return table[kind](wide, axis=axes, dtype=wide.dtype).astype(x.dtype)
        return (lax.reduce_max if kind == "max" else lax.reduce_min)(x, axes)
    init = jnp.array(_neutral(kind, np.dtype(x.dtype)))
    return lax.reduce(x, init, lax.bitwise_and if kind == "and" else lax.bitwise_or, axes)


def _j_at(x, dim, i):
    """Starts for one element along a dimension. JAX's own indexing would count -1 from the end."""
    return [i if d == dim % x.ndim else jnp.zeros_like(i) for d in range(x.ndim)]


def _j_index(x, i, dim):
    sizes = [1 if d == dim % x.ndim else n for d, n in enumerate(x.shape)]
    i = jnp.clip(i, 0, x.shape[dim] - 1)
    return lax.dynamic_slice(x, _j_at(x, dim, i), sizes).squeeze(dim)


def _j_update_index(x, i, u, dim):
    i = jnp.clip(i, 0, x.shape[dim] - 1)
    return lax.dynamic_update_slice(x, jnp.expand_dims(u, dim), _j_at(x, dim, i))


def _j_clamped(x, starts, sizes):
    """JAX counts negative starts from the end; here they are clamped, as StableHLO does."""
    return [jnp.clip(s, 0, n - k) for s, n, k in zip(starts, x.shape, sizes)]


def _j_pad(x, value, low, high, interior):
    return lax.pad(x, value, list(zip(low, high, interior)))


def _j_table():
    constants = {name: (lambda name: lambda **attrs: jnp.asarray(NUMPY[name](**attrs)))(name)
                 for name in ("scalar", "scalar_int", "full", "constant", "iota")}
    return {
        **_j_unary(), **_j_binary(), **constants,
        "compare": lambda a, b, kind: getattr(lax, kind)(*jnp.broadcast_arrays(a, b)),
        "convert": lambda x, type: lax.convert_element_type(x, DTYPES[type]),
        "bitcast": lambda x, type: lax.bitcast_convert_type(x, DTYPES[type]),
        "like": lambda x, value: jnp.asarray(float(value), x.dtype),
        "broadcast": lambda x, result, dims: lax.broadcast_in_dim(x, tuple(result), tuple(dims)),
        "broadcast_to": lambda x, result: jnp.broadcast_to(x, tuple(result)),
        "reshape": lambda x, dims: x.reshape(dims),
        "transpose": lambda x, dims: lax.transpose(x, tuple(dims)),
        "reverse": lambda x, dims: lax.rev(x, tuple(dims)),
        "slice": lambda x, start, limit, stride: lax.slice(x, start, limit, stride),
        "slice_dim": _np_slice_dim,
        "shift": lambda x, dim, by: lax.pad(x, jnp.zeros((), x.dtype), [
            (by, -by, 0) if d == dim else (0, 0, 0) for d in range(x.ndim)]),
        "dynamic_slice": lambda x, *s, sizes: lax.dynamic_slice(x, _j_clamped(x, s, sizes), sizes),
        "dynamic_update": lambda x, u, *s: lax.dynamic_update_slice(x, u, _j_clamped(x, s, u.shape)),
        "index": _j_index, "update_index": _j_update_index,
        "pad": _j_pad,
        "concat": lambda *p, dim: jnp.concatenate(p, dim),
        "stack": lambda *p, dim: jnp.stack(p, dim),
        "reduce": _j_reduce,
        "sum": lambda x, dims: _j_reduce(x, "add", dims),
        "mean": lambda x, dims: jnp.mean(_wide(x), axis=_axes(dims, x.ndim)).astype(x.dtype),
        "reduce_keep": lambda x, kind, dims: jnp.expand_dims(
            _j_reduce(x, kind, dims), _axes(dims, x.ndim)),
        "cumsum": lambda x, dim: jnp.cumsum(_wide(x), axis=dim, dtype=_wide(x).dtype).astype(x.dtype),
        "argmax": lambda x, dim: jnp.argmax(x, axis=dim).astype(jnp.int32),
        "matmul": jnp.matmul,
        "dot": _j_dot,
        "einsum": lambda a, b, spec: jnp.einsum(spec, a, b, precision="highest"),
        "einsum_as": lambda a, b, spec, type, precision: jnp.einsum(
            spec, a, b, precision=_PRECISION[precision], preferred_element_type=DTYPES[type]),
        "conv1d": _j_conv, "causal_conv": _j_causal,
        "gather": _j_gather, "scatter_add": _j_scatter,
        "take": lambda t, i: jnp.take(t, i, axis=0, mode="clip"),
        "sort": _j_sort,
        "top_k": lambda x, k: lax.top_k(x, k),
        "random_bits": _j_bits,
        "layer_norm": _j_layer_norm, "rms_norm": _j_rms_norm,
        "softmax": lambda x, dim: jax.nn.softmax(_wide(x), axis=dim).astype(x.dtype),
        "log_softmax": lambda x, dim: jax.nn.log_softmax(_wide(x), axis=dim).astype(x.dtype),
        "cross_entropy": _j_cross_entropy, "rope": _j_rope,
        "barrier": lambda *a: a,
        "shard": lambda x, spec: x,
    }


JAX = _j_table()


class _Block:
    """A block being run: its nodes, what it started with, and the zeros added to values, by number.
    There are several of these when one gradient runs inside another."""

    def __init__(self, nodes, start, zeros):
        self.nodes, self.start, self.zeros = nodes, start, zeros

    def run(self, until):
        env = dict(self.start)
        for k in range(until):
            node = self.nodes[k]
            out = _compute(node, env, self, k)
            for i, value in zip(node["out"], out):
                for zeros in self.zeros:
                    value = value + zeros[i] if i in zeros else value
                env[i] = value
        return env


def _run_block(block, env, values):
    start = {**env, **dict(zip(block["params"], values))}
    end = _Block(block["nodes"], start, []).run(len(block["nodes"]))
    return [None if i < 0 else end[i] for i in block["results"]]


def _derivative(shapes, block, k, outputs, d_outputs, wrt):
    """Gradients by `wrt`, and all values of the block before node k. `shapes` has those of wrt."""
    def outputs_of(zeros):
        zeros = dict(zip(wrt, zeros))
        start = {i: v + zeros[i] if i in zeros else v for i, v in block.start.items()}
        inner = _Block(block.nodes, start, [*block.zeros, zeros])
        end = inner.run(k)
        return [end[o] for o in outputs], end

    asked, wrt = wrt, list(dict.fromkeys(wrt))  # the same one may be asked for twice
    zeros = [jnp.zeros_like(shapes[i]) for i in wrt]
    values, back, env = jax.vjp(outputs_of, zeros, has_aux=True)
    given = [jnp.ones_like(v) if isinstance(d, str) else jnp.zeros_like(v) if d is None else d
             for v, d in zip(values, d_outputs)]
    found = back(given)[0]
    return [found[wrt.index(i)] for i in asked], env


def _scan(node, env, values):
    block = node["blocks"][0]
    n = block["n_carry"]
    carry, inputs = values[:n], values[n:]
    length = inputs[0].shape[0] if inputs else node["length"]

    def step(carry, x):
        out = _run_block(block, env, [x[0], *carry, *x[1]])
        return out[:n], out[n:]

    steps = jnp.arange(length, dtype=jnp.int32)
    last, ys = lax.scan(step, list(carry), (steps, list(inputs)), length=length,
                        reverse=node["reverse"])
    return [*last, *ys]


def _custom_vjp(node, env, values):
    body, rule = node["blocks"]

    @jax.custom_vjp
    def f(*inputs):
        return _run_block(body, env, inputs)

    def forward(*inputs):
        outputs = _run_block(body, env, inputs)
        return outputs, (inputs, outputs)

    def backward(kept, d_outputs):
        inputs, outputs = kept
        found = _run_block(rule, env, [*inputs, *outputs, *d_outputs])
        return tuple(
            np.zeros(x.shape, jax.dtypes.float0) if not jnp.issubdtype(x.dtype, jnp.floating)
            else jnp.zeros_like(x) if d is None else d for x, d in zip(inputs, found))

    f.defvjp(forward, backward)
    return f(*values)


def _compute(node, env, block, k):
    op = node["op"]
    values = [None if i < 0 else env[i] for i in node["in"]]
    blocks = node.get("blocks", [])
    if op == "grad":
        return _derivative(env, block, k, node["in"][:1], ["one"], node["in"][1:])[0]
    if op == "vjp":
        n = node["n_outputs"]
        return _derivative(env, block, k, node["in"][:n], values[n:2 * n], node["in"][2 * n:])[0]
    if op == "scan":
        return _scan(node, env, values)
    if op == "while":
        return lax.while_loop(lambda c: _run_block(blocks[0], env, c)[0],
                              lambda c: _run_block(blocks[1], env, c), values)
    if op == "if":
        return lax.cond(values[0], lambda: _run_block(blocks[0], env, []),
                        lambda: _run_block(blocks[1], env, []))
    if op == "case":
        return lax.switch(values[0], [
            (lambda b: lambda: _run_block(b, env, []))(b) for b in blocks])
    if op in ("remat", "call", "composite"):
        return _run_block(blocks[0], env, values)
    if op == "custom_vjp":
        return _custom_vjp(node, env, values)
    attrs = {a: v for a, v in node.items() if a not in ("op", "in", "out", "scope")}
    out = JAX[op](*values, **attrs)
    return out if isinstance(out, (tuple, list)) else [out]


def jax_function(graph):
    """A function of the graph's parameters that returns the list of its results."""
    document = graph.document

    def f(*inputs):
        start = {p["out"]: a for p, a in zip(document["params"], inputs)}
        nodes = document["nodes"]
        block, last = _Block(nodes, start, []), nodes[-1] if nodes else {"op": None}
        if last["op"] == "grad" and all(i in start for i in last["in"][1:]):
            # The usual end. Deriving it gives the values on the way: half of the tracing.
            found, end = _derivative(start, block, len(nodes) - 1, last["in"][:1], ["one"],
                                     last["in"][1:])
            end.update(zip(last["out"], found))
        else:
            end = block.run(len(nodes))
        return [end[i] for i in document["results"]]

    return f


def run_jax(graphs):
    """The results of all graphs, compiled together: most of the time is in compiling."""
    functions = [jax_function(g) for g in graphs]

    def everything(inputs):
        return [f(*x) for f, x in zip(functions, inputs)]

    # Compiling is most of the time: no optimizations, and the older of two code generators.
    options = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}
    compiled = jax.jit(everything).lower([g.inputs for g in graphs]).compile(options)
    return [[np.asarray(r) for r in results] for results in compiled([g.inputs for g in graphs])]


def is_float(array):
    return any(array.dtype == DTYPES[t] for t in FLOATS)


def batches(items, size):
    items = iter(items)
    while chunk := list(itertools.islice(items, size)):
        yield chunk
