from torch.autograd import Function


class Early(Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        x, w = ctx.saved_tensors
        if not ctx.needs_input_grad[0] and not ctx.needs_input_grad[1]:
            return None, None
        x = x * 1
        return g @ w.t(), x.t() @ g
