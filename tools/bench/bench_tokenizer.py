"""Our tokenizers and their originals on the same texts, one thread each, in seconds of the processor:
bench_tokenizer.py BENCH TTT.

A new encoder, with nothing remembered, is part of every round of ours; the originals keep their caches.
"""
import base64
import json
import os
import random
import struct
import subprocess
import sys
import tempfile
import time

os.environ["RAYON_NUM_THREADS"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import sentencepiece
import tiktoken
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

BENCH, TTT = sys.argv[1:3]
ROUNDS = 5
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")


def best(work):
    seconds = []
    for _ in range(ROUNDS):
        start = time.process_time()
        result = work()
        seconds.append(time.process_time() - start)
    return min(seconds), result


def bible():
    return subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout.splitlines(keepends=True)


def mixed(verses, size):
    """Verses, numbers, source text, accents, Cyrillic, Chinese and emoji in equal parts."""
    rng = random.Random(1)
    ranges = [(0xC0, 0x180), (0x410, 0x450), (0x4E00, 0x5200), (0x1F600, 0x1F640), (0x900, 0x940)]
    out, length = [], 0
    while length < size:
        kind = rng.randrange(8)
        if kind <= 1:
            text = rng.choice(verses)
        elif kind == 2:
            text = f"    if (x{rng.randrange(99)} != {rng.random():.6f}) {{ return f(\"{rng.randrange(9999)}\"); }}\n"
        else:
            low, high = ranges[kind - 3]
            text = " ".join("".join(chr(rng.randrange(low, high)) for _ in range(rng.randrange(1, 8)))
                            for _ in range(rng.randrange(3, 12))) + "\n"
        out.append(text)
        length += len(text.encode())
    return out


def documents(lines, each=40):
    return ["".join(lines[i:i + each]) for i in range(0, len(lines), each)]


def byte_level(lines, pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=8000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def llama2(lines):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    tokenizer.train_from_iterator(lines, trainers.BpeTrainer(
        vocab_size=8000, show_progress=False, limit_alphabet=500,
        special_tokens=["<unk>"] + [f"<0x{i:02X}>" for i in range(256)]))
    document = json.loads(tokenizer.to_str())
    document["pre_tokenizer"] = None
    document["added_tokens"] = document["added_tokens"][:1]
    return Tokenizer.from_str(json.dumps(document))


def ours(model, packed):
    words = subprocess.run([BENCH, model, packed, str(ROUNDS)], stdout=subprocess.PIPE, check=True,
                           text=True).stdout.split()
    return float(words[0]), float(words[1]), int(words[2])


def row(title, model, docs, packed, encode, decode):
    theirs_encode, ids = best(encode)
    theirs_decode, _ = best(lambda: decode(ids))
    encoded, decoded, tokens = ours(model, packed)
    assert tokens == sum(map(len, ids)), (title, tokens, sum(map(len, ids)))
    size = sum(len(d.encode()) for d in docs) / 1e6
    print(f"{title:34} {size / theirs_encode:8.1f} {size / encoded:8.1f} {theirs_encode / encoded:6.1f}x"
          f" {size / theirs_decode:9.1f} {size / decoded:9.1f} {theirs_decode / decoded:6.1f}x", flush=True)


def hf(title, tokenizer, docs, packed, folder):
    path = os.path.join(folder, "tokenizer.json")
    tokenizer.save(path)
    row(title, path, docs, packed,
        lambda: [e.ids for e in tokenizer.encode_batch_fast(docs, add_special_tokens=False)],
        lambda ids: tokenizer.decode_batch(ids, skip_special_tokens=False))


def sp(title, lines, docs, packed, folder, **options):
    path = os.path.join(folder, "sp.model")
    with open(path, "wb") as out:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(lines[:12000]), model_writer=out, vocab_size=4000, minloglevel=2, byte_fallback=True,
            character_coverage=0.9995, num_threads=1, **options)
    model = sentencepiece.SentencePieceProcessor(model_file=path)
    row(title, path, docs, packed, lambda: model.encode(docs, num_threads=1),
        lambda ids: model.decode(ids, num_threads=1))


def tik(title, name, lines, docs, packed, folder):
    from tiktoken_ext import openai_public
    openai_public.load_tiktoken_bpe = lambda *a, **k: {}
    real = openai_public.ENCODING_CONSTRUCTORS[name]()
    document = json.loads(byte_level(lines, split(LLAMA3)).to_str())
    seen = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    letters = {chr(b) if b in seen else chr(256 + b - sum(s < b for s in seen)): b for b in range(256)}
    ranks = {bytes([b]): b for b in range(256)}
    for left, right in document["model"]["merges"]:
        ranks.setdefault(bytes(letters[c] for c in left + right), len(ranks))
    path = os.path.join(folder, name + ".tiktoken")
    with open(path, "wb") as out:
        out.write(b"".join(base64.b64encode(t) + b" %d\n" % r for t, r in ranks.items()))
    encoding = tiktoken.Encoding(name, pat_str=real["pat_str"], mergeable_ranks=ranks,
                                 special_tokens=real["special_tokens"])
    row(title, path, docs, packed, lambda: [encoding.encode_ordinary(d) for d in docs],
        lambda ids: [encoding.decode(i) for i in ids])


def split(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def train(verses, folder):
    text, out = os.path.join(folder, "text"), os.path.join(folder, "trained.json")
    with open(text, "w", newline="") as file:
        file.write("".join(verses))
    before = os.times()
    for _ in range(ROUNDS):
        subprocess.run([TTT, "tokenizer", "train", out, text, "--vocab", "4096"], check=True, stdout=subprocess.DEVNULL)
    after = os.times()
    seconds = (after.children_user + after.children_system - before.children_user - before.children_system) / ROUNDS
    start = time.process_time()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = split(LLAMA3)
    tokenizer.train_from_iterator(["".join(verses)], trainers.BpeTrainer(
        vocab_size=4096, show_progress=False, special_tokens=["<s>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    theirs = time.process_time() - start
    print(f"training on the Bible, 4096 tokens: theirs {theirs:.2f} s, ours {seconds:.3f} s with the whole command, "
          f"{theirs / seconds:.0f}x")


def main():
    verses = bible()
    with tempfile.TemporaryDirectory() as folder:
        train(verses, folder)
        print(f"{'MB/s':34} {'encode':>8} {'ours':>8} {'':7} {'decode':>9} {'ours':>9}")
        for name, lines in (("Bible", verses), ("mixed", mixed(verses, 4_000_000))):
            docs = documents(lines)
            packed = os.path.join(folder, "documents")
            with open(packed, "wb") as out:
                out.write(b"".join(struct.pack("<I", len(d.encode())) + d.encode() for d in docs))
            hf(f"{name}: tokenizers, GPT-2", byte_level(lines, pre_tokenizers.ByteLevel(add_prefix_space=False)), docs,
               packed, folder)
            hf(f"{name}: tokenizers, Llama 3", byte_level(lines, split(LLAMA3)), docs, packed, folder)
            hf(f"{name}: tokenizers, Llama 2", llama2(lines), docs, packed, folder)
            sp(f"{name}: sentencepiece, BPE", lines, docs, packed, folder, model_type="bpe")
            sp(f"{name}: sentencepiece, unigram", lines, docs, packed, folder, model_type="unigram")
            tik(f"{name}: tiktoken, cl100k", "cl100k_base", lines, docs, packed, folder)
            tik(f"{name}: tiktoken, o200k", "o200k_base", lines, docs, packed, folder)


main()
