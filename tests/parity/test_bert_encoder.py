"""The encoder of BERT's form against transformers' BERT, and what a model with it does."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from transformers import BertConfig, BertModel

from catchline.errors import ConfigError, DataError
from catchline.models.seq2seq import Seq2Seq
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Batch
from commands import program

SIZES = {"layers": 2, "num_heads": 4, "feed_forward_size": 24, "max_positions": 16}


def batch(ids: torch.Tensor, mask: torch.Tensor) -> Batch[torch.Tensor]:
    return Batch(source_ids=ids, source_extended_ids=ids, source_mask=mask, extended_vocab_size=30)


def small(**settings: object) -> Seq2Seq:
    config = Seq2Seq.Config.model_validate({"embedding_size": 16, "hidden_size": 8, "bert": SIZES, **settings})
    return Seq2Seq(config, vocab_size=30, pad_id=0, unk_id=1, bos_id=2, eos_id=3).eval()


@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_states_are_those_of_berts_lowest_layers(cell: str) -> None:
    torch.manual_seed(0)
    described = BertConfig(
        vocab_size=30,
        hidden_size=16,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=24,
        max_position_embeddings=20,
        layer_norm_eps=1e-5,
    )
    bert, model = BertModel(described).eval(), small(cell=cell)
    theirs = BertModel(BertConfig(**described.to_dict() | {"num_hidden_layers": 2})).eval()
    theirs.load_state_dict(bert.state_dict(), strict=False)
    program("warm_start").warm(model, bert.state_dict())
    mask = torch.arange(9) < torch.tensor([[9], [5]])
    ids = torch.randint(4, 30, (2, 9)) * mask
    with torch.no_grad():
        embedded = model.embedding(ids)
        states, (mean,) = model.encoder.over_real_tokens(embedded, mask)
        expected = theirs(inputs_embeds=embedded, attention_mask=mask.long()).last_hidden_state
        memory = model.encode(batch(ids, mask))
    torch.testing.assert_close(states[mask], expected[mask])
    assert not states[~mask].any()
    torch.testing.assert_close(mean[0, 1], expected[1, :5].mean(dim=0))
    assert [tuple(part.shape) for part in memory.final] == [(2, 8)] * (2 if cell == "lstm" else 1)


def test_a_longer_source_is_refused() -> None:
    ids = torch.full((1, 17), 5)
    with pytest.raises(DataError, match="longer than the 16 that this model reads"):
        small().encode(batch(ids, ids > 0))


def test_a_word_begins_as_the_mean_of_its_pieces() -> None:
    known = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "river", "flo", "##od"]
    pieces = Tokenizer(WordPiece({word: number for number, word in enumerate(known)}, unk_token="[UNK]"))
    words = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    words.train(["flood river tide"])
    vectors = torch.arange(14.0).view(7, 2)
    made = program("warm_start").word_vectors(words, pieces, vectors)
    expected = {"flood": vectors[5:].mean(dim=0), "river": vectors[4], "tide": vectors[1]}
    for word, vector in expected.items():
        assert torch.equal(made[list(words.vocabulary).index(word)], vector), word
    assert torch.equal(made[[words.pad_id, words.unk_id, words.bos_id, words.eos_id]], vectors[:4])


def test_what_is_no_bert_is_one_sentence(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "other.whl", "w") as wheel:
        wheel.writestr("other/readme", "")
    with pytest.raises(ConfigError, match=r"has no model\.safetensors"):
        program("warm_start").read_bert(tmp_path / "other.whl")
    with pytest.raises(ValueError, match="not a multiple of 4 heads"):
        small(embedding_size=18)
