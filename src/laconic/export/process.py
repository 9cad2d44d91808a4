"""``python -m laconic.export.process [--int8] SOURCE TARGET [SOURCE TARGET ...]``: what `export_apart` starts."""

from __future__ import annotations

import sys

from laconic.errors import LaconicError
from laconic.export.folder import export_all

if __name__ == "__main__":
    int8 = sys.argv[1] == "--int8"
    places = sys.argv[1 + int8 :]
    try:
        export_all(list(zip(places[::2], places[1::2], strict=True)), int8=int8)
    except LaconicError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
