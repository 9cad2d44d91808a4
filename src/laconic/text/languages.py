"""The language that a text is in, told by its function words where these leave no doubt; else it counts as English."""

from __future__ import annotations

from collections import Counter

ENGLISH = "en"
_READ = 1_500  # characters, at the beginning
_SHARE = 0.12  # of a text's words, at least, are among those of its language here, and twice as many as English ones
_FEWEST = 3
# The languages in which `sentencex` knows other short forms than in English.
_FUNCTION_WORDS = {
    ENGLISH: "the of and to that for it with was by be are this from not have which you",
    "ca": "el la els les i que en una per amb del és no se als dels aquest va són més com",
    "cs": "na se je že pro jako by ale bylo které která který nebo jsou byl byla jeho podle také však až už",
    "da": "og at er på med som den til af ikke har var det blev efter der kan eller fra også",
    "de": "der das und ist nicht ein eine mit von den dem des sich auf für im zu auch wird wurde nach bei einer ich "
    "sie er es wir hat war sind zum am an oder nur",
    "el": "και το να του η της με την για από ο οι τα στο που θα δεν των είναι στην",
    "es": "el la los las y que en un una por con para del se su al más como fue no",
    "fi": "ja on ei se että oli hän mutta kun myös ovat tai joka vain niin mukaan jotka sekä ole",
    "fr": "le la les des et est une du dans que pour qui sur pas par au aux avec ce il elle",
    "it": "il gli che di è una per con del della nel sono non alla dei le la un si ha",
    "nl": "de het een en van is niet dat op te zijn met voor aan er bij ook naar wordt",
    "pl": "się nie jest że oraz przez jak na do z w po od przy są był była także ale dla",
    "pt": "os que da em um uma para com não por dos das na ao se mais foi como e do",
    "ru": "и в на не что с по как из это для за от был была он его но также к",
    "uk": "і в на не що з та як із це для за від був була він його але також до у",
}
_LANGUAGES: dict[str, list[str]] = {}
for _language, _words in _FUNCTION_WORDS.items():
    for _word in _words.split():
        _LANGUAGES.setdefault(_word, []).append(_language)


def language_of(text: str) -> str:
    """An ISO code, one of those for which sentences are known to end otherwise than in English, else ``en``."""
    words = text[:_READ].lower().split()
    found = Counter(language for word in words for language in _LANGUAGES.get(word, ()))
    english = found.pop(ENGLISH, 0)
    language, most = max(found.items(), key=lambda item: (item[1], item[0]), default=(ENGLISH, 0))
    return language if most >= max(_FEWEST, _SHARE * len(words), 2 * english) else ENGLISH
