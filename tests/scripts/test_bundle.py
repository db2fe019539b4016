"""`ttt export` and `ttt run` from outside: a bundle runs alone in an empty folder as its model does here, notices what was done to it,
and is rebuilt where its executables do not fit.

usage: test_bundle.py TTT CPU_PLUGIN [NAME …]     (the Python of the judges)
"""
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ttt, plugin = sys.argv[1], os.path.realpath(sys.argv[2])
passed, failed = 0, 0
scratch = tempfile.mkdtemp(prefix="ttt-bundle-")
cache = os.path.join(scratch, "programs")
SMALL = ["--preset", "tiny", "--set", "hidden_size=32", "--set", "n_layers=2", "--set", "intermediate_size=48", "--set", "n_heads=2",
         "--set", "vocab_size=258", "--set", "initializer_range=0.3"]
TEXT = ["--prompt", "The first of several words, and then some more", "--max-tokens", "40", "--seed", "3"]


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {detail}")


def path(name):
    return os.path.join(scratch, name)


def run(*words, program=ttt, **more):
    return subprocess.run([program, *words], capture_output=True, timeout=600, **more)


def answer(r):
    try:
        return json.loads(r.stdout)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return {}


def ids(a, index=0):
    try:
        return [t["token"] for t in a["sequences"][index]["tokens"]]
    except (KeyError, IndexError):
        return None


def refused(name, r, *parts, codes=(1,)):
    """One line on standard error that says what is wrong, and no crash."""
    text = r.stderr.decode()
    check(name, r.returncode in codes and text.count("\n") == 1 and all(p in text for p in parts), (r.returncode, text))


def model(mixer="ttt_linear"):
    folder = path(mixer)
    if not os.path.isdir(folder):
        r = run("init", folder, *SMALL, "--mixer", mixer)
        check("init", r.returncode == 0, r.stderr)
    return folder


def bundle(mixer="ttt_linear", name=None, *words):
    folder = path(name or mixer + ".bundle")
    if not os.path.isdir(folder):
        r = run("export", "--model", model(mixer), "--out", folder, "--span", "32", *words)
        check("export", r.returncode == 0, r.stderr)
    return folder


def generated(mixer, *words):
    return ids(answer(run("generate", "--model", model(mixer), "--span", "32", "--cache", cache, "--json", *TEXT, *words)))


# ---- what it makes --------------------------------------------------------------------------------

def test_texts():
    for mixer in ["ttt_linear", "attention"]:
        r = run("run", bundle(mixer), "--json", *TEXT)
        a = answer(r)
        check(f"{mixer}: as the model", r.returncode == 0 and len(ids(a)) == 40 and ids(a) == generated(mixer), (r.stderr, a))
        check(f"{mixer}: by executables", a["target"] == "cpu" and a["rebuilt"] is False, a)
    b = bundle()
    r = run("run", b, *TEXT)
    check("for people", r.returncode == 0 and r.stderr.count(b"\n") == 1 and a["sequences"], r.stderr)
    r = run("run", b, "-", "--json", "--max-tokens", "40", "--seed", "3", input=TEXT[1].encode())
    check("a prompt on standard input", ids(answer(r)) == generated("ttt_linear"), r.stderr)
    r = run("run", b, "--prompt", "a", "--prompt", "b")
    refused("more prompts than it was made for", r, "--batch")
    refused("no bundle", run("run", model(), *TEXT), "no bundle")
    refused("no prompt", run("run", b), "--prompt", codes=(2,))
    refused("which bundle", run("run", *TEXT), "which bundle", codes=(2,))


def test_states():
    """A state is the model's, however the model was brought."""
    state = path("state")
    r = run("generate", "--model", model(), "--span", "32", "--cache", cache, "--json", "--prompt", "Once", "--max-tokens", "9", "--state-out", state)
    check("out", r.returncode == 0, r.stderr)
    more = ["--prompt", " and then", "--max-tokens", "20", "--state-in", state, "--json"]
    a = answer(run("run", bundle(), *more))
    b = answer(run("generate", "--model", model(), "--span", "32", "--cache", cache, *more))
    check("a state of the model goes on in its bundle", ids(a) is not None and ids(a) == ids(b), (a, b))


def test_batches():
    b = bundle("ttt_linear", "batch.bundle", "--batch", "2", "--weights", "s8", "--no-kernels", "--json")
    more = ["--prompt", "One", "--prompt", "Two, and a little more", "--max-tokens", "20", "--seed", "5", "--json"]
    r = run("run", b, *more)
    a = answer(r)
    expected = answer(run("generate", "--model", model(), "--span", "32", "--weights", "s8", "--no-kernels", "--cache", cache, *more))
    check("side by side", r.returncode == 0 and [ids(a, i) for i in (0, 1)] == [ids(expected, i) for i in (0, 1)], (r.stderr, a))


def test_tokenizers():
    """The tokenizer goes along, by its name."""
    folder, b = path("words"), path("words.bundle")
    with open(path("corpus.txt"), "w") as f:
        f.write("the first of several words, and then some more words of the same kind\n" * 50)
    r = run("tokenizer", "train", path("tokenizer.json"), path("corpus.txt"), "--vocab", "280")
    check("train", r.returncode == 0, r.stderr)
    r = run("init", folder, *SMALL, "--set", "vocab_size=280")
    shutil.copy(path("tokenizer.json"), folder)
    r = run("export", "--model", folder, "--out", b, "--span", "32", "--no-targets")
    check("export", r.returncode == 0 and "tokenizer.json" in os.listdir(b), r.stderr)
    a = answer(run("run", b, "--cache", cache, "--json", *TEXT))
    expected = answer(run("generate", "--model", folder, "--span", "32", "--no-kernels", "--cache", cache, "--json", *TEXT))
    check("the same words", ids(a) is not None and ids(a) == ids(expected), (a, expected))
    check("fewer tokens than bytes", a["sequences"][0]["prompt_tokens"] < 30, a)


# ---- elsewhere ------------------------------------------------------------------------------------

def elsewhere(name, change_plugin=False):
    """The program, the plugin and a bundle alone in a folder."""
    folder = path(name)
    os.mkdir(folder)
    shutil.copy(ttt, os.path.join(folder, "ttt"))
    shutil.copytree(bundle(), os.path.join(folder, "b"))
    copied = shutil.copy(plugin, os.path.join(folder, "pjrt_cpu_plugin.so"))
    if change_plugin:
        with open(copied, "ab") as f:
            f.write(b"\0")
    return folder


def test_alone():
    folder = elsewhere("alone")
    r = run("run", "b", "--json", *TEXT, program="./ttt", cwd=folder, env={})
    a = answer(r)
    check("alone it does the same", r.returncode == 0 and ids(a) == generated("ttt_linear"), (r.stderr, a))
    check("by its executables, without a word", a.get("target") == "cpu" and r.stderr == b"", (a, r.stderr))


def test_another_plugin():
    folder = elsewhere("another", change_plugin=True)
    r = run("run", "b", "--json", *TEXT, program="./ttt", cwd=folder, env={})
    a = answer(r)
    check("rebuilt, and says so", a.get("rebuilt") is True and a["target"] is None and "plugin_hash" in a["why"], (r.stderr, a))
    check("one line", r.stderr.count(b"\n") == 1 and b"StableHLO" in r.stderr and b"plugin_hash" in r.stderr, r.stderr)
    check("and does what the model does without kernels", ids(a) == generated("ttt_linear", "--no-kernels"), a)


def test_without_weights():
    b = bundle("ttt_linear", "light.bundle", "--no-weights", "--no-targets")
    check("they are not there", not [n for n in os.listdir(b) if "safetensors" in n], os.listdir(b))
    refused("no weights", run("run", b, *TEXT), "no weights")
    r = run("run", b, "--model", model(), "--cache", cache, "--json", *TEXT)
    check("brought along", ids(answer(r)) == generated("ttt_linear", "--no-kernels"), r.stderr)


# ---- damage ---------------------------------------------------------------------------------------

def change(file, edit):
    with open(file, "rb") as f:
        data = bytearray(f.read())
    edit(data)
    with open(file, "wb") as f:
        f.write(data)


def test_damage():
    whole, hurt = bundle(), path("hurt")
    for name in sorted(os.listdir(whole)):
        shutil.rmtree(hurt, ignore_errors=True)
        shutil.copytree(whole, hurt)
        file = os.path.join(hurt, name)

        def flip(data):
            data[random.Random(name).randrange(len(data))] ^= 4
        change(file, flip)
        refused(f"{name}: one byte", run("run", hurt, *TEXT), name)
        os.remove(file)
        refused(f"{name}: missing", run("run", hurt, *TEXT), name)
    shutil.rmtree(hurt)
    shutil.copytree(whole, hurt)
    with open(os.path.join(hurt, "model.safetensors.index.json"), "w") as f:
        f.write("{}")
    refused("a file too many", run("run", hurt, *TEXT), "model.safetensors.index.json", "not in the manifest")
    r = run("run", hurt, "--json", *TEXT)
    check("as JSON", r.returncode == 1 and "not in the manifest" in answer(r)["error"]["message"], r.stdout)


# ---- writing --------------------------------------------------------------------------------------

def test_wrong_exports():
    out = path("wrong")
    refused("no model", run("export", "--out", out), "--model", codes=(2,))
    refused("no out", run("export", "--model", model()), "--out", codes=(2,))
    refused("both", run("export", "--model", model(), "--out", out, "--target", "cpu", "--no-targets"), "not both", codes=(2,))
    refused("there is something", run("export", "--model", model(), "--out", model(), "--json"), "already there")
    r = run("export", "--model", model(), "--out", out, "--target", "abacus:3")
    check("no such target", r.returncode == 1 and b"abacus" in r.stderr and not os.path.exists(out) and not os.path.exists(out + ".writing"), r.stderr)
    r = run("export", "--model", path("nowhere"), "--out", out)
    check("no such model", r.returncode == 1 and not os.path.exists(out), r.stderr)


def test_kills():
    """Killed at any moment, there is no bundle or a whole one."""
    chance = random.Random(7)
    made = 0
    for i in range(6):
        out = path(f"kill-{i}")
        words = [ttt, "export", "--model", model(), "--out", out] + (["--no-targets"] if i % 2 else ["--span", "16"])
        p = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        time.sleep(chance.uniform(0.01, 0.4 if i % 2 else 2))
        p.send_signal(signal.SIGKILL)
        p.wait()
        if os.path.exists(out):
            made += 1
            r = run("run", out, "--cache", cache, *TEXT)
            check("a whole one", r.returncode == 0, r.stderr)
        if os.path.exists(out + ".writing"):
            r = run("run", out + ".writing", "--cache", cache, *TEXT)
            check("half of one does not run", r.returncode == 1 or os.path.exists(os.path.join(out + ".writing", "manifest.json")), r.stderr)
    out = path("kill-0")
    if not os.path.exists(out):
        r = run("export", "--model", model(), "--out", out, "--no-targets")
        check("the next one takes its place", r.returncode == 0 and not os.path.exists(out + ".writing"), r.stderr)


try:
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) <= 3 or name in sys.argv[3:]):
            start = time.time()
            test()
            print(f"{name}: {time.time() - start:.1f} s")
finally:
    shutil.rmtree(scratch)
print(f"{passed} passed, {failed} failed")
sys.exit(failed != 0)
