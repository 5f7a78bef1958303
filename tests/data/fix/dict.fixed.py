from torch.autograd import Function


class Dict(Function):
    @staticmethod
    def forward(ctx, x, n: int):
        state = {"x": x, "sq": x * x, "n": n, "none": None}
        ctx.n = state["n"]
        ctx.save_for_backward(state["x"], state["sq"])
        return state["sq"] * n

    @staticmethod
    def backward(ctx, g):
        x, sq = ctx.saved_tensors
        return 2 * g * x * ctx.n + 0 * sq, None
