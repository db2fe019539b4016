#!/usr/bin/env python3
"""Our tokenizers against their originals: tokenizers, sentencepiece and tiktoken from PyPI.

The originals train small models here, on the Bible and on generated text; ours reads what they wrote,
and both encode and decode the same hostile texts. TTT_LONG=1 takes ten times as many.

usage: test_tokenizers.py TOKENIZER_DRIVER TTT
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
import unicodedata

os.environ["RAYON_NUM_THREADS"] = "2"
os.environ["TOKENIZERS_PARALLELISM"] = "true"

import regex
import sentencepiece
import tiktoken
from tiktoken_ext import openai_public
from tokenizers import (AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers,
                        trainers)

DRIVER, TTT = sys.argv[1:3]
LONG = os.environ.get("TTT_LONG") == "1"
TEXTS = 50000 if LONG else 5000
SPECIALS, SKIP_SPECIALS = 4, 1
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
          r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
DEEPSEEK = (r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
            r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")

rng = random.Random(20261116)
failures = 0
compared = 0


def driver(model, what, flags, records):
    """What the driver makes of records, each a bytes object of that many elements."""
    size = 1 if what == "encode" else 4
    data = b"".join(struct.pack("<I", len(r) // size) + r for r in records)
    out = subprocess.run([DRIVER, model, what, str(flags)], input=data, stdout=subprocess.PIPE,
                         check=True).stdout
    size = 4 if what == "encode" else 1
    answers, at = [], 0
    while at < len(out):
        count = struct.unpack_from("<I", out, at)[0]
        answers.append(out[at + 4:at + 4 + count * size])
        at += 4 + count * size
    assert len(answers) == len(records), (len(answers), len(records))
    return answers


def numbers(record):
    return list(struct.unpack(f"<{len(record) // 4}i", record))


def fail(title, text, ours, theirs):
    global failures
    failures += 1
    if failures <= 20:
        print(f"FAILED  {title}: {text!r}\n  ours   {ours!r}\n  theirs {theirs!r}")


# ---- texts -----------------------------------------------------------------------------------------

def known_characters():
    """Code points that our tables of Unicode, the originals' and PCRE2's know, or all of them do not."""
    ours = subprocess.run([DRIVER, "bytes", "categories", "0"], stdout=subprocess.PIPE,
                          check=True).stdout
    assigned = {m.start() for m in regex.finditer(r"\p{Assigned}", "".join(map(chr_or_x, range(0x110000))))}
    return [c for c in range(0x110000)
            if not 0xD800 <= c < 0xE000
            and (ours[c] != 0) == (c in assigned) == (unicodedata.category(chr(c)) != "Cn")]


def chr_or_x(code):
    return "x" if 0xD800 <= code < 0xE000 else chr(code)


def bible():
    text = subprocess.run(["bible", "-f", "gen1:1-rev22:21"], stdout=subprocess.PIPE, check=True,
                          text=True).stdout
    return text.splitlines()


CODES = known_characters()
BY_PLANE = [[c for c in CODES if c >> 16 == plane] for plane in range(17)]
LOW = [c for c in CODES if c < 0x3000]
MARKS = [c for c in CODES if 0x300 <= c < 0x370 or 0x591 <= c < 0x5C0 or 0x900 <= c < 0x903]
CJK = list(range(0x4E00, 0x4F00)) + list(range(0x3040, 0x3100)) + list(range(0xAC00, 0xAC80))
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "☕", "1️⃣"]
SPACES = [" ", "  ", "\n", "\r\n", "\t", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\x0b", "\x0c", "\x1c",
          "\u200b", "\ufeff", "\u180e", "\u1680", "\u202f", "   ", " \n ", "\n\n\n", "\t\t"]
TRICKY = ["'s", "'S", "'ſ", "'LL", "'ve", "'re", "'d", "'", "<s>", "</s>", "<unk>", "<pad>", "<|endoftext|>",
          "<|special|>", " <mask>", "<mask> ", "lstrip", "[USER]", "[user]", "<0x41>", "▁", "▁▁", "▁the", "_",
          "\u0130", "ß", "ﬁ", "ǅ", "ʰ", "Ω", "Å", "½", "²", "Ⅷ", "٣", "1234567", "3.14", "1e9", "Á", "é", "ñ", "각",
          "\x00", "\x7f", "\u200d", "e\u0301\u0323", "don't", "I'LL", "can'T", "HTTPServer", "camelCase", "/path/x\n/",
          "!!!\n\n", "...", "//", "\\", "\"", "The", "the", " of", "and", "Lord", "\ufffd", "\U0010ffff", "x" * 40]


def random_text(verses):
    parts = []
    for _ in range(rng.choice([1, 1, 2, 3, 5, 8, 13])):
        kind = rng.randrange(12)
        if kind <= 2:
            words = rng.choice(verses).split(" ")
            at = rng.randrange(len(words))
            parts.append(" ".join(words[at:at + rng.randrange(1, 9)]))
        elif kind == 3:
            parts.append("".join(chr(rng.choice(LOW)) for _ in range(rng.randrange(1, 9))))
        elif kind == 4:
            plane = rng.choice([0, 0, 1, 1, 2, 3, 14, 15, 16])
            parts.append("".join(chr(rng.choice(BY_PLANE[plane])) for _ in range(rng.randrange(1, 5))))
        elif kind == 5:
            parts.append(rng.choice("aeoun ") + "".join(chr(rng.choice(MARKS)) for _ in range(rng.randrange(1, 6))))
        elif kind == 6:
            parts.append("".join(chr(rng.choice(CJK)) for _ in range(rng.randrange(1, 9))))
        elif kind == 7:
            parts.append(rng.choice(EMOJI))
        elif kind == 8:
            parts.append(rng.choice(SPACES) * rng.choice([1, 1, 2, 5]))
        elif kind == 9:
            parts.append("".join(chr(rng.randrange(32, 127)) for _ in range(rng.randrange(1, 9))))
        elif kind == 10:
            parts.append(rng.choice("a =-\n0'") * rng.choice([1, 3, 20, 70]))
        else:
            parts.append(rng.choice(TRICKY))
        if rng.random() < 0.5:
            parts.append(" ")
    return "".join(parts)


def long_texts(verses):
    """A few that are long enough for the other ways of merging, and for sums that round."""
    return ["a" * 5000, " " * 3000, "ab" * 4000, "".join(verses[:40]).replace(" ", ""), " ".join(verses[:400]),
            "\u0301" * 500, "あ" * 3000, "'s" * 900, "\n" * 999, "1" * 2500, "😀" * 800]


def of_one_mind(texts, form):
    """The texts whose normal form the original, whose tables are older, agrees on with Python's."""
    original = getattr(normalizers, form)()
    return [t for t in texts if original.normalize_str(t) == unicodedata.normalize(form, t)]


def old_punctuation(texts):
    """The texts whose punctuation the original knows as such."""
    split = pre_tokenizers.Punctuation()
    newer = {chr(c) for c in CODES if unicodedata.category(chr(c))[0] == "P" and
             len(split.pre_tokenize_str("a" + chr(c))) == 1}
    return [t for t in texts if newer.isdisjoint(unicodedata.normalize("NFKD", t))]


# ---- comparing -------------------------------------------------------------------------------------

def lossy(record):
    return record.decode("utf-8", "replace")


def compare(title, model, texts, encode, decode, flags=0, streams=True):
    """encode: texts to lists of numbers; decode: lists of numbers to texts, with special tokens."""
    global compared
    start, before = time.time(), failures
    raw = [t if isinstance(t, bytes) else t.encode() for t in texts]
    theirs = encode(texts)
    ours = [numbers(r) for r in driver(model, "encode", flags, raw)]
    for text, a, b in zip(texts, ours, theirs):
        if a != b:
            fail(title, text if len(text) < 200 else text[:200], a[:60], b[:60])
    compared += len(texts)
    if decode is not None:
        records = [struct.pack(f"<{len(ids)}i", *ids) for ids in theirs]
        decoded = driver(model, "decode", 0, records)
        for text, ids, a, b in zip(texts, theirs, decoded, decode(theirs)):
            if lossy(a) != b:
                fail(title + " decode", text[:100], lossy(a)[:100], b[:100])
        if streams:
            some = records[:2000]
            for text, a, b in zip(texts, driver(model, "stream", 0, some), decoded):
                if a.decode() != lossy(b):
                    fail(title + " stream", text[:100], a[:100], lossy(b)[:100])
    print(f"{'ok    ' if failures == before else 'FAILED'}  {title}: {len(texts)} texts, "
          f"{time.time() - start:.1f} s")


def random_ids(size, count, most):
    return [[rng.randrange(size) for _ in range(rng.randrange(most))] for _ in range(count)]


# ---- Hugging Face ----------------------------------------------------------------------------------

def hf_compare(title, tokenizer, folder, texts, specials=True):
    path = os.path.join(folder, title.replace(" ", "_") + ".json")
    tokenizer.save(path)
    tokenizer = Tokenizer.from_file(path)
    tokenizer.encode_special_tokens = not specials

    def encode(batch):
        return [e.ids for e in tokenizer.encode_batch(batch, add_special_tokens=False)]

    def decode(batch):
        return tokenizer.decode_batch(batch, skip_special_tokens=False)

    compare("hf " + title, path, texts, encode, decode, SPECIALS if specials else 0)


ADDED = [AddedToken("<s>", special=True), AddedToken("</s>", special=True),
         AddedToken("<|endoftext|>", special=True), AddedToken("<|special|>", special=True, rstrip=True),
         AddedToken("<mask>", special=True, lstrip=True), AddedToken("lstrip", lstrip=True, rstrip=True),
         AddedToken("[USER]", single_word=True), AddedToken("don", single_word=True, normalized=False)]


def byte_level(verses, pre_tokenizer, vocab=2000, normalizer=None, **options):
    tokenizer = Tokenizer(models.BPE(**options))
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False, special_tokens=["<unk>"])
    tokenizer.train_from_iterator(verses, trainer)
    tokenizer.add_special_tokens(ADDED[:5])
    tokenizer.add_tokens(ADDED[5:])
    return tokenizer


def split_then_bytes(pattern):
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def llama2(verses, pre_tokenizer=None, byte_fallback=True, fuse_unk=True):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, fuse_unk=fuse_unk))
    if pre_tokenizer is None:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(),
                                               decoders.Fuse(), decoders.Strip(" ", 1, 0)])
        # The trainer merges across words where nothing cuts them: train with Metaspace.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never")
    else:
        tokenizer.pre_tokenizer = pre_tokenizer
        tokenizer.decoder = decoders.Metaspace(prepend_scheme=pre_tokenizer.prepend_scheme)
    bytes_there = [f"<0x{i:02X}>" for i in range(256)] if byte_fallback else []
    trainer = trainers.BpeTrainer(vocab_size=2000, show_progress=False, limit_alphabet=200,
                                  special_tokens=["<unk>", "<s>", "</s>"] + bytes_there)
    tokenizer.train_from_iterator(verses, trainer)
    document = json.loads(tokenizer.to_str())
    document["added_tokens"] = [t for t in document["added_tokens"] if not t["content"].startswith("<0x")]
    if pre_tokenizer is None:
        document["pre_tokenizer"] = None
    return Tokenizer.from_str(json.dumps(document))


def hf_tests(folder, verses, texts):
    gpt2 = byte_level(verses, pre_tokenizers.ByteLevel(add_prefix_space=False))
    hf_compare("gpt2", gpt2, folder, texts())
    hf_compare("gpt2 plain specials", gpt2, folder, texts(), specials=False)
    hf_compare("gpt2 prefix space", byte_level(verses, pre_tokenizers.ByteLevel(add_prefix_space=True)), folder,
               texts())
    hf_compare("llama3", byte_level(verses, split_then_bytes(LLAMA3), 3000, ignore_merges=True), folder, texts())
    hf_compare("qwen2", byte_level(verses, split_then_bytes(QWEN2), normalizer=normalizers.NFC()), folder,
               of_one_mind(texts(), "NFC"))
    hf_compare("o200k", byte_level(verses, split_then_bytes(O200K)), folder,
               texts())
    hf_compare("deepseek nfkc", byte_level(verses, split_then_bytes(DEEPSEEK), normalizer=normalizers.NFKC()),
               folder, of_one_mind(texts(), "NFKC"))
    digits = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                      pre_tokenizers.Punctuation("contiguous"),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False)])
    hf_compare("digits nfkd lower", byte_level(verses, digits, normalizer=normalizers.Sequence(
        [normalizers.Strip(), normalizers.NFKD(), normalizers.Lowercase()])), folder,
               old_punctuation(of_one_mind(texts(), "NFKD")))
    merged = pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(r"\d+|\w{3}"), "merged_with_previous"),
                                      pre_tokenizers.Split("e", "merged_with_next"),
                                      pre_tokenizers.Split(" ", "removed"),
                                      pre_tokenizers.Digits(),
                                      pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])
    hf_compare("merged nfd", byte_level(verses, merged, normalizer=normalizers.NFD()), folder,
               of_one_mind(texts(), "NFD"))
    hf_compare("llama2", llama2(verses), folder, texts())
    hf_compare("llama2 unknown", llama2(verses, byte_fallback=False), folder, texts())
    hf_compare("metaspace", llama2(verses, pre_tokenizers.Metaspace(), fuse_unk=False, byte_fallback=False), folder,
               texts())
    hf_compare("metaspace first", llama2(verses, pre_tokenizers.Metaspace(prepend_scheme="first", split=False)),
               folder, texts())


# ---- sentencepiece ---------------------------------------------------------------------------------

def sp_compare(title, folder, verses, texts, **options):
    prefix = os.path.join(folder, "sp_" + title.replace(" ", "_"))
    settings = dict(vocab_size=1500, character_coverage=0.9995, num_threads=2, minloglevel=2, pad_id=3,
                    user_defined_symbols=["[USER]", "<mask>", "▁x▁y", "ab"], control_symbols=["<|special|>"],
                    max_sentence_length=20000)
    settings.update(options)
    with open(prefix + ".model", "wb") as out:
        sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(verses), model_writer=out, **settings)
    model = sentencepiece.SentencePieceProcessor(model_file=prefix + ".model")
    compare("sentencepiece " + title, prefix + ".model", texts, lambda batch: model.encode(batch),
            lambda batch: model.decode(batch))
    ids = random_ids(model.vocab_size(), 500, 12)
    ours = driver(prefix + ".model", "decode", 0, [struct.pack(f"<{len(i)}i", *i) for i in ids])
    for i, a, b in zip(ids, ours, model.decode(ids)):
        try: # where the bytes are no text, theirs has a mark for every byte
            if a.decode() != b:
                fail(title + " random decode", i, a, b)
        except UnicodeDecodeError:
            if lossy(a).replace("\ufffd", "") != b.replace("\ufffd", ""):
                fail(title + " random decode", i, a, b)


def broken_texts(texts):
    out = []
    for text in texts:
        raw = bytearray(text.encode())
        for _ in range(rng.randrange(4)):
            raw[rng.randrange(len(raw) + 1):rng.randrange(len(raw) + 1)] = bytes([rng.randrange(256)])
        out.append(bytes(raw))
    return out


def sp_tests(folder, verses, texts):
    verses = verses[:2500]
    with_none = dict(user_defined_symbols=[])
    sp_compare("bpe", folder, verses, texts(), model_type="bpe")
    sp_compare("bpe bytes identity", folder, verses, texts(), model_type="bpe", byte_fallback=True,
               normalization_rule_name="identity", remove_extra_whitespaces=False, **with_none)
    sp_compare("bpe across words", folder, verses, texts(), model_type="bpe", split_by_whitespace=False,
               normalization_rule_name="nfkc_cf", add_dummy_prefix=False)
    sp_compare("unigram", folder, verses, texts() + [" ".join(bible())], model_type="unigram", **with_none)
    sp_compare("unigram user", folder, verses, texts(), model_type="unigram", byte_fallback=True,
               normalization_rule_name="nmt_nfkc_cf")
    sp_compare("unigram identity suffix", folder, verses, texts(), model_type="unigram",
               normalization_rule_name="identity", treat_whitespace_as_suffix=True, remove_extra_whitespaces=False,
               **with_none)
    sp_compare("unigram broken", folder, verses, broken_texts(texts()), model_type="unigram", byte_fallback=True,
               normalization_rule_name="nfkc", **with_none)


# ---- tiktoken --------------------------------------------------------------------------------------

O200K = "|".join([
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?""",
    r"""\p{N}{1,3}""", r""" ?[^\s\p{L}\p{N}]+[\r\n/]*""", r"""\s*[\r\n]+""", r"""\s+(?!\S)""", r"""\s+"""])


def real_encoding(name):
    """Pattern and special tokens as tiktoken has them, without the tables, which are far away."""
    held = openai_public.load_tiktoken_bpe, openai_public.data_gym_to_mergeable_bpe_ranks
    openai_public.load_tiktoken_bpe = openai_public.data_gym_to_mergeable_bpe_ranks = lambda *a, **k: {}
    try:
        return openai_public.ENCODING_CONSTRUCTORS[name]()
    finally:
        openai_public.load_tiktoken_bpe, openai_public.data_gym_to_mergeable_bpe_ranks = held


def trained_ranks(verses, pattern):
    tokenizer = byte_level(verses, split_then_bytes(pattern))
    document = json.loads(tokenizer.to_str())
    characters = {}
    seen = [*range(33, 127), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    for byte in range(256):
        characters[chr(byte) if byte in seen else chr(256 + byte - sum(s < byte for s in seen))] = byte
    ranks = {bytes([byte]): byte for byte in range(256)}
    for merge in document["model"]["merges"]:
        left, right = merge.split(" ") if isinstance(merge, str) else merge
        ranks.setdefault(bytes(characters[c] for c in left + right), len(ranks))
    return ranks


def tiktoken_tests(folder, verses, texts):
    ranks = None
    for name in ["gpt2", "p50k_edit", "cl100k_base", "o200k_base"]:
        real = real_encoding(name)
        if ranks is None or name != "p50k_edit":
            ranks = trained_ranks(verses, LLAMA3 if name != "gpt2" else real["pat_str"])
        path = os.path.join(folder, name + ".tiktoken")
        with open(path, "wb") as out:
            for token, rank in ranks.items():
                out.write(base64.b64encode(token) + b" " + str(rank).encode() + b"\n")
        encoding = tiktoken.Encoding(name, pat_str=real["pat_str"], mergeable_ranks=ranks,
                                     special_tokens=real["special_tokens"])
        batch = texts()
        compare("tiktoken " + name, path, batch,
                lambda b: [encoding.encode(t, allowed_special="all") for t in b],
                lambda b: [encoding.decode(i) for i in b], SPECIALS)
        compare("tiktoken ordinary " + name, path, batch[:1000],
                lambda b: [encoding.encode_ordinary(t) for t in b], None)


# ---- training --------------------------------------------------------------------------------------

def training_tests(folder, verses, texts):
    """Our trainer learns what theirs does, file by file the same, and theirs reads what ours wrote."""
    text, again, ours = (os.path.join(folder, n) for n in ("text.txt", "again.json", "ours.json"))
    with open(text, "w", newline="") as out:
        out.write("".join(v + "\n" for v in verses))
    for path in (ours, again):
        subprocess.run([TTT, "tokenizer", "train", path, text, "--vocab", "3000"], check=True,
                       stdout=subprocess.DEVNULL)
    with open(ours) as a, open(again) as b:
        document = json.load(a)
        if document != json.load(b):
            fail("training", "the same text twice", "another file", "")
    theirs = Tokenizer(models.BPE())
    theirs.pre_tokenizer = split_then_bytes(LLAMA3)
    with open(text, newline="") as source:
        theirs.train_from_iterator([source.read()], trainers.BpeTrainer(
            vocab_size=3000, show_progress=False, special_tokens=["<s>", "</s>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    expected = json.loads(theirs.to_str())["model"]
    for part in ("vocab", "merges"):
        if document["model"][part] != expected[part]:
            fail("training", part, str(document["model"][part])[:200], str(expected[part])[:200])
    hf_compare("trained by us", Tokenizer.from_file(ours), folder, texts())


# ---- the command -----------------------------------------------------------------------------------

def run(*words, stdin=b""):
    return subprocess.run([TTT, "tokenizer", *words], input=stdin, capture_output=True)


def command_tests(folder, verses, texts):
    """encode, decode and info as a user meets them; what is wrong is said in one line."""
    model = os.path.join(folder, "command.json")
    byte_level(verses, pre_tokenizers.ByteLevel(add_prefix_space=False)).save(model)
    theirs = Tokenizer.from_file(model)
    text = verses[0] + " ünï <s>\n"
    ids = theirs.encode(text, add_special_tokens=False).ids
    out = run("encode", model, "--specials", stdin=text.encode()).stdout
    cases = [("encode", out.split(), [str(i).encode() for i in ids]),
             ("decode", run("decode", model, stdin=out).stdout, text.encode()),
             ("decode --ids --skip-specials",
              run("decode", model, "--ids", ",".join(map(str, ids)), "--skip-specials").stdout,
              theirs.decode(ids, skip_special_tokens=True).encode()),
             ("decode --json", json.loads(run("decode", "bytes", "--ids", "104 255", "--json").stdout), {"text": "h\ufffd"}),
             ("encode --bos --eos --json",
              json.loads(run("encode", "bytes", "--text", "hi", "--bos", "--eos", "--json").stdout),
              {"ids": [256, 104, 105, 257]}),
             ("info", {k: json.loads(run("info", model, "--json").stdout)[k] for k in ("kind", "vocab", "eos")},
              {"kind": "bpe", "vocab": theirs.get_vocab_size(), "eos": theirs.token_to_id("</s>")})]
    for title, ours, expected in cases:
        if ours != expected:
            fail("ttt tokenizer " + title, "", ours, expected)
    wrong = [((), 2), (("encode",), 2), (("info", model, "x"), 2), (("train", "out"), 2), (("train", "out", model), 2),
             (("info", "/nonexistent"), 1), (("decode", "bytes", "--ids", "1,x"), 1), (("decode", "bytes", "--ids", "999"), 1),
             (("train", os.path.join(folder, "t.json"), model, "--vocab", "1000000"), 1)]
    for words, code in wrong:
        r = run(*words)
        if r.returncode != code or len(r.stderr.splitlines()) != 1:
            fail("ttt tokenizer", words, (r.returncode, r.stderr), code)
    if os.path.exists(os.path.join(folder, "t.json")):
        fail("ttt tokenizer train", "", "a file is left", "")


# ---- all of it -------------------------------------------------------------------------------------

def main():
    verses = bible()
    generated = [random_text(verses) for _ in range(300)]
    corpus = verses[:4000] + generated
    only = os.environ.get("TTT_CASES", "")

    def texts():
        return [""] + [random_text(verses) for _ in range(TEXTS)] + long_texts(verses)

    with tempfile.TemporaryDirectory() as folder:
        for tests in (hf_tests, tiktoken_tests, sp_tests, training_tests, command_tests):
            if regex.search(only, tests.__name__):
                tests(folder, corpus, texts)
    print(f"test_tokenizers: {compared} texts, {failures} failures")
    return failures > 0


if __name__ == "__main__":
    sys.exit(main())
