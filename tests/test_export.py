"""Every public inference function, and a step of every kind of fit, lowers for GPU and TPU: no device is needed.

A program that would need a kernel, a callback or a type that a platform lacks fails here.
"""

import dataclasses
import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest
from helpers import MODELS

import probml_jax as pml
from probml_jax.inference import chain, elimination, expectations, kalman, seeding
from probml_jax.inference.contraction import Structure, make_plan
from probml_jax.inference.messages import make_chain

F = jnp.float32
PLATFORMS = ("cuda", "tpu")
rng = np.random.default_rng(0)
some = lambda *shape: jnp.asarray(rng.normal(size=shape), F)

POTENTIALS = jax.nn.log_softmax(some(3)), jax.nn.log_softmax(some(3, 3)), some(6, 3)
PATH = jnp.array([0, 1, 1, 2, 0, 1])
CHAIN = {
    **{
        name: (lambda *a, f=name: getattr(chain, f)(*a), POTENTIALS)
        for name in "log_partition beliefs marginals".split()
    },
    **{
        name: (lambda *a, f=name: getattr(chain, f)(*a), POTENTIALS) for name in "filter smooth entropy viterbi".split()
    },
    "expected_counts": (lambda *a: chain.expected_counts(*a), POTENTIALS),
    "wide_beliefs": (lambda *a: chain.wide_beliefs(make_chain(*a, None)), POTENTIALS),
    "parallel": (lambda *a: (chain.smooth(*a, parallel=True), chain.viterbi(*a, parallel=True)), POTENTIALS),
    "gradient": (jax.grad(lambda a, b, c: chain.log_partition(a, b, c)), POTENTIALS),
    "k_best": (lambda *a: chain.k_best(*a, k=3), POTENTIALS),
    "sample": (lambda key, *a: chain.sample(key, *a), (jr.key(0), *POTENTIALS)),
    "kl": (lambda *a: chain.kl(a, a), POTENTIALS),
    "predict": (lambda b, t: chain.predict(b, t, 4), (jax.nn.softmax(some(3)), POTENTIALS[1])),
    "step": (lambda b, t, l: chain.step(b, t, l), (POTENTIALS[0], POTENTIALS[1], some(3))),
    "path_log_score": (lambda p, *a: chain.path_log_score(p, *a), (PATH, *POTENTIALS)),
    "reachability": (lambda e: chain.reachability(e), (jnp.eye(3, dtype=bool),)),
    "stationary": (lambda m, c: chain.stationary(m, c), (jax.nn.softmax(some(3, 3)), jnp.ones(3, bool))),
    "autoregress": (
        lambda past, keys, states: chain.autoregress(lambda p, k, z: p[0] + jr.normal(k, (2,), F), past, keys, states),
        (some(2, 2), jr.split(jr.key(0), 6), PATH),
    ),
}
EXPECTATIONS = {
    "expectations": (
        lambda a, b, c: expectations.expectations(
            a, b, lambda part: part, lambda part, single: jnp.sum(single), c, jnp.ones(6, bool), 2
        ),
        POTENTIALS,
    )
}
SYSTEM = kalman.System(
    some(2), jnp.eye(2, dtype=F), 0.5 * jnp.eye(2, dtype=F), jnp.eye(2, dtype=F), some(1, 2), jnp.ones(1, F)
)
Y = some(6, 1)
KALMAN = {
    "filter": (lambda s, y: (kalman.filter(s, y), kalman.filter(s, y, form="square_root")), (SYSTEM, Y)),
    "smooth": (lambda s, y: (kalman.smooth(s, y), kalman.smooth(s, y, parallel=True)), (SYSTEM, Y)),
    "log_likelihood": (lambda s, y: jax.value_and_grad(kalman.log_likelihood)(s, y), (SYSTEM, Y)),
    "predict": (lambda s: kalman.predict(s, s.initial_mean, s.initial_covariance, 3), (SYSTEM,)),
    "sample": (lambda k, s, y: kalman.sample(k, s, y), (jr.key(0), SYSTEM, Y)),
    "simulate": (lambda k, s: kalman.simulate(k, s, 5), (jr.key(0), SYSTEM)),
    "emit": (lambda k, s, z: kalman.emit(k, s, z), (jr.key(0), SYSTEM, some(5, 2))),
    "step": (lambda s, y: kalman.step(s, (s.initial_mean, s.initial_covariance), y[0]), (SYSTEM, Y)),
    "steady_state": (lambda s: kalman.steady_state(s), (SYSTEM,)),
}
SEEDING = {
    "squared_distances": (lambda x, c: seeding.squared_distances(x, c), (some(9, 2), some(3, 2))),
    "assign": (lambda x, c: seeding.assign(x, c), (some(9, 2), some(3, 2))),
    "plus_plus": (lambda k, x: seeding.plus_plus(k, x, jnp.ones(9, F), 3), (jr.key(0), some(9, 2))),
    "random_points": (lambda k, x: seeding.random_points(k, x, jnp.ones(9, F), 3), (jr.key(0), some(9, 2))),
    "lloyd": (lambda x, c: seeding.lloyd(x, jnp.ones(9, F), c, 3), (some(9, 2), some(3, 2))),
}
STRUCTURE = Structure((2, 2, 2), ((0, 1), (1, 2)))
PLAN = make_plan(STRUCTURE)
TABLES = (some(2, 2), some(2, 2)), (some(2), some(2), some(2))
ELIMINATION = {
    **{
        name: (lambda t, u, f=name: getattr(elimination, f)(PLAN, t, u), TABLES)
        for name in "log_marginal log_partition beliefs entropy best".split()
    },
    "run": (lambda t, u: elimination.run(elimination.MAX, PLAN, t, u)[-1].table, TABLES),
    "top": (lambda t, u: elimination.run(elimination.top(2), PLAN, t, u)[-1], TABLES),
    "k_best": (lambda t, u: elimination.k_best(PLAN, t, u, 3), TABLES),
    "expectation": (lambda t, u: elimination.expectation(PLAN, t, u, t), TABLES),
    "score": (lambda t, u: elimination.score(STRUCTURE, t, u, jnp.array([0, 1, 1])), TABLES),
    "sample": (lambda k, t, u: elimination.sample(k, PLAN, t, u, 3), (jr.key(0), *TABLES)),
}
NET = pml.graphs.BayesNet(
    {"a": (), "b": ("a",), "c": ("a", "b")},
    {"a": jnp.full(2, 0.5, F), "b": jnp.full((2, 2), 0.5, F), "c": jnp.full((2, 2, 2), 0.5, F)},
)
GRID = pml.graphs.potts_grid(4, 4, num_labels=3, coupling=jnp.asarray(0.8, F), field=some(4, 4, 3))
GRAPHS = {
    "exact": (
        lambda g: (g.log_partition(), g.marginals().probs, g.entropy(), g.map_assignment().states, g.k_best(3).states),
        (NET,),
    ),
    "samples": (lambda g, k: (g.sample(k, 4), g.posterior_sample(k, 4, {"c": 1})), (NET, jr.key(0))),
    "belief_propagation": (lambda g: g.belief_propagation(num_sweeps=5), (GRID,)),
    "mean_field": (lambda g: g.mean_field(num_sweeps=5), (GRID,)),
    "gibbs": (lambda g, k: g.gibbs(k, num_sweeps=5), (GRID, jr.key(0))),
    "max_product": (lambda g: g.max_product(num_sweeps=5), (GRID,)),
}
K = pml.gaussian_processes.kernels
GP = pml.gaussian_processes.GaussianProcess(K.Matern32(jnp.asarray(1.0, F)), noise=jnp.asarray(0.1, F))
CLASSIFIER = pml.gaussian_processes.GaussianProcessClassifier(K.RBF(jnp.asarray(1.0, F)), num_classes=2)
XS, YS = some(8, 1), some(8)
PROCESSES = {
    "cholesky": (lambda g, x, y: _predicted(dataclasses.replace(g, solver="cholesky"), x, y), (GP, XS, YS)),
    "state_space": (
        lambda g, x, y: _predicted(dataclasses.replace(g, solver="state_space"), x, y),
        (GP, XS[:, 0], YS),
    ),
    "classification": (lambda g, x, y: g.condition(x, (y > 0).astype(int)).probs(x), (CLASSIFIER, XS, YS)),
}


def _predicted(gp, x, y):
    post = gp.condition(x, y)
    return post.mean(x), post.variance(x), post.sample(jr.key(0), x)


FUNCTIONS = {
    f"{room}_{name}": entry
    for room, entries in dict(
        chain=CHAIN,
        expectations=EXPECTATIONS,
        kalman=KALMAN,
        seeding=SEEDING,
        elimination=ELIMINATION,
        graphs=GRAPHS,
        processes=PROCESSES,
    ).items()
    for name, entry in entries.items()
}


def _lowers(function, *args):
    dynamic, static = eqx.partition(args, eqx.is_array)
    plain = lambda dynamic: eqx.filter(function(*eqx.combine(dynamic, static)), eqx.is_array)
    shapes = jax.tree_util.tree_map(lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype), dynamic)
    exported = jax.export.export(jax.jit(plain), platforms=PLATFORMS)(shapes)
    assert exported.platforms == PLATFORMS
    assert "callback" not in exported.mlir_module()
    return exported


@pytest.mark.parametrize("what", list(FUNCTIONS))
def test_inference_lowers_for_gpu_and_tpu(what):
    function, args = FUNCTIONS[what]
    _lowers(function, *args)


FITS = [
    "gaussian_mixture_full_ml",
    "gaussian_hmm",
    "linear_dynamical_system",
    "factor_analysis_missing_map",
    "bayes_net",
]


@pytest.mark.parametrize("model", FITS)
def test_a_fit_by_em_lowers_for_gpu_and_tpu(model):
    start, data = MODELS[model](F)
    _lowers(lambda m, d: pml.fit(m, d, max_steps=3), start, data)


OPTIMIZER = optax.adam(1e-2)
CRF = pml.sequences.LinearChainCRF(pml.sequences.DenseScores(some(2, 3), some(3)), num_labels=3)
SOFT = pml.classifiers.SoftmaxRegression(some(2, 2), some(2), jnp.asarray(0.1, F))
LABELLED = some(9, 2), jnp.arange(9) % 2
BY_METHOD = {
    "lbfgs_crf": (CRF, (some(4, 6, 2), jnp.ones((4, 6), int)), pml.LBFGS()),
    "lbfgs_process": (GP, (XS, YS), pml.LBFGS()),
    "newton_softmax": (SOFT, LABELLED, pml.Newton()),
    "gradient_softmax": (SOFT, LABELLED, pml.Gradient(OPTIMIZER, 4, key=jr.key(0))),
}


@pytest.mark.parametrize("case", list(BY_METHOD))
def test_a_fit_by_gradients_lowers_for_gpu_and_tpu(case):
    model, data, method = BY_METHOD[case]
    _lowers(lambda m, d: pml.fit(m, d, method, max_steps=3), model, data)


def test_no_public_function_of_the_engines_is_forgotten():
    engines = (chain, CHAIN), (kalman, KALMAN), (seeding, SEEDING), (elimination, ELIMINATION)
    for module, known in engines:
        here = {n for n, f in vars(module).items() if inspect.isfunction(f) and f.__module__ == module.__name__}
        public = {n for n in here if not n.startswith("_")}
        assert public <= set(known), f"{module.__name__}: {sorted(public - set(known))}"
