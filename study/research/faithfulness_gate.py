"""How often the check of faithfulness says the same of the bundled model's lines as that of revision 058ff37d.

    python study/research/faithfulness_gate.py --old CHECKOUT [--data ../shared/data] [--records 300] [--hypotheses 1]

Writes a line for validation abstracts of arXiv and package descriptions of Debian, whatever its confidence, and counts
the lines of which both say that they have an unsupported name, number or date, or both that they have none. With more
hypotheses the others of the beam are checked too, which have more faults.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import zstandard

from catchline import Summarizer
from catchline.metrics.faithfulness import check_support


def documents(data: Path, name: str, count: int) -> list[str]:
    content = (data / name / "validation.jsonl.zst").read_bytes()
    lines = zstandard.ZstdDecompressor().decompressobj().decompress(content).decode("utf-8").splitlines()
    return [json.loads(line)["document"] for line in lines[:count]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--old", type=Path, required=True, help="checkout of 058ff37d, package laconic")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--records", type=int, default=300)
    parser.add_argument("--hypotheses", type=int, default=1)
    options = parser.parse_args()
    sys.path.append(str(options.old / "src"))
    from laconic.metrics.support import check_support as check_before

    model = Summarizer.from_pretrained("oneline")
    counts = {(old, new): 0 for old in (False, True) for new in (False, True)}
    for name in ("arxiv", "debian"):
        texts = documents(options.data, name, options.records)
        for text, made in zip(
            texts, model.summarize(texts, always_write=True, num_return=options.hypotheses), strict=True
        ):
            for line in (made.text, *(other.text for other in made.alternatives)):
                old, new = (bool(check(line, text).unsupported) for check in (check_before, check_support))
                counts[old, new] += 1
                if old != new:
                    print(f"{'flagged before' if old else 'flagged now'}: {line}")
    total = sum(counts.values())
    print(f"{total} lines: both flag {counts[True, True]}, none {counts[False, False]}, ", end="")
    print(f"{(counts[True, True] + counts[False, False]) / total:.2%} agree")


if __name__ == "__main__":
    main()
