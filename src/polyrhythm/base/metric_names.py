"""Names of metrics that mean something wherever they are met, and how they are written for people."""

from __future__ import annotations

NAN_OUTPUTS = "nan_outputs"
"""Beside the metrics, where there are any: for how many samples a model gave NaN. Each of them counts as wrong."""
FALLING = frozenset({"loss", "rmse", "mae", "perplexity"})
"""The metrics of which less is better."""
_SHARES = ("accuracy", "balanced_accuracy", "precision", "recall", "f1", "auc", "concordance")
_WORDS = {"r2": "R²", "auc": "AUC", "f1": "F1", "rmse": "RMSE", "mae": "MAE"}


def in_words(metric: str) -> str:
    """A metric as people write it.

    >>> in_words("balanced_accuracy"), in_words("r2")
    ('balanced accuracy', 'R²')
    """
    return _WORDS.get(metric, metric.replace("_", " "))


def title_of(metric: str) -> str:
    """The same at the beginning of a sentence.

    >>> title_of("recall_at_5"), title_of("auc")
    ('Recall at 5', 'AUC')
    """
    words = in_words(metric)
    return words[:1].upper() + words[1:]


def is_between_0_and_1(metric: str) -> bool:
    """Whether a metric surely lies there, as R² and those of the user's own need not."""
    return metric in _SHARES or metric.startswith(("recall_at_", "accuracy_of_"))
