"""What `cmake --install` leaves is enough: the installed command makes a bundle, and the examples, built by pkg-config and by CMake against
the installed library, say of it what the installed command says.

usage: test_install.py BUILD EXAMPLES      (the build folder, and that of the examples)
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

build, examples = os.path.realpath(sys.argv[1]), os.path.realpath(sys.argv[2])
scratch = tempfile.mkdtemp(prefix="ttt-install-")
prefix = os.path.join(scratch, "prefix")
bare = {"PATH": os.environ["PATH"], "TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}
SMALL = ["--preset", "tiny", "--set", "hidden_size=32", "--set", "n_layers=1", "--set", "n_heads=2", "--set", "vocab_size=258",
         "--set", "intermediate_size=48", "--set", "initializer_range=0.3"]


def path(*names):
    return os.path.join(scratch, *names)


def run(*words, **more):
    r = subprocess.run(words, capture_output=True, timeout=600, **{"env": bare, "cwd": scratch, **more})
    assert r.returncode == 0, (words, r.stdout, r.stderr)
    return r


def text(r):
    return r.stdout.decode()


try:
    run("cmake", "--install", build, "--prefix", prefix)
    library, ttt = path("prefix", "lib", "libttt.so"), path("prefix", "bin", "ttt")

    # The library shows what its header declares, by a name that it will keep, and needs nothing of the build's.
    with open(path("prefix", "include", "ttt.h")) as f:
        declared = set(re.findall(r"TTT_API\s[^;]*?\b(ttt_\w+)\(", f.read()))
    shown = {line.split()[-1].split("@")[0] for line in text(run("nm", "-D", "--defined-only", library)).splitlines() if " T " in line}
    assert declared == shown and len(declared) > 20, declared ^ shown
    dynamic = text(run("readelf", "-d", library))
    assert "soname: [libttt.so.0]" in dynamic and build not in dynamic, dynamic

    run(ttt, "init", "model", *SMALL)
    run(ttt, "export", "--model", "model", "--out", "bundle", "--span", "16")
    words = ["--prompt", "Once upon a time", "--max-tokens", "30", "--temperature", "0.8", "--top-p", "0.95", "--seed", "7"]
    expected = text(run(ttt, "run", "bundle", *words))
    assert len(expected) > 5, expected

    flags = text(run("pkg-config", "--cflags", "--libs", "ttt", env={**bare, "PKG_CONFIG_PATH": path("prefix", "lib", "pkgconfig")})).split()
    strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    for name, out in [("continue", "by-pkg-config"), ("state_fork", "fork"), ("perplexity", "perplexity")]:
        run("cc", "-std=c17", *strict, os.path.join(examples, name + ".c"), *flags, "-lm", "-o", out)
    with open(path("include.cc"), "w") as f:
        f.write("#include <ttt.h>\nint main() { return ttt_version()[0] == '0' ? 0 : 1; }\n")
    run("c++", "-std=c++17", *strict, "include.cc", *flags, "-o", "by-cpp")
    run("cmake", "-S", examples, "-B", "built", f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", "built")

    found = {**bare, "LD_LIBRARY_PATH": path("prefix", "lib")}
    run("./by-cpp", env=found)
    for program, environment in [("./by-pkg-config", found), ("built/continue", bare)]:
        r = run(program, "bundle", "Once upon a time", "30", env=environment)
        assert text(r) == expected and r.stderr == b"", (program, text(r), expected, r.stderr)

    # A prompt read once, gone on from in three ways, and from its file with other words.
    said = run("./fork", "bundle", "state", "Once upon a time", " lived", env=found).stdout
    first, *branches, restored = re.split(rb"\n(?=seed \d: |from the file:)", said)
    assert first == b"state: a state after 17 tokens" and len({b.split(b": ", 1)[1] for b in branches}) == 3, said
    whole = run(ttt, "run", "bundle", "--prompt", "Once upon a time lived", "--max-tokens", "40", *words[4:-1], "1").stdout
    assert restored == b"from the file: lived" + whole, (restored, whole)

    # What the example makes of logits is what `ttt eval` says of the same text.
    words = "And it came to pass, that the words were few, and the same words came again. "
    with open(path("text.txt"), "w") as f:
        f.write(words)
    last = text(run("./perplexity", "bundle", "text.txt", env=found)).splitlines()[-1]
    run(ttt, "data", "prepare", "--tokenizer", "bytes", "--out", "data", "text.txt")
    said = json.loads(text(run(ttt, "eval", "--model", "model", "--data", "data", "--split", "train", "--context", str(len(words)),
                               "--json")))
    loss = float(re.match(rf"{len(words)} tokens: loss ([\d.]+) nats", last)[1])
    assert abs(loss - said["loss"]) < 1e-4, (last, said)
    wrong = subprocess.run([path("built", "continue"), "nowhere", "x", "1"], capture_output=True, env=bare)
    assert wrong.returncode == 1 and wrong.stderr.count(b"\n") == 1 and b"nowhere" in wrong.stderr, wrong
finally:
    shutil.rmtree(scratch)
print("installed, found and run")
