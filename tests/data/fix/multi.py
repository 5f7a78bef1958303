from torch.autograd import Function


class Multi(Function):
    @staticmethod
    def forward(
        ctx,
        x,  # the input
        w,
    ):
        ctx.save_for_backward(
            x,
            w,
        )
        # the product, needed twice
        ctx.p = x @ w  # (M, N)
        return ctx.p.relu()

    @staticmethod
    def backward(ctx, g):
        (
            x,
            w,
        ) = ctx.saved_tensors
        g = g * (ctx.p > 0)
        return g @ w.t(), x.t() @ g
