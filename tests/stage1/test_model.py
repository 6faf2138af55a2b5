"""The model against transformers' own classes on small random checkpoints, saved and loaded as real ones are."""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from stage1.attention import TorchAttention
from stage1.batch import ForwardBatch
from stage1.kv_cache import KVCache
from stage1.model.hf_config import shape_from_hf
from stage1.model.ops import TorchOps, rms_norm
from stage1.model.rope import rope_tables
from stage1.model.shape import PRESETS
from stage1.model.transformer import Transformer, allocate, build_model
from stage1.model.weights import load_weights, random_weights

CPU = torch.device("cpu")
BLOCK_SIZE = 4
LENGTHS = (23, 1, 7, 16)
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}

# name → class of transformers and what differs from the base config
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-every-head-its-own-kv": ("Llama", {"num_key_value_heads": 4}),
    "llama-one-kv-head": ("Llama", {"num_key_value_heads": 1}),
    "llama-biases": ("Llama", {"attention_bias": True, "mlp_bias": True}),
    "llama-tied": ("Llama", {"tie_word_embeddings": True}),
    "llama-wide-heads": ("Llama", {"head_dim": 24}),
    "llama-llama3-rope": ("Llama", {"rope_parameters": LLAMA3, "head_dim": 32}),
    "llama-linear-rope": ("Llama", {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 500.0}}),
    "mistral": ("Mistral", {"sliding_window": None, "rms_norm_eps": 1e-5}),
    "mistral-window": ("Mistral", {"sliding_window": 23}),
    "qwen2": ("Qwen2", {"tie_word_embeddings": True}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 23, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 32, "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}}),
    "qwen3-biases": ("Qwen3", {"head_dim": 8, "attention_bias": True, "tie_word_embeddings": True}),
}


def make_reference(family: str, changes: dict[str, Any]) -> Any:
    """A random model of transformers in which every parameter, biases and norms too, makes a difference."""
    import transformers

    base = {
        "vocab_size": 97, "hidden_size": 48, "intermediate_size": 80, "num_hidden_layers": 3,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    }  # fmt: skip
    config = getattr(transformers, f"{family}Config")(**{**base, **changes}, attn_implementation="eager")
    torch.manual_seed(0)
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)
    return model


def read_checkpoint(folder: Path) -> Iterator[tuple[str, torch.Tensor]]:
    for file in sorted(folder.glob("*.safetensors")):
        yield from load_file(file).items()


def load_folder(folder: Path, dtype: torch.dtype = torch.float32) -> Transformer:
    shape = shape_from_hf(json.loads((folder / "config.json").read_text()))
    model = build_model(shape, TorchOps(), dtype, CPU)
    load_weights(model, read_checkpoint(folder))
    return model


class Bench:
    """Runs a model on several requests whose blocks are scattered over one cache."""

    def __init__(self, model: Transformer, num_reqs: int, max_len: int = 32) -> None:
        dtype = next(model.parameters()).dtype
        blocks = -(-max_len // BLOCK_SIZE)
        order = torch.randperm(num_reqs * blocks, generator=torch.Generator().manual_seed(1))
        self.tables = order.view(num_reqs, blocks)
        self.cache = KVCache(model.shape, num_reqs * blocks, BLOCK_SIZE, dtype, CPU)
        self.attention = TorchAttention(self.cache, *rope_tables(model.shape, max_len, CPU))
        self.model = model
        self.computed = [0] * num_reqs

    def step(self, chunks: Mapping[int, Sequence[int]]) -> dict[int, torch.Tensor]:
        """Compute the next tokens of some requests together: logits [n, vocab] of each."""
        reqs = list(chunks)
        counts = [len(chunks[r]) for r in reqs]
        ends = [self.computed[r] + n for r, n in zip(reqs, counts, strict=True)]
        positions = torch.cat([torch.arange(self.computed[r], end) for r, end in zip(reqs, ends, strict=True)])
        table = self.tables[reqs]
        row = torch.repeat_interleave(torch.tensor(counts))
        batch = ForwardBatch(
            rows=torch.arange(len(reqs)),
            input_ids=torch.cat([torch.tensor(chunks[r]) for r in reqs]),
            positions=positions,
            query_start=torch.tensor([0, *counts]).cumsum(0),
            seq_lens=torch.tensor(ends),
            block_table=table,
            slot_mapping=table[row, positions // BLOCK_SIZE] * BLOCK_SIZE + positions % BLOCK_SIZE,
            logits_rows=torch.arange(len(positions)),
            max_query_len=max(counts),
            max_seq_len=max(ends),
        )
        self.attention.plan(batch)
        hidden = self.model(batch.input_ids, batch, self.attention)
        logits = self.model.logits(hidden)
        for r, end in zip(reqs, ends, strict=True):
            self.computed[r] = end
        return dict(zip(reqs, torch.split(logits, counts), strict=True))


def make_prompts(vocab_size: int, lengths: Sequence[int] = LENGTHS) -> list[list[int]]:
    generator = torch.Generator().manual_seed(7)
    return [torch.randint(vocab_size, (n,), generator=generator).tolist() for n in lengths]


def one_shot(model: Transformer, prompts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    return list(Bench(model, len(prompts)).step(dict(enumerate(prompts))).values())


@torch.inference_mode()
def reference_logits(reference: Any, prompts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
    return [reference(torch.tensor([prompt])).logits[0] for prompt in prompts]


def assert_all_close(found: Sequence[torch.Tensor], wanted: Sequence[torch.Tensor], atol: float = 1e-4) -> None:
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == torch.float32
        torch.testing.assert_close(ours, theirs, atol=atol, rtol=1e-4)


@pytest.mark.parametrize("case", CASES)
def test_logits_equal_transformers(case: str, tmp_path: Path) -> None:
    family, changes = CASES[case]
    reference = make_reference(family, changes)
    reference.save_pretrained(tmp_path, max_shard_size="20KB" if "biases" in case else "5GB")
    assert (len(list(tmp_path.glob("*.safetensors"))) > 2) == ("biases" in case)
    model = load_folder(tmp_path)
    assert model.shape.architecture == f"{family}ForCausalLM"
    assert shape_from_hf(reference.config.to_dict()) == model.shape  # the object says the same as the file
    assert model.shape.num_parameters == reference.num_parameters()
    prompts = make_prompts(97)
    wanted = reference_logits(reference, prompts)
    assert min(logits.std() for logits in wanted) > 0.1
    assert_all_close(one_shot(model, prompts), wanted)


def test_every_parameter_matters_in_the_comparison(tmp_path: Path) -> None:
    """The test above would notice any tensor that is loaded wrongly: doubling one changes the logits."""
    reference = make_reference("Qwen3", {"head_dim": 16, "attention_bias": True})
    reference.save_pretrained(tmp_path)
    prompts = make_prompts(97, (9,))
    wanted = reference_logits(reference, prompts)[0]
    tensors = dict(read_checkpoint(tmp_path))
    shape = shape_from_hf(reference.config.to_dict())
    for name in tensors:
        model = build_model(shape, TorchOps(), torch.float32, CPU)
        load_weights(model, ((n, t * 2 if n == name else t) for n, t in tensors.items()))
        difference = (one_shot(model, prompts)[0] - wanted).abs().max()
        # A bias of k adds the same to all scores of a query, up to the rotation: its effect is the smallest.
        assert difference > 1e-3, name


@pytest.mark.parametrize("case", ["llama", "llama-llama3-rope", "qwen3"])
def test_chunks_in_changing_batches_equal_one_shot(case: str, tmp_path: Path) -> None:
    make_reference(*CASES[case]).save_pretrained(tmp_path)
    model = load_folder(tmp_path)
    prompts = make_prompts(97)
    whole = one_shot(model, prompts)
    bench = Bench(model, len(prompts))
    parts: list[list[torch.Tensor]] = [[] for _ in prompts]
    step = 0
    while any(bench.computed[r] < len(prompt) for r, prompt in enumerate(prompts)):
        # Chunks of 1, 2, 3, … tokens; each step leaves out one of the requests.
        chunks = {
            r: prompt[bench.computed[r] : bench.computed[r] + 1 + (step + r) % 5]
            for r, prompt in enumerate(prompts)
            if bench.computed[r] < len(prompt) and (step + r) % len(prompts)
        }
        step += 1
        if chunks:
            for r, logits in bench.step(chunks).items():
                parts[r].append(logits)
    assert step > 6
    assert_all_close([torch.cat(part) for part in parts], whole)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("case", ["llama", "qwen2", "qwen3"])
def test_half_precision_is_as_near_as_transformers_in_it(dtype: torch.dtype, case: str, tmp_path: Path) -> None:
    reference = make_reference(*CASES[case])
    reference.save_pretrained(tmp_path)
    prompts = make_prompts(97)
    exact = torch.cat(reference_logits(reference, prompts))
    theirs = torch.cat(reference_logits(reference.to(dtype), prompts)).float()
    model = load_folder(tmp_path, dtype)
    assert {parameter.dtype for parameter in model.parameters()} == {dtype}
    ours = torch.cat(one_shot(model, prompts))

    def error(logits: torch.Tensor) -> float:
        return ((logits - exact).pow(2).mean() / exact.pow(2).mean()).sqrt().item()

    assert error(ours) < (0.1 if dtype == torch.bfloat16 else 0.02)
    assert error(ours) < 1.5 * error(theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_norm_rounds_as_transformers_does(dtype: torch.dtype) -> None:
    from transformers.models.llama.modeling_llama import LlamaRMSNorm

    torch.manual_seed(0)
    theirs = LlamaRMSNorm(40, eps=1e-5).to(dtype)
    theirs.weight.data.normal_(1.0, 0.3)
    x, residual = torch.randn(2, 9, 40).mul(3.0).to(dtype)
    normed, total = TorchOps().add_rms_norm(x, residual, theirs.weight, 1e-5)
    assert torch.equal(total, x + residual)
    assert torch.equal(normed, theirs(x + residual))
    normed, total = TorchOps().add_rms_norm(x, None, theirs.weight, 1e-5)
    assert torch.equal(total, x)
    assert torch.equal(normed, rms_norm(x, theirs.weight, 1e-5))


def test_the_tiny_model_says_something_varied_and_depends_on_its_whole_prompt() -> None:
    model = build_model(PRESETS["tiny"], TorchOps(), torch.float32, CPU)
    load_weights(model, random_weights(PRESETS["tiny"], seed=0))
    prompts = make_prompts(256, (12,))
    logits = one_shot(model, prompts)[0]
    assert logits.isfinite().all()
    assert 0.5 < logits.std() < 10.0
    changed = [[(prompts[0][0] + 1) % 256, *prompts[0][1:]]]
    assert (one_shot(model, changed)[0][-1] - logits[-1]).abs().max() > 0.05

    bench, chunk, output = Bench(model, 1), prompts[0], []
    for _ in range(20):
        chunk = [int(bench.step({0: chunk})[0][-1].argmax())]
        output += chunk
    assert len(set(output)) > 10


class Passes(torch.nn.Module):
    """Stands where a pipeline stage lacks a part."""

    def forward(self, hidden: torch.Tensor, residual: torch.Tensor | None, *_: Any) -> Any:
        return hidden, residual


class SumsUp(torch.nn.Module):
    def forward(self, hidden: torch.Tensor, residual: torch.Tensor) -> Any:
        return hidden + residual, None


@pytest.mark.parametrize("tied", [True, False])
def test_two_pipeline_parts_made_by_swapping_modules_equal_the_whole(tied: bool) -> None:
    shape = dataclasses.replace(PRESETS["tiny"], tie_embeddings=tied)
    whole, first, last = (Transformer(shape, TorchOps()) for _ in range(3))
    for i in range(shape.num_layers):
        (last if i < 2 else first).layers[i] = Passes()
    first.norm, first.lm_head = SumsUp(), torch.nn.Identity()
    last.embed_tokens = torch.nn.Identity()

    for model in (whole, first, last):
        allocate(model, torch.float32, CPU)
        load_weights(model, random_weights(shape, seed=3))
    prompts = make_prompts(256, (6, 3))
    wanted = one_shot(whole, prompts)

    class Chain(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shape, self.logits = shape, last.logits
            self.first, self.last = first, last

        def forward(self, x: torch.Tensor, *rest: Any) -> torch.Tensor:
            out: torch.Tensor = self.last(self.first(x, *rest), *rest)
            return out

    assert_all_close(one_shot(Chain(), prompts), wanted, atol=1e-6)  # type: ignore[arg-type]
