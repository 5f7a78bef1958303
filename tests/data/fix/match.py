from torch.autograd import Function


class Match(Function):
    @staticmethod
    def forward(ctx, x, mode: str):
        ctx.mode = mode
        match mode:
            case "exp":
                ctx.r = x.exp()
            case _:
                ctx.r = x.sin()
        return ctx.r

    @staticmethod
    def backward(ctx, g):
        try:
            return g * ctx.r, None
        finally:
            ctx.r = None
