from torch.autograd import Function
import torch


class ByName(Function):
    """A dict of tensors is no run of them: backward asks for a name."""

    @staticmethod
    def forward(ctx, x, w):
        parts = {name: part.exp() for name, part in (("x", x), ("w", w))}
        ctx.parts = {key: None if isinstance(item, torch.Tensor) else item for key, item in parts.items()}
        ctx.save_for_backward(*(item if isinstance(item, torch.Tensor) else None for item in parts.values()))
        return parts["x"] * parts["w"]

    @staticmethod
    def backward(ctx, g):
        parts = list(ctx.saved_tensors)
        parts = {key: kept if item is None else item for item, (key, kept) in zip(parts, ctx.parts.items())}
        both = g * parts["x"] * parts["w"]
        return both, both if len(parts) == 2 else None
