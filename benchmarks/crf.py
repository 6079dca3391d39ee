"""Chunking CoNLL-2000 with a linear-chain CRF, against CRFsuite: the same features, the same objective, one process."""

import importlib.util
import pathlib
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np

import probml_jax as pml
from benchmarks.timing import Row, measure

STEPS = 50


def read(path: pathlib.Path) -> list[list[list[str]]]:
    """Sentences of tokens (word, part of speech, chunk label)."""
    blocks = path.read_text().strip().split("\n\n")
    return [[line.split(" ") for line in block.split("\n")] for block in blocks]


def features(sentence: list[list[str]]) -> list[list[str]]:
    """Words -2..2, word pairs (-1, 0), (0, 1), tags -2..2, tag pairs and triples within -2..2; none beyond the ends."""
    n = len(sentence)
    column = lambda j: [token[j] for token in sentence]
    spans = {"w": [(-2, 1), (-1, 1), (0, 1), (1, 1), (2, 1), (-1, 2), (0, 2)]}
    spans["p"] = [*spans["w"][:5], *((d, 2) for d in range(-2, 2)), *((d, 3) for d in range(-2, 1))]
    named = [(name, column(j), list_) for j, (name, list_) in enumerate(spans.items())]
    at = lambda i: [
        f"{name}{d}+{size}={'|'.join(values[i + d : i + d + size])}"
        for name, values, list_ in named
        for d, size in list_
        if i + d >= 0 and i + d + size <= n
    ]
    return [at(i) for i in range(n)]


def _load(folder: pathlib.Path, name: str):
    sentences = read(folder / "conll2000" / f"{name}.txt")
    return [features(s) for s in sentences], [[token[2] for token in s] for s in sentences]


def _crfsuite(train, test, model: str) -> dict:
    import pycrfsuite

    started = time.perf_counter()
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for x, y in zip(*train, strict=True):
        trainer.append(x, y)
    append = time.perf_counter() - started
    trainer.set_params({"c1": 0.0, "c2": 1.0, "max_iterations": STEPS})
    started = time.perf_counter()
    trainer.train(model)
    seconds = time.perf_counter() - started
    tagger = pycrfsuite.Tagger()
    tagger.open(model)
    tag = measure(lambda: [tagger.tag(x) for x in test[0]] and None, repeats=3).run
    last = trainer.logparser.last_iteration
    accuracy = pml.sequences.tagging_report(test[1], [tagger.tag(x) for x in test[0]]).accuracy
    return {"append": append, "train": seconds, "tag": tag, "loss": last["loss"], "accuracy": accuracy}


def _timed(run):
    started = time.perf_counter()
    result = jax.block_until_ready(run())
    return result, time.perf_counter() - started


def rows(data_dir: pathlib.Path | None = None) -> list[Row]:
    if data_dir is None or importlib.util.find_spec("pycrfsuite") is None:
        return []
    train, test = _load(data_dir, "train"), _load(data_dir, "test")
    with tempfile.NamedTemporaryFile() as file:
        peer = _crfsuite(train, test, file.name)
    make = pml.sequences.FeatureEncoder.from_sentences
    (encoder, data), encoding = _timed(lambda: (lambda e: (e, e.encode(*train)))(make(*train)))
    observed = encoder.observed(data)
    sizes = {"num_features": encoder.num_features, "num_labels": encoder.num_labels}
    crf = pml.sequences.LinearChainCRF.sparse(**sizes, l2=1.0, observed=observed, boundaries=False, dtype="float32")
    learn = lambda steps: pml.fit(crf, data, pml.LBFGS(memory=6), max_steps=steps, rtol=-1.0)
    fit, cold = _timed(lambda: learn(STEPS))
    enough = int(np.argmax(np.asarray(fit.objective) >= -peer["loss"])) or STEPS
    fit, warm = _timed(lambda: learn(STEPS))
    reach = warm * (enough + 1) / (STEPS + 1)
    unseen = encoder.encode(test[0])
    best = lambda: fit.model.decode_all(unseen)
    tag = measure(lambda: best() and None, repeats=3)
    report = pml.sequences.tagging_report(test[1], [encoder.labels(path) for path in best()])
    count = pml.num_parameters(crf.scores) + int(jnp.sum(observed.transitions))
    about = f"CoNLL-2000, {count:,} features"
    objective = f"{enough} steps to its loss {peer['loss']:.0f} after {STEPS}; ours after {STEPS}: "
    quality = f"test accuracy {report.accuracy:.4f} (theirs {peer['accuracy']:.4f}), span F1 {report.f1:.4f}"
    return [
        Row(f"CRF: encode {about}", "CRFsuite", peer["append"], encoding, encoding, 1, "vocabulary, arrays, transpose"),
        Row(
            f"CRF: train, {about}",
            "CRFsuite",
            peer["train"],
            reach,
            cold - warm + reach,
            1,
            objective + f"{-float(fit.final_objective):.0f}; {quality}",
        ),
        Row("CRF: decode the test set, one batch", "CRFsuite", peer["tag"], tag.run, tag.first, 3, "features encoded"),
    ]
