"""The hidden Markov model: a chain of states, each of which emits an event of its own leaf."""

from typing import Any, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, PyTree

from .._conditional import AbstractJointModel
from .._estimate import ML, AbstractEstimate, Known
from .._product import Product
from .._special import pairwise_dot
from .._stack import AbstractStack, Stacked
from .._typing import Event, Flag, PRNGKey, Scalar, Statistics
from .._validate import check_labels, check_shape
from ..distributions.categorical import Categorical
from ..inference import chain
from ..inference.blocks import block_size, pooled
from ..inference.expectations import Expectations, expectations, is_long
from ..mixtures.mixture import Mixture
from .data import Sequences, as_sequences, check_lengths, check_steps, exists, keep, lagged, num_steps, seen
from .emissions import event_form, expected, filled, fitted
from .labels import check_chain, check_rows, log_probs
from .query import query


class HMM(AbstractJointModel):
    r"""$p(x, z) = p(z_1)\prod_s p(z_s \mid z_{s-1}) \prod_s p(x_s \mid z_s)$; a unit is one sequence.

    `initial` is a leaf over labels, `transition` a stack of k such leaves (its rows), `emission` a stack of k leaves
    of any kind. A sequence is `x (t, ...)`, or `(x, length)`, or `Sequences(x, length, states)` with known states
    (-1 unknown): then `log_prob` is that of the observations *and* the states, and learning is (semi-)supervised.
    NaN entries, missing steps and padding are integrated out exactly.

    `allowed (k, k)` forbids transitions for good, whatever the leaves are. `lags > 0` makes it autoregressive:
    emissions are conditional leaves of the pair (the last `lags` observations, this one), and the first `lags`
    observations are taken as given.

    Cost: $O(t k^2)$ and k scores per event. Reference: Murphy (2012), chapter 17.

    >>> rows = Stacked(ML(jax.vmap(Categorical)(jnp.array([[0.7, 0.3], [0.4, 0.6]]))))
    >>> walk_shop_clean = Stacked(ML(jax.vmap(Categorical)(jnp.array([[0.1, 0.4, 0.5], [0.6, 0.3, 0.1]]))))
    >>> hmm = HMM(ML(Categorical(jnp.array([0.6, 0.4]))), rows, walk_shop_clean)
    >>> round(float(jnp.exp(hmm.log_prob(jnp.array([0, 1, 2])))), 6), hmm.decode(jnp.array([0, 1, 2])).tolist()
    (0.033612, [1, 0, 0])
    """

    initial: AbstractEstimate
    transition: AbstractStack
    emission: AbstractStack
    allowed: Bool[Array, "k k"] | None = None
    lags: int = eqx.field(static=True, default=0)

    def __check_init__(self):
        k = self.transition.size
        if self.emission.size != k:
            raise ValueError(f"emission has {self.emission.size} leaves for {k} states.")
        check_chain(self.initial, self.transition)
        check_rows("emission", self.emission)
        if self.allowed is not None:
            check_shape("allowed", self.allowed, (k, k))

    @property
    def num_states(self) -> int:
        """k."""
        return self.transition.size

    # -------------------------------------------------------------------------------------- potentials

    def _one(self, datum: Any) -> Sequences:
        """One sequence, its observations in the form that the emission wants."""
        one = as_sequences(datum, batched=False)
        check_steps(one.xs, 0)
        return one._replace(xs=fitted(one.xs, event_form(self.emission, self.lags), ("t",)))

    def _many(self, data: Any) -> Sequences:
        """Sequences, their observations in the form that the emission wants."""
        many = as_sequences(data, batched=True)
        check_steps(many.xs, 1)
        return many._replace(xs=fitted(many.xs, event_form(self.emission, self.lags), ("n", "t")))

    def _events(self, x: Event) -> PyTree:
        return lagged(x, self.lags) if self.lags else x

    def _evidence(self, one: Sequences) -> tuple[PyTree, Bool[Array, "t"], Bool[Array, "t"]]:
        """Events made harmless where there are none, which of them count, and which steps exist."""
        here = exists(one.lengths, num_steps(one.xs, 0))
        events = self._events(keep(one.xs, here))
        # a conditional leaf needs its input; the parts of a product are missing one by one
        partial = isinstance(self.emission.member(0), Product) or not isinstance(events, tuple)
        counts = here & seen(events, whole=not partial)
        return keep(events, counts), counts, here

    def log_initial(self) -> Float[Array, "k"]:
        """Log-probabilities of the first state (expected ones under `Bayes` leaves)."""
        return log_probs(self.initial, self.num_states)

    def log_transition(self) -> Float[Array, "k k"]:
        """Log-probabilities of moves, row by row; `-inf` where `allowed` forbids one."""
        table = self.transition.map(lambda leaf: log_probs(leaf, self.num_states))
        return table if self.allowed is None else jnp.where(self.allowed, table, -jnp.inf)

    def log_moves(self) -> Float[Array, "k k"]:
        """Log-probabilities of what comes next: normalized, so under `Bayes` leaves those of the predictive rows."""
        table = self.transition.map(lambda leaf: jax.vmap(leaf.predictive().log_prob)(jnp.arange(self.num_states)))
        return table if self.allowed is None else jax.nn.log_softmax(jnp.where(self.allowed, table, -jnp.inf), axis=1)

    def potentials(self, datum: Any) -> tuple[Array, Array, Array, Array]:
        """What `pml.inference.chain` wants to know of one sequence: initial, transition, likelihood, mask."""
        return self._potentials(self._one(datum))

    def _potentials(self, one: Sequences) -> tuple[Array, Array, Array, Array]:
        events, counts, here = self._evidence(one)
        scores = self.emission.expected_log_probs(events, axis=1)
        return self.log_initial(), self.log_transition(), self._given(scores, counts, one.states), here

    def _given(self, scores: Array, counts: Array, states: Array | None) -> Float[Array, "t k"]:
        scores = jnp.where(counts[:, None], scores, 0)
        if states is None:
            return scores
        known = states[:, None]
        return jnp.where((known == -1) | (known == jnp.arange(self.num_states)[None, :]), scores, -jnp.inf)

    # -------------------------------------------------------------------------------------- one sequence

    @query
    def log_prob(self, datum: Any) -> Scalar:
        r"""$\log\sum_z p(x, z)$ of one sequence, as `(t, d)`, `(x, length)` or `Sequences`; known states are held."""
        one = self._one(datum)
        initial, transition, likelihood, _ = self._potentials(one)
        return chain.log_partition(initial, transition, likelihood, self._informative(one))

    def _informative(self, one: Sequences) -> Bool[Array, "t"]:
        """Steps that say something; after the last of them nothing matters to learning, existing or not."""
        _, counts, here = self._evidence(one)
        return counts if one.states is None else counts | (here & (one.states >= 0))

    @query
    def filter(self, x: Any, *, parallel: bool = False) -> Float[Array, "t k"]:
        r"""$p(z_s \mid x_{1:s})$; zero beyond the length."""
        return chain.filter(*self.potentials(x), parallel)

    @query
    def smooth(self, x: Any, *, parallel: bool = False) -> Float[Array, "t k"]:
        r"""$p(z_s \mid x_{1:t})$; zero beyond the length."""
        return chain.smooth(*self.potentials(x), parallel)

    @query
    def marginals(self, x: Any, *, parallel: bool = False) -> tuple[Float[Array, "t k"], Float[Array, "steps k k"]]:
        """Single and two-slice posterior marginals."""
        return chain.marginals(*self.potentials(x), parallel)

    @query
    def decode(self, x: Any, *, parallel: bool = False) -> Int[Array, "t"]:
        """The most probable path (Viterbi); -1 beyond the length."""
        return chain.viterbi(*self.potentials(x), parallel)[0]

    @query
    def k_best(self, x: Any, k: int, *, parallel: bool = False) -> tuple[Int[Array, "k t"], Float[Array, "k"]]:
        r"""The k most probable paths, best first, and their $\log p(x, z)$."""
        return chain.k_best(*self.potentials(x), parallel, k=k)

    @query
    def sample_posterior(self, key: PRNGKey, x: Any, *, parallel: bool = False) -> Int[Array, "t"]:
        """A path drawn given the observations."""
        return chain.sample(key, *self.potentials(x), parallel)

    @query
    def entropy(self, x: Any) -> Scalar:
        """Entropy of the path given the observations."""
        return chain.entropy(*self.potentials(x))

    @query
    def predict(self, x: Any, steps: int) -> Float[Array, "steps k"]:
        r"""$p(z_{t+1}), \dots, p(z_{t+h})$ given the observations; the first row is one step after the last of them."""
        initial, transition, likelihood, here = self.potentials(x)
        last = chain.filter(initial, transition, likelihood, here)[jnp.sum(here) - 1]
        return chain.predict(last, self.log_moves(), steps)

    @query
    def forecast(self, x: Any, steps: int) -> PyTree:
        """Expected observations of the next `steps` steps, `(steps, *event)`, one array for each part of a product.

        Labels: the probabilities of each, `(steps, num_categories)`; 0/1 values and counts: their means. `TypeError`
        for an emission without a mean. Autoregressive models: average `simulate` instead.
        """
        if self.lags:
            raise ValueError("the forecast of an autoregressive HMM has no closed form: average simulate(key, x, ...).")
        means = self.emission.map(lambda leaf: expected(leaf.point()))
        ahead = self.predict(x, steps)
        return jax.tree_util.tree_map(lambda a: jnp.tensordot(ahead, a, 1), means)

    @query
    def next_observation(self, x: Any) -> Mixture:
        """The density of the observation after the last one; with lags, given the last `lags` observations."""
        if self.lags:
            past = self._latest(self._one(x)).reshape(-1)
            parts = self.emission.map(lambda leaf: Known(leaf.predictive().given(past)))
        else:
            parts = self.emission.map(lambda leaf: Known(leaf.predictive()))
        return Mixture(ML(Categorical(self.predict(x, 1)[0])), Stacked(parts))

    def _latest(self, one: Sequences) -> Float[Array, "lags d"]:
        """The last `lags` observations, latest first."""
        length = num_steps(one.xs, 0) if one.lengths is None else one.lengths
        return jax.lax.dynamic_slice_in_dim(one.xs, length - self.lags, self.lags)[::-1]

    @query
    def impute(self, x: Any) -> PyTree:
        """The observations with what is missing replaced by its expectation given the whole sequence.

        Missing (NaN) numbers become their posterior mean (given the seen entries of the same observation, where the
        emission correlates them), missing (-1) labels the most probable one; each part of a product for itself. Steps
        beyond the length stay as they are. Autoregressive models and emissions without a closed form raise.
        """
        if self.lags:
            raise ValueError(
                "impute has no closed form for an autoregressive HMM, where a missing observation is the input of the "
                "next: cut the sequence there and average simulate(key, x, ...)."
            )
        one = self._one(x)
        each = self.emission.map(lambda leaf: jax.vmap(lambda event: expected(leaf.point(), event))(one.xs))
        each = jax.tree_util.tree_map(lambda a: jnp.swapaxes(a, 0, 1), each)
        return filled(one.xs, each, self.smooth(x), exists(one.lengths, num_steps(one.xs, 0)))

    @eqx.filter_jit
    def step(self, log_belief: Float[Array, "k"] | None, x: Event) -> tuple[Float[Array, "k"], Scalar]:
        r"""One observation more: $\log p(z_s \mid x_{1:s})$ and $\log p(x_s \mid x_{1:s-1})$.

        `log_belief` is what the previous call returned, `None` for the first observation. With lags, `x` is the
        pair (past observations, this one).
        """
        x = jax.tree_util.tree_map(jnp.asarray, x)
        x = x if self.lags else fitted(x, event_form(self.emission, 0), ())
        event = jax.tree_util.tree_map(lambda a: a[None], x)
        partial = isinstance(self.emission.member(0), Product) or not isinstance(event, tuple)
        scores = jnp.where(seen(event, whole=not partial), self.emission.expected_log_probs(event)[:, 0], 0)
        if log_belief is None:
            joint = self.log_initial() + scores
            total = jax.nn.logsumexp(joint)
            return joint - jnp.where(total == -jnp.inf, 0, total), total
        return chain.step(log_belief, self.log_transition(), scores)

    # -------------------------------------------------------------------------------------- sampling

    @eqx.filter_jit
    def sample(self, key: PRNGKey, num_steps: int) -> tuple[Int[Array, "t"], Event]:
        """States and observations of a new sequence."""
        if self.lags:
            raise ValueError("an autoregressive HMM needs observations to begin with: use simulate(key, x, steps).")
        walk, emit = jr.split(key)
        free = jnp.zeros((num_steps, self.num_states), self.log_initial().dtype)
        start = jax.vmap(self.initial.predictive().log_prob)(jnp.arange(self.num_states))
        states = chain.sample(walk, start, self.log_moves(), free)
        draw = lambda key, state: self.emission.member(state).predictive().sample(key)
        return states, jax.vmap(draw)(jr.split(emit, num_steps), states)

    @query
    def simulate(self, key: PRNGKey, x: Any, steps: int) -> tuple[Int[Array, "steps"], Event]:
        """A continuation of a sequence: the next `steps` states and observations, drawn given the past."""
        initial, transition, likelihood, here = self.potentials(x)
        walk, emit = jr.split(key)
        last, moves = chain.filter(initial, transition, likelihood, here)[jnp.sum(here) - 1], self.log_moves()
        free = jnp.zeros((steps, self.num_states), likelihood.dtype)
        states = chain.sample(walk, jnp.log(chain.predict(last, moves, 1)[0]), moves, free)
        keys = jr.split(emit, steps)
        if not self.lags:
            return states, jax.vmap(lambda key, z: self.emission.member(z).predictive().sample(key))(keys, states)
        past = self._latest(self._one(x))
        draw = lambda past, key, z: self.emission.member(z).predictive().given(past.reshape(-1)).sample(key)
        return states, chain.autoregress(draw, past, keys, states)

    # -------------------------------------------------------------------------------------- learning

    def _posterior(self, data: Any) -> tuple[PyTree, Array, chain.Beliefs]:
        """Flat events, which of them count `(n, t)`, and the beliefs of every sequence."""
        many = self._many(data)
        events, counts, _ = jax.vmap(self._evidence)(many)
        n, t = counts.shape
        flat = jax.tree_util.tree_map(lambda a: a.reshape(n * t, *a.shape[2:]), events)
        scores = self.emission.expected_log_probs(flat, axis=1).reshape(n, t, -1)
        scores = jax.vmap(self._given)(scores, counts, many.states)
        run = lambda likelihood, mask: chain.beliefs(self.log_initial(), self.log_transition(), likelihood, mask)
        informative = jax.vmap(self._informative)(many)
        if n == 1:  # one long sequence: a batch of one would cost copies
            alone = run(scores[0], informative[0])
            return flat, counts, jax.tree_util.tree_map(lambda a: a[None], alone)
        return flat, counts, jax.vmap(run)(scores, informative)

    def e_step(self, data: Any, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        many = self._many(data)
        if is_long(num_steps(many.xs, 1), self.num_states):
            return self._long_e_step(many, weights)
        flat, counts, (log_probs, single, pairs) = self._posterior(data)
        parts, mass = (flat, single.reshape(-1, self.num_states)), jnp.where(counts, weights[:, None], 0).ravel()
        collect = lambda part, mass: self.emission.statistics(part[0], part[1] * mass[:, None], axis=1)
        # what leaves make of their events may be several times as large: a block of it stays in the caches
        emitted = pooled(collect, parts, mass, block_size(parts, mass.size))
        began = jnp.tensordot(weights, single[:, 0], 1)
        moved = jnp.tensordot(weights, pairs, 1)
        return (began, moved, emitted), pairwise_dot(weights, log_probs)

    def _long_e_step(self, many: Sequences, weights: Float[Array, "n"]) -> tuple[Statistics, Scalar]:
        """The same sums, one stretch of time after the other."""

        def one(sequence: Sequences, weight: Scalar) -> Expectations:
            events, counts, _ = self._evidence(sequence)

            def score(part):
                events, counts, states = part
                return self._given(self.emission.expected_log_probs(events, axis=1), counts, states)

            def collect(part, single):
                events, counts, _ = part
                return self.emission.statistics(events, single * jnp.where(counts, weight, 0)[:, None], axis=1)

            steps = events, counts, sequence.states
            start, moves = self.log_initial(), self.log_transition()
            return expectations(start, moves, score, collect, steps, self._informative(sequence))

        if len(weights) == 1:  # a batch of one would cost copies
            alone = one(jax.tree_util.tree_map(lambda a: a[0], many), weights[0])
            found = jax.tree_util.tree_map(lambda a: a[None], alone)
        else:
            found = jax.vmap(one)(many, weights)
        emitted = jax.tree_util.tree_map(lambda a: jnp.sum(a, axis=0), found.collected)
        counted = jnp.tensordot(weights, found.first, 1), jnp.tensordot(weights, found.pairs, 1)
        return (*counted, emitted), pairwise_dot(weights, found.log_partition)

    def m_step(self, stats: Statistics) -> Self:
        began, moved, emitted = stats
        parts = self.initial.refit(began), self.transition.refit(moved), self.emission.refit(emitted)
        return HMM(*parts, self.allowed, self.lags)

    def recenter(self, stats: Statistics, new: Self) -> Statistics:
        began, moved, emitted = stats
        moved = self.transition.recenter(moved, new.transition)
        return self.initial.recenter(began, new.initial), moved, self.emission.recenter(emitted, new.emission)

    def log_prior(self) -> Scalar:
        return self.initial.log_prior() + self.transition.log_prior() + self.emission.log_prior()

    def surrogate(self, data: Any, weights: Float[Array, "n"], reference: Self) -> Scalar:
        flat, counts, (_, single, pairs) = jax.lax.stop_gradient(reference._posterior(data))
        shares = (single * jnp.where(counts, weights[:, None], 0)[:, :, None]).reshape(-1, self.num_states)
        expected = lambda mass, score: jnp.sum(jnp.where(mass > 0, mass * jnp.where(mass > 0, score, 0), 0))
        score = expected(shares, self.emission.expected_log_probs(flat, axis=1))
        score = score + expected(jnp.tensordot(weights, single[:, 0], 1), self.log_initial())
        return score + expected(jnp.tensordot(weights, pairs, 1), self.log_transition())

    # -------------------------------------------------------------------------------------- honesty

    def plug_in(self) -> Self:
        """The same model with every belief replaced by one member: an ordinary density."""
        one_each = lambda stack: Stacked(stack.map(lambda leaf: ML(leaf.point())))
        moves, emission = one_each(self.transition), one_each(self.emission)
        return HMM(ML(self.initial.point()), moves, emission, self.allowed, self.lags)

    def validate(self, data: Any) -> None:
        if isinstance(data, list):
            raise ValueError("data is a list of arrays: make it (xs, lengths) by pad_sequences, or stack it.")
        many = self._many(data)
        n, t = jax.tree_util.tree_leaves(many.xs)[0].shape[:2]
        check_lengths(many.lengths, n, t)
        if many.states is not None:
            check_shape("states", many.states, (n, t))
            check_labels("states", many.states, self.num_states)
        real = many.xs if many.lengths is None else jax.vmap(lambda x, l: keep(x, exists(l, t)))(many.xs, many.lengths)
        if not self.lags:
            self.emission.validate(jax.tree_util.tree_map(lambda a: a.reshape(n * t, *a.shape[2:]), real))
        if self.emission.indistinct() and many.states is None:
            raise ValueError("all states emit alike, so no method could ever separate them: start them apart.")

    def unlabelled(self, datum: Any) -> Sequences:
        return as_sequences(datum, batched=False)._replace(states=None)

    def check_labelled(self, data: Any) -> None:
        if as_sequences(data, batched=True).states is None:
            raise ValueError("a conditional model needs known states: pass Sequences(xs, lengths, states).")

    def degenerate(self) -> Flag:
        return self.emission.degenerate()
