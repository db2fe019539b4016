"""The networks in plain NumPy and float64, one token at a time: the judge of what `ttt` computes.

Everything is in the primal form: a mixer keeps a state and `step` takes it one token further. Nothing
here works on a whole mini-batch, so nothing here shares a mistake with the dual form.

    model = Model(config, weights)         # fields as `ttt config show` tells them, arrays by name
    logits = model.logits(tokens, resets)  # [time, vocab]
    model.inner_loss                       # [layers, 4, time] of TTT layers
"""

import numpy as np

# Of layer norms; that of RMS norms is a field of the configuration.
LAYER_NORM_EPSILON = 1e-6


# ---- functions of one vector, or of the last axis ----


def rms_norm(x, weight, epsilon):
    return weight * (x / np.sqrt(np.mean(x * x, -1, keepdims=True) + epsilon))


def layer_norm(x, weight, bias):
    centred = x - x.mean(-1, keepdims=True)
    return weight * centred / np.sqrt(np.mean(centred**2, -1, keepdims=True) + LAYER_NORM_EPSILON) + bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def silu(x):
    return x * sigmoid(x)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def gelu_slope(x):
    """With the public code's rounded constants, which are part of the model."""
    t = np.tanh(0.79788456 * x * (1 + 0.044715 * x * x))
    return 0.5 * x * (1 - t * t) * (0.79788456 + 0.1070322243 * x * x) + 0.5 * (1 + t)


def swiglu(x):
    gate, up = np.split(x, 2, -1)
    return silu(gate) * up


def swiglu_pull(x, slope):
    """From the slope of what swiglu made of x to that of x."""
    gate, up = np.split(x, 2, -1)
    s = sigmoid(gate)
    return np.concatenate([slope * up * s * (1 + gate * (1 - s)), slope * silu(gate)], -1)


def unit(x):
    return x / np.sqrt(np.sum(x * x, -1, keepdims=True) + LAYER_NORM_EPSILON)


def rotated(x, position, theta):
    """Neighbouring lanes are a pair, and each pair turns at its own speed."""
    if theta == 0:
        return x
    lanes = x.shape[-1]
    angle = position * theta ** (-np.arange(0, lanes, 2) / lanes)
    even, odd = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2] = even * np.cos(angle) - odd * np.sin(angle)
    out[..., 1::2] = odd * np.cos(angle) + even * np.sin(angle)
    return out


class Weights:
    """Arrays by name, seen from a place in the network: self["q_proj.weight"]."""

    def __init__(self, arrays, prefix=""):
        self.arrays, self.prefix = arrays, prefix

    def __getitem__(self, name):
        return self.arrays[self.prefix + name]

    def at(self, prefix):
        return Weights(self.arrays, self.prefix + prefix)


class Convolution:
    """Depthwise and causal; the last tap is for the present token."""

    def __init__(self, weights):
        self.taps, self.bias = weights["weight"][:, 0, :].T, weights["bias"]

    def start(self):
        self.window = np.zeros_like(self.taps)

    def step(self, x):
        self.window = np.concatenate([self.window[1:], x[None]])
        return (self.taps * self.window).sum(0) + self.bias


# ---- mixers: start() forgets everything, step(x, time) takes one token ----


class Heads:
    """What the mixers with queries, keys and values share: the way in and the way out."""

    def __init__(self, config, weights):
        self.c, self.w = config, weights
        self.lanes = config["hidden_size"] // config["n_heads"]
        if config["share_qk"]:
            self.conv_q, self.conv_k = Convolution(weights.at("conv_q.")), Convolution(weights.at("conv_k."))

    def start(self):
        if self.c["share_qk"]:
            self.conv_q.start()
            self.conv_k.start()

    def project(self, x):
        q, v = self.w["q_proj.weight"] @ x, self.w["v_proj.weight"] @ x
        if self.c["share_qk"]:
            q, k = self.conv_q.step(q), self.conv_k.step(q)
        else:
            k = self.w["k_proj.weight"] @ x
        return (part.reshape(-1, self.lanes) for part in (q, k, v))

    def output(self, x, heads):
        z = heads.reshape(-1)
        if self.c["post_norm"]:
            z = layer_norm(z, self.w["post_norm.weight"], self.w["post_norm.bias"])
        if self.c["use_gate"]:
            z = gelu(self.w["g_proj.weight"] @ x) * z
        return self.w["o_proj.weight"] @ z


class Learner:
    """The model inside a TTT layer, of all heads: weights are a dict, vectors are [heads, 1, lanes]."""

    def __init__(self, config, weights):
        self.norm, self.dot = config["inner_norm"], config["inner_loss"] == "dot"
        self.swiglu = config["inner_activation"] == "swiglu"
        self.layers = config["inner_layers"] or {"ttt_linear": 1, "ttt_mlp": 2}[config["mixer"]]
        heads, lanes = config["n_heads"], config["hidden_size"] // config["n_heads"]
        self.w0, self.fixed = {}, {}  # what learns, and what does not
        for layer in range(1, self.layers + 1):
            name, fixed = f"W{layer}", config["inner_last_only"] and layer < self.layers
            wide = lanes if layer == 1 else config["inner_width"] * lanes
            to = self.fixed if fixed else self.w0
            to[name] = weights[name] if config["learnable_w0"] or fixed else np.zeros((heads, wide, lanes))
            if config["inner_bias"]:
                to[f"b{layer}"] = weights[f"b{layer}"]
        if self.norm:
            self.scale, self.shift = (weights["ttt_norm_" + n][:, None, :] for n in ("weight", "bias"))

    def activate(self, z):
        return swiglu(z) if self.swiglu else gelu(z)

    def activation_pull(self, z, slope):
        return swiglu_pull(z, slope) if self.swiglu else slope * gelu_slope(z)

    def forward(self, w, x):
        """What goes into each layer, and what comes out of it."""
        inputs, outputs, w = [], [], {**self.fixed, **w}
        for layer in range(1, self.layers + 1):
            inputs.append(x if layer == 1 else self.activate(outputs[-1]))
            outputs.append(inputs[-1] @ w[f"W{layer}"] + w.get(f"b{layer}", 0))
        return inputs, outputs

    def residual(self, w, z):
        return self.forward(w, z)[1][-1]

    def answer(self, w, q):
        z = self.residual(w, q)
        return q + layer_norm(z, self.scale, self.shift) if self.norm else z

    def loss(self, w, k, v):
        """The mean squared error of a reconstruction, a mean over lanes and heads too; or minus the mean product,
        without what the residual connection adds to it."""
        z = self.residual(w, k)
        made = layer_norm(z, self.scale, self.shift) if self.norm else z
        if self.dot:
            return -np.mean(made * v)
        return np.mean((made - (v - k if self.norm else v)) ** 2)

    def output_slope(self, z, k, v):
        """Of half the squared error, or of minus the product, with respect to what the last layer gave."""
        if not self.norm:
            return -v if self.dot else z - v
        lanes = z.shape[-1]
        centred = z - z.mean(-1, keepdims=True)
        deviation = np.sqrt(np.mean(centred**2, -1, keepdims=True) + LAYER_NORM_EPSILON)
        h = centred / deviation
        u = (-v if self.dot else self.scale * h + self.shift - (v - k)) * self.scale
        sums = lanes * u - u.sum(-1, keepdims=True) - h * (u * h).sum(-1, keepdims=True)
        return sums / (lanes * deviation)

    def gradients(self, w, k, v):
        inputs, outputs = self.forward(w, k)
        slope, slopes = self.output_slope(outputs[-1], k, v), {}
        for layer in range(self.layers, 0, -1):
            slopes[f"W{layer}"] = inputs[layer - 1].swapaxes(1, 2) @ slope
            slopes[f"b{layer}"] = slope
            if layer > 1 and f"W{layer - 1}" in w:
                slope = self.activation_pull(outputs[layer - 2], slope @ w[f"W{layer}"].swapaxes(1, 2))
        return {name: slopes[name] for name in w}


class Muon:
    """Once a mini-batch. What Newton-Schulz steps make of a matrix is known from its singular values alone."""

    STEPS = ((4.0848, -6.8946, 2.9270), (3.9505, -6.3029, 2.6377), (3.7418, -5.5913, 2.3037),
             (2.8769, -3.1427, 1.2046), (2.8366, -3.0525, 1.2012))
    TINY = 1e-10  # added to squares of norms

    def __init__(self, config, learner):
        self.step, self.learner, self.swiglu = config["inner_step"] or 1.0, learner, learner.swiglu
        self.pulling = {name: np.zeros_like(a) for name, a in learner.w0.items()}

    def orthogonal(self, x):
        u, s, v = np.linalg.svd(x, full_matrices=False)
        s = s / np.sqrt(np.sum(s * s, -1, keepdims=True) + self.TINY)
        for a, b, c in self.STEPS:
            s = a * s + b * s**3 + c * s**5
        return (u * s[:, None, :]) @ v

    def norms(self, w):
        return np.sqrt(np.sum(w * w, 1, keepdims=True) + self.TINY)

    def move(self, w, gradients, momentum):
        moved = {}
        for name, gradient in gradients.items():
            pull = self.pulling[name] = momentum * self.pulling[name] + gradient
            if name[0] == "b":
                moved[name] = w[name] - pull
                continue
            hidden = self.swiglu and int(name[1:]) < self.learner.layers
            pieces = [self.orthogonal(half) for half in np.split(pull, 2, -1)] if hidden else [self.orthogonal(pull)]
            new, start = w[name] - self.step * np.concatenate(pieces, -1), self.learner.w0[name]
            moved[name] = new / self.norms(new) * (np.sum(start * start, 1, keepdims=True) / self.norms(start))
        return moved


class Adam:
    """Once a mini-batch."""

    def __init__(self, config, learner):
        self.step, self.t = config["inner_step"] or 0.01, 0
        self.m, self.v = ({name: np.zeros_like(a) for name, a in learner.w0.items()} for _ in range(2))

    def move(self, w, gradients, momentum):
        self.t += 1
        moved = {}
        for name, g in gradients.items():
            self.m[name] = 0.9 * self.m[name] + 0.1 * g
            self.v[name] = 0.99 * self.v[name] + 0.01 * g * g
            mean, square = self.m[name] / (1 - 0.9**self.t), self.v[name] / (1 - 0.99**self.t)
            moved[name] = w[name] - self.step * mean / np.sqrt(square + 1e-4**2)
        return moved


class TTT(Heads):
    def __init__(self, config, weights):
        super().__init__(config, weights)
        self.learner = Learner(config, weights)
        self.losses = []  # of each token: with W0, W of the mini-batch's start, W_{t-1}, W_t

    def start(self):
        super().start()
        self.begin_mini_batch(self.learner.w0)

        self.pulling = {name: np.zeros_like(a) for name, a in self.learner.w0.items()}
        rule = {"sgd": None, "muon": Muon, "adam": Adam}[self.c["inner_optimizer"]]
        self.rule = rule and rule(self.c, self.learner)

    def begin_mini_batch(self, w):
        self.w_start, self.place, self.gates = w, 0, []
        self.sum = {name: np.zeros_like(a) for name, a in w.items()}

    def rate(self, x):
        base = self.c["ttt_base_lr"]
        if not self.c["learnable_lr"]:
            return base
        gate = self.w["learnable_ttt_lr_weight"][:, 0, :] @ x + self.w["learnable_ttt_lr_bias"][:, 0]
        return (base * sigmoid(gate) / self.lanes)[:, None, None]

    def score(self, name, x):
        """What a gate is taken of, for each head."""
        return (self.w[name + "_weight"][:, 0, :] @ x + self.w[name + "_bias"][:, 0])[:, None, None]

    def decay(self, x):
        if not self.c["inner_decay"]:
            return 1.0
        speed = np.exp(self.w["decay_log"][:, 0])[:, None, None]
        return np.exp(-speed * np.logaddexp(0, self.score("decay", x)))

    def momentum(self, x):
        return sigmoid(self.score("momentum", x)) if self.c["inner_momentum"] else 0.0

    def token_scale(self, place):
        if not self.c["learnable_token_idx"]:
            return 1.0
        return max(0.0, 1 / (place + 1) + self.w["learnable_token_idx"][place])

    def moved(self, place):
        """The weights that the token at that place of the mini-batch is answered with."""
        return {name: w - self.token_scale(place) * self.sum[name] for name, w in self.w_start.items()}

    def descend(self, x, k, v):
        """Learns from a token, and returns the weights it is answered with."""
        # Everything there is of the past fades first; the gradient is of what is then left of the weights.
        decay, momentum = self.decay(x), self.momentum(x)
        self.w_start = {name: decay * w for name, w in self.w_start.items()}
        for name, slope in self.learner.gradients(self.w_start, k, v).items():
            self.pulling[name] = momentum * self.pulling[name] + self.rate(x) * slope
            self.sum[name] = decay * self.sum[name] + self.pulling[name]
        return self.moved(self.place)

    def gather(self, x, k, v):
        """The same with a rule that moves weights when the mini-batch ends."""
        self.gates.append(self.momentum(x))
        for name, slope in self.learner.gradients(self.w_start, k, v).items():
            self.sum[name] = self.sum[name] + self.rate(x) * slope
        return self.w_start

    def step(self, x, time):
        q, k, v = (part[:, None, :] for part in self.project(x))
        if self.c["key_norm"]:
            q, k = unit(q), unit(k)
        q, k = (rotated(part, self.place, self.c["rope_theta"]) for part in (q, k))
        before = self.moved(self.place - 1) if self.place > 0 and not self.rule else self.w_start
        now = (self.gather if self.rule else self.descend)(x, k, v)
        self.losses.append([self.learner.loss(w, k, v) for w in (self.learner.w0, self.w_start, before, now)])
        z = self.learner.answer(now, q)
        self.place += 1
        # Mini-batches end on the grid of absolute time, whatever documents started in between.
        size = self.c["mini_batch_size"]
        if size > 0 and time % size == size - 1:
            self.begin_mini_batch(self.rule.move(now, self.sum, np.mean(self.gates, 0)) if self.rule else now)
        return self.output(x, z)


class Attention(Heads):
    def start(self):
        super().start()
        self.keys, self.values = [], []

    def step(self, x, time):
        q, k, v = self.project(x)
        q, k = (rotated(part, time, self.c["rope_theta"]) for part in (q, k))
        self.keys.append(k)
        self.values.append(v)
        group = self.c["n_heads"] // (self.c["n_kv_heads"] or self.c["n_heads"])
        out = np.empty_like(q)
        for head in range(self.c["n_heads"]):
            scores = np.array([q[head] @ k[head // group] for k in self.keys]) / np.sqrt(self.lanes)
            share = np.exp(scores - scores.max())
            out[head] = (share / share.sum()) @ np.array([v[head // group] for v in self.values])
        return self.output(x, out)


class LinearAttention(Heads):
    def start(self):
        super().start()
        heads = self.c["n_heads"]
        self.sum, self.key_sum = np.zeros((heads, self.lanes, self.lanes)), np.zeros((heads, self.lanes))

    def step(self, x, time):
        q, k, v = self.project(x)
        q, k = (rotated(part, time, self.c["rope_theta"]) for part in (q, k))
        elu = self.c["features"] == "elu"
        if elu:
            q, k = (np.where(part > 0, part, np.expm1(part)) + 1 for part in (q, k))
        self.sum = self.sum + k[:, :, None] * v[:, None, :]
        self.key_sum = self.key_sum + k
        z = np.einsum("hi,hio->ho", q, self.sum)
        if elu:
            z = z / (q * self.key_sum).sum(-1, keepdims=True)
        return self.output(x, z)


class Mamba:
    """The selective scan of Mamba 1."""

    def __init__(self, config, weights):
        self.w, self.states = weights, config["mamba_state"]
        self.conv = Convolution(weights.at("conv1d."))

    def start(self):
        self.conv.start()
        self.h = np.zeros_like(self.w["A_log"])

    def step(self, x, time):
        x, z = np.split(self.w["in_proj.weight"] @ x, 2)
        x = silu(self.conv.step(x))
        dt, b, c = np.split(self.w["x_proj.weight"] @ x, [-2 * self.states, -self.states])
        dt = np.logaddexp(0, self.w["dt_proj.weight"] @ dt + self.w["dt_proj.bias"])[:, None]
        self.h = np.exp(dt * -np.exp(self.w["A_log"])) * self.h + dt * b * x[:, None]
        y = self.h @ c + self.w["D"] * x
        return self.w["out_proj.weight"] @ (y * silu(z))


class GatedDeltaRule(Heads):
    """As its authors have it: S <- a S, then S <- S - b k (k S - v). What TTT-Linear with decay is when every token is
    a mini-batch and it has no norm, bias or start; by that layer's parameters."""

    def start(self):
        super().start()
        self.memory = np.zeros((self.c["n_heads"], self.lanes, self.lanes))

    def gate(self, name, x, head):
        return self.w[name + "_weight"][head, 0] @ x + self.w[name + "_bias"][head, 0]

    def step(self, x, time):
        q, k, v = self.project(x)
        q, k = unit(q), unit(k)
        out = np.empty_like(q)
        for h in range(self.c["n_heads"]):
            a = np.exp(-np.exp(self.w["decay_log"][h, 0]) * np.logaddexp(0, self.gate("decay", x, h)))
            b = sigmoid(self.gate("learnable_ttt_lr", x, h))
            forget = np.eye(self.lanes) - b * np.outer(k[h], k[h])
            self.memory[h] = a * forget @ self.memory[h] + b * np.outer(k[h], v[h])
            out[h] = q[h] @ self.memory[h]
        return self.output(x, out)


class FeatureAttention(Heads):
    """Linear attention over features, GELU of a layer, without a sum to divide by: every value seen so far, times
    how well its key goes with the query. By the parameters of a TTT layer whose last layer alone learns."""

    def start(self):
        super().start()
        self.keys, self.values = [], []

    def step(self, x, time):
        q, k, v = self.project(x)
        q, k = (gelu(np.einsum("hi,hio->ho", part, self.w["W1"]) + self.w["b1"][:, 0]) for part in (q, k))
        self.keys.append(k)
        self.values.append(v)
        scores = np.einsum("hm,thm->th", q, self.keys) + 1  # the bias of the layer that learns is one more feature
        z = self.c["ttt_base_lr"] * np.einsum("th,thd->hd", scores, self.values) + self.w["b2"][:, 0]
        return self.output(x, z)


MIXERS = {"ttt_linear": TTT, "ttt_mlp": TTT, "attention": Attention, "linear_attention": LinearAttention,
          "mamba": Mamba}


# ---- the network around them ----


class Block:
    def __init__(self, config, weights, mixer=None):
        self.c, self.w = config, weights
        self.mixer = (mixer or MIXERS[config["mixer"]])(config, weights.at("seq_modeling_block."))
        self.conv = Convolution(weights.at("conv.conv.")) if config["pre_conv"] else None

    def start(self):
        self.mixer.start()
        if self.conv:
            self.conv.start()

    def normed(self, name, x):
        return rms_norm(x, self.w[name], self.c["norm_epsilon"])

    def step(self, x, time):
        if self.conv:
            x = x + self.conv.step(self.normed("conv.norm.weight", x))
        x = x + self.mixer.step(self.normed("seq_norm.weight", x), time)
        if self.c["intermediate_size"] > 0:
            y = self.normed("ffn_norm.weight", x)
            y = silu(self.w["mlp.gate_proj.weight"] @ y) * (self.w["mlp.up_proj.weight"] @ y)
            x = x + self.w["mlp.down_proj.weight"] @ y
        return x


class Model:
    def __init__(self, config, weights, mixer=None):
        """`mixer` takes the place of the one that the configuration names."""
        self.c, self.mixer = config, mixer
        self.w = Weights({name: np.asarray(a, np.float64) for name, a in weights.items()})
        self.inner_loss = None

    def logits(self, tokens, resets=()):
        """`resets` are the times at which a document starts; time 0 always is one."""
        blocks = [Block(self.c, self.w.at(f"model.layers.{i}."), self.mixer) for i in range(self.c["n_layers"])]
        embedding = self.w["model.embed_tokens.weight"]
        head = embedding if self.c["tie_embeddings"] else self.w["lm_head.weight"]
        out = []
        for time, token in enumerate(tokens):
            x = embedding[token]
            for block in blocks:
                if time == 0 or time in resets:
                    block.start()
                x = block.step(x, time)
            out.append(head @ rms_norm(x, self.w["model.norm.weight"], self.c["norm_epsilon"]))
        if isinstance(blocks[0].mixer, TTT):
            self.inner_loss = np.array([b.mixer.losses for b in blocks]).swapaxes(1, 2)
        return np.array(out)

    def loss(self, tokens, resets=()):
        """The mean cross-entropy of each next token."""
        logits = self.logits(tokens, resets)[:-1]
        top = logits.max(-1)
        total = top + np.log(np.exp(logits - top[:, None]).sum(-1))
        return np.mean(total - logits[np.arange(len(logits)), tokens[1:]])
