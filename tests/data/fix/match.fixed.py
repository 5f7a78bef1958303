from torch.autograd import Function


class Match(Function):
    @staticmethod
    def forward(ctx, x, mode: str):
        ctx.mode = mode
        match mode:
            case "exp":
                r = x.exp()
            case _:
                r = x.sin()
        ctx.save_for_backward(r)
        return r

    @staticmethod
    def backward(ctx, g):
        (r,) = ctx.saved_tensors
        try:
            return g * r, None
        finally:
            pass
