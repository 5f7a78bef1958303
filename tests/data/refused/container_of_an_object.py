# refused: shared container
import torch


class Tracker:
    def __init__(self):
        self.states = {"start": torch.get_rng_state()}


TRACKER = Tracker()


class Fn(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: torch.Tensor):
        states = TRACKER.states
        ctx.states = states
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        for state in ctx.states.values():
            torch.set_rng_state(state)
        return grad * 2
