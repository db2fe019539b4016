"""JAX from PyPI as a judge of a PJRT plugin: does the plugin compute what JAX's own CPU does?

    python jax_judge.py PLUGIN.so

Loads the plugin into JAX as platform `ttt_cpu` with four devices, runs a list of programs on it
and on JAX's own CPU client in the same process, and compares. One line a check, last a line
"N passed, N failed"; exit code 0 if nothing failed.
"""

import json
import os
import pickle
import sys
import tempfile
import traceback

DEVICES = 4


def load_jax(plugin, folder):
    """JAX reads its plugins when it starts: everything is set before the import."""
    config = os.path.join(folder, "plugin.json")
    with open(config, "w") as out:
        json.dump({"library_path": plugin, "create_options": {"cpu_device_count": DEVICES}}, out)
    os.environ["PJRT_NAMES_AND_LIBRARY_PATHS"] = "ttt_cpu:" + config
    os.environ["JAX_PLATFORMS"] = "ttt_cpu,cpu"
    os.environ["JAX_ENABLE_X64"] = "1"
    os.environ["XLA_FLAGS"] = ""


if len(sys.argv) != 2:
    sys.exit("usage: jax_judge.py PLUGIN.so")
FOLDER = tempfile.TemporaryDirectory()
load_jax(os.path.abspath(sys.argv[1]), FOLDER.name)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import Mesh, NamedSharding  # noqa: E402
from jax.sharding import PartitionSpec as P  # noqa: E402

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def plugin_devices():
    return jax.devices("ttt_cpu")


def random(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def both(function, *arguments, rtol=1e-5, atol=1e-5):
    """Runs on the plugin and on JAX's own CPU and compares every leaf."""
    results = []
    for device in (plugin_devices()[0], jax.devices("cpu")[0]):
        placed = [jax.device_put(a, device) for a in arguments]
        out = jax.jit(function)(*placed)
        for leaf in jax.tree.leaves(out):
            assert leaf.devices() == {device}, f"the result is on {leaf.devices()}"
        results.append(jax.tree.map(np.asarray, out))
    ours, theirs = (jax.tree.leaves(r) for r in results)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs):
        assert a.dtype == b.dtype and a.shape == b.shape, f"{a.dtype}{a.shape} {b.dtype}{b.shape}"
        np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)
    return results[0]


def mesh(*shape, names):
    return Mesh(np.array(plugin_devices()).reshape(shape), names)


@check
def plugin_is_not_jax_own():
    ours, theirs = plugin_devices()[0].client, jax.devices("cpu")[0].client
    assert len(plugin_devices()) == DEVICES
    assert "tensorflow" in ours.platform_version, ours.platform_version
    assert "tensorflow" not in theirs.platform_version, theirs.platform_version


@check
def matmul():
    both(lambda a, b: a @ b, random(128, 96), random(96, 64, seed=1))


@check
def matmul_bf16():
    a, b = (random(64, 64, seed=s).astype(jnp.bfloat16) for s in (0, 1))
    both(lambda x, y: (x @ y).astype(jnp.float32), a, b, rtol=2e-2, atol=2e-2)


@check
def grad_of_mlp():
    def loss(w1, w2, x, y):
        return jnp.mean((jax.nn.gelu(x @ w1) @ w2 - y) ** 2)

    both(jax.value_and_grad(loss, argnums=(0, 1)), random(16, 32), random(32, 4, seed=1),
         random(8, 16, seed=2), random(8, 4, seed=3))


@check
def scan_and_its_gradient():
    def loss(w, xs):
        def body(h, x):
            h = jnp.tanh(h @ w + x)
            return h, h.sum()
        h, sums = lax.scan(body, jnp.zeros(8, jnp.float32), xs)
        return h.sum() + sums.sum()

    both(jax.value_and_grad(loss), random(8, 8) * 0.3, random(20, 8, seed=1))


@check
def control_flow():
    def function(x):
        y = lax.while_loop(lambda c: c[0] < 10, lambda c: (c[0] + 1, c[1] * 1.1), (0, x))[1]
        return lax.cond(y.sum() > 0, lambda v: v + 1, lambda v: v - 1, y)

    both(function, random(5))


@check
def sort_and_top_k():
    both(lambda x: (jnp.sort(x, axis=0), jnp.argsort(x), lax.top_k(x, 3)), random(32, 17))


@check
def random_numbers_are_the_same_bits():
    def function(key):
        return (jax.random.bits(key, (64,)), jax.random.uniform(key, (64,)),
                jax.random.permutation(key, 32))

    both(function, np.array([0, 42], np.uint32), rtol=0, atol=0)
    both(lambda key: jax.random.normal(key, (256,)), np.array([0, 7], np.uint32))


@check
def convolution_and_reductions():
    def function(x, k):
        y = lax.conv_general_dilated(x, k, (1, 1), "SAME")
        return y, y.max(axis=(2, 3)), jnp.cumsum(y, axis=1), jax.nn.softmax(y, axis=1)

    both(function, random(2, 3, 16, 16), random(8, 3, 3, 3, seed=1), rtol=1e-4, atol=1e-4)


@check
def gather_scatter():
    def function(x, i):
        return x[i], x.at[i].add(1.0), jnp.take_along_axis(x, i[:, None], axis=1)

    both(function, random(16, 16), np.arange(16) % 5)


@check
def transfers_of_every_type():
    types = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32,
             np.uint64, np.float16, jnp.bfloat16, np.float32, np.float64, np.complex64,
             np.complex128, jnp.float8_e4m3fn, jnp.float8_e5m2, jnp.int4, jnp.uint4]
    for dtype in types:
        value = (np.arange(24).reshape(2, 3, 4) % 7).astype(dtype)
        array = jax.device_put(value, plugin_devices()[1])
        assert array.dtype == value.dtype
        np.testing.assert_array_equal(np.asarray(array), value, err_msg=str(dtype))
        twice = np.asarray(jax.jit(lambda x: x.reshape(6, 4))(array))
        np.testing.assert_array_equal(twice, value.reshape(6, 4), err_msg=str(dtype))


@check
def transfers_of_odd_shapes():
    device = plugin_devices()[0]
    for value in (np.float64(3.5), np.zeros((0,), np.float32), np.zeros((3, 0, 2), np.int32),
                  random(7, 5).T, random(9, 9)[::2, ::-1], random(2, 3, 4).transpose(1, 2, 0),
                  random(16 * 1024 * 1024)):
        array = jax.device_put(value, device)
        assert array.shape == np.shape(value)
        np.testing.assert_array_equal(np.asarray(array), value)
    assert jax.jit(lambda x: x.sum())(jax.device_put(np.zeros((0, 4)), device)) == 0


@check
def copies_between_devices():
    value = random(100, 10)
    array = jax.device_put(value, plugin_devices()[0])
    for device in plugin_devices()[1:] + jax.devices("cpu")[:1]:
        array = jax.device_put(array, device)
        assert array.devices() == {device}
        np.testing.assert_array_equal(np.asarray(array), value)


@check
def donation_deletes_the_input():
    step = jax.jit(lambda x, y: x + y, donate_argnums=0)
    device = plugin_devices()[0]
    state = jax.device_put(random(1000), device)
    other = jax.device_put(random(1000, seed=1), device)
    expected = np.asarray(state) + np.asarray(other)
    result = step(state, other)
    np.testing.assert_allclose(np.asarray(result), expected)
    assert state.is_deleted() and not other.is_deleted()
    try:
        np.asarray(state)
    except RuntimeError as error:
        assert "delete" in str(error).lower(), error
    else:
        raise AssertionError("a donated array could be read")


@check
def psum_over_four_devices():
    where = mesh(DEVICES, names=("i",))
    value = random(DEVICES * 8, 3)
    function = jax.jit(jax.shard_map(lambda x: lax.psum(x, "i"), mesh=where, in_specs=P("i"),
                                     out_specs=P()))
    placed = jax.device_put(value, NamedSharding(where, P("i")))
    np.testing.assert_allclose(np.asarray(function(placed)),
                               value.reshape(DEVICES, 8, 3).sum(0), rtol=1e-5, atol=1e-5)


@check
def other_collectives():
    where = mesh(DEVICES, names=("i",))

    def function(x):
        gathered = lax.all_gather(x, "i", axis=0, tiled=True)
        shifted = lax.ppermute(x, "i", [(k, (k + 1) % DEVICES) for k in range(DEVICES)])
        swapped = lax.all_to_all(x, "i", 0, 0, tiled=True)
        scattered = lax.psum_scatter(x, "i", tiled=True)
        return gathered.sum(0, keepdims=True) + 0 * x[:1], shifted, swapped, scattered

    value = random(DEVICES * DEVICES, 2)
    sharding = NamedSharding(where, P("i"))
    mapped = jax.jit(jax.shard_map(function, mesh=where, in_specs=P("i"),
                                   out_specs=(P("i"), P("i"), P("i"), P("i"))))
    total, shifted, swapped, scattered = mapped(jax.device_put(value, sharding))
    blocks = value.reshape(DEVICES, DEVICES, 2)
    np.testing.assert_allclose(np.asarray(total), np.tile(value.sum(0), (DEVICES, 1)), rtol=1e-4,
                               atol=1e-5)
    np.testing.assert_allclose(np.asarray(shifted), np.roll(blocks, 1, axis=0).reshape(-1, 2))
    np.testing.assert_allclose(np.asarray(swapped), blocks.transpose(1, 0, 2).reshape(-1, 2))
    np.testing.assert_allclose(np.asarray(scattered), blocks.sum(0), rtol=1e-5, atol=1e-5)


@check
def partitioned_by_shardy():
    where = mesh(2, 2, names=("x", "y"))
    a, b = random(64, 32), random(32, 48, seed=1)

    def function(p, q):
        out = jax.nn.relu(p @ q)
        return lax.with_sharding_constraint(out, NamedSharding(where, P("x", "y")))

    compiled = jax.jit(function).lower(
        jax.device_put(a, NamedSharding(where, P("x", "y"))),
        jax.device_put(b, NamedSharding(where, P("y", None)))).compile()
    assert "all-reduce" in compiled.as_text() or "reduce-scatter" in compiled.as_text()
    out = compiled(jax.device_put(a, NamedSharding(where, P("x", "y"))),
                   jax.device_put(b, NamedSharding(where, P("y", None))))
    assert out.sharding.spec == P("x", "y") and len(out.addressable_shards) == DEVICES
    assert out.addressable_shards[0].data.shape == (32, 24)
    np.testing.assert_allclose(np.asarray(out), np.maximum(a @ b, 0), rtol=1e-4, atol=1e-4)


@check
def training_over_the_mesh():
    where = mesh(DEVICES, names=("data",))

    def loss(w, x, y):
        return jnp.mean((jnp.tanh(x @ w) - y) ** 2)

    @jax.jit
    def step(w, x, y):
        value, gradient = jax.value_and_grad(loss)(w, x, y)
        return w - 0.1 * gradient, value

    x, y, w = random(32, 8), random(32, 2, seed=1), random(8, 2, seed=2)
    ours = jax.device_put(w, NamedSharding(where, P()))
    sharded = [jax.device_put(v, NamedSharding(where, P("data"))) for v in (x, y)]
    cpu = jax.devices("cpu")[0]
    theirs = jax.device_put(w, cpu)
    for _ in range(20):
        ours, ours_loss = step(ours, *sharded)
        theirs, theirs_loss = step(theirs, jax.device_put(x, cpu), jax.device_put(y, cpu))
    np.testing.assert_allclose(np.asarray(ours_loss), np.asarray(theirs_loss), rtol=1e-4)
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=1e-4, atol=1e-5)


@check
def queued_work():
    device = plugin_devices()[0]
    a = jax.device_put(random(256, 256) / 32, device)
    step = jax.jit(lambda x: jnp.tanh(x @ a))
    x, expected = jax.device_put(random(256, 256, seed=1), device), random(256, 256, seed=1)
    for _ in range(50):
        x = step(x)
    for _ in range(50):
        expected = np.tanh(expected @ np.asarray(a))
    np.testing.assert_allclose(np.asarray(x), expected, rtol=1e-2, atol=1e-4)


@check
def ahead_of_time_figures():
    device = plugin_devices()[0]
    arguments = [jax.device_put(random(64, 64, seed=s), device) for s in (0, 1)]
    compiled = jax.jit(lambda a, b: a @ b + 1).lower(*arguments).compile()
    costs = compiled.cost_analysis()
    assert costs["flops"] >= 2 * 64**3, costs
    memory = compiled.memory_analysis()
    assert memory.argument_size_in_bytes == 2 * 64 * 64 * 4, memory
    assert memory.output_size_in_bytes == 64 * 64 * 4, memory
    assert "HloModule" in compiled.as_text()


@check
def serialized_executable():
    from jax.experimental import serialize_executable
    device = plugin_devices()[0]
    value = jax.device_put(random(10), device)
    compiled = jax.jit(lambda x: jnp.sin(x) * 2).lower(value).compile()
    saved = pickle.dumps(serialize_executable.serialize(compiled))
    again = serialize_executable.deserialize_and_load(*pickle.loads(saved), backend="ttt_cpu",
                                                      execution_devices=[device])
    np.testing.assert_allclose(np.asarray(again(value)), np.sin(np.asarray(value)) * 2, rtol=1e-6)


@check
def profiler_writes_a_trace():
    device = plugin_devices()[0]
    value = jax.device_put(random(200, 200), device)
    function = jax.jit(lambda x: x @ x)
    function(value).block_until_ready()
    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            for _ in range(3):
                function(value).block_until_ready()
        files = [os.path.join(d, f) for d, _, names in os.walk(folder) for f in names]
        traces = [f for f in files if f.endswith(".xplane.pb")]
        assert traces and os.path.getsize(traces[0]) > 1000, files


@check
def arrays_in_column_major_order():
    from jax.experimental.layout import Format, Layout
    device = plugin_devices()[0]
    turned = Format(Layout(major_to_minor=(1, 0)), jax.sharding.SingleDeviceSharding(device))
    value = random(6, 4)
    array = jax.jit(lambda x: x * 2, out_shardings=turned)(jax.device_put(value, device))
    assert array.format.layout.major_to_minor == (1, 0), array.format
    np.testing.assert_array_equal(np.asarray(array), value * 2)
    placed = jax.device_put(value, turned)
    np.testing.assert_array_equal(np.asarray(placed), value)
    back = jax.jit(lambda x: x + 1, in_shardings=turned)(array)
    np.testing.assert_array_equal(np.asarray(back), value * 2 + 1)


@check
def errors_are_errors():
    device = plugin_devices()[0]
    value = jax.device_put(random(4, 4), device)
    try:  # LAPACK lives in jaxlib, not in the plugin: compiling for it must fail, and say why.
        jax.jit(jnp.linalg.svd)(value)
    except Exception as error:  # noqa: BLE001
        assert "lapack" in str(error).lower(), error
    else:
        raise AssertionError("a custom call that is not there was compiled")
    np.testing.assert_allclose(np.asarray(jax.jit(lambda x: x + 1)(value)), np.asarray(value) + 1)


def main():
    failed = 0
    for function in CHECKS:
        name = function.__name__
        try:
            function()
        except Exception:  # noqa: BLE001
            failed += 1
            print(f"FAIL  {name}: {traceback.format_exc()}")
        else:
            print(f"ok    {name}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
