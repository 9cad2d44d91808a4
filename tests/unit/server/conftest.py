"""One application over a tiny model for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from catchline.server.app import create_app
from catchline.server.schemas import Settings
from catchline.summarizer import Summarizer
from tiny_models import save_tiny_model


@pytest.fixture(scope="session")
def summarizer(tmp_path_factory: pytest.TempPathFactory) -> Summarizer:
    folder: Path = save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")
    return Summarizer.from_pretrained(folder)


@pytest.fixture(scope="session")
def settings() -> Settings:
    return Settings(
        max_characters=2000,
        max_documents=5,
        max_beam_size=4,
        max_summary_tokens=20,
        max_body_bytes=50_000,
        max_sentences=100,
    )


@pytest.fixture(scope="session")
def client(summarizer: Summarizer, settings: Settings) -> Iterator[TestClient]:
    with TestClient(create_app({"tiny": summarizer}, settings), raise_server_exceptions=False) as client:
        yield client
