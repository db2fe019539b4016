"""One row of bench_train.sh from the JSON lines of both sides: ours, the rival's, and their ratio."""
import json
import sys

what, ours, jax, peak = sys.argv[1], *map(json.loads, sys.argv[2:5])
size, mixer, tokens = what.split()

# Products of the network outside the learners, forward and backward, for each token: the parameters of
# the matrices six times (the embedding counts as the head). Counted once each, whoever computes them
# again.
MATRICES = {"small": 4 * (4 * 256**2 + 3 * 256 * 688) + 256 * 512,
            "125m": 12 * (4 * 768**2 + 3 * 768 * 2048) + 768 * 32000}
flops = 6 * MATRICES[size] * int(tokens)


def share(seconds):
    return 100 * flops / seconds / peak["matmul_peak_flops"]


compile_ours = ours["build_seconds"] + ours["compile_seconds"]
compile_jax = jax["lower_seconds"] + jax["compile_seconds"]
print(f"{what}: step {ours['step_seconds']:.2f} s, rival {jax['step_seconds']:.2f} s, ratio "
      f"{ours['step_seconds'] / jax['step_seconds']:.2f}; share of the matmul peak {share(ours['step_seconds']):.0f} %, "
      f"rival {share(jax['step_seconds']):.0f} %; temporaries {ours['temp_bytes'] / 1e6:.0f} MB, rival "
      f"{jax['temp_bytes'] / 1e6:.0f} MB, ratio {ours['temp_bytes'] / jax['temp_bytes']:.2f}; build and compile "
      f"{compile_ours:.1f} s, rival {compile_jax:.1f} s, ratio {compile_ours / compile_jax:.2f}")
