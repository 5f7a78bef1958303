from torch.autograd import Function


class Walrus(Function):
    @staticmethod
    def forward(ctx, x, w):
        if (y := x @ w).numel() > 3:
            saved_y = y
        else:
            saved_y = y * 2
        ctx.save_for_backward(saved_y)
        return y

    @staticmethod
    def backward(ctx, g):
        (saved_y,) = ctx.saved_tensors
        return g @ saved_y, None
