"""`ttt report`: figures are those of metrics.jsonl, the page is whole and shows on a phone and on a desk, and runs may be in any state.

usage: test_report.py TTT      (the Python of the judges, and Chromium)

A tiny network is trained for a few steps, cut once; the rest are copies of its folder that are damaged in one way each.
"""
import fcntl
import html.parser
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
import xml.dom.minidom
import zlib

import browser

ttt = os.path.abspath(sys.argv[1])
passed, failed = 0, 0
scratch = tempfile.mkdtemp(prefix="ttt-report-")
data, cache = os.path.join(scratch, "data"), os.path.join(scratch, "programs")
SMALL = ["--preset", "tiny", "--set", "hidden_size=32", "--set", "n_layers=2", "--set", "intermediate_size=48", "--set", "n_heads=2",
         "--batch-tokens", "256", "--context", "32", "--eval-sequences", "8", "--data", data, "--cache", cache, "--resume", "auto",
         "--save-every", "4", "--eval-every", "4", "--steps", "12"]


def check(name, ok, detail=""):
    global passed, failed
    passed += bool(ok)
    failed += not ok
    if not ok:
        print(f"FAILED {name}: {str(detail)[:2000]}")


def run(*words, timeout=300, **more):
    return subprocess.run([ttt, *words], capture_output=True, text=True, errors="replace", timeout=timeout, **more)


def report(*words):
    """The page's text and the figures."""
    out = os.path.join(scratch, "page.html")
    r = run("report", *words, "-o", out, "--json", "--cache", cache)
    check("report " + " ".join(words)[-60:], r.returncode == 0, r.stderr)
    with open(out, encoding="utf-8") as f:
        page = f.read()
    whole(page)
    return page, json.loads(r.stdout), r.stderr


class Page(html.parser.HTMLParser):
    """Nothing that is loaded or run, and ids that links find."""

    def __init__(self, text):
        super().__init__()
        self.bad, self.ids, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        if tag in ("script", "link", "iframe", "object", "embed", "img", "image", "use", "base", "form"):
            self.bad.append(tag)
        for name, value in attrs:
            if name == "id":
                self.ids.append(value)
            if name == "href":
                self.links.append(value)
            if name in ("src", "srcset", "xlink:href", "action", "background") or name.startswith("on"):
                self.bad.append((tag, name, value))


def whole(page):
    try:
        xml.dom.minidom.parseString(page)
        trouble = ""
    except Exception as e:
        trouble = str(e)
    check("well-formed", trouble == "", trouble)
    seen = Page(page)
    check("nothing is loaded", seen.bad == [], seen.bad)
    check("links stay here", all(link[1:] in seen.ids and link[0] == "#" for link in seen.links), seen.links)
    check("ids are of one thing each", len(seen.ids) == len(set(seen.ids)), seen.ids)
    check("no addresses", set(re.findall(r"\w+://[^\"' ]*", page)) <= {"http://www.w3.org/2000/svg"} and "url(" not in page)
    check("no number that is none", not re.search(r"[\"> ]-?(nan|inf)\b", page), re.findall(r".{40}(?:nan|inf)\b.{20}", page)[:3])


def colours(png):
    """How many different rows the picture has: a blank one has one."""
    i, pixels, width = 8, b"", 0
    while i < len(png):
        size, kind = int.from_bytes(png[i:i + 4], "big"), png[i + 4:i + 8]
        if kind == b"IHDR":
            width = int.from_bytes(png[i + 8:i + 12], "big")
            depth = {2: 3, 6: 4}[png[i + 17]]
        if kind == b"IDAT":
            pixels += png[i + 8:i + 8 + size]
        i += size + 12
    pixels, line = zlib.decompress(pixels), width * depth + 1
    return len({pixels[k:k + line] for k in range(0, len(pixels), line)})


def lines(folder, kind=None):
    with open(os.path.join(folder, "metrics.jsonl")) as f:
        return [line for line in map(json.loads, f) if kind in (None, line["kind"])]


def close(a, b):
    return abs(a - b) <= 1e-6 * max(1, abs(b))


def copy(name, change=None):
    folder = os.path.join(scratch, name)
    shutil.copytree(base, folder)
    if change is not None:
        path = os.path.join(folder, "metrics.jsonl")
        with open(path) as f:
            text = f.read()
        with open(path, "w") as f:
            f.write(change(text))
    return folder


def make_run():
    """Twelve steps, of which the last four are done by a second process."""
    text = os.path.join(scratch, "text.txt")
    rng = random.Random(1)
    with open(text, "w") as f:
        for _ in range(60):
            f.write("".join(rng.choice(["the ", "a ", "house ", "of ", "water ", "& <b> ", "\n"]) for _ in range(150)) + "\n----\n")
    r = run("data", "prepare", text, "--tokenizer", "bytes", "--out", data, "--validation", "0.2", "--separator", "----")
    assert r.returncode == 0, r.stderr
    folder = os.path.join(scratch, "a run")
    r = run("train", *SMALL, "--run", folder)
    assert r.returncode == 0, r.stderr
    first = os.path.join(folder, "checkpoints", "step-00000012")
    shutil.rmtree(first)  # as if it had been killed before
    r = run("train", *SMALL, "--run", folder)
    assert r.returncode == 0, r.stderr
    return folder


def test_figures():
    page, figures, _ = report(base, "--max-tokens", "12")
    one, train, evals = figures["runs"][0], lines(base, "train"), lines(base, "eval")
    last = evals[-1]
    check("validation", close(one["validation"]["loss"], last["loss"]) and close(one["validation"]["error"], last["error"]) and
          close(one["validation"]["perplexity"], last["perplexity"]), one["validation"])
    check("validation on the page", f"{last['loss']:.4f}" in page and f"{last['perplexity']:.3f}" in page)
    check("evaluations", [(e["step"], e["loss"]) for e in one["evaluations"]] == [(e["step"], e["loss"]) for e in evals], one["evaluations"])
    check("best", close(one["best_validation"]["loss"], min(e["loss"] for e in evals)))
    check("counts", (one["step"], one["steps"], one["tokens"], one["skipped_steps"], one["state"]) ==
          (12, 12, train[-1]["tokens"], 0, "finished"), one)
    check("speed", close(one["tokens_per_second"], 256 * len(train) / sum(t["ms"] for t in train) * 1e3), one["tokens_per_second"])
    late = [t["loss"] for t in train][-5:]
    check("training loss", close(one["training_loss"], sum(late) / len(late)), one["training_loss"])
    check("seconds", close(one["seconds"], train[-1]["elapsed"]) and 0 < one["goodput"] <= 1)
    check("restart", one["restarts"] == [8], one["restarts"])
    check("restart on the page", "restart" in page)
    check("inner losses", one["inner_loss"]["after"] == last["inner_loss_after"], one["inner_loss"])
    check("inner losses by token", page.count("<title>Layer ") == 2 and "validation sequences" in page)
    check("samples", len(one["samples"]) == 2 and all(s["prompt"] for s in one["samples"]), one["samples"])
    check("nothing wrong", one["notes"] == [], one["notes"])
    check("small", len(page) < 200000, len(page))
    again = report(base, "--max-tokens", "12", "--inner", "0")[1]["runs"][0]
    check("the same seed gives the same text", again["samples"] == one["samples"])
    prompted = report(base, "--prompt", "the </b>", "--samples", "1", "--max-tokens", "3", "--inner", "0")
    check("a prompt", prompted[1]["runs"][0]["samples"][0]["prompt"] == "the </b>" and "the &lt;/b&gt;" in prompted[0])
    none = report(base, "--samples", "0", "--inner", "0")
    check("no samples", none[1]["runs"][0]["samples"] == [] and "blockquote>" not in none[0])


def test_several():
    other = copy("other")
    path = os.path.join(other, "recipe.json")
    with open(path) as f:
        recipe = json.load(f)
    recipe["peak_lr"], recipe["added"] = 0.125, True
    with open(path, "w") as f:
        json.dump(recipe, f)
    page, figures, _ = report(base, other, "--samples", "0", "--inner", "0", "--title", "both <runs>")
    rows = {row["setting"]: row["values"] for row in figures["differences"]}
    check("only what differs", set(rows) == {"recipe.peak_lr", "recipe.added"} and rows["recipe.peak_lr"][1] == "0.125" and
          rows["recipe.added"] == [None, "yes"], rows)
    check("title", "<h1>both &lt;runs&gt;</h1>" in page)
    same = report(base, base, "--samples", "0", "--inner", "0")
    check("the same twice", same[1]["differences"] == [] and same[1]["runs"][0]["name"] == base)
    return page


def test_browser(page, several):
    assert browser.program(), "Chromium is missing: tools/dev/setup.sh installs it"
    with browser.Browser() as b:
        for name, text in (("one", page), ("several", several)):
            path = os.path.join(scratch, name + ".html")
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
            for width, height in ((360, 740), (390, 844), (1280, 900)):
                for dark in (False, True):
                    b.open(path, width, height, dark)
                    where = f"{name} at {width}"
                    wide = b.value("document.documentElement.scrollWidth")
                    check(where + " does not overflow", wide <= width, wide)
                    check(where + " asks for nothing", all(u.startswith("file://") for u in b.requests()), b.requests())
                    check(where + " shows something", colours(b.picture()) > 100)
                    check(where + " has charts", b.value("[...document.querySelectorAll('svg.chart')].every("
                                                         "s => s.getBoundingClientRect().height > 80)"))
                    check(where + " has no words over the edge", b.value(
                        "[...document.querySelectorAll('svg.chart')].every(s => {const e = s.getBoundingClientRect();"
                        "return [...s.querySelectorAll('text')].every(t => {const r = t.getBoundingClientRect();"
                        "return r.right < e.right + 3 && r.left > e.left - 3})})"))


def damaged(text):
    rows = text.splitlines()
    rows[3] = rows[3][:40]
    rows[5] = "\0\xff not JSON"
    rows[6] = '{"kind": "train", "step": "six"}'
    return "\n".join(rows) + "\n" + rows[-1][:50]


def without(text, kind):
    return "".join(row + "\n" for row in text.splitlines() if f'"kind": "{kind}"' not in row)


def test_states():
    quiet = ["--samples", "0", "--inner", "0"]
    _, figures, words = report(copy("damaged", damaged), *quiet)
    check("damage is told", f"3 of {len(lines(base)) + 1} lines are damaged, the first is line 4" in words, words)
    check("the rest is read", figures["runs"][0]["step"] == 12)
    page, figures, _ = report(copy("no evaluations", lambda t: without(t, "eval")), *quiet)
    check("no evaluations", figures["runs"][0]["validation"] is None and "no evaluation yet" in page)
    page, figures, _ = report(copy("no steps", lambda t: without(t, "train")), *quiet)
    check("no steps", figures["runs"][0]["step"] == 0 and figures["runs"][0]["training_loss"] is None)
    report(copy("empty", lambda t: ""), *quiet)
    page, figures, _ = report(copy("not finite", lambda t: re.sub(r'("loss"|"grad_norm"): [^,]*', r"\1: null", t)), *quiet)
    check("not finite", figures["runs"][0]["steps_not_finite"] == 12 and "12 with a loss not finite" in page)
    page, figures, _ = report(copy("spike", lambda t: t.replace('"loss": ', '"loss": 1e30', 3)), *quiet)
    bare = copy("bare")
    for name in ("recipe.json", "environment.json", "checkpoints", "tensorboard"):
        path = os.path.join(bare, name)
        shutil.rmtree(path) if os.path.isdir(path) else os.remove(path)
    with open(os.path.join(bare, "config.json"), "w") as f:
        f.write('{"vocab_size": ')
    page, figures, words = report(bare)
    check("little is left", "recipe.json is not there" in words and "config.json: line" in words and "no checkpoint yet" in words, words)
    check("and said on the page", "recipe.json is not there" in page)
    cut = copy("cut", lambda t: "".join(r + "\n" for r in t.splitlines() if json.loads(r)["step"] <= 7))
    check("cut", report(cut, *quiet)[1]["runs"][0]["state"] == "not finished")
    with open(os.path.join(cut, "lock")) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        check("going", report(cut, *quiet)[1]["runs"][0]["state"] == "still going")
    hostile = copy('<script>alert("1")</script>'.replace("/", "_"))
    os.rename(hostile, os.fsencode(hostile) + b"\xff")
    r = run("report", os.fsencode(hostile) + b"\xff", "-o", os.path.join(scratch, "h.html"), *quiet)
    check("hostile name", r.returncode == 0, r.stderr)
    with open(os.path.join(scratch, "h.html"), encoding="utf-8") as f:
        whole(f.read())


def test_models_that_cannot():
    broken = copy("broken")
    with open(os.path.join(broken, "checkpoints", "step-00000012", "model.safetensors"), "r+b") as f:
        f.truncate(100)
    page, figures, words = report(broken)
    check("a broken model is said", "no samples: " in words and figures["runs"][0]["samples"] == [], words)
    page, figures, words = report(base, "--data", "/nowhere")
    check("no data is said", "no samples: " in words and "/nowhere" in words, words)


def test_long():
    """Many lines: bounded memory, a small page."""
    long = copy("long")
    row = '{"kind": "train", "step": %d, "loss": %.4f, "grad_norm": %.3f, "lr": 1e-3, "ms": 10.0, "tokens_per_second": 25600.0, ' \
          '"mfu": 0.3, "memory": 1000, "data_wait": 0.0, "skipped": 0, "tokens": %d, "elapsed": %.2f}\n'
    rng, steps = random.Random(2), 200000
    with open(os.path.join(long, "metrics.jsonl"), "w") as f:
        for i in range(1, steps + 1):
            f.write(row % (i, 2 + 3 / (1 + i / 999) + rng.random(), 1 + rng.random(), 256 * i, i / 100))
    page, figures, _ = report(long, "--samples", "0", "--inner", "0")
    check("all lines count", figures["runs"][0]["tokens"] == 256 * steps and close(figures["runs"][0]["tokens_per_second"], 25600))
    check("small page", len(page) < 150000, len(page))
    small = subprocess.run([sys.executable, "-c", "import resource, subprocess, sys; subprocess.run(sys.argv[1:], stdout=-3); "
                            "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)", ttt, "report", long, "--json", "--samples", "0",
                            "--inner", "0"], capture_output=True, text=True)
    check("bounded memory", int(small.stdout) < 60000, small.stdout + " kB")  # 14,000 were seen


def test_wrong_use():
    r = run("report")
    check("no run", r.returncode == 2 and "a run is missing" in r.stderr, r.stderr)
    for words in (["--samples", "9"], ["--samples", "-1"], ["--bogus"]):
        check("bad option", run("report", base, *words).returncode == 2, words)
    r = run("report", scratch, "-o", os.path.join(scratch, "never.html"))
    check("no run there", r.returncode == 1 and r.stderr.count("\n") == 1 and "is no training run" in r.stderr, r.stderr)
    check("and no page", not os.path.exists(os.path.join(scratch, "never.html")))
    r = run("report", base, "--samples", "0", "--inner", "0", "-o", "/nowhere/page.html")
    check("no place for it", r.returncode == 1 and r.stderr.count("\n") == 1 and "/nowhere" in r.stderr, r.stderr)
    folder = os.path.join(scratch, "here")
    os.mkdir(folder)
    r = run("report", base, "--samples", "0", "--inner", "0", cwd=folder)
    check("report.html, and nothing beside it", r.returncode == 0 and os.listdir(folder) == ["report.html"], os.listdir(folder))


try:
    base = make_run()
    test_figures()
    both = test_several()
    test_browser(report(base, "--max-tokens", "40")[0], both)
    test_states()
    test_models_that_cannot()
    test_long()
    test_wrong_use()
finally:
    shutil.rmtree(scratch, ignore_errors=True)
print(f"{passed} checks passed, {failed} failed")
sys.exit(failed > 0)
