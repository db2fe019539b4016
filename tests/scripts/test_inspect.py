"""`ttt inspect` on everything that ttt writes, and on what it does not.

usage: test_inspect.py TTT HLO     (HLO: the folder of optimized programs, tests/data/hlo)
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml

ttt, hlo = sys.argv[1], sys.argv[2]
passed, failed = 0, 0
SVG = "{http://www.w3.org/2000/svg}"


def run(*words):
    return subprocess.run([ttt, *words], capture_output=True, text=True, timeout=600)


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {detail}")


def make(*words):
    r = run(*words)
    check(" ".join(words[:2]), r.returncode == 0, r.stderr)


def inspect(path, *options):
    r = run("inspect", path, "--json", *options)
    check(f"inspect {os.path.basename(path)}", r.returncode == 0, r.stderr)
    return json.loads(r.stdout) if r.returncode == 0 else None


def check_refused(name, path, *needles, options=()):
    r = run("inspect", path, *options)
    one_line = len(r.stderr.strip().splitlines()) == 1
    check(name, r.returncode == 1 and one_line and all(n in r.stderr for n in needles) and r.stdout == "", (r.returncode, r.stdout, r.stderr))


def pictures(scratch, path, *words):
    """Both pictures are well-formed, say these words, and load nothing."""
    page, picture = os.path.join(scratch, "page.html"), os.path.join(scratch, "picture.svg")
    r = run("inspect", path, "--html", page, "--svg", picture)
    check(f"pictures of {os.path.basename(path)}", r.returncode == 0 and os.path.basename(path) in r.stdout, r.stderr)
    with open(picture) as f:
        drawing = xml.fromstring(f.read())
    with open(page) as f:
        text = f.read()
    whole = xml.fromstring(text.removeprefix("<!DOCTYPE html>\n"))
    check("the page has the picture", whole.find(f".//{SVG}svg") is not None)
    check("the page needs nothing else", not re.search(r"(src|href)=|url\(|@import", text), re.findall(r"(?:src|href)=\S*", text))
    check("dark and light, on a phone", "prefers-color-scheme:dark" in text and 'name="viewport"' in text)
    said = " ".join(t.text or "" for t in drawing.iter(SVG + "text"))
    for word in words:
        check(f"the picture says {word}", word in said, said[:400])
    width, height = map(float, drawing.get("viewBox").split()[2:])
    for box in drawing.iter(SVG + "rect"):
        x, y, w, h = (float(box.get(k)) for k in ["x", "y", "width", "height"])
        if not (0 <= x and x + w <= width and 0 <= y and y + h <= height):
            check("boxes are inside", False, box.attrib)
            break


def test_models(scratch):
    model = os.path.join(scratch, "model")
    make("init", model, "--preset", "tiny")
    j = inspect(model)
    check("what it is", (j["kind"], j["network"]["mixer"], j["parameters"], j["tensors_match_network"]) == ("model", "ttt_linear", 901832, True), j["kind"])
    check("all tensors", sum(t["bytes"] for t in j["tensors"]) == j["tensor_bytes"] == 4 * j["parameters"], j["tensor_bytes"])
    check("all parameters are in blocks", sum(b["parameters"] for b in j["blocks"]) == j["parameters"], j["blocks"])
    layers = [b for b in j["blocks"] if b["times"] == 4]
    check("shapes of one layer", layers and {"name": "norm.weight", "shape": "f32[128]"} in layers[0]["tensors"], layers)
    pictures(scratch, model, "layer, 4 times", "embed_tokens", "f32[512,128]")
    weights = os.path.join(model, "model.safetensors")
    j = inspect(weights)
    check("tensors alone", j["kind"] == "safetensors" and j["tensor_elements"] == 901832, j["kind"])
    check_refused("no picture of tensors", weights, "no picture", options=["--svg", os.path.join(scratch, "x.svg")])
    with open(weights, "rb") as f:
        data = f.read()
    with open(weights, "wb") as f:
        f.write(data[:5000])
    check_refused("cut tensors", weights, "model.safetensors")
    with open(weights, "wb") as f:
        f.write(data)
    return model


def test_run(scratch, model):
    corpus, data, folder = (os.path.join(scratch, name) for name in ["text.txt", "data", "run"])
    with open(corpus, "w") as f:
        f.write("In the beginning was the word, and the word was short. " * 400)
    make("data", "prepare", "--tokenizer", "bytes", "--out", data, corpus)
    j = inspect(data, "--verify")
    check("prepared data", j["kind"] == "prepared data" and j["splits"][0]["tokens"] > 1000 and j["verified"], j)
    make("train", "--preset", "tiny", "--data", data, "--run", folder, "--steps", "1", "--set", "n_layers=1", "--set", "sequence_length=32",
         "--set", "batch_tokens=32")
    j = inspect(folder, "--verify")
    check("a run", j["kind"] == "run" and j["step"] == 1 and j["network"]["layers"] == 1 and "step-00000001" in j["checkpoint"], j["kind"])
    checkpoint = j["checkpoint"]
    j = inspect(checkpoint)
    check("a checkpoint", j["kind"] == "checkpoint" and {"model.safetensors", "first.safetensors"} <= {f["name"] for f in j["files"]}, j["kind"])
    path = os.path.join(checkpoint, "second.safetensors")
    with open(path, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        f.write(b"\x7f")
    check_refused("damage is named", checkpoint, "second.safetensors", "damaged", options=["--verify"])
    state = os.path.join(scratch, "state")
    make("generate", "--model", model, "--tokenizer", "bytes", "--prompt", "Hello", "--max-tokens", "3", "--state-out", state)
    j = inspect(state)
    check("a state", j["kind"] == "state" and j["mixer"] == "ttt_linear" and j["position"] > 5, j)
    bundle = os.path.join(scratch, "hash.bundle")
    make("export", "--model", model, "--out", bundle, "--tokenizer", "bytes", "--target", "cpu", "--batch", "1", "--context", "64")
    with open(os.path.join(bundle, "manifest.json"), "rb") as f:
        check("a state and a bundle print one model's hash alike", j["model_xxh3_128"].encode() in f.read(), j["model_xxh3_128"])
    check("its parts", any(p["name"].startswith("layers.0.W1") and p["shape"].endswith("2,64,64]") for p in j["parts"]), j["parts"][:4])
    with open(state, "r+b") as f:
        f.seek(2000)
        f.write(b"????")
    check_refused("a damaged state", state, "state")


def test_bundle(scratch, model):
    bundle = os.path.join(scratch, "model.bundle")
    make("export", "--model", model, "--out", bundle, "--tokenizer", "bytes", "--target", "cpu", "--batch", "1", "--context", "64")
    if not os.path.isdir(bundle):
        return
    j = inspect(bundle, "--verify")
    check("a bundle", j["kind"] == "bundle" and j["verified"] and j["has_weights"] and j["parameters"] == 901832, j["kind"])
    check("its programs", any(p["task"] == "decode" for p in j["programs"]) and [t["name"] for t in j["targets"]] == ["cpu"], j["programs"])
    check("its files", all(os.path.getsize(os.path.join(bundle, f["name"])) == f["bytes"] and len(f["xxh3_128"]) == 32 for f in j["files"]))
    pictures(scratch, bundle, "layer, 4 times")
    decode = next(p["file"] for p in j["programs"] if p["task"] == "decode")
    j = inspect(os.path.join(bundle, decode))
    check("bytecode", j["kind"] == "StableHLO bytecode" and j["producer"].startswith("StableHLO_v"), j)
    exe = next(f for f in os.listdir(bundle) if f.endswith(".exe") and "decode" in f)
    j = inspect(os.path.join(bundle, exe))
    check("an executable", j["kind"] == "executable" and j["stamp"]["platform"] == "cpu" and len(j["stamp"]["plugin_hash"]) == 32, j)
    check("and what is in it", j.get("program", {}).get("instructions", 0) > 10, j.get("program_note"))
    with open(os.path.join(bundle, exe), "r+b") as f:
        f.seek(-100, os.SEEK_END)
        f.write(b"????")
    check_refused("a damaged executable", os.path.join(bundle, exe), exe, "damaged")
    check_refused("a damaged bundle", bundle, exe, options=["--verify"])


def test_programs(scratch):
    text = os.path.join(scratch, "step.mlir")
    make("compile", "--preset", "tiny", "--set", "n_layers=2", "--step", "forward", "--context", "64", "--target", "cpu", "--emit", text)
    j = inspect(text)
    counts = {o["name"]: o["count"] for o in j["operation_counts"]}
    check("a program's text", j["kind"] == "StableHLO text" and counts["stablehlo.while"] == len(j["loops"]) > 1, j["kind"])
    with open(text) as f:
        lines = f.read().splitlines()
    check("loops where they stand", all("stablehlo.while" in lines[loop["line"] - 1] for loop in j["loops"]), j["loops"])
    check("and how long they go", j["loops"][0]["while_counter_below"] == 2, j["loops"])
    check("arguments by name", j["arguments"][0]["name"] == "model.embed_tokens.weight" and j["arguments"][0]["bytes"] == 512 * 128 * 4, j["arguments"][0])
    pictures(scratch, text, "loop on line", "below 2")
    path = os.path.join(hlo, "tpu_scan_psum.pb")
    j = inspect(path)
    memory = j["memory_over_step"]
    check("an optimized program", j["kind"] == "optimized program" and j["program"]["loops"][0]["trip_count"] == 9, j["kind"])
    check("memory over its step", max(memory["points"]) == memory["peak_bytes"] >= memory["argument_bytes"] > 0 and "estimate" in memory["note"], memory)
    pictures(scratch, path, "9 times", "arguments", "at most")


def test_strangers(scratch):
    for name, data in [("empty", b""), ("words", b"hello, world\n"), ("noise", bytes(range(256)) * 8), ("zeros", bytes(4096)), ("json", b"{}"),
                       ("TTT_letters", b"TTT" * 100000),
                       ("brace", bytes([255] * 7) + b"\0{" + bytes(100000)), ("half.exe", b"TTTEXE\n1"), ("half.state", b"TTTSTATE\1\0"), ("half.mlirbc", b"ML\xefR"), ("half.safetensors", b"\x10")]:
        path = os.path.join(scratch, name)
        with open(path, "wb") as f:
            f.write(data)
        check_refused(f"refused: {name}", path, *([] if "." in name else [name]))
    folder = os.path.join(scratch, "folder")
    os.mkdir(folder)
    check_refused("an empty folder", folder, "no bundle")
    check_refused("nothing there", os.path.join(scratch, "missing"), "missing")
    for name in ["manifest.json", "config.json", "index.json"]:
        with open(os.path.join(folder, name), "w") as f:
            f.write("{")
        check_refused(f"a broken {name}", folder)
    # Names with markup in them stay names.
    path = os.path.join(scratch, "<b>&.mlir")
    with open(path, "w") as f:
        f.write('module @m { func.func @main(%a: tensor<4xf32> loc("<x> & \\01")) -> tensor<4xf32> { %0 = stablehlo.negate %a : tensor<4xf32> } }')
    pictures(scratch, path)
    r = run("inspect")
    check("nothing to inspect", r.returncode == 2 and "which" in r.stderr, r.stderr)
    r = run("inspect", "--help")
    check("help", r.returncode == 0 and "example:" in r.stdout and "--html" in r.stdout)
    r = run("inspect", os.path.join(scratch, "empty"), "--json")
    check("failures as JSON", r.returncode == 1 and "error" in json.loads(r.stdout), r.stdout)


with tempfile.TemporaryDirectory() as top:
    tiny = test_models(top)
    test_programs(top)
    test_strangers(top)
    test_run(top, tiny)
    test_bundle(top, tiny)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
