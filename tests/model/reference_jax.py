"""The networks in JAX and float64, for gradients: a loop over tokens in the primal form, with the state of
everything in its carry. `reference.py` judges the values, this file's jax.grad the gradients.

A document starts where all state is replaced by what it was at the very start; the mini-batches' grid goes by
`time`, which is no state.

    loss, gradients = loss_and_gradients(config, weights, tokens, resets)
"""

import functools
import json

import jax
import jax.numpy as jnp
import numpy as np

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_platforms", "cpu")

# Compiling is all the work there is: no optimizations, the older of two code generators, one piece of code.
COMPILER = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False,
            "xla_cpu_parallel_codegen_split_count": 1}

LAYER_NORM_EPSILON = 1e-6


# ---- functions of the last axis ----


def rms_norm(x, weight, epsilon):
    return weight * x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + epsilon)


def layer_norm(x, weight, bias):
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return weight * (x - mean) * jax.lax.rsqrt(variance + LAYER_NORM_EPSILON) + bias


def gelu(x):
    return jax.nn.gelu(x, approximate=True)


def gelu_slope(x):
    """As written, not derived: outer gradients go through these rounded constants."""
    t = jnp.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
    return 0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t)


def rotated(x, position, theta):
    """Pairs of neighbouring lanes as complex numbers."""
    if theta == 0:
        return x
    lanes = x.shape[-1]
    speed = theta ** (-jnp.arange(0, lanes, 2) / lanes)
    turned = jax.lax.complex(x[..., 0::2], x[..., 1::2]) * jnp.exp(1j * position * speed)
    return jnp.stack([turned.real, turned.imag], -1).reshape(x.shape)


def at(weights, prefix):
    return {name[len(prefix):]: a for name, a in weights.items() if name.startswith(prefix)}


def convolve(weights, name, window, x):
    """`window` has the last tokens, oldest first; returns it moved on, and the result."""
    window = jnp.concatenate([window[1:], x[None]])
    return window, jnp.einsum("wc,cw->c", window, weights[name + ".weight"][:, 0]) + weights[name + ".bias"]


def window_of(config, channels):
    return jnp.zeros((config["conv_width"], channels))


# ---- what mixers with heads share ----


def heads_start(c, w, length):
    hidden = c["hidden_size"]
    return {"q": window_of(c, hidden), "k": window_of(c, hidden)} if c["share_qk"] else {}


def project(c, w, state, x):
    q, v = w["q_proj.weight"] @ x, w["v_proj.weight"] @ x
    if c["share_qk"]:
        shared, windows = q, {}
        windows["q"], q = convolve(w, "conv_q", state["q"], shared)
        windows["k"], k = convolve(w, "conv_k", state["k"], shared)
        state = {**state, **windows}
    else:
        k = w["k_proj.weight"] @ x
    lanes = c["hidden_size"] // c["n_heads"]
    return state, [part.reshape(-1, lanes) for part in (q, k, v)]


def output(c, w, x, heads):
    z = heads.reshape(-1)
    if c["post_norm"]:
        z = layer_norm(z, w["post_norm.weight"], w["post_norm.bias"])
    if c["use_gate"]:
        z = gelu(w["g_proj.weight"] @ x) * z
    return w["o_proj.weight"] @ z


# ---- mixers: NAME_start is the state of an empty past, NAME_step takes one token ----


def inner_layers(c):
    return range(1, 1 + (c["inner_layers"] or (2 if c["mixer"] == "ttt_mlp" else 1)))


def learner_start(c, w):
    """What learns, and what does not."""
    learns, fixed = {}, {}
    heads, lanes = c["n_heads"], c["hidden_size"] // c["n_heads"]
    for i in inner_layers(c):
        made = fixed if c["inner_last_only"] and i < inner_layers(c)[-1] else learns
        start = made is learns and not c["learnable_w0"]
        width = lanes if i == 1 else c["inner_width"] * lanes
        made[f"W{i}"] = jnp.zeros((heads, width, lanes)) if start else w[f"W{i}"]
        if c["inner_bias"]:
            made[f"b{i}"] = w[f"b{i}"]
    return learns, fixed


def swiglu(z):
    return jax.nn.silu(z[: len(z) // 2]) * z[len(z) // 2 :]


def activated(c, z):
    """Of one head: what goes on from a layer, and how slopes come back."""
    if c["inner_activation"] == "swiglu":
        made, pull = jax.vjp(swiglu, z)
        return made, lambda g: pull(g)[0]
    return gelu(z), lambda g: g * gelu_slope(z)


def residual(c, weights, x):
    """Of one head: the last layer's result; what went into each layer, and how slopes come back to the one before."""
    inputs, pulls = [], []
    for i in inner_layers(c):
        if i > 1:
            x, pull = activated(c, z)
            pulls.append(pull)
        inputs.append(x)
        z = x @ weights[f"W{i}"] + weights.get(f"b{i}", jnp.zeros(1))[0]
    return z, inputs, pulls


def inner_slopes(c, weights, scale, shift, k, v):
    """Of one head: of the inner loss, with respect to all inner weights. The last layer's is JAX's own derivative of
    the loss, those before have the model's own GELU derivative."""
    def loss(z):
        made = layer_norm(z, scale, shift) + k if c["inner_norm"] else z
        return -jnp.vdot(made, v) if c["inner_loss"] == "dot" else 0.5 * jnp.sum((made - v) ** 2)

    z, inputs, pulls = residual(c, weights, k)
    g = jax.grad(loss)(z)
    slopes = {}
    for i in reversed(inner_layers(c)):
        slopes.update({f"W{i}": jnp.outer(inputs[i - 1], g), f"b{i}": g[None]})
        if i > 1:
            g = pulls[i - 2](weights[f"W{i}"] @ g)
    return {name: slopes[name] for name in weights}


def inner_answer(c, weights, scale, shift, q):
    z = residual(c, weights, q)[0]
    return q + layer_norm(z, scale, shift) if c["inner_norm"] else z


def ttt_start(c, w, length):
    start = learner_start(c, w)[0]
    nothing = jax.tree.map(jnp.zeros_like, start)
    moments = {"second": nothing, "steps": 0.0, "gates": jnp.zeros((c["n_heads"], 1, 1))}
    return {**heads_start(c, w, length), "w": start, "sum": nothing, "pull": nothing, "place": 0, **moments}


def ttt_rate(c, w, x):
    """Of this token as a source, for each head."""
    if not c["learnable_lr"]:
        return jnp.full(c["n_heads"], c["ttt_base_lr"])
    gate = jax.nn.sigmoid(w["learnable_ttt_lr_weight"][:, 0] @ x + w["learnable_ttt_lr_bias"][:, 0])
    return c["ttt_base_lr"] * gate / (c["hidden_size"] // c["n_heads"])


def ttt_gates(c, w, x):
    """Of decay and momentum, for each head."""
    def score(name):
        return jnp.einsum("hoc,c->ho", w[name + "_weight"], x)[..., None] + w[name + "_bias"][..., None]

    decay, momentum = jnp.ones((1, 1, 1)), jnp.zeros((1, 1, 1))
    if c["inner_decay"]:
        decay = jax.nn.softplus(score("decay")) * -jnp.exp(w["decay_log"][..., None])
        decay = jnp.exp(decay)
    if c["inner_momentum"]:
        momentum = jax.nn.sigmoid(score("momentum"))
    return decay, momentum


def orthogonal(x):
    """Of one head: Newton-Schulz on the wide side."""
    if x.shape[0] > x.shape[1]:
        return orthogonal(x.T).T
    x = x * jax.lax.rsqrt(jnp.vdot(x, x) + 1e-10)
    for a, b, c in ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
                    (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012)):
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x


def muon(c, weights, start, state, total):
    """A mini-batch's end: the weights after it, and what else of the state has changed."""
    pull = jax.tree.map(lambda s, g: state["gates"] * s + g, state["pull"], total)

    def matrix(name, w, begin, g):
        if c["inner_activation"] == "swiglu" and int(name[1:]) < inner_layers(c)[-1]:
            half = g.shape[1] // 2
            by = jnp.concatenate([orthogonal(g[:, :half]), orthogonal(g[:, half:])], 1)
        else:
            by = orthogonal(g)
        new, square = w - (c["inner_step"] or 1.0) * by, jnp.sum(begin**2, 0)
        return new * jax.lax.rsqrt(jnp.sum(new**2, 0) + 1e-10) * square * jax.lax.rsqrt(square + 1e-10)

    moved = {n: jax.vmap(functools.partial(matrix, n))(w, start[n], pull[n]) if n[0] == "W" else w - pull[n]
             for n, w in weights.items()}
    return moved, {"pull": pull}


def adam(c, weights, start, state, total):
    steps = state["steps"] + 1
    first = jax.tree.map(lambda m, g: m + 0.1 * (g - m), state["pull"], total)
    second = jax.tree.map(lambda v, g: v + 0.01 * (g * g - v), state["second"], total)

    def moved(w, m, v):
        return w - (c["inner_step"] or 0.01) * m / (1 - 0.9**steps) / jnp.sqrt(v / (1 - 0.99**steps) + 1e-8)

    return jax.tree.map(moved, weights, first, second), {"pull": first, "second": second, "steps": steps}


def ttt_step(c, w, state, x, time):
    state, (q, k, v) = project(c, w, state, x)
    place = state["place"]
    if c["key_norm"]:
        q, k = (part * jax.lax.rsqrt(jnp.sum(part**2, -1, keepdims=True) + LAYER_NORM_EPSILON) for part in (q, k))
    q, k = (rotated(part, place, c["rope_theta"]) for part in (q, k))
    norm = [w.get("ttt_norm_" + n, jnp.zeros(q.shape)) for n in ("weight", "bias")]
    decay, momentum = ttt_gates(c, w, x)
    faded = jax.tree.map(lambda a: decay * a, {name: state[name] for name in ("w", "sum")})
    fixed = learner_start(c, w)[1]
    slopes = jax.vmap(lambda *a: inner_slopes(c, *a))({**fixed, **faded["w"]}, *norm, k, v)
    slopes = {name: slopes[name] for name in state["w"]}
    rate = ttt_rate(c, w, x)[:, None, None]
    size = c["mini_batch_size"]
    last = time % size == size - 1 if size > 0 else False
    if c["inner_optimizer"] != "sgd":
        total = jax.tree.map(lambda s, slope: s + rate * slope, state["sum"], slopes)
        z = jax.vmap(lambda *a: inner_answer(c, *a))({**fixed, **state["w"]}, *norm, q)
        state = {**state, "gates": state["gates"] + momentum / size}
        rule = {"muon": muon, "adam": adam}[c["inner_optimizer"]]
        moved, others = rule(c, state["w"], learner_start(c, w)[0], state, total)
        new = {**state, **others, "w": moved, "place": -1, "gates": 0 * state["gates"],
               "sum": jax.tree.map(jnp.zeros_like, total)}
        state = jax.tree.map(lambda a, b: jnp.where(last, a, b), new, {**state, "sum": total})
        return {**state, "place": state["place"] + 1}, output(c, w, x, z)
    pull = jax.tree.map(lambda s, slope: momentum * s + rate * slope, state["pull"], slopes)
    total = jax.tree.map(jnp.add, faded["sum"], pull)
    scale = jnp.maximum(0, 1 / (place + 1) + w["learnable_token_idx"][place]) if c["learnable_token_idx"] else 1.0
    now = jax.tree.map(lambda a, s: a - scale * s, faded["w"], total)
    z = jax.vmap(lambda *a: inner_answer(c, *a))({**fixed, **now}, *norm, q)
    state = {**state, "place": jnp.where(last, 0, place + 1), "pull": pull,
             "w": jax.tree.map(lambda a, b: jnp.where(last, a, b), now, faded["w"]),
             "sum": jax.tree.map(lambda s: jnp.where(last, 0, s), total)}
    return state, output(c, w, x, z)


def attention_start(c, w, length):
    shape = (length, c["n_kv_heads"] or c["n_heads"], c["hidden_size"] // c["n_heads"])
    return {**heads_start(c, w, length), "keys": jnp.zeros(shape), "values": jnp.zeros(shape),
            "stored": jnp.zeros(length, bool)}


def attention_step(c, w, state, x, time):
    state, (q, k, v) = project(c, w, state, x)
    q, k = (rotated(part, time, c["rope_theta"]) for part in (q, k))
    new = {"keys": k, "values": v, "stored": True}
    state = {**state, **{name: state[name].at[time].set(a) for name, a in new.items()}}
    groups, lanes = k.shape
    q = q.reshape(groups, -1, lanes)  # the heads that share keys stand together
    scores = jnp.einsum("ghd,tgd->ght", q, state["keys"]) / np.sqrt(lanes)
    share = jax.nn.softmax(jnp.where(state["stored"], scores, -jnp.inf), -1)
    z = jnp.einsum("ght,tgd->ghd", share, state["values"])
    return state, output(c, w, x, z)


def linear_attention_start(c, w, length):
    heads, lanes = c["n_heads"], c["hidden_size"] // c["n_heads"]
    return {**heads_start(c, w, length), "sum": jnp.zeros((heads, lanes, lanes)), "keys": jnp.zeros((heads, lanes))}


def linear_attention_step(c, w, state, x, time):
    state, (q, k, v) = project(c, w, state, x)
    q, k = (rotated(part, time, c["rope_theta"]) for part in (q, k))
    elu = c["features"] == "elu"
    if elu:
        q, k = jax.nn.elu(q) + 1, jax.nn.elu(k) + 1
    total, keys = state["sum"] + jnp.einsum("hi,ho->hio", k, v), state["keys"] + k
    z = jnp.einsum("hi,hio->ho", q, total)
    if elu:
        z = z / jnp.einsum("hi,hi->h", q, keys)[:, None]
    return {**state, "sum": total, "keys": keys}, output(c, w, x, z)


def mamba_start(c, w, length):
    return {"window": window_of(c, w["D"].shape[0]), "h": jnp.zeros(w["A_log"].shape)}


def mamba_step(c, w, state, x, time):
    n = c["mamba_state"]
    x, z = jnp.split(w["in_proj.weight"] @ x, 2)
    window, x = convolve(w, "conv1d", state["window"], x)
    x = jax.nn.silu(x)
    made = w["x_proj.weight"] @ x
    dt, b, read = made[: -2 * n], made[-2 * n : -n], made[-n:]
    dt = jax.nn.softplus(w["dt_proj.weight"] @ dt + w["dt_proj.bias"])
    decay = jnp.exp(-dt[:, None] * jnp.exp(w["A_log"]))
    h = decay * state["h"] + jnp.outer(dt * x, b)
    y = (h @ read + w["D"] * x) * jax.nn.silu(z)
    return {"window": window, "h": h}, w["out_proj.weight"] @ y


STARTS = {"ttt_linear": ttt_start, "ttt_mlp": ttt_start, "attention": attention_start,
          "linear_attention": linear_attention_start, "mamba": mamba_start}
STEPS = {"ttt_linear": ttt_step, "ttt_mlp": ttt_step, "attention": attention_step,
         "linear_attention": linear_attention_step, "mamba": mamba_step}


# ---- the network around them ----


def block_start(c, w, length):
    state = {"mixer": STARTS[c["mixer"]](c, at(w, "seq_modeling_block."), length)}
    if c["pre_conv"]:
        state["conv"] = window_of(c, c["hidden_size"])
    return state


def block_step(c, w, state, x, time):
    def normed(name):
        return rms_norm(x, w[name], c["norm_epsilon"])

    state = dict(state)
    if c["pre_conv"]:
        state["conv"], y = convolve(w, "conv.conv", state["conv"], normed("conv.norm.weight"))
        x = x + y
    step = STEPS[c["mixer"]]
    state["mixer"], y = step(c, at(w, "seq_modeling_block."), state["mixer"], normed("seq_norm.weight"), time)
    x = x + y
    if c["intermediate_size"] > 0:
        y = normed("ffn_norm.weight")
        y = jax.nn.silu(w["mlp.gate_proj.weight"] @ y) * (w["mlp.up_proj.weight"] @ y)
        x = x + w["mlp.down_proj.weight"] @ y
    return state, x


def stacked(c, weights):
    """The parameters of all layers, one array for all: the program is then a loop over layers too."""
    first = at(weights, "model.layers.0.")
    return {name: jnp.stack([weights[f"model.layers.{i}.{name}"] for i in range(c["n_layers"])]) for name in first}


def logits(c, weights, tokens, starts):
    """`starts` is true where a document starts, time 0 too."""
    layers = stacked(c, weights)
    empty = jax.vmap(lambda w: block_start(c, w, len(tokens)))(layers)
    embedding = weights["model.embed_tokens.weight"]
    head = embedding if c["tie_embeddings"] else weights["lm_head.weight"]

    def token_step(states, now):
        time, token, start = now

        def layer_step(x, layer):
            w, state, anew = layer
            state = jax.tree.map(lambda old, new: jnp.where(start, new, old), state, anew)
            state, x = block_step(c, w, state, x, time)
            return x, state

        x, states = jax.lax.scan(layer_step, embedding[token], (layers, states, empty))
        return states, head @ rms_norm(x, weights["model.norm.weight"], c["norm_epsilon"])

    return jax.lax.scan(token_step, empty, (jnp.arange(len(tokens)), tokens, starts))[1]


@functools.cache
def compiled(config, length, shapes):
    """One program for a network and a length, whatever the numbers."""
    c = json.loads(config)

    def loss(weights, tokens, starts):
        logp = jax.nn.log_softmax(logits(c, weights, tokens, starts)[:-1])
        return -jnp.mean(jnp.take_along_axis(logp, tokens[1:, None], 1))

    arguments = ({name: jax.ShapeDtypeStruct(shape, jnp.float64) for name, shape in shapes},
                 jax.ShapeDtypeStruct((length,), jnp.int64), jax.ShapeDtypeStruct((length,), bool))
    return jax.jit(jax.value_and_grad(loss)).lower(*arguments).compile(COMPILER)


def loss_and_gradients(config, weights, tokens, resets=()):
    """The mean cross-entropy of each next token, and its gradients by name."""
    weights = {name: np.asarray(a, np.float64) for name, a in weights.items()}
    starts = np.array([time == 0 or time in resets for time in range(len(tokens))])
    shapes = tuple((name, a.shape) for name, a in weights.items())
    program = compiled(json.dumps(config, sort_keys=True), len(tokens), shapes)
    value, gradients = program(weights, np.array(tokens), starts)
    return float(value), {name: np.asarray(a) for name, a in gradients.items()}
