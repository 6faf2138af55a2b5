"""Exercises: found by id, handed out as stubs, checked in a child process, and run inside the engine.

``catalog`` finds them, ``stub`` makes what a learner fills in, ``runner`` checks it, ``mine`` puts what passed into a
stage's ``Parts``.
"""
