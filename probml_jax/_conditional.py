"""Joint models p(x, y), and the conditional p(y | x) with the same parameters."""

from abc import abstractmethod
from typing import Any

from ._model import AbstractExchangeableModel, AbstractLatentModel
from ._typing import Data, Flag, Scalar


class AbstractJointModel(AbstractLatentModel):
    """A model of observations *and* labels, in which any label may be unknown."""

    @abstractmethod
    def unlabelled(self, datum: Data) -> Data:
        """The same unit with nothing known of its labels."""

    @abstractmethod
    def check_labelled(self, data: Data) -> None:
        """Raise `ValueError` if the data have no labels at all."""


_GIVEN_OBSERVATIONS = ("probs", "log_probs", "predict", "smooth", "decode", "marginals")


class Conditional(AbstractExchangeableModel):
    r"""$p(y \mid x) = p(x, y) / p(x)$ with the parameters of a joint model.

    The same parameters, trained to tell labels apart rather than to explain the observations; use `Gradient`, `LBFGS`
    or `Newton`. Unknown labels are summed out. `fit(...).model.joint` is the joint model again; what that says of
    labels given observations (`probs`, `log_probs`, `predict`; `smooth`, `decode`, `marginals` of an HMM) can be asked
    of this one too.
    """

    joint: AbstractJointModel

    def __getattr__(self, name: str) -> Any:
        if name in _GIVEN_OBSERVATIONS:
            return getattr(self.joint, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def log_prob(self, datum: Data) -> Scalar:
        return self.joint.log_prob(datum) - self.joint.log_prob(self.joint.unlabelled(datum))

    def log_prior(self) -> Scalar:
        return self.joint.log_prior()

    def validate(self, data: Data) -> None:
        self.joint.check_labelled(data)
        self.joint.validate(data)

    def degenerate(self) -> Flag:
        return self.joint.degenerate()


def conditional(model: Any) -> Conditional:
    """A joint model (a generative classifier, an HMM) as the conditional model of its labels given the observations.

    >>> import jax.numpy as jnp, probml_jax as pml
    >>> xs, ys = jnp.array([[0.0], [1.0], [2.0], [1.2], [3.0], [4.0]]), jnp.array([0, 0, 0, 1, 1, 1])
    >>> model = pml.conditional(pml.classifiers.lda(xs, ys))
    >>> result = pml.fit(model, (xs, ys), pml.LBFGS())
    >>> bool(result.final_objective >= result.objective[0])
    True
    """
    if not isinstance(model, AbstractJointModel):
        raise TypeError(
            f"model must be a joint model such as a GenerativeClassifier or an HMM; got {type(model).__name__}."
        )
    return Conditional(model)
