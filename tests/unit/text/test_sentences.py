"""Sentences and the word between them: where it stands, what it does to offsets and truncation, how it reads."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.config.schema import TextConfig
from catchline.data.dataset import EncodedDataset, encode_documents, record_gaps
from catchline.errors import ConfigError
from catchline.text.sentences import WRAPPED as HYPHENED
from catchline.text.sentences import between, language_of, sentence_gaps, sentence_strings, split_sentences
from catchline.text.tokenizer import BpeTokenizer, CharacterTokenizer, Tokenizer, WordTokenizer
from catchline.types import Record

EOS = "<EOS>"
TEXT = "The cat sat. It rained!  Nobody came."


def trained(cls: type[Tokenizer] = WordTokenizer, separator: str | None = EOS, **options: object) -> Tokenizer:
    tokenizer = cls(cls.Config(min_frequency=1, **options))  # type: ignore[call-arg]
    tokenizer.use_separator(separator)
    tokenizer.train([TEXT.lower(), TEXT])
    return tokenizer


def encode(tokenizer: Tokenizer, text: str, **options: object):
    gaps = sentence_gaps(text, EOS)
    return next(tokenizer.encode_stream([text], gaps=[gaps], **options))  # type: ignore[arg-type]


ENGLISH = Path(__file__).with_name("english_sentences.txt").read_text(encoding="utf-8").splitlines()
MARKED = [line for line in ENGLISH if not line.startswith("#")]


def parts(marked: str) -> tuple[str, list[str]]:
    """A text, and its sentences; in ``marked`` a bar stands where a sentence ends."""
    return marked.replace("|", ""), [one.strip() for one in marked.split("|") if one]


def test_english_sentences_by_domain() -> None:
    found = Counter[bool]()
    for text, expected in map(parts, MARKED):
        sentences = sentence_strings(text)
        found.update(one in sentences for one in expected)
    assert found.total() > 550
    assert found[False] <= 9, "syntok alone misses 132, nupunkt 135, sentencex 172"


@pytest.mark.parametrize("blank", ["\xa0", "\u202f", "\u3000", " \xa0", "\xa0\x85"])
@pytest.mark.parametrize("language", ["en", "fr", "de"])
def test_a_wide_blank_before_a_full_stop(blank: str, language: str) -> None:
    text = f"It is vitamin C{blank}. We read it."
    assert split_sentences(text, language)[-1][1] == len(text)


LINES = "The bridge over the river was closed on Monday/Traffic moved to the old road through the village/"
LINES += "Shop owners complained about noise and dust/Work on the new deck goes on until the end of May"
MAIL = """Hi all,
here is what we agreed on|
Budget: Anna sends the draft before Thursday|
Travel: Peter books the trains to Vienna|
- two rooms
and breakfast"""
WRAPPED = """The committee met on Monday in the old town hall of the city of
Vienna, where the mayor of Salzburg had been invited to speak to
Anna and the others.| Nobody came."""
GERMAN = "Die Bürger der Stadt freuen sich über das neue Haus.| "
FRENCH = "Les habitants de la ville sont très contents de leur nouvelle école.| "
RUSSIAN = "Жители города очень рады новой школе.| "


@pytest.mark.parametrize(
    "marked",
    [
        "",
        "Dr. Smith went home.| 👍 It rained!|\n\nWhat now?",
        # short forms, names
        "It has lazy resp. Strict Text (Eqs. 2, approx. 3).| See corresp. bytes.|\n\nAnd Text.|\n\nThe end",
        "We use ASP.NET and java.util.List here.| It reads README.Debian.|The rest is new.|We see 5.|Then end",
        "It is for users of .NET.| It reads x.__file__ (and .netrc).| The end",
        # blanks that were forgotten
        LINES.replace("/", ".|") + ".",
        "The shop was closed at noon on Monday.|Customers waited outside.",
        "It costs 3 euros!|Nobody came.",
        *[f"It takes {one} and more of it." for one in ("an http.Handler", "io.Reader", "Node.js", "a Map.Entry")],
        "The library uses threading.Thread objects.",
        'The show ended at nine.|"It was great," said Ana.|Nobody left early.',
        "It is read by System.IO.Stream and numpy.Array of the library.",
        # numbers of items
        "Q7. Who may vote?| A. All members may vote.",
        "a. Open the lid.| b. Pour it.| c. Close it.",
        "1. Wash it.| 2. Dry it.| 3. Eat it.",
        "2.1. The rent is due.| 2.2. So is the fee.",
        "Step 1. Mix.| Step 2. Bake it.",
        "建立方法.|色谱柱为C18.|结果好.",
        *[f"Hi Anna,|\n{blank}\ncould you come?" for blank in ("", " ", "\t ", "\r")],
        "\ud800 hi.| It \udfff rained.",  # halves of characters
        "hi anna.| could you come?| thanks",
        # lines and headings: in capitals over an indented text, as of manual pages, or underlined
        *[LINES.replace("/", f"|{end}") for end in ("\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029\u2029")],
        "The river rose.|\nIt rained|\n\nand rained.",
        "the foo|\n=======|\nit rises|\n-----",
        "NASA\nthat rises",
        f"Copies of this software and files (the\n'Work') are free.|\n{'-' * 80}",
        "It is a long line that says what it has, as it is here said:|\n* one\nand more|\n* two",
        MAIL,
        WRAPPED,
        # other languages
        GERMAN + "Am 3. Oktober kam, z. B. aus Bonn, Hr. Koch mit dem 2. Vorsitzenden.| Der Zug fuhr um 5.| Aus.",
        GERMAN + "Es kostet ca. 3 Mio. Euro, vgl. S. 12 und Abs. 2.| Goethestr. 7 stand im 19. Jahrhundert leer.",
        GERMAN + "Ludwig II. von Bayern kam nie.",
        "Die Stadt feierte ihr Jubiläum bzw. mehr, z. B. am Rathaus.| Es kostete 1.234,5 Euro.| Wer zahlt?",
        FRENCH + "M. Dupont vint, p. ex., avec Mme. Durand à 8 h. 30 au bd. Hugo.| J.-P. Roux lut l'art. 5 ici.",
        "El Sr. García habló 20 min. sobre la Av. Libertad y las obras de EE. UU. que costarán más.| ¿Quién pagará?",
        "Il sig. Rossi ha aperto la seduta con la dott.ssa Bianchi.| L'art. 5 del regolamento è noto, cfr. pag. 14.",
        "Prof. Nowak mówił m.in. o budżecie.| Prace przy ul. Długiej nie są skończone.| Zob. str. 14 raportu na końcu.",
        RUSSIAN + "А. С. Пушкин жил, т. е. писал, на ул. Ленина, д. 5.| «Это правда?» — спросила дама.| Да.",
        "Şehrin halkı bu yeni okul için çok sevindi.| 2. Dünya Savaşı vb. olaylar Av. Kaya için zordu.",
        "शहर के लोग बहुत खुश हैं।| डॉ. शर्मा और ए. पी. कलाम आए।",
        "وصل د. محمد إلى القاهرة في المساء.| هل جاء المال؟| لا أحد يعرف.",
        "ich bin für das da.| er ist nicht da.| und wo bist du?",
    ],
)
def test_sentences_end_where_they_end(marked: str) -> None:
    text, expected = parts(marked)
    assert sentence_strings(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1.234,56",
        "Towards non-van der Waals insulators",
        "Müller et al. 2010, García et al. 2011, the list of authors",
        "It came at 3. Oktober is a month, and the M. Dupont of Zürich knew it.",
        "See el Niño and la Niña for the weather of the coast of Peru.",
    ],
)
def test_what_may_be_english_is_taken_for_english(text: str) -> None:
    assert language_of(text) == "en"


@given(st.text(max_size=60))
@settings(max_examples=60)
def test_sentences_cover_everything_but_white_space(text: str) -> None:
    spans = split_sentences(text)
    left = list(text)
    last = 0
    for start, end in spans:
        assert last <= start < end <= len(text)
        last = end
        left[start:end] = " " * (end - start)
    assert not "".join(left).strip()


def test_a_mark_that_is_not_closed_joins_no_more_than_a_piece() -> None:
    said = "It rained all night in Ludlow. Bob left for the ``coast. " + "The river rose by a metre. " * 2_000
    spans = split_sentences(said)
    assert len(spans) > 1_500
    assert {said[start:end] for start, end in spans[-1_500:]} == {"The river rose by a metre."}
    assert split_sentences("a" * 12_000 + " " * 12_000) == [(0, 12_000)]


@pytest.mark.parametrize(
    ("text", "options", "gaps"),
    [
        (TEXT, {}, [(12, 13), (23, 25)]),
        ("One only.", {}, []),
        ("", {}, []),
        ("a b. c d e", {"sentences": ["a", "b. c", "d e"]}, [(1, 2), (6, 7)]),
        ("It is so. Or not.", {"sentences": ["It is", "not there"]}, [(9, 10)]),
        ("one\n\n two \nthree", {"by_line": True}, [(3, 6), (9, 11)]),
        ("one line\nthat goes on.", {}, []),  # without by_line a line break is no boundary by itself
        ("a b . <EOS> c. d <EOS> <EOS> e", {}, [(5, 12), (16, 29)]),
        ("x<EOS>y", {}, []),  # part of a word
    ],
)
def test_gaps_lie_between_sentences(text: str, options: dict[str, Any], gaps: list[tuple[int, int]]) -> None:
    assert sentence_gaps(text, EOS, **options) == gaps


def test_a_separator_in_the_data_is_the_boundary() -> None:
    assert between("a b . <EOS> c. d", [(5, 12)]) == [(0, "a b ."), (12, "c. d")]
    encoding = encode(trained(), "the cat <EOS> sat")
    assert encoding.tokens == ("the", "cat", EOS, "sat")
    assert encoding.total == 4
    assert encode(trained(), "<EOS> cat <EOS>").tokens == ("cat",)  # between sentences only


@pytest.mark.parametrize("cls", [WordTokenizer, BpeTokenizer, CharacterTokenizer])
def test_tokens_are_those_without_separators(cls: type[Tokenizer]) -> None:
    plain, marked = trained(cls, separator=None), trained(cls)
    without, having = plain.encode(TEXT), encode(marked, TEXT)
    own = [i for i, index in enumerate(having.ids) if index != marked.separator_id]
    assert len(having.ids) - len(own) == 2
    dropped = cls is CharacterTokenizer  # the blanks between the sentences are in the separators' places
    pairs = zip(without.tokens, without.offsets, strict=True)
    expected = [pair for pair in pairs if not (dropped and pair[1] in ((12, 13), (24, 25)))]
    assert [(having.tokens[i], having.offsets[i]) for i in own] == expected
    for place, (start, end) in enumerate(having.offsets):
        if having.ids[place] == marked.separator_id:
            assert start == end == having.offsets[place - 1][1]
        elif cls is WordTokenizer:
            assert TEXT[start:end].lower() == having.tokens[place]


@pytest.mark.parametrize("cls", [WordTokenizer, BpeTokenizer, CharacterTokenizer])
def test_it_is_an_ordinary_word_that_decoding_turns_into_line_breaks(cls: type[Tokenizer], tmp_path) -> None:
    tokenizer = trained(cls)
    tokenizer.save(tmp_path)
    loaded = Tokenizer.load(tmp_path)
    assert loaded.separator == EOS
    for one in (tokenizer, loaded):
        assert one.separator_id == 4
        assert one.separator_id not in one.special_ids
        text = one.decode(encode(one, TEXT).ids)
        wanted = "the cat sat.\nit rained!\nnobody came."
        assert text.lower() == (wanted.replace(" ", "") if cls is CharacterTokenizer else wanted)
        tokens = encode(one, TEXT).tokens
        joined, spans = one.detokenize([EOS, *tokens, EOS, EOS])
        assert joined == text
        assert len(spans) == len(tokens) + 3
        for token, (start, end) in zip([EOS, *tokens, EOS, EOS], spans, strict=True):
            assert (start == end) if token == EOS else joined[start:end] == token.strip("▁")
        groups = one.word_groups(tokens)
        assert all(len(group) == 1 for group in groups if any(tokens[i] == EOS for i in group))


def test_truncation_counts_separators() -> None:
    tokenizer = trained()
    whole = encode(tokenizer, TEXT)
    assert whole.total == len(whole.ids) == 12
    for room in range(1, 14):
        cut = encode(tokenizer, TEXT, max_tokens=room)
        assert cut.ids == whole.ids[:room]
        assert (cut.total, cut.truncated) == (12, room < 12)
    wrapped = encode(tokenizer, TEXT, max_tokens=6, specials=True)
    assert wrapped.ids == (tokenizer.bos_id, *whole.ids[:4], tokenizer.eos_id)


def test_a_vocabulary_without_it_and_words_that_it_cannot_be() -> None:
    tokenizer = trained(separator=None)
    assert tokenizer.separator_id is None
    assert tokenizer.encode(TEXT) == encode(tokenizer, TEXT)
    with pytest.raises(ConfigError, match="has no '<EOS>'"):
        tokenizer.use_separator(EOS)
    tokenizer.use_separator("cat")
    assert tokenizer.separator_id == tokenizer.token_id("cat")
    for word in ("eos", "|", "."):
        with pytest.raises(ConfigError, match="ordinary"):
            trained(separator=word)
    with pytest.raises(ConfigError, match="sentence_separator is None"):
        encode_documents(["a"], trained(), TextConfig())
    with pytest.raises(ConfigError, match="made with None"):
        encode_documents(["a"], trained(separator=None), TextConfig(sentence_separator=EOS))


def test_data_sets_hold_it_on_both_sides_and_say_its_id() -> None:
    tokenizer = trained()
    config = TextConfig(sentence_separator=EOS)
    records = [
        Record("The cat sat. It rained!", "cat sat\nit rained"),
        Record("cat sat it rained", "cat. It rained.", sentences=("cat sat", "it rained")),
    ]
    data = EncodedDataset.build(records, tokenizer, config)
    assert tokenizer.separator_id == 4

    def words(ids) -> str:
        return " ".join(tokenizer.token(int(i)) for i in ids)

    assert words(data[0].source_extended_ids) == "the cat sat . <EOS> it rained !"
    assert words(data[0].target_extended_ids) == "cat sat <EOS> it rained </s>"
    assert words(data[1].source_extended_ids) == "cat sat <EOS> it rained"
    assert words(data[1].target_extended_ids) == "cat . <EOS> it rained . </s>"
    examples, encodings = encode_documents(records, tokenizer, config)
    assert [words(e.source_extended_ids) for e in examples] == [words(data[i].source_extended_ids) for i in (0, 1)]
    assert encodings[1].tokens[2] == EOS
    assert record_gaps(records[1], EOS)[0] == [(7, 8)]
    # the same text without its record's sentences is one sentence
    assert EOS not in encode_documents([records[1].document], tokenizer, config)[1][0].tokens


def test_the_parts_of_a_divided_word_are_joined() -> None:
    assert not HYPHENED.search("well-" + "\n" * 2_000 + "Known")
    assert HYPHENED.sub("", "well- \n\n \nknown, wind- \nand sea-\tborne") == "well-known, wind- \nand sea-\tborne"
