"""Chainer's function nodes: what is cheap is computed again from the inputs, and an output is retained.

Chainer's contract keeps inputs and outputs, nothing between them. ``sides`` reads the forwards and backwards of a class,
``arrays`` slices a forward that works on arrays, ``node`` puts the plan together.
"""
