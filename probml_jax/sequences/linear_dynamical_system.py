"""The linear dynamical system: a chain of Gaussian states, each of which emits an observation."""

from typing import Any, NamedTuple, Self

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._constraint import fixed
from .._estimate import AbstractEstimate, Bayes
from .._linalg import inverse_factor, log_det, matmul
from .._model import AbstractLatentModel
from .._special import LOG_2PI, any_in_batch, pairwise_dot
from .._typing import Flag, PRNGKey, Scalar, Statistics
from .._validate import check_finite, check_shape
from ..distributions.coordinates import Moments
from ..distributions.linear_normal import LinearNormal
from ..distributions.linear_spherical_normal import LinearSphericalNormal
from ..distributions.multivariate_normal import MultivariateNormal
from ..distributions.regression import AbstractLinear, UncertainPairs
from ..inference import kalman
from .data import Sequences, as_sequences, check_lengths, exists, num_steps


class Forecast(NamedTuple):
    """Gaussian predictions of the next observations."""

    mean: Float[Array, "steps d"]
    covariance: Float[Array, "steps d d"]

    def interval(self, probability: float = 0.95) -> tuple[Float[Array, "steps d"], Float[Array, "steps d"]]:
        """Central intervals of every coordinate: lower and upper ends."""
        half = jax.scipy.stats.norm.ppf(0.5 + probability / 2) * jnp.sqrt(jnp.diagonal(self.covariance, 0, 1, 2))
        return self.mean - half, self.mean + half


class _Posterior(NamedTuple):
    """What the smoother says of all steps `(n, t, ...)`, and how much each step and transition counts."""

    smoothed: kalman.Smoothed
    steps: Float[Array, "n t"]
    moves: Float[Array, "n t-1"]


class LinearDynamicalSystem(AbstractLatentModel):
    r"""$z_1 \sim N(m, P)$, $z_{s+1} \sim N(Az_s + b, Q)$, $y_s \sim N(Cz_s + c, R)$; a unit is one series.

    Three leaves: `initial` over $z_1$ (a `MultivariateNormal`), `dynamics` and `emission` (`LinearGaussian`,
    `LinearNormal` or `LinearSphericalNormal`: full, diagonal or spherical noise, entries fixed by `free` masks), each
    `ML`, `MAP` or `Frozen`. A series is `y (t, d)`, `(y, length)` or `Sequences(y, length)`. With inputs it is the
    pair `(y, u)`, `u (t, m)`: dynamics and emission are then regressions on $(z_s, u_s)$, the input of step s driving
    the transition from s to s+1. NaN entries of `y`, missing steps and padding are integrated out exactly.

    `diffuse (p,)` marks coordinates of $z_1$ of which nothing is known; `initial` must then be `Frozen`, and
    `log_prob` is the diffuse log-likelihood (see `pml.inference.kalman.log_likelihood`). `parts` are the sizes of the
    blocks of the state that `contributions` tells apart.

    Cost: $O(t(p^3 + dp^2))$ per series. Reference: Murphy (2023), section 29.6; Ghahramani and Hinton (1996).

    >>> import jax.random as jr
    >>> from probml_jax import sequences
    >>> ys = jr.normal(jr.key(0), (3, 50, 2))
    >>> lds = sequences.linear_dynamical_system(jr.key(1), ys, num_latents=2)
    >>> lds.smooth(ys[0]).mean.shape, lds.forecast(ys[0], steps=5).mean.shape
    ((50, 2), (5, 2))
    """

    initial: AbstractEstimate
    dynamics: AbstractEstimate
    emission: AbstractEstimate
    diffuse: Bool[Array, "p"] | None = fixed(default=None)
    parts: tuple[int, ...] = eqx.field(static=True, default=())

    def __check_init__(self):
        for name in ("initial", "dynamics", "emission"):
            if isinstance(getattr(self, name), Bayes):
                raise TypeError(
                    f"{name} must be an ML, MAP or Frozen leaf: states and Bayes leaves do not mix exactly."
                )
        start, move, look = self.initial.point(), self.dynamics.point(), self.emission.point()
        if not isinstance(start, MultivariateNormal):
            raise TypeError(f"initial must hold a MultivariateNormal; got {type(start).__name__}.")
        for name, member in (("dynamics", move), ("emission", look)):
            if not isinstance(member, AbstractLinear):
                raise TypeError(
                    f"{name} must hold a linear family such as LinearGaussian; got {type(member).__name__}."
                )
        p, width = start.loc.shape[-1], move.matrix.shape[-1]
        if move.matrix.shape[-2] != p or width < p:
            raise ValueError(f"dynamics has a matrix {move.matrix.shape[-2:]}; {p} states want ({p}, {p} + inputs).")
        if look.matrix.shape[-1] != width:
            raise ValueError(f"emission reads {look.matrix.shape[-1]} values; dynamics reads {width}.")

    # -------------------------------------------------------------------------------------- the system

    @property
    def num_latents(self) -> int:
        """p."""
        return self.initial.point().loc.shape[-1]

    @property
    def num_inputs(self) -> int:
        """Columns of the dynamics that belong to inputs."""
        return self.dynamics.point().matrix.shape[-1] - self.num_latents

    def _observed(self, one: Sequences) -> tuple[Array, Array | None]:
        return one.xs if self.num_inputs else (one.xs, None)

    def system(self, inputs: Float[Array, "t m"] | None = None) -> kalman.System:
        """The arrays that `pml.inference.kalman` works on, for a series with these inputs."""
        p, start = self.num_latents, self.initial.point()
        move, look = self.dynamics.point(), self.emission.point()
        offsets = move.offset, look.offset
        if inputs is not None:
            driven = matmul(inputs, move.matrix[:, p:].T), matmul(inputs, look.matrix[:, p:].T)
            offsets = driven[0][:-1] + offsets[0][None], driven[1] + offsets[1][None]
        matrices = move.matrix[:, :p], move.covariance, look.matrix[:, :p], _noise(look)
        return kalman.System(start.loc, start.covariance, *matrices, *offsets, self.diffuse)

    def _asked(self, x: Any) -> tuple[kalman.System, Array, Array | None]:
        """System, observations and mask of one series."""
        one = as_sequences(x, batched=False)
        y, inputs = self._observed(one)
        return self.system(inputs), y, None if one.lengths is None else exists(one.lengths, y.shape[0])

    # -------------------------------------------------------------------------------------- one series

    @eqx.filter_jit
    def log_prob(self, datum: Any) -> Scalar:
        r"""$\log p(y_{1:t})$ of one series by the Kalman filter; NaN entries are integrated out."""
        return kalman.log_likelihood(*self._asked(datum))

    @eqx.filter_jit
    def filter(self, x: Any, *, form: str = "joseph", parallel: bool = False) -> kalman.Filtered:
        r"""Moments of $p(z_s \mid y_{1:s})$; see `pml.inference.kalman.filter`."""
        return kalman.filter(*self._asked(x), form=form, parallel=parallel)

    @eqx.filter_jit
    def smooth(self, x: Any, *, form: str = "joseph", parallel: bool = False) -> kalman.Smoothed:
        r"""Moments of $p(z_s \mid y_{1:t})$; see `pml.inference.kalman.smooth`."""
        return kalman.smooth(*self._asked(x), form=form, parallel=parallel)

    @eqx.filter_jit
    def sample_posterior(self, key: PRNGKey, x: Any, *, parallel: bool = False) -> Float[Array, "t p"]:
        """A path of states drawn given the observations."""
        return kalman.sample(key, *self._asked(x), parallel=parallel)

    @eqx.filter_jit
    def observe(self, x: Any) -> Forecast:
        """Smoothed observations $Cz_s + c$ with their covariance (noise left out): the signal in the series."""
        one = as_sequences(x, batched=False)
        _, inputs = self._observed(one)
        found = self.smooth(x)
        return _emitted(self.system(inputs), found.mean, found.covariance, noisy=False)

    @eqx.filter_jit
    def impute(self, x: Any) -> Float[Array, "t d"]:
        """Missing (NaN) entries replaced by their expectation given the whole series."""
        one = as_sequences(x, batched=False)
        y, inputs = self._observed(one)
        found = self.smooth(x)
        latent = found.mean if inputs is None else jnp.concatenate([found.mean, inputs], axis=1)
        return _completed(self.emission.point(), latent, found.covariance, y, jnp.ones(y.shape[0], y.dtype))[0]

    @eqx.filter_jit
    def contributions(self, x: Any) -> list[Float[Array, "t d"]]:
        """What each block of the state (of sizes `parts`) adds to the smoothed observations."""
        mean, matrix = self.smooth(x).mean, self.emission.point().matrix
        sizes = self.parts or (self.num_latents,)
        ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
        blocks = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        return [matmul(mean[:, block], matrix[:, block].T) for block in blocks]

    @eqx.filter_jit
    def forecast(self, x: Any, steps: int, inputs: Float[Array, "steps m"] | None = None) -> Forecast:
        """The next `steps` observations after the last one of the series; `inputs` are those of the future steps."""
        one = as_sequences(x, batched=False)
        y, past = self._observed(one)
        last = y.shape[0] - 1 if one.lengths is None else one.lengths - 1
        if self.num_inputs:
            if inputs is None:
                raise ValueError(f"inputs of the {steps} future steps are wanted: the system has {self.num_inputs}.")
            check_shape("inputs", inputs, (steps, self.num_inputs))
            assert past is not None, "a system with inputs was given them"
            inputs = jnp.concatenate([past[last][None], inputs])
        now = self.filter(x)
        ahead = self.system(inputs)
        moments = kalman.predict(ahead, now.mean[last], now.covariance[last], steps)
        offset = ahead.emission_offset
        if offset is not None and offset.ndim == 2:
            ahead = ahead._replace(emission_offset=offset[1:])
        return _emitted(ahead, *moments, noisy=True)

    @eqx.filter_jit
    def step(self, belief: tuple[Array, Array] | None, y: Float[Array, "d"]) -> tuple[tuple[Array, Array], Scalar]:
        r"""One observation more: moments of $p(z_s \mid y_{1:s})$ and $\log p(y_s \mid y_{1:s-1})$ (no inputs)."""
        if self.num_inputs:
            raise ValueError("an online step of a system with inputs: use pml.inference.kalman.step with its offsets.")
        return kalman.step(self.system(), belief, y)

    @eqx.filter_jit
    def sample(
        self, key: PRNGKey, num_steps: int, inputs: Float[Array, "t m"] | None = None
    ) -> tuple[Float[Array, "t p"], Float[Array, "t d"]]:
        """States and observations of a new series; diffuse coordinates begin at their mean."""
        if self.num_inputs:
            if inputs is None:
                raise ValueError(f"inputs are wanted: the system has {self.num_inputs}.")
            check_shape("inputs", inputs, (num_steps, self.num_inputs))
        return kalman.simulate(key, self.system(inputs), num_steps)

    # -------------------------------------------------------------------------------------- learning

    def _posterior(self, many: Sequences, weights: Array) -> _Posterior:
        n, t = jax.tree_util.tree_leaves(many.xs)[0].shape[:2]
        found = jax.vmap(self.smooth)(many)
        here = jnp.ones((n, t), bool) if many.lengths is None else jax.vmap(lambda l: exists(l, t))(many.lengths)
        # a diffuse state that nothing determines has no moments, and nothing to say
        known = jnp.all(jnp.isfinite(found.covariance), axis=(1, 2, 3))
        blank = lambda a: jnp.where(known.reshape(-1, *[1] * (a.ndim - 1)), a, 0)
        found = found._replace(mean=blank(found.mean), covariance=blank(found.covariance), cross=blank(found.cross))
        share = jnp.where(known, weights, 0)[:, None]
        return _Posterior(found, jnp.where(here, share, 0), jnp.where(here[:, 1:], share, 0))

    def _pairs(self, many: Sequences, post: _Posterior) -> tuple[tuple[Array, Array], UncertainPairs, UncertainPairs]:
        """Expected first states (means, pooled covariance), transitions and emissions, for leaves to learn from."""
        y, inputs = many.xs if self.num_inputs else (many.xs, None)
        mean, covariance, cross, _ = post.smoothed
        p, flat = self.num_latents, lambda a: a.reshape(-1, a.shape[-1])
        pool = lambda w, a: jnp.tensordot(w, a, 2, precision="highest")
        first = mean[:, 0], jnp.tensordot(post.steps[:, 0], covariance[:, 0], 1)
        wide = lambda a: jnp.pad(a, ((0, 0),) * (a.ndim - 1) + ((0, self.num_inputs),))
        square = lambda a: jnp.pad(a, ((0, self.num_inputs), (0, self.num_inputs)))
        both = mean if inputs is None else jnp.concatenate([mean, inputs], axis=-1)
        sums = (pool(post.moves, a) for a in (covariance[:, :-1], cross, covariance[:, 1:]))
        xx, yx, yy = sums
        moves = UncertainPairs(flat(both[:, :-1]), flat(mean[:, 1:]), square(xx), wide(yx), yy)
        steps = post.steps.reshape(-1)
        member = self.emission.point()
        filled, yx, yy = _completed(member, flat(both), covariance.reshape(-1, p, p), flat(y), steps)
        looks = UncertainPairs(flat(both), filled, square(pool(post.steps, covariance)), wide(yx), yy)
        return first, moves, looks

    def e_step(self, data: Any, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        many = as_sequences(data, batched=True)
        post = self._posterior(many, weights)
        first, moves, looks = self._pairs(many, post)
        began = self.initial.statistics(first[0], post.steps[:, 0])
        if isinstance(began, Moments):
            began = began._replace(second=began.second + first[1])
        moved = self.dynamics.statistics(moves, post.moves.reshape(-1))
        emitted = self.emission.statistics(looks, post.steps.reshape(-1))
        return (began, moved, emitted), pairwise_dot(weights, post.smoothed.log_likelihood)

    def m_step(self, stats: Statistics) -> Self:
        began, moved, emitted = stats
        parts = self.initial.refit(began), self.dynamics.refit(moved), self.emission.refit(emitted)
        return LinearDynamicalSystem(*parts, self.diffuse, self.parts)

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        began, moved, emitted = stats
        moved = self.dynamics.recenter(moved, new.dynamics)
        return self.initial.recenter(began, new.initial), moved, self.emission.recenter(emitted, new.emission)

    def log_prior(self) -> Scalar:
        return self.initial.log_prior() + self.dynamics.log_prior() + self.emission.log_prior()

    def surrogate(self, data: Any, weights: Float[Array, "n"], reference: Self) -> Scalar:
        many = as_sequences(data, batched=True)
        post = jax.lax.stop_gradient(reference._posterior(many, weights))
        first, moves, looks = jax.lax.stop_gradient(reference._pairs(many, post))
        move, look = self.dynamics.point(), self.emission.point()
        value = move.score(move.statistics(moves, post.moves.reshape(-1)))
        value = value + look.score(look.statistics(looks, post.steps.reshape(-1)))
        if self.diffuse is not None:
            return value
        start = self.initial.point()
        began = start.statistics(first[0], post.steps[:, 0])
        whiten = inverse_factor(start.covariance)
        second = jnp.sum(matmul(whiten, began.second + first[1]) * whiten)
        size = self.num_latents * LOG_2PI - log_det(whiten)
        return value - 0.5 * (began.count * size + second)

    # -------------------------------------------------------------------------------------- honesty

    def validate(self, data: Any) -> None:
        many = as_sequences(data, batched=True)
        y = many.xs
        if self.num_inputs:
            if not (isinstance(many.xs, tuple) and len(many.xs) == 2):
                raise ValueError("data must be (ys, inputs): the system has inputs.")
            y, inputs = many.xs
            check_shape("inputs", inputs, (*y.shape[:2], self.num_inputs))
            check_finite("inputs", inputs, nan=False)
        if isinstance(y, tuple):
            raise ValueError("data has inputs, but the system has none.")
        d = self.emission.point().offset.shape[-1]
        if y.ndim != 3:
            raise ValueError(f"ys has shape {y.shape}; wanted (n, t, {d}): one series is ys[None].")
        if y.shape[2] != d:
            raise ValueError(f"ys has {y.shape[2]} features; the system emits {d}.")
        check_lengths(many.lengths, y.shape[0], num_steps(y, 1))

    def degenerate(self) -> Flag:
        return self.dynamics.degenerate() | self.emission.degenerate()


def _noise(member: AbstractLinear) -> Array:
    """The noise of an emission in its leanest form: variances where they are independent."""
    if isinstance(member, LinearNormal):
        return member.scale**2
    if isinstance(member, LinearSphericalNormal) and member.directions is None:
        return jnp.broadcast_to(member.scale**2, member.offset.shape)
    return member.covariance


def _emitted(system: kalman.System, mean: Array, covariance: Array, *, noisy: bool) -> Forecast:
    matrix, offset, noise = system.emission, system.emission_offset, system.emission_noise
    assert offset is not None, "a model has one for its systems"
    offset = offset if offset.ndim == 2 else offset[None]
    spread = jnp.einsum("dp,tpq,eq->tde", matrix, covariance, matrix, precision="highest")
    if noisy:
        spread = spread + (jnp.diag(noise) if noise.ndim == 1 else noise)[None]
    return Forecast(matmul(mean, matrix.T) + offset, spread)


def _completed(
    member: AbstractLinear,
    latent: Float[Array, "n w"],
    covariance: Float[Array, "n p p"],
    y: Float[Array, "n d"],
    weights: Float[Array, "n"],
) -> tuple[Float[Array, "n d"], Float[Array, "d p"], Float[Array, "d d"]]:
    r"""Observations with missing entries at their expectation, and what these add to pooled covariances.

    Given the state, $y = Cz + c + F(y - Cz - c)_{seen} + \eta$: F carries the residuals of what is seen over to what is
    not, through the noise. Steps without weight may hold anything.
    """
    # padding is not missing: it does not count at all
    seen = ~jnp.isnan(y) | (weights == 0)[:, None]

    def fill(latent, covariance, y, weights):
        expected = matmul(latent, member.matrix.T) + member.offset[None]
        residual = jnp.where(seen, jnp.where(seen, y, 0) - expected, 0)
        loadings = member.matrix[:, : covariance.shape[-1]]
        if _noise(member).ndim == 1:
            filled = jnp.where(jnp.isnan(y), expected, y)
            carry = jnp.where(seen[:, :, None], 0, loadings[None])
            missing = jnp.diag(matmul(weights, (~seen).astype(y.dtype)) * _noise(member))
        else:
            noise = member.covariance
            over = jax.vmap(lambda one: _carried(noise, one))(seen)
            filled = expected + jnp.einsum("nde,ne->nd", over, residual, precision="highest")
            carry = loadings[None] - over @ loadings
            left = noise[None] - jnp.einsum("nde,ef,ngf->ndg", over, noise, over, precision="highest")
            missing = jnp.tensordot(weights, left, 1)
        half = jnp.einsum("n,ndp,npq->ndq", weights, carry, covariance, precision="highest")
        spread = jnp.einsum("ndq,neq->de", half, carry, precision="highest") + missing
        return filled, jnp.sum(half, axis=0), spread

    def plain(latent, covariance, y, weights):
        d, p = member.matrix.shape[0], covariance.shape[-1]
        return jnp.where(jnp.isnan(y), 0, y), jnp.zeros((d, p), y.dtype), jnp.zeros((d, d), y.dtype)

    return jax.lax.cond(any_in_batch(jnp.any(~seen)), fill, plain, latent, covariance, y, weights)


def _carried(noise: Float[Array, "d d"], seen: Bool[Array, "d"]) -> Float[Array, "d d"]:
    r"""$F = R_{:,o}R_{oo}^{-1}$ with zero columns for what is not seen; the identity on what is."""
    both = seen[:, None] & seen[None, :]
    whiten = inverse_factor(jnp.where(both, noise, jnp.eye(seen.size, dtype=noise.dtype)))
    right = matmul(jnp.where(seen[None, :], noise, 0), matmul(whiten.T, whiten))
    return jnp.where(seen[:, None], jnp.eye(seen.size, dtype=noise.dtype), jnp.where(seen[None, :], right, 0))
