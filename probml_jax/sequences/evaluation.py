"""How good are the labels: token accuracy, spans found, and which labels are taken for which."""

import collections
import dataclasses
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Span(NamedTuple):
    """A labelled stretch of steps, from `start` up to (not including) `end`."""

    kind: str
    start: int
    end: int


def spans(labels: Sequence[str]) -> list[Span]:
    """Spans of BIO or BILOU labels, read as the CoNLL scorer does: an I- of another kind begins a span.

    >>> spans(["B-NP", "I-NP", "O", "I-VP", "B-VP"])
    [Span(kind='NP', start=0, end=2), Span(kind='VP', start=3, end=4), Span(kind='VP', start=4, end=5)]
    """
    found, kind, start = [], None, 0
    closed = True
    for i, label in enumerate([*labels, "O"]):
        head, _, name = label.partition("-")
        begins = head in ("B", "U") or (head in ("I", "L") and (closed or name != kind))
        if not closed and (begins or head == "O"):
            found.append(Span(kind, start, i))
            closed = True
        if begins:
            kind, start, closed = name, i, False
        if head in ("L", "U") and not closed:
            found.append(Span(kind, start, i + 1))
            closed = True
    return found


@dataclasses.dataclass(frozen=True)
class Row:
    """Precision, recall and their harmonic mean for one kind of span or label; `support` is how many there are."""

    precision: float
    recall: float
    f1: float
    support: int


@dataclasses.dataclass(frozen=True)
class TaggingReport:
    """Token accuracy; precision, recall and F1 of spans, of each kind and of all; the same of each label; confusion.

    `confusion[i, j]` counts tokens of label `labels[i]` that were given `labels[j]`. It prints as a table.
    """

    accuracy: float
    span: Row
    kinds: dict[str, Row]
    per_label: dict[str, Row]
    labels: tuple[str, ...]
    confusion: np.ndarray

    @property
    def f1(self) -> float:
        """F1 of spans."""
        return self.span.f1

    def __str__(self) -> str:
        rows = [("all spans", self.span), *self.kinds.items(), *((f"label {n}", r) for n, r in self.per_label.items())]
        lines = [f"{'':16s}{'precision':>10s}{'recall':>10s}{'F1':>10s}{'support':>10s}"]
        for name, r in rows:
            lines.append(f"{name:16s}{r.precision:10.4f}{r.recall:10.4f}{r.f1:10.4f}{r.support:10d}")
        return "\n".join([f"token accuracy {self.accuracy:.4f}", *lines])


def _row(hit: int, proposed: int, support: int) -> Row:
    precision, recall = hit / max(proposed, 1), hit / max(support, 1)
    return Row(precision, recall, 2 * precision * recall / max(precision + recall, 1e-300), support)


def tagging_report(gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]) -> TaggingReport:
    """Compare label sequences with the true ones.

    >>> report = tagging_report([["B-NP", "I-NP", "O"]], [["B-NP", "I-NP", "B-NP"]])
    >>> round(report.accuracy, 3), round(report.f1, 3)
    (0.667, 0.667)
    """
    if len(gold) != len(predicted):
        raise ValueError(f"{len(gold)} true sequences with {len(predicted)} predicted ones; one each is wanted.")
    for i, (a, b) in enumerate(zip(gold, predicted, strict=True)):
        if len(a) != len(b):
            raise ValueError(f"sequence {i} has {len(a)} true labels and {len(b)} predicted ones.")
    labels = tuple(sorted({label for side in (gold, predicted) for sentence in side for label in sentence}))
    if not labels:
        raise ValueError("there are no labels to compare.")
    number = {label: i for i, label in enumerate(labels)}
    pairs = collections.Counter(
        (a, b) for one, two in zip(gold, predicted, strict=True) for a, b in zip(one, two, strict=True)
    )
    confusion = np.zeros((len(labels), len(labels)), int)
    for (a, b), count in pairs.items():
        confusion[number[a], number[b]] = count
    hits, proposed, support = collections.Counter(), collections.Counter(), collections.Counter()
    for one, two in zip(gold, predicted, strict=True):
        true, found = set(spans(one)), set(spans(two))
        support.update(s.kind for s in true)
        proposed.update(s.kind for s in found)
        hits.update(s.kind for s in true & found)
    kinds = {kind: _row(hits[kind], proposed[kind], support[kind]) for kind in sorted({*support, *proposed})}
    of_label = lambda i: _row(int(confusion[i, i]), int(confusion[:, i].sum()), int(confusion[i].sum()))
    return TaggingReport(
        accuracy=float(np.trace(confusion) / confusion.sum()),
        span=_row(hits.total(), proposed.total(), support.total()),
        kinds=kinds,
        per_label={label: of_label(i) for i, label in enumerate(labels)},
        labels=labels,
        confusion=confusion,
    )
