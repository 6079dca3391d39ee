"""Discriminative training of a joint model of states and observations."""

from typing import Any

from jaxtyping import Array, Int

from .._model import AbstractExchangeableModel
from .._typing import Flag, Scalar
from .data import as_sequences
from .hmm import HMM


class ConditionalHMM(AbstractExchangeableModel):
    r"""$p(z \mid x) = p(x, z) / p(x)$ with the parameters of an HMM; data are `Sequences` with known states.

    The same parameters, trained to tell states apart rather than to explain the observations; use `Gradient` or
    `LBFGS`. States of -1 are summed out. `fit(...).model.joint` is the HMM again.
    """

    joint: HMM

    def log_prob(self, datum: Any) -> Scalar:
        one = as_sequences(datum, batched=False)
        return self.joint.log_prob(one) - self.joint.log_prob(one._replace(states=None))

    def log_prior(self) -> Scalar:
        return self.joint.log_prior()

    def decode(self, x: Any) -> Int[Array, "t"]:
        return self.joint.decode(x)

    def validate(self, data: Any) -> None:
        if as_sequences(data, batched=True).states is None:
            raise ValueError("a conditional model needs known states: pass Sequences(xs, lengths, states).")
        self.joint.validate(data)

    def degenerate(self) -> Flag:
        return self.joint.degenerate()


def conditional(model: HMM) -> ConditionalHMM:
    """An HMM as the conditional model of its states given the observations."""
    return ConditionalHMM(model)
