from torch.autograd import Function


class Starred(Function):
    @staticmethod
    def forward(ctx, x, *ws):
        ctx.x = x
        ctx.save_for_backward(*ws)
        return x * sum(ws)

    @staticmethod
    def backward(ctx, g):
        ws = ctx.saved_tensors
        return (g * sum(ws), *(g * ctx.x for _ in ws))
