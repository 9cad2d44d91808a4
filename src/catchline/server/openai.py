"""OpenAI's chat completions over the service: a chat program asks for a title, and a model of this service writes it.

Chat programs put the text to title into one of five places of the user's last message, which `asked` looks for in this
order: the longest block between tags, quotation marks, fences or ``---BEGIN``; what follows a heading such as ``###
Chat History``; what follows the colon of a request for a title, or the empty line after it; the messages before, where
the last one is only such a request. Elsewhere the whole message is the text.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, BeforeValidator, Field, StrictBool

from catchline.server.schemas import ProblemError, Text
from catchline.types import Summary

PATH = "/v1/chat/completions"
IGNORED = "X-Catchline-Ignored"  # the header that names the fields without an effect
_TAG = re.compile(r"<(/?)([A-Za-z][\w-]{0,40})>")
_BEGIN, _FINISH = re.compile(r"(?<!-)-{3,}\s*BEGIN\b[^\n]*"), re.compile(r"(?<!-)-{3,}\s*END\b")
_HEADING = re.compile(
    r"^#{1,6}\s[^\n]{0,80}?(?:history|conversation|chat|messages?|text|document|content|input)\b.*$", re.I | re.M
)
_REQUEST = re.compile(  # a verb where a request has one, and what it asks for
    r"(?:\A|[.!?:;,\n*#-]\s{0,4}|\b(?:please|to|and|you|just|only|will|must|should|can|could)\s)"
    r"(?:generate|write|create|give|provide|suggest|make|propose|return|produce|choose|come up with|name|extract"
    r"|(?:reply|respond|answer) with|summari[sz]e)\b"
    r"[\s\S]{0,120}?\b(?:titles?|name|headline|subject|topic|heading|label)\b|\A(?:please )?summari[sz]e\b",
    re.I,
)
_SPEAKER = re.compile(
    r"^[\s|>/*]{0,8}(user|human|assistant|ai|bot|system|response)(?: message)?\s?\**:\**[ \t]*", re.I | re.M
)
_CAPTION = re.compile(
    r"(?:\A|\n\s{0,4}\n)[^\n.:]{0,30}\b(?:conversation|chat|messages?|text|document|content|article|e-?mail|input):\s",
    re.I,
)
_QUOTED = re.compile(r'(?<=\s)["“]([^"“”]{20,})["”]\s{0,4}\Z')
_COLON, _END = re.compile(r":\s"), re.compile(r":\s|\n\s{0,4}\n")
_KEY = re.compile(r'\{\s{0,20}"(\w{1,40})"\s{0,20}:')
_LONGEST_REQUEST = 80  # words
_FEW_WORDS = 6  # of the user in a transcript; then the other side is read too


class Message(BaseModel, extra="allow"):
    """One message of a chat."""

    role: str = "user"
    content: Annotated[Text, BeforeValidator(lambda value: _joined(value))] = ""


class ChatRequest(BaseModel, extra="allow", json_schema_extra={"examples": [{"model": "oneline", "messages": []}]}):
    """The fields of OpenAI's request that have an effect. Others, such as ``temperature``, are accepted and ignored."""

    messages: list[Message] = Field(min_length=1, max_length=10_000)
    model: Text | None = None
    n: int = Field(1, ge=1, le=100)
    stream: StrictBool = False
    stream_options: dict[str, Any] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    response_format: dict[str, Any] | None = None


class Asked(NamedTuple):
    """The text to title, and the name that the title has in a JSON object; empty for plain text."""

    text: str
    key: str = ""


def asked(request: ChatRequest) -> Asked:
    """Find the text to title in the messages. Raises ProblemError: no message of the user has a text, and no other asks
    for the title of one."""
    turns = [(message.role, message.content.strip()) for message in request.messages if message.content.strip()]
    last = max((at for at, (role, _) in enumerate(turns) if role == "user"), default=-1)
    earlier = [turn for turn in turns[: max(last, 0)] if turn[0] in ("user", "assistant")]
    request_text, text = _divided(turns[last][1], alone=not earlier) if turns else ("", "")
    if last < 0 and not (request_text and text):
        raise ProblemError("empty_document", "No user message has a text, so there is nothing to title; send one.")
    text = text or _of_turns(earlier) or turns[last][1]
    return Asked(_without_speakers(text), _json_key(request.response_format, request_text))


def completion(request: ChatRequest, name: str, request_id: str, key: str, summary: Summary) -> dict[str, Any]:
    """The answer as a ``chat.completion``; alternatives are further choices."""
    found = [summary, *summary.alternatives][: request.n]
    contents = [json.dumps({key: one.text}, ensure_ascii=False) if key else one.text for one in found]
    messages = [{"role": "assistant", "content": content, "refusal": None} for content in contents]
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": "stop" if one.finished else "length"}
        for index, (message, one) in enumerate(zip(messages, found, strict=True))
    ]
    written = sum(len(one.text.split()) for one in found)
    read = summary.tokens_read or len(summary.document.split())  # words where no model of ours has read tokens
    usage = {"prompt_tokens": read, "completion_tokens": written}
    return {
        "id": f"chatcmpl-{request_id}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": name,
        "choices": choices,
        "usage": {**usage, "total_tokens": sum(usage.values())},
    }


def chunks(request: ChatRequest, answer: dict[str, Any]) -> Iterator[str]:
    """The answer as server-sent events: each title as one chunk, since a search knows no word before its end."""
    head = {**answer, "object": "chat.completion.chunk"}
    usage = head.pop("usage")
    for choice in answer["choices"]:
        delta = {"role": "assistant", "content": choice["message"]["content"]}
        for part, reason in ((delta, None), ({}, choice["finish_reason"])):
            yield json.dumps({**head, "choices": [{"index": choice["index"], "delta": part, "finish_reason": reason}]})
    if (request.stream_options or {}).get("include_usage"):
        yield json.dumps({**head, "choices": [], "usage": usage})
    yield "[DONE]"


def error_body(problem: ProblemError) -> dict[str, Any]:
    """A problem in the shape of OpenAI's errors."""
    kind = "invalid_request_error" if problem.status < 500 else "server_error"
    return {"error": {"message": problem.message, "type": kind, "param": None, "code": problem.code}}


# ------------------------------------------------------------------------------------------ the text in a message


def _joined(content: Any) -> Any:
    """The texts of a message of several parts, and nothing of pictures."""
    if isinstance(content, list):
        parts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(part for part in parts if isinstance(part, str))
    return "" if content is None else content


def _divided(message: str, alone: bool) -> tuple[str, str]:
    """The request and the text of a message; of a text alone no request, of a request alone no text. Where there are
    messages before, an empty line does not end the request."""
    found = _REQUEST.search(message)
    heading = next(iter(reversed([*_HEADING.finditer(message)])), None)
    titled = message[heading.end() :].strip() if heading else ""
    if found is None:
        return "", titled if _SPEAKER.match(titled) else message
    blocks = [(start, end) for start, end in _blocks(message) if message[start:end].strip()]
    start, end = max(blocks, key=lambda span: span[1] - span[0], default=(0, 0))
    if end and (found.end() <= start or _REQUEST.search(message, end)):
        return message[:start], message[start:end].strip()
    if heading and found.end() <= heading.start() and titled:
        return message[: heading.start()], titled
    if len(message[: found.start()].split()) > _LONGEST_REQUEST:
        return "", message
    ending, speaker = (one.search(message, found.end()) for one in (_END if alone else _COLON, _SPEAKER))
    end = min([one.end() for one in [ending] if one] + [one.start() for one in [speaker] if one], default=0)
    if end and len(message[:end].split()) <= _LONGEST_REQUEST:
        text = message[end:].strip()
        caption = _CAPTION.search(text)
        if caption and len(text[: caption.end()].split()) <= _LONGEST_REQUEST:
            text = text[caption.end() :].strip()
        lines = text.splitlines()
        while lines and (not lines[-1].strip() or (len(lines[-1]) < 20 and lines[-1].rstrip().endswith(":"))):
            lines.pop()  # "Title:"
        return message[:end], "\n".join(lines)
    return (message, "") if len(message.split()) <= _LONGEST_REQUEST else ("", message)


def _blocks(message: str) -> Iterator[tuple[int, int]]:
    """The spans between tags, quotation marks, fences, and lines of BEGIN and END."""
    opened: dict[str, int] = {}
    for tag in _TAG.finditer(message):
        name = tag[2].lower()
        if not tag[1]:
            opened.setdefault(name, tag.end())
        elif name in opened:
            yield opened.pop(name), tag.start()
    for mark in ('"""', "```"):
        places = [match.start() for match in re.finditer(re.escape(mark), message)]
        for start, end in zip(places[::2], places[1::2], strict=False):
            line = message.find("\n", start, end)
            yield (line + 1 if mark == "```" and line >= 0 else start + 3), end
    if (begin := _BEGIN.search(message)) and (finish := _FINISH.search(message, begin.end())):
        yield begin.end(), finish.start()
    if quoted := _QUOTED.search(message):
        yield quoted.span(1)


def _without_speakers(text: str) -> str:
    """A transcript's turns of the user, or all turns where these have few words; another text as it is. Some programs
    write the messages as JSON."""
    if text.startswith('[{"role"'):
        with suppress(ValueError, AttributeError, RecursionError):
            return _of_turns([[*map(str, turn.values())][:2] for turn in json.loads(text)])
    marks = list(_SPEAKER.finditer(text))
    if not marks or text[: marks[0].start()].strip():
        return text
    ends = [*(mark.start() for mark in marks[1:]), len(text)]
    turns = [(mark[1], text[mark.end() : end].strip()) for mark, end in zip(marks, ends, strict=True)]
    return _of_turns([(role, said[1:-1] if said[:1] == said[-1:] == '"' else said) for role, said in turns])


def _of_turns(turns: Sequence[Sequence[str]]) -> str:
    users = "\n".join(content for role, content in turns if role.lower() in ("user", "human"))
    return users if len(users.split()) >= _FEW_WORDS else "\n".join(content for _, content in turns)


def _json_key(response_format: dict[str, Any] | None, request_text: str) -> str:
    kind = (response_format or {}).get("type")
    if kind == "json_schema":
        schema = (response_format or {}).get("json_schema")
        properties = schema.get("schema", {}).get("properties") if isinstance(schema, dict) else None
        return next(iter(properties), "title") if isinstance(properties, dict) else "title"
    found = _KEY.search(request_text)
    return found[1] if found else "title" if kind == "json_object" else ""
