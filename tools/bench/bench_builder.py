"""The rival of bench_builder: JAX traces and lowers the same decoder and its gradient."""
import json
import sys
import time

import jax
import jax.numpy as jnp

BATCH, TIME, WIDTH, HEADS, MINI, HIDDEN, VOCAB = 1, 2048, 2048, 32, 16, 5504, 32000
HEAD = WIDTH // HEADS
GROUP = 4


def rms_norm(x, scale):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * scale


def inner_loss(w, k, v):
    error = jnp.einsum("bhtd,bhde->bhte", k, w) - v
    return jnp.sum(error * error)


def learn(w, kvq):
    k, v, q = kvq
    w = w - jax.grad(inner_loss)(w, k, v) / MINI
    return w, jnp.einsum("bhtd,bhde->bhte", q, w)


def split(x):
    n = TIME // MINI
    x = x.reshape(BATCH, n, MINI, HEADS, HEAD).transpose(1, 0, 3, 2, 4)
    return x.reshape(n // GROUP, GROUP, *x.shape[1:])


def mix(p, x):
    parts = split(x @ p["k"]), split(x @ p["v"]), split(x @ p["q"])
    w = jnp.broadcast_to(p["w0"], (BATCH, HEADS, HEAD, HEAD))
    group = jax.checkpoint(lambda w, kvq: jax.lax.scan(learn, w, kvq))
    _, y = jax.lax.scan(group, w, parts)
    y = y.reshape(TIME // MINI, *y.shape[2:]).transpose(1, 0, 3, 2, 4).reshape(BATCH, TIME, WIDTH)
    return y @ p["o"]


def loss(layers, table, tokens, labels):
    x = table[tokens]
    for p in layers:
        x = x + mix(p, rms_norm(x, p["norm1"]))
        n = rms_norm(x, p["norm2"])
        x = x + (jax.nn.silu(n @ p["gate"]) * (n @ p["up"])) @ p["down"]
    logp = jax.nn.log_softmax(jnp.einsum("btd,vd->btv", x, table))
    return -jnp.mean(jnp.take_along_axis(logp, labels[..., None], -1))


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


for n_layers in [int(word) for word in sys.argv[1:]] or [48]:
    square = shape(WIDTH, WIDTH)
    layers = [dict(norm1=shape(WIDTH), q=square, k=square, v=square, o=square, w0=shape(HEADS, HEAD, HEAD),
                   norm2=shape(WIDTH), gate=shape(WIDTH, HIDDEN), up=shape(WIDTH, HIDDEN), down=shape(HIDDEN, WIDTH))
              for _ in range(n_layers)]
    ids = shape(BATCH, TIME, dtype=jnp.int32)
    start = time.perf_counter()
    lowered = jax.jit(jax.value_and_grad(loss)).lower(layers, shape(VOCAB, WIDTH), ids, ids)
    seconds = time.perf_counter() - start
    print(json.dumps({"layers": n_layers, "trace_and_lower_seconds": round(seconds, 3), "text_bytes": len(lowered.as_text())}))
