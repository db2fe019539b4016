"""The `ttt` command as a user or a program meets it: exit codes, one-line errors, JSON, .npy in and out.

usage: test_command.py TTT EXAMPLES_DIR     (the Python of the judges, for NumPy and ml_dtypes)
"""
import json
import os
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy as np

ttt, examples = sys.argv[1], sys.argv[2]
passed, failed = 0, 0


def run(*words, stdin=None):
    return subprocess.run([ttt, *words], capture_output=True, text=True, input=stdin, timeout=300)


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {detail}")


def check_fails(name, code, words, *needles):
    r = run(*words)
    one_line = len(r.stderr.strip().splitlines()) == 1
    check(name, r.returncode == code and one_line and all(n in r.stderr for n in needles), (r.returncode, r.stderr))


def example(name):
    return os.path.join(examples, name)


def write(folder, name, text):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        f.write(text)
    return path


def identity_program(mlir_type, dims):
    shape = "x".join(map(str, [*dims, mlir_type]))
    return f"func.func public @main(%x: tensor<{shape}>) -> tensor<{shape}> {{ return %x : tensor<{shape}> }}\n"


def test_help_and_wrong_use():
    for words in [[], ["devices"], ["plugin-check"], ["hlo"], ["hlo", "run"], ["hlo", "compile"], ["config"], ["init"], ["convert"]]:
        r = run(*words, "--help")
        check(f"help of {words}", r.returncode == 0 and r.stdout.startswith("usage: ttt") and r.stderr == "", r)
    check("no command", run().returncode == 2)
    check_fails("unknown command", 2, ["nonsense"], "nonsense", "--help")
    check_fails("unknown option", 2, ["devices", "--frob"], "--frob", "--help")
    check_fails("missing value", 2, ["devices", "--plugin"], "--plugin", "value")
    check_fails("bad number", 2, ["devices", "--cpu-devices", "0"], "cpu-devices")
    check_fails("a flag with a value", 2, ["devices", "--json=yes"], "--json")
    check_fails("no program", 2, ["hlo", "run"])
    check_fails("no target", 2, ["hlo", "compile", "x"], "--target")
    check_fails("unknown plugin", 1, ["devices", "--plugin", "abacus"], "abacus", "cpu, tpu, cuda")
    check_fails("no such file", 1, ["hlo", "run", "/no/such/file"], "/no/such/file")
    check_fails("not a plugin", 1, ["devices", "--plugin", ttt])
    check_fails("unknown target", 1, ["hlo", "compile", example("matmul.mlir"), "--target", "tpu:v1:2x2"], "list")
    r = run("devices", "--plugin", "abacus", "--json")
    check("errors as JSON", json.loads(r.stdout)["error"]["code"] == "NOT_FOUND", r.stdout)


def test_devices():
    r = run("devices", "--plugin", "cpu", "--cpu-devices", "3", "--json")
    devices = json.loads(r.stdout)["devices"]
    check("three devices", r.returncode == 0 and [d["id"] for d in devices] == [0, 1, 2], r)
    r = run("devices", "-v")
    check("-v shows the search order", "in this order" in r.stderr, r.stderr)


def test_run_values(folder):
    rng = np.random.default_rng(1)
    a, b, c = rng.normal(size=(256, 512)), rng.normal(size=(512, 128)), rng.normal(size=128)
    paths = []
    for name, array in [("a", a), ("b", np.asfortranarray(b)), ("c", c)]:
        paths.append(os.path.join(folder, name + ".npy"))
        np.save(paths[-1], array.astype(np.float32))
    r = run("hlo", "run", example("matmul.mlir"), *paths, "--out", os.path.join(folder, "out"), "--json")
    check("matmul runs", r.returncode == 0, r.stderr)
    result = np.load(os.path.join(folder, "out.0.npy"))
    error = np.abs(result - (a.astype(np.float32).astype(np.float64) @ b.astype(np.float32) + c)).max()
    # Seen: 2e-5 with 512 products of order one in f32.
    check("matmul is right, Fortran order included", result.shape == (256, 128) and error < 2e-4, error)
    check_fails("too few inputs", 1, ["hlo", "run", example("matmul.mlir"), paths[0]], "1 inputs", "3")
    check_fails("a wrong shape", 1, ["hlo", "run", example("matmul.mlir"), paths[1], paths[0], paths[2]], "f32[512,128]")
    truncated = os.path.join(folder, "cut.npy")
    with open(paths[0], "rb") as f, open(truncated, "wb") as g:
        g.write(f.read()[:-4])
    check_fails("a truncated input", 1, ["hlo", "run", example("matmul.mlir"), truncated, paths[1], paths[2]], "cut.npy")


def test_run_types(folder):
    types = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "i64": np.int64, "i32": np.int32, "i16": np.int16,
             "i8": np.int8, "ui64": np.uint64, "ui32": np.uint32, "ui16": np.uint16, "ui8": np.uint8, "i1": np.bool_,
             "bf16": ml_dtypes.bfloat16, "complex<f32>": np.complex64, "complex<f64>": np.complex128}
    for mlir_type, dtype in types.items():
        for dims in [(), (0, 3), (2, 3)]:
            values = (np.arange(np.prod(dims, dtype=int)) % 5 - (0 if "u" in mlir_type else 2)).reshape(dims).astype(dtype)
            program = write(folder, "identity.mlir", identity_program(mlir_type, dims))
            np.save(os.path.join(folder, "in.npy"), values)
            r = run("hlo", "run", program, os.path.join(folder, "in.npy"), "--out", os.path.join(folder, "same"))
            back = np.load(os.path.join(folder, "same.0.npy")) if r.returncode == 0 else None
            ok = back is not None and back.shape == dims and back.tobytes() == values.tobytes()
            check(f"{mlir_type}{list(dims)} there and back", ok, r.stderr)


def test_run_sharded(folder):
    program = write(folder, "sharded.mlir", """
module attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @m = <["x"=4]>
  func.func public @main(%a: tensor<8x3xf32> {sdy.sharding = #sdy.sharding<@m, [{"x"}, {}]>}) -> (tensor<3xf32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) {
    %zero = stablehlo.constant dense<0.0> : tensor<f32>
    %0 = stablehlo.reduce(%a init: %zero) applies stablehlo.add across dimensions = [0] : (tensor<8x3xf32>, tensor<f32>) -> tensor<3xf32>
    return %0 : tensor<3xf32>
  }
}
""")
    whole = np.arange(24, dtype=np.float32).reshape(4, 2, 3)
    np.save(os.path.join(folder, "shards.npy"), whole)
    r = run("hlo", "run", program, os.path.join(folder, "shards.npy"), "--partitions", "4", "--out", os.path.join(folder, "sum"))
    back = np.load(os.path.join(folder, "sum.0.npy")) if r.returncode == 0 else np.zeros(1)
    check("a sum over four devices", back.shape == (4, 3) and (back == whole.sum((0, 1))).all(), (r.stderr, back))


def test_run_extras(folder):
    cache = os.path.join(folder, "cache")
    first = run("hlo", "run", example("matmul.mlir"), "--cache", cache)
    second = run("hlo", "run", example("matmul.mlir"), "--cache", cache)
    check("the cache serves the second run", "compiled" in first.stdout and "loaded from the cache" in second.stdout, second.stdout)
    check("and gives the same", first.stdout.splitlines()[2:] == second.stdout.splitlines()[2:], second.stdout)
    with open(os.path.join(cache, os.listdir(cache)[0]), "r+b") as f:
        f.seek(200)
        byte = f.read(1)
        f.seek(200)
        f.write(bytes([byte[0] ^ 1]))
    third = run("hlo", "run", example("matmul.mlir"), "--cache", cache, "-v")
    check("a damaged cache entry is made anew", third.returncode == 0 and "damaged" in third.stderr, third.stderr[-300:])
    with open(example("matmul.mlir")) as f:
        r = run("hlo", "run", "-", "--repeat", "3", "--json", stdin=f.read())
    check("a program from standard input", r.returncode == 0 and json.loads(r.stdout)["random_inputs"], r.stderr)
    trace = os.path.join(folder, "run.xplane.pb")
    r = run("hlo", "run", example("matmul.mlir"), "--trace", trace)
    check("a trace file", r.returncode == 0 and os.path.getsize(trace) > 100, r.stderr)
    r = run("hlo", "run", example("matmul.mlir"), "--xla", "xla_no_such_option=1")
    check("an unknown XLA option is refused", r.returncode == 1, r.stderr)
    nan = write(folder, "nan.mlir", """
func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %nan = stablehlo.constant dense<0x7FC00000> : tensor<2xf32>
  %0 = stablehlo.maximum %x, %nan : tensor<2xf32>
  return %0 : tensor<2xf32>
}
""")
    r = run("hlo", "run", nan, "--json")
    check("max keeps NaN", r.returncode == 0 and json.loads(r.stdout)["results"][0]["values"] == [None, None], r.stdout)
    bad = write(folder, "bad.mlir", "func.func @main() { oh dear }")
    check("a bad program", run("hlo", "run", bad).returncode == 1)


def test_compile(folder):
    listed = {t["name"] for t in json.loads(run("hlo", "compile", "--target", "list", "--json").stdout)["targets"]}
    wanted = {"cuda:a100-sxm-40gb", "cuda:a100-sxm-80gb", "cuda:h100-sxm", "cuda:h200-sxm", "cuda:b200", "tpu:v5e:2x2", "cpu"}
    check("the target table", wanted <= listed, wanted - listed)
    saved = os.path.join(folder, "pod.exe")
    r = run("hlo", "compile", example("sharded_matmul.mlir"), "--target", "tpu:v5e:16x16", "--partitions", "256", "--save", saved, "--json")
    check("256-way sharded for a v5e pod", r.returncode == 0, r.stderr)
    if r.returncode == 0:
        j = json.loads(r.stdout)
        check("shards as arguments", j["arguments"] == ["bf16[512,256]", "bf16[256,4096]"], j["arguments"])
        check("memory and cycles", j["memory"]["argument_bytes"] == 2359296 and j["program"]["total"]["cycles"] > 0, j["memory"])
        check("its all-reduce", [c["group_size"] for c in j["program"]["collectives"]] == [16], j["program"]["collectives"])
        check("saved", os.path.getsize(saved) > 1000)
    r = run("hlo", "compile", example("custom_call.mlir"), "--target", "cuda:a100-sxm-40gb", "--ffi", "ttt_example", "--json")
    check("a custom call for an A100", r.returncode == 0, r.stderr)
    if r.returncode == 0:
        j = json.loads(r.stdout)
        check("is in the program", [c["name"] for c in j["program"]["custom_calls"]] == ["ttt_example"], j["program"]["custom_calls"])
        check("memory figures", j["memory"]["argument_bytes"] == 4096, j["memory"])
    check_fails("without a handler it does not compile", 1,
                ["hlo", "compile", example("custom_call.mlir"), "--target", "cuda:a100-sxm-40gb"], "ttt_example")
    for target in ["cuda:h100-sxm", "cuda:b200", "tpu:v6e:2x2", "cpu"]:
        r = run("hlo", "compile", example("matmul.mlir"), "--target", target)
        check(f"matmul for {target}", r.returncode == 0 and "33.6 MFLOP" in r.stdout, r.stderr or r.stdout)


def test_plugin_check():
    r = run("plugin-check", "cpu", "--json")
    outcomes = {p["probe"]: p["outcome"] for p in json.loads(r.stdout)["probes"]}
    lacking = {name for name, outcome in outcomes.items() if outcome != "ok"}
    check("the CPU plugin lacks memory statistics and nothing else", r.returncode == 0 and lacking == {"memory-stats"}, lacking)
    for plugin in ["tpu", "cuda"]:
        r = run("plugin-check", plugin, "--json")
        outcomes = {p["probe"]: p["outcome"] for p in json.loads(r.stdout)["probes"]}
        check(f"{plugin} compiles ahead of time", r.returncode == 0 and outcomes["compile-ahead"] == "ok", outcomes)


def tensors_of(path):
    """A safetensors file, read the plain way."""
    with open(path, "rb") as f:
        data = f.read()
    length = int.from_bytes(data[:8], "little")
    types = {"F32": np.float32, "BF16": ml_dtypes.bfloat16}
    out = {}
    for name, t in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            start, end = (8 + length + o for o in t["data_offsets"])
            out[name] = np.frombuffer(data[start:end], types[t["dtype"]]).reshape(t["shape"])
    return out


def test_config():
    rows = json.loads(run("config", "list", "--json").stdout)["presets"]
    sizes = {(r["preset"], r["mixer"], r["backbone"]): r["parameters"] for r in rows}
    check("125m in the list", sizes.get(("125m", "ttt_mlp", "mamba")) == 114589776, sizes)
    check("every mixer and backbone", len(sizes) == 68, len(sizes))
    r = run("config", "show", "--preset", "1.3b", "--set", "n_layers=12", "--set", "rope_theta=500000")
    j = json.loads(r.stdout)
    check("overrides", (j["n_layers"], j["rope_theta"], j["hidden_size"]) == (12, 500000, 2048), j)
    check("parameters of it", j["parameters"] == 675588672, j["parameters"])
    hf = json.loads(run("config", "show", "--preset", "125m", "--mixer", "ttt_mlp", "--hf").stdout)
    check("Hugging Face's fields", (hf["ttt_layer_type"], hf["num_hidden_layers"], hf["ttt_base_lr"]) == ("mlp", 12, 0.1), hf)
    show = ["config", "show", "--preset", "tiny"]
    check_fails("an unknown field", 1, [*show, "--set", "n_layer=12"], "n_layer")
    check_fails("a contradiction", 1, [*show, "--set", "n_heads=3"], "hidden_size", "n_heads")
    check_fails("no field at all", 2, [*show, "--set", "12"], "--set")
    check_fails("no preset", 1, ["config", "show"], "--preset")


def test_init_and_convert(folder):
    first, again, half = (os.path.join(folder, n) for n in ["first", "again", "half"])
    sizes = ["--preset", "tiny", "--mixer", "ttt_mlp", "--set", "n_layers=2", "--set", "vocab_size=64"]
    r = run("init", *sizes, "--seed", "5", first, "--json")
    check("a network before training", r.returncode == 0 and json.loads(r.stdout)["tensors"] == 2 * 27 + 2, r.stderr)
    weights = tensors_of(os.path.join(first, "model.safetensors"))
    check("stored [out, in]", weights["model.layers.1.mlp.down_proj.weight"].shape == (128, 344))
    check("no copy of the embedding", "lm_head.weight" not in weights)
    r = run("convert", "--from", "hf", "--to", "hf", "--dtype", "bf16", first, half)
    rounded = tensors_of(os.path.join(half, "model.safetensors")) if r.returncode == 0 else {}
    check("bf16, to nearest even", rounded.keys() == weights.keys() and
          all(np.array_equal(rounded[n].view(np.uint16), w.astype(ml_dtypes.bfloat16).view(np.uint16)) for n, w in weights.items()), r.stderr)
    run("init", "--model", first, "--seed", "5", again)
    check("the same seed, the same bits", all(np.array_equal(w, weights[n]) for n, w in tensors_of(os.path.join(again, "model.safetensors")).items()))
    run("init", "--model", first, "--seed", "6", again)
    check("another seed", not np.array_equal(tensors_of(os.path.join(again, "model.safetensors"))["model.embed_tokens.weight"], weights["model.embed_tokens.weight"]))
    check_fails("another network", 1, ["convert", "--from", "hf", "--to", "hf", "--set", "n_layers=3", first, again], "model.layers.2.")
    check_fails("not a checkpoint", 1, ["convert", "--from", "jax", "--to", "hf", os.path.join(first, "config.json"), again], "config.json")
    check_fails("nothing to read", 1, ["convert", "--from", "hf", "--to", "hf", os.path.join(folder, "none"), again], "none")
    check_fails("no such source", 2, ["convert", "--from", "tf", "--to", "hf", first, again], "--from")


with tempfile.TemporaryDirectory() as scratch:
    test_help_and_wrong_use()
    test_config()
    test_init_and_convert(scratch)
    test_devices()
    test_run_values(scratch)
    test_run_types(scratch)
    test_run_sharded(scratch)
    test_run_extras(scratch)
    test_compile(scratch)
    test_plugin_check()
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
