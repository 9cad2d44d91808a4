"""What the service answers: summaries, explanations, streams, the hub's task, descriptions."""

from __future__ import annotations

import json
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from fastapi.testclient import TestClient

from catchline.explain.record import from_dict, support_to_dict
from catchline.metrics.confidence import Calibration
from catchline.metrics.faithfulness import check_support
from catchline.server import service
from catchline.server.app import create_app
from catchline.server.schemas import Settings
from catchline.summarizer import Summarizer
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.types import Record
from office_files import html, ipynb, pdf
from samples import PLAIN
from tiny_models import DOCUMENTS, save_tiny_model
from watching import watch

BELOW = "https://example.org/tools/summaries/"


def post(client: TestClient, path: str = "/v1/summarize", **body: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


# ------------------------------------------------------------------------------------------- summaries


def test_the_text_of_a_file(client: TestClient) -> None:
    answer = post_file(client, "a.html", html())
    assert answer.status_code == 200, answer.text
    assert "in the night." in answer.json()["document"]
    assert answer.json()["format"] == "page"
    assert post_file(client, "a.pdf", pdf()).json()["format"] == "pdf"


def post_file(client: TestClient, name: str, raw: bytes) -> Any:
    return client.post(f"/v1/read?name={name}", content=raw, headers={"Content-Type": "application/octet-stream"})


def test_files_that_cannot_be_read(summarizer: Summarizer) -> None:
    app = create_app({"tiny": summarizer}, Settings(max_body_bytes=1000, max_file_bytes=50_000, max_characters=60))
    with TestClient(app) as client:
        for name, raw, code, said in (
            ("a.pdf", pdf(scanned=True), "unreadable_file", "may be scanned"),
            ("a.pdf", b"%PDF-1.4 half", "unreadable_file", "a.pdf"),
            ("a.xlsx", b"PK\x03\x04", "unreadable_file", "a spreadsheet: save it as CSV"),
            ("a.txt", b"\xff\x00", "unreadable_file", "not UTF-8"),
            ("a.ipynb", ipynb() + b" " * 60_000, "body_too_large", "limit"),
            ("a.pdf", pdf(3), "document_too_long", "The file has"),
            ("a.txt", b"  ", "empty_document", "is empty"),
        ):
            answer = post_file(client, name, raw)
            assert answer.json()["code"] == code, answer.text
            assert said in answer.json()["error"]
        answer = client.post("/v1/read", content=b"A text.", headers={"Content-Type": "text/plain"})
        assert answer.status_code == 415
        assert client.post("/v1/summarize", json={"document": "a " * 600}).status_code == 413


def test_the_answer_is_what_the_summarizer_says(client: TestClient, summarizer: Summarizer) -> None:
    expected = summarizer.summarize(DOCUMENTS)
    answer = post(client, documents=DOCUMENTS)
    assert [one["summary"] for one in answer["summaries"]] == [summary.text for summary in expected]
    assert [one["score"] for one in answer["summaries"]] == pytest.approx([s.score for s in expected], abs=1e-4)
    assert answer["model"] == "tiny"
    assert answer["options"] == {"beam_size": 2, "min_length": 3, "max_length": 7}
    options = {"beam_size": 4, "num_return": 3, "max_length": 5, "min_length": 5, "length_normalisation": "none"}
    answer, best = post(client, document=DOCUMENTS[0], options=options), summarizer.summarize(DOCUMENTS[0], **options)
    [record] = answer["summaries"]
    lines = [record["summary"], *(other["summary"] for other in record["alternatives"])]
    assert lines == [best.text, *(other.text for other in best.alternatives)]
    assert (len(lines), answer["options"]["length_normalisation"], "words" in record) == (3, "none", False)
    assert set(answer["timing"]) == {"queue_ms", "total_ms"}


def test_a_batch_is_worked_on_by_several_threads(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = [one["summary"] for one in post(client, documents=DOCUMENTS)["summaries"]]
    monkeypatch.setattr(NeuralSystem, "batches_at_once", lambda self, documents, options: min(documents, 2))
    sizes = watch(monkeypatch, NeuralSystem, "summarize_batch", lambda self, records, **_: len(records))
    documents = [{"id": str(number), "document": text} for number, text in enumerate(DOCUMENTS)]
    found = post(client, documents=documents)["summaries"]
    assert [(one["id"], one["summary"]) for one in found] == [(str(number), text) for number, text in enumerate(usual)]
    assert (len(sizes) > 1, sum(sizes)) == (True, len(DOCUMENTS))


def test_an_explanation_is_the_full_record(client: TestClient, summarizer: Summarizer) -> None:
    document = DOCUMENTS[2] + " 12 Berlin"
    record = post(client, document=document, explain=True, attention=True, options={"num_return": 2})["summaries"][0]
    expected, stored = summarizer.explain(document, num_return=2), from_dict(record)
    assert (stored.text, stored.document) == (expected.text, document)
    assert [word.text for word in stored.words] == [word.text for word in expected.words]
    for word in stored.words:
        assert stored.text[word.start : word.end] == word.text
        assert len(word.attention) == len(stored.source_offsets)
        assert word.p_gen is not None
        assert all(document[source.start : source.end] == source.text for source in word.sources)
    for values in (record, record["alternatives"][0]):
        assert values["support"] == support_to_dict(check_support(values["summary"], document))
    without = post(client, document=document, explain=True)["summaries"][0]
    assert not {"attention"} & without["words"][0].keys() | {"source_offsets"} & without.keys()


@pytest.mark.parametrize("method", ["lead", "lexrank", "concept_ilp"])
def test_every_method_answers_by_its_name(client: TestClient, method: str) -> None:
    text = "One day it rained 🌊 on the Fluß. The river rose by two metres. Nobody was hurt. 日本語の文です。"
    record = post(client, model=method, document=text, explain=True)["summaries"][0]
    assert (record["model"], record["document"]) == (method, text)
    assert all(text[s["start"] : s["end"]] == s["text"] for word in record["words"] for s in word["sources"])
    two = post(client, model="lead", document=text, options={"sentences": 2})["summaries"][0]
    assert two["summary"] == text.partition(" Nobody")[0]
    assert "words" not in two


# --------------------------------------------------------------------------------------------- streams


def streamed(client: TestClient, **body: Any) -> list[tuple[str, Any]]:
    response = client.post("/v1/summarize", json={"stream": True, **body})
    assert response.headers["content-type"].startswith("text/event-stream")
    events = [block.split("\n") for block in response.text.strip().split("\n\n")]
    found = [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in events]
    assert found[0] == ("start", {"model": found[0][1]["model"], "request_id": response.headers["x-request-id"]})
    return found


@pytest.mark.parametrize(("number", "options"), [(0, {"surface": "raw"}), (2, {"surface": "raw"}), (1, {})])
def test_a_stream_writes_the_greedy_summary(
    client: TestClient, summarizer: Summarizer, number: int, options: dict[str, str]
) -> None:
    """The record is what the summarizer gives; the pieces add up to it where nothing is dropped at the end."""
    _, *texts, (last, answer) = streamed(client, document=DOCUMENTS[number], explain=True, options=options)
    expected = summarizer.explain(DOCUMENTS[number], beam_size=1, **options)
    assert (last, answer["summary"]["summary"]) == ("summary", expected.text)
    assert [word["text"] for word in answer["summary"]["words"]] == [word.text for word in expected.words]
    assert {name for name, _ in texts} == {"text"}
    assert len(texts) > 1, "word by word"
    if options:
        assert "".join(data["delta"] for _, data in texts) == expected.text


def test_a_method_streams_its_summary_at_once_and_a_failure_is_an_event(client: TestClient) -> None:
    assert [name for name, _ in streamed(client, model="lead", document="One. Two.")] == ["start", "text", "summary"]
    [_, (name, problem)] = streamed(client, document="\u200b")
    assert (name, problem["code"]) == ("error", "empty_document")


# ----------------------------------------------------------------------------------------- the hub's task


def test_the_hubs_body_gives_the_hubs_answer(client: TestClient, summarizer: Summarizer) -> None:
    parameters = {"max_length": 5, "min_length": 2, "num_beams": 3, "do_sample": False, "truncation": "only_first"}
    expected = summarizer.summarize(DOCUMENTS[:2], max_length=5, min_length=2, beam_size=3)
    answer = post(client, "/", inputs=DOCUMENTS[:2], parameters=parameters, options={"wait_for_model": True})
    assert answer == [{"summary_text": summary.text} for summary in expected]
    nested = post(client, "/", inputs=DOCUMENTS[0], parameters={"generate_parameters": {"max_new_tokens": 5}})
    assert nested == [{"summary_text": summarizer.summarize(DOCUMENTS[0], max_length=5).text}]
    for refused, named in (
        ({"do_sample": True}, "do_sample"),
        ({"temperature": 2.0}, "temperature"),
        ({"num_beams": "x"}, "beam_size"),
    ):
        response = client.post("/", json={"inputs": "a", "parameters": refused})
        assert response.status_code == 422
        assert named in response.json()["error"]


# ---------------------------------------------------------------------------------------- descriptions


def test_the_models_describe_themselves(client: TestClient, tmp_path: Path) -> None:
    listed = client.get("/v1/models").json()
    first = listed["models"][0]
    assert (first["name"], first["kind"], first["family"]) == ("tiny", "neural", "seq2seq")
    assert first["copies"] is first["default"] is True
    assert first["options"]["beam_size"] == {"type": "integer", "default": 2, "minimum": 1, "maximum": 4}
    assert first["max_source_tokens"] == 40
    assert "average" in first["options"]["length_normalisation"]["choices"]
    names = {model["name"] for model in listed["models"]}
    assert ("lexrank" in names, "oracle" in names) == (True, False)
    assert not any({"scorers", "stop_words"} & model["options"].keys() for model in listed["models"])
    assert listed["limits"]["max_documents"] == 5
    system = NeuralSystem.from_pretrained(save_tiny_model(tmp_path / "plain", **PLAIN), "cpu")
    assert system.about()["copies"] is False
    assert system.about()["parameters"] == sum(p.numel() for p in system.model.parameters())


def test_health_and_metrics(client: TestClient) -> None:
    def done() -> float:
        found = re.search(r'catchline_documents_total{model="lead",outcome="done"} (\S+)', client.get("/metrics").text)
        return float(found[1]) if found else 0.0

    assert client.get("/health").json() == {"status": "ok"}
    before = done()
    post(client, model="lead", documents=["One. Two.", "Three."])
    assert client.post("/v1/summarize", json={"document": ""}).status_code == 422
    assert done() == before + 2
    text = client.get("/metrics").text
    assert 'catchline_requests_count{path="/v1/summarize",status="422"}' in text
    assert 'catchline_queue_documents{worker="neural"} 0.0' in text
    assert "catchline_batch_documents_bucket" in text


def test_the_page_and_its_files(client: TestClient) -> None:
    page = client.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert "script-src 'self'" in page.headers["content-security-policy"]
    assert "unsafe" not in page.headers["content-security-policy"]
    assert client.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    assert {client.get(f"/static/{up}/app.py").status_code for up in ("..", "%2e%2e")} == {404}


def test_below_the_path_of_a_proxy_every_file_that_the_page_names_is_found(client: TestClient) -> None:
    waiting, seen = {BELOW}, set[str]()
    while waiting:
        address = waiting.pop()
        seen.add(address)
        answer = client.get("/" + address.removeprefix(BELOW))  # as the proxy passes it on
        assert (address[: len(BELOW)], answer.status_code) == (BELOW, 200), address
        named = re.findall(r'(?:src|href)="([^"#]+)"|from "([^"]+)"', answer.text)
        waiting |= {urljoin(address, found) for pair in named for found in pair if found and "://" not in found} - seen
    assert sum(address.endswith(".js") for address in seen) > 5
    assert any(address.endswith(".css") for address in seen)


def test_the_document_of_the_api_has_examples_and_errors(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    assert {"200", "default"} == schema["paths"]["/v1/summarize"]["post"]["responses"].keys()
    for example in schema["components"]["schemas"]["SummarizeRequest"]["examples"]:
        assert client.post("/v1/summarize", json=example).status_code == 200
    assert client.get("/docs").status_code == 404, "its scripts would come from elsewhere"


def test_pages_of_other_origins_may_call_only_where_allowed(summarizer: Summarizer, client: TestClient) -> None:
    asking = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in client.options("/v1/summarize", headers=asking).headers
    open_to = Settings(cors_origins=("https://a.example",))
    with TestClient(create_app({"tiny": summarizer}, open_to, token="secret")) as other:
        allowed = other.options("/v1/summarize", headers=asking)
        assert allowed.headers["access-control-allow-origin"] == "https://a.example"
        elsewhere = other.options("/v1/summarize", headers={**asking, "Origin": "https://b.example"})
        assert "access-control-allow-origin" not in elsewhere.headers


def test_a_model_that_is_not_sure_declines_unless_asked_to_write(tmp_path: Path) -> None:
    folder = save_tiny_model(tmp_path / "model")
    replace(Calibration.blank(), bias=-2.0, threshold=0.5).save(folder)
    with TestClient(create_app({"tiny": Summarizer.from_pretrained(folder)})) as client:
        [written] = post(client, document=DOCUMENTS[0], explain=True, always_write=True)["summaries"]
        [found] = post(client, document=DOCUMENTS[0], explain=True)["summaries"]
        assert written["confidence"] == found["confidence"] == pytest.approx(0.1192, abs=1e-4)
        assert "extracted" not in written
        assert "not sure" in found["extracted"]
        assert found["summary"].lower() in DOCUMENTS[0]
        assert found["alternatives"][0]["summary"] == written["summary"] != found["summary"]
        assert post(client, "/", inputs=DOCUMENTS[0]) == [{"summary_text": found["summary"]}]


MARKED = "# Foo\n\nThe [river](http://a) rose.\n\n```\nx = 1\n```\n\nNobody was hurt.\n"
SAID = "The river rose.\n\nNobody was hurt."


@pytest.mark.parametrize(("format", "read"), [(None, 0), ("text", 0), ("markdown", 2), ("auto", 1)])
def test_markdown_is_read_as_what_it_says_where_that_is_asked_for(client: TestClient, format: str, read: int) -> None:
    asked = {"model": "lead", "options": {"sentences": 1}, **({"format": format} if format else {})}
    given = [MARKED, {"id": "a", "document": "# The river fell."}]
    marked, plain = post(client, documents=given, **asked)["summaries"]
    assert marked["summary"] == ("The river rose." if read else "# Foo")
    assert marked.get("document") == (SAID if read else None)
    assert [one.get("format") for one in (marked, plain)] == ["markdown"] * read + [None] * (2 - read)
    explained = post(client, document=MARKED, explain=True, **asked)["summaries"][0]
    assert explained["document"] == (SAID if read else MARKED)
    sources = [source for word in explained["words"] for source in word["sources"]]
    assert all(explained["document"][one["start"] : one["end"]] == one["text"] for one in sources)
    in_stream = streamed(client, document=MARKED, **asked)[-1][1]["summary"]
    assert in_stream == {**marked, "id": in_stream["id"]}


READ = {
    "plain": ("The river &amp; the lake rose.", "The river & the lake rose."),
    "mail": ("From: Ann <a@b.org>\nSubject: River\n\nThe river rose.\n\n> Did it?\n", "The river rose."),
    "page": ("<!doctype html><script>a()</script><p>The river rose.</p>", "The river rose."),
}


@pytest.mark.parametrize("kind", READ)
def test_a_text_is_read_as_it_looks_and_the_answer_says_as_what(client: TestClient, kind: str) -> None:
    given, said = READ[kind]
    empty = "<html><script>The river rose.</script></html>"  # nothing of it is read, so that it is taken as it is
    read, plain, unread = post(client, documents=[given, said, empty], model="lead", format="auto")["summaries"]
    assert (read["format"], read["document"], read["summary"]) == (kind, said, said)
    assert plain["summary"] == said
    assert unread["summary"].startswith("<html>")
    assert not {"format", "document"} & (plain.keys() | unread.keys())
    assert "format" not in post(client, document=given, model="lead")["summaries"][0]


def endless(text: str, format: str) -> tuple[str, str]:
    while True:
        pass


def test_reading_that_takes_too_long_ends_and_holds_nobody_up(summarizer: Summarizer) -> None:
    with TestClient(create_app({"tiny": summarizer}, Settings(reading_timeout=3))) as client:
        assert post(client, document="The river rose.", model="lead", format="auto")["summaries"]
        with pytest.MonkeyPatch.context() as patched, ThreadPoolExecutor() as pool:
            patched.setattr(service, "read_format", endless)
            late = pool.submit(client.post, "/v1/summarize", json={"document": "a", "format": "auto"})
            assert client.get("/health").status_code == 200
            assert post(client, document="It rains.", model="lead")["summaries"][0]["summary"] == "It rains."
            assert (late.result().status_code, late.result().json()["code"]) == (413, "document_too_long")
        assert post(client, document="The river rose.", model="lead", format="auto")["summaries"]


def test_of_a_long_summary_several_words_are_told_at_once_and_all_of_them(summarizer: Summarizer) -> None:
    """The text so far is written anew each time; for each word alone that would take the square of their number."""
    options = summarizer.system.options({"beam_size": 1, "min_length": 150, "max_length": 150, "surface": "raw"})
    told: list[str] = []
    records = [Record(DOCUMENTS[0])]
    system = summarizer.system
    [made] = system.summarize_batch(records, explain=False, options=options, on_text=lambda _, text: told.append(text))
    assert told[-1] == made.text
    assert len(told) < 80 < 120 < len(made.text.split())
