from torch.autograd import Function


class ByName(Function):
    """A dict of tensors is no run of them: backward asks for a name."""

    @staticmethod
    def forward(ctx, x, w):
        parts = {name: part.exp() for name, part in (("x", x), ("w", w))}
        ctx.parts = parts
        return parts["x"] * parts["w"]

    @staticmethod
    def backward(ctx, g):
        both = g * ctx.parts["x"] * ctx.parts["w"]
        return both, both if len(ctx.parts) == 2 else None
