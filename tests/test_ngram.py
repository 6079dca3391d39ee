"""n-gram language models: by hand, against nltk and kenlm, as distributions, and on bad input."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import probml_jax as pml
from probml_jax.sequences import NGram, Vocabulary, read_arpa, write_arpa

SMOOTHINGS = ["ml", "add_k", "kneser_ney", "modified_kneser_ney"]


def _text(n=60, vocab=6, seed=0):
    """Sentences with a lot of repetition, so that counts of counts exist."""
    rng = np.random.default_rng(seed)
    matrix = rng.dirichlet(np.full(vocab, 0.3), vocab)
    sentences = []
    for _ in range(n):
        words = [int(rng.integers(vocab))]
        while rng.uniform() > 0.15 and len(words) < 15:
            words.append(int(rng.choice(vocab, p=matrix[words[-1]])))
        sentences.append(words)
    return sentences


def _nltk_corpus():
    """The corpus of nltk's own unit tests, padded as it pads: a..e, g; then <s> and </s> as ordinary words."""
    words = ["a", "b", "c", "d", "e", "g", "<s>", "</s>"]
    pad = lambda s: ["<s>", "<s>", *s, "</s>", "</s>"]
    return words, [[words.index(w) for w in pad(s)] for s in ("abcd", "egadbe")]


def test_kneser_ney_by_hand():
    words, corpus = _nltk_corpus()
    lm = NGram.from_tokens(
        corpus, 3, len(words), "kneser_ney", discount=0.75, boundaries=False, interpolate_unigrams=False
    )
    after = lambda context: lm.next_probs([words.index(w) for w in context])[words.index("c")]
    np.testing.assert_allclose(after(""), 1 / 14, rtol=1e-12)
    np.testing.assert_allclose(after("b"), 0.125 + 0.75 / 14, rtol=1e-12)
    np.testing.assert_allclose(after("ab"), 0.25 + 0.75 * (0.125 + 0.75 / 14), rtol=1e-12)


def test_kneser_ney_is_nltks():
    nltk_lm = pytest.importorskip("nltk.lm")
    words, corpus = _nltk_corpus()
    from nltk.util import everygrams

    text = [[words[i] for i in s] for s in corpus]
    peer = nltk_lm.KneserNeyInterpolated(3, discount=0.75)
    peer.fit([list(everygrams(s, max_len=3)) for s in text], vocabulary_text=[w for s in text for w in s])
    lm = NGram.from_tokens(
        corpus, 3, len(words), "kneser_ney", discount=0.75, boundaries=False, interpolate_unigrams=False
    )
    seen = {tuple(s[i : i + 2]) for s in corpus for i in range(len(s) - 2)}
    for context in sorted(seen):
        if words.index("<s>") in context:  # nothing comes before the start, which nltk counts as never
            continue
        got = lm.next_probs(list(context))
        want = [peer.score(w, [words[i] for i in context]) for w in words]
        np.testing.assert_allclose(got, want, rtol=1e-10)


@pytest.mark.parametrize("open_vocabulary", [False, True])
@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_every_context_has_a_distribution(smoothing, open_vocabulary):
    lm = NGram.from_tokens(_text(), 3, 6, smoothing, k=0.1, open_vocabulary=open_vocabulary)
    contexts = jnp.array(list(itertools.product(range(-1, 6), repeat=2)))
    totals = jax.jit(jax.vmap(lm.next_probs))(contexts).sum(1)
    known = np.ones(49, bool) if open_vocabulary else np.asarray((contexts >= 0).all(1))
    np.testing.assert_allclose(np.asarray(totals)[known], 1, rtol=1e-9)
    for context in ([], [3]):
        np.testing.assert_allclose(lm.next_probs(context).sum(), 1, rtol=1e-9)


@pytest.mark.parametrize("smoothing", SMOOTHINGS)
def test_a_sequence_is_the_product_of_its_next_tokens(smoothing):
    text = _text()
    lm = NGram.from_tokens(text, 4, 6, smoothing)
    sentence = text[3] + [5, 0]
    steps = [math.log(max(float(lm.next_probs(sentence[:i])[w]), 1e-300)) for i, w in enumerate([*sentence, 6])]
    if smoothing != "ml":
        np.testing.assert_allclose(lm.log_prob(sentence), sum(steps), rtol=1e-9)
    assert np.isfinite(lm.token_log_probs(text[3])).all()
    padded = np.full((2, 20), 99)
    padded[0, : len(sentence)], padded[1, : len(text[5])] = sentence, text[5]
    lengths = jnp.array([len(sentence), len(text[5])])
    batch = jax.jit(jax.vmap(lm.log_prob))(jnp.asarray(padded), lengths)
    np.testing.assert_allclose(batch, [lm.log_prob(sentence), lm.log_prob(text[5])], rtol=1e-10)


def test_maximum_likelihood_and_add_k_are_ratios_of_counts():
    text = _text()
    pairs = np.zeros((8, 8))
    for s in text:
        np.add.at(pairs, ([7, *s], [*s, 6]), 1)
    ml = NGram.from_tokens(text, 2, 6, "ml")
    smooth = NGram.from_tokens(text, 2, 6, "add_k", k=0.5)
    for context in range(6):
        row = pairs[context, :7]
        np.testing.assert_allclose(ml.next_probs([9, context]), row / row.sum(), rtol=1e-10)
        np.testing.assert_allclose(smooth.next_probs([context]), (row + 0.5) / (row.sum() + 3.5), rtol=1e-10)
    np.testing.assert_allclose(ml.next_probs([]), pairs[7, :7] / pairs[7, :7].sum(), rtol=1e-10)


def test_perplexity_is_finite_on_anything():
    for text in ([[0]], [[0, 0, 0, 0]], [[0, 1, 2, 3, 4, 5]], _text()):
        for order in (1, 5):
            lm = NGram.from_tokens(text, order, 6, open_vocabulary=True)
            assert np.isfinite(lm.perplexity([[5, 77, 1], [2]]))
    better, worse = (NGram.from_tokens(_text(200), n, 6).perplexity(_text(50, seed=0)) for n in (2, 1))
    assert better < worse
    text = _text(20)
    lm = NGram.from_tokens(text, 2, 6)
    total = sum(float(lm.log_prob(s)) for s in text)
    np.testing.assert_allclose(lm.perplexity(text), np.exp(-total / sum(len(s) + 1 for s in text)), rtol=1e-9)


def test_generation_follows_the_model():
    lm = NGram.from_tokens(_text(), 2, 6)
    drawn = jax.jit(jax.vmap(lambda k: lm.generate(k, 1)))(jr.split(jr.key(0), 4000))[:, 0]
    frequency = np.array([(drawn == i).mean() for i in [*range(6), -1]])
    assert np.abs(frequency - lm.next_probs([])).max() < 5 * 0.5 / 4000**0.5
    whole = np.asarray(lm.generate(jr.key(1), 200))
    end = int(np.argmax(whole == -1))
    assert (whole[end:] == -1).all()
    greedy = lm.generate(jr.key(2), 5, context=[2], top_k=1)
    best = int(jnp.argmax(lm.next_probs([2])))
    assert greedy[0] == (-1 if best == 6 else best)  # 6 is the end
    cold = lm.generate(jr.key(3), 5, context=[2], temperature=1e-3)
    np.testing.assert_array_equal(cold, greedy)
    stream = NGram.from_tokens(np.array([0, 1, 2] * 50), 3, 3, "ml")
    assert stream.generate(jr.key(0), 6, context=[0, 1]).tolist() == [2, 0, 1, 2, 0, 1]


def test_a_file_and_back(tmp_path):
    vocabulary = Vocabulary(("the", "cat", "sat", "on", "a", "mat"))
    lm = NGram.from_tokens(_text(), 3, 6, open_vocabulary=True)
    write_arpa(lm, tmp_path / "lm.arpa", vocabulary)
    again, words = read_arpa(tmp_path / "lm.arpa")
    assert words == vocabulary
    for sentence in [*_text(10, seed=5), [0, 99, 2]]:
        np.testing.assert_allclose(again.log_prob(sentence), lm.log_prob(sentence), atol=1e-5)
    (tmp_path / "bad.arpa").write_text("hello")
    with pytest.raises(ValueError, match="ARPA"):
        read_arpa(tmp_path / "bad.arpa")
    head = "\\data\\\nngram 1=1\nngram 2=1\n\n"
    (tmp_path / "bad.arpa").write_text(head + "\\1-grams:\n-1\ta\n\n\\2-grams:\n-1\ta b\n\n\\end\\\n")
    with pytest.raises(ValueError, match="'b'"):
        read_arpa(tmp_path / "bad.arpa")
    with pytest.raises(ValueError, match="2 words"):
        write_arpa(lm, tmp_path / "x.arpa", ["a", "b"])


def test_kenlm_reads_what_we_write(tmp_path):
    kenlm = pytest.importorskip("kenlm")
    names = [f"w{i}" for i in range(6)]
    lm = NGram.from_tokens(_text(), 4, 6, open_vocabulary=True)
    write_arpa(lm, tmp_path / "lm.arpa", names)
    peer = kenlm.Model(str(tmp_path / "lm.arpa"))
    for sentence in [*_text(20, seed=5), [0, 99, 2]]:
        text = " ".join(names[i] if i < 6 else "zebra" for i in sentence)
        np.testing.assert_allclose(lm.log_prob(sentence) / np.log(10), peer.score(text), atol=1e-4)


def test_a_vocabulary_reads_and_speaks():
    sentences = [["b", "a"], ["a", "c"]]
    vocabulary = Vocabulary.from_sentences(sentences)
    assert vocabulary.words == ("a", "b", "c")
    assert [s.tolist() for s in vocabulary.encode([["a", "zebra"]])] == [[0, -1]]
    assert len(Vocabulary.from_sentences(sentences, min_count=2)) == 1
    with pytest.raises(ValueError, match="twice"):
        Vocabulary(("a", "a"))


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match="order"):
        NGram.from_tokens([[0]], 0, 3)
    with pytest.raises(ValueError, match="smoothing"):
        NGram.from_tokens([[0]], 2, 3, "good_turing")
    with pytest.raises(ValueError, match="holds 7"):
        NGram.from_tokens([[0, 7]], 2, 3)
    with pytest.raises(ValueError, match="empty"):
        NGram.from_tokens([], 2, 3, boundaries=True)
    with pytest.raises(ValueError, match="whole numbers"):
        NGram.from_tokens([[0.5, 1.0]], 2, 3)
    with pytest.raises(ValueError, match="k must be positive"):
        NGram.from_tokens([[0, 1]], 2, 3, "add_k", k=0.0)
    lm = NGram.from_tokens([[0, 1]], 2, 3)
    with pytest.raises(ValueError, match="length is 9"):
        lm.log_prob([0, 1], 9)
    with pytest.raises(ValueError, match="temperature"):
        lm.generate(jr.key(0), 3, temperature=0.0)
    with pytest.raises(ValueError, match="top_k"):
        lm.generate(jr.key(0), 3, top_k=9)
    closed = pml.sequences.NGram.from_tokens([[0, 1]], 2, 3)
    assert closed.log_prob([0, 5]) == -jnp.inf


def test_batches_of_sequences_and_contexts():
    lm, text = NGram.from_tokens(_text(), 3, 6), [[0, 1, 2, 2], [1], [], [5, 4]]
    np.testing.assert_allclose(lm.log_prob(text), [lm.log_prob(s) for s in text], rtol=1e-12)
    np.testing.assert_allclose(lm.next_probs(text), [lm.next_probs(s) for s in text], rtol=1e-12)
    square = jnp.array([[0, 1, 2], [3, 4, 5]])
    np.testing.assert_allclose(lm.log_prob(square), [lm.log_prob(s) for s in square], rtol=1e-12)
    np.testing.assert_allclose(lm.log_prob(square, jnp.array([3, 1]))[1], lm.log_prob([3]), rtol=1e-12)
    np.testing.assert_allclose(lm.next_probs(square), [lm.next_probs(s) for s in square], rtol=1e-12)
    assert lm.perplexity(square) == lm.perplexity(square.tolist())
    stream = NGram.from_tokens(np.array([0, 1, 2] * 9), 3, 3)
    np.testing.assert_allclose(stream.next_probs([[0], [1, 2], []]), [stream.next_probs(s) for s in ([0], [1, 2], [])])


def test_only_whole_numbers_are_tokens():
    lm = NGram.from_tokens(_text(), 3, 6)
    asks = (lm.log_prob, lm.next_probs, lm.perplexity, lambda t: lm.generate(jr.key(0), 3, context=t))
    for ask in asks:
        for wrong in ([1.7, 2.2], ["a", "b"], "a b"):
            with pytest.raises(ValueError, match="whole numbers"):
                ask(wrong)
    with pytest.raises(ValueError, match="whole numbers"):
        lm.perplexity([[1.7, 2.2]])
    with pytest.raises(ValueError, match=r"outside 0\.\.5"):
        lm.generate(jr.key(0), 3, context=[99])
    with pytest.raises(ValueError, match="empty"):
        lm.perplexity([])


def test_words_and_files_that_cannot_be_read_back(tmp_path):
    lm, path = NGram.from_tokens([[0, 1], [1, 1, 0]], 2, 2), tmp_path / "lm.arpa"
    for words in (["a b", "c"], ["<s>", "c"], ["", "c"], ["c", "c"]):
        with pytest.raises(ValueError, match="vocabulary has the"):
            write_arpa(lm, path, words)
    write_arpa(lm, path)
    text = path.read_text()
    for cut in (len(text) // 2, len(text) - 7):
        path.write_text(text[:cut])
        with pytest.raises(ValueError, match=r"cut|not an n-gram line"):
            read_arpa(path)
    lines = text.splitlines(keepends=True)
    path.write_text("".join(lines[:-3] + lines[-2:]))  # without the last n-gram
    with pytest.raises(ValueError, match="counts of n-grams"):
        read_arpa(path)
