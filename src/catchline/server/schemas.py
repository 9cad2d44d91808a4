"""The limits of the service, which an operator may set; the bodies of requests, which the OpenAPI document describes;
and what can be wrong with a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, GetPydanticSchema, StrictBool, StrictStr, model_validator
from pydantic_core import PydanticCustomError

from catchline.config.base import ConfigBase
from catchline.text.normalization import encodable


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


def _few(value: Any) -> Any:
    """Refuse a mapping that is too large before an error is made of each of its fields."""
    if isinstance(value, Mapping) and len(value) > MOST_FIELDS:
        raise PydanticCustomError("too_many_fields", "give at most {most} fields", {"most": MOST_FIELDS})
    return value


def _as_document(value: Any) -> Any:
    return {"document": value} if isinstance(value, str) else value


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


MOST_FIELDS = 50
FIRST_ERROR = GetPydanticSchema(lambda kind, schema: {**schema(kind), "fail_fast": True})  # `FailFast` has no hash
# JSON can hold half characters, UTF-8 cannot
Text = Annotated[StrictStr, BeforeValidator(lambda value: encodable(value) if isinstance(value, str) else value)]
Options = Annotated[dict[Text, Any], BeforeValidator(_few)]
Format = Literal["text", "markdown", "auto"]
TEXT = (
    "The river rose two metres in a night. Rescue crews from Ludlow carried forty people out of their houses. "
    "Schools stay closed until Thursday, the council said."
)
SEVERAL: Any = {"model": "lexrank", "documents": [TEXT], "options": {"sentences": 1}, "explain": True}


class _Body(BaseModel, extra="forbid", protected_namespaces=(), allow_inf_nan=False):
    _few_fields = model_validator(mode="before")(_few)


class Document(_Body):
    """A document with its own name, which its summary carries too."""

    document: Text = Field(description="The text.")
    id: Text = Field("", max_length=200)


class SummarizeRequest(_Body, json_schema_extra={"examples": [{"document": TEXT}, SEVERAL]}):
    """Give ``document`` or ``documents``."""

    document: Text | None = Field(None, description="One text.")
    documents: (
        Annotated[
            list[Annotated[Document, BeforeValidator(_as_document, json_schema_input_type=str | Document)]], FIRST_ERROR
        ]
        | None
    ) = Field(None, description="Several texts, with or without an id.")
    model: Text | None = Field(None, description="A name from `GET /v1/models`, or their first.", max_length=200)
    options: Options = Field(
        default_factory=dict,
        description="Of decoding, or settings of an extractive method: see `GET /v1/models`.",
        json_schema_extra={"maxProperties": MOST_FIELDS},
    )
    format: Format = Field("text", description="`markdown`: only what its sentences say; `auto`: as it looks.")
    explain: StrictBool = Field(False, description="Say where each word came from, and what the text does not support.")
    attention: StrictBool = Field(False, description="With `explain`: the attention of each word over the source.")
    always_write: StrictBool = Field(False, description="Give what the model wrote, also where it is not sure of it.")
    stream: StrictBool = Field(False, description="Answer with server-sent events: start, text, summary or error.")


class CheckRequest(_Body, json_schema_extra={"examples": [{"summary": "Ludlow loses 40 houses.", "document": TEXT}]}):
    """A summary, by whomever, and the document that it should agree with."""

    summary: Text
    document: Text


class HubRequest(_Body, json_schema_extra={"examples": [{"inputs": TEXT, "parameters": {"max_length": 20}}]}):
    """The body of a summarization task on the Hugging Face hub; its `options` (`wait_for_model`) are ignored."""

    inputs: Annotated[list[Text], FIRST_ERROR, BeforeValidator(_as_list, json_schema_input_type=str | list[str])]
    parameters: Options | None = Field(None, description="Names as in transformers; the service does not sample.")
    options: Options | None = None


CODES: dict[str, tuple[int, str]] = {
    "invalid_http": (400, "This is not a request in HTTP/1.1."),
    "invalid_json": (400, "The body is not JSON in UTF-8, or it is nested too deeply, or holds an endless number."),
    "unauthorized": (401, "This service needs a token: send the header Authorization: Bearer TOKEN."),
    "not_found": (404, "There is nothing at this address; GET /openapi.json lists all."),
    "unknown_model": (404, "There is no model or method of this name."),
    "method_not_allowed": (405, "This address does not answer this method."),
    "body_too_large": (413, "The body is larger than the limit; GET /v1/models lists the limits."),
    "document_too_long": (413, "A document is longer than the limit."),
    "unsupported_media_type": (415, "Send JSON, with the header Content-Type: application/json."),
    "unknown_host": (421, "This service does not accept this host name; start it with --allowed-host NAME."),
    "invalid_request": (422, "A field is missing, unknown or of the wrong type."),
    "unreadable_file": (422, "The file holds no text that can be read."),
    "invalid_option": (422, "An option is unknown, or its value does not fit."),
    "empty_document": (422, "A document has no text, or the request has no documents."),
    "too_many_documents": (422, "The request has more documents than the limit."),
    "queue_full": (429, "Too many documents wait already; try again later."),
    "client_gone": (499, "The client left before the answer was ready."),
    "internal_error": (500, "The service failed; its log has the details."),
    "unavailable": (503, "The model does not answer; the log of the service has the details."),
    "stopping": (503, "The service stopped before the answer was ready; try another instance."),
    "timeout": (504, "The answer was not ready in time."),
}


class ProblemError(Exception):
    """A request that cannot be answered; ``code`` is one of `CODES`, whose sentence is the message if none is given."""

    def __init__(self, code: str, message: str = "", headers: Mapping[str, str] | None = None) -> None:
        self.code, self.headers = code, dict(headers or {})
        self.status, usual = CODES[code]
        self.message = message or usual
        super().__init__(code, message, headers)  # the arguments, so that it can be pickled

    def __str__(self) -> str:
        return self.message


class ErrorBody(BaseModel):
    """What every error looks like."""

    error: str = Field(description="One sentence.", examples=["Document 2 is empty; there is nothing to summarize."])
    code: str = Field(description="For programs; it does not change.", examples=["empty_document"])
    request_id: str = Field(examples=["6f9c1e"])
