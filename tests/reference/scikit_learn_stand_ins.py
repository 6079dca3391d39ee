"""Our classes and functions under scikit-learn's names, for its own tests.

Estimators need nothing. Metrics take `(y_true, y_score)` with any labels there and `(scores, labels)` of 0 and 1 here:
arguments change places, labels are encoded by scikit-learn's own checks, repeated points of curves are dropped.
"""

import jax
import numpy as np
from sklearn.metrics import _ranking as theirs
from sklearn.utils import assert_all_finite, check_consistent_length, column_or_1d
from sklearn.utils.multiclass import type_of_target

import probml_jax.sklearn as ours
from probml_jax import decision


def _binary(y_true, y_score, pos_label, sample_weight):
    """Arguments of ours, by scikit-learn's checks; `None` if they are not those of two classes."""
    kind = type_of_target(y_true, input_name="y_true")
    if not (kind == "binary" or (kind == "multiclass" and pos_label is not None)):
        raise ValueError(f"{kind} format is not supported")
    check_consistent_length(y_true, y_score, sample_weight)
    y_true, y_score = column_or_1d(y_true), column_or_1d(y_score)
    assert_all_finite(y_true)
    assert_all_finite(y_score)
    pos_label = theirs._check_pos_label_consistency(pos_label, y_true)
    labels = (y_true == pos_label).astype(int)
    weights = None if sample_weight is None else np.asarray(sample_weight, float)
    return np.asarray(y_score, float), labels, weights


def _in_double(function):
    def run(*args, **kwargs):
        with jax.enable_x64(True):
            return function(*args, **kwargs)

    return run


@_in_double
def roc_curve(y_true, y_score, *, pos_label=None, sample_weight=None, drop_intermediate=True):
    if drop_intermediate:
        return theirs.roc_curve(y_true, y_score, pos_label=pos_label, sample_weight=sample_weight)
    given = _binary(y_true, y_score, pos_label, sample_weight)
    curve = decision.roc_curve(*given)
    return tuple(np.asarray(a)[np.asarray(curve.distinct)] for a in curve[:3])


@_in_double
def precision_recall_curve(y_true, y_score, *, pos_label=None, sample_weight=None, drop_intermediate=False):
    given = _binary(y_true, y_score, pos_label, sample_weight)
    if drop_intermediate or len(np.unique(given[1])) < 2:
        return theirs.precision_recall_curve(
            y_true, y_score, pos_label=pos_label, sample_weight=sample_weight, drop_intermediate=drop_intermediate
        )
    curve = decision.precision_recall_curve(*given)
    keep = np.asarray(curve.distinct)
    precision, recall, thresholds = (np.asarray(a)[keep][::-1] for a in curve[:3])
    return precision, recall, thresholds[:-1]


@_in_double
def average_precision_score(y_true, y_score, *, average="macro", pos_label=1, sample_weight=None):
    kind = type_of_target(y_true, input_name="y_true")
    if kind != "binary" or len(np.unique(y_true)) < 2 or np.ndim(y_true) > 1:
        return theirs.average_precision_score(
            y_true, y_score, average=average, pos_label=pos_label, sample_weight=sample_weight
        )
    if pos_label not in np.unique(y_true).tolist():
        return theirs.average_precision_score(y_true, y_score, pos_label=pos_label)
    return float(decision.average_precision(*_binary(y_true, y_score, pos_label, sample_weight)))


@_in_double
def roc_auc_score(
    y_true, y_score, *, average="macro", sample_weight=None, max_fpr=None, multi_class="raise", labels=None
):
    kind = type_of_target(y_true, input_name="y_true")
    plain = kind == "binary" and np.ndim(y_true) == 1 and np.ndim(y_score) == 1 and max_fpr in (None, 1)
    if not plain or len(np.unique(y_true)) < 2:
        return theirs.roc_auc_score(
            y_true,
            y_score,
            average=average,
            sample_weight=sample_weight,
            max_fpr=max_fpr,
            multi_class=multi_class,
            labels=labels,
        )
    encoded = (np.asarray(y_true) == np.unique(y_true)[1]).astype(int)
    return float(decision.auc(*_binary(encoded, y_score, 1, sample_weight)))


STAND_INS = {name: getattr(ours, name) for name in dir(ours) if name[0].isupper()}
STAND_INS |= {f.__name__: f for f in (roc_curve, precision_recall_curve)}
STAND_INS |= {"roc_curve": roc_curve, "precision_recall_curve": precision_recall_curve}
STAND_INS |= {"average_precision_score": average_precision_score, "roc_auc_score": roc_auc_score}
