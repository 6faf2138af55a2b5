"""The model card of trained heads, written from their log.

Owns the wording. Does not measure anything: every number is the log's.

vLLM: none (it does not train).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

KIND_NOTES = {
    "chat": "questions", "writing": "stories, poems, letters", "code": "programs", "lists": "lists and plans",
    "summary": "a passage in short", "copy": "repeating or correcting a passage or code",
}  # fmt: skip


def model_card(log: Mapping[str, Any]) -> str:
    """Markdown for people who consider using the heads."""
    parts = [_front(log), _data(log), *(_method(name, found) for name, found in log["methods"].items()), _limits(log)]
    return "\n\n".join(parts) + "\n"


def _front(log: Mapping[str, Any]) -> str:
    names = " and ".join(f"`{found['file']}`" for found in log["methods"].values())
    commit = log["commit"] or "not recorded"
    seconds = log["seconds"]
    spent = ", ".join(f"{name.replace('_', ' ')} {value:,.0f} s" for name, value in seconds.items() if name != "total")
    return f"""# Draft heads for {log["target"]}

{names}: small heads that guess the next tokens of `{log["target"]}`, for speculative decoding
with Sixfold. Verification is exact, so they change the speed of the output and not the output.

- Base model: {log["target"]}. The embedded SmolLM2-135M-Instruct is licensed under Apache-2.0; so are these heads.
- Made on {log["date"]} with `sixfold train-heads`, commit {commit}, on {log["device"]}, torch {log["torch"]}.
- Time: {seconds["total"]:,.0f} s in all ({spent}).
- Format: safetensors, bfloat16, metadata `format = sixfold-heads-1`. Embedding and output projection are the
  target's."""


def _data(log: Mapping[str, Any]) -> str:
    data, generate = log["data"], log["recipe"]["generate"]
    return f"""## Training data

No data set was used. The target wrote all of it: {data["sequences"]:,} answers with {data["output_tokens"]:,} tokens
({data["tokens"]:,} with the prompts), {generate["greedy_share"]:.0%} of them greedy and the others at temperature
{generate["temperature"]:g}, at most {generate["max_tokens"]} tokens each. The prompts are put together from lists of
topics and tasks, or made up by the model itself; texts to copy and to sum up are composed, or earlier answers.

The labels are the target's whole distributions at the output positions. The acceptance below was measured on
{sum(data["held_out_sequences"].values())} greedy answers ({data["held_out_output_tokens"]:,} tokens) to fixed prompts
whose topics and passages are kept out of the training prompts."""


def _method(name: str, found: Mapping[str, Any]) -> str:
    training, settings = found["training"], found["settings"]
    first, last = (training["curve"][i] if training["curve"] else None for i in (0, -1))
    losses = "" if first is None else f" Loss in nats, by step ahead: {_row(first)} at first, {_row(last)} at the end."
    kinds = [f"| {kind} | {KIND_NOTES.get(kind, '')} {_cells(value)}" for kind, value in found["acceptance"].items()]
    untrained = f"| overall, untrained | {_cells(found['acceptance_untrained'])}"
    count = len(found["acceptance"]["overall"]["conditional"])
    columns = " | ".join(f"draft {i + 1}" for i in range(count))
    return "\n".join(
        [
            f"## {name}: acceptance on held-out prompts",
            "",
            f"{found['parameters']:,} parameters, {found['bytes'] / 1e6:.1f} MB. {training['steps']:,} steps on "
            f"{training['sequences']:,} sequences (repeated ones count anew) in {training['seconds']:,.0f} s, "
            f"learning rate {settings['lr']:g}.{losses}",
            "",
            f"| kind | | positions | {columns} | tokens a step at 3 drafts |",
            "|---|---|" + "---:|" * (count + 2),
            *kinds,
            untrained,
            "",
            "A draft's share is that of the drafts which stay, of those whose predecessors stayed. Simulated at every "
            "position of greedy texts, with greedy drafts.",
        ]
    )


def _cells(acceptance: Mapping[str, Any]) -> str:
    shares = " | ".join(f"{share:.1%}" for share in acceptance["conditional"])
    return f"| {acceptance['positions']:,} | {shares} | {acceptance['acceptance_length_at_3']:.2f} |"


def _row(entry: Any) -> str:
    return " / ".join(f"{loss:.2f}" for loss in entry["loss"])


def _limits(log: Mapping[str, Any]) -> str:
    return f"""## Limits

- They fit this target only, in its chat format: English, short answers, sequences of up to
  {log["recipe"]["max_len"]:,} tokens. Longer contexts, other languages and prompts without the chat format were neither
  trained nor measured.
- The held-out prompts are few, and were written by the same people as the training prompts: expect other figures on
  yours.
- The figures are of greedy decoding. At higher temperatures fewer drafts stay.
- An engine looks only where its last step ended, so its acceptance length differs a little from the simulated one;
  whether that makes it faster depends on the batch and the GPU.
- The training is short. Longer training and more varied text would raise the acceptance."""
