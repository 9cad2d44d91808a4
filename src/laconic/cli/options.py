"""Options that several commands have."""

from __future__ import annotations

from typing import Annotated

import typer

from laconic.config.trust import trusting


def _trust(context: typer.Context, given: bool) -> bool:
    context.with_resource(trusting(given))  # until the command ends
    return given


TrustCode = Annotated[
    bool,
    typer.Option(
        "--trust-code", callback=_trust, help="Run Python classes that the opened folders name; they can do anything."
    ),
]
