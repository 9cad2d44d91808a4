"""SumBasic (Nenkova and Vanderwende 2005; Vanderwende et al. 2007): frequent words, each less worth once used.

The sentence with the highest mean word probability is taken, then the probabilities of its words are squared
(once an occurrence, as in sumy), and so on. There is no rule that it must contain the most probable word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from laconic.extractive.base import Extractor, WordsConfig
from laconic.extractive.terms import SentenceTerms


class SumBasic(Extractor):
    """Ties go to the earlier sentence; a sentence without content words is worth nothing."""

    Config = WordsConfig

    def pick(self, sentences: list[str]) -> Sequence[int]:
        content = SentenceTerms(sentences, self.config).content
        frequency = Counter(number for row in content for number in row)
        total = sum(frequency.values())
        probability = {number: count / total for number, count in frequency.items()}
        users: dict[int, set[int]] = {}
        for index, row in enumerate(content):
            for number in row:
                users.setdefault(number, set()).add(index)

        def worth(index: int) -> float:
            row = content[index]
            return sum([probability[number] for number in row]) / len(row) if row else 0.0

        left = {index: worth(index) for index in range(len(content))}
        picked: list[int] = []
        while left and len(picked) < self.config.sentences:
            chosen = max(left, key=lambda index: (left[index], -index))
            picked.append(chosen)
            del left[chosen]
            for number in content[chosen]:
                probability[number] *= probability[number]
            for index in {user for number in content[chosen] for user in users[number]} & left.keys():
                left[index] = worth(index)
        return picked
