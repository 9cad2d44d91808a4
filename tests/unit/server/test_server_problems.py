"""What the service refuses: each with a status, a code and one sentence; and what must not be in its log."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest
from fastapi.testclient import TestClient
from pydantic import ValidationError

from catchline.errors import ConfigError
from catchline.server.app import create_app
from catchline.server.catalogue import Catalogue
from catchline.server.schemas import CODES, HubRequest, Settings, SummarizeRequest
from catchline.summarizer import Summarizer
from tiny_models import DOCUMENTS

JSON = {"Content-Type": "application/json"}
MANY = {f"k{i}": 1 for i in range(51)}
FULL = {f"k{i}\ud800": 0 for i in range(500)}
ADDRESSES = ("/v1/summarize", "/", "/v1/check", "/v1/chat/completions")


def refused(response: Any, status: int, code: str) -> str:
    assert response.status_code == status, response.text
    body = response.json()
    assert body.keys() == {"error", "code", "request_id"}
    assert body["code"] == code
    assert CODES[code][0] == status
    assert body["request_id"] == response.headers["x-request-id"]
    assert body["error"].endswith((".", "'", "?")) or body["error"][-1].isdigit()
    assert "Traceback" not in body["error"]
    return str(body["error"])


def sent(client: TestClient, content: Any, path: str = "/v1/summarize") -> Any:
    return client.post(path, content=content if isinstance(content, bytes) else json.dumps(content), headers=JSON)


@pytest.mark.parametrize("path", ADDRESSES[:2])
def test_what_is_not_json_in_utf8(client: TestClient, path: str) -> None:
    deep = b'{"document": ' + b"[" * 20_000 + b"]" * 20_000 + b"}"
    endless = b'{"document": "a", "options": {"max_length": ' + b"9" * 5000 + b"}}"
    broken = (b"{", b"\xff\xfe\x00", b'{"document": "\xe9"}', b"\x80abc", b"[" * 20_000, b"nonsense", b'{"a": 1}}')
    for body in (*broken, deep, endless):
        refused(sent(client, body, path), 400, "invalid_json")
    said = refused(sent(client, b'{"document": "a\nb"}', path), 400, "invalid_json")
    assert said == "The body is not JSON: Invalid control character at character 15."


@pytest.mark.parametrize(
    "body",
    [
        *(b"", [], "text", None, 3, {}, {"document": 5}, {"document": None}, {"document": "a", "documents": ["b"]}),
        *({"documents": "text"}, {"documents": {"a": 1}}, {"documents": ["a", "b"], "stream": True}),
        *({"document": "a", name: value} for name in ("explain", "stream") for value in ("yes", 1)),
        *({"document": "a", "format": value} for value in ("html", None)),
        *({"document": "a", "options": []}, {"document": "a", "model": 5}),
    ],
    ids=str,
)
def test_wrong_shapes_and_types(client: TestClient, body: Any) -> None:
    refused(sent(client, body), 422, "invalid_request")


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/summarize", {"text": "a"}, "Unknown field text."),
        ("/v1/summarize", {"document": "a", "explian": True}, "Unknown field explian. Did you mean 'explain'?"),
        ("/", {"inputs": "a", "parameter": {}}, "parameter. Did you mean 'parameters'?"),
        ("/v1/summarize", {"documents": ["a", {"documen": "b"}]}, "documents.1.document: field required"),
        ("/v1/summarize", {"documents": [{"document": "b", "ids": "5"}]}, "documents.0.ids. Did you mean 'id'"),
        ("/v1/summarize", {"documents": [{"document": "b", "id": 5}]}, "documents.0.id: input should be a valid s"),
        ("/v1/summarize", {"documents": [5]}, "documents.0: input should be a valid dictionary"),
        ("/v1/check", {"summary": "a", "text": "b"}, "document: field required."),
        ("/", {"inputs": 5}, "inputs: input should be a valid list"),
        ("/", {"inputs": ["a", 5]}, "inputs.1: input should be a valid string"),
        ("/v1/summarize", {"document": "a"} | MANY, "The body: give at most 50 fields."),
        ("/v1/summarize", {"document": "a", "options": MANY}, "options: give at most 50 fields."),
    ],
    ids=range(12),
)
def test_what_is_wrong_with_a_field_is_said(client: TestClient, path: str, body: Any, said: str) -> None:
    assert said.lower() in refused(sent(client, body, path), 422, "invalid_request").lower()


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"beam_sise": 2}, "beam_size"),
        *(({"beam_size": value}, "beam_size") for value in (0, 5, 2.5, "4", [1], None, True)),
        *(({"max_length": value}, "max_length") for value in (21, 10**18)),
        ({"num_return": 4, "beam_size": 2}, "num_return"),
        ({"min_length": 9, "max_length": 5}, "min_length"),
        ({"length_normalisation": "other"}, "length_normalisation"),
        ({"length_alpha": 1e300}, "length_alpha"),
        ({"stream": True, "beam_size": 2}, "greedy"),
        *(({name: "/etc/passwd"}, f"'{name}'") for name in ("scorers", "model")),  # of this machine, not for clients
        *(({"of": "lexrank", name: "/etc/passwd"}, name) for name in ("stop_words", "stemmer", "scorers", "model")),
    ],
    ids=str,
)
def test_options_that_do_not_fit(client: TestClient, options: dict[str, Any], named: str) -> None:
    asked = dict(options)
    body = {"document": "a b.", "model": asked.pop("of", "tiny"), "stream": asked.pop("stream", False)}
    assert named in refused(sent(client, body | {"options": asked}), 422, "invalid_option")


@pytest.mark.parametrize(
    "body",
    [
        *({"documents": [0] * 500}, {"documents": [{}] * 500}, {"inputs": [0] * 500}),
        *({"document": "a"} | FULL, {"inputs": "a", "options": FULL}, {"inputs": "a", "parameters": FULL}),
    ],
    ids=lambda body: str(body)[:40],
)
def test_a_body_full_of_mistakes_gives_one_error(body: dict[str, Any]) -> None:
    with pytest.raises(ValidationError) as caught:
        (HubRequest if "inputs" in body else SummarizeRequest).model_validate(body)
    assert caught.value.error_count() <= 3


def test_documents_without_text(client: TestClient) -> None:
    comment = {"document": "<!-- Nothing. -->", "format": "markdown"}
    refused(sent(client, {"summary": " ", "document": "a"}, "/v1/check"), 422, "empty_document")
    for body in ({"document": ""}, {"document": " \n\t"}, {"documents": ["a", ""]}, comment, {"inputs": ["", "a"]}):
        refused(sent(client, body, "/" if "inputs" in body else "/v1/summarize"), 422, "empty_document")
    for path, none in (("/", "inputs"), ("/v1/summarize", "documents")):
        message = refused(sent(client, {none: []}, path), 422, "empty_document")
        assert message == "The list of documents is empty; give at least one text."
    found = sent(client, {"documents": [DOCUMENTS[0], DOCUMENTS[1], "\u200b"]})
    assert "3" in refused(found, 422, "empty_document"), "only the tokenizer knows that there is no token"


def test_sizes(client: TestClient, settings: Settings) -> None:
    long = {"documents": ["a", "b" * (settings.max_characters + 1)]}
    assert "Document 2 has 2,001" in refused(sent(client, long), 413, "document_too_long")
    for sentence in ("Go on. ", "\u4eca\u5929\u597d\u3002", '"He ran." ', "\u092f\u0939 \u0939\u0948\u0964 "):
        short = {"document": sentence * 150, "model": "lead"}
        assert "150 sentences" in refused(sent(client, short), 413, "document_too_long")
    assert sent(client, {"document": "It is " + "0.5 " * 200, "model": "lead"}).status_code == 200
    refused(sent(client, {"summary": "a", "document": "a " * 1500}, "/v1/check"), 413, "document_too_long")
    refused(sent(client, {"documents": ["a"] * (settings.max_documents + 1)}), 422, "too_many_documents")
    refused(sent(client, b"x" * (settings.max_body_bytes + 1)), 413, "body_too_large")
    chunks = client.post("/v1/summarize", content=(b"x" * 10_000 for _ in range(8)), headers=JSON)
    refused(chunks, 413, "body_too_large")


def test_addresses_methods_and_media_types(client: TestClient) -> None:
    refused(client.get("/nothing"), 404, "not_found")
    refused(client.get("/v1/summarize"), 405, "method_not_allowed")
    allowed = {"/v1/summarize": "POST", "/v1/models": "GET"}
    assert {place: client.delete(place).headers["Allow"] for place in allowed} == allowed
    assert [client.head(place).status_code for place in ("/health", "/", "/v1/summarize")] == [200, 200, 405]
    for path in ADDRESSES[:3]:  # a page of another site may send a form without asking
        refused(client.post(path, content=b'{"document": "a"}'), 415, "unsupported_media_type")
        refused(client.post(path, data={"document": "a"}), 415, "unsupported_media_type")
        refused(client.post(path), 422, "invalid_request")
    assert client.post("/nothing", data={"document": "a"}).status_code == 404
    assert "lexrank" in refused(sent(client, {"document": "a", "model": "lexrnk"}), 404, "unknown_model")
    refused(sent(client, {"document": "a", "model": "oracle"}), 404, "unknown_model")


def test_half_characters_become_the_replacement_character(client: TestClient) -> None:
    body = rb'{"model": "lead", "explain": true, "documents": [{"id": "\udc00", "document": "a \ud800 b."}]}'
    record = sent(client, body).json()["summaries"][0]
    assert (record["id"], record["document"], record["summary"]) == ("\ufffd", "a \ufffd b.", "a \ufffd b.")
    refused(sent(client, rb'{"document": "a", "model": "\ud800"}'), 404, "unknown_model")
    refused(sent(client, rb'{"document": "a", "options": {"\ud800": 1}}'), 422, "invalid_option")
    refused(sent(client, rb'{"document": "a", "\ud800": 1}'), 422, "invalid_request")


# ----------------------------------------------------------------------------------------------- token


def test_the_token_is_asked_for_where_there_is_work(summarizer: Summarizer) -> None:
    body = {"document": DOCUMENTS[0], "model": "lead"}
    wrong = ("Bearer wrong", "Bearer s3cret-token2", "Bearer", "Basic s3cret-token", "s3cret-token", b"Bearer \xff\xfe")
    with TestClient(create_app({"tiny": summarizer}, token="s3cret-token")) as guarded:
        for headers in ({}, *({"Authorization": given} for given in wrong)):
            response = guarded.post("/v1/summarize", json=body, headers=headers)
            refused(response, 401, "unauthorized")
            assert response.headers["www-authenticate"].startswith("Bearer")
        for path in ("/v1/models", "/metrics"):
            refused(guarded.get(path), 401, "unauthorized")
        refused(guarded.post("/", json={"inputs": "a"}), 401, "unauthorized")
        refused(guarded.post("/v1/summarize", content=b"x" * 3_000_000), 401, "unauthorized")
        assert [guarded.get(path).status_code for path in ("/", "/health", "/openapi.json")] == [200] * 3
        for scheme in ("Bearer", "bearer"):
            given = {"Authorization": f"{scheme} s3cret-token"}
            assert guarded.post("/v1/summarize", json=body, headers=given).status_code == 200
            assert guarded.get("/metrics", headers=given).status_code == 200


# ------------------------------------------------------------------------------------ headers and the log


def test_every_answer_has_an_id_and_the_headers(client: TestClient) -> None:
    for path in ("/v1/models", "/nothing", "/", "/metrics"):
        headers = client.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert len(headers["x-request-id"]) >= 16
    for given in ("job-17:a.b_c", "has space", "x" * 129, "a\tb", "ü"):
        made = client.get("/health", headers={"X-Request-ID": given.encode()}).headers["x-request-id"]
        assert (made == given) is (given == "job-17:a.b_c")


def test_a_line_of_log_names_the_work_but_never_the_text(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("catchline.access").propagate = True
    body = {"documents": ["Zebratown sees Xanadu ."], "model": "lead"}
    with caplog.at_level(logging.INFO):
        response = client.post("/v1/summarize", json=body, headers={"X-Request-ID": "abc"})
        client.post("/v1/summarize", json={**body, "documents": ["\u200b"], "model": "tiny", "stream": True})
        client.post("/v1/summarize?document=Xanadu", json={"document": 5})
        client.get("/Xanadu")
        client.post("/v1/summarize", json={"document": "a", "model": "Xanadu", "options": {"Xanadu": 1}})
    lines = [json.loads(record.message) for record in caplog.records if record.name == "catchline.access"]
    first, *failed = lines
    assert (first["id"], first["status"], first["path"]) == ("abc", 200, "/v1/summarize")
    assert (first["model"], first["documents"], first["method"]) == ("lead", 1, "POST")
    assert first["bytes_out"] == len(response.content)
    assert {"time", "client", "ms", "queue_ms"} <= first.keys()
    codes = ["empty_document", "invalid_request", "not_found", "unknown_model"]
    assert ([line.get("code") for line in failed], failed[0]["status"]) == (codes, 200)
    assert "Zebratown" not in caplog.text
    assert all("Xanadu" not in json.dumps(line) for line in lines if line.get("code") != "not_found")


def test_a_bug_is_a_500_with_an_id_and_the_service_goes_on(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("catchline.server.service.or_extract", None)  # which is called
        response = client.post("/v1/summarize", json={"document": DOCUMENTS[0]})
    assert "NoneType" not in refused(response, 500, "internal_error")
    assert any(record.exc_info for record in caplog.records)
    assert client.post("/v1/summarize", json={"document": DOCUMENTS[0]}).status_code == 200


def test_methods_that_cannot_be_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="at least one"):
        Catalogue({}, Settings())
    monkeypatch.setitem(sys.modules, "scipy", None)  # its package is missing
    names = {served.name for served in Catalogue({"lead": Summarizer.from_pretrained("lead")}, Settings())}
    assert "lexrank" in names
    assert "concept_ilp" not in names
