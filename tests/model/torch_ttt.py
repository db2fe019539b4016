"""The TTT network in PyTorch, eager and f32, in the manner of the public PyTorch code: modules whose state_dict has the
names and layouts of its files. A judge of ours (test_torch.py), and the rival of decode benchmarks: written plainly,
neither tuned nor slowed down. Whole mini-batches and a remainder go through the dual form, one after another; single
tokens with a cache through the primal.

For times: Debian's PyTorch multiplies by whatever BLAS there is. The reference one is 16 times slower than OpenBLAS.
"""

import itertools
import json
import math
import mmap
import os

import torch
from torch import nn
from torch.nn import functional as F

INNER_EPSILON = 1e-6


def gelu(x):
    return F.gelu(x, approximate="tanh")


def gelu_slope(x):
    t = torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
    return 0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t)


def norm(z, weight, bias):
    """LayerNorm over the lanes of a head; weight and bias [heads, 1, lanes]."""
    return weight * F.layer_norm(z, z.shape[-1:], eps=INNER_EPSILON) + bias


def norm_loss_gradient(z, target, weight, bias):
    """Of half the squared distance between norm(z) and target, with respect to z."""
    lanes = z.shape[-1]
    centred = z - z.mean(-1, keepdim=True)
    deviation = torch.sqrt((centred * centred).mean(-1, keepdim=True) + INNER_EPSILON)
    h = centred / deviation
    u = (weight * h + bias - target) * weight
    return (lanes * u - u.sum(-1, keepdim=True) - h * (u * h).sum(-1, keepdim=True)) / (lanes * deviation)


def rotate(x, cos, sin):
    """Neighbouring lanes are pairs; cos and sin [time, lanes / 2]."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, odd * cos + even * sin), -1).flatten(-2)


def causal_conv(conv, x, windows, name):
    """x [batch, time, channels]. Windows, where there are any, hold the last inputs of each convolution."""
    x, kernel = x.transpose(1, 2), conv.kernel_size[0]
    single = windows is not None and x.shape[-1] == 1
    past = windows.get(name) if windows is not None else None
    x = F.pad(x, (kernel - 1, 0)) if past is None else torch.cat((past, x), -1)
    if windows is not None:
        windows[name] = x[..., x.shape[-1] - kernel + 1:].clone()
    y = ((x * conv.weight[:, 0]).sum(-1) + conv.bias).unsqueeze(-1) if single else conv(x)
    return y.transpose(1, 2)


def depthwise(config):
    width = config["hidden_size"]
    return nn.Conv1d(width, width, config["conv_kernel"], groups=width)


class RMSNorm(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(config["hidden_size"]))
        self.epsilon = config["rms_norm_eps"]

    def forward(self, x):
        return self.weight * (x * torch.rsqrt((x * x).mean(-1, keepdim=True) + self.epsilon))


class SwiGLU(nn.Module):
    def __init__(self, config):
        super().__init__()
        width, inner = config["hidden_size"], config["intermediate_size"]
        self.gate_proj = nn.Linear(width, inner, bias=False)
        self.up_proj = nn.Linear(width, inner, bias=False)
        self.down_proj = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Conv(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.norm = RMSNorm(config)
        self.conv = depthwise(config)

    def forward(self, x, windows):
        return causal_conv(self.conv, self.norm(x), windows, "pre_conv")


class LayerCache:
    """What one layer remembers: its learners as they were at the start of the running mini-batch, the sums of rate
    times gradient since, and the windows of the convolutions."""

    def __init__(self, mixer, batch):
        self.start = [tuple(p.detach().repeat(batch, 1, 1, 1) for p in pair) for pair in mixer.learner()]
        self.sums = [tuple(torch.zeros_like(p) for p in pair) for pair in self.start]
        self.windows = {}


class Cache:
    """For calls without gradients: sums change in place."""

    def __init__(self, model, batch):
        self.offset = 0
        self.layers = [LayerCache(layer.seq_modeling_block, batch) for layer in model.model.layers]


class TTT(nn.Module):
    """What Linear and MLP share. They have two methods: learner() is the learned start, a pair (W, b) a layer;
    look(learner, k, target) gives for each layer its inputs and the gradients of its outputs."""

    def __init__(self, config):
        super().__init__()
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        self.lanes, self.mini_batch = width // self.heads, config["mini_batch_size"]
        self.base_lr, self.share_qk, self.use_gate = (config[name] for name in ("ttt_base_lr", "share_qk", "use_gate"))
        self.q_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)
        if self.share_qk:
            self.conv_q, self.conv_k = depthwise(config), depthwise(config)
        else:
            self.k_proj = nn.Linear(width, width, bias=False)
        if self.use_gate:
            self.g_proj = nn.Linear(width, width, bias=False)
        self.learnable_token_idx = nn.Parameter(torch.zeros(self.mini_batch))
        self.learnable_ttt_lr_weight = nn.Parameter(0.02 * torch.randn(self.heads, 1, width))
        self.learnable_ttt_lr_bias = nn.Parameter(torch.zeros(self.heads, 1))
        self.ttt_norm_weight = nn.Parameter(torch.ones(self.heads, self.lanes))
        self.ttt_norm_bias = nn.Parameter(torch.zeros(self.heads, self.lanes))
        self.post_norm = nn.LayerNorm(width, eps=1e-6)

        place = torch.arange(self.mini_batch, dtype=torch.float32)
        frequencies = config["rope_theta"] ** (-torch.arange(0, self.lanes, 2, dtype=torch.float32) / self.lanes)
        angles = torch.outer(place, frequencies)
        self.register_buffer("token_idx", 1 / (place + 1), persistent=False)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def weight_and_bias(self, rows, columns):
        return (nn.Parameter(0.02 * torch.randn(self.heads, rows, columns)),
                nn.Parameter(torch.zeros(self.heads, 1, columns)))

    def inner_norm(self):
        return self.ttt_norm_weight.unsqueeze(1), self.ttt_norm_bias.unsqueeze(1)

    def split(self, x):
        return x.view(*x.shape[:2], self.heads, self.lanes).transpose(1, 2)

    def project(self, x, offset, windows):
        q = self.q_proj(x)
        if self.share_qk:
            q, k = causal_conv(self.conv_q, q, windows, "conv_q"), causal_conv(self.conv_k, q, windows, "conv_k")
        else:
            k = self.k_proj(x)
        place = (offset + torch.arange(x.shape[1], device=x.device)) % self.mini_batch
        cos, sin = self.cos[place], self.sin[place]
        gate = F.linear(x, self.learnable_ttt_lr_weight[:, 0], self.learnable_ttt_lr_bias[:, 0])
        lr = self.base_lr * torch.sigmoid(gate.transpose(1, 2)) / self.lanes
        return rotate(self.split(q), cos, sin), rotate(self.split(k), cos, sin), self.split(self.v_proj(x)), lr

    def dual(self, learner, q, k, v, lr, token):
        """A mini-batch at once. Its outputs, and for each W and b the sum of rate times gradient."""
        eta = torch.tril(token.unsqueeze(-1) * lr.unsqueeze(-2))
        seen = self.look(learner, k, v - k)
        z = q
        for layer, ((W, b), (x, g)) in enumerate(zip(learner, seen)):
            z = gelu(z) if layer > 0 else z
            z = z @ W - (eta * (z @ x.mT)) @ g + (b - eta @ g)
        lr = lr.unsqueeze(-1)
        sums = [((lr * x).mT @ g, (lr * g).sum(-2, keepdim=True)) for x, g in seen]
        return q + norm(z, *self.inner_norm()), sums

    def primal(self, learner, sums, q, k, v, lr, token):
        """One token. Its output, and the learner that made it; sums change in place."""
        lr, now = lr.unsqueeze(-1), []
        for (W, b), (W_sum, b_sum), (x, g) in zip(learner, sums, self.look(learner, k, v - k)):
            W_sum += (lr * x).mT @ g
            b_sum += lr * g
            now.append((W - token * W_sum, b - token * b_sum))
        z = q
        for layer, (W, b) in enumerate(now):
            z = gelu(z) if layer > 0 else z
            z = z @ W + b
        return q + norm(z, *self.inner_norm()), now

    def mini_batches(self, q, k, v, lr, token, cache):
        learner = cache.start if cache else self.learner()
        outputs, time, size = [], q.shape[2], self.mini_batch
        for start in range(0, time, size):
            part = slice(start, min(start + size, time))
            y, sums = self.dual(learner, *(a[:, :, part] for a in (q, k, v, lr)), token[:part.stop - start])
            outputs.append(y)
            if part.stop - start == size:
                learner = [tuple(p - token[-1] * s for p, s in zip(*pairs)) for pairs in zip(learner, sums)]
            elif cache:
                cache.sums = sums
        if cache:
            cache.start = learner
        return torch.cat(outputs, 2)

    def single(self, q, k, v, lr, token, place, cache):
        y, now = self.primal(cache.start, cache.sums, q, k, v, lr, token[place])
        if place == self.mini_batch - 1:
            cache.start = now
            for s in itertools.chain(*cache.sums):
                s.zero_()
        return y

    def forward(self, x, offset, cache):
        inputs = self.project(x, offset, cache.windows if cache else None)
        token = torch.clamp(self.token_idx + self.learnable_token_idx, min=0)
        if cache and x.shape[1] == 1:
            y = self.single(*inputs, token, offset % self.mini_batch, cache)
        elif offset % self.mini_batch == 0:
            y = self.mini_batches(*inputs, token, cache)
        else:
            raise ValueError("several tokens at once must start with a mini-batch")
        y = self.post_norm(y.transpose(1, 2).flatten(2))
        return self.o_proj(gelu(self.g_proj(x)) * y if self.use_gate else y)


class TTTLinear(TTT):
    def __init__(self, config):
        super().__init__(config)
        self.W1, self.b1 = self.weight_and_bias(self.lanes, self.lanes)

    def learner(self):
        return [(self.W1, self.b1)]

    def look(self, learner, k, target):
        (W1, b1), = learner
        return [(k, norm_loss_gradient(k @ W1 + b1, target, *self.inner_norm()))]


class TTTMLP(TTT):
    def __init__(self, config):
        super().__init__(config)
        self.W1, self.b1 = self.weight_and_bias(self.lanes, 4 * self.lanes)
        self.W2, self.b2 = self.weight_and_bias(4 * self.lanes, self.lanes)

    def learner(self):
        return [(self.W1, self.b1), (self.W2, self.b2)]

    def look(self, learner, k, target):
        (W1, b1), (W2, b2) = learner
        z1 = k @ W1 + b1
        x2 = gelu(z1)
        g2 = norm_loss_gradient(x2 @ W2 + b2, target, *self.inner_norm())
        return [(k, (g2 @ W2.mT) * gelu_slope(z1)), (x2, g2)]


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.pre_conv = config["pre_conv"]
        if self.pre_conv:
            self.conv = Conv(config)
        self.seq_norm = RMSNorm(config)
        self.seq_modeling_block = {"linear": TTTLinear, "mlp": TTTMLP}[config["ttt_layer_type"]](config)
        self.ffn_norm = RMSNorm(config)
        self.mlp = SwiGLU(config)

    def forward(self, x, offset, cache):
        if self.pre_conv:
            x = x + self.conv(x, cache.windows if cache else None)
        x = x + self.seq_modeling_block(self.seq_norm(x), offset, cache)
        return x + self.mlp(self.ffn_norm(x))


class Trunk(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.embed_tokens = nn.Embedding(config["vocab_size"], config["hidden_size"])
        self.layers = nn.ModuleList(Block(config) for _ in range(config["num_hidden_layers"]))
        self.norm = RMSNorm(config)

    def forward(self, tokens, cache):
        x, offset = self.embed_tokens(tokens), cache.offset if cache else 0
        for i, layer in enumerate(self.layers):
            x = layer(x, offset, cache.layers[i] if cache else None)
        if cache:
            cache.offset += tokens.shape[1]
        return self.norm(x)


class Model(nn.Module):
    """Made from config.json. tokens [batch, time] -> logits [batch, time, vocabulary]."""

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.model = Trunk(config)
        self.lm_head = nn.Linear(config["hidden_size"], config["vocab_size"], bias=False)
        for module in self.modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                nn.init.normal_(module.weight, std=config["initializer_range"])
        if config["tie_word_embeddings"]:
            self.lm_head.weight = self.model.embed_tokens.weight

    def forward(self, tokens, cache=None):
        return self.lm_head(self.model(tokens, cache))

    def loss(self, tokens):
        return F.cross_entropy(self(tokens)[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    @torch.no_grad()
    def generate(self, tokens, count):
        """The most likely tokens after those given: [batch, count]."""
        cache, made = Cache(self, tokens.shape[0]), []
        for _ in range(count):
            last = self.model(tokens, cache)[:, -1:]
            tokens = self.lm_head(last).argmax(-1)
            made.append(tokens)
        return torch.cat(made, 1)


def read_safetensors(path):
    """Views of the file: its pages are read when they are used."""
    types = {"F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "F64": torch.float64}
    with open(path, "rb") as f:
        data = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
    start = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:start])
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data, dtype=types[t["dtype"]], count=math.prod(t["shape"]),
                                   offset=start + t["data_offsets"][0]).view(t["shape"])
            for name, t in header.items()}


def load(folder):
    """The network of a folder with config.json and model.safetensors; every name must be there, and no other."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        model = Model(json.load(f))
    tensors = read_safetensors(os.path.join(folder, "model.safetensors"))
    if model.config["tie_word_embeddings"]:
        tensors.setdefault("lm_head.weight", tensors["model.embed_tokens.weight"])
    model.load_state_dict(tensors, strict=True)
    return model
