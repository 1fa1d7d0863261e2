"""Ray carries visits out, in actors on the machines of a cluster. It is imported when somebody asks for it."""

from polyrhythm.simulation.workers.on_ray.actors import OnRay

__all__ = ["OnRay"]
