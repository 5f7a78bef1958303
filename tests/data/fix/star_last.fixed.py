from torch.autograd import Function


class StarLast(Function):
    @staticmethod
    def forward(ctx, x, w, *ws):
        ctx.save_for_backward(x, w, *ws)
        return x * sum(ws)

    @staticmethod
    def backward(ctx, g):
        x, w, *ws = ctx.saved_tensors
        return (g * sum(ws) * w, g, *(g * x for _ in ws))
