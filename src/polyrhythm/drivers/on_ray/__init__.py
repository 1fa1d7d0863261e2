"""Ray carries visits out, in actors on the machines of a cluster. It is imported when somebody asks for it."""

from polyrhythm.drivers.on_ray.actors import OnRay

__all__ = ["OnRay"]
