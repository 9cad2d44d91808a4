"""What `laconic train` does about one's own data: pairs held out, limits that fit, and a verdict at the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from shlex import quote
from typing import Any

from laconic.cli.calibrate import ACCEPT, THRESHOLD, fitted, tried
from laconic.cli.inputs import records_of
from laconic.cli.output import aligned, progress, say
from laconic.config.schema import SPLITS, DataConfig, RunConfig
from laconic.data.holdout import LEAST
from laconic.data.holdout import hold_out as split_pairs
from laconic.data.readers import ReadOptions
from laconic.data.subset import write_records
from laconic.errors import ConfigError, LaconicError
from laconic.evaluation.run import options_of
from laconic.files import digest_of, write_json
from laconic.metrics.card import Facts, write_card
from laconic.study.tables import for_card
from laconic.study.verdict import scores, table, verdict
from laconic.types import Record

SCORED = 200  # pairs of a split, at the end
AUTO = "auto"


def hold_out(run: RunConfig, folder: Path) -> RunConfig:
    """The run on those of its training pairs that are not held out; all parts lie in ``folder``/data from then on."""
    from laconic.training.run import PARTS, held_out_parts

    place, earlier = folder / "data", held_out_parts(folder)
    if Path(str(run.data.train)).resolve().is_relative_to(place.resolve()):
        raise ConfigError(f"{run.data.train} would be overwritten with the part of it that stays: give another --out.")
    for split in SPLITS:
        if (part := place / f"{split}.jsonl").exists() and part not in earlier:
            raise ConfigError(
                f"{part} is there, and nothing says that a run wrote it: move {place} away, or remove it if an older "
                "version of laconic held these pairs out; or give another --out."
            )
    records = records_of(str(run.data.train), run.data, run.data.max_train_records, some=True)
    found = split_pairs(records, run.training.seed, test=run.data.test is None)
    if "validation" not in found.splits:
        reason = f"{found.doubles:,} are (near) duplicates of others, which stay together"
        few = f"{len(records):,} pairs are too few to hold any out."
        say(few if len(records) < LEAST else f"None of the {len(records):,} pairs is held out: {reason}.")
        return run
    own = {} if run.data.test is None else {"test": records_of(run.data.test, run.data, some=True)}
    splits = found.splits | own
    files = {name: place / f"{name}.jsonl" for name in splits}
    for part in earlier:
        part.unlink()
    noted: dict[str, str] = {}
    for name, kept in splits.items():
        write_records(files[name], kept)
        noted[files[name].name] = digest_of(files[name])
        write_json(place / PARTS, noted)
    parts = ", ".join(f"{len(kept):,} for {name}" for name, kept in found.splits.items())
    doubles = f"; {found.doubles:,} (near) duplicates stay with their originals" if found.doubles else ""
    say(f"{run.data.train} has no validation file: {parts} (seed {run.training.seed}{doubles}), in {place}")
    read = {"max_train_records", *(field.name for field in fields(ReadOptions))}  # how the parts are not read
    plain = {name: field.default for name, field in DataConfig.model_fields.items() if name in read}
    changes = plain | {name: str(path) for name, path in files.items()}
    return run.model_copy(update={"data": run.data.model_copy(update=changes)})


def automatic(run: RunConfig, asked: Mapping[str, Any]) -> dict[str, Any]:
    """``--size auto`` as changes of a recipe, said in a line; ``asked`` are the changes that `--set` makes."""
    from laconic.training.outlook import fitting_limits

    records = records_of(str(run.data.train), run.data, run.data.max_train_records, some=True)
    changes, line = fitting_limits(run, records, {"max_source_tokens", "max_target_tokens"} & {*asked.get("text", {})})
    say(line)
    return changes


def closing_score(model_folder: str, run: RunConfig) -> str:
    """The table and the verdict on the pairs that were held out, and what became of the model's confidence; without
    such pairs what to do about it."""
    splits = [name for name in ("test", "validation") if getattr(run.data, name) is not None]
    if not splits:
        return (
            "Nothing was held out, so nobody knows how good it is, and it has no confidence: "
            "`laconic evaluate` scores it on other pairs, `laconic calibrate` finds out when it had better not answer."
        )
    try:
        reading = run.data.model_copy(update={"skip_bad": True})
        held = {name: records_of(getattr(run.data, name), reading, SCORED, some=True) for name in splits}
        split, records = next(iter(held.items()))
        folder = Path(model_folder)
        confidence = calibrated(folder, [record for part in held.values() for record in part])
        with progress("Scoring", total=2 * len(records)) as bar:
            results = scores(model_folder, records, options_of(run.evaluation), bar.advance)
        tried(folder, records)
        name = Path(getattr(run.data, split)).name
        write_card(folder, Facts.of(folder).with_scores(for_card(results, name, split)))
    except LaconicError as error:  # the training is done, whatever becomes of its score
        return f"It could not be scored: {error}"
    fine_tuned = run.training.initial_weights is not None
    text = verdict(results, fine_tuned=fine_tuned, no_repeat=run.search.no_repeat_ngram)
    return "\n".join(["", aligned(*table(results)), "", *text, confidence])


def calibrated(folder: Path, records: Sequence[Record]) -> str:
    """Do what `laconic calibrate` does with these records, where they are enough, and say what came of it."""
    from laconic.study.calibration import LEAST_RECORDS

    command = f"laconic calibrate {quote(str(folder))} --data FILE"
    remedy = f"It has no confidence yet: run `{command}` on more held-out pairs."
    if len(records) < LEAST_RECORDS:
        return f"{len(records)} held-out pairs are fewer than the {LEAST_RECORDS} of a calibration. {remedy}"
    try:
        _, reliability = fitted(folder, records, {}, "Calibrating", accept=ACCEPT, threshold=THRESHOLD)
    except LaconicError as error:
        return f"{error} {remedy}"
    return (
        f"Its confidence is calibrated on {len(records):,} held-out pairs, {reliability.base_rate:.0%} of them "
        f"summarized acceptably; below {THRESHOLD:g} and on texts unlike these it answers with a sentence of the text."
    )
