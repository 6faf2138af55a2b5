"""What the tests of the training share: a small frozen target with random weights, and texts for it."""

from __future__ import annotations

import torch

from stage1.model.ops import TorchOps
from stage1.model.shape import ModelShape
from stage1.model.transformer import build_model
from stage1.model.weights import load_weights, random_weights
from stage3.training.corpus import Corpus
from stage3.training.target import Target

SHAPE = ModelShape(
    architecture="LlamaForCausalLM", vocab_size=40, hidden_size=32, intermediate_size=48, num_layers=2, num_heads=4,
    num_kv_heads=2, head_dim=8, rms_eps=1e-5, rope_theta=1e4, rope_scaling=None, max_position=64, tie_embeddings=False,
    qkv_bias=False, o_bias=False, mlp_bias=False, qk_norm=False,
)  # fmt: skip


def small_target(seed: int = 0) -> Target:
    """Two layers, 40 tokens; embedding and projection are scaled up, so that its distributions are not flat."""
    model = build_model(SHAPE, TorchOps(), torch.float32, torch.device("cpu"))
    load_weights(model, random_weights(SHAPE, seed, torch.float32, torch.device("cpu")))
    for part in (model.embed_tokens, model.lm_head):
        part.get_parameter("weight").mul_(20)
    return Target("small", model, max_len=64)


def greedy_corpus(target: Target, lengths: list[int], prompt_len: int = 4, seed: int = 0) -> Corpus:
    """Random prompts and what the target answers, greedily: sequences of ``lengths`` tokens."""
    generator = torch.Generator().manual_seed(seed)
    pairs = []
    for length in lengths:
        tokens = torch.randint(0, SHAPE.vocab_size, (1, prompt_len), generator=generator)
        while tokens.shape[1] < length:
            tokens = torch.cat((tokens, target.best_tokens(target.hidden(tokens)[:, -1:])), dim=1)
        flat = tokens[0].tolist()
        pairs.append((flat[:prompt_len], flat[prompt_len:]))
    return Corpus.of(pairs)
