"""``catchline align``: which attention head aligns summary words with document words, and heat maps of attention."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from typer import Argument, Option

from catchline.cli.io import aligned, documents_of, note, print_json, print_result, progress, stream_records
from catchline.cli.options import AsJson, Device, DocumentOptions, ReadingOptions, Split, TrustCode, check_picture
from catchline.data.records import split_of
from catchline.errors import ConfigError, DataError, did_you_mean
from catchline.explain.pictures import HeatMap, draw_png
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import is_method
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.text.control import safe_print as print
from catchline.types import Record
from catchline_study.align import MapChoice, attention_maps, forced_pairs, head_rates, sharpness, word_map
from catchline_study.links import (
    Links,
    WordPair,
    lexical_links,
    read_links,
    word_pair,
    word_pairs,
    word_spans,
    write_sheet,
)

LEXICAL = "lexical"


@dataclass(frozen=True)
class AlignOptions:
    """What is read, compared and drawn."""

    data: Annotated[str | None, Option(help="A file of pairs, or a folder with one file per split.")] = None
    split: Split = "validation"
    alignments: Annotated[str, Option(metavar="FILE|lexical", help="Use a file of links, or equal words.")] = LEXICAL
    pairs: Annotated[int, Option(min=1, help="Use at most this many pairs.")] = 500
    shift: Annotated[bool, Option("--shift", help="Use the step that reads the word as its row.")] = False
    set_head: Annotated[bool, Option("--set-head", help="Print only the --set options.")] = False
    sample: Annotated[int | None, Option(min=1, help="Write a sheet of this many pairs to align by hand.")] = None
    seed: Annotated[int, Option(help="Set the seed of the sample.")] = 1
    out: Annotated[Path, Option(help="Write the sheet to this file.")] = Path("sheet.jsonl")
    heatmap: Annotated[
        list[str] | None, Option(metavar="MAP", help="Draw LAYER:HEAD, layer-mean:LAYER, mean or opponent.")
    ] = None
    text: Annotated[str | None, Option(metavar="FILE|-", help="Draw maps of this document.")] = None
    pair_id: Annotated[str | None, Option(help="Draw maps of this pair of --data: its id, or #3.")] = None
    summary: Annotated[str | None, Option(help="Force this summary (default: the pair's, or the model's).")] = None
    png: Annotated[Path | None, Option(help="Draw the maps as a picture.")] = None
    batch_size: Annotated[int, Option(min=1, help="Read this many pairs at once.")] = 8
    device: Device = "cpu"
    as_json: AsJson = False


def command(
    model: Annotated[str, Argument(metavar="[MODEL]", help="Model or run folder, or hub id.")] = "",
    *,
    asked: AlignOptions,
    reading: ReadingOptions,
    trust_code: TrustCode = False,
) -> None:
    """Find the attention head that aligns best, or draw attention.

    `catchline align MODEL --data D --alignments lexical` prints the alignment error rate of every head.
    `catchline align --data D --sample 50 --out sheet.jsonl` writes a sheet to link words by hand; give it to
    --alignments when it is filled.
    `catchline align MODEL --heatmap 2:4 --text article.txt --png map.png` draws.
    """
    if asked.png is not None:
        check_picture(asked.png, [".png"])
    records = _records(asked, reading)
    if asked.sample is not None:
        return _make_sheet(asked, records, asked.sample)
    if not model:
        raise ConfigError("Give a model: catchline align MODEL --data D (only --sample needs none).")
    one = asked.text is not None or asked.pair_id is not None
    if asked.text is not None and asked.pair_id is not None:
        raise ConfigError("Give either --text or --pair-id, not both.")
    if not one and (asked.summary is not None or asked.png or asked.heatmap):
        raise ConfigError("Say what to draw: --text FILE, or --data D with --pair-id ID.")
    if is_method(model):
        raise ConfigError(f"'{model}' is an extractive method; it has no attention.")
    if not one:
        return _show_table(model, asked, records)
    choices = list(map(MapChoice.parse, asked.heatmap or ["mean"]))
    system = NeuralSystem.from_pretrained(model, asked.device)
    return _show_maps(system, choices, _wanted_pair(asked, records), asked)


# ----------------------------------------------------------------------------------------------- data


def _records(asked: AlignOptions, reading: ReadingOptions) -> Iterator[Record]:
    """The records of --data, which are needed only when the first is asked for."""
    if asked.data is None:
        raise ConfigError("Give the pairs with --data FILE (records with a document and a summary).")
    yield from stream_records(split_of(asked.data, asked.split), reading.options())


def _make_sheet(asked: AlignOptions, records: Iterator[Record], sample: int) -> None:
    """Draw pairs and write the sheet; a sheet that exists may hold somebody's work and is not replaced."""
    out = asked.out
    if out.exists():
        raise ConfigError(f"{out} exists and may be filled already; give another --out, or delete it.")
    everything = word_pairs(list(records))
    if not everything:
        raise DataError(f"{asked.data} holds no pairs.")
    chosen = sorted(random.Random(asked.seed).sample(range(len(everything)), min(sample, len(everything))))
    count = write_sheet(out, [everything[index] for index in chosen])
    told = (
        f"{out} has {count} of {len(everything)} pairs. Fill `links` of each line: i-j says that document word i is "
        "where summary word j comes from, i?j that it may be, none that no word is linked. Then: catchline align MODEL "
        f"--data {asked.data} --split {asked.split} --alignments {out}"
    )
    values = {"sheet": str(out), "pairs": count, "of": len(everything), "seed": asked.seed}
    print_result(asked.as_json, values, told, indent=None)


# ------------------------------------------------------------------------------------------ the table


def _show_table(model: str, asked: AlignOptions, records: Iterator[Record]) -> None:
    """Print the error rate of every head and the choice."""
    pairs, links = _linked_pairs(asked, records)
    system = NeuralSystem.from_pretrained(model, asked.device)
    with progress("Reading pairs", total=len(pairs)) as bar:
        how: dict[str, Any] = {"shift": asked.shift, "batch_size": asked.batch_size, "progress": bar.advance}
        rates = head_rates(system, pairs, links, **how)
    best, worst = (divmod(int(place), rates.shape[1]) for place in (rates.argmin(), rates.argmax()))
    words = sum(len(one.targets) for one in links)
    if asked.set_head:
        print(_settings(best))
    elif asked.as_json:
        values: dict[str, Any] = {"model": model, "links": asked.alignments, "pairs": len(pairs)}
        values |= {"linked_words": words, "shift": asked.shift, "aer": _rounded(rates, 6)}
        for name, place in {"best": best, "worst": worst}.items():
            aer = _rounded(rates[place], 6)
            values[name] = {"layer": place[0], "head": place[1], "aer": aer, "set": _settings(place)}
        print_json(values, indent=None)
    else:
        marks = {worst: "^", best: "*"}  # of the highest and the lowest rate
        rows = [
            [f"layer {layer}", *(f"{rate:.3f}{marks.get((layer, head), ' ')}" for head, rate in enumerate(row))]
            for layer, row in enumerate(rates)
        ]
        heads = [f"head {head} " for head in range(rates.shape[1])]
        made = "equal words that stand once on either side" if asked.alignments == LEXICAL else asked.alignments
        print(aligned(["AER", *heads], rows))
        print(
            f"\n{len(pairs)} pairs, {words} linked summary words; links: {made}; rows: the step that "
            f"{'reads' if asked.shift else 'predicts'} a word."
        )
        if rates.size > 1:
            for mark, (layer, head), use in (("* lowest", best, "."), ("^ highest", worst, " (non-synchronous).")):
                print(f"{mark}: layer {layer}, head {head}{use} To contrast it:  {_settings((layer, head))}")


def _linked_pairs(asked: AlignOptions, records: Iterator[Record]) -> tuple[list[WordPair], list[Links]]:
    """The pairs with links, at most as many as asked for."""
    if asked.alignments == LEXICAL:
        numbered = (word_pair(record, record.id, n) for n, record in enumerate(records, start=1))
        found = ((pair, links) for pair in numbered if (links := lexical_links(pair)).sure)
        chosen = list(islice(found, asked.pairs))
        if not chosen:
            raise DataError(f"No pair of {asked.data} has a word that stands once on either side: link words by hand.")
        return [pair for pair, _ in chosen], [links for _, links in chosen]
    path = Path(asked.alignments)
    if not path.exists() and (meant := did_you_mean(asked.alignments, [LEXICAL])):
        raise ConfigError(f"There is no file of links {path}.{meant}")
    pairs = word_pairs(list(records))
    by_pair = read_links(path, pairs)
    kept = sorted(by_pair)[: asked.pairs]
    if len(kept) < len(pairs):
        note(f"{path} aligns {len(by_pair)} of the {len(pairs)} pairs; the others are left out.")
    return [pairs[index] for index in kept], [by_pair[index] for index in kept]


def _settings(place: tuple[int, int]) -> str:
    """What to give to `catchline train` for this head."""
    return f"--set model.opponent.layer={place[0]} --set model.opponent.head={place[1]}"


def _rounded(values: np.ndarray, digits: int) -> Any:
    return np.asarray(values, dtype=float).round(digits).tolist()


# ------------------------------------------------------------------------------------------- the maps


def _wanted_pair(asked: AlignOptions, records: Iterator[Record]) -> WordPair:
    """The document to draw, and the summary to force (empty: the model writes one)."""
    if asked.text is not None:
        record = next(documents_of(asked.text, DocumentOptions()))
        return word_pair(replace(record, summary=asked.summary or ""), record.id, 1)
    pairs = word_pairs(list(records))
    found = [pair for number, pair in enumerate(pairs, start=1) if asked.pair_id in (pair.label, f"#{number}")]
    if not found:
        hint = did_you_mean(asked.pair_id or "", [pair.label for pair in pairs])
        raise DataError(f"{asked.data} has no pair '{asked.pair_id}'.{hint} #1 is the first of its {len(pairs)}.")
    return found[0] if asked.summary is None else _with_summary(found[0], asked.summary)


def _with_summary(pair: WordPair, summary: str) -> WordPair:
    return replace(pair, summary=summary, target=word_spans(summary))


def _show_maps(system: NeuralSystem, choices: list[MapChoice], pair: WordPair, asked: AlignOptions) -> None:
    """Draw the maps of one pair, or print their numbers."""
    if not pair.summary:
        written = Summarizer(system).summarize(pair.document, always_write=True, surface="raw").text
        pair = _with_summary(pair, written)
        if not pair.target:
            raise DataError(f"{system.name} writes an empty summary of this document; give one with --summary.")
    (forced,) = forced_pairs(system, [pair])
    (_, maps), *_ = attention_maps(system, [forced], choices)
    drawn, values = [], []
    for choice, weights in zip(choices, maps, strict=True):
        one, merged = sharpness(forced, weights), word_map(forced, weights, shift=asked.shift)
        line = "entropy {entropy:.2f} of {uniform:.2f} · maximum {maximum:.2f}".format_map(one)
        if one["outside"] >= 0.005:
            line += f" · {one['outside']:.0%} on no word"
        read = max(forced.columns, default=-1) + 1
        if read < len(pair.source):
            line += f" · {read} of {len(pair.source)} words read"
        drawn.append(HeatMap(choice.name, merged, pair.target_words, pair.source_words, line, read))
        values.append(
            {
                "map": choice.name,
                **{name: round(value, 6) for name, value in one.items()},
                "weights": _rounded(merged, 5),
            }
        )
    if asked.png is not None:
        for said in draw_png(drawn, asked.png, title=pair.label):
            note(said)
    if asked.as_json:
        both = {"document_words": pair.source_words, "summary_words": pair.target_words}
        print_json({"id": pair.label, "summary": pair.summary, **both, "maps": values}, indent=None)
    else:
        print("\n".join([f"summary: {pair.summary}", "", *(f"{one.title}: {one.numbers}" for one in drawn)]))
