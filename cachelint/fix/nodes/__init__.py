"""Chainer's function nodes: what is cheap is computed again from the inputs, and an output is retained.

Chainer's contract keeps inputs and outputs, nothing between them. ``sides`` reads the forwards and backwards of a class,
``purity`` knows what is pure and cheap, ``memory`` what is changed in place. ``replay`` collects the statements of a
forward that make a field, ``derived`` decides when backward carries them out again, ``writer`` writes them.
``retention``, ``forwards`` and ``backwards`` make the edits, ``node`` puts the plan together.
"""
