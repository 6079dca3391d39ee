"""The CRF against CRFsuite: the same features, the same objective, the same optimum."""

import numpy as np
import pytest
from shared_data import shared_file

import probml_jax as pml

pycrfsuite = pytest.importorskip("pycrfsuite")


def _crfsuite(features, labels, path, c2):
    trainer = pycrfsuite.Trainer(algorithm="lbfgs", verbose=False)
    for x, y in zip(features, labels, strict=True):
        trainer.append(x, y)
    trainer.set_params({"c1": 0.0, "c2": c2, "epsilon": 1e-9, "period": 1000, "max_iterations": 1000})
    trainer.train(str(path))
    tagger = pycrfsuite.Tagger()
    tagger.open(str(path))
    return trainer.logparser.last_iteration["loss"], [tagger.tag(x) for x in features]


def _ours(features, labels, l2):
    encoder = pml.sequences.FeatureEncoder.from_sentences(features, labels)
    data = encoder.encode(features, labels, max_buckets=2)
    sizes = {"num_features": encoder.num_features, "num_labels": encoder.num_labels}
    observed = encoder.observed(data)
    crf = pml.sequences.LinearChainCRF.sparse(**sizes, l2=l2, observed=observed, boundaries=False)
    fit = pml.fit(crf, data, pml.LBFGS(), max_steps=500, rtol=1e-13)
    return -float(fit.final_objective), [encoder.labels(path) for path in fit.model.decode_all(data)]


def test_the_same_optimum_on_made_up_sentences(tmp_path):
    rng = np.random.default_rng(0)
    tags = rng.integers(0, 3, (30, 6))
    words = (3 * tags + rng.integers(0, 5, tags.shape)) % 10
    labels = [[f"t{t}" for t in row] for row in tags]
    word, before = (lambda s, i: f"w={s[i]}"), (lambda s, i: f"b={s[i - 1]}" if i else None)
    features = pml.sequences.apply_features([word, before], words.tolist())
    loss, paths = _crfsuite(features, labels, tmp_path / "model", 0.5)
    ours, found = _ours(features, labels, 0.5)
    np.testing.assert_allclose(ours, loss, rtol=1e-6)
    assert found == paths


def test_the_same_optimum_on_chunking(tmp_path):
    from benchmarks.crf import features as templates
    from benchmarks.crf import read

    sentences = read(shared_file("conll2000/train.txt"))[:200]
    features, labels = [templates(s) for s in sentences], [[token[2] for token in s] for s in sentences]
    loss, paths = _crfsuite(features, labels, tmp_path / "model", 1.0)
    ours, found = _ours(features, labels, 1.0)
    np.testing.assert_allclose(ours, loss, rtol=1e-5)
    assert pml.sequences.tagging_report(paths, found).accuracy > 0.999
