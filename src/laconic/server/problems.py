"""What can be wrong with a request: a status, a code for machines and one sentence for people."""

from __future__ import annotations

from collections.abc import Mapping

CODES: dict[str, tuple[int, str]] = {
    "invalid_json": (400, "The body is not JSON."),
    "unauthorized": (401, "The token is missing or wrong."),
    "not_found": (404, "There is nothing at this address."),
    "unknown_model": (404, "There is no model or method of this name."),
    "method_not_allowed": (405, "This address does not answer this method."),
    "body_timeout": (408, "The request took too long to arrive."),
    "body_too_large": (413, "The body is larger than the limit."),
    "document_too_long": (413, "A document is longer than the limit."),
    "unknown_host": (421, "The service does not answer to this name."),
    "unsupported_media_type": (415, "The body is not declared as JSON."),
    "invalid_request": (422, "A field is missing, unknown or of the wrong type."),
    "invalid_option": (422, "An option is unknown, or its value does not fit."),
    "empty_document": (422, "A document has no text, or no request has documents."),
    "too_many_documents": (422, "More documents than the limit."),
    "queue_full": (429, "Too many documents wait already."),
    "internal_error": (500, "An error in the service."),
    "draining": (503, "The service is about to stop."),
    "timeout": (504, "The answer was not ready in time."),
}


class ProblemError(Exception):
    """A request that cannot be answered; ``code`` is one of `CODES`."""

    def __init__(self, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = CODES[code][0]
        self.code = code
        self.message = message
        self.headers = dict(headers or {})
