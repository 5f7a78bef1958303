import torch


def moved(value, device):
    """A copy of tensors, and of what holds them."""
    if torch.is_tensor(value):
        new = value.to(device).detach().clone()
        new.requires_grad = value.requires_grad
        return new
    elif isinstance(value, list):
        return [moved(item, device) for item in value]
    elif isinstance(value, dict):
        return {key: moved(item, device) for key, item in value.items()}
    return value


class Offloaded(torch.autograd.Function):
    @staticmethod
    def forward(ctx, function, offload, *args):
        ctx.function, ctx.offload = function, offload
        ctx.others, ctx.places = [], []
        tensors = []
        for place, arg in enumerate(args):
            if torch.is_tensor(arg):
                tensors.append(moved(arg, "cpu") if offload else arg)
                ctx.places.append(place)
                ctx.others.append(None)
            else:
                ctx.others.append(arg)
        if offload:
            ctx.tensors = tensors
        else:
            ctx.save_for_backward(*tensors)
        with torch.no_grad():
            return function(*args)

    @staticmethod
    def backward(ctx, grad):
        if ctx.offload:
            tensors = ctx.tensors
        else:
            tensors = ctx.saved_tensors
        inputs = list(ctx.others)
        for place, tensor in zip(ctx.places, tensors):
            inputs[place] = tensor.detach().requires_grad_(tensor.requires_grad)
        with torch.enable_grad():
            output = ctx.function(*inputs)
        torch.autograd.backward(output, grad)
        grads = [item.grad if torch.is_tensor(item) else None for item in inputs]
        return None, None, *grads
