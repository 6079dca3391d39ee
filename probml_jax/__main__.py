"""The guided tour: `python -m probml_jax [folder]`. Fits models on real data, prints a table, writes pictures."""

import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

import probml_jax as pml

_WIDTH = 100


def _say(title: str, text: str) -> None:
    print(f"\n{title}\n{'-' * len(title)}")
    print(text)


def _timed(run):
    started = time.perf_counter()
    result = jax.block_until_ready(run())
    return result, time.perf_counter() - started


def _picture(folder: pathlib.Path, name: str, draw, size=(5.5, 4.2)) -> str:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure = plt.figure(figsize=size)
    draw(plt)
    figure.tight_layout()
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120)
    plt.close(figure)
    return str(path)


def iris(folder: pathlib.Path) -> list:
    """Old friends: three species, several models, one `fit`."""
    from sklearn.datasets import load_iris

    xs = jnp.asarray(load_iris().data.astype(np.float32))
    rows = []
    build = lambda key, **kw: pml.mixtures.gaussian_mixture(key, xs, num_components=3, **kw)
    keys = jr.split(jr.key(0), 16)
    for name, settings in {
        "Gaussian mixture, full": {"covariance": "full"},
        "Gaussian mixture, diagonal": {"covariance": "diagonal"},
        "Gaussian mixture, variational Bayes": {"covariance": "full", "estimate": "bayes"},
    }.items():
        run = lambda s=settings: pml.best_of(
            jax.jit(jax.vmap(lambda k: pml.fit(build(k, **s), xs, max_steps=500)))(keys)
        )
        rows.append((f"iris: {name}, best of 16", *_timed(run)))
    best = rows[0][1].model
    path = _picture(folder, "iris_mixture", lambda plt: pml.plotting.mixture(best, xs, dims=(2, 3)))
    _say("1. Mixtures of Gaussians on iris", f"16 restarts are one vmap. Picture: {path}")
    holes = jnp.where(jr.uniform(jr.key(1), xs.shape) < 0.2, jnp.nan, xs)
    result, seconds = _timed(lambda: pml.fit(best, holes, max_steps=500))
    rows.append(("iris: full, a fifth of the entries missing", result, seconds))
    error = jnp.sqrt(
        jnp.nanmean(jnp.where(jnp.isnan(holes), jax.jit(jax.vmap(result.model.impute))(holes) - xs, jnp.nan) ** 2)
    )
    naive = jnp.sqrt(jnp.nanmean(jnp.where(jnp.isnan(holes), jnp.nanmean(holes, axis=0)[None, :] - xs, jnp.nan) ** 2))
    _say(
        "2. Missing data",
        f"Entries filled by the mixture: error {error:.3f} (column means: {naive:.3f}). Just use NaN.",
    )
    return rows


def digits(folder: pathlib.Path) -> list:
    """Handwritten digits as binary images: a Bernoulli mixture finds the shapes."""
    from sklearn.datasets import load_digits

    images = load_digits().data
    xs = jnp.asarray((images > 7).astype(np.float32))
    build = lambda key, xs: pml.mixtures.bernoulli_mixture(key, xs, num_components=16, estimate="map")
    # data enter as an argument: as a constant of the program the compiler would try to fold them
    fits = jax.jit(jax.vmap(lambda key, xs: pml.fit(build(key, xs), xs), in_axes=(0, None)))
    run = lambda: pml.best_of(fits(jr.split(jr.key(2), 4), xs))
    result, seconds = _timed(run)

    def draw(plt):
        for i, probs in enumerate(result.model.components.each.distribution.probs):
            ax = plt.subplot(2, 8, i + 1)
            ax.imshow(np.asarray(probs).reshape(8, 8), cmap="gray_r")
            ax.axis("off")

    path = _picture(folder, "digits_bernoulli_mixture", draw, size=(8, 2.2))
    _say("3. A Bernoulli mixture of handwritten digits", f"Each component is a prototype. Picture: {path}")
    return [("digits: Bernoulli mixture, MAP, K=16", result, seconds)]


def methods(folder: pathlib.Path) -> list:
    """One objective, several ways up."""
    import optax
    from sklearn.datasets import load_wine

    data = load_wine().data[:, [0, 6, 9]].astype(np.float32)
    xs = jnp.asarray((data - data.mean(0)) / data.std(0))
    model = pml.mixtures.gaussian_mixture(jr.key(3), xs, num_components=3)
    rows = []
    for name, method, steps in [
        ("EM", pml.EM(), 200),
        ("L-BFGS", pml.LBFGS(), 200),
        ("Adam", pml.Gradient(optax.adam(3e-2)), 600),
    ]:
        rows.append((f"wine: {name}", *_timed(lambda m=method, s=steps: pml.fit(model, xs, m, max_steps=s))))

    def draw(plt):
        ax = plt.gca()
        for name, result, _ in rows:
            pml.plotting.trace(result, ax, label=name)
        ax.set_xscale("symlog")
        ax.legend()

    path = _picture(folder, "wine_methods", draw)
    _say("4. EM, L-BFGS and Adam climb the same line", f"Picture: {path}")
    return rows


def selection(folder: pathlib.Path) -> None:
    """How many components?"""
    from sklearn.datasets import load_iris

    xs = jnp.asarray(load_iris().data.astype(np.float32))
    table = pml.selection.gaussian_mixture_table(jr.key(4), xs, [1, 2, 3, 4], ["full"], num_restarts=8)
    path = _picture(folder, "iris_selection", lambda plt: pml.plotting.selection(table))
    _say("5. How many components? One call", f"{table}\nPicture: {path}")


def conjugate(folder: pathlib.Path) -> None:
    """Beliefs that update."""
    prior = pml.conjugate.BetaBernoulli(alpha=2.0, beta=2.0)
    flips = jr.bernoulli(jr.key(5), 0.7, (100,)).astype(jnp.float32)

    def draw(plt):
        grid = jnp.linspace(0.005, 0.995, 200)
        for n in (0, 5, 20, 100):
            belief = prior.update(flips[:n]) if n else prior
            beta = pml.distributions.Beta(belief.alpha, belief.beta)
            pml.plotting.density(beta, grid, label=f"{n} flips")
        plt.axvline(0.7, color="k", lw=0.5)
        plt.xlabel("bias")
        plt.legend()

    path = _picture(folder, "coin_posterior", draw)
    evidence = float(prior.log_evidence(flips))
    _say("6. Conjugate Bayes", f"A coin of bias 0.7, seen 100 times: log evidence {evidence:.2f}. Picture: {path}")


def sequences(folder: pathlib.Path) -> list:
    """Calm and nervous years: a hidden Markov model of a price."""
    states = np.repeat([0, 1, 0, 1, 0], [300, 120, 250, 80, 250])
    returns = np.random.default_rng(6).normal(size=states.size) * np.where(states == 0, 0.6, 2.0)
    x = jnp.asarray(returns[:, None].astype(np.float32))
    result, seconds = _timed(lambda: pml.fit(pml.sequences.gaussian_hmm(jr.key(6), x[None], 2, "diagonal"), x[None]))
    nervous = int(jnp.argmax(result.model.emission.each.distribution.scale[:, 0]))

    names = ["calm", "nervous"] if nervous == 1 else ["nervous", "calm"]
    price = np.cumsum(returns)
    path = _picture(
        folder, "hmm_regimes", lambda plt: pml.plotting.posterior_states(result.model, x, series=price, names=names)
    )
    right = float(np.mean((np.asarray(result.model.decode(x)) == nervous) == (states == 1)))
    _say("7. Regimes of a series", f"A hidden Markov model finds {100 * right:.1f} % of them. Picture: {path}")
    return [("returns: Gaussian HMM, two states", result, seconds)]


def main(folder: str = "demo") -> None:
    out = pathlib.Path(folder)
    out.mkdir(parents=True, exist_ok=True)
    print("=" * _WIDTH)
    print("probml_jax: a guided tour")
    print("=" * _WIDTH)
    rows = iris(out) + digits(out) + methods(out)
    selection(out)
    conjugate(out)
    rows += sequences(out)
    _say("All fits (seconds include compilation)", "")
    print(f"{'model':58s}{'status':>12s}{'steps':>8s}{'objective':>14s}{'seconds':>8s}")
    for name, result, seconds in rows:
        status = pml.Status(int(result.status)).name
        print(f"{name:58s}{status:>12s}{int(result.num_steps):8d}{float(result.final_objective):14.3f}{seconds:8.2f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
