"""Keep what a comparison has scored, without weights and without texts.

OUT gets the scores of every document, the logs of the trainings and the table; `catchline compare --earlier OUT` and
`catchline reproduce --earlier OUT` take the rows from there instead of training them again. Several calls with the same
OUT put the rows of several comparisons together.
"""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

from catchline_study.reproduce import ANSWERS


def main(folder: Path, out: Path) -> None:
    """Copy the scored rows of the comparison in ``folder`` into ``out``."""
    (out / "scores").mkdir(parents=True, exist_ok=True)
    kept = out / "state.json"
    state: dict[str, Any] = json.loads(kept.read_text()) if kept.is_file() else {"runs": {}, "scored": {}}
    for key, entry in sorted(json.loads((folder / "state.json").read_text())["scored"].items()):
        scores = json.loads((folder / "scores" / entry["scores"]).read_text())
        scores["samples"] = []
        (out / "scores" / entry["scores"]).write_text(json.dumps(_rounded(scores)))
        facts = {name: value for name, value in entry["facts"].items() if not _is_path(value)}
        state["scored"][key] = entry | {"facts": facts}
        log = kept_log = Path("runs", entry["run"], "log.jsonl")
        if not (folder / log).is_file():
            continue  # a row that this comparison took from an earlier one
        if (out / kept_log).is_file() and (out / kept_log).read_bytes() != (folder / log).read_bytes():
            # the same row on other data
            state["scored"][key]["run"] = name = f"{entry['run']}-{Path(entry['scores']).stem[-16:]}"
            kept_log = Path("runs", name, "log.jsonl")
        (out / kept_log).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(folder / log, out / kept_log)
    kept.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    if (folder / ANSWERS).is_file():
        shutil.copy(folder / ANSWERS, out / ANSWERS)


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, list):
        return [_rounded(each) for each in value]
    return {name: _rounded(each) for name, each in value.items()} if isinstance(value, dict) else value


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and "/" in value


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a comparison's folder")
    parser.add_argument("out", type=Path, help="where the scores go")
    main(**vars(parser.parse_args()))
