"""Sentences of other languages than English: where they end, and that English ones end where they did."""

from __future__ import annotations

import pytest

from laconic.text.casing import begins, learn_casing
from laconic.text.languages import is_foreign
from laconic.text.sentences import sentence_strings

GERMAN = "Die Bürger der Stadt freuen sich über das neue Haus."
FRENCH = "Les habitants de la ville sont très contents de leur nouvelle école."
SPANISH = "Los vecinos de la ciudad están muy contentos con la nueva escuela."
ITALIAN = "Gli abitanti della città sono molto contenti della nuova scuola."
POLISH = "Mieszkańcy się cieszą, że w mieście jest nowa szkoła."
RUSSIAN = "Жители города очень рады новой школе."
TURKISH = "Şehrin halkı bu yeni okul için çok sevindi."
HINDI = "शहर के लोग बहुत खुश हैं।"


@pytest.mark.parametrize(
    "sentences",
    [
        [GERMAN, "Am 3. Oktober kam, z. B. aus Bonn, Hr. Koch mit dem 2. Vorsitzenden.", "Der Zug fuhr um 5.", "Aus."],
        [GERMAN, "Es kostet ca. 3 Mio. Euro, vgl. S. 12 und Abs. 2.", "Goethestr. 7 stand im 19. Jahrhundert leer."],
        [GERMAN, "„Es ist so weit. Wir gehen!“, rief er.", "2. Fassung.", "Ludwig II. von Bayern kam nie."],
        [FRENCH, "M. Dupont vint, p. ex., avec Mme. Durand à 8 h. 30 au bd. Hugo.", "J.-P. Roux lut l'art. 5 ici."],
        [SPANISH, "El Sr. Pérez y la Dra. Ruiz viven en EE. UU. desde el s. XIX.", "¿Quién?", "¡Nadie dijo que no!"],
        [ITALIAN, "Il sig. Rossi e l'avv. Neri lessero l'art. 5, pag. 12, di G. Verga.", "Arriva alle 10.", "Ecco."],
        [POLISH, "W 3. dniu 2020 r. prof. Nowak był m.in. przy ul. Długiej.", "Kto?", "„Nie!” – krzyknął."],
        [RUSSIAN, "А. С. Пушкин жил, т. е. писал, на ул. Ленина, д. 5.", "«Это правда?» — спросила дама.", "Да."],
        [RUSSIAN, "Это было в 2024 г.", "Затем стало тихо."],
        [TURKISH, "2. Dünya Savaşı vb. olaylar Av. Kaya için zordu.", "“Doğru mu?” diye sordu kadın."],
        [HINDI, "डॉ. शर्मा और ए. पी. कलाम आए।", "“क्या यह सच है?” महिला ने पूछा।"],
        ["وصل د. محمد إلى القاهرة في المساء.", "هل جاء المال؟", "لا أحد يعرف."],
        ["ราคาเพิ่มขึ้นใน พ.ศ. 2567 ดร. สมชาย กล่าว"],
    ],
)
def test_sentences_of_other_languages_end_where_they_end(sentences: list[str]) -> None:
    assert sentence_strings(" ".join(sentences)) == sentences


@pytest.mark.parametrize(
    "sentences",
    [
        ["市长说：“我们等了很久。现在好了。”", "他走了。", "2024年涨了3.5%……", "“真的吗？”她问。", "没有人知道！"],
        ["市長は「長く待った。やっとできた。」と述べた。", "10時に着く。", "『猫である。名は無い。』という本だ。"],
        ['그는 "오래 기다렸다."라고 말했다.', " 2020. 10. 3. 문을 열었다."],
    ],
)
def test_quotations_and_numbers_without_blanks(sentences: list[str]) -> None:
    assert sentence_strings("".join(sentences)) == [one.strip() for one in sentences]


def test_small_letters_throughout_are_no_reason_to_go_on() -> None:
    assert sentence_strings("ich bin für das da. er ist nicht da. und wo bist du?")[1:] == [
        "er ist nicht da.",
        "und wo bist du?",
    ]


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
    assert not is_foreign(text)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (f"{GERMAN} Am 3. Oktober kam Dr. Müller. Er blieb.", ["Oktober", "Müller"]),
        (f"{FRENCH} Là vint M. Dupont. Rien d'autre.", ["Dupont"]),
        (f"{RUSSIAN} Он жил на ул. Ленина очень долго. Потом уехал.", ["Ленина"]),
    ],
)
def test_names_behind_short_forms_and_ordinals_keep_their_capitals(text: str, names: list[str]) -> None:
    """A summary had "am 3. oktober" and "M. dupont": their capitals were those of a sentence's beginning."""
    assert [begins(text, text.index(name)) for name in names] == [False] * len(names)
    assert begins(text, text.rindex(". ") + 2)
    assert {name.lower() for name in names} <= learn_casing([text] * 3, []).forms.keys()
    assert begins("He met Dr. Smith on the 3. Then he went.", 11)
