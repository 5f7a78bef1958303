from torch.autograd import Function


class Statistic(Function):
    @staticmethod
    def forward(ctx, x):
        norm = x.norm(dim=-1, keepdim=True)
        ctx.save_for_backward(norm)
        return x / norm

    @staticmethod
    def backward(ctx, g):
        (norm,) = ctx.saved_tensors
        return g / norm
