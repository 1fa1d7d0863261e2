"""Advice: which recipes are worth trying for an experiment, by runs that were compared in settings like it."""
