"""`ttt generate`, `ttt chat` and `ttt bench` from outside: texts, states, seeds, batches, tokenizers of runs, and bad input.

usage: test_generate.py TTT [NAME …]     (the Python of the judges)
"""
import csv
import io
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile

ttt = sys.argv[1]
passed, failed = 0, 0
scratch = tempfile.mkdtemp(prefix="ttt-generate-")
cache = os.path.join(scratch, "programs")
SMALL = ["--preset", "tiny", "--set", "hidden_size=32", "--set", "n_layers=2", "--set", "intermediate_size=48", "--set", "n_heads=2"]
MIXERS = ["ttt_linear", "ttt_mlp", "attention", "linear_attention", "mamba"]


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {detail}")


def run(*words, timeout=600, **more):
    """Output as bytes: whether it is UTF-8 is to be seen."""
    return subprocess.run([ttt, *words], capture_output=True, timeout=timeout, **more)


def path(name):
    return os.path.join(scratch, name)


def model(mixer="ttt_linear", seed="1", vocab="258"):
    folder = path(f"{mixer}-{seed}-{vocab}")
    if not os.path.isdir(folder):
        r = run("init", folder, *SMALL, "--mixer", mixer, "--seed", seed, "--set", f"vocab_size={vocab}", "--set", "initializer_range=0.3")
        check("init", r.returncode == 0, r.stderr)
    return folder


def generate(folder, *words, **more):
    r = run("generate", "--model", folder, "--cache", cache, "--json", *words, **more)
    try:
        return r, json.loads(r.stdout)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return r, {}


def ids(answer, index=0):
    return [t["token"] for t in answer["sequences"][index]["tokens"]]


def refused(name, r, *parts, codes=(1, 2)):
    """One line on standard error that says what is wrong, and no crash."""
    text = r.stderr.decode()
    check(name, r.returncode in codes and text.count("\n") == 1 and all(p in text for p in parts), (r.returncode, text))


# ---- texts ----------------------------------------------------------------------------------------

def test_texts():
    folder = model()
    prompt = ["--prompt", "The first of several words, and then some more"]
    r = run("generate", "--model", folder, "--cache", cache, *prompt, "--max-tokens", "40", "--seed", "3")
    check("it ends well", r.returncode == 0, r.stderr)
    text = r.stdout.decode()  # must be UTF-8, from a model that has never seen any
    check("rates on stderr", b"tok/s" in r.stderr and r.stderr.count(b"\n") == 1, r.stderr)
    _, a = generate(folder, *prompt, "--max-tokens", "40", "--seed", "3")
    check("the same seed, the same text", a["sequences"][0]["text"] + "\n" == text, (a, text))
    _, b = generate(folder, *prompt, "--max-tokens", "40", "--seed", "4")
    check("another seed, another text", ids(a) != ids(b))
    check("as many tokens as asked for", len(ids(a)) == 40 and a["sequences"][0]["end"] == "length", a)
    check("logprobs are such", all(t["logprob"] < 0 for t in a["sequences"][0]["tokens"]))
    for seed in range(20):
        r = run("generate", "--model", folder, "--cache", cache, *prompt, "--max-tokens", "25", "--temperature", "3", "--seed", str(seed))
        try:
            r.stdout.decode()
        except UnicodeDecodeError as e:
            check("UTF-8 always", False, e)
    with open(path("prompt.txt"), "w") as f:
        f.write(prompt[1])
    _, b = generate(folder, "--file", path("prompt.txt"), "--max-tokens", "40", "--seed", "3")
    check("a prompt in a file", ids(a) == ids(b))
    _, b = generate(folder, "-", "--max-tokens", "40", "--seed", "3", input=prompt[1].encode())
    check("a prompt on standard input", ids(a) == ids(b))
    r = run("generate", "--model", folder, "--cache", cache, *prompt, "--max-tokens", "5", "--logprobs", "--seed", "3")
    lines = r.stdout.decode().rstrip("\n").split("\n")[-5:]
    check("logprobs for people", [int(line.split()[0]) for line in lines] == ids(a)[:5], lines)
    _, greedy = generate(folder, *prompt, "--temperature", "0", "--max-tokens", "30")
    _, top = generate(folder, *prompt, "--temperature", "1", "--top-k", "1", "--max-tokens", "30", "--seed", "9")
    check("the likeliest of one", ids(greedy) == ids(top))
    text = greedy["sequences"][0]["text"]
    _, cut = generate(folder, *prompt, "--temperature", "0", "--max-tokens", "30", "--stop", text[5:8], "--stop", "never")
    check("a stop", cut["sequences"][0]["end"] == "stop" and cut["sequences"][0]["text"] == text[:text.index(text[5:8])], (text, cut))
    _, other = generate(folder, *prompt, "--temperature", "0", "--max-tokens", "30", "--repetition-penalty", "5")
    check("a penalty changes it", ids(other) != ids(greedy))


def test_batches():
    """Alone or side by side: the same."""
    prompts = ["a", "A prompt of more than sixteen bytes", "x" * 33]
    for mixer in MIXERS:
        folder = model(mixer)
        alone = [ids(generate(folder, "--prompt", p, "--temperature", "0", "--max-tokens", "24")[1]) for p in prompts]
        r, together = generate(folder, *[w for p in prompts for w in ("--prompt", p)], "--temperature", "0", "--max-tokens", "24")
        check(f"{mixer} side by side", r.returncode == 0 and [ids(together, i) for i in range(3)] == alone, (r.stderr, alone))
    r = run("generate", "--model", folder, "--cache", cache, "--prompt", "a", "--prompt", "b", "--max-tokens", "4")
    check("several for people", r.stdout.decode().count("--- ") == 2, r.stdout)


def test_states():
    for mixer in MIXERS:
        folder, state = model(mixer), path(f"{mixer}.state")
        text = "0123456789 abcdefghij klmnopq"
        _, whole = generate(folder, "--prompt", text + "rest", "--temperature", "0", "--max-tokens", "20")
        r, _ = generate(folder, "--prompt", text[:-1], "--temperature", "0", "--max-tokens", "1", "--state-out", state)
        check(f"{mixer} keeps a state", r.returncode == 0 and os.path.getsize(state) > 100, r.stderr)
        # What was made is in the state: go on from there, and compare with the same text in one go.
        made = json.loads(r.stdout)["sequences"][0]["tokens"][0]["token"]
        if made < 128:
            _, one = generate(folder, "--prompt", text[:-1] + chr(made) + "rest", "--temperature", "0", "--max-tokens", "20")
            r, two = generate(folder, "--prompt", "rest", "--state-in", state, "--temperature", "0", "--max-tokens", "20")
            check(f"{mixer} goes on from a state", r.returncode == 0 and ids(one) == ids(two), (r.stderr, ids(one)))
        r, many = generate(folder, "--prompt", "rest", "--prompt", "rest", "--state-in", state, "--temperature", "0", "--max-tokens", "9")
        check(f"{mixer} forks", r.returncode == 0 and ids(many, 0) == ids(many, 1), r.stderr)
    state = path("ttt_linear.state")
    refused("a state of other weights", generate_plain(model(seed="2"), "--prompt", "a", "--state-in", state), "another model", "hash")
    refused("a state of another mixer", generate_plain(model("mamba"), "--prompt", "a", "--state-in", state), "another model", "ttt_linear")
    data = open(state, "rb").read()
    for size in (0, 7, 40, len(data) // 2, len(data) - 1):
        with open(path("cut.state"), "wb") as f:
            f.write(data[:size])
        refused(f"a state of {size} bytes", generate_plain(model(), "--prompt", "a", "--state-in", path("cut.state")), "cut.state")
    with open(path("bit.state"), "wb") as f:
        f.write(data[:300] + bytes([data[300] ^ 4]) + data[301:])
    refused("a changed bit", generate_plain(model(), "--prompt", "a", "--state-in", path("bit.state")), "damaged")
    with open(path("new.state"), "wb") as f:
        f.write(data[:8] + b"\x09" + data[9:])
    refused("a newer version", generate_plain(model(), "--prompt", "a", "--state-in", path("new.state")), "newer")


def generate_plain(folder, *words, **more):
    return run("generate", "--model", folder, "--cache", cache, "--max-tokens", "3", *words, **more)


# ---- tokenizers -----------------------------------------------------------------------------------

def test_runs():
    """A run brings its tokenizer along; the data may be gone."""
    rng = random.Random(1)
    words = ["".join(rng.choice("abcdefgh") for _ in range(rng.randint(2, 6))) for _ in range(60)]
    text = path("corpus.txt")
    with open(text, "w") as f:
        for _ in range(300):
            f.write(" ".join(rng.choice(words) for _ in range(30)) + "\n")
    r = run("tokenizer", "train", path("bpe.json"), text, "--vocab", "400")
    check("a tokenizer", r.returncode == 0, r.stderr)
    shutil.copy(path("bpe.json"), path("tokenizer.json"))
    for name, tokenizer, vocab in (("bpe", path("tokenizer.json"), "400"), ("plain", "bytes", "600")):
        data, folder = path(name + "-data"), path(name + "-run")
        r = run("data", "prepare", "--tokenizer", tokenizer, "--out", data, text)
        check("data", r.returncode == 0, r.stderr)
        r = run("train", *SMALL, "--set", f"vocab_size={vocab}", "--batch-tokens", "128", "--context", "32", "--steps", "2", "--no-eval",
                "--data", data, "--run", folder, "--cache", cache)
        check("a run", r.returncode == 0, r.stderr)
        shutil.rmtree(data)
        check("its tokenizer is beside it", (name == "bpe") == os.path.exists(os.path.join(folder, "tokenizer.json")), os.listdir(folder))
        check("and nowhere else", "tokenizer.json" not in os.listdir(os.path.join(folder, "checkpoints", "step-00000002")))
        for where in (folder, os.path.join(folder, "checkpoints", "step-00000002")):
            r, a = generate(where, "--prompt", words[0] + " " + words[1], "--max-tokens", "8", "--seed", "1")
            check(f"text from {where}", r.returncode == 0 and max(ids(a)) < 400, r.stderr)
        check("with its own tokenizer", (a["sequences"][0]["prompt_tokens"] == len(words[0] + words[1]) + 2) == (name == "plain"), a)
    refused("none is known", generate_plain(model(vocab="3007"), "--prompt", "a"), "--tokenizer")
    refused("one of another model", generate_plain(model(), "--prompt", "a", "--tokenizer", path("bpe.json")), "400", "258")


# ---- chat -----------------------------------------------------------------------------------------

def chat(*lines, words=(), folder=None):
    return run("chat", "--model", folder or model(), "--cache", cache, "--max-tokens", "12", "--temperature", "0", *words,
               input="".join(line + "\n" for line in lines).encode())


def replies(*lines, words=()):
    r = chat(*lines, words=("--json", *words))
    check("a chat", r.returncode == 0, r.stderr)
    return [t["reply"] for t in json.loads(r.stdout)["turns"]], r


def test_chat():
    state = path("chat.state")
    once, r = replies("hello", "/fork here", "how are you", "/back here", "how are you", "/back here", "another thing", "/quit", "not read")
    check("four turns", len(once) == 4, once)
    check("back at a fork all is as it was", once[1] == once[2] and r.stderr == b"", r.stderr)
    first, _ = replies("hello", f"/save {state}")
    second, _ = replies(f"/load {state}", "how are you")
    check("saved, loaded, the same", first + second == once[:2], (first, second, once))
    again, _ = replies("hello", "x", "/reset", "hello")
    check("reset", again[0] == again[2] == once[0])
    seeds, _ = replies("hello", words=("--state-in", state))
    check("begun with a state", seeds != first)
    r = chat("hello")
    check("for people", r.returncode == 0 and r.stdout.decode() == once[0] + "\n", (r.stdout, once[0]))
    # Errors are said, and the chat goes on as if they had not been.
    bad, r = replies("hello", "/nothing", "/save", "/load " + path("nope"), "/load " + path("prompt.txt.none"), "/back nowhere", "", "how are you")
    check("a chat survives what is wrong", bad == once[:2] and r.stderr.count(b"\n") == 5, (bad, r.stderr))
    r = run("chat", "--model", model(), "--cache", cache, "--max-tokens", "4", input=b"\xff\xfe broken\nhello\n")
    check("a line that is not UTF-8", r.returncode == 0 and b"UTF-8" in r.stderr and r.stdout.decode().count("\n") >= 1, r)
    r = chat("/load " + state, folder=model("mamba"))
    check("a state of another model", b"another model" in r.stderr and r.returncode == 0, r.stderr)
    # What speaks for the user is taken back: the state is that of the plain transcript.
    text = once[0]
    stop, _ = replies("hello", "how are you", words=("--stop", text[4:6]))
    check("stops end a reply", stop[0] == text[:text.index(text[4:6])], (stop, text))


# ---- bench ----------------------------------------------------------------------------------------

def test_bench():
    few = ["--cache", cache, "--prompt-lengths", "40,64", "--generate", "5", "--depths", "0,1030", "--batches", "1,3", "--repetitions", "2"]
    for mixer in ("ttt_linear", "attention"):
        r = run("bench", "--model", model(mixer), *few, "--json")
        check("a bench", r.returncode == 0, r.stderr)
        rows = json.loads(r.stdout)["results"]
        check("all tests", sorted((x["test"], x["batch"], x["depth"] > 0) for x in rows) == sorted(
            [("read", 1, d) for d in (False, True) for _ in range(2)] + [("make", b, d) for b in (1, 3) for d in (False, True)] +
            [(t, 1, d) for t in ("save", "restore") for d in (False, True)]), rows)
        check("rates", all(x["tokens_per_second"] > 0 for x in rows if x["test"] in ("read", "make")))
        check("states", all(x["bytes"] > 0 and x["seconds"] > 0 for x in rows if x["test"] in ("save", "restore")))
        depth = max(x["depth"] for x in rows)
        check("whole mini-batches", depth == (1024 if mixer == "ttt_linear" else 1030), depth)
    r = run("bench", "--model", model(), *few, "--output", "csv")
    table = list(csv.DictReader(io.StringIO(r.stdout.decode())))
    check("as csv", len(table) == 12 and float(table[0]["mean"]) > 0, table)
    r = run("bench", "--model", model(), *few)
    check("as a table", r.stdout.decode().count("\n|") == 13 and "not read" in r.stdout.decode(), r.stdout)


# ---- nonsense -------------------------------------------------------------------------------------

def test_nonsense():
    folder, prompt = model(), ["--prompt", "a"]
    refused("no such model", generate_plain(path("nope"), *prompt), "nope")
    broken = path("broken")
    shutil.copytree(folder, broken)
    with open(os.path.join(broken, "config.json"), "w") as f:
        f.write('{"model_type": "ttt", "hidden_size": -3}')
    refused("a wrong config", generate_plain(broken, *prompt))
    with open(os.path.join(broken, "config.json"), "w") as f:
        f.write(open(os.path.join(folder, "config.json")).read().replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    refused("a config of another network", generate_plain(broken, *prompt))
    shutil.copy(os.path.join(folder, "config.json"), broken)
    with open(os.path.join(broken, "model.safetensors"), "r+b") as f:
        f.truncate(1000)
    refused("cut weights", generate_plain(broken, *prompt))
    refused("an empty prompt", generate_plain(folder, "--prompt", ""), "empty")
    refused("an empty file", generate_plain(folder, "-", input=b""), "empty")
    refused("no such file", generate_plain(folder, "--file", path("nope.txt")), "nope.txt")
    refused("not UTF-8", generate_plain(folder, "-", input=b"abc\xff"), "UTF-8 at byte 3")
    refused("a stop that is not UTF-8", generate_plain(folder, *prompt, "--stop", os.fsdecode(b"\xff")), "UTF-8")
    refused("no such tokenizer", generate_plain(folder, *prompt, "--tokenizer", path("nope.json")), "nope.json")
    refused("no such state", generate_plain(folder, *prompt, "--state-in", path("nope.state")), "nope.state")
    refused("no folder for a state", generate_plain(folder, *prompt, "--state-out", path("no/where.state")), "where.state")
    for words in (["--max-tokens", "-1"], ["--max-tokens", "0"], ["--top-k", "-4"], ["--temperature", "hot"], ["--temperature", "nan"],
                  ["--seed", "-1"], ["--context", "-5"], ["--dtype", "f64"], ["--what"], ["--stop"]):
        refused(" ".join(words), generate_plain(folder, *prompt, *words), codes=(2,))
    for words in (["--temperature", "-1"], ["--top-p", "1.5"], ["--min-p", "-0.5"], ["--repetition-penalty", "-2"]):
        refused(" ".join(words), generate_plain(folder, *prompt, *words))
    refused("no prompt", generate_plain(folder), codes=(2,))
    refused("two kinds of prompt", generate_plain(folder, *prompt, "--file", "x"), codes=(2,))
    refused("no model", run("generate", *prompt), codes=(2,))
    refused("no model to chat with", run("chat"), codes=(2,))
    refused("a chat with nobody", run("chat", "--model", path("nope")), "nope")
    for words in (["--batches", "0"], ["--depths", "-1"], ["--prompt-lengths", "x"], ["--generate", "-3"], ["--output", "pdf"], []):
        refused("bench " + " ".join(words), run("bench", *(["--model", folder] if words else []), *words), codes=(2,))
    r = run("generate", "--model", path("nope"), *prompt, "--json")
    check("errors as JSON", r.returncode == 1 and "error" in json.loads(r.stdout), r.stdout)
    with open("/dev/full", "w") as full:
        r = subprocess.run([ttt, "generate", "--model", folder, "--cache", cache, *prompt, "--max-tokens", "3"], stdout=full,
                           stderr=subprocess.PIPE)
        check("a full disk", r.returncode == 1 and b"standard output" in r.stderr, r.stderr)


tests = {name[5:]: f for name, f in list(globals().items()) if name.startswith("test_")}
try:
    for name in sys.argv[2:] or tests:
        before = failed
        tests[name]()
        print(f"{name}: {'ok' if failed == before else 'FAILED'}", flush=True)
finally:
    shutil.rmtree(scratch, ignore_errors=True)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
