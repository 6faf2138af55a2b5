"""Pictures of the notebooks, each drawn from a real run: ``from sixfold.figures.batch import draw_flat_batch``.

Owns nothing itself; each module says which picture it draws. Knows the stages; no stage knows it.

vLLM: none; it belongs to the course.
"""
