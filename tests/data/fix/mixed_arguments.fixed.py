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
        ctx.args = tuple(None if isinstance(item, torch.Tensor) else item for item in args)
        ctx.save_for_backward(x, *(item if isinstance(item, torch.Tensor) else None for item in args))
        return function(x, *args)

    @staticmethod
    def backward(ctx, g):
        x, *args = ctx.saved_tensors
        args = tuple(kept if item is None else item for item, kept in zip(args, ctx.args))
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            y = ctx.function(x, *args)
        (dx,) = torch.autograd.grad(y, x, g)
        return (dx, None, *(None for _ in args))


class Options(Function):
    """A dict that is there on some paths, of which one value may be a tensor."""

    @staticmethod
    def forward(ctx, x, weight, flag: bool):
        options = None
        ctx.flag = flag
        if flag:
            options = dict(weight=weight.exp() if weight.dim() else None, factor=2.0, where=weight)
            to_save = (x,)
            ctx.options = None if options is None else {
                key: None if isinstance(item, torch.Tensor) else item for key, item in options.items()
            }
            ctx.options_count = len(ctx.options or ())
            ctx.save_for_backward(
                *(item if isinstance(item, torch.Tensor) else None for item in (options or {}).values()),
                *to_save,
            )
            return x * weight.exp() * 2.0
        to_save = (x, x * 2)
        ctx.options = None if options is None else {
            key: None if isinstance(item, torch.Tensor) else item for key, item in options.items()
        }
        ctx.options_count = len(ctx.options or ())
        ctx.save_for_backward(
            *(item if isinstance(item, torch.Tensor) else None for item in (options or {}).values()),
            *to_save,
        )
        return x * x

    @staticmethod
    def backward(ctx, g):
        saved = ctx.saved_tensors
        saved_options, saved = saved[: ctx.options_count], saved[ctx.options_count :]
        saved_options = None if ctx.options is None else {
            key: kept if item is None else item for item, (key, kept) in zip(saved_options, ctx.options.items())
        }
        if ctx.flag:
            (x,) = saved
            options = saved_options
            dw = (g * x * options["weight"] * options["factor"]) if options["where"].dim() else None
            return g * options["weight"] * options["factor"], dw, None
        _, double = saved
        return g * double, None, None


class States(Function):
    @staticmethod
    def forward(ctx, x, seeds):
        saved_states = states(seeds)
        ctx.states = {
            key: None if isinstance(item, torch.Tensor) else item for key, item in saved_states.items()
        }
        ctx.save_for_backward(
            *(item if isinstance(item, torch.Tensor) else None for item in saved_states.values()),
        )
        return torch.nn.functional.dropout(x, 0.5) + len(saved_states)

    @staticmethod
    def backward(ctx, g):
        states = list(ctx.saved_tensors)
        states = {
            key: kept if item is None else item for item, (key, kept) in zip(states, ctx.states.items())
        }
        now = torch.get_rng_state()
        torch.set_rng_state(states["cpu"])
        mask = torch.nn.functional.dropout(torch.ones_like(g), 0.5)
        torch.set_rng_state(now)
        return g * mask, None


class Rest(Function):
    """Beside a run of tensors of its own."""

    @staticmethod
    def forward(ctx, scale, count: int, *xs: Tensor):
        rest = list(xs[count:])
        rest.append(scale)
        ctx.count = count
        ctx.rest = [None if isinstance(item, torch.Tensor) else item for item in rest]
        ctx.rest_count = len(ctx.rest)
        ctx.save_for_backward(
            *(item if isinstance(item, torch.Tensor) else None for item in rest),
            *(x.exp() for x in xs[:count]),
        )
        return sum(x.exp() for x in xs[:count]) * scale

    @staticmethod
    def backward(ctx, g):
        saved = ctx.saved_tensors
        rest, saved = list(saved[: ctx.rest_count]), saved[ctx.rest_count :]
        rest = [kept if item is None else item for item, kept in zip(rest, ctx.rest)]
        made = list(saved)
        scale = rest.pop()
        return (None, None, *(g * e * scale for e in made), *(None for _ in rest))
