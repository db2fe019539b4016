"""The rival of bench_train: a train step of the TTT network in plain JAX, on JAX's own CPU client.

    python bench_train.py --size small|125m --mixer ttt_linear|ttt_mlp --tokens 2048 [--steps 3] [--skip-run]
    python bench_train.py --matmul-peak     what the machine's matmuls reach through XLA, in FLOP/s
    python bench_train.py --golden          proof that this computes the network it claims to

It is written from the specification in the form that the public JAX code has, neither tuned nor hobbled: layers unrolled, a scan over
mini-batches in rematerialised groups, vmap over heads and sequences, the inner gradient through the norm by jax.vjp, grouped convolutions,
AdamW over the tree of parameters, state donated. f32, Mamba backbone, one sequence. One JSON line on standard output.
"""
import argparse
import functools
import json
import math
import statistics
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import ndtr, ndtri

jax.config.update("jax_platforms", "cpu")

GROUP = 4  # mini-batches whose inside is computed again in the backward pass
CONV = 4
EPS = 1e-6


class Config(NamedTuple):
    n_layers: int
    width: int
    heads: int
    hidden: int
    vocab: int
    mixer: str
    base_rate: float
    mini: int = 16


SIZES = {"small": (4, 256, 4, 688, 512), "125m": (12, 768, 12, 2048, 32000)}
BASE_RATES = {"ttt_linear": 1.0, "ttt_mlp": 0.1}


def parameter_table(c):
    """Name to (shape, initialiser); the initialiser is a constant, or the name of a distribution.

    The names are Hugging Face's, by which the golden values are given. Matrices and convolution kernels are stored as JAX multiplies
    by them ([in, out]; [tap, 1, channel]), the other way round than in those files.
    """
    d, square = c.width // c.heads, ((c.width, c.width), "normal")
    layer = {"seq_norm.weight": ((c.width,), 1), "ffn_norm.weight": ((c.width,), 1), "conv.norm.weight": ((c.width,), 1)}
    for name in "conv.conv", "seq_modeling_block.conv_q", "seq_modeling_block.conv_k":
        layer |= {f"{name}.weight": ((CONV, 1, c.width), "lecun"), f"{name}.bias": ((c.width,), 0)}
    for name, shape in ("gate", (c.width, c.hidden)), ("up", (c.width, c.hidden)), ("down", (c.hidden, c.width)):
        layer[f"mlp.{name}_proj.weight"] = shape, "normal"
    mixer = {f"{name}_proj.weight": square for name in "qvog"}
    mixer |= {"learnable_token_idx": ((c.mini,), 0), "post_norm.weight": ((c.width,), 1), "post_norm.bias": ((c.width,), 0),
              "learnable_ttt_lr_weight": ((c.heads, 1, c.width), "normal"), "learnable_ttt_lr_bias": ((c.heads, 1), 0),
              "ttt_norm_weight": ((c.heads, d), 1), "ttt_norm_bias": ((c.heads, d), 0)}
    widths = (d, d) if c.mixer == "ttt_linear" else (d, 4 * d, d)
    for i, (fan_in, fan_out) in enumerate(zip(widths, widths[1:]), 1):
        mixer |= {f"W{i}": ((c.heads, fan_in, fan_out), "normal"), f"b{i}": ((c.heads, 1, fan_out), 0)}
    layer |= {f"seq_modeling_block.{name}": entry for name, entry in mixer.items()}
    table = {"model.embed_tokens.weight": ((c.vocab, c.width), "normal"), "model.norm.weight": ((c.width,), 1)}
    return table | {f"model.layers.{i}.{name}": entry for i in range(c.n_layers) for name, entry in layer.items()}


def initial_parameters(c):
    random = np.random.default_rng(0)

    def draw(shape, how):
        if how == "normal":
            return 0.02 * random.standard_normal(shape, np.float32)
        if how == "lecun":  # a normal cut at two deviations, which leaves it 0.88 of its deviation, scaled to the variance 1 / taps
            return (ndtri(random.uniform(ndtr(-2), ndtr(2), shape)) / 0.87962566 / math.sqrt(CONV)).astype(np.float32)
        return np.full(shape, how, np.float32)
    return {name: jnp.asarray(draw(*entry)) for name, entry in parameter_table(c).items()}


def below(parameters, prefix):
    return {name[len(prefix):]: value for name, value in parameters.items() if name.startswith(prefix)}


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + EPS) * scale


def layer_norm(x, scale, bias):
    mean = jnp.mean(x, -1, keepdims=True)
    variance = jnp.maximum(0.0, jnp.mean(x * x, -1, keepdims=True) - mean * mean)
    return (x - mean) * (jax.lax.rsqrt(variance + EPS) * scale) + bias


def causal_conv(x, weight, bias):
    return bias + jax.lax.conv_general_dilated(x, weight, (1,), [(CONV - 1, 0)], dimension_numbers=("NWC", "WIO", "NWC"),
                                               feature_group_count=x.shape[-1])


def rope(x, mini):
    """Rotates neighbouring lanes of [..., time, d] by the position within the mini-batch, as complex numbers."""
    time, d = x.shape[-2:]
    angle = np.outer(np.arange(time) % mini, 10000.0 ** (-np.arange(0, d, 2) / d))
    pairs = x.reshape(*x.shape[:-1], d // 2, 2)
    turned = jax.lax.complex(pairs[..., 0], pairs[..., 1]) * np.exp(1j * angle).astype(np.complex64)
    return jnp.stack((turned.real, turned.imag), -1).reshape(x.shape)


def gelu_slope(x):
    t = jnp.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
    return 0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t)


def norm_gradient(norm, z, target):
    """Gradient with respect to z of half the squared distance of norm(z) from the target."""
    y, pullback = jax.vjp(norm, z)
    return pullback(y - target)[0]


def step_linear(norm, weights, inputs):
    """One mini-batch of one head: what every token sees, and the weights after the last."""
    (w, b), (q, k, v, eta) = weights, inputs
    g = norm_gradient(norm, k @ w + b, v - k)
    z = q @ w - (eta * jnp.tril(q @ k.T)) @ g + (b - jnp.tril(eta) @ g)
    last = eta[-1][:, None]
    return (w - (last * k).T @ g, b - jnp.sum(last * g, 0, keepdims=True)), q + norm(z)


def step_mlp(norm, weights, inputs):
    (w1, b1, w2, b2), (q, k, v, eta) = weights, inputs
    z1 = k @ w1 + b1
    x2 = jax.nn.gelu(z1)
    g2 = norm_gradient(norm, x2 @ w2 + b2, v - k)
    g1 = (g2 @ w2.T) * gelu_slope(z1)
    seen = jnp.tril(eta)
    x2_bar = jax.nn.gelu(q @ w1 - (eta * jnp.tril(q @ k.T)) @ g1 + (b1 - seen @ g1))
    z = x2_bar @ w2 - (eta * jnp.tril(x2_bar @ x2.T)) @ g2 + (b2 - seen @ g2)
    last = eta[-1][:, None]
    return (w1 - (last * k).T @ g1, b1 - jnp.sum(last * g1, 0, keepdims=True),
            w2 - (last * x2).T @ g2, b2 - jnp.sum(last * g2, 0, keepdims=True)), q + norm(z)


def learn(c, weights, norm_scale, norm_bias, token_rate, q, k, v, rate):
    """One head over one sequence: q, k, v are [time, d], rate is [time]. A last, shorter mini-batch comes after the scan."""
    step = functools.partial(step_linear if c.mixer == "ttt_linear" else step_mlp,
                             functools.partial(layer_norm, scale=norm_scale, bias=norm_bias))
    n, rest = divmod(len(q), c.mini)
    group = math.gcd(n, GROUP)
    whole = [x[:n * c.mini].reshape(n, c.mini, *x.shape[1:]) for x in (q, k, v, rate)]
    whole[3] = token_rate[:, None] * whole[3][:, None, :]
    grouped = tuple(x.reshape(n // group, group, *x.shape[1:]) for x in whole)
    weights, y = jax.lax.scan(jax.checkpoint(functools.partial(jax.lax.scan, step), prevent_cse=False), weights, grouped)
    y = y.reshape(-1, q.shape[-1])
    if rest:
        eta = token_rate[:rest, None] * rate[-rest:]
        y = jnp.concatenate((y, step(weights, (q[-rest:], k[-rest:], v[-rest:], eta))[1]))
    return y


def mix(c, p, x):
    batch, time, _ = x.shape
    d = c.width // c.heads

    def heads(y):
        return y.reshape(batch, time, c.heads, d).transpose(0, 2, 1, 3)
    shared = x @ p["q_proj.weight"]
    q = rope(heads(causal_conv(shared, p["conv_q.weight"], p["conv_q.bias"])), c.mini)
    k = rope(heads(causal_conv(shared, p["conv_k.weight"], p["conv_k.bias"])), c.mini)
    v = heads(x @ p["v_proj.weight"])
    gate = jax.nn.sigmoid(jnp.einsum("btc,hic->bht", x, p["learnable_ttt_lr_weight"]) + p["learnable_ttt_lr_bias"])
    token_rate = jnp.maximum(0.0, 1.0 / np.arange(1, c.mini + 1, dtype=np.float32) + p["learnable_token_idx"])
    weights = tuple(p[name] for name in ("W1", "b1", "W2", "b2") if name in p)
    over_heads = jax.vmap(functools.partial(learn, c), (0, 0, 0, None, 0, 0, 0, 0))
    over_batch = jax.vmap(over_heads, (None, None, None, None, 0, 0, 0, 0))
    y = over_batch(weights, p["ttt_norm_weight"], p["ttt_norm_bias"], token_rate, q, k, v, c.base_rate * gate / d)
    y = layer_norm(y.transpose(0, 2, 1, 3).reshape(x.shape), p["post_norm.weight"], p["post_norm.bias"])
    return (jax.nn.gelu(x @ p["g_proj.weight"]) * y) @ p["o_proj.weight"]


def logits(c, parameters, tokens):
    table = parameters["model.embed_tokens.weight"]
    x = table[tokens]
    for i in range(c.n_layers):
        p = below(parameters, f"model.layers.{i}.")
        x = x + causal_conv(rms_norm(x, p["conv.norm.weight"]), p["conv.conv.weight"], p["conv.conv.bias"])
        x = x + mix(c, below(p, "seq_modeling_block."), rms_norm(x, p["seq_norm.weight"]))
        h = rms_norm(x, p["ffn_norm.weight"])
        x = x + (jax.nn.silu(h @ p["mlp.gate_proj.weight"]) * (h @ p["mlp.up_proj.weight"])) @ p["mlp.down_proj.weight"]
    return rms_norm(x, parameters["model.norm.weight"]) @ table.T


def loss(c, parameters, tokens, targets):
    log_p = jax.nn.log_softmax(logits(c, parameters, tokens))
    return -jnp.mean(jnp.take_along_axis(log_p, targets[..., None], -1))


def schedule(count, peak=3e-3, end=1e-5, warm=480, steps=4800):
    cosine = end + (peak - end) * 0.5 * (1 + jnp.cos(math.pi * (count - warm) / (steps - warm)))
    return jnp.where(count < warm, peak * count / warm, cosine)


def norm_of(tree):
    return jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(tree)))


def train_step(c, state, tokens, targets):
    parameters, m, v, count = state
    value, gradient = jax.value_and_grad(functools.partial(loss, c))(parameters, tokens, targets)
    norm = norm_of(gradient)
    gradient = jax.tree.map(lambda g: jnp.where(norm < 1.0, g, g / norm), gradient)
    m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, gradient)
    v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, gradient)
    m_scale, v_scale = (1 / (1 - beta ** (count + 1)) for beta in (0.9, 0.95))
    rate = schedule(count)
    parameters = jax.tree.map(lambda p, m, v: p - rate * (m * m_scale / (jnp.sqrt(v * v_scale) + 1e-8) + 0.1 * p), parameters, m, v)
    return (parameters, m, v, count + 1), value, norm


def measure(size, mixer, tokens, steps, run):
    c = Config(*SIZES[size], mixer, BASE_RATES[mixer])
    parameters = initial_parameters(c)
    zeros = functools.partial(jax.tree.map, jnp.zeros_like)
    state = parameters, zeros(parameters), zeros(parameters), jnp.zeros((), jnp.int32)
    ids = np.random.default_rng(1).integers(0, c.vocab, (1, tokens + 1), np.int32)
    batch = jnp.asarray(ids[:, :-1]), jnp.asarray(ids[:, 1:])
    del parameters  # the state alone owns them, so that its buffers can be donated

    start = time.perf_counter()
    lowered = jax.jit(functools.partial(train_step, c), donate_argnums=0).lower(state, *batch)
    lowered_at = time.perf_counter()
    compiled = lowered.compile()
    compiled_at = time.perf_counter()
    memory = compiled.memory_analysis()

    seconds, value = [], None
    for _ in range(steps + 1 if run else 0):
        begin = time.perf_counter()
        state, value, _ = jax.block_until_ready(compiled(state, *batch))
        seconds.append(time.perf_counter() - begin)
    seconds = seconds[1:]  # the first call warms the caches and the allocator
    return {"size": size, "mixer": mixer, "tokens": tokens,
            "lower_seconds": round(lowered_at - start, 3), "compile_seconds": round(compiled_at - lowered_at, 3),
            "step_seconds": round(statistics.median(seconds), 4) if seconds else None,
            "step_seconds_all": [round(s, 4) for s in seconds],
            "temp_bytes": memory.temp_size_in_bytes, "argument_bytes": memory.argument_size_in_bytes,
            "loss": None if value is None else float(value)}


def matmul_peak():
    """The best of a large square product and of shapes that the 125M network has."""
    multiply, best = jax.jit(jnp.matmul), 0.0
    for m, k, n in (2048, 2048, 2048), (2048, 768, 2048), (2048, 2048, 768), (2048, 768, 4096):
        a, b = (jnp.asarray(np.random.default_rng(0).standard_normal(s, np.float32)) for s in ((m, k), (k, n)))
        for _ in range(12):
            start = time.perf_counter()
            multiply(a, b).block_until_ready()
            best = max(best, 2.0 * m * k * n / (time.perf_counter() - start))
    return {"matmul_peak_flops": best}


# The golden values of the specification's section 8: logits of vocabulary 0, 1, 2 at times 0, 3, 7, 9; the loss; the norms of its
# gradient, of the whole and of four parameters of layer 0.
GOLDEN = {
    "ttt_linear": ([-0.102131, -0.842522, -1.204732, 0.207328, -0.143153, -0.429377, 0.803905, -0.131266, -1.007516,
                    0.315145, -0.547164, -1.163869], 2.882829, [6.80720, 2.095208, 0.090025, 0.046025, 0.475841]),
    "ttt_mlp": ([0.410619, -0.260686, -0.814978, -0.849564, -0.497914, 0.077234, -0.176714, -0.453189, -0.526241,
                 0.204512, -0.664691, -1.235535], 2.435527, [4.07825, 0.222433, 2.223199, 0.050580, 0.182495])}


def golden(mixer):
    c = Config(n_layers=2, width=8, heads=2, hidden=12, vocab=11, mixer=mixer, base_rate=1.0, mini=4)
    table, parameters = parameter_table(c), {}
    for j, name in enumerate(sorted(table)):
        shape = table[name][0]
        turned = name.endswith("_proj.weight") or ".conv" in name and len(shape) == 3
        value = 0.3 * np.sin(0.7 * np.arange(math.prod(shape)) + 1.3 * j) + name.endswith(("norm.weight", "norm_weight"))
        parameters[name] = jnp.asarray(value.reshape(shape[::-1]).T if turned else value.reshape(shape), jnp.float32)
    ids = np.array([[1, 4, 7, 10, 2, 5, 8, 0, 3, 6]])
    some = jax.jit(functools.partial(logits, c))(parameters, ids)[0, [0, 3, 7, 9], :3].ravel()
    value, gradient = jax.jit(jax.value_and_grad(functools.partial(loss, c)))(parameters, ids[:, :-1], ids[:, 1:])
    layer = below(gradient, "model.layers.0.seq_modeling_block.")
    norms = [norm_of(gradient)] + [norm_of(layer[name]) for name in
                                   ("W1", "learnable_token_idx", "learnable_ttt_lr_weight", "ttt_norm_weight")]
    errors = [float(np.max(np.abs(np.asarray(got) - want))) for got, want in zip((some, value, np.array(norms)), GOLDEN[mixer])]
    assert all(error < bound for error, bound in zip(errors, (1e-5, 5e-6, 5e-5))), (mixer, errors)
    return dict(zip(("logits_error", "loss_error", "gradient_norms_error"), errors), tensors=len(table))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--mixer", choices=BASE_RATES, default="ttt_linear")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--steps", type=int, default=3, help="timed steps, after one that is not")
    parser.add_argument("--skip-run", action="store_true", help="lower and compile only")
    parser.add_argument("--matmul-peak", action="store_true")
    parser.add_argument("--golden", action="store_true")
    options = parser.parse_args()
    if options.golden:
        report = {mixer: golden(mixer) for mixer in GOLDEN}
    elif options.matmul_peak:
        report = matmul_peak()
    else:
        report = measure(options.size, options.mixer, options.tokens, options.steps, not options.skip_run)
    print(json.dumps(report))


if __name__ == "__main__":
    main()
