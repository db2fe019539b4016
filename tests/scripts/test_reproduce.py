"""`ttt reproduce`: what it leaves, that cut runs go on, that runs are shared and not mixed up.

usage: test_reproduce.py TTT     (any Python 3)

Networks are the tiny preset's after a few steps at context 32: nothing here says which is better.
"""
import csv
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import xml.dom.minidom

ttt = sys.argv[1]
scratch = tempfile.mkdtemp(prefix="ttt-reproduce-")
out = os.path.join(scratch, "out")
common = ["--out", out, "--corpus", os.path.join(scratch, "text.jsonl"), "--context", "32", "--steps", "6"]


def run(*words, code=0):
    done = subprocess.run([ttt, "reproduce", *words], capture_output=True, text=True)
    assert done.returncode == code, (words, done.returncode, done.stdout, done.stderr)
    return done


def write_corpus():
    """Documents of made-up words: enough of them for a tokenizer, and for both splits."""
    chance = random.Random(0)
    words = ["".join(chance.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(chance.randint(2, 9))) for _ in range(900)]
    with open(os.path.join(scratch, "text.jsonl"), "w") as f:
        for _ in range(40):
            f.write(json.dumps({"text": " ".join(chance.choice(words) for _ in range(400))}) + "\n")


def result(name):
    with open(os.path.join(out, "runs", name, "result.json")) as f:
        return json.load(f)


def test_files():
    """Rows of the ladder: JSON, CSV and page agree with the runs' results, the picture is XML."""
    said = json.loads(run("ladder", "--rows", "mini,rate,mamba", *common, "--json").stdout)
    rows = said["experiments"]["ladder"]["rows"]
    assert [row["name"] for row in rows] == ["mini", "rate", "mamba"], rows
    for row in rows:
        assert abs(row["perplexity"] - result(f"ladder-{row['name']}-s0")["perplexity"]) < 1e-4
    assert abs(rows[1]["difference"] - (rows[1]["perplexity"] - rows[0]["perplexity"])) < 1e-4
    with open(os.path.join(out, "ladder.csv")) as f:
        table = list(csv.DictReader(f))
    assert [float(row["perplexity"]) for row in table] == [row["perplexity"] for row in rows]
    xml.dom.minidom.parse(os.path.join(out, "ladder.svg"))
    with open(os.path.join(out, "results.md")) as f:
        page = f.read()
    assert "ladder.svg" in page and "+ learnable rate" in page, page


def test_shared():
    """The inner loop is that of the ladder's last network, which is not trained again."""
    checkpoints = os.path.join(out, "runs", "ladder-mamba-s0", "checkpoints")
    before = os.stat(checkpoints).st_mtime_ns
    said = run("innerloop", *common).stdout
    assert os.stat(checkpoints).st_mtime_ns == before and "l(W_t) < l(W_t-1)" in said, said
    rows = json.load(open(os.path.join(out, "innerloop.json")))["rows"]
    inner = result("ladder-mamba-s0")["inner_loss"]
    assert len(rows) == len(inner) == 4 and len(inner[0]) == 4 and len(inner[0][0]) == 32


def test_other_settings():
    """A folder of other settings is refused, not overwritten; wrong words are wrong use."""
    before = result("ladder-rate-s0")
    error = run("ladder", "--rows", "rate", *common[:-1], "7", code=1).stderr
    assert "other settings" in error and error.count("\n") == 1, error
    assert result("ladder-rate-s0") == before
    assert "no experiment" in run("ladders", *common, code=2).stderr
    assert "no row" in run("ladder", "--rows", "mini,nine", *common, code=2).stderr
    assert "needs --data" in run("ladder", "--scale", "paper", "--out", os.path.join(scratch, "p"), code=1).stderr


def test_cut():
    """Stopped within a run, the same command goes on: the loss is that of a run that was not cut."""
    words = [ttt, "reproduce", "ladder", "--rows", "rate", "--out", os.path.join(scratch, "cut"), *common[2:]]
    going = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    metrics = os.path.join(scratch, "cut", "runs", "ladder-rate-s0", "metrics.jsonl")
    for _ in range(600):
        if os.path.exists(metrics) and os.path.getsize(metrics) > 0:
            break
        time.sleep(0.05)
    going.send_signal(signal.SIGINT)
    _, error = going.communicate()
    assert going.returncode == 0 or "the same command goes on" in error, error
    subprocess.run(words, check=True, capture_output=True)
    with open(os.path.join(scratch, "cut", "runs", "ladder-rate-s0", "result.json")) as f:
        assert json.load(f)["loss"] == result("ladder-rate-s0")["loss"]


def test_commands():
    """What --commands prints trains what the command itself would."""
    said = run("ladder", "--rows", "norm", *common, "--commands", "--mesh", "data=2").stdout
    line = next(line for line in said.splitlines() if line.startswith("ttt train"))
    for part in ("--preset tiny", "--set mini_batch_size=0", "--set sequence_length=32", "--set steps=6", "--mesh data=2", "--resume auto"):
        assert part in line, (part, line)
    assert not os.path.exists(os.path.join(out, "runs", "ladder-norm-s0"))
    words = line.replace("'", "").replace(" --mesh data=2", "").split()
    subprocess.run([ttt, *words[1:]], check=True, capture_output=True)
    assert "norm" in run("ladder", "--rows", "norm", *common, "--json").stdout


try:
    write_corpus()
    for test in (test_files, test_shared, test_other_settings, test_cut, test_commands):
        test()
        print("ok", test.__name__)
finally:
    shutil.rmtree(scratch, ignore_errors=True)
