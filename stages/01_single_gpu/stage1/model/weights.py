"""From checkpoint tensors to parameters.

Owns the names that Hugging Face gives the tensors, their shapes, and where each one goes: q, k, v and gate, up are
slices of merged parameters. Does not know file formats or ranks: ``shard`` cuts a tensor for a rank before it is
written.

    checkpoint                                     parameter
    model.layers.0.self_attn.q_proj.weight   ──▶   layers.0.self_attn.qkv_proj.weight   rows [0, q)
    model.layers.0.self_attn.k_proj.weight   ──▶                                        rows [q, q + kv)
    model.layers.0.self_attn.v_proj.weight   ──▶                                        rows [q + kv, q + 2 kv)

vLLM: ``load_weights`` of ``vllm/model_executor/models/llama.py``, ``vllm/model_executor/model_loader/``.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import torch

from stage1.model.checkpoint import CheckpointError
from stage1.model.layers import Attention, DecoderLayer, Embedding, Linear, Norm
from stage1.model.shape import ModelShape
from stage1.model.transformer import Transformer

Shard = Callable[[str, torch.Tensor], torch.Tensor]

FLOAT_DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LISTED_NAMES = 8  # of a long list of wrong names, how many an error shows


def expected_tensors(shape: ModelShape) -> dict[str, tuple[int, ...]]:
    """Every tensor that a checkpoint of ``shape`` must have, with its whole size, in the order of the layers."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    q, kv = shape.num_heads * shape.head_dim, shape.num_kv_heads * shape.head_dim
    linears = {
        "self_attn.q_proj": (q, hidden, shape.qkv_bias),
        "self_attn.k_proj": (kv, hidden, shape.qkv_bias),
        "self_attn.v_proj": (kv, hidden, shape.qkv_bias),
        "self_attn.o_proj": (hidden, q, shape.o_bias),
        "mlp.gate_proj": (inner, hidden, shape.mlp_bias),
        "mlp.up_proj": (inner, hidden, shape.mlp_bias),
        "mlp.down_proj": (hidden, inner, shape.mlp_bias),
    }
    norms = {"input_layernorm": hidden, "post_attention_layernorm": hidden}
    if shape.qk_norm:
        norms |= {"self_attn.q_norm": shape.head_dim, "self_attn.k_norm": shape.head_dim}
    sizes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (shape.vocab_size, hidden)}
    for i in range(shape.num_layers):
        prefix = f"model.layers.{i}"
        sizes |= {f"{prefix}.{name}.weight": (size,) for name, size in norms.items()}
        for name, (rows, columns, bias) in linears.items():
            sizes[f"{prefix}.{name}.weight"] = (rows, columns)
            if bias:
                sizes[f"{prefix}.{name}.bias"] = (rows,)
    sizes["model.norm.weight"] = (hidden,)
    if not shape.tie_embeddings:
        sizes["lm_head.weight"] = (shape.vocab_size, hidden)
    return sizes


def check_tensors(shape: ModelShape, found: Mapping[str, Sequence[int]]) -> None:
    """Compare the names and sizes of a file's header with ``shape``, before anything is read.

    Raises:
        CheckpointError: names are missing or unexpected, or a size differs.
    """
    expected = expected_tensors(shape)
    _check_names(expected, [name for name in found if not _is_ignored(name, shape)])
    for name, size in expected.items():
        _check_size(name, found[name], size)


def load_weights(
    model: Transformer,
    tensors: Iterable[tuple[str, torch.Tensor]],
    shard: Shard = lambda name, tensor: tensor,
) -> None:
    """Fill the parameters of ``model``, which has memory already, from whole checkpoint tensors in any order.

    Tensors of layers that this part of the model does not hold are skipped. A tied ``lm_head.weight`` is ignored.

    Raises:
        CheckpointError: a tensor is unexpected, missing, there twice, of the wrong size or not of floating point.
            Each is checked before it is copied; missing names are known only at the end.
    """
    if any(parameter.is_meta for parameter in model.parameters()):
        raise ValueError("the model has no memory to load weights into: allocate it first")
    expected = expected_tensors(model.shape)
    targets = _targets(model)
    seen: dict[str, None] = {}
    for name, tensor in tensors:
        if name in seen:
            raise CheckpointError(f"tensor {name} is in the checkpoint twice: remove one of its files")
        if _is_ignored(name, model.shape):
            continue
        seen[name] = None
        if name not in expected:
            continue  # reported with all others at the end
        _check_size(name, tensor.shape, expected[name])
        if tensor.dtype not in FLOAT_DTYPES:
            raise CheckpointError(f"tensor {name} has dtype {tensor.dtype}: use a checkpoint that is not quantised")
        for target in targets.get(name, ()):
            piece = shard(name, tensor)
            _check_size(f"{name} (this rank's share)", piece.shape, tuple(target.shape))
            target.copy_(piece)
    _check_names(expected, seen)


def random_weights(
    shape: ModelShape, seed: int, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu"
) -> Iterator[tuple[str, torch.Tensor]]:
    """Weights for a shape without a checkpoint, one tensor at a time, made where they are needed.

    A value depends on (seed, name, index) alone, so every device gets the same numbers. Matrices keep the size of what
    they multiply; q and k are larger, so that attention prefers some tokens and a wrong cache changes the answer, and
    so is the embedding, whose scores would be nearly equal otherwise. Norm weights lie around 1.
    """
    for name, size in expected_tensors(shape).items():
        if "norm" in name:
            middle, deviation = 1.0, 0.1
        elif name.endswith(".bias"):
            middle, deviation = 0.0, 0.1
        else:
            gain = 2.0 if any(part in name for part in ("q_proj", "k_proj", "embed_tokens", "lm_head")) else 1.0
            middle, deviation = 0.0, gain / math.sqrt(size[-1])
        flat = torch.empty(math.prod(size), dtype=dtype, device=device)
        _fill_uniform(flat, f"{seed}/{name}", middle, deviation)
        yield name, flat.view(size)


# --- below: names and places -----------------------------------------------------------------------


def _targets(model: Transformer) -> dict[str, list[torch.Tensor]]:
    """Where each checkpoint tensor goes: views of parameters, only of those parts that ``model`` holds."""
    targets: dict[str, list[torch.Tensor]] = {}
    if isinstance(model.embed_tokens, Embedding):
        targets["model.embed_tokens.weight"] = [model.embed_tokens.weight]
    for layer in model.layers:
        if isinstance(layer, DecoderLayer):
            prefix = f"model.layers.{layer.index}"
            places = _attention_places(layer.self_attn)
            inner = layer.mlp.gate_up_proj.weight.shape[0] // 2
            places |= _rows(layer.mlp.gate_up_proj, {"mlp.gate_proj": inner, "mlp.up_proj": inner})
            places |= _rows(layer.mlp.down_proj, {"mlp.down_proj": model.shape.hidden_size})
            places["input_layernorm.weight"] = layer.input_layernorm.weight
            places["post_attention_layernorm.weight"] = layer.post_attention_layernorm.weight
            targets |= {f"{prefix}.{name}": [place] for name, place in places.items()}
    if isinstance(model.norm, Norm):
        targets["model.norm.weight"] = [model.norm.weight]
    if isinstance(model.lm_head, Linear):
        # Tied, it is the embedding itself, or a pipeline's last part holds its own copy.
        name = "model.embed_tokens.weight" if model.shape.tie_embeddings else "lm_head.weight"
        copies = targets.setdefault(name, [])
        if not any(copy is model.lm_head.weight for copy in copies):
            copies.append(model.lm_head.weight)
    return targets


def _attention_places(attn: Attention) -> dict[str, torch.Tensor]:
    """The tensors of one attention layer, by name below the layer."""
    q, kv = attn.num_heads * attn.head_dim, attn.num_kv_heads * attn.head_dim
    places = _rows(attn.qkv_proj, {"self_attn.q_proj": q, "self_attn.k_proj": kv, "self_attn.v_proj": kv})
    places |= _rows(attn.o_proj, {"self_attn.o_proj": attn.o_proj.weight.shape[0]})
    if attn.q_norm is not None and attn.k_norm is not None:
        places |= {"self_attn.q_norm.weight": attn.q_norm, "self_attn.k_norm.weight": attn.k_norm}
    return places


def _rows(linear: Linear, sizes: Mapping[str, int]) -> dict[str, torch.Tensor]:
    """Cut a merged parameter, from its first row on, into one view a name: ``sizes`` counts the rows of each."""
    places: dict[str, torch.Tensor] = {}
    first = 0
    for name, count in sizes.items():
        places[f"{name}.weight"] = linear.weight[first : first + count]
        if linear.bias is not None:
            places[f"{name}.bias"] = linear.bias[first : first + count]
        first += count
    return places


def _is_ignored(name: str, shape: ModelShape) -> bool:
    """Tensors that some checkpoints carry although the shape implies them."""
    return name.endswith("rotary_emb.inv_freq") or (name == "lm_head.weight" and shape.tie_embeddings)


def _check_names(expected: Mapping[str, object], found: Iterable[str]) -> None:
    names = set(found)
    for kind, wrong in (
        ("unexpected", sorted(names - expected.keys())),
        ("missing", [n for n in expected if n not in names]),
    ):
        if wrong:
            more = f" and {len(wrong) - LISTED_NAMES:,} more" if len(wrong) > LISTED_NAMES else ""
            raise CheckpointError(
                f"{len(wrong):,} tensors are {kind}: {', '.join(wrong[:LISTED_NAMES])}{more}; "
                f"the weights do not belong to this config: download both again"
            )


def _check_size(name: str, found: Sequence[int], expected: tuple[int, ...]) -> None:
    if tuple(found) != expected:
        raise CheckpointError(
            f"tensor {name} has the shape {list(found)}; the config wants {list(expected)}: "
            f"the weights do not belong to this config"
        )


# --- below: random numbers that do not depend on the device ------------------------------------------


def _fill_uniform(flat: torch.Tensor, key: str, middle: float, deviation: float) -> None:
    """Fill ``flat`` [n] with uniform numbers of this mean and standard deviation, from a hash of (key, index).

    The hash is splitmix64 (Steele, Lea, Flood 2014) seeded with ``key``, in wrapping 64-bit integers. It runs slice by
    slice: on a CPU the integers of a slice stay in the cache, on a GPU a slice occupies the whole device.
    """
    start = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "little", signed=True)
    length = 2**24 if flat.is_cuda else 2**17
    scale = deviation * math.sqrt(3.0) * 2.0**-23
    for begin in range(0, flat.numel(), length):
        end = min(begin + length, flat.numel())
        x = torch.arange(begin + 1, end + 1, dtype=torch.int64, device=flat.device)
        x.mul_(_signed(0x9E3779B97F4A7C15)).add_(start)
        x.bitwise_xor_((x >> 30) & (2**34 - 1)).mul_(_signed(0xBF58476D1CE4E5B9))
        x.bitwise_xor_((x >> 27) & (2**37 - 1)).mul_(_signed(0x94D049BB133111EB))
        # The last step of splitmix64 leaves the top 24 bits alone. As n in [-2^23, 2^23), n + 1/2 is exact in float32
        # and never zero.
        flat[begin:end] = ((x >> 40).float() + 0.5) * scale + middle


def _signed(word: int) -> int:
    """A 64-bit word as torch's int64 holds it."""
    return word - 2**64 if word >= 2**63 else word
