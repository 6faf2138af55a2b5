"""The unrolled EAGLE layer against chains that are followed one by one, with plain loops."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from sixfold.exercises.importer import load_file
from stage3.training.batches import Batch, make_batch
from stage3.training.chain_attention import shifted
from stage3.training.eagle import EagleLayer
from stage3.training.target import Target

bed = load_file(Path(__file__).with_name("training_bed.py"))
SHAPE, greedy_corpus, small_target = bed.SHAPE, bed.greedy_corpus, bed.small_target

LENGTHS = [11, 7, 9]
STEPS = 4


def rms(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x / (x.pow(2).mean() + SHAPE.rms_eps).sqrt() * weight


def turned(head: torch.Tensor, position: int) -> torch.Tensor:
    half = SHAPE.head_dim // 2
    result = torch.zeros(SHAPE.head_dim)
    for i in range(half):
        angle = position * SHAPE.rope_theta ** (-2 * i / SHAPE.head_dim)
        unit = torch.zeros(2, 2)
        unit[0, 0], unit[0, 1], unit[1, 0], unit[1, 1] = (
            math.cos(angle),
            -math.sin(angle),
            math.sin(angle),
            math.cos(angle),
        )
        pair = unit @ torch.stack((head[i], head[i + half]))
        result = result + torch.zeros(SHAPE.head_dim).index_add(0, torch.tensor([i, i + half]), pair)
    return result


class PlainLayer:
    """One position after the other, with a KV cache that is a list; written from the definition of the file."""

    def __init__(self, tensors: dict[str, torch.Tensor], target: Target) -> None:
        self.t, self.target = tensors, target
        self.cache: list[tuple[torch.Tensor, torch.Tensor]] = []  # keys and values [kv heads, dim]

    def step(self, state: torch.Tensor, token: int, position: int) -> torch.Tensor:
        """``state`` [H] and the next token → g [H]; the key and value of ``position`` are remembered."""
        t, dim, kv_heads = self.t, SHAPE.head_dim, SHAPE.num_kv_heads
        known = rms(self.target.embed(torch.tensor(token)), t["embed_norm.weight"])
        x = t["fc.weight"] @ torch.cat((known, rms(state, t["hidden_norm.weight"])))
        qkv = t["layer.self_attn.qkv_proj.weight"] @ rms(x, t["layer.input_layernorm.weight"])
        rows = qkv.view(-1, dim)
        q = [turned(head, position) for head in rows[: SHAPE.num_heads]]
        k = [turned(head, position) for head in rows[SHAPE.num_heads : SHAPE.num_heads + kv_heads]]
        assert len(self.cache) == position
        self.cache.append((torch.stack(k), rows[SHAPE.num_heads + kv_heads :]))
        mixed = []
        for head in range(SHAPE.num_heads):
            group = head // (SHAPE.num_heads // kv_heads)
            scores = torch.stack([q[head] @ keys[group] for keys, _ in self.cache]) / math.sqrt(dim)
            shares = scores.softmax(dim=0)
            mixed.append(
                sum((s * values[group] for s, (_, values) in zip(shares, self.cache, strict=True)), torch.zeros(dim))
            )
        x = x + t["layer.self_attn.o_proj.weight"] @ torch.cat(mixed)
        gate, up = (t["layer.mlp.gate_up_proj.weight"] @ rms(x, t["layer.post_attention_layernorm.weight"])).chunk(2)
        x = x + t["layer.mlp.down_proj.weight"] @ (gate.sigmoid() * gate * up)
        return rms(x, t["norm.weight"])


def chain(
    tensors: dict[str, torch.Tensor], target: Target, hidden: torch.Tensor, tokens: list[int], start: int,
    choose: Callable[[int, torch.Tensor], int],
) -> list[torch.Tensor]:  # fmt: skip
    """g of the steps of the chain behind ``start``; ``choose`` names the token that follows a step at a position."""
    layer = PlainLayer(tensors, target)
    for i in range(start + 1):
        g = layer.step(hidden[i], tokens[i + 1], i)
    steps = [g]
    for i in range(start + 1, start + STEPS):
        g = layer.step(g, choose(i + 1, g), i)
        steps.append(g)
    return steps


def make(seed: int = 1) -> tuple[Target, EagleLayer, Batch, torch.Tensor]:
    torch.manual_seed(seed)
    target = small_target()
    layer = EagleLayer(SHAPE, intermediate_size=20, num_steps=STEPS)
    for parameter in layer.parameters():  # nothing at its trivial value
        torch.nn.init.normal_(parameter, mean=float(parameter.dim() == 1), std=0.3)
    corpus = greedy_corpus(target, LENGTHS)
    batch = make_batch(corpus, torch.arange(3), target.device)
    return target, layer, batch, target.hidden(batch.tokens)


def test_unrolled_states_are_those_of_chains_followed_one_by_one() -> None:
    target, layer, batch, hidden = make()
    unrolled = layer.unroll(target, hidden, batch.tokens, STEPS, None)
    compared = 0
    for b, length in enumerate(LENGTHS):
        tokens = batch.tokens[b].tolist()
        for start in range(length - STEPS):
            for j, g in enumerate(chain(layer.tensors(), target, hidden[b], tokens, start, lambda at, _: tokens[at])):  # noqa: B023
                torch.testing.assert_close(unrolled[j][b, start + j], g, rtol=1e-4, atol=1e-5)
                compared += 1
    assert compared == STEPS * sum(length - STEPS for length in LENGTHS)


def test_steps_of_a_chain_differ_from_first_steps() -> None:
    """The comparison above would be weak if the state did not matter."""
    target, layer, batch, hidden = make()
    first, second, *_ = layer.unroll(target, hidden, batch.tokens, STEPS, None)
    assert (first[:, 1:6] - second[:, 1:6]).abs().amax(dim=-1).min() > 1e-2


def test_gradients_flow_through_the_chain_as_through_the_loops() -> None:
    target, layer, batch, hidden = make()
    b, start, tokens = 0, 3, batch.tokens[0].tolist()
    direction = torch.randn(STEPS, SHAPE.hidden_size)
    layer.zero_grad()
    unrolled = layer.unroll(target, hidden, batch.tokens, STEPS, None)
    torch.stack([unrolled[j][b, start + j] @ direction[j] for j in range(STEPS)]).sum().backward()
    plain = {name: value.clone().requires_grad_() for name, value in layer.tensors().items()}
    steps = chain(plain, target, hidden[b], tokens, start, lambda at, _: tokens[at])
    torch.stack([g @ direction[j] for j, g in enumerate(steps)]).sum().backward()
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        assert parameter.grad.abs().max() > 0
        torch.testing.assert_close(parameter.grad, plain[name].grad, rtol=1e-3, atol=1e-4)


def test_drafts_are_those_of_chains_that_eat_their_own_tokens() -> None:
    target, layer, batch, hidden = make()
    drafts = layer.draft(target, hidden, batch, STEPS)
    assert drafts.shape == (STEPS, *batch.tokens.shape)
    differing = 0
    for b, length in enumerate(LENGTHS):
        tokens = batch.tokens[b].tolist()
        for start in range(length - STEPS):
            guesses: list[int] = []

            def own(at: int, g: torch.Tensor, guesses: list[int] = guesses) -> int:
                guesses.append(int((target.lm_head @ g).argmax()))
                return guesses[-1]

            steps = chain(layer.tensors(), target, hidden[b], tokens, start, own)
            guesses.append(int((target.lm_head @ steps[-1]).argmax()))
            assert drafts[:, b, start].tolist() == guesses
            differing += guesses != tokens[start + 2 : start + 2 + STEPS]
    assert differing > 0  # the chains did leave the text


def test_a_later_token_changes_no_earlier_state() -> None:
    target, layer, batch, hidden = make()
    before = layer.unroll(target, hidden, batch.tokens, STEPS, None)
    tokens = batch.tokens.clone()
    tokens[0, 8] = (tokens[0, 8] + 1) % SHAPE.vocab_size
    after = layer.unroll(target, hidden, tokens, STEPS, None)
    for x, y in zip(before, after, strict=True):
        torch.testing.assert_close(x[0, :7], y[0, :7])  # the state at 7 is made of token 8
        assert not torch.equal(x[0, 7], y[0, 7])


def test_layer_starts_as_the_targets_last_one() -> None:
    target = small_target()
    layer = EagleLayer(SHAPE)
    layer.start_from(target)
    last = target.model.layers[-1]
    assert torch.equal(layer.tensors()["layer.mlp.down_proj.weight"], last.get_parameter("mlp.down_proj.weight"))
    assert torch.equal(layer.tensors()["norm.weight"], target.model.norm.get_parameter("weight"))
    narrow = EagleLayer(SHAPE, intermediate_size=20)
    narrow.start_from(target)
    assert narrow.tensors()["layer.mlp.down_proj.weight"].shape == (32, 20)


@pytest.mark.parametrize(("places", "expected"), [(1, [0, 1, 2]), (-1, [2, 3, 0]), (0, [1, 2, 3]), (-2, [3, 0, 0])])
def test_shifted(places: int, expected: list[int]) -> None:
    assert shifted(torch.tensor([[1, 2, 3]]), places).tolist() == [expected]
