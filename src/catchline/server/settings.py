"""The limits of the service, which an operator may set."""

from __future__ import annotations

from pydantic import Field

from catchline.config.base import ConfigBase


class Settings(ConfigBase):
    """Limits and times of the service. Sizes are in bytes, characters or documents as named, times in seconds."""

    max_body_bytes: int = Field(2_000_000, ge=1)
    max_file_bytes: int = Field(20_000_000, ge=1)  # of a PDF or another file
    max_documents: int = Field(64, ge=1)  # of one request
    max_characters: int = Field(200_000, ge=1)  # of one document: some 30,000 words
    max_sentences: int = Field(3_000, ge=1)  # for extractive methods, whose memory grows with their square
    max_beam_size: int = Field(16, ge=1)
    max_summary_tokens: int = Field(512, ge=1)

    max_queue: int = Field(256, ge=1)  # documents waiting
    max_batch: int = Field(16, ge=1)  # documents decoded together
    max_batch_tokens: int = Field(32_768, ge=1)  # documents times the longest of them
    batch_wait: float = Field(0.005, ge=0)  # an idle worker waits this long for more documents

    request_timeout: float = Field(60.0, gt=0)
    reading_timeout: float = Field(10.0, gt=0)  # to read a document of a format other than text
    drain_timeout: float = Field(30.0, gt=0)  # to answer what was accepted before SIGTERM

    max_connections: int = Field(512, ge=1)
    cors_origins: tuple[str, ...] = ()  # origins whose pages may call the service
    allowed_hosts: tuple[str, ...] = ()  # names in the Host header, *.NAME too; empty: any name
