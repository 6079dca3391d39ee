"""From words and feature functions to arrays, on the host."""

import itertools
import json
import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from .._buckets import Buckets, bucketed
from ..inference.sparse import sparse_matrix
from .data import Sequences
from .grammar import Constraints, bilou_constraints, bio_constraints
from .scores import SparseFeatures
from .tagger import Complete
from .vocabulary import Vocabulary


class Observed(NamedTuple):
    """Pairs of feature and label, and transitions, that occur in data: what gets weights in `LinearChainCRF.sparse`."""

    features: Int[Array, "p"]
    labels: Int[Array, "p"]
    transitions: Bool[Array, "k k"]


class FeatureEncoder:
    """A frozen vocabulary of features and labels.

    A sentence is a list of steps; a step is a list of feature strings (CRFsuite's form), or a mapping from feature to
    value: a number, `True`/`False`, or a string (the feature `name:string`). Features that were not seen when the
    encoder was made are left out.

    >>> encoder = FeatureEncoder.from_sentences([[["w=the"], ["w=cat", "cap"]]], [["DET", "NOUN"]])
    >>> encoder.num_features, encoder.num_labels, encoder.labels([1, 0, -1])
    (3, 2, ['NOUN', 'DET'])
    >>> encoder.encode([[["w=cat", "w=dog"]]]).parts[0].xs.tolist()
    [[[1, -1]]]
    """

    def __init__(self, features: Vocabulary, labels: Vocabulary):
        self.features, self.tags = features, labels

    @classmethod
    def from_sentences(
        cls, sentences: Sequence[Sequence[Any]], labels: Sequence[Sequence[str | None]], *, min_count: int = 1
    ) -> Self:
        """Features seen at least `min_count` times, and all labels."""
        _check_alike(sentences, labels)
        steps = itertools.chain.from_iterable(sentences)
        names = itertools.chain.from_iterable(map(_names, steps))
        if min_count == 1:
            features = Vocabulary(tuple(dict.fromkeys(names)))
        else:
            features = Vocabulary.from_sentences([list(names)], min_count)
        tags = dict.fromkeys(itertools.chain.from_iterable(labels))
        return cls(features, Vocabulary(tuple(tag for tag in tags if tag is not None)))

    @property
    def num_features(self) -> int:
        """Features that were seen often enough."""
        return len(self.features)

    @property
    def num_labels(self) -> int:
        """Labels that were seen."""
        return len(self.tags)

    def encode(
        self,
        sentences: Sequence[Sequence[Any]],
        labels: Sequence[Sequence[str | None]] | None = None,
        *,
        max_buckets: int = 4,
    ) -> Buckets:
        """Sentences as lists of feature numbers in at most `max_buckets` arrays; labels of `None` are unknown (-1).

        The parts are `Sequences(xs, lengths, states)` with `xs (n, t, m)`, or `SparseFeatures` where there are values.
        """
        if not sentences:
            raise ValueError("sentences is empty: at least one is wanted.")
        lengths = np.fromiter(map(len, sentences), np.int32, len(sentences))
        if lengths.min() == 0:
            raise ValueError(f"sentence {int(np.argmin(lengths))} is empty: at least one step is wanted.")
        steps = list(itertools.chain.from_iterable(sentences))
        index, values = self._lists(steps)
        states = None if labels is None else self._states(sentences, labels)
        complete = states is not None and states.min() >= 0
        offsets = np.concatenate([[0], np.cumsum(lengths)])

        def part(rows: np.ndarray) -> Sequences:
            t = int(lengths[rows].max())
            within = np.arange(t)[None, :] < lengths[rows][:, None]
            where = np.where(within, offsets[rows][:, None] + np.arange(t)[None, :], -1)
            pad = lambda a, empty: jnp.asarray(np.concatenate([a, np.full_like(a[:1], empty)])[where])
            xs = pad(index, -1) if values is None else SparseFeatures(pad(index, -1), pad(values, 0))
            known = None if states is None else pad(states, -1)
            return Sequences(xs, jnp.asarray(lengths[rows]), Complete(known) if complete else known)

        groups = bucketed(lengths, max_buckets)
        parts = tuple(map(part, groups))
        pooled = None
        if states is not None and values is None:  # to learn from: both directions of every product are prepared
            rows = np.concatenate([np.asarray(p.xs).reshape(-1, index.shape[1]) for p in parts])
            pooled = sparse_matrix(rows, self.num_features)
        return Buckets(parts, tuple(jnp.asarray(rows) for rows in groups), pooled)

    def _lists(self, steps: list[Any]) -> tuple[np.ndarray, np.ndarray | None]:
        """Feature numbers of every step `(steps, m)`, and their values where any step has some."""
        counts = np.fromiter(map(len, steps), np.int64, len(steps))
        m = max(int(counts.max(initial=0)), 1)
        numbers = self.features.numbers(itertools.chain.from_iterable(map(_names, steps)), int(counts.sum()))
        if counts.min(initial=m) == m:
            index = numbers.reshape(-1, m)
        else:
            index = np.full((len(steps), m), -1, np.int32)
            index[np.arange(m)[None, :] < counts[:, None]] = numbers
        if not any(isinstance(step, Mapping) for step in steps):
            return index, None
        values = np.zeros(index.shape, np.dtype(jnp.result_type(float)))
        flat = itertools.chain.from_iterable(map(_values, steps))
        values[np.arange(m)[None, :] < counts[:, None]] = np.fromiter(flat, values.dtype, int(counts.sum()))
        return index, values

    def _states(self, sentences: Sequence[Sequence[Any]], labels: Sequence[Sequence[str | None]]) -> np.ndarray:
        _check_alike(sentences, labels)
        flat = list(itertools.chain.from_iterable(labels))
        numbers = self.tags.numbers(flat, len(flat))
        unknown = [tag for tag, number in zip(flat, numbers, strict=True) if number == -1 and tag is not None]
        if unknown:
            raise ValueError(f"label {unknown[0]!r} is not one of the encoder's {self.num_labels} labels.")
        return numbers

    def labels(self, path: Any) -> list[str]:
        """Names of a path's labels; what is -1 (beyond the end) is left out."""
        return self.tags.decode(path)

    def bio_mask(self) -> Constraints:
        """The grammar of O, B-X, I-X over the encoder's labels."""
        return bio_constraints(self.tags.words)

    def bilou_mask(self) -> Constraints:
        """The grammar of O, B-X, I-X, L-X, U-X over the encoder's labels."""
        return bilou_constraints(self.tags.words)

    def observed(self, data: Buckets) -> Observed:
        """Pairs of feature and label, and transitions, that occur in encoded data with known labels."""
        k = self.num_labels
        pairs, moves = [], np.zeros((k, k), bool)
        for part in data.parts:
            index = np.asarray(part.xs.index if isinstance(part.xs, SparseFeatures) else part.xs)
            states = np.asarray(part.states.labels if isinstance(part.states, Complete) else part.states)
            seen = (index >= 0) & (states >= 0)[..., None]
            pairs.append(np.unique((index.astype(np.int64) * k + states[..., None])[seen]))
            both = (states[:, :-1] >= 0) & (states[:, 1:] >= 0)
            moves[states[:, :-1][both], states[:, 1:][both]] = True
        found = np.unique(np.concatenate(pairs))
        return Observed(jnp.asarray(found // k, jnp.int32), jnp.asarray(found % k, jnp.int32), jnp.asarray(moves))

    def save(self, path: Any) -> None:
        """Written as JSON."""
        record = {"format": "probml_jax.FeatureEncoder", "version": 1, "features": self.features.words}
        pathlib.Path(path).write_text(json.dumps(record | {"labels": self.tags.words}))

    @classmethod
    def load(cls, path: Any) -> Self:
        """What `save` wrote."""
        record = json.loads(pathlib.Path(path).read_text())
        if not isinstance(record, dict) or record.get("format") != "probml_jax.FeatureEncoder":
            raise ValueError(f"{path} is not a saved FeatureEncoder.")
        if record["version"] != 1:
            raise ValueError(f"{path} has version {record['version']}; this library reads version 1.")
        return cls(Vocabulary(tuple(record["features"])), Vocabulary(tuple(record["labels"])))


def apply_features(
    functions: Sequence[Callable[[Any, int], str | Iterable[str] | None]], sentences: Iterable[Sequence[Any]]
) -> list[list[list[str]]]:
    """Features of every step by functions of (sentence, position): a string, several, or `None` for nothing.

    >>> word = lambda sentence, i: f"w={sentence[i]}"
    >>> before = lambda sentence, i: f"w-1={sentence[i - 1]}" if i else None
    >>> apply_features([word, before], [["the", "cat"]])
    [[['w=the'], ['w=cat', 'w-1=the']]]
    """

    def at(sentence, i):
        found = (function(sentence, i) for function in functions)
        lists = ([f] if isinstance(f, str) else f for f in found if f is not None)
        return list(itertools.chain.from_iterable(lists))

    return [[at(sentence, i) for i in range(len(sentence))] for sentence in sentences]


def _names(step: Any) -> Iterable[str]:
    if isinstance(step, Mapping):
        return [f"{name}:{value}" if isinstance(value, str) else name for name, value in step.items()]
    if isinstance(step, str):
        raise ValueError(f"a step is the string {step!r}; a list of feature strings is wanted.")
    return step


def _values(step: Any) -> Iterable[float]:
    if isinstance(step, Mapping):
        return [1.0 if isinstance(value, str) else float(value) for value in step.values()]
    return itertools.repeat(1.0, len(step))


def _check_alike(sentences: Sequence[Sequence[Any]], labels: Sequence[Sequence[Any]]) -> None:
    if len(sentences) != len(labels):
        raise ValueError(f"{len(sentences)} sentences with {len(labels)} label lists; one each is wanted.")
    for i, (sentence, tags) in enumerate(zip(sentences, labels, strict=True)):
        if len(sentence) != len(tags):
            raise ValueError(f"sentence {i} has {len(sentence)} steps and {len(tags)} labels.")
