from torch.autograd import Function


class Base(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x ** 2


class Left(Base):
    @staticmethod
    def backward(ctx, g):
        return 2 * g * ctx.x


class Right(Base):
    @staticmethod
    def backward(ctx, g):
        x = ctx.x
        return 2 * g * x
