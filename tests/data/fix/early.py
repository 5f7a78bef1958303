from torch.autograd import Function


class Early(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.x = x
        ctx.w = w
        return x @ w

    @staticmethod
    def backward(ctx, g):
        if not ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]:
            return None, None
        x = ctx.x
        x = x * 1
        return g @ ctx.w.t(), x.t() @ g
