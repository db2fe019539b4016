"""Folders with a network, made and run by the `ttt` command; safetensors files, read and written plainly."""

import json
import os
import subprocess

import numpy as np

# Compiling takes most of the time: no optimizations, the older of two code generators, one piece of code.
QUICK = ("--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false"
         " --xla_cpu_parallel_codegen_split_count=1")
TYPES = {"F32": np.float32, "F64": np.float64}


def read_tensors(path):
    with open(path, "rb") as f:
        data = f.read()
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {name: np.frombuffer(data[start:][slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def write_tensors(path, arrays):
    header, body = {}, b""
    for name, array in arrays.items():
        data = array.astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": array.shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + body)


class Failed(Exception):
    """`ttt` said no; the text is its own."""


class Folder:
    """One network: its folder, its configuration as `ttt config show` tells it, its weights."""

    def __init__(self, ttt, path, mixer, backbone, fields, flags=QUICK):
        self.ttt, self.path = ttt, path
        self.environment = {**os.environ, "XLA_FLAGS": flags, "TF_CPP_MIN_LOG_LEVEL": "3"}
        words = ["--preset", "tiny", "--mixer", mixer, "--backbone", backbone]
        for field, value in fields.items():
            words += ["--set", f"{field}={str(value).lower()}"]
        self.config = json.loads(self.run("config", "show", *words))
        self.run("init", path, *words, "--seed", "3")
        self.weights = read_tensors(self.file("model.safetensors"))

    def file(self, name):
        return os.path.join(self.path, name)

    def run(self, *words):
        r = subprocess.run([self.ttt, *words], capture_output=True, text=True, env=self.environment)
        if r.returncode != 0:
            lines = r.stderr.strip().splitlines() or ["no reason given"]
            raise Failed(f"ttt {words[0]}: {lines[-1]} ({r.returncode})")
        return r.stdout

    def set_weights(self, weights):
        """As f32, which is what files hold; the judges see the rounded ones too."""
        self.weights = {name: a.astype(np.float32) for name, a in weights.items()}
        write_tensors(self.file("model.safetensors"), self.weights)

    def perturb(self, scale, seed):
        """Noise on every parameter: what is zero or one at the start would hide mistakes."""
        rng = np.random.default_rng(seed)
        self.set_weights({name: a + scale * rng.normal(size=a.shape) for name, a in self.weights.items()})

    def words(self, tokens, resets, options):
        words = ["--model", self.path, "--tokens", ",".join(map(str, tokens))]
        if resets:
            words += ["--resets", ",".join(map(str, resets))]
        for option, value in options.items():
            words += ["--" + option, value]
        return words

    def logits(self, tokens, resets=(), **options):
        out = self.file("logits.npy")
        self.run("logits", *self.words(tokens, resets, options), "--out", out)
        return np.load(out)

    def inner_loss(self, tokens, resets=(), **options):
        self.logits(tokens, resets, diagnostics=self.file("inner.npy"), **options)
        return np.load(self.file("inner.npy"))

    def gradients(self, tokens, resets=(), **options):
        out = self.file("grads.safetensors")
        self.run("grads", *self.words(tokens, resets, options), "--out", out)
        return read_tensors(out)
