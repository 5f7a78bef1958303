from torch.autograd import Function


class Dict(Function):
    @staticmethod
    def forward(ctx, x, n: int):
        ctx.state = {"x": x, "sq": x * x, "n": n, "none": None}
        return ctx.state["sq"] * n

    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.state["x"] * ctx.state["n"] + 0 * ctx.state["sq"], None
