"""Serving with micro-batches against serving one document at a time.

The same server with the same model, 32 clients that each send the next request when the last is answered, texts of
50 to 400 words: once with ``max_batch=16``, once with ``max_batch=1``. The model is the pointer-generator with
coverage of recipe `headline_writer`, size ``small`` (random weights, so that every summary has the full length), with
sources of up to 400 words, beam 4, 20 tokens. The clients are threads of this process, on the same cores.
``CPU ms`` are the server's for each request: on a machine with other work they are to be trusted more than the clock.

Then, on the idle server: a text of 400 words with its explanation, as a page asks for it (with attention).

    python benchmarks/serving.py [--seconds 20] [--rounds 2] [--clients 32] [--model FOLDER] [--short]
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import WordTokenizer

VOCABULARY, WORDS = 3000, (50, 400)
BATCHES = (16, 1)


def make_texts(count: int, words: tuple[int, int] = WORDS) -> list[str]:
    """Texts of made-up words whose ranks are log-uniform, evenly spread lengths, a few words of their own each."""
    generator = random.Random(7)
    texts = []
    for number in range(count):
        length = round(words[0] + (words[1] - words[0]) * number / max(1, count - 1))
        ranks = (int(VOCABULARY ** generator.random()) for _ in range(length))
        parts = [f"own{number}x{rank}" if generator.random() < 0.05 else f"word{rank}" for rank in ranks]
        texts.append(" ".join(parts))
    generator.shuffle(texts)
    return texts


def make_model(folder: Path) -> Path:
    """The ``small`` pointer-generator with coverage, weights as training would start with."""
    run = resolve_run(
        load_recipe("headline_writer"),
        "pointer-generator-coverage",
        "small",
        [
            *("data.train=none", "text.max_source_tokens=400"),
            *("search.beam_size=4", "search.min_length=20", "search.min_length_share=null", "search.max_length=20"),
        ],
    )
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([f"word{rank}" for rank in range(VOCABULARY)])
    torch.manual_seed(0)
    ids = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
    model = build("model", MODELS, run.model, vocab_size=tokenizer.vocab_size, **ids)
    model.switch({"coverage": True})
    return save_model_folder(folder, model=model, tokenizer=tokenizer, run=run)


@contextmanager
def server(model: Path, max_batch: int, log: Path) -> Iterator[int]:
    """A server process; its port."""
    command = [sys.executable, "-m", "catchline.cli.main", "serve", f"bench={model}", "--port", "0"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--set", f"max_batch={max_batch}"], stdout=subprocess.DEVNULL, stderr=file, env=dict(os.environ)
        )
    try:
        while not (found := re.search(r":(\d+)/", log.read_text())):
            if process.poll() is not None:
                raise SystemExit(log.read_text())
            time.sleep(0.05)
        yield int(found[1])
    finally:
        process.terminate()
        process.wait(60)


def post(connection: http.client.HTTPConnection, body: bytes) -> float:
    """Send one request; the seconds to its answer."""
    began = time.perf_counter()
    connection.request("POST", "/v1/summarize", body, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    content = answer.read()
    if answer.status != 200:
        raise SystemExit(f"{answer.status}: {content[:200]!r}")
    return time.perf_counter() - began


def load(port: int, bodies: list[bytes], clients: int, seconds: float) -> tuple[float, list[float]]:
    """Requests a second, and the seconds of each, of ``clients`` that never pause."""
    times: list[list[float]] = [[] for _ in range(clients)]
    ready = threading.Barrier(clients + 1)
    until = [0.0]

    def client(number: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        ready.wait()
        turn = number
        while time.perf_counter() < until[0]:
            times[number].append(post(connection, bodies[turn % len(bodies)]))
            turn += clients
        connection.close()

    threads = [threading.Thread(target=client, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    began = time.perf_counter()
    until[0] = began + seconds
    ready.wait()
    for thread in threads:
        thread.join()
    return sum(map(len, times)) / (time.perf_counter() - began), sorted(t for client in times for t in client)


def cpu_seconds(port: int) -> float:
    """What the server process has used so far, all threads together."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    connection.request("GET", "/metrics")
    found = re.search(r"^process_cpu_seconds_total (\S+)", connection.getresponse().read().decode(), re.MULTILINE)
    return float(found[1]) if found else 0.0


def explained(port: int, repeats: int) -> float:
    """The median seconds of one text of 400 words with its explanation."""
    body = json.dumps({"document": make_texts(1, (400, 400))[0], "explain": True, "attention": True}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
    return statistics.median(post(connection, body) for _ in range(repeats))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0, help="of load, for each setting and round")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--model", type=Path, help="a model folder instead of random weights")
    parser.add_argument("--short", action="store_true", help="a few seconds")
    options = parser.parse_args()
    seconds, rounds = (3.0, 1) if options.short else (options.seconds, options.rounds)
    bodies = [json.dumps({"document": text}).encode() for text in make_texts(256)]
    rates: dict[int, list[float]] = {size: [] for size in BATCHES}
    times: dict[int, list[float]] = {size: [] for size in BATCHES}
    cpu: dict[int, list[float]] = {size: [] for size in BATCHES}
    alone = 0.0
    with tempfile.TemporaryDirectory() as place:
        model = options.model or make_model(Path(place) / "model")
        for _ in range(rounds):
            for size in BATCHES:
                with server(model, size, Path(place) / "log") as port:
                    load(port, bodies, options.clients, min(2.0, seconds))  # warm
                    used = cpu_seconds(port)
                    rate, found = load(port, bodies, options.clients, seconds)
                    cpu[size].append((cpu_seconds(port) - used) / len(found))
                    rates[size].append(rate)
                    times[size] = sorted([*times[size], *found])
                    if size == BATCHES[0]:
                        alone = explained(port, 5)
    print(f"{options.clients} clients, texts of {WORDS[0]} to {WORDS[1]} words, {os.cpu_count()} cores")
    print(f"{'':<16}{'requests/s':>12}{'p50 ms':>10}{'p99 ms':>10}{'CPU ms':>10}{'requests':>10}")
    for size in BATCHES:
        name = f"batches of {size}" if size > 1 else "one at a time"
        found = times[size]
        p50, p99 = (1000 * found[min(len(found) - 1, int(len(found) * share))] for share in (0.5, 0.99))
        used = 1000 * statistics.mean(cpu[size])
        print(f"{name:<16}{statistics.mean(rates[size]):>12.1f}{p50:>10.0f}{p99:>10.0f}{used:>10.1f}{len(found):>10}")
    ratio = statistics.mean(rates[BATCHES[0]]) / statistics.mean(rates[BATCHES[1]])
    print(f"micro-batching: {ratio:.2f} times the requests a second")
    print(f"400 words with explanation and attention: {alone * 1000:.0f} ms")


if __name__ == "__main__":
    main()
