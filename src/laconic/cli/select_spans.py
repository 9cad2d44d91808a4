"""``laconic data select-spans``: neighbouring spans of running text that have much in common, for pre-training."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from laconic.cli.options import AsJson, SkipBad, with_groups
from laconic.cli.output import print_result, progress, say
from laconic.errors import ConfigError


@dataclass(frozen=True)
class SpanOptions:
    """The fields of `laconic.study.spans.settings.SpanSettings`."""

    k: Annotated[int, typer.Option("--k", metavar="N", help="How many pairs of spans to keep.")]
    tokenizer: Annotated[str, typer.Option(help="What lengths count: the tokens of a folder or hub id, or words.")] = (
        "facebook/bart-large"
    )
    lowercase: Annotated[bool, typer.Option("--lowercase", help="Compare words without case.")] = False
    weights: Annotated[str, typer.Option(help="Of R-1, R-2 and R-L in the score.")] = "1,1,1"
    random: Annotated[bool, typer.Option("--random", help="Draw spans instead of scoring them.")] = False
    input_length: Annotated[int, typer.Option(help="Tokens of the input span.")] = 128
    output_length: Annotated[int, typer.Option(help="Tokens of the output span behind it.")] = 32
    chunk: Annotated[int, typer.Option(help="Documents are cut into chunks of so many tokens.")] = 512
    stride: Annotated[int, typer.Option(help="Tokens between the windows that are looked at.")] = 1
    over: Annotated[
        str | None,
        typer.Option(
            "--every-window-over", metavar="SCORE", help="Every window above it, not only the best one of a chunk."
        ),
    ] = None
    drop_duplicate_outputs: Annotated[bool, typer.Option("--drop-duplicate-outputs", help="Each output span once.")] = (
        False
    )
    drop_ceiling: Annotated[
        bool, typer.Option("--drop-ceiling", help="No output span that stands in its input as a whole.")
    ] = False
    text: Annotated[str, typer.Option(metavar="file|line", help="What is a document in plain text.")] = "file"
    column: Annotated[
        str | None, typer.Option("--document-column", help="The column of the documents in JSON lines.")
    ] = None
    validation: Annotated[int, typer.Option(metavar="N", help="Hold so many records out.")] = 0
    shard_records: Annotated[int, typer.Option("--records-per-file", help="Records of a training file.")] = 100_000
    ids: Annotated[bool, typer.Option("--ids", help="Write the token ids too.")] = False
    seed: Annotated[int, typer.Option(help="Of draws, of ties and of the order of the records.")] = 1
    skip_bad: SkipBad = False


@with_groups
def select_spans_command(
    files: Annotated[
        list[str] | None, typer.Argument(metavar="[FILE|DIR|GLOB...]", help="More inputs, as for --input.")
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    input: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE|DIR|GLOB", help="Text or JSON lines, .gz and .zst too; may be repeated."),
    ] = None,
    selection: SpanOptions,
    workers: Annotated[int | None, typer.Option(help="Processes, or workers of Ray.")] = None,
    ray: Annotated[bool, typer.Option("--ray", help="On a Ray cluster (RAY_ADDRESS), or a small local one.")] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Start anew where OUT holds a selection.")] = False,
    as_json: AsJson = False,
) -> None:
    """Select spans of running text that have most in common with the span in front of them, as pairs to train on.

    The same command goes on with a job that was interrupted. The output does not depend on the number of workers.
    """
    from laconic.study.spans.selection import select_spans
    from laconic.study.spans.settings import SpanSettings, parse_weights

    inputs = [*(input or []), *(files or [])]
    if not inputs:
        raise ConfigError("Nothing to read: name files, folders or patterns with --input.")
    settings = SpanSettings(**vars(selection) | {"weights": parse_weights(selection.weights)})
    with progress("Selecting spans") as bar:

        def show(stage: str, done: int, total: int) -> None:
            bar.update(done, total=total, description=stage)

        result = select_spans(inputs, out, settings, workers=workers, ray=ray, overwrite=overwrite, progress=show)
    for warning in result.warnings:
        say(f"warning: {warning}")
    before = f"{out} is complete already; nothing was done.\n" if result.complete_before else ""
    print_result(as_json, result.manifest, before + _told(out, result.manifest))


def _told(out: Path, manifest: dict[str, Any]) -> str:
    """The manifest in some lines."""
    corpus, threshold, reports = manifest["corpus"], manifest["threshold"], manifest["reports"]
    held_out = sum(file["records"] for file in manifest["files"] if "/" not in file["name"])
    rows = [
        ["documents", f"{corpus['documents']:,}"],
        ["tokens", f"{corpus['tokens']:,}"],
        ["chunks", f"{corpus['chunks']:,}"],
        ["candidates", f"{corpus['candidates']:,}"],
        ["chosen", f"{manifest['records']:,}"],
        ["held out for validation", f"{held_out:,}"],
        ["lowest score chosen", f"{threshold['score']:.4f}"],
        ["chosen of those at it", f"{threshold['taken_at']:,} of {threshold['at']:,}"],
        ["output spans chosen again", f"{reports['duplicate_outputs']:,}"],
        ["output spans within their input", f"{reports['longest_subsequence_at_ceiling']:,}"],
    ]
    lines = [f"  {name:<31}{value:>12}" for name, value in rows]
    return "\n".join([f"{out}: {len(manifest['files'])} files", *lines])
