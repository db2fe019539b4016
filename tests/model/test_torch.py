"""PyTorch judges: the public numbers, files of `ttt init` under the public code's names, `ttt logits`, `ttt grads`.

    /usr/bin/python3 test_torch.py TTT_COMMAND

Skipped where there is no PyTorch: it comes with hundreds of packages, and set-up does not install it.
Every line has the error that was seen beside the one that is allowed.
"""

import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
except ImportError as missing:  # 77: ctest counts it as skipped
    print(f"skipped: {missing}; Debian's python3-torch has it")
    sys.exit(77)

import golden
import torch_ttt
from folder import Failed, Folder

# All in f32. Of public logits and losses; seen 1.3e-6. (Of norms of gradients, golden.py says it; seen 1.2e-5.)
PUBLIC = 1e-5
# Of steps against one call; seen 4e-6.
CACHED = 1e-5
# Against `ttt`: of logits, seen 4.4e-6; of gradients, relative to the tensor's largest number, seen 5.1e-6.
LOGITS, GRADIENTS = 2e-5, 1e-4

SMALL = {"n_layers": 2, "hidden_size": 24, "n_heads": 2, "intermediate_size": 20, "vocab_size": 19}
PARAMETERS = {"ttt_linear": 110_424_144, "ttt_mlp": 114_589_776}

results = []


def check(name, error, allowed, detail=""):
    tell(error < allowed, f"{name}: {error:.1e} of {allowed:.0e}  {detail}")  # false for NaN


def none(name, count, detail=""):
    """Of what must not be at all."""
    tell(count == 0, f"{name}: {count} of 0  {detail}")


def tell(ok, line):
    results.append(bool(ok))
    print(f"{'ok    ' if ok else 'FAILED'} {line}".rstrip(), flush=True)


def distance(found, right):
    """The largest difference, relative to the number where it is more than one."""
    if found.shape != right.shape:
        return np.inf
    return float((np.abs(found - right) / np.maximum(1, np.abs(right))).max())


def cached_logits(model, tokens, *parts):
    """The prompt in parts, then one token after another."""
    cache, logits = torch_ttt.Cache(model, tokens.shape[0]), []
    parts += (1,) * (tokens.shape[1] - sum(parts))
    with torch.no_grad():
        for part in tokens.split(parts, 1):
            logits.append(model(part, cache))
    return torch.cat(logits, 1).numpy()


def gradients(model, tokens):
    """By name, tied parameters once."""
    model.zero_grad()
    loss = model.loss(tokens)
    loss.backward()
    return loss.item(), {name: p.grad.numpy() for name, p in model.named_parameters()}


# ---- the public numbers ----


def public(variant, want):
    mixer, backbone = variant
    fields, mamba = golden.FIELDS, backbone == "mamba"
    model = torch_ttt.Model({
        **{name: fields[name] for name in ("vocab_size", "hidden_size", "intermediate_size", "mini_batch_size",
                                           "ttt_base_lr")},
        "num_hidden_layers": fields["n_layers"], "num_attention_heads": fields["n_heads"], "rope_theta": 1e4,
        "rms_norm_eps": 1e-6, "initializer_range": 0.02, "tie_word_embeddings": True, "conv_kernel": 4,
        "ttt_layer_type": mixer.replace("ttt_", ""), "pre_conv": mamba, "share_qk": mamba, "use_gate": mamba})
    shapes = {name: p.shape for name, p in model.state_dict().items() if name != "lm_head.weight"}
    made = {name: torch.from_numpy(a) for name, a in golden.weights(shapes).items()}
    model.load_state_dict({**made, "lm_head.weight": made["model.embed_tokens.weight"]}, strict=True)

    name, tokens = f"public {mixer} {backbone}:", torch.tensor([golden.TOKENS])
    none(f"{name} tensors too many or few", abs(len(shapes) - want["tensors"]), f"{len(shapes)}")
    whole, cached = model(tokens).detach().numpy(), cached_logits(model, tokens, 6)
    check(f"{name} logits", np.abs(whole[0, golden.TIMES, :3] - want["logits"]).max(), PUBLIC)
    check(f"{name} logits, 6 tokens and 4 steps", np.abs(cached[0, golden.TIMES, :3] - want["logits"]).max(), PUBLIC)
    check(f"{name} all logits, steps against one call", distance(cached, whole), CACHED)
    loss, found = gradients(model, tokens)
    steps_loss = torch.nn.functional.cross_entropy(torch.from_numpy(cached[0, :-1]), tokens[0, 1:]).item()
    check(f"{name} loss", abs(loss - want["loss"]), PUBLIC)
    check(f"{name} loss, 6 tokens and 4 steps", abs(steps_loss - want["loss"]), PUBLIC)
    norms = [np.sqrt(sum(np.sum(a**2) for a in found.values())), *(np.linalg.norm(found[n]) for n in golden.NORMS_OF)]
    check(f"{name} norms of gradients", np.abs(np.array(norms) / want["norms"] - 1).max(), golden.NORM_TOLERANCE)


# ---- a file of ours, in the real size ----


def real_size(ttt, path, mixer):
    name, folder = f"125m {mixer} mamba:", os.path.join(path, mixer)
    r = subprocess.run([ttt, "init", folder, "--preset", "125m", "--mixer", mixer, "--backbone", "mamba"],
                       capture_output=True, text=True)
    if r.returncode != 0:
        return tell(False, f"{name} {r.stderr.strip()}")
    file = os.path.join(folder, "model.safetensors")
    tensors = torch_ttt.read_safetensors(file)
    try:
        model = torch_ttt.load(folder)
    except (KeyError, RuntimeError) as e:
        return tell(False, f"{name} load_state_dict: {e}")
    own = model.state_dict()
    missing = own.keys() - tensors.keys() - {"lm_head.weight"}
    none(f"{name} missing keys", len(missing), ", ".join(sorted(missing)))
    none(f"{name} unexpected keys", len(tensors.keys() - own.keys()), f"{len(tensors)} tensors loaded")
    none(f"{name} tensors that changed", sum(not torch.equal(own[n], t) for n, t in tensors.items()))
    count = sum(p.numel() for p in model.parameters())
    none(f"{name} parameters too many or few", abs(count - PARAMETERS[mixer]), f"{count:,}")
    os.remove(file)


# ---- against `ttt` ----


def against_ttt(ttt, path, mixer, backbone):
    name = f"small {mixer} {backbone}:"
    folder = Folder(ttt, os.path.join(path, f"{mixer}_{backbone}"), mixer, backbone, SMALL)
    folder.perturb(0.3, seed=21)
    model = torch_ttt.load(folder.path)
    tokens = torch.from_numpy(np.random.default_rng(8).integers(0, SMALL["vocab_size"], (2, 37)))
    whole, line = model(tokens).detach().numpy(), tokens[0].tolist()

    check(f"{name} steps against one call, batch of 2", distance(cached_logits(model, tokens, 21), whole), CACHED)
    check(f"{name} parts of 16, 5 and steps", distance(cached_logits(model, tokens, 16, 5), whole), CACHED)
    made = model.generate(tokens, 20)
    best = model(torch.cat((tokens, made), 1)).argmax(-1)[:, 36:-1]
    none(f"{name} generated tokens that differ", int((made != best).sum()))

    check(f"{name} ttt logits", distance(folder.logits(line), whole[0]), LOGITS)
    _, right = gradients(model, tokens[:1])
    found = folder.gradients(line)
    if found.keys() != right.keys():
        return tell(False, f"{name} ttt grads: other tensors: {sorted(found.keys() ^ right.keys())[:4]}")
    errors = {n: np.abs(found[n] - a).max() / max(np.abs(a).max(), 1e-30) if found[n].shape == a.shape else np.inf
              for n, a in right.items()}
    worst = max(errors, key=lambda n: errors[n] if errors[n] == errors[n] else np.inf)
    check(f"{name} ttt grads", errors[worst], GRADIENTS, f"{worst}, the worst of {len(errors)} tensors")


def main():
    ttt = sys.argv[1]
    torch.manual_seed(0)
    for variant, want in golden.GOLDEN.items():
        public(variant, want)
    with tempfile.TemporaryDirectory() as path:
        for mixer in PARAMETERS:
            real_size(ttt, path, mixer)
        for mixer, backbone in golden.GOLDEN:
            try:
                against_ttt(ttt, path, mixer, backbone)
            except Failed as e:
                tell(False, f"small {mixer} {backbone}: {e}")
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    return not all(results)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main())
