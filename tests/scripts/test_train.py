"""`ttt train` and `ttt eval` as a lab meets them: cut, killed, starved of disk, given nonsense, and still right.

usage: test_train.py TTT [NAME …]     (the Python of the judges)

Networks are as small as they can be: what is learnt is judged in test_learning.py. With TTT_LONG=1 there are more kills.
"""
import glob
import hashlib
import json
import os
import shlex
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ttt = sys.argv[1]
passed, failed = 0, 0
LONG = os.environ.get("TTT_LONG") == "1"
scratch = tempfile.mkdtemp(prefix="ttt-train-")
data = os.path.join(scratch, "data")
cache = os.path.join(scratch, "programs")
SMALL = ["--preset", "tiny", "--set", "hidden_size=32", "--set", "n_layers=2", "--set", "intermediate_size=48", "--set", "n_heads=2",
         "--batch-tokens", "256", "--context", "32", "--eval-sequences", "8", "--data", data, "--cache", cache, "--resume", "auto"]


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {detail}")


def run(*words, timeout=600, **more):
    return subprocess.run([ttt, *words], capture_output=True, text=True, timeout=timeout, **more)


def train(folder, *words, options=SMALL):
    r = run("train", *options, "--run", folder, "--json", *words)
    try:
        return r, json.loads(r.stdout)
    except json.JSONDecodeError:
        return r, {}


def start(folder, *words, options=SMALL):
    return subprocess.Popen([ttt, "train", *options, "--run", folder, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def fresh(name):
    folder = os.path.join(scratch, name)
    shutil.rmtree(folder, ignore_errors=True)
    return folder


def lines(folder, kind="train"):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [line for line in map(json.loads, f) if line["kind"] == kind]


def losses(folder):
    return [(line["step"], line["loss"], line["grad_norm"], line["lr"]) for line in lines(folder)]


def checkpoint(folder, step):
    return os.path.join(folder, "checkpoints", f"step-{step:08d}")


def digest(folder, step):
    """Of all that is learnt: the parameters and both moments."""
    h = hashlib.sha256()
    for name in ("model", "first", "second"):
        with open(os.path.join(checkpoint(folder, step), name + ".safetensors"), "rb") as f:
            h.update(f.read())
    return h.hexdigest()


def prepare():
    rng = random.Random(7)
    words = ["".join(rng.choice("abcdefgh") for _ in range(rng.randint(2, 6))) for _ in range(50)]
    with open(os.path.join(scratch, "text.jsonl"), "w") as f:
        for _ in range(200):
            text = " ".join(rng.choice(words) for _ in range(rng.randint(20, 200)))
            f.write(json.dumps({"text": text}) + "\n")
    r = run("data", "prepare", "--tokenizer", "bytes", "--validation", "0.1", "--out", data, os.path.join(scratch, "text.jsonl"))
    check("the data", r.returncode == 0, r.stderr)


# ---- cuts -----------------------------------------------------------------------------------------

def test_cuts():
    """200 steps in one go, and with 20 kills at random moments: the same bits. The spike limit is so low that it bites."""
    more = ["--steps", "200", "--save-every", "7", "--eval-every", "50", "--spike", "1.2", "--window", "8", "--abort-after", "1000"]
    whole, cut = fresh("whole"), fresh("cut")
    r, summary = train(whole, *more)
    check("a run in one go", r.returncode == 0 and summary.get("step") == 200, r.stderr)
    check("spikes are skipped", summary.get("skipped", 0) > 5, summary.get("skipped"))
    rng, kills = random.Random(3), 0
    wanted = 400 if LONG else 20
    for _ in range(10 * wanted):
        p = start(cut, *more)
        try:
            p.communicate(timeout=rng.uniform(0.2, 1.4))
            shutil.rmtree(cut)  # it came to its end: once more from the start
        except subprocess.TimeoutExpired:
            p.send_signal(signal.SIGKILL)
            p.communicate()
            kills += 1
        if kills == wanted:
            break
    r, summary = train(cut, *more)
    check("the last part", r.returncode == 0 and summary.get("step") == 200, r.stderr)
    check("the same losses, norms and rates to the bit", losses(whole) == losses(cut), f"{len(losses(whole))} and {len(losses(cut))} steps")
    check("the same validation losses", [e["loss"] for e in lines(whole, "eval")] == [e["loss"] for e in lines(cut, "eval")])
    check("the same parameters and moments", digest(whole, 200) == digest(cut, 200))
    print(f"kills: {kills} / failures: {failed}")


def test_stops():
    """SIGTERM and SIGINT at random moments: a checkpoint of the last step, exit code 0; the second one ends it at once."""
    more = ["--steps", "5000", "--save-every", "100000", "--no-eval", "--log-every", "1"]
    folder = fresh("stops")
    rng = random.Random(5)
    for i in range(12 if LONG else 4):
        p = start(folder, *more)
        for _ in range(rng.randint(6, 20)):
            p.stdout.readline()
        p.send_signal(signal.SIGTERM if i % 2 else signal.SIGINT)
        begun = time.time()
        out, err = p.communicate(timeout=60)
        last = losses(folder)[-1][0]
        check("a stop ends well", p.returncode == 0 and "stopped at step" in out, (p.returncode, err))
        check("within the grace time", time.time() - begun < 25)
        check("what was done is saved", os.path.isdir(checkpoint(folder, last)), last)
    steps = [line[0] for line in losses(folder)]
    check("no step twice, none left out", steps == list(range(1, len(steps) + 1)))
    p = start(folder, *more)
    for _ in range(6):
        p.stdout.readline()
    p.send_signal(signal.SIGSTOP)  # both signals are there before it can act on the first
    p.send_signal(signal.SIGINT)
    p.send_signal(signal.SIGTERM)
    p.send_signal(signal.SIGCONT)
    p.communicate(timeout=60)
    check("a second signal ends it at once", p.returncode in (128 + signal.SIGINT, 128 + signal.SIGTERM), p.returncode)
    p = start(folder, *more)
    for _ in range(6):
        p.stdout.readline()
    p.send_signal(signal.SIGTERM)  # as `timeout` does: the process, and a moment later its group
    time.sleep(0.01)
    p.send_signal(signal.SIGTERM)
    p.communicate(timeout=60)
    check("one request that comes twice is one", p.returncode == 0, p.returncode)


def test_two_trainers():
    folder = fresh("two")
    p = start(folder, "--steps", "100000", "--no-eval", "--log-every", "1")
    for _ in range(6):
        p.stdout.readline()
    r, _ = train(folder, "--steps", "100000")
    check("the second one is refused and told by whom", r.returncode == 1 and str(p.pid) in r.stderr, r.stderr)
    p.kill()
    p.communicate()
    r, _ = train(folder, "--steps", "3", "--no-eval")
    check("a killed one holds nothing", r.returncode == 0, r.stderr)


# ---- meshes, options ------------------------------------------------------------------------------

def worst(a, b):
    return max(abs(x[1] - y[1]) for x, y in zip(a, b)) if [x[0] for x in a] == [y[0] for y in b] else float("inf")


def test_meshes():
    """Losses over four devices are those of one; observed 5e-7. A run goes on over another mesh with the same data."""
    more = ["--steps", "30", "--no-eval", "--save-every", "15", "--keep", "10"]
    one = fresh("one")
    train(one, *more)
    for mesh in ("data=2,fsdp=2", "fsdp=2,time=2", "fsdp=2,model=2"):
        folder = fresh("mesh")
        r, _ = train(folder, *more, "--mesh", mesh)
        check(f"{mesh} runs", r.returncode == 0, r.stderr)
        error = worst(losses(one), losses(folder)) if r.returncode == 0 else None
        check(f"{mesh} learns as one device does", error is not None and error < 5e-6, error)
    # 15 steps over four devices, 15 over one.
    shutil.rmtree(checkpoint(folder, 30))
    r, _ = train(folder, *more)
    check("another mesh goes on", r.returncode == 0, r.stderr)
    check("and agrees", worst(losses(one), losses(folder)) < 5e-6, worst(losses(one), losses(folder)))


def test_options():
    whole, parts = fresh("o1"), fresh("o2")
    more = ["--steps", "8", "--no-eval"]
    train(whole, *more)
    r, _ = train(parts, *more, "--accumulation", "4")
    check("a batch in parts", r.returncode == 0 and worst(losses(whole), losses(parts)) < 5e-6, r.stderr)
    r, _ = train(parts := fresh("o2"), *more, "--no-kernels")
    check("kernels and the compiler agree (observed 5e-7)", r.returncode == 0 and worst(losses(whole), losses(parts)) < 5e-6,
          worst(losses(whole), losses(parts)))
    for name, words in {"bf16": ["--dtype", "bf16"], "resets": ["--resets"], "remat": ["--remat", "all"]}.items():
        folder = fresh("o3")
        r, _ = train(folder, *more, *words)
        check(f"{name} trains", r.returncode == 0 and losses(folder)[-1][1] < losses(folder)[0][1], r.stderr)
    for mixer in ("ttt_mlp", "attention"):
        folder = fresh("o4")
        r, _ = train(folder, *more, "--mixer", mixer)
        check(f"{mixer} trains", r.returncode == 0 and losses(folder)[-1][1] < losses(folder)[0][1], r.stderr)
    r, summary = train(fresh("o5"), *more)
    check("the program comes from the cache", summary.get("plan", {}).get("cached") is True, summary)
    folder = fresh("o6")
    r, _ = train(folder, "--steps", "4", "--no-eval", "--model", whole, options=[w for w in SMALL if w not in ("--preset", "tiny")])
    check("training begins with a model's weights", r.returncode == 0 and losses(folder)[0][1] < losses(whole)[4][1], r.stderr)


# ---- what goes wrong ------------------------------------------------------------------------------

def test_not_finite():
    folder = fresh("nan")
    wild = ["--steps", "60", "--no-eval", "--set", "peak_lr=1000", "--set", "clip_norm=0", "--set", "warmup_steps=0"]
    r, _ = train(folder, *wild, "--abort-after", "5")
    check("too many in a row end it", r.returncode == 1 and "5 steps in a row were skipped" in r.stderr, r.stderr)
    counts = [line["skipped"] for line in lines(folder)]
    check("they are counted", counts[-5:] == [1, 2, 3, 4, 5], counts)
    check("a loss that is not finite is null", lines(folder)[-1]["loss"] is None or lines(folder)[-1]["grad_norm"] is None, lines(folder)[-1])


def test_broken_checkpoint():
    folder = fresh("broken")
    more = ["--no-eval", "--save-every", "4", "--keep", "3"]
    train(folder, "--steps", "12", *more)
    with open(os.path.join(checkpoint(folder, 12), "first.safetensors"), "r+b") as f:
        f.seek(2000)
        byte = f.read(1)
        f.seek(2000)
        f.write(bytes([byte[0] ^ 4]))
    p = start(folder, "--steps", "16", *more)
    out, err = p.communicate(timeout=120)
    check("the one before is taken", p.returncode == 0 and "step-00000008" in out and "first.safetensors" in out, out + err)
    for path in glob.glob(os.path.join(folder, "checkpoints", "*", "manifest.json")):
        os.truncate(path, 10)
    r, _ = train(folder, "--steps", "20", *more)
    check("all broken is an error, not a new beginning", r.returncode == 1, r.stderr)


def test_full_disk():
    folder = os.path.join(scratch, "small-disk")
    os.makedirs(folder, exist_ok=True)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", folder], capture_output=True).returncode != 0:
        print("no small disk could be mounted: skipped")
        return
    try:
        more = ["--no-eval", "--save-every", "4", "--keep", "1"]
        r, _ = train(os.path.join(folder, "run"), "--steps", "8", *more)
        check("a small disk is enough at first", r.returncode == 0, r.stderr)
        filler = os.open(os.path.join(folder, "filler"), os.O_CREAT | os.O_WRONLY)
        try:
            while os.write(filler, b"x" * 4096):
                pass
        except OSError:
            os.close(filler)
        before = digest(os.path.join(folder, "run"), 8)
        r, _ = train(os.path.join(folder, "run"), "--steps", "20", *more)
        check("a full one is an error", r.returncode == 1 and "space" in r.stderr, r.stderr)
        check("and the old checkpoint is whole", digest(os.path.join(folder, "run"), 8) == before)
        os.remove(os.path.join(folder, "filler"))
        r, _ = train(os.path.join(folder, "run"), "--steps", "20", *more)
        check("with room again it goes on", r.returncode == 0 and losses(os.path.join(folder, "run"))[-1][0] == 20, r.stderr)
    finally:
        subprocess.run(["umount", folder])


def test_wrong_use():
    whole = fresh("use")
    train(whole, "--steps", "4", "--no-eval")
    no_resume = [w for w in SMALL if w not in ("--resume", "auto")]
    cases = {
        "a run that is there": (1, no_resume + ["--run", whole], "--resume auto"),
        "another seed": (1, SMALL + ["--run", whole, "--set", "seed=9"], "seed"),
        "another network": (1, SMALL + ["--run", whole, "--set", "n_layers=3"], "another network"),
        "no data": (1, SMALL + ["--run", whole, "--data", os.path.join(scratch, "nothing")], "nothing"),
        "a batch that does not divide": (1, SMALL + ["--run", fresh("u"), "--accumulation", "3"], "3"),
        "an unknown field": (1, SMALL + ["--run", fresh("u"), "--set", "hidden=3"], "hidden"),
        "a value out of range": (1, SMALL + ["--run", fresh("u"), "--set", "peak_lr=-1"], "peak_lr"),
        "a vocabulary that is too small": (1, SMALL + ["--run", fresh("u"), "--set", "vocab_size=100"], "vocab_size"),
        "no run": (2, SMALL, "--run"),
        "a negative number": (2, SMALL + ["--run", whole, "--steps", "-4"], "--steps"),
        "another word for auto": (2, SMALL + ["--run", whole, "--resume", "yes"], "auto"),
        "a sequence longer than the data": (1, SMALL + ["--run", fresh("u"), "--context", "8000000", "--batch-tokens", "8000000"], "too few"),
    }
    for name, (code, words, needle) in cases.items():
        r = run("train", *words)
        check(name, r.returncode == code and needle in r.stderr and len(r.stderr.strip().splitlines()) == 1, (r.returncode, r.stderr))
    check("nothing was made for what was refused", not os.path.exists(os.path.join(scratch, "u", "metrics.jsonl")))


def test_dry_run():
    folder = fresh("dry")
    r = run("train", *SMALL, "--run", folder, "--dry-run", "--json", "--set", "peak_lr=0.01")
    plan = json.loads(r.stdout)
    check("settings and their sources", plan["settings"]["peak_lr"] == [0.01, "command line"] and
          plan["settings"]["vocab_size"] == [320, "data"] and plan["settings"]["decay"][1] == "preset tiny", plan["settings"])
    check("a plan", plan["plan"]["parameters"] > 0 and plan["plan"]["needed_bytes"] > 0 and plan["plan"]["most_tokens_per_second"] > 0, plan)
    check("nothing is written", not os.path.exists(folder))
    r = run("train", *SMALL, "--run", folder, "--dry-run", "--batch-tokens", str(1 << 28))
    check("what will not fit is named, with advice", r.returncode == 1 and "--accumulation 2" in r.stderr and "embed_tokens" in r.stderr, r.stderr)


# ---- evaluation -----------------------------------------------------------------------------------

def test_eval():
    folder = fresh("eval")
    train(folder, "--steps", "20", "--no-eval")
    common = ["eval", "--model", folder, "--data", data, "--cache", cache, "--sequences", "6", "--batch", "2", "--json"]
    found = {}
    for path in (["dual"], ["primal"], ["stream", "--span", "32"], ["decode"], ["stream", "--span", "48"]):
        r = run(*common, "--context", "128", "--path", *path)
        check(f"eval by {path}", r.returncode == 0, r.stderr)
        found[" ".join(path)] = json.loads(r.stdout)["loss"] if r.returncode == 0 else None
    spread = max(found.values()) - min(found.values())
    check("all paths agree (observed 1e-7)", spread < 2e-6, found)
    positions = os.path.join(scratch, "positions.csv")
    r = run(*common, "--context", "512", "--by-position", positions, "--mesh", "data=2")
    with open(positions) as f:
        rows = [line.split(",") for line in f.read().split()[1:]]
    check("losses by position", len(rows) == 512 and abs(sum(float(row[1]) for row in rows) / 512 - json.loads(r.stdout)["loss"]) < 0.05, len(rows))
    check("a longer context than in training", json.loads(r.stdout)["context"] == 512)
    r = run("eval", "--model", os.path.join(scratch, "nothing"), "--data", data)
    check("no model", r.returncode == 1 and "nothing" in r.stderr, r.stderr)
    r = run("eval", "--model", folder, "--data", data, "--context", "100000000")
    check("too few tokens", r.returncode == 1 and "too few" in r.stderr, r.stderr)


def test_run_folder():
    folder = fresh("folder")
    r, summary = train(folder, "--steps", "9", "--eval-every", "4", "--save-every", "2", "--keep", "2", "--milestone", "4")
    kept = sorted(os.path.basename(p) for p in glob.glob(os.path.join(folder, "checkpoints", "*")))
    check("the newest and the milestones stay", kept == [f"step-{s:08d}" for s in (4, 8, 9)], kept)
    check("what a run leaves", all(os.path.exists(os.path.join(folder, name)) for name in
                                   ("config.json", "recipe.json", "environment.json", "log.txt", "metrics.jsonl", "tensorboard")))
    with open(os.path.join(folder, "environment.json")) as f:
        first = json.load(f)["first"]
    check("the command can be run again", first["arguments"][:2] == ["ttt", "train"] and shlex.split(first["command"]) == first["arguments"], first)
    check("goodput adds up", abs(sum(summary["goodput"].values()) - summary["seconds"]) < 0.5, summary)
    steps = lines(folder)[-1]
    check("figures of a step", all(name in steps for name in ("loss", "grad_norm", "lr", "ms", "tokens_per_second", "mfu", "memory", "data_wait")), steps)
    evals = lines(folder, "eval")
    check("evaluations", [e["step"] for e in evals] == [0, 4, 8, 9] and len(evals[0]["loss_by_position"]) == 32 and
          len(evals[0]["inner_loss_after"]) == 2, [e["step"] for e in evals])
    check("a learner learns", evals[-1]["inner_loss_after"][0] < evals[-1]["inner_loss_before"][0], evals[-1])
    r = run("convert", "--from", "hf", "--to", "hf", "--dtype", "bf16", checkpoint(folder, 8), os.path.join(scratch, "weights"))
    check("weights alone, at any step", r.returncode == 0, r.stderr)
    r, _ = train(folder, "--resume", "auto", options=["--data", data, "--cache", cache, "--steps", "12"])
    check("a run knows its own settings", r.returncode == 0 and losses(folder)[-1][0] == 12, r.stderr)


def main():
    names = sys.argv[2:] or [n for n in globals() if n.startswith("test_")]
    try:
        prepare()
        for name in names:
            begun = time.time()
            globals()[name]()
            print(f"{name}: {time.time() - begun:.1f} s", flush=True)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, {failed} failed")
    return failed > 0


sys.exit(main())
