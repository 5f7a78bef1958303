# refused: legacy style
from torch.autograd import Function


class Fn(Function):
    def forward(self, x):
        self.x = x
        return x * x

    def backward(self, g):
        return 2 * g * self.x
