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
        scores = json.loads((folder / "scores" / entry["scores"]).read_text(), parse_float=lambda x: round(float(x), 6))
        (out / "scores" / entry["scores"]).write_text(json.dumps(scores))
        facts = {name: value for name, value in (entry["facts"] or {}).items() if "folder" not in name}
        run = f"{entry['run']}-{Path(entry['scores']).stem[-16:]}"  # the same row may be there on other data
        state["scored"][key] = entry | {"facts": facts, "run": run}
        log = Path("runs", entry["run"], "log.jsonl")
        if (folder / log).is_file():  # else the comparison took the row from an earlier one
            (out / "runs" / run).mkdir(parents=True, exist_ok=True)
            shutil.copy(folder / log, out / "runs" / run / log.name)
    kept.write_text(json.dumps(state, indent=1, sort_keys=True) + "\n")
    if (folder / ANSWERS).is_file():
        shutil.copy(folder / ANSWERS, out / ANSWERS)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="a comparison's folder")
    parser.add_argument("out", type=Path, help="where the scores go")
    main(**vars(parser.parse_args()))
