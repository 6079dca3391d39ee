"""The ARPA file format of back-off language models."""

import os
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from .ngram import NGram
from .trie import Counted, to_levels
from .vocabulary import Vocabulary

_LOG10 = float(np.log(10))
_NEVER = -99.0  # what the format writes for log10 of zero
_SPECIAL = ("<unk>", "<s>", "</s>")


def write_arpa(lm: NGram, path: str | os.PathLike, vocabulary: Vocabulary | Sequence[str] | None = None) -> None:
    """Writes a model for other tools; tokens are called by their words, or by their numbers without a vocabulary.

    `ValueError` for words that the format cannot hold: empty, with white space, reserved (`<s>`) or twice the same.

    >>> import tempfile, probml_jax as pml
    >>> lm = pml.sequences.NGram.from_tokens([[0, 1], [1, 1, 0]], order=2, vocab_size=2, smoothing="add_k", k=0.5)
    >>> with tempfile.NamedTemporaryFile(suffix=".arpa") as file:
    ...     write_arpa(lm, file.name, ["yes", "no"])
    ...     "ngram 1=" in file.read().decode()
    True
    """
    names = _names(lm, vocabulary)
    log10 = lambda a: np.maximum(np.asarray(a, np.float64) / _LOG10, _NEVER)
    rows = [np.arange(len(names))[:, None]]
    for level in lm.levels:
        parent = np.repeat(np.arange(len(level.starts) - 1), np.diff(np.asarray(level.starts)))
        rows.append(np.concatenate([rows[-1][parent], np.asarray(level.words)[:, None]], axis=1))
    with open(path, "w", encoding="utf-8") as file:
        file.write("\\data\\\n" + "".join(f"ngram {n}={len(r)}\n" for n, r in enumerate(rows, 1)))
        for n, (row, scores) in enumerate(zip(rows, lm.log_probs, strict=True), 1):
            file.write(f"\n\\{n}-grams:\n")
            texts = [" ".join(words) for words in names[row]]
            values = log10(scores)
            if n < lm.order:
                weights = log10(lm.log_backoffs[n - 1])
                lines = (f"{p:.7g}\t{w}\t{b:.7g}\n" for p, w, b in zip(values, texts, weights, strict=True))
            else:
                lines = (f"{p:.7g}\t{w}\n" for p, w in zip(values, texts, strict=True))
            file.writelines(lines)
        file.write("\n\\end\\\n")


def _names(lm: NGram, vocabulary: Vocabulary | Sequence[str] | None) -> np.ndarray:
    words = vocabulary.words if isinstance(vocabulary, Vocabulary) else vocabulary
    words = [str(i) for i in range(lm.vocab_size)] if words is None else list(words)
    if len(words) != lm.vocab_size:
        raise ValueError(f"vocabulary has {len(words)} words; the model has {lm.vocab_size} tokens.")
    for word in words:
        if word.split() != [word] or word in _SPECIAL:
            raise ValueError(
                f"vocabulary has the word {word!r}; a file has no white space in words, and {_SPECIAL} are its own."
            )
    if len(set(words)) < len(words):
        raise ValueError("vocabulary has the same word twice.")
    special = ["<unk>"] * lm.open_vocabulary + ["</s>", "<s>"] * lm.boundaries
    return np.array(words + special, dtype=object)


def read_arpa(path: str | os.PathLike, dtype=None) -> tuple[NGram, Vocabulary]:
    """A model and its vocabulary from an ARPA file, ours or another tool's.

    `ValueError` names the line that is not as the format wants it, or what is missing of a file that was cut.

    >>> import tempfile, probml_jax as pml
    >>> lm = pml.sequences.NGram.from_tokens([[0, 1], [1, 1, 0]], order=2, vocab_size=2, smoothing="add_k", k=0.5)
    >>> with tempfile.NamedTemporaryFile(suffix=".arpa") as file:
    ...     pml.sequences.write_arpa(lm, file.name, ["yes", "no"])
    ...     again, vocabulary = read_arpa(file.name)
    >>> again.order, vocabulary.words[:2]
    (2, ('yes', 'no'))
    """
    sections = _sections(path)
    names = [words[0] for _, words, _ in sections[0]]
    has_unknown, has_end, has_start = (w in names for w in ("<unk>", "</s>", "<s>"))
    if has_end != has_start:
        raise ValueError(f"{path}: only one of <s> and </s> is among the 1-grams.")
    plain = [w for w in names if w not in _SPECIAL]
    order = plain + ["<unk>"] * has_unknown + ["</s>", "<s>"] * has_start
    index = {word: i for i, word in enumerate(order)}
    counted, probs, backoffs = [], [], []
    for n, rows in enumerate(sections, 1):
        level, score, weight = _level(path, n, rows, index, counted)
        counted.append(level)
        probs.append(score)
        backoffs.append(weight)
    dtype = jnp.result_type(float) if dtype is None else dtype
    arrays = lambda parts: tuple(jnp.asarray(a, dtype) for a in parts)
    lm = NGram(to_levels(counted), arrays(probs), arrays(backoffs[:-1]), len(plain), has_unknown, has_start)
    return lm, Vocabulary(tuple(plain))


def _sections(path) -> list[list[tuple[float, list[str], float]]]:
    sections, place, counts, ended = [], None, {}, False
    with open(path, encoding="utf-8") as file:
        for number, line in enumerate(file, 1):
            line = line.strip()
            if not line or line == "\\data\\":
                continue
            if line == "\\end\\":
                ended = True
                break
            if place is None and line.startswith("ngram "):
                order, _, count = line[6:].partition("=")
                counts[order.strip()] = count.strip()
                continue
            if line.startswith("\\") and line.endswith("-grams:"):
                place = int(line[1:-7])
                sections.append([])
                continue
            if place is None:
                raise ValueError(f"{path}, line {number}: {line!r} before any section; this is not an ARPA file.")
            fields = line.split("\t") if "\t" in line else line.split()
            words = fields[1].split() if "\t" in line else fields[1 : 1 + (place or 0)]
            try:
                weight = float(fields[-1]) if len(fields) > (2 if "\t" in line else 1 + place) else 0.0
                sections[-1].append((float(fields[0]), words, weight))
            except (ValueError, IndexError, TypeError) as error:
                raise ValueError(f"{path}, line {number}: not an n-gram line: {line!r}.") from error
            if len(words) != place:
                raise ValueError(f"{path}, line {number}: {len(words)} words in the section of {place}-grams.")
    if not sections:
        raise ValueError(f"{path}: no \\1-grams: section; this is not an ARPA file.")
    if not ended:
        raise ValueError(f"{path}: no \\end\\; the file has been cut.")
    found = {str(n): str(len(rows)) for n, rows in enumerate(sections, 1)}
    if found != counts:
        raise ValueError(f"{path}: counts of n-grams are {found}; its head says {counts}.")
    return sections


def _level(path, n: int, rows, index, below: list[Counted]) -> tuple[Counted, np.ndarray, np.ndarray]:
    """One order, sorted as the trie wants it; unigrams stand at their symbol's number."""
    try:
        symbols = np.array([[index[w] for w in words] for _, words, _ in rows], np.int64).reshape(-1, n)
    except KeyError as error:
        raise ValueError(f"{path}: the {n}-grams use {error.args[0]!r}, which is not among the 1-grams.") from error
    base = lambda column: np.where(column <= _NEVER + 1e-6, -np.inf, column * _LOG10)
    scores, weights = (base(np.array([row[i] for row in rows])) for i in (0, 2))
    size = len(index)
    node = symbols[:, 0]
    for level, word in zip(below[1:], symbols[:, 1:-1].T, strict=False):
        keys = level.parent * size + level.word
        place = np.minimum(np.searchsorted(keys, node * size + word), keys.size - 1)
        if np.any(keys[place] != node * size + word):
            raise ValueError(f"{path}: some {n}-gram has a prefix that is not among the {n - 1}-grams.")
        node = place
    parent = node if n > 1 else np.zeros(len(rows), np.int64)
    sort = np.lexsort((symbols[:, -1], parent))
    nothing = np.zeros(len(rows), np.int64)
    return Counted(parent[sort], symbols[sort, -1], nothing, nothing, nothing > 0), scores[sort], weights[sort]
