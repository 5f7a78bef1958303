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
        states = TRACKER.get_states()
        ctx.states = {key: None if isinstance(item, torch.Tensor) else item for key, item in states.items()}
        ctx.save_for_backward(*(item if isinstance(item, torch.Tensor) else None for item in states.values()))
        return torch.nn.functional.dropout(x)

    @staticmethod
    def backward(ctx, g):
        states = list(ctx.saved_tensors)
        states = {
            key: kept if item is None else item for item, (key, kept) in zip(states, ctx.states.items())
        }
        TRACKER.states = states
        torch.set_rng_state(TRACKER.states["here"])
        return torch.nn.functional.dropout(g)
