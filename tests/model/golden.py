"""Numbers that the public implementations gave: a network of two layers whose parameters are sines, ten
tokens (two mini-batches of four and two tokens left over)."""

import numpy as np

TOKENS = [1, 4, 7, 10, 2, 5, 8, 0, 3, 6]
FIELDS = {"vocab_size": 11, "hidden_size": 8, "n_heads": 2, "intermediate_size": 12, "n_layers": 2,
          "mini_batch_size": 4, "ttt_base_lr": 1.0}
# Of logits: these times, and the first three words of the vocabulary.
TIMES = [0, 3, 7, 9]
# Norms of gradients: of all parameters, and of these.
NORMS_OF = ["model.layers.0.seq_modeling_block." + name
            for name in ("W1", "learnable_token_idx", "learnable_ttt_lr_weight", "ttt_norm_weight")]

# Of logits and the loss: all digits that there are. Norms have as many, but were taken in f32. Seen: 5e-7, 1.3e-5.
TOLERANCE = 1e-6
NORM_TOLERANCE = 3e-5

GOLDEN = {
    ("ttt_linear", "transformer"): {
        "tensors": 38, "loss": 3.925571,
        "logits": [[1.369019, 0.341583, -0.839178], [-0.654266, 0.420391, 1.306348],
                   [-0.347731, -1.248837, -1.589380], [-1.574877, -1.542050, -0.817046]],
        "norms": [2.60405, 0.883983, 0.134638, 0.036353, 0.144979]},
    ("ttt_mlp", "transformer"): {
        "tensors": 42, "loss": 2.458644,
        "logits": [[-1.288669, -1.494852, -1.030043], [-0.965602, -0.860279, -0.368803],
                   [-0.923426, -1.276491, -1.056579], [-1.448564, -1.041244, -0.166543]],
        "norms": [2.71768, 0.934516, 0.023671, 0.057509, 0.338958]},
    ("ttt_linear", "mamba"): {
        "tensors": 52, "loss": 2.882829,
        "logits": [[-0.102131, -0.842522, -1.204732], [0.207328, -0.143153, -0.429377],
                   [0.803905, -0.131266, -1.007516], [0.315145, -0.547164, -1.163869]],
        "norms": [6.80720, 2.095208, 0.090025, 0.046025, 0.475841]},
    ("ttt_mlp", "mamba"): {
        "tensors": 56, "loss": 2.435527,
        "logits": [[0.410619, -0.260686, -0.814978], [-0.849564, -0.497914, 0.077234],
                   [-0.176714, -0.453189, -0.526241], [0.204512, -0.664691, -1.235535]],
        "norms": [4.07825, 0.222433, 2.223199, 0.050580, 0.182495]},
}


def weights(shapes):
    """Parameters by the shapes of files: by name in byte order, sines; norms around one."""
    made = {}
    for rank, name in enumerate(sorted(shapes)):
        m = np.arange(np.prod(shapes[name], dtype=int))
        one = name.endswith(("norm.weight", "norm_weight"))
        made[name] = (0.3 * np.sin(0.7 * m + 1.3 * rank) + one).reshape(shapes[name])
    return made
