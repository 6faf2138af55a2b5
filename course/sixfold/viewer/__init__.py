"""The trace viewer: one page that shows what an engine did, step by step. ``page.py`` puts it together."""
