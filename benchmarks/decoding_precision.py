"""Beam search from kept packed weights, against the peers on the same networks.

Three works, random weights, as many words as asked for:

* ``transformer``: base size (6 + 6 layers, width 512, vocabulary 32,000), source 64, 20 words, beam 5, batch 8 and 32;
* ``bart``: BART-base's shape (6 + 6, width 768, vocabulary 50,265), source 400, 60 words, beam 4, one document;
* ``pointer``: the pointer-generator with coverage of size ``cnndm``, source 400, 60 words, beam 4, one document.

``anew`` packs for each search. Peers: transformers' ``generate``, and CTranslate2 in float32 and int8 where it can be
imported (``--peers FOLDER``, made by ``pip install --no-deps --target FOLDER ctranslate2``), on the very same weights.
All take turns; the best time of each is printed, by the clock and of all threads, with the ratio to the best peer.

    python benchmarks/decoding_precision.py [--threads 1] [--works transformer bart pointer] [--peers FOLDER] [--short]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import BartConfig, BartForConditionalGeneration

import beam_decoding
from catchline.kernels.packed import Packing
from catchline.models.checkpoints import BartSummarizer
from catchline.search.decode import decode
from catchline.search.torch_bridge import TorchModel, in_threads
from catchline.types import Batch
from paired import BASE, IDS, SMALL, Step, best_of, exactly, made_batch, place
from paired import transformer as transformer_of
from transformer_decoding import generate, make_peer

Ways = dict[str, Step]


def ours(model: Any, batch: Batch, beams: int, words: int, ids: dict[str, int] = IDS) -> Ways:
    """Our search packed anew, and from kept packed weights."""
    config = exactly(words, beams)
    parts = min(torch.get_num_threads(), len(batch.source_ids))  # as `catchline.summarizer.decoding` has them

    def part(searched: TorchModel, number: int, go_on: Callable[[], None]) -> None:
        found = decode(searched, batch.changed(lambda tensor: tensor[number::parts]), config, **ids)
        assert all(len(best[0].ids) == words for best in found)

    def search(searched: TorchModel) -> None:
        list(in_threads(partial(part, searched), range(parts), parts))

    return {
        "ours, anew": partial(search, TorchModel(model)),
        "ours, kept": partial(search, TorchModel(model, Packing())),
    }


def ctranslate2(network: Any, sources: torch.Tensor, beams: int, words: int, threads: int) -> Ways:
    """The peer's own converter and its search in two precisions; empty where it is not installed."""
    try:
        import ctranslate2 as peer
        from ctranslate2.converters.transformers import _MODEL_LOADERS
    except ImportError:
        return {}
    loader = _MODEL_LOADERS[type(network.config).__name__]

    class Tokens:
        """What the converter asks a tokenizer for: tokens that are numbers."""

        unk_token, bos_token, eos_token, pad_token = "1", "2", "3", "0"
        additional_special_tokens: tuple[str, ...] = ()

        def get_vocab(self) -> dict[str, int]:
            last = network.config.vocab_size - 1  # what the converter takes for Marian's padding, and drops
            return {str(number): number for number in range(last)} | {"<pad>": last}

        def convert_ids_to_tokens(self, number: int) -> str:
            return str(number)

    texts = [[str(number) for number in row] for row in sources.tolist()]
    ways: Ways = {}
    for kind in ("float32", "int8"):
        folder = Path(tempfile.mkdtemp()) / kind
        folder.mkdir()
        spec = loader(network, Tokens())
        spec.validate()
        spec.optimize(quantization=kind)
        spec.save(str(folder))
        translator = peer.Translator(str(folder), compute_type=kind, intra_threads=threads, inter_threads=1)
        options = {"beam_size": beams, "min_decoding_length": words, "max_decoding_length": words}
        ways[f"CTranslate2 {kind}"] = lambda t=translator, o=options: t.translate_batch(texts, max_batch_size=64, **o)
    return ways


def transformer(count: int, threads: int, *, short: bool) -> Ways:
    sizes = SMALL if short else BASE
    model, network = transformer_of(sizes), make_peer(sizes)
    batch = made_batch(sizes["vocabulary"], count, 64, 1)
    ways = ours(model, batch, 5, 20) | {"transformers": generate(network, batch.source_ids, 5, 20)}
    return ways | ctranslate2(network, batch.source_ids, 5, 20, threads)


def bart(threads: int, *, short: bool) -> Ways:
    torch.manual_seed(0)
    sizes = (2, 128, 4, 256, 4_000) if short else (6, 768, 12, 3072, 50_265)
    layers, width, heads, inner, vocabulary = sizes
    options = {
        "vocab_size": vocabulary, "d_model": width, "encoder_layers": layers, "decoder_layers": layers,
        "encoder_attention_heads": heads, "decoder_attention_heads": heads, "encoder_ffn_dim": inner,
        "decoder_ffn_dim": inner, "max_position_embeddings": 1024, "pad_token_id": 0, "bos_token_id": 2,
        "eos_token_id": 3, "decoder_start_token_id": 3, "forced_eos_token_id": None,
    }  # fmt: skip
    network = BartForConditionalGeneration(BartConfig(**options, attn_implementation="sdpa")).eval()
    network.config.normalize_before, network.config.normalize_embedding = False, True  # asked for by the converter
    model = BartSummarizer(BartSummarizer.Config(architecture={"model_type": "bart", **options}), unk_id=1).eval()
    model.network.load_state_dict(network.state_dict())
    batch, words = made_batch(vocabulary, 1, 400, 1), 10 if short else 60
    ways = ours(model, batch, 4, words, IDS | {"bos_id": model.decoder_start_id})
    ways["transformers"] = generate(network, batch.source_ids, 4, words)
    return ways | ctranslate2(network, batch.source_ids, 4, words, threads)


def pointer(*, short: bool) -> Ways:
    model, documents = beam_decoding.make_model(), beam_decoding.make_documents(1)
    words = 10 if short else 60
    usual = partial(beam_decoding.usual, model, documents, exactly(words, beam_decoding.BEAMS))
    return ours(model, documents, beam_decoding.BEAMS, words) | {"usual form": usual}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--works", nargs="+", default=["transformer", "bart", "pointer"])
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="small networks, to see that it runs")
    options = parser.parse_args()
    if options.peers:
        sys.path.append(str(options.peers))
    for threads in options.threads:
        where = place(threads)
        short = {"short": options.short}
        works = {
            "transformer": {f"batch {size}": partial(transformer, size, threads, **short) for size in (8, 32)},
            "bart": {"one document": partial(bart, threads, **short)},
            "pointer": {"one document": partial(pointer, **short)},
        }  # fmt: skip
        for work in options.works:
            for name, make in works[work].items():
                best = best_of(make(), options.repeats)
                peer = min(clock for way, (clock, _) in best.items() if not way.startswith("ours"))
                print(f"{work}, {name}, {where}: ms, CPU ms, times the best peer's")
                for way, (clock, processor) in best.items():
                    print(f"  {way:20} {1e3 * clock:9.1f} {1e3 * processor:9.1f} {clock / peer:6.2f}", flush=True)


if __name__ == "__main__":
    main()
