"""The rival of bench_dispatch: JAX's jitted call of the same program on JAX's own CPU client."""
import json
import sys
import time

import jax
import jax.numpy as jnp


def best_time(step, x, calls, wait_each):
    best = 1e9
    for _ in range(7):
        start = time.perf_counter()
        for _ in range(calls):
            x = step(x)
            if wait_each:
                x.block_until_ready()
        x.block_until_ready()
        best = min(best, (time.perf_counter() - start) / calls)
    return x, best


calls = int(sys.argv[1]) if len(sys.argv) > 1 else 20000
step = jax.jit(lambda x: x + 1.0)
x = step(jnp.zeros((), jnp.float32)).block_until_ready()
x, queued = best_time(step, x, calls, False)
x, waited = best_time(step, x, calls, True)
print(json.dumps({"calls": calls, "queued_us": round(1e6 * queued, 3), "waited_us": round(1e6 * waited, 3)}))
