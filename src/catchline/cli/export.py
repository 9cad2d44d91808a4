"""``catchline export``: a model as graphs that run without torch; ``catchline push``: a model to the hub. Push is the
only command that sends anything."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from catchline.cli.io import check_folder, progress, records_of
from catchline.cli.options import BatchSize, MaxRecords, ReadingOptions, Split, TrustCode
from catchline.data.records import split_of
from catchline.errors import ConfigError
from catchline.summarizer.extractive import is_method
from catchline.text.base import read_json
from catchline.text.control import safe_print as print

if TYPE_CHECKING:
    from catchline.export.apart import Agreement

SHOWN = 5
MOST_LOST = 0.3  # points of ROUGE


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder, hub id, or oneline.")],
    out: Annotated[Path, Option(help="Write to this folder, replacing an exported model.")],
    check: Annotated[str | None, Option(help="Compare with torch on these records: a file or data folder.")] = None,
    int8: Annotated[bool, Option("--int8", help="Store 8-bit weights: smaller, faster, slightly different.")] = False,
    split: Split = "validation",
    max_records: MaxRecords = None,
    batch_size: BatchSize = 16,
    *,
    reading: ReadingOptions,
    trust_code: TrustCode = False,
) -> None:
    """Write a folder that summarizes without torch: `catchline summarize DIR`.

    It is the model's folder with two ONNX models and their weights.
    """
    from catchline.export.apart import compare, export_apart

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method, which already runs without torch.")
    check_folder(out)
    out = out.expanduser().absolute()  # the working directory may be replaced
    how = reading.options(need_summary=False)
    records = None if check is None else records_of(split_of(check, split), how, max_records)
    export_apart(model, out, int8=int8, trust_code=trust_code)
    size = sum(path.stat().st_size for path in out.iterdir())
    print(f"Wrote {out} ({size / 1e6:.1f} MB).")
    if records is None:
        return
    with progress("Comparing", total=len(records)) as bar:
        found = compare(model, out, records, batch_size=batch_size, progress=bar.advance)
    print("\n".join(lines(found)))


def lines(found: Agreement) -> list[str]:
    """What came out, and the first summaries that differ."""
    head = f"{found.equal} of {found.records} summaries ({found.equal / found.records:.1%}) equal word for word"
    tail = f"scores differ by at most {found.worst_score:.1e}."
    said = [f"{head}; {tail}"]
    if found.different:
        said.append(f"{len(found.different)} differ:")
    for ours, theirs in found.different[:SHOWN]:
        said += [f"  torch  {ours.score:.5f}  {ours.text}", f"  graph  {theirs.score:.5f}  {theirs.text}"]
    if found.scored:
        changes = [(kind, before, found.rouge[1][kind]) for kind, before in found.rouge[0].items()]
        parts = [f"ROUGE-{kind} {before:.2f} -> {after:.2f} ({after - before:+.2f})" for kind, before, after in changes]
        said.append(f"Over {found.scored} with summaries, torch -> graphs: {', '.join(parts)}.")
        if max(before - after for _, before, after in changes) > MOST_LOST:
            said.append(f"The loss is more than {MOST_LOST}; export without --int8 to avoid it.")
    return said


def push(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder.")],
    name: Annotated[str, Argument(metavar="OWNER/NAME", help="The name of the model on the hub.")],
    private: Annotated[bool, Option("--private", help="Make the model private.")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Upload a model folder to the Hugging Face hub. It needs a token: `hf auth login`, or HF_TOKEN.

    Check the folder's README.md first: it becomes the model's page.
    """
    from huggingface_hub import HfApi

    from catchline.models.folder import FILES, HUB_ID, find_folder, uploaded
    from catchline.runtime.folder import ENCODER, MANIFEST, STEP
    from catchline.summarizer import Summarizer

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: there is nothing to upload.")
    if not HUB_ID.fullmatch(name):
        raise ConfigError(f"'{name}' is not a name on the hub; write owner/name.")
    summarizer, folder = Summarizer.from_pretrained(model), find_folder(model)
    if "catchline" not in read_json(folder / "config.json"):  # another's checkpoint is written in our format
        print(summarizer.push_to_hub(name, private=private))
        return

    def send(token: str) -> str:
        api = HfApi(token=token)
        api.create_repo(name, private=private, exist_ok=True)
        return api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=[*FILES, ENCODER, STEP, MANIFEST])

    print(uploaded(name, send))
