"""OpenAI's chat completions: where chat programs put the text, and answers in the shape of that interface."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient

from catchline.server.openai import ChatRequest, asked
from catchline.summarizer import Summarizer
from tiny_models import DOCUMENTS

TEXT = "My bicycle chain slips on the two smallest cogs since I changed the cassette."
REPLY = "A worn chain does not fit a new cassette. Replace the chain too."
TURNS = f"User: {TEXT}\nAssistant: {REPLY}"
WEBUI = """### Task:
Write a title of three to five words, with an emoji, for the chat history.
### Guidelines:
- Name the main theme: no quotation marks.
### Output:
JSON format: { "title": "your title here" }
### Examples:
- { "title": "📉 Market Trends" }
### Chat History:
"""


SYSTEM = {"role": "system", "content": "You write titles and nothing else."}


def user(*contents: Any) -> list[dict[str, Any]]:
    return [{"role": "user", "content": content} for content in contents]


def chat(*contents: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(contents)]


# in the shapes of what chat programs send, in words of our own
PROMPTS: dict[str, list[dict[str, Any]]] = {
    "tagged history": user(f"{WEBUI}<chat_history>\nUSER: {TEXT}\nASSISTANT: {REPLY}\n</chat_history>"),
    "history below a heading": user(f"{WEBUI}USER: {TEXT}\nASSISTANT: {REPLY}"),
    "a heading alone": user(f"### Chat History:\n{TURNS}"),
    "conversation behind a colon": user(f"Provide a short title. Return the title.\n\nConversation:\n{TURNS}"),
    "a start and an open end": user(f"Please generate a title for a chat that starts with:\n{TURNS}\n\nTitle:"),
    "a request behind the chat": chat(TEXT, REPLY, "Please generate a title of four words for our chat."),
    "fenced": user(f"Give this chat a name of at most ten letters.\n\n```\n{TURNS}\n```"),
    "quoted": user(f'Suggest a topic for the message.\n"""{TEXT}"""\nAnswer in one line.'),
    "a request of its own": [SYSTEM, *user("Generate a title:\n", TEXT)],
    "begin and end": user(f"-----BEGIN USER MESSAGES-----\n{TEXT}\n-----END USER MESSAGES-----\n\nGenerate a title."),
    "a system prompt alone": [SYSTEM, *user(TEXT)],
    "one line": user(f"Write a headline for this text: {TEXT}"),
    "tagged message": user(f"Create a title.\n<message>{TEXT}</message>\n<rules>Short.</rules>"),
    "several parts": user([{"type": "text", "text": TEXT}, {"type": "image_url", "image_url": {}}]),
    "few words of the user": chat("It slips.", TEXT, "Suggest a title for this chat."),
    "below an empty line": user(f"Write a subject line for this mail. Give only the line.\n\n{TEXT}"),
    "below a caption": user(f"Write a short title for this text. No quotes.\n\nText: {TEXT}"),
    "turns with marks": user(
        f'Please give a title for the chat\n||>User:\n"{TEXT}"\n||>Response:\n"{REPLY}"\n\n||>Title:'
    ),
    "a system message of all": [{"role": "system", "content": f"Please write a title for the chat.\n\n{TURNS}"}],
    "messages in JSON": [
        SYSTEM,
        *user(f'[{{"role": "user", "mainText": "{TEXT}"}}, {{"role": "assistant", "mainText": "x"}}]'),
    ],
    "an extract of fenced lines": user(
        f"Read the chat and extract a short title.\n\n```\n/ user: {TEXT}\n/ assistant: x\n```\n"
    ),
    "a summary behind the chat": chat(TEXT, REPLY, "Summarize our chat in six words."),
    "in quotation marks at the end": user(f'Summarize in a title of ten words. Only the title. "{TEXT}"'),
    "a labelled message": [SYSTEM, *user(f'User message: "{TEXT}"')],
    "another key": user(f'Return {{"headline": "..."}}, a headline of the text below.\n\n## Text\n{TEXT}'),
}
KEYS = {"tagged history": "title", "history below a heading": "title", "another key": "headline"}


@pytest.mark.parametrize("name", PROMPTS)
def test_the_text_is_found(name: str) -> None:
    text = f"It slips.\n{TEXT}" if name == "few words of the user" else TEXT
    assert asked(ChatRequest.model_validate({"messages": PROMPTS[name]})) == (text, KEYS.get(name, ""))


@pytest.mark.parametrize(
    "text",
    [
        'A page of three tags: <b>one</b>, then <i>two</i>. It has {"title": 1} in it.',
        "# Chat\n\nWe name the boat on Sunday.",
        "The title of the talk was long: it had nine words.",
        "We propose a topic model: it has three parts.",
        "Read this:\n```\nprint('a')\n```\nIt prints one letter.",
    ],
)
def test_a_text_that_asks_for_nothing_stays_whole(text: str) -> None:
    assert asked(ChatRequest.model_validate({"messages": user(text)})) == (text, "")


def post(client: TestClient, **body: Any) -> Any:
    return client.post("/v1/chat/completions", json=body)


def test_an_answer_is_openais(client: TestClient, summarizer: Summarizer) -> None:
    expected = summarizer.summarize(DOCUMENTS[0], always_write=True, num_return=2)
    answer = post(client, model="tiny", messages=user(DOCUMENTS[0]), n=2, temperature=0.2, top_p=1)
    values = answer.json()
    assert contents(values) == [expected.text, *(other.text for other in expected.alternatives)]
    assert (values["object"], values["model"]) == ("chat.completion", "tiny")
    assert values["usage"]["prompt_tokens"] == expected.tokens_read
    assert values["usage"]["total_tokens"] == sum(list(values["usage"].values())[:2])
    assert answer.headers["X-Catchline-Ignored"] == "temperature, top_p"
    odd = post(client, messages=user(DOCUMENTS[0]), **{"a\r\nb: c": 1, "ö𖢘": 2})
    assert odd.headers["X-Catchline-Ignored"] == "a%0D%0Ab%3A%20c, %C3%B6%F0%96%A2%98"
    short = post(client, messages=user(DOCUMENTS[0]), max_tokens=3).json()
    assert contents(short) == [summarizer.summarize(DOCUMENTS[0], always_write=True, max_length=3).text]
    [formatted] = contents(post(client, messages=user(DOCUMENTS[0]), response_format={"type": "json_object"}).json())
    assert json.loads(formatted) == {"title": expected.text}
    extract = post(client, model="lead", messages=user(DOCUMENTS[0]), n=3, max_tokens=2).json()
    assert len(extract["choices"]) == 1
    assert extract["usage"]["prompt_tokens"] == len(DOCUMENTS[0].split())


def contents(values: Any) -> list[str]:
    return [choice["message"]["content"] for choice in values["choices"]]


def test_a_stream_is_openais(client: TestClient) -> None:
    whole = post(client, messages=user(DOCUMENTS[0])).json()
    answer = post(client, messages=user(DOCUMENTS[0]), stream=True, stream_options={"include_usage": True})
    events = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: ")]
    assert events.pop() == "[DONE]"
    chunks = [json.loads(event) for event in events]
    assert {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert ["".join(choice["delta"].get("content", "") for choice in choices)] == contents(whole)
    assert [choice["finish_reason"] for choice in choices] == [None, "stop"]
    assert chunks[-1]["usage"] == whole["usage"]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"messages": []}, 422, "invalid_request"),
        ({"messages": [SYSTEM]}, 422, "empty_document"),
        ({"model": "gpt-9", "messages": user("a b")}, 404, "unknown_model"),
        ({"messages": user("a b"), "n": 50}, 422, "invalid_option"),
        ({"messages": user("a " * 1500)}, 413, "document_too_long"),
    ],
)
def test_errors_are_openais(client: TestClient, body: dict[str, Any], status: int, code: str) -> None:
    answer = post(client, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["type"]) == (status, code, "invalid_request_error")
    assert error["message"].endswith(".")


def test_models_are_listed_in_both_shapes(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == [one["name"] for one in listed["models"]]
