"""The documentation does what it says.

usage: test_docs.py names ROOT TTT                links, files, commands and options that README.md and docs/*.md name are there
       test_docs.py run ROOT TTT PAGE             the page's blocks marked "test", in order, in one scratch folder
       test_docs.py extend ROOT TTT PLUGIN FATBIN  docs/extending.md: its diffs and commands, on a copy of the tree

A block is ```sh test: it must succeed; ```sh fails: its last command must not. A block ```text test behind it is what one sees: its lines
are found in the output in that order, where any number may stand for a number and … for anything. A ```diff block begins with "+++ FILE"; the lines it
keeps and takes away are found in that file exactly once.
"""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

NUMBER = r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?"
failures = []


def fail(where, why):
    failures.append(f"{where}: {why}")


# ---- pages ----


def blocks(page):
    """Fenced blocks in order: (line, language, marks, text)."""
    found, open_at, fence = [], None, ""
    for number, line in enumerate(page.splitlines(), 1):
        mark = re.match(r"( *)```+(.*)$", line)
        if mark and open_at is None:
            open_at, fence, text = number, mark[2].split(), []
            indent = len(mark[1])
        elif mark and not mark[2]:
            found.append((open_at, fence[0] if fence else "", fence[1:], "\n".join(text) + "\n"))
            open_at = None
        elif open_at is not None:
            text.append(line[indent:] if not line[:indent].strip() else line)
    return found


def read(*names):
    with open(os.path.join(*names)) as f:
        return f.read()


def pages(root):
    # renamed.md lists names that are gone.
    docs = sorted(set(glob.glob(os.path.join(root, "docs", "*.md"))) - {os.path.join(root, "docs", "renamed.md")})
    return [os.path.join(root, "README.md"), *docs]


# ---- running ----


def shell(script, folder, environment):
    r = subprocess.run(["bash", "-e", "-u", "-o", "pipefail"], input=script, cwd=folder, env=environment, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=900)
    return r.returncode, r.stdout


def pattern(line):
    """Numbers match any number, … anything."""
    parts = re.split(rf"({NUMBER}|…)", line.strip())
    return "".join(".*" if p == "…" else NUMBER if re.fullmatch(NUMBER, p) else re.sub(r"(\\ )+", r"\\s+", re.escape(p)) for p in parts)


def check_seen(where, expected, output):
    lines, at = output.splitlines(), 0
    for wanted in expected.splitlines():
        if wanted.strip() in ("", "…"):
            continue
        while at < len(lines) and not re.search(pattern(wanted), lines[at]):
            at += 1
        if at == len(lines):
            fail(where, f"not seen (in its place): {wanted}\n--- the output\n{output[-3000:]}")
            return
        at += 1


class Run:
    """The marked blocks of a page, one shell each; what one exports the next does not see, but `head` is before each."""

    def __init__(self, name, folder, environment, head=""):
        self.name, self.folder, self.environment, self.head, self.output = name, folder, environment, head, ""

    def block(self, line, language, marks, text):
        where = f"{self.name}:{line}"
        if language == "sh" and ("test" in marks or "fails" in marks):
            started = time.time()
            code, self.output = shell(self.head + text, self.folder, self.environment)
            print(f"{where}: {time.time() - started:.1f} s", flush=True)
            if (code != 0) != ("fails" in marks):
                fail(where, f"ended with {code}\n{text}--- the output\n{self.output[-3000:]}")
                return False
        elif language == "text" and "test" in marks:
            check_seen(where, text, self.output)
        elif language == "diff":
            return self.patch(where, text)
        return True

    def patch(self, where, text):
        first, *lines = text.splitlines()
        path = os.path.join(self.folder, first.removeprefix("+++ "))
        before = "".join(line[1:] + "\n" for line in lines if line[:1] in ("-", " ", ""))
        after = "".join(line[1:] + "\n" for line in lines if line[:1] in ("+", " ", ""))
        content = read(path)
        if content.count(before) != 1:
            fail(where, f"these lines are {content.count(before)} times in {first[4:]}, not once:\n{before}")
            return False
        with open(path, "w") as f:
            f.write(content.replace(before, after))
        return True


def quiet(ttt, **more):
    return {**os.environ, "PATH": f"{os.path.dirname(ttt)}:{os.environ['PATH']}", "TF_CPP_MIN_LOG_LEVEL": "3",
            "TF_ENABLE_ONEDNN_OPTS": "0", **more}


def run_page(root, ttt, page):
    scratch = tempfile.mkdtemp(prefix="ttt-docs-")
    try:
        for name in ("tools", "tests", "examples"):
            os.symlink(os.path.join(root, name), os.path.join(scratch, name))
        run = Run(page, scratch, quiet(ttt))
        for block in blocks(read(root, page)):
            if block[1] != "diff" and not run.block(*block):
                break
    finally:
        shutil.rmtree(scratch)


def extend(root, ttt, plugin, fatbin):
    """The copy is built without optimization, which takes seconds, with the plugin and the CUDA kernels that are there."""
    scratch = tempfile.mkdtemp(prefix="ttt-extending-")
    tree = os.path.join(scratch, "tree")
    try:
        shutil.copytree(root, tree, ignore=shutil.ignore_patterns("build*", ".git", "__pycache__"))
        environment = quiet(ttt, TTT_PLUGIN_CPU=plugin, TMPDIR=scratch, PYTHONDONTWRITEBYTECODE="1", TTT_CASES="",
                            TTT_FAKE_PLUGIN=os.path.join(tree, "build-debug/tests/fake_pjrt_plugin.so"))
        code, output = shell(f"cmake -B build-debug -G Ninja -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0 "
                             f"-DTTT_CPU_PLUGIN={plugin} -DTTT_CUDA_FATBIN={fatbin}", tree, environment)
        if code != 0:
            fail("extending.md", output[-3000:])
            return
        run = Run("extending.md", tree, environment, f"python={sys.executable}\nunset TTT_CASES\n")
        for block in blocks(read(root, "docs", "extending.md")):
            if not run.block(*block):
                return
    finally:
        shutil.rmtree(scratch)


# ---- names ----


def anchors(path):
    made = set()
    for title in re.findall(r"^#+ +(.*)$", read(path), re.M):
        words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower())
        made.add(words.strip().replace(" ", "-"))
    return made


def check_links(root, page):
    text = re.sub(r"^( *)```.*?^\1```", "", read(page), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)|(?:src|srcset|href)=\"([^\"]+)\"", text):
        target = target[0] or target[1]
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
        if not os.path.exists(path):
            fail(os.path.relpath(page, root), f"links to {target}, which is not there")
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            fail(os.path.relpath(page, root), f"links to {target}, where there is no such heading")


# A word with a slash and an ending that begins like a path of this tree.
ROOMS = "pjrt|hlo_builder|model|kernels|runtime|tools|tests|examples|docs"
FILE = re.compile(rf"(?<![\w/.])((?:{ROOMS})/[\w./-]*\.(?:c|h|md|py|sh|mlir|svg|cmake|txt|cu))\b")


def check_files(root, page):
    for name in set(FILE.findall(read(page))):
        if not os.path.exists(os.path.join(root, name)):
            fail(os.path.relpath(page, root), f"names the file {name}, which is not there")


class Commands:
    """What `ttt` can do, by its own --help."""

    def __init__(self, ttt):
        self.ttt, self.texts = ttt, {}
        self.names = set(re.findall(r"^  ([a-z][\w-]*)", self.help(()), re.M))

    def help(self, words):
        if words not in self.texts:
            r = subprocess.run([self.ttt, *words, "--help"], capture_output=True, text=True)
            self.texts[words] = r.stdout
        return self.texts[words]

    def options(self, words):
        return set(re.findall(r"--([a-z][\w-]*)", self.help(words))) | {"help", "json", "plugin"}

    def call(self, line):
        """Of `train --preset …` its words: ("train",), ("data", "prepare"); None: there is no such command."""
        words = re.match(r"([a-z][\w-]*)(?: +([a-z][\w-]*))?", line)
        if words is None or words[1] not in self.names:
            return None
        pairs = re.findall(rf"^(?:usage:|      ) +ttt {words[1]} ([a-z][\w-]*)", self.help((words[1],)), re.M)
        return words.group(1, 2) if words[2] in pairs else (words[1],)


def commands_of(text):
    """Calls of ttt in blocks and in `code`, with lines that end in a backslash joined."""
    for _, language, _, block in blocks(text):
        if language in ("", "sh", "console"):
            for line in block.replace("\\\n", " ").splitlines():
                for call in re.findall(r"(?:^|[\s;&|(=])(?:\S*/)?ttt +(.*)", line):
                    yield re.split(r" #|\||&&|;|\$ ", call)[0]
    for call in re.findall(r"`ttt ([^`]+)`", re.sub(r"^( *)```.*?^\1```", "", text, flags=re.M | re.S)):
        yield call


def check_commands(root, page, commands):
    name = os.path.relpath(page, root)
    for call in commands_of(read(page)):
        if not re.match(r"[a-z]", call):
            continue
        words = commands.call(call)
        if words is None:
            fail(name, f"names the command ttt {call.split()[0]}, which is not there")
            continue
        unquoted = re.sub(r"\"[^\"]*\"|'[^']*'", "", call)
        for option in re.findall(r"(?<!\S)--([a-z][\w-]*)", unquoted):
            if option not in commands.options(words):
                fail(name, f"names ttt {' '.join(words)} --{option}, which its --help does not")


def check_names(root, ttt):
    commands = Commands(ttt)
    for page in pages(root):
        check_links(root, page)
        check_files(root, page)
        check_commands(root, page, commands)


def main():
    what, root, ttt, *rest = sys.argv[1:]
    root, ttt = os.path.realpath(root), os.path.realpath(ttt)
    {"names": check_names, "run": run_page, "extend": extend}[what](root, ttt, *rest)
    print("\n".join(failures) or "all as the pages say")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
