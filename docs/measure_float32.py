"""Measure float32 against float64 for every engine and kind of model: `python docs/measure_float32.py [table ...]`.

Writes docs/tables/float32_*.md, which the page on numerics includes. Both precisions get the *same* numbers: parameters
and data are made in float32 and widened, so what is measured is the arithmetic and not the rounding of the input.
"""

import importlib.util
import pathlib
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.flatten_util import ravel_pytree

ROOT = pathlib.Path(__file__).parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import helpers  # noqa: E402  (the registries of the tests: one small member of every kind)

import probml_jax as pml  # noqa: E402
from probml_jax.inference import chain, kalman  # noqa: E402

F32, F64 = jnp.float32, jnp.float64


class Case(NamedTuple):
    """A function of arrays, with arguments in float32. `answers(*args)` is a tree of arrays that are compared."""

    name: str
    value: Callable[..., Any]
    args: tuple
    answers: Callable[..., Any] | None = None
    gradient: bool = True


class Errors(NamedTuple):
    """Relative error of the value and of the gradient (2-norm), largest absolute error of the answers."""

    value: float
    gradient: float | None
    answers: float | None


def widened(tree: Any) -> Any:
    wide = lambda a: a.astype(F64) if eqx.is_array(a) and a.dtype == F32 else a
    return jax.tree_util.tree_map(wide, tree)


def _flat(tree: Any) -> np.ndarray:
    arrays = eqx.filter(tree, eqx.is_inexact_array)
    return np.asarray(ravel_pytree(widened(arrays))[0], np.float64)


def _relative(narrow: np.ndarray, wide: np.ndarray) -> float:
    return float(np.linalg.norm(narrow - wide) / max(np.linalg.norm(wide), 1e-300))


def measure(case: Case) -> Errors:
    exact = widened(case.args)
    value = eqx.filter_jit(case.value)
    narrow, wide = value(*case.args), value(*exact)
    assert narrow.dtype == F32, f"{case.name}: the value is {narrow.dtype}"
    assert wide.dtype == F64, f"{case.name}: the exact value is {wide.dtype}"
    slope = answers = None
    if case.gradient:
        rest = case.args[1:]
        grad = eqx.filter_jit(eqx.filter_grad(lambda first, *rest: case.value(first, *rest)))
        found, true = _flat(grad(case.args[0], *rest)), _flat(grad(exact[0], *exact[1:]))
        vanishes = np.linalg.norm(true) < 1e-5 * abs(float(wide))  # at rest nothing is left to compare
        slope = None if vanishes else _relative(found, true)
    if case.answers is not None:
        ask = eqx.filter_jit(case.answers)
        answers = float(np.nanmax(np.abs(_flat(ask(*case.args)) - _flat(ask(*exact)))))
    return Errors(_relative(np.asarray(narrow, np.float64), np.asarray(wide)), slope, answers)


def _forget() -> None:
    """Thousands of compiled programs exhaust a process's memory maps (65,530 on Linux): drop them in time."""
    maps = pathlib.Path("/proc/self/maps")
    if maps.exists() and len(maps.read_bytes().splitlines()) > 20_000:
        jax.clear_caches()


# ------------------------------------------------------------------ families and models, from the tests' registries


def _worst(title: str, cases: list[Case]) -> tuple[str, Errors]:
    """One row for a registry of small things: the largest error of each kind."""
    found = []
    for case in cases:
        found.append(measure(case))
        _forget()
    largest = lambda xs: max((x for x in xs if x is not None), default=None)
    return f"{title} ({len(cases)} members, the worst)", Errors(*map(largest, zip(*found, strict=True)))


def families() -> Iterator[tuple[str, Errors]]:
    cases = []
    for name, make in helpers.DISTRIBUTIONS.items():
        member = make(F32)
        xs = jax.vmap(member.sample)(jr.split(jr.key(0), 200))
        cases.append(Case(name, lambda m, xs: jnp.sum(jax.vmap(m.log_prob)(xs)), (member, xs)))
    yield _worst("distributions, log density of 200 events", cases)
    cases = []
    for name, make in helpers.CONJUGATE.items():
        prior, _, xs = make(F32)
        cases.append(Case(name, lambda p, xs: p.log_evidence(xs), (prior, xs)))
    yield _worst("conjugate pairs, log evidence", cases)


def models() -> Iterator[tuple[str, Errors]]:
    for name, build in helpers.MODELS.items():
        model, data = build(F32)
        n = jax.tree_util.tree_leaves(data)[0].shape[0]
        weights = jnp.ones(n, F32)
        value = lambda model, data, weights: pml.objective(model, data, weights)
        step = lambda model, data, weights: eqx.filter(
            model.m_step(model.e_step(data, weights)[0]), eqx.is_inexact_array
        )
        yield name.replace("_", " "), measure(Case(name, value, (model, data, weights), step))


# ------------------------------------------------------------------ engines, at the sizes where rounding piles up


def chains(t: int = 100_000, k: int = 8) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    initial = jnp.asarray(np.log(rng.dirichlet(np.ones(k))), F32)
    moves = rng.dirichlet(np.ones(k), k)
    evidence = jnp.asarray(rng.normal(size=(t, k)) * 3, F32)
    free = jnp.asarray(np.log(moves), F32)
    band = jnp.asarray(np.where(np.abs(np.subtract.outer(range(k), range(k))) <= 1, np.log(moves), -np.inf), F32)
    value = lambda evidence, initial, moves: chain.log_partition(initial, moves, evidence)
    ask = lambda evidence, initial, moves: chain.smooth(initial, moves, evidence)
    yield Case(f"chain, T={t:,}, all transitions", value, (evidence, initial, free), ask)
    yield Case(f"chain, T={t:,}, forbidden transitions", value, (evidence, initial, band), ask)
    parallel = lambda evidence, initial, moves: chain.log_partition(initial, moves, evidence, parallel=True)
    yield Case(f"chain, T={t:,}, parallel in time", parallel, (evidence, initial, free))


def _system(spread: float, p: int = 4, d: int = 2) -> kalman.System:
    rng = np.random.default_rng(0)
    turn = 0.95 * np.linalg.qr(rng.normal(size=(p, p)))[0]
    parts = np.zeros(p), spread * np.eye(p), turn, 0.1 * np.eye(p), rng.normal(size=(d, p)), 0.5 * np.eye(d)
    return kalman.System(*[jnp.asarray(a, F32) for a in parts])


def filters(t: int = 10_000) -> Iterator[Case]:
    for spread, note in ((1.0, ""), (1e6, ", start variance 1e6")):
        system = _system(spread)
        y = kalman.simulate(jr.key(0), _system(1.0), t)[1]
        for form in ("joseph", "square_root"):
            value = lambda system, y, form=form: kalman.filter(system, y, form=form).log_likelihood
            ask = lambda system, y, form=form: kalman.smooth(system, y, form=form).mean
            yield Case(f"Kalman, {form}, T={t:,}{note}", value, (system, y), ask, gradient=False)
        parallel = lambda system, y: kalman.filter(system, y, parallel=True).log_likelihood
        yield Case(f"Kalman, parallel, T={t:,}{note}", parallel, (system, y), gradient=False)
        likelihood = lambda system, y: kalman.log_likelihood(system, y)
        yield Case(f"Kalman, likelihood and its gradient, T={t:,}{note}", likelihood, (system, y))
    level = pml.sequences.local_level(jnp.cumsum(jr.normal(jr.key(1), (1, t, 1), F32), axis=1))
    walk = jnp.cumsum(jr.normal(jr.key(1), (t, 1), F32), axis=0)
    yield Case(f"local level, diffuse start, T={t:,}", lambda m, y: m.log_prob(y), (level, walk))


def processes() -> Iterator[Case]:
    gp, k = pml.gaussian_processes, pml.gaussian_processes.kernels
    x = jr.uniform(jr.key(0), (500, 3), F32) * 4
    y = jnp.sin(x[:, 0]) + 0.1 * jr.normal(jr.key(1), (500,), F32)
    new = jr.uniform(jr.key(2), (50, 3), F32) * 4
    model = gp.GaussianProcess(k.RBF(jnp.ones(3, F32)), noise=jnp.asarray(0.01, F32))
    evidence = lambda model, x, y, new: model.log_prob((x, y))
    mean = lambda model, x, y, new: model.condition(x, y).mean(new)
    yield Case("Gaussian process, N=500, noise 0.01", evidence, (model, x, y, new), mean)
    when = jnp.sort(jr.uniform(jr.key(3), (20_000,), F32) * 1000)
    what = jnp.sin(when) + 0.1 * jr.normal(jr.key(4), (20_000,), F32)
    late = jnp.linspace(1.0, 999.0, 50, dtype=F32)
    matern = gp.GaussianProcess(k.Matern32(jnp.asarray(1.0, F32)), noise=jnp.asarray(0.01, F32))
    yield Case("Gaussian process by state space, N=20,000", evidence, (matern, when, what, late), mean)
    sparse = gp.SparseGaussianProcess(k.RBF(jnp.asarray(1.0, F32)), inducing=x[::10], noise=jnp.asarray(0.01, F32))
    bound = lambda model, x, y: model.log_likelihood((x, y), jnp.ones(len(y), y.dtype))
    yield Case("Gaussian process, 50 inducing points", bound, (sparse, x, y))
    classes = gp.GaussianProcessClassifier(kernel=k.Matern52(jnp.asarray(1.0, F32)), num_classes=2)
    said = (y > 0).astype(int)
    yield Case(
        "Gaussian process classifier, Laplace",
        lambda m, x, said: m.log_likelihood((x, said), jnp.ones(len(said), x.dtype)),
        (classes, x[:200], said[:200]),
        lambda m, x, said: m.condition(x, said).probs(x),
    )


def graphs() -> Iterator[Case]:
    net = pml.graphs.read_bif(ROOT / "tests/reference/networks/alarm.bif.gz")
    net = jax.tree_util.tree_map(lambda a: a.astype(F32) if eqx.is_inexact_array(a) else a, net)
    rows = net.sample(jr.key(0), 100)
    rows = jnp.where(jr.bernoulli(jr.key(1), 0.2, rows.shape), rows, -1)
    value = lambda net, rows: jnp.sum(jax.vmap(net.log_prob)(rows))
    ask = lambda net, rows: jax.vmap(lambda row: net.marginals_from_array(row).probs)(rows)
    yield Case("elimination, alarm network, 100 rows of evidence", value, (net, rows), ask)
    field = jnp.asarray(np.random.default_rng(0).normal(size=(64, 64, 4)), F32)
    grid = pml.graphs.potts_grid(64, 64, num_labels=4, coupling=jnp.asarray(0.5, F32), field=field)
    for name in ("belief_propagation", "tree_reweighted", "mean_field"):
        sweeps = {"num_sweeps": 300}
        value = lambda grid, name=name, sweeps=sweeps: getattr(grid, name)(**sweeps).log_partition
        ask = lambda grid, name=name, sweeps=sweeps: getattr(grid, name)(**sweeps).marginals
        yield Case(f"{name.replace('_', ' ')}, 64x64 Potts grid", value, (grid,), ask)
    narrow = pml.graphs.potts_grid(8, 8, num_labels=2, coupling=jnp.asarray(0.5, F32), field=field[:8, :8, :2])
    yield Case("elimination, 8x8 Potts grid", lambda g: g.log_partition(), (narrow,))


def others() -> Iterator[Case]:
    xs = jr.normal(jr.key(0), (2000, 5), F32)
    kde = pml.density.KernelDensity.from_data(xs)
    score = lambda kde, xs: jnp.sum(kde.log_probs(xs))
    yield Case("kernel density, 2,000 points in 5 dimensions", score, (kde, xs), lambda kde, xs: kde.log_probs(xs))
    scores = pml.sequences.DenseScores.zeros(5, 6)
    crf = pml.sequences.LinearChainCRF(scores=scores, num_labels=6)
    crf = jax.tree_util.tree_map(lambda a: a.astype(F32) if eqx.is_inexact_array(a) else a, crf)
    crf = pml.perturbed(jr.key(2), crf)
    labels = jr.randint(jr.key(3), (2000,), 0, 6)
    tag = lambda crf, xs, labels: crf.log_prob((xs, labels))
    yield Case("CRF, one sentence of 2,000 words", tag, (crf, xs, labels), lambda crf, xs, labels: crf.marginals(xs))
    soft = pml.perturbed(jr.key(4), pml.classifiers.softmax_regression(5, 6, l2=1e-2, dtype=F32))
    pooled = lambda m, xs, labels: m.log_likelihood((xs, labels), jnp.ones(len(xs), xs.dtype))
    yield Case("softmax regression, N=2,000", pooled, (soft, xs, labels))
    alike = (labels > 2).astype(int)
    yield Case(
        "area under a ROC curve, N=2,000", lambda s, y: pml.decision.auc(s, y), (xs[:, 0], alike), gradient=False
    )


def far_out(mean: float = 5000.0) -> Iterator[Case]:
    """Data far from zero: what raw second moments would lose."""
    xs = mean + jr.normal(jr.key(0), (2000, 4), F32)
    value = lambda model, xs, weights: pml.objective(model, xs, weights)
    step = lambda model, xs, weights: eqx.filter(model.m_step(model.e_step(xs, weights)[0]), eqx.is_inexact_array)
    weights = jnp.ones(len(xs), F32)
    mixture = pml.mixtures.gaussian_mixture(jr.key(1), xs, 3)
    yield Case("Gaussian mixture, data mean 5000, variance 1", value, (mixture, xs, weights), step)
    factors = pml.factors.factor_analysis(jr.key(1), xs, 1)
    yield Case("factor analysis, data mean 5000, variance 1", value, (factors, xs, weights), step)
    prior = pml.conjugate.NormalInverseWishart(xs[0], *[jnp.asarray(a, F32) for a in (0.1, np.eye(4), 6.0)])
    yield Case(
        "NIW evidence, data mean 5000, variance 1",
        lambda prior, xs: prior.log_evidence(xs),
        (prior, xs),
        lambda prior, xs: prior.update(xs).mode().covariance,
    )


def peers(mean: float = 5000.0) -> Iterator[str]:
    """The same data in scikit-learn, which keeps float32 as well."""
    if importlib.util.find_spec("sklearn") is None:
        return
    from sklearn.mixture import GaussianMixture

    for center in (0.0, mean):
        xs = np.asarray(center + jr.normal(jr.key(0), (2000, 4), F32))
        start = np.asarray(jr.choice(jr.key(1), xs, (3,), replace=False), np.float64)
        begin = {"weights_init": np.ones(3) / 3, "means_init": start, "precisions_init": np.stack([np.eye(4)] * 3)}
        run = lambda xs, begin=begin: GaussianMixture(3, max_iter=20, tol=0.0, random_state=0, **begin).fit(xs)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            narrow, wide = run(xs), run(xs.astype(np.float64))
        value = abs(narrow.score(xs) / wide.score(xs.astype(np.float64)) - 1)
        spread = np.max(np.abs(narrow.covariances_ - wide.covariances_))
        mine = [_mixture_after_em(jnp.asarray(xs, dtype), start, dtype) for dtype in (F32, F64)]
        ours, exact = [np.asarray(v, np.float64) for v in mine[0]], [np.asarray(v) for v in mine[1]]
        yield (
            f"| Gaussian mixture, 20 steps of EM, data mean {center:g} | {value:.0e} | {spread:.0e} "
            f"| {abs(ours[0] / exact[0] - 1):.0e} | {np.max(np.abs(ours[1] - exact[1])):.0e} |"
        )


def _mixture_after_em(xs: jax.Array, start: np.ndarray, dtype: Any) -> tuple[jax.Array, jax.Array]:
    model = pml.mixtures.gaussian_mixture(jr.key(0), xs, 3, init=jnp.asarray(start, dtype))
    found = pml.fit(model, xs, max_steps=20, rtol=-1.0)
    return found.final_objective, found.model.components.each.distribution.covariance


def _figure(x: float | None) -> str:
    return "" if x is None else "0" if x == 0 else f"{x:.0e}"


def _row(name: str, errors: Errors) -> str:
    return f"| {name} | {_figure(errors.value)} | {_figure(errors.gradient)} | {_figure(errors.answers)} |"


def engines() -> Iterator[tuple[str, Errors]]:
    for engine in (chains, filters, processes, graphs, others, far_out):
        for case in engine():
            yield case.name, measure(case)


def _table(rows: Iterator[tuple[str, Errors]]) -> Iterator[str]:
    yield "| what | value (relative) | gradient (relative) | answers (absolute) |"
    yield "|---|---|---|---|"
    for name, errors in rows:
        yield _row(name, errors)
        _forget()


def _compared() -> Iterator[str]:
    yield "| what | scikit-learn: likelihood | scikit-learn: covariances | ours: likelihood | ours: covariances |"
    yield "|---|---|---|---|---|"
    yield from peers()


TABLES = {
    "engines": lambda: _table(engines()),
    "families": lambda: _table(families()),
    "models": lambda: _table(models()),
    "peers": _compared,
}


def main(names: list[str]) -> None:
    jax.config.update("jax_enable_x64", True)
    folder = ROOT / "docs" / "tables"
    folder.mkdir(exist_ok=True)
    for name in names or TABLES:
        lines = []
        for line in TABLES[name]():
            print(line, flush=True)
            lines.append(line)
        (folder / f"float32_{name}.md").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
