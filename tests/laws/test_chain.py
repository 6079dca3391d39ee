"""Laws of one chain of discrete states: everything against the enumeration of all paths."""

import functools
import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from probml_jax.inference import chain

T, K, BEST, DRAWS = 4, 3, 5, 3000
KINDS = {
    "constant-scan": (False, False),
    "constant-parallel": (False, True),
    "varying-scan": (True, False),
    "varying-parallel": (True, True),
}  # name -> (transitions vary, parallel)
every_kind = pytest.mark.parametrize("name", list(KINDS))


def _case(name, varying):
    """Potentials and mask; none of them is normalized."""
    rng = np.random.default_rng(len(name))
    initial, likelihood = rng.normal(size=K), rng.normal(size=(T, K))
    transition = rng.normal(size=(T - 1, K, K) if varying else (K, K))
    mask = np.ones(T, bool)
    if name in ("sparse", "sparse_ragged"):
        transition[..., 0, 1] = transition[..., 2, 0] = -np.inf
        initial[1] = -np.inf
    if name == "left_to_right":
        transition[..., [1, 2, 2], [0, 0, 1]] = -np.inf
        initial[1:] = -np.inf
    if name == "one_step":
        mask[1:] = False
    if name in ("ragged", "sparse_ragged"):
        mask[-1] = False
    if name == "missing":
        mask[[0, 2]] = False
    if name == "nothing":
        mask[:] = False
    if name == "impossible":
        likelihood[2] = -np.inf
    if name == "far":  # a path whose prefix is 1e-60 as likely as another's, and wins
        likelihood[0] = [0.0, -140.0, -300.0]
        likelihood[1:] = [[-90.0, 0.0, -50.0]] * 3
    return initial, transition, likelihood, mask


CASES = ("plain sparse left_to_right one_step ragged sparse_ragged missing nothing impossible far").split()


@functools.cache
def _enumerated(name, varying):
    initial, transition, likelihood, mask = _case(name, varying)
    length = int(np.flatnonzero(mask).max(initial=-1)) + 1
    likelihood = np.where(mask[:, None], likelihood, 0)
    move = lambda s: transition[s] if varying else transition
    paths = list(itertools.product(range(K), repeat=length))
    score = lambda p: (
        sum(likelihood[s, p[s]] for s in range(length)) + sum(move(s)[p[s], p[s + 1]] for s in range(length - 1))
    )
    scores = np.array([score(p) + (initial[p[0]] if p else 0.0) for p in paths])
    with np.errstate(invalid="ignore"):
        total = np.logaddexp.reduce(scores)
        probs = np.nan_to_num(np.exp(scores - total))
    single, pairs = np.zeros((T, K)), np.zeros((T - 1, K, K))
    for path, p in zip(paths, probs, strict=True):
        for s in range(length):
            single[s, path[s]] += p
        for s in range(length - 1):
            pairs[s, path[s], path[s + 1]] += p
    return length, paths, scores, total, probs, single, pairs


@functools.cache
def _computed(varying, parallel, dtype):
    """Everything the engine knows about one chain, in one compilation for all cases."""

    @jax.jit
    def compute(initial, transition, likelihood, mask, key):
        given = (initial, transition, likelihood, mask, parallel)
        value = lambda i, t, l: chain.log_partition(i, t, l, mask, parallel)
        draws = jax.vmap(lambda k: chain.sample(k, *given))(jr.split(key, DRAWS))
        return {
            "log_partition": value(initial, transition, likelihood),
            "gradient": jax.grad(value, (0, 1, 2))(initial, transition, likelihood),
            "curvature": jax.jacfwd(jax.grad(value, 2), 2)(initial, transition, likelihood),
            "marginals": chain.marginals(*given),
            "counts": chain.expected_counts(*given),
            "filter": chain.filter(*given),
            "viterbi": chain.viterbi(*given),
            "k_best": chain.k_best(*given, k=BEST),
            "entropy": chain.entropy(*given),
            "draws": draws,
        }

    def run(name):
        *potentials, mask = _case(name, varying)
        return compute(*(jnp.asarray(a, dtype) for a in potentials), jnp.asarray(mask), jr.key(0))

    return functools.cache(run)


in_both_ways = pytest.mark.parametrize("parallel", [False, pytest.param(True, marks=pytest.mark.thorough)])


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        *[(name, "float64") for name in KINDS],
        ("constant-scan", "float32"),
        *[pytest.param(n, "float32", marks=pytest.mark.thorough) for n in KINDS if n != "constant-scan"],
    ],
)
def test_sums_are_sums_over_all_paths(name, case, dtype):
    varying, parallel = KINDS[name]
    length, _, _, total, probs, single, pairs = _enumerated(case, varying)
    got = _computed(varying, parallel, dtype)(case)
    # float32: potentials of size 300 are themselves rounded to 1e-5
    tol = {"float64": 1e-11, "float32": 1e-4 if case == "far" else 3e-6}[dtype]
    # counts and gradients add up to T of these marginals; the entropy adds T K^2 terms
    mask = _case(case, varying)[3]
    np.testing.assert_allclose(got["log_partition"], total, rtol=tol, atol=tol)
    for value, want in zip(got["marginals"], (single, pairs), strict=True):
        np.testing.assert_allclose(value, want, atol=tol)
    for value, want in zip(got["counts"], (single[0], pairs.sum(0), single.sum(0)), strict=True):
        np.testing.assert_allclose(value, want, atol=4 * tol)
    wanted = (single[0], pairs if varying else pairs.sum(0), single * mask[:, None])
    for value, want in zip(got["gradient"], wanted, strict=True):
        np.testing.assert_allclose(value, want, atol=4 * tol)
    np.testing.assert_allclose(got["entropy"], -np.sum(probs[probs > 0] * np.log(probs[probs > 0])), atol=10 * tol)
    if length:
        np.testing.assert_allclose(got["filter"][length - 1], single[length - 1], atol=tol)
    assert (np.asarray(got["filter"])[length:] == 0).all()


@pytest.mark.parametrize("case", CASES)
@every_kind
def test_paths_are_those_of_the_sorted_enumeration(name, case):
    varying, parallel = KINDS[name]
    length, paths, scores, total, _, single, _ = _enumerated(case, varying)
    got = _computed(varying, parallel, "float64")(case)
    possible = total > -np.inf
    path, score = got["viterbi"]
    order = np.argsort(-scores, kind="stable")[:BEST]
    wanted = [paths[i] if scores[i] > -np.inf else (-1,) * length for i in order]
    np.testing.assert_allclose(score, scores.max(), rtol=1e-12)
    assert tuple(path[:length].tolist()) == wanted[0]
    assert (path[length:] == -1).all()
    ranked, values = got["k_best"]
    np.testing.assert_allclose(values[: len(order)], scores[order], rtol=1e-12)
    assert (values[len(order) :] == -np.inf).all()
    assert [tuple(p[:length].tolist()) for p in ranked[: len(order)]] == wanted
    draws = np.asarray(got["draws"])
    if not possible:
        assert (draws == -1).all()
        return
    frequency = np.stack([(draws == j).mean(0) for j in range(K)], axis=1)
    # five standard errors of a frequency
    assert np.abs(frequency - single).max() < 5 * 0.5 / np.sqrt(DRAWS)


@pytest.mark.parametrize("name", ["constant-scan", "constant-parallel"])
def test_second_derivatives_are_covariances(name):
    parallel = KINDS[name][1]
    _, paths, _, _, probs, single, _ = _enumerated("sparse", False)
    got = _computed(False, parallel, "float64")("sparse")["curvature"]
    features = np.array([np.eye(K)[list(p)].ravel() for p in paths])
    want = (features * probs[:, None]).T @ features - np.outer(single.ravel(), single.ravel())
    np.testing.assert_allclose(got.reshape(T * K, T * K), want, atol=1e-10)


def test_an_impossible_chain_has_zero_gradient_and_no_nan():
    for dtype in ("float32", "float64"):
        got = _computed(False, False, dtype)("impossible")
        assert got["log_partition"] == -np.inf
        for leaf in jax.tree_util.tree_leaves(got["gradient"]):
            assert (leaf == 0).all()


def test_kl_is_the_sum_over_paths():
    one, other = _case("plain", False)[:3], _case("ragged", False)[:3]
    scores = []
    for initial, transition, likelihood in (one, other):
        paths = itertools.product(range(K), repeat=T)
        of = lambda z, i=initial, a=transition, l=likelihood: (
            i[z[0]] + sum(l[s, z[s]] for s in range(T)) + sum(a[z[s], z[s + 1]] for s in range(T - 1))
        )
        scores.append(np.array([of(z) for z in paths]))
    log_p, log_q = (s - np.logaddexp.reduce(s) for s in scores)
    got = chain.kl(tuple(map(jnp.asarray, one)), tuple(map(jnp.asarray, other)))
    np.testing.assert_allclose(got, np.sum(np.exp(log_p) * (log_p - log_q)), rtol=1e-10)
    assert chain.kl(tuple(map(jnp.asarray, one)), tuple(map(jnp.asarray, one))) < 1e-12


def test_batches_agree_with_one_at_a_time():
    """Also when one member of the batch needs numbers with exponents of their own."""
    names = ["plain", "sparse", "far", "ragged", "impossible"]
    stack = [jnp.stack([jnp.asarray(_case(n, False)[i]) for n in names]) for i in range(4)]
    together = jax.jit(jax.vmap(chain.log_partition))(*stack)
    slopes = jax.jit(jax.vmap(jax.grad(chain.log_partition, 2)))(*stack)
    for i, name in enumerate(names):
        alone = _computed(False, False, "float64")(name)
        np.testing.assert_allclose(together[i], alone["log_partition"], rtol=1e-12)
        np.testing.assert_allclose(slopes[i], alone["gradient"][2], atol=1e-12)


def test_online_steps_are_the_filter():
    initial, transition, likelihood, _ = map(jnp.asarray, _case("sparse", False))
    transition = jax.nn.log_softmax(transition, axis=1)
    filtered = chain.filter(initial, transition, likelihood)
    belief = jax.nn.log_softmax(initial + likelihood[0])
    total = jax.nn.logsumexp(initial + likelihood[0])
    for s in range(1, T):
        belief, gain = chain.step(belief, transition, likelihood[s])
        total = total + gain
        np.testing.assert_allclose(jnp.exp(belief), filtered[s], atol=1e-12)
    np.testing.assert_allclose(total, chain.log_partition(initial, transition, likelihood), rtol=1e-12)
    ahead = chain.predict(filtered[-1], transition, 3)
    np.testing.assert_allclose(ahead[2], filtered[-1] @ np.linalg.matrix_power(np.exp(transition), 3), atol=1e-12)


# ------------------------------------------------------------------ long chains in float32


def _long(t, k, forbidden, dtype):
    rng = np.random.default_rng(0)
    transition = np.log(rng.dirichlet(np.ones(k), k))
    if forbidden:
        transition[0, 1] = transition[2, 0] = -np.inf
    initial, likelihood = np.log(rng.dirichlet(np.ones(k))), rng.normal(size=(t, k)) * 3 - 4
    return [jnp.asarray(a, dtype) for a in (initial, transition, likelihood)]


def test_a_million_steps_in_float32():
    small, large = (jax.jit(chain.log_partition)(*_long(1_000_000, 4, False, d)) for d in ("float32", "float64"))
    assert abs(float(small) / float(large) - 1) < 1e-6


def test_twenty_thousand_steps_with_forbidden_transitions():
    narrow, wide = (_long(20_000, 5, True, d) for d in ("float32", "float64"))
    path, _ = jax.jit(chain.viterbi)(*narrow)
    best, score = jax.jit(chain.viterbi)(*wide)
    assert not np.isneginf(np.asarray(wide[1])[path[:-1], path[1:]]).any()
    achieved = chain.path_log_score(path, *wide)
    assert float(score - achieved) < 1e-6 * abs(float(score))
    assert np.mean(np.asarray(path) == np.asarray(best)) > 0.999
    smoothed = [jax.jit(chain.smooth)(*args) for args in (narrow, wide)]
    np.testing.assert_allclose(smoothed[0], smoothed[1], atol=2e-5)  # messages carry 1e-7 per step of memory
    value = [float(jax.jit(chain.log_partition)(*args)) for args in (narrow, wide)]
    np.testing.assert_allclose(*value, rtol=3e-7)


def test_scaled_and_log_space_agree_on_a_long_chain():
    """The two paths of the engine, on a chain where both are valid."""
    from probml_jax.inference.chain import _by_probabilities, _by_wide
    from probml_jax.inference.messages import make_chain, mixes, scale, scaled_messages, underflows

    by_probabilities = jax.jit(lambda c: _by_probabilities(scale(c), scaled_messages(scale(c))))
    for forbidden in (False, True):
        given = make_chain(*_long(3_000, 5, forbidden, "float64"), None)
        assert mixes(given.log_transition) == (not forbidden)
        assert not underflows(given, scaled_messages(scale(given)))
        for a, b in zip(by_probabilities(given), jax.jit(lambda c: _by_wide(c, False))(given), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


def test_the_best_path_among_many_states():
    """A dozen states are searched another way than a few."""
    rng = np.random.default_rng(3)
    for t, k in ((40, 12), (5, 70)):
        args = [jnp.asarray(a) for a in (rng.normal(size=k), rng.normal(size=(k, k)), rng.normal(size=(t, k)))]
        path, score = jax.jit(chain.viterbi)(*args)
        paths, scores = jax.jit(lambda *a: chain.k_best(*a, k=1))(*args)
        assert path.tolist() == paths[0].tolist()
        np.testing.assert_allclose([score, chain.path_log_score(path, *args)], scores[0], rtol=1e-12)


def test_a_state_that_loses_its_digits_is_noticed():
    """Forward messages of a left-to-right chain sink below the range of float32; wider numbers are right."""
    from probml_jax.inference.messages import make_chain, scale, scaled_messages, underflows

    t, k = 60, 3
    allowed = np.triu(np.ones((k, k), bool))
    transition = np.where(allowed, 0.0, -np.inf)
    likelihood = np.zeros((t, k))
    likelihood[:50, 0] = -4.0  # by step 50 staying in the first state is 1e-87 as likely as having left it
    likelihood[50:, 1:] = -60.0  # and in the end nothing else explains the data
    initial = np.array([0.0, -np.inf, -np.inf])
    wide = [jnp.asarray(a) for a in (initial, transition, likelihood)]
    narrow = [a.astype(jnp.float32) for a in wide]
    small, large = (make_chain(*args, None) for args in (narrow, wide))
    assert underflows(small, scaled_messages(scale(small)))
    assert not underflows(large, scaled_messages(scale(large)))
    for function in (chain.log_partition, chain.smooth, chain.filter):
        np.testing.assert_allclose(function(*narrow), function(*wide), rtol=1e-5, atol=1e-6)
    assert chain.smooth(*narrow)[30, 0] > 0.999


# ------------------------------------------------------------------ bad input


def test_shapes_are_checked():
    zeros = jnp.zeros
    with pytest.raises(ValueError, match="log_initial"):
        chain.log_partition(zeros(2), zeros((3, 3)), zeros((4, 3)))
    with pytest.raises(ValueError, match="log_transition"):
        chain.log_partition(zeros(3), zeros((4, 3, 3)), zeros((4, 3)))
    with pytest.raises(ValueError, match="mask"):
        chain.log_partition(zeros(3), zeros((3, 3)), zeros((4, 3)), jnp.ones(3, bool))
    with pytest.raises(ValueError, match="log_likelihood"):
        chain.viterbi(zeros(3), zeros((3, 3)), zeros((0, 3)))
    with pytest.raises(ValueError, match="k must be"):
        chain.k_best(zeros(3), zeros((3, 3)), zeros((4, 3)), k=0)
    with pytest.raises(ValueError, match="steps"):
        chain.predict(zeros(3), zeros((3, 3)), 0)


def test_potentials_of_any_kind_of_number():
    """Whole numbers take the dtype of the others; a float64 array is not narrowed in silence."""
    flat = np.zeros((3, 2), int)
    np.testing.assert_allclose(chain.log_partition(flat[0], flat[:2], flat), 3 * np.log(2), rtol=1e-6)
    single = jnp.zeros(2, jnp.float32)
    assert chain.log_partition(single, flat[:2], flat).dtype == jnp.float32
    np.testing.assert_allclose(chain.predict([0.5, 0.5], np.log([[0.5, 0.5], [0.5, 0.5]]), 2), 0.5)
    jax.config.update("jax_enable_x64", False)
    try:
        with pytest.raises(TypeError, match="log_likelihood is a float64"):
            chain.smooth(single, jnp.zeros((2, 2)), np.zeros((3, 2)))
    finally:
        jax.config.update("jax_enable_x64", True)


@in_both_ways
def test_one_step_has_no_transitions(parallel):
    likelihood = jnp.log(jnp.array([[0.25, 0.75]]))
    for transition in (jnp.zeros((2, 2)), jnp.zeros((0, 2, 2))):
        given = (jnp.zeros(2), transition, likelihood, None, parallel)
        single, pairs = chain.marginals(*given)
        np.testing.assert_allclose(single, [[0.25, 0.75]], rtol=1e-12)
        assert pairs.shape == (0, 2, 2)
        np.testing.assert_allclose(chain.entropy(*given), -np.sum([0.25, 0.75] * np.log([0.25, 0.75])), rtol=1e-12)
        np.testing.assert_allclose(chain.log_partition(*given), 0, atol=1e-12)
        assert chain.viterbi(*given)[0].tolist() == [1]
        assert chain.k_best(*given, k=2)[0].tolist() == [[1], [0]]


@in_both_ways
def test_nan_comes_out_as_nan(parallel):
    """One state's, at one step: also for the path that goes by another state."""
    broken = jnp.zeros((3, 2)).at[1, 1].set(jnp.nan)
    given = (jnp.zeros(2), jnp.zeros((2, 2)), broken, None, parallel)
    for function in (chain.log_partition, chain.entropy, chain.smooth):
        assert np.isnan(function(*given)).all()
    assert np.isnan(chain.filter(*given)[1:]).all()
    assert np.isfinite(chain.filter(*given)[0]).all()
    path, score = chain.viterbi(*given)
    paths, scores = chain.k_best(*given, k=2)
    assert np.isnan(score)
    assert np.isnan(scores).all()
    draw = chain.sample(jr.key(0), *given)
    assert all((np.asarray(a) == -1).all() for a in (path, paths, draw))
    hidden = (*given[:3], jnp.array([True, False, True]), parallel)
    assert np.isfinite(chain.viterbi(*hidden)[1])


@pytest.mark.parametrize("parallel", [False, True])
def test_a_chain_without_steps_has_one_path(parallel):
    nothing = (jnp.full(2, -jnp.inf), jnp.zeros((2, 2)), jnp.zeros((3, 2)), jnp.zeros(3, bool), parallel)
    assert chain.log_partition(*nothing) == chain.viterbi(*nothing)[1] == 0
    assert chain.k_best(*nothing, k=2)[1].tolist() == [0, -np.inf]


def test_kl_of_chains_that_cannot_be_compared():
    start, moves, flat = jnp.zeros(2), jnp.zeros((2, 2)), jnp.zeros((3, 2))
    plain, impossible = (start, moves, flat), (jnp.full(2, -jnp.inf), moves, flat)
    assert chain.kl(plain, impossible) == np.inf
    assert np.isnan(chain.kl(impossible, plain))
    with pytest.raises(ValueError, match="same paths"):
        chain.kl(plain, (start, moves, flat[:2]))
    shorter = (*plain, jnp.array([True, True, False]))
    with pytest.raises(ValueError, match="different steps"):
        chain.kl(plain, shorter)
    assert np.isnan(jax.jit(chain.kl)(plain, shorter))
    assert chain.kl(shorter, shorter) < 1e-12


def _drifting(kind, t):
    """States that fall hundreds of nats behind and may come to the front again."""
    rng = np.random.default_rng(1)
    k = 4
    initial, transition = np.zeros(k), np.where(np.eye(k, dtype=bool), 0.0, -np.inf)
    if kind == "left_to_right":
        initial[1:] = -np.inf
        transition[np.arange(k - 1), np.arange(k - 1)] = np.log(0.999)
        transition[np.arange(k - 1), np.arange(1, k)] = np.log(0.001)
    return [a.astype(np.float32) for a in (initial, transition, 3 * rng.normal(size=(t, k)))]


@pytest.mark.parametrize("kind", ["left_to_right", "absorbing"])
def test_states_far_behind_keep_their_digits(kind):
    """A rounding of eps times the distance at every step would cost four digits here."""
    narrow = _drifting(kind, 20_000)
    wide = [a.astype(np.float64) for a in narrow]
    run = jax.jit(lambda *a: (chain.log_partition(*a), chain.filter(*a), chain.smooth(*a)))
    small, large = run(*narrow), run(*wide)
    np.testing.assert_allclose(small[0], large[0], rtol=3e-6)
    for a, b in zip(small[1:], large[1:], strict=True):
        np.testing.assert_allclose(a, b, atol=5e-5)


def test_wide_numbers_are_exact():
    from probml_jax.inference.wide import from_log, power_of_two, times, to_log, total

    logs = jnp.array([-1e30, -9e4, -1.0, 0.0, 1e-3, 88.0, 4e6, -jnp.inf], jnp.float32)
    back = to_log(from_log(logs))
    np.testing.assert_allclose(back, logs, rtol=2e-7, atol=1e-7)
    assert back[-1] == -np.inf
    for dtype in ("float32", "float64"):
        powers = jnp.array([-126, -1, 0, 1, 127], dtype)
        np.testing.assert_array_equal(power_of_two(powers), 2.0 ** np.asarray(powers))
    assert power_of_two(jnp.array([-127.0, -jnp.inf], jnp.float32)).tolist() == [0, 0]
    both = to_log(total(times(from_log(jnp.array([-9e4, -9e4 - 1])), from_log(jnp.array([-5.0, -6.0])))))
    np.testing.assert_allclose(both, np.logaddexp(-90005, -90007), rtol=1e-12)
    slopes = jax.grad(lambda a: to_log(total(from_log(a))))(jnp.array([-9e4, -9e4 - 1, -jnp.inf]))
    np.testing.assert_allclose(slopes, [1 / (1 + np.exp(-1)), 1 / (1 + np.e), 0], rtol=1e-10)
