"""Sentences of other languages than English: where they end, and that English ones end where they did."""

from __future__ import annotations

import pytest

from catchline.text.casing import begins, learn_casing
from catchline.text.languages import is_foreign
from catchline.text.sentences import sentence_strings

GERMAN = "Die Bürger der Stadt freuen sich über das neue Haus."
FRENCH = "Les habitants de la ville sont très contents de leur nouvelle école."
SPANISH = "Los vecinos de la ciudad están muy contentos con la nueva escuela."
ITALIAN = "Gli abitanti della città sono molto contenti della nuova scuola."
POLISH = "Mieszkańcy się cieszą, że w mieście jest nowa szkoła."
RUSSIAN = "Жители города очень рады новой школе."
TURKISH = "Şehrin halkı bu yeni okul için çok sevindi."
HINDI = "शहर के लोग बहुत खुश हैं।"


@pytest.mark.parametrize(
    "marked",  # a bar where a sentence ends
    [
        GERMAN + "| Am 3. Oktober kam, z. B. aus Bonn, Hr. Koch mit dem 2. Vorsitzenden.| Der Zug fuhr um 5.| Aus.",
        GERMAN + "| Es kostet ca. 3 Mio. Euro, vgl. S. 12 und Abs. 2.| Goethestr. 7 stand im 19. Jahrhundert leer.",
        GERMAN + "| „Es ist so weit. Wir gehen!“, rief er.| 2. Fassung.| Ludwig II. von Bayern kam nie.",
        "Die Stadt feierte ihr Jubiläum bzw. mehr, z. B. am Rathaus.| Es kostete 1.234,5 Euro.| Wer zahlt?",
        FRENCH + "| M. Dupont vint, p. ex., avec Mme. Durand à 8 h. 30 au bd. Hugo.| J.-P. Roux lut l'art. 5 ici.",
        "M. Dupont a ouvert la séance du 1er mars.| Le vote est le 12 avr. prochain, p. ex. ici.| Bon.",
        SPANISH + "| El Sr. Pérez y la Dra. Ruiz viven en EE. UU. desde el s. XIX.| ¿Quién?| ¡Nadie dijo que no!",
        "El Sr. García habló 20 min. sobre la Av. Libertad y las obras de EE. UU. que costarán más.| ¿Quién pagará?",
        ITALIAN + "| Il sig. Rossi e l'avv. Neri lessero l'art. 5, pag. 12, di G. Verga.| Arriva alle 10.| Ecco.",
        "Il sig. Rossi ha aperto la seduta con la dott.ssa Bianchi.| L'art. 5 del regolamento è noto, cfr. pag. 14.",
        POLISH + "| W 3. dniu 2020 r. prof. Nowak był m.in. przy ul. Długiej.| Kto?| „Nie!” – krzyknął.",
        "Prof. Nowak mówił m.in. o budżecie.| Prace przy ul. Długiej nie są skończone.| Zob. str. 14 raportu na końcu.",
        RUSSIAN + "| А. С. Пушкин жил, т. е. писал, на ул. Ленина, д. 5.| «Это правда?» — спросила дама.| Да.",
        RUSSIAN + "| Это было в 2024 г.| Затем стало тихо.| В 2020 г. Москва росла.",
        "В 1999 г. в Москве открылась библиотека, и в ней 250 тыс. книг и ок. 300 карт.| Он родился в г. Туле.",
        TURKISH + "| 2. Dünya Savaşı vb. olaylar Av. Kaya için zordu.| “Doğru mu?” diye sordu kadın.",
        HINDI + "| डॉ. शर्मा और ए. पी. कलाम आए।| “क्या यह सच है?” महिला ने पूछा।",
        "وصل د. محمد إلى القاهرة في المساء.| هل جاء المال؟| لا أحد يعرف.",
        "ราคาเพิ่มขึ้นใน พ.ศ. 2567 ดร. สมชาย กล่าว",
    ],
)
def test_sentences_of_other_languages_end_where_they_end(marked: str) -> None:
    text = marked.replace("|", "")
    assert sentence_strings(text) == [one.strip() for one in marked.split("|")]
    assert len(sentence_strings(text, "en")) > marked.count("|") + 1, "by the rules of English they would not"


@pytest.mark.parametrize(
    "marked",
    [
        GERMAN + "| Es sind 50 Hz.| Er kam.",
        "市长说：“我们等了很久。现在好了。”|他走了。|2024年涨了3.5%……|“真的吗？”她问。|没有人知道！",
        "市長は「長く待った。やっとできた。」と述べた。|10時に着く。|『猫である。名は無い。』という本だ。",
        '그는 "오래 기다렸다."라고 말했다.| 2020. 10. 3. 문을 열었다.',
        # small letters throughout are no reason to go on
        "ich bin für das da.| er ist nicht da.| und wo bist du?",
    ],
)
def test_quotations_numbers_and_small_letters(marked: str) -> None:
    assert sentence_strings(marked.replace("|", "")) == [one.strip() for one in marked.split("|")]


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
