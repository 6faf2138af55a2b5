"""The learner's side of Sixfold: the command line, and what it needs to find and drive the stages.

Stages never import this package.
"""
