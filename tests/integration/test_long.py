"""Documents beyond the model's limit: central sentences or part after part, with places in the whole document."""

from __future__ import annotations

import json
from pathlib import Path

from catchline import Summarizer
from catchline.explain.record import from_dict, to_dict
from catchline.summarizer.long import parts, selected
from catchline.types import Record
from commands import Capture, refused, run
from tiny_models import DOCUMENTS, save_tiny_model

CENTRAL = "The quick fox jumps over the lazy dog. "
DOCUMENT = (
    f"It was late.\n\nThe dog\n\n{CENTRAL}A small cat sat on the mat.\n\nThe cat\n\n"
    "The quick fox and the lazy dog sat. Late, late, very late, said Ellinghaus.\n\n"
    f"{CENTRAL}The old cat sat on the old mat and it was late."
)


def test_what_is_read(tmp_path: Path) -> None:
    system = Summarizer.from_pretrained(save_tiny_model(tmp_path, max_source_tokens=26)).system
    record, text = Record(DOCUMENT), system.text
    chosen = selected(record, system.tokenizer, text)
    assert len(chosen.ids) <= 26
    assert chosen.total == len(system.tokenizer.encode(DOCUMENT).ids)
    read = [DOCUMENT[start:end] for start, end in chosen.offsets]
    assert [word.lower() for word in read] == list(chosen.tokens)
    assert list(chosen.offsets) == sorted(chosen.offsets)
    pieces = list(parts(record, system.tokenizer, text))
    assert [span for piece in pieces for span in piece.offsets] == list(system.tokenizer.encode(DOCUMENT).offsets)
    assert all(len(piece.ids) <= 26 for piece in pieces)
    assert [piece.tokens[:2] for piece in pieces[1:2]] == [("the", "cat")], "at a heading"


def test_every_door(tmp_path: Path, capsys: Capture) -> None:
    model, file = save_tiny_model(tmp_path / "model", [*DOCUMENTS], max_source_tokens=20), tmp_path / "a.txt"
    file.write_text(DOCUMENT)
    summarizer = Summarizer.from_pretrained(model)
    whole, short = summarizer.summarize([DOCUMENT, DOCUMENTS[0]], long="parts", explain=True)
    assert len(whole.parts) > 1
    assert not short.parts
    for summary in (whole, *whole.parts):
        assert summary.document == DOCUMENT
        assert all(span.text == DOCUMENT[span.start : span.end] for word in summary.words for span in word.sources)
    assert max(span.end for word in whole.parts[-1].words for span in word.sources) > len(DOCUMENT) - 60
    assert from_dict(json.loads(json.dumps(to_dict(whole)))).parts[0].text == whole.parts[0].text
    lines = run(capsys, "summarize", model, file, "--long", "parts").splitlines()
    assert lines == [whole.text, *(part.text for part in whole.parts)]
    assert run(capsys, "summarize", model, file, "--long", "select").strip() == whole.text
    refused(capsys, 2, "'truncate', 'select' or 'parts'", "summarize", model, file, "--long", "half")
    refused(capsys, 2, "has no setting 'long'", "summarize", "lead", file, "--long", "parts")
