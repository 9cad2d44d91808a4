"""``catchline serve``: summaries over HTTP, and a page to try them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from catchline.cli.io import say, text_of
from catchline.cli.options import Device, TrustCode
from catchline.config.loading import parse_overrides
from catchline.config.names import DEFAULT
from catchline.errors import ConfigError
from catchline.jobs import limit_threads

TOKEN_VARIABLE = "CATCHLINE_TOKEN"


def command(
    models: Annotated[
        list[str] | None,
        Argument(
            metavar="[MODEL...]",
            help="Model or run folders, hub ids or extractive methods; NAME=MODEL. The bundled model (oneline) if "
            "left out.",
        ),
    ] = None,
    port: Annotated[int, Option(min=0, max=65535, help="Listen at this port (0: any free port).")] = 8000,
    host: Annotated[str, Option(help="Listen at this address (0.0.0.0: all addresses).")] = "127.0.0.1",
    token_file: Annotated[Path | None, Option(help=f"Require the token in this file (or ${TOKEN_VARIABLE}).")] = None,
    device: Device = "cpu",
    trust_code: TrustCode = False,
    threads: Annotated[int | None, Option(min=1, help="Threads per batch (default: one per core).")] = None,
    allowed_host: Annotated[list[str] | None, Option(help="Accept this name in the Host header.")] = None,
    setting: Annotated[
        list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a limit: max_batch=8, request_timeout=20.")
    ] = None,
) -> None:
    """Serve trained models and extractive methods over HTTP, with a page at the root address.

    POST /v1/summarize with {"document": "..."}; GET /openapi.json describes everything. A line of JSON is
    written to stdout for each request. SIGTERM and Ctrl-C finish what was accepted.
    """
    from catchline.config.base import validate
    from catchline.server.app import create_app
    from catchline.server.catalogue import open_models
    from catchline.server.run import is_loopback, serve, trusted_names
    from catchline.server.schemas import Settings

    token = read_token(token_file)
    settings = validate(Settings, parse_overrides(setting or []), where="")
    names = trusted_names(host, token, [*(allowed_host or []), *settings.allowed_hosts])
    settings = settings.model_copy(update={"allowed_hosts": names})
    if token is None and not is_loopback(host):
        say("anybody who reaches this address can use the service; require a token with --token-file.")
    if threads is not None:
        limit_threads(threads)  # before a model is opened, and libraries with it
    opened = open_models(models or [DEFAULT], device)
    serve(create_app(opened, settings, token=token), host, port)


def read_token(path: Path | None) -> str | None:
    """The token of the file, or of the environment; ``None`` when there is neither."""
    if path is None and TOKEN_VARIABLE not in os.environ:
        return None
    token = (os.environ[TOKEN_VARIABLE] if path is None else text_of(str(path))).strip()
    if any(not 33 <= ord(character) <= 126 for character in token) or not token:
        where = f"${TOKEN_VARIABLE}" if path is None else path
        raise ConfigError(f"{where} has no usable token; make one with: openssl rand -hex 32")
    return token
