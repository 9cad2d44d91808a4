"""Requests made from the OpenAPI document, valid and not: never a 5xx, and always what the document says."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.python import asgi
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from catchline.server.app import create_app
from catchline.server.schemas import Settings
from catchline.summarizer import Summarizer

EXAMPLES, MANY = 10, 834  # of each address that takes a body, valid and not: 80 cases, and 6,700
CHECKS = [
    *(schemathesis.checks.not_a_server_error, status_code_conformance),
    *(content_type_conformance, response_schema_conformance),
]
MODES = (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
ADDRESSES = ["/v1/summarize", "/v1/chat/completions", "/v1/check", "/"]
ASKED = [
    *(("POST", path, mode) for path in ADDRESSES for mode in MODES),
    *(("GET", path, MODES[0]) for path in ("/v1/models", "/health", "/metrics")),
]


@pytest.fixture(scope="module")
def served(summarizer: Summarizer) -> Iterator[tuple[Any, Any]]:
    small = Settings(max_characters=300, max_documents=5, max_beam_size=4, max_summary_tokens=12)
    app = create_app({"tiny": summarizer}, small)
    with asgi.get_client(app) as client:
        yield schemathesis.openapi.from_asgi("/openapi.json", app), client


@pytest.mark.parametrize(("method", "path", "mode"), ASKED)
@pytest.mark.parametrize("examples", [EXAMPLES, pytest.param(MANY, marks=pytest.mark.slow)])
def test_no_request_breaks_the_service(
    served: tuple[Any, Any], method: str, path: str, mode: GenerationMode, examples: int
) -> None:
    schema, client = served
    seen: set[int] = set()

    @given(case=schema[path][method].as_strategy(generation_mode=mode))
    @settings(
        max_examples=examples if method == "POST" else 3,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    def check(case: Any) -> None:
        seen.add(case.call_and_validate(session=client, checks=CHECKS).status_code)

    check()
    assert seen
    assert max(seen) < 500
