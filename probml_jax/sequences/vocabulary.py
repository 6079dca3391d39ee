"""Words and their numbers."""

import collections
import dataclasses
import itertools
from collections.abc import Iterable, Sequence
from typing import Any, Self

import numpy as np


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """A frozen list of words; a word outside it is -1, which an open-vocabulary `NGram` reads as unknown.

    >>> vocabulary = Vocabulary.from_sentences([["the", "cat"], ["the", "dog"]])
    >>> vocabulary.encode([["the", "bird"]])[0].tolist(), vocabulary.decode([0, 2])
    ([0, -1], ['the', 'dog'])
    """

    words: tuple[str, ...]

    def __post_init__(self):
        if len(set(self.words)) != len(self.words):
            raise ValueError("words holds the same word twice.")
        object.__setattr__(self, "_index", {word: i for i, word in enumerate(self.words)})

    @classmethod
    def from_sentences(cls, sentences: Iterable[Sequence[str]], min_count: int = 1) -> Self:
        """Words seen at least `min_count` times, the commonest first (ties: first seen first)."""
        counts = collections.Counter(word for sentence in sentences for word in sentence)
        return cls(tuple(word for word, count in counts.most_common() if count >= min_count))

    def __len__(self) -> int:
        return len(self.words)

    def encode(self, sentences: Iterable[Sequence[str]]) -> list[np.ndarray]:
        """Each sentence as an array of whole numbers."""
        return [self.numbers(s, len(s)) for s in sentences]

    def numbers(self, words: Iterable[str | None], count: int) -> np.ndarray:
        """The numbers of `count` words as one array."""
        return np.fromiter(map(self._index.get, words, itertools.repeat(-1)), np.int32, count)

    def decode(self, tokens: Any) -> list[str]:
        """Words of tokens; those of -1 (after the end) are left out."""
        return [self.words[i] for i in np.asarray(tokens).tolist() if i >= 0]
