"""The row of a run as it begins: what is known from its plan and from the machine."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

from polyrhythm.base.settings import canonical_json
from polyrhythm.runs.environment import library_versions, machine
from polyrhythm.runs.records import Plan


def row_of(plan: Plan) -> dict[str, Any]:
    """A row by column, but for what a recorder knows."""
    return {
        "name": plan.name,
        "status": "running",
        "seed": plan.seed,
        "rounds": plan.rounds,
        "headline": plan.headline,
        "recipe": plan.recipe,
        "recipe_digest": plan.recipe_digest,
        "parameters": plan.parameters,
        "clients": plan.clients,
        "classes": list(plan.classes),
        "config": plan.config,
        "config_digest": digest_of(plan.config),
        "libraries": library_versions(),
        "machine": {**machine(), "driver": plan.driver, "workers": plan.workers, **plan.execution},
    }


def digest_of(config: Mapping[str, Any]) -> str:
    """SHA-256 of a configuration: equal for equal experiments, whatever carries them out."""
    return hashlib.sha256(canonical_json(config).encode()).hexdigest()
