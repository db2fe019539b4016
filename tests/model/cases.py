"""What is compared: networks, each with the sequences that go through it and the ways of computing them.

Widths are small and sizes uneven on purpose: nothing is a multiple of something by chance.
"""

from dataclasses import dataclass, field

SMALL = {"n_layers": 2, "hidden_size": 24, "n_heads": 2, "intermediate_size": 20, "vocab_size": 19}
MAMBA_SMALL = {"n_layers": 2, "hidden_size": 20, "vocab_size": 19, "mamba_state": 3}

# Ways of computing, by options of `ttt logits` and `ttt grads`; all are compared with the same reference. f64
# judges what is computed, f32 how precisely.
DUAL, PRIMAL = {"form": "dual"}, {"form": "primal"}
DUAL_F64, PRIMAL_F64 = {"form": "dual", "dtype": "f64"}, {"form": "primal", "dtype": "f64"}
MATRIX, MATRIX_F64 = {"form": "matrix"}, {"form": "matrix", "dtype": "f64"}
SEPARATE = {"layers": "separate"}
F32, F64, BF16 = {}, {"dtype": "f64"}, {"dtype": "bf16"}

# At the start, within a mini-batch of 16, at the start of one, one after the other, at the last token.
RESETS = (0, 5, 16, 21, 22, 36)


@dataclass
class Sequence:
    """One through a network, and the ways to compute it."""

    length: int = 37
    resets: tuple = ()
    logits: list = field(default_factory=lambda: [DUAL, PRIMAL_F64])
    gradients: list = field(default_factory=lambda: [F32])
    diagnostics: list = field(default_factory=list)


def reset(*ways, length=37, resets=RESETS):
    """Documents start within the sequence; what is compared, if nothing is said, is what is computed."""
    return Sequence(length, resets, *ways or ([DUAL_F64, PRIMAL_F64], []))


@dataclass
class Case:
    name: str
    mixer: str
    backbone: str
    fields: dict
    sequences: list = field(default_factory=lambda: [Sequence(), reset()])
    noise: float = 0.3
    optimized: bool = False  # compiled as usual, which takes four times as long


def variants():
    """The learners on the backbones, in every way there is."""
    others = iter([SEPARATE, PRIMAL, {"remat": "none"}, {"remat": "all"}])
    made = []
    for mixer in ("ttt_linear", "ttt_mlp"):
        for backbone in ("transformer", "mamba"):
            plain = Sequence(37, (), [DUAL, DUAL_F64, PRIMAL, PRIMAL_F64, SEPARATE, BF16], [F32, next(others)], [F32])
            resets = reset([DUAL, DUAL_F64, PRIMAL_F64], [F32, F64], [F64])
            made.append(Case("variant", mixer, backbone, SMALL, [plain, resets]))
        made.append(Case("as usual", mixer, "mamba", SMALL, [reset([DUAL], [F32])], optimized=True))
    return made


def sizes():
    """Mini-batches of all kinds and the lengths around them; fields that change no other test."""
    batch = {**SMALL, "mini_batch_size": 0, "learnable_token_idx": False, "ttt_base_lr": 0.1}
    online = {**SMALL, "mini_batch_size": 1}
    return [
        Case("online", "ttt_linear", "transformer", online, [Sequence(9), reset(length=9, resets=(4, 5))]),
        Case("online", "ttt_mlp", "mamba", online, [Sequence(9, (4,), [PRIMAL, DUAL_F64])]),
        Case("batch", "ttt_linear", "mamba", batch,
             [Sequence(diagnostics=[F32]), reset([DUAL_F64, PRIMAL_F64], [F64])]),
        Case("batch", "ttt_mlp", "transformer", batch, [Sequence(37, RESETS, [DUAL, PRIMAL_F64])]),
        Case("shorter than a mini-batch", "ttt_linear", "mamba", SMALL, [Sequence(3)]),
        Case("one token", "ttt_mlp", "mamba", SMALL, [Sequence(1, (), [DUAL_F64, PRIMAL_F64], [])]),
        Case("whole mini-batches", "ttt_mlp", "transformer", SMALL,
             [Sequence(32, (), [DUAL_F64], [F64]), reset(length=32, resets=(16, 20))]),
        Case("mini-batches of 5, groups of 2", "ttt_linear", "mamba",
             {**SMALL, "mini_batch_size": 5, "checkpoint_group": 2}),
        Case("groups of groups", "ttt_linear", "transformer", {**online, "n_layers": 1},
             [Sequence(2100, (), [DUAL_F64], [F64])]),
        Case("nothing checkpointed", "ttt_mlp", "mamba", {**SMALL, "mini_batch_size": 4, "checkpoint_group": 0},
             [Sequence(37, RESETS, [DUAL_F64])]),
        Case("other fields", "ttt_linear", "mamba",
             {**SMALL, "n_layers": 3, "n_heads": 3, "conv_width": 3, "norm_epsilon": 1e-2, "tie_embeddings": False,
              "rope_theta": 100}, [Sequence(37, RESETS, [DUAL_F64, PRIMAL])]),
        Case("parts of a backbone", "ttt_mlp", "transformer", {**SMALL, "use_gate": True, "pre_conv": True},
             [Sequence()]),
        Case("long", "ttt_linear", "transformer", SMALL,
             [Sequence(300), reset(length=300, resets=(7, 100, 256))]),
    ]


def chunks():
    """The form for TPUs: several mini-batches as one piece where there are such, and rotations as products. Lengths are
    8, 25, 7 and 11 mini-batches of 4, of which the last has no divisor that will do, and some tokens more."""
    fields = {**SMALL, "mini_batch_size": 4}

    def whole(length):
        return Sequence(length, (), [MATRIX, MATRIX_F64], [MATRIX, MATRIX_F64])

    def part(length):
        return Sequence(length, (), [MATRIX_F64], [MATRIX_F64])

    documents = reset([MATRIX_F64], [MATRIX_F64])
    turned = [whole(37), documents]
    return [
        Case("chunks", "ttt_linear", "transformer", fields, [whole(101), part(32), documents]),
        Case("chunks", "ttt_linear", "mamba", fields, [part(31), part(46)]),
        Case("chunks", "ttt_mlp", "transformer", fields, [whole(101), part(31)]),
        Case("chunks", "ttt_mlp", "mamba", fields, [whole(35), part(46), documents]),
        Case("chunks without biases", "ttt_linear", "transformer", {**fields, "inner_bias": False}, [part(33)]),
        Case("chunks without biases", "ttt_mlp", "mamba", {**fields, "inner_bias": False}, [part(33)]),
        Case("chunks without a norm", "ttt_mlp", "transformer", {**fields, "inner_norm": False}, [part(32)], 0.2),
        Case("chunks as usual", "ttt_mlp", "mamba", fields, [Sequence(101, (), [MATRIX, {**MATRIX, **BF16}], [MATRIX])],
             optimized=True),
        Case("attention, turned by a product", "attention", "transformer", SMALL, turned),
        Case("grouped attention, turned by a product", "attention", "transformer",
             {**SMALL, "n_heads": 6, "n_kv_heads": 2}, [part(300)]),
    ]


def ladder():
    """The paper's ablations, one option at a time, and the lowest rungs together."""
    def rung(mixer, backbone, noise=0.3, **fields):
        name = "without " + ", ".join(f for f, v in fields.items() if v is False)
        losses = [F64] if "inner_norm" in fields else []  # they have another definition then
        sequences = [Sequence(), reset([DUAL_F64, PRIMAL_F64], [], losses)]
        return Case(name, mixer, backbone, {**SMALL, **fields}, sequences, noise)

    nothing = {"inner_bias": False, "inner_norm": False, "learnable_lr": False, "learnable_token_idx": False}
    return [
        rung("ttt_linear", "transformer", learnable_w0=False),
        rung("ttt_linear", "mamba", inner_bias=False),
        rung("ttt_mlp", "transformer", inner_bias=False),
        rung("ttt_linear", "transformer", inner_norm=False),
        rung("ttt_mlp", "mamba", 0.2, inner_norm=False),
        rung("ttt_linear", "mamba", learnable_lr=False, ttt_base_lr=0.1),
        rung("ttt_mlp", "transformer", learnable_token_idx=False),
        rung("ttt_linear", "mamba", post_norm=False),
        Case("without rotation", "ttt_linear", "mamba", {**SMALL, "rope_theta": 0}),
        rung("ttt_linear", "transformer", **nothing, ttt_base_lr=0.05, mini_batch_size=0),
        rung("ttt_mlp", "transformer", 0.2, **nothing, ttt_base_lr=0.002),
    ]


def beyond():
    """Learners beyond the paper's."""
    def other(name, mixer, backbone, noise=0.3, ways=None, **fields):
        sequence = Sequence(37, RESETS, *ways or ([DUAL_F64, PRIMAL_F64], [F64], [F64]))
        return Case(name, mixer, backbone, {**SMALL, "mini_batch_size": 8, **fields}, [sequence], noise)

    swiglu, whole = {"inner_activation": "swiglu"}, {"learnable_token_idx": False}
    return [
        other("three layers", "ttt_mlp", "transformer", 0.3, ([DUAL, PRIMAL_F64], [F32], [F64]), inner_layers=3,
              inner_width=2),
        other("four layers", "ttt_linear", "mamba", 0.2, inner_layers=4, inner_width=2, inner_bias=False,
              ttt_base_lr=0.1),
        other("a wider hidden layer", "ttt_mlp", "mamba", 0.3, ([MATRIX_F64], [MATRIX_F64]), inner_width=5),
        other("swiglu", "ttt_mlp", "transformer", 0.3, ([DUAL, PRIMAL_F64], [F32], [F64]), **swiglu),
        other("swiglu, three layers", "ttt_linear", "mamba", 0.2, inner_layers=3, inner_width=2, inner_norm=False,
              key_norm=True, ttt_base_lr=0.1, **swiglu),
        other("products as loss", "ttt_linear", "mamba", inner_loss="dot"),
        other("products as loss", "ttt_mlp", "transformer", 0.2, inner_loss="dot", inner_norm=False, key_norm=True),
        other("decay", "ttt_linear", "mamba", 0.3, ([DUAL, DUAL_F64, PRIMAL_F64], [F64], [F64]), inner_decay=True),
        other("decay", "ttt_mlp", "transformer", inner_decay=True),
        other("momentum", "ttt_linear", "transformer", 0.3, ([DUAL, DUAL_F64, PRIMAL_F64], [F32], [F64]),
              inner_momentum=True, inner_norm=False, key_norm=True),
        other("decay and momentum", "ttt_mlp", "mamba", inner_decay=True, inner_momentum=True),
        other("decay and momentum, one mini-batch", "ttt_linear", "mamba", mini_batch_size=0, learnable_token_idx=False,
              ttt_base_lr=0.1, inner_decay=True, inner_momentum=True, inner_bias=False),
        other("muon", "ttt_linear", "mamba", inner_optimizer="muon", inner_step=0.3, **whole),
        other("muon, swiglu, products", "ttt_mlp", "transformer", 0.3,
              ([DUAL_F64, PRIMAL_F64], [F64, PRIMAL_F64], [F64]),
              inner_optimizer="muon", inner_momentum=True, inner_loss="dot", inner_width=2, key_norm=True, **swiglu,
              **whole),
        other("adam", "ttt_linear", "transformer", 0.3, ([DUAL, DUAL_F64, PRIMAL_F64], [F64], [F64]),
              inner_optimizer="adam", **whole),
        other("adam", "ttt_mlp", "mamba", inner_optimizer="adam", inner_step=0.02, **swiglu, **whole),
        other("the last of three layers", "ttt_mlp", "mamba", inner_layers=3, inner_width=2, inner_last_only=True,
              inner_decay=True, learnable_w0=False),
        other("the last layer", "ttt_mlp", "transformer", 0.3, ([DUAL, PRIMAL_F64], [F32], [F64]), inner_last_only=True,
              **swiglu),
    ]


def baselines():
    grouped = {**SMALL, "n_heads": 6, "n_kv_heads": 2}
    plain = {**SMALL, "features": "identity"}
    every = [Sequence(37, (), [DUAL, PRIMAL, SEPARATE, BF16]), reset([DUAL_F64, PRIMAL_F64], [F64])]
    # Longer than the blocks and chunks that the mixers work in.
    long = [Sequence(300, (), [DUAL, DUAL_F64]), reset([DUAL_F64], [F64], length=300, resets=(7, 100, 256))]
    return [
        Case("attention", "attention", "transformer", SMALL, every),
        Case("attention", "attention", "mamba", SMALL),
        Case("grouped attention", "attention", "transformer", {**grouped, "post_norm": True}),
        Case("attention without rotation", "attention", "transformer", {**SMALL, "rope_theta": 0}, [reset()]),
        Case("long attention", "attention", "transformer", grouped, long),
        Case("linear attention", "linear_attention", "transformer", plain, every),
        Case("linear attention, elu", "linear_attention", "mamba", {**SMALL, "features": "elu"}, every),
        Case("linear attention, elu, not turned", "linear_attention", "transformer",
             {**SMALL, "rope_theta": 0, "post_norm": True}, [reset()]),
        Case("long linear attention", "linear_attention", "mamba", {**SMALL, "features": "elu"}, long),
        Case("mamba", "mamba", "transformer", {**MAMBA_SMALL, "intermediate_size": 20}, every),
        Case("mamba", "mamba", "mamba", {**MAMBA_SMALL, "mamba_expand": 3}),
        Case("long mamba", "mamba", "mamba", MAMBA_SMALL, long),
    ]


def all_cases():
    return [*variants(), *sizes(), *chunks(), *ladder(), *beyond(), *baselines()]
