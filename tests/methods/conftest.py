from __future__ import annotations

from terminal import polyrhythm as polyrhythm
