"""`ttt data` as a user or a program meets it: what is prepared, what is refused, and that no kill, stop or full disk loses anything.

usage: test_data.py TTT CORPUS_SH     (the Python of the judges, for NumPy)
"""
import base64
import filecmp
import json
import os
import pty
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

ttt, corpus_script = sys.argv[1:3]
passed, failed = 0, 0
BOS, EOS = 256, 257
random.seed(1)


def run(*words, **more):
    return subprocess.run([ttt, *words], capture_output=True, text=True, timeout=600, **more)


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


def prepare(out, *words):
    r = run("data", "prepare", "--tokenizer", "bytes", "--out", out, "--json", *words)
    return json.loads(r.stdout) if r.returncode == 0 else {"failed": r.stderr}


def documents_of(folder, split="train"):
    """The documents of a split, by way of the format's description alone."""
    with open(os.path.join(folder, "index.json")) as f:
        index = json.load(f)
    shards = index["splits"][split]["shards"]
    kind = {"u16": "<u2", "u32": "<u4"}[index["type"]]
    tokens = np.concatenate([np.fromfile(os.path.join(folder, s["name"]), kind) for s in shards])
    assert tokens[0] == BOS and tokens[-1] == EOS
    ends = np.flatnonzero(tokens == EOS)
    starts = np.concatenate([[0], ends[:-1] + 1])
    assert (tokens[starts] == BOS).all()
    return [tokens[a + 1:b].astype(np.uint8).tobytes() for a, b in zip(starts, ends)]


def same_folders(a, b):
    names = sorted(os.listdir(a))
    return names == sorted(os.listdir(b)) and filecmp.cmpfiles(a, b, names, shallow=False)[0] == names


def write(path, data):
    with open(path, "wb" if isinstance(data, bytes) else "w") as f:
        f.write(data)
    return path


def write_large(path, megabytes):
    """Lines of many lengths, some of them bad; no two are alike."""
    words = [bytes(random.choices(b"abcdefghijklmnopqrstuvwxyz ", k=2000)).decode() for _ in range(50)]
    with open(path, "w") as f:
        n = 0
        while f.tell() < megabytes * 1e6:
            f.write("".join(f'{{"id": {n + i}, "text": "{n + i} {words[(n + i) % 50][:(n + i) * 7919 % 2000]}"}}\n' for i in range(1000)))
            f.write("a bad line\n")
            n += 1000
    return path


# ---- forms ----------------------------------------------------------------------------------------

def forms(scratch):
    texts = ["one\n", "two — zwei\nlines\n", "three\n" * 1000]
    folder = os.path.join(scratch, "texts")
    os.mkdir(folder)
    for i, text in enumerate(texts):
        write(os.path.join(folder, f"{i}.txt"), text)
    lines = write(os.path.join(scratch, "all.jsonl"), "".join(json.dumps({"text": t}) + "\n" for t in texts))
    joined = write(os.path.join(scratch, "all.txt"), "---\n".join(texts))
    whole = {}
    for name, words in {"folder": [folder], "files": [os.path.join(folder, f"{i}.txt") for i in range(3)], "lines": [lines],
                        "input": ["--input", folder], "separator": [joined, "--separator", "---"]}.items():
        out = os.path.join(scratch, "out-" + name)
        report = prepare(out, *words)
        check(f"{name}: report", report.get("train") == {"tokens": sum(len(t.encode()) + 2 for t in texts), "documents": 3}, report)
        whole[name] = documents_of(out)
        check(f"{name}: documents", whole[name] == [t.encode() for t in texts], whole[name])
    if shutil.which("zstd"):
        subprocess.run(["zstd", "-q", lines, "-o", lines + ".zst"], check=True)
        out = os.path.join(scratch, "out-zst")
        report = prepare(out, lines + ".zst")
        check("zst: documents", documents_of(out) == whole["lines"], report)
        cut = write(os.path.join(scratch, "cut.jsonl.zst"), open(lines + ".zst", "rb").read()[:-5])
        check_fails("zst: cut", 1, ["data", "prepare", "--tokenizer", "bytes", "--out", out + "2", cut], "cut.jsonl.zst")
    r = run("data", "prepare", "--tokenizer", "bytes", "--out", os.path.join(scratch, "out-words"), folder)
    check("words", r.returncode == 0 and "3 files" in r.stdout and "3 documents" in r.stdout and r.stderr == "", (r.stdout, r.stderr))


def tokenizer_files(scratch):
    """Bytes as ranks under a name whose special tokens lie past 65536: numbers of four bytes, and BOS is EOS."""
    ranks = "".join(f"{base64.b64encode(bytes([i])).decode()} {i}\n" for i in range(256))
    tokenizer = write(os.path.join(scratch, "cl100k_base.tiktoken"), ranks)
    text = write(os.path.join(scratch, "a.txt"), "some text\n")
    out = os.path.join(scratch, "out")
    base = ["data", "prepare", "--out", out, text, "--tokenizer"]
    r = run(*base, tokenizer)
    check("tokenizer: prepared", r.returncode == 0, r.stderr)
    tokens = np.fromfile(os.path.join(out, "train-00000.tokens"), "<u4")
    check("tokenizer: tokens", tokens.tolist() == [100257, *b"some text\n", 100257], tokens)
    check("tokenizer: copied", filecmp.cmp(tokenizer, os.path.join(out, "cl100k_base.tiktoken"), shallow=False))
    info = json.loads(run("data", "info", "--verify", "--json", out).stdout)
    check("tokenizer: info", info["tokenizer"] == {"name": os.path.join(out, "cl100k_base.tiktoken"), "vocab": 100277, "bos": 100257,
                                                   "eos": 100257}, info)
    check_fails("tokenizer: another", 1, base + ["bytes"], "other inputs or options")
    write(tokenizer, ranks + base64.b64encode(b"so").decode() + " 256\n")
    check_fails("tokenizer: changed", 1, base + [tokenizer], "other inputs or options")
    for name in ("index.json", ".hidden", "x" * 70):
        other = write(os.path.join(scratch, name), ranks)
        check_fails(f"tokenizer: {name}", 1, ["data", "prepare", "--out", out + "2", text, "--tokenizer", other], name, "rename the file")


def bad_lines(scratch):
    lines = write(os.path.join(scratch, "bad.jsonl"), '{"text": "good"}\nbad\n{"txt": "x"}\n{"text": 1}\n{"text": "also"}\n')
    out = os.path.join(scratch, "out-bad")
    check_fails("strict", 1, ["data", "prepare", "--tokenizer", "bytes", "--strict", "--out", out, lines], "bad.jsonl:2: not JSON")
    report = prepare(out, lines)
    check("bad lines are counted", report.get("bad_lines") == 3 and "bad.jsonl:2: not JSON" in report["first_bad"], report)
    check("good ones stay", documents_of(out) == [b"good", b"also"])
    r = run("data", "prepare", "--tokenizer", "bytes", "--out", out, lines)
    check("again", r.returncode == 0 and "bad lines:  3" in r.stdout and "taken up" in r.stdout, r.stdout)


def wrong_use(scratch):
    lines = write(os.path.join(scratch, "use.jsonl"), '{"text": "good"}\n')
    out = os.path.join(scratch, "out-use")
    base = ["data", "prepare", "--tokenizer", "bytes", "--out", out, lines]
    check("prepare", run(*base).returncode == 0)
    check_fails("other options", 1, base + ["--seed", "2"], out, "other inputs or options")
    check_fails("other inputs", 1, base + [lines], "other inputs or options")
    check_fails("no folder", 1, ["data", "info", scratch], "index.json")
    check_fails("no input", 1, base + [os.path.join(scratch, "none.txt")], "none.txt")
    check_fails("not a folder", 1, base[:4] + ["--out", lines, lines], "use.jsonl")
    check_fails("nothing", 2, ["data"], "--help")
    check_fails("other", 2, ["data", "x"], "--help")
    check_fails("no out", 2, ["data", "prepare", "--tokenizer", "bytes", lines], "--out")
    check_fails("no tokenizer", 2, ["data", "prepare", "--out", out, lines], "--tokenizer")
    check_fails("no inputs", 2, base[:-1], "inputs")
    for option, value in [("--validation", "2"), ("--validation", "x"), ("--seed", "-1"), ("--threads", "0"), ("--shard-tokens", "0"),
                          ("--shard-tokens", "1e3")]:
        check_fails(f"{option} {value}", 2, base + [option, value], option)
    r = run("data", "info", out, "--json")
    info = json.loads(r.stdout)
    check("info", info["train"]["tokens"] == 6 and info["tokenizer"]["vocab"] == 258 and "validation" not in info, info)
    shard = os.path.join(out, "train-00000.tokens")
    write(shard, b"\1\0" * 6)
    check("info without --verify", run("data", "info", out).returncode == 0)
    check_fails("info --verify", 1, ["data", "info", out, "--verify"], "train-00000.tokens")
    for words in ([], ["prepare"], ["info"]):
        r = run("data", *words, "--help")
        check(f"help {words}", r.returncode == 0 and r.stdout.startswith("usage: ttt data"))


# ---- threads, kills, stops ------------------------------------------------------------------------

OPTIONS = ["--validation", "0.05", "--seed", "3", "--shard-tokens", "10000000"]


def begin(out, *words):
    return subprocess.Popen([ttt, "data", "prepare", "--tokenizer", "bytes", "--out", out, *OPTIONS, *words],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def journalled(out):
    """Documents that the journal has; 0 when there is none."""
    try:
        with open(os.path.join(out, "journal.json")) as f:
            return json.load(f)["made"]["position"]["documents"]
    except FileNotFoundError:
        return 0


def cut_runs(scratch):
    large = write_large(os.path.join(scratch, "large.jsonl"), 100)
    whole = os.path.join(scratch, "out-1")
    report = prepare(whole, large, "--threads", "1", *OPTIONS)
    check("large", report.get("bad_lines", 0) > 10 and report["validation"]["documents"] > 0, report)
    four = os.path.join(scratch, "out-4")
    prepare(four, large, "--threads", "4", *OPTIONS)
    check("four threads", same_folders(whole, four))
    check("info of shards", "every file has its hash" in run("data", "info", "--verify", whole).stdout)

    # Killed at any moment, each time going on from where the journal was; at least once after it had something to go on from.
    out, kills, went_on = os.path.join(scratch, "out-kill"), 0, 0
    while True:
        process = begin(out, large, "--threads", str(1 + kills % 2))
        before, deadline = journalled(out), time.monotonic() + 60
        if kills % 2 == 1:  # not before it got on
            while process.poll() is None and journalled(out) <= before and time.monotonic() < deadline:
                time.sleep(0.005)
        time.sleep(random.random() * 0.1 * (1 + kills))
        if process.poll() is None:
            process.kill()
        process.communicate()
        went_on += journalled(out) > 0
        kills += 1
        if process.returncode == 0:
            break
        check("killed", process.returncode == -signal.SIGKILL, process.returncode)
        if kills > 100:
            break
    check("kills", went_on > 0 and kills > 1, (went_on, kills))
    check("the same after kills", same_folders(whole, out))

    for number in (signal.SIGINT, signal.SIGTERM):
        out = os.path.join(scratch, f"out-{number.name}")
        process = begin(out, large, "--threads", "1")
        deadline = time.monotonic() + 60
        while not os.path.exists(os.path.join(out, "train-00000.tokens")) and time.monotonic() < deadline:
            time.sleep(0.002)
        process.send_signal(number)
        _, words = process.communicate()
        check(f"{number.name}: leaves in good order", process.returncode == 1 and words.startswith("ttt: stopped"), (process.returncode, words))
        kept = journalled(out)
        check(f"{number.name}: keeps what it has", kept > 0, kept)
        report = prepare(out, large, *OPTIONS)
        check(f"{number.name}: goes on", report.get("resumed") and same_folders(whole, out), report)

    # Input that changes between the two is other input.
    out = os.path.join(scratch, "out-changed")
    process = begin(out, large, "--threads", "1")
    while not os.path.exists(os.path.join(out, "journal.json")):
        time.sleep(0.002)
    process.kill()
    process.communicate()
    with open(large, "a") as f:
        f.write('{"text": "more"}\n')
    check_fails("changed input", 1, ["data", "prepare", "--tokenizer", "bytes", "--out", out, *OPTIONS, large], "other inputs", "incomplete")


def two_at_once(scratch):
    large = write_large(os.path.join(scratch, "both.jsonl"), 30)
    out = os.path.join(scratch, "out-both")
    first = begin(out, large, "--threads", "1")
    while not os.path.exists(os.path.join(out, "journal.json")) and first.poll() is None:
        time.sleep(0.002)
    r = run("data", "prepare", "--tokenizer", "bytes", "--out", out, *OPTIONS, large)
    first.communicate()
    check("two at once", first.returncode == 0 and (r.returncode == 1 and "another process" in r.stderr or r.returncode == 0), r.stderr)


def full_disk(scratch):
    disk = os.path.join(scratch, "disk")
    os.mkdir(disk)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=20m", "tmpfs", disk], capture_output=True).returncode != 0:
        print("no full disk: a file system cannot be mounted here")
        return
    try:
        large = write_large(os.path.join(scratch, "full.jsonl"), 15)
        whole, out = os.path.join(scratch, "out-whole"), os.path.join(disk, "out")
        prepare(whole, large)
        check_fails("full disk", 1, ["data", "prepare", "--tokenizer", "bytes", "--out", out, large], "No space left", "make room")
        check("nothing half", not os.path.exists(os.path.join(out, "index.json")))
        subprocess.run(["mount", "-o", "remount,size=60m", disk], check=True)
        report = prepare(out, large)
        check("room was made", report.get("resumed") and same_folders(whole, out), report)
    finally:
        subprocess.run(["umount", disk], check=True)


# ---- what a person sees ---------------------------------------------------------------------------

def on_a_terminal(scratch):
    large = write_large(os.path.join(scratch, "seen.jsonl"), 40)
    ours, theirs = pty.openpty()
    out = os.path.join(scratch, "out-seen")
    process = subprocess.Popen([ttt, "data", "prepare", "--tokenizer", "bytes", "--threads", "1", "--out", out, large],
                               stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    seen = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        seen += part
    os.close(ours)
    words, _ = process.communicate()
    check("a line that is drawn", b"\r" in seen and b"B/s" in seen and b"tokens/s" in seen and b" left" in seen and b"\n" not in seen, seen)
    check("and taken away", seen.endswith(b"\r\x1b[K") and "1 file," in words, (seen[-40:], words))


def demo_corpus(scratch):
    if not shutil.which("bible"):
        print("no demo corpus: the package is not installed")
        return
    for name in ("a", "b"):
        subprocess.run([corpus_script, os.path.join(scratch, name)], check=True)
    path = os.path.join(scratch, "a", "kjv.jsonl")
    check("the same twice", filecmp.cmp(path, os.path.join(scratch, "b", "kjv.jsonl"), shallow=False))
    books = [json.loads(line) for line in open(path)]
    check("books", len(books) == 66 and books[0]["text"].startswith("In the beginning God created the heaven and the earth.\nAnd"), len(books))
    check("verses", sum(b["text"].replace("\n\n", "\n").count("\n") for b in books) == 31102)
    check("chapters", sum(b["text"].count("\n\n") + 1 for b in books) == 1189)
    empty = os.path.join(scratch, "empty")
    os.mkdir(empty)
    r = subprocess.run([corpus_script, os.path.join(scratch, "c")], capture_output=True, text=True, env={"PATH": empty}, executable=corpus_script)
    check("without the package", r.returncode == 1 and "bible-kjv" in r.stderr, r)


with tempfile.TemporaryDirectory() as folder:
    for case in (forms, tokenizer_files, bad_lines, wrong_use, cut_runs, two_at_once, full_disk, on_a_terminal, demo_corpus):
        case_folder = os.path.join(folder, case.__name__)
        os.mkdir(case_folder)
        case(case_folder)
print(f"{passed} passed, {failed} failed")
sys.exit(failed > 0)
