"""Lines of small language models behind a server of llama.cpp, zero-shot and with three pairs of the same folder.

    python study/research/small_models.py RECORDS OUT --system smollm2=http://127.0.0.1:8101/v1 --shots 3 \
        [--base] [--data ../shared/data] [--each 10]

RECORDS is what ``lines.py`` writes. Of each folder the first ``--each`` records are asked that readers rated
(``lines_ratings.jsonl.gz``), of each text the first 230 words, as the readers saw it. OUT gets a line a text and is
continued if it is partial: ``id``, ``summary``, ``seconds``. A base model (``--base``) completes ``Title:``; its server
needs a chat template that writes the messages one after another.
"""

from __future__ import annotations

import argparse
import gzip
import json
import time
import urllib.request
from collections import defaultdict
from itertools import chain, islice, zip_longest
from pathlib import Path

from mix import Row, place_of, read, row_of

RATINGS = Path(__file__).with_name("lines_ratings.jsonl.gz")
PROMPT = "Give this text a short title:\n\n{}\n\nAnswer with a title of three to ten words, nothing else."
WORDS, EXAMPLE_WORDS, TOKENS = 230, 60, 32


def main() -> None:
    """Ask for what is not there yet."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("records", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--system", required=True, metavar="NAME=URL")
    parser.add_argument("--shots", type=int, default=0)
    parser.add_argument("--base", action="store_true", help="the model was not trained to chat")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--each", type=int, default=10, help="texts of a folder")
    options = parser.parse_args()
    url = options.system.partition("=")[2]
    done = {json.loads(line)["id"] for line in options.out.open(encoding="utf-8")} if options.out.is_file() else set()
    examples: dict[str, list[dict[str, str]]] = {}
    with options.out.open("a", encoding="utf-8") as file:
        for row in chosen(options.records, options.each):
            if row["id"] in done:
                continue
            name = row["source"]
            if name not in examples:
                examples[name] = shots(name, options.data, options.shots, options.base)
            start = time.time()
            text = " ".join(row["document"].split()[:WORDS])
            line = answer(url, [*examples[name], {"role": "user", "content": asked(text, options.base)}])
            seconds = round(time.time() - start, 2)
            file.write(json.dumps({"id": row["id"], "summary": line, "seconds": seconds}, ensure_ascii=False) + "\n")
            file.flush()


def chosen(records: Path, each: int) -> list[Row]:
    """The rated records, folder by folder in turns, so that a partial run has something of every folder."""
    rated = {json.loads(line)["id"] for line in gzip.decompress(RATINGS.read_bytes()).splitlines()}
    folders: dict[str, list[Row]] = defaultdict(list)
    for line in records.open(encoding="utf-8"):
        if (row := json.loads(line))["id"] in rated and len(folders[row["source"]]) < each:
            folders[row["source"]].append(row)
    return [row for row in chain(*zip_longest(*folders.values())) if row]


def asked(text: str, base: bool) -> str:
    """What the model reads of a text."""
    return f"Text: {text}\nTitle:" if base else PROMPT.format(text)


def shots(name: str, data: Path, count: int, base: bool) -> list[dict[str, str]]:
    """Pairs of the folder's training part, the first ones with a short text; of e-mails, which have none, of issues."""
    folder = place_of("issues" if name == "emails" else "debian" if name == "readmes" else name, data)
    rows = (row_of(record, name) for record in read(folder, "train"))
    messages = []
    for row in islice((row for row in rows if len(row["document"].split()) <= EXAMPLE_WORDS), count):
        messages += [{"role": "user", "content": asked(row["document"], base)}]
        messages += [{"role": "assistant", "content": f" {row['summary']}\n\n" if base else row["summary"]}]
    return messages


def answer(url: str, messages: list[dict[str, str]]) -> str:
    """The first line that the model writes, greedily."""
    body = {"messages": messages, "temperature": 0, "max_tokens": TOKENS, "stop": ["\n"]}
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/chat/completions", json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=3600) as response:
        return " ".join(str(json.load(response)["choices"][0]["message"]["content"]).split()).strip("\"'“”")


if __name__ == "__main__":
    main()
