"""What a person reads about the commands, and what they really take: the tables as JSON against --help, the parser, the reference page,
the manual pages, and completion as the shells do it.

usage: test_help.py TTT REFERENCE      (REFERENCE: docs/reference.md)
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ttt, reference = os.path.realpath(sys.argv[1]), sys.argv[2]


def run(*words, **more):
    return subprocess.run(words, capture_output=True, text=True, timeout=120, **more)


def output(*words):
    r = run(ttt, *words)
    assert r.returncode == 0 and r.stderr == "", (words, r)
    return r.stdout


tables = json.loads(output("help", "--json"))["commands"]
everywhere = {o["name"] for c in tables for o in c["options"]}


def value(option):
    """Something that the option takes."""
    if option["choices"]:
        return option["choices"][0]
    given = {"LIST": "1,2", "FIELD=VALUE": "a=1", "NAME=VALUE": "a=1"}
    return given.get(option["value"], "1")


class Tables(unittest.TestCase):
    def test_all_is_said(self):
        for c in tables:
            for field in ["summary", "usage", "about"]:
                self.assertTrue(c[field], (c["name"], field))
            self.assertTrue(c["example"] or c["commands"], c["name"])
            names = [o["name"] for o in c["options"]]
            self.assertEqual(len(names), len(set(names)), c["name"])
            self.assertTrue({"json", "verbose", "help"} <= set(names), c["name"])
            for o in c["options"] + c["operands"]:
                self.assertTrue(o["help"] and not o["help"].endswith("."), (c["name"], o))
            for o in c["options"]:
                self.assertEqual(o["kind"] != "flag", "value" in o, (c["name"], o))
                self.assertFalse(o["kind"] == "choice" and not o["choices"], (c["name"], o))
                usual = o.get("default")
                if usual and o["choices"] and not o["others_too"]:
                    self.assertIn(usual, o["choices"], (c["name"], o))

    def test_options_that_texts_name_exist(self):
        for c in tables:
            texts = c["about"] + c["notes"] + c["example"] + c["usage"] + [o["help"] for o in c["options"] + c["operands"]]
            named = set(re.findall(r"(?<![\w-])--([a-z][a-z-]+)", " ".join(texts)))
            self.assertLessEqual(named, everywhere, c["name"])

    def test_examples_parse(self):
        """Each line of the examples that is a command of ours, with --help behind it: the options before are read."""
        for c in tables:
            for line in " ".join(c["example"]).replace("\\ ", " ").split(" ttt "):
                words = re.split(r" [|>&<]", line)[0].removeprefix("ttt ").split()
                if not line.startswith("source"):
                    self.assertEqual(run(ttt, *words, "--help").returncode, 0, (c["name"], words))


class Parsing(unittest.TestCase):
    def test_every_option_parses(self):
        """--help comes last, and is only reached when all before it was taken."""
        for c in tables:
            words = []
            for o in c["options"]:
                if o["name"] != "help":
                    words += ["--" + o["name"]] + ([value(o)] if "value" in o else [])
                    words += ["-" + o["letter"]] if "letter" in o else []
            r = run(ttt, *c["name"].split(), *words, "-h")
            self.assertEqual((r.returncode, r.stderr), (0, ""), (c["name"], words))

    def test_what_is_no_option_is_refused(self):
        for c in tables:
            r = run(ttt, *c["name"].split(), "--frobnicate")
            self.assertTrue(r.returncode == 2 and r.stderr.count("\n") == 1 and "--frobnicate" in r.stderr, r)

    def test_bad_values(self):
        wrong, seen = {"number": "0", "choice": "nonsense"}, set()
        for c in tables:
            for o in c["options"]:
                if o["kind"] in wrong and o["name"] not in seen:  # once for each name: the rows are often shared
                    seen.add(o["name"])
                    r = run(ttt, *c["name"].split(), "--" + o["name"], wrong[o["kind"]])
                    self.assertEqual(r.returncode, 2, (c["name"], o["name"]))
                    self.assertTrue(all(w in r.stderr for w in o["choices"]) and o["name"] in r.stderr, r.stderr)

    def test_suggestions(self):
        for words, meant in [(["trian"], "train"), (["inspekt"], "inspect"), (["tok"], "tokenizer"), (["hlo", "rnu"], "run"),
                             (["help", "gads"], "grads"), (["train", "--step", "3"], "--steps"), (["eval", "--modle", "x"], "--model")]:
            r = run(ttt, *words)
            self.assertTrue(r.returncode == 2 and f"did you mean {meant}?" in r.stderr, r)
        self.assertNotIn("did you mean", run(ttt, "nonsense").stderr)

    def test_version(self):
        version = output("--version")
        self.assertRegex(version, r"^ttt \d+\.\d+\.\d+\n$")
        self.assertEqual(output("-V"), version)
        told = json.loads(output("--version", "--json"))
        self.assertEqual("ttt " + told["version"] + "\n", version)
        self.assertLess(told["pjrt_api"]["oldest_plugin"], told["pjrt_api"]["built_with"])
        self.assertLess(told["stablehlo"]["oldest"], told["stablehlo"]["newest"])


class Pages(unittest.TestCase):
    def test_help(self):
        for c in tables:
            words = c["name"].split()
            text = output(*words, "--help")
            self.assertEqual(output("help", *words), text)
            self.assertTrue(text.startswith(" ".join(["usage: ttt", *words])), text)
            for o in c["options"]:
                self.assertRegex(text, rf"\n  (-\w, )?--{o['name']}\b", c["name"])
            kept = {f"  {line}" for line in c["example"]} | {line for line in text.splitlines() if " ttt " in line}
            for line in text.splitlines():
                self.assertTrue(len(line) <= (100 if line in kept else 80), line)
                self.assertEqual(line, line.rstrip())

    def test_reference_is_current(self):
        with open(reference) as f:
            self.assertEqual(f.read(), output("help", "--format", "markdown"), "write it anew: ttt help --format markdown > docs/reference.md")

    def test_links_of_the_reference(self):
        with open(reference) as f:
            text = f.read()
        anchors = {re.sub(r"[^a-z0-9 -]", "", h.lower()).replace(" ", "-") for h in re.findall(r"^##+ (.*)", text, re.M)}
        self.assertLessEqual(set(re.findall(r"\]\(#([^)]*)\)", text)), anchors)
        ids = re.findall(r'<a id="([^"]*)"', text)
        self.assertEqual(len(ids), len(set(ids)))

    def test_manual_pages(self):
        with tempfile.TemporaryDirectory(prefix="ttt-man-") as folder:
            output("help", "--format", "man", "--out", folder)
            pages = sorted(os.path.join(folder, name) for name in os.listdir(folder))
            self.assertEqual(len(pages), len(tables))
            for page, name in [("ttt.1", []), ("ttt-hlo-run.1", ["hlo", "run"])]:
                with open(os.path.join(folder, page)) as f:
                    self.assertEqual(f.read(), output("help", *name, "--format", "man"))
            if shutil.which("groff"):
                for page in pages:
                    r = run("groff", "-man", "-Tutf8", "-P-cbou", "-ww", page)
                    self.assertTrue(r.returncode == 0 and r.stderr == "" and "NAME" in r.stdout, (page, r.stderr))
            if shutil.which("mandoc"):
                self.assertEqual(run("mandoc", "-T", "lint", *pages).stdout, "")


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="ttt-complete-")
        for shell in ["bash", "zsh", "fish"]:
            with open(os.path.join(cls.folder, shell), "w") as f:
                f.write(output("help", "--format", shell))
        os.makedirs(os.path.join(cls.folder, "here", "folder of data"))
        open(os.path.join(cls.folder, "here", "file.pb"), "w").close()

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def bash(self, line, more=""):
        """What bash would offer for the line; the function is called as bash calls it."""
        script = f"""source "$1"; {more} COMP_LINE=$2 COMP_POINT=${{#2}}; _ttt; printf '%s\\n' "${{COMPREPLY[@]}}" """
        r = run("bash", "--norc", "-c", script, "bash", os.path.join(self.folder, "bash"), line, cwd=os.path.join(self.folder, "here"))
        self.assertEqual((r.returncode, r.stderr), (0, ""), line)
        return r.stdout.split("\n")[:-1]

    def test_bash(self):
        top = [c["name"] for c in tables if c["name"] and " " not in c["name"]]
        options = {c["name"]: ["--" + o["name"] for o in c["options"]] for c in tables}
        presets = next(o["choices"] for c in tables if c["name"] == "train" for o in c["options"] if o["name"] == "preset")
        mixers = next(o["choices"] for c in tables if c["name"] == "train" for o in c["options"] if o["name"] == "mixer")
        cases = {
            "ttt ": top, "ttt tra": ["train"], "ttt hlo ": ["run", "compile", "example"], "ttt tokenizer d": ["decode"],
            "ttt train --": options["train"], "ttt hlo compile --": options["hlo compile"], "ttt --v": ["--version", "--verbose"],
            "ttt train --preset ": presets, "ttt config show --mixer ": mixers, "ttt eval --path s": ["stream"],
            "ttt train --steps ": [""], "ttt hlo example s": ["scan", "sharded"], "ttt help pl": ["plugin-check"],
            "ttt inspect f": ["file.pb", "folder of data"], "ttt train --data f": ["folder of data"],
            "ttt devices --plugin c": ["cpu", "cuda"], "ttt compile --target cuda:h": ["h100-sxm", "h200-sxm"],
            "ttt train --preset=t": ["tiny"], "ttt train --steps 3 --preset t": ["tiny"], "ttt nonsense ": [""],
        }
        for line, expected in cases.items():
            self.assertEqual(sorted(self.bash(line)), sorted(expected), line)
        # Where bash cuts words at blanks alone, it replaces the whole word.
        self.assertEqual(self.bash("ttt train --preset=t", "COMP_WORDBREAKS=' ';"), ["--preset=tiny"])
        self.assertIn("_ttt ttt", run("bash", "-c", f"source {self.folder}/bash; complete -p ttt").stdout)

    def test_zsh(self):
        if shutil.which("zsh") is None:
            self.skipTest("no zsh")
        r = run("zsh", "-f", "-n", os.path.join(self.folder, "zsh"))
        self.assertEqual((r.returncode, r.stderr), (0, ""))

    def test_fish(self):
        if shutil.which("fish") is None:
            self.skipTest("no fish")
        for line, expected in [("ttt tra", "train"), ("ttt hlo ex", "example"), ("ttt eval --path st", "stream"), ("ttt train --preset ti", "tiny")]:
            r = run("fish", "--no-config", "-c", f"source {self.folder}/fish; complete -C '{line}'")
            self.assertEqual((r.returncode, r.stderr, [w.split("\t")[0] for w in r.stdout.splitlines()]), (0, "", [expected]), line)


unittest.main(argv=sys.argv[:1] + sys.argv[3:])
