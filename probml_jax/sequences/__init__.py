"""Sequence models: Markov chains, n-gram language models, hidden Markov models."""

from .alignment import align_states as align_states
from .alignment import permute_states as permute_states
from .arpa import read_arpa as read_arpa
from .arpa import write_arpa as write_arpa
from .build import autoregressive_hmm as autoregressive_hmm
from .build import bernoulli_hmm as bernoulli_hmm
from .build import categorical_hmm as categorical_hmm
from .build import gaussian_hmm as gaussian_hmm
from .build import mixture_hmm as mixture_hmm
from .build import poisson_hmm as poisson_hmm
from .conditional import ConditionalHMM as ConditionalHMM
from .conditional import conditional as conditional
from .data import Sequences as Sequences
from .data import pad_sequences as pad_sequences
from .hmm import HMM as HMM
from .markov_chain import MarkovChain as MarkovChain
from .ngram import NGram as NGram
from .vocabulary import Vocabulary as Vocabulary
