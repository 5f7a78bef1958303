"""Signals in compiled code: Python delivers them between its own instructions, of which compiled modules run none."""


def heed() -> None:
    """Let a signal that is waiting be delivered. Must stay in a module that is not compiled: the call alone does it."""
