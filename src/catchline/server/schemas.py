"""The bodies of requests and answers, which are the OpenAPI document, and what can be wrong with a request."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    Discriminator,
    Field,
    GetPydanticSchema,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)
from pydantic_core import PydanticCustomError

from catchline.errors import did_you_mean
from catchline.text.normalization import encodable
from catchline.types import Chunk, SummaryWord


def _few(value: Any) -> Any:
    """Refuse a mapping that is too large before an error is made of each of its fields."""
    if isinstance(value, Mapping) and len(value) > MOST_FIELDS:
        raise PydanticCustomError("too_many_fields", "give at most {most} fields", {"most": MOST_FIELDS})
    return value


MOST_FIELDS = 50
FIRST_ERROR = GetPydanticSchema(lambda kind, schema: {**schema(kind), "fail_fast": True})  # `FailFast` has no hash
# JSON can hold half characters, UTF-8 cannot
Text = Annotated[StrictStr, BeforeValidator(lambda value: encodable(value) if isinstance(value, str) else value)]
Options = Annotated[dict[Text, StrictBool | StrictInt | StrictFloat | Text], BeforeValidator(_few)]
Format = Literal["text", "markdown", "auto"]
Kind = Literal["markdown", "page", "mail", "subtitles"]
Mixed = Annotated[dict[str, Any], BeforeValidator(_few)]

TEXT = (
    "The river rose two metres in a night. Rescue crews from Ludlow carried forty people out of their houses. "
    "Schools stay closed until Thursday, the council said."
)
SEVERAL: Any = {"model": "lexrank", "documents": [TEXT], "options": {"sentences": 1}, "explain": True}
TEXT_NAMES = {"text", "texts", "content", "body", "article", "input", "inputs", "source", "prompt"}


class _Body(BaseModel, extra="forbid", protected_namespaces=(), allow_inf_nan=False):
    _few_fields = model_validator(mode="before")(_few)


# ------------------------------------------------------------------------------------------- requests


class Document(_Body):
    """A document with its own name, which its summary carries too."""

    document: Text = Field(description="The text.")
    id: Text = Field("", max_length=200)


# Distinguished by their JSON kind, so that an error is about the kind that was given.
TextOrDocument = Annotated[
    Annotated[Text, Tag("(text)")] | Annotated[Document, Tag("(object)")],
    Discriminator(lambda value: "(object)" if isinstance(value, Mapping) else "(text)"),
]
Documents = Annotated[list[TextOrDocument], FIRST_ERROR]
TextOrTexts = Annotated[
    Annotated[Text, Tag("(text)")] | Annotated[list[Text], FIRST_ERROR, Tag("(list)")],
    Discriminator(lambda value: "(list)" if isinstance(value, list) else "(text)"),
]
TAGS = frozenset(("(text)", "(object)", "(list)"))


class SummarizeRequest(_Body, json_schema_extra={"examples": [{"document": TEXT}, SEVERAL]}):
    """Give ``document`` or ``documents``."""

    document: Text | None = Field(None, description="One text.")
    documents: Documents | None = Field(None, description="Several texts, with or without an id.")
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
    stream: StrictBool = Field(False, description="Answer with server-sent events, as `POST /v1/summarize/stream`.")


class CheckRequest(_Body, json_schema_extra={"examples": [{"summary": "Ludlow loses 40 houses.", "document": TEXT}]}):
    """A summary, by whomever, and the document that it should agree with."""

    summary: Text
    document: Text


class HubRequest(_Body, json_schema_extra={"examples": [{"inputs": TEXT, "parameters": {"max_length": 20}}]}):
    """The body of a summarization task on the Hugging Face hub; its `options` (`wait_for_model`) are ignored."""

    inputs: TextOrTexts
    parameters: Mixed | None = Field(None, description="Names as in transformers; the service does not sample.")
    options: Mixed | None = None


def unknown_field(where: str, body: Any, unknown: Collection[str]) -> str:
    """A sentence on the field ``where`` (dotted), one of the ``unknown``, with what was probably meant."""
    place, _, name = where.rpartition(".")
    hub = isinstance(body, Mapping) and "inputs" in body and "inputs" not in unknown
    checks = isinstance(body, Mapping) and "summary" in body
    request = HubRequest if hub else CheckRequest if checks else SummarizeRequest
    fields = (Document if place else request).model_fields
    if not place and not hub and name.lower() in TEXT_NAMES:
        return f"Unknown field {where}; the text goes into document (or documents)."
    return f"Unknown field {where}.{did_you_mean(name, fields)} Known: {', '.join(fields)}."


# -------------------------------------------------------------------------------------------- answers


Places = Annotated[list[int], Field(min_length=2, max_length=2)]


class ClaimRecord(BaseModel):
    """A number, date (or time), name, or other content word of the summary, `summary[start:end]`; one that the document
    has, at `document[source[0]:source[1]]`."""

    kind: Literal["number", "date", "name", "word"]
    text: str
    start: int
    end: int
    source: Places | None = None


class Support(BaseModel):
    """What was compared with the document, and what it lacks. A hint for a reader, not a verdict."""

    checked: dict[str, int]
    unsupported: list[ClaimRecord] = Field(description="Numbers, dates and names that the document does not have.")
    new_words: list[ClaimRecord] = Field(description="Other content words that it has in no form.")
    supported: list[ClaimRecord]
    rate: float | None = Field(description="The share of numbers, dates and names that are supported.")


class Alternative(BaseModel):
    """Another hypothesis of the beam."""

    id: str
    summary: str
    model: str
    score: float
    log_prob: float
    tokens_read: int
    tokens_given: int
    truncated: bool
    finished: bool
    terms: dict[str, float] | None = None
    reading: dict[str, float] | None = Field(None, description="Of models that read in chunks: how much was read.")
    confidence: float | None = Field(None, description="The chance that a reader accepts the words, where known.")
    out_of_domain: str | None = Field(None, description="Why the model does not know this kind of document.")
    facts: dict[str, float] | None = Field(None, description="What confidence was computed from.")
    words: list[SummaryWord] | None = None
    support: Support | None = None


class SummaryRecord(Alternative):
    """A summary. `words`, `support` and `document` are there with `explain`, `alternatives` with `num_return`; `format`
    and `document` where the document was not taken as it is. Places in texts count Unicode characters (code points),
    not bytes and not UTF-16 units."""

    source_offsets: list[Places] | None = None
    chunks: list[Chunk] | None = None
    extracted: str | None = Field(None, description="Why `summary` is the document's; `alternatives` has the model's.")
    read_to: int | None = Field(None, description="Where the part of the document ends that the model was given.")
    format: Kind | None = Field(None, description="As what the document was read, if not as it is.")
    document: str | None = Field(None, description="The text that was summarized; places in the document count in it.")
    alternatives: list[Alternative] | None = None


class SummarizeResponse(BaseModel):
    """The summaries in the order of the documents."""

    model: str
    options: dict[str, Any] = Field(description="The decoding, or the method's settings, that was used.")
    summaries: list[SummaryRecord]
    timing: dict[str, float] = Field(description="Milliseconds: `queue_ms` for the worker, `total_ms` in all.")
    request_id: str


class OptionInfo(BaseModel):
    """What an option may be."""

    type: Literal["integer", "number", "boolean", "string"]
    default: bool | int | float | str | None
    minimum: int | float | None = None
    maximum: int | float | None = None
    choices: list[bool | str] | None = None


class ModelInfo(BaseModel):
    """A trained model, or an extractive method."""

    name: str
    kind: Literal["neural", "extractive"]
    family: str = Field(description="The kind of model (`seq2seq`, `bart`, ...), or the method's name.")
    in_short: str = Field(description="What it does, one sentence for people who do not know it.")
    copies: bool = Field(description="Can it copy words that its vocabulary lacks?")
    streams: bool = Field(description="Does `stream` give it word by word?")
    default: bool = Field(description="Is it used when a request names none?")
    parameters: int | None = Field(description="Number of weights.")
    max_source_tokens: int | None = Field(description="Longer documents are cut there.")
    max_summary_tokens: int | None
    options: dict[str, OptionInfo]


class OpenAIModel(BaseModel):
    """A model as OpenAI lists it."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "catchline"


class ModelList(BaseModel):
    """What this service can use; ``object`` and ``data`` are OpenAI's shape of the same list."""

    version: str
    models: list[ModelInfo]
    limits: dict[str, float] = Field(description="Limits of the service, as `catchline serve --set` names them.")
    object: Literal["list"] = "list"
    data: list[OpenAIModel] = []


class Health(BaseModel):
    """Alive, or ready for work."""

    status: Literal["ok", "ready", "broken"]


# -------------------------------------------------------------------------------------------- errors


CODES: dict[str, tuple[int, str]] = {
    "invalid_http": (400, "This is not a request in HTTP/1.1."),
    "invalid_json": (400, "The body is not JSON."),
    "unauthorized": (401, "The token is missing or wrong."),
    "not_found": (404, "There is nothing at this address."),
    "unknown_model": (404, "There is no model or method of this name."),
    "method_not_allowed": (405, "This address does not answer this method."),
    "body_too_large": (413, "The body is larger than the limit."),
    "document_too_long": (413, "A document is longer than the limit."),
    "unknown_host": (421, "The service does not answer to this name."),
    "unsupported_media_type": (415, "The body is not declared as JSON."),
    "invalid_request": (422, "A field is missing, unknown or of the wrong type."),
    "invalid_option": (422, "An option is unknown, or its value does not fit."),
    "empty_document": (422, "A document has no text, or the request has no documents."),
    "too_many_documents": (422, "More documents than the limit."),
    "queue_full": (429, "Too many documents wait already."),
    "internal_error": (500, "An error in the service."),
    "stopping": (503, "The service stops."),
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

    def body(self, request_id: str) -> dict[str, str]:
        """The fields of an `ErrorBody`."""
        return {"error": self.message, "code": self.code, "request_id": request_id}


class ErrorBody(BaseModel):
    """What every error looks like."""

    error: str = Field(description="One sentence.", examples=["Document 2 is empty; there is nothing to summarize."])
    code: str = Field(description="For programs; it does not change.", examples=["empty_document"])
    request_id: str = Field(examples=["6f9c1e"])
