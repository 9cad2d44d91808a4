"""From tokens to text as people write it: a table of cases, and what holds of every text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders

import catchline
from catchline.config.schema import SearchConfig
from catchline.errors import ModelError
from catchline.explain.provenance import build_summary
from catchline.text.base import extended
from catchline.text.render import spaced
from catchline.text.tokenizer import BpeTokenizer, CharacterTokenizer, PretrainedTokenizer, Tokenizer, WordTokenizer
from catchline.text.truecase import Casing, learn_casing
from catchline.types import Hypothesis, Summary

ORDINARY = (
    "a an the of and for with in on to by from is are this that we it how new old tool tools framework language right "
    "way understanding method river rose two metres night council said data server write reads files tree again more "
    "what you look at its schools closed report state python libc6 gpt-based inc. luar 2 robot zipcmp "
    ", . : ; - ( ) ! ? \" ' & / things they say ====="
)


def words(texts: Sequence[str] = (ORDINARY,), casing: Casing | None = None, **options: Any) -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1, **options))
    made.train(texts)
    made.casing = casing or Casing()
    return made


def written(
    line: str,
    document: str,
    *,
    tokenizer: Tokenizer | None = None,
    copied: bool = True,
    at: dict[str, int] | None = None,
    unk: Sequence[int] = (),
    **search: Any,
) -> Summary:
    """``line`` as a model's output that was copied, where it can be, from all places of each word or from ``at``."""
    tokenizer = tokenizer or words()
    source, oov_words = extended(tokenizer.encode(document), tokenizer.vocab_size, tokenizer.unk_id)
    gold = tokenizer.encode(line)
    ids, _ = extended(gold, tokenizer.vocab_size, tokenizer.unk_id, oov_words)
    for place in unk:
        ids[place] = tokenizer.unk_id
    holds = (source[None, :] == ids[:, None]).astype(float)
    for word, place in (at or {}).items():
        holds[gold.tokens.index(word)] = np.eye(len(source))[place]
    copying = holds / np.maximum(holds.sum(1, keepdims=True), 1.0)
    return summary_of(ids.tolist(), copying, document, tokenizer, copied=copied, **search)


def summary_of(
    ids: list[int], copying: np.ndarray, document: str, tokenizer: Tokenizer, *, copied: bool = True, **search: Any
) -> Summary:
    """What is shown of ids that were copied as ``copying`` (T, S) says."""
    encoding = tokenizer.encode(document)
    _, oov_words = extended(encoding, tokenizer.vocab_size, tokenizer.unk_id)
    details = {"p_gen": 1.0 - copying.sum(1), "copy_probs": copying} if copied else {}
    hypothesis = Hypothesis(ids, 0.0, 0.0, [0.0] * len(ids), False, copying, details)
    own = {"document": document, "source_encoding": encoding, "tokenizer": tokenizer, "oov_words": oov_words}
    return build_summary(hypothesis, **own, search=SearchConfig(**{"surface": "clean", **search}))


FORMS = [
    # what the model wrote, the source, what is shown: copied words in the source's own form
    ("ragout ( ra-gu ) reads files", "We use Ragout (RA-GU). It reads files.", "Ragout (RA-GU) reads files"),
    ("the right-of-way report", "They said that the Right-of-Way report is new.", "The Right-of-Way report"),
    ("a tool for c++ and w&t", "Files of W&T and of C++ are read by a tool for it.", "A tool for C++ and W&T"),
    ("new server of s.p.a. files", "It is a server of Enel S.p.A. files.", "New server of S.p.A. files"),
    ("files of café zoë", "At night, Café Zoë is closed.", "Files of Café Zoë"),
    # a capital that only begins a sentence, a title or a shout says nothing of an ordinary word
    ("a framework", "Framework of the night. This is it.", "A framework"),
    ("the old council", "THE OLD COUNCIL SAID IT AGAIN. They look at the council.", "The old council"),
    # but a word that the vocabulary lacks keeps the form of the only place it has
    ("schools in ludlow", "Ludlow closed its schools.", "Schools in Ludlow"),
    ("a new tool", "this is about a new TOOL", "A new TOOL"),
    ("said the river council", "We met the Old River Council there.", "Said the River Council"),
    ("the robot os tool", "The tool is of Robot OS (ROS).", "The Robot OS tool"),
    # another place tells
    ("a python server", "Python is a language. We write it in python.", "A python server"),
    ("how luar reads", "Reads of LUAR. Luar is a method.", "How LUAR reads"),
    # function words end a line in other languages
    ("er rief an", "Sie sagten es, und er rief an einem Tag an, weil es so kam.", "Er rief an"),
    # what the source says itself stays
    ("a tool (tool) (a)", "It is a tool (tool) (a).", "A tool (tool) (a)"),
    ("duran duran at night", "We look at Duran Duran this night.", "Duran Duran at night"),
    ("what to look for", "It says what to look for in the data.", "What to look"),
    # punctuation and blanks of a copied run, not those that only a tokenized source has
    ("reads and/or writes files", "It reads and/or writes files.", "Reads and/or writes files"),
    ("data --server of $5", "Call it data --server of $5 now.", "Data --server of $5"),
    ("the right - way report", "It is the right-\nway report.", "The right-way report"),
    ("the river rose , it is said .", "the river rose , it is said .", "The river rose, it is said."),
    ("what 's new", "Look at what’s new.", "What’s new"),
]


@pytest.mark.parametrize(("line", "document", "shown"), FORMS)
def test_what_is_shown_of_a_copied_line(line: str, document: str, shown: str) -> None:
    summary = written(line, document)
    assert summary.text == shown
    assert [summary.text[word.start : word.end] for word in summary.words] == [word.text for word in summary.words]


CASING = Casing(forms={"luar": ("LUAR", 9), "python": ("Python", 50), "ark": ("ARK", 9)})
MIXED = "We look at the Apple and the apple."
APPLES = "The old Apple of this apple tree."  # tokens: the old apple of this apple tree .


@pytest.mark.parametrize(
    ("line", "document", "options", "shown"),
    [
        # the place that a word was copied from decides its form
        ("old tools , apple", APPLES, {"at": {"apple": 2}}, "Old tools, Apple"),
        ("old tools , apple", APPLES, {"at": {"apple": 5}}, "Old tools, apple"),
        # a generated word takes the source's form only if it has one
        ("a luar tool", "We call it LUAR.", {"copied": False}, "A LUAR tool"),
        ("new apple tool", MIXED, {"copied": False, "capitals": "lower"}, "new apple tool"),
        # names of the training texts are known, and the source goes before them
        ("python tools", "Nothing of it.", {"casing": CASING}, "Python tools"),
        ("the luar", "Nothing of it.", {"casing": CASING}, "The LUAR"),
        ("a python reads", "We saw that a python reads.", {"casing": CASING}, "A python reads"),
        ("a python reads", "we saw a python", {"casing": CASING}, "A Python reads"),
        ("a tool for ark", "The tool reads ARK files. Ark is new.", {"casing": CASING}, "A tool for ARK"),
        ("a tool for ark", "ARK FILES ARE READ. Ark is new.", {"casing": CASING}, "A tool for ARK"),
        ("a tool for ark", "ark reads files.", {"casing": CASING}, "A tool for ARK"),  # nothing has a capital here
    ],
)
def test_how_a_word_is_written(line: str, document: str, options: dict[str, Any], shown: str) -> None:
    casing = options.pop("casing", None)
    assert written(line, document, tokenizer=words(casing=casing), **options).text == shown


def test_sentences_begin_as_the_training_summaries_do() -> None:
    line, document = "a tool : the data of libc6 .  it is new", "Nothing to say."

    def shown(style: str, after_colon: bool = True, **search: Any) -> str:
        tokenizer = words(casing=Casing(capitals=style, after_colon=after_colon))
        return written(line, document, tokenizer=tokenizer, **search).text

    assert shown("sentence") == "A tool: The data of libc6. It is new"
    assert shown("sentence", after_colon=False) == "A tool: the data of libc6. It is new"
    assert shown("lower") == "a tool: the data of libc6. it is new"
    assert shown("title") == "A Tool: The Data of libc6. It Is New"
    assert shown("title", capitals="sentence") == shown("sentence")
    assert shown("sentence", capitals="lower") == shown("lower")


MENDED = [
    ("a tree tree tool", "A tree tool"),
    ("the river rose the river rose in the night", "The river rose in the night"),
    ("look again and again", "Look again and again"),
    ("a tool for the", "A tool"),
    ("a tool for the .", "A tool."),
    ("a tool - with a", "A tool"),
    ("data of the server :", "Data of the server"),
    (", data of ( the server", "Data of the server"),
    (". data of the server", "Data of the server"),
    ('a " tool', "A tool"),
    ("a „ tool “ of data", 'A "tool" of data'),
    ("the ' tool", "The tool"),
    ("the ' tool ' of data", "The 'tool' of data"),
    ("the tools ' data", "The tools' data"),
    ("a tool ( ) of data", "A tool of data"),
    ("data ) of tools", "Data of tools"),
    ("data , , of tools . .", "Data, of tools."),
    ("the", "The"),
    ("2 2 metres", "2 2 metres"),
    ("the report ===== it is new", "The report it is new"),
]
ENGLISH = "This is the text of a report that is said to be new, and of it all."


@pytest.mark.parametrize(("line", "shown"), MENDED)
def test_what_no_one_would_write_is_dropped(line: str, shown: str) -> None:
    assert written(line, ENGLISH).text == shown
    raw = written(line, ENGLISH, surface="raw")
    assert raw.text.split() == words().detokenize(words().encode(line).tokens)[0].split()


BOX = Tokenizer.load(Path(catchline.__file__).parent / "oneline")
SIGNS = [
    # a stretch of the source that was copied token by token, how it is shown
    ("interface to Net::Server and File::Find", "Interface to Net::Server and File::Find"),
    ("filter to secure it by POE::Filter::Stream", "Filter to secure it by POE::Filter::Stream"),
    ("faster std::vector of boost::asio", "Faster std::vector of boost::asio"),
    ("skins for Psi+", "Skins for Psi+"),
    ("a calculator for GTK+.", "A calculator for GTK+"),  # its lines end in no full stop
    ("wrapper for fork() and exec() calls", "Wrapper for fork() and exec() calls"),
    (".NET library", ".NET library"),
    ("-O2 flags", "-O2 flags"),
    ("/etc/hosts manager", "/etc/hosts manager"),
    ("bindings for .NET applications", "Bindings for .NET applications"),
    ("tool to sign .deb and .rpm files", "Tool to sign .deb and .rpm files"),
    ("support for :symbol syntax", "Support for :symbol syntax"),
    ("calls of time.sleep ( Python )", "Calls of time.sleep (Python)"),
    # signs of the model's own, and those that end or begin nothing, go as before
    ("- a library", "A library"),
    ("a library /", "A library"),
    ("the tool ( )", "The tool"),
]


@pytest.mark.parametrize(("piece", "shown"), SIGNS)
def test_signs_stay_with_the_words_that_they_belong_to(piece: str, shown: str) -> None:
    """The bundled model copied a piece of the document token by token."""
    document = f"The tool has {piece} among others. This package contains the library and the tools of the library."
    encoding, first = BOX.encode(document), len("The tool has ")
    ids, _ = extended(encoding, BOX.vocab_size, BOX.unk_id)
    places = [at for at, (start, end) in enumerate(encoding.offsets) if start >= first and end <= first + len(piece)]
    assert summary_of(ids[places].tolist(), np.eye(len(ids))[places], document, BOX).text == shown


def test_levels_unk_and_provenance() -> None:
    made = written("a new tool", ENGLISH, unk=[1])
    assert (made.text, [word.text for word in made.words]) == ("A tool", ["A", "tool"])
    assert written("a new tool", ENGLISH, unk=[0, 1, 2]).text == ""
    assert "<unk>" in written("a new tool", ENGLISH, unk=[1], surface="raw").text
    line, document = "ragout ( ra-gu ) tool tool for the", "We use Ragout (RA-GU), a tool for the night."
    assert written(line, document, surface="raw").text == "ragout (ra-gu) tool tool for the"
    assert written(line, document, surface="cased").text == "Ragout (RA-GU) tool tool for the"
    line = "-lrb- the tool -rrb- did n't it is ."
    made = written(line, f"they say : {line}", tokenizer=words([ORDINARY, line]), surface="tokens")
    assert made.text == line
    assert [made.text[word.start : word.end] for word in made.words] == line.split()
    assert spaced(["a", "<EOS>", "b"], "<EOS>") == ("a b", [(0, 1), (1, 1), (2, 3)])
    made = written("the tree tree report", "Look at the tree and at the report.")  # a word takes its provenance along
    assert [word.text for word in made.words] == ["The", "tree", "report"]
    assert [word.sources[0].text for word in made.words] == ["the", "tree", "report"]


def test_a_vocabulary_with_capitals_keeps_them() -> None:
    tokenizer = words(("Paris paris Tool tool for the The of of .",), lowercase=False)
    document = "We saw paris, and the tool for it."
    assert written("Paris tool tool for the", document, tokenizer=tokenizer).text == "Paris tool"
    assert written("the Tool of paris", document, tokenizer=tokenizer).text == "the Tool of paris"


@pytest.mark.parametrize("lowercase", [True, False])
def test_subwords(lowercase: bool) -> None:
    tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=60, min_frequency=1, lowercase=lowercase))
    tokenizer.train([ORDINARY.lower(), "Ragout RAGU"])
    document = "We use Ragout (RA-GU), e.g. in the night. It is the tool of tools."
    made = written("ragout (ra-gu), e.g. the tool tool for the", document, tokenizer=tokenizer)
    assert made.text == ("Ragout (RA-GU), e.g. the tool" if lowercase else "ragout (ra-gu), e.g. the tool")
    assert [word.text for word in made.words][:2] == (["Ragout", "("] if lowercase else ["ragout", "("])
    assert written("the data don't", "This is text of data that don't.", tokenizer=tokenizer).text[-6:] == " don't"


def test_chinese_comes_through() -> None:
    tokenizer = CharacterTokenizer(CharacterTokenizer.Config(lowercase=True))
    tokenizer.train(["妈妈慢慢走，看看河水。（上海）GPT模型"])
    document = "妈妈 慢慢走，看看河水。（上海）GPT 模型。"
    for line in ("妈妈慢慢走，看看河水", "上海（上海）河水。", "看看妈妈"):
        assert written(line, document, tokenizer=tokenizer).text == line
    assert written("gpt模型", document, tokenizer=tokenizer).text == "GPT模型"


def test_a_checkpoints_own_text_is_only_mended(tmp_path: Path) -> None:
    made = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=90, min_frequency=1))
    made.train([ORDINARY, "Paris Ragout"])
    made.backend.decoder = decoders.Metaspace()
    made.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>", "unk_token": "<unk>"}))
    tokenizer = PretrainedTokenizer(PretrainedTokenizer.Config(path=str(tmp_path)))
    document = "We saw paris and the Tool for it."
    assert written("the tool of Paris", document, tokenizer=tokenizer).text == "the tool of Paris"
    assert written("tool tool of Paris for the", document, tokenizer=tokenizer).text == "tool of Paris"


LETTERS = st.text(alphabet="aAbBé 妈.,:;()\"'-&/\n#1", max_size=40)
TOKENIZERS = {
    "word": words(("a b ab ba aab é , . : ( ) - 妈",)),
    "cased": words(("a b A B ab Ba , . : ( )",), lowercase=False),
    "bpe": BpeTokenizer(BpeTokenizer.Config(max_vocabulary=30, min_frequency=1, lowercase=True)),
    "character": CharacterTokenizer(CharacterTokenizer.Config(lowercase=True)),
}
for _name in ("bpe", "character"):
    TOKENIZERS[_name].train(["a b ab ba A aab é , . : ( ) - 妈"])


@pytest.mark.parametrize("name", TOKENIZERS)
@given(line=LETTERS, document=LETTERS, level=st.sampled_from(["raw", "cased", "clean"]))
@settings(max_examples=40)
def test_spans_index_the_text_and_nothing_is_added(name: str, line: str, document: str, level: str) -> None:
    tokenizer = TOKENIZERS[name]
    if not tokenizer.encode(line).ids or not tokenizer.encode(document).ids:
        return
    made = written(line, document, tokenizer=tokenizer, surface=level)
    end = 0
    for word in made.words:
        assert made.text[word.start : word.end] == word.text
        assert not made.text[end : word.start].strip(), "between words there are blanks only"
        assert all(document[span.start : span.end] == span.text for span in word.sources)
        end = word.end
    raw = written(line, document, tokenizer=tokenizer, surface="raw")
    if level == "raw":
        assert made.text == tokenizer.detokenize([word for word in _tokens(tokenizer, line, document)])[0]
    if level == "cased":
        assert [word.text.lower() for word in made.words] == [word.text.lower() for word in raw.words]


def _tokens(tokenizer: Tokenizer, line: str, document: str) -> list[str]:
    """The tokens of the line as a model can write them: words that neither vocabulary nor source has are UNK."""
    known = set(tokenizer.encode(document).tokens)
    encoding = tokenizer.encode(line)
    unk = tokenizer.token(tokenizer.unk_id)
    pairs = zip(encoding.ids, encoding.tokens, strict=True)
    return [token if id != tokenizer.unk_id or token in known else unk for id, token in pairs]


def test_forms_are_learnt_where_case_says_something() -> None:
    documents = [
        "We like GNOME and iPhone tools. Tools are new. Use Python, or the C++ of old.",
        "New tools of GNOME:\n- Tools that we like\nAn iPhone has tools. It reads Python or new C++ files.",
        "A LIST OF OLD TOOLS FOR ALL. We saw GNOME and an iPhone's case. Now we like Python and like C++.",
        "New Tools For The Old Way. Here the way is old; a way is new; its way. A mixed Mix, mixed Mix, mix Mix mix.",
    ]
    learnt = learn_casing(documents, ["Use of GNOME"])
    assert learnt.forms == {"gnome": ("GNOME", 4), "iphone": ("iPhone", 3), "python": ("Python", 3), "c++": ("C++", 3)}


@pytest.mark.parametrize(
    ("style", "summaries"),
    [
        ("sentence", ["Tool for files", "Report of old data", "GNOME files", "how data"]),
        ("lower", ["tool for files", "report of old data", "GNOME files", "How data"]),
        ("title", ["Tool for New Files and Data", "Report of Old Data Files", "A New Tool for Data", "data"]),
    ],
)
def test_the_style_is_that_of_most_summaries(style: str, summaries: list[str]) -> None:
    documents = ["we use a tool for new files, a report of old data, and say how data reads files."]
    assert learn_casing(documents, summaries * 3).capitals == style


def test_a_full_stop_ends_a_line_where_the_training_summaries_have_one() -> None:
    ends = ["."] + [""] * 30
    assert not learn_casing([], [f"Report of data{end}" for end in ends]).stops
    assert learn_casing([], [f"Report of data{end}" for end in ends[:9]]).stops
    for stops, shown in ((False, "A report"), (True, "A report.")):
        assert written("a report .", ENGLISH, tokenizer=words(casing=Casing(stops=stops))).text == shown
    several = written("a report . it is new .", ENGLISH, tokenizer=words(casing=Casing(stops=False)))
    assert several.text == "A report. It is new."


def test_what_is_learnt_travels_with_the_tokenizer(tmp_path: Path) -> None:
    tokenizer = words(casing=Casing(forms={"luar": ("LUAR", 3)}, capitals="title", after_colon=False, stops=False))
    tokenizer.save(tmp_path)
    assert Tokenizer.load(tmp_path).casing == tokenizer.casing
    (tmp_path / "casing.json").unlink()
    assert Tokenizer.load(tmp_path).casing == Casing(), "a folder of an earlier version opens"
    for damaged in ('{"format": 1, "forms": 3}', "[" * 3000):
        (tmp_path / "casing.json").write_text(damaged)
        with pytest.raises(ModelError, match="damaged"):
            Tokenizer.load(tmp_path)


def test_further_training_keeps_words_up_to_a_bound_and_takes_the_new_style(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Casing(forms={"luar": ("LUAR", 3), "apple": ("apple", 1)}, capitals="title", after_colon=False)
    after = before.adapted(Casing(forms={"gnu": ("GNU", 4)}, capitals="lower", stops=False))
    assert after.forms.keys() == {"luar", "gnu", "apple"}
    assert (after.capitals, after.after_colon, after.stops) == ("lower", True, False)
    monkeypatch.setattr("catchline.text.truecase.MAX_FORMS", 2)
    text = "".join(f"we saw {name} there. " for name in ["Rome"] * 5 + ["Oslo"] * 4 + ["Bern"] * 3)
    assert set(learn_casing([text], []).forms) == {"rome", "oslo"}
