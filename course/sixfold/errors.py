"""The command line's own error."""


class UsageError(Exception):
    """What was asked for makes no sense: exit code 2, like argparse's own errors."""
