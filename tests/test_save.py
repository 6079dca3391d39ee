"""Models on disk: a round trip over all registries, and what a file may not do."""

import functools
import json
import pathlib
import pickle
import zipfile

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from helpers import CONJUGATE, DISTRIBUTIONS, MODELS

import probml_jax as pml

k = pml.gaussian_processes.kernels


def _network():
    rows = {"a": [0.5, 0.5], "b": [[0.9, 0.1], [0.2, 0.8]]}
    return pml.graphs.BayesNet({"a": (), "b": ("a",)}, rows)


OTHERS = {
    "gaussian_process": lambda: pml.gaussian_processes.GaussianProcess(
        1.0 * k.RBF(jnp.ones(2)) + k.Linear() * k.Matern32(2.0), noise=0.1
    ),
    "conditioned_process": lambda: pml.gaussian_processes.GaussianProcess(k.Matern32(2.0), noise=0.1).condition(
        jnp.arange(5.0), jnp.sin(jnp.arange(5.0))
    ),
    "sparse_process": lambda: pml.gaussian_processes.SparseGaussianProcess(k.RBF(1.0), jnp.ones((2, 1)), noise=0.1),
    "process_classifier": lambda: pml.gaussian_processes.GaussianProcessClassifier(k.Matern52(1.0), num_classes=2),
    "neural_crf": lambda: pml.sequences.LinearChainCRF(
        pml.sequences.ConvolutionalScores(jr.key(0), num_inputs=2, num_labels=3), num_labels=3
    ),
    "sparse_crf": lambda: pml.sequences.LinearChainCRF.sparse(num_features=5, num_labels=3, l2=0.1),
    "memm": lambda: pml.sequences.MEMM(pml.sequences.DenseScores.zeros(2, 3), num_labels=3),
    "ngram": lambda: pml.sequences.NGram.from_tokens([[0, 1, 2], [1, 1]], order=2, vocab_size=3),
    "softmax": lambda: pml.classifiers.softmax_regression(2, 3, l2=0.1),
    "kernel_density": lambda: pml.density.KernelDensity.from_data(jr.normal(jr.key(0), (6, 2))),
    "pca": lambda: pml.factors.PCA.from_data(jr.normal(jr.key(0), (6, 3)), num_components=2),
    "markov_field": lambda: pml.graphs.MarkovField({"a": 2, "b": 2}, {("a", "b"): jnp.eye(2)}),
    "factor_graph": lambda: pml.graphs.FactorGraph.from_graph(_network()),
    "potts": lambda: pml.graphs.potts_grid(3, 3, num_labels=2, coupling=0.8),
    "conditional": lambda: pml.conditional(MODELS["qda_semi_supervised_map"](jnp.dtype("float64"))[0]),
    "network": lambda: eqx.nn.MLP(2, 1, 4, 1, activation=jax.nn.softplus, key=jr.key(0)),
    "buckets": lambda: pml.sequences.bucket((jnp.ones((3, 4)), jnp.array([1, 4, 2])), max_buckets=2),
}
EVERYTHING = {
    **{f"distribution_{name}": lambda make=make: make(jnp.float32) for name, make in DISTRIBUTIONS.items()},
    **{f"conjugate_{name}": lambda make=make: make(jnp.float64)[0] for name, make in CONJUGATE.items()},
    **{f"model_{name}": lambda make=make: make(jnp.dtype("float64"))[0] for name, make in MODELS.items()},
    **OTHERS,
}


def same(a, b):
    assert jax.tree_util.tree_structure(a) == jax.tree_util.tree_structure(b)
    for x, y in zip(jax.tree_util.tree_leaves(a), jax.tree_util.tree_leaves(b), strict=True):
        assert type(x) is type(y)
        if eqx.is_array(x):
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)
        else:
            assert x == y


@pytest.mark.parametrize("kind", list(EVERYTHING))
def test_what_is_loaded_is_what_was_saved(kind, tmp_path):
    model = EVERYTHING[kind]()
    pml.save(tmp_path / "model.pml", model)
    same(pml.load(tmp_path / "model.pml"), model)
    assert list(tmp_path.iterdir()) == [tmp_path / "model.pml"]  # nothing is left beside it


def test_a_loaded_model_computes_the_same(tmp_path):
    model, data = MODELS["gaussian_hmm"](jnp.dtype("float64"))
    pml.save(tmp_path / "hmm.pml", model)
    again = pml.load(tmp_path / "hmm.pml")
    np.testing.assert_array_equal(jax.vmap(again.log_prob)(data), jax.vmap(model.log_prob)(data))
    fit = pml.fit(again, data, max_steps=2)
    pml.save(tmp_path / "fit.pml", fit)
    assert pml.load(tmp_path / "fit.pml").summary() == fit.summary()


def test_trees_of_all_sorts(tmp_path):
    shared = jnp.arange(3)
    tree = {
        "key": jr.split(jr.key(3), 2),
        ("a", 1): [shared, shared, np.arange(2.0), np.float32(3.0), None, True, 2, 0.5, "x", float("inf")],
        "half": jnp.ones(2, jnp.bfloat16),
        "dtype": np.dtype("float32"),
        "set": frozenset([1, 2]),
        "status": pml.Status.converged,
        "functions": (jnp.tanh, functools.partial(jnp.sum, axis=0), jax.nn.relu),
        "empty": jnp.zeros((0, 2)),
    }
    pml.save(tmp_path / "tree.pml", tree)
    again = pml.load(tmp_path / "tree.pml")
    assert again["key"].dtype == tree["key"].dtype
    np.testing.assert_array_equal(jr.key_data(again["key"]), jr.key_data(tree["key"]))
    assert again["a", 1][0] is not again["a", 1][1]
    with zipfile.ZipFile(tmp_path / "tree.pml") as file:  # a shared array is written once
        assert sum(name.endswith(".npy") for name in file.namelist()) == 6
    for name in ("half", "dtype", "set", "status", "empty"):
        same(again[name], tree[name])
    same(again["a", 1], tree["a", 1])
    assert again["functions"][0] is jnp.tanh
    assert again["functions"][1](jnp.ones((2, 3))).shape == (3,)
    assert again["functions"][2] is jax.nn.relu


class _Own(eqx.Module):
    """A module of somebody else's."""

    a: jax.Array


def test_files_name_what_they_need_and_run_nothing(tmp_path):
    path = tmp_path / "model.pml"
    pml.save(path, _Own(jnp.ones(2)))
    with pytest.raises(ValueError, match=r"trust=\['test_save'\]"):
        pml.load(path)
    same(pml.load(path, trust=["test_save"]), _Own(jnp.ones(2)))
    with zipfile.ZipFile(path) as file:
        assert not any(pickle.PROTO in file.read(name)[:1] for name in file.namelist())
    with pytest.raises(TypeError, match=r"model.a is .*lambda"):
        pml.save(path, _Own(lambda x: x))
    same(pml.load(path, trust=["test_save"]), _Own(jnp.ones(2)))  # a failed save leaves the old file


def _rewritten(path: pathlib.Path, change) -> pathlib.Path:
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    header = json.loads(parts["header.json"])
    change(header)
    parts["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return path


def test_bad_files(tmp_path):
    path = tmp_path / "model.pml"
    write = lambda: pml.save(path, pml.distributions.Normal(jnp.zeros(2), jnp.ones(2))) or path
    with pytest.raises(FileNotFoundError):
        pml.load(tmp_path / "absent.pml")
    path.write_bytes(b"something else")
    with pytest.raises(ValueError, match="not a file of probml_jax"):
        pml.load(path)
    write().write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match="damaged"):
        pml.load(path)
    with pytest.raises(ValueError, match="reads up to format 1"):
        pml.load(_rewritten(write(), lambda h: h.update(format=99)))
    with pytest.raises(ValueError, match="holds a checkpoint; a model is wanted"):
        pml.load(_rewritten(write(), lambda h: h.update(kind="checkpoint")))
    with pytest.raises(ValueError, match="has no such field"):
        pml.load(_rewritten(write(), lambda h: h["tree"]["fields"].update(new={"value": 1})))
    with pytest.raises(ValueError, match="lacks the field scale of Normal"):
        pml.load(_rewritten(write(), lambda h: h["tree"]["fields"].pop("scale")))
    pml_floor = pml.load(_rewritten(write(), lambda h: h["tree"]["fields"].pop("floor")))
    assert pml_floor.floor is None  # a field with a default may be newer than the file
    with pytest.raises(ValueError, match="does not have"):
        pml.load(_rewritten(write(), lambda h: h["tree"].update(module="probml_jax.distributions.normal:Gone")))
    with pytest.raises(ValueError, match="package 'os'"):
        pml.load(_rewritten(write(), lambda h: h.update(tree={"name": "os:system"})))
    with pytest.raises(ValueError, match="does not understand"):
        pml.load(_rewritten(write(), lambda h: h.update(tree={"riddle": 1})))


def test_float64_is_not_narrowed_in_silence(tmp_path):
    pml.save(tmp_path / "model.pml", pml.distributions.Poisson(jnp.ones(2)))
    with jax.enable_x64(False), pytest.raises(TypeError, match="64-bit mode is off"):
        pml.load(tmp_path / "model.pml")
