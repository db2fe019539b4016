"""The rival of bench_decode: the same weights, read and continued by PyTorch in eager mode on the CPU; one JSON line.

usage: bench_decode.py MODEL BATCH TOKENS [PROMPT]     (a Python with PyTorch; Debian's python3-torch will do, with libopenblas0-pthread)

The network is tests/model/torch_ttt.py: a plain port of the published network, in the manner of the public PyTorch code, mini-batches by
the dual form and single tokens by the primal one with a cache.
"""
import json
import os
import sys
import time

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "model"))
import torch_ttt  # noqa: E402


def main():
    folder, batch, tokens = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    prompt = int(sys.argv[4]) if len(sys.argv) > 4 else 0
    torch.set_num_threads(os.cpu_count())
    model = torch_ttt.load(folder).eval()
    seconds, rate = [], 0.0
    with torch.no_grad():
        cache = torch_ttt.Cache(model, batch)
        if prompt > 0:
            span = min(prompt, 512)
            ids = torch.arange(batch * span).reshape(batch, span) * 7919 % model.config["vocab_size"]
            model(ids, torch_ttt.Cache(model, batch))  # warms up
            begun = time.perf_counter()
            for _ in range(max(prompt // span - 1, 1)):
                model(ids, cache)
            rate = batch * span * max(prompt // span - 1, 1) / (time.perf_counter() - begun)
        last = torch.arange(1, batch + 1).reshape(batch, 1)
        for i in range(-3, tokens):
            begun = time.perf_counter()
            last = model(last, cache)[:, -1].argmax(-1, keepdim=True)
            if i >= 0:
                seconds.append(time.perf_counter() - begun)
    seconds.sort()
    print(json.dumps({"step_ms": 1e3 * seconds[len(seconds) // 2], "step_ms_least": 1e3 * seconds[0], "read_tokens_per_second": rate}))


main()
