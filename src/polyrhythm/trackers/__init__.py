"""TensorBoard, MLflow and Weights & Biases as observers: off by default, failing softly, changing no number."""

from polyrhythm.trackers.base import TRACKERS, Tracking, trackers

__all__ = ["TRACKERS", "Tracking", "trackers"]
