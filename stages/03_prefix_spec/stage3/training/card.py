"""The model card of trained heads, written from their log.

Owns the wording. Does not measure anything: every number is the log's.

vLLM: none (it does not train).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

KIND_NOTES = {
    "chat": "questions", "writing": "stories, poems, letters", "code": "programs", "lists": "lists and plans",
    "summary": "a passage in short", "copy": "repeating or correcting a passage or code",
}  # fmt: skip
FIGURES = ("walked", "at_every_position")  # of each kind of text, in the log
UNKNOWN = "–"


def model_card(log: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]) -> str:
    """Markdown for people who consider using the heads; ``runs`` are those of ``runs.jsonl``, this one the last."""
    methods = [_method(name, found) for name, found in log["methods"].items()]
    return "\n\n".join([_front(log), _data(log), *methods, _history(runs), _limits(log)]) + "\n"


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
    kinds = {**found["acceptance"], "overall, untrained": found["acceptance_untrained"]}
    walked, everywhere = ({kind: value[name] for kind, value in kinds.items()} for name in FIGURES)
    drafts = walked["overall"]["drafts"]
    return "\n".join(
        [
            f"## {name}: acceptance on held-out prompts",
            "",
            f"{found['parameters']:,} parameters, {found['bytes'] / 1e6:.1f} MB. {training['steps']:,} steps on "
            f"{training['sequences']:,} sequences (repeated ones count anew) in {training['seconds']:,.0f} s, "
            f"learning rate {settings['lr']:g}.{losses}",
            "",
            f"**{walked['overall']['acceptance_length']:.2f} tokens a step** with {_drafts(drafts)}, walked as an "
            "engine does: after each verification the next one is behind the last token that came of it.",
            "",
            *_table(walked, "verifications", "shares", f"tokens a step with {_drafts(drafts)}"),
            "",
            "A share is that of all verifications in which the drafts up to this one stayed. Greedy drafts of greedy "
            "texts.",
            "",
            "The same drafts at every position, also where an engine would not look (which is the easier text, so "
            "these figures are higher); a share is that of the drafts whose predecessors stayed:",
            "",
            *_table(everywhere, "positions", "conditional", f"tokens a position with {_drafts(drafts)}"),
        ]
    )


def _table(kinds: Mapping[str, Mapping[str, Any]], starts: str, shares: str, length: str) -> list[str]:
    """A line for each kind: how many starts, the share of each draft, the length."""
    count = len(kinds["overall"][shares])
    lines = [f"| kind | | {starts} | {' | '.join(f'draft {i + 1}' for i in range(count))} | {length} |"]
    lines.append("|---|---|" + "---:|" * (count + 2))
    for kind, value in kinds.items():
        each = " | ".join(f"{share:.1%}" for share in value[shares])
        note = KIND_NOTES.get(kind, "")
        lines.append(f"| {kind} | {note} | {value[starts]:,} | {each} | {value['acceptance_length']:.2f} |")
    return lines


def _drafts(count: int) -> str:
    return f"{count} draft" if count == 1 else f"{count} drafts"


def _history(runs: Sequence[Mapping[str, Any]]) -> str:
    """The table of all trainings, with what each changed and brought; what is not known is a dash."""
    lines = [f"| {run.get('date') or UNKNOWN} | {' | '.join(row)} |" for run in runs for row in _run_rows(run)]
    return "\n".join(
        [
            "## Runs",
            "",
            "Every training that led here, the oldest first, from `runs.jsonl`. Tokens a step: walked as "
            "above, at every position, and as an engine counted them, where one was asked.",
            "",
            "| date | commit | what was new | text tokens | greedy | method | size | learning rate | batch tokens "
            "| hard labels | s | steps | final loss | walked | drafts stayed | every position | engine |",
            "|---|---|---|---:|---:|---|---|---:|---:|---:|---:|---:|---|---:|---|---:|---:|",
            *lines,
        ]
    )


def _run_rows(run: Mapping[str, Any]) -> list[list[str]]:
    """A row for each method of ``run``, without the date."""
    note = str(run.get("note") or UNKNOWN).replace("|", "/").replace("\n", " ")
    tokens, greedy = _known(run.get("tokens"), ","), _known(run.get("greedy_share"), ".0%")
    common = [run.get("commit") or UNKNOWN, note, tokens, greedy]
    rows = []
    for method in ("eagle", "medusa"):
        found = run.get(method)
        if found is None:
            continue
        sizes = ", ".join(f"{name} {value}" for name, value in (found.get("sizes") or {}).items())
        formats = {"lr": "g", "batch_tokens": ",", "hard_share": ".0%", "seconds": ",.0f", "steps": ","}
        losses, shares = found.get("final_loss") or [], found.get("walked_shares") or []
        lengths = [found.get(f"{name}_length") for name in ("walked", "every_position", "engine")]
        walked, everywhere, engine = (_known(length, ".2f") for length in lengths)
        settings = [_known(found.get(name), how) for name, how in formats.items()]
        loss = " / ".join(f"{x:.2f}" for x in losses) or UNKNOWN
        stayed = " / ".join(f"{x:.1%}" for x in shares) or UNKNOWN
        rows.append([*common, method, sizes or UNKNOWN, *settings, loss, walked, stayed, everywhere, engine])
    return rows


def _known(value: float | None, how: str) -> str:
    return UNKNOWN if value is None else format(value, how)


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
- The acceptance is simulated on the CPU or GPU that trained, in its arithmetic; an engine's differs a little. Whether
  it makes an engine faster depends on the batch and the GPU.
- Training takes minutes. Longer training and more varied text would raise the acceptance."""
