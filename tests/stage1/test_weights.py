"""Loading weights: every tensor once, whole, in its place; and the random weights of shapes without a checkpoint."""

import dataclasses
import hashlib
import itertools
from typing import Any

import pytest
import torch

from stage1.model.checkpoint import CheckpointError
from stage1.model.layers import Linear, LocalSizes
from stage1.model.ops import TorchOps
from stage1.model.shape import PRESETS, ModelShape
from stage1.model.transformer import Transformer, allocate, build_model
from stage1.model.weights import check_tensors, expected_tensors, load_weights, random_weights

CPU = torch.device("cpu")
TIED = dataclasses.replace(PRESETS["tiny"], num_layers=2)
UNTIED = dataclasses.replace(TIED, tie_embeddings=False, qkv_bias=True, o_bias=True, mlp_bias=True, qk_norm=True)
Q_PROJ = "model.layers.1.self_attn.q_proj.weight"


def make_model(shape: ModelShape = TIED) -> Transformer:
    return build_model(shape, TorchOps(), torch.float32, CPU)


def make_tensors(shape: ModelShape = TIED) -> dict[str, torch.Tensor]:
    return dict(random_weights(shape, seed=1))


@pytest.mark.parametrize("shape", [TIED, UNTIED])
def test_expected_names_are_those_of_transformers(shape: ModelShape) -> None:
    import transformers

    shape = dataclasses.replace(shape, qk_norm=True, mlp_bias=False)
    config = transformers.Qwen3Config(
        vocab_size=shape.vocab_size, hidden_size=shape.hidden_size, intermediate_size=shape.intermediate_size,
        num_hidden_layers=2, num_attention_heads=8, num_key_value_heads=2, head_dim=64,
        attention_bias=shape.qkv_bias, tie_word_embeddings=shape.tie_embeddings,
    )  # fmt: skip
    make: Any = transformers.Qwen3ForCausalLM
    with torch.device("meta"):
        theirs = {name: tuple(p.shape) for name, p in make(config).named_parameters()}
    assert expected_tensors(shape) == theirs
    assert sum(torch.Size(size).numel() for size in expected_tensors(shape).values()) == shape.num_parameters


@pytest.mark.parametrize(
    ("preset", "parameters", "kv_bytes"),
    [
        ("smollm2-135m", 134_515_008, 23_040),
        ("qwen3-0.6b", 596_049_920, 114_688),
        ("qwen3-8b", 8_190_735_360, 147_456),
        ("llama3-8b", 8_030_261_248, 131_072),
    ],
)
def test_presets_have_the_public_sizes(preset: str, parameters: int, kv_bytes: int) -> None:
    shape = PRESETS[preset]
    assert shape.num_parameters == parameters
    assert shape.kv_bytes_per_token(torch.bfloat16) == kv_bytes
    on_meta = Transformer(shape, TorchOps())  # costs no memory
    assert sum(parameter.numel() for parameter in on_meta.parameters()) == parameters
    assert all(parameter.is_meta for parameter in on_meta.parameters())


def test_tied_embeddings_are_one_tensor_and_nothing_has_a_gradient() -> None:
    tied = build_model(PRESETS["tiny"], TorchOps(), torch.bfloat16, CPU)
    assert tied.lm_head.weight is tied.embed_tokens.weight
    assert sum(parameter.numel() for parameter in tied.parameters()) == PRESETS["tiny"].num_parameters
    assert not any(parameter.requires_grad or parameter.is_meta for parameter in tied.parameters())
    untied = build_model(dataclasses.replace(PRESETS["tiny"], tie_embeddings=False), TorchOps(), torch.bfloat16, CPU)
    assert untied.lm_head.weight is not untied.embed_tokens.weight


@pytest.mark.parametrize("shape", [TIED, UNTIED])
def test_every_parameter_is_filled_and_merged_ones_in_order(shape: ModelShape) -> None:
    model, tensors = make_model(shape), make_tensors(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(torch.nan)
    load_weights(model, reversed(tensors.items()))
    assert not any(parameter.isnan().any() for parameter in model.parameters())
    layer: Any = model.layers[1]
    prefix = "model.layers.1"
    for suffix in ("weight", "bias") if shape.mlp_bias else ("weight",):
        merged = torch.cat([tensors[f"{prefix}.self_attn.{name}_proj.{suffix}"] for name in "qkv"])
        assert torch.equal(getattr(layer.self_attn.qkv_proj, suffix), merged)
        merged = torch.cat([tensors[f"{prefix}.mlp.{name}_proj.{suffix}"] for name in ("gate", "up")])
        assert torch.equal(getattr(layer.mlp.gate_up_proj, suffix), merged)


def test_a_tied_output_projection_and_rotary_buffers_are_ignored() -> None:
    model, tensors = make_model(), make_tensors()
    extra = {"lm_head.weight": torch.zeros(3), "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(32)}
    load_weights(model, (tensors | extra).items())
    assert isinstance(model.lm_head, Linear)
    assert torch.equal(model.lm_head.weight, tensors["model.embed_tokens.weight"])


@pytest.mark.parametrize(
    ("shape", "extra"),
    [(TIED, "model.layers.2.mlp.up_proj.weight"), (TIED, "model.layers.0.mlp.up_proj.bias"), (UNTIED, "lm_head.bias")],
)
def test_unexpected_names_are_listed(shape: ModelShape, extra: str) -> None:
    tensors = make_tensors(shape) | {extra: torch.zeros(1)}
    with pytest.raises(CheckpointError, match=f"1 tensors are unexpected: {extra};"):
        load_weights(make_model(shape), tensors.items())
    with pytest.raises(CheckpointError, match=f"unexpected: {extra}"):
        check_tensors(shape, {name: tensor.shape for name, tensor in tensors.items()})


@pytest.mark.parametrize("name", expected_tensors(UNTIED))
def test_any_missing_tensor_is_named(name: str) -> None:
    tensors = {n: torch.empty(size, device="meta") for n, size in expected_tensors(UNTIED).items() if n != name}
    with pytest.raises(CheckpointError, match=f"missing: {name};"):
        check_tensors(UNTIED, {n: tensor.shape for n, tensor in tensors.items()})


def test_missing_tensors_are_listed_up_to_a_few() -> None:
    with pytest.raises(CheckpointError, match=r"20 tensors are missing: model\.embed.* and 12 more"):
        load_weights(make_model(), [])
    with pytest.raises(CheckpointError, match=f"missing: {Q_PROJ};"):
        load_weights(make_model(), [(n, t) for n, t in make_tensors().items() if n != Q_PROJ])


def test_a_tensor_that_comes_twice_is_refused() -> None:
    tensors = make_tensors()
    with pytest.raises(CheckpointError, match=f"{Q_PROJ} is in the checkpoint twice"):
        load_weights(make_model(), [*tensors.items(), (Q_PROJ, tensors[Q_PROJ])])


@pytest.mark.parametrize("size", [(512, 63), (64, 512), (512,), (1, 64), (512, 1), (512, 64, 1)])
def test_a_wrong_size_is_refused_before_it_is_copied(size: tuple[int, ...]) -> None:
    model, tensors = make_model(), make_tensors()
    load_weights(model, tensors.items())
    before = [parameter.clone() for parameter in model.parameters()]
    wrong = tensors | {Q_PROJ: torch.ones(size)}
    with pytest.raises(CheckpointError, match=rf"{Q_PROJ} has the shape \[{', '.join(map(str, size))}\].*\[512, 64\]"):
        load_weights(model, wrong.items())
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    with pytest.raises(CheckpointError, match=Q_PROJ):
        check_tensors(TIED, {name: tensor.shape for name, tensor in wrong.items()})


def test_a_wrong_size_is_refused_even_if_the_cut_would_hide_it() -> None:
    wrong = make_tensors() | {Q_PROJ: torch.ones(600, 64)}
    with pytest.raises(CheckpointError, match=rf"{Q_PROJ} has the shape \[600, 64\]"):
        load_weights(make_model(), wrong.items(), lambda name, tensor: tensor[:512])


@pytest.mark.parametrize("dtype", [torch.int8, torch.float8_e4m3fn, torch.bool])
def test_quantised_tensors_are_refused(dtype: torch.dtype) -> None:
    tensors = make_tensors() | {Q_PROJ: torch.zeros(512, 64).to(dtype)}
    with pytest.raises(CheckpointError, match=f"{Q_PROJ}.*quantised"):
        load_weights(make_model(), tensors.items())


def test_a_model_without_memory_is_refused() -> None:
    with pytest.raises(ValueError, match="allocate"):
        load_weights(Transformer(TIED, TorchOps()), make_tensors().items())


def test_shards_are_cut_by_checkpoint_name_and_written_into_their_slices() -> None:
    """Two tensor-parallel ranks: each holds its heads of q, k and v and its half of the MLP, whole heads together."""
    tensors = make_tensors()
    by_column = ("o_proj", "down_proj")
    by_row = ("q_proj", "k_proj", "v_proj", "gate_proj", "up_proj", "embed_tokens")
    for rank in range(2):
        model = Transformer(TIED, TorchOps(), LocalSizes(132, num_heads=4, num_kv_heads=1, intermediate_size=64))
        allocate(model, torch.float32, CPU)

        def shard(name: str, tensor: torch.Tensor, rank: int = rank) -> torch.Tensor:
            if any(part in name for part in by_column):
                return tensor.chunk(2, dim=1)[rank]
            return tensor.chunk(2, dim=0)[rank] if any(part in name for part in by_row) else tensor

        load_weights(model, tensors.items(), shard)
        layer: Any = model.layers[0]
        q, k, v = layer.self_attn.qkv_proj.weight.split((256, 64, 64))
        for name, piece in (("q", q), ("k", k), ("v", v)):
            whole = tensors[f"model.layers.0.self_attn.{name}_proj.weight"]
            assert torch.equal(piece, whole.chunk(2)[rank])
        assert layer.self_attn.o_proj.weight.shape == (64, 256)
        with pytest.raises(CheckpointError, match="this rank's share"):
            load_weights(model, tensors.items())


# --- random weights ---------------------------------------------------------------------------------


def test_random_weights_are_the_shape_and_repeat() -> None:
    for shape in (TIED, UNTIED):
        first, again = make_tensors(shape), make_tensors(shape)
        assert {name: tuple(tensor.shape) for name, tensor in first.items()} == expected_tensors(shape)
        assert all(torch.equal(first[name], again[name]) for name in first)
    other = dict(random_weights(TIED, seed=2))
    assert not any(torch.equal(other[name], tensor) for name, tensor in make_tensors(TIED).items())


def test_random_numbers_are_spread_as_promised_and_independent() -> None:
    # 264 * 2,048 numbers take several slices of the generator.
    tensors = dict(random_weights(dataclasses.replace(TIED, hidden_size=2048, num_layers=1), seed=0))
    embedding = tensors["model.embed_tokens.weight"].flatten() * 2048**0.5 / 2  # deviation 1
    assert embedding.mean().abs() < 0.01
    assert abs(embedding.std() - 1) < 0.01
    assert embedding.abs().max() < 3**0.5 * 1.0001
    assert embedding.count_nonzero() == embedding.numel()
    histogram = torch.histc(embedding, 20) / embedding.numel()
    assert (histogram - 0.05).abs().max() < 0.002
    for lag in (1, 2, 64, 2048, 2**17):
        assert (embedding[lag:] * embedding[:-lag]).mean().abs() < 0.01
    matrices = [tensor.flatten()[:50_000] for tensor in tensors.values() if tensor.dim() == 2]
    for a, b in itertools.combinations(matrices, 2):
        assert torch.corrcoef(torch.stack((a, b)))[0, 1].abs() < 0.03
    assert abs(tensors["model.norm.weight"].mean() - 1) < 0.01


def test_random_weights_in_another_dtype_are_the_same_numbers_rounded() -> None:
    exact = make_tensors()
    for name, tensor in random_weights(TIED, seed=1, dtype=torch.bfloat16, device="cpu"):
        assert tensor.dtype == torch.bfloat16
        assert torch.equal(tensor, exact[name].bfloat16())


def splitmix64(seed: int, index: int) -> int:
    """Number ``index`` of the published generator, in plain integers."""
    mask = 2**64 - 1
    z = (seed + (index + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


def test_random_numbers_are_those_of_splitmix64() -> None:
    name = "model.layers.0.mlp.down_proj.weight"
    tensor = make_tensors()[name]  # [64, 128]
    seed = int.from_bytes(hashlib.blake2b(f"1/{name}".encode(), digest_size=8).digest(), "little")
    for index in (0, 1, 2, 777, 8191):
        top = splitmix64(seed, index) >> 40  # 24 bits, as a signed number
        signed = top - 2**24 if top >= 2**23 else top
        wanted = (signed + 0.5) / 2**23 * (3 / 128) ** 0.5
        assert tensor.flatten()[index].item() == pytest.approx(wanted, rel=1e-6)
