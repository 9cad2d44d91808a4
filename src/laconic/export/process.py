"""``python -m laconic.export.process SOURCE TARGET [SOURCE TARGET ...]``: what `export_apart` starts."""

from __future__ import annotations

import sys

from laconic.errors import LaconicError
from laconic.export.folder import export_all

if __name__ == "__main__":
    try:
        export_all(list(zip(sys.argv[1::2], sys.argv[2::2], strict=True)))
    except LaconicError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
