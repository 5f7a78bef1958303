import torch
from torch import Tensor
from torch.autograd import Function


def states(seeds):
    found = {"cpu": torch.get_rng_state()}
    if seeds:
        found["seeds"] = seeds
    return found


class Arguments(Function):
    """What the callers pass beside x is anybody's guess."""

    @staticmethod
    def forward(ctx, x, function, *args):
        ctx.function = function
        ctx.args = args
        ctx.save_for_backward(x)
        return function(x, *args)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.function(x, *ctx.args)
        (dx,) = torch.autograd.grad(y, x, g)
        return (dx, None, *(None for _ in ctx.args))


class Options(Function):
    """A dict that is there on some paths, of which one value may be a tensor."""

    @staticmethod
    def forward(ctx, x, weight, flag: bool):
        ctx.flag = flag
        if flag:
            ctx.options = dict(weight=weight.exp() if weight.dim() else None, factor=2.0, where=weight)
            ctx.save_for_backward(x)
            return x * weight.exp() * 2.0
        ctx.save_for_backward(x, x * 2)
        return x * x

    @staticmethod
    def backward(ctx, g):
        if ctx.flag:
            (x,) = ctx.saved_tensors
            options = ctx.options
            dw = (g * x * options["weight"] * options["factor"]) if options["where"].dim() else None
            return g * options["weight"] * options["factor"], dw, None
        _, double = ctx.saved_tensors
        return g * double, None, None


class States(Function):
    @staticmethod
    def forward(ctx, x, seeds):
        ctx.states = states(seeds)
        return torch.nn.functional.dropout(x, 0.5) + len(ctx.states)

    @staticmethod
    def backward(ctx, g):
        now = torch.get_rng_state()
        torch.set_rng_state(ctx.states["cpu"])
        mask = torch.nn.functional.dropout(torch.ones_like(g), 0.5)
        torch.set_rng_state(now)
        ctx.states = None
        return g * mask, None


class Rest(Function):
    """Beside a run of tensors of its own."""

    @staticmethod
    def forward(ctx, scale, count: int, *xs: Tensor):
        rest = list(xs[count:])
        rest.append(scale)
        ctx.rest = rest
        ctx.count = count
        ctx.save_for_backward(*(x.exp() for x in xs[:count]))
        return sum(x.exp() for x in xs[:count]) * scale

    @staticmethod
    def backward(ctx, g):
        made = list(ctx.saved_tensors)
        rest = ctx.rest
        scale = rest.pop()
        return (None, None, *(g * e * scale for e in made), *(None for _ in rest))
