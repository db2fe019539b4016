"""`ttt logits`, `ttt grads` and `ttt compile` as a user or a program meets them.

usage: test_model_commands.py TTT     (the Python of the judges, for NumPy)

What they compute is judged by tests/model; here it is that every way of asking gives the same, and that what is wrong is said in one line.
"""
import collections
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
from jaxlib import _hlo

ttt = sys.argv[1]
passed, failed = 0, 0
TOKENS = [1, 4, 7, 10, 2, 5, 8, 0, 3, 6, 9, 11, 1, 2, 3, 4, 5, 6, 7, 31, 30, 29, 28]
LIST = ",".join(map(str, TOKENS))


def run(*words, stdin=None):
    return subprocess.run([ttt, *words], capture_output=True, text=True, input=stdin, timeout=600)


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {detail}")


def check_close(name, a, b, allowed):
    error = np.abs(a - b).max() if a.shape == b.shape else np.inf
    check(name, error <= allowed, f"{error} of {allowed}")


def check_fails(name, code, words, *needles):
    r = run(*words)
    one_line = len(r.stderr.strip().splitlines()) == 1
    check(name, r.returncode == code and one_line and all(n in r.stderr for n in needles), (r.returncode, r.stderr))


def tensors_of(path):
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    return {n: np.frombuffer(data[start:][slice(*t["data_offsets"])], np.float32).reshape(t["shape"])
            for n, t in header.items() if n != "__metadata__"}


def write_tensors(path, arrays):
    header, at = {}, 0
    for name, a in arrays.items():
        header[name] = {"dtype": "F32", "shape": a.shape, "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + b"".join(a.tobytes() for a in arrays.values()))


class Folder:
    def __init__(self, scratch, name, mixer, backbone):
        self.path = os.path.join(scratch, name)
        r = run("init", self.path, "--preset", "tiny", "--mixer", mixer, "--backbone", backbone, "--set", "n_layers=2", "--set",
                "vocab_size=32", "--set", "hidden_size=32", "--set", "intermediate_size=24")
        check(f"a folder for {name}", r.returncode == 0, r.stderr)

    def file(self, name):
        return os.path.join(self.path, name)

    def logits(self, *options, tokens=LIST):
        r = run("logits", "--model", self.path, "--tokens", tokens, "--out", self.file("out.npy"), *options)
        if r.returncode != 0:
            check(f"logits {options}", False, r.stderr)
            return np.zeros(1)
        return np.load(self.file("out.npy"))

    def grads(self, *options):
        r = run("grads", "--model", self.path, "--tokens", LIST, "--out", self.file("grads.safetensors"), "--json", *options)
        if r.returncode != 0:
            check(f"grads {options}", False, r.stderr)
            return {"loss": np.nan, "gradient_norm": np.nan}, {}
        return json.loads(r.stdout), tensors_of(self.file("grads.safetensors"))


def test_help():
    for command in ["logits", "grads", "compile"]:
        r = run(command, "--help")
        check(f"help of {command}", r.returncode == 0 and r.stdout.startswith(f"usage: ttt {command}") and r.stderr == "", r)
        check(f"{command} in the list", f"\n  {command} " in run("--help").stdout)


def test_wrong_use(scratch):
    folder = os.path.join(scratch, "linear")
    out = os.path.join(scratch, "out.npy")
    for command in ["logits", "grads"]:
        all_but = {"--model": folder, "--tokens": LIST, "--out": out}
        for left_out in all_but:
            words = [w for option, value in all_but.items() if option != left_out for w in (option, value)]
            check_fails(f"{command} without {left_out}", 2, [command, *words], left_out, "--help")
        good = [command, "--model", folder, "--tokens", LIST, "--out", out]
        check_fails("an operand", 2, [*good, "what"], "what")
        check_fails("tokens that are none", 2, [command, "--model", folder, "--out", out, "--tokens", "1,x,3"], "1,x,3", "1,4,7")
        check_fails("no tokens at all", 2, [command, "--model", folder, "--out", out, "--tokens", ""], "--tokens")
        check_fails("tokens twice", 2, [*good, "--tokens-file", out], "not both")
        check_fails("no such form", 2, [*good, "--form", "triple"], "dual, primal or matrix")
        check_fails("no such type", 2, [*good, "--dtype", "f16"], "bf16")
        check_fails("no such layers", 2, [*good, "--layers", "heaped"], "separate or stacked")
        check_fails("no such axis", 2, [*good, "--mesh", "rows=2"], "rows=2", "data, fsdp, time and model")
        check_fails("a mesh without numbers", 2, [*good, "--mesh", "data=two"], "data=two")
    check_fails("no such remat", 2, ["grads", "--remat", "much"], "some, none or all")
    check_fails("nothing to keep of logits", 2, ["logits", "--remat", "all"], "--remat")
    check_fails("compile without a step", 2, ["compile", "--preset", "tiny", "--target", "cpu"], "--step", "decode")
    check_fails("no such step", 2, ["compile", "--preset", "tiny", "--target", "cpu", "--step", "backward"], "--step")
    check_fails("compile without a target", 2, ["compile", "--preset", "tiny", "--step", "train"], "--target")
    check_fails("compile on a bad mesh", 2, ["compile", "--preset", "tiny", "--step", "train", "--target", "cpu", "--mesh", "data=2,data=2"], "twice")
    check_fails("a batch of none", 2, ["compile", "--preset", "tiny", "--step", "train", "--target", "cpu", "--batch", "0"], "--batch")


def test_failures(scratch, folder, attention):
    out = os.path.join(scratch, "out.npy")

    def words(command="logits", tokens=LIST, model=folder.path, to=out):
        return [command, "--model", model, "--tokens", tokens, "--out", to]

    nowhere = os.path.join(scratch, "nowhere")
    check_fails("no such folder", 1, words(model=nowhere), "nowhere", "config.json")
    check_fails("a token too large", 1, words(tokens="1,2,32,3"), "token 32 at position 2", "0 to 31")
    check_fails("a token below zero", 1, words("grads", tokens="1,-2"), "token -2 at position 1")
    check_fails("one token has no next", 1, words("grads", tokens="1"), "two tokens")
    check_fails("a reset behind the end", 1, [*words(), "--resets", "0,23"], "23", "0 to 22")
    check_fails("no such file of tokens", 1, ["logits", "--model", folder.path, "--out", out, "--tokens-file", nowhere], "nowhere")
    check_fails("a file of something else", 1,
                ["logits", "--model", folder.path, "--out", out, "--tokens-file", folder.file("config.json")], "config.json", "list")
    check_fails("a mesh that does not divide", 1, [*words(), "--mesh", "model=3"], "model.", "does not divide by 3")
    check_fails("diagnostics token by token", 1, [*words(), "--form", "primal", "--diagnostics", out], "dual")
    check_fails("diagnostics of attention", 1, [*words(model=attention.path), "--diagnostics", out], "attention")
    check_fails("nowhere to write to", 1, words(to=os.path.join(nowhere, "x.npy")), "nowhere")
    check_fails("nowhere to write gradients to", 1, words("grads", to=os.path.join(nowhere, "x")), "nowhere")
    check_fails("an unknown plugin", 1, [*words(), "--plugin", "abacus"], "abacus")
    r = run(*words(tokens="99"), "--json")
    check("failures as JSON", r.returncode == 1 and "token 99" in json.loads(r.stdout)["error"]["message"], r.stdout)
    bare = os.path.join(scratch, "bare")
    os.mkdir(bare)
    with open(folder.file("config.json")) as f, open(os.path.join(bare, "config.json"), "w") as g:
        g.write(f.read())
    check_fails("no weights", 1, words(model=bare), "model.safetensors")


def test_logits(folder):
    right = folder.logits()
    check("logits", right.shape == (len(TOKENS), 32) and right.dtype == np.float32, (right.shape, right.dtype))
    # Seen: 9e-8 and less; logits are of order 0.1.
    check_close("token by token", folder.logits("--form", "primal"), right, 1e-5)
    check_close("layers one by one", folder.logits("--layers", "separate"), right, 1e-5)
    wide = folder.logits("--dtype", "f64")
    check("f64 in full", wide.dtype == np.float64 and (wide != wide.astype(np.float32)).any(), wide.dtype)
    check_close("f64", wide, right, 1e-5)
    # Seen: 3e-3.
    check_close("bf16", folder.logits("--dtype", "bf16"), right, 2e-2)
    for mesh in ["data=2,model=2", "fsdp=4"]:
        check_close(f"on four devices, {mesh}", folder.logits("--mesh", mesh), right, 1e-5)
    check_close("token by token on four devices", folder.logits("--form", "primal", "--mesh", "fsdp=2,model=2"), right, 1e-5)
    path = folder.file("tokens.txt")
    with open(path, "w") as f:
        f.write("\n".join(map(str, TOKENS)) + "\n")
    for words, stdin in [(["--tokens-file", path], None), (["--tokens-file", "-"], " ".join(map(str, TOKENS)))]:
        r = run("logits", "--model", folder.path, "--out", folder.file("file.npy"), *words, stdin=stdin)
        check("tokens from a file", r.returncode == 0 and (np.load(folder.file("file.npy")) == right).all(), r.stderr)


def test_resets(folder, start):
    """A document that starts within a sequence is as if it stood alone."""
    alone = folder.logits(tokens=",".join(map(str, TOKENS[start:])))
    for form in ["dual", "primal"]:
        both = folder.logits("--form", form, "--resets", f"0,{start}")
        check_close(f"a document of its own, {form}, {folder.path}", both[start:], alone, 1e-5)


def test_diagnostics(folder):
    r = run("logits", "--model", folder.path, "--tokens", LIST, "--out", folder.file("out.npy"), "--diagnostics", folder.file("inner.npy"), "--json")
    if r.returncode != 0:
        return check("diagnostics", False, r.stderr)
    j = json.loads(r.stdout)
    inner = np.load(folder.file("inner.npy"))
    check("inner losses", inner.shape == (2, 4, len(TOKENS)) and (inner > 0).all(), inner.shape)
    check("rates: mean, least, largest", all(least <= mean <= most for mean, least, most in j["diagnostics"]["rate"]), j)
    check("norms of states", np.shape(j["diagnostics"]["state_norm"]) == (2, 2), j)
    check("and the rest", (j["tokens"], j["shape"], j["dtype"]) == (len(TOKENS), "f32[23,32]", "f32"), j)
    r = run("logits", "--model", folder.path, "--tokens", LIST, "--out", folder.file("out.npy"), "--diagnostics", folder.file("inner.npy"))
    check("the same as text", r.stdout.count("layer 1") == 2, r.stdout)


def test_grads(folder):
    weights = tensors_of(folder.file("model.safetensors"))
    told, right = folder.grads()
    check("names and shapes of the file", {n: a.shape for n, a in right.items()} == {n: a.shape for n, a in weights.items()})
    logits = folder.logits("--dtype", "f64")[:-1]
    loss = np.mean(np.log(np.exp(logits).sum(-1)) - logits[np.arange(len(logits)), TOKENS[1:]])
    # Seen: 4e-7.
    check("the loss of the logits", abs(told["loss"] - loss) < 1e-5, (told["loss"], loss))
    norm = np.sqrt(sum(np.sum(a.astype(np.float64)**2) for a in right.values()))
    check("the norm of the file", abs(told["gradient_norm"] - norm) < 1e-9 * norm, (told["gradient_norm"], norm))
    for options in [["--form", "primal"], ["--layers", "separate"], ["--dtype", "f64"], ["--remat", "all"], ["--remat", "none"],
                    ["--mesh", "fsdp=2,model=2"]]:
        other, grads = folder.grads(*options)
        error = max((np.abs(grads[n] - a).max() / np.abs(a).max() for n, a in right.items()), default=np.inf) if grads else np.inf
        # Seen: 1e-5.
        check(f"grads {options}", abs(other["loss"] - told["loss"]) < 1e-5 and error < 1e-4, (other["loss"], error))
    r = run("grads", "--model", folder.path, "--tokens", LIST, "--out", folder.file("grads.safetensors"))
    check("as text", r.returncode == 0 and r.stdout.startswith("loss "), r.stdout)


def test_slope(folder):
    """The loss moves as the gradients say: along a random direction, with weights as f32 can have them."""
    path, rng = folder.file("model.safetensors"), np.random.default_rng(3)
    weights = tensors_of(path)
    _, grads = folder.grads("--dtype", "f64")
    moves = {n: 1e-6 * rng.normal(size=a.shape) for n, a in weights.items()}
    plus = {n: (a + moves[n]).astype(np.float32) for n, a in weights.items()}
    minus = {n: (a - moves[n]).astype(np.float32) for n, a in weights.items()}
    losses = []
    for arrays in [plus, minus, weights]:
        write_tensors(path, arrays)
        if arrays is not weights:
            losses.append(folder.grads("--dtype", "f64")[0]["loss"])
    slope = sum(np.sum(grads[n] * (plus[n].astype(np.float64) - minus[n])) for n in weights) if grads else np.nan
    # Seen: 8e-6 of it; the rest of a larger move is the third derivative's.
    check("a finite difference", abs(losses[0] - losses[1] - slope) < 1e-4 * abs(slope), (losses, slope))


def compile_json(*words):
    r = run("compile", *words, "--json")
    if r.returncode != 0:
        check(f"compile {words}", False, r.stderr)
        return None
    return json.loads(r.stdout)


def module_of(path):
    """The text of an optimized program, the first field of what libtpu hands back."""
    with open(path, "rb") as f:
        data = f.read()
    size, shift, at = 0, 0, 1
    while True:
        size |= (data[at] & 127) << shift
        shift, at = shift + 7, at + 1
        if data[at - 1] < 128:
            break
    return _hlo.HloModule.from_serialized_hlo_module_proto(data[at:at + size]).to_string()


def test_bf16(scratch):
    """What goes into the matrix units of a TPU, outside the learners, whose state stays f32."""
    path = os.path.join(scratch, "optimized.pb")
    run("compile", "--preset", "tiny", "--step", "train", "--batch", "1", "--context", "64", "--target", "tpu:v5e:2x2",
        "--dtype", "bf16", "--optimized", path)
    text = module_of(path)
    types = dict(re.findall(r"%([\w.-]+) = (\w+)\[", text))
    taken = collections.Counter()
    for a, b, scope in re.findall(r" convolution\(%([\w.-]+), %([\w.-]+)\).*?op_name=\"([^\"]*)\"", text):
        if "learn" not in scope:
            taken[types[a], types[b]] += 1
    check("bf16 reaches the matrix units", set(taken) == {("bf16", "bf16")} and taken.total() > 20, taken)


def test_roofline(j):
    """The bound follows from the program's figures and the target's peaks, as the printed formulas say."""
    r, p, m = j["roofline"], j["program"], j["memory"]
    peaks = r["peaks"]
    check("public peaks", (peaks["flops_per_second"], peaks["bytes_per_second"], peaks["link_bytes_per_second"]) == (197e12, 819e9, 200e9), peaks)
    check("arithmetic", np.isclose(r["arithmetic_seconds"], p["total"]["flops"] / 197e12))
    check("memory", np.isclose(r["memory_seconds"], p["total"]["main_bytes"] / 819e9) and p["total"]["main_bytes"] < p["total"]["bytes"])
    sent = sum(c["executed"] * c["bytes"] * (2 if c["kind"] == "all-reduce" else 1) * (1 if c["kind"] == "collective-permute" else (c["group_size"] - 1) / c["group_size"])
               for c in p["collectives"])
    check("links", np.isclose(r["link_seconds"], sent / 200e9), (r["link_seconds"], sent))
    check("asynchronous ones", 0 < r["link_seconds_asynchronous"] < r["link_seconds"] and {c["asynchronous"] for c in p["collectives"]} == {True, False})
    check("a step", np.isclose(r["step_seconds"], max(r["operations_seconds"] + r["exposed_link_seconds"], r["memory_seconds"])), r)
    check("operations", r["arithmetic_seconds"] < r["operations_seconds"] and r["exposed_link_seconds"] <= r["link_seconds"] * 1.000001, r)
    check("tokens", np.isclose(r["tokens_per_second_at_most"], 8 * 64 / r["step_seconds"]))
    check("MFU", np.isclose(r["mfu_at_most"], r["model_flops_per_token"] * r["tokens_per_second_at_most"] / (4 * 197e12)) and 0 < r["mfu_at_most"] < 1, r)
    check("what is free", m["free_bytes"] == m["limit_bytes"] - m["needed_bytes"] and np.isclose(m["free_percent"], 100 * m["free_bytes"] / m["limit_bytes"]), m)
    check("the executable's size", j["program_bytes"] > m["code_bytes"], j["program_bytes"])


def test_compare(scratch, a, b):
    """Two reports, saved or compiled for it."""
    paths = [os.path.join(scratch, name) for name in ["a.json", "b.json"]]
    for path, report in zip(paths, [a, b]):
        with open(path, "w") as f:
            json.dump(report, f)
    r = run("compile", "--compare", *paths, "--json")
    table = {row["figure"]: row for row in json.loads(r.stdout)["figures"]} if r.returncode == 0 else {}
    row = table.get("arithmetic", {})
    check("figures side by side", row.get("a") == a["program"]["total"]["flops"] and np.isclose(row["ratio"], row["b"] / row["a"]), r.stdout + r.stderr)
    r = run("compile", "--compare", *paths)
    check("as a table", r.returncode == 0 and "B / A" in r.stdout and "forward" in r.stdout, r.stdout + r.stderr)
    tiny = ["--preset", "tiny", "--context", "32", "--set", "n_layers=1", "--set", "vocab_size=64", "--step", "forward", "--target", "cpu"]
    r = run("compile", *tiny, "--compare", "batch=1", "batch=2 dtype=bf16", "--json")
    both = json.loads(r.stdout) if r.returncode == 0 else {"a": {}, "b": {}}
    check("compiled for it", (both["a"].get("batch"), both["b"].get("batch"), both["b"].get("dtype")) == (1, 2, "bf16"), r.stdout + r.stderr)
    check_fails("half a comparison", 2, ["compile", *tiny, "--compare", "batch=1"], "two")
    check_fails("an option that is none", 2, ["compile", *tiny, "--compare", "batch=1", "colour=red"], "--colour")
    check_fails("no such report", 1, ["compile", "--compare", "missing.json", "b.json"], "missing.json")
    with open(paths[0], "w") as f:
        f.write("{}")
    check_fails("a report that is none", 1, ["compile", "--compare", *paths], "a.json is no report")


def test_mesh_auto():
    tiny = ["--preset", "tiny", "--context", "32", "--set", "n_layers=1", "--set", "vocab_size=64", "--step", "forward", "--dtype", "bf16"]
    j = compile_json(*tiny, "--target", "tpu:v5e:2x2", "--mesh", "auto", "--candidates", "2")
    if j:
        rows = j["mesh_search"]["candidates"]
        sizes = [{a: int(n) for a, n in (part.split("=") for part in r["mesh"].split(","))} for r in rows]
        check("meshes of all chips", len(rows) == 2 and all(s["data"] * s["fsdp"] * s["model"] == 4 for s in sizes), rows)
        check("meshes that divide", all(2 % s["model"] == 0 for s in sizes) and j["mesh_search"]["possible"] == 5, j["mesh_search"]["possible"])
        check("ranked by the rule", rows[0]["fits"] and rows[0]["step_seconds"] <= rows[1]["step_seconds"], rows)
        check("the best is reported on", j["mesh"] == {**sizes[0], "time": 1} and j["roofline"]["step_seconds"] == rows[0]["step_seconds"] and j["batch"] == 4, j["mesh"])
    check_fails("auto without peaks", 1, ["compile", *tiny, "--target", "cpu", "--mesh", "auto"], "cpu")
    check_fails("auto with files", 1, ["compile", *tiny, "--target", "tpu:v5e:2x2", "--mesh", "auto", "--save", "x"], "--save")
    check_fails("nothing divides", 1, ["compile", *tiny, "--target", "tpu:v5e:2x2", "--mesh", "auto", "--batch", "3", "--set", "n_heads=1"], "no mesh")


def test_compile_times():
    """Where times are split, states go from chip to chip and parameters are gathered, but no activations are."""
    j = compile_json("--preset", "tiny", "--context", "512", "--set", "n_layers=2", "--set", "vocab_size=64", "--step", "train", "--target",
                     "tpu:v5e:2x2", "--mesh", "fsdp=2,time=2", "--batch", "8", "--dtype", "bf16", "--remat", "all")
    if not j:
        return
    found = j["program"]["collectives"]
    state, widest = 2 * 64 * 64 * 4, 344 * 128 * 2  # activations of a chip's sequences: 524288
    check("states go on", any(c["kind"] == "collective-permute" and c["bytes"] == state for c in found), found)
    check("no activations are gathered", all(c["bytes"] <= widest for c in found if c["kind"] == "all-gather"), found)
    check("none change places", all(c["kind"] != "all-to-all" for c in found), found)


def test_compile(scratch):
    tiny = ["--preset", "tiny", "--context", "64", "--set", "n_layers=2", "--set", "vocab_size=64", "--set", "mini_batch_size=2"]
    emitted, saved = os.path.join(scratch, "step.mlir"), os.path.join(scratch, "step.exe")
    j = compile_json(*tiny, "--step", "train", "--target", "tpu:v5e:2x2", "--mesh", "data=2,fsdp=2", "--batch", "8", "--dtype", "bf16",
                     "--emit", emitted, "--save", saved)
    if j:
        p = j["program"]
        check("what it is", (j["step"], j["mixer"], j["batch"], j["context"], j["dtype"], j["partitions"]) ==
              ("train", "ttt_linear", 8, 64, "bf16", 4), j)
        check("the mesh", j["mesh"] == {"data": 2, "fsdp": 2, "time": 1, "model": 1}, j["mesh"])
        check("memory", j["memory"]["fits"] and 0 < j["memory"]["temp_bytes"] < j["memory"]["needed_bytes"] < j["memory"]["limit_bytes"], j["memory"])
        check("cycles", 0 < j["cycles_in_mini_batch_loops"] < p["cycles_in_loops"] < p["total"]["cycles"], j["cycles_in_mini_batch_loops"])
        check("gradients meet", any(c["kind"] in ("all-reduce", "reduce-scatter") for c in p["collectives"]), p["collectives"])
        check("times", j["build_seconds"] > 0 and j["compile_seconds"] > 0)
        test_roofline(j)
        check("the program", os.path.getsize(emitted) == j["text_bytes"] and os.path.getsize(saved) > 1000, j["text_bytes"])
        r = run("hlo", "compile", emitted, "--target", "cpu", "--partitions", "4")
        check("which others can compile", r.returncode == 0, r.stderr)
    one = compile_json(*tiny, "--step", "forward", "--target", "tpu:v5e:2x2")
    slow = compile_json(*tiny, "--step", "forward", "--target", "tpu:v5e:2x2", "--form", "primal")
    if one and slow:
        check("one chip", one["partitions"] == 1 and one["batch"] == 1 and not one["program"]["collectives"], one["partitions"])
        check("token by token is slower", slow["program"]["total"]["cycles"] > 5 * one["program"]["total"]["cycles"])
        test_compare(scratch, one, slow)
    for step, target in [("eval", "cpu"), ("prefill", "cpu"), ("decode", "cpu"), ("decode", "cuda:a100-sxm-40gb")]:
        j = compile_json(*tiny, "--step", step, "--target", target, "--layers", "separate")
        check(f"{step} for {target}", j and j["program"]["total"]["flops"] > 0)
        check(f"a bound for {step} on {target}", j and (j["roofline"] is None) == (target == "cpu"))
    j = compile_json(*tiny, "--step", "eval", "--target", "cpu", "--batch-tokens", "192")
    check("a batch in tokens", j and (j["batch"], j["context"]) == (3, 64))
    for mixer, target in [("ttt_linear", "cuda:a100-sxm-40gb"), ("ttt_mlp", "cuda:h100-sxm")]:  # kernels inside, no GPU
        j = compile_json(*tiny, "--mixer", mixer, "--step", "decode", "--target", target, "--layers", "separate", "--kernels")
        calls = {c["name"]: c["count"] for c in j["program"]["custom_calls"]} if j else {}
        check(f"kernels in the {mixer} program for {target}", calls.get("ttt_step") == 2, calls)
    r = run("compile", *tiny, "--step", "forward", "--target", "tpu:v5e:2x2")
    check("as text", r.returncode == 0 and "mini-batches" in r.stdout and "memory a chip" in r.stdout, r.stdout + r.stderr)
    step = ["compile", *tiny, "--step", "train", "--target", "tpu:v5e:2x2"]
    check_fails("a mesh of other size", 1, [*step, "--mesh", "data=2"], "2 chips", "has 4")
    check_fails("sequences that do not divide", 1, [*step, "--mesh", "data=4", "--batch", "6"], "6 sequences", "4")
    check_fails("parameters that do not divide", 1, [*step, "--mesh", "model=4"], "does not divide by 4")
    check_fails("tokens that do not divide", 1, [*step, "--batch-tokens", "100"], "100", "64")
    check_fails("two batches", 1, [*step, "--batch-tokens", "128", "--batch", "2"], "not both")
    check_fails("parts that do not divide", 1, [*step, "--batch", "4", "--accumulation", "3"], "accumulation")
    check_fails("training token by token", 1, [*step, "--form", "primal"], "dual")
    check_fails("an unknown preset", 1, ["compile", "--preset", "huge", "--step", "train", "--target", "cpu"], "huge")
    check_fails("an unknown target", 1, ["compile", "--preset", "tiny", "--step", "train", "--target", "tpu:v1:2x2"], "tpu:v1:2x2")
    r = run("compile", "--preset", "tiny", "--step", "train", "--target", "abacus", "--json")
    check("failures as JSON", r.returncode == 1 and "error" in json.loads(r.stdout), r.stdout)


with tempfile.TemporaryDirectory() as top:
    linear, mlp = Folder(top, "linear", "ttt_linear", "mamba"), Folder(top, "mlp", "ttt_mlp", "transformer")
    attention = Folder(top, "attention", "attention", "transformer")
    test_help()
    test_wrong_use(top)
    test_failures(top, linear, attention)
    test_logits(linear)
    test_resets(linear, 16)
    test_resets(attention, 5)
    test_diagnostics(mlp)
    test_grads(linear)
    test_slope(mlp)
    test_compile(top)
    test_mesh_auto()
    test_compile_times()
    test_bf16(top)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
