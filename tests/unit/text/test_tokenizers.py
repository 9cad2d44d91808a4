"""Offsets, unknown words, round trips and reproducibility of the tokenizers."""

from __future__ import annotations

import json
import os
import random
import unicodedata
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.config.base import validate
from catchline.config.names import trusting
from catchline.errors import ConfigError, ModelError
from catchline.text.base import extended, restore_numbers
from catchline.text.tokenizer import BpeTokenizer, CharacterTokenizer, PretrainedTokenizer, Tokenizer, WordTokenizer

TEXTS = [
    "The quick brown fox jumps over the lazy dog.",
    "The dog doesn't jump; it's a state-of-the-art dog, 3.5 years old!",
    "Привет, мир. 日本語のテキスト。 한국어 텍스트",
]


def trained(cls: type[Tokenizer], **options: object) -> Tokenizer:
    tokenizer = cls(cls.Config(**options))
    tokenizer.train(TEXTS)
    return tokenizer


WORD = trained(WordTokenizer, min_frequency=1)
BPE = trained(BpeTokenizer, max_vocabulary=120, min_frequency=1)
CHARACTER = trained(CharacterTokenizer, min_frequency=1)
ALL = [WORD, BPE, CHARACTER]

# what people write: letters of many scripts, combining marks, emoji sequences, flags, ligatures, controls
PIECES = [*"aZé ß.,'’“”-_/@#1½ﬁ日のไİΣ한하👩", *"\t\n\u0301\u0323\u200d\u200b\ufe0f\u00ad", *("👍🏽", "🇫🇷", "क्ष")]
PIECED_TEXT = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
ANY_TEXT = st.one_of(PIECED_TEXT, st.text(max_size=40))


@pytest.mark.parametrize("tokenizer", ALL, ids=lambda t: t.name)
@given(text=ANY_TEXT)
@settings(max_examples=60)
def test_offsets_point_into_the_raw_text(tokenizer: Tokenizer, text: str) -> None:
    encoding = tokenizer.encode(text)
    special = tokenizer.encode("</s><s><pad><unk>").ids  # are text
    assert not set(special) & {tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id}
    assert len(encoding.ids) == len(encoding.tokens) == len(encoding.offsets) == encoding.total
    previous_end = 0
    for (start, end), token in zip(encoding.offsets, encoding.tokens, strict=True):
        assert 0 <= start <= end <= len(text)
        assert end >= previous_end
        previous_end = end
        assert token
    # the spans cover everything a reader sees
    covered = {place for start, end in encoding.offsets for place in range(start, end)}
    for place, character in enumerate(text):
        if not character.isspace() and unicodedata.category(character)[0] in "LNPS" and character != "▁":
            assert place in covered, (place, character, encoding)


@given(text=PIECED_TEXT)
@settings(max_examples=100)
def test_word_tokens_are_the_normalised_spans(text: str) -> None:
    encoding = WORD.encode(text)
    spans = [WORD.backend.normalizer.normalize_str(text[start:end]) for start, end in encoding.offsets]
    assert spans == list(encoding.tokens)
    text = "Cafe\u0301 ab \ud83d cd"  # characters that are not one to one
    encoding = WORD.encode(text)
    assert [text[start:end] for start, end in encoding.offsets] == ["Cafe\u0301", "ab", "\ud83d", "cd"]
    assert encoding.tokens[0] == "café"


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("Don't", ["do", "n't"]),
        ("can’t we'll John's o'clock", ["ca", "n't", "we", "'ll", "john", "'s", "o'clock"]),
        ("state-of-the-art -- yes...", ["state-of-the-art", "--", "yes", "..."]),
        ("1,234.5% on 10/12/2001 at 10:30am", ["1,234.5", "%", "on", "10/12/2001", "at", "10:30am"]),
        ("(see http://x.org/a?b=c.)", ["(", "see", "http://x.org/a?b=c", ".", ")"]),
        ("mail a.b@c.org, np.ndarray", ["mail", "a.b@c.org", ",", "np.ndarray"]),
        ("snake_case __init__", ["snake_case", "__init__"]),
        ("Mr. X of the U.S. army", ["mr.", "x", "of", "the", "u.s.", "army"]),
        ("#Person1#: hi", ["#person1#", ":", "hi"]),
        ("日本語のテキスト。", ["日", "本", "語", "の", "テキスト", "。"]),
        ("中文abc 3.14版", ["中", "文", "abc", "3.14", "版"]),
        ("Привет, мир", ["привет", ",", "мир"]),
        ("क्षत्रिय العربية", ["क्षत्रिय", "العربية"]),
        ("👩‍👩‍👧🇫🇷", ["👩‍👩‍👧", "🇫🇷"]),
        ("japan 's do n't", ["japan", "'s", "do", "n't"]),
        ("a\u200bb\x00c\ufeff", ["a", "b", "c"]),
        ("</s> <pad>", ["<", "/", "s", ">", "<", "pad", ">"]),
    ],
)
def test_word_rules(text: str, tokens: list[str]) -> None:
    assert list(WORD.encode(text).tokens) == tokens


def test_special_ids_unknown_words_and_truncation() -> None:
    encoding = WORD.encode("the zyxt dog", specials=True)
    assert encoding.tokens == ("<s>", "the", "zyxt", "dog", "</s>")
    assert (encoding.ids[0], encoding.ids[2], encoding.ids[-1]) == (WORD.bos_id, WORD.unk_id, WORD.eos_id) == (2, 1, 3)
    assert (encoding.offsets[0], encoding.offsets[-1]) == ((0, 0), (12, 12))
    assert WORD.decode(encoding.ids) == "the <unk> dog"
    assert WORD.decode([WORD.vocab_size, 3], ["zyxt"]) == "zyxt"
    cut = WORD.encode("the quick brown fox jumps", max_tokens=4, specials=True)
    assert (len(cut.ids), cut.truncated, cut.total) == (4, True, 5)
    with pytest.raises(ConfigError, match="no room"):
        WORD.encode("x", max_tokens=2, specials=True)
    texts = [*TEXTS, "", "zz " * 700] * 120  # more than one chunk
    batch = list(WORD.encode_stream(texts, max_tokens=5))
    assert batch[:5] == [WORD.encode(text, max_tokens=5) for text in texts[:5]]
    assert batch[5:10] == batch[:5]


@pytest.mark.parametrize("cls", [WordTokenizer, BpeTokenizer, CharacterTokenizer])
def test_training_does_not_depend_on_order_and_survives_the_disk(cls: type[Tokenizer], tmp_path) -> None:
    one, other = cls(cls.Config(min_frequency=1)), cls(cls.Config(min_frequency=1))
    one.train(TEXTS)
    other.train(TEXTS[::-1])
    assert one.vocabulary == other.vocabulary
    assert list(one.vocabulary[:4]) == ["<pad>", "<unk>", "<s>", "</s>"]
    one.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert type(loaded) is cls
    assert loaded.config == one.config
    for text in [*TEXTS, "Unseen zyxt 👍🏽"]:
        assert loaded.encode(text, specials=True) == one.encode(text, specials=True)


def test_vocabulary_size_frequency_and_ties() -> None:
    tokenizer = WordTokenizer(WordTokenizer.Config(max_vocabulary=7, min_frequency=2))
    with pytest.raises(ConfigError, match="no vocabulary"):
        tokenizer.encode("x")
    with pytest.raises(ConfigError, match="No token"):
        tokenizer.train(["  "])
    tokenizer.train(["b b a a c c c d", "once"])
    assert list(tokenizer.vocabulary[4:]) == ["c", "a", "b"]


@pytest.mark.parametrize(
    "text",
    [
        "the dog isn't here, is it? (yes!)",
        'he said "no" and left.',
        "it costs $5, i.e. 10% of 1,000/day",
        "日本語のテキスト。",
        "john's dogs' tails",
        "state-of-the-art; snake_case: x",
    ],
)
def test_detokenized_text_is_what_people_write(text: str) -> None:
    tokens = WORD.encode(text).tokens
    joined, spans = WORD.detokenize(tokens)
    assert joined == text
    assert [joined[start:end] for start, end in spans] == list(tokens)


@given(words=st.lists(st.text(st.sampled_from("abcé日!"), min_size=1, max_size=5), min_size=1, max_size=6))
@settings(max_examples=40)
def test_marked_tokens_round_trip(words: list[str]) -> None:
    text = " ".join(words)
    encoding = BPE.encode(text)
    joined, spans = BPE.detokenize(encoding.tokens)
    assert joined == unicodedata.normalize("NFC", text)
    assert spans == sorted(spans)
    groups = BPE.word_groups(encoding.tokens)
    assert [index for group in groups for index in group] == list(range(len(encoding.tokens)))


def test_damaged_and_missing_files_are_named(tmp_path) -> None:
    WORD.save(tmp_path)
    file = tmp_path / "tokenizer.json"
    file.write_text(file.read_text()[:200])
    for _ in range(2):
        with pytest.raises(ModelError, match=r"tokenizer\.json could not be read"):
            Tokenizer.load(tmp_path)
        file.unlink(missing_ok=True)


@pytest.fixture
def byte_level(tmp_path) -> PretrainedTokenizer:
    """A checkpoint's folder in BART's manner, made by the library itself."""
    from tokenizers import ByteLevelBPETokenizer
    from tokenizers.processors import RobertaProcessing

    library = ByteLevelBPETokenizer(add_prefix_space=False)
    library.train_from_iterator(TEXTS * 3, vocab_size=320, special_tokens=["<s>", "<pad>", "</s>", "<unk>"])
    library.post_processor = RobertaProcessing(("</s>", 2), ("<s>", 0), add_prefix_space=False)
    library.save(str(tmp_path / "tokenizer.json"))
    described = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 2}
    (tmp_path / "config.json").write_text(json.dumps(described))
    return PretrainedTokenizer(PretrainedTokenizer.Config(path=str(tmp_path)))


def test_pretrained_tokenizer_reports_the_checkpoints_ids(byte_level: PretrainedTokenizer, tmp_path) -> None:
    assert (byte_level.bos_id, byte_level.pad_id, byte_level.eos_id, byte_level.unk_id) == (0, 1, 2, 3)
    assert (byte_level.prefix_ids, byte_level.suffix_ids, byte_level.target_prefix_ids) == ((0,), (2,), (0,))
    text = "The quick 👍🏽 dog doesn't"
    encoding = byte_level.encode(text, specials=True)
    assert (encoding.ids[0], encoding.ids[-1], byte_level.decode(encoding.ids)) == (0, 2, text)
    joined, spans = byte_level.detokenize(encoding.tokens[1:-1])
    assert joined == text
    assert "".join(joined[start:end] for start, end in spans) == text.replace(" ", "")
    assert len(byte_level.word_groups(byte_level.encode("the quick dog").tokens)) == 3
    byte_level.save(tmp_path / "copy")
    copy = Tokenizer.load(tmp_path / "copy")
    assert isinstance(copy, PretrainedTokenizer)
    assert copy.decoder_start_id == byte_level.decoder_start_id == 2
    assert copy.encode(text, specials=True) == encoding


def test_rows_without_tokens_come_before_a_texts_own_words(byte_level: PretrainedTokenizer) -> None:
    size, tokens = byte_level.vocab_size, list(byte_level.vocabulary)
    byte_level.widen(size + 8)
    byte_level.widen(size)
    assert byte_level.vocab_size == size + 8
    shown = [byte_level.token(id, ["own"]) for id in (size - 1, size, size + 7, size + 8)]
    assert shown == [tokens[-1], "<unk>", "<unk>", "own"]
    assert list(byte_level.vocabulary) == tokens


def test_forking_leaves_the_environment_alone() -> None:
    list(WORD.encode_stream(TEXTS * 10))
    before = os.environ.get("TOKENIZERS_PARALLELISM")
    child = os.fork()
    if child == 0:
        os._exit(0 if os.environ.get("TOKENIZERS_PARALLELISM") else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert os.environ.get("TOKENIZERS_PARALLELISM") == before


def test_saved_tokenizer_opens_in_transformers(tmp_path) -> None:
    transformers = pytest.importorskip("transformers")
    WORD.save(tmp_path)
    other = transformers.AutoTokenizer.from_pretrained(str(tmp_path))
    assert other.pad_token_id == 0
    assert other("the lazy dog", add_special_tokens=False)["input_ids"] == list(WORD.encode("the lazy dog").ids)


def words(text: str, **options: object) -> list[str]:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1, **options))  # type: ignore[arg-type]
    tokenizer.train(["x"])
    return list(tokenizer.encode(text).tokens)


def test_hashed_digits_make_the_words_of_gigaword() -> None:
    text = "The 10-year-old paid 3.5 percent, $1,234.50 in the 1990s; an f-16, g20, 7."
    expected = "the ##-year-old paid #.# percent , $ #,###.## in the ####s ; an f-## , g## , # ."
    assert words(text, digits_to_hash=True) == expected.split()
    # text that is hashed already is cut in the same way, and numbers are the same words as without hashes
    assert words(expected, digits_to_hash=True) == expected.split()
    assert ["#" * 2 if w.isdigit() and len(w) == 2 else w for w in words("10 of 20")] == ["##", "of", "##"]
    # without the option nothing changes
    assert words("##.# and #1") == ["##", ".", "#", "and", "#", "1"]
    with pytest.raises(ConfigError, match="pattern"):
        validate(WordTokenizer.Config, {"unknown_marks": ["< unk >"]}, where="tokenizer")


@pytest.mark.parametrize("cls", [WordTokenizer, BpeTokenizer])
def test_marks_of_unknown_words_become_one_word(cls) -> None:
    text = "<unk> saw UNK and UNKNOWN <unk>."
    tokenizer = cls(cls.Config(min_frequency=1, lowercase=True, unknown_marks=("<unk>", "UNK")))
    tokenizer.train(["unk saw unk and"] * 3)
    encoding = tokenizer.encode(text)
    shown = [
        (token.strip("▁"), text[start:end])
        for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True)
    ]
    assert shown[:3] == [("unk", "<unk>"), ("saw", "saw"), ("unk", "UNK")]
    assert "".join(token for token, _ in shown[4:]).startswith("unknown")  # a longer word is left alone
    assert tokenizer.unk_id not in encoding.ids[:3]  # an ordinary word
    other = cls(cls.Config(min_frequency=1, lowercase=True))
    other.train(["unk saw unk and"] * 3)
    assert other.encode("<unk>").tokens != encoding.tokens[:1]
    assert words("UNK fell", unknown_marks=("UNK",), lowercase=False) == ["unk", "fell"]  # outside of the vocabulary


def test_characters_without_blanks() -> None:
    tokenizer = CharacterTokenizer(CharacterTokenizer.Config(min_frequency=1))
    tokenizer.train(["我们是 GPT2 。"])
    plain, spaced = tokenizer.encode("我们是GPT2。"), tokenizer.encode("我 们 是\tG P T 2 \n 。")
    assert plain.tokens == spaced.tokens == ("我", "们", "是", "G", "P", "T", "2", "。")
    assert (plain.ids, spaced.offsets[:3]) == (spaced.ids, ((0, 1), (2, 3), (4, 5)))
    assert tokenizer.decode(spaced.ids) == "我们是GPT2。"


PIECES = [
    *"aB1.,'’-/#@½ﬁ中カ각é▁Σ\u0301\u0600\u200b\xad\x1c\xa0\t\n ",
    *("n't", "mr.", "u.s.", "<unk>", "10:30am", "c++", "http://x.y", "👩‍👧", "  "),
    *("(it's", "C#", "#P1#", "@a_b", "-lrb-", "x@y.z", "3,000.5mm", "10-year", "--", "...", "%;", "\x7f"),
]


@pytest.mark.parametrize(
    "tokenizer",
    [
        WordTokenizer(WordTokenizer.Config(min_frequency=1)),
        WordTokenizer(WordTokenizer.Config(digits_to_hash=True, lowercase=False)),
        WordTokenizer(WordTokenizer.Config(lowercase=False, unknown_marks=("<unk>",))),
        BpeTokenizer(BpeTokenizer.Config(max_vocabulary=60, lowercase=True)),
    ],
    ids=lambda tokenizer: tokenizer.name,
)
@pytest.mark.parametrize("most", [10**6, 200])
def test_chunks_between_blanks_are_read_as_the_whole(
    tokenizer: Any, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Training reads each chunk once and remembers it; ids, unknown words and counts are those of whole texts, also
    where it forgot in between, after a second training, and from the disk."""
    monkeypatch.setattr("catchline.text.tokenizer.MOST_CHUNKS", most)
    monkeypatch.setattr("catchline.text.tokenizer.TEXTS", 40)
    chosen = random.Random(4)
    texts = ["".join(chosen.choices(PIECES, k=chosen.randint(0, 25))) for _ in range(300)] + ["Can't stop the a b ab"]
    own = type(tokenizer)(tokenizer.config)
    for some in (texts[:150], texts[-150:]):
        own.train(some)
        assert own.count_words(some) == Counter(piece for text in some for piece in own._pieces(text))
    own.save(tmp_path)
    for reader in (own, Tokenizer.load(tmp_path)):
        for text, (ids, words, total) in zip(texts, reader.encode_ids(texts, 9), strict=True):
            whole = own.encode(text, max_tokens=9)
            unknown = [token for index, token in zip(whole.ids, whole.tokens, strict=True) if index == own.unk_id]
            assert (ids.tolist(), words, total) == (list(whole.ids), unknown, whole.total), text


class Hyphens(WordTokenizer):
    """One's own, of another file than ours: words that keep their hyphens."""

    pattern = r"[\w-]+"


def test_ones_own_tokenizer_is_the_same_when_it_is_opened(tmp_path: Path) -> None:
    """It is stored under the name by which a recipe asks for it, whatever the class that it derives from."""
    own = Hyphens(Hyphens.Config(min_frequency=1))
    own.train(["a well-known word"])
    own.save(tmp_path)
    with pytest.raises(ConfigError, match=r"names Python code .*test_tokenizers:Hyphens"):
        Tokenizer.load(tmp_path)
    with trusting(True):
        opened = Tokenizer.load(tmp_path)
    assert type(opened) is Hyphens
    assert opened.encode("well-known").ids == own.encode("well-known").ids


CATS = WordTokenizer(WordTokenizer.Config(min_frequency=1))
CATS.train(["the cat sat on the mat"])
SOME_WORDS = st.lists(st.sampled_from(["the", "cat", "sat", "xx", "yy", "zz", "qq"]), max_size=12)


@given(source=SOME_WORDS, target=SOME_WORDS)
@settings(max_examples=50)
def test_extended_ids_number_the_words_of_the_source(source: list[str], target: list[str]) -> None:
    own = list(dict.fromkeys(word for word in source if CATS.token_id(word) is None))
    numbers = {word: CATS.vocab_size + place for place, word in enumerate(own)}
    for text, words_ in ((source, None), (target, own)):
        ids, found = extended(CATS.encode(" ".join(text)), CATS.vocab_size, CATS.unk_id, words_)
        assert (found, ids.tolist()) == (own, [CATS.token_id(word) or numbers.get(word, CATS.unk_id) for word in text])


def test_words_behind_the_truncation_cannot_be_copied() -> None:
    _, own = extended(CATS.encode("the xx sat yy", max_tokens=3), CATS.vocab_size, 1)
    assert own == ["xx"]
    assert extended(CATS.encode("yy xx"), CATS.vocab_size, 1, own)[0].tolist() == [1, CATS.vocab_size]


DOCUMENT = "On 12 May 1998, 3.5 percent of 77 towns and a 10-year-old boy paid $1,250."


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("## towns", "77 towns"),  # the last number of that length
        ("#### now", "1998 now"),
        ("#.# percent", "3.5 percent"),
        ("a ##-year-old", "a 10-year-old"),
        ("paid $#,###.", "paid $1,250."),
        ("##,", "77,"),
        ("###### and #", "###### and #"),  # no number of that length
        ("no sign", "no sign"),
        ("c## ab#", "c## ab#"),  # within a word
    ],
)
def test_numbers_are_restored_by_length(written: str, expected: str) -> None:
    assert restore_numbers(written, DOCUMENT) == expected
    assert restore_numbers("## and ##", "no number, ## only") == "## and ##"
