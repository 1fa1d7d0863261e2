"""The papers' models, and any user's own: `MODELS` by name, `build` to make one, `locate` for its representation."""

from polyrhythm.models.building import build, settings_of
from polyrhythm.models.catalogue import MODELS, Builder, find
from polyrhythm.models.low_rank import with_lora
from polyrhythm.models.pretrained import Pretrained
from polyrhythm.models.probing import output_shape
from polyrhythm.models.projection import with_projection
from polyrhythm.models.representation import Tap, locate

__all__ = [
    "MODELS",
    "Builder",
    "Pretrained",
    "Tap",
    "build",
    "find",
    "locate",
    "output_shape",
    "settings_of",
    "with_lora",
    "with_projection",
]
