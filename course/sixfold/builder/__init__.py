"""From masters, which are written, to notebooks, which are run.

Does not know how a notebook is executed; the exercises and the name map are read from where they are kept.
"""
