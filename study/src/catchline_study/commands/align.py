"""``catchline align``: which attention head aligns summary words with document words, and heat maps of attention."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from typer import Argument, Option

from catchline.cli.inputs import check_output, documents_of, stream_records
from catchline.cli.options import AsJson, Device, ReadingOptions, Split, TrustCode, check_picture
from catchline.cli.output import aligned, note, print_json, print_result, progress
from catchline.data.places import split_of
from catchline.errors import ConfigError, DataError, did_you_mean
from catchline.files import write_text
from catchline.systems.extractive import is_method
from catchline.text.normalization import safe_print as print
from catchline_study.links import (
    Links,
    WordPair,
    lexical_links,
    read_links,
    sheet_rule,
    word_pair,
    word_pairs,
    word_spans,
    write_sheet,
)

if TYPE_CHECKING:
    from catchline.systems.neural import NeuralSystem
    from catchline.types import Record
    from catchline_study.align import ForcedPair, HeadTable, MapChoice, Sharpness

    Weighed = list[tuple[ForcedPair, np.ndarray]]

LEXICAL = "lexical"


@dataclass(frozen=True)
class AlignOptions:
    """What is read, compared and drawn."""

    data: Annotated[str | None, Option(help="A file of pairs, or a folder with one file a split.")] = None
    split: Split = "validation"
    alignments: Annotated[str, Option(metavar="FILE|lexical", help="Links by people, or equal words.")] = LEXICAL
    pairs: Annotated[int, Option(min=1, help="At most so many pairs.")] = 500
    shift: Annotated[bool, Option("--shift", help="Rows: the step that reads the word.")] = False
    set_head: Annotated[bool, Option("--set-head", help="Print the --set options and no more.")] = False
    sample: Annotated[int | None, Option(min=1, help="Write a sheet of so many pairs to align by hand.")] = None
    seed: Annotated[int, Option(help="Seed of the sample.")] = 1
    out: Annotated[Path, Option(help="The sheet.")] = Path("sheet.txt")
    words: Annotated[str | None, Option(help="Words: split (default), or at spaces.")] = None
    heatmap: Annotated[
        list[str] | None,
        Option(metavar="[MODEL@]MAP", help="LAYER:HEAD, layer-mean:LAYER, mean, opponent; may be repeated."),
    ] = None
    text: Annotated[str | None, Option(metavar="FILE|-", help="A document to draw maps of.")] = None
    pair_id: Annotated[str | None, Option(help="The pair of --data to draw maps of: its id, or #3.")] = None
    summary: Annotated[str | None, Option(help="The summary to force; default: the pair's, or its own.")] = None
    own: Annotated[bool, Option("--own", help="The summary that the model writes itself.")] = False
    png: Annotated[Path | None, Option(help="Draw the maps as a picture.")] = None
    html: Annotated[Path | None, Option(help="Write the maps as a page.")] = None
    own_scale: Annotated[bool, Option("--own-scale", help="Colours of each map by itself.")] = False
    batch_size: Annotated[int, Option(min=1, help="Pairs read at once.")] = 8
    device: Device = "cpu"
    as_json: AsJson = False

    @property
    def rule(self) -> str:
        """How words are cut."""
        return self.words or "split"

    @property
    def files(self) -> list[Path]:
        """Where the maps go."""
        return [path for path in (self.png, self.html) if path is not None]


def command(
    model: Annotated[str, Argument(metavar="[MODEL]", help="Model or run folder, or hub id.")] = "",
    *,
    asked: AlignOptions,
    reading: ReadingOptions,
    trust_code: TrustCode = False,
) -> None:
    """Find the attention head that aligns best, or look at attention.

    `catchline align MODEL --data D --alignments lexical` prints the alignment error rate of every head.
    `catchline align --data D --sample 50 --out sheet.txt` writes a sheet to link words by hand; give it to
    --alignments when it is filled.
    `catchline align MODEL --heatmap 2:4 --text article.txt --png map.png` draws; with --data and no pair it prints
    how sharp each map is over the data.
    """
    read = [asked.text or "", split_of(asked.data, asked.split) if asked.data else ""]
    check_output("--html", asked.html, read)
    if asked.png is not None:
        check_picture(asked.png, [".png"])
    records = records_to_align(asked, reading)
    if asked.sample is not None:
        return make_sheet(asked, records, asked.sample)
    if not model:
        raise ConfigError("Give a model: catchline align MODEL --data D (only --sample needs none).")
    one = asked.text is not None or asked.pair_id is not None
    if asked.text is not None and asked.pair_id is not None:
        raise ConfigError("Give either --text or --pair-id, not both.")
    if not one and (asked.own or asked.summary is not None):
        raise ConfigError("--own and --summary are for one document: --text FILE, or --data D with --pair-id ID.")
    if not (one or asked.heatmap or asked.files):
        return show_table(model, asked, records)
    maps = Maps(model, asked)
    if one:
        return show_maps(maps, wanted_pair(asked, records), asked)
    if asked.files:
        raise ConfigError("Say what to draw: --text FILE, or --data D with --pair-id ID.")
    return show_sharpness(maps, asked, records)


# ----------------------------------------------------------------------------------------------- data


def records_to_align(asked: AlignOptions, reading: ReadingOptions) -> Iterator[Record]:
    """The records of --data, which are needed only when the first is asked for."""
    if asked.data is None:
        raise ConfigError("Give the pairs with --data FILE (records with a document and a summary).")
    yield from stream_records(split_of(asked.data, asked.split), reading.options())


def make_sheet(asked: AlignOptions, records: Iterator[Record], sample: int) -> None:
    """Draw pairs and write the sheet; a sheet that exists may hold somebody's work and is not replaced."""
    out = asked.out
    if out.exists():
        raise ConfigError(f"{out} exists and may be filled already; give another --out, or delete it.")
    everything = some_pairs(asked, records)
    chosen = sorted(random.Random(asked.seed).sample(range(len(everything)), min(sample, len(everything))))
    count = write_sheet(out, [everything[index] for index in chosen], asked.rule)
    told = (
        f"{out} has {count} of {len(everything)} pairs. When it is filled: catchline align MODEL --data "
        f"{asked.data} --split {asked.split} --alignments {out}"
    )
    values = {"sheet": str(out), "pairs": count, "of": len(everything), "seed": asked.seed, "words": asked.rule}
    print_result(asked.as_json, values, told, indent=None)


def some_pairs(asked: AlignOptions, records: Iterator[Record]) -> list[WordPair]:
    """The words of all records, of which there has to be one."""
    pairs = word_pairs(list(records), asked.rule)
    if not pairs:
        raise DataError(f"{asked.data} holds no pairs.")
    return pairs


# ------------------------------------------------------------------------------------------ the table


def show_table(model: str, asked: AlignOptions, records: Iterator[Record]) -> None:
    """Print the error rate of every head and the choice."""
    pairs, links = linked_pairs(asked, records)
    from catchline_study.align import head_table

    system = opened(model, asked.device)
    with progress("Reading pairs", total=len(pairs)) as bar:
        found = head_table(system, pairs, links, shift=asked.shift, batch_size=asked.batch_size, progress=bar.advance)
    if asked.set_head:
        print(settings(found.best))
    elif asked.as_json:
        values: dict[str, Any] = {"model": model, "links": asked.alignments, "pairs": found.pairs}
        values |= {"linked_words": found.linked_words, "shift": found.shift, "aer": rounded(found.rates, 6)}
        for name, place in {"best": found.best, "worst": found.worst}.items():
            aer = rounded(found.rates[place], 6)
            values[name] = {"layer": place[0], "head": place[1], "aer": aer, "set": settings(place)}
        print_json(values, indent=None)
    else:
        print(table(found, asked.alignments))


def linked_pairs(asked: AlignOptions, records: Iterator[Record]) -> tuple[list[WordPair], list[Links]]:
    """The pairs with links, at most as many as asked for."""
    if asked.alignments == LEXICAL:
        numbered = (word_pair(record, record.id, n, asked.rule) for n, record in enumerate(records, start=1))
        found = ((pair, links) for pair in numbered if (links := lexical_links(pair)).sure)
        chosen = list(islice(found, asked.pairs))
        if not chosen:
            raise DataError(f"No pair of {asked.data} has a word that stands once on either side: link words by hand.")
        return [pair for pair, _ in chosen], [links for _, links in chosen]
    path = Path(asked.alignments)
    if not path.exists() and (meant := did_you_mean(asked.alignments, [LEXICAL])):
        raise ConfigError(f"There is no file of links {path}.{meant}")
    pairs = word_pairs(list(records), asked.words or sheet_rule(path) or asked.rule)
    by_pair = read_links(path, pairs)
    kept = sorted(by_pair)[: asked.pairs]
    if len(kept) < len(pairs):
        note(f"{path} aligns {len(by_pair)} of the {len(pairs)} pairs; the others are left out.")
    return [pairs[index] for index in kept], [by_pair[index] for index in kept]


def opened(model: str, device: str) -> NeuralSystem:
    """The model ready to be read."""
    from catchline.systems.neural import NeuralSystem

    if is_method(model):
        raise ConfigError(f"'{model}' is an extractive method; it has no attention.")
    return NeuralSystem.from_pretrained(model, device)


def settings(place: tuple[int, int]) -> str:
    """What to give to `catchline train` for this head."""
    return f"--set model.opponent.layer={place[0]} --set model.opponent.head={place[1]}"


def rounded(values: np.ndarray, digits: int) -> Any:
    return np.asarray(values, dtype=float).round(digits).tolist()


def table(found: HeadTable, links: str) -> str:
    """Layers down, heads across; the lowest rate has a star, the highest a caret."""
    layers, heads = found.rates.shape
    marks = {found.worst: "^", found.best: "*"}
    rows = [
        [f"layer {layer}", *[f"{found.rates[layer, head]:.3f}{marks.get((layer, head), ' ')}" for head in range(heads)]]
        for layer in range(layers)
    ]
    made = "equal words that stand once on either side" if links == LEXICAL else links
    lines = [
        aligned(["AER", *[f"head {head} " for head in range(heads)]], rows),
        "",
        f"{found.pairs} pairs, {found.linked_words} linked summary words; links: {made}; rows: the step that "
        f"{'reads' if found.shift else 'predicts'} a word.",
    ]
    if found.rates.size > 1:
        (layer, head), (far_layer, far_head) = found.best, found.worst
        lines += [
            f"* lowest: layer {layer}, head {head}. To contrast it:  {settings(found.best)}",
            f"^ highest: layer {far_layer}, head {far_head} (non-synchronous):  {settings(found.worst)}",
        ]
    return "\n".join(lines)


# ------------------------------------------------------------------------------------------- the maps


class Maps:
    """The maps asked for, by model: ``MODEL@MAP`` reads another model's, so that two can be compared."""

    def __init__(self, model: str, asked: AlignOptions) -> None:
        from catchline_study.align import MapChoice

        self.first, self.batch_size = model, asked.batch_size
        self.wanted: list[tuple[str, MapChoice]] = []
        for item in asked.heatmap or ["mean"]:
            place, at, name = item.rpartition("@")
            self.wanted.append((place if at else model, MapChoice.parse(name)))
        names = dict.fromkeys([model, *(place for place, _ in self.wanted)])
        self.systems = {name: opened(name, asked.device) for name in names}

    def title(self, model: str, choice: MapChoice) -> str:
        """Names the model where there are several."""
        return f"{self.systems[model].name}: {choice.title}" if len(self.systems) > 1 else choice.title

    def read(self, pairs: list[WordPair], own: ForcedPair | None = None, advance: Any = None) -> list[Weighed]:
        """For each map wanted, every pair with its weights (T, S); the first model reads ``own`` in their place, where
        it wrote the summary itself."""
        from catchline_study.align import attention_maps, forced_pairs

        found: dict[tuple[str, MapChoice], Weighed] = {one: [] for one in self.wanted}
        for name, system in self.systems.items():
            choices = [choice for place, choice in self.wanted if place == name]
            if not choices:
                continue
            forced = [own] if own is not None and name == self.first else forced_pairs(system, pairs)
            for index, weights in attention_maps(system, forced, choices, batch_size=self.batch_size, progress=advance):
                for choice, one in zip(choices, weights, strict=True):
                    found[name, choice].append((forced[index], one))
        return [found[one] for one in self.wanted]


def show_sharpness(maps: Maps, asked: AlignOptions, records: Iterator[Record]) -> None:
    """Print mean entropy and mean maximum of each map over the data."""
    from catchline_study.align import sharpness

    pairs = some_pairs(asked, islice(records, asked.pairs))
    with progress("Reading pairs", total=len(pairs) * len({model for model, _ in maps.wanted})) as bar:
        read = maps.read(pairs, advance=bar.advance)
    rows = [(model, choice, sharpness(found)) for (model, choice), found in zip(maps.wanted, read, strict=True)]
    if asked.as_json:
        values = [{"model": model, "map": choice.name, **numbers(one)} for model, choice, one in rows]
        print_json({"pairs": len(pairs), "maps": values}, indent=None)
        return
    header = ["map", "entropy", "uniform", "maximum", "outside words"]
    lines = [
        [maps.title(model, choice), *(f"{v:.3f}" for v in (one.entropy, one.uniform, one.maximum, one.outside))]
        for model, choice, one in rows
    ]
    print(aligned(header, lines))
    print(f"\nMeans over the words of {len(pairs)} summaries; entropy in nats, uniform: what a flat map would have.")


def numbers(one: Sharpness) -> dict[str, Any]:
    return {name: round(value, 6) for name, value in asdict(one).items()}


def wanted_pair(asked: AlignOptions, records: Iterator[Record]) -> WordPair:
    """The document to draw, and the summary to force (empty: the model writes one)."""
    if asked.own and asked.summary is not None:
        raise ConfigError("--summary gives a summary, --own has the model write one; leave one out.")
    if asked.text is not None:
        record = next(documents_of(asked.text))
        return word_pair(replace(record, summary=asked.summary or ""), record.id, 1, asked.rule)
    pairs = word_pairs(list(records), asked.rule)
    found = [pair for number, pair in enumerate(pairs, start=1) if asked.pair_id in (pair.label, f"#{number}")]
    if not found:
        hint = did_you_mean(asked.pair_id or "", [pair.label for pair in pairs])
        raise DataError(f"{asked.data} has no pair '{asked.pair_id}'.{hint} #1 is the first of its {len(pairs)}.")
    if asked.summary is None:
        return found[0]
    return replace(found[0], summary=asked.summary, target=word_spans(asked.summary, asked.rule))


def show_maps(maps: Maps, pair: WordPair, asked: AlignOptions) -> None:
    """Draw the maps of one pair, or print their numbers."""
    from catchline.explain.pictures import HeatMap, draw_png, heat_page
    from catchline_study.align import decoded_pair, sharpness, word_map

    written = None
    if asked.own or not pair.summary:
        written = decoded_pair(maps.systems[maps.first], pair, asked.rule)
        pair = written.words
        if not pair.target:
            raise DataError(f"{maps.first} writes an empty summary of this document; give one with --summary.")
    drawn, values = [], []
    for (model, choice), found in zip(maps.wanted, maps.read([pair], written), strict=True):
        forced, weights = found[0]
        one, merged, words = sharpness(found), word_map(forced, weights, shift=asked.shift), forced.words
        line = f"entropy {one.entropy:.2f} of {one.uniform:.2f} · maximum {one.maximum:.2f}"
        if one.outside >= 0.005:
            line += f" · {one.outside:.0%} on no word"
        read = max(forced.columns, default=-1) + 1
        if read < len(words.source):
            line += f" · {read} of {len(words.source)} words read"
        drawn.append(HeatMap(maps.title(model, choice), merged, words.target_words, words.source_words, line, read))
        values.append({"model": model, "map": choice.name, **numbers(one), "weights": rounded(merged, 5)})
    looks: dict[str, Any] = {"title": pair.label, "own_scale": asked.own_scale}
    if asked.png is not None:
        for said in draw_png(drawn, asked.png, **looks):
            note(said)
    if asked.html is not None:
        write_text(asked.html, heat_page(drawn, **looks))
    for path in asked.files:
        note(f"{path} shows {len(drawn)} map{'s' * (len(drawn) > 1)}.")
    if asked.as_json:
        both = {"document_words": pair.source_words, "summary_words": pair.target_words}
        print_json({"id": pair.label, "summary": pair.summary, **both, "maps": values}, indent=None)
    elif not asked.files:
        print(f"summary: {pair.summary}\n")
        print("\n".join(f"{one.title}: {one.numbers}" for one in drawn))
