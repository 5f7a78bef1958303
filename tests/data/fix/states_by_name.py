import copy

import torch


class Tracker:
    def __init__(self):
        self.states = {}

    def add(self, name):
        self.states[name] = torch.get_rng_state()

    def get_states(self):
        return copy.copy(self.states)


TRACKER = Tracker()


class Fn(torch.autograd.Function):
    """A copy of a dict is a dict."""

    @staticmethod
    def forward(ctx, x):
        TRACKER.add("here")
        ctx.states = TRACKER.get_states()
        return torch.nn.functional.dropout(x)

    @staticmethod
    def backward(ctx, g):
        TRACKER.states = ctx.states
        torch.set_rng_state(TRACKER.states["here"])
        return torch.nn.functional.dropout(g)
