"""The Debian package that cpack makes: what is in it, what it depends on, and that the command in it runs with the plugin it carries.

usage: test_package.py BUILD
"""
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile

build = os.path.realpath(sys.argv[1])
if shutil.which("dpkg-deb") is None or shutil.which("dpkg-shlibdeps") is None:
    print("no dpkg")
    sys.exit(77)
scratch = tempfile.mkdtemp(prefix="ttt-package-")
root = os.path.join(scratch, "root")
bare = {"PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def run(*words, **more):
    r = subprocess.run(words, capture_output=True, text=True, timeout=300, **{"env": bare, "cwd": scratch, **more})
    assert r.returncode == 0, (words, r.stdout, r.stderr)
    return r.stdout


def path(*names):
    return os.path.join(root, "usr", *names)


try:
    # dpkg-shlibdeps reads all of XLA's library for the plugin's sake, which takes half a minute: it is asked about the others below.
    run("cpack", "-D", "CPACK_DEBIAN_COMPRESSION_TYPE=none", "-D", "CPACK_DEBIAN_PACKAGE_SHLIBDEPS=OFF", "-B", scratch, cwd=build,
        env={**bare, "PATH": os.environ["PATH"]})
    package = next(os.path.join(scratch, name) for name in os.listdir(scratch) if name.endswith(".deb"))
    fields = {field: run("dpkg-deb", "-f", package, field).strip() for field in ["Package", "Version", "Architecture", "Maintainer", "Description"]}
    assert fields["Package"] == "ttt" and all(fields.values()), fields
    assert os.path.basename(package) == f"ttt_{fields['Version']}_{fields['Architecture']}.deb", package
    assert all(len(line) > 0 for line in fields["Description"].splitlines()), fields["Description"]

    listed = run("dpkg-deb", "-c", package)
    owners = {line.split()[1] for line in listed.splitlines()}
    assert owners == {"root/root"}, owners
    modes = {line.split()[5].removeprefix("./"): line.split()[0] for line in listed.splitlines()}
    for name, mode in {"usr/bin/ttt": "-rwxr-xr-x", "usr/lib/ttt/": "drwxr-xr-x", "usr/lib/libttt.so.0": "lrwxrwxrwx",
                       "usr/include/ttt.h": "-rw-r--r--", "usr/lib/pkgconfig/ttt.pc": "-rw-r--r--",
                       "usr/lib/cmake/ttt/tttConfig.cmake": "-rw-r--r--", "usr/lib/ttt/pjrt_cpu_plugin.so": "-rwxr-xr-x",
                       "usr/share/man/man1/ttt.1.gz": "-rw-r--r--", "usr/share/man/man1/ttt-hlo-run.1.gz": "-rw-r--r--",
                       "usr/share/bash-completion/completions/ttt": "-rw-r--r--", "usr/share/zsh/site-functions/_ttt": "-rw-r--r--",
                       "usr/share/fish/vendor_completions.d/ttt.fish": "-rw-r--r--", "usr/share/doc/ttt/README.md": "-rw-r--r--",
                       "usr/share/doc/ttt/docs/reference.md": "-rw-r--r--", "usr/share/doc/ttt/examples/continue.c": "-rw-r--r--"}.items():
        assert modes.get(name) == mode, (name, modes.get(name))

    run("dpkg-deb", "-x", package, root)
    ttt = path("bin", "ttt")
    assert run(ttt, "--version") == f"ttt {fields['Version']}\n"
    assert "/root/usr/lib/ttt/pjrt_cpu_plugin.so" in run(ttt, "devices", "--json")
    assert "f32[256,128]" in run(ttt, "hlo", "run", path("share", "doc", "ttt", "examples", "matmul.mlir"))
    with gzip.open(path("share", "man", "man1", "ttt-train.1.gz"), "rt") as page:
        assert page.read() == run(ttt, "help", "train", "--format", "man")
    with open(path("share", "bash-completion", "completions", "ttt")) as script:
        assert script.read() == run(ttt, "help", "--format", "bash")

    # Names of packages that others would have to install.
    os.mkdir(os.path.join(scratch, "debian"))
    with open(os.path.join(scratch, "debian", "control"), "w") as control:
        control.write("Source: ttt\n")
    needed = run("dpkg-shlibdeps", "-O", ttt, path("lib", "libttt.so.0"))
    assert {"libc6", "libjansson4", "libzstd1"} <= set(re.findall(r"[a-z0-9.+-]+(?= \()", needed)), needed
finally:
    shutil.rmtree(scratch)
print("packed, unpacked and run")
